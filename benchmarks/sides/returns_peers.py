"""The returns and advantages of the peers: returns_peers.py LIBRARY WHAT."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from returns_workloads import GAMMA, LAM, LANES, STEPS, columns
from rounds import serve

Work = Callable[[], Any]


def sb3() -> Work:
    """Stable-Baselines3: the loop of its rollout buffer, over single precision."""
    import torch
    from gymnasium import spaces
    from stable_baselines3.common.buffers import RolloutBuffer

    box = spaces.Box(-1, 1, (4,), np.float32)
    buffer = RolloutBuffer(STEPS, box, spaces.Discrete(2), gamma=GAMMA, gae_lambda=LAM, n_envs=LANES)
    given = columns("float32")
    buffer.rewards[:], buffer.values[:] = given["reward"], given["value"]
    buffer.episode_starts[1:] = (given["terminated"] | given["truncated"])[:-1]
    last = torch.from_numpy(given["next_value"][-1])
    return lambda: buffer.compute_returns_and_advantage(last, given["terminated"][-1])


def tianshou(what: str) -> Work:
    """Tianshou: its kernel alone, which has the lanes one behind the other, and next values masked before."""
    from tianshou.algorithm.algorithm_base import _gae

    given = columns(what.split()[1])
    value, following, reward = (given[name].T.reshape(-1).copy() for name in ("value", "next_value", "reward"))
    ended = (given["terminated"] | given["truncated"]).T.reshape(-1).copy()
    return lambda: _gae(value, following, reward, ended, GAMMA, LAM)


def torchrl(what: str, prefix: str = "") -> Work:
    """TorchRL: [lanes, steps, 1], by its loop over steps."""
    import torch
    from torchrl.objectives.value import functional

    torch.set_num_threads(1)
    given = {
        name: torch.from_numpy(np.ascontiguousarray(array.T))[..., None] for name, array in columns("float32").items()
    }
    done = given["terminated"] | given["truncated"]
    values = given["value"], given["next_value"]
    rest = given["reward"], done, given["terminated"]
    if what == "vtrace tensors":
        mu = torch.zeros_like(given["reward"])
        return lambda: functional.vtrace_advantage_estimate(GAMMA, given["log_ratio"], mu, *values, *rest)
    if what == "lambda tensors":
        estimate = getattr(functional, f"{prefix}td_lambda_return_estimate")
        return lambda: estimate(GAMMA, LAM, values[1], *rest)
    estimate = getattr(functional, f"{prefix}generalized_advantage_estimate")
    if what == "gae tensors":
        return lambda: estimate(GAMMA, LAM, *values, *rest)
    values[0].requires_grad_()

    def both() -> None:
        values[0].grad = None
        estimate(GAMMA, LAM, *values, *rest)[0].sum().backward()

    return both


LIBRARIES = {
    "sb3": lambda _: sb3(),
    "tianshou": tianshou,
    "torchrl": torchrl,
    "torchrl-vec": lambda what: torchrl(what, "vec_"),
}

if __name__ == "__main__":
    work = LIBRARIES[sys.argv[1]](sys.argv[2])
    repeats = 20 if sys.argv[1] == "tianshou" else 1
    serve(lambda: sum(work() is not work for _ in range(repeats)))
