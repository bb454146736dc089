"""`VecEnv`: environments that step together, as Gymnasium's vector environments do, and apart (`send`, `recv`)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from outrider import tree
from outrider.errors import OutriderError
from outrider.tree import Tree
from outrider.vector.arrival import Arrival
from outrider.vector.attributes import Attributes
from outrider.vector.autoreset import autoreset
from outrider.vector.driver import RESET, Driver
from outrider.vector.group import ALL_INFOS
from outrider.vector.lanes import AT_END, NOWHERE, Lanes
from outrider.vector.requests import check_lanes, check_mask, lane_values, write_actions

__all__ = ["VecEnv"]

COPY = operator.methodcaller("copy")

WORTH_LENDING = 1 << 17
"""Bytes of observations above which `step` lends fresh rows instead of copying out of the same ones."""


class VecEnv(Lanes):
    """Environments of equal spaces behind a driver.

    As a Gymnasium vector environment it resets a lane in the step that ends it, and gives the last observation and info
    in `infos["final_obs"]` and `infos["final_info"]`; `autoreset_mode` of `make_vec` chooses another mode. What it
    returns never changes afterwards.

    Attributes:
        num_envs: number of lanes.
        single_observation_space: of one environment, without leaves that cannot be stored.
        reward_space: of one environment, a Box of shape (k,), where it declares vector rewards; None where they are
            numbers.
        metadata: of one environment, and the mode under "autoreset_mode".
        driver: runs the environments; `driver.store` holds the rows that they write.
        name: the id or the name of the factory.
        info_keys: keys of info dicts that become columns of rollouts.
        backend_reason: what `backend="auto"` chose, and why; empty where there was no choice.
    """

    backend_reason = ""

    def __init__(
        self,
        driver: Driver,
        name: str,
        *,
        info_keys: tuple[str, ...] = (),
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    ) -> None:
        super().__init__(driver, name)
        described = driver.description
        self.info_keys = info_keys
        self.single_observation_space = described.space
        self.single_action_space = described.action_space
        self.observation_space = batch_space(described.space, self.num_envs)
        self.action_space = batch_space(described.action_space, self.num_envs)
        self.reward_space = described.reward_space
        self.metadata = {**described.metadata, "autoreset_mode": autoreset_mode}
        self.spec = described.spec
        self.render_mode = described.render_mode
        self._autoreset = autoreset(autoreset_mode)
        self._scratch = self.store.step_at(self._scratch_rows)
        large = self.num_envs * self.store.row_nbytes >= WORTH_LENDING
        self._lends = self._autoreset.lends and large and not self.store.ragged
        # What the last step has lent or handed over is kept until the next: a reset of other lanes returns it again.
        self._lent: Any = None

    # -- Gymnasium's face --------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, dict[str, Any]]:
        """Reset all lanes, or those in `options["reset_mask"]`; what is under way is received first and dropped.

        Args:
            seed: None, an integer (lane i gets `seed + i`), or one for each lane.
            options: passed to every reset. `reset_mask`, bool [num_envs], is left out of it.

        Returns:
            Observations [num_envs, ...] (of lanes not reset: their current ones; where these are larger than 128 KiB
            in all, what you wrote to the array of the last step shows in them, unless autoreset is disabled) and infos.

        Raises:
            ConfigError: not a seed for each lane, or a mask that is none; nothing has been reset then. It is a
                `TypeError` as well where Gymnasium raises that.
        """
        self.check_open()
        options = None if options is None else dict(options)
        masked = options is not None and "reset_mask" in options
        lanes: Any = self.lanes
        if options and masked:
            lanes = check_mask(options.pop("reset_mask"), self.num_envs, begun=self.uses > 0)
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + lane for lane in self.lanes]
        if seed is not None:
            lane_values(seed, self.num_envs, "seed")
            seed = [seed[int(lane)] for lane in lanes]
        if not masked and self._is_away:
            self.driver.let_go(self.lanes)
        self.drain()
        if masked:
            self._bring_home()
        self.arrange_resets(lanes, seed, None if options is None else [options] * len(lanes))
        self.post(lanes, self._own_rows(lanes), RESET, ALL_INFOS)
        infos = self._gymnasium_infos(self._recv_all())
        self._lent = None
        return tree.map(COPY, self._scratch["obs"]), infos

    def _bring_home(self) -> None:
        """Copy the current observations of all lanes to the scratch rows, from wherever they were sent."""
        home = np.arange(self._scratch_rows.start, self._scratch_rows.stop)
        handed = np.flatnonzero(self._rows == NOWHERE)
        if len(handed):
            tree.put(self.store.obs, home[handed], tree.take(self._lent, handed))
            self._rows[handed] = home[handed]
        elsewhere = np.flatnonzero(self._rows != home)
        if len(elsewhere):
            tree.put(self.store.obs, home[elsewhere], tree.take(self.store.obs, self._rows[elsewhere]))
            self._rows[:] = home
            self._rows_of_all = None

    def step(self, actions: Tree) -> tuple[Tree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all lanes and wait for all; lanes that end are reset as `metadata["autoreset_mode"]` says.

        Returns:
            Observations [num_envs, ...], rewards float64 [num_envs], or [num_envs, k] where the environments declare
            vector rewards, terminations and truncations bool [num_envs], and infos in Gymnasium's layout.

        Raises:
            SpecError: the actions do not fit the action space.
            OutriderError: lanes are under way, or autoreset is disabled and a lane that has ended was not reset.
            EnvironmentFailure: an environment failed; all environments are closed then, unless it says otherwise.
            ConfigError: lanes have been dropped.
        """
        self.check_idle("step()")
        op, only_reset = self._autoreset.plan(self._ops)
        write_actions(self.store.action, actions, self.lanes)
        if self._lends:
            return self._handed_step(op) or self._lending_step(op, only_reset)
        back = self._exchange(self._scratch_rows, op)
        infos = {} if back is None else self._gymnasium_infos(back)
        here = self._scratch
        flags = here["reward"].copy(), here["terminated"].copy(), here["truncated"].copy()
        if len(only_reset):
            _blank(flags, only_reset)
        return (tree.map(COPY, here["obs"]), *flags, infos)

    def _handed_step(self, op: Any) -> tuple[Tree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]] | None:
        """Hand large observations on that their source has given away."""
        step = self._hand_over(op)
        if step is None:
            return None
        obs, reward, terminated, truncated, infos = step
        self._lent = obs
        return obs, reward, terminated, truncated, infos

    def _lending_step(
        self, op: Any, only_reset: np.ndarray
    ) -> tuple[Tree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Hand large observations over as they are: their rows are nobody else's until the array has died."""
        store, count = self.store, 2 * self.num_envs
        block = store.pool.take(count)
        first = block + self.num_envs
        root = store.pool.lend(block, count)
        try:
            back = self._exchange(range(first, first + self.num_envs), op)
        except BaseException:
            # Where nothing has begun, the rows go back now; else lanes stand there, or may be on their way there.
            if ((self._rows >= first) & (self._rows < first + self.num_envs)).any():
                self._lent = root, self._lent
            raise
        infos = {} if back is None else self._gymnasium_infos(back)
        steps = slice(block, first)
        flags = store.reward[steps].copy(), store.terminated[steps].copy(), store.truncated[steps].copy()
        if len(only_reset):
            _blank(flags, only_reset)
        self._lent = root
        return (store.rows.view_part("obs", root, first, (self.num_envs,)), *flags, infos)

    def _gymnasium_infos(self, back: Arrival) -> dict[str, Any]:
        if back.batch_info is not None:
            return back.batch_info
        infos: dict[str, Any] = {}
        rows = dict(zip(back.ended, back.final_rows.tolist(), strict=True))
        for lane in sorted({*back.ended, *back.info}) if back.info else back.ended:
            # A lane that stays at its end has its last observation among the others.
            if lane in rows and self._ops[lane] != AT_END and lane not in back.blind:
                final = {"final_obs": self.store.observation(rows[lane]), "final_info": back.final_info.get(lane, {})}
                infos = self._add_info(infos, final, lane)
            if lane in back.info:
                infos = self._add_info(infos, back.info[lane], lane)
        return infos

    # -- attributes --------------------------------------------------------------------------------------------------

    def at(self, env_ids: Any) -> Attributes:
        """The environments of some lanes, to be asked as all are asked: `call`, `get_attr`, `set_attr`, `render`.

        Args:
            env_ids: distinct lane numbers; what is returned or set is in the same order.

        Raises:
            ConfigError: a lane is named twice or does not exist.

        Example:
            >>> import outrider
            >>> with outrider.make_vec("CartPole-v1", 3) as envs:
            ...     envs.at([2, 0]).set_attr("gravity", [1.6, 3.7])
            ...     envs.get_attr("gravity")
            (3.7, 9.8, 1.6)
        """
        self.check_idle("at()")
        check_lanes(env_ids, self._away)
        return Attributes(self, [int(lane) for lane in env_ids])

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or get an attribute, of each environment; see `Attributes.call`."""
        return Attributes(self, self.lanes).call(name, *args, **kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Get an attribute of each environment; see `Attributes.get_attr`."""
        return Attributes(self, self.lanes).get_attr(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment, to one value for all or to a list or tuple with one for each.

        Raises:
            ConfigError: not one for each.
        """
        Attributes(self, self.lanes).set_attr(name, values)

    def render(self) -> tuple[Any, ...]:
        """Return the frame of each environment.

        Raises:
            ConfigError: the environments were made without a render mode.
        """
        return Attributes(self, self.lanes).render()

    # As in Gymnasium's own vector environments, these two are those of the lanes, and can only be read.
    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generator of each environment, or a copy of it where it lives in another process."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each environment's generator; -1 where it is not known."""
        return self.get_attr("np_random_seed")

    # -- what is left of them ----------------------------------------------------------------------------------------

    @property
    def dropped(self) -> tuple[int, ...]:
        """The lanes that have failed and are gone for good (`on_failure=Drop()`), in order.

        `send`, `send_reset` and `at` take the others by their numbers; `step`, `reset` and what asks all need all.
        """
        return self.driver.dropped

    # -- closing -----------------------------------------------------------------------------------------------------

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty when the environments run in this process."""
        return self.driver.pids

    def trim(self) -> None:
        """Give the memory of rollouts that were let go back to the system now."""
        self.store.pool.trim()

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment once and end the workers; called by `close`.

        Raises:
            EnvironmentFailure: an environment raised in its own close; all others have been closed nevertheless.
        """
        del kwargs
        self._away[:] = False
        self._lent = None
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


def _blank(flags: Sequence[np.ndarray], lanes: np.ndarray) -> None:
    """Lanes that were only reset have neither reward nor end."""
    for array in flags:
        array[lanes] = 0
