"""What sampling returns: copies of rows, which are the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider import tree
from outrider.records import arrays, describe
from outrider.records.arrays import Array
from outrider.records.episodes import Episodes
from outrider.tree import Tree

__all__ = ["EpisodeBatch", "SequenceBatch", "TransitionBatch"]

TIME_FIRST = frozenset(
    {
        *("obs", "action", "reward", "terminated", "truncated", "cut", "mask", "is_first", "step", "version"),
        *("extras", "info", "obs_info"),
    }
)
"""The columns of sequences whose second axis is that of the samples."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class TransitionBatch:
    """B transitions, each over one step or several.

    A transition begins with `action` at `obs` and ends in `next_obs`, up to n steps later: at an end or a cut, and at
    the newest step, it is shorter. A value target is `reward + discount * V(next_obs)`.

    Attributes:
        obs: tree [B, ...].
        action: tree [B, ...].
        reward: float64 [B], or [B, k] where rewards are vectors: the discounted sum over the steps of each transition.
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

    @staticmethod
    def concatenate(parts: Sequence[TransitionBatch]) -> TransitionBatch:
        """Join batches of equal structure, in order; a copy."""
        return TransitionBatch(**_joined(parts))


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SequenceBatch:
    """B sequences of up to L steps of one episode each, time first, like a rollout whose lanes are the samples.

    Sequence b has `lengths[b]` steps, L unless the view fills up shorter ones. Its observations are
    `obs[:lengths[b] + 1, b]`: the last one is the true observation behind its last step, never one of a reset. What is
    behind is zero, or empty, and `mask` is False there. An end or a cut can only be in the last step of a sequence;
    where there is none, it ends because it is long enough, or with the newest step.

    The target of step t of one step is `reward[t] + gamma * ~terminated[t] * V(obs[t + 1])`, wherever `mask` is True.
    The first `burn_in` steps are real steps as well, for a recurrent network to find its state before what is behind
    them is learned from.

    Attributes:
        obs: tree [L+1, B, ...]; zeros behind a step that terminated where nobody knows the last observation.
        action: tree [L, B, ...].
        reward: float64 [L, B], or [L, B, k] where rewards are vectors.
        terminated: bool [L, B].
        truncated: bool [L, B].
        cut: bool [L, B].
        mask: bool [L, B]: a step, and not what short sequences are filled up with.
        is_first: bool [L, B]: the first step of its episode.
        step: int64 [L, B]: the index of the step in its episode.
        version: int64 [L, B].
        lengths: int64 [B].
        index: int64 [B]: serial numbers of the first steps, for `update`; never used again for other steps.
        weight: float64 [B]: importance weights, 1 unless the sampler prefers some steps.
        env_id: int64 [B].
        episode_id: int64 [B].
        burn_in: how many steps of each are only to warm up the state.
        state: tree [B, ...]: the recurrent state that was fed to the first step when it was collected, zeros if it came
            without one; None if the spec has no state.
        extras: dict of trees [L, B, ...].
        info: dict of columns [L, B, ...] from the step, masks under "_key".
        obs_info: dict of columns [L, B, ...] that came with the observation acted upon.
    """

    obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    cut: Array
    mask: Array
    is_first: Array
    step: Array
    version: Array
    lengths: Array
    index: Array
    weight: Array
    env_id: Array
    episode_id: Array
    burn_in: int = 0
    state: Tree = None
    extras: dict[str, Tree] = field(default_factory=dict)
    info: dict[str, Tree] = field(default_factory=dict)
    obs_info: dict[str, Tree] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of sequences B."""
        return int(self.lengths.shape[0])

    def __repr__(self) -> str:
        """Shapes and dtypes, no data."""
        return describe.shapes(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves."""
        return describe.nbytes(self)

    def torch(self, device: Any = None) -> SequenceBatch:
        """The same with torch leaves on `device`; reward and weight become float32.

        Raises:
            SpecError: torch has no such dtype; names the column.
        """
        converted: SequenceBatch = arrays.converter().record(self, device)
        return converted

    @staticmethod
    def concatenate(parts: Sequence[SequenceBatch]) -> SequenceBatch:
        """Join batches of equal structure, in order; a copy."""
        return SequenceBatch(**_joined(parts, TIME_FIRST))


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class EpisodeBatch:
    """E whole episodes, from their first step to their end.

    Attributes:
        episodes: the record, of copies; `episodes.padded()` puts them side by side.
        index: int64 [E]: serial numbers of the first steps, for `update`; never used again for other steps.
        weight: float64 [E]: importance weights, 1 unless the sampler prefers some.
    """

    episodes: Episodes
    index: Array
    weight: Array

    def __len__(self) -> int:
        """The number of episodes E."""
        return len(self.episodes)

    def __repr__(self) -> str:
        """Shapes and dtypes, no data."""
        return describe.shapes(self)

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves."""
        return describe.nbytes(self)

    def torch(self, device: Any = None) -> EpisodeBatch:
        """The same with torch leaves on `device`; reward and weight become float32.

        Raises:
            SpecError: torch has no such dtype; names the column.
        """
        converted: EpisodeBatch = arrays.converter().record(self, device)
        return converted

    @staticmethod
    def concatenate(parts: Sequence[EpisodeBatch]) -> EpisodeBatch:
        """Join batches of equal structure, in order; a copy."""
        episodes = Episodes.concatenate([part.episodes for part in parts])
        index, weight = (np.concatenate([getattr(part, name) for part in parts]) for name in ("index", "weight"))
        return EpisodeBatch(episodes=episodes, index=index, weight=weight)


def _joined(parts: Sequence[Any], time_first: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The columns of batches, one behind the other; numbers are the same in all of them."""
    joined = {}
    for name, first in describe.columns_of(parts[0]).items():
        columns = [getattr(part, name) for part in parts]
        joined[name] = first if isinstance(first, int) else tree.concatenate(columns, int(name in time_first))
    return joined
