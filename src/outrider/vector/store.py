"""The memory of one vector environment: rows that environments write, a mailbox per lane, a collector's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import tree
from outrider.memory.mapping import Mapping
from outrider.memory.pool import RowPool
from outrider.memory.ragged import RaggedLeaf
from outrider.memory.rows import Layout, Rows
from outrider.spaces import leaf_specs, observation_specs
from outrider.spec import LeafSpec, row_nbytes
from outrider.tree import Tree

if TYPE_CHECKING:
    from gymnasium import Space

__all__ = ["HEADER_WORDS", "MOST_WORKERS", "Frame", "Store", "headers", "indexer", "numbers_of"]

HEADER_WORDS = 16
"""64-bit words of each worker's header at the start of the mapping: two cache lines, shared with no other worker."""

MOST_WORKERS = 1024

HEADERS_NBYTES = MOST_WORKERS * HEADER_WORDS * 8

REWARD = LeafSpec((), np.dtype(np.float64))
FLAG = LeafSpec((), np.dtype(np.bool_))
COUNTER = LeafSpec((), np.dtype(np.int64))
SMALL = LeafSpec((), np.dtype(np.int8))


@dataclass(frozen=True)
class Frame:
    """How the mapping is divided; all that a worker needs to know to find its way in it.

    Attributes:
        num_envs: lanes in all; the distance in rows from a step to the next one of its lane.
        rows: layout of obs, reward, terminated, truncated, by row number.
        mailbox: layout of the actions and requests, by lane.
        space: the observation space of one environment, without leaves that cannot be stored.
        final: first of `num_envs` rows that take the true last observation of a lane that was reset in the same step.
    """

    num_envs: int
    space: Space[Any]
    rows: Layout
    mailbox: Layout
    final: int

    @classmethod
    def divide(
        cls,
        mapping: Mapping,
        num_envs: int,
        space: Space[Any],
        action_space: Space[Any],
        reward: LeafSpec = REWARD,
    ) -> Frame:
        """Give the mailbox what it needs and the environments' rows the rest of the first half of the mapping."""
        observation, action = observation_specs(space), leaf_specs(action_space, "action space")
        mail = {"action": action, "row": COUNTER, "op": SMALL, "want": SMALL, "ended": FLAG}
        mail |= dict.fromkeys(("request", "done", "taken"), COUNTER)
        mailbox = Layout.fit(mail, HEADERS_NBYTES, mapping.nbytes // 2, most=num_envs)
        end = mailbox.end
        specs = {"obs": observation, "reward": reward, "terminated": FLAG, "truncated": FLAG}
        return cls(num_envs, space, Layout.fit(specs, end, mapping.nbytes // 2), mailbox, num_envs)


class Store:
    """The arrays of a frame in this process.

    Attributes:
        obs, reward, terminated, truncated: arrays by row number.
        ragged: those leaves of `obs` that are no arrays; they belong to this process alone.
        action: tree of arrays [num_envs, ...]: what the environments are to be given next.
        parking: first of `num_envs` rows that keep the current observations between the calls of a collector.
        scratch: first of `2 * num_envs` rows for those who bring no rows of their own.
    """

    def __init__(self, mapping: Mapping, frame: Frame) -> None:
        self.mapping = mapping
        self.frame = frame
        self.rows = Rows(mapping, frame.rows)
        self.mailbox = Rows(mapping, frame.mailbox)
        self.obs: Tree = self.rows.arrays["obs"]
        self.ragged = list(self.rows.ragged.values())
        self.reward: np.ndarray = self.rows.arrays["reward"]
        self.terminated: np.ndarray = self.rows.arrays["terminated"]
        self.truncated: np.ndarray = self.rows.arrays["truncated"]
        self.action: Tree = self.mailbox.arrays["action"]
        self.num_envs = frame.num_envs
        self.row_nbytes = row_nbytes(frame.rows.specs)
        self.space = frame.space
        self.final = frame.final
        # Blocks begin at a multiple of num_envs, so that row % num_envs is the lane; the first four are permanent.
        self.parking, self.scratch = 0, 2 * frame.num_envs
        self.pool = RowPool(mapping, [self.rows])
        self.pool.take(4 * frame.num_envs)

    def before(self, rows: Any) -> slice | np.ndarray:
        """Index of the rows one step earlier than `rows`, a range or an int64 array, in the same lanes."""
        if type(rows) is range:
            return slice(rows.start - self.num_envs, rows.stop - self.num_envs)
        earlier: np.ndarray = rows - self.num_envs
        return earlier

    def after(self, rows: Any) -> slice | np.ndarray:
        """Index of the rows one step later than `rows`, a range or an int64 array, in the same lanes."""
        if type(rows) is range:
            return slice(rows.start + self.num_envs, rows.stop + self.num_envs)
        later: np.ndarray = rows + self.num_envs
        return later

    def step_at(self, rows: range) -> Tree:
        """Views of `rows` of the observations, and of reward and flags of the steps that led there."""
        steps, here = self.before(rows), slice(rows.start, rows.stop)
        flags = {key: self.rows.arrays[key][steps] for key in ("reward", "terminated", "truncated")}
        obs = tree.map(lambda leaf: leaf.window(here) if isinstance(leaf, RaggedLeaf) else leaf[here], self.obs)
        return {"obs": obs, **flags}

    def observation(self, row: int) -> Tree:
        """A copy of the observation in a row, as an environment returns it."""
        return tree.map(lambda leaf: leaf[row] if isinstance(leaf, RaggedLeaf) else leaf[row].copy(), self.obs)

    def take_ragged(self, start: int = 0, stop: int | None = None) -> list[dict[int, Any]]:
        """Remove the values of ragged leaves in rows [start, stop), by default all, for `put_ragged` elsewhere."""
        return [leaf.take(start, stop) for leaf in self.ragged]

    def put_ragged(self, values: list[dict[int, Any]]) -> None:
        """Write values of ragged leaves, by row."""
        for leaf, some in zip(self.ragged, values, strict=True):
            leaf.put(some)

    def columns(self, specs: Tree) -> Rows:
        """Make further columns with the same row numbers, in the second half of the mapping."""
        columns = self.attach_columns(Layout.fit(specs, self.mapping.nbytes // 2, self.mapping.nbytes))
        self.pool.add(columns)
        return columns

    def attach_columns(self, layout: Layout) -> Rows:
        """The columns that another process has made."""
        return Rows(self.mapping, layout)


def headers(mapping: Mapping) -> memoryview:
    """The 64-bit words at the start of the mapping, `HEADER_WORDS` for each worker."""
    return memoryview(mapping.buffer)[:HEADERS_NBYTES].cast("q")


def numbers_of(numbers: Any) -> np.ndarray:
    """A range or an int64 array as an array; NumPy would walk through a range number by number."""
    array: np.ndarray = np.arange(numbers.start, numbers.stop) if type(numbers) is range else numbers
    return array


def indexer(numbers: Any) -> slice | np.ndarray:
    """What to index arrays with: a slice for a `range` of step 1, the array itself else."""
    return slice(numbers.start, numbers.stop) if type(numbers) is range else numbers
