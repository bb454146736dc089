"""What replay buffers of stacked Atari frames take; proportional set size of a process, bytes per transition.

Each buffer is filled by a process of its own, with the same transitions: stacks of 4 frames of 84 x 84 bytes in 8
lanes, episodes of 500 steps. Ours has 100 000 of them, the others as many as fit a small machine, scaled in proportion.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from rounds import HERE, PEERS, TIANSHOU, machine, table

GOAL = 7.5
"""Gigabytes for a million transitions of ours, stacks stored once."""

SMALL, WHOLE = 20_000, 100_000

AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""What is freed goes back to the system at once, so that it does not count."""


@dataclass(frozen=True)
class Buffer:
    """One that is measured.

    Attributes:
        library: whose.
        how: its settings, one of those in `sides/replay_memory_*.py`.
        rows: how many transitions.
    """

    library: str
    how: str
    rows: int = SMALL


BUFFERS = [
    Buffer("outrider", "frame_stack=4", WHOLE),
    Buffer("outrider", "frame_stack=1"),
    Buffer("sb3", "default"),
    Buffer("sb3", "optimize_memory_usage"),
    Buffer("cpprb", "default"),
    Buffer("cpprb", "next_of, stack_compress"),
    Buffer("tianshou", "default"),
    Buffer("tianshou", "stack_num=4, ignore_obs_next"),
    Buffer("torchrl", "default"),
]


def measure(buffer: Buffer) -> dict[str, int]:
    """Fill a buffer in a process of its own: bytes."""
    python = {"outrider": sys.executable, "tianshou": TIANSHOU}.get(buffer.library, PEERS)
    script = "replay_memory_ours.py" if buffer.library == "outrider" else "replay_memory_peers.py"
    command = [python, "-W", "ignore", str(HERE / "sides" / script), buffer.library, buffer.how, str(buffer.rows)]
    env = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", **AT_ONCE}
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(buffer: Buffer) -> list[str]:
    """A row of the table; what is over its limit is in bold."""
    found = measure(buffer)
    each = found["full"] / buffer.rows
    estimate, limited = found.get("estimate"), buffer.rows == WHOLE
    million = f"{each / 1e3:.2f}"
    told = "" if estimate is None else f"{estimate / 1e9:.2f}"
    if limited and each / 1e3 > GOAL:
        million = f"**{million}**"
    if limited and estimate is not None and estimate / 1e9 > GOAL:
        told = f"**{told}**"
    return [
        buffer.library, buffer.how, f"{buffer.rows:,}", f"{each:,.0f}", million, told,
        f"{GOAL:g}" if limited else "", f"{found['grown'] / 1e6:.1f}",
    ]  # fmt: skip


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted({one.library for one in BUFFERS}), action="append")
    options = parser.parse_args()
    rows = [row(one) for one in BUFFERS if not options.only or one.library in options.only]
    print(f"Replay buffers of stacks of 4 frames, 84 x 84 bytes each, 8 lanes. {machine()}\n")
    heads = ["library", "settings", "transitions measured", "bytes a transition", "GB for 1e6, in proportion",
             "GB for 1e6, by estimate", "at most", "MB grown by 1 000 batches of 32"]  # fmt: skip
    print(table(heads, rows))


if __name__ == "__main__":
    main()
