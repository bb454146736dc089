"""An EnvPool pool, made with `env_type="gymnasium"`, as a driver: its synchronous and its asynchronous side.

A pool whose batch size is the number of its environments is synchronous: any lanes can be asked, all of them are waited
for. One with a smaller batch size returns exactly so many environments at a time, whichever are done first.

EnvPool resets an environment in the step after its end and takes no heed of the action of that step: it is a dummy.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from outrider.errors import OutriderError, SpecError, explain
from outrider.undisturbed import undisturbed
from outrider.vector.batch_driver import Batch, BatchDriver, Member
from outrider.vector.batch_rows import batch_writer
from outrider.vector.batched import refusal
from outrider.vector.driver import RESET, STEP, Returned
from outrider.vector.group import ALL_INFOS, NO_INFOS
from outrider.vector.store import numbers_of

__all__ = ["PoolDriver"]

NOBODY = np.array([], np.int64)

NOT_SENT, SPARE_RESET = 0, 4
"""In place of the operation of a lane: it is not in the pool; it was reset to fill up a batch."""


class PoolDriver(BatchDriver):
    """Steps a pool by `send` and `recv`.

    The environments were seeded when the pool was made; seeds given later do not reach them, and they take no options.
    The pool cannot be interrupted while it steps, and a step of one of its environments that hangs, hangs.

    An asynchronous pool returns nothing while fewer than `batch_size` environments are under way. Where the rest is
    waited for, spare lanes (see `BatchDriver`) are reset to fill up the batch; if there are too few, it is refused.

    Attributes:
        wait_for: the batch size of an asynchronous pool.
    """

    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    takes_seeds = False

    def __init__(self, pool: Any, num_envs: int, info_keys: tuple[str, ...]) -> None:
        member = Member(pool.observation_space, pool.action_space, dict(pool.metadata), None, pool.render_mode)
        super().__init__(pool, member, num_envs, info_keys)
        batch_size = pool.config["batch_size"] or num_envs
        self.wait_for = batch_size if batch_size < num_envs else None
        self.batch = 1 if self.wait_for is None else batch_size
        self._batch_size = batch_size
        # By lane: what it was asked, where its observation goes, which infos are wanted, and the number of the request.
        self._ops = np.full(num_envs, NOT_SENT, np.int8)
        self._rows = np.zeros(num_envs, np.int64)
        self._wants = np.zeros(num_envs, np.int8)
        self._requests = np.zeros(num_envs, np.int64)
        self._number = 0
        # The last request that was one for all lanes, and for consecutive rows.
        self._whole = 0
        # What has arrived and was not returned yet, and which of it are resets.
        self._found = Returned(NOBODY, [])
        self._fresh = np.zeros(num_envs, np.bool_)
        # Requests that a synchronous pool has not been given: two of them before a recv() spoil its answers.
        self._queued: list[np.ndarray] = []
        self._warned = False

    # -- requests ----------------------------------------------------------------------------------------------------

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`.

        Raises:
            ConfigError: a lane was not reset; nothing has been touched.
        """
        numbers = numbers_of(lanes)
        ops = np.full(len(numbers), op, np.int8) if isinstance(op, int) else np.asarray(op, np.int8)
        if self._spare.any():
            self._check_steps(numbers[ops != RESET])
        self._number += 1
        self._ops[numbers], self._rows[numbers], self._wants[numbers] = ops, numbers_of(rows), want
        self._requests[numbers] = self._number
        self._spare[numbers] = False
        if type(lanes) is range and len(lanes) == self.num_envs and type(rows) is range:
            self._whole = self._number
        # A step of a lane at its end is a reset. The pool counts the environments of each of its requests from 0.
        resets = (ops == RESET) & ~self._at_end[numbers]
        for part in (numbers[~resets], numbers[resets]) if resets.any() else (numbers,):
            if len(part) and self.wait_for is None:
                self._queued.append(part)
            elif len(part):
                self._send(part)

    def _check_steps(self, lanes: np.ndarray) -> None:
        unready = lanes[self._spare[lanes] & ~self._at_end[lanes]]
        if len(unready):
            raise refusal("lanes that were reset", f"lanes {unready.tolist()} without", "step", "reset them first")

    def _send(self, lanes: np.ndarray) -> None:
        """Give the pool one request: lanes that are all to be stepped, or all to be reset."""
        ids, first = lanes.astype(np.int32), lanes[0]
        if self._ops[first] != RESET or self._at_end[first]:
            with self._calling("step"):
                self._source.send(self.store.action[lanes], ids)
        else:
            with self._calling("reset"):
                self._source._reset(ids)  # noqa: SLF001 - what its own reset() and async_reset() call

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """See `Driver.arrange_resets`.

        Raises:
            ConfigError: there are options.
        """
        if any(options for _, options in arguments.values()):
            raise refusal("resets without options, of which EnvPool takes none", "some", "options", "leave them out")
        if not self._warned and any(seed is not None for seed, _ in arguments.values()):
            self._warned = True
            warnings.warn(
                "the environments of an EnvPool pool are seeded when it is made; later seeds do not reach them: "
                "use envpool.make(..., seed=...)",
                stacklevel=4,
            )

    # -- stepping ----------------------------------------------------------------------------------------------------

    def wait(self, least: int | None = None) -> Returned:
        """See `Driver.wait`. One that was interrupted can be called again.

        Raises:
            OutriderError: an asynchronous pool would not return what is waited for; it stays under way.
        """
        while self._queued:
            with undisturbed():
                self._send(self._queued[0])
                self._receive(len(self._queued[0]))
                del self._queued[0]
        if self.wait_for is not None:
            away = int(np.count_nonzero((self._ops != NOT_SENT) & (self._ops != SPARE_RESET))) + self._arrived
            needed = away if least is None else min(least, away)
            self._check_fillers(needed - self._arrived)
            while self._arrived < needed:
                self._fill_up()
                self._receive(self._batch_size)
        return self._take()

    def exchange(self, lanes: Any, rows: Any, op: Any, want: int) -> Returned:
        """See `Driver.exchange`; the common case, a step of all lanes of a synchronous pool, takes the short way."""
        everyone = type(rows) is range and type(lanes) is range and len(lanes) == self.num_envs
        if not everyone or self.wait_for is not None or self._queued or not self._is_step_of_all(op):
            return super().exchange(lanes, rows, op, want)
        found, at_end = Returned(lanes, []), self._at_end
        with undisturbed(), self._calling("step"):
            step = self._step_all(op)
            self._put_down_all(step, rows, op, found)
            if np.count_nonzero(at_end):
                found.dummies = np.flatnonzero(at_end & (op != RESET)).tolist()
            if want == ALL_INFOS:
                found.batch_infos = step[-1]
            elif want != NO_INFOS:
                self._keep_infos(found, Batch.of(step, self.num_envs), self._everyone, None, want)
        return found

    def hand_over(self, op: Any) -> tuple[Any, ...] | None:
        """See `Driver.hand_over`: a pool gives each batch away in arrays of its own, which it never writes to again."""
        leaf = self.store.obs
        if type(leaf) is not np.ndarray or self.wait_for is not None or self._queued or not self._is_step_of_all(op):
            return None
        with undisturbed(), self._calling("step"):
            obs, reward, *rest = self._step_all(op)
            if obs.dtype != leaf.dtype or obs.shape != (self.num_envs, *leaf.shape[1:]):
                aside = np.empty((self.num_envs, *leaf.shape[1:]), leaf.dtype)
                batch_writer(self.description.observation_space, aside)(obs, self.num_envs, None, slice(None))
                obs = aside
        return obs, reward.astype(np.float64), *rest

    def _is_step_of_all(self, op: Any) -> bool:
        """Whether a step of the whole pool is what is asked: those at their end, and only those, are reset by it."""
        if np.count_nonzero(self._spare) and np.count_nonzero(self._spare & ~self._at_end):
            return False
        return op != RESET if type(op) is int else np.array_equal(op == RESET, self._at_end)

    def _step_all(self, op: Any) -> tuple[Any, ...]:
        """Step the whole pool and note where its lanes stand; those that it only reset get no reward and no flags."""
        obs, reward, terminated, truncated, infos = self._source.step(self.store.action)
        ended, at_end = terminated | truncated, self._at_end
        begun = np.count_nonzero(at_end)
        if begun:
            self._check_resets(infos, at_end)
            reward, terminated, truncated = np.where(at_end, 0.0, reward), terminated & ~at_end, truncated & ~at_end
            ended &= ~at_end
        if begun or np.count_nonzero(ended):
            self._at_end, self._spare = ended, ended & (op != STEP)
        return obs, reward, terminated, truncated, infos

    def _put_down_all(self, step: Any, rows: range, op: Any, found: Returned) -> None:
        """Write what a step of the whole pool gave."""
        obs, reward, terminated, truncated, _ = step
        store, count = self.store, self.num_envs
        self._write(obs, count, None, slice(rows.start, rows.stop))
        steps: Any = store.before(rows)
        if type(op) is not int:
            # Resets leave the row before them alone.
            stepped = op != RESET
            steps = numbers_of(rows)[stepped] - count
            reward, terminated, truncated = reward[stepped], terminated[stepped], truncated[stepped]
        store.reward[steps], store.terminated[steps], store.truncated[steps] = reward, terminated, truncated
        if np.count_nonzero(self._at_end):
            found.ended = np.flatnonzero(self._at_end).tolist()
            aside = np.flatnonzero(self._at_end & (op == STEP))
            self._write(obs, count, aside, store.final + aside)

    def _check_fillers(self, needed: int) -> None:
        """Make sure that the pool will return as many as are needed.

        It returns whole batches only. What is lacking in the last one is filled up by lanes that nobody minds being
        reset: spare ones, and those that come back from a reset in the same wait.
        """
        rest = self._in_pool % self._batch_size
        fillers = int(np.count_nonzero(self._ops == SPARE_RESET))
        if not rest or needed <= self._in_pool - rest - fillers:
            return
        later = max(0, int(np.count_nonzero((self._ops == RESET) | (self._spare & (self._ops != NOT_SENT)))) - rest)
        if len(self._fillers()) + later < self._batch_size - rest:
            raise OutriderError(
                explain(
                    expected=f"a multiple of {self._batch_size} lanes under way: the pool returns batches of this size",
                    found=self._in_pool,
                    where="recv()",
                    fix=f"send to {self._batch_size - rest} lanes more, or make the pool without a batch_size",
                )
            )

    @property
    def _in_pool(self) -> int:
        return int(np.count_nonzero(self._ops))

    def _fillers(self) -> np.ndarray:
        """Lanes that can be reset without harm: spare ones first."""
        idle = self._ops == NOT_SENT
        return np.concatenate([np.flatnonzero(self._spare & idle), np.flatnonzero(self._fresh & ~self._spare)])

    def _fill_up(self) -> None:
        """Reset lanes if the pool would not return anything else."""
        lacking = self._batch_size - self._in_pool
        if lacking <= 0:
            return
        fillers = self._fillers()[:lacking]
        again = fillers[self._fresh[fillers] & ~self._spare[fillers]]
        with undisturbed(), self._calling("reset"):
            self._ops[fillers] = SPARE_RESET
            # These come back once more, with another first observation in the same rows.
            self._ops[again], self._fresh[again] = RESET, False
            self._found.lanes = np.setdiff1d(self._found.lanes, again)
            self._source._reset(fillers.astype(np.int32))  # noqa: SLF001 - see _send

    def _receive(self, count: int) -> None:
        """Take a batch of `count` from the pool."""
        # What the pool has given is gone from it: an interrupt must not lose it.
        with undisturbed(), self._calling("step"):
            step = self._source.recv()
            infos = step[-1]
            ids = np.asarray(infos["env_id"]).astype(np.int64)
            batch = Batch.of(step, count)
            asked = self._ops[ids] != SPARE_RESET
            if count == self.num_envs and np.array_equal(ids, self._everyone) and asked.all():
                self._put_down(batch, None, ids)
            else:
                self._put_down(batch, np.flatnonzero(asked), ids[asked])
                self._at_end[ids[~asked]] = False
            self._ops[ids] = NOT_SENT

    def _put_down(self, batch: Batch, chosen: Any, lanes: np.ndarray) -> None:
        """Write what `lanes` got, which is the `chosen` part of a batch, and note where they stand."""
        found = self._found
        found.lanes = np.concatenate([found.lanes, lanes]) if len(found.lanes) else lanes
        ops, wants, at_end = self._ops[lanes], self._wants[lanes], self._at_end[lanes]
        index = self._everyone if chosen is None else chosen
        resets = ops == RESET
        if at_end.any() or resets.any():
            self._check_resets(batch.infos, index[at_end | resets])
            found.dummies += lanes[at_end & ~resets].tolist()
        ended = self._put_step(batch, chosen, lanes, self._rows[lanes], ops)
        if ended.any():
            aside = ended & (ops == STEP)
            self._write(batch.obs, batch.count, index[aside], self.store.final + lanes[aside])
            self._spare[lanes] |= ended & ~aside
            found.ended += lanes[ended].tolist()
        for want in np.unique(wants).tolist() if wants.any() else ():
            some = wants == want
            self._keep_infos(found, batch, lanes[some], None if chosen is None and some.all() else index[some], want)
        self._at_end[lanes], self._fresh[lanes] = ended, resets

    def _check_resets(self, infos: dict[str, Any], index: np.ndarray) -> None:
        """Make sure that environments that should have been reset were, whatever a version of EnvPool does."""
        elapsed = infos.get("elapsed_step")
        if elapsed is not None and np.asarray(elapsed)[index].any():
            raise SpecError(
                explain(
                    expected="environments that the pool resets in the step after their end",
                    found=f"elapsed_step {np.asarray(elapsed)[index].tolist()} where it should be 0",
                    where="what the pool returned",
                    fix="use EnvPool 1.x, and env_type='gymnasium'",
                )
            )

    @property
    def _arrived(self) -> int:
        """How many lanes have arrived that nobody was told of."""
        return len(self._found.lanes)

    def _take(self) -> Returned:
        """Return the lanes that have arrived, the oldest request first."""
        found, self._found = self._found, Returned(NOBODY, [])
        self._fresh[:] = False
        lanes: np.ndarray = found.lanes
        whole = len(lanes) == self.num_envs and bool((self._requests == self._whole).all())
        if whole and np.array_equal(lanes, self._everyone):
            found.lanes = range(self.num_envs)
            return found
        found.lanes = lanes = lanes[np.lexsort((lanes, self._requests[lanes]))]
        if found.ended or found.dummies:
            place = dict(zip(lanes.tolist(), range(len(lanes)), strict=True))
            found.ended.sort(key=place.__getitem__)
            found.dummies.sort(key=place.__getitem__)
        if whole:
            found.lanes = range(self.num_envs)
        return found

    # -- attributes --------------------------------------------------------------------------------------------------

    def _question(self, lanes: list[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> Any:
        pool = self._source
        if operation != "render":
            raise refusal(
                "render(): the environments of a pool have no attributes",
                f"{operation} {name!r}",
                operation,
                "leave it",
            )
        return lambda: pool.render(env_ids=np.array(lanes, np.int32))
