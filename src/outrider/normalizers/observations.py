"""Observations with a mean of 0 and a deviation of 1."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np

from outrider import tree
from outrider.normalizers.base import Normalizer
from outrider.normalizers.moments import Moments
from outrider.records import Steps, arrays
from outrider.tree import Tree

__all__ = ["ObsNormalizer"]


@final
class ObsNormalizer(Normalizer):
    """Running mean and deviation of observations, element by element, for each leaf of floats.

    A leaf becomes (leaf - mean) / sqrt(variance + epsilon), between -clip and clip, as in `VecNormalize` of
    Stable-Baselines3 (`common/vec_env/vec_normalize.py`, version 2.9), computed in double precision and returned in the
    dtype that it had. Leaves of integers and others are left alone: images in bytes, which a network divides by 255,
    choices, flags and texts. Before anything is counted, all are.

    What is counted are the observations acted upon, one for each step, in double precision; the true last ones of
    episodes are put on the same scale, but not counted. Records keep raw observations, and this goes between:
    `NormalizedPolicy` puts it before a policy, and `normalizer(batch)` before a learner.

    Args:
        clip: the bound of the result, above 0; `math.inf` for none.
        epsilon: keeps the division from one by 0.

    Raises:
        ConfigError: one of them is not above 0.

    Example:
        >>> import outrider
        >>> normalizer = ObsNormalizer()
        >>> with outrider.make_vec("CartPole-v1", 4) as envs:
        ...     collector = outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0)
        ...     rollout = collector.rollout(64)
        >>> normalizer.update(rollout)
        >>> normalizer.count, normalizer.moments["obs"].mean.shape
        (256, (4,))
        >>> bool((abs(normalizer(rollout).obs[:-1].std((0, 1)) - 1) < 0.001).all())
        True
    """

    _columns: ClassVar[frozenset[str]] = frozenset({"obs", "next_obs", "final_obs", "obs_rows"})

    def __init__(self, *, clip: float = 10.0, epsilon: float = 1e-8) -> None:
        super().__init__(clip, epsilon)

    def _count(self, steps: Steps, valid: arrays.IntArray) -> None:
        rows = steps.obs_rows_used()[valid]
        found = {}
        with np.errstate(over="ignore", invalid="ignore"):
            for path, leaf in tree.items(steps.obs_rows, "obs"):
                values = arrays.to_numpy(leaf)
                if values.dtype.kind == "f":
                    found[path] = Moments.of(values[rows])
        if not found:
            leaves = {path: str(arrays.to_numpy(leaf).dtype) for path, leaf in tree.items(steps.obs_rows, "obs")}
            fix = "use no ObsNormalizer; a network scales images in bytes itself: obs / 255"
            raise self._refuse("update(record)", "observations with a leaf of floats", f"{leaves}", fix)
        self._put(self._joined(found, "update(record)"))

    def normalize(self, values: Tree) -> Tree:
        """Return a tree of observations on scale: arrays or tensors [..., *shape] with any leading axes.

        Raises:
            SpecError: leaves that were counted are missing, or have another shape or dtype.

        Example:
            >>> ObsNormalizer().normalize(np.array([[1.0], [2.0]])).tolist()
            [[1.0], [2.0]]
        """
        if not self._moments:
            return values
        leaves = tree.items(values, "obs")
        missing = self._moments.keys() - {path for path, _ in leaves}
        if missing:
            fix = "normalise what comes from the environments that were counted"
            found = f"{[path for path, _ in leaves]}"
            raise self._refuse("normalize(obs)", f"the leaves {sorted(self._moments)}", found, fix)
        scaled: list[Any] = [
            self._on_scale(leaf, path, centre=True) if path in self._moments else leaf for path, leaf in leaves
        ]
        return tree.unflatten(values, scaled)

    def __repr__(self) -> str:
        return f"ObsNormalizer(clip={self.clip:g}, epsilon={self.epsilon:g})"
