"""The training flags of a module and all its parts: set for a while, then as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Flags"]


class Flags:
    """Puts a module into train or eval mode, and each of its parts back into its own.

    Args:
        module: the module.
        training: the mode that is wanted.
    """

    __slots__ = ("_before", "_module", "_training", "_write")

    def __init__(self, module: torch.nn.Module, *, training: bool) -> None:
        self._module = module
        self._training = training
        self._before: list[tuple[torch.nn.Module, bool]] = []
        self._write: Callable[[Any, str, bool], None] = setattr

    def set(self) -> None:
        """Enter the mode, by the module's own `train` where any part does more in it than set its flag."""
        wanted = self._training
        parts = [self._module]
        seen = {self._module}
        for part in parts:
            for child in part._modules.values():  # noqa: SLF001 - `children` costs ten times as much
                if child is not None and child not in seen:
                    seen.add(child)
                    parts.append(child)
        # Of a few kinds there may be hundreds of parts.
        if all(map(_is_plain, set(map(type, parts)))):
            # What `Module.__setattr__` comes to for a flag, after all its questions.
            self._write = object.__setattr__
            self._before = [(part, not wanted) for part in parts if part.training is not wanted]
            for part, _ in self._before:
                self._write(part, "training", wanted)
        else:
            # It may change any of them.
            self._write = setattr
            self._before = [(part, part.training) for part in parts]
            self._module.train(wanted)

    def restore(self) -> None:
        """Give each part back the flag that it had."""
        for part, flag in self._before:
            self._write(part, "training", flag)
        self._before = []


def _is_plain(kind: type[torch.nn.Module]) -> bool:
    """Whether `train`, `eval` and assignment do for this class what they do for every module."""
    base = torch.nn.Module
    return kind.train is base.train and kind.eval is base.eval and kind.__setattr__ is base.__setattr__
