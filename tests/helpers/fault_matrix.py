"""Every operation of an environment x every fault x every place where environments run.

`make faults` runs all of it and prints a table; `tests/faults/test_fault_matrix.py` a part that has every pair.
"""

from __future__ import annotations

import functools
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

import outrider
from helpers.leaks import Snapshot, become_reaper, leftovers
from helpers.matrix_env import MatrixEnv
from helpers.patience import SLOW, STEP_TIMEOUT
from outrider.errors import EnvironmentFailure, EnvironmentTimeout, WorkerDied
from outrider.vector import crew, threads

OPERATIONS = ("construct", "reset", "step", "call", "close")

RAISING = ("raise", "raise twice", "exit", "MemoryError", "memory limit")
"""Faults that an environment's process survives. "raise twice" raises once more when it is closed."""

ENDING = ("quit", "kill", "kill with child")
"""Faults that end the process. "kill with child" leaves a child of the environment behind."""

HANGING = ("hang", "stop")

BACKENDS = ("Inline", "Threads", "fork", "forkserver", "spawn")

LANE = 1
"""The lane that fails; lane 0 shares its worker."""


@dataclass(frozen=True)
class Terms:
    """How long things may take, in seconds.

    Attributes:
        step_timeout: a call that does not hang.
        closing: environments that close, here instead of eight.
        bound: a fault, until it is known.
    """

    step_timeout: float
    closing: float
    bound: float


QUICK = Terms(0.5, 0.5, 5.0)
"""What holds where every process gets a processor when it needs one."""

PATIENT = Terms(STEP_TIMEOUT, SLOW, SLOW)
"""What holds on the busiest machine."""


@dataclass(frozen=True)
class Cell:
    """One fault at one place."""

    operation: str
    fault: str
    backend: str

    def __str__(self) -> str:
        return f"{self.operation}-{self.fault}-{self.backend}".replace(" ", "_")


@dataclass(frozen=True)
class Outcome:
    """What came of it: the error, seconds until it was known, what was left behind."""

    error: EnvironmentFailure | None
    seconds: float
    left: list[str]


def all_cells() -> list[Cell]:
    """Every combination that has a meaning.

    Inline and in threads nothing survives the end of the process, and what hangs inline hangs. Construction may take
    any time everywhere. One cannot raise in close before one closes.
    """
    cells = []
    for operation, fault, backend in itertools.product(OPERATIONS, (*RAISING, *ENDING, *HANGING), BACKENDS):
        process = backend in BACKENDS[2:]
        possible = process or fault in ("raise", "raise twice", "exit", "MemoryError")
        if backend == "Threads" and fault == "hang":
            possible = True
        if operation == "construct" and fault in HANGING:
            possible = False
        if operation == "close" and fault == "raise twice":
            possible = False
        if possible:
            cells.append(Cell(operation, fault, backend))
    return cells


def pairwise(cells: list[Cell]) -> list[Cell]:
    """A part of the cells in which each pair occurs that occurs in all of them; quick start methods are preferred."""
    missing = set().union(*map(_pairs, cells))
    chosen = []
    while missing:
        best = max(cells, key=lambda cell: (len(_pairs(cell) & missing), -BACKENDS.index(cell.backend)))
        chosen.append(best)
        missing -= _pairs(best)
    return chosen


def _pairs(cell: Cell) -> set[tuple[str, str]]:
    return set(itertools.combinations((cell.operation, cell.fault, cell.backend), 2))


def backend_of(name: str, step_timeout: float):
    """A backend by its name, or by its start method."""
    match name:
        case "Inline":
            return outrider.Inline()
        case "Threads":
            return outrider.Threads(2, step_timeout=step_timeout)
        case "fork":
            return outrider.Processes(2, "fork", step_timeout=step_timeout)
        case method:
            # One worker: that others are not harmed does not depend on how they are started, and starting takes long.
            return outrider.Processes(1, method, step_timeout=step_timeout)


