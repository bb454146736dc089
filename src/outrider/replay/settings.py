"""Settings of views and samplers, as plain numbers of Python: NumPy's could neither be saved nor told from others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from outrider.errors import ConfigError, explain

__all__ = ["MOST", "keep_flags", "keep_real", "keep_whole", "real_number", "whole_number"]

MOST = 2**31 - 1
"""No lane of a buffer has more steps, and nothing that is counted in steps has to be greater."""


def keep_whole(part: object, least: Mapping[str, int]) -> None:
    """Make plain integers of fields of a frozen dataclass, none below its least value.

    Raises:
        ConfigError: a field is no such number.
    """
    for name, value in least.items():
        _set(part, name, whole_number(getattr(part, name), value, _name(part, name)))


def keep_real(part: object, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Make plain floats of fields of a frozen dataclass, within their bounds.

    Raises:
        ConfigError: a field is no such number.
    """
    for name, (least, most) in bounds.items():
        _set(part, name, real_number(getattr(part, name), least, most, _name(part, name)))


def keep_flags(part: object, names: Iterable[str]) -> None:
    """Make plain bools of fields of a frozen dataclass.

    Raises:
        ConfigError: a field is neither True nor False.
    """
    for name in names:
        value = getattr(part, name)
        if not isinstance(value, (bool, np.bool_)):
            raise _refused("True or False", value, _name(part, name), "pass one of them")
        _set(part, name, bool(value))


def _set(part: object, name: str, value: object) -> None:
    object.__setattr__(part, name, value)


def _name(part: object, name: str) -> str:
    return f"{type(part).__name__}({name})"


def whole_number(value: Any, least: int, where: str) -> int:
    """Return `value` as an int, if it is an integer from `least` to `MOST`.

    Raises:
        ConfigError: it is not.
    """
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise _refused(f"an integer of {least} or more", value, where, "pass such a number")
    if value > MOST:
        raise _refused(
            f"an integer of {MOST} or less", value, where, "pass a smaller one: no buffer holds so many steps"
        )
    return int(value)


def real_number(value: Any, least: float, most: float, where: str) -> float:
    """Return `value` as a float, if it is finite and from `least` to `most`.

    Raises:
        ConfigError: it is not.
    """
    is_real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not is_real or not math.isfinite(value) or not least <= value <= most:
        expected = f"a number from {least:g} to {most:g}" if math.isfinite(most) else f"a number of {least:g} or more"
        raise _refused(f"{expected}, and finite", value, where, "pass such a number")
    return float(value)


def _refused(expected: str, found: object, where: str, fix: str) -> ConfigError:
    return ConfigError(explain(expected=expected, found=f"{found!r:.60}", where=where, fix=fix))
