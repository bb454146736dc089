"""What is shared and what is copied, specs, sizes, pickles and reprs."""

import copy
import pickle

import numpy as np
import pytest

from helpers.plain_rows import Plan, assert_equal, lane_rows, rollout_of
from outrider import tree
from outrider.records import Episode, Rollout, StepSpec
from outrider.records.describe import columns_of
from outrider.spec import LeafSpec

ENDS = (("run", "terminated", "run", "cut"), ("run", "run", "both", "run"))


def make(dummies=False, recurrent=True):
    lanes = [lane_rows(ends, lane, dummies, start=0) for lane, ends in enumerate(ENDS)]
    rows = [lanes[lane][0][t] for t in range(4) for lane in range(2)]
    return rollout_of(Plan(rows, [newest for _, newest in lanes], 4, 2, "nested", recurrent))


def shares(record, other, name, other_name=None):
    pairs = zip(tree.leaves(getattr(record, name)), tree.leaves(getattr(other, other_name or name)), strict=True)
    return all(np.shares_memory(a, b) for a, b in pairs)


def test_flatten_copies_no_column_when_all_rows_are_valid():
    rollout = make()
    steps = rollout.flatten()
    assert shares(steps, rollout, "obs")
    assert shares(steps, rollout, "obs_rows", "obs")
    assert shares(steps, rollout, "state")
    for name in ("action", "reward", "terminated", "valid", "step", "extras", "info", "obs_info", "final_obs"):
        assert shares(steps, rollout, name)


def test_flatten_copies_no_observation_when_some_rows_are_not_valid():
    rollout = make(dummies=True)
    steps = rollout.flatten()
    assert shares(steps, rollout, "obs_rows", "obs")
    assert len(steps) == len(rollout) < 8


def test_slices_are_views_and_what_is_looked_up_is_a_copy():
    rollout = make()
    part, steps = rollout[1:3, 0:1], rollout.flatten()
    for name in ("obs", "action", "reward", "extras", "state", "obs_info"):
        assert shares(part, rollout, name)
    assert shares(steps[2:5], steps, "reward")
    assert shares(steps[2:5], rollout, "obs")
    assert shares(steps[::2], rollout, "obs")
    for record in (rollout, part, steps):
        assert not shares(record, rollout, "next_obs", "obs")
    chosen = steps[np.array([1, 2])]
    assert not shares(chosen, rollout, "obs")
    assert not shares(chosen, steps, "reward")


def test_one_episode_and_its_segments_are_views():
    episodes = make().segments()
    assert shares(episodes[1], episodes, "obs")
    assert shares(episodes[1:3], episodes, "reward")
    single = episodes[1].segments()
    assert shares(single, episodes, "obs")
    assert (list(single.lengths), list(single.episode_id)) == ([2], [episodes[1].episode_id])
    single.check()
    assert episodes.segments() is episodes


def test_both_flags_are_an_end():
    rollout = make()
    assert rollout.ended.tolist() == [[False, False], [True, False], [False, True], [True, False]]
    assert rollout.flatten().ended.tolist() == rollout.ended.reshape(-1).tolist()
    assert [episode.ended for episode in rollout.segments()] == [True, False, True, False]


def test_a_cut_episode_is_neither_ended_nor_complete():
    cut = make().segments()[1]
    assert cut.cut.tolist() == [False, True]
    assert not cut.ended
    assert not cut.is_complete


def test_a_return_is_summed_in_float64():
    count, flags = 20_000, np.zeros(20_000, bool)
    episode = Episode(
        obs=np.arange(count + 1),
        action=flags,
        reward=np.full(count, 0.1),
        terminated=flags,
        truncated=flags,
        cut=flags,
        step=np.arange(count),
        version=np.zeros(count, np.int64),
        episode_id=0,
        env_id=0,
    )
    assert episode.return_ == pytest.approx(2000, abs=1e-7)
    assert episode.segments().returns == pytest.approx([2000], abs=1e-7)


