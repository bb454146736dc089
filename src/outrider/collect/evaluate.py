"""How well a policy does: returns and lengths of whole episodes, no length favoured."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.collect.actions import ActionMapName, check_action_map
from outrider.collect.collector import Collector
from outrider.collect.requests import check_envs
from outrider.collect.stats import mean_of
from outrider.collect.video import Video, filmed
from outrider.policies.base import Policy
from outrider.vector.env import VecEnv

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """Figures of an evaluation.

    Attributes:
        returns: float64 [E], or [E, k] of vector rewards: sum of rewards of each episode, in the order of their starts.
        lengths: int64 [E], steps of each.
        env_id: int64 [E], the lane of each.
        terminated: bool [E], whether each terminated (otherwise it was truncated).
    """

    returns: np.ndarray
    lengths: np.ndarray
    env_id: np.ndarray
    terminated: np.ndarray

    @property
    def mean_return(self) -> Any:
        """Mean of the returns, a float; float64 [k] of vector rewards."""
        return mean_of(self.returns)

    @property
    def std_return(self) -> Any:
        """Standard deviation of the returns over the episodes, a float; float64 [k] of vector rewards."""
        return self.returns.std(axis=0) if self.returns.ndim > 1 else float(self.returns.std())

    @property
    def mean_length(self) -> float:
        """Mean length in steps."""
        return float(self.lengths.mean())

    @property
    def _shown(self) -> str:
        pairs = zip(np.reshape(self.mean_return, -1), np.reshape(self.std_return, -1), strict=True)
        text = ", ".join(f"{mean:.6g} +- {std:.6g}" for mean, std in pairs)
        return f"[{text}]" if self.returns.ndim > 1 else text

    def __repr__(self) -> str:
        return f"Evaluation(episodes={len(self.returns)}, return={self._shown}, length={self.mean_length:.6g})"


def evaluate(
    envs: VecEnv,
    policy: Policy | Callable[[Any], Any],
    episodes: int = 100,
    *,
    seed: int | None = None,
    action_map: ActionMapName = "auto",
    video: str | os.PathLike[str] | Video | None = None,
) -> Evaluation:
    """Run exactly `episodes` episodes, an equal share in each lane, and say how they went.

    Whatever runs in `envs` is reset; use environments of their own for evaluation.

    Args:
        envs: what `make_vec` returned; it stays open.
        policy: as of `Collector`.
        episodes: how many, at least 1; each lane runs its share (the first lanes one more where it does not divide).
        seed: run seed, None for a fresh one.
        action_map: as of `Collector`; pass what the policy was collected with, or its actions mean something else.
        video: a file (.mp4 or .gif) for the frames of the first episode of lane 0, or a `Video` that says more. It
            needs environments made with `render_mode="rgb_array"` and `pip install 'outrider[video]'`. None of the
            figures changes.

    Raises:
        ConfigError: a bad argument, or a video that cannot be recorded; nothing has been run then.
        EnvironmentFailure, PolicyError: the environments or the policy failed.

    Example:
        >>> import outrider
        >>> with outrider.make_vec("CartPole-v1", 4) as envs:
        ...     result = evaluate(envs, lambda obs: (obs[:, 2] > 0).astype(int), episodes=10, seed=0)
        >>> len(result.returns)
        10
    """
    check_envs(envs, "evaluate(envs, ...)")
    check_action_map(action_map)
    seen = nullcontext(envs) if video is None else filmed(envs, video if isinstance(video, Video) else Video(video))
    with seen as these, Collector(these, policy, seed=seed, action_map=action_map) as collector:
        found = collector.episodes(episodes, quota="per_env")
    return Evaluation(
        found.returns, np.diff(found.boundaries), found.env_id, found.terminated[found.boundaries[1:] - 1]
    )
