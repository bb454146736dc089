"""Transitions over one or several steps."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import numpy as np

from outrider.replay.batches import TransitionBatch
from outrider.replay.gathering import acted_upon, blank, observations, take
from outrider.replay.ring import Ring
from outrider.replay.samplers import Accepts
from outrider.replay.settings import keep_real, keep_whole
from outrider.replay.sparse import UNKNOWN
from outrider.replay.views import Look

__all__ = ["Transitions"]


@dataclass(frozen=True)
class Transitions:
    """Transitions over `n_step` steps: fewer where the episode ends or is cut, and at the newest step.

    The target of an n-step transition is that of Sutton and Barto, "Reinforcement Learning", 2nd edition, equation 7.1,
    corrected where an episode was truncated or cut, which bootstraps from the true last observation.

    Attributes:
        n_step: steps of each transition at most.
        gamma: discount of a step, from 0 to 1.
        frame_stack: k where the observations have stacks of k frames: leaves [k, height, width] or with more axes. Each
            frame is stored once then, and batches have the same stacks. With 1, observations are stored as they are.

    Raises:
        ConfigError: one of them is out of its range; or when the buffer is made: no observation has such a stack.

    Example:
        >>> Transitions(n_step=3, gamma=0.5)
        Transitions(n_step=3, gamma=0.5, frame_stack=1)
    """

    n_step: int = 1
    gamma: float = 0.99
    frame_stack: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        keep_whole(self, {"n_step": 1, "frame_stack": 1})
        keep_real(self, {"gamma": (0, 1)})

    def start(self, ring: Ring) -> Look:
        """See `View.start`."""
        ring.keep_frames(self.frame_stack)
        return TransitionLook(ring, self)


class TransitionLook:
    """`Transitions` of one ring."""

    def __init__(self, ring: Ring, view: Transitions) -> None:
        self._ring = ring
        self._view = view
        self._windows = importlib.import_module("outrider.replay.kernels").windows

        self._way = view.n_step, float(view.gamma)

    def _follow(self, serials: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        ring = self._ring
        returns = np.zeros((len(serials), *ring.spec.reward.shape))
        numbers, flags, discount = self._windows(serials, ring.heads, ring.records, returns, self._way)
        return numbers, flags, returns, discount

    @property
    def accepts(self) -> Accepts | None:
        """See `Look.accepts`: transitions that end where an unknown observation would have to be bootstrapped from."""
        return self._is_known if self._ring.finals.has_unknown else None

    def _is_known(self, serials: np.ndarray) -> np.ndarray:
        numbers, flags, _, _ = self._follow(serials)
        known: np.ndarray = (self._ring.finals.at[numbers[0]] != UNKNOWN) | flags[0]
        return known

    def advice(self) -> str:
        """See `Look.advice`."""
        return "collect more, or ask for fewer"

    def gather(self, serials: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> TransitionBatch:
        """See `Look.gather`."""
        ring, columns = self._ring, self._ring.columns
        (last, following, rows, *of_first), (terminated, truncated), returns, discount = self._follow(serials)
        env_id, episode_id, step, version = of_first
        extras, info, obs_info = (take(columns[name], rows) for name in ("extras", "info", "obs_info"))
        next_obs = observations(ring, following)
        if ring.finals.has_unknown:
            blank(next_obs, ring.spec.obs, np.flatnonzero(ring.finals.at[last] == UNKNOWN))
        return TransitionBatch(
            obs=acted_upon(ring, rows),
            action=take(columns["action"], rows),
            reward=returns,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            discount=discount,
            index=serials,
            weight=weights,
            env_id=ring.env_ids.take(env_id),
            episode_id=episode_id,
            step=step,
            version=version,
            extras=extras,
            info=info,
            obs_info=obs_info,
        )