def run(cell: Cell, folder: Path, terms: Terms) -> Outcome:
    """Let it happen."""
    before = Snapshot.take()
    note = folder / f"child of {cell}"
    MatrixEnv.released.clear()
    # Whoever hangs while it closes has to be waited for as long.
    hangs = cell.operation == "close" and cell.fault in HANGING
    with patience(QUICK.closing if hangs else terms.closing):
        error, seconds = _use(cell, note, terms)
    MatrixEnv.released.set()
    if note.exists():
        # It is the environment's own, and nobody else's to end.
        child = psutil.Process(int(note.read_text()))
        child.kill()
        psutil.wait_procs([child], timeout=SLOW)
    text = None if error is None else error.with_traceback(None)
    left = [] if Snapshot.take().is_within(before) else leftovers(before)
    return Outcome(text, seconds, left)


def _use(cell: Cell, note: Path, terms: Terms) -> tuple[EnvironmentFailure | None, float]:
    good, bad = (functools.partial(MatrixEnv, operation, cell.fault, note) for operation in ("", cell.operation))
    factories = [good, bad, good]
    began = time.monotonic()
    try:
        with outrider.make_vec(factories, backend=backend_of(cell.backend, terms.step_timeout)) as envs:
            actions = np.zeros(3, np.int64)
            for _ in range(2):
                began = time.monotonic()
                envs.reset()
                began = time.monotonic()
                envs.step(actions)
                began = time.monotonic()
                envs.call("probe")
            began = time.monotonic()
    except EnvironmentFailure as error:
        error.__cause__ = error.__context__ = None
        return error, time.monotonic() - began
    return None, time.monotonic() - began


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Give environments so many seconds to close."""
    kept = crew.CLOSING_TIME, threads.CLOSING_TIME
    crew.CLOSING_TIME = threads.CLOSING_TIME = seconds
    try:
        yield
    finally:
        crew.CLOSING_TIME, threads.CLOSING_TIME = kept


def problems(cell: Cell, outcome: Outcome, terms: Terms) -> list[str]:
    """What is not as it has to be."""
    found = [f"left behind: {what}" for what in outcome.left]
    if outcome.seconds > terms.bound:
        found.append(f"known after {outcome.seconds:.1f} s")
    error = outcome.error
    if cell.operation == "close" and cell.fault not in RAISING:
        # Nobody is left to say anything; it is over in time, and that is enough.
        return found
    if error is None:
        return [*found, "no error"]
    expected = EnvironmentFailure
    if cell.fault in ENDING:
        expected = WorkerDied
    if cell.fault in HANGING:
        expected = EnvironmentTimeout
    if type(error) is not expected:
        found.append(f"{type(error).__name__} instead of {expected.__name__}")
    if error.lane != LANE or error.operation.split()[0] != cell.operation:
        found.append(f"said to be {error.operation} of lane {error.lane}")
    if str(error.pid) not in str(error):
        found.append("the process is not named")
    cause = {
        **dict.fromkeys(("raise", "raise twice"), "RuntimeError: told to fail\n"),
        "exit": "SystemExit: 3",
        "MemoryError": "MemoryError: told to fail",
        "memory limit": "Unable to allocate",
        "quit": "exited with status 3",
        **dict.fromkeys(("kill", "kill with child"), "killed by SIGKILL"),
        **dict.fromkeys(HANGING, "has not returned after"),
    }[cell.fault]
    if cause not in str(error):
        found.append(f"the cause is not named: {str(error).splitlines()[0]}")
    return found


def main() -> int:
    """Run all cells, print one line for each, and return how many are not as they have to be."""
    become_reaper()
    print("| operation | fault | where | known after (s) | left behind | error |")
    print("|---|---|---|---:|---:|---|")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for cell in all_cells():
            outcome = run(cell, Path(folder), QUICK)
            error = "none" if outcome.error is None else str(outcome.error).splitlines()[0]
            print(
                f"| {cell.operation} | {cell.fault} | {cell.backend} | {outcome.seconds:.2f} | {len(outcome.left)} "
                f"| {error} |",
                flush=True,
            )
            for problem in problems(cell, outcome, QUICK):
                bad += 1
                print(f"WRONG: {problem}", flush=True)
    print(f"\n{len(all_cells())} cells, {bad} problems")
    return bad


if __name__ == "__main__":
    sys.exit(main() > 0)
