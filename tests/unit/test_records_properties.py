"""All records against the plain reference, for random ends, cuts, dummy rows, shapes and nestings."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.plain_rows import (
    assert_episodes,
    assert_equal,
    assert_steps,
    part_of,
    plans,
    rollout_of,
    runs_by_lane,
    runs_of,
    state_of,
    tree_of,
)
from outrider import tree
from outrider.records import Episodes, Steps


def valid_rows(rows):
    return [row for row in rows if row.valid]


def slices(size):
    bound = st.none() | st.integers(-size - 2, size + 2)
    return st.builds(slice, bound, bound, st.sampled_from((None, 1, 2, 3, -1, -2)))


def indices(size):
    return st.lists(st.integers(-size, size - 1), max_size=2 * size).map(lambda rows: np.array(rows, np.int64))


def masks(size):
    return st.lists(st.booleans(), min_size=size, max_size=size).map(lambda rows: np.array(rows, bool))


def keys(size):
    return st.one_of(slices(size), indices(size), masks(size)) if size else slices(size)


@given(plans())
def test_a_rollout_has_the_true_next_observations(plan):
    rollout = rollout_of(plan)
    rollout.check()
    found = tree.take(rollout.next_obs, rollout.valid)
    expected = np.array([row.next_obs for row in valid_rows(plan.rows)], np.int64)
    assert_equal(found, tree_of(expected, plan.nesting))
    assert len(rollout) == len(valid_rows(plan.rows))
    assert_equal(rollout.is_first, rollout.step == 0)


@given(plans())
def test_flatten_gives_the_valid_rows_in_order_of_time(plan):
    assert_steps(rollout_of(plan).flatten(), valid_rows(plan.rows), plan)


@given(plans(), st.data())
def test_a_part_of_a_rollout_is_the_rollout_of_these_rows(plan, data):
    bounds = st.none() | st.integers(-plan.length - 1, plan.length + 1)
    times = slice(data.draw(bounds), data.draw(bounds))
    key = data.draw(keys(plan.lanes))
    rollout = rollout_of(plan)
    part = rollout[times, key]
    chosen, lanes = range(plan.length)[times], list(np.arange(plan.lanes)[key])
    chosen = range(chosen.start, max(chosen.start, chosen.stop))
    rows, newest = part_of(plan, chosen, lanes)
    part.check()
    assert (part.length, part.num_envs) == (len(chosen), len(lanes))
    assert_steps(part.flatten(), valid_rows(rows), plan)
    assert_equal(tree.take(part.obs, -1), tree_of(np.array(newest, np.int64), plan.nesting))
    if plan.recurrent:
        assert_equal(tree.take(part.state, -1), state_of(np.array(newest, np.int64)))


@given(plans(), st.data())
def test_any_index_of_steps_gives_these_rows(plan, data):
    steps, rows = rollout_of(plan).flatten(), valid_rows(plan.rows)
    for _ in range(2):  # a part of a part, too
        key = data.draw(keys(len(rows)))
        steps, rows = steps[key], [rows[i] for i in np.arange(len(rows))[key]]
        assert_steps(steps, rows, plan)
    assert_steps(steps.compact(), rows, plan)


@given(plans(), st.data())
def test_compact_keeps_only_what_is_used(plan, data):
    steps = rollout_of(plan).flatten()
    steps = steps[data.draw(keys(len(steps)))].compact()
    following = steps.next_index
    used = set(steps.obs_rows_used()) | set(following[following >= 0])
    assert len(tree.leaves(steps.obs_rows)[0]) == len(used)
    assert len(tree.leaves(steps.final_obs)[0]) == len(set(following[following < 0]))
    assert steps.compact() is steps


@given(plans(), st.data())
def test_concatenated_steps_are_the_rows_of_all_parts(plan, data):
    steps, rows = rollout_of(plan).flatten(), valid_rows(plan.rows)
    chosen = data.draw(st.lists(keys(len(rows)), min_size=1, max_size=4))
    joined = Steps.concatenate([steps[key] for key in chosen])
    assert_steps(joined, [rows[i] for key in chosen for i in np.arange(len(rows))[key]], plan)


@given(plans())
def test_segments_of_a_rollout_are_its_episodes_lane_by_lane(plan):
    assert_episodes(rollout_of(plan).segments(), runs_by_lane(plan.rows), plan)


@given(plans())
def test_segments_of_steps_are_its_episodes_in_order_of_appearance(plan):
    assert_episodes(rollout_of(plan).flatten().segments(), runs_of(plan.rows), plan)


@given(plans(), st.data())
def test_a_rollout_taken_in_pieces_has_the_same_segments(plan, data):
    cut = data.draw(st.integers(0, plan.length))
    rollout = rollout_of(plan)
    pieces = Steps.concatenate([rollout[:cut].flatten(), rollout[cut:].flatten()])
    assert_episodes(pieces.segments(), runs_of(plan.rows), plan)


@given(plans(), st.data())
def test_segments_of_some_rows_break_where_steps_are_missing(plan, data):
    steps, rows = rollout_of(plan).flatten(), valid_rows(plan.rows)
    key = data.draw(masks(len(rows)))
    runs = []
    for run in runs_of([row for row, kept in zip(rows, key, strict=True) if kept]):
        parts = [[run[0]]]
        for row in run[1:]:
            if row.step == parts[-1][-1].step + 1:
                parts[-1].append(row)
            else:
                parts.append([row])
        runs.extend(parts)
    runs.sort(key=lambda run: (run[0].t, run[0].lane))
    assert_episodes(steps[key].segments(), runs, plan)


@given(plans(), st.data())
def test_any_index_of_episodes_gives_these_episodes(plan, data):
    episodes, runs = rollout_of(plan).segments(), runs_by_lane(plan.rows)
    key = data.draw(keys(len(runs)))
    chosen = [runs[i] for i in np.arange(len(runs))[key]]
    assert_episodes(episodes[key], chosen, plan)
    joined = Episodes.concatenate([episodes[key], episodes])
    assert_episodes(joined, chosen + runs, plan)


@given(plans())
def test_episodes_flatten_to_their_rows(plan):
    episodes, runs = rollout_of(plan).segments(), runs_by_lane(plan.rows)
    steps = episodes.flatten()
    assert_steps(steps, [row for run in runs for row in run], plan)
    assert all(a is b for a, b in zip(tree.leaves(steps.obs_rows), tree.leaves(episodes.obs), strict=True))
    assert_episodes(steps.segments(), runs, plan)


@given(plans())
def test_each_episode_knows_how_it_went(plan):
    episodes, runs = rollout_of(plan).segments(), runs_by_lane(plan.rows)
    ended = [run[-1].terminated or run[-1].truncated for run in runs]
    complete = [end and run[0].step == 0 for run, end in zip(runs, ended, strict=True)]
    assert list(episodes.ended) == ended == [episode.ended for episode in episodes]
    assert list(episodes.is_complete) == complete == [episode.is_complete for episode in episodes]
    assert list(episodes.returns) == [episode.return_ for episode in episodes]
    np.testing.assert_allclose(episodes.returns, [sum(row.reward for row in run) for run in runs], rtol=1e-12)
    assert list(episodes.lengths) == [len(run) for run in runs] == [episode.length for episode in episodes]


@given(plans())
def test_padded_rows_are_the_episodes_and_zeros(plan):
    episodes = rollout_of(plan).segments()
    padded = episodes.padded()
    assert len(padded) == len(episodes)
    assert list(padded.mask.sum(1)) == list(episodes.lengths)
    for i, episode in enumerate(episodes):
        count = len(episode)
        for name, kept in (("action", count), ("reward", count), ("extras", count), ("obs", count + 1)):
            column = tree.take(getattr(padded, name), i)
            assert_equal(tree.take(column, slice(kept)), getattr(episode, name))
            assert not any(leaf[kept:].any() for leaf in tree.leaves(column))


@given(plans(), st.data())
def test_minibatches_return_each_row_once_in_each_epoch(plan, data):
    rows = valid_rows(plan.rows)
    size, epochs = data.draw(st.integers(1, len(rows))), data.draw(st.integers(1, 3))
    batches = list(rollout_of(plan).minibatches(size, epochs=epochs, seed=3))
    assert [len(batch) for batch in batches] == [size] * (len(rows) * epochs // size)
    returned = np.concatenate([batch.action for batch in batches])
    counts = {row.action: 0 for row in rows}
    for action in returned:
        counts[int(action)] += 1
    assert sum(epochs * sum(r.action == a for r in rows) - n for a, n in counts.items()) == len(rows) * epochs % size
    seen = [number for batch in batches for number in batch.obs_info["seen"].tolist()]
    numbers = sorted(row.obs for row in rows)
    for epoch in range(len(seen) // len(rows)):
        assert sorted(seen[epoch * len(rows) : (epoch + 1) * len(rows)]) == numbers
    by_obs = {row.obs: row for row in rows}
    for batch in batches:
        assert_steps(batch, [by_obs[number] for number in batch.obs_info["seen"]], plan)
