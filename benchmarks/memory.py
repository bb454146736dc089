"""What held rollouts cost, and what comes back when they are let go; bytes per transition.

Memory is the proportional set size of this process and the workers, which counts shared pages once.
"""

from __future__ import annotations

import gc
import sys

import numpy as np
from pss import pss
from rounds import machine, table
from workloads import noop_pixels

import outrider

LANES, LENGTH, HELD = 8, 64, 10


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
