"""What no collector can exceed: each worker steps its environments one after the other and never waits.

tails_ceiling.py ENV LANES WORKERS
"""

import multiprocessing
import sys
import time
from multiprocessing.sharedctypes import RawArray

from rounds import serve
from workloads import MAKERS


def work(env: str, lanes: int, seed: int, counts: "RawArray", index: int) -> None:
    """Step for ever, and count."""
    envs = [MAKERS[env]() for _ in range(lanes)]
    for number, one in enumerate(envs):
        one.reset(seed=seed + number)
    while True:
        for one in envs:
            _, _, terminated, truncated, _ = one.step(0)
            counts[index] += 1
            if terminated or truncated:
                one.reset()


def main() -> None:
    """Start the workers and look at their counts."""
    env, lanes, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    context = multiprocessing.get_context("fork")
    counts = context.RawArray("q", workers)
    each = lanes // workers
    processes = [
        context.Process(target=work, args=(env, each, 1000 * index, counts, index), daemon=True)
        for index in range(workers)
    ]
    for process in processes:
        process.start()

    def step() -> int:
        before = sum(counts)
        time.sleep(0.1)
        return sum(counts) - before

    serve(step)


if __name__ == "__main__":
    main()
