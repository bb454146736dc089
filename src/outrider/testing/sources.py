"""The suite of backends over vector environments that somebody else has made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import outrider
from outrider.testing.vec_env import VecEnvConformance
from outrider.vector.env import VecEnv
from outrider.vector.plan import Envs

__all__ = ["SourceConformance"]


class SourceConformance(VecEnvConformance):
    """Tests of a kind of vector environment behind `make_vec`, over environments that the suite chooses.

    Subclass it in a module that pytest collects, say how such a source is made, in which mode it resets, and what it
    cannot do (see `outrider.testing.subject.Subject`).

    Example:
        >>> from gymnasium.vector import AutoresetMode, SyncVectorEnv
        >>> class TestSyncVectorEnv(SourceConformance):
        ...     mode = AutoresetMode.SAME_STEP
        ...
        ...     def plain(self, factories):
        ...         return SyncVectorEnv(factories, autoreset_mode=self.mode)
    """

    apart = False
    by_lane = False
    builds = False

    @contextmanager
    def make(self, env: Any, num_envs: int | None = None) -> Iterator[VecEnv]:
        """A wrapped source of these environments, closed at the end."""
        plan = env if isinstance(env, Envs) else Envs(env, num_envs)
        with outrider.make_vec(self.plain(plan.factories)) as envs:
            yield envs

    # What raises in construction never reaches us: the source raises it, or waits for ever.
    @pytest.mark.parametrize("where", ("reset", "step"))
    def test_an_environment_that_raises(self, where: str) -> None:
        super().test_an_environment_that_raises(where)
