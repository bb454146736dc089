"""Whether a batch is one of what a buffer was filled with, on every side of a comparison; needs NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from replay_workloads import BATCH, GAMMA, GOAL, LENGTH, SEQUENCES, Leaf, Size, punished


def check_transitions(size: Size, batch: dict[str, Any], steps: Any = 1, period: int = 0) -> None:
    """Verify the columns of a batch.

    Args:
        size: what the buffer was filled with.
        batch: "obs", "action", "reward", "next_obs" and "ended", [B, ...] each, of any kind of array.
        steps: of each transition, a number or int64 [B].
        period: the positions from one episode to the next; by default the steps of one.
    """
    obs, behind, action, ended = (batch[name] for name in ("obs", "next_obs", "action", "ended"))
    lanes, period, count = size.lanes, period or size.episode, len(action)
    index = _first_marks(size, obs, count) // lanes % period
    mark, last = size.marks(obs, index), size.marks(behind, index + steps)
    assert count == BATCH
    assert len(np.unique(mark)) > BATCH // 2, "the same rows over and over"
    assert (np.abs(last) == mark + steps * lanes).all(), "next_obs is not what the step led to"
    assert ((last < 0) == np.asarray(ended).reshape(-1).astype(bool)).all(), "next_obs is not the true last one"
    assert np.asarray(action).shape == (BATCH, 6)
    assert (np.asarray(action) == (mark % 1000)[:, None]).all()
    if "desired_goal" in size.leaves:
        _check_goals(size, batch, index)
    else:
        rewards = sum(
            np.where(i < steps, GAMMA**i * ((mark + i * lanes) % 1000), 0.0) for i in range(int(np.max(steps)))
        )
        np.testing.assert_allclose(np.asarray(batch["reward"]).reshape(-1), rewards, rtol=1e-6)


def check_stacks(size: Size, obs: np.ndarray) -> None:
    """Verify that observations are stacks of frames that stand behind one another."""
    size.marks(obs, _first_marks(size, obs, len(obs)) // size.lanes % size.episode)


def _first_marks(size: Size, obs: Any, count: int) -> np.ndarray:
    """The marks of `count` observations whose indices are not known yet, so that only the newest frame is looked at."""
    name, leaf = next(iter(size.leaves.items()))
    part = np.asarray(obs[name] if isinstance(size.obs, dict) else obs)
    if len(leaf.shape) > 1:
        leaf, part = Leaf((1, *leaf.shape[1:]), leaf.dtype), part[..., -1:, :, :]
    return leaf.marks(part, np.zeros(count, np.int64), size.lanes)


def _check_goals(size: Size, batch: dict[str, Any], index: np.ndarray) -> None:
    goal, achieved = batch["obs"]["desired_goal"], batch["next_obs"]["achieved_goal"]
    assert (goal == batch["next_obs"]["desired_goal"]).all()
    other = goal[:, 0] != GOAL
    assert 0.6 < other.mean() < 0.95, "four of five have another goal"
    later = (np.abs(goal[:, 0]) - np.abs(achieved[:, 0])) / size.lanes
    assert ((later == np.floor(later)) & (later >= 0) & (index + later < size.episode))[other].all()
    assert (batch["reward"][other] == punished(achieved, goal, {})[other]).all()


def check_sequences(size: Size, batch: dict[str, Any], period: int = 0) -> None:
    """Verify "obs" [L+1, B, ...], "action", "reward", "mask" [L, B, ...] and "lengths" [B] of a batch.

    Args:
        size: what the buffer was filled with.
        batch: the columns.
        period: the positions from one episode to the next; by default the steps of one.
    """
    obs, mask, lengths, lanes = batch["obs"], batch["mask"], batch["lengths"], size.lanes
    assert obs.shape == (LENGTH + 1, SEQUENCES, 17)
    assert mask.shape == (LENGTH, SEQUENCES)
    along = np.arange(LENGTH + 1)[:, None]
    first = obs[0, :, 0].astype(np.int64)
    assert len(np.unique(first)) > SEQUENCES // 2
    left = size.episode - first // lanes % (period or size.episode)
    assert (lengths == np.minimum(left, LENGTH)).all()
    marks = np.where(along <= lengths, first + along * lanes, 0)
    assert (np.abs(obs) == marks[:, :, None]).all()
    assert (mask == (along[:-1] < lengths)).all()
    for column in (batch["reward"], batch["action"][..., 0], batch["action"][..., 5]):
        assert (column == np.where(mask, marks[:-1] % 1000, 0)).all()
