"""Flat transitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError
from outrider.records import arrays, blind, checks, columns, describe, minibatches, segments
from outrider.records.arrays import Array
from outrider.records.episodes import Episodes
from outrider.tree import Tree

__all__ = ["Steps"]

_PER_STEP = (
    *("action", "reward", "terminated", "truncated", "cut", "valid", "episode_id", "step", "version", "env_id"),
    *("blind", "extras", "info", "obs_info"),
)


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Steps:
    """M transitions; the rows of each lane are in order, unless you shuffled them.

    Each observation is stored once: `obs` and `next_obs` are looked up in `obs_rows` and `final_obs`. A lookup copies
    (but for `obs` where `obs_index` is a slice), so fetch it once per use. Recurrent states are kept the same way.

    Attributes:
        obs_rows: tree [R, ...]: observations that were acted upon, or follow one that was.
        obs_index: int64 [M], or a slice of M rows: obs[i] = obs_rows[obs_index[i]].
        next_index: int64 [M]: next_obs[i] = obs_rows[next_index[i]], or final_obs[~next_index[i]] where it is negative.
        final_obs: tree [E, ...]: the true last observations of episodes that ended or were cut.
        action: tree [M, ...], as the policy gave it.
        reward: float64 [M], or [M, k] where the environments declare vector rewards.
        terminated: bool [M].
        truncated: bool [M].
        cut: bool [M]; the episode was stopped by us after this step.
        valid: bool [M]; all True in the steps that records make.
        episode_id: int64 [M].
        step: int64 [M]; the index of the step in its episode.
        version: int64 [M]; the number of the weights that chose the action, -1 where another policy did (`fill`).
        env_id: int64 [M]; the lane.
        extras: dict of trees [M, ...]: what the policy returned beside the action, and added columns.
        state_rows: tree [R, ...] of recurrent states, looked up like obs_rows, or None.
        final_state: tree [E, ...], looked up like final_obs, or None.
        info: dict of columns [M, ...] from the step, masks under "_key".
        obs_info: dict of columns [M, ...] that came with the observation acted upon.
        blind: bool [M]: the episode ended here, and nobody knows its true last observation; or None.

    Example:
        >>> from outrider import records as r
        >>> from outrider.spec import LeafSpec
        >>> steps = r.Rollout.zeros(
        ...     r.StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2), 5
        ... ).flatten()
        >>> len(steps), steps[:4].next_obs.shape, len(steps[steps.env_id == 1])
        (10, (4, 3), 5)
    """

    obs_rows: Tree
    obs_index: Array | slice
    next_index: Array
    final_obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    cut: Array
    valid: Array
    episode_id: Array
    step: Array
    version: Array
    env_id: Array
    extras: dict[str, Tree] = field(default_factory=dict)
    state_rows: Tree = None
    final_state: Tree = None
    info: dict[str, Tree] = field(default_factory=dict)
    obs_info: dict[str, Tree] = field(default_factory=dict)
    blind: Array | None = None

    def __len__(self) -> int:
        """The number of transitions M."""
        return int(self.reward.shape[0])

    def __repr__(self) -> str:
        """Shapes and dtypes, no data."""
        return describe.shapes(self)

    @property
    def obs(self) -> Tree:
        """Tree [M, ...]: the observations acted upon; a view where `obs_index` is a slice, a copy otherwise."""
        return arrays.gather(self.obs_rows, self.obs_index)

    @property
    def next_obs(self) -> Tree:
        """Tree [M, ...], a copy: the true observation after each step, never one of a reset.

        Raises:
            SpecError: an episode was truncated in a row that is `blind`.
        """
        blind.check_known(self, "Steps.next_obs")
        return arrays.gather_split(self.obs_rows, self.final_obs, self.next_index)

    @property
    def state(self) -> Tree:
        """Tree [M, ...]: the recurrent state fed to each step, or None."""
        return arrays.gather(self.state_rows, self.obs_index)

    @property
    def next_state(self) -> Tree:
        """Tree [M, ...], a copy: the recurrent state after each step, or None."""
        return arrays.gather_split(self.state_rows, self.final_state, self.next_index)

    @property
    def is_first(self) -> Array:
        """Bool [M]: the first step of its episode."""
        return self.step == 0

    @property
    def ended(self) -> Array:
        """Bool [M]: terminated, truncated or cut."""
        return self.terminated | self.truncated | self.cut

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves, rows of `obs_rows` that these steps do not use included (see `compact`)."""
        return describe.nbytes(self)

    def obs_rows_used(self) -> arrays.IntArray:
        """NumPy int64 [M]: `obs_index`, also where it is a slice."""
        if isinstance(self.obs_index, slice):
            return np.arange(self.obs_index.start, self.obs_index.stop, self.obs_index.step or 1)
        return arrays.to_numpy(self.obs_index)

    def __getitem__(self, key: slice | Array) -> Steps:
        """The chosen rows as `Steps`: views for a slice, copies for an index array or bool mask.

        `obs_rows` and `final_obs` are shared; see `compact`.
        """
        chosen = arrays.row_selection(key, len(self), "steps[...]")
        if isinstance(chosen, slice) and isinstance(self.obs_index, slice):
            rows = range(self.obs_index.start, self.obs_index.stop, self.obs_index.step or 1)[chosen]
            obs_index: Array | slice = slice(rows.start, rows.stop, rows.step)
        else:
            obs_index = arrays.like(self.next_index, self.obs_rows_used()[chosen])
        own = chosen if isinstance(chosen, slice) else arrays.like(self.reward, chosen)
        taken = {name: arrays.gather(getattr(self, name), own) for name in (*_PER_STEP, "next_index")}
        return self._with(obs_index=obs_index, **taken)

    def _with(self, **changed: Any) -> Steps:
        return Steps(**(describe.columns_of(self) | changed))

    def with_columns(self, **columns_: Tree) -> Steps:
        """The same steps with more extras (or replaced ones), each a tree [M, ...].

        Raises:
            SpecError: a column has another number of rows, or the name of a field.
        """
        return self._with(extras=columns.added(self, columns_, (len(self),)))

    def minibatches(self, size: int, *, epochs: int = 1, seed: int | None = None) -> Iterator[Steps]:
        """Yield shuffled batches of exactly `size` steps.

        Each epoch is a fresh shuffle of the valid rows. Where `size` does not divide them, a batch takes the rest from
        the next epoch; only what is left after the last epoch (less than one batch) is not returned. So each row comes
        `epochs` times but for that rest.

        Args:
            size: steps in each batch, at most the number of valid rows.
            epochs: how often each row comes.
            seed: of a generator of its own; None draws a fresh one.

        Raises:
            ConfigError: at once, for a size or number of epochs that cannot be.
        """
        valid = arrays.to_numpy(self.valid)
        steps = self if valid.all() else self[valid]
        return (steps[rows] for rows in minibatches.shuffled(len(steps), size, epochs, seed))

    def compact(self) -> Steps:
        """The same steps without rows of `obs_rows` and `final_obs` that none of them uses; itself if there are none.

        A part of steps shares the tables of the whole; compact it before you keep or send it.
        """
        tables = tree.leaves((self.obs_rows, self.state_rows)), tree.leaves((self.final_obs, self.final_state))
        if not tables[0]:
            return self
        obs, following = self.obs_rows_used(), arrays.to_numpy(self.next_index)
        stored, final = following[following >= 0], ~following[following < 0]
        used = [np.zeros(len(table[0]), np.bool_) for table in tables]
        used[0][obs] = used[0][stored] = used[1][final] = True
        if used[0].all() and used[1].all():
            return self
        kept = [arrays.like(self.reward, np.flatnonzero(mask)) for mask in used]
        moved = [np.cumsum(mask) - 1 for mask in used]
        renumbered = following.copy()
        renumbered[following >= 0], renumbered[following < 0] = moved[0][stored], ~moved[1][final]
        return self._with(
            obs_index=arrays.like(self.reward, moved[0][obs]),
            next_index=arrays.like(self.reward, renumbered),
            obs_rows=arrays.gather(self.obs_rows, kept[0]),
            state_rows=arrays.gather(self.state_rows, kept[0]),
            final_obs=arrays.gather(self.final_obs, kept[1]),
            final_state=arrays.gather(self.final_state, kept[1]),
        )

    def torch(self, device: Any = None) -> Steps:
        """The same with torch leaves; see `Rollout.torch`. To another device than the CPU go only the rows in use."""
        source = self if device is None or str(device) == "cpu" else self.compact()
        converted: Steps = arrays.converter().record(source, device)
        return converted

    @staticmethod
    def concatenate(parts: Sequence[Steps]) -> Steps:
        """Join steps of equal columns into one copy, in the order given.

        Raises:
            ConfigError: there is nothing to join.
            SpecError: columns differ in structure, shape or dtype; names the part and the column.
        """
        if not parts:
            msg = "Steps.concatenate: expected at least one Steps, found an empty sequence"
            raise ConfigError(msg)
        parts = [part.compact() for part in parts]
        names = (*_PER_STEP, "obs_rows", "final_obs", "state_rows", "final_state")
        joined = blind.alike([{name: getattr(part, name) for name in names} for part in parts])
        checks.same_columns(joined, "Steps.concatenate")
        obs_index, next_index, rows, finals = [], [], 0, 0
        for part in parts:
            following = arrays.to_numpy(part.next_index)
            obs_index.append(part.obs_rows_used() + rows)
            next_index.append(np.where(following < 0, following - finals, following + rows))
            rows += checks.count_rows((part.obs_rows, part.state_rows))
            finals += checks.count_rows((part.final_obs, part.final_state))
        return Steps(
            **tree.map(lambda *leaf: arrays.concatenate(leaf), *joined),
            obs_index=arrays.like(parts[0].reward, np.concatenate(obs_index)),
            next_index=arrays.like(parts[0].reward, np.concatenate(next_index)),
        )

    def segments(self) -> Episodes:
        """The valid steps cut into contiguous runs of one episode, each with its T_i + 1 true observations; a copy.

        A run is rows of one lane and episode with consecutive `step`; rows of other lanes in between do not break it.
        Runs are in order of their first row.
        """
        return segments.cut(self, segments.by_appearance(self))

    def check(self) -> None:
        """Verify all invariants of the record.

        Raises:
            SpecError: names the first column that breaks one.
        """
        count = len(self)
        rows, finals = checks.count_rows(self.obs_rows), checks.count_rows(self.final_obs)
        checks.leading(self, (*_PER_STEP, "next_index"), (count,))
        checks.leading(self, ("obs_rows", "state_rows"), (rows,))
        checks.leading(self, ("final_obs", "final_state"), (finals,))
        checks.dtypes(self)
        checks.reward(self, 1)
        checks.same_rows(self, "obs_rows", "final_obs")
        checks.same_rows(self, "state_rows", "final_state")
        obs, following = self.obs_rows_used(), arrays.to_numpy(self.next_index)
        checks.require(np.array([len(obs)]) == count, "obs_index", f"{count} rows", np.array([len(obs)]))
        checks.require((obs >= 0) & (obs < rows), "obs_index", f"rows of obs_rows, below {rows}", obs)
        inside = (following < rows) & (following >= -finals)
        checks.require(inside, "next_index", f"rows from {-finals} to {rows - 1}", following)
        checks.blind_rows(self)
        idle = ~arrays.to_numpy(self.ended & ~self.valid)
        checks.require(idle, "terminated/truncated/cut", "no end in a row that is not valid", ~idle)
