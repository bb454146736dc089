"""Environments and networks that every side of a comparison uses; needs Gymnasium and NumPy only."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Noop(gymnasium.Env[np.ndarray, int]):
    """An environment whose own step costs almost nothing: what is left is the library's overhead."""

    def __init__(self, shape: tuple[int, ...], dtype: str, length: int = 200) -> None:
        low, high = (0, 255) if dtype == "uint8" else (-np.inf, np.inf)
        self.observation_space = spaces.Box(low, high, shape, np.dtype(dtype).type)
        self.action_space = spaces.Discrete(2)
        self._obs = np.zeros(shape, dtype)
        self._length = length
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._step = 0
        return self._obs, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Count."""
        self._step += 1
        return self._obs, 1.0, False, self._step >= self._length, {}


def noop_small() -> gymnasium.Env:
    """Observation of four floats."""
    return Noop((4,), "float32")


def noop_pixels() -> gymnasium.Env:
    """Observation of four frames of 84 x 84 bytes."""
    return Noop((4, 84, 84), "uint8")


def noop_376() -> gymnasium.Env:
    """Observation of 376 doubles, as of a humanoid."""
    return Noop((376,), "float64")


class NoopDict(Noop):
    """The same with a dict of three leaves: a picture, a vector and a number."""

    def __init__(self) -> None:
        super().__init__((16, 16, 3), "uint8")
        vector = spaces.Box(-np.inf, np.inf, (12,), np.float32)
        self.observation_space = spaces.Dict(picture=self.observation_space, vector=vector, goal=spaces.Discrete(9))
        self._obs = {"picture": self._obs, "vector": np.zeros(12, np.float32), "goal": np.int64(3)}


def cartpole() -> gymnasium.Env:
    """CartPole with the wrappers that Gymnasium gives it."""
    return gymnasium.make("CartPole-v1")


class Tail(gymnasium.Env[np.ndarray, int]):
    """Steps of log-normal length, median 2 ms and sigma 1.2: a few are very long.

    Args:
        spins: whether they use the processor; else they sleep.
        reset_seconds: how long each reset sleeps.
        length: steps of an episode.
        median: of a step, in seconds.
        sigma: 0 for steps of equal length.
    """

    def __init__(
        self,
        *,
        spins: bool = False,
        reset_seconds: float = 0.0,
        length: int = 100,
        median: float = 2e-3,
        sigma: float = 1.2,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._obs = np.zeros(4, np.float32)
        self._spins, self._reset_seconds, self._length = spins, reset_seconds, length
        self._median, self._sigma = median, sigma
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._step = 0
        if self._reset_seconds:
            time.sleep(self._reset_seconds)
        return self._obs, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Take time."""
        self._step += 1
        seconds = self._median * np.exp(self._sigma * self.np_random.standard_normal())
        if self._spins:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                pass
        else:
            time.sleep(seconds)
        return self._obs, 1.0, False, self._step >= self._length, {}


def tail_sleeping() -> gymnasium.Env:
    """Sleeps."""
    return Tail()


def tail_spinning() -> gymnasium.Env:
    """Uses the processor."""
    return Tail(spins=True)


def quick() -> gymnasium.Env:
    """Sleeps for 2 ms in each step."""
    return Tail(sigma=0.0, length=20)


def slow_reset() -> gymnasium.Env:
    """The same, with resets of 200 ms."""
    return Tail(sigma=0.0, length=20, reset_seconds=0.2)


MAKERS: dict[str, Callable[[], gymnasium.Env]] = {
    "noop_small": noop_small,
    "noop_pixels": noop_pixels,
    "noop_376": noop_376,
    "noop_dict": NoopDict,
    "cartpole": cartpole,
    "tail_sleeping": tail_sleeping,
    "tail_spinning": tail_spinning,
    "quick": quick,
    "slow_reset": slow_reset,
}


def actor_critic() -> Any:
    """Two MLPs of 2 x 64; called, they give sampled actions, their log-probabilities and values."""
    import torch
    from torch import nn

    torch.set_num_threads(1)

    def mlp(outputs: int) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))

    class ActorCritic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = mlp(2), mlp(1)

        def forward(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
            log_probs = torch.log_softmax(self.actor(obs), -1)
            # The Gumbel-max trick: the largest of p / Exp(1) is a sample of p.
            action = (log_probs.exp() / torch.empty_like(log_probs).exponential_()).argmax(-1)
            log_prob = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
            return {"action": action, "log_prob": log_prob, "value": self.critic(obs).squeeze(-1)}

    return ActorCritic()
