"""Weights into a module: all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from outrider.errors import PolicyError, explain

__all__ = ["load_weights"]

COMPILED = "_orig_mod."
"""What `torch.compile` puts before the names of the module that it wraps."""


def load_weights(module: torch.nn.Module, source: torch.nn.Module | Mapping[str, Any]) -> None:
    """Copy the weights of a module or state dict (tensors or NumPy arrays) into `module`, whatever its device.

    Raises:
        PolicyError: names or shapes differ; nothing has been copied then.

    Example:
        >>> target, source = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> load_weights(target, source)
        >>> bool((target.weight == source.weight).all())
        True
    """
    module = getattr(module, "_orig_mod", module)
    given = source.state_dict() if isinstance(source, torch.nn.Module) else source
    if not isinstance(given, Mapping):
        raise _refuse("a module or a state dict", f"an object of type {type(given).__name__}")
    weights = {name.removeprefix(COMPILED): _tensor(value) for name, value in given.items()}
    _check(module.state_dict(), weights)
    module.load_state_dict(weights)


def _tensor(value: Any) -> Any:
    return torch.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def _check(own: Mapping[str, Any], weights: Mapping[str, Any]) -> None:
    """Refuse other names or shapes before `load_state_dict` does: it copies what fits before it raises."""
    if missing := sorted(own.keys() - weights.keys()):
        raise _refuse("the weights of every parameter and buffer", f"none for {missing}")
    if unknown := sorted(weights.keys() - own.keys()):
        raise _refuse("weights of the module alone", f"others, too: {unknown}")
    for name, value in own.items():
        shape, found = getattr(value, "shape", None), getattr(weights[name], "shape", None)
        if shape != found:
            raise _refuse(f"shape {shape} for '{name}'", f"shape {found}")


def _refuse(expected: str, found: str) -> PolicyError:
    fix = "publish a module of the same structure, or its state_dict()"
    return PolicyError(explain(expected=expected, found=found, where="TorchPolicy.load", fix=fix))
