"""An environment whose infos come and go."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class InfoEnv(gymnasium.Env):
    """Terminates after `length` steps; its observation and its infos follow from the number of steps since reset t.

    Infos: "x" is t if odd, else t + 0.5; "t" is 100 at reset and t at every third step; "won" is True at the end only;
    "junk" cannot be compared or put into a column.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, length: int) -> None:
        self.length = length
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([0], np.float32), {"r": -1, "t": 100}

    def step(self, action: int):
        self.t += 1
        info: dict[str, Any] = {"x": self.t if self.t % 2 else self.t + 0.5, "junk": object()}
        if self.t == self.length:
            info["won"] = True
        if self.t % 3 == 0:
            info["t"] = self.t
        return np.array([self.t], np.float32), 1.0, self.t == self.length, False, info


class InfoEnvOf:
    """A factory that can be pickled."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self) -> InfoEnv:
        return InfoEnv(self.length)
