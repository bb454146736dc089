"""Sizes of replay buffers that every side of a comparison uses; needs NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

LANES = 8
ROLLOUT = 64


@dataclass(frozen=True)
class Size:
    """Shape and dtype of an observation, and how many steps a buffer holds."""

    shape: tuple[int, ...]
    dtype: str
    rows: int


SMALL = Size((17,), "f4", 200_000)
FRAMES = Size((4, 84, 84), "u1", 20_000)
PRIORITIZED = Size((4,), "f4", 200_000)
