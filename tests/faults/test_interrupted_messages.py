"""Ctrl-C while a long message of a worker is being read."""

import os
import signal
import threading
from multiprocessing import Pipe

import numpy as np
import pytest
from gymnasium import spaces

import outrider
from helpers.envs import CounterEnv
from helpers.patience import STEP_TIMEOUT
from helpers.worker_envs import LongInfoEnv
from outrider.errors import ClosedError
from outrider.vector import wire
from outrider.vector.wire import Wire

LONG = 1_000_000


@pytest.fixture
def ends():
    ours, theirs = Pipe()
    with ours, theirs:
        yield Wire(ours), theirs


def bytes_of(*messages):
    """What is on the line when these are sent."""
    ours, theirs = Pipe()
    with ours, theirs:
        for message in messages:
            ours.send_bytes(message)
        return os.read(theirs.fileno(), 10**6)


def test_a_message_is_taken_in_as_it_arrives(ends):
    ours, theirs = ends
    data = bytes_of(b"first", b"", b"third")
    assert not ours.poll()
    for number in range(len(data)):
        os.write(theirs.fileno(), data[number : number + 1])
        # Of the lengths 5, 0 and 5, each behind a header of 4 bytes.
        whole = sum(number + 1 >= end for end in (9, 13, 22))
        assert ours.poll() == ours.has_read == bool(whole)
    assert not ours.torn
    for message in (b"first", b"", b"third"):
        assert ours.receive() == ours.receive() == message
        ours.done()
    assert not ours.poll()


def test_a_message_with_a_long_header(ends):
    ours, theirs = ends
    data = b"\xff\xff\xff\xff" + (5).to_bytes(8, "big") + b"a b c"
    for end in range(len(data)):
        assert not ours.poll()
        os.write(theirs.fileno(), data[end : end + 1])
    assert ours.poll()
    assert ours.receive() == b"a b c"


def test_the_end_of_the_other_side_is_told_after_its_last_message():
    ours, theirs = Pipe()
    with ours:
        theirs.send_bytes(b"last")
        theirs.close()
        mine = Wire(ours)
        assert mine.receive() == b"last"
        mine.done()
        for ask in (mine.poll, mine.receive):
            with pytest.raises((EOFError, OSError)):
                ask()


def test_a_long_message_waits_for_its_rest(ends):
    ours, theirs = ends
    message = os.urandom(LONG)
    writer = threading.Thread(target=theirs.send_bytes, args=(message,))
    writer.start()
    assert ours.receive() == message
    writer.join()


class Reads:
    """In place of `os` in the module: something happens in read number `at`."""

    def __init__(self, at, happen):
        self.left, self.happen = at, happen

    def __getattr__(self, name):
        return getattr(os, name)

    def read(self, fd, count):
        data = os.read(fd, count)
        self.left -= 1
        if not self.left:
            self.happen()
        return data


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


class Torn(KeyboardInterrupt):
    """As a handler of another signal may raise it."""


def tear():
    raise Torn


class RaggedEnv(CounterEnv):
    """Observes a long text beside its count."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Dict(
            {"count": spaces.Box(0.0, np.inf, (1,), np.float32), "text": spaces.Text(LONG, charset="x")}
        )

    def observation(self):
        return {"count": super().observation(), "text": "x" * (LONG - self.count)}


@pytest.fixture(params=(None, 1, "restart"), ids=("together", "apart", "restarting"))
def backend(request):
    if request.param == "restart":
        return outrider.Processes(2, "fork", on_failure=outrider.Restart())
    return outrider.Processes(2, "fork", wait_for=request.param)


@pytest.mark.parametrize("at", (1, 5))
def test_the_next_wait_goes_on_with_infos(backend, at, monkeypatch):
    with outrider.make_vec(lambda: LongInfoEnv(LONG), 2, backend=backend) as envs:
        envs.reset()
        with monkeypatch.context() as patch:
            patch.setattr(wire, "os", Reads(at, ctrl_c))
            with pytest.raises(KeyboardInterrupt):
                envs.step(np.zeros(2, np.int64))
        arrived = {}
        while len(arrived) < 2:
            arrival = envs.recv()
            arrived |= arrival.info
        assert {lane: len(info["long"]) for lane, info in arrived.items()} == {0: LONG, 1: LONG}
        *_, infos = envs.step(np.zeros(2, np.int64))
        assert [len(one) for one in infos["long"]] == [LONG] * 2


@pytest.mark.parametrize("at", (1, 5))
def test_the_next_call_of_a_collector_goes_on(backend, at, monkeypatch):
    with outrider.make_vec(RaggedEnv, 2, backend=backend) as envs:
        policy = outrider.RandomPolicy(envs.single_action_space)
        with outrider.Collector(envs, policy, seed=0) as collector:
            first = collector.rollout(2)
            with monkeypatch.context() as patch:
                patch.setattr(wire, "os", Reads(at, ctrl_c))
                with pytest.raises(KeyboardInterrupt):
                    collector.rollout(3)
            for rollout in (first, collector.rollout(3), collector.rollout(3)):
                lengths = np.vectorize(len)(rollout.obs["text"])
                np.testing.assert_array_equal(lengths, LONG - rollout.obs["count"][..., 0])
                rollout.check()


def test_an_interrupt_that_tears_a_message_ends_the_environments(backend, monkeypatch):
    with outrider.make_vec(lambda: LongInfoEnv(LONG), 2, backend=backend) as envs:
        envs.reset()
        with monkeypatch.context() as patch:
            patch.setattr(wire, "os", Reads(2, tear))
            with pytest.raises(Torn):
                envs.step(np.zeros(2, np.int64))
        with pytest.raises(ClosedError):
            envs.recv()


def test_a_worker_that_is_stopped_in_the_middle_of_a_message_is_missed(monkeypatch):
    backend = outrider.Processes(1, "fork", step_timeout=STEP_TIMEOUT)
    with outrider.make_vec(lambda: LongInfoEnv(LONG), 1, backend=backend) as envs:
        envs.reset()
        (pid,) = envs.worker_pids
        monkeypatch.setattr(wire, "os", Reads(1, lambda: os.kill(pid, signal.SIGSTOP)))
        with pytest.raises(outrider.EnvironmentTimeout, match="step_timeout=4"):
            envs.step(np.zeros(1, np.int64))
