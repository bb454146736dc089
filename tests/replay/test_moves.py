"""The passes over lanes when steps come and go, against plain Python."""

import numpy as np
import pytest

from outrider import ReplayBuffer, StepSpec
from outrider.replay import moves
from outrider.spec import LeafSpec

SEEDS = range(8)
LANE_BITS = 32


class Lanes:
    """Lanes somewhere in a ring of random records, and a choice of some of them in any order."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.count = int(rng.integers(1, 6))
        spec = StepSpec(obs=LeafSpec((), "i8"), action=LeafSpec((), "i8"), num_envs=self.count)
        ring = ReplayBuffer(int(rng.integers(3, 9)) * self.count + seed % self.count, spec)._ring
        self.records, self.rows, self.shares = ring.records, ring.rows, ring._shares.copy()
        for name in ("episode_id", "step", "version", "run"):
            self.records[name] = rng.integers(0, 1 << 40, self.rows)
        for name in ("terminated", "truncated", "cut"):
            self.records[name] = rng.random(self.rows) < 0.2
        self.records["final"] = rng.integers(-2, 2, self.rows)
        self.heads = rng.integers(0, 40, self.count)
        self.tails = np.maximum(self.heads - rng.integers(0, self.shares + 1), 0)
        self.open = (rng.random(self.count) < 0.6) & (self.heads > 0)
        self.lanes = rng.permutation(self.count)[: rng.integers(1, self.count + 1)]
        self.counts = rng.integers(1, self.shares[self.lanes] + 1)

    def row(self, lane, position):
        return (position * self.count + lane) % self.rows

    def newest(self, lane):
        return self.records[self.row(lane, self.heads[lane] - 1)].copy()

    @property
    def stand(self):
        return self.heads, self.open


@pytest.fixture(params=SEEDS)
def some(request):
    return Lanes(request.param)


def in_order_of_time(some, positions, counts):
    pairs = zip(some.lanes.tolist(), counts, strict=True)
    steps = [(offset, i, lane) for i, (lane, count) in enumerate(pairs) for offset in range(count)]
    return [some.row(lane, positions[lane] + offset) for offset, _, lane in sorted(steps)]


def test_where_all_lanes_stand(some):
    alike = len(set(some.heads.tolist())) == 1
    assert moves.together(some.heads, some.rows) == (some.row(0, some.heads[0]) if alike else -1)
    some.heads[:] = 7
    assert moves.together(some.heads, some.rows) == some.row(0, 7)


def test_rows_ahead(some):
    found = moves.rows_ahead(some.lanes, some.counts, some.heads, some.rows)
    assert found.tolist() == in_order_of_time(some, some.heads, some.counts.tolist())


@pytest.mark.parametrize("every", (True, False))
def test_steps_that_have_to_go(some, every):
    tails = some.tails.copy()
    room = some.shares - (some.heads - some.tails)
    amounts = [max(int(count - room[lane]), 0) for lane, count in zip(some.lanes, some.counts, strict=True)]
    expected = in_order_of_time(some, tails, amounts)
    found = moves.let_go(some.lanes, some.counts, (some.heads, some.tails, some.shares), some.records, every)
    expected = [row for row in expected if every or some.records["final"][row] != -1]
    assert ([] if found is None else found.tolist()) == expected
    tails[some.lanes] += amounts
    assert some.tails.tolist() == tails.tolist()


def test_ids_that_come_next(some):
    newest = [some.newest(lane) for lane in some.lanes]
    right = np.array([one["episode_id"] for one in newest]), np.array([one["step"] + 1 for one in newest])
    running = some.open[some.lanes]
    found = moves.resumed(some.lanes, some.stand, some.records, right)
    assert found is None if running.all() else found.tolist() == running.tolist()
    for number in (0, 1):
        wrong = [column.copy() for column in right]
        wrong[number][-1] += 1
        found = moves.resumed(some.lanes, some.stand, some.records, tuple(wrong))
        assert found.tolist() == [*running[:-1].tolist(), False]


def test_numbers_of_steps(some):
    before, ends = some.records.copy(), tuple(some.rng.random((2, len(some.lanes))) < 0.5)
    expected = before.copy()
    for i, lane in enumerate(some.lanes.tolist()):
        head, newest = some.heads[lane], some.newest(lane)
        ids = newest["episode_id"], newest["step"] + 1, newest["run"]
        if not some.open[lane]:
            ordinal = (newest["episode_id"] >> LANE_BITS) + 1 if head else 0
            ids = (ordinal << LANE_BITS) + lane, 0, head
        row = expected[some.row(lane, head)]
        row["episode_id"], row["step"], row["run"] = ids
        row["version"], row["terminated"], row["truncated"], row["cut"] = 5, ends[0][i], ends[1][i], False
    ended = moves.number(some.lanes, some.stand, some.records, ends, 5)
    assert ended == (ends[0] | ends[1]).sum()
    assert (some.records == expected).all()


def test_where_runs_begin(some):
    expected = some.records["run"].copy()
    for lane, count in zip(some.lanes.tolist(), some.counts.tolist(), strict=True):
        begin = some.newest(lane)["run"] if some.open[lane] else some.heads[lane]
        for position in range(some.heads[lane], some.heads[lane] + count):
            record = some.records[some.row(lane, position)]
            expected[some.row(lane, position)] = begin
            if record["terminated"] or record["truncated"] or record["cut"]:
                begin = position + 1
    moves.runs(some.lanes, some.counts, some.stand, some.records)
    assert some.records["run"].tolist() == expected.tolist()


@pytest.mark.parametrize("objectives", (None, 2))
def test_records_of_a_block(some, objectives):
    rng, length = some.rng, int(some.shares.min())
    some.heads[:], shape = some.heads[0], (length, some.count)
    names = "terminated", "truncated", "cut", "episode_id", "step", "version"
    columns = [*(rng.random((3, *shape)) < 0.2), *rng.integers(0, 1 << 40, (3, *shape))]
    reward = rng.random(shape if objectives is None else (*shape, objectives))
    dtype = [(name, some.records.dtype[name]) for name in some.records.dtype.names if name != "reward"]
    records = np.zeros(some.rows, np.dtype([("reward", "f8", reward.shape[2:]), *dtype], align=True))
    for name, _ in dtype:
        records[name] = some.records[name]
    expected = records.copy()
    for lane in range(some.count):
        begin = records["run"][some.row(lane, some.heads[lane] - 1)] if some.open[lane] else some.heads[lane]
        for t in range(length):
            row = expected[some.row(lane, some.heads[lane] + t)]
            row["reward"], row["run"] = reward[t, lane], begin
            for name, column in zip(names, columns, strict=True):
                row[name] = column[t, lane]
            if row["terminated"] or row["truncated"] or row["cut"]:
                begin = some.heads[lane] + t + 1
    moves.put_records(some.stand, records, reward, tuple(columns[:3]), tuple(columns[3:]))
    assert (records == expected).all()


def test_lanes_move_on(some):
    heads, running = some.heads.copy(), some.open.copy()
    heads[some.lanes] += some.counts
    for lane in some.lanes.tolist():
        newest = some.records[some.row(lane, heads[lane] - 1)]
        running[lane] = not (newest["terminated"] or newest["truncated"] or newest["cut"])
    moves.arrive(some.lanes, some.counts, some.stand, some.records)
    assert some.heads.tolist() == heads.tolist()
    assert some.open.tolist() == running.tolist()


def block(rng, faults):
    """A rollout of steps that follow from one another, and what was done to it: one of `faults`, or nothing."""
    length, count = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    flags = rng.random((3, length, count)) < 0.15
    ids = np.zeros((2, length, count), np.int64)
    for t in range(1, length):
        for n in range(count):
            ended = flags[:, t - 1, n].any()
            ids[:, t, n] = (ids[0, t - 1, n] + 1, 0) if ended else (ids[0, t - 1, n], ids[1, t - 1, n] + 1)
    valid, index = np.ones((length, count), bool), np.flatnonzero(flags.any(0))
    t, n = int(rng.integers(length)), int(rng.integers(count))
    ended, fault = flags[:, t, n].any(), rng.choice(faults)
    if fault == "no end":
        flags[:, t, n] = False
    elif fault == "another end":
        flags[rng.integers(3), t, n] = True
    elif fault == "another row":
        index[:] = index[::-1] if len(index) > 1 else index + 1
    elif fault == "dummy":
        valid[t, n] = False
    elif fault == "seam":
        ids[rng.integers(2), t:, n] += 7
    broken = {"no end": ended, "another end": not ended, "another row": len(index) > 0, "dummy": ended}
    apart = {"dummy": not ended, "seam": t > 0 and not flags[:, t - 1, n].any()}
    kind = moves.BROKEN if broken.get(fault) else moves.APART if apart.get(fault) else moves.WHOLE
    return (*flags, valid), tuple(ids), index, kind


@pytest.mark.parametrize("fault", ("none", "no end", "another end", "another row", "dummy", "seam"))
def test_kinds_of_blocks(fault):
    rng = np.random.default_rng(0)
    kinds = set()
    for _ in range(100):
        flags, ids, index, kind = block(rng, [fault])
        assert moves.kind_of_block(flags, ids, index) == kind
        kinds.add(kind)
    assert len(kinds) == (1 if fault == "none" else 2)


def test_arrays_of_other_layouts_are_copied():
    array = np.arange(6).reshape(2, 3)
    assert moves.plain(array) is array
    fixed = array.copy()
    fixed.flags.writeable = False
    for other in (array.T, array[:, ::2], fixed):
        assert moves.plain(other).flags.carray
        assert moves.plain(other).tolist() == other.tolist()
