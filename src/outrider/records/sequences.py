"""Parts of the lanes of a rollout, in shuffled batches of one shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.records import arrays, minibatches
from outrider.records.arrays import IntArray
from outrider.tree import Tree

if TYPE_CHECKING:
    from outrider.records.rollout import Rollout

__all__ = ["batches", "checked"]


def checked(length: int | None, total: int) -> int:
    """The length of each sequence, where None means all of the `total` steps.

    Raises:
        ConfigError: it does not divide them.
    """
    length = total if length is None else length
    if not minibatches.is_whole(length) or length < 1 or total % length:
        raise ConfigError(
            explain(
                expected=f"a length that divides the {total} steps of the rollout",
                found=repr(length),
                where="sequence_minibatches(length)",
                fix=f"pass another one, or collect rollouts whose length is a multiple of {length}",
            )
        )
    return length


def batches(
    rollout: Rollout, per_step: dict[str, Tree], per_obs: dict[str, Tree], length: int, order: Iterator[IntArray]
) -> Iterator[Rollout]:
    """Yield a rollout [length, B] for each array [B] of sequences; i begins at step i // N * length of lane i % N.

    Args:
        rollout: what they are parts of, [T, N].
        per_step: its columns of steps, [T*N, ...].
        per_obs: its columns of observations, [(T+1)*N, ...].
        length: of each sequence.
        order: numbers of sequences.
    """
    lanes = rollout.num_envs
    slot = np.full(rollout.length * lanes, -1, np.int64)
    slot[arrays.to_numpy(rollout.final_index)] = np.arange(len(rollout.final_index))
    for chosen in order:
        rows = np.arange(length + 1)[:, None] * lanes + chosen // lanes * length * lanes + chosen % lanes
        ends = slot[rows[:-1]].reshape(-1)
        final_index = np.flatnonzero(ends >= 0)
        acted, seen, lane, finals, final_index = (
            arrays.like(rollout.reward, index)
            for index in (rows[:-1], rows, chosen % lanes, ends[final_index], final_index)
        )
        yield dataclasses.replace(
            rollout,
            **arrays.gather(per_step, acted),
            **arrays.gather(per_obs, seen),
            env_id=arrays.gather(rollout.env_id, lane),
            final_index=final_index,
            final_obs=arrays.gather(rollout.final_obs, finals),
            final_state=arrays.gather(rollout.final_state, finals),
        )
