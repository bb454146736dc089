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
from outrider.policies.base import Policy
from outrider.records.step_spec import StepSpec
from outrider.vector.arrival import Arrival
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD
from outrider.vector.env import VecEnv
from outrider.vector.group import NO_INFOS, SOME_INFOS

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
        self._store = envs.store
        self._lanes = envs.lanes
        self.tape = Tape(self._store, envs.info_keys)
        self._want = SOME_INFOS if envs.info_keys else NO_INFOS
        self.ledger = Ledger(self._lanes, recorder or Recorder(len(self._lanes)))
        self.decider = Decider(envs, policy, self.tape, terms)
        self._parking = self._rows(self._store.parking)
        self._decided = False
        self._interrupted = False
        self._needs_reset = np.ones(len(self._lanes), np.bool_)

    @property
    def lane_numbers(self) -> np.ndarray:
        """All lanes, int64 [N]."""
        return np.arange(self._lanes.start, self._lanes.stop)

    # -- stepping ----------------------------------------------------------------------------------------------------

    def turn(self, lanes: Any, front: Any, op: Any, resets: np.ndarray = NO_LANES) -> list[int]:
        """Let `lanes` take a step from the observations in rows `front`; reset other lanes in the same turn.

        Args:
            lanes: range or int64 array [n].
            front: range or int64 array [n], the rows of their observations.
            op: `STEP` or `STEP_AND_HOLD`, or an int8 array of them.
            resets: lanes that stand at an end and begin an episode.

        Returns:
            The lanes that ended, in order.
        """
        if not self._decided:
            self.decider.decide(lanes, front, self.ledger.recorder)
        if len(resets):
            arrival = self._exchange(*self._with_resets(lanes, front, op, resets))
        else:
            arrival = self._exchange(lanes, self._shifted(front), op)
        if arrival.ended:
            self._end(arrival, lanes, front)
        else:
            self._put_down(lanes, front)
        self._interrupted = self._decided = False
        return arrival.ended

    def _exchange(self, lanes: Any, rows: Any, op: Any) -> Arrival:
        """Send and receive. From here on the lanes are ahead of the tape: the caller says when that is over."""
        began = perf_counter()
        self._interrupted = True
        self.envs.post(lanes, rows, op, self._want)
        arrival = self.envs.recv()
        self.ledger.recorder.env_seconds += perf_counter() - began
        if self._want:
            self._keep_infos(arrival)
        return arrival

    def _keep_infos(self, arrival: Arrival) -> None:
        """Keep what came with the observations, and what came with the steps before them."""
        infos = {**arrival.info, **arrival.final_info}
        for lane, row in zip(arrival.env_id.tolist(), arrival.row_numbers, strict=True):
            self.tape.obs_infos.put(row, arrival.info.get(lane, {}))
            # Of a lane that was reset this is the row before its first step, which nobody reads.
            self.tape.infos.put(row - self._store.num_envs, infos.get(lane, {}))

    def _put_down(self, lanes: Any, front: Any) -> None:
        self.tape.append(front)
        self.decider.stepped(lanes)

    def _end(self, arrival: Arrival, lanes: Any, front: Any) -> None:
        """Keep the true last observations of the lanes that ended; their next episodes begin behind them."""
        ended = np.array(arrival.ended, np.int64)
        at = ended - lanes.start if type(lanes) is range else np.searchsorted(lanes, ended)
        steps = at + front.start if type(front) is range else front[at]
        after = steps + self._store.num_envs
        # Before the rows are on the tape: at no time is there an end without its last observation.
        self.tape.side.add(steps, self.decider.last_leaves(arrival.final_rows, after))
        self._put_down(lanes, front)
        self.decider.begin(ended, after)

    def _with_resets(self, lanes: Any, front: Any, op: Any, resets: np.ndarray) -> tuple[Any, Any, Any]:
        both = np.concatenate([np.asarray(lanes), resets])
        order = np.argsort(both)
        rows = both + (front[0] - lanes[0] + self._store.num_envs)
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
            self.ledger.recorder.seconds += perf_counter() - began

    def fill(self, base: int, turns: int) -> None:
        """Take `turns` steps of every lane into the block that begins at row `base`; all stand ready."""
        before, stride = self.tape.count, self._store.num_envs
        front = self._rows(base)
        self._enter(self._parking, front, base, turns)
        try:
            for _ in range(turns):
                self.turn(self._lanes, front, STEP)
                front = range(front.start + stride, front.stop + stride)
        finally:
            self._stamp(before)
            # An interruption can come between a step and the line behind it; the tape knows how far the lanes are.
            taken = self.tape.count - before
            front = self._rows(base + taken // len(self._lanes) * stride)
            self.decider.move(front, self._parking, decided=self._decided)

    def run_episodes(self, shares: Shares) -> None:
        """Run the episodes of `shares`; what ran before was cut."""
        with self.calls():
            self.recover()
            self._run_episodes(shares)

    def _run_episodes(self, shares: Shares) -> None:
        """Step whoever has an episode to run until every one that was begun is over; the other lanes idle."""
        stepping, resetting = shares.first(), NO_LANES
        before, stride = self.tape.count, self._store.num_envs
        self._needs_reset[:] = True
        self._reset(stepping)
        parked = stepping + self._store.parking
        if self.decider.columns is None:
            self._decide_ahead(stepping, parked)
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
            self._stamp(before)
            # All have ended, but after a failure: what was running then is not continued.
            self.cut_running()
            self._needs_reset[:] = True

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
            ended = self.turn(self._packed(stepping), self._packed(stepping + start), op, resetting)
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

    def _stamp(self, before: int) -> None:
        """Number the rows that came after the first `before`."""
        if self.decider.columns is not None:
            self.ledger.stamp(self.tape.rows()[before:], self._store, self.decider.columns)
        self.tape.release()

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
        self.decider.decide_ahead(lanes, rows, self.ledger.recorder)
        self._decided = True

    def reset(self) -> None:
        """Cut what is running and reset every lane."""
        self.recover()
        self.cut_running()
        self._needs_reset[:] = True
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
        """After an interruption in an exchange, where the lanes are is not known: cut what ran, begin anew."""
        if self._interrupted:
            self.envs.drain()
            self.tape.prune()
            self.cut_running()
            self._needs_reset[:] = True
            self._interrupted = False

    def cut_running(self) -> None:
        """Cut the running episodes, and say so in their last rows as far as they were not handed out."""
        self.tape.cut_open()
        self.ledger.cut_running()
        self._decided = False

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, base: int) -> range:
        """The rows of all lanes at the time step that begins at row `base`."""
        return range(base + self._lanes.start, base + self._lanes.stop)

    def _shifted(self, rows: Any) -> Any:
        stride = self._store.num_envs
        return range(rows.start + stride, rows.stop + stride) if type(rows) is range else rows + stride

    def _packed(self, numbers: np.ndarray) -> Any:
        """A range, if these are consecutive numbers for all lanes: slices are faster than index arrays."""
        if len(numbers) == len(self._lanes):
            return range(int(numbers[0]), int(numbers[-1]) + 1)
        return numbers
