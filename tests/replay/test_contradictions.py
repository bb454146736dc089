"""Records that are not what they should be: refused by name before anything is written, or taken for what they are."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.replay_model import Model, Streams
from helpers.replay_views import check_transitions
from outrider import ConfigError, Dataset, ReplayBuffer, SpecError

FLAGS = ("terminated", "truncated", "cut")


def opened(ends=("run", "run", "terminated", "truncated", "cut"), lanes=2):
    """A buffer that holds something, its streams, and all that it holds."""
    streams = Streams(lanes, np.random.default_rng(1), ends=ends)
    replay = ReplayBuffer(40, streams.spec(), seed=0)
    replay.extend(streams.rollout(7)[0])
    return streams, replay, everything(replay)


def everything(replay):
    serials = replay._ring.serials()
    batch = replay._look.gather(serials, np.ones(len(serials)), np.random.default_rng())
    return {name: getattr(batch, name) for name in ("obs", "next_obs", "reward", "terminated", "step", "index")}


def assert_refused(replay, before, record, error, match):
    with pytest.raises(error, match=match):
        replay.extend(record)
    replay.check()
    for name, column in everything(replay).items():
        np.testing.assert_array_equal(column, before[name])


def changed(record, name, place, value):
    column = getattr(record, name).copy()
    column[place] = value
    return replace(record, **{name: column})


def wrong_index(rollout):
    return replace(rollout, final_index=rollout.final_index + 1)


def turned_index(rollout):
    return replace(rollout, final_index=rollout.final_index[::-1].copy())


def too_few_ends(rollout):
    return replace(rollout, final_index=rollout.final_index[:-1], final_obs=rollout.final_obs[:-1])


def too_few_last_observations(rollout):
    return replace(rollout, final_obs=rollout.final_obs[:-1])


def another_dtype_of_last_observations(rollout):
    return replace(rollout, final_obs=rollout.final_obs.astype(np.float64))


def no_index(rollout):
    return replace(rollout, final_index=None)


def an_end_without_index(rollout):
    return changed(rollout, "truncated", tuple(np.argwhere(~rollout.ended)[0]), value=True)


def an_index_without_end(rollout):
    place = divmod(int(rollout.final_index[0]), rollout.num_envs)
    for name in FLAGS:
        rollout = changed(rollout, name, place, value=False)
    return rollout


def an_end_that_is_not_valid(rollout):
    return changed(rollout, "valid", divmod(int(rollout.final_index[0]), rollout.num_envs), value=False)


def blind_without_end(rollout):
    return replace(rollout, blind=~rollout.ended)


def flags_of_ints(rollout):
    return replace(rollout, terminated=rollout.terminated.astype(np.int64))


def flags_of_floats(rollout):
    return replace(rollout, truncated=rollout.truncated * 0.5)


def valid_of_ints(rollout):
    return replace(rollout, valid=rollout.valid.astype(np.int8))


def a_list_for_a_column(rollout):
    return replace(rollout, cut=rollout.cut.tolist())


def steps_of_floats(rollout):
    return replace(rollout, step=rollout.step.astype(np.float64))


def a_reward_of_one_axis(rollout):
    return replace(rollout, reward=rollout.reward[:, 0])


ROLLOUTS = {
    wrong_index: "final_index",
    turned_index: "final_index",
    too_few_ends: "final_index",
    too_few_last_observations: "final_obs",
    another_dtype_of_last_observations: "final_obs",
    no_index: "final_index",
    an_end_without_index: "final_index",
    an_index_without_end: "final_index",
    an_end_that_is_not_valid: "valid",
    blind_without_end: "blind",
    flags_of_ints: "terminated",
    flags_of_floats: "truncated",
    valid_of_ints: "valid",
    a_list_for_a_column: "cut",
    steps_of_floats: "step",
    a_reward_of_one_axis: "reward",
}


@pytest.mark.parametrize("lanes", (slice(None), slice(None, None, -1)), ids=("in order", "turned"))
@pytest.mark.parametrize("change", ROLLOUTS, ids=lambda change: change.__name__)
def test_rollouts_that_contradict_themselves(change, lanes):
    streams, replay, before = opened()
    rollout = replace(streams.rollout(12)[0], state=None, final_state=None)
    assert len(rollout.final_index) > 2
    # Where lanes come in another order, rows are written one by one.
    assert_refused(replay, before, change(rollout[:, lanes]), SpecError, ROLLOUTS[change])
    assert replay.extend(rollout) == 24


STEPS = {
    "next_index": lambda steps: changed(steps, "next_index", 3, 1 << 40),
    "obs_index": lambda steps: replace(steps, obs_index=np.arange(len(steps)) + len(steps.obs_rows) - 3),
    "valid": lambda steps: changed(steps, "valid", np.flatnonzero(steps.ended)[0], value=False),
    "final_obs": lambda steps: replace(steps, final_obs=steps.final_obs[:, :1]),
    "terminated": lambda steps: replace(steps, terminated=steps.terminated.astype(np.float32)),
    "blind": lambda steps: replace(steps, blind=~steps.ended),
    "episode_id": lambda steps: replace(steps, episode_id=steps.episode_id[:-1]),
    "env_id": lambda steps: replace(steps, env_id=steps.env_id * 1.0),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_contradict_themselves(name):
    streams, replay, before = opened()
    steps = streams.rollout(12)[0].flatten()
    assert_refused(replay, before, STEPS[name](steps), SpecError, name if name != "valid" else "not valid")
    assert replay.extend(steps) == 24


EPISODES = {
    "lengths": lambda episodes: replace(episodes, lengths=episodes.lengths[:-1]),
    "terminated": lambda episodes: changed(episodes, "terminated", 0, value=True),
    "step": lambda episodes: changed(episodes, "step", 1, 9),
    "cut": lambda episodes: replace(episodes, cut=episodes.cut.astype(int)),
    "obs": lambda episodes: replace(episodes, obs=episodes.obs[:-1]),
}


@pytest.mark.parametrize("kind", ("Episodes", "Episode"))
@pytest.mark.parametrize("name", EPISODES)
def test_episodes_that_contradict_themselves(name, kind):
    streams, replay, before = opened()
    episodes = streams.rollout(12)[0].segments()
    longest = int(episodes.lengths.argmax())
    record = EPISODES[name](episodes[longest : longest + 1])
    if kind == "Episode":
        if name == "lengths":
            return
        record = replace(episodes[longest], **{name: getattr(record, name)})
    assert_refused(replay, before, record, SpecError, name if name != "lengths" else "action|leading axes")
    assert replay.extend(episodes) == 24


def test_a_seam_within_a_rollout_is_a_cut():
    rng = np.random.default_rng(0)
    streams = Streams(2, rng, ends=("run", "run", "terminated"))
    replay, model = ReplayBuffer(60, streams.spec()), Model(60, 2)
    for _ in range(6):
        record, steps = streams.rollout_with_seams(9, [(2, 0), (5, 1), (6, 0), (6, 1)])
        with pytest.raises(SpecError, match="step/episode_id"):
            record.check()
        assert replay.extend(record) == 18
        model.add(steps)
        replay.check()
        expected = model.serials()
        serials = np.array(sorted(expected))
        windows = [model.window(*expected[serial], 1) for serial in serials.tolist()]
        check_transitions(replay._look.gather(serials, np.ones(len(serials)), rng), windows, 0.99, "array")
        cut = replay._ring.columns["cut"][serials % replay._ring.rows]
        assert cut.tolist() == [window[0].end == "cut" for window in windows]
        assert cut.any()


@pytest.mark.parametrize("lanes", (slice(None), [1, 0], []), ids=("every", "turned", "none"))
def test_nothing_is_added_of_an_empty_record(lanes):
    streams, replay, before = opened()
    empty = streams.rollout(3)[0][0:0, lanes]
    fresh = ReplayBuffer(40, streams.spec())
    for record in (empty, empty.flatten(), empty.segments()):
        assert replay.extend(record) == fresh.extend(record) == 0
    replay.check()
    fresh.check()
    np.testing.assert_array_equal(everything(replay)["index"], before["index"])
    assert_refused(replay, before, replace(empty, action=empty.action * 0.5), SpecError, "action")


def test_a_lane_that_is_twice_in_a_rollout_is_refused():
    streams, replay, before = opened()
    rollout = streams.rollout(3)[0]
    assert_refused(replay, before, rollout[:, [0, 0]], ConfigError, r"extend\(Rollout\).*each lane once")
    assert replay.extend(rollout[:, [1]]) == 3


def test_episodes_of_all_kinds(tmp_path):
    streams, replay, before = opened()
    episodes = streams.rollout(12)[0].segments()
    with Dataset.create(tmp_path / "data", replace(streams.spec(), state=None)) as dataset:
        dataset.append(replace(episodes, state=None))
        records = episodes, list(episodes), dataset.episodes(), dataset.steps(), dataset.episodes()[1:3], episodes[0]
        counts = 24, 24, 24, 24, int(dataset.episodes().lengths[1:3].sum()), len(episodes[0])
        for record, count in zip(records, counts, strict=True):
            fresh = ReplayBuffer(60, streams.spec())
            assert fresh.extend(record) == len(fresh) == count
            fresh.check()
        assert replay.extend(dataset.episodes()[:0]) == 0
        with pytest.raises(ConfigError, match=r"found Dataset.*dataset\.episodes\(\)"):
            replay.extend(dataset)
    assert replay.extend([]) == replay.extend(episodes[:0]) == 0
    for nothing in (None, [3], "episodes", ""):
        assert_refused(replay, before, nothing, ConfigError, r"extend\(record\).*expected a Rollout")


def test_many_episodes_are_added_piece_by_piece():
    streams = Streams(1, np.random.default_rng(0), ends=("terminated",))
    episodes = list(streams.rollout(700)[0].segments())
    replay = ReplayBuffer(1000, streams.spec())
    assert replay.extend(episodes) == len(replay) == 700
    episodes[600] = replace(episodes[600], cut=np.zeros(1))
    with pytest.raises(SpecError, match="cut"):
        replay.extend(episodes)
    replay.check()
    assert len(replay) == 1000
