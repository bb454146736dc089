"""PPO (Schulman et al. 2017) on CartPole-v1, where 500 is the most.

Mean return of 100 episodes after 100 000 steps, seeds 0, 1, 2: 499, 500, 500 (greedy); 497, 500, 500 (sampled).

    python examples/ppo.py --steps 100000 --seed 0
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.distributions import Categorical

import outrider
from outrider.torch import TorchPolicy


def hidden(inputs: int) -> list[nn.Module]:
    """Two layers of 64."""
    return [nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]


class ActorCritic(nn.Module):
    """Logits of the actions and the value of observations, from two networks."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(*hidden(inputs), nn.Linear(64, actions))
        self.critic = nn.Sequential(*hidden(inputs), nn.Linear(64, 1), nn.Flatten(0))

    def forward(self, obs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Sample actions, and say what is to be remembered of them."""
        choice = Categorical(logits=self.actor(obs))
        action = choice.sample()
        return {"action": action, "log_prob": choice.log_prob(action), "value": self.critic(obs)}


class Greedy(nn.Module):
    """Takes the most likely action of an actor-critic."""

    def __init__(self, model: ActorCritic) -> None:
        super().__init__()
        self.model = model

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return actions for observations."""
        return self.model.actor(obs).argmax(-1)


def loss_of(model: ActorCritic, batch: outrider.Steps, clip: float) -> torch.Tensor:
    """The clipped objective of the actor, and the squared error of the critic."""
    ratio = (Categorical(logits=model.actor(batch.obs)).log_prob(batch.action) - batch.extras["log_prob"]).exp()
    advantage = outrider.normalize_advantages(batch.extras["advantage"])
    gain = torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    error = nn.functional.mse_loss(model.critic(batch.obs), batch.extras["target"])
    return 0.5 * error - gain


def train(steps: int, seed: int) -> tuple[float, float]:
    """Train for so many steps; return the mean return of 100 episodes, of greedy actions and of sampled ones."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = ActorCritic(4, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with outrider.make_vec("CartPole-v1", 8, backend=outrider.Inline()) as envs:
        with outrider.Collector(envs, TorchPolicy(model), seed=seed) as collector:
            rounds = max(1, steps // 256)
            for number, rollout in enumerate(collector.rollouts(32, count=rounds)):
                left = 1 - number / rounds
                optimizer.param_groups[0]["lr"] = 1e-3 * left
                data = rollout.with_columns(**outrider.advantages(rollout, model.critic, gamma=0.98, lam=0.8)).torch()
                for batch in data.minibatches(256, epochs=20, seed=number):
                    loss = loss_of(model, batch, clip=0.2 * left)
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                    optimizer.step()
        greedy, sampled = (
            outrider.evaluate(envs, TorchPolicy(actor), episodes=100, seed=seed + 1).mean_return
            for actor in (Greedy(model), model)
        )
    return greedy, sampled


def main() -> None:
    """Train and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    greedy, sampled = train(options.steps, options.seed)
    print(f"CartPole-v1, {options.steps} steps, seed {options.seed}: mean return of 100 episodes")
    print(f"greedy {greedy:.1f}, sampled {sampled:.1f}")


if __name__ == "__main__":
    main()
