"""What a policy is: a function of the observation batch, with a state, a session and weights where it needs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from outrider.errors import PolicyError, explain
from outrider.tree import Tree

if TYPE_CHECKING:
    from gymnasium import Space
    from numpy.typing import NDArray

__all__ = ["ActionConvention", "Context", "ContextLike", "Policy"]

ActionConvention: TypeAlias = Literal["env", "index", "unit"]
"""How the actions of a policy are meant: "env": members of the environment's space, also where the collector rescales;
"index": Discrete and MultiDiscrete actions count from 0, whatever the `start` of the space; "unit": Boxes are in
[-1, 1] and are rescaled to their bounds."""


class ContextLike(Protocol):
    """What a policy may know beside the observations, for a batch of n rows; see `Context` for the attributes.

    A protocol, so that the loop can compute what costs time only when a policy asks for it.
    """

    @property
    def env_id(self) -> NDArray[np.int64]:
        """The lane of each row: int64 [n]."""

    @property
    def is_first(self) -> NDArray[np.bool_]:
        """Whether the row is the first of its episode: bool [n]."""

    @property
    def step(self) -> NDArray[np.int64]:
        """Index of the row in its episode, from 0: int64 [n]."""

    @property
    def lane_step(self) -> NDArray[np.int64]:
        """Steps of the lane since the start of the run, from 0: int64 [n]."""

    @property
    def obs_info(self) -> dict[str, Any]:
        """The infos that came with the observations: arrays [n, ...] by key."""

    @property
    def seed(self) -> int:
        """The seed of the run."""

    @property
    def num_envs(self) -> int:
        """How many lanes the run has in all, those of other workers included."""

    @property
    def action_space(self) -> Space[Any] | None:
        """The action space of one environment; None where a context made by hand does not tell it."""


@dataclass(slots=True)
class Context:
    """A `ContextLike` with plain attributes, for calling a policy by hand.

    Attributes:
        env_id: the lane of each row: int64 [n].
        is_first: whether the row is the first of its episode: bool [n].
        step: index of the row in its episode, from 0: int64 [n].
        lane_step: steps of the lane since the start of the run, from 0: int64 [n]; the counter of counter-based noise.
        obs_info: the infos that came with the observations: arrays [n, ...] by key.
        seed: the seed of the run.
        num_envs: how many lanes the run has in all.
        action_space: of one environment.

    Example:
        >>> Context.start(2).env_id
        array([0, 1])
    """

    env_id: NDArray[np.int64]
    is_first: NDArray[np.bool_]
    step: NDArray[np.int64]
    lane_step: NDArray[np.int64]
    obs_info: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    num_envs: int = 1
    action_space: Space[Any] | None = None

    @classmethod
    def start(cls, n: int, seed: int = 0, action_space: Space[Any] | None = None) -> Context:
        """The context of the first decision of a run over lanes 0 to n-1."""
        zeros = np.zeros(n, np.int64)
        lanes = np.arange(n, dtype=np.int64)
        return cls(lanes, np.ones(n, np.bool_), zeros, zeros.copy(), {}, seed, n, action_space)


class Policy(ABC):
    """Base class of policies. A stateless policy implements `act` alone.

    Attributes:
        actions: the convention of the actions that `act` returns (see `ActionConvention`); None where it is not
            declared: what the collector's `action_map` expects, [-1, 1] under "rescale" and the bounds otherwise.

    Example:
        >>> class Left(Policy):
        ...     def act(self, obs, state, ctx):
        ...         return {"action": np.zeros(len(obs), np.int64), "value": obs.mean(1)}
        >>> Left().act(np.ones((2, 4)), None, Context.start(2))
        {'action': array([0, 0]), 'value': array([1., 1.])}
    """

    actions: ActionConvention | None = None

    @abstractmethod
    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """Decide for a batch of n rows.

        Args:
            obs: tree of NumPy arrays [n, ...]; fresh, so it may be kept or written to. Texts, sequences and graphs are
                in arrays of objects [n]; what is in those is shared, and must not be changed.
            state: tree of NumPy arrays [n, ...]: what `act` returned for the step before, or rows of `initial_state`
                at the start of an episode; None for a stateless policy.
            ctx: what else is known of the rows.

        Returns:
            "action": tree of arrays [n, ...]; "state": the new state, exactly if `initial_state` returns one; every
            other key is an extra (log_prob, value, logits, ...): stored with the step. Leaves are NumPy arrays, torch
            tensors, or lists of n Python values; structure, shapes and dtypes are the same at every call.
        """

    def initial_state(self, n: int) -> Tree:
        """The state of n rows at the start of an episode: tree of arrays [n, ...]; None if the policy is stateless."""
        return None

    def session(self) -> AbstractContextManager[Any]:
        """A context that the loop enters once around many calls of `act`, for set-up too costly for each call."""
        return nullcontext()

    def check_action_space(self, space: Space[Any]) -> None:  # noqa: B027 - most policies act in any space they meet
        """Refuse an action space that the policy cannot act in, before anything is collected; the base class takes all.

        Raises:
            ConfigError: it cannot.
        """

    def deterministic(self) -> Policy:
        """Return a policy that decides by the same weights and draws nothing, e.g. for evaluation.

        Raises:
            PolicyError: the policy does not say how (what this base class does).
        """
        raise PolicyError(
            explain(
                expected="a policy that says what it does without chance",
                found=f"{type(self).__name__}, which has no deterministic()",
                where="Policy.deterministic",
                fix="define deterministic(self) in the policy; return self if act() draws nothing",
            )
        )

    def load(self, tree: Tree) -> None:
        """Take new weights.

        Raises:
            PolicyError: the policy takes none (what this base class does).
        """
        raise PolicyError(
            explain(
                expected="a policy that takes weights",
                found=f"{type(self).__name__}, which has no load()",
                where="Policy.load",
                fix="define load(self, tree) in the policy, or publish no weights to it",
            )
        )
