"""What happens when environments fail in workers: one error within seconds, and nobody left alive.

That nobody and nothing is left is checked by the leak fixture after each test.
"""

import functools
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import threading
import time

import numpy as np
import psutil
import pytest
import threadpoolctl

import outrider
from helpers.envs import CounterEnv, FaultyEnv
from helpers.patience import SLOW, wait_for_end
from helpers.worker_envs import (
    FamilyEnv,
    LoggedEnv,
    LongInfoEnv,
    ParentEnv,
    QuitEnv,
    RaisingEnv,
    StubbornInfoEnv,
    ThreadsEnv,
    UnpicklableError,
    UnreadableError,
)
from outrider.errors import ClosedError, ConfigError, EnvironmentFailure, WorkerDied
from outrider.vector import bootstrap, crew
from outrider.vector.driver import STEP
from outrider.vector.group import ALL_INFOS

METHODS = ("fork", "forkserver", "spawn")
OPERATIONS = {"init": "construct", "reset": "reset", "step": "step"}


def make(env, num_envs=None, workers=2, method="fork"):
    return outrider.make_vec(env, num_envs, backend=outrider.Processes(workers, method))


def zeros(envs):
    return np.zeros(envs.num_envs, np.int64)


def use(factories, method):
    """Make environments, reset them twice and take five steps; return the error and how long it took to come."""
    began = time.monotonic()
    try:
        with make(factories, method=method) as envs:
            envs.reset()
            envs.reset()
            began = time.monotonic()
            for _ in range(5):
                envs.step(zeros(envs))
    except EnvironmentFailure as error:
        return error, time.monotonic() - began
    raise AssertionError("nothing failed")


@pytest.mark.parametrize("method", ("fork", "forkserver"))
@pytest.mark.parametrize("where", ("init", "reset", "step"))
@pytest.mark.parametrize("fault", ("raise", "exit", "kill", "quit"))
def test_one_error_names_lane_operation_process_and_cause(fault, where, method):
    at = {"init": 0, "reset": 1, "step": 3}[where]
    bad = functools.partial(QuitEnv, where, at) if fault == "quit" else functools.partial(FaultyEnv, fault, where, at)
    error, seconds = use([CounterEnv, CounterEnv, CounterEnv, bad], method)
    assert seconds < SLOW
    text = str(error)
    assert (error.lane, error.operation) == (3, OPERATIONS[where]), text
    assert error.pid != os.getpid()
    wait_for_end(error.pid)
    assert str(error.pid) in text
    if fault == "raise":
        assert "told to fail" in text
        assert "in fail_in" in text
    if fault == "exit":
        assert "SystemExit: 3" in text
    if fault in ("kill", "quit"):
        assert isinstance(error, WorkerDied)
        assert error.exitcode == {"kill": -signal.SIGKILL, "quit": 3}[fault]
        assert {"kill": "SIGKILL", "quit": "status 3"}[fault] in text


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_killed_while_idle(method):
    with make(CounterEnv, 4, method=method) as envs:
        envs.reset()
        victim = envs.driver._crew.members[1].process
        pid = victim.pid
        victim.kill()
        victim.join()
        with pytest.raises(WorkerDied, match=r"lanes 2 to 3.*SIGKILL while it had nothing to do") as caught:
            envs.step(zeros(envs))
        assert (caught.value.pid, caught.value.lane) == (pid, -1)
        with pytest.raises(ClosedError):
            envs.step(zeros(envs))


def test_how_a_worker_died_is_known_although_its_fork_server_is_slow():
    with make(CounterEnv, 2, method="forkserver") as envs:
        envs.reset()
        server = multiprocessing.forkserver._forkserver._forkserver_pid
        os.kill(server, signal.SIGSTOP)
        wakes = threading.Timer(1.0, os.kill, (server, signal.SIGCONT))
        wakes.start()
        os.kill(envs.worker_pids[1], signal.SIGKILL)
        with pytest.raises(WorkerDied, match="SIGKILL") as caught:
            envs.step(zeros(envs))
        wakes.join()
        assert caught.value.exitcode == -signal.SIGKILL


def test_a_worker_that_somebody_else_waited_for():
    with make(CounterEnv, 4) as envs:
        envs.reset()
        process = envs.driver._crew.members[1].process
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        with pytest.raises(WorkerDied, match="ended"):
            envs.step(zeros(envs))
        # multiprocessing waits for it until this process ends.
        multiprocessing.process._children.discard(process)


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_left_a_process_behind_is_missed_at_once(method):
    with make([ParentEnv, ParentEnv], method=method) as envs:
        envs.reset()
        envs.step(zeros(envs))
        children = [psutil.Process(pid) for pid in envs.get_attr("child")]
        began = time.monotonic()
        with pytest.raises(WorkerDied, match="SIGKILL during step"):
            envs.step(zeros(envs))
        assert time.monotonic() - began < SLOW
    for child in children:
        child.kill()
    psutil.wait_procs(children, timeout=SLOW)


@pytest.mark.parametrize("method", METHODS)
def test_environments_may_have_children_of_their_own(method):
    with make(FamilyEnv, 2, method=method) as envs:
        envs.reset()
        for count in (101, 102):
            assert envs.step(zeros(envs))[0].tolist() == [[count], [count]]


