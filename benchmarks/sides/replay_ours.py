"""Outrider's replay buffer: replay_ours.py WHAT."""

import sys
from collections.abc import Callable

import numpy as np
from replay_workloads import FRAMES, LANES, PRIORITIZED, ROLLOUT, SMALL, Size
from rounds import serve

import outrider
from outrider.records import Rollout, StepSpec
from outrider.spec import LeafSpec


def make(size: Size, **settings: object) -> outrider.ReplayBuffer:
    """A buffer of this size, full."""
    spec = StepSpec(
        obs=LeafSpec(size.shape, np.dtype(size.dtype)), action=LeafSpec((6,), np.dtype("f4")), num_envs=LANES
    )
    replay = outrider.ReplayBuffer(size.rows, spec, seed=0, **settings)
    zeros, length = Rollout.zeros(spec, 100), 100
    for start in range(0, size.rows // LANES + 1, length):
        zeros.step[:] = np.arange(start, start + length)[:, None]
        zeros.truncated[-1] = start % 1000 == 900
        replay.extend(ended(zeros))
    return replay


def ended(rollout: Rollout) -> Rollout:
    """The rollout with a side table for its ends."""
    index = np.flatnonzero(rollout.truncated)
    return Rollout(
        **{name: getattr(rollout, name) for name in rollout.__dataclass_fields__ if not name.startswith("final")},
        final_index=index,
        final_obs=rollout.obs[0, :1].repeat(len(index), 0),
    )


def add(size: Size) -> Callable[[], int]:
    """One step of each lane."""
    replay = make(size)
    obs = np.zeros((LANES, *size.shape), size.dtype)
    action, reward, flags = np.zeros((LANES, 6), np.float32), np.zeros(LANES), np.zeros(LANES, bool)
    columns = {"action": action, "reward": reward, "terminated": flags, "truncated": flags}
    return lambda: replay.add(obs=obs, next_obs=obs, **columns) and 1


def sample(size: Size, **settings: object) -> Callable[[], int]:
    """256 transitions."""
    replay = make(size, **settings)

    def draw() -> int:
        replay.sample(256)
        return 1

    return draw


def prioritized(size: Size) -> Callable[[], int]:
    """256 transitions and new priorities for them."""
    replay = make(size, sampler=outrider.Prioritized(alpha=0.6, beta=0.4))
    priorities = np.random.default_rng(0).random(256)

    def draw() -> int:
        replay.update(replay.sample(256).index, priorities)
        return 1

    return draw


def extend(size: Size) -> Callable[[], int]:
    """A rollout of 64 x 8 at a time."""
    replay = make(size)
    rollout = Rollout.zeros(replay.spec, ROLLOUT)

    def append() -> int:
        rollout.step[:] += ROLLOUT
        replay.extend(rollout)
        return 1

    return append


WHAT = {
    "add": lambda: add(SMALL),
    "extend": lambda: extend(SMALL),
    "extend frames": lambda: extend(FRAMES),
    "sample": lambda: sample(SMALL),
    "sample frames": lambda: sample(FRAMES),
    "sample n-step": lambda: sample(SMALL, view=outrider.Transitions(n_step=3)),
    "prioritized": lambda: prioritized(PRIORITIZED),
    "prioritized 1e6": lambda: prioritized(Size((4,), "f4", 1_000_000)),
}

if __name__ == "__main__":
    work = WHAT[sys.argv[1]]()
    serve(lambda: sum(work() for _ in range(20)))
