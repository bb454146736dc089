"""A suite that every backend of vector environments has to pass, wherever it runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import outrider
from outrider.errors import ClosedError, ConfigError, EnvironmentFailure, OutriderError, SpecError
from outrider.testing.envs import Broken, Counter, Failing, make_case, same
from outrider.vector.driver import Backend
from outrider.vector.env import VecEnv
from outrider.vector.plan import EnvFactory

__all__ = ["VecEnvConformance"]

BAD_OBSERVATIONS = {
    "a key is missing": ({"a": np.zeros(3, np.float32)}, "keys"),
    "a key too many": ({"a": np.zeros(3, np.float32), "b": 1, "c": 2}, "keys"),
    "another shape": ({"a": np.zeros(1, np.float32), "b": 1}, "'a'"),
    "another dtype": ({"a": np.zeros(3, np.float64), "b": 1}, "'a'"),
    "a list": ({"a": [0.0, 0.0, 0.0], "b": 1}, "'a'"),
    "a float for an integer": ({"a": np.zeros(3, np.float32), "b": 1.0}, "'b'"),
    "no dict": (np.zeros(3, np.float32), "keys"),
    "nothing": (None, "keys"),
}

REWARDS = {"integer": 2, "NumPy": np.float32(0.5), "one element": np.array([0.25]), "bool": True, "scalar": np.array(3)}


class VecEnvConformance:
    """Tests of a backend. Subclass it in a module that pytest collects, and say which backend it is.

    That data and interface are those of Gymnasium's own vector environments is what `GymnasiumConformance` is for.

    A backend is any object with a method `start(plan)` that returns an `outrider.vector.driver.Driver`.
    Each test makes environments with `make`, which closes them again; override it to make them in another way.

    Example:
        >>> class TestInline(VecEnvConformance):
        ...     def backend(self):
        ...         return outrider.Inline()
    """

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
            envs.step(np.zeros(3, np.int64))
            steps = envs.get_attr("count")
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
            assert caught.value.lane == 0
            # A refused question ends nothing.
            envs.step(np.zeros(3, np.int64))

    def test_a_limit_is_added_to_the_flags_of_the_environment(self) -> None:
        plan = outrider.Envs([lambda: Counter(5), lambda: Counter(4), lambda: Counter(9)], max_episode_steps=5)
        with self.make(plan) as envs:
            envs.reset()
            flags = np.array([envs.step(np.zeros(3, np.int64))[2:4] for _ in range(5)])
        assert flags[3].tolist() == [[False, True, False], [False, False, False]]
        assert flags[4].tolist() == [[True, False, False], [True, False, True]]

    @pytest.mark.parametrize("shape", ((2,), (200, 200)))
    def test_what_was_returned_never_changes(self, shape: tuple[int, ...]) -> None:
        with self.make(lambda: Counter(4, shape), 3) as envs:
            kept = [(envs.reset()[0], [0.0])]
            for count in (1, 2, 3, 0, 1, 2, 3, 0, 1):
                obs, *_, infos = envs.step(np.zeros(3, np.int64))
                kept.append((obs, [count]))
                if count == 0:
                    kept += [(final, [4]) for final in infos["final_obs"]]
            assert all(np.unique(obs).tolist() == count for obs, count in kept)
            # Writing to it changes nothing either.
            kept[-1][0][:] = 99
            assert np.unique(envs.step(np.zeros(3, np.int64))[0]).tolist() == [2]

    # -- apart -------------------------------------------------------------------------------------------------------

    def test_lanes_can_be_sent_to_apart(self) -> None:
        lengths = (2, 3, 50, 50)
        with self.make([_counter(length) for length in lengths]) as envs:
            envs.send_reset()
            assert envs.recv().obs.tolist() == [[0], [0], [0], [0]]
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
            for _ in range(20):
                lanes = rng.permutation(4)[: rng.integers(1, 5)]
                actions = rng.uniform(-1, 1, (len(lanes), 10, 10))
                envs.send(actions, lanes)
                arrival = envs.recv()
                for lane, action in zip(lanes, actions, strict=True):
                    at = int(np.searchsorted(arrival.env_id, lane))
                    _, reward, terminated, truncated, _ = reference[lane].step(action)
                    if terminated or truncated:
                        reference[lane].reset()
                    found = arrival.reward[at], arrival.terminated[at], arrival.truncated[at]
                    assert found == (reward, terminated, truncated)

    def test_seeds_and_options_of_single_lanes(self) -> None:
        with self.make(make_case("floats"), 4) as envs:
            envs.reset(seed=0)
            envs.send_reset([3, 1], seeds=[11, None], options=[{"level": 3}, None])
            found = envs.recv().obs
            expected = make_case("floats")().reset(seed=11)[0]
            assert same(found[1], expected)

    def test_a_reset_drops_what_is_under_way(self) -> None:
        with self.make(lambda: Counter(9), 3) as envs:
            envs.reset()
            envs.send(np.zeros(2, np.int64), [0, 2])
            assert envs.reset()[0].tolist() == [[0], [0], [0]]
            assert envs.step(np.zeros(3, np.int64))[0].tolist() == [[1], [1], [1]]

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
            envs.send(one, [1])
            for misuse in (
                lambda: envs.send(one, [1]),
                envs.send_reset,
                lambda: envs.step(np.zeros(3, np.int64)),
                lambda: envs.get_attr("count"),
            ):
                with pytest.raises(OutriderError, match="recv"):
                    misuse()
            assert envs.recv().obs.tolist() == [[1]]
            assert envs.step(np.zeros(3, np.int64))[0].tolist() == [[1], [2], [1]]

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
            envs.step(good)

    def test_integers_of_another_width_are_taken_as_they_are(self) -> None:
        with self.make(make_case("bits"), 2) as envs:
            envs.reset(seed=0)
            for dtype in (np.int64, np.uint8, np.bool_, np.int32):
                envs.step(np.ones((2, 5), dtype))
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
                lambda: envs.get_attr("count"),
                envs.render,
            ):
                with pytest.raises(ClosedError, match="closed"):
                    use()
            assert envs.worker_pids == []

    # -- what environments do wrong ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("what", tuple(BAD_OBSERVATIONS))
    def test_an_observation_that_does_not_fit_its_space(self, what: str) -> None:
        bad, named = BAD_OBSERVATIONS[what]
        good = {"a": np.zeros(3, np.float32), "b": np.int64(1)}
        with self.make([lambda: Broken(good), lambda: Broken(bad)]) as envs:
            envs.reset()
            envs.step(np.zeros(2, np.int64))
            with pytest.raises(EnvironmentFailure, match=named) as caught:
                envs.step(np.zeros(2, np.int64))
            assert (caught.value.lane, caught.value.operation) == (1, "step")
            assert "observation" in str(caught.value).splitlines()[0]

    @pytest.mark.parametrize("kind", tuple(REWARDS))
    def test_rewards_of_every_kind_become_floats(self, kind: str) -> None:
        reward = REWARDS[kind]
        with self.make(lambda: Counter(9, reward=reward), 2) as envs:
            envs.reset()
            found = envs.step(np.zeros(2, np.int64))[1]
            assert found.dtype == np.float64
            assert found.tolist() == [float(np.asarray(reward).sum())] * 2

    @pytest.mark.parametrize("reward", (None, "one", np.zeros(2)))
    def test_a_reward_that_is_no_number(self, reward: Any) -> None:
        with self.make([lambda: Counter(9), lambda: Counter(9, reward=reward)]) as envs:
            envs.reset()
            with pytest.raises(EnvironmentFailure, match="reward") as caught:
                envs.step(np.zeros(2, np.int64))
            assert caught.value.lane == 1

    @pytest.mark.parametrize("where", ("construct", "reset", "step"))
    def test_an_environment_that_raises(self, where: str) -> None:
        factories: list[EnvFactory] = [lambda: Counter(9), lambda: Failing(where)]
        with pytest.raises(EnvironmentFailure, match=f"told to fail in {where}") as caught:
            _live(self.make(factories))
        error = caught.value
        assert (error.lane, error.operation) == (1, where)
        assert f"process {error.pid}" in str(error)
        assert "in fail_in" in str(error), "the original traceback"

    def test_an_environment_that_raises_in_close(self) -> None:
        envs = outrider.make_vec([lambda: Failing("close"), lambda: Counter(9)], backend=self.backend())
        envs.reset()
        with pytest.raises(EnvironmentFailure, match="told to fail in close") as caught:
            envs.close()
        assert (caught.value.lane, caught.value.operation) == (0, "close")
        envs.close()

    def test_spaces_that_differ_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="lane 2"):
            _live(self.make([lambda: Counter(9), lambda: Counter(9), lambda: Counter(9, (2,))]))

    def test_the_same_environment_twice_is_refused(self) -> None:
        shared = Counter(9)
        with pytest.raises(OutriderError, match=r"another lane|each lane"):
            _live(self.make([lambda: shared] * len(self.share(shared)), None))

    def share(self, _: Any) -> range:
        """Lanes of which at least two are built in the same process."""
        return range(8)

    def test_infos_of_any_kind_do_no_harm(self) -> None:
        with self.make(Odd, 3) as envs:
            envs.reset()
            for _ in range(3):
                infos = envs.step(np.zeros(3, np.int64))[-1]
                assert infos["_big"].all()
                assert all(len(big) == 1_000_000 for big in infos["big"])
            envs.send(np.zeros(3, np.int64))
            assert not envs.recv().info, "infos that nobody asked for"


class Odd(Counter):
    """Has infos that are large, and that cannot be pickled."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, _ = super().step(action)
        info = {"big": b"x" * 1_000_000, "generator": (i for i in range(3)), "plain": 1, "list": [open]}
        return observation, reward, terminated, truncated, info


def _counter(length: int) -> Callable[[], Counter]:
    return lambda: Counter(length)


def _live(making: Any) -> None:
    """Make environments and use them until one fails."""
    with making as envs:
        for _ in range(3):
            envs.reset()
            envs.step(np.zeros(envs.num_envs, np.int64))
