"""The small interface behind every vector environment: who runs the environments, and where, is the driver's choice."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from outrider.errors import ConfigError, EnvironmentFailure, explain
from outrider.spaces import stored_part
from outrider.spec import LeafSpec
from outrider.vector.rewards import declared_rewards, reward_spec
from outrider.vector.store import Store

if TYPE_CHECKING:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import AutoresetMode

    from outrider.vector.plan import Envs

__all__ = [
    "RESET",
    "STEP",
    "STEP_AND_HOLD",
    "Backend",
    "Description",
    "Driver",
    "Returned",
    "describe",
    "one_description",
]

STEP, STEP_AND_HOLD, RESET = 1, 2, 3
"""What a lane can be asked to do. STEP resets a lane that ends in the same call; STEP_AND_HOLD leaves it at its end."""


@dataclass(frozen=True)
class Description:
    """What environments say of themselves.

    Attributes:
        observation_space: of one environment, as declared.
        space: the same without leaves that nobody knows how to store.
        left_out: paths of those leaves.
        reward_space: of vector rewards; None where rewards are numbers.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    space: gymnasium.Space[Any]
    left_out: tuple[str, ...]
    metadata: dict[str, Any]
    spec: EnvSpec | None
    render_mode: str | None
    reward_space: spaces.Box | None = None

    @property
    def reward(self) -> LeafSpec:
        """What a row holds of the rewards."""
        return reward_spec(self.reward_space)


@dataclass(slots=True)
class Returned:
    """What came back from a wait.

    Attributes:
        lanes: which lanes arrived, the oldest request first: the range that was posted when it was one for all of them,
            an int64 array else.
        ended: those of them whose step ended their episode, in the same order.
        infos, final_infos: by lane, where they were wanted and not empty.
        dummies: those whose step did nothing but reset them, because their source resets in the step after an end.
        blind: those of `ended` whose last observation the source does not tell. What stands in its place is none.
        lost: those whose step did not happen, because the environment failed and was made anew. The reset observation
            of the new one stands in row `store.final + lane`, its info in `infos`. The row that the step was to write
            to holds anything; the observation that it acted upon is where it was, and is the last of its episode.
        dropped: lanes that failed and are gone for good, and why. They are not among `lanes`.
        batch_infos: in place of `infos` and `final_infos`, the infos of all lanes as their source has them.
    """

    lanes: Any
    ended: list[int]
    infos: dict[int, dict[str, Any]] = field(default_factory=dict)
    final_infos: dict[int, dict[str, Any]] = field(default_factory=dict)
    dummies: list[int] = field(default_factory=list)
    blind: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    dropped: dict[int, EnvironmentFailure] = field(default_factory=dict)
    batch_infos: dict[str, Any] | None = None


@runtime_checkable
class Backend(Protocol):
    """Where environments run. `outrider.testing.VecEnvConformance` says whether one does it right."""

    def start(self, plan: Envs) -> Driver:
        """Build the environments of `plan`.

        Raises:
            ConfigError: the plan cannot be built in this way; nothing has been started then.
            EnvironmentFailure: an environment could not be made; nothing is left of the others.
        """


