"""Stacks of frames that are stored once."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation

import outrider
from helpers.plain_rows import assert_equal
from helpers.replay_model import Streams
from helpers.stacks import Stacks
from outrider import ConfigError, ReplayBuffer, Sequences, SpecError, Transitions, WholeEpisodes
from outrider.errors import ReplayError
from outrider.replay.frames import PLAIN, Frames
from outrider.spec import LeafSpec

FRAME = LeafSpec((4, 5, 6), np.dtype("u1"))


class Film(gymnasium.Env):
    """No two frames are the same; episodes end in all ways."""

    def __init__(self, number):
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, 4, 2), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.frame, self.length = number * 1_000_000, 5 + number

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 2 * self.length))
        return self.show(), {}

    def step(self, action):
        self.left -= 1
        return self.show(), 1.0, self.left == 0 and bool(action), self.left == 0 and not action, {}

    def show(self):
        self.frame += 1
        return np.frombuffer(np.array([self.frame, -self.frame, 7], np.int64).tobytes(), np.uint8).reshape(3, 4, 2)


def columns_of(batch):
    """All columns of a batch, those of a record in it as well."""
    batch = getattr(batch, "episodes", batch)
    return {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)}


@pytest.mark.parametrize("padding", ("reset", "zero"))
@pytest.mark.parametrize("view", (Transitions(n_step=3), Sequences(5, burn_in=1, pad=True), WholeEpisodes()), ids=repr)
@pytest.mark.parametrize("stack", (2, 4))
def test_stacks_are_those_that_the_wrapper_made(padding, view, stack):
    envs = [lambda n=n: FrameStackObservation(Film(n), stack, padding_type=padding) for n in range(3)]
    with outrider.make_vec(envs, backend=outrider.Inline()) as venv:
        policy = outrider.RandomPolicy(venv.single_action_space)
        collector = outrider.Collector(venv, policy, seed=1)
        whole, frames = (
            collector.new_replay(60, view=dataclasses.replace(view, frame_stack=k), seed=2) for k in (1, stack)
        )
        for record in (collector.rollout(7), collector.steps(50), collector.episodes(4), *collector.rollouts(25, 3)):
            for replay in (whole, frames):
                replay.extend(record)
                replay.check()
            expected, found = (columns_of(replay._look.gather(*everything(replay))) for replay in (whole, frames))
            assert_equal(found, expected)
    assert frames.nbytes < whole.nbytes


def everything(replay):
    """What `gather` needs for all steps that a sample may begin with."""
    serials = replay._ring.serials()
    if replay._look.accepts is not None:
        serials = serials[replay._look.accepts(serials)]
    return serials, np.ones(len(serials)), np.random.default_rng(0)


def stacked(count=4, lanes=2):
    """Streams with stacks, and a buffer for them."""
    rng = np.random.default_rng(0)
    streams = Streams(lanes, rng, Stacks(count, rng))
    return streams, ReplayBuffer(40, streams.spec(), view=Transitions(frame_stack=count), seed=0)


def spoilt(record, name, place):
    """A record with one byte changed in the older frames of one observation."""
    obs = getattr(record, name)
    eye = obs["eyes"][0].copy()
    eye[place][1, 0, 0] ^= 1
    return dataclasses.replace(record, **{name: obs | {"eyes": (eye, obs["eyes"][1])}})


def test_a_stack_that_is_not_shifted_is_refused_by_lane_and_step():
    streams, replay = stacked()
    streams.ends = ("run",)
    first, second = (streams.rollout(5)[0] for _ in range(2))
    for wrong, message in (
        (spoilt(first, "obs", (3, 1)), "behind step 2 of lane 1"),
        (spoilt(first, "obs", (5, 0)), "behind step 4 of lane 0"),
    ):
        with pytest.raises(SpecError, match=message):
            replay.extend(wrong)
        with pytest.raises(SpecError, match=message):
            replay.extend(wrong.flatten())
        with pytest.raises(SpecError, match=message):
            replay.extend(wrong.segments())
        assert len(replay) == 0
    replay.extend(first)
    # The first observation has to go on from what is there.
    for record in (spoilt(second, "obs", (0, 1)), spoilt(second, "obs", (0, 1)).flatten()):
        with pytest.raises(SpecError, match=r"behind step (4|5) of lane 1"):
            replay.extend(record)
    replay.check()
    assert replay.extend(second) == 10
    streams.ends = ("truncated",)
    with pytest.raises(SpecError, match="behind step 10 of lane 0"):
        replay.extend(spoilt(streams.rollout(1)[0], "final_obs", 0))


def test_a_stack_of_a_loop_that_is_not_shifted_is_refused():
    streams, replay = stacked(lanes=1)
    streams.ends = ("run",)
    now = streams.now[0][2]
    steps = [streams.step(0) for _ in range(3)]
    flags = np.zeros(1, bool)
    for one in steps:
        obs, behind = (streams.nesting(np.array([number])) for number in (one.obs, one.next_obs))
        wrong = behind["eyes"][0].copy()
        wrong[0, 0] += 1
        rest = {"action": np.zeros(1, int), "reward": np.ones(1), "terminated": flags, "truncated": flags}
        with pytest.raises(SpecError, match=rf"behind step {one.step} of lane 0"):
            replay.add(obs=obs, next_obs=behind | {"eyes": (wrong, behind["eyes"][1])}, **rest)
        replay.add(obs=obs, next_obs=behind, **rest)
        replay.check()
    assert now == steps[0].obs
    assert len(replay) == 3
    assert not replay._ring.columns["cut"].any()


def test_what_is_no_stack_is_stored_as_it_is():
    goal = LeafSpec((3, 5, 6), np.dtype("u1"))
    frames = Frames({"eye": FRAME, "goal": goal, "arm": LeafSpec((4, 2), np.dtype("f4"))}, 4)
    assert frames.numbers == {"eye": 0, "goal": PLAIN, "arm": PLAIN}
    assert [frames.stored[name].shape for name in ("eye", "goal", "arm")] == [(5, 6), (3, 5, 6), (4, 2)]


@pytest.mark.parametrize("view", (Transitions(frame_stack=3), Sequences(2, frame_stack=3), WholeEpisodes(3)), ids=repr)
def test_observations_without_stacks_are_refused(view):
    streams, _ = stacked(4)
    with pytest.raises(ConfigError, match=r"frame_stack=3: .*first is 3, found eyes/0 \(4, 2, 4\)"):
        ReplayBuffer(10, streams.spec(), view=view)


@pytest.mark.parametrize("view", (Transitions, lambda **stack: Sequences(2, **stack), WholeEpisodes))
def test_numbers_of_frames_that_cannot_be(view):
    for wrong in (0, 2.0, True):
        with pytest.raises(ConfigError, match=r"\(frame_stack\)"):
            view(frame_stack=wrong)


def test_a_view_of_other_stacks_is_refused():
    _, replay = stacked(4)
    with pytest.raises(ConfigError, match="stacks of 4 frames"):
        Transitions(frame_stack=2).start(replay._ring)
    Transitions().start(replay._ring)


def test_stacks_are_saved(tmp_path):
    streams, replay = stacked(3)
    for _ in range(6):
        replay.extend(streams.rollout(6)[0])
    replay.save(tmp_path / "file")
    again = ReplayBuffer.load(tmp_path / "file")
    again.check()
    assert again.view == replay.view
    assert_equal(columns_of(again.sample(50)), columns_of(replay.sample(50)))
    again.extend(streams.rollout(9)[0])
    again.check()
    with pytest.raises(ReplayError, match="rows of shape"):
        ReplayBuffer.load(tmp_path / "file", view=Transitions())


def test_memory_is_that_of_the_frames():
    program = Path(__file__).parents[1] / "helpers" / "frame_memory.py"
    # What is let go of goes back at once, so that it does not count.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    found = json.loads(subprocess.run([sys.executable, program], env=env, check=True, capture_output=True).stdout)
    assert found["rows"] == 10_000
    assert found["full"] < 1.05 * 10_000 * 84 * 84
    assert found["grown"] < 1_000_000
