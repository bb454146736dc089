"""The environments of consecutive lanes in one process: builds, resets, steps and closes them, and writes their rows.

Inline and in a worker alike; nothing else calls an environment.
"""

from __future__ import annotations

import copy
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import gymnasium
import numpy as np

from outrider import tree
from outrider.errors import ConfigError, EnvironmentFailure, SpecError, explain
from outrider.spaces import action_reader, observation_writer
from outrider.vector.batched import is_batched
from outrider.vector.plan import EnvFactory
from outrider.vector.rewards import as_reward
from outrider.vector.store import Store

__all__ = ["ALL_INFOS", "NO_INFOS", "SOME_INFOS", "EnvGroup", "build", "quietly"]

NO_INFOS, SOME_INFOS, ALL_INFOS = 0, 1, 2
"""Whether info dicts are wanted: not at all, the selected keys, or whole."""

OPERATIONS = ("start", "construct", "reset", "step", "call", "close", "wait")
STARTING, CONSTRUCTING, RESETTING, STEPPING, CALLING, CLOSING, IDLE = range(7)

FAILURES = (Exception, SystemExit)
"""What is an environment's failure; a KeyboardInterrupt is not its doing."""

PLAIN_NUMBERS = {float, int, np.float64, np.float32}

Infos = dict[int, dict[str, Any]]


def build(factories: Sequence[EnvFactory], first: int, note: Any = None) -> list[gymnasium.Env[Any, Any]]:
    """Make the environments of lanes `first`, `first + 1`, ...

    Raises:
        EnvironmentFailure: a factory raised, returned something else, or returned the same instance twice; those
            already made are closed.
    """
    note = [first, CONSTRUCTING] if note is None else note
    note[1] = CONSTRUCTING
    envs: list[gymnasium.Env[Any, Any]] = []
    for lane, factory in enumerate(factories, first):
        note[0] = lane
        try:
            envs.append(_checked(factory(), envs))
        except BaseException as error:
            for env in envs:
                quietly(env.close)
            if isinstance(error, FAILURES):
                raise failure(lane, "construct", error) from error
            raise
    return envs


def _checked(env: Any, others: list[gymnasium.Env[Any, Any]]) -> gymnasium.Env[Any, Any]:
    if not isinstance(env, gymnasium.Env) or is_batched(env):
        raise ConfigError(
            explain(
                expected="a single gymnasium.Env" if is_batched(env) else "a gymnasium.Env",
                found=f"{type(env).__name__} {env!r:.60}",
                where="what the factory returned",
                fix="pass a batch of environments to make_vec as it is"
                if is_batched(env)
                else "return a new environment from the factory",
            )
        )
    if any(env.unwrapped is other.unwrapped for other in others):
        raise ConfigError(
            explain(
                expected="a new environment for each lane",
                found="the instance that another lane has already",
                where="what the factory returned",
                fix="create the environment inside the factory",
            )
        )
    return env


