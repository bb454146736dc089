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
        self._done = everyone["done"][self._lanes.start : self._lanes.stop]
        # What was begun, done or failed: nothing is begun twice.
        self._begun = self._done.copy()

    def _work(self, number: int) -> None:
        channel = self._channel
        due = np.flatnonzero(self._requests != self._begun)
        channel.fence()
        for index in due[np.argsort(self._requests[due], kind="stable")].tolist():
            if channel.has_message() or channel.orphaned:
                # It was sent before some of these requests, or is the order to close: it comes first.
                return
            self._begun[index] = self._requests[index]
            try:
                self._serve_lane(index)
            except EnvironmentFailure as error:
                channel.send("failure", error)
        self._served = number
        channel.header[FINISHED] = number

    def _serve_lane(self, index: int) -> None:
        lane, row, want = self._lanes[index], int(self._rows[index]), int(self._wants[index])
        ended = run_group(self._group, range(lane, lane + 1), range(row, row + 1), int(self._ops[index]), want)
        self._answer(index, ended=bool(ended), want=want)

    def _answer(self, index: int, *, ended: bool, want: int) -> None:
        """Say that the request of a lane is done."""
        channel = self._channel
        self._ended[index] = ended
        if want:
            self._send_infos()
        if self._ragged:
            self._send_ragged()
        channel.fence()
        self._done[index] = self._begun[index]
        channel.fence()
        needed = channel.header[PARENT_DOZES]
        if needed == 1 or (needed and np.count_nonzero(self._all_done != self._all_taken) >= needed):
            channel.wake_parent()
