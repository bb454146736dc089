"""Ids of appended episodes: unique in the dataset, and the same for the parts of one episode.

Ids are unique within one run only: the next run begins with the same ones. A segment therefore keeps its id if the id
is new, continues a stored episode if this writer left that one open exactly there, and gets an unused id otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from outrider.dataset.ragged_text import encode
from outrider.records.arrays import IntArray
from outrider.values import kind_of

if TYPE_CHECKING:
    import numpy as np

__all__ = ["EpisodeIds", "IdPlan", "obs_fingerprint"]

Seam: TypeAlias = tuple[int, int, int]
"""Where an episode may go on: its id as it came in, its lane, the number of its next step."""


@dataclass
class IdPlan:
    """What an append would do to the ids; nothing holds until `EpisodeIds.commit`.

    Attributes:
        stored: the id of each segment in the dataset.
        opened: episodes that the append leaves open: their stored id and a fingerprint of their last observation.
        taken: seams at which the append continued an episode.
        next_free: where to look for the next unused id.
    """

    stored: list[int] = field(default_factory=list)
    opened: dict[Seam, tuple[int, bytes]] = field(default_factory=dict)
    taken: set[Seam] = field(default_factory=set)
    next_free: int = 0


class EpisodeIds:
    """The ids in use, and the episodes that this writer has left open.

    Args:
        used: int64, the ids that the dataset holds already; none of those episodes is ever continued.
    """

    def __init__(self, used: IntArray) -> None:
        self._used: set[int] = set(used.tolist())
        self._open: dict[Seam, tuple[int, bytes]] = {}
        self._next_free = 0

    def plan(self, rows: IntArray, fingerprint: Callable[[int, bool], bytes]) -> IdPlan:
        """Choose the stored ids of segments.

        Args:
            rows: int64 [E, 5], their rows of the segment table with the ids as they came in.
            fingerprint: `fingerprint(k, last)` identifies the first or the last observation of segment k. An episode is
                continued only by the observation that it stopped at: a coincidence of numbers stitches nothing.
        """
        plan = IdPlan(next_free=self._next_free)
        new: set[int] = set()
        for k, (incoming, env_id, first, length, ending) in enumerate(rows.tolist()):
            stored = self._continued(plan, (incoming, env_id, first), k, fingerprint)
            if stored is None:
                stored = self._unused(plan, incoming, new)
                new.add(stored)
            plan.stored.append(stored)
            if not ending:
                plan.opened[incoming, env_id, first + length] = (stored, fingerprint(k, True))
        return plan

    def _continued(self, plan: IdPlan, seam: Seam, k: int, fingerprint: Callable[[int, bool], bytes]) -> int | None:
        """The stored id of the open episode that segment k continues, if there is one."""
        for source in (plan.opened, self._open):
            found = source.get(seam)
            if found is None or (source is self._open and seam in plan.taken):
                continue
            stored, last = found
            if last == fingerprint(k, False):
                if source is plan.opened:
                    del plan.opened[seam]
                else:
                    plan.taken.add(seam)
                return stored
        return None

    def _unused(self, plan: IdPlan, incoming: int, new: set[int]) -> int:
        """The id as it came in, or the smallest one that nobody has."""
        if incoming not in self._used and incoming not in new:
            return incoming
        while plan.next_free in self._used or plan.next_free in new:
            plan.next_free += 1
        return plan.next_free

    def commit(self, plan: IdPlan) -> None:
        """Take over what `plan` says, once its segments are stored."""
        self._used.update(plan.stored)
        self._next_free = plan.next_free
        for seam in plan.taken:
            del self._open[seam]
        self._open.update(plan.opened)


def obs_fingerprint(leaves: list[np.ndarray], row: int) -> bytes:
    """16 bytes that identify row `row` of the leaves of an observation."""
    digest = hashlib.blake2b(digest_size=16)
    for leaf in leaves:
        value = leaf[row]
        kind = kind_of(value)
        digest.update(value.tobytes() if kind is None or not leaf.dtype.hasobject else encode(kind, value).encode())
    return digest.digest()
