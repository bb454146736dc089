"""How long tests wait. None may depend on how soon a process or a thread is given a processor."""

from __future__ import annotations

import contextlib

import psutil
import pytest

from outrider.vector import crew, processes, threads

SLOW = 60.0
"""Seconds in which whatever is about to happen has happened, on the busiest machine; to hang is to take longer."""

RUNNING = 300.0
"""Seconds for a whole program to start, work and end."""

STEP_TIMEOUT = 4.0
"""The `step_timeout` of tests in which a call hangs: the others must not be late because they had no processor."""


def wait_for_end(pid):
    """Wait until nothing is left of a process, which may be waited for by a fork server that has to be woken first."""
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(SLOW)


@pytest.fixture
def time_to_close(monkeypatch):
    """Environments have all the time they need to close, also after a failure."""
    for module, name in (
        (crew, "CLOSING_TIME"),
        (processes, "FAILING_TIME"),
        (threads, "CLOSING_TIME"),
        (threads, "FAILING_TIME"),
    ):
        monkeypatch.setattr(module, name, SLOW)
