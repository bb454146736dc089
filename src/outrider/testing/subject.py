"""What a suite of vector environments is about: how they are made, and what their source can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

import outrider
from outrider.tree import Tree
from outrider.vector.driver import Backend
from outrider.vector.env import VecEnv
from outrider.vector.plan import EnvFactory

if TYPE_CHECKING:
    import gymnasium
    import numpy as np

__all__ = ["Subject"]


class Subject:
    """Makes environments, with `make`, in the way that is tested.

    A test of what a source cannot do asserts instead that it is refused by name, or whose word stands for it.

    Attributes:
        mode: when `step()` resets lanes.
        apart: whether lanes can be sent to apart.
        by_lane: whether each environment is looked at on its own, so that errors name the lane and nothing is taken
            that does not fit. Where not, what the source makes of such things is taken: its errors, and its rows.
        keeps_ends: whether the last observation of an episode is copied before the environment is reset. Where not,
            that of an environment which writes to the same array again is another one.
        far: whether the source runs the environments in processes of its own. What they raise comes without its
            traceback then, and not at all from their close; infos have to be pickled, an instance for several lanes
            becomes one for each, and a question that an environment has no answer to is the last.
        builds: whether it builds the environments, so that what goes wrong there is its error. Where not, that of the
            source comes through.
    """

    mode = AutoresetMode.SAME_STEP
    apart = True
    by_lane = True
    keeps_ends = True
    far = False
    builds = True

    def backend(self) -> Backend:
        """The backend to test."""
        raise NotImplementedError

    @contextmanager
    def make(self, env: Any, num_envs: int | None = None) -> Iterator[VecEnv]:
        """Environments on the backend, closed at the end."""
        envs = outrider.make_vec(env, num_envs, backend=self.backend())
        try:
            yield envs
        finally:
            envs.close()

    def plain(self, factories: list[EnvFactory]) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """The same source without us; only where `by_lane` is False."""
        raise NotImplementedError

    def step(self, envs: VecEnv, actions: Tree) -> tuple[Tree, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all lanes and see to it that they can be stepped again; return what the step returned."""
        found = envs.step(actions)
        ended = found[2] | found[3]
        if self.mode == AutoresetMode.DISABLED and ended.any():
            envs.reset(options={"reset_mask": ended})
        return found
