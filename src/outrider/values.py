"""Values of ragged leaves (texts, sequences, graphs): in arrays of objects, and in the words of an error.

A ragged value is a `str`, a tuple of elements, an array or dict of arrays (a stacked sequence), or a
`gymnasium.spaces.GraphInstance`. Its arrays are read-only, because records that share it must not change each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

from outrider.errors import SpecError, explain

__all__ = ["EMPTY", "KINDS", "describe", "empty_like", "fits_integer", "kind_of", "mismatch", "nbytes", "objects"]

KINDS = ("text", "sequence", "graph")

EMPTY: dict[str, Any] = {"text": "", "sequence": (), "graph": GraphInstance(np.zeros(0, np.float32), None, None)}
"""The empty value of each kind, where nothing is known but the kind."""
EMPTY["graph"].nodes.setflags(write=False)


def kind_of(value: Any) -> str | None:
    """The kind of a ragged value, or None if it is none.

    Example:
        >>> kind_of("go"), kind_of((1, 2)), kind_of(np.zeros((3, 2))), kind_of(7)
        ('text', 'sequence', 'sequence', None)
    """
    if isinstance(value, str):
        return "text"
    if isinstance(value, GraphInstance):
        return "graph"
    stacked = isinstance(value, dict) or (isinstance(value, np.ndarray) and value.ndim > 0)
    return "sequence" if stacked or isinstance(value, tuple) else None


def objects(values: Sequence[Any], shape: tuple[int, ...] | None = None) -> np.ndarray:
    """An array of objects with `values` as its elements, whatever they are: NumPy would take sequences apart.

    Example:
        >>> objects([(1, 2), (3,)])
        array([(1, 2), (3,)], dtype=object)
    """
    array = np.empty(len(values), object)
    for index, value in enumerate(values):
        array[index] = value
    return array if shape is None else array.reshape(shape)


def empty_like(value: Any) -> Any:
    """The empty value of the kind of `value`: "", no element, no node; 0 for what is no ragged value."""
    kind = kind_of(value)
    if kind == "graph":
        return GraphInstance(_no_rows(value.nodes), None, None)
    if kind == "sequence":
        return () if isinstance(value, tuple) else _no_rows(value)
    return 0 if kind is None else EMPTY[kind]


def _no_rows(stacked: Any) -> Any:
    """A stack of no rows like another."""
    if isinstance(stacked, dict):
        return {key: _no_rows(child) for key, child in stacked.items()}
    if isinstance(stacked, tuple):
        return tuple(_no_rows(child) for child in stacked)
    return stacked[:0]


def nbytes(value: Any) -> int:
    """Bytes of what a ragged value holds: characters in UTF-8, arrays, numbers."""
    if isinstance(value, str):
        return len(value.encode(errors="surrogatepass"))
    if isinstance(value, dict):
        return sum(map(nbytes, value.values()))
    if isinstance(value, tuple):
        return sum(map(nbytes, value))
    return int(getattr(value, "nbytes", 0))


def fits_integer(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a Python or NumPy integer is held by `dtype` exactly."""
    if isinstance(value, np.ndarray):
        if value.shape != () or value.dtype.kind not in "iu":
            return False
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    info = np.iinfo(dtype)
    return bool(info.min <= value <= info.max)


def describe(value: Any) -> str:
    """What was found, in a few words."""
    if isinstance(value, (np.ndarray, np.generic)):
        return f"shape {value.shape}, dtype {value.dtype}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {value!r:.60}"


def mismatch(path: str, expected: str, found: str) -> SpecError:
    """The error for an observation that is not what its space declares."""
    return SpecError(
        explain(
            expected=expected,
            found=found,
            where=f"observation at '{path}'" if path else "observation",
            fix="return what observation_space declares, or declare what is returned",
        )
    )
