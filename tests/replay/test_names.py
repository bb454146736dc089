"""Which lane of a buffer the steps of each lane of their source go to."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from helpers.replay_model import Streams
from outrider import ConfigError, ReplayBuffer


def opened(lanes=3):
    streams = Streams(lanes, np.random.default_rng(0), ends=("run", "run", "terminated"))
    return streams, ReplayBuffer(30, streams.spec(), seed=0)


def rewards(replay):
    """What was rewarded in the lanes of each env_id, in order of time."""
    serials = replay._ring.serials()
    batch = replay._look.gather(serials, np.ones(len(serials)), np.random.default_rng())
    return {number: batch.reward[batch.env_id == number].tolist() for number in np.unique(batch.env_id).tolist()}


def renamed(rollout, names):
    return replace(rollout, env_id=np.array(names))


@pytest.mark.parametrize("names", ((0, 9, 1), (9, 0, 1), (7, 8, 9), (2, 1, 0), (1, 2, 3), (1 << 40, -5, 0)), ids=str)
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_any_lanes_of_a_source_have_lanes_of_their_own(names, order):
    streams, replay = opened()
    expected = {name: [] for name in names}
    # At first they come one by one, then together, in any order.
    for chosen in (*[[lane] for lane in order], list(order), [0, 1, 2]):
        rollout = renamed(streams.rollout(2)[0], names)[:, chosen]
        for number, env_id in enumerate(rollout.env_id.tolist()):
            expected[env_id] += rollout.reward[:, number].tolist()
        assert replay.extend(rollout) == 2 * len(chosen)
        replay.check()
    assert rewards(replay) == expected
    own = [name for name in names if 0 <= name < 3]
    if set(own) == set(names):
        assert all(name == lane for name, lane in replay._names.pairs)


def test_a_lane_too_many_is_refused_by_name_before_anything_is_written():
    streams, replay = opened()
    rollout = renamed(streams.rollout(2)[0], [0, 9, 4])
    replay.extend(rollout[:, [0, 1]])
    before = rewards(replay)
    wrong = renamed(rollout, [0, 4, 5])
    steps = wrong.flatten()
    for record in (wrong, steps, wrong.segments(), steps[steps.env_id > 0]):
        with pytest.raises(ConfigError, match=r"at most 3 different env_id.*found 4: 0, 9, 4, 5"):
            replay.extend(record)
        replay.check()
        assert rewards(replay) == before
    # None of those that were refused has taken a lane.
    replay.extend(renamed(rollout, [0, 9, 7]))
    assert rewards(replay).keys() == {0, 7, 9}


def test_a_record_that_is_refused_for_its_rows_takes_no_lane():
    streams, replay = opened()
    rollout = streams.rollout(2)[0]
    with pytest.raises(ValueError, match="action"):
        replay.extend(replace(renamed(rollout, [5, 6, 7]), action=rollout.action * 0.5))
    assert replay.extend(rollout) == 6
    assert rewards(replay).keys() == {0, 1, 2}


def columns(count):
    obs, flags = np.zeros((count, 2), np.float32), np.zeros(count, bool)
    rest = {"obs": obs, "next_obs": obs, "terminated": flags, "truncated": flags}
    return rest | {"action": np.zeros(count, int), "reward": np.arange(count) + 0.5}


def test_loops_and_records_share_the_lanes():
    streams, replay = opened()
    replay.add(**columns(2), env_id=[0, 9])
    rollout = streams.rollout(2)[0]
    replay.extend(renamed(rollout, [9, 0, 1])[:, :2])
    assert rewards(replay) == {0: [0.5, *rollout.reward[:, 1]], 9: [1.5, *rollout.reward[:, 0]]}
    # A row for every lane, in order: those that nobody has named have their own numbers.
    assert replay.add(**columns(3)) == 3
    assert rewards(replay).keys() == {0, 9, 2}
    with pytest.raises(ConfigError, match=r"add\(env_id=\.\.\.\): expected at most 3 different env_id"):
        replay.add(**columns(1), env_id=[1])
    replay.check()


def test_names_are_saved(tmp_path):
    streams, replay = opened()
    rollout = renamed(streams.rollout(2)[0], [4, 0, 9])
    replay.extend(rollout[:, [0, 2]])
    replay.save(tmp_path / "file")
    again = ReplayBuffer.load(tmp_path / "file")
    assert rewards(again) == rewards(replay)
    later = renamed(streams.rollout(2)[0], [4, 0, 9])
    for buffer in (replay, again):
        buffer.extend(later)
        buffer.check()
    assert rewards(again) == rewards(replay)
    assert rewards(replay).keys() == {0, 4, 9}
