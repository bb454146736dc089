"""Outrider's vector environments: vector_ours.py ENV LANES WORKERS (0: in this process)."""

import sys

import numpy as np
from rounds import serve
from workloads import MAKERS

import outrider


def main() -> None:
    """Step with fixed actions."""
    env, lanes, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    backend = outrider.Processes(workers=workers) if workers else outrider.Inline()
    with outrider.make_vec(MAKERS[env], lanes, backend=backend) as envs:
        envs.reset(seed=0)
        actions = np.ones(lanes, np.int64)

        def step() -> int:
            for _ in range(20):
                envs.step(actions)
            return 20 * lanes

        serve(step)


if __name__ == "__main__":
    main()
