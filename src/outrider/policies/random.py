"""Uniformly random actions, the same for each lane whatever the batch, the backend and the order of arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from gymnasium import Space, spaces

from outrider import tree
from outrider.kernels import uniforms
from outrider.policies.base import ContextLike, Policy
from outrider.policies.samplers import LeafSampler, leaf_sampler
from outrider.policies.streams import RANDOM_ACTIONS, stream_key
from outrider.seeding import resolve_seed
from outrider.tree import Tree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
        self._samplers = _samplers(space, "RandomPolicy(space)")
        self._leaves: list[LeafSampler] = tree.leaves(self._samplers)
        self._draws = sum(leaf.draws for leaf in self._leaves)
        self._key_of: tuple[int, np.uint64] | None = None

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """Draw for the rows of `ctx`; the observations are not looked at."""
        uniform = uniforms(self._key(ctx), ctx.env_id, ctx.lane_step, self._draws)
        if isinstance(self._samplers, LeafSampler):
            return {"action": self._samplers(uniform)}
        return {"action": tree.unflatten(self._samplers, self._split(uniform))}

    def _split(self, uniform: NDArray[np.float64]) -> list[NDArray[Any]]:
        """Values of each leaf, from columns of its own."""
        values, start = [], 0
        for leaf in self._leaves:
            values.append(leaf(uniform[:, start : start + leaf.draws]))
            start += leaf.draws
        return values

    def _key(self, ctx: ContextLike) -> np.uint64:
        seed = ctx.seed if self.seed is None else self.seed
        if self._key_of is None or self._key_of[0] != seed:
            self._key_of = (seed, stream_key(seed, RANDOM_ACTIONS))
        return self._key_of[1]

    def __reduce__(self) -> tuple[type[RandomPolicy], tuple[Space[Any], int | None]]:
        """A copy is made anew from the space: the samplers are closures, which do not travel."""
        return RandomPolicy, (self.space, self.seed)

    def __repr__(self) -> str:
        return f"RandomPolicy({self.space}, seed={self.seed})"


def _samplers(space: Space[Any], where: str) -> Tree:
    """The tree of samplers of a space."""
    if isinstance(space, spaces.Dict):
        return {key: _samplers(child, f"{where}/{key}") for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_samplers(child, f"{where}/{index}") for index, child in enumerate(space.spaces))
    return leaf_sampler(space, where)
