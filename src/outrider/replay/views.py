"""What every view can do; each is in a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

    from outrider.replay.ring import Ring
    from outrider.replay.samplers import Accepts

__all__ = ["Look", "View"]


class Look(Protocol):
    """A view at work on one ring."""

    @property
    def accepts(self) -> Accepts | None:
        """Says which steps it can begin with; None if that is every one."""

    def gather(self, serials: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> Any:
        """The batch that begins with these steps, int64 [B], of these weights, float64 [B]: copies.

        A view that draws something itself draws it from `rng`, the generator of the buffer.
        """


class View(Protocol):
    """What a sample looks like; the same one may serve several buffers."""

    def start(self, ring: Ring) -> Look:
        """Begin to look at `ring`, which is empty and has never held a step."""
