"""Whole trajectories side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from outrider.records import arrays, describe
from outrider.records.arrays import Array
from outrider.tree import Tree

__all__ = ["Padded"]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Padded:
    """E episodes in rows of one length, L = the longest; what lies beyond an episode's own length is zero, or empty.

    Attributes:
        obs: tree [E, L+1, ...]; row i holds lengths[i] + 1 observations.
        action: tree [E, L, ...]; likewise reward (float64), terminated, truncated, cut (bool), step, version (int64).
        mask: bool [E, L]: True where there is a step.
        lengths: int64 [E].
        episode_id: int64 [E].
        env_id: int64 [E].
        extras: dict of trees [E, L, ...].
        state: tree [E, L+1, ...], or None.
        info: dict of columns [E, L, ...].
        obs_info: dict of columns [E, L, ...] that came with the observation acted upon.
        blind: bool [E, L]: see `Episodes`; or None.
    """

    obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    cut: Array
    step: Array
    version: Array
    mask: Array
    lengths: Array
    episode_id: Array
    env_id: Array
    extras: dict[str, Tree] = field(default_factory=dict)
    state: Tree = None
    info: dict[str, Tree] = field(default_factory=dict)
    obs_info: dict[str, Tree] = field(default_factory=dict)
    blind: Array | None = None

    def __len__(self) -> int:
        """The number of episodes E."""
        return int(self.mask.shape[0])

    def __repr__(self) -> str:
        """Shapes and dtypes, no data."""
        return describe.shapes(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves, padding included."""
        return describe.nbytes(self)

    def torch(self, device: Any = None) -> Padded:
        """The same with torch leaves; see `Rollout.torch`."""
        converted: Padded = arrays.converter().record(self, device)
        return converted
