"""Recurrent networks over rollouts and sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.records import Rollout, arrays
from outrider.replay.batches import SequenceBatch
from outrider.torch.critic import with_state
from outrider.tree import Tree

__all__ = ["unroll"]


def unroll(function: Callable[..., Any], rollout: Rollout | SequenceBatch, *, state_axis: int = 0) -> dict[str, Tree]:
    """Run a recurrent network over all steps of a rollout, as it was run in collection, with gradients through time.

    Each lane begins with the state that was fed to its first step, and every episode in it with the state that it began
    with, as they were collected: no gradient comes from those, and nothing crosses an end. The network is called once
    for each time step, with all lanes.

    A batch of `outrider.Sequences` has outputs for all of its L+1 observations: those of step t are in row t, and those
    of the observation behind it in row t+1. Its first `burn_in` steps find the state without gradients (Kapturowski and
    others, "Recurrent experience replay in distributed reinforcement learning", ICLR 2019). Where `mask` is False, and
    behind that, the outputs mean nothing.

    Args:
        function: `function(obs, state)` of trees of tensors [N, ...] returns a dict of outputs [N, ...] and the new
            "state", as a module of `TorchPolicy` does; the module itself, or a method that samples no action.
        rollout: [T, N], of tensors on the device of the network, a batch of `sequence_minibatches` for example; or a
            `SequenceBatch` [L, B] of tensors.
        state_axis: the axis of the network's states that is the batch, as in `TorchPolicy`.

    Returns:
        The outputs without the state, trees [M, ...]: a row for each of `rollout.flatten()`, in its order. Of a
        `SequenceBatch` trees [L+1, B, ...].

    Raises:
        ConfigError: the rollout is none, or not of tensors, or has no states, or these have no such axis.
        SpecError: the function returns no such dict, or its state has not the structure of the stored ones, or it
            cannot take such states.

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
    if isinstance(rollout, SequenceBatch):
        return _over_sequences(function, rollout, state_axis)
    begins = rollout.is_first.any(1).tolist()
    state = tree.take(rollout.state, 0)
    outputs = []
    for t in range(rollout.length):
        if t and begins[t]:
            state = _begun(rollout.is_first[t], tree.take(rollout.state, t), state)
        output, state = _step(function, tree.take(rollout.obs, t), state, state_axis, rollout.num_envs)
        outputs.append(output)
    found: dict[str, Tree] = tree.map(lambda *steps: torch.stack(steps).flatten(0, 1), *outputs)
    valid = rollout.valid.flatten()
    return found if bool(valid.all()) else tree.take(found, valid)


def _over_sequences(function: Callable[..., Any], batch: SequenceBatch, state_axis: int) -> dict[str, Tree]:
    """The outputs [L+1, B, ...]; no end is inside of a sequence, so that its state runs through."""
    state, outputs = batch.state, []
    for t in range(len(batch.mask) + 1):
        with torch.set_grad_enabled(torch.is_grad_enabled() and t >= batch.burn_in):
            output, state = _step(function, tree.take(batch.obs, t), state, state_axis, len(batch))
        outputs.append(output)
    found: dict[str, Tree] = tree.map(lambda *steps: torch.stack(steps), *outputs)
    return found


def _step(
    function: Callable[..., Any], obs: Tree, state: Tree, state_axis: int, lanes: int
) -> tuple[dict[str, Tree], Tree]:
    """The outputs of one step, and the state behind it, [N, ...]."""
    inside = arrays.moved(state, state_axis, "unroll(rollout)")
    output = _checked(with_state(function, obs, inside, "unroll(function)"), lanes)
    state = tree.map(lambda leaf: leaf.movedim(state_axis, 0), output.pop("state"))
    return output, state


def _begun(is_first: Tensor, stored: Tree, running: Tree) -> Tree:
    """The stored states [N, ...] where an episode begins, the running ones elsewhere."""

    def choose(begin: Tensor, goes_on: Tensor) -> Tensor:
        return torch.where(is_first.reshape(-1, *[1] * (begin.ndim - 1)), begin, goes_on)

    return tree.map(choose, stored, running, path="state")


def _check_rollout(rollout: Any) -> None:
    is_batch = isinstance(rollout, SequenceBatch)
    if not is_batch and not isinstance(rollout, Rollout):
        raise _refused(
            "a rollout, or a batch of outrider.Sequences",
            f"a {type(rollout).__name__}",
            "pass what collector.rollout returns, a batch of its sequence_minibatches, or what a replay buffer with "
            "view=outrider.Sequences(...) samples, as tensors",
        )
    name = "batch" if is_batch else "rollout"
    if not isinstance(rollout.reward, Tensor):
        raise _refused(f"a {name} of tensors", "one of NumPy arrays", f"pass {name}.torch()")
    if not tree.leaves(rollout.state):
        fix = "collect with a recurrent policy; other networks need no unrolling: "
        if is_batch:
            fix += "module(batch.obs). To begin with zeros, pass dataclasses.replace(batch, state=zeros), [B, ...]"
        else:
            fix += "module(rollout.flatten().obs)"
        raise _refused(f"a {name} with recurrent states", "none", fix)


def _refused(expected: str, found: str, fix: str) -> ConfigError:
    return ConfigError(explain(expected=expected, found=found, where="unroll(rollout)", fix=fix))


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
    return dict(output)
