"""A suite that every backend of vector environments has to pass, wherever it runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from outrider.errors import ClosedError, ConfigError, OutriderError, SpecError
from outrider.testing.envs import Counter, make_case
from outrider.testing.lane_tests import LaneTests
from outrider.testing.wrong_envs import WrongEnvironmentTests

__all__ = ["VecEnvConformance"]


class VecEnvConformance(LaneTests, WrongEnvironmentTests):
    """Tests of a backend. Subclass it in a module that pytest collects, and say which backend it is.

    That data and interface are those of Gymnasium's own vector environments is what `GymnasiumConformance` is for.

    A backend is any object with a method `start(plan)` that returns an `outrider.vector.driver.Driver`.
    Each test makes environments with `make`, which closes them again; override it to make them in another way, and say
    what the source cannot do (see `outrider.testing.subject.Subject` for the attributes).

    Example:
        >>> class TestInline(VecEnvConformance):
        ...     def backend(self):
        ...         return outrider.Inline()
    """

    # -- misuse ------------------------------------------------------------------------------------------------------

    def test_misuse_is_refused_and_ends_nothing(self) -> None:
        with self.make(lambda: Counter(9), 3) as envs:
            envs.reset()
            one = np.zeros(1, np.int64)
            for lanes in ([1, 1], [3], [-1], [], [0.5], [[0]]):
                with pytest.raises(ConfigError, match="env_ids"):
                    envs.send(np.zeros(len(lanes), np.int64), lanes)
            with pytest.raises(OutriderError, match="send"):
                envs.recv()
            some = [1] if self.apart else [0, 1, 2]
            envs.send(np.zeros(len(some), np.int64), some)
            for misuse in (
                lambda: envs.send(one, [1]),
                envs.send_reset,
                lambda: envs.step(np.zeros(3, np.int64)),
                lambda: envs.get_attr("count"),
            ):
                with pytest.raises(OutriderError, match="recv"):
                    misuse()
            arrived, then = ([[1]], [[1], [2], [1]]) if self.apart else ([[1], [1], [1]], [[2], [2], [2]])
            assert envs.recv().obs.tolist() == arrived
            assert envs.step(np.zeros(3, np.int64))[0].tolist() == then

    def test_actions_that_do_not_fit_are_refused(self) -> None:
        with self.make(make_case("nested"), 2) as envs:
            envs.reset(seed=0)
            good = envs.action_space.sample()
            bad: list[Any] = [
                np.zeros(2, np.int64),
                {"bits": good["bits"]},
                {**good, "bits": good["bits"][:1]},
                {**good, "bits": good["bits"].astype(np.float32)},
                {**good, "move": good["move"][:1]},
                {**good, "move": (np.zeros((2, 3)), good["move"][1])},
            ]
            for actions in bad:
                with pytest.raises(SpecError):
                    envs.step(actions)
            self.step(envs, good)

    def test_integers_of_another_width_are_taken_as_they_are(self) -> None:
        with self.make(make_case("bits"), 2) as envs:
            envs.reset(seed=0)
            for dtype in (np.int64, np.uint8, np.bool_, np.int32):
                self.step(envs, np.ones((2, 5), dtype))
            with pytest.raises(SpecError, match="actions"):
                envs.step(np.full((2, 5), 257))

    def test_use_after_close(self) -> None:
        with self.make(lambda: Counter(9), 2) as envs:
            envs.reset()
            envs.close()
            envs.close()
            for use in (
                envs.reset,
                lambda: envs.step(np.zeros(2, np.int64)),
                lambda: envs.send(np.zeros(2, np.int64)),
                envs.send_reset,
                envs.recv,
                lambda: envs.get_attr("count"),
                envs.render,
            ):
                with pytest.raises(ClosedError, match="closed"):
                    use()
            assert envs.worker_pids == []
