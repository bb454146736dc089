"""The passes along lanes, against lists of steps."""

import numpy as np
import pytest

from helpers.plain_rows import assert_equal
from helpers.replay_model import Model, Streams
from outrider import ReplayBuffer, Steps
from outrider.replay import runs


@pytest.fixture(params=range(6))
def lanes(request):
    """A ring that has gone around, with holes in it and lanes that stand apart, and all serial numbers, with lists."""
    rng = np.random.default_rng(request.param)
    count, ends = 1 + request.param % 3, ("run",) * 3 * (1 + request.param) + ("terminated", "cut")
    streams, capacity = Streams(count, rng, ends=ends), 20 * count + 1
    replay, model = ReplayBuffer(capacity, streams.spec()), Model(capacity, count)
    for _ in range(4):
        for record, steps in (streams.rollout(9), streams.steps(rng.integers(0, count, 11).tolist())):
            kept = [one for one in steps if rng.random() < 0.95] if isinstance(record, Steps) else steps
            replay.extend(streams.record(kept))
            model.add(kept)
    places = model.serials()
    serials = np.array(sorted(places))
    pairs = [(model.before(*places[one]), model.window(*places[one])) for one in serials.tolist()]
    return replay._ring, serials, pairs


def ids_of(ring):
    return ring.columns["run"], ring.columns["step"]


def test_steps_ahead(lanes):
    ring, serials, pairs = lanes
    for most in (1, 2, 7, 100):
        found = runs.ahead(serials, ring.heads, ring.finals.at, most)
        assert found.tolist() == [min(len(window), most) for _, window in pairs]


def test_steps_along(lanes):
    ring, serials, pairs = lanes
    positions, lane = np.divmod(serials, ring.num_envs)
    later = runs.along(serials, ring.heads[lane] - 1 - positions, ring.columns["run"], ring.num_envs, 1)
    earlier = runs.along(serials, positions - ring.tails[lane], ring.columns["run"], ring.num_envs, -1)
    assert later.tolist() == [len(window) - 1 for _, window in pairs]
    assert earlier.tolist() == [len(before) for before, _ in pairs]
    assert max(later) > 2


def test_possible_first_steps(lanes):
    ring, serials, pairs = lanes
    for least in (1, 2, 5, 30):
        for stride in (1, 3):
            found = runs.possible(serials, ring.heads, ids_of(ring), least, stride)
            expected = [len(window) >= least and window[0].step % stride == 0 for _, window in pairs]
            assert found.tolist() == expected


def test_running_episodes(lanes):
    ring, serials, pairs = lanes
    found = runs.running(serials, ring.heads, ring.open, ring.columns["run"])
    assert found.tolist() == [window[-1].end == "run" for _, window in pairs]


def test_rows_of_sequences(lanes):
    ring, serials, pairs = lanes
    length = 5
    ends = ring.finals.at, *(ring.columns[name] for name in ("terminated", "truncated", "cut"))
    index, lengths, step, marks = runs.sequences(serials, ring.heads, ends, ring.columns["step"], length)
    assert lengths.tolist() == [min(len(window), length) for _, window in pairs]
    for i, (_, window) in enumerate(pairs):
        count = lengths[i]
        steps = serials[i] + np.arange(count + 1) * ring.num_envs
        slot = ring.finals.at[steps[count - 1] % ring.rows]
        expected = [*(steps[:count] % ring.rows), ~slot if slot >= 0 else steps[count] % ring.rows]
        assert index[: count + 1, i].tolist() == expected
        assert (index[count + 1 :, i] >= 0).all()
        assert step[:, i].tolist() == [one.step for one in window[:length]] + [0] * (length - count)
        cut = [one.end == "cut" for one in window[:length]] + [False] * (length - count)
        assert marks[4, :, i].tolist() == cut
    assert_equal(marks[0], np.arange(length)[:, None] < lengths)
