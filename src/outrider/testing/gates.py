"""Environments that wait at a gate, wherever they run: a test says when a step may go on, and no clock is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces

__all__ = ["Gate", "Gated"]

FLOOD = 1000


class Gate:
    """A named pipe at `path`. Each step of a `Gated` environment takes a byte out of it, and waits until there is one.

    As a context manager it lets everybody pass at the end, so that environments can be closed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)
        # Open for reading, too: neither side waits for the other to open it.
        self._fd = os.open(path, os.O_RDWR)

    def open(self, count: int = 1) -> None:
        """Let `count` steps pass."""
        os.write(self._fd, b"." * count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.open(FLOOD)
        os.close(self._fd)


class Gated(gymnasium.Env[Any, Any]):
    """Counts its steps, as the observation, the reward and the info say; waits at a gate in each step, if it has one.

    Args:
        gate: path of the gate.
        length: steps of an episode.
        number: of the environment, in its infos.
    """

    def __init__(self, gate: Path | None = None, length: int = 10**6, number: int = 0) -> None:
        self.observation_space = spaces.Box(0.0, np.inf, (1,), np.float64)
        self.action_space = spaces.Discrete(3)
        self.length = length
        self.number = number
        self.count = 0
        self._fd = -1 if gate is None else os.open(gate, os.O_RDWR)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1), {"number": self.number, "count": 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._fd >= 0:
            os.read(self._fd, 1)
        self.count += 1
        info = {"number": self.number, "count": self.count}
        return (
            np.full(1, self.count, np.float64),
            10.0 * self.count + int(action),
            self.count >= self.length,
            False,
            info,
        )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
