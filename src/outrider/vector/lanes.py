"""Lanes behind a driver, sent to and received from apart: what every step of a `VecEnv` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from outrider import tree
from outrider.errors import ClosedError, ConfigError, OutriderError, explain
from outrider.tree import Tree
from outrider.vector.arrival import Arrival
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD, Driver, Returned
from outrider.vector.group import ALL_INFOS, NO_INFOS
from outrider.vector.requests import check_lanes, reset_arguments, write_actions
from outrider.vector.store import indexer, numbers_of

__all__ = ["AT_END", "NOWHERE", "ClosedLanesError", "Lanes"]

AT_END = 0
"""In place of the last operation of a lane: it has ended and stays at its end until it is reset."""

NOWHERE = -1
"""In place of the row of a lane: its observation was handed over and stands in none."""

NONE = np.array([], np.int64)


class ClosedLanesError(ClosedError, gymnasium.error.ClosedEnvironmentError):
    """Use of environments after they were closed; Gymnasium's own error as well, for loops that expect it."""


class Lanes(gymnasium.vector.VectorEnv[Any, Any, np.ndarray]):
    """The part of a `VecEnv` that sends to lanes and receives from them; keeps where each of them is.

    Attributes:
        uses: number of requests so far, by which a collector sees that others have used the environments meanwhile.
    """

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver = driver
        self.name = name
        self.num_envs = driver.num_envs
        self.store = driver.store
        self.lanes = driver.lanes
        first = self.store.scratch
        self._scratch_rows = range(first + self.num_envs, first + 2 * self.num_envs)
        # By lane: whether it is under way, to which row its last operation was sent, and which it was.
        self._away = np.zeros(self.store.num_envs, np.bool_)
        self._rows = np.arange(self.store.num_envs) + self._scratch_rows.start
        self._ops = np.full(self.store.num_envs, STEP, np.int8)
        self.uses = 0
        # The rows of all of them, where these were sent together, and whether each step of all is done as a whole.
        self._rows_of_all: range | None = None
        self._whole = driver.in_lockstep
        # Where they were before; kept where a step may be lost.
        self._before = self._rows.copy()

    @property
    def _is_away(self) -> bool:
        """Whether any lane is under way."""
        return bool(np.count_nonzero(self._away))

    def post(self, lanes: Any, rows: Any, op: Any = STEP, want: int = NO_INFOS) -> None:
        """Start an operation on `lanes`, whose actions stand in `store.action`; observations go to `rows`.

        `send` and `send_reset` bring rows of their own.

        Args:
            lanes: range or int64 array of lanes, none of them under way.
            rows: range or int64 array of the same length.
            op: `STEP`, `STEP_AND_HOLD` or `RESET`, or an int8 array of them.
            want: which infos to return: `NO_INFOS`, `SOME_INFOS` or `ALL_INFOS`.
        """
        at = indexer(lanes)
        before = self._rows[at].copy(), self._ops[at].copy()
        if self.driver.rebuilds:
            self._before[at] = before[0]
        self._away[at], self._rows[at], self._ops[at] = True, numbers_of(rows), op
        self._rows_of_all = None
        self.uses += 1
        try:
            self.driver.post(lanes, rows, op, want)
        except ConfigError:
            self._refused(at, before)
            raise

    def _exchange(self, rows: range, op: Any) -> Arrival | None:
        """`post` to all lanes and wait for all; None if there is nothing to tell beside what stands in the rows.

        Raises:
            EnvironmentFailure: an environment failed, that of a lane that was dropped among them.
        """
        if not self._whole:
            self.post(self.lanes, rows, op, ALL_INFOS)
            return self._recv_all()
        try:
            back = self.driver.exchange(self.lanes, rows, op, ALL_INFOS)
        except ConfigError:  # refused before it had begun
            raise
        except BaseException:
            self._away[:] = True
            self._note_all(rows, op)
            raise
        self._note_all(rows, op)
        told = back.ended or back.infos or back.batch_infos is not None or not len(back.lanes)
        return self._arrival(back) if told else None

    def _note_all(self, rows: range, op: Any) -> None:
        """Note where all lanes were sent together."""
        self.uses += 1
        if rows is not self._rows_of_all:
            self._rows_of_all = rows
            self._rows[:] = numbers_of(rows)
        self._ops[:] = op

    def _hand_over(self, op: Any) -> tuple[Any, ...] | None:
        """Step all lanes of a source that gives its arrays away; None where they have to be written to rows."""
        self._away[:] = True
        step = self.driver.hand_over(op)
        self._away[:] = False
        if step is not None:
            self.uses += 1
            self._rows[:], self._rows_of_all = NOWHERE, None
            self._ops[:] = np.where(step[2] | step[3], AT_END, op)
        return step

    def _refused(self, at: Any, before: tuple[np.ndarray, np.ndarray]) -> None:
        """Foreign environments cannot do everything. What they refuse has not begun."""
        self._away[at], self._rows[at], self._ops[at] = False, *before
        self._rows_of_all = None

    def send(self, actions: Tree, env_ids: Any = None, *, hold: bool = False) -> None:
        """Start a step in some lanes, or in all.

        Args:
            actions: batch of actions, one for each of `env_ids`.
            env_ids: distinct lane numbers; None means all.
            hold: leave a lane that ends at its end, instead of resetting it in the same call.

        Raises:
            SpecError: the actions do not fit the action space.
            ConfigError: a lane is named twice, does not exist, or is under way.
        """
        self.check_open()
        lanes, named = self._lanes(env_ids)
        write_actions(self.store.action, actions, named)
        self.post(lanes, self._own_rows(lanes), STEP_AND_HOLD if hold else STEP)

    def send_reset(
        self,
        env_ids: Any = None,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[dict[str, Any] | None] | None = None,
    ) -> None:
        """Start a reset of some lanes, or of all.

        Args:
            env_ids: distinct lane numbers; None means all.
            seeds: one for each of `env_ids`, in the same order; None leaves them out.
            options: likewise.
        """
        self.check_open()
        lanes, named = self._lanes(env_ids)
        self.arrange_resets(named, seeds, options)
        self.post(lanes, self._own_rows(lanes), RESET)

    def recv(self) -> Arrival:
        """Wait for what was sent: for all of it, or for as many lanes as the backend's `wait_for` says.

        Returns:
            All lanes that have arrived, the oldest request first. None, if all that were under way have been dropped.

        Raises:
            OutriderError: nothing was sent, or the wait for it was interrupted before and cannot be gone on with.
            ClosedError: the environments are closed.
            EnvironmentFailure: an environment failed; all environments are closed then.
        """
        return self._recv(self.driver.wait_for)

    def _recv(self, least: int | None) -> Arrival:
        if not self._is_away:
            self.check_open()
            raise OutriderError(
                explain(expected="at least one lane under way", found="none", where="recv()", fix="call send() first")
            )
        return self._arrival(self.driver.wait(least))

    def _arrival(self, back: Returned) -> Arrival:
        """What has come back, noted and looked at from the outside."""
        if back.dropped:
            self._away[list(back.dropped)] = False
        at = indexer(back.lanes)
        if not len(back.lanes) and not back.dropped:
            self._away[:] = False
            raise OutriderError(
                explain(
                    expected="what was sent to come back",
                    found="a wait that was interrupted, after which nobody can say which lanes have stepped",
                    where="recv()",
                    fix="reset these environments",
                )
            )
        self._away[at] = False
        rows = (
            range(int(self._rows[at.start]), int(self._rows[at.stop - 1]) + 1) if type(at) is slice else self._rows[at]
        )
        final = self._final_rows(back.ended) if back.ended else NONE
        arrival = Arrival(self.store, back.lanes, rows, back.ended, final, back.infos, back.final_infos)
        if back.dummies or back.blind or back.batch_infos is not None:
            arrival.dummies, arrival.blind, arrival.batch_info = back.dummies, back.blind, back.batch_infos
        if back.lost or back.dropped:
            self._settle(arrival, back)
        return arrival

    def _final_rows(self, ended: list[int]) -> np.ndarray:
        """Where the last observations of lanes that ended stand; those that are held there are marked as such."""
        lanes = np.array(ended, np.int64)
        rows: np.ndarray = lanes + self.store.final
        held = self._ops[lanes] == STEP_AND_HOLD
        if np.count_nonzero(held):
            self._ops[lanes[held]] = AT_END
            rows[held] = self._rows[lanes[held]]
        return rows

    def _recv_all(self) -> Arrival:
        """Wait for everything that was sent, of which nothing may be missing.

        Raises:
            EnvironmentFailure: that of a lane that was dropped.
        """
        arrival = self._recv(None)
        for lane, failure in arrival.dropped.items():
            failure.add_note(
                f"lane {lane} was dropped, and step() and reset() need all of them. The others are open: go on with "
                "send(), send_reset() and recv(), and the lanes that are not in `envs.dropped`"
            )
            raise failure
        return arrival

    def _settle(self, arrival: Arrival, back: Returned) -> None:
        """Let each step that was lost look like one that was truncated and led to the reset observation."""
        arrival.lost, arrival.dropped = back.lost, back.dropped
        self._take_in(back.lost)
        final = dict(zip(arrival.ended, arrival.final_rows.tolist(), strict=True))
        final |= {lane: self.store.final + lane for lane in back.lost}
        arrival.ended = [lane for lane in arrival.env_id.tolist() if lane in final]
        arrival.final_rows = np.array([final[lane] for lane in arrival.ended], np.int64)
        for lane in back.lost:
            arrival.info[lane] = {**arrival.info.get(lane, {}), "restarted": True}

    def _take_in(self, lost: list[int]) -> None:
        """Put reset observations in place of those that did not come, and the last ones where such belong."""
        store, lanes = self.store, np.array(lost, np.int64)
        rows, aside = self._rows[lanes], store.final + lanes
        last, begun = tree.take(store.obs, self._before[lanes]), tree.take(store.obs, aside)
        tree.put(store.obs, rows, begun)
        tree.put(store.obs, aside, last)
        steps = rows - store.num_envs
        store.reward[steps], store.terminated[steps], store.truncated[steps] = 0.0, False, True

    def drain(self) -> None:
        """Wait for what is under way and drop it."""
        if self._is_away:
            back = self.driver.wait()
            self._final_rows(back.ended)
            self._take_in(back.lost)
            self._away[:] = False

    def arrange_resets(self, lanes: Any, seeds: Any, options: Any) -> None:
        """Set seed and options of the next reset of each of `lanes`; None leaves them out.

        Raises:
            ConfigError: not one for each lane.
        """
        if seeds is not None or options is not None:
            self.driver.arrange_resets(reset_arguments(lanes, seeds, options))

    def _lanes(self, env_ids: Any) -> tuple[Any, Any]:
        """The lanes in order, and as the user named them."""
        if env_ids is None and not self._is_away:
            return self.lanes, self.lanes
        named = np.arange(self.num_envs) if env_ids is None else env_ids
        return check_lanes(named, self._away), np.asarray(named, np.int64)

    def _own_rows(self, lanes: Any) -> Any:
        return self._scratch_rows if type(lanes) is range else lanes + self._scratch_rows.start

    def check_open(self) -> None:
        """Raise if the environments are closed.

        Raises:
            ClosedError: they are.
        """
        if self.closed or not self.driver.is_open:
            msg = (
                f"{self.name}: these environments are closed, by close() or after a failure; "
                "make new ones with outrider.make_vec"
            )
            raise ClosedLanesError(msg)

    def check_idle(self, where: str) -> None:
        """Raise if the environments are closed or lanes are under way.

        Raises:
            ClosedError: they are closed.
            OutriderError: something was sent and not received.
        """
        self.check_open()
        if self._is_away:
            raise OutriderError(
                explain(
                    expected="no lane under way",
                    found=f"{int(self._away.sum())} of them",
                    where=where,
                    fix="call recv() first",
                )
            )
