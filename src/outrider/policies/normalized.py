"""A policy that sees normalised observations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, final

from outrider.errors import ConfigError, PolicyError, explain
from outrider.normalizers.observations import ObsNormalizer
from outrider.policies.base import ContextLike, Policy
from outrider.policies.wrapper import PolicyWrapper
from outrider.tree import Tree

__all__ = ["NormalizedPolicy"]

KEYS = {"weights", "normalizer"}


@final
class NormalizedPolicy(PolicyWrapper):
    """Puts an `ObsNormalizer` before a policy; what is stored are the observations as they came.

    Deciding never changes the statistics: they change with `normalizer.update(rollout)` and with what is published.
    Exploration goes around it, so that masks see raw observations: `EpsilonGreedy(NormalizedPolicy(...), 0.1)`. All
    else is the policy's own. `deterministic()` is the policy without chance behind the same normaliser.

    Published are both at once: `collector.publish({"weights": module, "normalizer": normalizer.state_dict()})`, where
    the weights are what the policy inside takes. Workers have copies of both.

    Args:
        policy: what decides: a `Policy` or a function of the observations.
        normalizer: it is used as it is, not copied. `normalizer.frozen()` stays what it is, also where others are
            published, which is refused then.

    Raises:
        ConfigError: it is no ObsNormalizer.

    Example:
        >>> import numpy as np
        >>> from outrider.policies.base import Context
        >>> normalizer = ObsNormalizer()
        >>> normalizer.load_state_dict({"count/obs": 2, "mean/obs": [3.0], "squares/obs": [8.0]})
        >>> policy = NormalizedPolicy(lambda obs: obs[:, 0], normalizer)
        >>> policy.act(np.array([[3.0], [5.0]]), None, Context.start(2))["action"].round(3).tolist()
        [0.0, 1.0]
    """

    def __init__(self, policy: Policy | Callable[[Any], Any], normalizer: ObsNormalizer) -> None:
        super().__init__(policy)
        if not isinstance(normalizer, ObsNormalizer):
            raise ConfigError(
                explain(
                    expected="an ObsNormalizer",
                    found=repr(normalizer),
                    where="NormalizedPolicy(policy, normalizer)",
                    fix="pass outrider.ObsNormalizer()",
                )
            )
        self.normalizer = normalizer

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """Decide as the policy inside does for normalised observations."""
        return self.policy.act(self.normalizer.normalize(obs), state, ctx)

    def deterministic(self) -> NormalizedPolicy:
        """Return the policy inside without chance, behind the same normaliser."""
        return NormalizedPolicy(self.policy.deterministic(), self.normalizer)

    def load(self, tree: Tree) -> None:
        """Take new weights and statistics, both or neither.

        Raises:
            PolicyError: it is not a dict of both, or the policy inside refuses its weights.
            SpecError: the statistics are none.
            ConfigError: the normaliser is a frozen copy.
        """
        if not isinstance(tree, Mapping) or set(tree) != KEYS:
            raise PolicyError(
                explain(
                    expected='a dict with the keys "weights" and "normalizer"',
                    found=f"keys {sorted(map(str, tree))}" if isinstance(tree, Mapping) else f"a {type(tree).__name__}",
                    where="NormalizedPolicy.load",
                    fix='publish {"weights": module, "normalizer": normalizer.state_dict()}',
                )
            )
        # A copy takes the statistics first: what it refuses leaves the weights as they were.
        copy.copy(self.normalizer).load_state_dict(tree["normalizer"])
        self.policy.load(tree["weights"])
        self.normalizer.load_state_dict(tree["normalizer"])

    def __repr__(self) -> str:
        return f"NormalizedPolicy({self.policy!r}, {self.normalizer!r})"
