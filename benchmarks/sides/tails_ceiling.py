"""What no collector can exceed: each worker steps its environments one after the other and never waits.

tails_ceiling.py ENV LANES WORKERS
"""

import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import RawArray
from multiprocessing.synchronize import Event

from rounds import serve
from workloads import MAKERS


def work(env: str, lanes: int, seed: int, counts: "RawArray", index: int, gate: Event) -> None:
    """Step for ever, and count. The last of `counts` says whether to stand still, until `gate` is opened."""
    envs = [MAKERS[env]() for _ in range(lanes)]
    for number, one in enumerate(envs):
        one.reset(seed=seed + number)
    while True:
        for one in envs:
            if counts[-1]:
                gate.wait()
            _, _, terminated, truncated, _ = one.step(0)
            counts[index] += 1
            if terminated or truncated:
                one.reset()


def main() -> None:
    """Start the workers and look at their counts."""
    env, lanes, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    context = multiprocessing.get_context("fork")
    counts, gate = context.RawArray("q", workers + 1), context.Event()
    counts[-1] = True
    each = lanes // workers
    processes = [
        context.Process(target=work, args=(env, each, 1000 * index, counts, index, gate), daemon=True)
        for index in range(workers)
    ]
    for process in processes:
        process.start()

    @contextmanager
    def going() -> Iterator[None]:
        counts[-1] = False
        gate.set()
        yield
        gate.clear()
        counts[-1] = True

    def step() -> int:
        before = sum(counts[:workers])
        time.sleep(0.1)
        return sum(counts[:workers]) - before

    serve(step, going)


if __name__ == "__main__":
    main()
