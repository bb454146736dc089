"""What held rollouts cost, and what comes back when they are let go; bytes per transition.

Memory is the proportional set size of this process and the workers, which counts shared pages once.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
from rounds import machine, table
from workloads import noop_pixels

import outrider

LANES, LENGTH, HELD = 8, 64, 10


def pss(pids: list[int]) -> int:
    """Proportional set size of this process and others in bytes."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in ("self", *pids)]
    lines = [line for rollup in rollups for line in rollup.splitlines() if line.startswith("Pss:")]
    return sum(int(line.split()[1]) for line in lines) * 1024


def measure(backend: object) -> list[str]:
    """Hold rollouts, let them go, and collect on."""
    with (
        outrider.make_vec(noop_pixels, LANES, backend=backend) as envs,
        outrider.Collector(envs, lambda obs: np.zeros(len(obs), np.int64), seed=0) as collector,
    ):
        for rollout in collector.rollouts(LENGTH, 4):
            size = rollout.nbytes
        del rollout
        envs.trim()
        before = pss(envs.worker_pids)
        held = list(collector.rollouts(LENGTH, HELD))
        holding = pss(envs.worker_pids) - before
        held.clear()
        gc.collect()
        for rollout in collector.rollouts(LENGTH, 8):
            size = rollout.nbytes
        del rollout
        after = pss(envs.worker_pids) - before
        held = list(collector.rollouts(LENGTH, HELD))
        held.clear()
        gc.collect()
        envs.trim()
        trimmed = pss(envs.worker_pids) - before
    per_step = size / (LANES * LENGTH)
    return [
        type(backend).__name__, f"{size / 1e6:.1f}", f"{holding / size:.2f}", f"{after / size:.2f}",
        f"{trimmed / size:.2f}", f"{per_step:.0f}",
    ]  # fmt: skip


def main() -> None:
    """Print a table."""
    print(f"Memory: rollouts of {LENGTH} x {LANES}, observations of 4 x 84 x 84 bytes (28 224). {machine()}\n")
    heads = ["environments", "MB a rollout", f"holding {HELD}: rollouts", "8 rollouts after letting go", "after trim()",
             "bytes a transition"]  # fmt: skip
    print(table(heads, [measure(outrider.Inline()), measure(outrider.Processes(workers=2))]))


if __name__ == "__main__":
    sys.exit(main())
