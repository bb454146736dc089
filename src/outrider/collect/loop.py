"""The loop: environments and a policy in, rows out.

`turn` is all of it: decide for the lanes whose turn it is, send their actions, receive, put down what arrived. Whoever
calls it says which lanes go on, and so when to stop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from outrider.collect.decide import Decider, Terms
from outrider.collect.ledger import Ledger
from outrider.collect.shares import Shares
from outrider.collect.stats import Recorder
from outrider.collect.tape import Tape
from outrider.collect.undisturbed import undisturbed
from outrider.policies.base import Policy
from outrider.records.step_spec import StepSpec
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD, Returned
from outrider.vector.env import VecEnv
from outrider.vector.group import NO_INFOS, SOME_INFOS
from outrider.vector.store import numbers_of

__all__ = ["Loop"]

CHUNK = 128
"""Turns for which `run_episodes` takes rows at a time: it cannot know how many it will need."""

NO_LANES = np.zeros(0, np.int64)


class Loop:
    """Steps lanes by the decisions of a policy and writes all that comes of it to a tape.

    Between calls every lane stands at an observation in the parking rows, or needs a reset.

    Attributes:
        envs: the environments.
        tape: what was collected and not handed out.
        ledger: counts of episodes and time.
        decider: the policy and its columns.
    """

    def __init__(self, envs: VecEnv, policy: Policy, terms: Terms, recorder: Recorder | None = None) -> None:
        self.envs = envs
        self._driver = envs.driver
        self._store = envs.store
        self._lanes = envs.lanes
        self.tape = Tape(self._store, envs.info_keys)
        self._want = SOME_INFOS if envs.info_keys else NO_INFOS
        self._recorder = recorder or Recorder(len(self._lanes))
        self.ledger = Ledger(self._lanes, self._recorder)
        self.decider = Decider(envs, policy, self.tape, terms)
        self._parking = self._rows(self._store.parking)
        self._decided = False
        self._interrupted = False
        # Whether the end of a call was torn: rows may be missing, lanes may not stand where they seem to.
        self._unsettled = False
        self._needs_reset = np.ones(len(self._lanes), np.bool_)

    @property
    def lane_numbers(self) -> np.ndarray:
        """All lanes, int64 [N]."""
        return np.arange(self._lanes.start, self._lanes.stop)

    # -- stepping ----------------------------------------------------------------------------------------------------

    def turn(self, lanes: Any, front: Any, after: Any, op: Any, resets: np.ndarray = NO_LANES) -> list[int]:
        """Let `lanes` take a step from the observations in rows `front`; reset other lanes in the same turn.

        Args:
            lanes: range or int64 array [n].
            front: range or int64 array [n], the rows of their observations.
            after: likewise, one time step later: the rows of their next observations.
            op: `STEP` or `STEP_AND_HOLD`, or an int8 array of them.
            resets: lanes that stand at an end and begin an episode.

        Returns:
            The lanes that ended, in order.
        """
        if not self._decided:
            self.decider.decide(lanes, front, self._recorder)
        if len(resets):
            ended = self._exchange(*self._with_resets(lanes, after, op, resets))
        else:
            ended = self._exchange(lanes, after, op)
        begins = self._end(ended, lanes, after, op) if ended else []
        # With the next line the step is done, also if an interruption comes right behind it.
        self.decider.stepped(lanes)
        if begins:
            self.decider.begin(ended, begins)
        self._interrupted = self._decided = False
        return ended

    def _exchange(self, lanes: Any, rows: Any, op: Any) -> list[int]:
        """Send and receive; return the lanes that ended.

        From here on the lanes are ahead of what is known: the caller says when that is over.
        """
        began = perf_counter()
        self._interrupted = True
        back = self._driver.exchange(lanes, rows, op, self._want)
        self._recorder.env_seconds += perf_counter() - began
        if self._want:
            self._keep_infos(lanes, rows, back)
        return back.ended

    def _keep_infos(self, lanes: Any, rows: Any, back: Returned) -> None:
        """Keep what came with the observations, and what came with the steps before them."""
        infos = {**back.infos, **back.final_infos}
        for lane, row in zip(np.asarray(lanes).tolist(), np.asarray(rows).tolist(), strict=True):
            self.tape.obs_infos.put(row, back.infos.get(lane, {}))
            # Of a lane that was reset this is the row before its first step, which nobody reads.
            self.tape.infos.put(row - self._store.num_envs, infos.get(lane, {}))

    def _end(self, ended: list[int], lanes: Any, after: Any, op: Any) -> list[int]:
        """Keep the true last observations of the lanes that ended; return the rows in which their next ones stand."""
        rows: list[int]
        if type(lanes) is range:
            rows = [lane - lanes.start + after.start for lane in ended]
        else:
            rows = after[np.searchsorted(lanes, ended)].tolist()
        last = self._last_rows(lanes, rows, op, ended)
        for row, observation in zip(rows, last, strict=True):
            self.tape.side.add(row - self._store.num_envs, observation, row)
        return rows

    def _last_rows(self, lanes: Any, rows: list[int], op: Any, ended: list[int]) -> list[int]:
        """Where the true last observations are: aside if the lane was reset, in its own row if it is held."""
        final = self._store.final
        if type(op) is int and op == STEP:
            return [final + lane for lane in ended]
        at = np.searchsorted(numbers_of(lanes), ended)
        held = np.broadcast_to(op, (len(lanes),))[at] == STEP_AND_HOLD
        return [row if stays else final + lane for lane, row, stays in zip(ended, rows, held, strict=True)]

    def _with_resets(self, lanes: Any, after: Any, op: Any, resets: np.ndarray) -> tuple[Any, Any, Any]:
        both = np.concatenate([np.asarray(lanes), resets])
        order = np.argsort(both)
        rows = both + (after[0] - lanes[0])
        ops = np.concatenate([np.broadcast_to(op, len(lanes)), np.full(len(resets), RESET)]).astype(np.int8)
        return both[order], rows[order], ops[order]

    def advance(self, turns: int) -> None:
        """Let every lane take `turns` steps."""
        if turns:
            with self.calls():
                self.ready()
                self.fill(self.tape.open(turns), turns)

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Around the calls of the policy: enter its session, count the time."""
        began = perf_counter()
        try:
            with self.decider.session():
                yield
        finally:
            self._recorder.seconds += perf_counter() - began

    def fill(self, base: int, turns: int) -> None:
        """Take `turns` steps of every lane into the block that begins at row `base`; all stand ready."""
        before, stride = self.decider.together, self._store.num_envs
        front = self._rows(base)
        self._unsettled = True
        self._enter(self._parking, front, base, turns)
        try:
            for _ in range(turns):
                after = range(front.start + stride, front.stop + stride)
                self.turn(self._lanes, front, after, STEP)
                front = after
        finally:
            with undisturbed():
                taken = self.decider.together - before
                self._put_down(base, taken)
                self.decider.move(self._rows(base + taken * stride), self._parking, decided=self._decided)
                if taken < turns:
                    self.tape.release()
                self._unsettled = False

    def _put_down(self, base: int, turns: int) -> None:
        """Put the first `turns` steps of all lanes of a block on the tape."""
        stride = self._store.num_envs
        rows: Any = range(base, base + turns * stride)
        if len(self._lanes) < stride:
            rows = np.add.outer(np.arange(turns) * stride + base, self.lane_numbers).reshape(-1)
        self.tape.append(rows)
        self._stamp(numbers_of(rows))

    def run_episodes(self, shares: Shares) -> None:
        """Run the episodes of `shares`; what ran before was cut."""
        with self.calls():
            self.recover()
            self._run_episodes(shares)

    def _run_episodes(self, shares: Shares) -> None:
        """Step whoever has an episode to run until every one that was begun is over; the other lanes idle."""
        stepping, resetting = shares.first(), NO_LANES
        if not len(stepping):
            return
        before, stride = self.tape.count, self._store.num_envs
        self._reset(stepping)
        parked = stepping + self._store.parking
        if self.decider.columns is None:
            self._decide_ahead(stepping, parked)
        self._unsettled = True
        try:
            while len(stepping) or len(resetting):
                # All lanes take rows of one block at the same time step; lanes that idle leave theirs empty.
                base = self.tape.open(CHUNK)
                self._enter(parked, stepping + base, base, CHUNK)
                for start in range(base, base + CHUNK * stride, stride):
                    stepping, resetting = self._episodes_turn(start, stepping, resetting, shares)
                    if not len(stepping) and not len(resetting):
                        break
                # Those that are being reset have no observation yet: the turn that resets them moves on with them.
                parked = stepping + (base + CHUNK * stride)
        finally:
            with undisturbed():
                self.tape.prune()
                self._stamp(self.tape.rows()[before:])
                self.tape.release()
                # All have ended, but after a failure: what was running then is not continued.
                self.cut_running()
                self._unsettled = False

    def _episodes_turn(
        self, start: int, stepping: np.ndarray, resetting: np.ndarray, shares: Shares
    ) -> tuple[np.ndarray, np.ndarray]:
        """One turn at the time step that begins at row `start`; return who steps and who is reset in the next."""
        after = start + self._store.num_envs
        if not len(stepping):
            self._exchange(resetting, resetting + after, RESET)
            self._interrupted = False
            ended, held = [], []
        else:
            op = shares.operation(stepping)
            front, next_front = self._packed(stepping + start), self._packed(stepping + after)
            ended = self.turn(self._packed(stepping), front, next_front, op, resetting)
            self.tape.append(front)
            if not ended and not len(resetting):
                return stepping, NO_LANES
            hold = np.broadcast_to(op, len(stepping)) == STEP_AND_HOLD
            held = [lane for lane in ended if hold[np.searchsorted(stepping, lane)]]
        self.decider.begin(resetting, resetting + after)
        begin = [lane for lane in ended if shares.claim(lane)]
        again = np.array([lane for lane in begin if lane in held], np.int64)
        going = np.setdiff1d(stepping, np.array(held, np.int64))
        return np.union1d(going, resetting), again

    def _enter(self, source: Any, target: Any, base: int, turns: int) -> None:
        """Prepare the rows of a block and move the lanes into it: their observations become its first rows."""
        self.decider.prepare(base, turns * self._store.num_envs)
        self.decider.move(source, target, decided=self._decided)

    def _stamp(self, rows: np.ndarray) -> None:
        """Number new rows, int64 [R], each lane's in order of time."""
        if self.decider.columns is not None:
            self.ledger.stamp(rows, self._store, self.decider.columns)

    # -- beginnings and cuts -----------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Let every lane stand at an observation, and know what the policy returns."""
        self.recover()
        self._reset(self.lane_numbers[self._needs_reset])
        if self.decider.columns is None:
            self._decide_ahead(self._lanes, self._parking)

    def spec(self) -> StepSpec:
        """What rows look like; the first decision, where it has not been made."""
        if self.decider.columns is None:
            with self.calls():
                self.ready()
        return self.decider.spec(self.envs)

    def _decide_ahead(self, lanes: Any, rows: Any) -> None:
        """Decide in the parking rows, to learn what columns there are; the decision is kept for the next turn."""
        self.decider.decide_ahead(lanes, rows, self._recorder)
        self._decided = True

    def reset(self) -> None:
        """Cut what is running and reset every lane."""
        self.recover()
        self.cut_running()
        self._reset(self.lane_numbers)

    def _reset(self, lanes: np.ndarray) -> None:
        """Reset `lanes` into their parking rows."""
        if len(lanes):
            rows = lanes + self._store.parking
            self._exchange(self._packed(lanes), self._packed(rows), RESET)
            self.decider.begin(lanes, rows)
            self._needs_reset[lanes - self._lanes.start] = False
            self._interrupted = self._decided = False

    def recover(self) -> None:
        """After an interruption in an exchange or at the end of a call nobody knows where the lanes are: begin anew."""
        if self._interrupted or self._unsettled:
            if self._interrupted:
                self._driver.wait()
            self.tape.prune()
            self.tape.release()
            self.cut_running()
            self._interrupted = self._unsettled = False

    def cut_running(self) -> None:
        """Cut the running episodes, say so in their last rows as far as they were not handed out; all need a reset."""
        with undisturbed():
            self._needs_reset[:] = True
            self.tape.cut_open()
            self.ledger.cut_running()
            self._decided = False

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, base: int) -> range:
        """The rows of all lanes at the time step that begins at row `base`."""
        return range(base + self._lanes.start, base + self._lanes.stop)

    def _packed(self, numbers: np.ndarray) -> Any:
        """A range, if these are consecutive numbers for all lanes: slices are faster than index arrays."""
        if len(numbers) == len(self._lanes):
            return range(int(numbers[0]), int(numbers[-1]) + 1)
        return numbers
