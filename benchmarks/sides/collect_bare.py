"""A bare loop that writes the same columns: collect_bare.py LANES LENGTH.

No checks, no ids, no bookkeeping of episodes: environments are stepped one by one, rows are written to arrays, and true
last observations are kept in a list. It is what is left when everything that a library adds is taken away.
"""

import sys

import numpy as np
import torch
from rounds import serve
from workloads import actor_critic, cartpole


def main() -> None:
    """Collect blocks."""
    lanes, length = int(sys.argv[1]), int(sys.argv[2])
    envs = [cartpole() for _ in range(lanes)]
    policy = actor_critic()
    heads = np.stack([env.reset(seed=lane)[0] for lane, env in enumerate(envs)])

    def collect() -> int:
        obs = np.empty((length + 1, lanes, 4), np.float32)
        action = np.empty((length, lanes), np.int64)
        log_prob, value = np.empty((length, lanes), np.float32), np.empty((length, lanes), np.float32)
        reward = np.empty((length, lanes))
        terminated, truncated = np.empty((length, lanes), bool), np.empty((length, lanes), bool)
        finals = []
        obs[0] = heads
        with torch.inference_mode():
            for t in range(length):
                out = policy(torch.from_numpy(obs[t]))
                action[t], log_prob[t], value[t] = out["action"].numpy(), out["log_prob"].numpy(), out["value"].numpy()
                for lane, env in enumerate(envs):
                    ob, reward[t, lane], ended, cut_off, _ = env.step(action[t, lane])
                    terminated[t, lane], truncated[t, lane] = ended, cut_off
                    if ended or cut_off:
                        finals.append((t, lane, ob))
                        ob, _ = env.reset()
                    obs[t + 1, lane] = ob
        heads[:] = obs[length]
        return length * lanes

    serve(collect)


if __name__ == "__main__":
    main()
