"""A loop in the style of CleanRL, on Gymnasium's AsyncVectorEnv and with one changed line on Outrider.

Both run in the same autoreset mode from the same seeds. The data are equal to the last bit; the speeds are printed.

    python examples/vector_env_swap.py --env CartPole-v1 --envs 16 --steps 2000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np

import outrider


def make_env(env_id: str) -> Callable[[], gym.Env]:
    """As CleanRL has it: a function that makes one environment."""

    def thunk() -> gym.Env:
        return gym.wrappers.RecordEpisodeStatistics(gym.make(env_id))

    return thunk


def gymnasium_envs(args: argparse.Namespace) -> gym.vector.VectorEnv:
    """The line that most scripts have."""
    return gym.vector.AsyncVectorEnv([make_env(args.env) for _ in range(args.envs)])


def outrider_envs(args: argparse.Namespace) -> gym.vector.VectorEnv:
    """The line that replaces it. `NextStep` is what Gymnasium does if it is not told otherwise."""
    return outrider.make_vec(
        make_env(args.env), args.envs, backend=outrider.Processes(args.workers), autoreset_mode="NextStep"
    )


@dataclass
class Run:
    """What a loop has seen, and how fast it was."""

    obs: list[np.ndarray] = field(default_factory=list)
    rewards: list[np.ndarray] = field(default_factory=list)
    dones: list[np.ndarray] = field(default_factory=list)
    returns: list[float] = field(default_factory=list)
    steps_per_second: float = 0.0


def loop(envs: gym.vector.VectorEnv, args: argparse.Namespace) -> Run:
    """The rollout part of a training script, with a policy that is a fixed linear function."""
    run = Run()
    rng = np.random.default_rng(args.seed)
    size = int(np.prod(envs.single_observation_space.shape))
    weights = rng.normal(size=(size, int(envs.single_action_space.n)))
    next_obs, _ = envs.reset(seed=args.seed)
    began = time.perf_counter()
    for _ in range(args.steps):
        noise = rng.gumbel(size=(args.envs, weights.shape[1]))
        action = (next_obs.reshape(args.envs, -1) @ weights + noise).argmax(1)
        next_obs, reward, terminations, truncations, infos = envs.step(action)
        run.obs.append(next_obs)
        run.rewards.append(reward)
        run.dones.append(np.logical_or(terminations, truncations))
        if "episode" in infos:
            run.returns += infos["episode"]["r"][infos["_episode"]].tolist()
    run.steps_per_second = args.steps * args.envs / (time.perf_counter() - began)
    envs.close()
    return run


def main() -> None:
    """Run both, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--env", default="CartPole-v1", help="an environment with one array to see and Discrete actions"
    )
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2000, help="of each environment")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    theirs = loop(gymnasium_envs(args), args)
    ours = loop(outrider_envs(args), args)
    for name in ("obs", "rewards", "dones", "returns"):
        np.testing.assert_array_equal(np.array(getattr(ours, name)), np.array(getattr(theirs, name)), name)
    print(f"{args.env}, {args.envs} environments, {args.steps} steps of each: equal data, {len(ours.returns)} episodes")
    print(f"gymnasium.vector.AsyncVectorEnv: {theirs.steps_per_second:9,.0f} steps/s")
    print(f"outrider.make_vec:               {ours.steps_per_second:9,.0f} steps/s")
    print(f"speed-up:                        {ours.steps_per_second / theirs.steps_per_second:9.1f}")


if __name__ == "__main__":
    main()
