"""The buffers of the peers: replay_peers.py LIBRARY WHAT."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from replay_workloads import FRAMES, LANES, PRIORITIZED, SMALL, Size
from rounds import serve

Work = Callable[[], Any]
PRIORITIES = np.random.default_rng(0).random(256)


def columns(size: Size) -> tuple[Any, ...]:
    """Observations, actions, rewards and flags of a step of every lane."""
    obs = np.ones((LANES, *size.shape), size.dtype)
    return obs, np.zeros((LANES, 6), np.float32), np.zeros(LANES, np.float32), np.zeros(LANES, bool)


def sb3(what: str, size: Size) -> Work:
    """Stable-Baselines3."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    high = 255 if size.dtype == "u1" else 1
    box = spaces.Box(0, high, size.shape, np.dtype(size.dtype).type)
    buffer = ReplayBuffer(size.rows, box, spaces.Box(-1, 1, (6,), np.float32), device="cpu", n_envs=LANES)
    obs, action, reward, flags = columns(size)
    infos: list[dict[str, Any]] = [{}] * LANES
    while not buffer.full:
        buffer.add(obs, obs, action, reward, flags, infos)
    if what == "add":
        return lambda: buffer.add(obs, obs, action, reward, flags, infos)
    return lambda: buffer.sample(256)


def cpprb(what: str, size: Size) -> Work:
    """The buffers of cpprb."""
    from cpprb import PrioritizedReplayBuffer, ReplayBuffer

    leaf = {"shape": size.shape, "dtype": np.dtype(size.dtype)}
    schema = {"obs": leaf, "act": {"shape": 6}, "rew": {}, "next_obs": leaf, "done": {}}
    obs, action, reward, flags = columns(size)
    one = {"obs": obs, "act": action, "rew": reward, "next_obs": obs, "done": flags}
    ranked = what.startswith("prioritized")
    buffer = PrioritizedReplayBuffer(size.rows, schema, alpha=0.6) if ranked else ReplayBuffer(size.rows, schema)
    while buffer.get_stored_size() < size.rows:
        buffer.add(**one)
    if what == "add":
        return lambda: buffer.add(**one)
    if ranked:
        return lambda: buffer.update_priorities(buffer.sample(256, beta=0.4)["indexes"], PRIORITIES)
    return lambda: buffer.sample(256)


def tianshou(what: str, size: Size) -> Work:
    """Tianshou."""
    from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer

    obs, action, reward, flags = columns(size)
    one = Batch(
        obs=obs, act=action, rew=reward, terminated=flags, truncated=flags, done=flags, obs_next=obs, info=Batch()
    )
    ranked = what.startswith("prioritized")
    buffer: Any = (
        PrioritizedVectorReplayBuffer(size.rows, LANES, alpha=0.6, beta=0.4)
        if ranked
        else VectorReplayBuffer(size.rows, LANES)
    )
    for _ in range(size.rows // LANES):
        buffer.add(one)
    if what == "add":
        return lambda: buffer.add(one)
    if ranked:
        return lambda: buffer.update_weight(buffer.sample(256)[1], PRIORITIES)
    return lambda: buffer.sample(256)


def torchrl(what: str, size: Size) -> Work:
    """TorchRL."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    torch.set_num_threads(1)
    obs, action, reward, flags = (torch.from_numpy(column) for column in columns(size))
    behind = TensorDict({"observation": obs, "reward": reward, "done": flags, "terminated": flags}, [LANES])
    one = TensorDict({"observation": obs, "action": action, "next": behind}, [LANES])
    buffer = ReplayBuffer(storage=LazyTensorStorage(size.rows), batch_size=256)
    while len(buffer) < size.rows:
        buffer.extend(one)
    return (lambda: buffer.extend(one)) if what == "add" else buffer.sample


LIBRARIES = {"sb3": sb3, "cpprb": cpprb, "tianshou": tianshou, "torchrl": torchrl}
SIZES = {
    "add": SMALL,
    "sample": SMALL,
    "sample frames": FRAMES,
    "prioritized": PRIORITIZED,
    "prioritized 1e6": Size((4,), "f4", 1_000_000),
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    work = LIBRARIES[sys.argv[1]](sys.argv[2], SIZES[sys.argv[2]])
    serve(lambda: sum(work() is not work for _ in range(20)))
