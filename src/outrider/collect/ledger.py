"""Which episode each lane is in, and the figures of those that are over."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.collect.kernels import stamp
from outrider.collect.marks import Marks
from outrider.collect.stats import Recorder
from outrider.memory.rows import Rows
from outrider.vector.store import Store

__all__ = ["Ledger"]

NO_DUMMIES = np.zeros(0, np.bool_)


class Ledger:
    """Counts episodes and their steps and rewards, lane by lane.

    Attributes:
        step: int64 [N], steps so far of the running episode of each lane; 0 between episodes.
        recorder: sums up what the episodes came to.
    """

    def __init__(self, lanes: range, recorder: Recorder, reward_shape: tuple[int, ...] = ()) -> None:
        self.step = np.zeros(len(lanes), np.int64)
        self.recorder = recorder
        self._lanes = lanes
        self._ordinal = np.zeros(len(lanes), np.int64)
        self._returns = np.zeros((len(lanes), *reward_shape), np.float64)

    def stamp(self, rows: np.ndarray, dummies: Marks, store: Store, columns: Rows) -> None:
        """Write episode ids and step numbers into new `rows`, int64 [R], and count what ended in them.

        Dummies are no steps of any episode: they get the id of the next one and the step -1.
        """
        dummy, steps = NO_DUMMIES, len(rows)
        if dummies:
            dummy = dummies.of(rows)
            steps -= int(dummy.sum())
        arrays: Any = columns.arrays
        lane, total, length, cut = stamp(
            rows,
            dummy,
            (store.num_envs, self._lanes.start),
            store.reward,
            (store.terminated, store.truncated, arrays["cut"]),
            (arrays["episode_id"], arrays["step"]),
            (self._ordinal, self.step),
            self._returns,
        )
        self.recorder.steps += steps
        if len(lane):
            self.recorder.add_episodes(lane - self._lanes.start, total, length, cut)

    def cut_running(self, lanes: Any = slice(None)) -> None:
        """Stop counting running episodes, of these lanes by index: what comes next in them belongs to others."""
        running = np.zeros(len(self.step), np.bool_)
        running[lanes] = self.step[lanes] > 0
        self._ordinal[running] += 1
        self.step[running] = 0
        self._returns[running] = 0.0
        self.recorder.cuts += int(running.sum())