class Driver(ABC):
    """Runs the environments of all lanes. One request a lane may be under way at a time; the caller sees to that.

    Attributes:
        wait_for: how many arrivals `recv` and a collector wait for; None: for everything under way.
        autoreset_mode: when the environments reset by themselves; None: as each operation says.
        batch: how many lanes have to be under way for any to come back.
        takes_seeds: whether resets can have seeds.
        resets_apart: whether any lane can be reset while the others step.
        rebuilds: whether it makes environments that fail anew, so that steps may be lost.
        drops: whether it goes on without lanes that fail.
        restarts: how often an environment, or a worker with all of its environments, was made anew after a failure.
        lost_steps: how many steps did not happen because of that.
        dropped: the lanes that failed and are gone for good, in order.
    """

    store: Store
    description: Description
    num_envs: int
    wait_for: int | None = None
    autoreset_mode: AutoresetMode | None = None
    batch: int = 1
    takes_seeds: bool = True
    resets_apart: bool = True
    rebuilds: bool = False
    drops: bool = False
    restarts: int = 0
    lost_steps: int = 0
    dropped: tuple[int, ...] = ()

    @abstractmethod
    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """Start `op` (one for all, or an int8 array) on `lanes`; observations go to `rows`.

        `lanes` and `rows` are ranges or int64 arrays of equal length. Actions stand in `store.action` already.
        """

    @abstractmethod
    def wait(self, least: int | None = None) -> Returned:
        """Wait until `least` lanes have arrived, or everything posted is done; return all that have arrived by then.

        No lane at all comes back if an interrupted wait has left the driver without knowing where they are.

        Args:
            least: how many; None, or more than are under way: everything. A driver that was started without
                `wait_for` may wait for everything whatever is asked.

        Raises:
            EnvironmentFailure: an environment failed. The driver is closed then.
        """

    def exchange(self, lanes: Any, rows: Any, op: Any, want: int) -> Returned:
        """`post`, and `wait` for all of it."""
        self.post(lanes, rows, op, want)
        return self.wait()

    def hand_over(self, op: Any) -> tuple[Any, ...] | None:
        """Step all lanes and return what Gymnasium's `step` returns, in arrays that are the caller's alone.

        No row is written, which saves a copy of large observations. None: nothing has been done, `exchange` has to do
        it; so most drivers, whose environments write to rows anyway.
        """
        del op
        return None

    @abstractmethod
    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """Set the (seed, options) of the next reset of each of these lanes."""

    @abstractmethod
    def call(self, lanes: Sequence[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Get, set, call or render on each of `lanes`, with its own arguments; nothing may be under way."""

    @abstractmethod
    def close(self) -> list[EnvironmentFailure]:
        """Close every environment once and end what was started; return what failed. Safe to call twice."""

    def let_go(self, lanes: Any) -> None:  # noqa: B027 - most drivers step their lanes apart and need not know
        """Be told that nobody goes on with the episodes of `lanes`: the next request for each of them is a reset."""

    @property
    def in_lockstep(self) -> bool:
        """Whether all lanes that are sent on come back together, each with its step done."""
        return self.wait_for is None and not (self.rebuilds or self.drops)

    @property
    def lanes(self) -> range:
        """The lanes that it runs: all of the store's, but in a process that runs a share of them."""
        return range(self.num_envs)

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it can be used: neither closed nor given up after a failure."""

    @property
    def pids(self) -> list[int]:
        """Processes that were started and run."""
        return []


def describe(envs: Sequence[gymnasium.Env[Any, Any]], first: int) -> Description:
    """Describe the first of `envs` (lanes `first`, ...) and refuse others whose spaces differ from its.

    Raises:
        ConfigError: the spaces differ, or nothing of the observation can be stored.
    """
    env = envs[0]
    stored, left_out = stored_part(env.observation_space)
    if stored is None:
        raise ConfigError(
            explain(
                expected="an observation space with a leaf that is a Box, Discrete, MultiDiscrete, MultiBinary, Text, "
                "Sequence or Graph",
                found=repr(env.observation_space),
                where=f"lane {first}",
                fix="wrap the environment so that its observation becomes arrays of fixed shape",
            )
        )
    description = Description(
        env.observation_space,
        env.action_space,
        stored,
        tuple(left_out),
        dict(env.metadata),
        env.spec,
        env.render_mode,
        declared_rewards(env, f"lane {first}"),
    )
    for lane, other in enumerate(envs[1:], first + 1):
        rewards = declared_rewards(other, f"lane {lane}")
        _same_spaces(description, (other.observation_space, other.action_space, rewards), lane)
    return description


def one_description(described: Sequence[tuple[int, Description]]) -> Description:
    """Return the first description after checking that those of all workers agree; say once what is left out."""
    _, first = described[0]
    for lane, other in described[1:]:
        _same_spaces(first, (other.observation_space, other.action_space, other.reward_space), lane)
    if first.left_out:
        names = ", ".join(f"'{path}'" for path in first.left_out)
        warnings.warn(
            f"observations are stored without {names}: leaves of such spaces cannot be stored. "
            "Wrap the environment (e.g. gymnasium.wrappers.FilterObservation) to leave them out yourself.",
            stacklevel=4,
        )
    return first


def _same_spaces(
    first: Description, others: tuple[gymnasium.Space[Any], gymnasium.Space[Any], spaces.Box | None], lane: int
) -> None:
    spaces_of_first = (first.observation_space, first.action_space, first.reward_space)
    names = ("observation space", "action space", "reward_space")
    for name, expected, found in zip(names, spaces_of_first, others, strict=True):
        if expected != found:
            raise ConfigError(
                explain(
                    expected=f"{expected!r} as in lane 0",
                    found=repr(found),
                    where=f"{name} of lane {lane}",
                    fix="collect from environments of different spaces separately",
                )
            )
