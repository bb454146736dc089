"""What buffers of stacked frames take: replay_memory_peers.py LIBRARY SETTINGS ROWS.

"default" stores the observation and the next one of each step. The other settings are what each library has to store
less. With them `next_obs` is not what the step led to where an episode ended: Stable-Baselines3's is the first
observation of the next one, Tianshou's the one acted upon. cpprb compresses stacks of one lane only, along their last
axis, for which it is given the steps of one.
"""

import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from pss import pss
from replay_checks import check_stacks
from replay_workloads import Size, atari, blocks, stream

Draw = Callable[[], Any]
ATARI = ((4, 84, 84), np.dtype("u1"))


def sb3(how: str, size: Size) -> Draw:
    """Stable-Baselines3."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    frugal = how == "optimize_memory_usage"
    buffer = ReplayBuffer(
        size.rows,
        spaces.Box(0, 255, *ATARI),
        spaces.Discrete(6),
        device="cpu",
        n_envs=size.lanes,
        optimize_memory_usage=frugal,
        handle_timeout_termination=not frugal,
    )
    infos: list[dict[str, Any]] = [{}] * size.lanes
    for one in stream(size):
        action = one["action"][:, :1].astype(np.int64)
        buffer.add(one["obs"], one["next_obs"], action, one["reward"], one["truncated"], infos)
    assert buffer.full

    def draw() -> np.ndarray:
        found: np.ndarray = buffer.sample(32).observations.numpy()
        return found

    return draw


def cpprb(how: str, size: Size) -> Draw:
    """The buffers of cpprb."""
    from cpprb import ReplayBuffer

    schema: dict[str, Any] = {"act": {"dtype": np.int64}, "rew": {}, "done": {}}
    if how == "default":
        leaf = {"shape": ATARI[0], "dtype": ATARI[1]}
        buffer = ReplayBuffer(size.rows, schema | {"obs": leaf, "next_obs": leaf})
        for one in blocks(size):
            obs, behind = one["obs"], one["next_obs"]
            buffer.add(obs=obs, act=one["action"][:, 0], rew=one["reward"], next_obs=behind, done=one["truncated"])
        return lambda: buffer.sample(32)["obs"]
    # Stacks are along the last axis there.
    leaf = {"shape": (84, 84, 4), "dtype": ATARI[1]}
    buffer = ReplayBuffer(size.rows, schema | {"obs": leaf}, next_of="obs", stack_compress="obs")
    for one in stream(size):
        obs, behind = (np.moveaxis(one[name], 1, -1) for name in ("obs", "next_obs"))
        buffer.add(obs=obs, act=one["action"][:, 0], rew=one["reward"], next_obs=behind, done=one["truncated"])
        if one["truncated"][0]:
            buffer.on_episode_end()
    return lambda: np.moveaxis(buffer.sample(32)["obs"], -1, 1)


def tianshou(how: str, size: Size) -> Draw:
    """Tianshou."""
    from tianshou.data import Batch, VectorReplayBuffer

    less = {} if how == "default" else {"stack_num": 4, "ignore_obs_next": True, "save_only_last_obs": True}
    buffer = VectorReplayBuffer(size.rows, size.lanes, **less)
    nothing = np.zeros(size.lanes, bool)
    for one in stream(size):
        ended = one["truncated"]
        step = Batch(
            obs=one["obs"],
            act=one["action"][:, 0].astype(np.int64),
            rew=one["reward"],
            terminated=nothing,
            truncated=ended,
            done=ended,
            obs_next=one["next_obs"],
            info=Batch(),
        )
        buffer.add(step)
    assert len(buffer) == size.rows
    return lambda: buffer.sample(32)[0].obs


def torchrl(_how: str, size: Size) -> Draw:
    """TorchRL."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    buffer: Any = ReplayBuffer(storage=LazyTensorStorage(size.rows), batch_size=32)
    for one in blocks(size):
        count = len(one["action"])
        tensors = {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in one.items()}
        flags = {"done": tensors["truncated"], "terminated": torch.zeros(count, dtype=torch.bool)}
        behind = TensorDict({"observation": tensors["next_obs"], "reward": tensors["reward"].float(), **flags}, [count])
        first = {"observation": tensors["obs"], "action": tensors["action"][:, 0].long(), "next": behind}
        buffer.extend(TensorDict(first, [count]))
    assert len(buffer) == size.rows

    def draw() -> np.ndarray:
        found: np.ndarray = buffer.sample()["observation"].numpy()
        return found

    return draw


LIBRARIES = {"sb3": sb3, "cpprb": cpprb, "tianshou": tianshou, "torchrl": torchrl}


def measure(library: str, how: str, rows: int) -> dict[str, int]:
    """Fill a buffer, and read from it: bytes."""
    make, lanes = LIBRARIES[library], 1 if "stack_compress" in how else 8
    make(how, atari(800, lanes))()  # Whatever is imported and kept is there now.
    gc.collect()
    before = pss()
    draw = make(how, atari(rows, lanes))
    check_stacks(atari(rows, lanes), draw())
    gc.collect()
    full = pss()
    for _ in range(1_000):
        draw()
    gc.collect()
    return {"full": full - before, "grown": pss() - full}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
