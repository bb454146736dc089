"""Buffers and batches in processes that are forked, and at the end of a program."""

import subprocess
import sys

import pytest

from helpers.patience import RUNNING

HEAD = """
import atexit, os, signal, sys, threading, warnings

import numpy as np

import outrider

# Python 3.12 warns of forks where there are threads; that is what this is about.
warnings.simplefilter("ignore", DeprecationWarning)
spec = outrider.StepSpec(obs=outrider.LeafSpec((3,), "f4"), action=outrider.LeafSpec((), "i8"), num_envs=2)


def filled():
    replay = outrider.ReplayBuffer(1_000, spec, seed=0)
    replay.extend(spec.zeros(100))
    return replay


def fork(child):
    pid = os.fork()
    if pid == 0:
        signal.alarm(200)
        child()
        sys.exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 7, status
"""

HELD = """
replay, other = filled(), filled()
mix = outrider.Mix((other, replay), (0.5, 0.5))
held, about_to_fork = threading.Event(), threading.Event()


def hold():
    with replay._lock:
        held.set()
        about_to_fork.wait()
        for _ in range(300):
            replay.sample(64)


def child():
    replay.check()
    assert len(replay.sample(8)) == 8
    assert len(mix.sample(8)) == 8
    replay.extend(spec.zeros(10))
    with replay.batches(8) as batches:
        assert len(next(batches)) == 8


thread = threading.Thread(target=hold)
thread.start()
held.wait()
os.register_at_fork(before=about_to_fork.set)
fork(child)
thread.join()
assert len(mix.sample(8)) == 8
assert len(filled().sample(4)) == 4
"""

ADDED = """
replay = filled()
go_on = True


def add():
    while go_on:
        replay.extend(spec.zeros(7))


def child():
    replay.check()
    assert len(replay.sample(8)) == 8


thread = threading.Thread(target=add)
thread.start()
try:
    for _ in range(8):
        fork(child)
finally:
    go_on = False
    thread.join()
"""

BATCHES = """
replay = filled()
batches = replay.batches(8)
assert len(next(batches)) == 8


def child():
    try:
        next(batches)
    except outrider.OutriderError as error:
        assert "of which this one is a fork" in str(error) and "replay.batches(size)" in str(error), error
    else:
        raise AssertionError
    batches.close()
    fresh = replay.batches(8)
    assert len(next(fresh)) == 8


# The thread may be anywhere, and its condition taken.
with batches._state._changed:
    fork(child)
fork(child)
assert len(next(batches)) == 8
"""

OPEN = """
def look():
    print([thread.name for thread in threading.enumerate()])


replay = filled()
atexit.register(look)
batches = replay.batches(8, {device})
others = [outrider.Mix((replay,), (1.0,)).batches(8) for _ in range(3)]
assert len(next(batches)) == 8
del replay
{end}
"""


def run(script):
    command = [sys.executable, "-W", "error", "-c", HEAD + script]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUNNING, check=False)


@pytest.mark.parametrize("script", (HELD, ADDED, BATCHES), ids=("while held", "while added to", "batches"))
def test_a_child_has_a_buffer_of_its_own(script):
    result = run(script)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("end", "device"),
    (("", ""), ("sys.exit(0)", "device='cpu'"), ("1 / 0", "")),
    ids=("end", "exit with tensors", "error"),
)
def test_a_program_may_end_with_batches_that_are_open(end, device):
    result = run(OPEN.format(end=end, device=device))
    assert result.stdout.strip() == "['MainThread']"
    if end == "1 / 0":
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    else:
        assert (result.returncode, result.stderr) == (0, "")
