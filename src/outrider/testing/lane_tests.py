"""Tests of lanes: their resets, attributes and limits, and that they can be sent to apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import outrider
from outrider.errors import ConfigError, EnvironmentFailure, OutriderError
from outrider.testing.envs import Counter, make_case, same
from outrider.testing.subject import Subject

__all__ = ["LaneTests"]

COUNTS = {
    AutoresetMode.SAME_STEP: (0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2),
    AutoresetMode.NEXT_STEP: (0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0),
    AutoresetMode.DISABLED: (0, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2),
}
"""What steps show of episodes of four."""


class LaneTests(Subject):
    """Part of `VecEnvConformance`."""

    # -- resets, attributes, limits ----------------------------------------------------------------------------------

    def test_reset_by_seeds_options_and_mask(self) -> None:
        theirs = SyncVectorEnv([make_case("floats")] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
        mask = np.array([True, False, True])
        with self.make(make_case("floats"), 3) as ours:
            requests: tuple[tuple[Any, dict[str, Any] | None], ...] = (
                ([1, None, 3], {"level": 2}),
                (9, None),
                ([5, 6, 7], {"reset_mask": mask, "level": 1}),
                (4, {"reset_mask": mask}),
            )
            for seed, options in requests:
                mine = ours.reset(seed=seed, options=options)
                reference = theirs.reset(seed=seed, options=None if options is None else dict(options))
                if seed == [1, None, 3]:
                    # The second lane has drawn its own seed, here and there.
                    assert same(mine[0][[0, 2]], reference[0][[0, 2]])
                    assert same(mine[1], reference[1])
                else:
                    assert same(mine, reference)
            for bad in (np.array([True, False]), [True, False, True], np.array([1, 0, 1]), np.zeros(3, bool)):
                with pytest.raises(ConfigError, match="reset_mask"):
                    ours.reset(options={"reset_mask": bad})
            with pytest.raises(ConfigError, match="seed"):
                ours.reset(seed=[1, 2])
        theirs.close()

    def test_attributes_calls_and_frames(self) -> None:
        with self.make(make_case("floats"), 3) as envs:
            envs.reset(seed=0)
            self.step(envs, np.zeros(3, np.int64))
            steps = envs.get_attr("count")
            assert len(steps) == 3
            assert envs.call("add", 1, second=10) == tuple(11 + count for count in steps)
            assert envs.call("count") == steps
            envs.set_attr("count", [7, 8, 9])
            assert envs.get_attr("count") == (7, 8, 9)
            envs.set_attr("count", 4)
            assert envs.get_attr("count") == (4, 4, 4)
            assert [frame[0, 0, 0] for frame in envs.render()] == [4, 4, 4]
            with pytest.raises(ConfigError, match="set_attr"):
                envs.set_attr("count", [1, 2])
            with pytest.raises(EnvironmentFailure, match="no_such_thing") as caught:
                envs.get_attr("no_such_thing")
            assert caught.value.lane == (0 if self.by_lane else -1)
            if self.far:
                with pytest.raises(OutriderError):
                    envs.step(np.zeros(3, np.int64))
            else:
                self.step(envs, np.zeros(3, np.int64))

    def test_a_limit_is_added_to_the_flags_of_the_environment(self) -> None:
        plan = outrider.Envs([lambda: Counter(5), lambda: Counter(4), lambda: Counter(9)], max_episode_steps=5)
        with self.make(plan) as envs:
            envs.reset()
            flags = np.array([self.step(envs, np.zeros(3, np.int64))[2:4] for _ in range(5)])
        assert flags[3].tolist() == [[False, True, False], [False, False, False]]
        assert flags[4].tolist() == [[True, False, False], [True, False, True]]

    @pytest.mark.parametrize("shape", ((2,), (200, 200)))
    def test_what_was_returned_never_changes(self, shape: tuple[int, ...]) -> None:
        with self.make(lambda: Counter(4, shape), 3) as envs:
            kept, last = [(envs.reset()[0], [0.0])], [4.0 if self.keeps_ends else 0.0]
            for _ in range(10):
                obs, *_, infos = self.step(envs, np.zeros(3, np.int64))
                kept += [(obs, np.unique(obs).tolist()), *((final, last) for final in infos.get("final_obs", ()))]
            assert [count for obs, count in kept if len(obs) == 3] == [[count] for count in COUNTS[self.mode]]
            assert all(np.unique(obs).tolist() == count for obs, count in kept)
            # Writing to it changes nothing either.
            kept[-1][0][:] = 99
            then = COUNTS[self.mode][-1] + 1
            assert np.unique(envs.step(np.zeros(3, np.int64))[0]).tolist() == [then]

    # -- apart -------------------------------------------------------------------------------------------------------

    def test_lanes_can_be_sent_to_apart(self) -> None:
        lengths = (2, 3, 50, 50)
        with self.make([_counter(length) for length in lengths]) as envs:
            envs.send_reset()
            assert envs.recv().obs.tolist() == [[0], [0], [0], [0]]
            if not self.apart:
                with pytest.raises(ConfigError, match="step together"):
                    envs.send(np.zeros(2, np.int64), [2, 0])
                envs.send(np.zeros(4, np.int64))
                assert envs.recv().obs.tolist() == [[1], [1], [1], [1]], "nothing has moved before"
                return
            envs.send(np.zeros(2, np.int64), [2, 0])
            arrival = envs.recv()
            assert arrival.env_id.tolist() == [0, 2]
            assert arrival.obs.tolist() == [[1], [1]]
            assert arrival.reward.tolist() == [1, 1]
            # Several sends are received together, the oldest first, the lanes of each in order.
            envs.send(np.zeros(1, np.int64), [3])
            envs.send(np.zeros(2, np.int64), [2, 0])
            envs.send_reset([1])
            arrival = envs.recv()
            assert arrival.env_id.tolist() == [3, 0, 2, 1]
            assert arrival.obs.tolist() == [[1], [0], [2], [0]]
            assert arrival.terminated[:3].tolist() == [False, True, False]
            assert arrival.ended == [0]
            assert arrival.final_obs.tolist() == [[2]]

    def test_a_held_lane_stays_at_its_end(self) -> None:
        with self.make([_counter(1), _counter(1), _counter(9)]) as envs:
            envs.reset()
            if not self.apart:
                envs.send(np.zeros(3, np.int64), hold=True)
                arrival = envs.recv()
                last = [float(self.keeps_ends)]
                assert (arrival.obs.tolist(), arrival.ended) == ([last, last, [1]], [0, 1])
                assert arrival.final_obs.tolist() == [last, last]
                envs.send_reset([1])
                assert envs.recv().obs.tolist() == [[0]]
                return
            envs.send(np.zeros(2, np.int64), [1, 2], hold=True)
            envs.send(np.zeros(1, np.int64), [0])
            arrival = envs.recv()
            assert arrival.env_id.tolist() == [1, 2, 0]
            assert arrival.obs.tolist() == [[1], [1], [0]]
            assert arrival.ended == [1, 0]
            assert arrival.final_obs.tolist() == [[1], [1]]
            envs.send_reset([1])
            assert envs.recv().obs.tolist() == [[0]]

    def test_actions_reach_the_lanes_they_are_for(self) -> None:
        with self.make(make_case("scalar"), 4) as envs:
            envs.reset(seed=0)
            rng = np.random.default_rng(0)
            reference = [make_case("scalar")() for _ in range(4)]
            for lane, env in enumerate(reference):
                env.reset(seed=lane)
            over = np.zeros(4, np.bool_)
            for _ in range(20):
                lanes = rng.permutation(4)[: rng.integers(1, 5) if self.apart else 4]
                actions = rng.uniform(-1, 1, (len(lanes), 10, 10))
                envs.send(actions, lanes)
                arrival = envs.recv()
                for lane, action in zip(lanes, actions, strict=True):
                    at = int(np.searchsorted(arrival.env_id, lane))
                    expected: tuple[float, bool, bool] = (0.0, False, False)
                    if not over[lane]:
                        _, *expected, _ = reference[lane].step(action)
                    assert (arrival.reward[at], arrival.terminated[at], arrival.truncated[at]) == tuple(expected)
                    over[lane] = expected[1] or expected[2]
                    if over[lane]:
                        reference[lane].reset()
                # Only sources that reset in the step after an end have steps that do nothing else.
                over &= envs.driver.autoreset_mode == AutoresetMode.NEXT_STEP

    def test_seeds_and_options_of_single_lanes(self) -> None:
        with self.make(make_case("floats"), 4) as envs:
            envs.reset(seed=0)
            if self.apart:
                envs.send_reset([3, 1], seeds=[11, None], options=[{"level": 3}, None])
            else:
                with pytest.raises(ConfigError, match="same options"):
                    envs.send_reset([3, 1], seeds=[11, None], options=[{"level": 3}, None])
                envs.send_reset([3, 1], seeds=[11, None])
            found = envs.recv().obs
            expected = make_case("floats")().reset(seed=11)[0]
            assert same(found[1], expected)

    def test_a_reset_drops_what_is_under_way(self) -> None:
        with self.make(lambda: Counter(9), 3) as envs:
            envs.reset()
            some = [0, 2] if self.apart else [0, 1, 2]
            envs.send(np.zeros(len(some), np.int64), some)
            assert envs.reset()[0].tolist() == [[0], [0], [0]]
            assert envs.step(np.zeros(3, np.int64))[0].tolist() == [[1], [1], [1]]


def _counter(length: int) -> Callable[[], Counter]:
    return lambda: Counter(length)
