"""A block of T steps of N lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, explain
from outrider.records import (
    arrays,
    blind,
    checks,
    columns,
    describe,
    minibatches,
    next_values,
    segments,
    sequences,
)
from outrider.records.arrays import Array
from outrider.records.episodes import Episodes
from outrider.records.steps import Steps
from outrider.tree import Tree

if TYPE_CHECKING:
    from outrider.records.step_spec import StepSpec

__all__ = ["Rollout"]

_PER_STEP = (
    *("action", "reward", "terminated", "truncated", "cut", "valid", "episode_id", "step", "version"),
    *("blind", "extras", "info"),
)
_PER_OBS = ("obs", "state", "obs_info")


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Rollout:
    """Exactly T steps of N lanes, time first, with T+1 observations.

    Row t+1 of obs is what follows step t of its lane, but where the episode ended or was cut: there it is the first
    observation of the next episode, and the true last one is in the side table `final_obs`, one row per end.
    `next_obs` puts the two together.

    Attributes:
        obs: tree [T+1, N, ...]; obs[t] was acted upon in step t, obs[T] is the newest.
        action: tree [T, N, ...], as the policy gave it.
        reward: float64 [T, N], or [T, N, k] where the environments declare vector rewards.
        terminated: bool [T, N].
        truncated: bool [T, N].
        cut: bool [T, N]; the episode was stopped by us after this step: neither terminated nor truncated.
        valid: bool [T, N]; all True but for the dummy rows of foreign sources that reset on the following step.
        episode_id: int64 [T, N]; unique in a run.
        step: int64 [T, N]; the index of the step in its episode.
        version: int64 [T, N]; the number of the weights that chose the action, 0 is the initial policy; -1: another
            policy chose it (`collector.fill(policy=...)`).
        env_id: int64 [N]; the lane of each column.
        final_index: int64 [E], ascending: t*N + n of each row that is terminated, truncated or cut.
        final_obs: tree [E, ...]; the true last observation of those rows.
        extras: dict of trees [T, N, ...]: what the policy returned beside the action, and added columns.
        state: tree [T+1, N, ...] of recurrent states: row t was fed to step t, row T is the newest; or None.
        final_state: tree [E, ...]: the state after the last step of the rows in final_index, or None.
        info: dict of columns [T, N, ...] from the step (the final info at an end), masks under "_key".
        obs_info: dict of columns [T+1, N, ...] that came with the observation, that of a reset included.
        blind: bool [T, N]: the episode ended here, and nobody knows its true last observation; None where there is no
            such row. Only foreign environments have any (see `outrider.records.blind`).

    Example:
        >>> from outrider import records as r
        >>> from outrider.spec import LeafSpec
        >>> rollout = r.Rollout.zeros(
        ...     r.StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2), 5
        ... )
        >>> rollout.obs.shape, rollout.next_obs.shape, rollout[:3, [1]].reward.shape, len(rollout.flatten())
        ((6, 2, 3), (5, 2, 3), (3, 1), 10)
    """

    obs: Tree
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
    final_index: Array
    final_obs: Tree
    extras: dict[str, Tree] = field(default_factory=dict)
    state: Tree = None
    final_state: Tree = None
    info: dict[str, Tree] = field(default_factory=dict)
    obs_info: dict[str, Tree] = field(default_factory=dict)
    blind: Array | None = None

    def __len__(self) -> int:
        """The number of valid rows: T*N unless a foreign source gave dummy rows."""
        return int(self.valid.sum())

    def __repr__(self) -> str:
        """Shapes and dtypes, no data."""
        return describe.shapes(self)

    @property
    def length(self) -> int:
        """The number of time steps T."""
        return int(self.reward.shape[0])

    @property
    def num_envs(self) -> int:
        """The number of lanes N."""
        return int(self.reward.shape[1])

    @property
    def next_obs(self) -> Tree:
        """Tree [T, N, ...], a copy: the true observation after each step, never one of a reset.

        Rows that are not valid have whatever followed them.

        Raises:
            SpecError: an episode was truncated in a row that is `blind`.
        """
        blind.check_known(self, "Rollout.next_obs")
        lanes = self.num_envs

        def put_finals(leaf: Array, final: Array) -> Array:
            out = arrays.copy(leaf[1:])
            if len(final):
                at = arrays.index_of(out, self.final_index)
                out[at // lanes, at % lanes] = final
            return out

        return tree.map(put_finals, self.obs, self.final_obs)

    def next_values(self, critic: Callable[..., Any], *, state_axis: int = 0) -> Array:
        """The values [T, N] of the true observations after each step, never of one of a reset: what to bootstrap from.

        Each observation is evaluated once, all in one call. Where the policy stored its values (`extras["value"]`),
        they are taken as those of the rows that they stand in, and the critic sees only row T and the side table:
        N + E observations. Otherwise it sees all (T+1) * N + E. To use the values of a newer critic, store them first:
        `rollout.with_columns(value=critic(rollout.obs[:-1]))`.

        Args:
            critic: a function of a tree of observations [n, ...], or of observations and states where the rollout has
                recurrent states, that returns values [n] or [n, 1], or [n, k] for vector rewards. It gets copies: NumPy
                arrays, or tensors from a rollout of tensors; a `torch.nn.Module` always gets tensors on its device. It
                is called without gradients, and in the training mode that it is in.
            state_axis: the axis of the critic's states that is the batch, as in `TorchPolicy`: 1 for `torch.nn.LSTM`.

        Returns:
            Values of the array kind of the rollout, in the dtype of the stored values, else of the critic's. They are
            constants to torch. Rows that are not valid have whatever followed them, terminated rows that are `blind` 0.

        Raises:
            SpecError: an episode was truncated in a row that is `blind`, so that nobody knows what to evaluate; or the
                critic, or the policy before it, has returned something else than values, or cannot take such states.
            ConfigError: the critic cannot be called, or states have no such axis.

        Example:
            >>> from outrider import records as r
            >>> from outrider.spec import LeafSpec
            >>> spec = r.StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
            >>> spec.zeros(5).next_values(lambda obs: obs.sum(-1)).shape
            (5, 2)
        """
        return next_values.evaluated(self, critic, "Rollout.next_values", state_axis)[1]

    @property
    def is_first(self) -> Array:
        """Bool [T, N]: the first step of its episode."""
        return self.step == 0

    @property
    def ended(self) -> Array:
        """Bool [T, N]: terminated, truncated or cut."""
        return self.terminated | self.truncated | self.cut

    @property
    def nbytes(self) -> int:
        """Bytes of all leaves."""
        return describe.nbytes(self)

    @classmethod
    def zeros(cls, spec: StepSpec, length: int) -> Rollout:
        """A rollout of the shapes and dtypes of `spec` without stepping anything, e.g. to compile or warm up a learner.

        All zero, but for `valid` (True), `env_id` (0, 1, ...) and `step` (0, 1, ...: one running episode in each lane).

        Raises:
            ConfigError: `length` is less than 1.
        """
        if length < 1:
            where, fix = "Rollout.zeros(length)", "pass the length of your rollouts"
            raise ConfigError(explain(expected="1 step or more", found=length, where=where, fix=fix))
        lanes = spec.num_envs
        block = (length, lanes)
        return cls(
            obs=tree.zeros(spec.obs, length + 1, lanes),
            action=tree.zeros(spec.action, *block),
            reward=tree.zeros(spec.reward, *block),
            **{name: np.zeros(block, np.bool_) for name in ("terminated", "truncated", "cut")},
            valid=np.ones(block, np.bool_),
            **{name: np.zeros(block, np.int64) for name in ("episode_id", "version")},
            step=np.repeat(np.arange(length)[:, None], lanes, axis=1),
            env_id=np.arange(lanes),
            final_index=np.zeros(0, np.int64),
            final_obs=tree.zeros(spec.obs, 0),
            extras=tree.zeros(spec.extras, *block),
            state=tree.zeros(spec.state, length + 1, lanes),
            final_state=tree.zeros(spec.state, 0),
            info=tree.zeros(spec.info, *block),
            obs_info=tree.zeros(spec.obs_info, length + 1, lanes),
        )

    def __getitem__(self, key: Any) -> Rollout:
        """Part of the rollout: rollout[t0:t1], rollout[:, lanes], rollout[t0:t1, lanes].

        `lanes` is a slice, an index array or a bool mask. Columns are views for slices and copies for index arrays; the
        part has the observation after its last step, and its own side table.

        Raises:
            ConfigError: any other index, an integer among them: a single step or lane is no block [T, N].
        """
        times, lanes = self._selection(key)
        slot = np.full(self.length * self.num_envs, -1, np.int64)
        final_index = arrays.to_numpy(self.final_index)
        slot[final_index] = np.arange(len(final_index))
        part = slot.reshape(self.length, self.num_envs)[times][:, lanes].reshape(-1)
        chosen = np.flatnonzero(part >= 0)
        finals = arrays.like(self.reward, part[chosen])
        own = lanes if isinstance(lanes, slice) else arrays.like(self.reward, lanes)
        taken = {name: self._block(name, times, own) for name in _PER_STEP}
        taken |= {name: self._block(name, slice(times.start, times.stop + 1), own) for name in _PER_OBS}
        return Rollout(
            **taken,
            env_id=self.env_id[own],
            final_index=arrays.like(self.reward, chosen),
            final_obs=arrays.gather(self.final_obs, finals),
            final_state=arrays.gather(self.final_state, finals),
        )

    def _selection(self, key: Any) -> tuple[slice, slice | arrays.IntArray]:
        times, lanes = key if isinstance(key, tuple) and len(key) == 2 else (key, slice(None))
        if not isinstance(times, slice) or times.step not in (None, 1):
            raise ConfigError(
                explain(
                    expected="rollout[t0:t1], rollout[:, lanes] or rollout[t0:t1, lanes], times as a slice of step 1",
                    found=f"rollout[{key!r}]",
                    where="rollout[...]",
                    fix="use rollout[t:t+1] for one time step, rollout.flatten() for single transitions, or index a "
                    "column such as rollout.reward[t]",
                )
            )
        start, stop, _ = times.indices(self.length)
        return slice(start, max(start, stop)), arrays.row_selection(lanes, self.num_envs, "rollout[:, lanes]")

    def _block(self, name: str, times: slice, lanes: slice | Array) -> Tree:
        return tree.map(lambda leaf: leaf[times][:, arrays.index_of(leaf, lanes)], getattr(self, name))

    def _with(self, **changed: Any) -> Rollout:
        return Rollout(**(describe.columns_of(self) | changed))

    def with_columns(self, **columns_: Tree) -> Rollout:
        """The same rollout with more extras (or replaced ones), each a tree [T, N, ...].

        Raises:
            SpecError: a column is not [T, N, ...], or has the name of a field.
        """
        return self._with(extras=columns.added(self, columns_, (self.length, self.num_envs)))

    def flatten(self) -> Steps:
        """The valid rows as flat steps in order of time: row t*N + n. Views where all rows are valid, copies otherwise.

        (A reshape of a rollout that is not contiguous, such as rollout[:, ::2], copies.)
        """
        rows, lanes = self.length * self.num_envs, self.num_envs
        following = np.arange(lanes, rows + lanes)
        following[arrays.to_numpy(self.final_index)] = ~np.arange(len(self.final_index))
        flat = {name: _merge(getattr(self, name)) for name in _PER_STEP}
        flat["obs_info"] = _merge(tree.take(self.obs_info, slice(0, self.length)))
        flat["env_id"] = arrays.like(self.reward, np.tile(arrays.to_numpy(self.env_id), self.length))
        flat["next_index"] = arrays.like(self.reward, following)
        obs_index: Array | slice = slice(0, rows)
        if not bool(self.valid.all()):
            obs_index = arrays.like(self.reward, np.flatnonzero(arrays.to_numpy(self.valid)))
            flat = arrays.gather(flat, obs_index)
        return Steps(
            **flat,
            obs_index=obs_index,
            obs_rows=_merge(self.obs),
            final_obs=self.final_obs,
            state_rows=_merge(self.state),
            final_state=self.final_state,
        )

    def minibatches(self, size: int, *, epochs: int = 1, seed: int | None = None) -> Iterator[Steps]:
        """Yield shuffled batches of exactly `size` of the valid rows; see `Steps.minibatches`."""
        return self.flatten().minibatches(size, epochs=epochs, seed=seed)

    def sequence_minibatches(
        self, size: int, *, length: int | None = None, epochs: int = 1, seed: int | None = None
    ) -> Iterator[Rollout]:
        """Yield shuffled batches of exactly `size` sequences, for recurrent policies: rollouts [length, size].

        Each lane is cut into sequences of `length` steps, and each sequence is a column of a batch. `state[0]` is the
        state that was fed to its first step. It may go on behind an end, as the rollout does: where `is_first` is set,
        the state begins anew with that row of `state`, and `outrider.torch.unroll` does so. Dummy rows stay in their
        place, not `valid`, and `flatten` leaves them out.

        Epochs and what is left over are as in `Steps.minibatches`, of sequences.

        Args:
            size: sequences in each batch.
            length: steps of each, a divisor of T; None: all of them, so that a sequence is a lane.
            epochs: how often each sequence comes.
            seed: of a generator of its own; None draws a fresh one.

        Raises:
            ConfigError: at once, for a size, length or number of epochs that cannot be.

        Example:
            >>> from outrider import records as r
            >>> from outrider.spec import LeafSpec
            >>> spec = r.StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=4)
            >>> [batch.reward.shape for batch in spec.zeros(32).sequence_minibatches(4, length=16, seed=0)]
            [(16, 4), (16, 4)]
        """
        length = sequences.checked(length, self.length)
        count = self.length // length * self.num_envs
        order = minibatches.shuffled(count, size, epochs, seed, of=f"sequences of {length} steps")
        per_step, per_obs = ({name: _merge(getattr(self, name)) for name in names} for names in (_PER_STEP, _PER_OBS))
        return sequences.batches(self, per_step, per_obs, length, order)

    def segments(self) -> Episodes:
        """The valid rows cut into contiguous runs of one episode, lane by lane, each with T_i + 1 true observations.

        Runs that continue an episode of an earlier rollout start at its `step`. All is copied.
        """
        valid = np.flatnonzero(arrays.to_numpy(self.valid))
        return segments.cut(self.flatten(), np.argsort(valid % self.num_envs, kind="stable"))

    def torch(self, device: Any = None) -> Rollout:
        """The same with torch leaves, on `device` (None: the CPU).

        On the CPU the tensors share memory with the arrays, but for the reward, which becomes float32, and for arrays
        that torch cannot share (read-only, negative strides, foreign byte order), which are copied. Ragged leaves
        (texts, sequences, graphs) stay NumPy arrays of objects, whatever the device.

        Raises:
            SpecError: torch has no such dtype; names the column.
        """
        converted: Rollout = arrays.converter().record(self, device)
        return converted

    def check(self) -> None:
        """Verify all invariants of the record.

        Raises:
            SpecError: names the first column, and where possible the row, that breaks one.
        """
        block = (self.length, self.num_envs)
        checks.leading(self, _PER_STEP, block)
        checks.leading(self, _PER_OBS, (block[0] + 1, block[1]))
        checks.leading(self, ("env_id",), block[1:])
        checks.leading(self, ("final_obs", "final_state"), (len(self.final_index),))
        checks.dtypes(self)
        checks.reward(self, 2)
        checks.same_rows(self, "obs", "final_obs", axes=2)
        checks.same_rows(self, "state", "final_state", axes=2)
        ended, valid = arrays.to_numpy(self.ended), arrays.to_numpy(self.valid)
        checks.require(valid | ~ended, "terminated/truncated/cut", "no end in a row that is not valid", ended)
        checks.blind_rows(self)
        index, wanted = arrays.to_numpy(self.final_index), np.flatnonzero(ended)
        same = np.array([np.array_equal(index, wanted)])
        checks.require(same, "final_index", "t*N + n of the ended and cut rows, ascending", index[:8])
        episode, step = arrays.to_numpy(self.episode_id), arrays.to_numpy(self.step)
        runs = (episode[1:] == episode[:-1]) & (step[1:] == step[:-1] + 1) & ~ended[:-1]
        starts = (step[1:] == 0) & ended[:-1]
        follows = np.ones(block, np.bool_)
        follows[1:] = runs | starts | ~(valid[1:] & valid[:-1])
        wanted_step = "the next number in the same episode, or 0 after a row that ended or was cut"
        checks.require(follows, "step/episode_id", wanted_step, step)


def _merge(columns_: Tree) -> Tree:
    """Make one axis of the first two of each leaf; a view of a contiguous array."""
    return tree.map(lambda leaf: leaf.reshape((leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])), columns_)
