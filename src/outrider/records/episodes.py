"""Many episodes, stored one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from outrider import tree
from outrider.errors import ConfigError
from outrider.records import arrays, blind, checks, describe
from outrider.records.arrays import Array, IntArray
from outrider.records.episode import Episode
from outrider.records.padded import Padded
from outrider.tree import Tree

if TYPE_CHECKING:
    from outrider.records.steps import Steps

__all__ = ["Episodes"]

_PER_STEP = (
    *("action", "reward", "terminated", "truncated", "cut", "step", "version", "blind"),
    *("extras", "info", "obs_info"),
)
_PER_OBS = ("obs", "state")


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Episodes(Sequence[Episode]):
    """E episodes (or parts of episodes) of T_0, T_1, ... steps, concatenated: S = sum of T_i rows, S + E observations.

    `episodes[i]` is an `Episode` of views; a slice, an index array or a bool mask gives `Episodes`.

    Attributes:
        obs: tree [S+E, ...]: the T_i+1 observations of each episode, one episode after the other.
        action: tree [S, ...]; likewise the other columns of steps.
        reward: float64 [S], or [S, k] where the environments declare vector rewards.
        terminated: bool [S].
        truncated: bool [S].
        cut: bool [S].
        step: int64 [S], consecutive within each.
        version: int64 [S].
        episode_id: int64 [E].
        env_id: int64 [E].
        lengths: int64 [E]: T_i, 1 or more.
        extras: dict of trees [S, ...].
        state: tree [S+E, ...], laid out like obs, or None.
        info: dict of columns [S, ...].
        obs_info: dict of columns [S, ...] that came with the observation acted upon.
        blind: bool [S]: the episode ended here, and its last observation is none: nobody knows it; or None.
        boundaries: NumPy int64 [E+1], derived: episode i has the rows boundaries[i]:boundaries[i+1] of the columns of
            steps, and the rows boundaries[i]+i:boundaries[i+1]+i+1 of obs and state.

    Example:
        >>> from outrider.records import Episodes
        >>> flags = np.zeros(3, bool)
        >>> two = Episodes(
        ...     obs=np.array([0, 1, 2, 0, 1]),
        ...     action=np.zeros(3, int),
        ...     reward=np.ones(3),
        ...     terminated=flags,
        ...     truncated=flags,
        ...     cut=flags,
        ...     step=np.array([0, 1, 0]),
        ...     version=np.zeros(3, int),
        ...     episode_id=np.array([0, 1]),
        ...     env_id=np.array([0, 0]),
        ...     lengths=np.array([2, 1]),
        ... )
        >>> two[1].obs, two.returns
        (array([0, 1]), array([2., 1.]))
    """

    obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    cut: Array
    step: Array
    version: Array
    episode_id: Array
    env_id: Array
    lengths: Array
    extras: dict[str, Tree] = field(default_factory=dict)
    state: Tree = None
    info: dict[str, Tree] = field(default_factory=dict)
    obs_info: dict[str, Tree] = field(default_factory=dict)
    blind: Array | None = None
    boundaries: IntArray = field(init=False)

    def __post_init__(self) -> None:
        """Derive the boundaries."""
        lengths = arrays.to_numpy(self.lengths)
        boundaries = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=boundaries[1:])
        object.__setattr__(self, "boundaries", boundaries)

    def __len__(self) -> int:
        """The number of episodes E."""
        return len(self.boundaries) - 1

    def __repr__(self) -> str:
        """Shapes and dtypes, no data."""
        return describe.shapes(self)

    @classmethod
    def of(cls, episode: Episode) -> Episodes:
        """One episode as `Episodes`, of views."""
        columns = describe.columns_of(episode)
        for name in ("episode_id", "env_id"):
            columns[name] = arrays.like(episode.reward, np.array([columns[name]], np.int64))
        return cls(**columns, lengths=arrays.like(episode.reward, np.array([len(episode)], np.int64)))

    @overload
    def __getitem__(self, key: int) -> Episode: ...
    @overload
    def __getitem__(self, key: slice | Array) -> Episodes: ...
    def __getitem__(self, key: Any) -> Any:
        """An `Episode` of views for an integer, else `Episodes`: views for a slice of step 1, copies otherwise."""
        if isinstance(key, (int, np.integer)):
            return self._one(range(len(self))[key])
        chosen = arrays.row_selection(key, len(self), "episodes[...]")
        if isinstance(chosen, slice) and chosen.step == 1:
            return self._range(chosen.start, chosen.stop)
        return self._gather(np.arange(len(self))[chosen])

    def _columns(self, steps: Array | slice, obs: Array | slice) -> dict[str, Tree]:
        columns = {name: arrays.gather(getattr(self, name), steps) for name in _PER_STEP}
        return columns | {name: arrays.gather(getattr(self, name), obs) for name in _PER_OBS}

    def _slices(self, first: int, last: int) -> tuple[slice, slice]:
        """The rows of steps and of observations of the episodes first:last."""
        start, stop = int(self.boundaries[first]), int(self.boundaries[last])
        return slice(start, stop), slice(start + first, stop + last)

    def _one(self, i: int) -> Episode:
        columns = self._columns(*self._slices(i, i + 1))
        return Episode(**columns, episode_id=int(self.episode_id[i]), env_id=int(self.env_id[i]))

    def _range(self, first: int, last: int) -> Episodes:
        per_episode = {name: getattr(self, name)[first:last] for name in ("episode_id", "env_id", "lengths")}
        return Episodes(**self._columns(*self._slices(first, last)), **per_episode)

    def _gather(self, index: IntArray) -> Episodes:
        lengths = np.diff(self.boundaries)[index]
        steps = arrays.ranges(self.boundaries[index], lengths)
        obs = arrays.ranges(self.boundaries[index] + index, lengths + 1)
        own = [arrays.like(self.reward, rows) for rows in (steps, obs, index)]
        per_episode = {name: getattr(self, name)[own[2]] for name in ("episode_id", "env_id", "lengths")}
        return Episodes(**self._columns(own[0], own[1]), **per_episode)

    @property
    def num_steps(self) -> int:
        """The number of steps S of all episodes."""
        return int(self.boundaries[-1])

    @property
    def returns(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """NumPy float64 [E], or [E, k] of vector rewards: the sum of the rewards of each."""
        reward = arrays.to_numpy(self.reward).astype(np.float64)
        sums = [reward[a:b].sum(axis=0) for a, b in zip(self.boundaries, self.boundaries[1:], strict=False)]
        return np.array(sums, np.float64).reshape(len(self), *reward.shape[1:])

    @property
    def ended(self) -> np.ndarray[Any, Any]:
        """NumPy bool [E]: whether the last row of each terminated or was truncated; a cut is no end."""
        over: np.ndarray[Any, Any] = arrays.to_numpy(self.terminated | self.truncated)[self.boundaries[1:] - 1]
        return over

    @property
    def is_complete(self) -> np.ndarray[Any, Any]:
        """NumPy bool [E]: whether each reaches from the first step of its episode to the end."""
        first = arrays.to_numpy(self.step)[self.boundaries[:-1]]
        complete: np.ndarray[Any, Any] = self.ended & (first == 0)
        return complete

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves."""
        return describe.nbytes(self)

    def torch(self, device: Any = None) -> Episodes:
        """The same with torch leaves; see `Rollout.torch`. What is derived stays NumPy (returns, ended, ...)."""
        converted: Episodes = arrays.converter().record(self, device)
        return converted

    def segments(self) -> Episodes:
        """Itself: it already is a sequence of contiguous runs."""
        return self

    def _obs_rows(self) -> IntArray:
        """int64 [S]: the row of obs that each step acted upon."""
        lengths = np.diff(self.boundaries)
        return np.arange(self.num_steps) + np.repeat(np.arange(len(self)), lengths)

    def flatten(self) -> Steps:
        """The steps of all episodes, one episode after the other; observations and states are shared, not copied."""
        from outrider.records.steps import Steps  # Steps can be cut into episodes: the other way round

        rows, counts = self._obs_rows(), np.diff(self.boundaries)
        columns = {name: getattr(self, name) for name in _PER_STEP}
        ids = {
            name: arrays.like(self.reward, np.repeat(arrays.to_numpy(getattr(self, name)), counts))
            for name in ("episode_id", "env_id")
        }
        return Steps(
            **columns,
            **ids,
            valid=arrays.like(self.reward, np.ones(self.num_steps, np.bool_)),
            obs_rows=self.obs,
            obs_index=arrays.like(self.reward, rows),
            next_index=arrays.like(self.reward, rows + 1),
            final_obs=tree.take(self.obs, slice(0, 0)),
            state_rows=self.state,
            final_state=tree.take(self.state, slice(0, 0)),
        )

    def padded(self) -> Padded:
        """The episodes side by side, filled up to the length of the longest: zeros, empty texts; see `Padded`."""
        counts = np.diff(self.boundaries)
        longest = int(counts.max(initial=0))
        masks = [arrays.like(self.reward, np.arange(longest + k) < counts[:, None] + k) for k in (0, 1)]

        def spread(columns: Tree, mask: Array) -> Tree:
            def leaf_of(leaf: Array) -> Array:
                out = arrays.zeros_like(leaf, (*mask.shape, *leaf.shape[1:]))
                out[arrays.index_of(out, mask)] = leaf
                return out

            return tree.map(leaf_of, columns)

        columns = {name: spread(getattr(self, name), masks[0]) for name in _PER_STEP}
        columns |= {name: spread(getattr(self, name), masks[1]) for name in _PER_OBS}
        return Padded(**columns, mask=masks[0], lengths=self.lengths, episode_id=self.episode_id, env_id=self.env_id)

    @staticmethod
    def concatenate(parts: Sequence[Episodes]) -> Episodes:
        """Join `Episodes` of equal columns into one copy.

        Raises:
            ConfigError: there is nothing to join.
            SpecError: columns differ in structure, shape or dtype; names the part and the column.
        """
        if not parts:
            msg = "Episodes.concatenate: expected at least one Episodes, found an empty sequence"
            raise ConfigError(msg)
        columns = blind.alike([describe.columns_of(part) for part in parts])
        checks.same_columns(columns, "Episodes.concatenate")
        return Episodes(**tree.map(lambda *leaf: arrays.concatenate(leaf), *columns))

    def check(self) -> None:
        """Verify all invariants of the record.

        Raises:
            SpecError: names the first column, and where possible the episode, that breaks one.
        """
        count, steps = len(self), self.num_steps
        checks.leading(self, ("episode_id", "env_id", "lengths"), (count,))
        checks.leading(self, _PER_STEP, (steps,))
        checks.leading(self, _PER_OBS, (steps + count,))
        checks.dtypes(self)
        checks.reward(self, 1)
        checks.blind_rows(self)
        lengths = arrays.to_numpy(self.lengths)
        checks.require(lengths >= 1, "lengths", "episodes of 1 step or more", lengths)
        inner = np.ones(steps, np.bool_)
        inner[self.boundaries[1:] - 1] = False
        over = arrays.to_numpy(self.terminated | self.truncated | self.cut)
        checks.require(~(over & inner), "terminated/truncated/cut", "an end in the last step of an episode only", over)
        step = arrays.to_numpy(self.step)
        follows = np.ones(steps, np.bool_)
        follows[:-1] = step[1:] == step[:-1] + 1
        checks.require(follows | ~inner, "step", "consecutive numbers within an episode", step)
