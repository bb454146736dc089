"""What sampling returns: copies of rows, which are the caller's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from outrider.records import arrays, describe
from outrider.records.arrays import Array
from outrider.tree import Tree

__all__ = ["TransitionBatch"]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class TransitionBatch:
    """B transitions, each over one step or several.

    A transition begins with `action` at `obs` and ends in `next_obs`, up to n steps later: at an end or a cut, and at
    the newest step, it is shorter. A value target is `reward + discount * V(next_obs)`.

    Attributes:
        obs: tree [B, ...].
        action: tree [B, ...].
        reward: float64 [B]: the discounted sum over the steps of each transition.
        next_obs: tree [B, ...]: the true observation behind the last step, never one of a reset; zeros where the
            episode terminated and nobody knows it.
        terminated: bool [B], of the last step.
        truncated: bool [B], of the last step.
        discount: float64 [B]: gamma to the power of the number of steps; 0 where the episode terminated.
        index: int64 [B]: serial numbers, for `update`; never used again for other steps.
        weight: float64 [B]: importance weights, 1 unless the sampler prefers some steps.
        env_id: int64 [B]; this and the rest are those of the first step.
        episode_id: int64 [B].
        step: int64 [B].
        version: int64 [B].
        extras: dict of trees [B, ...].
        info: dict of columns [B, ...] from the step, masks under "_key".
        obs_info: dict of columns [B, ...] that came with `obs`.
    """

    obs: Tree
    action: Tree
    reward: Array
    next_obs: Tree
    terminated: Array
    truncated: Array
    discount: Array
    index: Array
    weight: Array
    env_id: Array
    episode_id: Array
    step: Array
    version: Array
    extras: dict[str, Tree] = field(default_factory=dict)
    info: dict[str, Tree] = field(default_factory=dict)
    obs_info: dict[str, Tree] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of transitions B."""
        return int(self.reward.shape[0])

    def __repr__(self) -> str:
        """Shapes and dtypes, no data."""
        return describe.shapes(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves."""
        return describe.nbytes(self)

    def torch(self, device: Any = None) -> TransitionBatch:
        """The same with torch leaves on `device`; reward, discount and weight become float32.

        Raises:
            SpecError: torch has no such dtype; names the column.
        """
        converted: TransitionBatch = arrays.converter().record(self, device)
        return converted
