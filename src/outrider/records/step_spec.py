"""What the rows of a record look like."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider import spec, tree
from outrider.errors import SpecError, explain
from outrider.records import arrays
from outrider.records.episode import Episode
from outrider.records.episodes import Episodes
from outrider.records.rollout import Rollout
from outrider.records.steps import Steps
from outrider.spec import LeafSpec
from outrider.tree import Tree

if TYPE_CHECKING:
    import gymnasium

__all__ = ["ONE_NUMBER", "StepSpec"]

COLUMNS = ("obs", "action", "extras", "state", "info", "obs_info", "reward")

FLOAT64 = np.dtype(np.float64)

ONE_NUMBER = LeafSpec((), FLOAT64)
"""What rewards are where the environments declare nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """Shape and dtype of every column of one row, and the number of lanes.

    Attributes:
        obs: tree of `LeafSpec`.
        action: tree of `LeafSpec`.
        num_envs: the number of lanes N.
        extras: dict of trees of `LeafSpec`.
        state: tree of `LeafSpec`, or None for a policy without recurrent state.
        info: dict of `LeafSpec`, masks under "_key" included.
        obs_info: dict of `LeafSpec`, masks included.
        observation_space: the Gymnasium space of one observation where known.
        action_space: the Gymnasium space of one action where known.
        env_name: what the environments are called where known.
        reward: `LeafSpec`, float64 of shape (), or (k,) where the environments declare vector rewards.

    Raises:
        SpecError: a leaf is no `LeafSpec`, the reward is of another kind, or the number of lanes is none.

    Example:
        >>> frame = StepSpec(obs=LeafSpec((84, 84), np.dtype("u1")), action=LeafSpec((), np.dtype("i8")), num_envs=8)
        >>> frame.row_nbytes, frame.zeros(16).obs.shape
        (7100, (17, 8, 84, 84))
    """

    obs: Tree
    action: Tree
    num_envs: int
    extras: dict[str, Tree] = field(default_factory=dict)
    state: Tree = None
    info: dict[str, Tree] = field(default_factory=dict)
    obs_info: dict[str, Tree] = field(default_factory=dict)
    observation_space: gymnasium.Space[Any] | None = None
    action_space: gymnasium.Space[Any] | None = None
    env_name: str | None = None
    reward: LeafSpec = ONE_NUMBER

    def __post_init__(self) -> None:
        """Refuse what rows cannot be."""
        for column in COLUMNS:
            for path, leaf in tree.items(getattr(self, column), column):
                if not isinstance(leaf, LeafSpec):
                    fix = "StepSpec.from_spaces takes Gymnasium's spaces, StepSpec.of(record) takes arrays"
                    raise _refused("LeafSpec(shape, dtype) in each leaf", f"{leaf!r:.60}", f"StepSpec({path}=...)", fix)
        if self.reward.dtype != FLOAT64 or len(self.reward.shape) > 1:
            expected = "float64 of shape (), or (k,) for vector rewards"
            found = f"{self.reward.dtype} of shape {self.reward.shape}"
            raise _refused(expected, found, "StepSpec(reward=...)", "leave it out for rewards that are one number")
        if isinstance(self.num_envs, bool) or not hasattr(self.num_envs, "__index__") or index(self.num_envs) < 0:
            raise _refused("a number of lanes", repr(self.num_envs), "StepSpec(num_envs=...)", "pass an integer")
        object.__setattr__(self, "num_envs", index(self.num_envs))

    @property
    def row_nbytes(self) -> int:
        """Bytes of one stored row: its columns, the flags (4 bytes), and episode_id, step, version (8 each)."""
        columns = (self.obs, self.action, self.reward, self.extras, self.state, self.info, self.obs_info)
        return spec.row_nbytes(columns) + 4 + 3 * 8

    def zeros(self, length: int) -> Rollout:
        """A rollout of `length` steps without stepping anything; see `Rollout.zeros`."""
        return Rollout.zeros(self, length)

    @classmethod
    def from_spaces(
        cls, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any], num_envs: int = 1
    ) -> StepSpec:
        """The spec of the steps of environments, for a loop of your own; `dataclasses.replace` adds other columns.

        Args:
            observation_space: of one environment: `env.observation_space`, or `envs.single_observation_space`.
            action_space: likewise.
            num_envs: the number of lanes, 1 or more.

        Raises:
            ConfigError: a leaf of a space cannot be stored; names it.
            SpecError: a space is none, or `num_envs` no number.

        Example:
            >>> import gymnasium
            >>> env = gymnasium.make("CartPole-v1")
            >>> spec = StepSpec.from_spaces(env.observation_space, env.action_space)
            >>> spec.obs, spec.action
            (LeafSpec(shape=(4,), dtype=dtype('float32')), LeafSpec(shape=(), dtype=dtype('int64')))
        """
        from gymnasium import Space

        from outrider.spaces import leaf_specs, observation_specs

        given: dict[str, object] = {"observation_space": observation_space, "action_space": action_space}
        for argument, space in given.items():
            if not isinstance(space, Space):
                fix = "pass env.observation_space and env.action_space"
                raise _refused("a space of Gymnasium", f"{space!r:.60}", f"StepSpec.from_spaces({argument})", fix)
        return cls(
            obs=observation_specs(observation_space),
            action=leaf_specs(action_space, "action space"),
            num_envs=num_envs,
            observation_space=observation_space,
            action_space=action_space,
        )

    @classmethod
    def of(cls, record: Rollout | Steps | Episodes | Episode) -> StepSpec:
        """The spec of an example record; spaces and name stay None.

        `num_envs` is the number of lanes of a rollout, and the number of different env_id of another record.
        """
        obs, state = (record.obs_rows, record.state_rows) if isinstance(record, Steps) else (record.obs, record.state)
        axes = 2 if isinstance(record, Rollout) else 1
        lanes = [record.env_id] if isinstance(record, Episode) else arrays.to_numpy(record.env_id)
        return cls(
            obs=spec.specs_of(obs, axes),
            action=spec.specs_of(record.action, axes),
            num_envs=len(np.unique(lanes)),
            extras=spec.specs_of(record.extras, axes),
            state=spec.specs_of(state, axes),
            info=spec.specs_of(record.info, axes),
            obs_info=spec.specs_of(record.obs_info, axes),
            reward=LeafSpec(tuple(record.reward.shape[axes:]), FLOAT64),
        )


def _refused(expected: str, found: str, where: str, fix: str) -> SpecError:
    return SpecError(explain(expected=expected, found=found, where=where, fix=fix))
