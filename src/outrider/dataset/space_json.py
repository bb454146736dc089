"""Gymnasium spaces as JSON and back, exactly: bounds, infinities, dtypes, the order of keys."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from outrider.errors import ConfigError, SpecError, explain
from outrider.ragged_spaces import AnyText, is_text

__all__ = ["space_from_json", "space_to_json"]


def space_to_json(space: Space[Any], path: str = "space") -> dict[str, Any]:
    """Describe a space in values that JSON can hold.

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, Text, Sequence, Graph, or nested Dict and Tuple of them. Other
            packages' own spaces of strings become `AnyText`.
        path: names the space in errors.

    Raises:
        ConfigError: a space of another class; names where it is.

    Example:
        >>> space_to_json(spaces.Discrete(3, start=-1))
        {'type': 'Discrete', 'n': 3, 'start': -1, 'dtype': 'int64'}
    """
    if isinstance(space, spaces.Dict):
        for key in space.spaces:
            _check_key(key, path)
        return {"type": "Dict", "spaces": [[k, space_to_json(s, f"{path}/{k}")] for k, s in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [space_to_json(s, f"{path}/{i}") for i, s in enumerate(space.spaces)]}
    parts = _PARTS.get(type(space))
    if parts is not None:
        return {"type": type(space).__name__, **parts(space, path)}
    write = _WRITERS.get(type(space))
    if write is None and is_text(space):
        return {"type": "AnyText"}
    if write is None:
        raise ConfigError(
            explain(
                expected="Box, Discrete, MultiDiscrete, MultiBinary, Text, Sequence, Graph, Dict or Tuple",
                found=f"a space of class {type(space).__name__}",
                where=path,
                fix="leave the space out: dataclasses.replace(spec, observation_space=None, action_space=None)",
            )
        )
    return {"type": type(space).__name__, **write(space)}


def space_from_json(description: dict[str, Any]) -> Space[Any]:
    """Make the space that `space_to_json` described.

    Raises:
        SpecError: the description is none of a space.

    Example:
        >>> space_from_json({"type": "MultiBinary", "n": 4})
        MultiBinary(4)
    """
    try:
        kind = description["type"]
        if kind == "Dict":
            return spaces.Dict(OrderedDict((key, space_from_json(sub)) for key, sub in description["spaces"]))
        if kind == "Tuple":
            return spaces.Tuple([space_from_json(sub) for sub in description["spaces"]])
        return _READERS[kind](description)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        msg = explain(
            expected="the description of a space as space_to_json writes it",
            found=f"{str(description)[:200]} ({type(error).__name__}: {error})",
            where="space_from_json",
            fix="restore the file that it came from",
        )
        raise SpecError(msg) from error


def _check_key(key: object, path: str) -> None:
    if not isinstance(key, (str, int)) or isinstance(key, bool):
        raise ConfigError(
            explain(
                expected="keys that are strings or integers",
                found=repr(key),
                where=f"{path} (a Dict space)",
                fix="name the parts of the space by strings",
            )
        )


def _number(value: Any) -> Any:
    """A number for JSON, which has no infinities; Python writes and reads the shortest exact decimals of floats."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _numbers(array: np.ndarray) -> Any:
    """One number if all values are the same, else nested lists."""
    flat = array.reshape(-1).tolist()
    if flat and all(value == flat[0] for value in flat):
        return _number(flat[0])
    nested: list[Any] = np.array([_number(value) for value in flat], object).reshape(array.shape).tolist()
    return nested


