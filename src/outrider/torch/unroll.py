"""Recurrent networks over rollouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.records import Rollout
from outrider.tree import Tree

__all__ = ["unroll"]


def unroll(function: Callable[..., Any], rollout: Rollout, *, state_axis: int = 0) -> dict[str, Tree]:
    """Run a recurrent network over all steps of a rollout, as it was run in collection, with gradients through time.

    Each lane begins with the state that was fed to its first step, and every episode in it with the state that it began
    with, as they were collected: no gradient comes from those, and nothing crosses an end. The network is called once
    for each time step, with all lanes.

    Args:
        function: `function(obs, state)` of trees of tensors [N, ...] returns a dict of outputs [N, ...] and the new
            "state", as a module of `TorchPolicy` does; the module itself, or a method that samples no action.
        rollout: [T, N], of tensors on the device of the network, a batch of `sequence_minibatches` for example.
        state_axis: the axis of the network's states that is the batch, as in `TorchPolicy`.

    Returns:
        The outputs without the state, trees [M, ...]: a row for each of `rollout.flatten()`, in its order.

    Raises:
        ConfigError: the rollout is not of tensors, or has no states.
        SpecError: the function returns no such dict, or its state has not the structure of the stored ones.

    Example:
        >>> import numpy as np
        >>> from outrider.records import StepSpec
        >>> from outrider.spec import LeafSpec
        >>> single, action = np.dtype("f4"), LeafSpec((), np.dtype("i8"))
        >>> spec = StepSpec(obs=LeafSpec((3,), single), action=action, num_envs=2, state=LeafSpec((8,), single))
        >>> cell = torch.nn.GRUCell(3, 8)
        >>> def features(obs, state):
        ...     state = cell(obs, state)
        ...     return {"features": state, "state": state}
        >>> unroll(features, spec.zeros(5).torch())["features"].shape
        torch.Size([10, 8])
    """
    _check_rollout(rollout)
    begins = rollout.is_first.any(1).tolist()
    state = tree.take(rollout.state, 0)
    outputs = []
    for t in range(rollout.length):
        if t and begins[t]:
            state = _begun(rollout.is_first[t], tree.take(rollout.state, t), state)
        inside = tree.map(lambda leaf: leaf.movedim(0, state_axis), state)
        output = _checked(function(tree.take(rollout.obs, t), inside), rollout.num_envs)
        state = tree.map(lambda leaf: leaf.movedim(state_axis, 0), output["state"])
        outputs.append({name: value for name, value in output.items() if name != "state"})
    found: dict[str, Tree] = tree.map(lambda *steps: torch.stack(steps).flatten(0, 1), *outputs)
    valid = rollout.valid.flatten()
    return found if bool(valid.all()) else tree.take(found, valid)


def _begun(is_first: Tensor, stored: Tree, running: Tree) -> Tree:
    """The stored states [N, ...] where an episode begins, the running ones elsewhere."""

    def choose(begin: Tensor, goes_on: Tensor) -> Tensor:
        return torch.where(is_first.reshape(-1, *[1] * (begin.ndim - 1)), begin, goes_on)

    return tree.map(choose, stored, running, path="state")


def _check_rollout(rollout: Rollout) -> None:
    if not isinstance(rollout.reward, Tensor):
        fix = "pass rollout.torch()"
        raise ConfigError(
            explain(expected="a rollout of tensors", found="one of NumPy arrays", where="unroll(rollout)", fix=fix)
        )
    if not tree.leaves(rollout.state):
        fix = "collect with a recurrent policy; other networks need no unrolling: module(rollout.flatten().obs)"
        raise ConfigError(
            explain(expected="a rollout with recurrent states", found="none", where="unroll(rollout)", fix=fix)
        )


def _checked(output: Any, lanes: int) -> dict[str, Tree]:
    where = "unroll(function)"
    if not isinstance(output, dict) or "state" not in output:
        found = f"a dict with keys {sorted(output)}" if isinstance(output, dict) else f"a {type(output).__name__}"
        fix = "return {'logits': logits, 'state': state}, for example"
        raise SpecError(explain(expected='a dict of outputs and the new "state"', found=found, where=where, fix=fix))
    for path, leaf in tree.items({name: value for name, value in output.items() if name != "state"}):
        if not isinstance(leaf, Tensor) or leaf.shape[:1] != (lanes,):
            found = f"shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else f"a {type(leaf).__name__}"
            fix = "return one row for each observation"
            raise SpecError(
                explain(expected=f"a tensor of {lanes} rows at '{path}'", found=found, where=where, fix=fix)
            )
    return output
