"""The buffers of the peers: replay_peers.py LIBRARY WHAT.

They return what theirs return. Stable-Baselines3 and TorchRL make tensors, the others arrays; none of them has
the weights, serial numbers, episodes, steps and versions that each batch of ours has, and none stores an observation
once: they are given each one twice, as their documentation does.
"""

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from replay_checks import check_transitions
from replay_workloads import BATCH, SIZES, Size, blocks, calls, stream
from rounds import serve

Work = Callable[[], Any]
Columns = dict[str, Any]
PRIORITIES = np.random.default_rng(0).random(BATCH)


def sb3(what: str, size: Size) -> tuple[Work, Columns]:
    """Stable-Baselines3."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    leaf = size.leaves[""]
    box = spaces.Box(0, 255 if leaf.dtype == "u1" else np.inf, leaf.shape, np.dtype(leaf.dtype).type)
    buffer = ReplayBuffer(size.rows, box, spaces.Box(-1, 1, (6,), np.float32), device="cpu", n_envs=size.lanes)
    infos: list[dict[str, Any]] = [{}] * size.lanes
    for one in stream(size):
        buffer.add(one["obs"], one["next_obs"], one["action"], one["reward"], one["truncated"], infos)
    assert buffer.full
    batch = buffer.sample(BATCH)
    found = {
        "obs": batch.observations,
        "next_obs": batch.next_observations,
        "action": batch.actions,
        "reward": batch.rewards,
        "ended": batch.dones,
    }
    if what == "add":
        step = one["obs"], one["next_obs"], one["action"], one["reward"], one["truncated"], infos
        return lambda: buffer.add(*step), found
    return lambda: buffer.sample(BATCH), found


def cpprb(what: str, size: Size) -> tuple[Work, Columns]:
    """The buffers of cpprb."""
    from cpprb import PrioritizedReplayBuffer, ReplayBuffer

    leaf = {"shape": size.leaves[""].shape, "dtype": np.dtype(size.leaves[""].dtype)}
    schema = {"obs": leaf, "act": {"shape": 6}, "rew": {}, "next_obs": leaf, "done": {}}
    ranked = what.startswith("prioritized")
    buffer = PrioritizedReplayBuffer(size.rows, schema, alpha=0.6) if ranked else ReplayBuffer(size.rows, schema)
    for one in blocks(size):
        buffer.add(
            obs=one["obs"], act=one["action"], rew=one["reward"], next_obs=one["next_obs"], done=one["truncated"]
        )
    assert buffer.get_stored_size() == size.rows
    batch = buffer.sample(BATCH, beta=0.4) if ranked else buffer.sample(BATCH)
    names = {"obs": "obs", "next_obs": "next_obs", "action": "act", "reward": "rew", "ended": "done"}
    found = {ours: batch[theirs] for ours, theirs in names.items()}
    if what == "add":
        last = {
            "obs": one["obs"][: size.lanes],
            "act": one["action"][: size.lanes],
            "rew": one["reward"][: size.lanes],
            "next_obs": one["next_obs"][: size.lanes],
            "done": one["truncated"][: size.lanes],
        }
        return lambda: buffer.add(**last), found
    if ranked:
        return lambda: buffer.update_priorities(buffer.sample(BATCH, beta=0.4)["indexes"], PRIORITIES), found
    return lambda: buffer.sample(BATCH), found


def tianshou(what: str, size: Size) -> tuple[Work, Columns]:
    """Tianshou."""
    from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer

    ranked = what.startswith("prioritized")
    buffer: Any = (
        PrioritizedVectorReplayBuffer(size.rows, size.lanes, alpha=0.6, beta=0.4)
        if ranked
        else VectorReplayBuffer(size.rows, size.lanes)
    )
    nothing = np.zeros(size.lanes, bool)
    for one in stream(size):
        ended = one["truncated"]
        step = Batch(
            obs=one["obs"],
            act=one["action"],
            rew=one["reward"],
            terminated=nothing,
            truncated=ended,
            done=ended,
            obs_next=one["next_obs"],
            info=Batch(),
        )
        buffer.add(step)
    assert len(buffer) == size.rows
    batch, _ = buffer.sample(BATCH)
    names = {"obs": "obs", "next_obs": "obs_next", "action": "act", "reward": "rew", "ended": "done"}
    found = {ours: batch[theirs] for ours, theirs in names.items()}
    if what == "add":
        return lambda: buffer.add(step), found
    if ranked:
        return lambda: buffer.update_weight(buffer.sample(BATCH)[1], PRIORITIES), found
    return lambda: buffer.sample(BATCH), found


def torchrl(what: str, size: Size) -> tuple[Work, Columns]:
    """TorchRL."""
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer

    def steps(one: Columns) -> TensorDict:
        count = len(one["action"])
        tensors = {name: torch.from_numpy(np.ascontiguousarray(column)) for name, column in one.items()}
        behind = {
            "observation": tensors["next_obs"],
            "reward": tensors["reward"].float(),
            "done": tensors["truncated"],
            "terminated": torch.zeros(count, dtype=torch.bool),
        }
        first = {"observation": tensors["obs"], "action": tensors["action"]}
        return TensorDict(first | {"next": TensorDict(behind, [count])}, [count])

    torch.set_num_threads(1)
    ranked = what.startswith("prioritized")
    chosen = {"sampler": PrioritizedSampler(size.rows, alpha=0.6, beta=0.4)} if ranked else {}
    buffer: Any = ReplayBuffer(storage=LazyTensorStorage(size.rows), batch_size=BATCH, **chosen)
    for one in blocks(size):
        buffer.extend(steps(one))
    assert len(buffer) == size.rows
    batch = buffer.sample()
    found = {
        "obs": batch["observation"],
        "next_obs": batch["next", "observation"],
        "action": batch["action"],
        "reward": batch["next", "reward"],
        "ended": batch["next", "done"],
    }
    if what == "add":
        last = steps(one)[: size.lanes]
        return lambda: buffer.extend(last), found
    if ranked:
        new = torch.from_numpy(PRIORITIES).float()
        return lambda: buffer.update_priority(buffer.sample(return_info=True)[1]["index"], new), found
    return buffer.sample, found


LIBRARIES = {"sb3": sb3, "cpprb": cpprb, "tianshou": tianshou, "torchrl": torchrl}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    library, what = sys.argv[1:]
    call, batch = LIBRARIES[library](what, SIZES[what])
    check_transitions(SIZES[what], {name: np.asarray(column) for name, column in batch.items()})
    count = calls(what)

    def several() -> int:
        """So many calls."""
        for _ in range(count):
            call()
        return count

    serve(several, clock=time.process_time)
