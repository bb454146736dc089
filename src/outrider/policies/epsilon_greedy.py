"""Epsilon-greedy exploration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, final

from gymnasium import Space, spaces

from outrider import tree
from outrider.errors import ConfigError, PolicyError, explain
from outrider.kernels import uniforms
from outrider.policies.base import ActionConvention, ContextLike, Policy
from outrider.policies.masks import MaskedSampler
from outrider.policies.schedules import Schedule, Scheduled
from outrider.policies.space_sampler import SpaceSampler, space_leaves
from outrider.policies.streams import EXPLORATION, StreamKey
from outrider.policies.wrapper import PolicyWrapper, action_space
from outrider.tree import Tree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EpsilonGreedy", "Mask"]

Mask: TypeAlias = Callable[[Tree, ContextLike], Any]
"""`mask(obs, ctx)`: which choices are allowed, bool or integers [n, choices], see `EpsilonGreedy`."""

WHERE = "EpsilonGreedy(policy, epsilon)"


@final
class EpsilonGreedy(PolicyWrapper):
    """Takes a random action with probability epsilon, in each lane for itself, and that of a policy otherwise.

    For Discrete, MultiDiscrete and MultiBinary spaces, and Dicts and Tuples of them; all choices are equally likely,
    the policy's own among them (Sutton and Barto, "Reinforcement Learning", 2nd ed., section 2.2). Whether to explore,
    and what is tried, are pure functions of the seed of the run, the lane and the lane's step. All else is the policy's
    own: convention of the actions, extras (which tell of its own action, whichever is taken), state, session and
    weights. `deterministic()` is the policy without exploration.

    Args:
        policy: what decides otherwise: a `Policy` or a function of the observations.
        epsilon: from 0 to 1; or a `Schedule`, a function of the count of steps that the run has taken.
        mask: None: all choices are allowed. A function of (obs, ctx) that returns bool or integers [n, choices], where
            not 0 is allowed, e.g. `lambda obs, ctx: ctx.obs_info["action_mask"]`: random actions are drawn among those,
            for a Discrete space, or a MultiDiscrete one whose elements' choices stand one behind the other.

    Raises:
        ConfigError: epsilon is out of range; later, when a collector is made: the action space has other parts.

    Example:
        >>> import numpy as np
        >>> from outrider.policies.base import Context
        >>> policy = EpsilonGreedy(lambda obs: np.zeros(len(obs), np.int64), lambda step: max(0.1, 1 - step / 10_000))
        >>> obs = np.zeros((1000, 4))
        >>> actions = policy.act(obs, None, Context.start(1000, 0, spaces.Discrete(2)))["action"]
        >>> bool(400 < actions.sum() < 600)
        True
    """

    def __init__(
        self, policy: Policy | Callable[[Any], Any], epsilon: float | Schedule, *, mask: Mask | None = None
    ) -> None:
        super().__init__(policy)
        self.epsilon = epsilon
        self._probability = Scheduled(epsilon, "EpsilonGreedy(epsilon)", most=1.0)
        if mask is not None and not callable(mask):
            raise ConfigError(
                explain(
                    expected="a function of (obs, ctx)",
                    found=repr(mask),
                    where="EpsilonGreedy(mask)",
                    fix='pass e.g. lambda obs, ctx: obs["action_mask"]',
                )
            )
        self._mask = mask
        self._key = StreamKey(EXPLORATION, self._layer)
        self._made: tuple[Space[Any], ActionConvention | None, SpaceSampler | MaskedSampler] | None = None

    def check_action_space(self, space: Space[Any]) -> None:
        """Refuse spaces with Boxes, and others that have no choices."""
        super().check_action_space(space)
        self._sampler(space)

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """Decide as the policy inside does, and replace the actions of rows that explore."""
        sampler = self._sampler(action_space(ctx))
        uniform = uniforms(self._key(ctx.seed), ctx.env_id, ctx.lane_step, 1 + sampler.draws)
        explores = uniform[:, 0] < self._probability(ctx)
        if not explores.any():
            return self.policy.act(obs, state, ctx)
        # Before the policy is called: it may write to the observations.
        tried = self._tried(sampler, uniform[:, 1:], obs, ctx)
        output = self._decided(obs, state, ctx)
        output["action"] = tree.map(lambda own, new: _replaced(own, new, explores), output["action"], tried)
        return output

    def _tried(
        self, sampler: SpaceSampler | MaskedSampler, uniform: NDArray[np.float64], obs: Tree, ctx: ContextLike
    ) -> Tree:
        """Random actions for all rows."""
        if isinstance(sampler, SpaceSampler):
            return sampler(uniform)
        assert self._mask is not None, "its sampler is made for a mask"
        return sampler(uniform, self._mask(obs, ctx), ctx.env_id)

    def _sampler(self, space: Space[Any]) -> SpaceSampler | MaskedSampler:
        made = self._made
        if made is None or made[0] is not space or made[1] != self.actions:
            for path, leaf in space_leaves(space, "action space"):
                _check_choices(leaf, path)
            counted = _from_zero(space) if self.actions == "index" else space
            sampler = SpaceSampler(counted, WHERE) if self._mask is None else MaskedSampler(counted, WHERE)
            self._made = made = (space, self.actions, sampler)
        return made[2]

    def __getstate__(self) -> dict[str, Any]:
        """Samplers are closures, which do not travel: a copy makes them anew."""
        return {**self.__dict__, "_made": None}

    def __repr__(self) -> str:
        return f"EpsilonGreedy({self.policy!r}, {self.epsilon!r})"


def _check_choices(leaf: Space[Any], path: str) -> None:
    if not isinstance(leaf, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise ConfigError(
            explain(
                expected="Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of them",
                found=repr(leaf),
                where=f"{WHERE}: {path}",
                fix="explore in a Box with outrider.ActionNoise(policy, outrider.GaussianNoise(0.1))",
            )
        )


def _from_zero(space: Space[Any]) -> Space[Any]:
    """The space with its choices counted from 0."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _from_zero(child) for key, child in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_from_zero(child) for child in space.spaces])
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n)
    return spaces.MultiDiscrete(space.nvec) if isinstance(space, spaces.MultiDiscrete) else space


def _replaced(own: NDArray[Any], new: NDArray[Any], explores: NDArray[np.bool_]) -> NDArray[Any]:
    """The policy's own actions, and the new ones where a row explores; a copy, in the dtype of its own."""
    taken = own.copy()
    taken[explores] = new[explores]
    if (taken[explores] != new[explores]).any():
        raise PolicyError(
            explain(
                expected="a dtype that holds every action of the space",
                found=f"dtype {own.dtype}, and action {new[explores].max()}",
                where=f"{WHERE}: actions of the policy",
                fix="let the policy return int64",
            )
        )
    return taken
