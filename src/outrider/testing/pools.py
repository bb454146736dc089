"""A suite for pools of EnvPool, whose environments nobody can write: what needs none that was made for a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import outrider
from outrider import tree
from outrider.errors import ClosedError, ConfigError, OutriderError, SpecError
from outrider.vector.arrival import Arrival
from outrider.vector.env import VecEnv

__all__ = ["PoolConformance"]


class PoolConformance:
    """Tests of a kind of pool behind `make_vec`. Subclass it in a module that pytest collects.

    `BatchConformance` compares the rows of a source with those of one that nobody wraps, where it returns all lanes
    together; this suite takes both sides of a pool, and what does not show in rows.

    Attributes:
        limit: steps of an episode, set in the pool (`max_episode_steps`); no action may end one earlier.
        alike: whether the first episodes of all lanes look alike, because seeds change nothing that can be seen.

    Example:
        >>> class TestCartPole(PoolConformance):
        ...     def source(self):
        ...         return envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, max_episode_steps=4, seed=3)
    """

    limit = 4
    alike = False

    def source(self) -> Any:
        """A new pool of four environments with observations of one leaf and Discrete actions; equal ones each time."""
        raise NotImplementedError

    @contextmanager
    def make(self, **settings: Any) -> Iterator[VecEnv]:
        """The pool, wrapped and reset, closed at the end; `settings` are those of `Envs`."""
        with outrider.make_vec(outrider.Envs(self.source(), **settings)) as envs:
            envs.reset()
            yield envs

    # -- what it is --------------------------------------------------------------------------------------------------

    def test_spaces_and_lanes_are_those_of_the_pool(self) -> None:
        pool = self.source()
        with self.make() as envs:
            assert envs.num_envs == pool.config["num_envs"]
            assert envs.single_observation_space == pool.observation_space
            assert envs.observation_space == batch_space(pool.observation_space, envs.num_envs)
            assert envs.action_space == batch_space(pool.action_space, envs.num_envs)
            assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
            assert (envs.spec, envs.render_mode, envs.worker_pids) == (None, None, [])
            batch = pool.config["batch_size"]
            assert envs.driver.wait_for == (None if batch in (0, envs.num_envs) else batch)
            arrival = go(envs, range(envs.num_envs))
            assert arrival["obs"].dtype == pool.observation_space.dtype
            assert arrival["obs"].shape == (envs.num_envs, *pool.observation_space.shape)
            assert arrival["reward"].dtype == np.float64

    def test_pools_of_one_seed_are_equal_and_lanes_are_not(self) -> None:
        found = []
        for _ in range(2):
            with outrider.make_vec(self.source()) as envs:
                obs = [envs.reset()[0]]
                obs += [go(envs, range(envs.num_envs))["obs"] for _ in range(3 * self.limit)]
                found.append(np.stack(obs))
        assert np.array_equal(found[0], found[1])
        assert self.alike == np.array_equal(found[0][:, 0], found[0][:, 1])

    def test_seeds_and_options_that_come_too_late(self) -> None:
        with self.make() as envs:
            with pytest.warns(UserWarning, match=r"envpool\.make"):
                envs.reset(seed=3)
            envs.reset(seed=[4, None, 5, 6])
            with pytest.raises(ConfigError, match="options"):
                envs.reset(options={"level": 3})
            with pytest.raises(ConfigError, match="options"):
                envs.send_reset([1], options=[{"level": 3}])
            with pytest.raises(ConfigError, match="seed"):
                envs.reset(seed=[1, 2])
            go(envs, range(envs.num_envs))

    # -- counts and infos --------------------------------------------------------------------------------------------

    def test_each_lane_goes_through_its_episodes_one_by_one(self) -> None:
        lanes = range(4)
        with self.make() as envs:
            at = np.zeros(envs.num_envs, np.int64)
            for _ in range(3 * self.limit):
                found = go(envs, lanes)
                dummies, at = at == self.limit, np.where(at == self.limit, 0, at + 1)
                assert found["dummies"] == np.flatnonzero(dummies).tolist()
                assert found["ended"] == np.flatnonzero(at == self.limit).tolist()
                assert np.array_equal(found["truncated"], at == self.limit)
                assert not found["terminated"].any()
                assert not found["reward"][dummies].any()

    # A collector has seeds.
    @pytest.mark.filterwarnings("ignore:.*envpool")
    def test_chosen_infos_are_those_of_the_lane(self) -> None:
        with self.make(info_keys=("elapsed_step",)) as envs:
            policy = outrider.RandomPolicy(envs.single_action_space)
            with outrider.Collector(envs, policy, seed=0) as collector:
                episodes = collector.episodes(6)
        assert [len(one) for one in episodes] == [self.limit] * 6
        counts = np.arange(1, self.limit + 1)
        assert all(np.array_equal(one.info["elapsed_step"], counts) for one in episodes)

    @pytest.mark.filterwarnings("ignore:.*envpool")
    def test_steps_are_exactly_as_many_as_are_asked_for(self) -> None:
        with self.make() as envs:
            policy = outrider.RandomPolicy(envs.single_action_space)
            with outrider.Collector(envs, policy, seed=0) as collector:
                for count in (1, 7, 12, 30):
                    steps = collector.steps(count)
                    assert len(steps.reward) == count
                    assert set(steps.step.tolist()) <= set(range(self.limit)), "a dummy is no step"

    # -- resets ------------------------------------------------------------------------------------------------------

    def test_some_lanes_are_reset_and_the_others_stay(self) -> None:
        with self.make() as envs:
            last = go(envs, range(4))["obs"]
            found = go(envs, [0, 2], reset=True)
            assert (found["dummies"], found["ended"]) == ([], [])
            obs = envs.reset(options={"reset_mask": np.array([True, False, False, True])})[0]
            assert np.array_equal(obs[1], last[1])
            assert np.array_equal(obs[2], found["obs"][1])
            # The next ends come when each lane has its own steps behind it.
            ends = [go(envs, range(4))["ended"] for _ in range(self.limit)]
            assert ends[-2:] == [[1], [0, 2, 3]]

    def test_a_reset_drops_what_is_under_way(self) -> None:
        with self.make() as envs:
            envs.send(zeros(4))
            envs.reset()
            with pytest.raises(OutriderError, match="send"):
                envs.recv()
            ends = [go(envs, range(4))["ended"] for _ in range(self.limit)]
            assert ends == [[]] * (self.limit - 1) + [[0, 1, 2, 3]]

    # -- what it cannot do, and misuse -------------------------------------------------------------------------------

    def test_its_environments_have_no_attributes(self) -> None:
        with self.make() as envs:
            for ask in (
                lambda: envs.get_attr("spec"),
                lambda: envs.set_attr("level", 3),
                lambda: envs.call("render"),
                lambda: envs.at([1]).get_attr("spec"),
                lambda: envs.np_random,
                lambda: envs.np_random_seed,
            ):
                with pytest.raises(ConfigError, match="attributes"):
                    ask()
            with pytest.raises(ConfigError, match="render_mode"):
                envs.render()
            go(envs, range(4))

    def test_misuse_is_refused_and_ends_nothing(self) -> None:
        with self.make() as envs:
            for lanes in ([1, 1], [4], [-1], [], [0.5], [[0]]):
                with pytest.raises(ConfigError, match="env_ids"):
                    envs.send(zeros(len(lanes)), lanes)
            for actions in (zeros(3), np.zeros(4), np.zeros((4, 1), np.int64), {"a": zeros(4)}):
                with pytest.raises(SpecError):
                    envs.send(actions)
            with pytest.raises(OutriderError, match="send"):
                envs.recv()
            envs.send(zeros(4))
            arrivals = 0
            for misuse in (lambda: envs.send(zeros(1), [1]), lambda: envs.step(zeros(4)), lambda: envs.at([0])):
                with pytest.raises(OutriderError, match="recv"):
                    misuse()
            while arrivals < 4:
                arrivals += len(envs.recv().env_id)
            # Integers of another width are actions as well.
            envs.send(np.zeros(4, np.uint8))

    # -- closing -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("under_way", (False, True))
    def test_use_after_close(self, *, under_way: bool) -> None:
        source = self.source()
        envs = outrider.make_vec(source)
        envs.reset()
        if under_way:
            envs.send(zeros(4))
        envs.close()
        envs.close()
        assert (envs.closed, source.closed) == (True, True)
        for use in (
            envs.reset,
            envs.send_reset,
            envs.recv,
            envs.render,
            lambda: envs.step(zeros(4)),
            lambda: envs.get_attr("spec"),
        ):
            with pytest.raises(ClosedError, match="closed"):
                use()
        with pytest.raises(ConfigError, match="was closed"):
            outrider.make_vec(source)


def zeros(count: int) -> np.ndarray:
    """Actions."""
    return np.zeros(count, np.int64)


def go(envs: VecEnv, lanes: Any, *, reset: bool = False) -> dict[str, Any]:
    """Step or reset some lanes and receive until each has come back; return what came, in the order of the lanes."""
    if reset:
        envs.send_reset(lanes)
    else:
        envs.send(zeros(len(lanes)), lanes, hold=False)
    arrivals: list[Arrival] = []
    while sum(len(one.env_id) for one in arrivals) < len(lanes):
        arrivals.append(envs.recv())
    order = np.argsort(np.concatenate([one.env_id for one in arrivals]))
    found: dict[str, Any] = {
        name: tree.take(np.concatenate([getattr(one, name) for one in arrivals]), order)
        for name in ("obs", "reward", "terminated", "truncated")
    }
    for name in ("dummies", "ended"):
        found[name] = sorted(lane for one in arrivals for lane in getattr(one, name))
    return found
