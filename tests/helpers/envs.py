"""Gymnasium environments that are easy to predict, or that fail on request. All can be pickled and sent to workers."""

from __future__ import annotations

import copy
import os
import signal
import threading
from typing import Literal

import gymnasium
import numpy as np
from gymnasium import spaces

Mode = Literal["truncate", "terminate", "both"]
Fault = Literal["raise", "exit", "kill", "hang"]
Where = Literal["init", "reset", "step", "close"]


class CounterEnv(gymnasium.Env):
    """Counts its steps: the observation is the number of steps since the reset, the reward is 1.

    `mode` says how an episode ends at its step number `length`. `closed` is the number of calls of `close`.
    """

    def __init__(self, length: int = 10, mode: Mode = "truncate"):
        self.observation_space = spaces.Box(0.0, np.inf, (1,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.length = length
        self.mode = mode
        self.count = 0
        self.closed = 0

    def observation(self):
        return np.array([self.count], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action):
        self.count += 1
        done = self.count >= self.length
        return self.observation(), 1.0, done and self.mode != "truncate", done and self.mode != "terminate", {}

    def close(self):
        self.closed += 1


class RandomLengthEnv(CounterEnv):
    """A `CounterEnv` that draws the length of each episode from `lengths`, with its own generator."""

    def __init__(self, lengths: tuple[int, ...] = (1, 2, 3, 5, 8), mode: Mode = "terminate"):
        super().__init__(max(lengths), mode)
        self.lengths = tuple(lengths)

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        self.length = int(self.np_random.choice(self.lengths))
        return observation, info


class NestedEnv(gymnasium.Env):
    """Nested observations and actions; everything it returns is drawn from its own generator.

    An action outside of the space is refused, and the last action is kept in `last_action`.
    """

    def __init__(self, length: int = 7):
        self.observation_space = spaces.Dict(
            {
                "pair": spaces.Tuple((spaces.Box(-1.0, 1.0, (3,), np.float64), spaces.Discrete(3, start=-1))),
                "bits": spaces.MultiBinary(4),
            }
        )
        self.action_space = spaces.Dict(
            {
                "move": spaces.Tuple((spaces.Box(-2.0, 2.0, (2,), np.float64), spaces.Discrete(3, start=-1))),
                "bits": spaces.MultiBinary(2),
            }
        )
        self.length = length
        self.count = 0
        self.last_action = None

    def observation(self):
        return {
            "pair": (self.np_random.uniform(-1.0, 1.0, 3), np.int64(self.np_random.integers(-1, 2))),
            "bits": self.np_random.integers(0, 2, 4, dtype=np.int8),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"expected an action of {self.action_space}, found {action!r}")
        self.last_action = action
        self.count += 1
        return self.observation(), float(self.np_random.normal()), False, self.count >= self.length, {}


class StrictEnv(CounterEnv):
    """A `CounterEnv` of any action space; keeps copies of its actions in `received` and refuses what is no member."""

    def __init__(self, action_space: gymnasium.Space, length: int = 10, *, strict: bool = True):
        super().__init__(length)
        self.action_space = copy.deepcopy(action_space)
        self.strict = strict
        self.received = []

    def step(self, action):
        # A scalar of a Box comes as a NumPy scalar, as from Gymnasium's own vector environments.
        member = np.asarray(action) if isinstance(action, np.floating) else action
        if self.strict and not self.action_space.contains(member):
            raise ValueError(f"expected an action of {self.action_space}, found {action!r}")
        self.received.append(copy.deepcopy(action))
        return super().step(action)


class FaultyEnv(CounterEnv):
    """A `CounterEnv` that fails once, in the operation `where`.

    `at` counts the calls of that operation, from 0: where="step", at=3 fails in the fourth step of the environment's
    life. exit ends the process as sys.exit does, kill as the kernel does, and hang waits for ever, without using the
    processor; `release`, set in the same process, ends the waiting.
    """

    release = threading.Event()

    def __init__(self, fault: Fault = "raise", where: Where = "step", at: int = 0, length: int = 10):
        super().__init__(length)
        self.fault = fault
        self.where = where
        self.at = at
        self.calls = 0
        self.fail_in("init")

    def fail_in(self, where: Where):
        if where != self.where:
            return
        self.calls += 1
        if self.calls != self.at + 1:
            return
        match self.fault:
            case "raise":
                raise RuntimeError(f"FaultyEnv was told to fail in {where}, call {self.at}")
            case "exit":
                raise SystemExit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                FaultyEnv.release.wait()

    def reset(self, *, seed=None, options=None):
        self.fail_in("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.fail_in("step")
        return super().step(action)

    def close(self):
        self.fail_in("close")
        super().close()
