"""Columns are known by their keys; in which order these come makes no difference."""

import dataclasses

import numpy as np
import pytest

from helpers.plain_rows import assert_equal
from helpers.replay_model import Streams
from helpers.stacks import Stacks
from outrider import ReplayBuffer, Transitions, tree


def turned(columns):
    """The same tree with all keys in the opposite order."""
    if isinstance(columns, dict):
        return {key: turned(columns[key]) for key in reversed(columns)}
    return tuple(turned(one) for one in columns) if isinstance(columns, tuple) else columns


def everything(replay):
    serials = replay._ring.serials()
    return replay._look.gather(serials, np.ones(len(serials)), np.random.default_rng())


@pytest.mark.parametrize("nesting", ("dict", "stacks"))
@pytest.mark.parametrize("kind", ("rollout", "steps", "episodes"))
def test_records_may_have_another_order(nesting, kind):
    rng = np.random.default_rng(0)
    streams = Streams(2, rng, Stacks(3, rng) if nesting == "stacks" else nesting)
    view = Transitions(n_step=2, frame_stack=3 if nesting == "stacks" else 1)
    replays = [ReplayBuffer(30, streams.spec(), view=view) for _ in range(2)]
    for _ in range(8):
        rollout = streams.rollout(5)[0]
        other = dataclasses.replace(rollout, obs=turned(rollout.obs), final_obs=turned(rollout.final_obs))
        for replay, record in zip(replays, (rollout, other), strict=True):
            replay.extend({"rollout": record, "steps": record.flatten(), "episodes": record.segments()}[kind])
            replay.check()
    first, second = map(everything, replays)
    assert_equal(second.obs, first.obs)
    assert_equal(second.next_obs, first.next_obs)
    assert second.reward.tolist() == first.reward.tolist()
    assert [replay._ring.columns["cut"].sum() for replay in replays] == [replays[0]._ring.columns["cut"].sum()] * 2


def test_steps_of_a_loop_may_have_another_order():
    streams = Streams(1, np.random.default_rng(0), "dict", ends=("run",))
    replay = ReplayBuffer(30, streams.spec())
    rollout = streams.rollout(6)[0]
    flags = np.zeros(1, bool)
    for t in range(6):
        obs, behind = (tree.take(rollout.obs, at) for at in (t, t + 1))
        replay.add(
            obs=turned(obs) if t % 2 else obs,
            action=rollout.action[t],
            reward=rollout.reward[t],
            next_obs=behind if t % 2 else turned(behind),
            terminated=flags,
            truncated=flags,
        )
    replay.check()
    assert not replay._ring.columns["cut"].any()
    assert_equal(everything(replay).obs, tree.take(rollout.obs, (slice(0, 6), 0)))
