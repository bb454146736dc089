"""Between NumPy and a module: observations and states in, outputs and states out. Written for speed: once per step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

from outrider.errors import PolicyError, explain
from outrider.policies.outputs import to_array
from outrider.tree import Tree

__all__ = ["Bridge"]

Array = np.ndarray[Any, Any]


class Bridge:
    """Moves trees between NumPy arrays [n, ...] and the tensors of a module on `device`.

    Args:
        device: where the module is.
        state_axis: the axis of its state tensors that is the batch.
    """

    def __init__(self, device: torch.device, state_axis: int) -> None:
        self._device = device
        self._moves = device.type != "cpu"
        self._axis = state_axis

    def inputs(self, obs: Tree) -> Tree:
        """Observations as tensors; ragged leaves as the arrays of objects that they are.

        They are fresh arrays, so memory is shared; only read-only ones are copied.
        """
        if isinstance(obs, np.ndarray):
            return self._tensor(obs if obs.flags.writeable else obs.copy())
        if isinstance(obs, dict):
            return {key: self.inputs(child) for key, child in obs.items()}
        return obs if obs is None else tuple([self.inputs(child) for child in obs])

    def state_in(self, state: Tree) -> Tree:
        """States as contiguous copies: the caller keeps the arrays, and the module may write to what it gets."""
        if isinstance(state, np.ndarray):
            if self._axis:
                state = state.transpose(_into(state.ndim, self._axis))
            return self._tensor(state.copy())
        if isinstance(state, dict):
            return {key: self.state_in(child) for key, child in state.items()}
        return state if state is None else tuple([self.state_in(child) for child in state])

    def outputs(self, output: dict[str, Tree]) -> dict[str, Tree]:
        """What the module returned as arrays; the state with the batch as its first axis."""
        arrays = {}
        for key, value in output.items():
            if key == "state":
                arrays[key] = self.state_out(value)
            else:
                arrays[key] = _array(value, key) if isinstance(value, torch.Tensor) else _arrays(value, key)
        return arrays

    def state_out(self, state: Tree, path: str = "state") -> Tree:
        """A state of the module as arrays [n, ...]."""
        if isinstance(state, torch.Tensor):
            array = to_array(state, path)
            return array.transpose(_out_of(array.ndim, self._axis)) if self._axis else array
        return _descend(state, path, self.state_out)

    def _tensor(self, array: Array) -> Any:
        try:
            tensor = torch.from_numpy(array)
        except (TypeError, ValueError) as error:
            if array.dtype.hasobject:
                return array
            raise PolicyError(
                explain(
                    expected="observations and states that torch can share",
                    found=f"dtype {array.dtype}, strides {array.strides} ({error})",
                    where="TorchPolicy.act",
                    fix="convert them with an observation transform before they reach the policy",
                )
            ) from error
        return tensor.to(self._device) if self._moves else tensor


def _arrays(value: Tree, path: str) -> Tree:
    if isinstance(value, torch.Tensor):
        return _array(value, path)
    return _descend(value, path, _arrays)


def _array(tensor: torch.Tensor, path: str) -> Array:
    """A tensor as an array that shares its memory where it can."""
    try:
        array: Array = tensor.numpy()
    except (TypeError, RuntimeError):
        # On another device, with a gradient, or of a dtype that NumPy has not: converted, or refused by name.
        return to_array(tensor, path)
    return array


def _descend(value: Tree, path: str, convert: Callable[[Tree, str], Tree]) -> Tree:
    """Apply `convert(child, path)` to the children of a node; a leaf that is no tensor becomes an array."""
    if isinstance(value, dict):
        return {key: convert(child, f"{path}/{key}") for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple([convert(child, f"{path}/{index}") for index, child in enumerate(value)])
    return value if value is None else to_array(value, path)


@cache
def _into(ndim: int, axis: int) -> tuple[int, ...]:
    """The permutation that moves the first axis to `axis`."""
    axes = list(range(1, ndim))
    axes.insert(axis % ndim, 0)
    return tuple(axes)


@cache
def _out_of(ndim: int, axis: int) -> tuple[int, ...]:
    """The permutation that moves `axis` to the front."""
    axes = list(range(ndim))
    return (axes.pop(axis), *axes)
