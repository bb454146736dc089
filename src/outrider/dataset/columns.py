"""All columns of a dataset: one array for each leaf of the spec, under names that say which."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from outrider import tree
from outrider.dataset.column import Column
from outrider.dataset.run_to_end import run_to_end
from outrider.dataset.segments import SEGMENT
from outrider.errors import SpecError, explain
from outrider.records import Episodes, StepSpec
from outrider.records.arrays import IntArray
from outrider.spec import LeafSpec, check_batch
from outrider.tree import Tree

__all__ = ["Columns"]

DATA = "data"
"""The folder of the group; zarr warns of files that are not its own."""

PER_OBS = ("obs", "state")
"""Fields with T+1 rows for T steps."""

NOT_STORED = ("terminated", "truncated", "cut", "blind", "step")
"""Columns of steps that the segment table implies."""


def _fields(spec: StepSpec) -> dict[str, Tree]:
    """The tree of leaf specs of each stored field, in a fixed order: the order is part of the format."""
    return {
        "obs": spec.obs,
        "action": spec.action,
        "reward": spec.reward,
        "version": LeafSpec((), np.dtype(np.int64)),
        "extras": spec.extras,
        "state": spec.state,
        "info": spec.info,
        "obs_info": spec.obs_info,
    }


def _folder(number: int, path: str) -> str:
    """A unique and portable name, whatever characters the keys of the tree have."""
    return f"{number:03d}-{re.sub(r'[^A-Za-z0-9_]+', '-', path)[:60]}"


class Columns:
    """The arrays of a dataset and its segment table: a zarr group in `data`, which holds nothing else.

    Raises:
        DatasetError: the folder does not hold arrays of this spec.
    """

    def __init__(self, root: Path, spec: StepSpec) -> None:
        root = root / DATA
        self._specs = _fields(spec)
        self._columns: dict[str, list[Column]] = {name: [] for name in self._specs}
        for name, folder, _, leaf in _layout(root, self._specs):
            self._columns[name].append(Column(folder, leaf))
        self.table = Column(root / "segments", SEGMENT)

    @classmethod
    def create(cls, root: Path, spec: StepSpec) -> None:
        """Make the arrays, without rows, in the existing folder `root`.

        Raises:
            OSError: some of them may be there.
        """
        run_to_end(_creation(root / DATA, spec))

    @property
    def step_nbytes(self) -> int:
        """Decoded bytes of one step."""
        return sum(column.row_nbytes for columns in self._columns.values() for column in columns)

    def check(self, segments: Episodes) -> None:
        """Refuse segments of another structure, shape or dtype than the spec's, and inconsistent ones.

        Raises:
            SpecError: names the column and, in trees, the leaf.
        """
        count = segments.num_steps
        for name, specs in self._specs.items():
            batch = getattr(segments, name)
            for path, leaf in tree.items(batch, name):
                if not isinstance(leaf, np.ndarray):
                    fix = "append the record before .torch()"
                    found = f"a {type(leaf).__name__}"
                    raise SpecError(explain(expected="a NumPy array", found=found, where=f"append: {path}", fix=fix))
            rows = count + len(segments) if name in PER_OBS else count
            try:
                check_batch(specs, batch, (rows,), f"append: {name}")
            except SpecError as error:
                hint = "The dataset was created for another spec; see dataset.spec, and StepSpec.of(record)."
                msg = f"{error} {hint}"
                raise SpecError(msg) from None
        segments.check()

    def write(self, steps: int, table_rows: int, segments: Episodes, rows: IntArray) -> None:
        """Write segments behind `steps` steps and `table_rows` rows of the table; `rows` are theirs.

        Raises:
            OSError: everything before is as it was.
        """
        run_to_end(self._chunks(steps, table_rows, segments, rows))

    def _chunks(self, steps: int, table_rows: int, segments: Episodes, rows: IntArray) -> Iterator[None]:
        for name, columns in self._columns.items():
            start = steps + table_rows if name in PER_OBS else steps
            for column, leaf in zip(columns, tree.leaves(getattr(segments, name)), strict=True):
                yield from column.write(start, leaf)
        yield from self.table.write(table_rows, rows)

    def publish(self, steps: int, table_rows: int) -> None:
        """Tell foreign readers how many rows there are; ours go by the committed counts.

        Raises:
            OSError: some arrays may look longer than they are.
        """
        run_to_end(self._ends(steps, table_rows))

    def _ends(self, steps: int, table_rows: int) -> Iterator[None]:
        for name, columns in self._columns.items():
            for column in columns:
                column.set_rows(steps + table_rows if name in PER_OBS else steps)
                yield
        self.table.set_rows(table_rows)

    def ordered(self, segments: Episodes) -> Episodes:
        """The same segments; the dicts of all trees have their keys in the order of the spec."""
        ordered = {n: tree.map(lambda _, leaf: leaf, s, getattr(segments, n)) for n, s in self._specs.items()}
        others = {n: getattr(segments, n) for n in (*NOT_STORED, "episode_id", "env_id", "lengths")}
        return Episodes(**ordered, **others)

    def read(self, step_rows: IntArray, obs_rows: IntArray) -> dict[str, Tree]:
        """Return the stored fields: rows `step_rows` of those of steps, rows `obs_rows` of those of observations.

        Raises:
            DatasetError: a file is missing or damaged.
        """
        fields = {}
        for name, specs in self._specs.items():
            rows = obs_rows if name in PER_OBS else step_rows
            fields[name] = tree.unflatten(specs, [column.take(rows) for column in self._columns[name]])
        return fields

    def read_reward(self, step_rows: IntArray) -> np.ndarray:
        """Return float64 rewards of the rows `step_rows`, [n] or [n, k]."""
        return self._columns["reward"][0].take(step_rows)


def _creation(root: Path, spec: StepSpec) -> Iterator[None]:
    """Make the group at `root` and the arrays in it, one with each `next`."""
    import zarr

    zarr.create_group(root, zarr_format=3)
    for _, folder, path, leaf in _layout(root, _fields(spec)):
        Column.create(folder, leaf, path)
        yield
    Column.create(root / "segments", SEGMENT, "segments")


def _layout(root: Path, fields: dict[str, Tree]) -> Iterator[tuple[str, Path, str, LeafSpec]]:
    """Field, folder, path and spec of each leaf."""
    number = 0
    for name, specs in fields.items():
        for path, leaf in tree.items(specs, name):
            yield name, root / _folder(number, path), path, leaf
            number += 1
