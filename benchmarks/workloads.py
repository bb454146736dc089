"""Environments and networks that every side of a comparison uses; needs Gymnasium and NumPy only."""

from __future__ import annotations

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


def cartpole() -> gymnasium.Env:
    """CartPole with the wrappers that Gymnasium gives it."""
    return gymnasium.make("CartPole-v1")


MAKERS: dict[str, Callable[[], gymnasium.Env]] = {
    "noop_small": noop_small,
    "noop_pixels": noop_pixels,
    "cartpole": cartpole,
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
