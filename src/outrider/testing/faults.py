"""Suites about environments that fail or hang, for backends that can do something about it."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

import outrider
from outrider.errors import ConfigError, EnvironmentFailure, EnvironmentTimeout
from outrider.testing.envs import Counter
from outrider.vector.driver import Backend
from outrider.vector.env import VecEnv
from outrider.vector.plan import EnvFactory
from outrider.vector.recovery import OnFailure

__all__ = ["RecoveryConformance", "TimeoutConformance"]

RELEASED = threading.Event()
"""Ends what hangs in this process."""

LIMIT = 4.0
"""The `step_timeout`: seconds for which a call that does not hang may have to wait for a processor."""

BOUND = 60.0
"""Seconds in which an error is known, on the busiest machine."""


class Slow(Counter):
    """Takes its time: in its construction, or in the call number `at` (all of them: 0) of an operation."""

    def __init__(self, operation: str = "", seconds: float | None = None, at: int = 0) -> None:
        super().__init__(1000)
        self.operation, self.seconds, self.at = operation, seconds, at
        self.calls: dict[str, int] = {}
        self.take("construct")

    def take(self, operation: str) -> None:
        """Wait, if it is time."""
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if operation == self.operation and self.at in (0, self.calls[operation]):
            RELEASED.wait(self.seconds)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.take("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.take("step")
        return super().step(action)

    def question(self) -> None:
        """Something to call."""
        self.take("call")


class TimeoutConformance:
    """What holds for every backend that takes a `step_timeout`.

    Subclass it in a module that pytest collects, and say what to test.

    Example:
        >>> class TestThreadsTimeouts(TimeoutConformance):
        ...     def backend(self, step_timeout, workers):
        ...         return outrider.Threads(workers, step_timeout=step_timeout)
    """

    def backend(self, step_timeout: float, workers: int) -> Backend:
        """A backend with so many workers whose calls may take so many seconds."""
        raise NotImplementedError

    @pytest.mark.parametrize("operation", ("reset", "step", "call"))
    def test_a_call_that_hangs_is_named(self, operation: str) -> None:
        RELEASED.clear()
        factories: list[EnvFactory] = [Slow, partial(Slow, operation, None, 2), Slow]
        try:
            with outrider.make_vec(factories, backend=self.backend(LIMIT, 3)) as envs:
                _ask_everything(envs)
                began = time.monotonic()
                with pytest.raises(EnvironmentTimeout, match=rf"step_timeout={LIMIT:g}\b") as caught:
                    _ask_everything(envs)
            assert time.monotonic() - began < BOUND
            assert (caught.value.lane, caught.value.operation) == (1, operation)
            assert str(caught.value.pid) in str(caught.value)
        finally:
            RELEASED.set()

    def test_each_call_has_a_clock_of_its_own(self) -> None:
        RELEASED.clear()
        with outrider.make_vec(partial(Slow, "step", LIMIT / 10), 12, backend=self.backend(LIMIT, 1)) as envs:
            envs.reset()
            assert envs.step(np.zeros(12, np.int64))[0].tolist() == [[1]] * 12

    def test_no_clock_runs_while_nothing_is_asked(self) -> None:
        with outrider.make_vec(Slow, 2, backend=self.backend(LIMIT, 2)) as envs:
            envs.reset()
            envs.send(np.zeros(1, np.int64), [0])
            # One has been done with its call for long, the other has not been asked for anything.
            threading.Event().wait(LIMIT * 1.1)
            envs.send(np.zeros(1, np.int64), [1])
            found = envs.recv().env_id.tolist()
            while len(found) < 2:
                found += envs.recv().env_id.tolist()
            assert sorted(found) == [0, 1]

    def test_construction_may_take_any_time(self) -> None:
        RELEASED.clear()
        with outrider.make_vec(partial(Slow, "construct", LIMIT * 1.1), 2, backend=self.backend(LIMIT, 2)) as envs:
            assert envs.reset()[0].tolist() == [[0], [0]]


class Frail(Counter):
    """Raises in the step or reset number `at` of its life; its rewards are drawn from its own generator."""

    def __init__(self, operation: str = "", at: int = 0) -> None:
        super().__init__(1000)
        self.operation, self.at = operation, at
        self.calls: dict[str, int] = {}

    def live(self, operation: str) -> None:
        """Raise, if it is time."""
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if operation == self.operation and self.calls[operation] >= self.at:
            msg = f"told to fail in {operation}"
            raise RuntimeError(msg)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.live("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.live("step")
        observation, _, *rest = super().step(action)
        return (observation, float(self.np_random.random()), *rest)


class RecoveryConformance:
    """What holds for every backend that takes an `on_failure`.

    Subclass it in a module that pytest collects, and say what to test.

    Example:
        >>> class TestProcessesRecovery(RecoveryConformance):
        ...     def backend(self, on_failure):
        ...         return outrider.Processes(2, on_failure=on_failure)
    """

    def backend(self, on_failure: OnFailure) -> Backend:
        """A backend that makes this choice."""
        raise NotImplementedError

    def test_an_environment_that_raises_is_made_anew(self) -> None:
        backend = self.backend(outrider.Restart(5))
        with outrider.make_vec([Frail, partial(Frail, "step", 3), Frail, Frail], backend=backend) as envs:
            envs.reset(seed=0)
            found: list[tuple[np.ndarray, list[int]]] = []
            rewards: set[float] = set()
            with _told("lane 1 is restarted"):
                _collect(envs, 9, found, rewards)
            # Two steps of each life happen, the third is lost; the other lanes notice nothing.
            steps = [[obs[lane, 0] for obs, _ in found] for lane in range(4)]
            assert steps[1] == [1, 2, 0] * 3
            assert steps[0] == steps[2] == steps[3] == list(range(1, 10))
            assert [lost for _, lost in found] == [[], [], [1]] * 3
            # No life repeats what another one has drawn.
            assert len(rewards) == 4 * 9 - 3
            assert (envs.driver.restarts, envs.driver.lost_steps) == (3, 3)

    @pytest.mark.parametrize("operation", ("step", "reset"))
    def test_what_always_fails_is_raised_after_the_bound(self, operation: str) -> None:
        backend = self.backend(outrider.Restart(3))
        factories: list[EnvFactory] = [Frail, partial(Frail, operation, 2 if operation == "step" else 1)]
        with outrider.make_vec(factories, backend=backend) as envs:
            with (
                _told("lane 1 is restarted"),
                pytest.raises(EnvironmentFailure, match=f"told to fail in {operation}") as caught,
            ):
                _use(envs)
            assert (caught.value.lane, caught.value.operation) == (1, operation)
            assert envs.driver.restarts == 3

    def test_a_lane_that_raises_is_dropped(self) -> None:
        backend = self.backend(outrider.Drop())
        with outrider.make_vec([Frail, partial(Frail, "step", 2), Frail], backend=backend) as envs:
            envs.reset()
            envs.send(np.zeros(3, np.int64))
            assert envs.recv().env_id.tolist() == [0, 1, 2]
            envs.send(np.zeros(3, np.int64))
            with _told("lane 1 is dropped"):
                arrival = envs.recv()
            assert arrival.env_id.tolist() == [0, 2]
            assert "told to fail" in str(arrival.dropped[1])
            assert envs.dropped == (1,)
            with pytest.raises(ConfigError, match=r"lanes \[1\]"):
                envs.send(np.zeros(3, np.int64))
            with pytest.raises(ConfigError, match=r"lanes \[1\]"):
                envs.send_reset([1])
            envs.send(np.zeros(2, np.int64), [2, 0])
            assert envs.recv().obs.tolist() == [[3], [3]]


def _ask_everything(envs: VecEnv) -> None:
    envs.reset()
    envs.step(np.zeros(envs.num_envs, np.int64))
    envs.call("question")


def _told(what: str) -> Any:
    return pytest.warns(RuntimeWarning, match=what)


def _collect(envs: VecEnv, steps: int, found: list[tuple[np.ndarray, list[int]]], rewards: set[float]) -> None:
    """Step all lanes; keep observations, lost lanes, and the rewards of steps that were not lost."""
    for _ in range(steps):
        envs.send(np.zeros(envs.num_envs, np.int64))
        arrival = envs.recv()
        found.append((arrival.obs.copy(), arrival.lost))
        rewards.update(np.delete(arrival.reward, arrival.lost).tolist())


def _use(envs: VecEnv) -> None:
    for _ in range(20):
        envs.reset()
        envs.step(np.zeros(envs.num_envs, np.int64))
