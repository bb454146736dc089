"""The plain reference of a dataset: which episodes it holds after some appends, as lists of plain rows."""

import itertools
from dataclasses import replace

import numpy as np

from helpers.plain_rows import Plan, assert_episodes, lane_rows, part_of, rollout_of, runs_by_lane, runs_of

FORMS = ("rollout", "steps", "episodes")


def fixed_plan(ends_of_lanes, nesting="array"):
    """A plan with given ends: one string a lane, one letter a step (r: run on, t: terminated, u: truncated, c: cut)."""
    names = {"r": "run", "t": "terminated", "u": "truncated", "b": "both", "c": "cut"}
    lanes = [
        lane_rows([names[letter] for letter in ends], lane, dummies=False, start=0)
        for lane, ends in enumerate(ends_of_lanes)
    ]
    length = len(ends_of_lanes[0])
    rows = [lanes[lane][0][t] for t in range(length) for lane in range(len(lanes))]
    return Plan(rows, [newest for _, newest in lanes], length, len(lanes), nesting, recurrent=False)


def pieces_of(plan, cuts):
    """The plan cut into consecutive plans at the times `cuts`."""
    bounds = [0, *cuts, plan.length]
    pieces = []
    for start, stop in itertools.pairwise(bounds):
        rows, newest = part_of(plan, range(start, stop), list(range(plan.lanes)))
        pieces.append(replace(plan, rows=rows, newest=newest, length=stop - start))
    return pieces


def record_of(plan, form):
    """The rows of a plan as one of the records that can be appended."""
    rollout = rollout_of(plan)
    return {"rollout": lambda: rollout, "steps": rollout.flatten, "episodes": rollout.segments}[form]()


def stored_runs(sessions):
    """What is stored after writers appended (plan, form) pairs, one list of pairs for each writer."""
    runs, used = [], set()
    for session in sessions:
        own = {}  # by the id that came in; the rows in `runs` have the stored one
        for plan, form in session:
            for run in (runs_of if form == "steps" else runs_by_lane)(plan.rows):
                key = (run[0].lane, run[0].episode_id)
                earlier = own.get(key)
                if earlier is not None and not earlier[-1].ended and earlier[-1].next_obs == run[0].obs:
                    stored = earlier[0].episode_id
                    earlier.extend(replace(row, episode_id=stored) for row in run)
                    continue
                stored = key[1]
                if stored in used:
                    stored = next(number for number in range(len(used) + 1) if number not in used)
                used.add(stored)
                own[key] = [replace(row, episode_id=stored) for row in run]
                runs.append(own[key])
    return runs


def assert_stored(dataset, runs, plan):
    """The dataset holds exactly these episodes, whichever way they are read."""
    episodes = dataset.episodes()
    assert dataset.num_episodes == len(episodes) == len(runs)
    assert len(dataset) == sum(len(run) for run in runs)
    if runs:
        assert_episodes(episodes.load(), runs, plan)
        for i in {0, len(runs) // 2, len(runs) - 1}:
            assert_episodes(episodes[i].segments(), [runs[i]], plan)
    np.testing.assert_array_equal([len(episode) for episode in episodes], [len(run) for run in runs])
