"""EnvPool's Pong with fixed actions: envpool_pong.py WHO LANES (alone, step, recv or collector)."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import envpool
import numpy as np
from rounds import serve

import outrider

STEPS = 64


def alone(pool: Any, actions: np.ndarray) -> Callable[[], object]:
    """Nothing of ours: `step` of the pool."""
    pool.reset()
    return repeated(lambda: pool.step(actions))


def step(pool: Any, actions: np.ndarray) -> Callable[[], object]:
    """`VecEnv.step`."""
    envs = outrider.make_vec(pool)
    envs.reset()
    return repeated(lambda: envs.step(actions))


def recv(pool: Any, actions: np.ndarray) -> Callable[[], object]:
    """`send` to all lanes and `recv` from them."""
    envs = outrider.make_vec(pool)
    envs.reset()

    def turn() -> object:
        envs.send(actions)
        return envs.recv()

    return repeated(turn)


def collector(pool: Any, actions: np.ndarray) -> Callable[[], object]:
    """Rollouts with a policy that costs nothing."""
    made = outrider.Collector(outrider.make_vec(pool), lambda _: actions, seed=0)
    return lambda: made.rollout(STEPS)


def repeated(turn: Callable[[], object]) -> Callable[[], None]:
    """What takes so many steps."""

    def play() -> None:
        for _ in range(STEPS):
            turn()

    return play


def main() -> None:
    """Step a pool whose number of threads is EnvPool's own choice."""
    who, lanes = sys.argv[1], int(sys.argv[2])
    warnings.simplefilter("ignore")  # of EnvPool's spaces, about precision
    pool = envpool.make("Pong-v5", env_type="gymnasium", num_envs=lanes, seed=0)
    play = {"alone": alone, "step": step, "recv": recv, "collector": collector}[who](pool, np.zeros(lanes, np.int64))

    def work() -> int:
        play()
        return STEPS * lanes

    serve(work)


if __name__ == "__main__":
    main()
