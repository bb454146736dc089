"""Suites about vector rewards: those that environments declare by `reward_space`, as MO-Gymnasium's do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import outrider
from outrider.collect.interface import BaseCollector
from outrider.errors import ConfigError, EnvironmentFailure
from outrider.policies.base import Policy
from outrider.records import Episodes, Steps
from outrider.spec import LeafSpec
from outrider.testing.envs import Counter
from outrider.testing.judging import checked, judge
from outrider.testing.traced import ENDS, Traced, TracedPolicy
from outrider.vector.driver import Backend
from outrider.vector.env import VecEnv

__all__ = ["Objectives", "RewardCollectionConformance", "RewardConformance", "judge_objectives"]

BAD_REWARDS = {"a number": 1.0, "too many": np.zeros(3), "a column": np.zeros((2, 1)), "words": ["one", "two"]}

BAD_SPACES = {
    "another kind": spaces.MultiBinary(2),
    "two axes": spaces.Box(-1.0, 1.0, (2, 2)),
    "empty": spaces.Box(-1.0, 1.0, (0,)),
}


class Objectives(Traced):
    """`Traced` with two objectives: the reward of `Traced`, and what is left of -1 a step.

    It returns the same array at each step, and clears it in `reset`: who keeps it without a copy sees it change.
    """

    def __init__(self, lengths: tuple[int, ...] = (1, 2, 3, 5), ends: tuple[str, ...] = ENDS) -> None:
        super().__init__(lengths, ends)
        self.reward_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self._reward = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, without rewards."""
        self._reward[:] = np.nan
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of `Traced` with another reward."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._reward[:] = reward, -self.count
        return observation, self._reward, terminated, truncated, info


class Declared(Counter):
    """A counter with this reward and this declaration of it."""

    def __init__(self, reward: Any, space: Any, length: int = 9) -> None:
        super().__init__(length, reward=reward)
        self.reward_space = space


