"""From records to the rows of a ring: rollouts as blocks where all lanes stand together, row by row elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.records import arrays
from outrider.records.episode import Episode
from outrider.records.episodes import Episodes
from outrider.records.rollout import Rollout
from outrider.records.steps import Steps
from outrider.replay.blocks import Blocks
from outrider.replay.checking import Checks, require_arrays
from outrider.replay.infos import Record, settled
from outrider.replay.names import Names
from outrider.replay.ring import Ring
from outrider.replay.rows import Rows

__all__ = ["Writer"]

PIECE = 256
"""Episodes of a long sequence that are read, and are there, at a time."""


class Writer:
    """Writes records into a ring, in order.

    Args:
        ring: where to.
        names: which lane each `env_id` has.
    """

    def __init__(self, ring: Ring, names: Names) -> None:
        self._ring = ring
        self._names = names
        self._begin()

    def _begin(self) -> None:
        """Know what the rows of the ring look like."""
        ring = self._ring
        self._spec = ring.spec
        self._checks, self._blocks, self._rows = Checks(ring), Blocks(ring), Rows(ring)

    def _settled(self, record: Record) -> Record:
        """The record with infos as the ring has columns for them, which may have become others."""
        found = settled(self._ring, record)
        if self._spec is not self._ring.spec:
            self._begin()
        return found

    def extend(self, record: Rollout | Steps | Episode | Sequence[Episode]) -> int:
        """Write all steps of a record; return how many.

        Raises:
            SpecError: its columns are not those of the ring, or contradict each other; nothing has been written then.
            ConfigError: it has steps of more lanes than the ring, or is no record.
        """
        where = f"extend({type(record).__name__})"
        if isinstance(record, Rollout):
            return self._rollout(record, where)
        if isinstance(record, Steps):
            require_arrays(record, where, 1)
            record.check()
            return self._steps(self._settled(record), where)
        if isinstance(record, (Episode, Episodes)):
            require_arrays(record, where, 1)
            episodes = record.segments()
            episodes.check()
            return self._steps(self._settled(episodes).flatten(), where)
        if _are_episodes(record):
            pieces = (record[start : start + PIECE] for start in range(0, len(record), PIECE))
            return sum(self.extend(Episodes.concatenate([one.segments() for one in piece])) for piece in pieces)
        raise ConfigError(
            explain(
                expected="a Rollout, Steps, an Episode or several",
                found=type(record).__name__,
                where="extend(record)",
                fix="pass what a collector returns, or `dataset.episodes()`; add(...) takes the columns of one step",
            )
        )

    def _rollout(self, rollout: Rollout, where: str) -> int:
        require_arrays(rollout, where, 2)
        rollout = self._settled(rollout)
        leaves, is_whole = self._checks.rollout(rollout)
        lanes, new = self._names.find(rollout.env_id, where)
        if lanes is not self._ring.everyone and len(np.unique(lanes)) < len(lanes):
            raise ConfigError(
                explain(
                    expected="a lane in each column, another one in every one",
                    found=f"env_id {rollout.env_id[:10]}",
                    where=where,
                    fix="take each lane once",
                )
            )
        if not is_whole or lanes is not self._ring.everyone or self._ring.start < 0:
            return self._write(rollout.flatten(), where)
        if rollout.length:
            self._names.give(new)
            self._blocks.extend(rollout, leaves)
        return rollout.length * rollout.num_envs

    def _steps(self, steps: Steps, where: str) -> int:
        self._checks.steps(steps, where)
        return self._write(steps, where)

    def _write(self, steps: Steps, where: str) -> int:
        """Write the valid ones of steps that are as they should be."""
        valid = arrays.to_numpy(steps.valid)
        chosen = steps if valid.all() else steps[valid]
        if len(chosen):
            lanes, new = self._names.find(chosen.env_id, where)
            self._names.give(new)
            self._rows.extend(chosen, lanes)
        return len(chosen)


def _are_episodes(record: Any) -> bool:
    if not isinstance(record, Sequence) or isinstance(record, (str, bytes)):
        return False
    return not len(record) or isinstance(record[0], Episode)
