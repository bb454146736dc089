"""From uniform numbers to members of a whole space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from gymnasium import Space, spaces

from outrider import tree
from outrider.policies.samplers import LeafSampler, leaf_sampler
from outrider.tree import Tree

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SpaceSampler", "space_leaves"]


@final
class SpaceSampler:
    """Makes members of a space from uniform numbers; elements and leaves are independent.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them.
        where: what errors call it.

    Attributes:
        draws: how many uniform numbers a row takes.

    Raises:
        ConfigError: a leaf of the space cannot be sampled.

    Example:
        >>> import numpy as np
        >>> sample = SpaceSampler(spaces.Tuple((spaces.Discrete(4), spaces.Box(0, 8, (1,)))), "space")
        >>> sample.draws, sample(np.array([[0.75, 0.5]]))
        (2, (array([3]), array([[4.]], dtype=float32)))
    """

    def __init__(self, space: Space[Any], where: str) -> None:
        self._leaves: list[LeafSampler] = [leaf_sampler(leaf, path) for path, leaf in space_leaves(space, where)]
        self._like = _tree_of(space)
        self.draws = sum(leaf.draws for leaf in self._leaves)

    def __call__(self, uniform: NDArray[np.float64]) -> Tree:
        """Return a tree of arrays [n, ...] for uniform numbers [n, draws]; each leaf has columns of its own."""
        values, start = [], 0
        for leaf in self._leaves:
            values.append(leaf(uniform[:, start : start + leaf.draws]))
            start += leaf.draws
        return values[0] if self._like == 0 else tree.unflatten(self._like, values)


def space_leaves(space: Space[Any], path: str) -> list[tuple[str, Space[Any]]]:
    """Return the path and the space of each leaf, in the order of the leaves of a member of the space.

    Example:
        >>> space_leaves(spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((spaces.MultiBinary(3),))), "action")
        [('action/a', Discrete(2)), ('action/b/0', MultiBinary(3))]
    """
    if isinstance(space, spaces.Dict):
        return [leaf for key, child in space.spaces.items() for leaf in space_leaves(child, f"{path}/{key}")]
    if isinstance(space, spaces.Tuple):
        return [leaf for index, child in enumerate(space.spaces) for leaf in space_leaves(child, f"{path}/{index}")]
    return [(path, space)]


def _tree_of(space: Space[Any]) -> Tree:
    """A tree of the structure of a member of the space; 0 where that is one array."""
    if isinstance(space, spaces.Dict):
        return {key: _tree_of(child) for key, child in space.spaces.items()}
    return tuple(_tree_of(child) for child in space.spaces) if isinstance(space, spaces.Tuple) else 0
