"""Tests of Gymnasium's wrappers for vector environments: on ours they see what they see on Gymnasium's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector

from outrider.testing.envs import Sampled, same
from outrider.testing.face import MODES, Face
from outrider.vector.env import VecEnv

__all__ = ["WRAPPINGS", "WrapperTests", "assert_same_on_both", "source"]

PICTURE = spaces.Box(0, 255, (4, 6, 3), np.uint8)
FLOATS = spaces.Box(-8.0, 8.0, (3,), np.float32)
ONES = np.ones(3, np.float32)
PAIR = spaces.Dict(near=FLOATS, far=spaces.Discrete(4))


class Wrapping(NamedTuple):
    """A wrapper, the observation space that it is for, and the modes that Gymnasium has it for."""

    wrap: Callable[..., Any]
    space: spaces.Space[Any] = FLOATS
    modes: tuple[AutoresetMode, ...] = MODES


NEXT = (AutoresetMode.NEXT_STEP,)
AUTORESET = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
NOT_SAME = (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)

WRAPPINGS = {
    # Without autoreset it begins anew for all lanes on Gymnasium's own, which take the mask out of the dict it sees.
    "RecordEpisodeStatistics": Wrapping(partial(vector.RecordEpisodeStatistics, buffer_length=5), modes=AUTORESET),
    "DictInfoToList": Wrapping(vector.DictInfoToList),
    "NormalizeReward": Wrapping(vector.NormalizeReward),
    "ClipReward": Wrapping(partial(vector.ClipReward, min_reward=-0.5, max_reward=0.5)),
    "TransformReward": Wrapping(partial(vector.TransformReward, func=lambda reward: 2 * reward + 1)),
    "VectorizeTransformReward": Wrapping(
        partial(
            vector.VectorizeTransformReward, wrapper=gymnasium.wrappers.TransformReward, func=lambda reward: -reward
        )
    ),
    "ClipAction": Wrapping(vector.ClipAction),
    "RescaleAction": Wrapping(partial(vector.RescaleAction, min_action=-ONES[:2], max_action=ONES[:2])),
    "TransformAction": Wrapping(partial(vector.TransformAction, func=lambda actions: actions / 2)),
    "VectorizeTransformAction": Wrapping(
        partial(
            vector.VectorizeTransformAction,
            wrapper=gymnasium.wrappers.TransformAction,
            func=lambda action: -action,
            action_space=spaces.Box(-2.0, 2.0, (2,), np.float32),
        )
    ),
    "NormalizeObservation": Wrapping(vector.NormalizeObservation, modes=NEXT),
    "TransformObservation": Wrapping(
        partial(
            vector.TransformObservation,
            func=lambda obs: obs / 2,
            observation_space=spaces.Box(-4.0, 4.0, (3, 3), np.float32),
            single_observation_space=spaces.Box(-4.0, 4.0, (3,), np.float32),
        ),
        modes=NOT_SAME,
    ),
    "VectorizeTransformObservation": Wrapping(
        partial(
            vector.VectorizeTransformObservation,
            wrapper=gymnasium.wrappers.TransformObservation,
            func=lambda obs: np.concatenate([obs, obs]),
            observation_space=spaces.Box(-8.0, 8.0, (6,), np.float32),
        ),
        modes=NOT_SAME,
    ),
    "RescaleObservation": Wrapping(partial(vector.RescaleObservation, min_obs=-ONES, max_obs=ONES), modes=NOT_SAME),
    "DtypeObservation": Wrapping(partial(vector.DtypeObservation, dtype=np.int32), PICTURE, NOT_SAME),
    "FlattenObservation": Wrapping(vector.FlattenObservation, PAIR, NOT_SAME),
    "FilterObservation": Wrapping(partial(vector.FilterObservation, filter_keys=["far"]), PAIR, NOT_SAME),
    "GrayscaleObservation": Wrapping(vector.GrayscaleObservation, PICTURE, NOT_SAME),
    "ReshapeObservation": Wrapping(partial(vector.ReshapeObservation, shape=(12, 6)), PICTURE, NOT_SAME),
}


def source(space: spaces.Space[Any]) -> Sampled:
    """An environment with such observations, and with actions that can be rescaled."""
    return Sampled(space, spaces.Box(-2.0, 2.0, (2,), np.float32))


class WrapperTests(Face):
    """Part of `GymnasiumConformance`: each wrapper in one mode; `assert_same_on_both` is for others."""

    @pytest.mark.parametrize(
        ("name", "mode"),
        [(name, one.modes[number % len(one.modes)]) for number, (name, one) in enumerate(WRAPPINGS.items())],
    )
    def test_a_wrapper_sees_what_it_sees_on_gymnasiums(self, name: str, mode: AutoresetMode) -> None:
        with self.make(partial(source, WRAPPINGS[name].space), 3, mode) as envs:
            assert_same_on_both(name, mode, envs)


def assert_same_on_both(name: str, mode: AutoresetMode, envs: VecEnv) -> None:
    """Assert that a wrapper returns the same for 50 steps on `envs` and on a `SyncVectorEnv`; close both."""
    wrapping = WRAPPINGS[name]
    ours = wrapping.wrap(envs)
    theirs = wrapping.wrap(SyncVectorEnv([partial(source, wrapping.space)] * 3, autoreset_mode=mode))
    for space in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(ours, space) == getattr(theirs, space)
    assert same(ours.reset(seed=1), theirs.reset(seed=1))
    theirs.action_space.seed(0)
    ends = 0
    for _ in range(50):
        actions = theirs.action_space.sample()
        # Some wrappers write to what they are given.
        mine, reference = (timeless(one.step(actions.copy())) for one in (ours, theirs))
        assert same(mine, reference)
        ended = mine[2] | mine[3]
        ends += int(ended.sum())
        if mode is AutoresetMode.DISABLED and ended.any():
            # The reference has a dict of its own, from which it takes the mask.
            mine, reference = (one.reset(options={"reset_mask": ended.copy()}) for one in (ours, theirs))
            assert same(mine, reference)
    assert ends > 0
    ours.close()
    assert envs.closed
    theirs.close()


def timeless(step: Any) -> Any:
    """The same without what was measured by the clock."""
    if isinstance(step[-1], dict):
        step[-1].get("episode", {}).pop("t", None)
    return step