def test_no_episodes_are_fine_where_there_are_none():
    nothing = make().segments()[:0]
    nothing.check()
    assert (len(nothing), nothing.num_steps, list(nothing), nothing.returns.tolist()) == (0, 0, [], [])
    assert nothing.padded().reward.shape == (0, 0)
    assert len(nothing.flatten()) == 0
    assert len(nothing.flatten().segments()) == 0


def test_minibatches_are_the_same_from_the_same_seed_only():
    rollout = make()
    first, again, other = ([b.action.tolist() for b in rollout.minibatches(4, seed=seed)] for seed in (1, 1, 2))
    assert first == again
    assert first != other
    epochs = [batch.action.tolist() for batch in rollout.minibatches(8, epochs=2, seed=1)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1])


def test_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002 - that it is untouched is the point
    list(make().minibatches(2, epochs=2))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


@pytest.mark.parametrize("kind", ("rollout", "flatten", "segments", "episode", "padded"))
def test_records_can_be_pickled_and_copied(kind):
    rollout = make()
    record = {
        "rollout": rollout,
        "flatten": rollout.flatten(),
        "segments": rollout.segments(),
        "episode": rollout.segments()[0],
        "padded": rollout.segments().padded(),
    }[kind]
    for twin in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
        assert_equal(columns_of(twin), columns_of(record))
        assert repr(twin) == repr(record)
        assert twin.nbytes == record.nbytes


def test_a_repr_shows_shapes_only():
    spec = StepSpec(obs={"x": LeafSpec((3,), np.dtype("f4"))}, action=(LeafSpec((), np.dtype("i8")),), num_envs=2)
    text = repr(spec.zeros(5))
    assert text.startswith("Rollout(obs={x: float32[6, 2, 3]}, action=(int64[5, 2]), reward=float64[5, 2]")
    assert "extras" not in text
    assert "state" not in text
    assert len(repr(spec.zeros(5_000))) < len(text) + 100


def test_nbytes_is_the_sum_of_all_columns():
    spec = StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
    obs, env_id = 6 * 2 * 12, 2 * 8
    assert spec.zeros(5).nbytes == obs + env_id + 10 * (spec.row_nbytes - 12)


def test_the_spec_of_each_record_is_that_of_the_rollout():
    rollout = make()
    spec = StepSpec.of(rollout)
    assert spec.num_envs == 2
    assert spec.obs == {"x": (LeafSpec((1, 2), np.dtype("u1")), {"y": LeafSpec((2,), np.dtype("f4"))})}
    assert spec.extras == {"logits": {"a": LeafSpec((2,), np.dtype("f4"))}}
    assert spec.state == {"h": LeafSpec((3,), np.dtype("f8"))}
    assert set(spec.info) == {"x", "_x"}
    for record in (rollout.flatten(), rollout.segments()):
        assert StepSpec.of(record) == spec
    assert StepSpec.of(rollout.segments()[0]).num_envs == 1
    assert StepSpec.of(make(recurrent=False)).state is None


def test_a_zero_rollout_is_legal_and_of_the_spec():
    spec = StepSpec.of(make())
    zeros = spec.zeros(7)
    zeros.check()
    assert StepSpec.of(zeros) == spec
    assert (zeros.length, zeros.num_envs, len(zeros)) == (7, 2, 14)
    assert zeros.valid.all()
    assert zeros.env_id.tolist() == [0, 1]
    assert not any(leaf.any() for leaf in tree.leaves((zeros.obs, zeros.action, zeros.reward, zeros.state)))
    assert [len(episode) for episode in zeros.segments()] == [7, 7]


def test_records_without_observation_leaves_work():
    spec = StepSpec(obs={}, action=LeafSpec((), np.dtype("i8")), num_envs=2)
    rollout: Rollout = spec.zeros(3)
    rollout.check()
    assert rollout.flatten()[1:3].compact().next_obs == {}
    assert [episode.obs for episode in rollout.segments()] == [{}, {}]
