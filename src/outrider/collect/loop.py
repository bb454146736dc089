"""The loop: environments and a policy in, rows out.

`turn` is all of it, where all lanes go together: decide for them, send their actions, receive, put down what arrived.
`Apart` does the same for lanes that go at their own pace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from outrider.collect.apart import Apart
from outrider.collect.decide import Decider, Terms
from outrider.collect.goals import Goal
from outrider.collect.ledger import Ledger
from outrider.collect.shares import Shares
from outrider.collect.stats import Recorder
from outrider.collect.tape import Block, Tape
from outrider.policies.base import Policy
from outrider.records.step_spec import StepSpec
from outrider.undisturbed import undisturbed
from outrider.vector.driver import RESET, STEP, Returned
from outrider.vector.env import VecEnv
from outrider.vector.group import NO_INFOS, SOME_INFOS
from outrider.vector.store import numbers_of

__all__ = ["Loop"]


class Loop:
    """Steps lanes by the decisions of a policy and writes all that comes of it to a tape.

    Between calls every lane stands at an observation, in the parking rows or where `Apart` has it, is under way there,
    or needs a reset.

    Attributes:
        envs: the environments.
        want: which infos they are asked for.
        tape: what was collected and not handed out.
        recorder: counts and times.
        ledger: the running episodes.
        decider: the policy and its columns.
        apart: lanes that go at their own pace.
        uses: how often the environments were used when they were last used from here.
        decided: whether a decision has been made already for the observations in the parking rows.
        interrupted: whether an exchange was broken off, after which nobody knows where the lanes are.
    """

    def __init__(self, envs: VecEnv, policy: Policy, terms: Terms, recorder: Recorder | None = None) -> None:
        self.envs = envs
        self._driver = envs.driver
        self._store = envs.store
        self._lanes = envs.lanes
        self.tape = Tape(self._store, envs.info_keys)
        self.want = SOME_INFOS if envs.info_keys else NO_INFOS
        reward_shape = self._store.reward.shape[1:]
        self.recorder = recorder or Recorder(len(self._lanes), reward_shape)
        self.ledger = Ledger(self._lanes, self.recorder, reward_shape)
        self.decider = Decider(envs, policy, self.tape, terms)
        self.apart = Apart(self)
        self._parking = self._rows(self._store.parking)
        self.uses = envs.uses
        self.decided = False
        self._decided_for = 0
        self.interrupted = False
        # Whether the end of a call was torn: rows may be missing, lanes may not stand where they seem to.
        self._unsettled = False
        self._needs_reset = np.ones(len(self._lanes), np.bool_)

    @property
    def lane_numbers(self) -> np.ndarray:
        """All lanes, int64 [N]."""
        return np.arange(self._lanes.start, self._lanes.stop)

    # -- in lockstep -------------------------------------------------------------------------------------------------

    def turn(self, front: range, after: range) -> None:
        """Let every lane take a step from the observations in rows `front`; the next ones go to rows `after`."""
        if not self.decided:
            self.decider.decide(self._lanes, front, self.recorder)
        back = self._exchange(self._lanes, after, STEP)
        begun = self._end_of(back, after) if back.ended or back.dummies else ()
        # With the next line the step is done, also if an interruption comes right behind it.
        self.decider.stepped(self._lanes, back.dummies)
        for lanes, rows in begun:
            self.decider.begin(lanes, rows)
        self.interrupted = self.decided = False

    def _end_of(self, back: Returned, after: range) -> list[tuple[list[int], list[int]]]:
        """Put down what a step of all has ended; return in which lanes episodes begin, and in which rows."""
        shift = after.start - self._lanes.start
        begun = [[lane + shift for lane in lanes] for lanes in (back.ended, back.dummies)]
        self.end(begun[0], [self._store.final + lane for lane in back.ended])
        if back.dummies or back.blind:
            self.mark(begun[1], [lane + shift for lane in back.blind])
        return list(zip((back.ended, back.dummies), begun, strict=True))

    def _exchange(self, lanes: Any, rows: Any, op: Any) -> Returned:
        """Send and receive. From here on the lanes are ahead of what is known: the caller says when that is over."""
        began = perf_counter()
        self.interrupted = True
        back = self._driver.exchange(lanes, rows, op, self.want)
        self.recorder.env_seconds += perf_counter() - began
        if self.want:
            self.keep_infos(lanes, rows, (back.infos, back.final_infos))
        return back

    def _use(self) -> None:
        """Count a use of the environments, so that those of others show."""
        self.uses = self.envs.uses = self.envs.uses + 1

    def advance(self, turns: int) -> None:
        """Let every lane take `turns` steps, together."""
        if turns:
            with self.calls():
                self.ready()
                self.fill(self.tape.open(turns).base, turns)

    def fill(self, base: int, turns: int) -> None:
        """Take `turns` steps of every lane into the block that begins at row `base`; all stand ready."""
        before, stride = self.decider.together, self._store.num_envs
        front = self._rows(base)
        self._unsettled = True
        self._use()
        self.decider.prepare(base, turns * stride)
        self.decider.move(self._parking, front, decided=self.decided)
        try:
            for _ in range(turns):
                after = range(front.start + stride, front.stop + stride)
                self.turn(front, after)
                front = after
        finally:
            with undisturbed():
                taken = self.decider.together - before
                self._put_down(base, taken)
                self.decider.move(self._rows(base + taken * stride), self._parking, decided=self.decided)
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

    # -- at their own pace -------------------------------------------------------------------------------------------

    def run(self, goal: Goal) -> None:
        """Let lanes step at their own pace until there is what `goal` asks for."""
        with self.calls():
            self.ready()
            self.apart.run(goal)

    def run_episodes(self, shares: Shares) -> None:
        """Run the episodes of `shares`; what ran before was cut."""
        with self.calls():
            self.recover()
            try:
                self.apart.run_episodes(shares)
            finally:
                # All have ended, but after a failure: what was running then is not continued.
                self.interrupted |= bool(self.apart.away.any())
                self._cut()

    @contextmanager
    def putting_down(self) -> Iterator[None]:
        """Around steps of lanes at their own pace: those that were put on the tape are numbered, come what may."""
        before = self.tape.length
        self._unsettled = True
        try:
            yield
        finally:
            with undisturbed():
                self.tape.prune()
                self._stamp(self.tape.rows()[before:])
                self.apart.numbered()
                self.tape.in_use = self.apart.rows_in_use
                self.tape.release()
                self._unsettled = False

    def open_block(self, length: int) -> Block:
        """Begin a block of `length` steps of all lanes, fit for decisions."""
        block = self.tape.open(length)
        self.decider.prepare(block.base, block.rows)
        return block

    def take_decision(self, count: int) -> bool:
        """Whether the decision for these lanes, `count` of them, has been made ahead; it is not any more then."""
        taken = self.decided
        self.decided = False
        return taken and count == self._decided_for

    # -- what both do ------------------------------------------------------------------------------------------------

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Around the calls of the policy: enter its session, count the time."""
        began = perf_counter()
        try:
            with self.decider.session():
                yield
        finally:
            self.recorder.seconds += perf_counter() - began

    def end(self, rows: list[int], finals: list[int]) -> None:
        """Keep true last observations: those in rows `finals`, of lanes whose next ones stand in `rows`."""
        for row, observation in zip(rows, finals, strict=True):
            self.tape.side.add(row - self._store.num_envs, observation, row)

    def mark(self, dummies: list[int], blind: list[int]) -> None:
        """Mark the steps that led to the observations in rows `dummies` and in rows `blind` as what they are."""
        stride = self._store.num_envs
        self.tape.dummies.add([row - stride for row in dummies])
        self.tape.blind.add([row - stride for row in blind])

    def keep_infos(self, lanes: Any, rows: Any, infos: tuple[Mapping[int, Any], Mapping[int, Any]]) -> None:
        """Keep what came with the observations, and what came with the steps before them."""
        if not self.want:
            return
        with_obs, final = infos
        for lane, row in zip(np.asarray(lanes).tolist(), np.asarray(rows).tolist(), strict=True):
            self.tape.obs_infos.put(row, with_obs.get(lane, {}))
            # Of a lane that was reset this is the row before its first step, which nobody reads.
            self.tape.infos.put(row - self._store.num_envs, final.get(lane, with_obs.get(lane, {})))

    def _stamp(self, rows: np.ndarray) -> None:
        """Number new rows, int64 [R], each lane's in order of time."""
        if self.decider.columns is not None:
            self.ledger.stamp(rows, self.tape.dummies, self._store, self.decider.columns)

    def stand_in(self, policy: Policy | None) -> None:
        """Let another policy decide from now on, None: the own one; what was decided ahead is decided anew."""
        self.decided = False
        self.decider.stand_in(policy)

    # -- beginnings and cuts -----------------------------------------------------------------------------------------

    def ready(self) -> None:
        """Let every lane stand at an observation or be under way to one, and know what the policy returns."""
        self.recover()
        if self._needs_reset.any():
            self.reset_lanes(self.lane_numbers[self._needs_reset])
        if self.decider.columns is None:
            self.know_columns(self.lane_numbers)

    def know_columns(self, lanes: np.ndarray) -> None:
        """Decide for lanes that stand in the parking rows, to learn what columns there are; that decision is kept."""
        if self.decider.columns is None:
            numbers, rows = (self._packed(one) for one in (lanes, lanes + self._store.parking))
            self.decider.decide_with_version(numbers, rows, self.recorder)
            self.decided = True
            self._decided_for = len(lanes)

    def spec(self) -> StepSpec:
        """What rows look like; the first decision, where it has not been made."""
        if self.decider.columns is None:
            with self.calls():
                self.ready()
        return self.decider.spec(self.envs)

    def reset(self) -> None:
        """Cut what is running and reset every lane."""
        self.recover()
        self.cut_running()
        self.reset_lanes(self.lane_numbers)

    def reset_lanes(self, lanes: np.ndarray) -> None:
        """Reset `lanes`, as far as there still are such, into their parking rows."""
        lanes = lanes[~np.isin(lanes, self._driver.dropped)]
        if len(lanes):
            rows = lanes + self._store.parking
            self.envs.drain()
            self._use()
            self._exchange(self._packed(lanes), self._packed(rows), RESET)
            self.decider.begin(lanes, rows)
            self.apart.stand_parked(lanes)
            self.apart.bury()
            self._needs_reset[lanes - self._lanes.start] = False
            self.interrupted = self.decided = False

    def recover(self) -> None:
        """Begin anew where nobody knows where the lanes are.

        That is so after an interruption in an exchange or at the end of a call, and after others have used them.
        """
        if self.uses != self.envs.uses:
            self.interrupted, self.uses = True, self.envs.uses
        if self.interrupted or self._unsettled:
            if self.interrupted:
                self._driver.let_go(self.lane_numbers)
                self._driver.wait()
                self.envs.drain()
            self.apart.forget()
            self.tape.prune()
            self.tape.release()
            self.cut_running()
            self.interrupted = self._unsettled = False

    def cut_running(self) -> None:
        """Cut the running episodes, say so in their last rows as far as they were not handed out; all need a reset."""
        self._driver.let_go(self.lane_numbers[~self.apart.away])
        self.apart.settle()
        self._cut()

    def _cut(self) -> None:
        with undisturbed():
            self._needs_reset[:] = True
            self._driver.let_go(self.lane_numbers)
            self.tape.cut_open()
            self.ledger.cut_running()
            self.apart.cut_after(0)
            self.decided = False
            if not self.apart.away.any():
                self.apart.stand_parked(self.lane_numbers)
                self.tape.in_use = self.apart.rows_in_use
                self.tape.release()

    # -- rows --------------------------------------------------------------------------------------------------------

    def _rows(self, base: int) -> range:
        """The rows of all lanes at the time step that begins at row `base`."""
        return range(base + self._lanes.start, base + self._lanes.stop)

    def _packed(self, numbers: np.ndarray) -> Any:
        """A range, if these are consecutive numbers for all lanes: slices are faster than index arrays."""
        if len(numbers) == len(self._lanes):
            return range(int(numbers[0]), int(numbers[-1]) + 1)
        return numbers