class EnvGroup:
    """Environments of lanes `first` ... `first + len(envs) - 1`, writing into the rows of a store.

    `note` is a writable sequence of two integers that always says which lane is being called and for what operation
    (an index of `OPERATIONS`), so that a worker's death can be put down to a lane. Where calls are `timed` it has a
    third integer for when the call began, in nanoseconds of the monotonic clock.
    """

    def __init__(
        self,
        envs: list[gymnasium.Env[Any, Any]],
        first: int,
        store: Store,
        info_keys: tuple[str, ...] = (),
        note: Any = None,
        *,
        timed: bool = False,
    ) -> None:
        self.envs = envs
        self.first = first
        self.store = store
        self.info_keys = info_keys
        space = envs[0].action_space
        self._action_space = space
        # An observation that is one array is checked and written without a call; no array has the dtype None.
        self._single: Any = (None, None, ())
        if isinstance(store.obs, np.ndarray):
            self._single = (store.obs, store.obs.dtype, store.obs.shape[1:])
        self._write = observation_writer(envs[0].observation_space, store.obs)
        # (k,) of vector rewards, () of numbers.
        self._reward_shape = store.reward.shape[1:]
        mine = slice(first, first + len(envs))
        self._actions = tree.map(lambda leaf: leaf[mine], store.action)
        # A Discrete action is a scalar, which is a copy already; all others are copied at each step.
        self._scalars = isinstance(space, gymnasium.spaces.Discrete)
        self._reset_arguments: dict[int, tuple[int | None, dict[str, Any] | None]] = {}
        self.note = self._note = [first, CONSTRUCTING] if note is None else note
        self._timed = timed
        self.closed = False
        self.infos: Infos = {}
        self.final_infos: Infos = {}

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """Set (seed, options) that the next reset of each of these lanes is called with."""
        for lane, (seed, options) in arguments.items():
            before = self._reset_arguments.get(lane, (None, None))
            # None leaves what was set before and not used yet: options do not unseed a lane.
            self._reset_arguments[lane] = (
                before[0] if seed is None else seed,
                before[1] if options is None else options,
            )

    def reset(self, lanes: Iterable[int], rows: Iterable[int], want: int = NO_INFOS) -> None:
        """Reset `lanes` and write their observations to `rows`.

        Raises:
            EnvironmentFailure: an environment raised or returned what its space does not declare.
        """
        note = self._note
        note[1] = RESETTING
        try:
            called = self._stamped(lanes) if self._timed else lanes
            for lane, row in zip(called, rows, strict=True):
                note[0] = lane
                ob, info = self._reset(lane)
                self._write(ob, row)
                if want and info:
                    self._keep(self.infos, lane, info, want)
        except FAILURES as error:
            raise self._failure(error) from error

    def _reset(self, lane: int) -> tuple[Any, dict[str, Any]]:
        seed, options = self._reset_arguments.pop(lane, (None, None))
        result: Any = self.envs[lane - self.first].reset(seed=seed, options=options)
        if not isinstance(result, tuple) or len(result) != 2:
            raise SpecError(
                explain(
                    expected="(observation, info)",
                    found=f"{type(result).__name__} {result!r:.60}",
                    where="what reset returned",
                    fix="return both, as Gymnasium's API asks",
                )
            )
        observation, info = result
        return observation, info

    def step(self, lanes: Any, rows: Any, holds: Iterable[bool] = repeat(False), want: int = NO_INFOS) -> list[int]:
        """Step `lanes` with the actions in the mailbox; write observations to `rows`, the rest one step before them.

        A lane that ends is reset at once, its last observation going to its row in `store.final`, unless it is held.

        Args:
            lanes: range or int64 array of lane numbers.
            rows: range or int64 array of the rows that the observations go to.
            holds: for each lane, whether it stays at its end until it is told to reset.
            want: `NO_INFOS`, `SOME_INFOS` or `ALL_INFOS`.

        Returns:
            The lanes that ended, in order.

        Raises:
            EnvironmentFailure: an environment raised or returned what its space does not declare.
        """
        # Python integers: indexing with NumPy's costs twice as much.
        numbers = lanes if type(lanes) is range else lanes.tolist()
        targets = rows if type(rows) is range else rows.tolist()
        envs, actions = self._chosen(numbers)
        store, note = self.store, self._note
        leaf, dtype, shape = self._single
        array = np.ndarray
        at = store.before(rows)
        store.terminated[at] = store.truncated[at] = False
        ended: list[int] = []
        rewards: list[Any] = []
        note[1] = STEPPING
        try:
            called = self._stamped(numbers) if self._timed else numbers
            for lane, env, action, row, hold in zip(called, envs, actions, targets, holds, strict=False):
                note[0] = lane
                ob, reward, terminated, truncated, info = env.step(action)
                rewards.append(reward)
                if terminated or truncated:
                    ended.append(lane)
                    store.terminated[row - store.num_envs] = bool(terminated)
                    store.truncated[row - store.num_envs] = bool(truncated)
                    if not hold:
                        if type(reward) not in PLAIN_NUMBERS:
                            rewards[-1] = copy.deepcopy(reward)  # the reset may write to it
                        ob, info = self._begin_anew(lane, ob, info, want)
                if type(ob) is array and ob.dtype is dtype and ob.shape == shape:
                    leaf[row] = ob
                else:
                    self._write(ob, row)
                if want and info:
                    self._keep(self.infos, lane, info, want)
        except FAILURES as error:
            raise self._failure(error) from error
        try:
            if not self._reward_shape and PLAIN_NUMBERS.issuperset(map(type, rewards)):
                store.reward[at] = rewards
                return ended
        except OverflowError:  # found below with the lane that it is of; `suppress` would cost as much as the writing
            pass
        self._write_odd_rewards(at, rewards, numbers)
        return ended

    def _begin_anew(self, lane: int, ob: Any, info: dict[str, Any], want: int) -> tuple[Any, dict[str, Any]]:
        """Keep the last observation and info of a lane aside, and reset it."""
        self._write(ob, self.store.final + lane)
        if want and info:
            self._keep(self.final_infos, lane, info, want)
        self._note[1] = RESETTING
        self._stamp()
        begun = self._reset(lane)
        self._note[1] = STEPPING
        return begun

    def _stamped(self, lanes: Iterable[int]) -> Iterator[int]:
        """Lanes that are called one after the other, where calls are timed: stamps each as its turn comes."""
        for lane in lanes:
            self._stamp()
            yield lane

    def _stamp(self) -> None:
        if self._timed:
            self._note[2] = time.monotonic_ns()

    def _chosen(self, numbers: Any) -> tuple[list[gymnasium.Env[Any, Any]], list[Any]]:
        """The environments of lanes, and an action for each that it may keep: nobody writes to it any more."""
        if self._scalars:
            actions = list(self._actions)
        else:
            read = action_reader(self._action_space, tree.map(np.copy, self._actions))
            actions = [read(index) for index in range(len(self.envs))]
        if len(numbers) == len(self.envs):
            return self.envs, actions
        index = [lane - self.first for lane in numbers]
        return [self.envs[i] for i in index], [actions[i] for i in index]

    def _write_odd_rewards(self, at: Any, rewards: list[Any], numbers: Any) -> None:
        """Write rewards that are vectors, or no plain numbers: each is looked at on its own."""
        found = []
        try:
            for self._note[0], reward in zip(numbers, rewards, strict=True):
                found.append(as_reward(reward, self._reward_shape))
        except FAILURES as error:
            raise self._failure(error) from error
        if found:
            self.store.reward[at] = found

    def _failure(self, error: Exception | SystemExit) -> EnvironmentFailure:
        return failure(self._note[0], OPERATIONS[self._note[1]], error)

    def _keep(self, infos: Infos, lane: int, info: dict[str, Any], want: int) -> None:
        kept = info if want == ALL_INFOS else {key: info[key] for key in self.info_keys if key in info}
        if kept:
            infos[lane] = kept

    def take_infos(self) -> tuple[Infos, Infos]:
        """Return the infos and the final infos kept since the last call, by lane, and forget them."""
        taken = self.infos, self.final_infos
        self.infos, self.final_infos = {}, {}
        return taken

    def call(self, lane: int, operation: str, name: str, arguments: tuple[Any, ...]) -> Any:
        """Get or set an attribute of a lane's environment, call a method of it, or render it."""
        env = self.envs[lane - self.first]
        self._note[0], self._note[1] = lane, CALLING
        self._stamp()
        try:
            if operation == "set":
                return env.set_wrapper_attr(name, arguments[0])
            if operation == "render":
                return env.render()
            found = env.get_wrapper_attr(name)
            return found(*arguments[0], **arguments[1]) if operation == "call" and callable(found) else found
        except FAILURES as error:
            raise failure(lane, f"{operation} {name!r}", error) from error

    def is_seeded(self, lane: int) -> bool:
        """Whether a seed was set for the next reset of a lane."""
        return self._reset_arguments.get(lane, (None, None))[0] is not None

    def abandon(self, lane: int) -> None:
        """Close the environment of a lane that failed, whatever it says to that, and leave none in its place."""
        self._note[0], self._note[1] = lane, CLOSING
        self._stamp()
        quietly(self.envs[lane - self.first].close)
        self.envs[lane - self.first] = gymnasium.Env()

    def install(self, lane: int, env: gymnasium.Env[Any, Any]) -> None:
        """Put a new environment in the place of one that was abandoned."""
        self.envs[lane - self.first] = env

    def close(self) -> list[EnvironmentFailure]:
        """Close each environment once, whatever the others do; return what failed."""
        failures: list[EnvironmentFailure] = []
        if self.closed:
            return failures
        self.closed = True
        for lane, env in enumerate(self.envs, self.first):
            self._note[0], self._note[1] = lane, CLOSING
            error = quietly(env.close)
            if error is not None:
                failures.append(failure(lane, "close", error))
        return failures


def failure(lane: int, operation: str, error: BaseException) -> EnvironmentFailure:
    """Name lane, operation and process in front of the original traceback."""
    if isinstance(error, EnvironmentFailure):
        return error
    trace = "".join(traceback.format_exception(error)).rstrip()
    message = f"lane {lane}, {operation}, process {os.getpid()}: {type(error).__name__}: {error}\n\n{trace}"
    result = EnvironmentFailure(message, lane=lane, operation=operation, pid=os.getpid())
    result.__cause__ = error
    return result


def quietly(function: Callable[[], Any]) -> Exception | SystemExit | None:
    """Call a function, e.g. the `close` of one of several environments; return what it raised."""
    try:
        function()
    except FAILURES as error:
        return error
    return None
