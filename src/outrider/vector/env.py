"""`VecEnv`: environments that step together, as Gymnasium's vector environments do, and apart (`send`, `recv`)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from outrider import tree
from outrider.errors import ClosedError, ConfigError, OutriderError, explain
from outrider.tree import Tree
from outrider.vector.arrival import Arrival
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD, Backend, Driver
from outrider.vector.group import ALL_INFOS, NO_INFOS
from outrider.vector.inline import Inline
from outrider.vector.plan import Envs, EnvSource, as_plan
from outrider.vector.requests import check_lanes, check_mask, lane_values, reset_arguments, write_actions
from outrider.vector.store import indexer, numbers_of

__all__ = ["VecEnv", "make_vec"]

COPY = operator.methodcaller("copy")

WORTH_LENDING = 1 << 17
"""Bytes of observations above which `step` lends fresh rows instead of copying out of the same ones."""


def make_vec(env: Envs | EnvSource, num_envs: int | None = None, *, backend: Backend | str = "auto") -> VecEnv:
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
    if isinstance(backend, (str, type)) or not isinstance(backend, Backend):
        raise ConfigError(
            explain(
                expected="Inline(), Processes(...) or 'auto'",
                found=repr(backend),
                where="backend",
                fix="pass e.g. outrider.Processes(workers=2)",
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
        self.lanes = driver.lanes
        self._obs_nbytes = self.num_envs * self.store.row_nbytes
        first = self.store.scratch
        self._scratch_rows = range(first + self.num_envs, first + 2 * self.num_envs)
        self._scratch = self.store.step_at(self._scratch_rows)
        # By lane: whether it is under way, and if so, to which row and by which operation.
        self._away = np.zeros(self.store.num_envs, np.bool_)
        self._rows = np.zeros(self.store.num_envs, np.int64)
        self._ops = np.zeros(self.store.num_envs, np.int8)

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
        at = indexer(lanes)
        self._away[at], self._rows[at], self._ops[at] = True, numbers_of(rows), op
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
            All lanes that have arrived, the oldest request first.

        Raises:
            OutriderError: nothing was sent, or the wait for it was interrupted before and cannot be gone on with.
            EnvironmentFailure: an environment failed; all environments are closed then.
        """
        return self._recv(self.driver.wait_for)

    def _recv(self, least: int | None) -> Arrival:
        if not self._away.any():
            raise OutriderError(
                explain(expected="at least one lane under way", found="none", where="recv()", fix="call send() first")
            )
        back = self.driver.wait(least)
        at = indexer(back.lanes)
        if not len(back.lanes):
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
        final = NONE
        if back.ended:
            ended = np.array(back.ended, np.int64)
            final = np.where(self._ops[ended] == STEP_AND_HOLD, self._rows[ended], self.store.final + ended)
        return Arrival(self.store, back.lanes, rows, back.ended, final, back.infos, back.final_infos)

    def drain(self) -> None:
        """Wait for what is under way and drop it."""
        if self._away.any():
            self.driver.wait()
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
        if env_ids is None and not self._away.any():
            return self.lanes, self.lanes
        named = np.arange(self.num_envs) if env_ids is None else env_ids
        return check_lanes(named, self._away), np.asarray(named, np.int64)

    def _own_rows(self, lanes: Any) -> Any:
        return self._scratch_rows if type(lanes) is range else lanes + self._scratch_rows.start

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
        self.drain()
        options = None if options is None else dict(options)
        masked = options is not None and "reset_mask" in options
        lanes = check_mask(options.pop("reset_mask"), self.num_envs) if options and masked else self.lanes
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + lane for lane in self.lanes]
        if seed is not None:
            lane_values(seed, self.num_envs, "seed")
            seed = [seed[int(lane)] for lane in lanes]
        self.arrange_resets(lanes, seed, None if options is None else [options] * len(lanes))
        self.post(lanes, self._own_rows(lanes), RESET, ALL_INFOS)
        infos = self._gymnasium_infos(self._recv(None))
        return tree.map(COPY, self._scratch["obs"]), infos

    def step(self, actions: Tree) -> tuple[Tree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all lanes and wait for all; a lane that ends is reset in the same call.

        Returns:
            Observations [num_envs, ...], rewards float64, terminations and truncations bool [num_envs], and infos in
            Gymnasium's layout.
        """
        self._check_idle("step()")
        write_actions(self.store.action, actions, self.lanes)
        if self._obs_nbytes >= WORTH_LENDING:
            return self._lending_step()
        self.post(self.lanes, self._scratch_rows, STEP, ALL_INFOS)
        back = self._recv(None)
        infos = self._gymnasium_infos(back) if back.ended or back.info else {}
        here = self._scratch
        flags = here["reward"].copy(), here["terminated"].copy(), here["truncated"].copy()
        return (tree.map(COPY, here["obs"]), *flags, infos)

    def _lending_step(self) -> tuple[Tree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Hand large observations over as they are: their rows are nobody else's until the array has died."""
        store, count = self.store, 2 * self.num_envs
        block = store.pool.take(count)
        first = block + self.num_envs
        self.post(self.lanes, range(first, first + self.num_envs), STEP, ALL_INFOS)
        back = self._recv(None)
        infos = self._gymnasium_infos(back) if back.ended or back.info else {}
        steps = slice(block, first)
        flags = store.reward[steps].copy(), store.terminated[steps].copy(), store.truncated[steps].copy()
        root = store.pool.lend(block, count)
        return (store.rows.view_part("obs", root, first, (self.num_envs,)), *flags, infos)

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
        lane_values(values, self.num_envs, "set_attr")
        self._ask("set", name, [(value,) for value in values])

    def render(self) -> tuple[Any, ...]:
        """Return the frame of each environment."""
        return self._ask("render", "", [()] * self.num_envs)

    def _ask(self, operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
        self._check_idle(operation)
        return tuple(self.driver.call(self.lanes, operation, name, arguments))

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
        if self.closed or not self.driver.is_open:
            msg = (
                f"{self.name}: these environments are closed, by close() or after a failure; "
                "make new ones with outrider.make_vec"
            )
            raise ClosedError(msg)

    def _check_idle(self, where: str) -> None:
        self.check_open()
        if self._away.any():
            raise OutriderError(
                explain(
                    expected="no lane under way",
                    found=f"{int(self._away.sum())} of them",
                    where=where,
                    fix="call recv() first",
                )
            )

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment once and end the workers; called by `close`.

        Raises:
            EnvironmentFailure: an environment raised in its own close; all others have been closed nevertheless.
        """
        del kwargs
        self._away[:] = False
        failures = self.driver.close()
        self.store.pool.trim()
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.close()
        except OutriderError:
            # What ended the block matters more than how closing went.
            if exception[0] is None:
                raise


NONE = np.array([], np.int64)
