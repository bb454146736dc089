"""`VecEnv`: many environments that step together, as Gymnasium's vector environments do, and apart, by `send` and `recv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from outrider import tree
from outrider.errors import ClosedError, ConfigError, OutriderError, SpecError, explain
from outrider.tree import Tree
from outrider.vector.arrival import Arrival
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD, Driver
from outrider.vector.group import ALL_INFOS, NO_INFOS
from outrider.vector.inline import Inline
from outrider.vector.plan import Envs, EnvSource, as_plan
from outrider.vector.processes import Processes
from outrider.vector.store import indexer

__all__ = ["VecEnv", "make_vec"]

WORTH_LENDING = 1 << 17
"""Bytes of observations above which `step` lends fresh rows instead of copying out of the same ones."""


def make_vec(
    env: Envs | EnvSource, num_envs: int | None = None, *, backend: Inline | Processes | str = "auto"
) -> VecEnv:
    """Start environments; the result is a `gymnasium.vector.VectorEnv`.

    Args:
        env: a plan, a Gymnasium id, a factory, or a list of factories.
        num_envs: how many; not beside a plan or a list.
        backend: where they run: `Inline()`, `Processes(...)`, or "auto", which at present means `Inline()`.

    Raises:
        ConfigError: arguments that cannot be used; nothing has been started then.
        EnvironmentFailure: an environment could not be made.

    Example:
        >>> envs = make_vec("CartPole-v1", 3)
        >>> obs, info = envs.reset(seed=0)
        >>> obs.shape
        (3, 4)
        >>> envs.close()
    """
    plan = as_plan(env, num_envs)
    if backend == "auto":
        backend = Inline()
    if not isinstance(backend, (Inline, Processes)):
        raise ConfigError(
            explain(
                expected="Inline(), Processes(...) or 'auto'", found=repr(backend), where="backend", fix="choose one"
            )
        )
    return VecEnv(backend.start(plan), plan.name, info_keys=plan.info_keys)


class VecEnv(gymnasium.vector.VectorEnv[Any, Any, np.ndarray]):
    """Environments of equal spaces behind a driver.

    As a Gymnasium vector environment it resets a lane in the step that ends it (same-step), gives the last observation
    and info in `infos["final_obs"]` and `infos["final_info"]`, and what it returns never changes afterwards.

    Attributes:
        num_envs: number of lanes.
        single_observation_space: of one environment, without leaves that have no fixed size.
        driver: runs the environments; `driver.store` holds the rows that they write.
        name: the id or the name of the factory.
        info_keys: keys of info dicts that become columns of rollouts.
    """

    def __init__(self, driver: Driver, name: str, *, info_keys: tuple[str, ...] = ()) -> None:
        described = driver.description
        self.driver = driver
        self.name = name
        self.info_keys = info_keys
        self.num_envs = driver.num_envs
        self.single_observation_space = described.space
        self.single_action_space = described.action_space
        self.observation_space = batch_space(described.space, self.num_envs)
        self.action_space = batch_space(described.action_space, self.num_envs)
        self.metadata = {**described.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.spec = described.spec
        self.render_mode = described.render_mode
        self.store = driver.store
        self._all = range(self.num_envs)
        self._under_way: list[tuple[Any, Any, Any]] = []

    # -- sending and receiving ---------------------------------------------------------------------------------------

    def post(self, lanes: Any, rows: Any, op: Any = STEP, want: int = NO_INFOS) -> None:
        """Start an operation on `lanes`, whose actions stand in `store.action`; observations go to `rows`.

        This is what a collector uses; `send` and `send_reset` bring rows of their own.

        Args:
            lanes: range or int64 array of lanes, none of them under way.
            rows: range or int64 array of the same length.
            op: `STEP`, `STEP_AND_HOLD` or `RESET`, or an int8 array of them.
            want: which infos to return: `NO_INFOS`, `SOME_INFOS` or `ALL_INFOS`.
        """
        self._under_way.append((lanes, rows, op))
        self.driver.post(lanes, rows, op, want)

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
        lanes = self._lanes(env_ids)
        self._write_actions(actions, lanes)
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
            seeds, options: one for each of `env_ids`, or None.
        """
        lanes = self._lanes(env_ids)
        self.arrange_resets(lanes, seeds, options)
        self.post(lanes, self._own_rows(lanes), RESET)

    def recv(self) -> Arrival:
        """Wait for what was sent.

        Raises:
            OutriderError: nothing was sent.
            EnvironmentFailure: an environment failed; all environments are closed then.
        """
        if not self._under_way:
            raise OutriderError(
                explain(
                    expected="at least one lane under way", found="none", where="recv()", fix="call send() first"
                )
            )
        sent, self._under_way = self._under_way, []
        try:
            back = self.driver.wait()
        except BaseException:
            self.closed = self.closed or not self.driver.is_open
            raise
        if len(sent) == 1:
            lanes, rows, op = sent[0]
        else:
            lanes, rows = (np.concatenate([np.asarray(one[i]) for one in sent]) for i in (0, 1))
            op = np.concatenate([np.full(len(one[0]), one[2], np.int8) for one in sent])
        final = self._final_rows(lanes, rows, op, back.ended) if back.ended else NONE
        return Arrival(self.store, lanes, rows, back.ended, final, back.infos, back.final_infos)

    def _final_rows(self, lanes: Any, rows: Any, op: Any, ended: list[int]) -> np.ndarray:
        """Where the last observations are: aside if the lane was reset, in its own row if it is held."""
        final = self.store.final + np.array(ended, np.int64)
        if isinstance(op, int) and op == STEP:
            return final
        at = np.searchsorted(lanes, ended) if type(lanes) is not range else np.array(ended) - lanes.start
        held = np.broadcast_to(op, (len(lanes),))[at] == STEP_AND_HOLD
        return np.where(held, np.asarray(rows)[at], final)

    def arrange_resets(self, lanes: Any, seeds: Any, options: Any) -> None:
        """Set seed and options of the next reset of each of `lanes`; None leaves them out.

        Raises:
            ConfigError: not one for each lane.
        """
        if seeds is None and options is None:
            return
        for name, given in (("seeds", seeds), ("options", options)):
            if given is not None and len(given) != len(lanes):
                raise ConfigError(
                    explain(
                        expected=f"{len(lanes)} {name}, one for each lane",
                        found=len(given),
                        where=name,
                        fix="pass a list with None where there is nothing to say",
                    )
                )
        seeds = [None] * len(lanes) if seeds is None else seeds
        options = [None] * len(lanes) if options is None else options
        pairs = zip((int(lane) for lane in lanes), zip(seeds, options, strict=True), strict=True)
        self.driver.arrange_resets(dict(pairs))

    def _lanes(self, env_ids: Any) -> Any:
        self.check_open()
        lanes = self._all if env_ids is None else np.asarray(env_ids)
        if type(lanes) is not range:
            good = lanes.ndim == 1 and lanes.dtype.kind in "iu" and len(np.unique(lanes)) == len(lanes) > 0
            if not good or lanes.min() < 0 or lanes.max() >= self.num_envs:
                raise ConfigError(
                    explain(
                        expected=f"distinct lane numbers from 0 to {self.num_envs - 1}",
                        found=repr(env_ids),
                        where="env_ids",
                        fix="name each lane once",
                    )
                )
            lanes = np.sort(lanes.astype(np.int64))
        busy = np.intersect1d(lanes, np.concatenate([NONE, *(np.asarray(one[0]) for one in self._under_way)]))
        if len(busy):
            raise ConfigError(
                explain(
                    expected="lanes that wait for an action",
                    found=f"lanes {busy.tolist()} under way",
                    where="env_ids",
                    fix="call recv() before sending to them again",
                )
            )
        return lanes

    def _own_rows(self, lanes: Any) -> Any:
        first = self.store.scratch + self.num_envs
        return range(first, first + self.num_envs) if type(lanes) is range else lanes + first

    def _write_actions(self, actions: Tree, lanes: Any) -> None:
        """Check a batch of actions and put it where the environments take it from."""
        at = indexer(lanes)

        def write(target: np.ndarray, given: Any) -> None:
            array = np.asarray(given)
            expected = (len(lanes), *target.shape[1:])
            if array.shape != expected or not np.can_cast(array.dtype, target.dtype, "same_kind"):
                raise SpecError(
                    explain(
                        expected=f"shape {expected}, dtype {target.dtype}",
                        found=f"shape {array.shape}, dtype {array.dtype}",
                        where="actions",
                        fix="pass a batch with one action for each lane",
                    )
                )
            target[at] = array

        tree.map(write, self.store.action, actions)

    # -- Gymnasium's face --------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, dict[str, Any]]:
        """Reset all lanes, or those in `options["reset_mask"]`; what is under way is received first and dropped.

        Args:
            seed: None, an integer (lane i gets `seed + i`), or one for each lane.
            options: passed to every reset. `reset_mask`, bool [num_envs], is taken out of it.

        Returns:
            Observations [num_envs, ...] (of lanes not reset: their current ones) and infos.
        """
        self.check_open()
        if self._under_way:
            self.recv()
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + lane for lane in self._all]
        options = dict(options) if options is not None else None
        mask = np.asarray(options.pop("reset_mask")) if options is not None and "reset_mask" in options else None
        if mask is not None and (mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any()):
            raise ConfigError(
                explain(
                    expected=f"a bool array [{self.num_envs}] with at least one True",
                    found=repr(mask),
                    where="options['reset_mask']",
                    fix="mark the lanes to reset",
                )
            )
        lanes = self._all if mask is None else np.flatnonzero(mask)
        if seed is not None and len(seed) != self.num_envs:
            raise ConfigError(
                explain(
                    expected=f"{self.num_envs} seeds", found=len(seed), where="seed", fix="pass one for each lane"
                )
            )
        seeds = None if seed is None else [seed[lane] for lane in lanes]
        self.arrange_resets(lanes, seeds, None if options is None else [options] * len(lanes))
        self.post(lanes, self._own_rows(lanes), RESET, ALL_INFOS)
        back = self.recv()
        infos: dict[str, Any] = {}
        for lane in lanes:
            if int(lane) in back.info:
                infos = self._add_info(infos, back.info[int(lane)], int(lane))
        first = self.store.scratch + self.num_envs
        return tree.map(np.copy, tree.take(self.store.obs, slice(first, first + self.num_envs))), infos

    def step(self, actions: Tree) -> tuple[Tree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all lanes and wait for all; a lane that ends is reset in the same call.

        Returns:
            Observations [num_envs, ...], rewards float64, terminations and truncations bool [num_envs], and infos in
            Gymnasium's layout.
        """
        self.check_open()
        if self._under_way:
            raise OutriderError(
                explain(
                    expected="no lane under way",
                    found=f"{sum(len(one[0]) for one in self._under_way)}",
                    where="step()",
                    fix="call recv() first",
                )
            )
        self._write_actions(actions, self._all)
        block, count = self._step_block()
        first = block + self.num_envs
        self.post(self._all, range(first, first + self.num_envs), STEP, ALL_INFOS)
        back = self.recv()
        infos = self._gymnasium_infos(back) if back.ended or back.info else {}
        store, steps = self.store, slice(block, first)
        flags = store.reward[steps].copy(), store.terminated[steps].copy(), store.truncated[steps].copy()
        if count:
            # Large observations are handed over as they are: these rows are nobody else's until the array has died.
            root = store.pool.lend(block, count)
            obs = store.rows.view(root, first, (self.num_envs,))["obs"]
        else:
            obs = tree.map(np.copy, tree.take(store.obs, slice(first, first + self.num_envs)))
        return (obs, *flags, infos)

    def _step_block(self) -> tuple[int, int]:
        """The first row for a step, and how many rows were taken for it: none for small observations."""
        if self._obs_nbytes < WORTH_LENDING:
            return self.store.scratch, 0
        count = 2 * self.num_envs
        return self.store.pool.take(count), count

    @property
    def _obs_nbytes(self) -> int:
        return self.num_envs * self.store.row_nbytes

    def _gymnasium_infos(self, back: Arrival) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        rows = dict(zip(back.ended, back.final_rows.tolist(), strict=True))
        for lane in sorted({*back.ended, *back.info}):
            if lane in rows:
                last = tree.map(lambda leaf, row=rows[lane]: leaf[row].copy(), self.store.obs)
                final = {"final_obs": last, "final_info": back.final_info.get(lane, {})}
                infos = self._add_info(infos, final, lane)
            infos = self._add_info(infos, back.info.get(lane, {}), lane)
        return infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or get an attribute, of each environment."""
        return self._ask("call", name, [(args, kwargs)] * self.num_envs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Get an attribute of each environment."""
        return self._ask("get", name, [()] * self.num_envs)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to one value for all or to a list or tuple with one for each.

        Raises:
            ConfigError: not one for each.
        """
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ConfigError(
                explain(
                    expected=f"{self.num_envs} values", found=len(values), where="set_attr", fix="pass one for each lane"
                )
            )
        self._ask("set", name, [(value,) for value in values])

    def render(self) -> tuple[Any, ...]:
        """Return the frame of each environment."""
        return self._ask("render", "", [()] * self.num_envs)

    def _ask(self, operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        self.check_open()
        if self._under_way:
            raise OutriderError(
                explain(expected="no lane under way", found="some", where=operation, fix="call recv() first")
            )
        return tuple(self.driver.call(self._all, operation, name, arguments))

    # -- closing -----------------------------------------------------------------------------------------------------

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty when the environments run in this process."""
        return self.driver.pids

    def trim(self) -> None:
        """Give the memory of rollouts that were let go back to the system now."""
        self.store.pool.trim()

    def check_open(self) -> None:
        """Raise if the environments are closed.

        Raises:
            ClosedError: they are.
        """
        if self.closed:
            msg = f"{self.name}: these environments are closed, by close() or after a failure; make new ones with make_vec"
            raise ClosedError(msg)

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment once and end the workers; called by `close`.

        Raises:
            EnvironmentFailure: an environment raised in its own close; all others have been closed nevertheless.
        """
        del kwargs
        self.closed = True
        self._under_way.clear()
        failures = self.driver.close()
        self.store.pool.trim()
        if failures:
            raise failures[0]

    def __enter__(self) -> VecEnv:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.close()
        except OutriderError:
            # What ended the block matters more than how closing went.
            if exception[0] is None:
                raise


NONE = np.array([], np.int64)

