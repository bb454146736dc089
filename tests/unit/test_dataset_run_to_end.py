"""Ctrl-C stops writing between two steps; when it is felt, nothing is under way any more."""

import itertools
import signal
import threading

import pytest

from helpers.ctrl_c import CtrlC
from outrider.dataset.run_to_end import run_to_end


def test_all_steps_are_taken_in_order_in_one_other_thread():
    threads = []
    run_to_end(threads.append(threading.current_thread()) for _ in range(5))
    assert len(threads) == 5
    assert len(set(threads)) == 1
    assert threading.main_thread() not in threads


def test_a_step_that_fails_is_the_last():
    taken = []

    def steps():
        for number in range(5):
            taken.append(number)
            if number == 2:
                raise OSError("full")
            yield

    with pytest.raises(OSError, match="full"):
        run_to_end(steps())
    assert taken == [0, 1, 2]


@pytest.mark.parametrize("presses", (1, 4))
def test_ctrl_c_waits_for_the_step_under_way_and_no_other_is_begun(presses, monkeypatch):
    press_ctrl_c, returned, seen, threads = CtrlC(monkeypatch), threading.Event(), [], []

    def steps():
        threads.append(threading.current_thread())
        press_ctrl_c()
        for _ in range(presses - 1):
            seen.append(returned.wait(0.1))
            # It waits already, and goes on waiting.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        seen.append("ended")
        yield
        seen.append("another step")

    with pytest.raises(KeyboardInterrupt):
        run_to_end(steps())
    assert seen == [*[False] * (presses - 1), "ended"]
    returned.set()
    threads[0].join()
    assert seen == [*[False] * (presses - 1), "ended"]


def test_ctrl_c_before_the_first_step(monkeypatch):
    begin, taken = threading.Thread.start, []

    def start(thread):
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(taken.append(1) for _ in range(3))
    monkeypatch.setattr(threading.Thread, "start", begin)
    assert taken == []


def test_ctrl_c_while_the_thread_begins(monkeypatch):
    """It is running, but `start` has not returned."""
    begin, taken, threads = threading.Thread.start, [], []

    def start(thread):
        begin(thread)
        threads.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(taken.append(1) for _ in itertools.count())
    count = len(taken)
    threads[0].join()
    assert len(taken) == count
