"""Tests of spaces, of what Gymnasium's vector environments say of themselves, of seeds, masks and closing."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper

from outrider.errors import ConfigError
from outrider.testing.envs import Counter, Sampled, make_case, same
from outrider.testing.face import BY_MODE, Face

__all__ = ["SpaceTests"]


class Unknown(spaces.Space[str]):
    """A space that nobody has heard of."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        del mask, probability
        return "anything"

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown)

    __hash__ = None  # type: ignore[assignment]  # as it is with a method of equality


class Named(spaces.Box):
    """A Box of another name."""


class SpaceTests(Face):
    """Part of `GymnasiumConformance`."""

    # -- spaces ------------------------------------------------------------------------------------------------------

    def test_spaces_that_nobody_knows(self) -> None:
        known = spaces.Discrete(3)
        for observation, action, named in (
            (Unknown(), known, "observation space"),
            (known, Unknown(), "action space"),
            (known, spaces.Dict(a=Unknown(), b=known), "action space/a"),
        ):
            with pytest.raises(ConfigError, match=named), self.make(partial(Sampled, observation, action), 2):
                pass
        mixed = spaces.Dict(a=Unknown(), b=spaces.Dict(c=Unknown(), d=known))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with self.make(partial(Sampled, mixed, known), 2) as envs:
                assert envs.single_observation_space == spaces.Dict(b=spaces.Dict(d=known))
                assert envs.reset(seed=0)[0] in envs.observation_space
                assert envs.step(np.zeros(2, np.int64))[0] in envs.observation_space
        assert len(told) == 1
        assert "without 'a', 'b/c'" in str(told[0].message)

    def test_a_subclass_of_a_space_is_one(self) -> None:
        named = Named(-1.0, 1.0, (2,), np.float32)
        with self.make(partial(Sampled, named, named), 2) as envs:
            assert isinstance(envs.single_observation_space, Named)
            assert isinstance(envs.single_action_space, Named)
            assert envs.reset(seed=0)[0] in envs.observation_space
            envs.step(envs.action_space.sample())

    @pytest.mark.parametrize(
        "space",
        (
            lambda bound: spaces.Box(0, bound, (2,), np.float32),
            spaces.Discrete,
            lambda bound: spaces.Dict(a=spaces.Discrete(2), b=spaces.Box(0, bound, (2,), np.float32)),
            lambda bound: spaces.Box(0, 1, (bound,), np.float32),
        ),
    )
    def test_lanes_of_different_spaces_are_refused(self, space: Callable[[int], spaces.Space[Any]]) -> None:
        one = spaces.Discrete(2)
        with (
            pytest.raises(ConfigError, match="observation space of lane 2"),
            self.make([partial(Sampled, space(bound), one) for bound in (1, 1, 3)]),
        ):
            pass
        with (
            pytest.raises(ConfigError, match="action space of lane 1"),
            self.make([partial(Sampled, one, space(bound)) for bound in (1, 2)]),
        ):
            pass

    @pytest.mark.parametrize("case", ("nested", "ragged"))
    def test_spaces_can_be_copied_and_pickled(self, case: str) -> None:
        with self.make(make_case(case), 2) as envs:
            for space in (
                envs.observation_space,
                envs.action_space,
                envs.single_observation_space,
                envs.single_action_space,
            ):
                space.seed(3)
                pickled = pickle.loads(pickle.dumps(space))  # noqa: S301 - it was pickled here
                for other in (copy.deepcopy(space), pickled):
                    assert other == space
                    assert same(copy.deepcopy(other).sample(), copy.deepcopy(space).sample())

    # -- what they say of themselves ---------------------------------------------------------------------------------

    def test_the_registration_of_the_environments(self) -> None:
        with self.make("CartPole-v1", 2) as envs:
            assert envs.spec is not None
            assert envs.spec.id == "CartPole-v1"
            assert "CartPole-v1" in repr(envs)
            assert "num_envs=2" in repr(envs)
            assert envs.unwrapped is envs
            wrapped: Any = VectorWrapper(envs)
            assert wrapped.unwrapped is envs
            assert (wrapped.spec, wrapped.num_envs, wrapped.metadata) == (envs.spec, 2, envs.metadata)
            wrapped.metadata = {"render_modes": []}
            assert "autoreset_mode" in envs.metadata
        with self.make(lambda: Counter(9), 2) as envs:
            assert envs.spec is None
            assert "num_envs=2" in repr(envs)

    def test_frames_equal_gymnasium(self) -> None:
        make = make_case("floats")
        theirs = SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
        with self.make(make, 2) as ours:
            assert ours.render_mode == theirs.render_mode
            for envs in (ours, theirs):
                envs.reset(seed=4)
                envs.step(np.array([0, 1]))
            assert same(ours.render(), theirs.render())
        theirs.close()

    # -- seeds and masks ---------------------------------------------------------------------------------------------

    def test_seeds_lead_to_the_same_episodes_again(self) -> None:
        with self.make(make_case("nested"), 3) as envs:
            found = []
            for seed in (5, [5, 6, 7], None, 5):
                envs.action_space.seed(0)
                reset = envs.reset(seed=seed)
                found.append((reset, [envs.step(envs.action_space.sample()) for _ in range(5)]))
            assert same(found[0], found[1])
            assert same(found[0], found[3])
            assert not same(found[0], found[2])
            assert envs.np_random_seed == (5, 6, 7)
            with pytest.raises(AttributeError):
                envs.np_random = ()  # type: ignore[misc]  # that is what is tested

    @BY_MODE
    def test_masks_equal_gymnasium(self, mode: AutoresetMode) -> None:
        theirs = SyncVectorEnv([make_case("floats")] * 3, autoreset_mode=mode)
        rng = np.random.default_rng(0)
        with self.make(make_case("floats"), 3, mode) as ours:
            assert same(ours.reset(seed=1), theirs.reset(seed=1))
            over = np.zeros(3, np.bool_)
            for step in range(50):
                mask = rng.random(3) < 0.3
                if mode is AutoresetMode.DISABLED:
                    mask |= over
                if mask.any():
                    seed = None if step % 2 else [step, None, step + 9]
                    begun = ours.reset(seed=seed, options={"reset_mask": mask, "level": step})
                    assert same(begun, theirs.reset(seed=seed, options={"reset_mask": mask.copy(), "level": step}))
                actions = rng.integers(3, size=3)
                mine = ours.step(actions)
                assert same(mine, theirs.step(actions))
                over = mine[2] | mine[3]
        theirs.close()

    @BY_MODE
    def test_lanes_that_have_not_begun_are_not_left_out(self, mode: AutoresetMode) -> None:
        with self.make(lambda: Counter(9), 3, mode) as envs:
            with pytest.raises(ValueError, match="without a mask first"):
                envs.reset(options={"reset_mask": np.array([True, False, True])})
            assert envs.reset(options={"reset_mask": np.ones(3, np.bool_)})[0].tolist() == [[0]] * 3
            assert envs.reset(options={"reset_mask": np.array([True, False, True])})[0].tolist() == [[0]] * 3

    # -- closing -----------------------------------------------------------------------------------------------------

    def test_closing_by_a_wrapper_with_arguments_and_with_steps_under_way(self) -> None:
        with self.make(lambda: Counter(9), 2) as envs:
            wrapped: Any = VectorWrapper(VectorWrapper(envs))
            wrapped.reset()
            assert not wrapped.closed
            # What AsyncVectorEnv takes.
            wrapped.close(timeout=5, terminate=True)
            assert wrapped.closed
            assert envs.closed
            wrapped.close()
            envs.close_extras()
            for use in (wrapped.reset, lambda: wrapped.step(np.zeros(2, np.int64))):
                with pytest.raises(gymnasium.error.ClosedEnvironmentError):
                    use()
        with self.make(lambda: Counter(9), 2) as envs:
            envs.reset()
            envs.send(np.zeros(2, np.int64))
            envs.close()
            assert envs.closed
