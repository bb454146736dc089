"""Random choices among those that a mask allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
from gymnasium import Space, spaces

from outrider.errors import ConfigError, PolicyError, explain

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MaskedSampler"]


@final
class MaskedSampler:
    """Makes members of a Discrete or MultiDiscrete space from uniform numbers, each allowed choice equally likely.

    Attributes:
        draws: how many uniform numbers a row takes.

    Raises:
        ConfigError: it is another space.

    Example:
        >>> sample = MaskedSampler(spaces.Discrete(4), "space")
        >>> sample(np.array([[0.9], [0.2]]), np.array([[1, 0, 1, 0], [0, 0, 0, 1]], np.int8), np.arange(2))
        array([2, 3])
    """

    def __init__(self, space: Space[Any], where: str) -> None:
        if not isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
            fix = "leave the mask out, or let the policy inside draw among what is allowed"
            expected = "a Discrete or MultiDiscrete space, whose choices a mask can name"
            raise ConfigError(explain(expected=expected, found=repr(space), where=where, fix=fix))
        self._where = where
        self._start = np.asarray(space.start, np.int64)
        self._dtype = np.dtype(space.dtype)
        widths = np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec).reshape(-1)
        self._ends = np.cumsum(widths)
        self.draws = len(widths)

    def __call__(self, uniform: NDArray[np.float64], mask: Any, lanes: NDArray[np.int64]) -> NDArray[Any]:
        """Return actions [n, ...] for uniform numbers [n, draws].

        Args:
            uniform: [n, draws].
            mask: bool or integers [n, choices], where not 0 is allowed; of a MultiDiscrete the choices of its elements
                one behind the other, in C order.
            lanes: of the rows, for errors: int64 [n].

        Raises:
            PolicyError: the mask has another shape or dtype, or allows nothing to a row.
        """
        allowed = self._checked(mask, len(uniform))
        chosen = np.empty((len(uniform), self.draws), np.int64)
        for element, part in enumerate(np.split(allowed, self._ends[:-1], axis=1)):
            counts = part.cumsum(axis=1)
            if (counts[:, -1] == 0).any():
                lane = int(lanes[np.argmin(counts[:, -1])])
                raise self._refuse("at least one allowed choice in each row", f"none for lane {lane}")
            # u is less than 1 by 2**-53 at least, so that the floor is less than the count.
            wanted = (uniform[:, element] * counts[:, -1]).astype(np.int64)
            chosen[:, element] = (counts > wanted[:, None]).argmax(axis=1)
        return (chosen.reshape(len(uniform), *self._start.shape) + self._start).astype(self._dtype)

    def _checked(self, mask: Any, n: int) -> NDArray[np.bool_]:
        array = np.asarray(mask)
        shape = (n, int(self._ends[-1]))
        if array.shape != shape or array.dtype.kind not in "biu":
            raise self._refuse(f"bools or integers of shape {shape}", f"dtype {array.dtype}, shape {array.shape}")
        allowed: NDArray[np.bool_] = array != 0
        return allowed

    def _refuse(self, expected: str, found: str) -> PolicyError:
        fix = "let the mask say for each choice whether it is allowed"
        return PolicyError(explain(expected=expected, found=found, where=f"{self._where}: mask", fix=fix))
