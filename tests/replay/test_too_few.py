"""What a buffer says that holds too little: what its view would need, and what may be the cause."""

import numpy as np
import pytest

from helpers.replay_model import Streams
from outrider import (
    Hindsight,
    LeafSpec,
    Newest,
    Prioritized,
    ReplayBuffer,
    ReplayError,
    Sequences,
    Stale,
    StepSpec,
    Transitions,
    Uniform,
    WholeEpisodes,
    WithoutReplacement,
)

SPEC = StepSpec(obs=LeafSpec((1,), "f4"), action=LeafSpec((), "i8"), num_envs=2)
GOALS = StepSpec(
    obs={"achieved_goal": LeafSpec((1,), "f4"), "desired_goal": LeafSpec((1,), "f4")},
    action=LeafSpec((), "i8"),
    num_envs=2,
)
HINDSIGHT = Hindsight(reward=lambda *_: 0.0, terminated=lambda *_: False)
SAMPLERS = (Uniform(), Prioritized(), WithoutReplacement(), Newest(), Stale(1))


def refusal(replay, count=2):
    with pytest.raises(ReplayError, match=r"^sample\(count\): expected ") as caught:
        replay.sample(count)
    return str(caught.value)


def walked(replay, steps, *, normalised=False, length=None):
    """Adds steps of lanes that count, whose observations may be changed on their way."""
    for time in range(steps):
        behind = np.full((2, 1), time + 1, np.float32)
        ended = np.full(2, length is not None and (time + 1) % length == 0)
        replay.add(
            obs=behind - 1.5 if normalised else behind - 1,
            action=[0, 0],
            reward=[0.0, 0.0],
            next_obs=behind,
            terminated=ended,
            truncated=np.zeros(2, bool),
        )
    return replay


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize(
    "view", (Transitions(), Sequences(3), WholeEpisodes(), HINDSIGHT), ids=lambda v: type(v).__name__
)
def test_an_empty_buffer_is_empty_and_nothing_else(view, sampler):
    spec = GOALS if view is HINDSIGHT else SPEC
    text = refusal(ReplayBuffer(20, spec, view=view, sampler=sampler, seed=0))
    assert "found 0. To fix it: the buffer is empty: add steps first" in text
    assert not any(word in text for word in ("sequence", "hindsight", "episode"))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_sequences_say_how_long_the_longest_run_is(sampler):
    replay = walked(ReplayBuffer(400, SPEC, view=Sequences(20), sampler=sampler, seed=0), 50, length=7)
    text = refusal(replay)
    assert "no episode here has 20 steps: the longest run of steps that follow from each other is 7." in text
    assert "pad=True or a smaller length" in text
    assert "normalised" not in text


def test_sequences_that_may_be_short_ask_for_less_burn_in():
    replay = walked(ReplayBuffer(400, SPEC, view=Sequences(20, burn_in=9, pad=True), seed=0), 50, length=7)
    assert "no episode here has 10 steps" in refusal(replay)
    assert "pass a smaller burn_in" in refusal(replay)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_observations_that_do_not_continue_are_named_as_the_possible_cause(sampler):
    replay = walked(ReplayBuffer(400, SPEC, view=Sequences(3), sampler=sampler, seed=0), 50, normalised=True)
    text = refusal(replay)
    assert "is 1." in text
    assert "normalised" in text


def test_sequences_of_which_there_are_some_but_not_enough_ask_for_more():
    sampler = WithoutReplacement()
    replay = walked(ReplayBuffer(400, SPEC, view=Sequences(5, stride=5), sampler=sampler, seed=0), 7)
    assert "found 2. To fix it: collect more, or ask for fewer" in refusal(replay, 3)
    assert "multiple of 5" in refusal(replay, 3)


def test_episodes_that_have_not_ended_are_waited_for():
    replay = walked(ReplayBuffer(40, SPEC, view=WholeEpisodes(), seed=0), 4)
    assert "until more episodes have ended" in refusal(replay)
    assert "more than 20 steps" in refusal(replay)


def test_hindsight_says_that_episodes_have_to_end():
    streams = Streams(2, np.random.default_rng(0), "goals", ends=("run",))
    replay = ReplayBuffer(20, streams.spec(), view=HINDSIGHT, seed=0)
    replay.extend(streams.rollout(4)[0])
    assert "until more episodes have ended" in refusal(replay)
