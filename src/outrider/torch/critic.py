"""Calling a critic for values to bootstrap from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from outrider import tree
from outrider.torch.convert import tensor
from outrider.tree import Tree

__all__ = ["call"]


def call(critic: Callable[..., Any], inputs: list[Tree]) -> Any:
    """Call a critic without gradients; a module gets tensors on its device, whatever the inputs are.

    Ragged leaves stay NumPy arrays of objects. Values of half precision become float32.
    """
    if isinstance(critic, torch.nn.Module):
        inputs = [_moved(columns, _device_of(critic)) for columns in inputs]
    with torch.no_grad():
        found = critic(*inputs)
    half = isinstance(found, torch.Tensor) and found.dtype in (torch.float16, torch.bfloat16)
    return found.float() if half else found


def _device_of(module: torch.nn.Module) -> torch.device | None:
    """Where the module is; None if it has neither parameters nor buffers."""
    first = next((part for parts in (module.parameters(), module.buffers()) for part in parts), None)
    return None if first is None else first.device


def _moved(columns: Tree, device: torch.device | None) -> Tree:
    def move(leaf: Any) -> Any:
        return leaf if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject else tensor(leaf, device)

    return tree.map(move, columns)
