"""The plain reference of the records: a list of rows, each a small Python object, and the rollout made of them.

Every observation is known by one number, from which `tree_of` makes it in a shape and nesting of choice. So what a row
should hold is one comparison, whatever the record did with it.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from outrider import tree
from outrider.records import Rollout
from outrider.values import objects

NESTINGS = ("array", "scalar", "dict", "nested")
ENDS = ("run", "run", "run", "terminated", "truncated", "both", "cut")


@dataclass(frozen=True)
class Row:
    """One step of one lane. `obs` and `next_obs` are the numbers of the true observations."""

    t: int
    lane: int
    obs: int
    next_obs: int
    end: str
    valid: bool
    episode_id: int
    step: int

    @property
    def ended(self):
        return self.end != "run"

    @property
    def terminated(self):
        return self.end in ("terminated", "both")

    @property
    def truncated(self):
        return self.end in ("truncated", "both")

    @property
    def action(self):
        return self.obs * 7 % 1009

    @property
    def reward(self):
        return self.obs + 0.1


@dataclass(frozen=True)
class Plan:
    """Rows in order of time and lane, the number of the newest observation of each lane, and how to show numbers."""

    rows: list[Row]
    newest: list[int]
    length: int
    lanes: int
    nesting: str
    recurrent: bool

    def at(self, t, lane):
        return self.rows[t * self.lanes + lane]


def tree_of(numbers, nesting):
    """The batch of observations known by `numbers`, as `nesting` says, or makes them."""
    if callable(nesting):
        return nesting(np.asarray(numbers, np.int64))
    number = np.asarray(numbers, np.int64)
    pair = np.stack([number, -number], -1).astype(np.float32)
    frame = (number[..., None, None] % 251 + np.arange(2)).astype(np.uint8)
    return {
        "array": pair,
        "scalar": number,
        "dict": {"b": pair, "a": number},
        "nested": {"x": (frame, {"y": pair})},
        "goals": {"observation": frame, "achieved_goal": pair, "desired_goal": pair + np.float32(0.5)},
        "texts": {"mission": texts_of(number), "a": number},
    }[nesting]


def texts_of(number):
    return objects([f"go to {one}" for one in number.reshape(-1).tolist()], number.shape)


def state_of(numbers):
    """The batch of recurrent states of the observations known by `numbers`: after their step, if it was the last."""
    return {"h": np.stack([np.asarray(numbers, np.float64)] * 3, -1) / 2}


def lane_rows(ends, lane, dummies, start):
    """The rows of one lane, and the number of the observation after the last."""
    rows, episode, step, dummy = [], 0, start, False
    for t, end in enumerate(ends):
        number = lane * 100_000 + episode * 100 + step
        episode_id = episode * 16 + lane
        if dummy:
            rows.append(Row(t, lane, number, number, "run", valid=False, episode_id=episode_id, step=0))
            episode, step, dummy = episode + 1, 0, False
            continue
        rows.append(Row(t, lane, number, number + 1, end, valid=True, episode_id=episode_id, step=step))
        if end == "run":
            step += 1
        elif dummies:
            step, dummy = step + 1, True
        else:
            episode, step = episode + 1, 0
    return rows, lane * 100_000 + episode * 100 + step


@st.composite
def plans(draw, dummies=None, max_length=8):
    """Random ends and cuts, in random sizes and nestings; with `dummies`, sources that reset on the following step."""
    length, lanes = draw(st.integers(1, max_length)), draw(st.integers(1, 4))
    ends = draw(st.lists(st.sampled_from(ENDS), min_size=length * lanes, max_size=length * lanes))
    with_dummies = draw(st.booleans()) if dummies is None else dummies
    starts = draw(st.lists(st.sampled_from((0, 0, 3)), min_size=lanes, max_size=lanes))
    by_lane = [lane_rows(ends[lane::lanes], lane, with_dummies, starts[lane]) for lane in range(lanes)]
    rows = [by_lane[lane][0][t] for t in range(length) for lane in range(lanes)]
    newest = [number for _, number in by_lane]
    return Plan(rows, newest, length, lanes, draw(st.sampled_from(NESTINGS)), draw(st.booleans()))


def rollout_of(plan):
    """The rollout that a collector would make of the rows."""
    block = (plan.length, plan.lanes)

    def column(name, dtype):
        return np.array([getattr(row, name) for row in plan.rows], dtype).reshape(block)

    obs = np.array([row.obs for row in plan.rows] + plan.newest).reshape(plan.length + 1, plan.lanes)
    final = [i for i, row in enumerate(plan.rows) if row.ended]
    last = [plan.rows[i].next_obs for i in final]
    return Rollout(
        obs=tree_of(obs, plan.nesting),
        action=column("action", np.int64),
        reward=column("reward", np.float64),
        terminated=column("terminated", bool),
        truncated=column("truncated", bool),
        cut=np.array([row.end == "cut" for row in plan.rows]).reshape(block),
        valid=column("valid", bool),
        episode_id=column("episode_id", np.int64),
        step=column("step", np.int64),
        version=column("t", np.int64),
        env_id=np.arange(plan.lanes) + 10,
        final_index=np.array(final, np.int64),
        final_obs=tree_of(np.array(last, np.int64), plan.nesting),
        extras={"logits": {"a": np.stack([column("obs", np.float32)] * 2, -1)}},
        state=state_of(obs) if plan.recurrent else None,
        final_state=state_of(np.array(last, np.int64)) if plan.recurrent else None,
        info={"x": column("obs", np.float64), "_x": column("valid", bool)},
        obs_info={"seen": obs.copy()},
    )


def assert_equal(found, expected):
    """Trees of equal structure, shapes, dtypes and values (of NumPy arrays, or tensors and arrays)."""

    def compare(a, b):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b, strict=True)

    tree.map(compare, found, expected)


def assert_rows(record, rows, plan):
    """A flat record (Steps, Episode) holds exactly `rows`, in that order."""
    numbers = [row.obs for row in rows]
    assert len(record) == len(rows)
    assert_equal(record.action, np.array([row.action for row in rows], np.int64))
    assert_equal(record.reward, np.array([row.reward for row in rows], np.float64))
    assert_equal(record.terminated, np.array([row.terminated for row in rows], bool))
    assert_equal(record.truncated, np.array([row.truncated for row in rows], bool))
    assert_equal(record.cut, np.array([row.end == "cut" for row in rows], bool))
    assert_equal(record.step, np.array([row.step for row in rows], np.int64))
    assert_equal(record.version, np.array([row.t for row in rows], np.int64))
    assert_equal(record.next_obs, tree_of(np.array([row.next_obs for row in rows], np.int64), plan.nesting))
    assert_equal(record.extras, {"logits": {"a": np.array([[n, n] for n in numbers], np.float32).reshape(-1, 2)}})
    assert_equal(record.info, {"x": np.array(numbers, np.float64), "_x": np.ones(len(rows), bool)})
    assert_equal(record.obs_info, {"seen": np.array(numbers, np.int64)})


def assert_steps(steps, rows, plan):
    """Steps hold exactly `rows`, and their columns that an episode keeps once or in another form."""
    steps.check()
    assert_rows(steps, rows, plan)
    assert_equal(steps.obs, tree_of(np.array([row.obs for row in rows], np.int64), plan.nesting))
    assert_equal(steps.env_id, np.array([row.lane + 10 for row in rows], np.int64))
    assert_equal(steps.episode_id, np.array([row.episode_id for row in rows], np.int64))
    assert_equal(steps.valid, np.ones(len(rows), bool))
    if plan.recurrent:
        assert_equal(steps.state, state_of(np.array([row.obs for row in rows], np.int64)))
        assert_equal(steps.next_state, state_of(np.array([row.next_obs for row in rows], np.int64)))
    else:
        assert steps.state is None
        assert steps.next_state is None


def assert_episodes(episodes, runs, plan):
    """Episodes hold exactly the lists of rows `runs`, in that order."""
    episodes.check()
    assert len(episodes) == len(runs)
    for episode, rows in zip(episodes, runs, strict=True):
        numbers = np.array([row.obs for row in rows] + [rows[-1].next_obs])
        assert_rows(episode, rows, plan)
        assert_equal(episode.obs, tree_of(numbers, plan.nesting))
        assert (episode.episode_id, episode.env_id) == (rows[0].episode_id, rows[0].lane + 10)
        assert_equal(episode.state, state_of(numbers) if plan.recurrent else None)


def runs_of(rows):
    """Valid rows as lists, one for each episode, in order of their first row."""
    runs = {}
    for row in rows:
        if row.valid:
            runs.setdefault((row.lane, row.episode_id), []).append(row)
    return list(runs.values())


def runs_by_lane(rows):
    """As `runs_of`, lane by lane in the order of `rows`."""
    lanes = dict.fromkeys(row.lane for row in rows)
    return [run for lane in lanes for run in runs_of([row for row in rows if row.lane == lane])]


def part_of(plan, times, lanes):
    """The plan of some times (a range) and lanes (a list), as a rollout indexed that way should be."""
    rows = [plan.at(t, lane) for t in times for lane in lanes]
    return rows, [plan.at(times.stop, lane).obs if times.stop < plan.length else plan.newest[lane] for lane in lanes]
