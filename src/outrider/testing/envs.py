"""Environments for the conformance suites: they can be sent to workers; what they return follows from their seeds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from outrider import tree

__all__ = ["CASES", "Broken", "Counter", "Failing", "Sampled", "make_case"]

GRID = np.array([[3, 4], [5, 6]])

CASES: dict[str, tuple[gymnasium.Space[Any], gymnasium.Space[Any]]] = {
    "floats": (spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Discrete(3)),
    "frames": (spaces.Box(0, 255, (12, 12, 2), np.uint8), spaces.Discrete(4, start=-1)),
    "scalar": (spaces.Discrete(7, start=-1), spaces.Box(-1.0, 1.0, (10, 10), np.float64)),
    "scalar box": (spaces.Box(-5.0, 5.0, (), np.float64), spaces.Box(-1.0, 1.0, (), np.float32)),
    "grid": (spaces.MultiDiscrete(GRID), spaces.MultiDiscrete(GRID)),
    "bits": (spaces.MultiBinary((2, 3)), spaces.MultiBinary(5)),
    "large integers": (spaces.Box(-(2**62), 2**62, (3,), np.int64), spaces.MultiBinary((2, 2))),
    "nested": (
        spaces.Dict(
            {
                "pair": spaces.Tuple((spaces.Box(-1.0, 1.0, (3,), np.float64), spaces.Discrete(3, start=-1))),
                "bits": spaces.MultiBinary(4),
            }
        ),
        spaces.Dict(
            {
                "move": spaces.Tuple((spaces.Box(-2.0, 2.0, (2,), np.float64), spaces.Discrete(3, start=-1))),
                "bits": spaces.MultiBinary(2),
            }
        ),
    ),
    "text": (spaces.Text(12, min_length=0, charset="ab \0é"), spaces.Discrete(3)),
    "graph": (spaces.Graph(spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(3)), spaces.Discrete(3)),
    "stack": (
        spaces.Sequence(spaces.Dict(a=spaces.Box(-1.0, 1.0, (3,), np.float64), b=spaces.Discrete(5)), stack=True),
        spaces.MultiBinary(2),
    ),
    "ragged": (
        spaces.Dict(
            {
                "words": spaces.Tuple((spaces.Text(5), spaces.Discrete(3))),
                "frame": spaces.Box(0, 255, (4, 4), np.uint8),
                "inner": spaces.Dict(
                    {
                        "numbers": spaces.Sequence(spaces.Discrete(9, start=-4)),
                        "deep": spaces.Sequence(
                            spaces.Tuple((spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Text(3)))
                        ),
                    }
                ),
            }
        ),
        spaces.Discrete(3),
    ),
}
"""Observation and action spaces by name: every kind of leaf, scalar, ragged in depth, without fixed size, and integers
beyond 2**53."""


class Sampled(gymnasium.Env[Any, Any]):
    """Draws observations, rewards and ends from its own generator; the reward depends on the action as well.

    An action that is not a member of the space, or that changes after it was handed over, is refused.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - it is Gymnasium's attribute, a class variable there

    def __init__(self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        # Each has generators of its own, so that lanes do not share them.
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = copy.deepcopy(action_space)
        self.render_mode = "rgb_array"
        self.count = 0
        self.closed = 0
        self._kept: tuple[Any, Any] | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        self.count = 0
        return self.observation_space.sample(), {"options": str(options), "step": 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._check(action)
        self.count += 1
        reward = float(self.np_random.normal()) + sum(float(np.sum(leaf)) for leaf in tree.leaves(action))
        ends = self.np_random.random(2) < 0.15
        return self.observation_space.sample(), reward, bool(ends[0]), bool(ends[1]), self._info()

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"step": self.count, "place": np.arange(3) * self.count}
        if self.np_random.random() < 0.4:
            info |= {"luck": self.np_random.random(), "word": f"word {self.count}", "inner": {"deep": self.count > 2}}
        return info if self.np_random.random() < 0.8 else {}

    def _check(self, action: Any) -> None:
        # Gymnasium's own vector environments hand scalars of a Box over as NumPy scalars.
        if not self.action_space.contains(np.asarray(action) if isinstance(action, np.generic) else action):
            msg = f"expected an action of {self.action_space}, found {action!r}"
            raise ValueError(msg)
        if self._kept is not None and not same(*self._kept):
            msg = f"an action changed after it was handed over, from {self._kept[1]!r} to {self._kept[0]!r}"
            raise ValueError(msg)
        self._kept = action, copy.deepcopy(action)

    def render(self) -> Any:
        return np.full((2, 2, 3), self.count, np.uint8)

    def add(self, first: int, *, second: int) -> int:
        """Something to call."""
        return first + second + self.count

    def close(self) -> None:
        self.closed += 1


def make_case(name: str) -> Callable[[], Sampled]:
    """Return a factory of environments with the spaces of `CASES[name]`."""
    return lambda: Sampled(*CASES[name])


class Counter(gymnasium.Env[Any, Any]):
    """Counts its steps: the observation is the number of steps since the reset, the reward is 1; ends by itself."""

    def __init__(self, length: int = 5, shape: tuple[int, ...] = (1,), reward: Any = 1.0) -> None:
        self.observation_space = spaces.Box(0.0, np.inf, shape, np.float32)
        self.action_space = spaces.Discrete(2)
        self.length = length
        self.reward = reward
        self.count = 0
        self._observation = np.zeros(shape, np.float32)

    def observation(self) -> Any:
        """Always the same array: whoever keeps it without a copy sees it change."""
        self._observation[...] = self.count
        return self._observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.observation(), self.reward, self.count >= self.length, False, {}


class Failing(Counter):
    """Raises in the operation `where`: "construct", or the second "reset" or "step" of its life, or "close".

    It closes well if it was never reset: some sources make one more environment, to see what it is, and close it.
    """

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.calls: dict[str, int] = {}
        self.fail_in("construct", 1)

    def fail_in(self, operation: str, call: int = 2) -> None:
        """Raise if it is time."""
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if operation == self.where and self.calls[operation] == call:
            msg = f"told to fail in {operation}"
            raise RuntimeError(msg)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.fail_in("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.fail_in("step")
        return super().step(action)

    def close(self) -> None:
        if "reset" in self.calls:
            self.fail_in("close", 1)


class Broken(gymnasium.Env[Any, Any]):
    """Returns in its second step what its observation space does not declare."""

    def __init__(self, bad: Any) -> None:
        self.observation_space = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (3,), np.float32), "b": spaces.Discrete(4)})
        self.action_space = spaces.Discrete(2)
        self.bad = bad
        self.count = 0

    def observation(self) -> Any:
        """What it declares, or not."""
        return self.bad if self.count == 2 else {"a": np.zeros(3, np.float32), "b": np.int64(1)}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.observation(), 0.0, False, False, {}


def same(a: Any, b: Any) -> bool:
    """Whether two trees of arrays, or infos, are equal in structure, shape, dtype and value; object arrays too."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return isinstance(b, type(a)) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) and a.dtype == np.object_:
        return isinstance(b, np.ndarray) and a.shape == b.shape and all(map(same, a.flat, b.flat))
    if isinstance(a, np.ndarray):
        alike = isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
        return alike and np.array_equal(a, b)
    if isinstance(a, np.generic) and isinstance(b, np.generic) and a.dtype != b.dtype:
        return False
    return bool(a == b)
