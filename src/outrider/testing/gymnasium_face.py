"""A suite about Gymnasium's interface: what its own vector environments do, in each of the three autoreset modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from outrider.errors import ConfigError, EnvironmentFailure, OutriderError
from outrider.testing.envs import CASES, Counter, make_case, same
from outrider.testing.face import BY_MODE, MODES, walk
from outrider.testing.face_spaces import SpaceTests
from outrider.testing.face_wrappers import WrapperTests

__all__ = ["GymnasiumConformance", "Informed"]

MATRIX = [(case, 3, mode) for mode in MODES for case in CASES if mode is not AutoresetMode.DISABLED or case == "nested"]
MATRIX += [("nested", 1, mode) for mode in MODES]


class GymnasiumConformance(SpaceTests, WrapperTests):
    """What a loop written for Gymnasium's vector environments relies on.

    Subclass it in a module that pytest collects, and say which backend it is.

    Example:
        >>> class TestInlineAsGymnasium(GymnasiumConformance):
        ...     def backend(self):
        ...         return outrider.Inline()
    """

    # -- equal data --------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("case", "num_envs", "mode"), MATRIX)
    def test_equals_gymnasium_in_every_mode(self, case: str, num_envs: int, mode: AutoresetMode) -> None:
        theirs = SyncVectorEnv([make_case(case)] * num_envs, autoreset_mode=mode)
        with self.make(make_case(case), num_envs, mode) as ours:
            assert ours.observation_space == theirs.observation_space
            assert ours.action_space == theirs.action_space
            assert ours.metadata == theirs.metadata
            assert same(ours.reset(seed=3), theirs.reset(seed=3))
            assert walk(ours, theirs, 25) > 0
        theirs.close()

    @BY_MODE
    def test_large_observations_equal_gymnasium(self, mode: AutoresetMode) -> None:
        factories: list[Callable[[], Page]] = [lambda: Page(3), lambda: Page(4)]
        theirs = SyncVectorEnv(factories, autoreset_mode=mode)
        with self.make(factories, None, mode) as ours:
            assert same(ours.reset(), theirs.reset())
            assert walk(ours, theirs, 12) > 0
            mask = np.array([False, True])
            assert same(ours.reset(options={"reset_mask": mask}), theirs.reset(options={"reset_mask": mask}))
            assert walk(ours, theirs, 9) > 0
        theirs.close()

    @BY_MODE
    def test_infos_equal_gymnasium(self, mode: AutoresetMode) -> None:
        theirs = SyncVectorEnv([Informed] * 4, autoreset_mode=mode)
        with self.make(Informed, 4, mode) as ours:
            assert same(ours.reset(seed=1), theirs.reset(seed=1))
            walk(ours, theirs, 40)
        theirs.close()

    # -- the three modes ---------------------------------------------------------------------------------------------

    def test_next_step_resets_in_the_step_after(self) -> None:
        with self.make([lambda: Paid(2), lambda: Paid(3)], None, "NextStep") as envs:
            assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
            envs.reset()
            found = [listed(envs.step([4, 7])) for _ in range(5)]
        assert found == [
            ([1, 1], [4, 7], [False, False], {}),
            ([2, 2], [4, 7], [True, False], {}),
            ([0, 3], [0, 7], [False, True], {}),
            ([1, 0], [4, 0], [False, False], {}),
            ([2, 1], [4, 7], [True, False], {}),
        ]

    def test_same_step_resets_in_the_step_that_ends(self) -> None:
        with self.make([lambda: Paid(2), lambda: Paid(3)], None, "SameStep") as envs:
            envs.reset()
            found = [listed(envs.step([4, 7])) for _ in range(3)]
            final = found[1][3]
        assert [row[:3] for row in found] == [
            ([1, 1], [4, 7], [False, False]),
            ([0, 2], [4, 7], [True, False]),
            ([1, 0], [4, 7], [False, True]),
        ]
        assert final["final_obs"].tolist() == [2, None]
        assert final["_final_obs"].tolist() == final["_final_info"].tolist() == [True, False]
        assert final["final_info"] == {}

    def test_without_autoreset_the_user_resets(self) -> None:
        with self.make([lambda: Paid(2), lambda: Paid(3)], None, AutoresetMode.DISABLED) as envs:
            assert envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
            envs.reset()
            envs.step([4, 7])
            *_, ended, _, _ = envs.step([4, 7])
            assert ended.tolist() == [True, False]
            with pytest.raises(OutriderError, match=r"lanes \[0\] at the end"):
                envs.step([4, 7])
            assert envs.reset(options={"reset_mask": ended})[0].tolist() == [0, 2]
            assert listed(envs.step([4, 7])) == ([1, 3], [4, 7], [False, True], {})
            assert envs.reset()[0].tolist() == [0, 0]
            assert listed(envs.step([4, 7])) == ([1, 1], [4, 7], [False, False], {})

    def test_lanes_held_by_send_are_reset_by_the_next_step(self) -> None:
        with self.make(lambda: Paid(1), 2, "NextStep") as envs:
            envs.reset()
            envs.send([1], [1], hold=True)
            envs.recv()
            assert listed(envs.step([4, 7])) == ([1, 0], [4, 0], [True, False], {})
            # A reset by hand is one, too, and so is one of a lane whose end nobody has received.
            envs.send_reset([0])
            envs.recv()
            envs.send([1], [1], hold=True)
            assert envs.reset(options={"reset_mask": np.array([True, False])})[0].tolist() == [0, 1]
            assert listed(envs.step([4, 7])) == ([1, 0], [4, 0], [True, False], {})

    # -- seeds, options, masks ---------------------------------------------------------------------------------------

    @BY_MODE
    def test_seeds_of_the_lanes(self, mode: AutoresetMode) -> None:
        with self.make([lambda: seeded(0), lambda: seeded(1)], None, mode) as envs:
            assert envs.np_random_seed == (0, 1)
            seeds: tuple[Any, ...] = (42, None, [7, None], np.int64(5))
            for seed, expected in zip(seeds, ((42, 43), (42, 43), (7, 43), (5, 6)), strict=True):
                envs.reset(seed=seed)
                assert envs.np_random_seed == expected
            assert [one.bit_generator.state for one in envs.np_random] == [
                np.random.default_rng(seed).bit_generator.state for seed in (5, 6)
            ]
            with pytest.raises(ValueError, match="seed"):
                envs.reset(seed=[1, 2, 3])

    def test_samples_of_actions_are_those_of_the_first_environment(self) -> None:
        with self.make([lambda: seeded(123), lambda: seeded(9)]) as envs, self.make(lambda: seeded(123), 2) as others:
            expected = SyncVectorEnv([lambda: seeded(123)] * 2).action_space
            for _ in range(20):
                sample = envs.action_space.sample()
                assert same(sample, expected.sample())
                assert same(sample, others.action_space.sample())

    @BY_MODE
    def test_a_mask_resets_some_lanes(self, mode: AutoresetMode) -> None:
        with self.make(make_case("floats"), 3, mode) as envs:
            first, _ = envs.reset(seed=[0, 1, 2])
            now, *_ = envs.step(np.zeros(3, np.int64))
            mask = np.array([True, True, False])
            options = {"reset_mask": mask, "level": 1}
            after, infos = envs.reset(seed=[0, 1, 0], options=options)
            assert same(after[:2], first[:2])
            assert same(after[2], now[2])
            assert infos["_options"].tolist() == [True, True, False]
            assert infos["options"].tolist() == ["{'level': 1}"] * 2 + [None]
            assert options["reset_mask"] is mask, "the user's own dict stays as it is"

    def test_masks_that_are_none(self) -> None:
        bad: tuple[tuple[Any, type[Exception]], ...] = (
            (np.array([True]), ValueError),
            (np.ones(4, np.bool_), ValueError),
            (np.ones((1, 3), np.bool_), ValueError),
            (np.zeros(3, np.bool_), ValueError),
            (np.array([1, 1, 0]), TypeError),
            (np.array([1.0, 1.0, 0.0]), TypeError),
            ([True, True, False], TypeError),
        )
        with self.make(lambda: Counter(9), 3, "Disabled") as envs:
            envs.reset(options={"reset_mask": np.ones(3, np.bool_)})
            envs.step(np.zeros(3, np.int64))
            for mask, error in bad:
                with pytest.raises(error, match="reset_mask"):
                    envs.reset(options={"reset_mask": mask})
            assert envs.step(np.zeros(3, np.int64))[0].tolist() == [[2]] * 3

    # -- shapes and types --------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("case", tuple(CASES))
    def test_what_is_returned_belongs_to_the_spaces(self, case: str) -> None:
        with self.make(make_case(case), 3) as envs:
            assert envs.num_envs == 3
            obs, infos = envs.reset(seed=0)
            assert obs in envs.observation_space
            assert isinstance(infos, dict)
            obs, reward, terminated, truncated, infos = envs.step(envs.action_space.sample())
            assert obs in envs.observation_space
            assert [array.dtype for array in (reward, terminated, truncated)] == ["float64", "bool", "bool"]
            assert [array.shape for array in (reward, terminated, truncated)] == [(3,)] * 3
            assert isinstance(infos, dict)
            for one in gymnasium.vector.utils.iterate(envs.observation_space, obs):
                # A scalar of a batch is a NumPy scalar, which only some spaces take for a member.
                assert (np.asarray(one) if isinstance(one, np.generic) else one) in envs.single_observation_space

    def test_actions_of_single_environments_and_of_another_number(self) -> None:
        with self.make(lambda: Counter(9), 4, "Disabled") as envs:
            envs.reset()
            actions = [envs.single_action_space.sample() for _ in range(4)]
            assert all(len(part) == 4 for part in envs.step(actions)[:4])
            for wrong in (actions[:3], [*actions, actions[0]]):
                with pytest.raises(ValueError, match="actions"):
                    envs.step(wrong)
            with pytest.raises(TypeError, match="actions"):
                envs.step(0)

    def test_the_metadata_of_the_environments_stay_as_they_are(self) -> None:
        with self.make(make_case("floats"), 2, "NextStep") as one, self.make(make_case("floats"), 2) as other:
            assert one.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
            assert other.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
            assert one.metadata["render_modes"] == ["rgb_array"]
            assert all("autoreset_mode" not in metadata for metadata in one.get_attr("metadata"))

    @pytest.mark.parametrize("mode", ("same-step", 1, "SAME_STEP"))
    def test_modes_that_do_not_exist(self, mode: Any) -> None:
        with pytest.raises(ConfigError, match="autoreset_mode"), self.make(lambda: Counter(9), 2, mode):
            pass

    # -- attributes and frames ---------------------------------------------------------------------------------------

    def test_attributes_of_some_lanes(self) -> None:
        with self.make(make_case("floats"), 4) as envs:
            envs.reset(seed=0)
            envs.set_attr("count", [0, 10, 20, 30])
            some = envs.at([3, 1])
            assert some.get_attr("count") == (30, 10)
            assert some.call("add", 1, second=2) == (33, 13)
            some.set_attr("count", (5, 6))
            assert envs.get_attr("count") == (0, 6, 20, 5)
            envs.at(np.array([2])).set_attr("count", 7)
            assert envs.get_attr("count") == (0, 6, 7, 5)
            assert [int(frame[0, 0, 0]) for frame in some.render()] == [5, 6]
            for lanes in ([4], [-1], [1, 1], [], [0.5]):
                with pytest.raises(ConfigError, match="env_ids"):
                    envs.at(lanes)
            with pytest.raises(ConfigError, match="set_attr"):
                some.set_attr("count", [1, 2, 3, 4])
            with pytest.raises(EnvironmentFailure, match="no_such_thing") as caught:
                some.get_attr("no_such_thing")
            assert caught.value.lane in {1, 3}

    def test_frames_need_a_render_mode(self) -> None:
        with self.make(make_case("floats"), 3) as envs:
            assert envs.render_mode == "rgb_array"
            envs.reset(seed=0)
            frames = envs.render()
            assert isinstance(frames, tuple)
            assert [frame.shape for frame in frames] == [(2, 2, 3)] * 3
            assert same(envs.call("render"), frames)
        with self.make(lambda: Counter(9), 2) as envs:
            assert envs.render_mode is None
            with pytest.raises(ConfigError, match="render_mode"):
                envs.render()

    def test_what_would_move_a_lane_is_not_called(self) -> None:
        with self.make(lambda: Counter(9), 2) as envs:
            envs.reset()
            for name in ("reset", "step", "close"):
                with pytest.raises(ValueError, match=name):
                    envs.call(name)

    def test_use_after_close_is_gymnasiums_error_as_well(self) -> None:
        with self.make(lambda: Counter(9), 2) as envs:
            envs.reset()
            envs.close()
            envs.close()
            assert envs.closed
            for use in (envs.reset, envs.render, lambda: envs.step([0, 0]), lambda: envs.at([0])):
                with pytest.raises(gymnasium.error.ClosedEnvironmentError):
                    use()


class Paid(gymnasium.Env[Any, Any]):
    """Counts its steps and pays the action; ends after `length` steps."""

    def __init__(self, length: int) -> None:
        self.observation_space = spaces.Discrete(9)
        self.action_space = spaces.Discrete(9)
        self.length = length
        self.count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.count, action, self.count == self.length, False, {}


class Page(Counter):
    """Has large observations, each in an array of its own: Gymnasium does not copy the last one of an episode."""

    def __init__(self, length: int) -> None:
        super().__init__(length, (100, 300))

    def observation(self) -> Any:
        return super().observation().copy()


class Informed(Paid):
    """Has infos of every kind, each of which may be missing."""

    def __init__(self) -> None:
        super().__init__(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        return observation, self.drawn()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return *super().step(action)[:-1], self.drawn()

    def drawn(self) -> dict[str, Any]:
        """Some of all infos."""
        rng, count = self.np_random, self.count
        every: dict[str, Any] = {
            "int": count,
            "float": count / 3,
            "bool": count % 2 == 0,
            "integer": np.int16(count),
            "single": np.float32(count / 3),
            "flag": np.bool_(count % 2),
            "array": np.arange(4, dtype=np.uint8) + count,
            "scalar array": np.array(count * 2.5),
            "grid": np.full((2, 3), count, np.float32),
            "string": "x" * count,
            "none": None,
            "list": [count, "two"],
            "tuple": (count, None),
            "inner": {"int": count, "deep": {"float": count / 7, "word": "deep", "nothing": {}}, "none": None},
            "empty": {},
        }
        return {key: value for key, value in every.items() if rng.random() < 0.6}


def seeded(seed: int) -> Counter:
    """An environment that has been seeded by its factory."""
    env = Counter(9)
    env.reset(seed=seed)
    env.action_space.seed(seed)
    return env


def listed(step: Any) -> tuple[Any, ...]:
    """Observations, rewards, terminations and infos of a step that truncates nothing, as lists."""
    obs, reward, terminated, truncated, infos = step
    assert not truncated.any()
    return obs.tolist(), reward.tolist(), terminated.tolist(), infos