def _array(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """The array that `_numbers` described."""
    if isinstance(values, list):
        flat = np.array(values, object).reshape(shape)
        return np.array([dtype.type(value) for value in flat.reshape(-1)], dtype).reshape(shape)
    return np.full(shape, dtype.type(values), dtype)


def _write_box(box: spaces.Box) -> dict[str, Any]:
    # A Box of integers keeps "no bound" beside its bounds, in which it writes the limits of the dtype.
    bounds = {
        "low": np.where(box.bounded_below, box.low.astype(object), -np.inf),
        "high": np.where(box.bounded_above, box.high.astype(object), np.inf),
    }
    described = {name: _numbers(values) for name, values in bounds.items()}
    return {"shape": list(box.shape), "dtype": box.dtype.name, **described}


def _read_box(description: dict[str, Any]) -> spaces.Box:
    shape, dtype = tuple(description["shape"]), np.dtype(description["dtype"])
    low, high = (_bounds(description[name], shape, dtype) for name in ("low", "high"))
    return spaces.Box(low, high, shape=shape, dtype=dtype)


def _bounds(values: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Bounds in the dtype of the space, or in float64 where it is an integer one and some are infinite."""
    listed = values if isinstance(values, list) else [values]
    infinite = any(isinstance(value, str) for value in np.array(listed, object).reshape(-1))
    return _array(values, shape, np.dtype(np.float64) if infinite and dtype.kind != "f" else dtype)


def _write_discrete(space: spaces.Discrete[Any]) -> dict[str, Any]:
    return {"n": int(space.n), "start": int(space.start), "dtype": np.dtype(space.dtype).name}


def _read_discrete(description: dict[str, Any]) -> spaces.Discrete[Any]:
    return spaces.Discrete(description["n"], start=description["start"], dtype=description["dtype"])


def _write_multi_discrete(space: spaces.MultiDiscrete[Any]) -> dict[str, Any]:
    return {"nvec": space.nvec.tolist(), "start": space.start.tolist(), "dtype": np.dtype(space.dtype).name}


def _read_multi_discrete(description: dict[str, Any]) -> spaces.MultiDiscrete[Any]:
    dtype = description["dtype"]
    nvec, start = (np.array(description[name], dtype) for name in ("nvec", "start"))
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=start)


def _write_multi_binary(space: spaces.MultiBinary) -> dict[str, Any]:
    return {"n": space.n if isinstance(space.n, int) else [int(size) for size in space.shape]}


def _read_multi_binary(description: dict[str, Any]) -> spaces.MultiBinary:
    return spaces.MultiBinary(description["n"])


def _write_text(space: spaces.Text) -> dict[str, Any]:
    return {"min_length": space.min_length, "max_length": space.max_length, "charset": "".join(space.character_list)}


def _read_text(description: dict[str, Any]) -> spaces.Text:
    return spaces.Text(description["max_length"], min_length=description["min_length"], charset=description["charset"])


def _write_sequence(space: spaces.Sequence, path: str) -> dict[str, Any]:
    return {"stack": space.stack, "space": space_to_json(space.feature_space, f"{path}/*")}


def _read_sequence(description: dict[str, Any]) -> spaces.Sequence:
    return spaces.Sequence(space_from_json(description["space"]), stack=description["stack"])


def _write_graph(space: spaces.Graph, path: str) -> dict[str, Any]:
    edges = space.edge_space
    return {
        "nodes": space_to_json(space.node_space, f"{path}/nodes"),
        "edges": None if edges is None else space_to_json(edges, f"{path}/edges"),
    }


def _read_graph(description: dict[str, Any]) -> spaces.Graph:
    edges = description["edges"]
    return spaces.Graph(space_from_json(description["nodes"]), None if edges is None else space_from_json(edges))


_PARTS: dict[type, Callable[[Any, str], dict[str, Any]]] = {
    spaces.Sequence: _write_sequence,
    spaces.Graph: _write_graph,
}
_WRITERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    spaces.Box: _write_box,
    spaces.Discrete: _write_discrete,
    spaces.MultiDiscrete: _write_multi_discrete,
    spaces.MultiBinary: _write_multi_binary,
    spaces.Text: _write_text,
}
_READERS: dict[str, Callable[[dict[str, Any]], Space[Any]]] = {
    "Box": _read_box,
    "Discrete": _read_discrete,
    "MultiDiscrete": _read_multi_discrete,
    "MultiBinary": _read_multi_binary,
    "Text": _read_text,
    "AnyText": lambda _: AnyText(),
    "Sequence": _read_sequence,
    "Graph": _read_graph,
}
