"""The dataset: appended to by one writer, read by any number."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np

from outrider import tree
from outrider.dataset.columns import Columns
from outrider.dataset.creation import Committed, append_run, new_folder, read_description, runs_of
from outrider.dataset.episode_ids import EpisodeIds, obs_fingerprint
from outrider.dataset.episode_sequence import EpisodeSequence, Read
from outrider.dataset.files import WriterLock, remove_partials
from outrider.dataset.segments import (
    BLIND,
    CUT,
    EPISODE_ID,
    LENGTH,
    TERMINATED,
    TRUNCATED,
    EpisodeIndex,
    segment_rows,
)
from outrider.dataset.summary import DatasetSummary, EpisodeCounts, Moments, returns_moments
from outrider.errors import ClosedError, ConfigError, DatasetError, explain
from outrider.records import Episode, Episodes, Rollout, Steps, StepSpec, arrays
from outrider.records.arrays import IntArray

__all__ = ["Dataset"]

Record: TypeAlias = Rollout | Steps | Episode | Episodes

SUMMARY_STEPS = 1 << 20
"""Rewards that `summary` reads at a time."""


class Dataset:
    """Experience in a folder: compressed zarr v3 arrays of rows, and a table that says which rows are which episode.

    Make one with `Dataset.create` or `Dataset.open`; it is a context manager.

    An append is complete or did not happen: its rows are written first, then one small file with the counts is
    replaced. A writer that is killed, a full disk or Ctrl-C leave everything appended before as it was; Ctrl-C waits
    for the chunk that is being written. One writer at a time; readers see what was committed when they opened. (This
    holds for the death of the process. After a power failure the last appends may be damaged; every chunk has a
    checksum, so that damage is an error and never data.)

    Episodes that arrive in pieces are whole when read. Their ids are unique in the dataset: see `append`.

    Example:
        >>> import tempfile
        >>> from outrider.records import StepSpec
        >>> from outrider.spec import LeafSpec
        >>> spec = StepSpec(obs=LeafSpec((4,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Dataset.create(f"{folder}/data", spec, metadata={"seed": 0}) as dataset:
        ...         print(dataset.append(spec.zeros(3)))
        ...     with Dataset.open(f"{folder}/data") as dataset:
        ...         print(len(dataset), dataset.num_episodes, dataset.metadata["seed"])
        6
        6 2 0
    """

    def __init__(self, path: Path, lock: WriterLock | None) -> None:
        """Not for users: `create` and `open` check first."""
        self.path = path
        self._lock = lock
        self._closed = False
        self._spec, self._metadata = read_description(path)
        self._load()

    @classmethod
    def create(cls, path: str | os.PathLike[str], spec: StepSpec, *, metadata: dict[str, Any] | None = None) -> Dataset:
        """Make an empty dataset and open it for appending.

        Args:
            path: a folder that does not exist yet or is empty; parents are made.
            spec: shapes and dtypes of the rows: `collector.spec`, or `StepSpec.of(record)`.
            metadata: what else belongs to the data (seed, policy, ...), in values that JSON can hold. Creation time and
                versions are added.

        Raises:
            ConfigError: a space of the spec cannot be described in JSON.
            DatasetError: the path is taken or cannot be written to, or the metadata are not JSON.
        """
        # Where a link points to: what is made beside the folder and renamed would replace the link itself.
        folder = Path(path).resolve()
        with new_folder(folder, spec, metadata or {}) as lock:
            return cls(folder, lock)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, writable: bool = False) -> Dataset:
        """Open a dataset for reading, or for appending as well.

        Raises:
            DatasetError: there is no dataset, it is damaged, or somebody else appends to it.
        """
        folder = Path(path).absolute()
        read_description(folder)
        lock = WriterLock(folder) if writable else None
        try:
            dataset = cls(folder, lock)
            if writable:
                remove_partials(folder)
                dataset._publish()
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return dataset

    def _load(self) -> None:
        """Take over the committed state of the files. No stored episode is continued by this writer from here on."""
        self._committed = Committed.read(self.path)
        # The arrays are opened after the counts are read, so that they have at least that many rows.
        self._columns = Columns(self.path, self._spec)
        table = self._columns.table.take(np.arange(self._committed.segments))
        self._tables = [table]
        self._index: EpisodeIndex | None = None
        self._ids = EpisodeIds(table[:, EPISODE_ID])
        self._in_append = False
        if table[:, LENGTH].sum() != self._committed.steps:
            raise DatasetError(
                explain(
                    expected=f"segments of {self._committed.steps} steps in all",
                    found=f"a table of {table[:, LENGTH].sum()} steps",
                    where=f"dataset '{self.path}'",
                    fix="restore the folder from a copy: its files are not of one time",
                )
            )

    # ------------------------------------------------------------------------------------------------------ appending

    def append(self, record: Record) -> int:
        """Store a record and return its number of steps.

        Each part of an episode in the record becomes a segment with all its T+1 observations. A segment that begins
        where this writer's last one of the episode stopped (same id, lane, step number and observation) continues that
        episode. Any other one whose id is taken gets the smallest unused id: it belongs to another run. What an earlier
        writer left open stays open.

        Args:
            record: NumPy arrays of exactly the structure, shapes and dtypes of `spec`.

        Raises:
            ClosedError: after `close`.
            ConfigError: not a record.
            SpecError: the record does not fit; nothing was stored.
            DatasetError: opened for reading, or the disk is full or fails: nothing of this record counts, everything
                before it stays, and appending again works once there is space.
        """
        self._require_writable("append to")
        segments = self._segments_of(record)
        if not len(segments):
            return 0
        rows = segment_rows(segments)
        obs, bounds = tree.leaves(segments.obs), segments.boundaries
        plan = self._ids.plan(rows, lambda k, last: obs_fingerprint(obs, int(bounds[k + last]) + k))
        rows[:, EPISODE_ID] = plan.stored
        committed = self._write(segments, rows)
        self._ids.commit(plan)
        self._committed = committed
        self._tables.append(rows)
        self._index, self._in_append = None, False
        return segments.num_steps

    def begin_run(self, metadata: dict[str, Any]) -> None:
        """Note where what is appended from now on comes from; `runs` has the list.

        Args:
            metadata: what belongs to these data (policy, seed, ...), in values that JSON can hold. Time and versions
                are added.

        Raises:
            ClosedError: after `close`.
            DatasetError: opened for reading, the metadata are not JSON, or the disk fails; nothing was changed.
        """
        self._require_writable("begin_run of")
        try:
            self._metadata = append_run(self.path, metadata, len(self))
        except OSError as error:
            raise _disk_fails(error, f"begin_run of '{self.path}'", len(self)) from error

    def _require_writable(self, what: str) -> None:
        self._require_open()
        if self._lock is None:
            fix = "open it with Dataset.open(path, writable=True)"
            expected, found = "a dataset open for appending", "one open for reading"
            raise DatasetError(explain(expected=expected, found=found, where=f"{what} '{self.path}'", fix=fix))

    def _segments_of(self, record: Any) -> Episodes:
        if not isinstance(record, (Rollout, Steps, Episode, Episodes)):
            expected = "a Rollout, Steps, Episode or Episodes"
            found = f"an object of class {type(record).__name__}"
            fix = "append what the collector returns"
            raise ConfigError(explain(expected=expected, found=found, where="Dataset.append(record)", fix=fix))
        segments: Episodes = record.segments()
        self._columns.check(segments)
        return self._columns.ordered(segments)

    def _write(self, segments: Episodes, rows: IntArray) -> Committed:
        """Write segments and commit them; whatever raises before the last line leaves the committed state alone."""
        before = self._committed
        committed = Committed(before.steps + segments.num_steps, before.segments + len(segments))
        self._in_append = True
        try:
            self._columns.write(before.steps, before.segments, segments, rows)
            committed.write(self.path)
        except OSError as error:
            self._in_append = False
            raise _disk_fails(error, f"append to '{self.path}'", before.steps) from error
        return committed

    # -------------------------------------------------------------------------------------------------------- reading

    def _require_open(self) -> None:
        if self._closed:
            msg = f"dataset '{self.path}': used after close(). To fix it: open it again with Dataset.open."
            raise ClosedError(msg)
        if self._in_append:
            # An append was interrupted (Ctrl-C): only the files know whether it was committed.
            self._load()

    def _episode_index(self) -> EpisodeIndex:
        self._require_open()
        if self._index is None:
            self._tables = [np.concatenate(self._tables)]
            self._index = EpisodeIndex.of(self._tables[0])
        return self._index

    def episodes(self) -> EpisodeSequence:
        """The episodes stored so far, in order of first appearance; reads nothing yet.

        Raises:
            ClosedError: after `close`, also when an episode is read.
        """
        index = self._episode_index()
        return EpisodeSequence(index, np.arange(len(index)), self._reader(index), self._columns.step_nbytes)

    def _reader(self, index: EpisodeIndex) -> Read:
        def read(episodes: IntArray) -> Episodes:
            self._require_open()
            length, ending = index.length[episodes], index.ending[episodes]
            last = np.cumsum(length) - 1
            flags: dict[str, Any] = {}
            for name, bit in (("terminated", TERMINATED), ("truncated", TRUNCATED), ("cut", CUT), ("blind", BLIND)):
                flags[name] = np.zeros(int(length.sum()), np.bool_)
                flags[name][last] = (ending & bit) != 0
            if not flags["blind"].any():
                flags["blind"] = None
            return Episodes(
                **self._columns.read(index.step_rows(episodes), index.obs_rows(episodes)),
                **flags,
                step=arrays.ranges(index.first_step[episodes], length),
                episode_id=index.episode_id[episodes],
                env_id=index.env_id[episodes],
                lengths=length,
            )

        return read

    def steps(self) -> Steps:
        """All steps in memory, one episode after the other, in the order of `episodes`."""
        return self.episodes().load().flatten()

    @property
    def spec(self) -> StepSpec:
        """Shapes and dtypes of the rows, spaces and name of the environment."""
        return self._spec

    @property
    def metadata(self) -> dict[str, Any]:
        """A copy of what `create` was given, with "created" (ISO 8601, UTC), "versions", and "runs" where any began."""
        return dict(self._metadata)

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What `begin_run` was given for each run, with "created", "versions", "first_step" and "steps" of that run.

        What was appended before any run began is the first one, with the metadata of the dataset.
        """
        return runs_of(self._metadata, len(self))

    def __len__(self) -> int:
        """The number of steps."""
        if self._in_append:
            self._require_open()
        return self._committed.steps

    def __repr__(self) -> str:
        """Path and counts."""
        state = "closed" if self._closed else "reading" if self._lock is None else "appending"
        return f"Dataset('{self.path}', {len(self)} steps, {state})"

    @property
    def num_episodes(self) -> int:
        """The number of episodes, incomplete ones included."""
        return len(self._episode_index())

    @property
    def counts(self) -> EpisodeCounts:
        """The number of episodes by their ends."""
        return EpisodeCounts.of(self._episode_index())

    def summary(self) -> DatasetSummary:
        """Counts, returns and lengths of the complete episodes, size on the disk; reads the rewards, in pieces."""
        index = self._episode_index()
        ended = (index.ending & (TERMINATED | TRUNCATED)) != 0
        complete = np.flatnonzero(ended & (index.first_step == 0))
        lengths = index.length[complete]
        piece = np.cumsum(lengths) // SUMMARY_STEPS
        pieces = np.split(complete, np.flatnonzero(np.diff(piece)) + 1) if len(complete) else []
        returns = [self._returns(index, episodes) for episodes in pieces]
        return DatasetSummary(
            steps=len(self),
            episodes=EpisodeCounts.of(index),
            returns=returns_moments(np.concatenate(returns)) if returns else None,
            lengths=Moments.of(lengths),
            disk_nbytes=sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file()),
        )

    def _returns(self, index: EpisodeIndex, episodes: IntArray) -> np.ndarray:
        # One row for each step, also of vector rewards.
        reward = self._columns.read_reward(index.step_rows(episodes))
        length = index.length[episodes]
        return np.add.reduceat(reward, np.cumsum(length) - length)

    # -------------------------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Give the right to append back; may be called again. Episodes still open stay so for good."""
        if self._closed:
            return
        self._closed = True
        if self._lock is not None:
            try:
                self._publish()
            finally:
                self._lock.release()

    def _publish(self) -> None:
        # Once a session and not once an append: it takes as long as the rows. Until then, or until the next writer
        # opens, other programs see blank rows at the end. What the file says is kept, whatever an interrupted append
        # has left in memory: zarr deletes what lies behind.
        with contextlib.suppress(OSError, DatasetError):
            committed = Committed.read(self.path)
            self._columns.publish(committed.steps, committed.segments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _disk_fails(error: OSError, where: str, steps: int) -> DatasetError:
    return DatasetError(
        explain(
            expected="a disk that takes the rows",
            found=f"{type(error).__name__}: {error}",
            where=where,
            fix=f"make space and try again; the {steps} steps before are safe",
        )
    )
