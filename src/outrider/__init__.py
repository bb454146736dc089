"""Exact, fast and safe collection of experience for reinforcement learning.

Names are imported when they are first used, so that `import outrider` is quick and needs no extra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.vector.env import VecEnv as VecEnv
    from outrider.vector.env import make_vec as make_vec
    from outrider.vector.inline import Inline as Inline
    from outrider.vector.plan import Envs as Envs
    from outrider.vector.processes import Processes as Processes

_HOMES = {
    "Envs": "outrider.vector.plan",
    "Inline": "outrider.vector.inline",
    "Processes": "outrider.vector.processes",
    "VecEnv": "outrider.vector.env",
    "make_vec": "outrider.vector.env",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("outrider")
    if name not in _HOMES:
        msg = f"module 'outrider' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
