"""Records of NumPy arrays to records of torch tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from outrider import tree
from outrider.errors import SpecError, explain

__all__ = ["concatenate", "record", "tensor", "through_pinned_memory"]

R = TypeVar("R")

SINGLE = {"reward", "discount", "weight"}
"""Columns of double precision that networks want in single."""


def tensor(array: Any, device: Any = None, path: str = "array") -> torch.Tensor:
    """Return a tensor of a NumPy array (or tensor, or list) on `device`, None meaning where it is.

    On the CPU it shares the memory of the array, unless that is read-only or laid out as torch cannot: then a copy.

    Raises:
        SpecError: torch has no such dtype; the message names `path`.
    """
    found = array if isinstance(array, torch.Tensor) else _from_numpy(np.asarray(array), path)
    return found if device is None else found.to(device)


def _from_numpy(array: np.ndarray[Any, Any], path: str) -> torch.Tensor:
    native = array.dtype.newbyteorder("=")
    if not array.flags.writeable or array.dtype != native or any(stride < 0 for stride in array.strides):
        array = np.array(array, native)
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise SpecError(
            explain(
                expected="a dtype that torch has",
                found=f"dtype {array.dtype}",
                where=f".torch(): column '{path}'",
                fix="convert or remove the column first",
            )
        ) from None


def concatenate(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join tensors along their first axis."""
    return torch.cat(tuple(tensors))


def record(source: R, device: Any = None) -> R:
    """Return a record of the same class with tensors on `device`; numbers and slices stay.

    What is computed with, reward, discount and weight, becomes float32.

    Ragged leaves, arrays of objects, stay as well.

    Example:
        >>> from outrider.records import Rollout, StepSpec
        >>> from outrider.spec import LeafSpec
        >>> spec = StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
        >>> record(Rollout.zeros(spec, 5)).obs.shape
        torch.Size([6, 2, 3])
    """
    if not dataclasses.is_dataclass(source) or isinstance(source, type):
        msg = f"expected a record, found {source!r}"
        raise TypeError(msg)
    columns = {}
    for field in dataclasses.fields(source):
        if field.init:
            columns[field.name] = _column(getattr(source, field.name), device, field.name)
    for name in SINGLE & columns.keys():
        columns[name] = columns[name].to(torch.float32)
    return type(source)(**columns)


def through_pinned_memory(source: R, device: Any) -> R:
    """Return a record of tensors on the CPU on `device`: a GPU copies out of pinned memory while others work.

    Without a GPU at `device` it is a plain move.
    """
    target = torch.device(device)

    def move(leaf: Any) -> Any:
        if dataclasses.is_dataclass(leaf):
            return through_pinned_memory(leaf, device)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return (leaf.pin_memory() if target.type == "cuda" else leaf).to(target, non_blocking=True)

    columns = {field.name: getattr(source, field.name) for field in dataclasses.fields(source) if field.init}  # type: ignore[arg-type]  # a record
    return type(source)(**{name: tree.map(move, column) for name, column in columns.items()})


def _column(column: tree.Tree, device: Any, name: str) -> tree.Tree:
    if isinstance(column, (int, slice)):
        return column
    if dataclasses.is_dataclass(column):
        return record(column, device)
    return tree.unflatten(column, [_leaf(leaf, device, path) for path, leaf in tree.items(column, name)])


def _leaf(leaf: Any, device: Any, path: str) -> Any:
    return leaf if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject else tensor(leaf, device, path)
