"""Plain functions as policies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, final, get_args

from outrider.errors import ConfigError, explain
from outrider.policies.base import ActionConvention, ContextLike, Policy
from outrider.tree import Tree

__all__ = ["FunctionPolicy", "as_policy"]


@final
class FunctionPolicy(Policy):
    """The stateless policy of a function of the observation batch; its convention (`actions`) is not declared.

    Args:
        fn: called with the observations, a tree of arrays [n, ...]. A dict with the key "action" is the whole output,
            its other keys are extras; anything else, other dicts included, is the action batch itself.

    Example:
        >>> import numpy as np
        >>> from outrider.policies.base import Context
        >>> policy = FunctionPolicy(lambda obs: (obs[:, 0] > 0).astype(np.int64))
        >>> policy.act(np.array([[1.0], [-1.0]]), None, Context.start(2))
        {'action': array([1, 0])}
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """Call the function; state and context are not passed to it."""
        output = self.fn(obs)
        if isinstance(output, dict) and "action" in output:
            return output
        return {"action": output}

    def deterministic(self) -> FunctionPolicy:
        """The policy itself: nothing is known of a function but what it returns."""
        return self

    def __repr__(self) -> str:
        return f"FunctionPolicy({getattr(self.fn, '__qualname__', self.fn)})"


def as_policy(policy: Policy | Callable[[Any], Any]) -> Policy:
    """Return a policy as it is, and a function as a `FunctionPolicy`.

    Raises:
        ConfigError: it is neither, or a class, a torch module, or a policy whose `actions` is no convention.
    """
    if isinstance(policy, Policy):
        _check_convention(policy)
        return policy
    if isinstance(policy, type):
        raise _refuse(f"the class {policy.__name__}", "pass an instance of it")
    if _is_torch_module(policy):
        raise _refuse(f"the torch module {type(policy).__name__}", "wrap it: outrider.torch.TorchPolicy(module)")
    if not callable(policy):
        raise _refuse(
            f"an object of type {type(policy).__name__}",
            "derive its class from outrider.Policy, or pass a function; for a space: outrider.RandomPolicy(space)",
        )
    return FunctionPolicy(policy)


def _check_convention(policy: Policy) -> None:
    known = get_args(ActionConvention)
    if policy.actions is not None and policy.actions not in known:
        msg = explain(
            expected=f"None or one of {known}",
            found=repr(policy.actions),
            where=f"{type(policy).__name__}.actions",
            fix="name the convention of the actions that the policy returns",
        )
        raise ConfigError(msg)


def _is_torch_module(value: object) -> bool:
    """Whether it is a torch module, without importing torch: whoever made one has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _refuse(found: str, fix: str) -> ConfigError:
    expected = "an outrider.Policy, or a function of the observation batch"
    return ConfigError(explain(expected=expected, found=found, where="policy", fix=fix))
