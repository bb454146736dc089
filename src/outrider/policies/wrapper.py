"""Policies around policies: all that is not changed is that of the one inside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from outrider.errors import PolicyError, explain
from outrider.policies.action_check import check_action
from outrider.policies.base import ActionConvention, ContextLike, Policy
from outrider.policies.function import as_policy
from outrider.policies.outputs import as_arrays
from outrider.tree import Tree

if TYPE_CHECKING:
    from gymnasium import Space

__all__ = ["PolicyWrapper", "action_space"]


class PolicyWrapper(Policy):
    """A policy around another one: whatever a subclass does not change, its weights too, is that one's own.

    Args:
        policy: the one inside, or a function of the observations.

    Attributes:
        policy: the one inside.
    """

    def __init__(self, policy: Policy | Callable[[Any], Any]) -> None:
        self.policy = as_policy(policy)
        # Wrappers in wrappers draw from streams of their own.
        self._layer: int = self.policy._layer + 1 if isinstance(self.policy, PolicyWrapper) else 0  # noqa: SLF001 - of this class

    @property
    def actions(self) -> ActionConvention | None:
        """The convention of the policy inside."""
        return self.policy.actions

    @actions.setter
    def actions(self, convention: ActionConvention | None) -> None:
        self.policy.actions = convention

    def initial_state(self, n: int) -> Tree:
        """That of the policy inside."""
        return self.policy.initial_state(n)

    def session(self) -> AbstractContextManager[Any]:
        """That of the policy inside."""
        return self.policy.session()

    def load(self, tree: Tree) -> None:
        """Let the policy inside take new weights."""
        self.policy.load(tree)

    def check_action_space(self, space: Space[Any]) -> None:
        """Refuse what the policy inside refuses."""
        self.policy.check_action_space(space)

    def deterministic(self) -> Policy:
        """Return what is inside, without chance: none of what this wrapper adds."""
        return self.policy.deterministic()

    def _decided(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """The output of the policy inside, its actions as arrays that fit the space.

        Raises:
            PolicyError: they do not.
        """
        output = self.policy.act(obs, state, ctx)
        if not isinstance(output, dict) or "action" not in output:
            raise PolicyError(
                explain(
                    expected='a dict with the key "action"',
                    found=f"an object of type {type(output).__name__}",
                    where=f"output of {self.policy!r}",
                    fix='return {"action": actions} from act(), with extras as further keys',
                )
            )
        n = len(ctx.env_id)
        action = as_arrays(output["action"], n, "action")
        check_action(action_space(ctx), action, n, self.actions or "env")
        return {**output, "action": action}


def action_space(ctx: ContextLike) -> Space[Any]:
    """Return the action space of a context.

    Raises:
        PolicyError: it has none.
    """
    if ctx.action_space is None:
        fix = "pass it when you make the context, e.g. Context.start(n, seed, space)"
        raise PolicyError(explain(expected="the action space", found="none", where="ctx.action_space", fix=fix))
    return ctx.action_space
