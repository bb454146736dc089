"""Transitions over one or several steps."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, explain
from outrider.replay.batches import TransitionBatch
from outrider.replay.ring import Ring
from outrider.replay.samplers import Accepts, whole_number
from outrider.replay.sparse import UNKNOWN, rows_of
from outrider.tree import Tree

__all__ = ["Look", "Transitions", "View"]


class Look(Protocol):
    """A view at work on one ring."""

    @property
    def accepts(self) -> Accepts | None:
        """Says which steps it can begin with; None if that is every one."""

    def gather(self, serials: np.ndarray, weights: np.ndarray) -> Any:
        """The batch that begins with these steps, int64 [B], of these weights, float64 [B]: copies."""


class View(Protocol):
    """What a sample looks like; the same one may serve several buffers."""

    def start(self, ring: Ring) -> Look:
        """Begin to look at `ring`."""


@dataclass(frozen=True)
class Transitions:
    """Transitions over `n_step` steps: fewer where the episode ends or is cut, and at the newest step.

    The target of an n-step transition is that of Sutton and Barto, "Reinforcement Learning", 2nd edition, equation 7.1,
    corrected where an episode was truncated or cut, which bootstraps from the true last observation.

    Attributes:
        n_step: steps of each transition at most.
        gamma: discount of a step, from 0 to 1.

    Raises:
        ConfigError: one of them is out of its range.

    Example:
        >>> Transitions(n_step=3, gamma=0.5)
        Transitions(n_step=3, gamma=0.5)
    """

    n_step: int = 1
    gamma: float = 0.99

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        whole_number(self.n_step, 1, "Transitions(n_step)")
        if not isinstance(self.gamma, (int, float)) or not (math.isfinite(self.gamma) and 0 <= self.gamma <= 1):
            raise ConfigError(
                explain(
                    expected="a number from 0 to 1",
                    found=repr(self.gamma),
                    where="Transitions(gamma)",
                    fix="pass the discount of one step",
                )
            )

    def start(self, ring: Ring) -> Look:
        """See `View.start`."""
        return TransitionLook(ring, self)


class TransitionLook:
    """`Transitions` of one ring."""

    def __init__(self, ring: Ring, view: Transitions) -> None:
        self._ring = ring
        self._view = view
        self._windows = importlib.import_module("outrider.replay.kernels").windows

    def _follow(self, serials: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        ring, columns = self._ring, self._ring.columns
        ends = ring.finals.at, columns["terminated"]
        found: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] = self._windows(
            serials, ring.heads, ends, columns["reward"], self._view.n_step, float(self._view.gamma)
        )
        return found

    @property
    def accepts(self) -> Accepts | None:
        """See `Look.accepts`: transitions that end where an unknown observation would have to be bootstrapped from."""
        return self._is_known if self._ring.finals.has_unknown else None

    def _is_known(self, serials: np.ndarray) -> np.ndarray:
        last = self._follow(serials)[0]
        known: np.ndarray = (self._ring.finals.at[last] != UNKNOWN) | self._ring.columns["terminated"][last]
        return known

    def gather(self, serials: np.ndarray, weights: np.ndarray) -> TransitionBatch:
        """See `Look.gather`."""
        ring, columns = self._ring, self._ring.columns
        rows = serials % ring.rows
        last, following, returns, discount = self._follow(serials)
        taken = {name: _take(columns[name], rows) for name in ("action", "episode_id", "step", "version")}
        for name in ("extras", "info", "obs_info"):
            if columns[name]:
                taken[name] = _take(columns[name], rows)
        return TransitionBatch(
            obs=_take(ring.obs, rows),
            reward=returns,
            next_obs=self._behind(following),
            terminated=columns["terminated"].take(last),
            truncated=columns["truncated"].take(last),
            discount=discount,
            index=serials,
            weight=weights,
            env_id=serials % ring.num_envs,
            **taken,
        )

    def _behind(self, following: np.ndarray) -> Tree:
        """The observations in these rows, or in the slots ~row of the last ones."""
        final = np.flatnonzero(following < 0)
        if not len(final):
            return _take(self._ring.obs, following)
        slots = ~following[final]
        following[final] = 0

        def gather(leaf: Any, last: Any) -> np.ndarray:
            found = rows_of(leaf, following)
            found[final] = rows_of(last, slots)
            return found

        return tree.map(gather, self._ring.obs, self._ring.finals.table)


def _take(columns: Tree, rows: np.ndarray) -> Tree:
    if type(columns) is np.ndarray:
        return columns.take(rows, 0)
    return tree.map(lambda leaf: rows_of(leaf, rows), columns)
