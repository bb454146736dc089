"""Transitions whose goals are put in place afterwards: hindsight experience replay."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, SpecError, explain
from outrider.replay.batches import TransitionBatch
from outrider.replay.gathering import behind, observations, take
from outrider.replay.ring import Ring
from outrider.replay.samplers import Accepts
from outrider.replay.settings import keep_real, keep_whole
from outrider.replay.sparse import UNKNOWN
from outrider.replay.transitions import Transitions
from outrider.tree import Tree

if TYPE_CHECKING:
    from outrider.replay.views import Look

__all__ = ["GoalFunction", "GoalKeys", "Hindsight"]

GoalFunction: TypeAlias = Callable[[Tree, Tree, dict[str, Any]], Any]
"""`f(achieved_goal, desired_goal, info)`: a value for each row, [M], of goals [M, ...] and the columns of `info`, [M].
The achieved goal is that of `next_obs`. As `compute_reward` of Gymnasium-Robotics, but for the infos, of which there
are those that the buffer has a column of."""

STRATEGIES = ("future", "final", "episode")


@dataclass(frozen=True)
class GoalKeys:
    """What the goals are called in observations; the defaults are those of Gymnasium-Robotics.

    Attributes:
        achieved: where the agent is.
        desired: where it ought to be.
    """

    achieved: str = "achieved_goal"
    desired: str = "desired_goal"


@dataclass(frozen=True)
class Hindsight:
    """Transitions of one step, k of k+1 of which have a goal that their own episode has achieved.

    Andrychowicz et al., "Hindsight Experience Replay", 2017. Goals are drawn when samples are, and nothing that is
    stored changes: a transition gets the goal achieved behind a step of the same episode as its desired goal, in `obs`
    and in `next_obs`, and reward, `terminated` and `discount` are computed anew. The others stay as they were
    collected. Only steps of episodes that ended or were cut are drawn, and only where the last observation is known.

    Attributes:
        strategy: which goals: "future", achieved behind the step itself or a later one, all equally likely; "final",
            behind the last one; "episode", behind any one that is still there.
        k: how many transitions with another goal there are for each one with its own, on average.
        reward: the reward of transitions, of (achieved_goal, desired_goal, info): float [M].
        terminated: whether they end the episode, of the same: bool [M].
        gamma: discount of a step, from 0 to 1.
        keys: where the goals are in observations, which are dicts.
        frame_stack: k where the observations have stacks of k frames: leaves [k, height, width] or with more axes. Each
            frame is stored once then, and batches have the same stacks. With 1, observations are stored as they are.

    Raises:
        ConfigError: one of them is none of those.
        SpecError: when the buffer is made: its observations have no two goals of the same kind.

    Example:
        >>> def reached(achieved, desired, info):
        ...     return np.linalg.norm(achieved - desired, axis=-1) < 0.05
        >>> view = Hindsight(reward=lambda *goals: reached(*goals) - 1.0, terminated=reached)
        >>> view.strategy, view.k
        ('future', 4)
    """

    strategy: str = "future"
    k: int = 4
    reward: GoalFunction = field(kw_only=True)
    terminated: GoalFunction = field(kw_only=True)
    gamma: float = field(default=0.99, kw_only=True)
    keys: GoalKeys = field(default=GoalKeys(), kw_only=True)
    frame_stack: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.strategy not in STRATEGIES:
            raise _refused(f"one of {STRATEGIES}", repr(self.strategy), "strategy", "pass one of them")
        keep_whole(self, {"k": 1, "frame_stack": 1})
        keep_real(self, {"gamma": (0, 1)})
        for name in ("reward", "terminated"):
            if not callable(getattr(self, name)):
                found, fix = repr(getattr(self, name)), "pass a function of (achieved_goal, desired_goal, info)"
                raise _refused("a function", found, name, fix)
        if not isinstance(self.keys, GoalKeys):
            raise _refused("outrider.GoalKeys(...)", repr(self.keys), "keys", "pass the two names in one of those")

    def start(self, ring: Ring) -> Look:
        """See `View.start`.

        Raises:
            SpecError: observations have no two goals of the same kind.
            ConfigError: rewards are vectors.
        """
        obs, keys = ring.spec.obs, self.keys
        there = isinstance(obs, dict) and {keys.achieved, keys.desired} <= obs.keys()
        if not there or tree.items(obs[keys.achieved]) != tree.items(obs[keys.desired]):
            raise SpecError(
                explain(
                    expected=f"dicts with '{keys.achieved}' and '{keys.desired}', of the same shape and dtype",
                    found=f"{obs!r}",
                    where="Hindsight: observations",
                    fix="name the goals with keys=outrider.GoalKeys(...), or use another view",
                )
            )
        if ring.spec.reward.shape:
            raise ConfigError(
                explain(
                    expected="rewards that are one number, as its function gives",
                    found=f"vectors of {ring.spec.reward.shape[0]}",
                    where="Hindsight: rewards",
                    fix="use another view, or let a wrapper make one number of them",
                )
            )
        return HindsightLook(ring, self)


class HindsightLook:
    """`Hindsight` of one ring."""

    def __init__(self, ring: Ring, view: Hindsight) -> None:
        self._ring = ring
        self._view = view
        self._transitions = Transitions(gamma=view.gamma, frame_stack=view.frame_stack).start(ring)
        self._runs = importlib.import_module("outrider.replay.runs")

    @property
    def accepts(self) -> Accepts:
        """See `Look.accepts`."""
        return self._are_over

    def _are_over(self, serials: np.ndarray) -> np.ndarray:
        ring = self._ring
        over: np.ndarray = ~self._runs.running(serials, ring.heads, ring.open, ring.columns["run"])
        if ring.finals.has_unknown:
            last = serials + self._along(serials, 1) * ring.num_envs
            over &= ring.finals.at[last % ring.rows] != UNKNOWN
        return over

    def _along(self, serials: np.ndarray, way: int) -> np.ndarray:
        """How many steps of the same episode are behind these, for `way` 1, or before them, for -1: int64 [n]."""
        ring = self._ring
        positions, lanes = np.divmod(serials, ring.num_envs)
        limits = ring.heads[lanes] - 1 - positions if way > 0 else positions - ring.tails[lanes]
        found: np.ndarray = self._runs.along(serials, limits, ring.columns["run"], ring.num_envs, way)
        return found

    def advice(self) -> str:
        """See `Look.advice`."""
        return "collect until more episodes have ended: goals are those that an episode has achieved by its end"

    def gather(self, serials: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> TransitionBatch:
        """See `Look.gather`."""
        batch: TransitionBatch = self._transitions.gather(serials, weights, rng)
        chosen = np.flatnonzero(rng.integers(0, self._view.k + 1, len(serials)) > 0)
        if not len(chosen):
            return batch
        self._put_goals(batch, chosen, self._achieved_at(serials[chosen], rng))
        return batch

    def _achieved_at(self, serials: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a step of the same episode for each, behind which the goal is achieved: rows, int64 [M]."""
        ring, strategy = self._ring, self._view.strategy
        offset = last = self._along(serials, 1)
        if strategy == "future":
            offset = rng.integers(0, last, endpoint=True)
        elif strategy == "episode":
            offset = rng.integers(-self._along(serials, -1), last, endpoint=True)
        rows: np.ndarray = (serials + offset * ring.num_envs) % ring.rows
        return rows

    def _put_goals(self, batch: TransitionBatch, chosen: np.ndarray, rows: np.ndarray) -> None:
        """Give the rows `chosen`, int64 [M], of a batch the goals achieved behind the steps in `rows`."""
        view, keys = self._view, self._view.keys
        goals = observations(self._ring, behind(self._ring, rows), keys.achieved)
        for obs in (batch.obs, batch.next_obs):
            tree.put(obs[keys.desired], chosen, goals)
        achieved = take(batch.next_obs[keys.achieved], chosen)
        info = take(batch.info, chosen)
        terminated = _column(view.terminated, (achieved, goals, info), np.dtype(np.bool_), "terminated")
        batch.reward[chosen] = _column(view.reward, (achieved, goals, info), np.dtype(np.float64), "reward")
        batch.terminated[chosen] = terminated
        batch.discount[chosen] = np.where(terminated, 0.0, view.gamma)


