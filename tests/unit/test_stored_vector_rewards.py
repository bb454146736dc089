"""Vector rewards in records, specs, datasets, tables and tensors."""

import dataclasses
import json

import numpy as np
import pytest

import outrider
from outrider.cli.progress import RichBar
from outrider.cli.show import run as show
from outrider.dataset import Dataset, Moments
from outrider.errors import ConfigError, DatasetError, SpecError
from outrider.records import Episodes, Rollout, Steps, StepSpec
from outrider.spec import LeafSpec
from outrider.testing.rewards import Objectives, judge_objectives
from outrider.testing.traced import TracedPolicy

VECTOR = LeafSpec((2,), np.dtype(np.float64))


@pytest.fixture
def collector():
    with outrider.make_vec(Objectives, 3) as envs, outrider.Collector(envs, TracedPolicy(), seed=1) as collector:
        yield collector


def test_a_dataset_gives_them_back(collector, tmp_path):
    with Dataset.create(tmp_path / "data", collector.spec) as dataset:
        dataset.append(collector.rollout(11))
        dataset.append(collector.steps(17))
        stored = collector.episodes(9)
        dataset.append(stored)
    with Dataset.open(tmp_path / "data") as dataset:
        assert dataset.spec.reward == VECTOR
        read = dataset.steps()
        judge_objectives(read)
        assert len(read) == 33 + 17 + stored.num_steps
        newest = dataset.episodes()[-9:].load()
        np.testing.assert_array_equal(newest.reward, stored.reward)
        complete = [one for one in dataset.episodes() if one.is_complete]
        returns = np.array([one.return_ for one in complete])
        found = dataset.summary().returns
        assert len(found) == 2
        for moments, expected in zip(found, returns.T, strict=True):
            assert isinstance(moments, Moments)
            np.testing.assert_allclose(dataclasses.astuple(moments), dataclasses.astuple(Moments.of(expected)))


def test_a_dataset_without_complete_episodes(collector, tmp_path):
    with Dataset.create(tmp_path / "data", collector.spec) as dataset:
        assert dataset.summary().returns is None


@pytest.mark.parametrize("reward", (LeafSpec((), np.dtype(np.float64)), LeafSpec((3,), np.dtype(np.float64))))
def test_a_dataset_refuses_rewards_of_another_shape(collector, tmp_path, reward):
    spec = dataclasses.replace(collector.spec, reward=reward)
    with (
        Dataset.create(tmp_path / "data", spec) as dataset,
        pytest.raises(SpecError, match="reward"),
    ):
        dataset.append(collector.rollout(3))


