"""Outrider's replay buffer: replay_ours.py WHAT."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from replay_checks import check_sequences, check_transitions
from replay_workloads import (
    BATCH,
    GAMMA,
    LENGTH,
    ROLLOUT,
    SEQUENCES,
    SIZES,
    STACK,
    Leaf,
    Size,
    calls,
    punished,
    reached,
    rollout_nbytes,
)
from rounds import serve

import outrider
from outrider import tree
from outrider.records import Rollout, StepSpec
from outrider.spec import LeafSpec

VIEWS = {
    "n-step 3": outrider.Transitions(n_step=3, gamma=GAMMA),
    "frame stack 4": outrider.Transitions(frame_stack=STACK),
    "sequences": outrider.Sequences(LENGTH),
    "padded sequences": outrider.Sequences(LENGTH, pad=True),
    "hindsight": outrider.Hindsight(k=4, reward=punished, terminated=reached),
}
VIEWS["extend stacks"] = VIEWS["frame stack 4"]
SHARES = {"sample 10 % full": 0.1}


def settings_of(what: str) -> dict[str, Any]:
    """What the buffer is made with."""
    return {"view": VIEWS[what]} if what in VIEWS else {}


def spec_of(size: Size) -> StepSpec:
    """The spec of steps of this size."""

    def leaf(one: Leaf) -> LeafSpec:
        return LeafSpec(one.shape, np.dtype(one.dtype))

    obs = {name: leaf(one) for name, one in size.leaves.items()}
    action = LeafSpec((6,), np.dtype("f4"))
    return StepSpec(obs=obs if isinstance(size.obs, dict) else obs[""], action=action, num_envs=size.lanes)


def rollout_of(size: Size, start: int, length: int) -> Rollout:
    """Steps of all lanes, from position `start` on."""
    steps, spec, lanes = size.steps(start, length), spec_of(size), size.lanes
    mark = (start + length) * lanes + np.arange(lanes)
    newest = size.observe(mark, np.full(lanes, (start + length) % size.episode))
    zeros, ends = Rollout.zeros(spec, length), np.flatnonzero(steps["truncated"])
    return Rollout(
        obs=tree.map(lambda leaf, last: np.concatenate([leaf, last[None]]), steps["obs"], newest),
        action=steps["action"],
        reward=steps["reward"],
        terminated=zeros.terminated,
        truncated=steps["truncated"],
        cut=zeros.cut,
        valid=zeros.valid,
        episode_id=(steps["episode"] << 32) + np.arange(lanes),
        step=steps["step"],
        version=zeros.version,
        env_id=zeros.env_id,
        final_index=ends,
        final_obs=tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[ends], steps["next_obs"]),
    )


def make(size: Size, share: float = 1.0, **settings: Any) -> outrider.ReplayBuffer:
    """A buffer of this size, full or filled to a share."""
    replay = outrider.ReplayBuffer(size.rows, spec_of(size), seed=0, **settings)
    for start, length in size.blocks(100, share):
        replay.extend(rollout_of(size, start, length))
    assert len(replay) == int(size.rows * share)
    return replay


def add(size: Size) -> Callable[[], Any]:
    """One step of each lane."""
    replay = make(size)
    obs = np.zeros((size.lanes, 17), np.float32)
    action, reward, flags = np.zeros((size.lanes, 6), np.float32), np.zeros(size.lanes), np.zeros(size.lanes, bool)
    columns = {"action": action, "reward": reward, "terminated": flags, "truncated": flags}

    def step() -> None:
        replay.add(obs=obs, next_obs=obs, **columns)

    while len(set(replay.sample(BATCH).obs[:, 0].tolist()) - {0.0}) > BATCH // 2:
        step()
    batch = replay.sample(BATCH)
    new = batch.obs[:, 0] == 0
    assert new.mean() > 0.3
    assert not batch.next_obs[new].any()
    return step


def sample(what: str, size: Size) -> Callable[[], Any]:
    """A batch of transitions."""
    replay = make(size, SHARES.get(what, 1.0), **settings_of(what))
    batch = replay.sample(BATCH)
    steps = np.round(np.log(batch.discount) / np.log(GAMMA)).astype(int) if what == "n-step 3" else 1
    check_transitions(size, columns_of(batch), steps)
    return lambda: replay.sample(BATCH)


def columns_of(batch: Any) -> dict[str, Any]:
    """The columns of a batch that are checked. All episodes here were truncated; goals may terminate others."""
    return {
        "obs": batch.obs,
        "action": batch.action,
        "reward": batch.reward,
        "next_obs": batch.next_obs,
        "ended": batch.truncated,
    }


def sequences(what: str, size: Size) -> Callable[[], Any]:
    """A batch of sequences."""
    replay = make(size, **settings_of(what))
    batch = replay.sample(SEQUENCES)
    check_sequences(size, {name: getattr(batch, name) for name in ("obs", "action", "reward", "mask", "lengths")})
    return lambda: replay.sample(SEQUENCES)


def prioritized(size: Size) -> Callable[[], Any]:
    """A batch of transitions, and new priorities for them."""
    replay = make(size, sampler=outrider.Prioritized(alpha=0.6, beta=0.4))
    priorities = np.random.default_rng(0).random(BATCH)
    batch = replay.sample(BATCH)
    check_transitions(size, columns_of(batch))
    replay.update(batch.index[:1], [1e12])
    assert (replay.sample(BATCH).index == batch.index[0]).mean() > 0.5, "priorities do not matter"
    replay.update(batch.index[:1], [0.5])
    return lambda: replay.update(replay.sample(BATCH).index, priorities)


def extend(what: str, size: Size) -> Callable[[], Any]:
    """A rollout at a time, in which an episode ends in every eighth lane; each goes on from the one before."""
    replay, lanes, half = make(size, **settings_of(what)), size.lanes, ROLLOUT // 2
    rollout, ending = Rollout.zeros(replay.spec, ROLLOUT), np.arange(0, size.lanes, 8)
    # The same everywhere, so that what comes next may be the first observation again, and stacks are shifted ones.
    rollout.obs[:] = 1
    rollout.truncated[half - 1, ending] = True
    rollout.step[:, ending] = (np.arange(ROLLOUT)[:, None] + half) % ROLLOUT
    rollout.episode_id[half:, ending] = 1 << 32
    index = np.flatnonzero(rollout.truncated)
    columns = {name: getattr(rollout, name) for name in rollout.__dataclass_fields__ if not name.startswith("final")}
    rollout = Rollout(**columns, final_index=index, final_obs=rollout.obs[0, ending])
    rollout.check()
    unstored = rollout.valid.nbytes + rollout.env_id.nbytes + rollout.final_index.nbytes
    assert rollout.nbytes == rollout_nbytes(size) + unstored
    steps, episodes = np.full((ROLLOUT, lanes), ROLLOUT), np.zeros((ROLLOUT, lanes), np.int64)
    steps[:, ending], episodes[:, ending] = 0, 1 << 32

    def append() -> None:
        replay.extend(rollout)
        np.add(rollout.step, steps, out=rollout.step)
        np.add(rollout.episode_id, episodes, out=rollout.episode_id)

    for _ in range(size.rows // (ROLLOUT * lanes) + 2):
        append()
    replay.check()
    assert len(replay) == size.rows
    assert replay._ring.columns["cut"].sum() == 0, "rollouts do not go on from one another"
    return append


def work(what: str) -> Callable[[], Any]:
    """What is measured."""
    size = SIZES[what]
    if what == "add":
        return add(size)
    if what.startswith("extend"):
        return extend(what, size)
    if what.startswith("prioritized"):
        return prioritized(size)
    return sequences(what, size) if "sequences" in what else sample(what, size)


if __name__ == "__main__":
    call, count = work(sys.argv[1]), calls(sys.argv[1])

    def several() -> int:
        """So many calls."""
        for _ in range(count):
            call()
        return count

    serve(several, clock=time.process_time)
