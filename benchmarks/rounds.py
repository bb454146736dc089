"""Interleaved rounds: several processes that take turns, and what their figures come to."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
PEERS = os.environ.get("PEERS_PYTHON", str(HERE.parent.parent / "outrider-peers" / "bin" / "python"))
TIANSHOU = os.environ.get("PEERS_TIANSHOU_PYTHON", PEERS.replace("/bin/python", "-tianshou/bin/python"))


@dataclass
class Side:
    """One side of a comparison.

    Attributes:
        name: what the table calls it.
        script: file in `sides/`.
        arguments: of the script.
        python: interpreter; the peers have their own.
        env: variables of its environment besides those that are there.
        figures: what its rounds gave, steps per second or seconds.
        cpu: processor seconds for a million steps in each round, of its process and all that it has started.
    """

    name: str
    script: str
    arguments: list[str]
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)
    figures: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Start the process; it prepares itself and waits."""
        self._process = subprocess.Popen(
            [self.python, "-W", "ignore", str(HERE / "sides" / self.script), *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", **self.env},
        )
        self._read()

    def round(self, seconds: float) -> None:
        """Let it run for so long and note its figure."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        before = cpu_seconds(self._process.pid)
        self._process.stdin.flush()
        told = self._read()
        self.figures.append(told["figure"])
        self.cpu.append((cpu_seconds(self._process.pid) - before) / max(told["steps"], 1) * 1e6)

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError(f"{self.name}: the process ended with status {self._process.wait()}")

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    @property
    def median(self) -> float:
        """Median of the figures."""
        return statistics.median(self.figures)


def cpu_seconds(pid: int) -> float:
    """Processor seconds so far of a process and of all below it that live, where there is /proc; else 0."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name of the program, in brackets, may have spaces in it.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            seconds[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    total, family = 0.0, [pid]
    while family:
        one = family.pop()
        total += seconds.get(one, 0.0)
        family += [child for child, parent in parents.items() if parent == one]
    return total


def compare(sides: list[Side], rounds: int, seconds: float) -> None:
    """Let the sides take turns; the first round of each is a warm-up that does not count."""
    for side in sides:
        side.start()
    try:
        for number in range(rounds + 1):
            for side in sides if number % 2 else reversed(sides):
                side.round(seconds)
        for side in sides:
            del side.figures[0], side.cpu[0]
    finally:
        for side in sides:
            side.stop()


def ratio(a: Side, b: Side) -> tuple[float, float, float]:
    """Median, lowest and highest of the ratios A/B of neighbouring rounds."""
    pairs = [x / y for x, y in zip(a.figures, b.figures, strict=True)]
    return statistics.median(pairs), min(pairs), max(pairs)


def serve(
    step: Callable[[], int],
    going: Callable[[], AbstractContextManager[object]] = nullcontext,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """What a side does: `step` runs a piece of work and returns how many env-steps it was; runs when told to.

    What would go on by itself goes only inside `going()`: a side uses no processor during the rounds of another.
    Where one thread does everything and never waits, `clock` may be `time.process_time`: what else runs on the machine
    counts for less then.
    """
    step()
    print(json.dumps({"figure": 0, "steps": 0}), flush=True)
    for line in sys.stdin:
        seconds, done = float(line), 0
        with going():
            began = clock()
            while (passed := clock() - began) < seconds:
                done += step()
        print(json.dumps({"figure": done / passed, "steps": done}), flush=True)


def machine() -> str:
    """A line about the machine."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    return f"{os.cpu_count()} x {model}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"


def row(cells: list[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join([row(heads), row(["---"] * len(heads)), *(row(cells) for cells in rows)])
