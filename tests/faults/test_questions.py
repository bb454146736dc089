"""Workers that die or hang while environments are asked for attributes and calls."""

import functools
import os
import signal
import threading

import numpy as np
import pytest

import outrider
from helpers.envs import CounterEnv
from helpers.patience import STEP_TIMEOUT
from outrider.errors import ClosedError, ConfigError, EnvironmentFailure, EnvironmentTimeout, WorkerDied

pytestmark = pytest.mark.filterwarnings("ignore:lanes? .*(restarted|dropped):RuntimeWarning")


class AskedEnv(CounterEnv):
    """Does as it is told when asked; `trouble` is an attribute that makes trouble where it is set or read."""

    def __init__(self, lane):
        super().__init__()
        self.lane = lane

    def do(self, what, lanes):
        if self.lane in lanes:
            {
                "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
                "hang": threading.Event().wait,
                "raise": lambda: 1 // 0,
            }[what]()
        return self.lane

    @property
    def trouble(self):
        return self.do("kill", [2])

    @trouble.setter
    def trouble(self, _):
        self.do("kill", [2])


def make(on_failure, **settings):
    factories = [functools.partial(AskedEnv, lane) for lane in range(6)]
    return outrider.make_vec(factories, backend=outrider.Processes(3, "fork", on_failure=on_failure, **settings))


def zeros(count):
    return np.zeros(count, np.int64)


@pytest.mark.parametrize("fault", ("kill", "hang"))
def test_with_restarts_the_lanes_of_a_worker_that_dies_in_a_call_begin_anew(fault):
    with make(outrider.Restart(), step_timeout=STEP_TIMEOUT if fault == "hang" else None) as envs:
        envs.reset(seed=0)
        envs.step(zeros(6))
        with pytest.raises(EnvironmentFailure, match=r"lane 2, call|call of lane 2") as caught:
            envs.call("do", fault, [2])
        assert type(caught.value) is (WorkerDied if fault == "kill" else EnvironmentTimeout)
        assert (caught.value.lane, caught.value.operation) == (2, "call")
        assert "begin anew" in caught.value.__notes__[0]
        assert envs.driver.restarts == 1
        assert envs.call("do", fault, []) == tuple(range(6))
        assert envs.get_attr("count") == (1, 1, 0, 0, 1, 1)
        obs, _, _, truncated, _ = envs.step(zeros(6))
        assert truncated.tolist() == [False, False, True, True, False, False]
        assert obs[:, 0].tolist() == [2, 2, 0, 0, 2, 2]
        assert envs.step(zeros(6))[0][:, 0].tolist() == [3, 3, 1, 1, 3, 3]


@pytest.mark.parametrize("ask", (lambda envs: envs.get_attr("trouble"), lambda envs: envs.set_attr("trouble", 1)))
def test_attributes_that_kill(ask):
    with make(outrider.Restart()) as envs:
        envs.reset()
        with pytest.raises(WorkerDied, match="SIGKILL during call of lane 2"):
            ask(envs)
        assert envs.step(zeros(6))[3].tolist() == [False, False, True, True, False, False]


def test_several_workers_may_die_in_one_call():
    with make(outrider.Restart()) as envs:
        envs.reset()
        # Of several errors it is that of the lane that was named first.
        with pytest.raises(WorkerDied, match="during call of lane 5"):
            envs.at([5, 0, 3, 2]).call("do", "kill", [2, 4, 5])
        assert envs.driver.restarts == 2
        assert envs.call("do", "kill", []) == tuple(range(6))


def test_a_call_that_always_kills_uses_the_restarts_up():
    with make(outrider.Restart(max_restarts=2)) as envs:
        envs.reset()
        for _ in range(2):
            with pytest.raises(WorkerDied, match="during call of lane 2"):
                envs.call("do", "kill", [2])
        with pytest.raises(WorkerDied, match="used up"):
            envs.call("do", "kill", [2])
        with pytest.raises(ClosedError):
            envs.get_attr("count")


@pytest.mark.parametrize("fault", ("kill", "hang"))
def test_with_drop_the_lanes_of_a_worker_that_dies_in_a_call_are_gone(fault):
    with make(outrider.Drop(), step_timeout=STEP_TIMEOUT if fault == "hang" else None) as envs:
        envs.reset()
        with pytest.raises(EnvironmentFailure) as caught:
            envs.call("do", fault, [2])
        assert (caught.value.lane, caught.value.operation) == (2, "call")
        assert envs.dropped == (2, 3)
        with pytest.raises(ConfigError, match="dropped"):
            envs.get_attr("count")
        left = [0, 1, 4, 5]
        assert envs.at(left).call("do", fault, []) == tuple(left)
        envs.send(zeros(4), left)
        arrival = envs.recv()
        assert arrival.env_id.tolist() == left
        assert sorted(arrival.dropped) == [2, 3]


def test_what_raises_in_a_call_costs_no_lane():
    with make(outrider.Drop()) as envs:
        envs.reset()
        with pytest.raises(EnvironmentFailure, match="ZeroDivisionError"):
            envs.call("do", "raise", [2])
        assert envs.dropped == ()
        assert envs.call("do", "raise", []) == tuple(range(6))


def test_without_on_failure_all_are_closed():
    with make("raise") as envs:
        envs.reset()
        with pytest.raises(WorkerDied, match="during call of lane 2"):
            envs.call("do", "kill", [2])
        with pytest.raises(ClosedError):
            envs.get_attr("count")
