"""Signals to `outrider collect`: it ends at once, leaves no process behind, and what it has stored can be read."""

import contextlib
import os
import re
import select
import signal

import psutil
import pytest

from helpers.cli import started, stored
from helpers.patience import RUNNING, SLOW

ENV = """
import os
import gymnasium

class Telling(gymnasium.Wrapper):
    'CartPole that writes its process id to a pipe in its step number 400.'

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.count = 0

    def step(self, action):
        self.count += 1
        if self.count == 400:
            with open(os.environ["TELL"], "w") as pipe:
                pipe.write(f"{os.getpid():010}")
        return super().step(action)
"""


@pytest.fixture
def running(tmp_path, monkeypatch):
    """Start a run over many steps and return its process and the pids of those that step, once there are some rows."""
    os.mkfifo(tmp_path / "pipe")
    # Open for writing as well: otherwise it ends whenever nobody happens to have it open.
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    monkeypatch.setenv("TELL", str(tmp_path / "pipe"))
    (tmp_path / "env.py").write_text(ENV)
    processes = []

    def start(workers):
        arguments = ("--steps", 10**9, "--envs", 4, "--workers", workers, "--out", tmp_path / "d")
        process = started("collect", f"{tmp_path / 'env.py'}:Telling", *arguments)
        processes.append(process)
        return process, {told(pipe) for _ in range(4)}

    yield start
    os.close(pipe)
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def told(pipe):
    """The next number of ten digits in a pipe."""
    ready, _, _ = select.select([pipe], [], [], RUNNING)
    assert ready, "the run has not come to its steps"
    return int(os.read(pipe, 10))


def outcome(process):
    """Exit status and stderr of a process that ends in time."""
    output, errors = process.communicate(timeout=SLOW)
    assert output == ""
    assert "Traceback" not in errors
    return process.returncode, errors


def assert_told(errors, path):
    """The last line says how much is stored; that much can be read."""
    rows = stored(path / "d")
    assert f"outrider: {len(rows)} steps are stored in {path / 'd'}\n" in errors
    assert len(rows) >= 4
    rows.check()


@pytest.mark.parametrize("workers", (0, 2))
@pytest.mark.parametrize(("number", "name"), ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")))
def test_asked_to_end(running, tmp_path, workers, number, name):
    process, _ = running(workers)
    # A terminal sends Ctrl-C to all processes of the command; SIGTERM goes to the one that the user knows of.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    code, errors = outcome(process)
    assert code == 128 + number
    assert f"outrider: stopped by {name}\n" in errors
    assert_told(errors, tmp_path)


def test_killed_worker(running, tmp_path):
    process, pids = running(2)
    os.kill(pids.pop(), signal.SIGKILL)
    code, errors = outcome(process)
    assert code == 1
    assert len(re.findall(r"^outrider: error: worker \d .*killed by SIGKILL", errors, re.MULTILINE)) == 1
    assert_told(errors, tmp_path)


@pytest.mark.parametrize("workers", (0, 2))
def test_killed_command(running, tmp_path, workers):
    process, _ = running(workers)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= workers
    process.kill()
    process.communicate(timeout=SLOW)
    _, alive = psutil.wait_procs(children, timeout=SLOW)
    assert not alive
    rows = stored(tmp_path / "d")
    assert len(rows) >= 4
    rows.check()
