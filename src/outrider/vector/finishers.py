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
"""How many turns of the processor it takes to count the lanes that have arrived."""

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
        self._infos: tuple[dict[int, Any], dict[int, Any]] = ({}, {})

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
        self._issue(self._workers_of(lanes))
        self._posting = False

    def _workers_of(self, lanes: np.ndarray) -> list[int]:
        """The workers that have these lanes, in order; of few lanes a set finds them sooner than NumPy."""
        return sorted(set(self._owner[lanes].tolist()))

    def wait(self, least: int | None = None) -> Returned:
        """See `Driver.wait`. One that was interrupted can be called again."""
        self._check_open()
        if self._posting:
            # An interrupt may have come between a request and the wake-up for it.
            self._issue(range(len(self._headers)))
            self._posting = False
        while True:
            try:
                arrived = self._arrivals(least)
            except EnvironmentFailure as error:
                self._survive(error)
            else:
                return self._take(arrived[np.argsort(self._request[arrived], kind="stable")])

    def _arrivals(self, least: int | None) -> np.ndarray:
        """Wait for `least` lanes, and for what was said of them; return all that have arrived."""
        self._wait_for_lanes(least)
        arrived = np.flatnonzero(self._done != self._taken)
        self._fence()
        for index in self._workers_of(arrived):
            self._crew.members[index].catch_up()
        return arrived

    def _survive(self, error: EnvironmentFailure) -> None:
        """Do what a failure asks for: here, give up."""
        self._fail()
        raise error

    def _wait_for_lanes(self, least: int | None) -> None:
        away = int(np.count_nonzero(self._request != self._taken))
        needed = away if least is None else min(least, away)
        began = time.monotonic()
        turns = LONG_TURNS if self._usual < SHORT_WAIT and self._ordered else self._turns
        for _ in range(turns // COUNTING):
            if self._arrived() >= needed:
                break
            os.sched_yield()
        if self._arrived() < needed:
            self._doze_until(needed)
        ended = time.monotonic()
        self._usual += (ended - began - self._usual) / 8
        if ended > self._looked + LOOK_AFTER:
            self._crew.listen(0)
            self._looked = ended

    def _arrived(self) -> int:
        return int(np.count_nonzero(self._done != self._taken))

    def _doze_until(self, needed: int) -> None:
        """Sleep until so many lanes have arrived; whichever worker sees that they have, rings."""
        ordered = in_order()
        # Where stores may be seen out of order no worker can count on the numbers of the others: each lane rings.
        self._dozes[:] = needed if ordered else 1
        self._fence()
        while self._arrived() < needed:
            self._crew.listen()
        self._looked = time.monotonic()
        if ordered:
            self._dozes[:] = 0

    def _take(self, arrived: np.ndarray) -> Returned:
        """Return these lanes, which are from now on no longer under way."""
        if self._ragged:
            self._read_ragged()
        infos, final_infos = self._infos
        for index in self._workers_of(arrived):
            for some, final in self._crew.members[index].take("infos"):
                infos.update(some)
                final_infos.update(final)
        found: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        if infos or final_infos:
            for kept, taken in zip(self._infos, found, strict=True):
                taken.update({lane: kept.pop(lane) for lane in arrived.tolist() if lane in kept})
        ended = arrived[self._mailbox["ended"][arrived]].tolist()
        self._taken[arrived] = self._done[arrived]
        if not (self._request != self._taken).any():
            self._busy.clear()
        whole = len(arrived) == self.num_envs and self._whole == self._number
        return Returned(range(self.num_envs) if whole else arrived, ended, *found)
