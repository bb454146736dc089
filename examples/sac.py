"""SAC (Haarnoja et al. 2018) on Pendulum-v1, where about -150 is the most.

Mean return of 100 episodes of the greedy policy after 20 000 steps, seeds 0, 1, 2: -161, -145, -143.

    python examples/sac.py --steps 20000 --seed 0
"""

from __future__ import annotations

import argparse
import copy
import math

import torch
from torch import nn

import outrider
from outrider.torch import TorchPolicy

GAMMA, TAU, BATCH, WARM_UP = 0.99, 0.005, 256, 1_000


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Two layers of 64, and one on top of them."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


class Actor(nn.Module):
    """Draws actions in [-1, 1]: the hyperbolic tangent of normal ones."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.net = network(inputs, 2 * actions)

    def draw(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions, and the logarithms of their densities."""
        mean, log_std = self.net(obs).chunk(2, -1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-10, 2).exp())
        x = normal.rsample()
        log_slope = 2 * (math.log(2) - x - nn.functional.softplus(-2 * x))  # of the tangent, log(1 - tanh(x)^2)
        return x.tanh(), (normal.log_prob(x) - log_slope).sum(-1)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return actions to explore with."""
        return self.draw(obs)[0]

    def deterministic(self, obs: torch.Tensor) -> torch.Tensor:
        """Return greedy actions."""
        return self.net(obs).chunk(2, -1)[0].tanh()


class Critic(nn.Module):
    """Two estimates of the value of actions."""

    def __init__(self, inputs: int, actions: int) -> None:
        super().__init__()
        self.nets = nn.ModuleList(network(inputs + actions, 1) for _ in range(2))

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both."""
        first, second = (net(torch.cat([obs, action], -1)).squeeze(-1) for net in self.nets)
        return first, second


class Learner:
    """Actor, critic, target critic and temperature, and how they are improved."""

    def __init__(self, inputs: int, actions: int) -> None:
        self.actor, self.critic = Actor(inputs, actions), Critic(inputs, actions)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.zeros((), requires_grad=True)
        self.wanted_entropy = -actions
        parts = (self.actor.parameters(), self.critic.parameters(), [self.log_alpha])
        self.optimizers = [torch.optim.Adam(part, lr=1e-3) for part in parts]

    def update(self, replay: outrider.ReplayBuffer) -> None:
        """Take one step of gradient descent with each part."""
        batch = replay.sample(BATCH).torch()
        by_actor, by_critic, by_alpha = self.optimizers
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            action, log_prob = self.actor.draw(batch.next_obs)
            following = torch.min(*self.target(batch.next_obs, action)) - alpha * log_prob
            wanted = batch.reward + batch.discount * following
        first, second = self.critic(batch.obs, batch.action)
        descend(by_critic, nn.functional.mse_loss(first, wanted) + nn.functional.mse_loss(second, wanted))
        action, log_prob = self.actor.draw(batch.obs)
        self.critic.requires_grad_(False)
        descend(by_actor, (alpha * log_prob - torch.min(*self.critic(batch.obs, action))).mean())
        self.critic.requires_grad_(True)
        descend(by_alpha, -self.log_alpha * (log_prob.detach().mean() + self.wanted_entropy))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critic.parameters()), TAU)


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Take a step down the gradient of a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(steps: int, seed: int) -> float:
    """Train for so many steps; return the mean return of 100 episodes of the greedy policy."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    learner = Learner(3, 1)
    policy = TorchPolicy(learner.actor)
    policy.actions = "unit"  # in [-1, 1], whatever the bounds of the environment
    with outrider.make_vec("Pendulum-v1", 8, backend=outrider.Inline()) as envs:
        with outrider.Collector(envs, policy, seed=seed) as collector:
            replay = collector.new_replay(steps, seed=seed)
            collector.fill(replay, WARM_UP, policy=outrider.RandomPolicy(envs.single_action_space))
            while collector.stats.steps < steps:
                for _ in range(collector.fill(replay, 8)):
                    learner.update(replay)
        return outrider.evaluate(envs, policy.deterministic(), episodes=100, seed=seed + 1).mean_return


def main() -> None:
    """Train and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = train(options.steps, options.seed)
    print(f"Pendulum-v1, {options.steps} steps, seed {options.seed}: mean return {found:.1f} of 100 episodes")


if __name__ == "__main__":
    main()
