"""What records refuse: `check` finds each broken invariant, and bad indices and columns are explained."""

import dataclasses

import numpy as np
import pytest

from helpers.plain_rows import Plan, lane_rows, rollout_of
from outrider.errors import ConfigError, SpecError
from outrider.records import Episodes, Rollout, Steps, StepSpec
from outrider.spec import LeafSpec

ENDS = (("run", "terminated", "run", "cut"), ("run", "run", "run", "truncated"), ("run", "run", "run", "run"))


@pytest.fixture
def rollout():
    lanes = [lane_rows(ends, lane, dummies=False, start=0) for lane, ends in enumerate(ENDS)]
    rows = [lanes[lane][0][t] for t in range(4) for lane in range(3)]
    return rollout_of(Plan(rows, [newest for _, newest in lanes], 4, 3, "dict", recurrent=True))


def with_value(array, place, value):
    array = array.copy()
    array[place] = value
    return array


BROKEN_ROLLOUTS = {
    "obs/b": lambda r: {"obs": {**r.obs, "b": r.obs["b"][:-1]}},
    "action": lambda r: {"action": r.action[:, :2]},
    "reward": lambda r: {"reward": r.reward.astype(np.float32)},
    "truncated": lambda r: {"truncated": r.truncated.astype(np.int8)},
    "version": lambda r: {"version": r.version.astype(np.int32)},
    "env_id": lambda r: {"env_id": r.env_id[:2]},
    "extras/logits/a": lambda r: {"extras": {"logits": {"a": np.zeros((3, 3))}}},
    "state/h": lambda r: {"state": {"h": r.state["h"][1:]}},
    "obs_info/seen": lambda r: {"obs_info": {"seen": r.obs_info["seen"][1:]}},
    "final_obs/b": lambda r: {"final_obs": {**r.final_obs, "b": r.final_obs["b"][:1]}},
    "final_state": lambda r: {"final_state": None},
    "final_obs": lambda r: {"final_obs": {**r.final_obs, "b": r.final_obs["b"].astype(np.float64)}},
    "final_index": lambda r: {"final_index": r.final_index[::-1].copy()},
    "terminated/truncated/cut": lambda r: {"valid": with_value(r.valid, (1, 0), False)},
    "step/episode_id": lambda r: {"step": with_value(r.step, (2, 2), 7)},
}


@pytest.mark.parametrize("column", BROKEN_ROLLOUTS)
def test_check_names_the_broken_column_of_a_rollout(rollout, column):
    rollout.check()
    broken = dataclasses.replace(rollout, **BROKEN_ROLLOUTS[column](rollout))
    with pytest.raises(SpecError) as caught:
        broken.check()
    assert f"'{column}'" in str(caught.value)


def test_check_finds_an_end_that_is_not_in_the_side_table(rollout):
    flags = with_value(rollout.terminated, (0, 2), True)
    with pytest.raises(SpecError, match="'final_index'"):
        dataclasses.replace(rollout, terminated=flags).check()


def test_check_finds_an_episode_that_goes_on_after_its_end(rollout):
    with pytest.raises(SpecError, match=r"found 2 in row \(2, 0\)"):
        dataclasses.replace(rollout, step=with_value(rollout.step, (2, 0), 2)).check()


BROKEN_STEPS = {
    "reward": lambda s: {"reward": s.reward.astype(np.int64)},
    "extras/logits/a": lambda s: {"extras": {"logits": {"a": np.zeros(3)}}},
    "state_rows/h": lambda s: {"state_rows": {"h": s.state_rows["h"][1:]}},
    "final_obs": lambda s: {"final_obs": {**s.final_obs, "b": s.final_obs["b"][:, :1]}},
    "obs_index": lambda s: {"obs_index": np.arange(12) + 4},
    "next_index": lambda s: {"next_index": with_value(s.next_index, 3, 99)},
    "terminated/truncated/cut": lambda s: {"valid": np.zeros(12, bool)},
}


@pytest.mark.parametrize("column", BROKEN_STEPS)
def test_check_names_the_broken_column_of_steps(rollout, column):
    steps = rollout.flatten()
    steps.check()
    with pytest.raises(SpecError) as caught:
        dataclasses.replace(steps, **BROKEN_STEPS[column](steps)).check()
    assert f"'{column}'" in str(caught.value)


def test_check_finds_a_missing_index_and_a_row_beyond_the_side_table(rollout):
    steps = rollout.flatten()
    for changes in ({"obs_index": slice(0, 11)}, {"next_index": with_value(steps.next_index, 0, -4)}):
        with pytest.raises(SpecError, match=f"'{next(iter(changes))}'"):
            dataclasses.replace(steps, **changes).check()


BROKEN_EPISODES = {
    "obs/a": lambda e: {"obs": {**e.obs, "a": e.obs["a"][1:]}},
    "action": lambda e: {"action": e.action[1:]},
    "cut": lambda e: {"cut": e.cut.astype(np.uint8)},
    "env_id": lambda e: {"env_id": e.env_id[1:]},
    "lengths": lambda e: {"lengths": np.array([4, 0, 4, 4])},
    "step": lambda e: {"step": with_value(e.step, 1, 5)},
    "terminated/truncated/cut": lambda e: {"truncated": with_value(e.truncated, 0, True)},
}