def test_datasets_that_do_not_say_what_rewards_are_have_numbers(tmp_path):
    spec = StepSpec(obs=LeafSpec((2,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
    with Dataset.create(tmp_path / "data", spec) as dataset:
        dataset.append(spec.zeros(3))
    path = tmp_path / "data" / "dataset.json"
    description = json.loads(path.read_text())
    assert description["spec"].pop("reward") == {"shape": [], "dtype": "<f8"}
    path.write_text(json.dumps(description))
    with Dataset.open(tmp_path / "data") as dataset:
        assert dataset.steps().reward.shape == (6,)
    description["spec"]["reward"] = None
    path.write_text(json.dumps(description))
    with pytest.raises(DatasetError, match=r"dataset\.json"):
        Dataset.open(tmp_path / "data")


def test_tables_have_a_line_for_each_objective(collector, tmp_path, capsys):
    with Dataset.create(tmp_path / "data", collector.spec) as dataset:
        dataset.append(collector.episodes(4))
        first, second = dataset.summary().returns
        return_ = dataset.episodes()[0].return_
    show(tmp_path / "data", 2)
    text = capsys.readouterr().out
    assert f"return 0  mean {first.mean:.4g}, std" in text
    assert f"return 1  mean {second.mean:.4g}, std" in text
    assert "float64 [2]" in text
    assert f"{return_[0]:.6g}, {return_[1]:.6g}" in text


def test_an_evaluation_has_a_mean_for_each_objective():
    with outrider.make_vec(Objectives, 2) as envs:
        found = outrider.evaluate(envs, TracedPolicy(), 6, seed=0)
    assert found.returns.shape == (6, 2)
    np.testing.assert_array_equal(found.mean_return, found.returns.mean(axis=0))
    np.testing.assert_array_equal(found.std_return, found.returns.std(axis=0))
    (mean, other), (std, spread) = found.mean_return, found.std_return
    assert f"return=[{mean:.6g} +- {std:.6g}, {other:.6g} +- {spread:.6g}], length=" in repr(found)


def test_records_can_be_cut_joined_and_shuffled(collector):
    rollout = collector.rollout(8)
    for part in (rollout[2:5, [2, 0]], rollout[:, 1:]):
        part.check()
        judge_objectives(part.flatten())
    steps = Steps.concatenate([rollout.flatten(), collector.steps(5)])
    steps.check()
    judge_objectives(steps)
    for batch in rollout.minibatches(6, epochs=2, seed=0):
        judge_objectives(batch)
    assert StepSpec.of(rollout).reward == StepSpec.of(steps).reward == VECTOR
    joined = Episodes.concatenate([rollout.segments(), steps.segments()])
    joined.check()
    judge_objectives(joined.flatten())


def test_tensors_are_float32(collector):
    torch = pytest.importorskip("torch")
    rollout = collector.rollout(4).torch()
    assert rollout.reward.dtype == torch.float32
    assert tuple(rollout.reward.shape) == (4, 3, 2)
    rollout.check()


@pytest.mark.parametrize("reward", (LeafSpec((2,), np.dtype(np.float32)), LeafSpec((2, 2), np.dtype(np.float64))))
def test_a_spec_of_what_no_reward_is(collector, reward):
    with pytest.raises(SpecError, match="float64 of shape"):
        dataclasses.replace(collector.spec, reward=reward)


def test_rewards_of_too_many_axes_are_found_by_check(collector):
    rollout = collector.rollout(2)
    for record in (rollout, rollout.flatten(), rollout.segments()):
        wrong = dataclasses.replace(record, reward=record.reward[..., None])
        with pytest.raises(SpecError, match=r"column 'reward'.*of vector rewards"):
            wrong.check()


VIEWS = (
    outrider.Transitions(),
    outrider.Transitions(n_step=3, gamma=0.5),
    outrider.Sequences(4),
    outrider.WholeEpisodes(),
)


@pytest.mark.parametrize("view", VIEWS, ids=repr)
def test_a_replay_buffer_has_them_for_each_objective(collector, view):
    rollout = collector.rollout(40)
    vectors = collector.new_replay(1_000, view=view, seed=0)
    vectors.extend(rollout)
    batch = vectors.sample(50)
    for objective in range(2):
        record = dataclasses.replace(rollout, reward=np.ascontiguousarray(rollout.reward[..., objective]))
        numbers = outrider.ReplayBuffer(1_000, StepSpec.of(record), view=view, seed=0)
        numbers.extend(record)
        expected = numbers.sample(50)
        np.testing.assert_array_equal(batch.index, expected.index)
        found, wanted = (getattr(one, "episodes", one).reward for one in (batch, expected))
        np.testing.assert_array_equal(found[..., objective], wanted)
    assert vectors.check() is None


def test_a_loop_adds_them_to_a_replay_buffer(collector):
    spec = dataclasses.replace(collector.spec, extras={}, info={}, obs_info={}, state=None, num_envs=2)
    zeros = Rollout.zeros(spec, 1)
    flags = np.zeros(2, bool)
    columns = {"obs": zeros.obs[0], "next_obs": zeros.obs[1], "action": zeros.action[0]}
    replay = outrider.ReplayBuffer(10, spec, seed=0)
    replay.add(**columns, reward=np.array([[1.0, 2.0], [3.0, 4.0]]), terminated=flags, truncated=flags)
    batch = replay.sample(20)
    np.testing.assert_array_equal(batch.reward, np.array([[1.0, 2.0], [3.0, 4.0]])[batch.env_id])
    with pytest.raises(SpecError, match="'reward'"):
        replay.add(**columns, reward=np.ones(2), terminated=flags, truncated=flags)


def test_hindsight_refuses_them(collector):
    goals = {"achieved_goal": VECTOR, "desired_goal": VECTOR}
    view = outrider.Hindsight(reward=lambda *goals: 0.0, terminated=lambda *goals: False)
    with pytest.raises(ConfigError, match="Hindsight: rewards"):
        outrider.ReplayBuffer(100, dataclasses.replace(collector.spec, obs=goals), view=view)


def test_zeros_for_a_learner():
    spec = StepSpec(obs=LeafSpec((2,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2, reward=VECTOR)
    zeros = Rollout.zeros(spec, 3)
    zeros.check()
    assert zeros.reward.shape == (3, 2, 2)
    assert spec.row_nbytes == 8 + 8 + 16 + 4 + 24


def test_the_progress_bar_shows_the_mean_of_each_objective():
    class Shown:
        """In place of rich's."""

        def update(self, task, **fields):
            self.fields = fields

    shown = Shown()
    RichBar(lambda: np.array([[1.0, 3.0], [1.0, 4.0]]), shown, 0).advance(1, 10.0)
    assert shown.fields["mean"] == "return 1, 3.5"
