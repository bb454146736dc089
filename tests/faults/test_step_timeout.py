"""`step_timeout`: a call of an environment that takes too long is named and ended; whatever else takes long is not."""

import functools
import os
import signal
import threading
import time

import numpy as np
import pytest

import outrider
from helpers.envs import CounterEnv, FaultyEnv
from helpers.patience import SLOW, STEP_TIMEOUT, wait_for_end
from helpers.worker_envs import PausingEnv
from outrider.errors import ClosedError, ConfigError, EnvironmentTimeout
from outrider.vector.group import STEPPING
from outrider.vector.watch import SECOND, Late, Watch
from outrider.vector.worker import FINISHED, ISSUED, OPERATION, SINCE


def make(env, num_envs=None, workers=2, *, step_timeout=STEP_TIMEOUT, wait_for=None):
    backend = outrider.Processes(workers, "fork", wait_for=wait_for, step_timeout=step_timeout)
    return outrider.make_vec(env, num_envs, backend=backend)


def zeros(envs):
    return np.zeros(envs.num_envs, np.int64)


@pytest.mark.parametrize("where", ("step", "reset"))
def test_a_call_that_hangs_is_named_in_time(where):
    bad = functools.partial(FaultyEnv, "hang", where, 1)
    envs = make([CounterEnv, CounterEnv, CounterEnv, bad])
    envs.reset()
    envs.step(zeros(envs))
    began = time.monotonic()
    with pytest.raises(EnvironmentTimeout, match=r"not returned after \d+\.\d s \(step_timeout=4\)") as caught:
        envs.reset() if where == "reset" else envs.step(zeros(envs))
    assert STEP_TIMEOUT <= time.monotonic() - began < SLOW
    assert (caught.value.lane, caught.value.operation) == (3, where)
    assert str(caught.value.pid) in str(caught.value)
    wait_for_end(caught.value.pid)
    with pytest.raises(ClosedError):
        envs.step(zeros(envs))
    envs.close()
    assert time.monotonic() - began < SLOW


def test_a_reset_that_hangs_in_a_step_is_told_from_the_step():
    bad = functools.partial(FaultyEnv, "hang", "reset", 1, length=2)
    with make([CounterEnv, bad]) as envs:
        envs.reset()
        envs.step(zeros(envs))
        with pytest.raises(EnvironmentTimeout) as caught:
            envs.step(zeros(envs))
        assert (caught.value.lane, caught.value.operation) == (1, "reset")


@pytest.mark.parametrize("pause", (0, 0.1))
def test_a_lane_that_nobody_waits_for_hangs(pause):
    quick = functools.partial(PausingEnv, pause, "step")
    with make([quick, quick, lambda: FaultyEnv("hang")], workers=3, wait_for=1) as envs:
        envs.reset()
        envs.send(zeros(envs))
        began = time.monotonic()
        with pytest.raises(EnvironmentTimeout) as caught:
            step_whoever_arrives(envs, began + SLOW)
        assert (caught.value.lane, caught.value.operation) == (2, "step")


def step_whoever_arrives(envs, until):
    while time.monotonic() < until:
        arrived = envs.recv().env_id
        envs.send(np.zeros(len(arrived), np.int64), arrived)


def test_a_question_that_hangs():
    with make([CounterEnv, functools.partial(PausingEnv, 60)]) as envs:
        envs.reset()
        assert envs.get_attr("count") == (0, 0)
        with pytest.raises(EnvironmentTimeout) as caught:
            envs.call("pause")
        assert (caught.value.lane, caught.value.operation) == (1, "call")


def test_no_clock_runs_after_a_question():
    with make(CounterEnv, 4) as envs:
        envs.reset()
        envs.get_attr("count")
        threading.Event().wait(STEP_TIMEOUT * 1.1)
        assert envs.get_attr("count") == (0,) * 4
        assert envs.step(zeros(envs))[0].tolist() == [[1]] * 4


@pytest.mark.parametrize("state", ("idle", "in a step"))
def test_a_worker_that_was_stopped(state):
    with make([CounterEnv, CounterEnv, functools.partial(StoppingEnv, state != "idle")], workers=3) as envs:
        envs.reset()
        if state == "idle":
            os.kill(envs.worker_pids[2], signal.SIGSTOP)
        with pytest.raises(EnvironmentTimeout) as caught:
            envs.step(zeros(envs))
        assert (caught.value.lane, caught.value.operation) == ((-1, "wait") if state == "idle" else (2, "step"))
        assert ("has not begun" in str(caught.value)) == (state == "idle")


