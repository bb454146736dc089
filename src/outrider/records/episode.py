"""One episode, or one contiguous part of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import tree
from outrider.records import arrays, blind, describe
from outrider.records.arrays import Array
from outrider.tree import Tree

if TYPE_CHECKING:
    from outrider.records.episodes import Episodes

__all__ = ["Episode"]


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Episode:
    """T steps of one episode with all T+1 observations: whole, or a part of it where a record held only that.

    Every row is a real step: the dummy rows of foreign sources never get here.

    Attributes:
        obs: tree [T+1, ...]; obs[t] was acted upon in step t, obs[T] is the true last observation.
        action: tree [T, ...], as the policy gave it.
        reward: float64 [T], or [T, k] where the environment declares vector rewards.
        terminated: bool [T].
        truncated: bool [T].
        cut: bool [T]; the episode was stopped by us after this step.
        step: int64 [T], consecutive; the index of the step in its episode.
        version: int64 [T]; the number of the weights that chose the action.
        episode_id: the id of the episode.
        env_id: the lane that it ran in.
        extras: dict of trees [T, ...]: what the policy returned beside the action.
        state: tree [T+1, ...] of recurrent states (state[t] was fed to step t), or None.
        info: dict of columns [T, ...] from the step, masks under "_key".
        obs_info: dict of columns [T, ...] that came with obs[t].
        blind: bool [T]: whether nobody knows the last observation: obs[T] is none then; or None.

    Example:
        >>> from outrider.records import Episode
        >>> flags = np.zeros(2, bool)
        >>> part = Episode(
        ...     obs=np.arange(3),
        ...     action=np.zeros(2, int),
        ...     reward=np.ones(2),
        ...     terminated=np.array([False, True]),
        ...     truncated=flags,
        ...     cut=flags,
        ...     step=np.arange(2),
        ...     version=np.zeros(2, int),
        ...     episode_id=0,
        ...     env_id=0,
        ... )
        >>> part.length, part.return_, part.is_complete
        (2, 2.0, True)
    """

    obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    cut: Array
    step: Array
    version: Array
    episode_id: int
    env_id: int
    extras: dict[str, Tree] = field(default_factory=dict)
    state: Tree = None
    info: dict[str, Tree] = field(default_factory=dict)
    obs_info: dict[str, Tree] = field(default_factory=dict)
    blind: Array | None = None

    def __len__(self) -> int:
        """The number of steps T."""
        return int(self.reward.shape[0])

    def __repr__(self) -> str:
        """Shapes and dtypes, no data."""
        return describe.shapes(self)

    @property
    def length(self) -> int:
        """The number of steps T; there are T+1 observations."""
        return len(self)

    @property
    def return_(self) -> Any:
        """The sum of the rewards, a float; NumPy float64 [k] of vector rewards."""
        total = arrays.to_numpy(self.reward).sum(axis=0, dtype=np.float64)
        return total if total.ndim else float(total)

    @property
    def ended(self) -> bool:
        """Whether the last row terminated or was truncated; a cut is no end."""
        return bool(self.terminated[-1:].any() or self.truncated[-1:].any())

    @property
    def is_complete(self) -> bool:
        """Whether it reaches from the first step of the episode to its end."""
        return self.ended and int(self.step[0]) == 0

    @property
    def next_obs(self) -> Tree:
        """Tree [T, ...], views: the true observation after each step.

        Raises:
            SpecError: the episode was truncated, and its last observation is not known (`blind`).
        """
        blind.check_known(self, "Episode.next_obs")
        return tree.take(self.obs, slice(1, None))

    @property
    def nbytes(self) -> int:
        """Bytes of all its leaves."""
        return describe.nbytes(self)

    def torch(self, device: Any = None) -> Episode:
        """The same with torch leaves; see `Rollout.torch`."""
        converted: Episode = arrays.converter().record(self, device)
        return converted

    def segments(self) -> Episodes:
        """Itself as `Episodes` of one, of views."""
        from outrider.records.episodes import Episodes  # Episodes are made of this class

        return Episodes.of(self)
