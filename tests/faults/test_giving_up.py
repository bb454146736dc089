"""Where `on_failure` gives up: what the warnings say on the way there, and what the last error says."""

import functools
import math
import warnings

import numpy as np
import pytest

import outrider
from helpers.worker_envs import ManyLivesEnv
from outrider.errors import EnvironmentFailure, WorkerDied
from outrider.vector import recovery
from outrider.vector.recovery import Budget

ALWAYS = range(1, 100)


def make(factories, on_failure, workers):
    return outrider.make_vec(factories, backend=outrider.Processes(workers, "fork", on_failure=on_failure))


def step_for_ever(envs):
    envs.reset()
    while True:
        lanes = [lane for lane in range(envs.num_envs) if lane not in envs.dropped]
        envs.send(np.zeros(len(lanes), np.int64), lanes)
        envs.recv()


def test_restarts_are_counted_within_the_window_and_the_wait_doubles(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(recovery.time, "monotonic", lambda: now[0])
    budget = Budget(outrider.Restart(max_restarts=3, window=10, backoff=0.5))
    assert [turn and turn[:2] for turn in (budget.spend() for _ in range(4))] == [(0.5, 1), (1, 2), (2, 3), None]
    now[0] = 10.5
    assert budget.spend()[:2] == (0.5, 1)


def test_the_wait_doubles_up_to_half_a_minute_only():
    def waits(backoff, count=3000):
        budget = Budget(outrider.Restart(max_restarts=count, window=1e9, backoff=backoff))
        return [budget.spend().delay for _ in range(count)]

    assert waits(4.0)[:5] == [4, 8, 16, 30, 30]
    assert waits(4.0)[-1] == 30
    assert waits(1e-9)[-1] == 30
    # Whoever asks for more gets it, and no more.
    assert set(waits(45.0)) == {45.0}
    assert set(waits(1e308)) == {1e308}
    assert set(waits(0.0)) == {0.0}
    assert all(map(math.isfinite, waits(1e300)))


def test_a_warning_says_which_restart_of_how_many_it_is_and_when(tmp_path):
    restart = outrider.Restart(max_restarts=4, window=60.0, backoff=0.01)
    with make([functools.partial(ManyLivesEnv, tmp_path / "0", "raise", (1, 2))], restart, 1) as envs:
        envs.reset()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            envs.step(np.zeros(1, np.int64))
            envs.step(np.zeros(1, np.int64))
    for one, (wait, number) in zip(told, (("0.01", 1), ("0.02", 2)), strict=True):
        expected = (
            f"lane 0 is restarted after {wait} s (restart {number} of at most 4 within 60 s): lane 0, step, process"
        )
        assert str(one.message).startswith(expected)
        assert one.category is RuntimeWarning


@pytest.mark.filterwarnings("ignore:lanes? .* restarted:RuntimeWarning")
@pytest.mark.parametrize("fault", ("raise", "kill"))
def test_the_error_says_that_the_restarts_are_used_up(fault, tmp_path):
    factories = [
        functools.partial(ManyLivesEnv, tmp_path / "0"),
        functools.partial(ManyLivesEnv, tmp_path / "1", fault, ALWAYS),
    ]
    with make(factories, outrider.Restart(max_restarts=2, window=60.0), 2) as envs:
        with pytest.raises(EnvironmentFailure) as caught:
            step_for_ever(envs)
        assert envs.driver.restarts == 2
    check_last(caught.value, fault, "2 restarts of (lane 1|worker 1 .*) within 60 s.*are used up.*max_restarts")


@pytest.mark.filterwarnings("ignore:lanes? .* dropped:RuntimeWarning")
@pytest.mark.parametrize("fault", ("raise", "kill"))
def test_the_error_says_that_no_lane_is_left(fault, tmp_path):
    with make(
        [functools.partial(ManyLivesEnv, tmp_path / str(lane), fault, (2 * lane + 1,)) for lane in range(2)],
        outrider.Drop(),
        2,
    ) as envs:
        with pytest.raises(EnvironmentFailure) as caught:
            step_for_ever(envs)
        assert not envs.driver.is_open
    check_last(caught.value, fault, "no lane is left: all 2 have failed.*Restart")


def check_last(error, fault, match):
    """It is about lane 1, of the class of the last failure, and has that as its cause."""
    first_line = str(error).partition("\n")[0]
    assert pytest.raises(EnvironmentFailure, match=match).matches(error)
    assert type(error) is type(error.__cause__) is (WorkerDied if fault == "kill" else EnvironmentFailure)
    assert (error.lane, error.operation, error.pid) == (1, "step", error.__cause__.pid)
    assert str(error.__cause__).partition("\n")[0] in first_line
    if fault == "kill":
        assert error.exitcode == error.__cause__.exitcode == -9
    else:
        assert "RuntimeError: told to fail" in first_line
        assert "in fail_in" in str(error)
        # What the environment raised has come all the way from its worker.
        assert repr(error.__cause__.__cause__) == "RuntimeError('told to fail')"
