"""What replay buffers hold on every side of a comparison, and how a batch of theirs is checked; needs NumPy only.

Every observation has a mark: `position * lanes + lane`, counted from the first step on. That behind the last step of an
episode has one as if it went on, but negative, and the first one of the next episode has the same, positive. So a batch
tells whether all columns of a row belong together, and whether `next_obs` is the true last observation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

BATCH, SEQUENCES = 256, 32
LENGTH = 80
"""Steps of a sequence."""
ROLLOUT = 64
STACK = 4
GAMMA = 0.99
GOAL = -7.0
"""What desired goals are before hindsight."""


@dataclass(frozen=True)
class Leaf:
    """Shape and dtype of a part of an observation: a vector, or a stack of frames of bytes."""

    shape: tuple[int, ...]
    dtype: str

    def observe(self, mark: np.ndarray, index: np.ndarray, lanes: int) -> np.ndarray:
        """Observations [..., *shape] with these marks, int64 [...], at these indices in their episodes, int64 [...]."""
        if len(self.shape) == 1:
            return np.repeat(mark[..., None], self.shape[0], -1).astype(self.dtype)
        back = np.minimum(np.arange(self.shape[0])[::-1], index[..., None])
        frames = np.abs(mark)[..., None] - back * lanes
        frames[..., -1] = mark
        found = np.ones((*mark.shape, *self.shape), self.dtype)
        found.reshape(*frames.shape, -1)[..., :8] = frames[..., None].view("u1")
        return found

    def marks(self, obs: np.ndarray, index: np.ndarray, lanes: int) -> np.ndarray:
        """The marks of observations at these indices; the opposite of `observe`."""
        assert obs.shape == (*index.shape, *self.shape)
        assert obs.dtype == self.dtype
        if len(self.shape) == 1:
            assert (obs == obs[..., :1]).all(), "an observation is of several rows"
            return obs[..., 0].astype(np.int64)
        frames = np.ascontiguousarray(obs.reshape(*obs.shape[: index.ndim + 1], -1)[..., :8]).view("i8")[..., 0]
        back = np.minimum(np.arange(self.shape[0])[::-1], index[..., None]) * lanes
        assert (np.abs(frames) == np.abs(frames[..., -1:]) - back).all(), "frames of a stack do not belong together"
        return frames[..., -1]


@dataclass(frozen=True)
class Size:
    """An observation, or a dict of parts of one, and how many steps a buffer has room for, in how many lanes."""

    obs: Leaf | dict[str, Leaf]
    rows: int
    lanes: int = 8
    episode: int = 1000

    @property
    def leaves(self) -> dict[str, Leaf]:
        """The parts, that of an observation without parts under ""."""
        return self.obs if isinstance(self.obs, dict) else {"": self.obs}

    def observe(self, mark: np.ndarray, index: np.ndarray) -> Any:
        """Observations with these marks, at these indices in their episodes."""
        found = {name: leaf.observe(mark, index, self.lanes) for name, leaf in self.leaves.items()}
        if "desired_goal" in found:
            found["desired_goal"][:] = GOAL
        return found if isinstance(self.obs, dict) else found[""]

    def marks(self, obs: Any, index: np.ndarray) -> np.ndarray:
        """The marks of observations, which are those of all parts but a desired goal."""
        parts = obs if isinstance(self.obs, dict) else {"": obs}
        found = [
            leaf.marks(np.asarray(parts[name]), index, self.lanes)
            for name, leaf in self.leaves.items()
            if name != "desired_goal"
        ]
        assert all((one == found[0]).all() for one in found), "parts of an observation are of several rows"
        return found[0]

    def steps(self, start: int, length: int) -> dict[str, Any]:
        """Steps of all lanes from position `start` on: columns [length, lanes, ...]."""
        position = np.arange(start, start + length)[:, None]
        mark, index = position * self.lanes + np.arange(self.lanes), position % self.episode + np.zeros(self.lanes, int)
        ended = index == self.episode - 1
        behind = mark + self.lanes
        return {
            "obs": self.observe(mark, index),
            "action": np.repeat(mark[..., None] % 1000, 6, -1).astype("f4"),
            "reward": (mark % 1000).astype("f8"),
            "truncated": ended,
            "next_obs": self.observe(np.where(ended, -behind, behind), index + 1),
            "step": index,
            "episode": position // self.episode + np.zeros(self.lanes, int),
        }

    def blocks(self, length: int, share: float = 1.0) -> Iterator[tuple[int, int]]:
        """(start, length) of blocks of steps that fill so much of a buffer."""
        positions = int(self.rows * share) // self.lanes
        return ((start, min(length, positions - start)) for start in range(0, positions, length))


def stream(size: Size) -> Iterator[dict[str, Any]]:
    """All steps that a buffer has room for, one of each lane at a time."""
    for start, length in size.blocks(100):
        block = size.steps(start, length)
        for at in range(length):
            yield {name: column[at] for name, column in block.items()}


def blocks(size: Size) -> Iterator[dict[str, Any]]:
    """The same, as rows without lanes, many at a time."""
    for start, length in size.blocks(100):
        block = size.steps(start, length)
        yield {name: column.reshape(-1, *column.shape[2:]) for name, column in block.items()}


VECTOR, PIXELS = Leaf((17,), "f4"), Leaf((STACK, 84, 84), "u1")
SMALL = Size(VECTOR, 200_000)
FRAMES = Size(PIXELS, 20_000)
PARTS = Size({"position": Leaf((17,), "f4"), "goal": Leaf((3,), "f4"), "force": Leaf((6,), "f8")}, 200_000)
GOALS = Size(
    {"observation": Leaf((10,), "f8"), "achieved_goal": Leaf((3,), "f8"), "desired_goal": Leaf((3,), "f8")},
    200_000,
    episode=50,
)
SHORT = Size(VECTOR, 200_000, episode=100)
PRIORITIZED = Size(Leaf((4,), "f4"), 200_000)
MILLION = Size(Leaf((4,), "f4"), 1_000_000)
WIDE, WIDE_FRAMES = Size(VECTOR, 200_000, lanes=32), Size(PIXELS, 20_000, lanes=32)

SIZES = {
    "add": SMALL,
    "sample": SMALL,
    "sample 10 % full": SMALL,
    "sample frames": FRAMES,
    "n-step 3": SMALL,
    "frame stack 4": FRAMES,
    "sequences": SMALL,
    "padded sequences": SHORT,
    "dict": PARTS,
    "hindsight": GOALS,
    "prioritized": PRIORITIZED,
    "prioritized 1e6": MILLION,
    "extend": WIDE,
    "extend frames": WIDE_FRAMES,
    "extend stacks": WIDE_FRAMES,
}
"""What is measured, and with what."""


def atari(rows: int, lanes: int = 8) -> Size:
    """Stacks of frames, of episodes of 500 steps."""
    return Size(PIXELS, rows, lanes, episode=500)


def rollout_nbytes(size: Size) -> int:
    """Bytes of what a buffer stores of a rollout of `ROLLOUT` steps, in which an episode of every eighth lane ends.

    T+1 observations and the true last ones; action (24), reward (8), three flags (3), episode_id, step, version (24).
    """
    row = sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in size.leaves.values())
    ends = -(-size.lanes // 8)
    return ((ROLLOUT + 1) * size.lanes + ends) * row + ROLLOUT * size.lanes * (24 + 8 + 3 + 24)


def calls(what: str) -> int:
    """How many calls there are between two looks at the clock."""
    return 2 if "frames" in what or "stack" in what else 20


def reached(achieved: np.ndarray, desired: np.ndarray, _info: dict[str, Any]) -> np.ndarray:
    """Whether goals are reached: bool [M]."""
    return np.abs(achieved - desired).max(1) < 0.05


def punished(achieved: np.ndarray, desired: np.ndarray, info: dict[str, Any]) -> np.ndarray:
    """Rewards of goals: -1 until they are reached, float64 [M]."""
    return reached(achieved, desired, info) - 1.0
