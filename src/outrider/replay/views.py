"""What every view can do; each is in a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from outrider.replay.samplers import Draws, TooFewError

if TYPE_CHECKING:
    import numpy as np

    from outrider.replay.ring import Ring
    from outrider.replay.samplers import Accepts

__all__ = ["Look", "View", "drawn"]


class Look(Protocol):
    """A view at work on one ring."""

    @property
    def accepts(self) -> Accepts | None:
        """Says which steps it can begin with; None if that is every one."""

    def gather(self, serials: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> Any:
        """The batch that begins with these steps, int64 [B], of these weights, float64 [B]: copies.

        A view that draws something itself draws it from `rng`, the generator of the buffer.
        """

    def advice(self) -> str:
        """What to do where too few steps can be drawn, in a buffer that holds some; it may look at all of them."""


class View(Protocol):
    """What a sample looks like; the same one may serve several buffers."""

    def start(self, ring: Ring) -> Look:
        """Begin to look at `ring`, which is empty and has never held a step."""


def drawn(draws: Draws, look: Look, ring: Ring, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """What a sampler draws for a view; see `Draws.draw`.

    Raises:
        ReplayError: there are too few to be drawn; says what the view would need.
    """
    try:
        return draws.draw(count, rng, look.accepts)
    except TooFewError as error:
        if error.is_advised:
            raise
        empty = "the buffer is empty: add steps first, with collector.fill(replay, count) or replay.add(...)"
        raise TooFewError(*error.known, look.advice() if len(ring) else empty) from None