class Weighted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Makes one number of the vector, and says so."""

    reward_space = None

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The sum in place of the vector."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(np.asarray(reward).sum()), terminated, truncated, info


def judge_objectives(steps: Steps) -> None:
    """Each row of `Objectives` by itself."""
    assert steps.reward.dtype == np.float64
    judge(dataclasses.replace(steps, reward=steps.reward[:, 0]))
    assert steps.reward[:, 1].tolist() == (-1.0 - steps.step).tolist()


def pair(bound: float = 1.0) -> spaces.Box:
    """A declaration of two objectives."""
    return spaces.Box(-bound, bound, (2,), np.float32)


class RewardConformance:
    """Tests of a backend. Subclass it in a module that pytest collects, and say which backend it is.

    Example:
        >>> class TestInlineRewards(RewardConformance):
        ...     def backend(self):
        ...         return outrider.Inline()
    """

    def backend(self) -> Backend:
        """The backend to test."""
        raise NotImplementedError

    @contextmanager
    def make(self, env: Any, num_envs: int | None = None, **options: Any) -> Iterator[VecEnv]:
        """Environments on the backend, closed at the end."""
        with outrider.make_vec(env, num_envs, backend=self.backend(), **options) as envs:
            yield envs

    @pytest.mark.parametrize("mode", (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP))
    def test_rewards_are_those_of_the_environments(self, mode: AutoresetMode) -> None:
        alone = [Objectives() for _ in range(3)]
        actions = np.random.default_rng(0).integers(0, 5, (30, 3))
        with self.make(Objectives, 3, autoreset_mode=mode) as envs:
            assert envs.reward_space == alone[0].reward_space
            envs.reset(seed=5)
            for lane, env in enumerate(alone):
                env.reset(seed=5 + lane)
            over = np.zeros(3, np.bool_)
            held: list[tuple[Any, Any]] = []
            for row in actions:
                expected = np.zeros((3, 2))
                for lane, env in enumerate(alone):
                    if over[lane]:
                        env.reset()
                    if not over[lane] or mode == AutoresetMode.SAME_STEP:
                        expected[lane] = env.step(row[lane])[1]
                _, reward, terminated, truncated, _ = envs.step(row)
                over = terminated | truncated
                assert reward.shape == (3, 2)
                assert reward.dtype == np.float64
                held.append((reward, expected))
            for reward, expected in held:
                np.testing.assert_array_equal(reward, expected)

    def test_arrivals_bring_them(self) -> None:
        with self.make(partial(Declared, [1, 2.5], pair(), 2), 3) as envs:
            envs.reset()
            for hold in (False, True, False):
                envs.send(np.zeros(2, np.int64), [2, 0], hold=hold)
                found = envs.recv()
                rest = 2 - len(found.env_id)
                while rest:
                    rest -= len(envs.recv().env_id)
                assert found.reward.tolist() == [[1.0, 2.5]] * len(found.env_id)
                if hold:
                    envs.send_reset([2, 0])
                    while rest < 2:
                        rest += len(envs.recv().env_id)

    def test_one_objective_is_a_vector_where_it_is_declared(self) -> None:
        one, reward = spaces.Box(-9.0, 9.0, (1,), np.float32), np.array([7.0])
        for space, shape in ((one, (2, 1)), (None, (2,)), (spaces.Box(-9.0, 9.0, ()), (2,))):
            with self.make(partial(Declared, reward, space), 2) as envs:
                envs.reset()
                found = envs.step(np.zeros(2, np.int64))[1]
                assert found.shape == shape
                assert set(found.reshape(-1).tolist()) == {float(reward[0])}

    @pytest.mark.parametrize("kind", tuple(BAD_REWARDS))
    def test_a_reward_of_another_shape_is_refused(self, kind: str) -> None:
        bad = BAD_REWARDS[kind]
        factories = [partial(Declared, np.ones(2), pair()), partial(Declared, bad, pair())]
        with self.make(factories) as envs:
            envs.reset()
            with pytest.raises(EnvironmentFailure, match=r"expected shape \(2,\).*reward_space") as caught:
                envs.step(np.zeros(2, np.int64))
        assert (caught.value.lane, caught.value.operation) == (1, "step")
        assert f"{type(bad).__name__} {bad!r:.40}"[:40] in str(caught.value)

    def test_a_vector_that_was_not_declared_is_refused(self) -> None:
        with self.make([partial(Declared, 1.0, None), partial(Declared, np.ones(2), None)]) as envs:
            envs.reset()
            with pytest.raises(EnvironmentFailure, match=r"one number.*reward_space") as caught:
                envs.step(np.zeros(2, np.int64))
        assert caught.value.lane == 1

    @pytest.mark.parametrize("other", (None, pair(2.0), spaces.Box(-1.0, 1.0, (3,))), ids=str)
    def test_different_declarations_are_refused(self, other: Any) -> None:
        factories = [partial(Declared, np.ones(2), space) for space in (pair(), pair(), other)]
        with pytest.raises(ConfigError, match="reward_space of lane 2"), self.make(factories):
            pass

    @pytest.mark.parametrize("kind", tuple(BAD_SPACES))
    def test_what_declares_no_vector_is_refused(self, kind: str) -> None:
        with pytest.raises(ConfigError, match=r"shape \(k,\)"), self.make(partial(Declared, 1.0, BAD_SPACES[kind]), 2):
            pass

    def test_they_are_declared_through_wrappers(self) -> None:
        limited = outrider.Envs(partial(Declared, np.ones(2), pair()), 2, max_episode_steps=3)
        with self.make(limited) as envs:
            envs.reset()
            ends = [envs.step(np.zeros(2, np.int64))[1:4] for _ in range(3)]
            assert [reward.tolist() for reward, *_ in ends] == [[[1.0, 1.0]] * 2] * 3
            assert [truncated.tolist() for *_, truncated in ends] == [[False] * 2, [False] * 2, [True] * 2]

    def test_a_wrapper_can_make_one_number_of_them(self) -> None:
        with self.make(lambda: Weighted(Declared(np.array([1.0, 2.0]), pair())), 2) as envs:
            assert envs.reward_space is None
            envs.reset()
            assert envs.step(np.zeros(2, np.int64))[1].tolist() == [3.0, 3.0]


class RewardCollectionConformance:
    """Tests of a collector. Subclass it in a module that pytest collects, and say how it is made.

    Example:
        >>> from contextlib import contextmanager
        >>> class TestInline(RewardCollectionConformance):
        ...     @contextmanager
        ...     def make(self, plan, policy, seed):
        ...         with outrider.make_vec(plan) as envs, outrider.Collector(envs, policy, seed=seed) as collector:
        ...             yield collector
    """

    def make(self, plan: outrider.Envs, policy: Policy, seed: int) -> AbstractContextManager[BaseCollector]:
        """A context with a collector of this plan, policy and seed, closed at the end with all that belongs to it."""
        raise NotImplementedError

    def collecting(self, num_envs: int, *lengths: int) -> AbstractContextManager[BaseCollector]:
        """A collector of `Objectives`."""
        return self.make(outrider.Envs(partial(Objectives, lengths or (1, 2, 3, 5)), num_envs), TracedPolicy(), 3)

    def test_every_record_has_them(self) -> None:
        with self.collecting(3) as collector:
            assert collector.spec.reward == LeafSpec((2,), np.dtype(np.float64))
            assert collector.spec.zeros(4).reward.shape == (4, 3, 2)
            assert checked(collector.spec.zeros(4)).reward.dtype == np.float64
            # Rollouts in place, carried rows, rows gathered out of several blocks, whole episodes.
            takes: Sequence[Callable[[], Any]] = (
                lambda: collector.rollout(8),
                lambda: collector.steps(10),
                lambda: collector.rollout(5),
                lambda: collector.rollout(4, lanes=2),
                lambda: collector.episodes(7),
                lambda: collector.steps(11),
            )
            for take in takes:
                record = checked(take())
                judge_objectives(record if isinstance(record, Steps) else record.flatten())
                for episode in record.segments():
                    assert episode.return_.tolist() == episode.reward.sum(axis=0).tolist()

    def test_returns_are_sums_for_each_objective(self) -> None:
        with self.collecting(2, 2, 4) as collector:
            assert collector.stats.returns.shape == (0, 2)
            assert np.isnan(collector.stats.mean_return).tolist() == [True, True]
            episodes: Episodes = collector.episodes(9)
            stats = collector.stats
            assert episodes.returns.shape == (9, 2)
            assert stats.returns.shape == (stats.episodes, 2)
            assert {tuple(one) for one in episodes.returns.round(9).tolist()} <= {
                tuple(one) for one in stats.returns.round(9).tolist()
            }
            assert set(stats.returns[:, 1]) <= {-3.0, -10.0}
            np.testing.assert_array_equal(stats.mean_return, stats.returns.mean(axis=0))
            assert f"mean_return=[{stats.mean_return[0]:.6g}, {stats.mean_return[1]:.6g}]" in repr(stats)
            assert episodes[:0].returns.shape == (0, 2)

    def test_they_are_padded_with_zeros(self) -> None:
        with self.collecting(2, 1, 4) as collector:
            episodes = collector.episodes(8)
            padded = episodes.padded()
            assert padded.reward.shape == (8, int(episodes.lengths.max()), 2)
            assert not padded.reward[~padded.mask].any()
            np.testing.assert_allclose(padded.reward.sum(axis=1), episodes.returns)

    def test_an_episode_is_cut_with_the_rewards_so_far(self) -> None:
        with self.collecting(2, 50) as collector:
            before = checked(collector.rollout(7))
            collector.reset()
            after = checked(collector.rollout(7))
            for rollout in (before, after):
                judge_objectives(rollout.flatten())
            assert collector.stats.cuts == 2
            assert collector.stats.episodes == 0