@pytest.mark.parametrize("column", BROKEN_EPISODES)
def test_check_names_the_broken_column_of_episodes(rollout, column):
    episodes = rollout.segments()
    episodes.check()
    with pytest.raises(SpecError) as caught:
        dataclasses.replace(episodes, **BROKEN_EPISODES[column](episodes)).check()
    assert f"'{column}'" in str(caught.value)


@pytest.mark.parametrize("key", (0, -1, (0, 1), (slice(None), 0), slice(None, None, 2), ..., (..., 0), "obs", [0, 1]))
def test_a_rollout_is_only_cut_into_blocks(rollout, key):
    with pytest.raises(ConfigError, match="rollout"):
        rollout[key]


@pytest.mark.parametrize("key", (0, np.int64(3), None, "obs", 1.5, [0.5], np.ones(3, bool), np.zeros((2, 2), int)))
def test_steps_are_indexed_by_slices_arrays_and_masks(rollout, key):
    with pytest.raises(ConfigError, match=r"steps\[\.\.\.\]: expected a slice, a 1-D array of integers or a bool mask"):
        rollout.flatten()[key]


def test_an_integer_index_is_answered_with_the_slice_to_use(rollout):
    with pytest.raises(ConfigError, match=r"\[2:3\]"):
        rollout.flatten()[2]


@pytest.mark.parametrize("rows", ([12], [-13], [0, 99]))
def test_rows_out_of_range_are_refused(rollout, rows):
    with pytest.raises(IndexError, match="there are only 12 rows"):
        rollout.flatten()[rows]


def test_an_episode_out_of_range_is_refused(rollout):
    with pytest.raises(IndexError):
        rollout.segments()[4]


def test_new_columns_are_checked_and_kept(rollout):
    wider = rollout.with_columns(advantage=np.ones((4, 3)), pair={"x": (np.zeros((4, 3, 2)),)})
    assert list(rollout.extras) == ["logits"]
    assert list(wider.extras) == ["logits", "advantage", "pair"]
    assert wider.flatten().extras["pair"]["x"][0].shape == (12, 2)
    assert wider.with_columns(advantage=np.zeros((4, 3))).extras["advantage"].sum() == 0
    assert len(rollout.flatten().with_columns(weight=[1.0] * 12).extras["weight"]) == 12


@pytest.mark.parametrize("name", ("reward", "obs", "extras", "next_obs", "is_first", "flatten", "ended"))
def test_new_columns_cannot_take_the_name_of_another(rollout, name):
    with pytest.raises(SpecError, match=f"'{name}', which Rollout has itself"):
        rollout.with_columns(**{name: np.zeros((4, 3))})


def test_new_columns_need_a_value_for_each_row(rollout):
    with pytest.raises(SpecError, match=r"column 'a/b': expected leading axes \(4, 3\), found shape \(4,\)"):
        rollout.with_columns(a={"b": np.zeros(4)})
    with pytest.raises(SpecError, match=r"leading axes \(12,\)"):
        rollout.flatten().with_columns(a=np.zeros(11))


@pytest.mark.parametrize(("size", "epochs"), ((0, 1), (-1, 1), (13, 1), (13, 2), (4, 0), (2.0, 1), (True, 1), (4, 1.5)))
def test_batches_that_cannot_be_are_refused_at_once(rollout, size, epochs):
    with pytest.raises(ConfigError, match="minibatches"):
        rollout.minibatches(size, epochs=epochs)


@pytest.mark.parametrize("record", (Steps, Episodes))
def test_nothing_cannot_be_concatenated(record):
    with pytest.raises(ConfigError, match="at least one"):
        record.concatenate([])


@pytest.mark.parametrize(
    ("change", "words"),
    (
        ({"reward": np.zeros(12, np.float32)}, "column 'reward'.*float64.*float32"),
        ({"action": np.zeros((12, 1), np.int64)}, "column 'action'"),
        ({"extras": {}}, "column 'extras'.*logits"),
        ({"state_rows": None, "final_state": None}, "column 'state_rows'"),
    ),
)
def test_steps_of_other_columns_cannot_be_joined(rollout, change, words):
    steps = rollout.flatten()
    with pytest.raises(SpecError, match=rf"Steps.concatenate: part 1, {words}"):
        Steps.concatenate([steps, dataclasses.replace(steps, **change)])


def test_episodes_of_other_columns_cannot_be_joined(rollout):
    episodes = rollout.segments()
    other = dataclasses.replace(episodes, info={})
    with pytest.raises(SpecError, match=r"Episodes.concatenate: part 2, column 'info'"):
        Episodes.concatenate([episodes, episodes, other])


def test_a_zero_rollout_needs_a_length():
    spec = StepSpec(obs=LeafSpec((), np.dtype(np.float32)), action=LeafSpec((), np.dtype(np.int64)), num_envs=1)
    with pytest.raises(ConfigError, match="1 step or more"):
        Rollout.zeros(spec, 0)
