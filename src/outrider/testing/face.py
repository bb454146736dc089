"""What the suites about Gymnasium's interface share: how environments are made, and how two are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from gymnasium.vector import AutoresetMode

import outrider
from outrider.testing.envs import same
from outrider.vector.driver import Backend
from outrider.vector.env import VecEnv

if TYPE_CHECKING:
    import gymnasium

__all__ = ["BY_MODE", "MODES", "Face", "walk"]

MODES = tuple(AutoresetMode)
BY_MODE = pytest.mark.parametrize("mode", MODES, ids=[mode.value for mode in MODES])


class Face:
    """Makes environments on the backend that is tested."""

    def backend(self) -> Backend:
        """The backend to test."""
        raise NotImplementedError

    @contextmanager
    def make(self, env: Any, num_envs: int | None = None, mode: AutoresetMode | str | None = None) -> Iterator[VecEnv]:
        """Environments on the backend, closed at the end."""
        with outrider.make_vec(env, num_envs, backend=self.backend(), autoreset_mode=mode) as envs:
            yield envs


def walk(ours: VecEnv, theirs: gymnasium.vector.VectorEnv[Any, Any, Any], steps: int) -> int:
    """Step both with the same actions and compare all that they return; reset by masks in turn; return the ends."""
    theirs.action_space.seed(5)
    disabled = ours.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    ends = 0
    for _ in range(steps):
        actions = theirs.action_space.sample()
        mine = ours.step(actions)
        assert same(mine, theirs.step(actions))
        ended = mine[2] | mine[3]
        ends += int(ended.sum())
        if disabled and ended.any():
            assert same(ours.reset(options={"reset_mask": ended}), theirs.reset(options={"reset_mask": ended.copy()}))
    return ends
