"""Gymnasium's vector environments: vector_gymnasium.py ENV LANES KIND (sync or async)."""

import sys

import gymnasium
import numpy as np
from rounds import serve
from workloads import MAKERS


def main() -> None:
    """Step with fixed actions."""
    env, lanes, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    makers, mode = [MAKERS[env]] * lanes, gymnasium.vector.AutoresetMode.SAME_STEP
    if kind == "sync":
        envs = gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=mode)
    else:
        envs = gymnasium.vector.AsyncVectorEnv(makers, shared_memory=True, autoreset_mode=mode)
    envs.reset(seed=0)
    actions = np.ones(lanes, np.int64)

    def step() -> int:
        for _ in range(20):
            envs.step(actions)
        return 20 * lanes

    serve(step)
    envs.close()


if __name__ == "__main__":
    main()
