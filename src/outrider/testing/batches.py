"""A suite for batches of environments that somebody else has made and `make_vec` takes as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import outrider
from outrider import tree
from outrider.errors import ClosedError, ConfigError
from outrider.tree import Tree
from outrider.vector.env import VecEnv

__all__ = ["BatchConformance"]


class BatchConformance:
    """Tests of a batch of environments behind `make_vec`. Subclass it in a module that pytest collects.

    What a source returns is compared with what a second one returns that nobody wraps. Both are made by `source`, which
    must therefore make equal ones; where seeds are only known to `reset`, both are reset with the same.

    Attributes:
        apart: whether its lanes can be sent to apart. Where not, it is tested that such requests are refused.
        masks: whether some of its lanes can be reset while others go on. Likewise.
        seeds: whether its resets take a seed.

    Example:
        >>> class TestSyncVectorEnv(BatchConformance):
        ...     def source(self):
        ...         return gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    """

    apart = False
    masks = False
    seeds = True

    def source(self) -> Any:
        """A new batch of at least two environments whose episodes end within 200 steps of random actions."""
        raise NotImplementedError

    @contextmanager
    def make(self) -> Iterator[tuple[VecEnv, Plain]]:
        """A wrapped source that was reset, and one that is not wrapped and was reset in the same way."""
        with outrider.make_vec(self.source()) as envs:
            plain = Plain(self.source(), seeded=self.seeds)
            try:
                obs = envs.reset(seed=7) if self.seeds else envs.reset()
                assert same_values(obs[0], plain.obs)
                envs.action_space.seed(11)
                yield envs, plain
            finally:
                plain.source.close()

    def test_lanes_and_spaces_are_those_of_the_source(self) -> None:
        with self.make() as (envs, plain):
            assert envs.num_envs == plain.num_envs
            assert envs.single_action_space == plain.action_space
            assert envs.metadata["autoreset_mode"] == plain.mode
            assert envs.driver.autoreset_mode == plain.mode

    def test_each_row_is_that_of_the_source(self) -> None:
        with self.make() as (envs, plain):
            ends = 0
            for _ in range(200):
                actions = envs.action_space.sample()
                envs.send(actions)
                arrival = envs.recv()
                dummies = plain.over.copy()
                plain.step(actions)
                assert arrival.env_id.tolist() == list(range(envs.num_envs))
                assert same_values(arrival.obs, plain.obs)
                assert np.array_equal(arrival.reward, np.where(dummies, 0, plain.reward))
                assert np.array_equal(arrival.terminated, plain.terminated)
                assert np.array_equal(arrival.truncated, plain.truncated)
                assert arrival.dummies == np.flatnonzero(dummies).tolist()
                assert arrival.ended == np.flatnonzero(plain.terminated | plain.truncated).tolist()
                ends += len(arrival.ended)
                if arrival.ended and plain.mode == AutoresetMode.NEXT_STEP:
                    assert same_values(arrival.final_obs, tree.take(plain.obs, arrival.ended))
            assert ends > 0

    def test_what_was_returned_never_changes(self) -> None:
        with self.make() as (envs, _):
            kept = [self.go_on(envs) for _ in range(20)]
            copies = [tree.map(np.copy, step) for step in kept]
            for _ in range(20):
                self.go_on(envs)
            assert all(same_values(step, copy) for step, copy in zip(kept, copies, strict=True))

    def go_on(self, envs: VecEnv) -> Tree:
        """Step all lanes; return what came of it, without infos."""
        step = envs.step(envs.action_space.sample())[:4]
        ended = step[2] | step[3]
        if ended.any() and envs.metadata["autoreset_mode"] == AutoresetMode.DISABLED:
            envs.reset(options={"reset_mask": ended})
        return step

    def test_some_lanes_are_stepped_or_the_request_is_refused(self) -> None:
        with self.make() as (envs, plain):
            actions = envs.action_space.sample()
            first = tree.take(actions, slice(0, 1))
            if self.apart:
                before = tree.take(plain.obs, slice(1, None))
                envs.send(first, [0])
                assert envs.recv().env_id.tolist() == [0]
                others = np.arange(1, envs.num_envs)
                # The others have not moved: they return what they would have returned at once.
                plain.step(actions)
                envs.send(tree.take(actions, others), others)
                assert same_values(envs.recv().obs, tree.take(plain.obs, others))
                assert not same_values(tree.take(plain.obs, others), before)
            else:
                with pytest.raises(ConfigError, match="step together"):
                    envs.send(first, [0])
                envs.send(actions)
                plain.step(actions)
                assert same_values(envs.recv().obs, plain.obs)

    def test_some_lanes_are_reset_or_the_request_is_refused(self) -> None:
        with self.make() as (envs, plain):
            actions = envs.action_space.sample()
            envs.send(actions)
            envs.recv()
            plain.step(actions)
            if not self.masks:
                with pytest.raises(ConfigError, match="reset"):
                    envs.send_reset([0])
                return
            envs.send_reset([0])
            assert envs.recv().env_id.tolist() == [0]
            actions = envs.action_space.sample()
            envs.send(actions)
            arrival = envs.recv()
            plain.step(actions)
            assert same_values(tree.take(arrival.obs, slice(1, None)), tree.take(plain.obs, slice(1, None)))

    def test_a_lane_that_is_held_at_its_end_begins_anew_when_it_is_reset(self) -> None:
        with self.make() as (envs, _):
            lanes = np.arange(envs.num_envs)
            for _ in range(200):
                envs.send(envs.action_space.sample(), hold=True)
                arrival = envs.recv()
                assert not arrival.dummies
                if arrival.ended:
                    break
            assert arrival.ended
            running = np.setdiff1d(lanes, arrival.ended)
            if len(running):
                envs.send(tree.take(envs.action_space.sample(), running), running)
                assert envs.recv().env_id.tolist() == running.tolist()
            envs.send_reset()
            assert envs.recv().env_id.tolist() == lanes.tolist()
            envs.send(envs.action_space.sample())
            arrival = envs.recv()
            assert (arrival.env_id.tolist(), arrival.dummies) == (lanes.tolist(), [])

    def test_it_is_closed_with_its_wrapper_and_taken_only_once(self) -> None:
        source, closings = self.source(), []
        close = source.close
        source.close = lambda: closings.append(close())
        envs = outrider.make_vec(source)
        with pytest.raises(ConfigError, match="given to make_vec before"):
            outrider.make_vec(source)
        envs.reset()
        envs.close()
        envs.close()
        assert len(closings) == 1
        del source.close
        with pytest.raises(ClosedError):
            envs.reset()


class Plain:
    """A source that nobody wraps, stepped as its mode asks; the attributes are what it returned last, copied."""

    def __init__(self, source: Any, *, seeded: bool) -> None:
        self.source = source
        self.num_envs = int(source.num_envs)
        self.mode = AutoresetMode(source.metadata["autoreset_mode"])
        self.action_space = source.single_action_space
        self.obs: Tree = _arrays(source.reset(seed=7)[0] if seeded else source.reset()[0])
        self.reward = np.zeros(self.num_envs)
        self.terminated = self.truncated = self.over = np.zeros(self.num_envs, np.bool_)

    def step(self, actions: Tree) -> None:
        """Step all lanes; without autoreset, reset those that end, as a wrapped source does."""
        obs, reward, terminated, truncated, _ = self.source.step(actions)
        self.obs, self.reward = _arrays(obs), np.array(reward)
        self.terminated, self.truncated = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        ended = self.terminated | self.truncated
        self.over = ended & (self.mode == AutoresetMode.NEXT_STEP)
        if self.mode == AutoresetMode.DISABLED and ended.any():
            self.obs = _arrays(self.source.reset(options={"reset_mask": ended})[0])


def _arrays(batch: Tree) -> Tree:
    return tree.map(np.array, batch)


def same_values(one: Tree, other: Tree) -> bool:
    """Whether two trees of arrays are equal but for the width of their dtypes."""
    pairs: list[bool] = []
    tree.map(lambda a, b: pairs.append(np.array_equal(a, b)), one, other)
    return all(pairs)
