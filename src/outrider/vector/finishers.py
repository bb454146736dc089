"""First finishers in worker processes: the driver of `Processes(wait_for=...)`; its workers run `lane_server`.

A request is done lane by lane. Each lane has three numbers in the mailbox: `request`, the last that it was given,
`done`, the last that its worker has finished, and `taken`, the last whose result the parent has returned. They are the
truth: a lane is under way where `request` and `taken` differ, it has arrived where `done` and `taken` do.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from outrider.errors import EnvironmentFailure
from outrider.vector.driver import Returned
from outrider.vector.processes import ProcessDriver, in_order
from outrider.vector.store import HEADER_WORDS, headers, numbers_of
from outrider.vector.worker import PARENT_DOZES

__all__ = ["FirstFinishers"]

COUNTING = 3
"""How many turns of the processor it takes to look for lanes that have arrived."""

LONG_TURNS, SHORT_WAIT = 300, 200e-6
"""Where arrivals follow each other within so many seconds, it is worth as many turns to be awake when the next comes:
to be woken takes as long as a whole step of a collector. Whoever waits longer sleeps."""

LOOK_AFTER = 0.1
"""Seconds after which a wait that finds enough arrivals looks whether a worker has died."""


class FirstFinishers(ProcessDriver):
    """Returns the lanes that have arrived while others are still under way."""

    def __init__(self, *arguments: Any, wait_for: int | None) -> None:
        super().__init__(*arguments)
        self.wait_for = wait_for
        box = self._mailbox
        self._request, self._done, self._taken = box["request"], box["done"], box["taken"]
        words = np.frombuffer(headers(self._crew.mapping), np.int64).reshape(-1, HEADER_WORDS)
        self._dozes = words[: len(self._headers), PARENT_DOZES]
        self._number = 0
        self._ordered = in_order() and hasattr(os, "sched_yield")
        # How long the last waits took, a mean in which each weighs less than the one behind it.
        self._usual = SHORT_WAIT
        # The last request that was one for all lanes, and for consecutive rows.
        self._whole = 0
        self._posting = False
        self._looked = 0.0
        # The infos that were read, by lane.
        self._infos: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        # Of the few lanes that arrive at a time Python reads numbers sooner than NumPy.
        self._request_of, self._ended_of = memoryview(self._request), memoryview(box["ended"])
        self._worker_of_lane: list[int] = self._owner.tolist()

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`."""
        self._check_open()
        self._posting = True
        if type(lanes) is range and len(lanes) == self.num_envs and type(rows) is range:
            self._whole = self._number + 1
        lanes = numbers_of(lanes)
        mailbox = self._mailbox
        mailbox["op"][lanes], mailbox["row"][lanes], mailbox["want"][lanes] = op, numbers_of(rows), want
        self._fence()
        self._number += 1
        self._request[lanes] = self._number
        self._publish(self._workers_of(lanes.tolist()))
        self._posting = False

    def _workers_of(self, lanes: list[int]) -> list[int]:
        """The workers that have these lanes, in order."""
        owner = self._worker_of_lane
        return sorted({owner[lane] for lane in lanes})

    def wait(self, least: int | None = None) -> Returned:
        """See `Driver.wait`. One that was interrupted can be called again."""
        self._check_open()
        if self._posting:
            # An interrupt may have come between a request and the wake-up for it.
            self._publish(range(len(self._headers)))
            self._posting = False
        while True:
            try:
                arrived = self._arrivals(least)
            except EnvironmentFailure as error:
                self._survive(error)
            else:
                return self._take(arrived)

    def _arrivals(self, least: int | None) -> np.ndarray:
        """Wait for `least` lanes, and for what was said of them; return all that have arrived, in order of requests."""
        lanes = self._wait_for_lanes(least).tolist()
        lanes.sort(key=self._request_of.__getitem__)
        self._fence()
        infos, final_infos = self._infos
        for index in self._workers_of(lanes):
            member = self._crew.members[index]
            member.catch_up()
            for some, final in member.take("infos"):
                infos.update(some)
                final_infos.update(final)
        return np.array(lanes, np.int64)

    def _survive(self, error: EnvironmentFailure) -> None:
        """Do what a failure asks for: here, give up."""
        self._fail()
        raise error

    def _wait_for_lanes(self, least: int | None) -> np.ndarray:
        """The lanes that have arrived, in order of lanes, once there are so many."""
        began = time.monotonic()
        arrived = self._arrived()
        if least is None or len(arrived) < least:
            arrived = self._wait_for_more(least)
        ended = time.monotonic()
        self._usual += (ended - began - self._usual) / 8
        if ended > self._looked + LOOK_AFTER:
            self._crew.listen(0)
            self._looked = ended
        return arrived

    def _wait_for_more(self, least: int | None) -> np.ndarray:
        away = int(np.count_nonzero(self._request != self._taken))
        needed = away if least is None else min(least, away)
        turns = LONG_TURNS if self._usual < SHORT_WAIT and self._ordered else self._turns
        for _ in range(turns // COUNTING):
            arrived = self._arrived()
            if len(arrived) >= needed:
                return arrived
            os.sched_yield()
        return self._doze_until(needed)

    def _arrived(self) -> np.ndarray:
        found: np.ndarray = (self._done != self._taken).nonzero()[0]
        return found

    def _doze_until(self, needed: int) -> np.ndarray:
        """Sleep until so many lanes have arrived; whichever worker sees that they have, rings."""
        ordered = in_order()
        # Where stores may be seen out of order no worker can count on the numbers of the others: each lane rings.
        self._dozes[:] = needed if ordered else 1
        self._fence()
        while len(arrived := self._arrived()) < needed:
            self._crew.listen()
        self._looked = time.monotonic()
        if ordered:
            self._dozes[:] = 0
        return arrived

    def _take(self, arrived: np.ndarray) -> Returned:
        """Return these lanes, which are from now on no longer under way."""
        if self._ragged:
            self._read_ragged()
        lanes = arrived.tolist()
        found: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        for kept, taken in zip(self._infos, found, strict=True):
            if kept:
                taken.update({lane: kept.pop(lane) for lane in lanes if lane in kept})
        ended = [lane for lane in lanes if self._ended_of[lane]]
        self._taken[arrived] = self._done[arrived]
        whole = len(lanes) == self.num_envs and self._whole == self._number
        return Returned(range(self.num_envs) if whole else arrived, ended, *found)

    @property
    def _is_busy(self) -> bool:
        return bool((self._request != self._taken).any())
