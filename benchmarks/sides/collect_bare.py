"""A bare loop that writes the same columns: collect_bare.py LANES LENGTH.

It is what is left when everything that a library adds is taken away: no checks, no copies, no choice of where the
environments run; they are stepped one by one, rows go to fresh arrays, true last observations to a list.
"""

import sys
from typing import Any

import numpy as np
import torch
from rounds import serve
from workloads import actor_critic, cartpole


class BareLoop:
    """Environments, a policy, and the numbers of the running episodes."""

    def __init__(self, lanes: int) -> None:
        self.envs = [cartpole() for _ in range(lanes)]
        self.policy = actor_critic()
        self.heads = np.stack([env.reset(seed=lane)[0] for lane, env in enumerate(self.envs)])
        self.ids, self.counts, self.returns = np.arange(lanes), np.zeros(lanes, np.int64), np.zeros(lanes)
        self.finished: list[tuple[float, int]] = []

    def collect(self, length: int) -> dict[str, Any]:
        """Collect one block."""
        envs, policy, lanes = self.envs, self.policy, len(self.envs)
        ids, counts, returns = self.ids, self.counts, self.returns
        block = (length, lanes)
        obs = np.empty((length + 1, lanes, 4), np.float32)
        action, log_prob, value = np.empty(block, np.int64), np.empty(block, np.float32), np.empty(block, np.float32)
        reward, terminated, truncated = np.empty(block), np.empty(block, bool), np.empty(block, bool)
        episode_id, step = np.empty(block, np.int64), np.empty(block, np.int64)
        finals = []
        obs[0] = self.heads
        with torch.inference_mode():
            for t in range(length):
                out = policy(torch.from_numpy(obs[t]))
                action[t], log_prob[t], value[t] = out["action"].numpy(), out["log_prob"].numpy(), out["value"].numpy()
                episode_id[t], step[t] = ids, counts
                for lane, env in enumerate(envs):
                    ob, reward[t, lane], terminated[t, lane], truncated[t, lane], _ = env.step(action[t, lane])
                    if terminated[t, lane] or truncated[t, lane]:
                        finals.append((t, lane, ob))
                        self.finished.append((returns[lane] + reward[t, lane], counts[lane] + 1))
                        ids[lane] += lanes
                        counts[lane], returns[lane] = -1, -reward[t, lane]
                        ob, _ = env.reset()
                    obs[t + 1, lane] = ob
                counts += 1
                returns += reward[t]
        self.heads[:] = obs[length]
        del self.finished[:-10_000]
        flags = {"terminated": terminated, "truncated": truncated, "cut": np.zeros(block, bool)}
        numbers = {"episode_id": episode_id, "step": step, "version": np.zeros(block, np.int64)}
        columns = {"obs": obs, "action": action, "log_prob": log_prob, "value": value, "reward": reward}
        return columns | flags | numbers | {"finals": finals}


def main() -> None:
    """Collect blocks."""
    lanes, length = int(sys.argv[1]), int(sys.argv[2])
    loop = BareLoop(lanes)

    def collect() -> int:
        loop.collect(length)
        return length * lanes

    serve(collect)


if __name__ == "__main__":
    main()
