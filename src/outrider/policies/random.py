"""Uniformly random actions, the same for each lane whatever the batch, the backend and the order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from outrider.kernels import uniforms
from outrider.policies.base import ContextLike, Policy
from outrider.policies.space_sampler import SpaceSampler
from outrider.policies.streams import RANDOM_ACTIONS, StreamKey
from outrider.seeding import resolve_seed
from outrider.tree import Tree

if TYPE_CHECKING:
    from gymnasium import Space

__all__ = ["RandomPolicy"]


@final
class RandomPolicy(Policy):
    """Random members of a space: the action is a pure function of the seed, the lane and the lane's step.

    Bounded Boxes are sampled uniformly, others as Gymnasium does (exponential from a single bound, normal without);
    elements and leaves are independent. `outrider.kernels.uniforms` is the source.

    Args:
        space: the action space of one environment: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of
            them.
        seed: 0 or more; None: the seed of the run, `ctx.seed`.

    Raises:
        ConfigError: a leaf of the space cannot be sampled, or the seed is not an integer of 0 or more.

    Example:
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> from outrider.policies.base import Context
        >>> policy = RandomPolicy(spaces.Discrete(3, start=-1), seed=0)
        >>> actions = policy.act(None, None, Context.start(1000))["action"]
        >>> np.unique(actions)
        array([-1,  0,  1])
    """

    actions = "env"

    def __init__(self, space: Space[Any], seed: int | None = None) -> None:
        self.space = space
        self.seed = None if seed is None else resolve_seed(seed)
        self._sample = SpaceSampler(space, "RandomPolicy(space)")
        self._key = StreamKey(RANDOM_ACTIONS)

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """Draw for the rows of `ctx`; the observations are not looked at."""
        key = self._key(ctx.seed if self.seed is None else self.seed)
        return {"action": self._sample(uniforms(key, ctx.env_id, ctx.lane_step, self._sample.draws))}

    def __reduce__(self) -> tuple[type[RandomPolicy], tuple[Space[Any], int | None]]:
        """A copy is made anew from the space: the samplers are closures, which do not travel."""
        return RandomPolicy, (self.space, self.seed)

    def __repr__(self) -> str:
        return f"RandomPolicy({self.space}, seed={self.seed})"
