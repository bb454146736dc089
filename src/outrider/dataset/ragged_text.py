"""Ragged values as text and back, exactly: texts as they are, everything else as JSON that describes itself.

Within JSON a list is a tuple, null is None, a string is itself, and an object with one key is what the key says:
{"array": [dtype, shape, bytes]}, {"number": [dtype, bytes]}, {"dict": [[key, value], ...]} or
{"graph": [nodes, edges, edge_links]}. Dtypes are NumPy's (with their byte order), bytes are in base64, in C order.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance

from outrider.errors import SpecError, explain

__all__ = ["decode", "encode"]

FIX = "store texts, tuples, arrays, dicts of arrays and graphs only"


def encode(kind: str, value: Any) -> str:
    """Return a ragged value as text.

    Args:
        kind: "text", "sequence" or "graph".
        value: of that kind; see `outrider.values`.

    Raises:
        SpecError: it holds something else, or characters that UTF-8 has not.

    Example:
        >>> encode("sequence", (np.int64(1), "go"))
        '[{"number": ["<i8", "AQAAAAAAAAA="]}, "go"]'
        >>> decode("sequence", encode("sequence", (np.int64(1), "go")))
        (np.int64(1), 'go')
    """
    if kind != "text":
        return json.dumps(_to_json(value))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            explain(
                expected="characters that UTF-8 has",
                found=f"{value!r:.60} ({error.reason})",
                where="a text to be stored",
                fix="escape them in the environment",
            )
        ) from error
    return str(value)


def decode(kind: str, text: str) -> Any:
    """Return the value that `encode` has written; its arrays are read-only.

    Raises:
        ValueError: the text is none of its.
    """
    if kind == "text":
        return text
    try:
        return _from_json(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        msg = f"no ragged value: {text[:100]!r} ({type(error).__name__}: {error})"
        raise ValueError(msg) from error


def _to_json(value: Any) -> Any:
    if value is None or type(value) is str:
        return value
    if isinstance(value, GraphInstance):
        return {"graph": [_to_json(part) for part in value]}
    if type(value) is tuple:
        return [_to_json(part) for part in value]
    if isinstance(value, dict):
        return {"dict": [[_key(key), _to_json(part)] for key, part in value.items()]}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        data = base64.b64encode(value.tobytes()).decode()
        if isinstance(value, np.generic):
            return {"number": [value.dtype.str, data]}
        return {"array": [value.dtype.str, list(value.shape), data]}
    raise _refused(value)


def _key(key: Any) -> str | int:
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise _refused(key)
    return key


def _refused(value: Any) -> SpecError:
    found = f"{type(value).__name__} {value!r:.60}"
    return SpecError(explain(expected="a ragged value", found=found, where="a value to be stored", fix=FIX))


def _from_json(described: Any) -> Any:
    if described is None or isinstance(described, str):
        return described
    if isinstance(described, list):
        return tuple([_from_json(part) for part in described])
    [(kind, content)] = described.items()
    return _READERS[kind](content)


def _array(content: Any) -> np.ndarray:
    dtype, shape, data = content
    return np.frombuffer(base64.b64decode(data), np.dtype(dtype)).reshape(shape)


def _number(content: Any) -> np.generic:
    dtype, data = content
    number: np.generic = np.frombuffer(base64.b64decode(data), np.dtype(dtype))[0]
    return number


_READERS: dict[str, Callable[[Any], Any]] = {
    "array": _array,
    "number": _number,
    "dict": lambda content: {key: _from_json(part) for key, part in content},
    "graph": lambda content: GraphInstance(*map(_from_json, content)),
}
