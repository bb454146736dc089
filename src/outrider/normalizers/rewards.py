"""Rewards on the scale of the return."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.normalizers.base import REALS, Normalizer
from outrider.normalizers.moments import Moments
from outrider.records import Steps, arrays
from outrider.tree import Tree

__all__ = ["RewardNormalizer"]

LANES = ("env_id", "episode_id", "step", "return")
"""What is kept of the newest step of each lane, arrays [lanes], and [lanes, k] of its sums."""


@final
class RewardNormalizer(Normalizer):
    """Rewards divided by the running deviation of discounted sums of rewards.

    As in `VecNormalize` of Stable-Baselines3 (`common/vec_env/vec_normalize.py`, version 2.9): each lane has a sum of
    its rewards so far, R = gamma * R + reward, which begins anew with each episode; a reward becomes
    reward / sqrt(variance of all R + epsilon), between -clip and clip. The mean is not subtracted, as that would change
    what is best where episodes differ in length. Vector rewards have a scale for each objective.

    The sums of lanes go on from one update to the next. Where steps of a lane in between are missing, they begin with
    what is there. `merge` leaves them as they are, since lanes of another run may have the same numbers. Transitions
    over several steps are scaled, and clipped, as a sum.

    Args:
        gamma: the discount of the learner, from 0 to 1.
        clip: the bound of the result, above 0; `math.inf` for none.
        epsilon: keeps the division from one by 0.

    Raises:
        ConfigError: one of them is out of range.

    Example:
        >>> import outrider
        >>> normalizer = RewardNormalizer(gamma=0.99)
        >>> with outrider.make_vec("Pendulum-v1", 4) as envs:
        ...     collector = outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0)
        ...     rollout = collector.rollout(200)
        >>> normalizer.update(rollout)
        >>> bool(abs(rollout.reward).max() > 1 > abs(normalizer(rollout).reward).max())
        True
    """

    _columns: ClassVar[frozenset[str]] = frozenset({"reward"})

    def __init__(self, *, gamma: float, clip: float = 10.0, epsilon: float = 1e-8) -> None:
        super().__init__(clip, epsilon)
        if not isinstance(gamma, REALS) or isinstance(gamma, bool) or not 0 <= gamma <= 1:
            where, fix = "RewardNormalizer(gamma)", "pass the discount of the learner, e.g. 0.99"
            raise ConfigError(explain(expected="a number from 0 to 1", found=repr(gamma), where=where, fix=fix))
        self.gamma = float(gamma)
        self._lanes: dict[str, np.ndarray[Any, Any]] = {}

    def _count(self, steps: Steps, valid: arrays.IntArray) -> None:
        ids = {name: arrays.to_numpy(getattr(steps, name))[valid] for name in LANES[:3]}
        reward = arrays.to_numpy(steps.reward)[valid]
        order = np.lexsort((ids["step"], ids["episode_id"], ids["env_id"]))
        lane, episode, step = (column[order] for column in ids.values())
        goes_on, is_last = np.zeros(len(order), np.bool_), np.ones(len(order), np.bool_)
        goes_on[1:] = (lane[1:] == lane[:-1]) & (episode[1:] == episode[:-1]) & (step[1:] == step[:-1] + 1)
        is_last[:-1] = lane[1:] != lane[:-1]
        wide = np.ascontiguousarray(reward[order], np.float64).reshape(len(order), -1)
        before = np.zeros_like(wide)
        for first in np.flatnonzero(np.roll(is_last, 1)).tolist():
            before[first] = self._sum_before(lane[first], episode[first], step[first])
        kernel = importlib.import_module("outrider.normalizers.kernels").running_returns
        sums = kernel(wide, before, goes_on, self.gamma)
        with np.errstate(over="ignore", invalid="ignore"):
            found = {"reward": Moments.of(sums.reshape(reward.shape))}
        self._put(self._joined(found, "update(record)"))
        newest = lane[is_last], episode[is_last], step[is_last], sums[is_last]
        self._lanes = self._with_newest(dict(zip(LANES, newest, strict=True)))

    def _sum_before(self, lane: int, episode: int, step: int) -> Any:
        """The sum of a lane up to the step before this one; 0 where that was not the last to be counted."""
        if not self._lanes:
            return 0.0
        ids = (self._lanes[name] for name in LANES[:3])
        match = np.logical_and.reduce([ours == mine for ours, mine in zip(ids, (lane, episode, step - 1), strict=True)])
        return self._lanes["return"][match][0] if match.any() else 0.0

    def _with_newest(self, newest: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """What is kept, with newer steps in the place of those of the same lanes."""
        if not self._lanes:
            return newest
        kept = ~np.isin(self._lanes["env_id"], newest["env_id"])
        return {name: np.concatenate([self._lanes[name][kept], newest[name]]) for name in LANES}

    def normalize(self, values: Tree) -> Tree:
        """Return rewards on scale: array or tensor [...], or [..., k] for vector rewards.

        Raises:
            SpecError: they have another shape than was counted, or are no floats.

        Example:
            >>> RewardNormalizer(gamma=0.9).normalize(np.array([1.0, 2.0])).tolist()
            [1.0, 2.0]
        """
        return self._on_scale(values, "reward", centre=False) if self._moments else values

    def state_dict(self) -> dict[str, np.ndarray[Any, Any]]:
        """All that was counted, and the sums of lanes, as arrays by name; see `Normalizer.state_dict`."""
        return super().state_dict() | {f"lanes/{name}": column.copy() for name, column in self._lanes.items()}

    def _read(self, state: Mapping[str, Any]) -> Any:
        moments = super()._read({name: value for name, value in state.items() if not str(name).startswith("lanes/")})
        dtypes = (*[np.int64] * 3, np.float64)
        fix = "pass what state_dict() of a RewardNormalizer returned"
        names = {name for name in state if str(name).startswith("lanes/")}
        wanted = {f"lanes/{name}" for name in LANES} if moments else set()
        if names != wanted or moments.keys() - {"reward"}:
            expected = f"moments of the reward and {sorted(wanted)}"
            raise self._refuse("load_state_dict(state)", expected, f"{sorted(map(str, state))}", fix)
        if not moments:
            return moments, {}
        try:
            lanes = {name: np.array(state[f"lanes/{name}"], kind) for name, kind in zip(LANES, dtypes, strict=True)}
        except (TypeError, ValueError) as error:
            raise self._refuse("load_state_dict(state)", "numbers", str(error), fix) from error
        shape = (len(lanes["env_id"]), math.prod(moments["reward"].mean.shape))
        if any(lanes[name].shape != (shape[0],) for name in LANES[:3]) or lanes["return"].shape != shape:
            found = f"{ {name: column.shape for name, column in lanes.items()} }"
            raise self._refuse("load_state_dict(state)", f"columns of {shape[0]} lanes", found, fix)
        return moments, lanes

    def _restore(self, read: Any) -> None:
        moments, self._lanes = read
        self._put(moments)

    def _settings(self) -> tuple[float, ...]:
        return (*super()._settings(), self.gamma)

    def __repr__(self) -> str:
        return f"RewardNormalizer(gamma={self.gamma:g}, clip={self.clip:g}, epsilon={self.epsilon:g})"
