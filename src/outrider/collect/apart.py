"""Lanes that go at their own pace: each is decided for and sent on as it arrives, and has a place of its own in blocks.

A step is what it is in lockstep: decide once for all lanes that stand ready, send, receive, put down. Only what comes
back need not be what was sent last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from outrider.collect.goals import CHUNK, Goal
from outrider.collect.shares import Shares
from outrider.undisturbed import Calm
from outrider.vector.arrival import Arrival
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD
from outrider.vector.store import numbers_of

if TYPE_CHECKING:
    from outrider.collect.loop import Loop

__all__ = ["Apart"]

NO_LANES = np.zeros(0, np.int64)

FEW = 8
"""For so many lanes an array of numbers costs no more than a range, and less than finding out that it is one."""


class Came(NamedTuple):
    """What a wait has brought: lanes by index, int64 each.

    Those that stepped, that ended, that are gone for good, and whose step did nothing but reset them.
    """

    stepped: np.ndarray
    ended: np.ndarray
    dropped: np.ndarray
    dummies: np.ndarray


class Apart:
    """Where each lane stands, and how it moves on.

    A lane stands at the row of its observation, in a block or in its parking row. It enters the blocks one by one, in
    the order in which they were opened, so that a full block is a rollout. A lane that is under way stands at the row
    that its observation will go to.

    Lanes are named by their index here, counted from the first lane of the loop.

    Attributes:
        away: bool [N], the lanes that are under way.
        alive: bool [N], the lanes that there still are.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._lanes = loop.lane_numbers
        self._stride = loop.envs.store.num_envs
        count = len(self._lanes)
        self.away = np.zeros(count, np.bool_)
        self.alive = np.ones(count, np.bool_)
        self._held = np.zeros(count, np.bool_)
        # Lanes whose reset is under way; seldom any.
        self._resetting: set[int] = set()
        # Parts of a step that an interrupt must not tear.
        self._calm = Calm()
        self._parking = self._lanes + loop.envs.store.parking
        self._front = self._parking.copy()
        # Of a parked lane: the same row. It is at the end of the block that it was in last.
        self._last = self._parking.copy()
        self._serial = np.full(count, -1, np.int64)
        # Steps until the running episode of each lane is to be cut, 0 for never; and those that it is time for.
        self._first_cuts = False
        self._due = np.zeros(count, np.int64)
        self._to_cut = np.zeros(count, np.bool_)
        # The row of the last step of each lane, and whether it has been numbered.
        self._newest = np.full(count, -1, np.int64)
        self._numbered = np.ones(count, np.bool_)

    # -- what it is for ----------------------------------------------------------------------------------------------

    def run(self, goal: Goal) -> None:
        """Let lanes step until there is what `goal` asks for; what is under way then stays so until the next call."""
        rows = self._loop.tape.rows() if goal.counts_dummies else self._loop.tape.valid_rows()
        goal.start(np.bincount(rows % self._stride, minlength=self._stride)[self._lanes], self.alive)
        if goal.aligned:
            self._park(~self.away & (goal.counts == 0))
        with self._stretch():
            try:
                while not goal.is_reached:
                    going = self._going(goal)
                    if len(going):
                        self._send(going, STEP, goal.length)
                    came = self._receive()
                    goal.count(came.stepped, came.dummies)
            finally:
                # Those that otherwise go in lockstep begin the next block together.
                self._park(~self.away & ((self._front == self._last) | self._loop.envs.driver.in_lockstep))

    @contextmanager
    def _stretch(self) -> Iterator[None]:
        """Around steps."""
        with self._loop.putting_down(), self._calm.stretch():
            yield

    def _going(self, goal: Goal) -> np.ndarray:
        """The lanes that go on: those that may, and others with them if too few were under way for any to arrive."""
        going = goal.going & ~self.away
        batch = self._loop.envs.driver.batch
        if batch > 1:
            self._let_others_go(going, goal.counts, batch)
        index: np.ndarray = going.nonzero()[0]
        return index

    def _let_others_go(self, going: np.ndarray, counts: np.ndarray, batch: int) -> None:
        """Let those with the fewest rows go as well, if fewer than `batch` were under way else."""
        idle = ~self.away
        lacking = batch - int(self.away.sum()) - int(going.sum())
        if lacking > 0:
            others = np.flatnonzero(idle & ~going)
            going[others[np.argsort(counts[others], kind="stable")[:lacking]]] = True

    def run_episodes(self, shares: Shares) -> None:
        """Run the episodes of `shares`, no lane being under way; lanes that have none to begin idle."""
        first = int(self._lanes[0])
        running = np.zeros(len(self._lanes), np.bool_)
        running[shares.first() - first] = True
        if not running.any():
            return
        self._loop.reset_lanes(np.flatnonzero(running) + first)
        self._loop.know_columns(np.flatnonzero(running) + first)
        # Where not all wait for all, nobody can say how many others will have ended before a lane does.
        together = self._loop.envs.driver.in_lockstep
        with self._stretch():
            again = self._hand_on(shares, running, np.flatnonzero(running & ~self.alive))
            while running.any():
                if len(again):
                    self._send_resets(again)
                ready = np.flatnonzero(running & ~self.away)
                if len(ready):
                    op = shares.operation(ready + first) if together else STEP_AND_HOLD
                    self._held[ready] = op == STEP_AND_HOLD
                    self._send(ready, op, CHUNK)
                came = self._receive()
                begin = np.array([shares.claim(lane + first) for lane in came.ended.tolist()], np.bool_)
                running[came.ended[~begin]] = False
                again = came.ended[begin & self._held[came.ended]]
                if len(came.dropped):
                    again = np.concatenate([again, self._hand_on(shares, running, came.dropped)])

    def _hand_on(self, shares: Shares, running: np.ndarray, gone: np.ndarray) -> np.ndarray:
        """Let others begin the episodes of lanes that are gone; return those of them that idled till now."""
        first = self._lanes[0]
        for index in gone[running[gone]].tolist():
            running[index] = False
            shares.give_up(index + first, np.flatnonzero(self.alive) + first)
        idle = np.flatnonzero(self.alive & ~running) if len(gone) else NO_LANES
        begin = idle[[shares.claim(index + first) for index in idle.tolist()]] if len(idle) else NO_LANES
        running[begin] = True
        return begin

    def cut_after(self, steps: Any) -> None:
        """Cut the running episodes after so many steps, int64 [N] or one number, unless they end before; 0: do not."""
        self._due[:] = steps
        self._to_cut[:] = False
        self._first_cuts = self.is_to_cut

    @property
    def is_to_cut(self) -> bool:
        """Whether any running episode is to be cut."""
        return bool(self._due.any() or self._to_cut.any())

    def settle(self) -> None:
        """Wait for all that is under way, and put it down."""
        if self.away.any():
            with self._stretch():
                while self.away.any():
                    self._receive()

    def forget(self) -> None:
        """Nothing is under way any more, and nobody knows where the lanes are."""
        self.away[:] = False
        self._resetting.clear()
        self.bury()

    def bury(self) -> None:
        """Learn which lanes are gone for good."""
        self.alive[np.array(self._loop.envs.driver.dropped, np.int64) - self._lanes[0]] = False

    def stand_parked(self, lanes: np.ndarray) -> None:
        """These lanes, by number, stand at an observation in their parking rows, and begin a new block next."""
        index = lanes - self._lanes[0]
        self._front[index] = self._last[index] = self._parking[index]
        self._serial[index] = self._loop.tape.opened

    @property
    def rows_in_use(self) -> np.ndarray:
        """The rows of blocks that lanes stand in, or that what is under way is written to, int64."""
        inside = self._front != self._parking
        return np.concatenate([self._front[inside], self._front[self.away] - self._stride])

    # -- a step ------------------------------------------------------------------------------------------------------

    def _send(self, index: np.ndarray, op: Any, length: int) -> None:
        """Decide for lanes that stand at an observation, and send them on."""
        loop = self._loop
        if self._first_cuts:
            index = self._cut_due(index)
            if not len(index):
                return
        front = self._make_room(index, length)
        lanes, rows = _packed(self._lanes[index]), _packed(front)
        if not loop.take_decision(len(index)):
            loop.decider.decide_with_version(lanes, rows, loop.recorder)
        self._post(index, lanes, front + self._stride, op)

    def _cut_due(self, index: np.ndarray) -> np.ndarray:
        """Cut the episodes that it is time for; the first observation of the next one takes the row of the last."""
        due = index[self._to_cut[index]]
        if not len(due):
            return index
        for one in due.tolist():
            self._cut(one, int(self._front[one]))
        self._to_cut[due] = False
        self._resetting.update(due.tolist())
        self._post(due, _packed(self._lanes[due]), self._front[due], RESET)
        return np.setdiff1d(index, due)

    def _send_resets(self, index: np.ndarray) -> None:
        """Reset lanes that are held at their ends; the observation goes to the row behind the last one."""
        front = self._make_room(index, CHUNK)
        self._resetting.update(index.tolist())
        self._post(index, self._lanes[index], front + self._stride, RESET)

    def _post(self, index: np.ndarray, lanes: Any, rows: np.ndarray, op: Any) -> None:
        """Send lanes on to these rows."""
        loop = self._loop
        began = perf_counter()
        loop.interrupted = True
        self._front[index], self.away[index] = rows, True
        loop.envs.post(lanes, _packed(rows), op, loop.want)
        loop.uses = loop.envs.uses
        loop.interrupted = False
        loop.recorder.env_seconds += perf_counter() - began

    def _receive(self) -> Came:
        """Wait for as many lanes as the backend says, and put down all that have come."""
        loop = self._loop
        began = perf_counter()
        loop.interrupted = True
        arrival = loop.envs.recv()
        with self._calm:
            loop.interrupted = False
            loop.recorder.env_seconds += perf_counter() - began
            return self._put_down(arrival)

    def _put_down(self, arrival: Arrival) -> Came:
        loop, first = self._loop, int(self._lanes[0])
        lanes = numbers_of(arrival.lanes)
        index = lanes - first if first else lanes
        rows = numbers_of(arrival.rows)
        self.away[index] = False
        loop.keep_infos(lanes, rows, (arrival.info, arrival.final_info))
        ended, finals, dropped = self._index(arrival.ended), arrival.final_rows, self._index(arrival.dropped)
        if self._resetting:
            index, rows = self._begin_reset(index, rows)
        if arrival.lost or arrival.dropped:
            lost = self._index(arrival.lost)
            self._begin_anew(lost, dropped)
            stepped, kept = ~np.isin(index, lost), ~np.isin(ended, lost)
            index, rows, ended, finals = index[stepped], rows[stepped], ended[kept], finals[kept]
        dummies = self._index(arrival.dummies)
        if len(dummies) or arrival.blind:
            loop.mark(self._front[dummies].tolist(), self._front[self._index(arrival.blind)].tolist())
        ends = self._front[ended].tolist() if len(ended) else []
        if ends:
            loop.end(ends, finals.tolist())
        rows = rows - self._stride
        loop.tape.append(_packed(rows))
        self._newest[index], self._numbered[index] = rows, False
        if self._first_cuts:
            self._count_down(index, ended)
        loop.decider.stepped(index + first if first else index, arrival.dummies)
        if ends or len(dummies):
            loop.decider.begin(ended + first, ends)
            loop.decider.begin(dummies + first, self._front[dummies])
        return Came(index, ended, dropped, dummies)

    def _begin_reset(self, index: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Let episodes begin in those of the lanes that were reset, which stand in `rows`; return the others."""
        fresh = np.array([one in self._resetting for one in index.tolist()], np.bool_)
        self._resetting.difference_update(index.tolist())
        self._loop.decider.begin(self._lanes[index[fresh]], rows[fresh])
        return index[~fresh], rows[~fresh]

    def _index(self, lanes: Iterable[int]) -> np.ndarray:
        """Lanes by index, int64."""
        return np.array(list(lanes), np.int64) - self._lanes[0] if lanes else NO_LANES

    def _count_down(self, index: np.ndarray, ended: np.ndarray) -> None:
        """Lanes have come a step nearer to their first cut, or to none if they have ended."""
        self._due[ended] = 0
        waiting = index[self._due[index] > 0]
        self._due[waiting] -= 1
        self._to_cut[waiting[self._due[waiting] == 0]] = True
        self._first_cuts = self.is_to_cut

    def _begin_anew(self, lost: np.ndarray, dropped: np.ndarray) -> None:
        """Cut the episodes of lanes whose step did not happen; those that are there again stand where they stood."""
        loop, first = self._loop, self._lanes[0]
        came, here = self._front[lost].copy(), self._front[lost] - self._stride
        for index, row in zip(lost.tolist(), here.tolist(), strict=True):
            self._cut(index, row)
        for index in dropped.tolist():
            # Of one that was being reset no step is lost.
            if index not in self._resetting:
                self._cut(index, int(self._front[index]) - self._stride * int(self.away[index]))
        loop.decider.take_over(came, here)
        self._front[lost] = here
        loop.decider.begin(lost + first, here)
        self.alive[dropped] = self.away[dropped] = False
        self._resetting.difference_update(dropped.tolist())
        self._front[dropped] = self._last[dropped] = self._parking[dropped]

    def _cut(self, index: int, row: int) -> None:
        """Cut the running episode of a lane; the observation in `row` was its last."""
        loop = self._loop
        if not loop.decider.is_running(index + int(self._lanes[0])):
            return
        loop.tape.cut(int(self._newest[index]), row)
        if self._numbered[index]:
            loop.ledger.cut_running([index])

    def numbered(self) -> None:
        """All steps so far have their episode's number: a cut is none of their business any more."""
        self._numbered[:] = True

    # -- places ------------------------------------------------------------------------------------------------------

    def _make_room(self, index: np.ndarray, length: int) -> np.ndarray:
        """The rows that these lanes stand in, once none of them is the last one of a block.

        Those at the end of their block enter the next one; one of `length` steps is opened if need be.
        """
        front: np.ndarray = self._front[index]
        at_end = front == self._last[index]
        if np.count_nonzero(at_end):
            self._enter(index[at_end], length)
            front = self._front[index]
        return front

    def _enter(self, full: np.ndarray, length: int) -> None:
        """Let lanes enter the block behind the one that they are in."""
        loop, serials = self._loop, self._serial[full]
        for serial in np.unique(serials).tolist():
            some = full[serials == serial]
            block = loop.tape.block_after(serial) or loop.open_block(length)
            rows = self._lanes[some] + block.base
            loop.decider.move(_packed(self._front[some]), _packed(rows), decided=loop.decided)
            self._front[some] = rows
            self._last[some] = rows + (block.rows - self._stride)
            self._serial[some] = block.serial

    def _park(self, which: np.ndarray) -> None:
        """Let lanes that stand in a block leave it for good."""
        index = np.flatnonzero(which & (self._front != self._parking))
        if len(index):
            self._loop.decider.move(_packed(self._front[index]), _packed(self._parking[index]), decided=False)
            self._front[index] = self._last[index] = self._parking[index]


def _packed(numbers: np.ndarray) -> Any:
    """A range, if these are consecutive numbers of several lanes: slices are faster than index arrays."""
    count = len(numbers)
    if count > FEW and numbers[-1] - numbers[0] == count - 1 and bool((numbers[1:] > numbers[:-1]).all()):
        return range(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers
