"""Stacks of frames, of which each frame is stored once: in the row of the step that it was the newest frame of.

The older frames of the first stack of a segment (an episode's start, or where steps come in that continue nothing) are
in no row; they are in a table, from which a walk back along the lane takes what is left of a stack (`gathering.py`).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.replay.sparse import ABSENT, Sparse, rows_of, same_rows
from outrider.spec import LeafSpec
from outrider.tree import Tree

if TYPE_CHECKING:
    from outrider.replay.storage import Storage

__all__ = ["PLAIN", "Frames", "Pick"]

PLAIN = -1
"""In place of the number of a stack: a leaf that is none."""


@dataclass(frozen=True)
class Pick:
    """Some rows of a tree of observations: `obs` [m, ...], `rows` int64 [n]."""

    obs: Tree
    rows: np.ndarray


class Frames:
    """Which leaves of observations are stacks, and what is in no row of them.

    These are the leaves with at least 3 axes (without those of a batch) of which the first is `count`; the others are
    stored as they are.

    Args:
        specs: tree of `LeafSpec` of an observation.
        count: the frames k of a stack, 2 or more.

    Attributes:
        count: these.
        stored: tree of `LeafSpec` of what a row stores.
        numbers: tree of int: the number of each stack, from 0, or `PLAIN`.
        firsts: for the first row of a segment the older frames, a tuple [k-1, ...] of all stacks; once `allocate`d.

    Raises:
        ConfigError: no leaf is a stack.

    Example:
        >>> frames = Frames({"eye": LeafSpec((4, 84, 84), np.dtype("u1")), "arm": LeafSpec((7,), np.dtype("f4"))}, 4)
        >>> frames.stored["eye"].shape, frames.numbers
        ((84, 84), {'eye': 0, 'arm': -1})
    """

    firsts: Sparse

    def __init__(self, specs: Tree, count: int) -> None:
        self.count = count
        stacks: list[LeafSpec] = []

        def number(spec: LeafSpec) -> int:
            if len(spec.shape) < 3 or spec.shape[0] != count:
                return PLAIN
            stacks.append(spec)
            return len(stacks) - 1

        self.numbers = tree.map(number, specs)
        self._marks = tree.leaves(self.numbers)
        if not stacks:
            shapes = ", ".join(f"{path} {spec.shape}".strip() for path, spec in tree.items(specs))
            raise ConfigError(
                explain(
                    expected=f"observations with a leaf of at least 3 axes of which the first is {count}",
                    found=shapes or "observations without leaves",
                    where=f"ReplayBuffer: a view with frame_stack={count}",
                    fix="let the environments stack frames (gymnasium.wrappers.FrameStackObservation), or leave "
                    "frame_stack out, which stores observations as they are",
                )
            )
        self.stored = tree.map(lambda spec, number: _frame(spec) if number != PLAIN else spec, specs, self.numbers)
        self.specs = tuple(LeafSpec((count - 1, *spec.shape[1:]), spec.dtype) for spec in stacks)
        kernels = importlib.import_module("outrider.replay.kernels")
        self._misfit, self._stacks_of = kernels.misfit, kernels.stacks

    def allocate(self, rows: int, storage: Storage) -> Sparse:
        """Make and return `firsts`, for so many rows."""
        self.firsts = Sparse(self.specs, np.empty(rows, np.int32), storage)
        return self.firsts

    def newest(self, chosen: Pick) -> Tree:
        """What rows store of observations: copies, a tree [n, ...]."""

        def take(number: int, leaf: Any) -> np.ndarray:
            found: np.ndarray = rows_of(leaf, chosen.rows) if number == PLAIN else leaf[chosen.rows, -1]
            return found

        return tree.map(take, self.numbers, chosen.obs)

    def is_stack(self, leaf: int) -> bool:
        """Whether the leaf at this place among those of the specs is a stack."""
        return bool(self._marks[leaf] != PLAIN)

    def newest_leaves(self, leaves: list[Any]) -> list[Any]:
        """The same of all observations, as leaves [m, ...] in the order of the specs: views."""
        return [leaf if number == PLAIN else leaf[:, -1] for leaf, number in zip(leaves, self._marks, strict=True)]

    def places(self, index: np.ndarray, owner: np.ndarray, lanes: int) -> np.ndarray:
        """Where the frames of stacks are, int64 [n, k]; see `kernels.stacks`.

        Args:
            index: int64 [n], rows, or ~slot where the newest frame is among the true last observations.
            owner: int64 [slots], the rows of the steps before those.
            lanes: how many there are.
        """
        found: np.ndarray = self._stacks_of(index, owner, self.firsts.at, lanes, self.count)
        return found

    def older(self, number: int) -> np.ndarray:
        """The older frames of all first stacks of a leaf, one after the other: [slots * (k-1), ...]."""
        table: np.ndarray = self.firsts.table[number]
        return table.reshape(len(table) * (self.count - 1), *table.shape[2:])

    def begin(self, rows: np.ndarray, chosen: Pick) -> None:
        """Segments begin in these rows, int64 [n], with these observations: keep their older frames."""
        if len(rows):
            self.firsts.put(rows, tuple(leaf[chosen.rows, :-1] for leaf in self._stacks(chosen.obs)))

    def require_shifted(self, later: Pick, earlier: Pick, who: tuple[np.ndarray, np.ndarray], where: str) -> None:
        """Refuse stacks that are not the ones before them, shifted by one frame.

        Args:
            later: n observations.
            earlier: those of the steps that led to them.
            who: the env_id of each, int64 [n], and the indices of these steps in their episodes, int64 [n].
            where: for the message.

        Raises:
            SpecError: names the lane and the step.
        """
        pairs = zip(self._stacks(later.obs), self._stacks(earlier.obs), strict=True)
        for leaf, before in pairs:
            bad = self._misfit(_words(leaf), later.rows, _words(before), earlier.rows)
            if bad >= 0 and leaf.dtype.kind in "fc":
                # The same numbers may be of other bytes: 0.0 and -0.0, or two that are none.
                same = same_rows([leaf[later.rows, :-1]], [before[earlier.rows, 1:]])
                bad = -1 if same is None else int(same.argmin())
            if bad >= 0:
                lane, step = (int(column[bad]) for column in who)
                raise SpecError(
                    explain(
                        expected=f"stacks that are the ones before them, shifted by one of {self.count} frames",
                        found=f"another one behind step {step} of lane {lane}",
                        where=where,
                        fix="stack frames in the environment and change none of them afterwards, or leave frame_stack "
                        "out, which stores whole stacks",
                    )
                )

    def _stacks(self, obs: Tree) -> list[Any]:
        """The leaves that are stacks, in the order of their numbers."""
        leaves = tree.leaves(tree.map(lambda _, leaf: leaf, self.numbers, obs))
        return [leaf for leaf, number in zip(leaves, self._marks, strict=True) if number != PLAIN]

    def check(self, held: np.ndarray, ended: np.ndarray, behind: np.ndarray, lanes: int) -> None:
        """Verify that those rows have older frames which a segment begins in, and none that is not there any more.

        Args:
            held: bool [rows], those of steps.
            ended: int64 [n], the rows of the steps behind which nothing goes on.
            behind: bool [rows], those of former steps that stacks may still reach back to.
            lanes: how many there are.

        Raises:
            AssertionError: it is otherwise.
        """
        have, starts = self.firsts.at != ABSENT, np.zeros(len(held), np.bool_)
        starts[(ended + lanes) % len(held)] = True
        # What was before the oldest steps, nobody knows.
        known = held & np.roll(held, lanes)
        assert (have == starts)[known].all(), "starts of segments and older frames do not match"
        assert not have[~(held | behind)].any(), "a row that is not there has older frames"


def _frame(spec: LeafSpec) -> LeafSpec:
    return LeafSpec(spec.shape[1:], spec.dtype)


def _words(leaf: np.ndarray) -> np.ndarray:
    """Stacks [m, k, ...] as [m, k, words], of 8 bytes if frames have a multiple of that, of one byte otherwise."""
    whole = np.ascontiguousarray(leaf)
    bytes_ = whole.reshape(*whole.shape[:2], int(np.prod(whole.shape[2:]))).view(np.uint8)
    return bytes_.view(np.uint64) if bytes_.shape[2] % 8 == 0 and bytes_.flags.aligned else bytes_
