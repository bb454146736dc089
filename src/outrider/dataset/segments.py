"""The segment table: which rows of the columns belong to which part of which episode.

A segment is a contiguous run of steps of one episode that arrived in one append. Segments lie one after the other in
the order of their arrival: segment k has the step rows `step_start[k]` to `step_start[k] + length[k]` and the
observation rows `step_start[k] + k` to `step_start[k] + k + length[k] + 1`. Segments with one episode_id are the
parts of one episode, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.records import Episodes, arrays
from outrider.records.arrays import IntArray
from outrider.spec import LeafSpec

__all__ = ["BLIND", "CUT", "SEGMENT", "TERMINATED", "TRUNCATED", "EpisodeIndex", "segment_rows"]

SEGMENT = LeafSpec((5,), np.dtype(np.int64))
"""A row of the table: episode_id, env_id, first step, length, flags of the last step."""

EPISODE_ID, ENV_ID, FIRST_STEP, LENGTH, ENDING = range(5)

TERMINATED, TRUNCATED, CUT, BLIND = 1, 2, 4, 8
"""Bits of the flags. Only the last step of an episode has any; a segment without goes on, or was left open."""


def segment_rows(segments: Episodes) -> IntArray:
    """The rows [E, 5] of the table for segments whose flags are in their last steps (`Episodes.check`)."""
    bounds = segments.boundaries
    last = bounds[1:] - 1
    ending = segments.terminated[last] * TERMINATED
    ending = ending + segments.truncated[last] * TRUNCATED + segments.cut[last] * CUT
    if segments.blind is not None:
        ending = ending + segments.blind[last] * BLIND
    columns = (segments.episode_id, segments.env_id, segments.step[bounds[:-1]], np.diff(bounds), ending)
    return np.stack(columns, axis=1, dtype=np.int64)


@dataclass(frozen=True)
class EpisodeIndex:
    """The episodes of a segment table, in order of first appearance.

    Attributes:
        episode_id: int64 [E].
        env_id: int64 [E].
        first_step: int64 [E]; 0 unless the beginning was not recorded.
        length: int64 [E]; the sum over the segments.
        ending: int64 [E]; the flags of the last step.
        part: int64 [P]; rows of the table, those of one episode together.
        bounds: int64 [E+1]; episode i has the parts bounds[i]:bounds[i+1].
        part_start: int64 [P]; the first step row of each part.
        part_length: int64 [P].
    """

    episode_id: IntArray
    env_id: IntArray
    first_step: IntArray
    length: IntArray
    ending: IntArray
    part: IntArray
    bounds: IntArray
    part_start: IntArray
    part_length: IntArray

    @classmethod
    def of(cls, table: IntArray) -> EpisodeIndex:
        """Index a table [P, 5]."""
        _, first, episode = np.unique(table[:, EPISODE_ID], return_index=True, return_inverse=True)
        appearance = np.empty(len(first), np.int64)
        appearance[np.argsort(first)] = np.arange(len(first))
        rank = appearance[episode]
        part = np.argsort(rank, kind="stable")
        bounds = np.searchsorted(rank[part], np.arange(len(first) + 1))
        ordered = table[part]
        starts, lasts = ordered[bounds[:-1]], ordered[bounds[1:] - 1]
        step_start = np.cumsum(table[:, LENGTH]) - table[:, LENGTH]
        lengths = np.diff(np.concatenate(([0], np.cumsum(ordered[:, LENGTH])))[bounds])
        return cls(
            episode_id=starts[:, EPISODE_ID],
            env_id=starts[:, ENV_ID],
            first_step=starts[:, FIRST_STEP],
            length=lengths,
            ending=lasts[:, ENDING],
            part=part,
            bounds=bounds,
            part_start=step_start[part],
            part_length=ordered[:, LENGTH],
        )

    def __len__(self) -> int:
        """The number of episodes E."""
        return len(self.episode_id)

    def parts_of(self, episodes: IntArray) -> IntArray:
        """Positions in `part` of the parts of `episodes`, one episode after the other."""
        first = self.bounds[episodes]
        return arrays.ranges(first, self.bounds[episodes + 1] - first)

    def step_rows(self, episodes: IntArray) -> IntArray:
        """Row numbers of the step columns of `episodes`, one episode after the other."""
        at = self.parts_of(episodes)
        return arrays.ranges(self.part_start[at], self.part_length[at])

    def obs_rows(self, episodes: IntArray) -> IntArray:
        """Row numbers of the observation columns: T+1 of each episode.

        Of a part that is continued, the last observation is left out: the next part begins with it.
        """
        at = self.parts_of(episodes)
        is_last = np.zeros(len(at), np.int64)
        is_last[np.cumsum(self.bounds[episodes + 1] - self.bounds[episodes]) - 1] = 1
        return arrays.ranges(self.part_start[at] + self.part[at], self.part_length[at] + is_last)
