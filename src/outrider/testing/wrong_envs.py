"""Tests of what environments do wrong, and of what comes of it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from outrider.errors import ConfigError, EnvironmentFailure, OutriderError
from outrider.testing.envs import Broken, Counter, Failing, same
from outrider.testing.subject import Subject
from outrider.vector.plan import EnvFactory

__all__ = ["WrongEnvironmentTests"]

BAD_OBSERVATIONS = {
    "a key is missing": ({"a": np.zeros(3, np.float32)}, "keys"),
    "a key too many": ({"a": np.zeros(3, np.float32), "b": 1, "c": 2}, "keys"),
    "another shape": ({"a": np.zeros(1, np.float32), "b": 1}, "'a'"),
    "another dtype": ({"a": np.zeros(3, np.float64), "b": 1}, "'a'"),
    "a list": ({"a": [0.0, 0.0, 0.0], "b": 1}, "'a'"),
    "a float for an integer": ({"a": np.zeros(3, np.float32), "b": 1.0}, "'b'"),
    "no dict": (np.zeros(3, np.float32), "keys"),
    "nothing": (None, "keys"),
}

REWARDS = {"integer": 2, "NumPy": np.float32(0.5), "one element": np.array([0.25]), "bool": True, "scalar": np.array(3)}


class WrongEnvironmentTests(Subject):
    """Part of `VecEnvConformance`."""

    def assert_as_in_the_source(self, factories: list[EnvFactory]) -> None:
        """Assert that the second step comes to what it comes to in a source that nobody wraps."""
        plain = self.plain(factories)
        expected = _second_step(plain)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is closed in the middle of a call
            plain.close(terminate=True)
        with self.make(factories) as envs:
            found = _second_step(envs)
        if isinstance(expected, Exception):
            assert isinstance(found, EnvironmentFailure)
            assert (found.lane, found.operation) == (-1, "step")
            assert type(expected).__name__ in str(found)
        elif isinstance(found, EnvironmentFailure):
            assert "expected" in str(found).splitlines()[0], "the source's batch does not fit its space"
        else:
            assert same(found[0], expected[0])
            assert np.array_equal(found[1], expected[1], equal_nan=True)

    @pytest.mark.parametrize("what", tuple(BAD_OBSERVATIONS))
    def test_an_observation_that_does_not_fit_its_space(self, what: str) -> None:
        bad, named = BAD_OBSERVATIONS[what]
        good = {"a": np.zeros(3, np.float32), "b": np.int64(1)}
        factories: list[EnvFactory] = [lambda: Broken(good), lambda: Broken(bad)]
        if not self.by_lane:
            self.assert_as_in_the_source(factories)
            return
        with self.make(factories) as envs:
            envs.reset()
            envs.step(np.zeros(2, np.int64))
            with pytest.raises(EnvironmentFailure, match=named) as caught:
                envs.step(np.zeros(2, np.int64))
            assert (caught.value.lane, caught.value.operation) == (1, "step")
            assert "observation" in str(caught.value).splitlines()[0]

    @pytest.mark.parametrize("kind", tuple(REWARDS))
    def test_rewards_of_every_kind_become_floats(self, kind: str) -> None:
        reward = REWARDS[kind]
        if not self.by_lane:
            self.assert_as_in_the_source([lambda: Counter(9, reward=reward)] * 2)
            return
        with self.make(lambda: Counter(9, reward=reward), 2) as envs:
            envs.reset()
            found = envs.step(np.zeros(2, np.int64))[1]
            assert found.dtype == np.float64
            assert found.tolist() == [float(np.asarray(reward).sum())] * 2

    @pytest.mark.parametrize("reward", (None, "one", np.zeros(2)))
    def test_a_reward_that_is_no_number(self, reward: Any) -> None:
        factories: list[EnvFactory] = [lambda: Counter(9), lambda: Counter(9, reward=reward)]
        if not self.by_lane:
            self.assert_as_in_the_source(factories)
            return
        with self.make(factories) as envs:
            envs.reset()
            with pytest.raises(EnvironmentFailure, match="reward") as caught:
                envs.step(np.zeros(2, np.int64))
            assert caught.value.lane == 1

    @pytest.mark.parametrize("where", ("construct", "reset", "step"))
    def test_an_environment_that_raises(self, where: str) -> None:
        factories: list[EnvFactory] = [lambda: Counter(9), lambda: Failing(where)]
        with pytest.raises(EnvironmentFailure, match=f"told to fail in {where}") as caught:
            _live(self.make(factories))
        error = caught.value
        assert (error.lane, error.operation) == (1 if self.by_lane else -1, where)
        assert f"process {error.pid}" in str(error)
        assert self.far or "in fail_in" in str(error), "the original traceback"

    def test_an_environment_that_raises_in_close(self) -> None:
        with self.make([lambda: Failing("close"), lambda: Counter(9)]) as envs:
            envs.reset()
            if self.far:
                envs.close()
                assert envs.closed
                return
            with pytest.raises(EnvironmentFailure, match="told to fail in close") as caught:
                envs.close()
            assert (caught.value.lane, caught.value.operation) == (0 if self.by_lane else -1, "close")
            # The close behind the test finds nothing left to do.

    def test_spaces_that_differ_are_refused(self) -> None:
        kind, named = (ConfigError, "lane 2") if self.builds else (RuntimeError, "space")
        with pytest.raises(kind, match=named):
            _live(self.make([lambda: Counter(9), lambda: Counter(9), lambda: Counter(9, (2,))]))

    def test_the_same_environment_twice_is_refused(self) -> None:
        shared = Counter(9)
        if self.far:
            with self.make([lambda: shared] * 2) as envs:
                envs.reset()
                assert self.step(envs, np.zeros(2, np.int64))[0].tolist() == [[1], [1]]
            return
        with pytest.raises(OutriderError, match=r"another lane|each lane"):
            _live(self.make([lambda: shared] * len(self.share(shared)), None))

    def share(self, _: Any) -> range:
        """Lanes of which at least two are built in the same process."""
        return range(8)

    def test_infos_of_any_kind_do_no_harm(self) -> None:
        with self.make(Odd, 3) as envs:
            envs.reset()
            if self.far:
                with pytest.raises(EnvironmentFailure, match="pickle"):
                    envs.step(np.zeros(3, np.int64))
                return
            for _ in range(3):
                infos = envs.step(np.zeros(3, np.int64))[-1]
                assert infos["_big"].all()
                assert all(len(big) == 1_000_000 for big in infos["big"])
            envs.send(np.zeros(3, np.int64))
            assert not envs.recv().info, "infos that nobody asked for"


class Odd(Counter):
    """Has infos that are large, and that cannot be pickled."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        info = {"big": b"x" * 1_000_000, "generator": (i for i in range(3)), "plain": 1, "list": [open]}
        return observation, reward, terminated, truncated, info


def _live(making: Any) -> None:
    """Make environments and use them until one fails."""
    with making as envs:
        for _ in range(3):
            envs.reset()
            envs.step(np.zeros(envs.num_envs, np.int64))


def _second_step(envs: Any) -> Any:
    """Observations and rewards of the second step, or the error that came instead."""
    envs.reset()
    try:
        return [envs.step(np.zeros(envs.num_envs, np.int64))[:2] for _ in range(2)][-1]
    except Exception as error:  # noqa: BLE001 - whatever a source raises
        return error
