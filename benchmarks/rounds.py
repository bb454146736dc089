"""Interleaved rounds: several processes that take turns, and what their figures come to."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
PEERS = os.environ.get("PEERS_PYTHON", str(HERE.parent.parent / "outrider-peers" / "bin" / "python"))


@dataclass
class Side:
    """One side of a comparison.

    Attributes:
        name: what the table calls it.
        script: file in `sides/`.
        arguments: of the script.
        python: interpreter; the peers have their own.
        figures: what its rounds gave, steps per second or seconds.
    """

    name: str
    script: str
    arguments: list[str]
    python: str = sys.executable
    figures: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Start the process; it prepares itself and waits."""
        self._process = subprocess.Popen(
            [self.python, "-W", "ignore", str(HERE / "sides" / self.script), *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"},
        )
        self._read()

    def round(self, seconds: float) -> None:
        """Let it run for so long and note its figure."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        self.figures.append(self._read())

    def _read(self) -> float:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return float(json.loads(line)["figure"])
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


def compare(sides: list[Side], rounds: int, seconds: float) -> None:
    """Let the sides take turns; the first round of each is a warm-up that does not count."""
    for side in sides:
        side.start()
    try:
        for number in range(rounds + 1):
            for side in sides if number % 2 else reversed(sides):
                side.round(seconds)
        for side in sides:
            del side.figures[0]
    finally:
        for side in sides:
            side.stop()


def ratio(a: Side, b: Side) -> tuple[float, float, float]:
    """Median, lowest and highest of the ratios A/B of neighbouring rounds."""
    pairs = [x / y for x, y in zip(a.figures, b.figures, strict=True)]
    return statistics.median(pairs), min(pairs), max(pairs)


def serve(step: Callable[[], int], going: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
    """What a side does: `step` runs a piece of work and returns how many env-steps it was; runs when told to.

    What would go on by itself goes only inside `going()`: a side uses no processor during the rounds of another.
    """
    step()
    print(json.dumps({"figure": 0}), flush=True)
    for line in sys.stdin:
        seconds, done = float(line), 0
        with going():
            began = time.perf_counter()
            while (passed := time.perf_counter() - began) < seconds:
                done += step()
        print(json.dumps({"figure": done / passed}), flush=True)


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
