"""Calling networks of the user: a critic for values to bootstrap from, and anything that has a recurrent state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from outrider import tree
from outrider.errors import SpecError, explain
from outrider.torch.convert import tensor
from outrider.tree import Tree

__all__ = ["call", "with_state"]


def call(critic: Callable[..., Any], inputs: list[Tree], where: str) -> Any:
    """Call a critic without gradients; a module gets tensors on its device, whatever the inputs are.

    Ragged leaves stay NumPy arrays of objects. Values of half precision become float32.

    Raises:
        SpecError: it cannot take such states.
    """
    if isinstance(critic, torch.nn.Module):
        inputs = [_moved(columns, _device_of(critic)) for columns in inputs]
    with torch.no_grad():
        found = critic(*inputs) if len(inputs) == 1 else with_state(critic, inputs[0], inputs[1], where)
    half = isinstance(found, torch.Tensor) and found.dtype in (torch.float16, torch.bfloat16)
    return found.float() if half else found


def with_state(function: Callable[..., Any], obs: Tree, state: Tree, where: str) -> Any:
    """Call a recurrent network, `function(obs, state)`.

    Raises:
        SpecError: torch refused something in it, which is the cause: the shapes of the states are the likely one.
    """
    try:
        return function(obs, state)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError as error:
        shapes = ", ".join(f"'{path}' {tuple(leaf.shape)}" for path, leaf in tree.items(state, "state"))
        raise SpecError(
            explain(
                expected=f"a network that takes states of the shapes {shapes}",
                found=f"{type(error).__name__}: {error}",
                where=where,
                fix="pass as state_axis=k the axis k of its states that is the batch, as to TorchPolicy: 1 for the "
                "(layers, n, hidden) of torch.nn.LSTM and GRU; or mend what the network does",
            )
        ) from error


def _device_of(module: torch.nn.Module) -> torch.device | None:
    """Where the module is; None if it has neither parameters nor buffers."""
    first = next((part for parts in (module.parameters(), module.buffers()) for part in parts), None)
    return None if first is None else first.device


def _moved(columns: Tree, device: torch.device | None) -> Tree:
    def move(leaf: Any) -> Any:
        return leaf if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject else tensor(leaf, device)

    return tree.map(move, columns)
