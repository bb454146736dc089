"""Stable-Baselines3's PPO.collect_rollouts: collect_sb3.py LANES LENGTH."""

import sys

import torch
from rounds import serve
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv
from workloads import cartpole


def main() -> None:
    """Fill the rollout buffer."""
    lanes, length = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    envs = DummyVecEnv([cartpole] * lanes)
    model = PPO("MlpPolicy", envs, n_steps=length, batch_size=length * lanes, device="cpu")
    model._setup_learn(10**9)
    callback = model._init_callback(None)

    def collect() -> int:
        model.collect_rollouts(envs, callback, model.rollout_buffer, length)
        return length * lanes

    serve(collect)


if __name__ == "__main__":
    main()
