"""Environments and a policy whose values say where they come from, so that each row can be judged alone."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from outrider.policies.base import ContextLike, Policy
from outrider.tree import Tree

__all__ = ["ACTIONS", "Coin", "Failing", "Rewarded", "Traced", "TracedPolicy", "Zeros"]

ACTIONS = 5

ENDS = ("terminate", "truncate", "both")


class Traced(gymnasium.Env[Any, Any]):
    """Observes (resets so far, steps in the episode, a draw); the reward is the action plus a hundredth of the draw.

    Args:
        lengths: lengths of episodes; each is drawn at the reset.
        ends: how an episode ends, drawn likewise: "terminate", "truncate" or "both".
    """

    def __init__(self, lengths: tuple[int, ...] = (1, 2, 3, 5), ends: tuple[str, ...] = ENDS) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Discrete(ACTIONS)
        self.lengths = lengths
        self.ends = ends
        self.resets = 0
        self.count = 0
        self.length = 0
        self.end = ends[0]
        self.options: list[Any] = []
        self._observation = np.zeros(3)

    def _observe(self) -> Any:
        # Always the same array: who keeps it without a copy sees it change.
        self._observation[:] = self.resets, self.count, self.np_random.random()
        return self._observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of another length."""
        super().reset(seed=seed)
        self.resets += 1
        self.count = 0
        self.options.append(options)
        self.length = int(self.np_random.choice(self.lengths))
        self.end = str(self.np_random.choice(self.ends))
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Refuse to go on behind an end."""
        if not 0 < self.count + 1 <= self.length:
            msg = f"stepped {self.count + 1} times in an episode of {self.length}"
            raise RuntimeError(msg)
        self.count += 1
        done = self.count == self.length
        observation = self._observe()
        reward = float(action) + float(observation[2]) / 100
        return observation, reward, done and self.end != "truncate", done and self.end != "terminate", {}


class Failing(Traced):
    """Raises in the step number `at` of its life; never ends."""

    def __init__(self, at: int) -> None:
        super().__init__((10**9,))
        self.at = at
        self.steps = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Fail if it is time."""
        self.steps += 1
        if self.steps == self.at:
            msg = f"told to fail in step {self.at}"
            raise RuntimeError(msg)
        return super().step(action)


class TracedPolicy(Policy):
    """Acts by lane, lane step and state; its state is (sum of the observations so far, steps), from (7, 0).

    What it has seen and been told is among its extras. It spoils its arguments afterwards: they are its own.
    """

    def initial_state(self, n: int) -> Tree:
        """The same for every lane."""
        return {"sum": np.full((n, 3), 7.0), "count": np.zeros(n, np.int64)}

    def act(self, obs: Tree, state: Tree, ctx: ContextLike) -> dict[str, Tree]:
        """A function of each row alone."""
        action = (ctx.env_id * 2 + ctx.lane_step * 3 + state["count"]) % ACTIONS
        output: dict[str, Tree] = {
            "seen": obs.copy(),
            "told": (ctx.is_first.copy(), ctx.step.copy(), ctx.lane_step.copy(), ctx.env_id.copy()),
            "state": {"count": state["count"] + 1, "sum": state["sum"] + obs},
            "action": action,
        }
        for leaf in (obs, state["sum"], state["count"]):
            leaf[...] = -1
        return output


class Rewarded(Traced):
    """The same reward in each step of episodes of one length, which are truncated."""

    def __init__(self, length: int, reward: float = 1.0) -> None:
        super().__init__((length,), ("truncate",))
        self.reward = reward

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of `Traced` with another reward."""
        obs, _, terminated, truncated, info = super().step(action)
        return obs, self.reward, terminated, truncated, info


class Coin(gymnasium.Env[Any, Any]):
    """Episodes of length 1 or 10 with equal odds, at little cost."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.left = 0
        self._observation = np.zeros(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Toss the coin."""
        super().reset(seed=seed)
        self.left = 1 if self.np_random.random() < 0.5 else 10
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step nearer to the end."""
        self.left -= 1
        return self._observation, 1.0, not self.left, False, {}


class Zeros(Policy):
    """Action 0."""

    def act(self, obs: Any, state: Any, ctx: Any) -> dict[str, Any]:
        """Zeros."""
        return {"action": np.zeros(len(obs), np.int64)}


class Broken(Zeros):
    """Raises in its decision number `at`."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.decisions = 0

    def act(self, obs: Any, state: Any, ctx: Any) -> dict[str, Any]:
        """Zeros, or an error."""
        self.decisions += 1
        if self.decisions == self.at:
            msg = "cannot go on"
            raise ArithmeticError(msg)
        return super().act(obs, state, ctx)
