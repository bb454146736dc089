"""The pass that numbers rows and sums rewards: equal to plain Python, for rewards that are numbers and for vectors."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outrider.collect.kernels import LANE_BITS, stamp

LANES, FIRST, STRIDE = 3, 2, 6


def plain(rows, dummy, reward, ends):
    """The same, row by row, in dicts: (id and step of each row, ended episodes, what runs on)."""
    ordinal, step, total = (dict.fromkeys(range(STRIDE), zero) for zero in (0, 0, 0.0))
    marks, ended = {}, []
    for row, is_dummy in zip(rows, dummy, strict=True):
        lane = row % STRIDE
        marks[row] = ((ordinal[lane] << LANE_BITS) + lane, -1 if is_dummy else step[lane])
        if is_dummy:
            continue
        step[lane] += 1
        total[lane] = total[lane] + reward[row]
        if any(end[row] for end in ends):
            ended.append((lane, total[lane], step[lane], not (ends[0][row] or ends[1][row])))
            ordinal[lane], step[lane], total[lane] = ordinal[lane] + 1, 0, 0.0
    return marks, ended, (ordinal, step, total)


@given(data=st.data(), shape=st.sampled_from(((), (1,), (2,), (5,))), times=st.integers(0, 12))
def test_is_the_plain_loop(data, shape, times):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = np.array([t * STRIDE + FIRST + n for t in range(times) for n in range(LANES)], np.int64)
    chosen = rng.random(len(rows)) < 0.9
    rows = rows[chosen]
    capacity = (times + 1) * STRIDE
    reward = rng.normal(size=(capacity, *shape))
    kept = reward.copy()
    ends = tuple(rng.random(capacity) < chance for chance in (0.2, 0.1, 0.1))
    dummy = rng.random(len(rows)) < data.draw(st.sampled_from((0.0, 0.2)))
    ends[0][rows[dummy]] = ends[1][rows[dummy]] = ends[2][rows[dummy]] = False
    columns = np.full(capacity, -7), np.full(capacity, -7)
    lanes, returns = (np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)), np.zeros((LANES, *shape))

    given_dummy = dummy if dummy.any() else dummy[:0]
    lane, total, length, cut = stamp(rows, given_dummy, (STRIDE, FIRST), reward, ends, columns, lanes, returns)

    marks, ended, running = plain(rows.tolist(), dummy.tolist(), reward, ends)
    assert {row: (columns[0][row], columns[1][row]) for row in rows.tolist()} == marks
    assert list(zip(lane.tolist(), length.tolist(), cut.tolist(), strict=True)) == [(n, c, x) for n, _, c, x in ended]
    assert (total.shape, total.dtype) == ((len(ended), *shape), np.float64)
    for found, (_, expected, _, _) in zip(total, ended, strict=True):
        np.testing.assert_array_equal(found, expected)
    for n in range(LANES):
        assert (lanes[0][n], lanes[1][n]) == (running[0][FIRST + n], running[1][FIRST + n])
        np.testing.assert_array_equal(returns[n], np.broadcast_to(running[2][FIRST + n], shape))
    np.testing.assert_array_equal(reward, kept)
