"""What a worker of `Processes(wait_for=...)` runs: its lanes one at a time; see `finishers` for the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.errors import EnvironmentFailure
from outrider.vector.bootstrap import WorkerStart
from outrider.vector.inline import run as run_group
from outrider.vector.worker import FINISHED, PARENT_DOZES, Server, host

__all__ = ["LaneServer", "run"]


def run(start: WorkerStart) -> None:
    """Build the environments of a worker, describe them, and serve their lanes one by one until told to close."""
    host(start, lambda channel, group, spin: LaneServer(channel, group, spin=spin).serve())


class LaneServer(Server):
    """Serves its lanes one at a time, the oldest request first, and says so lane by lane."""

    def __init__(self, *arguments: Any, spin: bool) -> None:
        super().__init__(*arguments, spin=spin)
        everyone = self._group.store.mailbox.arrays
        self._all_done, self._all_taken = everyone["done"], everyone["taken"]
        done = everyone["done"][self._lanes.start : self._lanes.stop]
        # What was begun, done or failed: nothing is begun twice.
        self._begun = done.copy()
        # Single numbers are read and written through views of the memory in a third of the time that arrays take.
        self._request_of, self._begun_of, self._done_of = (memoryview(a) for a in (self._requests, self._begun, done))
        self._row_of, self._op_of, self._want_of = (memoryview(a) for a in (self._rows, self._ops, self._wants))
        self._ended_of = memoryview(self._ended)

    def _work(self, number: int) -> None:
        channel = self._channel
        due = self._due()
        channel.fence()
        for index in due:
            if channel.has_message() or channel.orphaned:
                # It was sent before some of these requests, or is the order to close: it comes first.
                return
            self._begun_of[index] = self._request_of[index]
            try:
                self._serve_lane(index)
            except EnvironmentFailure as error:
                channel.send("failure", error)
        self._served = number
        channel.header[FINISHED] = number

    def _due(self) -> list[int]:
        """Lanes, by index, with requests that were not begun, the oldest first."""
        if len(self._lanes) == 1:
            return [0] if self._request_of[0] != self._begun_of[0] else []
        due: list[int] = (self._requests != self._begun).nonzero()[0].tolist()
        due.sort(key=self._request_of.__getitem__)
        return due

    def _serve_lane(self, index: int) -> None:
        lane, row, want = self._lanes[index], self._row_of[index], self._want_of[index]
        ended = run_group(self._group, range(lane, lane + 1), range(row, row + 1), self._op_of[index], want)
        self._answer(index, ended=bool(ended), want=want)

    def _answer(self, index: int, *, ended: bool, want: int) -> None:
        """Say that the request of a lane is done."""
        channel = self._channel
        self._ended_of[index] = ended
        if want:
            self._send_infos()
        if self._ragged:
            self._send_ragged()
        channel.fence()
        self._done_of[index] = self._begun_of[index]
        channel.fence()
        needed = channel.header[PARENT_DOZES]
        if needed == 1 or (needed and np.count_nonzero(self._all_done != self._all_taken) >= needed):
            channel.wake_parent()