@pytest.mark.parametrize(
    "error", (functools.partial(UnpicklableError, "held a lock"), functools.partial(UnreadableError, 1, 2))
)
def test_exceptions_that_cannot_travel_are_told(error):
    with make([CounterEnv, lambda: RaisingEnv(error)]) as envs:
        envs.reset()
        with pytest.raises(EnvironmentFailure, match=r"held a lock|1 and 2") as caught:
            envs.step(zeros(envs))
        assert (caught.value.lane, caught.value.operation) == (1, "step")


def test_infos_that_cannot_be_read_here_are_left_out_with_a_warning():
    with make(StubbornInfoEnv, 2, workers=1) as envs:
        envs.reset()
        with pytest.warns(UserWarning, match="cannot be made again"):
            *_, infos = envs.step(zeros(envs))
        assert infos == {}
        envs.send(zeros(envs))
        assert envs.recv().obs.tolist() == [[2], [2]]


def test_what_cannot_be_sent_is_refused_before_anything_is_started():
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="inside the factory"):
        make([CounterEnv, lambda: lock and CounterEnv()])


def test_two_who_write_long_messages_at_once_do_not_wait_for_each_other():
    backend = outrider.Processes(1, "fork", wait_for=1)
    with outrider.make_vec(functools.partial(LongInfoEnv, 2_000_000), 2, backend=backend) as envs:
        envs.reset()
        for _ in range(5):
            row = envs.store.scratch + envs.num_envs
            envs.post(np.array([0]), np.array([row]), STEP, ALL_INFOS)
            envs.send_reset([1], options=[{"long": b"x" * 2_000_000}])
            infos = {}
            for _ in range(2):
                infos |= envs.recv().info
                if not envs._away.any():
                    break
            assert len(infos[0]["long"]) == 2_000_000


def test_a_worker_that_reads_nothing_does_not_keep_close_waiting():
    with make(CounterEnv, 2) as envs:
        envs.reset()
        os.kill(envs.worker_pids[1], signal.SIGSTOP)
        member = envs.driver._crew.members[1]
        for _ in range(100):
            member._write(("resets", {1: (None, {"long": b"x" * 10_000})}), None)
        began = time.monotonic()
        envs.driver._crew.close(0.1)
        assert time.monotonic() - began < SLOW


@pytest.mark.parametrize("where", ("step", "reset", "close"))
def test_close_is_bounded_when_an_environment_hangs(where, monkeypatch):
    assert crew.CLOSING_TIME + 2 * crew.TERMINATION_TIME < 10
    monkeypatch.setattr(crew, "CLOSING_TIME", 1.0)
    envs = make([CounterEnv, lambda: FaultyEnv("hang", where, 1 if where == "reset" else 0)])
    envs.reset()
    if where == "step":
        envs.send(zeros(envs))
    if where == "reset":
        envs.send_reset()
    began = time.monotonic()
    envs.close()
    assert time.monotonic() - began < SLOW


@pytest.mark.parametrize("backend", (outrider.Inline(), outrider.Processes(2, "fork")))
@pytest.mark.parametrize("fault", ("nothing", "raise", "exit"))
@pytest.mark.parametrize("where", ("init", "reset", "step", "close"))
@pytest.mark.usefixtures("time_to_close")
def test_every_environment_is_closed_exactly_once(where, fault, backend, tmp_path):
    log = tmp_path / "closed"
    bad = functools.partial(LoggedEnv, log, 3, fault if fault != "nothing" else "raise")
    factories = [functools.partial(LoggedEnv, log, lane) for lane in range(3)]
    factories.append(functools.partial(bad, where) if fault != "nothing" else bad)
    try:
        with outrider.make_vec(factories, backend=backend) as envs:
            envs.reset()
            envs.step(zeros(envs))
    except EnvironmentFailure:
        assert fault != "nothing"
    else:
        assert fault == "nothing"
    closed = sorted(log.read_text().split())
    assert closed == ["0", "1", "2"] + ["3"] * (fault == "nothing" or where != "init")


@pytest.mark.parametrize("method", METHODS)
def test_workers_use_one_numeric_thread_and_the_parent_keeps_its_own(method, monkeypatch):
    for name in bootstrap.THREAD_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    before = threadpoolctl.threadpool_info(), dict(os.environ)
    with make(ThreadsEnv, 2, method=method) as envs:
        envs.reset()
        for threads in envs.call("threads"):
            assert threads
            assert set(threads) == {1}
    assert (threadpoolctl.threadpool_info(), dict(os.environ)) == before


def test_an_interrupted_wait_can_be_gone_on_with(monkeypatch):
    with make(CounterEnv, 4) as envs:
        envs.reset()
        envs.send(zeros(envs))
        with monkeypatch.context() as patch:
            patch.setattr(envs.driver, "_wait_for_workers", interrupt)
            with pytest.raises(KeyboardInterrupt):
                envs.recv()
        assert envs.recv().obs.tolist() == [[1]] * 4
        assert envs.step(zeros(envs))[0].tolist() == [[2]] * 4


def interrupt():
    raise KeyboardInterrupt