def _column(
    function: GoalFunction, given: tuple[Tree, Tree, dict[str, Any]], dtype: np.dtype[Any], name: str
) -> np.ndarray:
    """What a function of the user returns for goals and infos.

    Raises:
        SpecError: it is not one value of that kind for each row, or the function looks for an info that is not there.
    """
    where, count = f"Hindsight({name}=...)", len(tree.leaves(given[1])[0])
    try:
        array = np.asarray(function(*given))
    except KeyError as error:
        if not error.args or error.args[0] in given[2]:
            raise
        raise SpecError(
            explain(
                expected=f"a function that needs no other infos than {sorted(given[2])}, which the buffer has",
                found=f"one that looks for {error.args[0]!r}",
                where=where,
                fix="ask the environments for it with info_keys= of outrider.Envs, and make the buffer with "
                "collector.new_replay; or compute it from the goals alone",
            )
        ) from error
    if array.shape != (count,) or not np.can_cast(array.dtype, dtype, "same_kind"):
        kind = "bool, e.g. distance < 0.05" if dtype == np.bool_ else "float"
        raise SpecError(
            explain(
                expected=f"shape {(count,)}, dtype {dtype}",
                found=f"shape {array.shape}, dtype {array.dtype}",
                where=where,
                fix=f"return one {kind}, for each row of the goals",
            )
        )
    return array


def _refused(expected: str, found: str, name: str, fix: str) -> ConfigError:
    return ConfigError(explain(expected=expected, found=found, where=f"Hindsight({name})", fix=fix))
