"""What is particular to threads."""

import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest

import outrider
from helpers.patience import RUNNING, SLOW, STEP_TIMEOUT
from outrider.errors import ClosedError, ConfigError, EnvironmentFailure, EnvironmentTimeout
from outrider.testing.envs import Counter, Failing
from outrider.testing.gates import Gate, Gated
from outrider.vector import threads


class Placed(Counter):
    """Knows in which thread each of its methods was called."""

    def __init__(self):
        super().__init__()
        self.places = []
        self.note("construct")

    def note(self, operation):
        self.places.append((operation, threading.current_thread().name))

    def reset(self, *, seed=None, options=None):
        self.note("reset")
        return super().reset(seed=seed)

    def step(self, action):
        self.note("step")
        return super().step(action)

    def close(self):
        self.note("close")


def test_each_environment_lives_in_one_thread():
    made = []

    def factory():
        made.append(Placed())
        return made[-1]

    with outrider.make_vec(factory, 4, backend=outrider.Threads(2)) as envs:
        envs.reset()
        envs.step(np.zeros(4, np.int64))
        envs.call("note", "call")
        found = envs.get_attr("places")
    operations = ["construct", "reset", "step", "call"]
    for lane, places in enumerate(found):
        assert [operation for operation, _ in places[: len(operations)]] == operations
        assert {name for _, name in places} == {f"outrider-worker-{lane // 2}"}
        assert [operation for operation, _ in places].count("close") == 1
    assert len(made) == 4


@pytest.mark.parametrize(
    "arguments", ({"workers": 0}, {"workers": True}, {"wait_for": 0}, {"step_timeout": 0}, {"step_timeout": "1"})
)
def test_arguments_that_make_no_sense_are_refused(arguments):
    with pytest.raises(ConfigError):
        outrider.Threads(**arguments)


def test_more_threads_than_environments_are_refused():
    with pytest.raises(ConfigError, match="at most 2 workers"):
        outrider.make_vec(Counter, 2, backend=outrider.Threads(3))


@pytest.mark.parametrize("backend", (outrider.Threads(), outrider.Inline()))
def test_workers_that_run_the_policy_are_processes(backend):
    with pytest.raises(ConfigError, match="Processes"):
        outrider.ParallelCollector(outrider.Envs(Counter, 2), lambda: None, workers=2, backend=backend)


@pytest.mark.usefixtures("time_to_close")
@pytest.mark.parametrize("error", (SystemExit(3), KeyboardInterrupt(), MemoryError("none left")))
@pytest.mark.parametrize("wait_for", (None, 1))
def test_whatever_an_environment_raises_is_its_failure(error, wait_for):
    closed = []

    class Raising(Counter):
        def step(self, action):
            if self.count == 2:
                raise error
            return super().step(action)

        def close(self):
            closed.append(self)

    backend = outrider.Threads(2, wait_for)
    with outrider.make_vec([Counter, Raising, Raising], backend=backend) as envs:
        envs.reset()
        for _ in range(2):
            envs.step(np.zeros(3, np.int64))
        with pytest.raises(EnvironmentFailure, match=type(error).__name__) as caught:
            envs.step(np.zeros(3, np.int64))
        assert (caught.value.operation, caught.value.lane in {1, 2}) == ("step", True)
        with pytest.raises(ClosedError):
            envs.reset()
    assert len(closed) == len(set(closed)) == 2


def test_a_failure_is_seen_while_others_arrive():
    with outrider.make_vec([lambda: Failing("step"), Counter, Counter], backend=outrider.Threads(3, 1)) as envs:
        envs.reset()
        with pytest.raises(EnvironmentFailure, match="told to fail in step") as caught:
            go_on(envs)
        assert caught.value.lane == 0


def go_on(envs):
    """Step whichever lane has arrived, for ever."""
    envs.send(np.zeros(envs.num_envs, np.int64))
    while True:
        lanes = envs.recv().env_id
        envs.send(np.zeros(len(lanes), np.int64), lanes)


def receive_all(envs):
    """Receive until something fails."""
    while True:
        envs.recv()


@pytest.mark.parametrize("wait_for", (None, 1))
def test_a_call_that_takes_too_long_is_named_and_abandoned(tmp_path, wait_for):
    backend = outrider.Threads(3, wait_for, step_timeout=STEP_TIMEOUT)
    with Gate(tmp_path / "gate") as gate, outrider.make_vec([lambda: Gated(gate.path)] * 3, backend=backend) as envs:
        envs.reset()
        gate.open(2)
        envs.send(np.zeros(3, np.int64))
        began = time.monotonic()
        with pytest.raises(EnvironmentTimeout, match="step_timeout=4") as caught:
            receive_all(envs)
        assert time.monotonic() - began < SLOW
        assert (caught.value.operation, caught.value.lane in {0, 1, 2}) == ("step", True)
        assert "abandoned" in str(caught.value)


def test_close_names_a_call_that_does_not_return(tmp_path, monkeypatch):
    monkeypatch.setattr(threads, "FAILING_TIME", STEP_TIMEOUT)
    with Gate(tmp_path / "gate") as gate:
        envs = outrider.make_vec([Gated, lambda: Gated(gate.path)], backend=outrider.Threads(2, wait_for=1))
        envs.reset()
        envs.send(np.zeros(2, np.int64))
        assert envs.recv().env_id.tolist() == [0]
        began = time.monotonic()
        with pytest.raises(EnvironmentTimeout, match="lane 1, step") as caught:
            envs.close()
        assert time.monotonic() - began < SLOW
        assert caught.value.lane == 1
        envs.close()


def test_threads_of_environments_that_nobody_closed_end():
    envs = outrider.make_vec(Counter, 2, backend=outrider.Threads(2))
    envs.reset()
    names = [thread.name for thread in threading.enumerate()]
    assert {"outrider-worker-0", "outrider-worker-1"} <= set(names)
    gone = weakref.ref(envs.driver)
    del envs
    gc.collect()
    assert gone() is None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("outrider-worker")]


@pytest.mark.parametrize("hangs", (False, True))
def test_an_interpreter_ends_whatever_its_threads_do(hangs):
    script = textwrap.dedent(f"""
        import threading
        import numpy as np, outrider
        from outrider.testing.envs import Counter

        class Hanging(Counter):
            def step(self, action):
                threading.Event().wait() if {hangs} else None
                return super().step(action)

        envs = outrider.make_vec(Hanging, 2, backend=outrider.Threads(2))
        envs.reset()
        envs.send(np.zeros(2, np.int64))
        print("over")
    """)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=RUNNING, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
