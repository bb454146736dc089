"""Sequences of steps of one episode, for recurrent networks."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.replay.batches import SequenceBatch
from outrider.replay.columns import FLAGS, column_specs
from outrider.replay.gathering import blank, observations, take
from outrider.replay.ring import Ring
from outrider.replay.samplers import Accepts
from outrider.replay.settings import keep_flags, keep_whole
from outrider.replay.sparse import UNKNOWN

if TYPE_CHECKING:
    from outrider.replay.views import Look

__all__ = ["Sequences"]

PER_STEP = ("action", "reward", "version", "extras", "info", "obs_info")
"""Columns that may have another value in each step; the others follow from the first step and the last."""

OPTIONAL = ("extras", "info", "obs_info")


@dataclass(frozen=True)
class Sequences:
    """Sequences of `length` steps of one episode: nothing crosses an end, a cut or a seam.

    A sequence begins with a step whose index in its episode is a multiple of `stride`, and each one that fits is
    equally likely, or as likely as the sampler makes its first step. Where the spec has a recurrent state, the buffer
    keeps it for those steps alone, and a batch has it for the first step of each sequence. To begin with zeros instead,
    ignore it; to store none, make the buffer with `dataclasses.replace(collector.spec, state=None)`.

    Attributes:
        length: steps of each sequence, those of `burn_in` included.
        burn_in: how many of them only warm up the state.
        stride: 1 for sequences that begin with any step.
        pad: also take sequences that are shorter, because their episode or what is there of it ends before, but have at
            least one step behind those of `burn_in`; they are filled up with zeros. By default they are left out.
        frame_stack: k where the observations have stacks of k frames: leaves [k, height, width] or with more axes. Each
            frame is stored once then, and batches have the same stacks. With 1, observations are stored as they are.

    Raises:
        ConfigError: a number is out of its range, or nothing is left behind the burn-in; or when the buffer is made: no
            lane ever holds such a sequence.

    Example:
        >>> import outrider
        >>> with outrider.make_vec("CartPole-v1", 4) as envs:
        ...     collector = outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0)
        ...     replay = outrider.ReplayBuffer(1_000, collector.spec, view=Sequences(8, burn_in=2, pad=True), seed=0)
        ...     added = replay.extend(collector.rollout(100))
        >>> batch = replay.sample(32)
        >>> batch.obs.shape, batch.mask.shape, batch.reward[batch.burn_in :].shape
        ((9, 32, 4), (8, 32), (6, 32))
    """

    length: int
    burn_in: int = 0
    stride: int = 1
    pad: bool = False
    frame_stack: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        keep_whole(self, {"length": 1, "burn_in": 0, "stride": 1, "frame_stack": 1})
        keep_flags(self, ("pad",))
        if self.burn_in >= self.length:
            raise ConfigError(
                explain(
                    expected=f"less than the length, {self.length}, which includes it",
                    found=repr(self.burn_in),
                    where="Sequences(burn_in)",
                    fix=f"pass length={self.length + self.burn_in} for {self.length} steps behind the burn-in",
                )
            )

    def start(self, ring: Ring) -> Look:
        """See `View.start`."""
        ring.keep_frames(self.frame_stack)
        ring.keep_states(self.stride)
        ring.may_begin = lambda step: step % self.stride == 0
        return SequenceLook(ring, self)


class SequenceLook:
    """`Sequences` of one ring."""

    def __init__(self, ring: Ring, view: Sequences) -> None:
        self._ring = ring
        self._view = view
        self._names = [name for name in PER_STEP if name not in OPTIONAL or getattr(ring.spec, name)]
        self._least = view.burn_in + 1 if view.pad else view.length
        _require_reachable(self._least, ring)
        self._runs = importlib.import_module("outrider.replay.runs")

    @property
    def accepts(self) -> Accepts:
        """See `Look.accepts`."""
        return self._fit

    def _fit(self, serials: np.ndarray) -> np.ndarray:
        ring, view, columns = self._ring, self._view, self._ring.columns
        ids = columns["run"], columns["step"]
        fit: np.ndarray = self._runs.possible(serials, ring.heads, ids, self._least, view.stride)
        if ring.finals.has_unknown:
            serials = serials[fit]
            counts = self._runs.ahead(serials, ring.heads, ring.finals.at, view.length)
            last = (serials + (counts - 1) * ring.num_envs) % ring.rows
            fit[fit] = (ring.finals.at[last] != UNKNOWN) | columns["terminated"][last]
        return fit

    def advice(self) -> str:
        """See `Look.advice`."""
        ring, view, serials = self._ring, self._view, self._ring.serials()
        rows, lanes = serials % ring.rows, serials % ring.num_envs
        # Runs of different lanes may begin at the same position.
        runs = ring.columns["run"][rows] * ring.num_envs + lanes
        longest = int(np.unique(runs, return_counts=True)[1].max())
        if longest >= self._least:
            begin = f", from a step whose index in it is a multiple of {view.stride}" if view.stride > 1 else ""
            return f"collect more, or ask for fewer: sequences have {self._least} steps or more of one episode{begin}"
        fix = "a smaller burn_in" if view.pad else "pad=True or a smaller length"
        found = (
            f"no episode here has {self._least} steps: the longest run of steps that follow from each other is "
            f"{longest}. Collect longer ones, or pass {fix}"
        )
        if 2 * int(ring.columns["cut"][rows].sum()) > len(rows):
            found += (
                ". Most steps here are cut off from the next one of their lane, because its obs is not their next_obs: "
                "where observations are normalised or otherwise changed on their way, add them as they were, and "
                "change them where they are used"
            )
        return found

    def gather(self, serials: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> SequenceBatch:
        """See `Look.gather`."""
        ring, view, columns = self._ring, self._view, self._ring.columns
        ends = ring.finals.at, *(columns[name] for name in FLAGS)
        found = self._runs.sequences(serials, ring.heads, ends, columns["step"], view.length)
        index, lengths, step, marks = found
        is_short = lengths.min() < view.length
        # In place of last observations of short ones, which are blank in other columns, any row will do.
        rows = np.maximum(index[:-1], 0) if is_short else index[:-1]
        taken = {name: take(columns[name], rows) for name in self._names}
        obs = observations(ring, index)
        if is_short:
            blank(obs, ring.spec.obs, np.flatnonzero(np.arange(view.length + 1)[:, None] > lengths), 2)
            specs = column_specs(ring.spec)
            blank(taken, {name: specs[name] for name in taken}, np.flatnonzero(~marks[0]), 2)
        if ring.finals.has_unknown:
            last = (serials + (lengths - 1) * ring.num_envs) % ring.rows
            unknown = np.flatnonzero(ring.finals.at[last] == UNKNOWN)
            blank(obs, ring.spec.obs, lengths[unknown] * len(serials) + unknown, 2)
        firsts = index[0]
        return SequenceBatch(
            obs=obs,
            **taken,
            **dict(zip(("mask", "is_first", *FLAGS), marks, strict=True)),
            step=step,
            lengths=lengths,
            index=serials,
            weight=weights,
            env_id=ring.env_ids.take(serials % ring.num_envs),
            episode_id=columns["episode_id"][firsts],
            burn_in=view.burn_in,
            state=None if ring.states is None else ring.states.take(firsts),
        )


def _require_reachable(least: int, ring: Ring) -> None:
    """Refuse sequences of at least so many steps that there can never be.

    Raises:
        ConfigError: no lane holds so many.
    """
    most = -(-ring.capacity // ring.num_envs)
    if least > most:
        raise ConfigError(
            explain(
                expected=f"sequences of {most} steps or fewer, as many as a lane holds",
                found=f"{least} steps at least",
                where="ReplayBuffer(view)",
                fix=f"pass a capacity of {least * ring.num_envs} or more for {ring.num_envs} lanes, or a shorter one",
            )
        )