def test_a_worker_that_was_stopped_and_reads_nothing():
    with make(CounterEnv, 2) as envs:
        envs.reset()
        os.kill(envs.worker_pids[1], signal.SIGSTOP)
        with pytest.raises(EnvironmentTimeout, match="has not begun"):
            envs.send_reset([1], options=[{"long": b"x" * 10_000_000}])


class StoppingEnv(CounterEnv):
    """Stops its process in its first step."""

    def __init__(self, stops):
        super().__init__()
        self.stops = stops

    def step(self, action):
        if self.stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().step(action)


@pytest.mark.parametrize("seconds", (0, -1, float("inf"), float("nan"), "2", True))
def test_times_that_are_none_are_refused(seconds):
    with pytest.raises(ConfigError, match="step_timeout"):
        outrider.Processes(step_timeout=seconds)


def test_what_needs_workers_is_refused_elsewhere_and_says_where_it_works():
    with pytest.raises(ConfigError, match=r"Inline\(step_timeout=...\).*nobody can end.*Processes\(workers=1, step"):
        outrider.Inline(step_timeout=2)
    for backend in (outrider.Inline, outrider.Threads):
        for choice in (outrider.Restart(2), outrider.Drop()):
            with pytest.raises(ConfigError, match=rf"{backend.__name__}\(on_failure=...\).*use Processes") as caught:
                backend(on_failure=choice)
            assert repr(choice) in str(caught.value)
        with pytest.raises(ConfigError, match="'raise', Restart"):
            backend(on_failure="restart")
        assert backend(on_failure="raise") == backend()
        assert "on_failure" not in repr(backend())


@pytest.mark.parametrize(
    "settings",
    ({"step_timeout": 2}, {"on_failure": outrider.Restart()}, {"on_failure": outrider.Drop()}, {"wait_for": 1}),
)
def test_workers_that_run_the_policy_refuse_it_and_say_what_to_do(settings):
    plan, backend = outrider.Envs(CounterEnv, 2), outrider.Processes(**settings)
    ((name, value),) = settings.items()
    with pytest.raises(ConfigError) as caught:
        outrider.ParallelCollector(plan, lambda: len, workers=2, backend=backend)
    text = str(caught.value)
    assert f"Processes({name}=...)" in text
    assert f"found {value!r}" in text
    assert f"Collector(make_vec(plan, backend=Processes({name}={value!r})), policy)" in text


@pytest.fixture
def clock(monkeypatch):
    """The time as the watch sees it, in seconds."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: round(now[0] * SECOND))
    return now


def watch_of(count, limit=2):
    headers = [memoryview(bytearray(16 * 8)).cast("q") for _ in range(count)]
    for header in headers:
        header[OPERATION] = STEPPING
    return Watch(limit, headers), headers


def ask(watch, headers, index):
    watch.asked(index)
    headers[index][ISSUED] += 1


def test_the_clock_begins_with_the_call_or_with_the_request(clock):
    watch, headers = watch_of(2)
    assert watch.remaining() is None
    for index in range(2):
        ask(watch, headers, index)
    clock[0] += 0.5
    assert watch.look() is None
    headers[0][SINCE] = round(clock[0] * SECOND)
    clock[0] += 0.5
    assert watch.remaining() == 1
    # A further request does not give more time to the call that runs.
    ask(watch, headers, 1)
    assert watch.remaining() == 1
    clock[0] += 1
    assert watch.look() == Late(1, 2, 2, begun=False)
    headers[1][FINISHED] = 2
    assert watch.look() is None
    assert watch.remaining() == 0.5


def test_when_nobody_has_looked_for_long_each_call_is_given_the_time_once_more(clock):
    watch, headers = watch_of(1)
    ask(watch, headers, 0)
    assert watch.remaining() == 2
    clock[0] += 60
    assert watch.look() is None
    assert watch.remaining() == 2
    # But only once, or those who look seldom would never see it.
    clock[0] += 60
    assert watch.look() == Late(0, 60, 2, begun=False)
