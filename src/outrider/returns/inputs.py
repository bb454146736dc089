"""Checks of what the functions of this layer are given, and the way to whoever computes it."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from outrider.errors import ConfigError, SpecError, explain
from outrider.records.arrays import Array

__all__ = ["REALS", "check_arrays", "check_fractions", "check_kind", "check_place", "compute", "compute_numpy"]

PRECISIONS = ("float32", "float64")

REALS = (int, float, np.integer, np.floating)


def compute(
    name: str, numbers: dict[str, Array], flags: dict[str, Array | None], settings: tuple[float, ...]
) -> Array | tuple[Array, ...]:
    """Hand arrays that were checked to the kernel `name`, or to the function of that name for tensors.

    Args:
        name: of the kernel.
        numbers: its arrays of numbers, "reward" first.
        flags: "terminated", "truncated" and "cut", which may be None.
        settings: its numbers.

    Returns:
        What the kernel returns, of the kind, device and shape of the arrays.
    """
    terminated, truncated, cut = (flags[flag] for flag in ("terminated", "truncated", "cut"))
    ended: Any = terminated | truncated  # type: ignore[operator]  # only cut may be None
    if cut is not None:
        ended = ended | cut
    arrays = tuple(numbers.values())
    if isinstance(arrays[0], np.ndarray):
        return compute_numpy(name, arrays, (terminated, ended), settings)
    found: Array | tuple[Array, ...] = importlib.import_module("outrider.torch.returns").compute(
        name, arrays, (terminated, ended), settings
    )
    return found


def compute_numpy(
    name: str, numbers: tuple[Array, ...], ends: tuple[Array, Array], settings: tuple[float, ...]
) -> Array | tuple[Array, ...]:
    """Call a kernel with NumPy arrays [T] or [T, N] of any layout."""
    from outrider.returns import kernels

    shape = numbers[0].shape
    block = (shape[0], math.prod(shape[1:]))
    # The first of the values decides the precision. The reward is read in its own: to convert it would cost as much as
    # the kernel does.
    wanted = [None, *[numbers[1].dtype] * (len(numbers) - 1)]
    rows = tuple(
        np.ascontiguousarray(array, dtype).reshape(block) for array, dtype in zip(numbers, wanted, strict=True)
    )
    flags = tuple(np.ascontiguousarray(flag).reshape(block) for flag in ends)
    found = getattr(kernels, name)(rows, flags, settings)
    if isinstance(found, tuple):
        return tuple(array.reshape(shape) for array in found)
    result: Array = found.reshape(shape)
    return result


def check_fractions(where: str, **settings: object) -> None:
    """Refuse settings that are no numbers from 0 to 1.

    Raises:
        ConfigError: names the first of them.
    """
    for name, setting in settings.items():
        if not isinstance(setting, REALS) or isinstance(setting, bool) or not 0 <= setting <= 1:
            raise ConfigError(
                explain(
                    expected="a number from 0 to 1",
                    found=repr(setting),
                    where=f"{where}({name})",
                    fix="pass a fraction such as 0.99",
                )
            )


def check_arrays(where: str, numbers: dict[str, Array], flags: dict[str, Array | None]) -> None:
    """Refuse arrays that are not of one kind, place and shape [T] or [T, N], or of another dtype than they need.

    Raises:
        SpecError: names the first that is wrong.
    """
    reward = numbers["reward"]
    for name, array in (numbers | flags).items():
        if name == "cut" and array is None:
            continue
        check_kind(where, name, array, is_flag=name in flags)
        check_place(where, name, array, reward, "reward")
        _check_shape(where, name, tuple(array.shape), tuple(reward.shape))


def check_kind(where: str, name: str, array: Any, *, is_flag: bool = False) -> None:
    """Refuse what is no array of numbers, or of flags."""
    if not isinstance(array, np.ndarray) and not hasattr(array, "detach"):
        fix = f"make an array of it: np.asarray({name}, {'bool' if is_flag else 'np.float64'})"
        raise _refuse(where, name, "a NumPy array or a torch tensor", f"an object of type {_kind(array)}", fix)
    dtype = str(array.dtype).removeprefix("torch.")
    if is_flag and dtype != "bool":
        fix = f"convert it: {name}.{'astype(bool)' if isinstance(array, np.ndarray) else 'bool()'}"
        raise _refuse(where, name, "dtype bool", f"dtype {dtype}", fix)
    if not is_flag and dtype not in PRECISIONS:
        fix = f"convert it: {name}.{'astype(np.float64)' if isinstance(array, np.ndarray) else 'float()'}"
        raise _refuse(where, name, "dtype float32 or float64", f"dtype {dtype}", fix)


def check_place(where: str, name: str, array: Array, other: Array, of: str) -> None:
    """Refuse an array of another kind or on another device than `other`, whose name is `of`."""
    expected, found = (
        "a NumPy array" if isinstance(one, np.ndarray) else f"a tensor on {one.device}" for one in (other, array)
    )
    if expected != found:
        fix = "pass columns of one record, or move them: rollout.torch(device) moves all"
        raise _refuse(where, name, f"{expected}, as the {of} is", found, fix)


def _check_shape(where: str, name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse a shape other than that of the reward, and rewards that are not [T] or [T, N]."""
    if len(wanted) not in (1, 2):
        fix = "weigh the objectives of vector rewards first (reward @ weights), or call it for each: reward[..., i]"
        raise _refuse(where, "reward", "shape [T] or [T, N]", f"shape {wanted}", fix)
    if shape == wanted:
        return
    fix = "give one number for each reward"
    if shape[: len(wanted)] == wanted and math.prod(shape[len(wanted) :]) == 1:
        fix = f"remove the axes of length 1: {name}.reshape(reward.shape)"
    elif shape == (wanted[0] + 1, *wanted[1:]):
        fix = f"leave out the last row: {name}[:-1]; next_value has the value of what followed it"
    raise _refuse(where, name, f"shape {wanted}, that of the reward", f"shape {shape}", fix)


def _kind(value: object) -> str:
    return type(value).__name__


def _refuse(where: str, name: str, expected: str, found: str, fix: str) -> SpecError:
    return SpecError(explain(expected=expected, found=found, where=f"{where}({name})", fix=fix))
