"""What views refuse, keep and draw; what they make of any ring is compared in tests/property/test_replay_machine.py."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.integer_ring import assert_frequencies, counts_of
from helpers.plain_rows import assert_equal, state_of, tree_of
from helpers.replay_model import BLIND_ENDS, Model, Step, Streams
from helpers.replay_views import check_hindsight, fits, hindsight_reward, hindsight_terminated, is_over, is_whole
from outrider import (
    ConfigError,
    GoalKeys,
    Hindsight,
    Newest,
    OutriderError,
    Prioritized,
    ReplayBuffer,
    Sequences,
    SpecError,
    Stale,
    StepSpec,
    Transitions,
    Uniform,
    WholeEpisodes,
    WithoutReplacement,
    tree,
)
from outrider.spec import LeafSpec

HINDSIGHT = Hindsight("future", 4, reward=hindsight_reward, terminated=hindsight_terminated)
VIEWS = (
    Transitions(n_step=3),
    Sequences(4, burn_in=1, stride=2),
    Sequences(6, pad=True),
    WholeEpisodes(),
    HINDSIGHT,
)


def name_of(part):
    """An id that is the same in every process, where the repr of a function is not."""
    return part if isinstance(part, str) else type(part).__name__


SAMPLERS = (Uniform(), Prioritized(), WithoutReplacement(), Newest(), Stale(5))


def filled(view, sampler=None, ends=BLIND_ENDS, nesting="goals", stateless=0.0):
    """A buffer of 3 lanes that has gone around some times, and the plain lists of what is in it."""
    streams = Streams(3, np.random.default_rng(1), nesting, ends, stateless)
    replay, model = ReplayBuffer(100, streams.spec(), view=view, sampler=sampler, seed=0), Model(100, 3)
    for length in (30, 7, 41, 3):
        record, steps = streams.rollout(length)
        replay.extend(record)
        model.add(steps)
    return replay, model


def starts(model, accepts, most=None):
    """The serial numbers of the steps that a view should begin with."""
    return [serial for serial, place in sorted(model.serials().items()) if accepts(model.window(*place, most))]


def assert_equally_likely(index, possible):
    counts = counts_of(index, sorted(possible))
    assert all(counts)
    assert_frequencies(counts, np.ones(len(counts)))


# -- with every sampler ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "nesting"),
    [(view, "goals") for view in VIEWS] + [(view, nesting) for view in VIEWS[:4] for nesting in ("texts", "nested")],
    ids=name_of,
)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_every_view_works_with_every_sampler(view, sampler, nesting):
    replay, _ = filled(view, sampler, nesting=nesting)
    accepts = replay._look.accepts
    for _ in range(5):
        batch = replay.sample(4)
        assert len(batch) == len(batch.index) == len(batch.weight) == 4
        assert accepts is None or accepts(batch.index).all()
        if isinstance(sampler, Prioritized):
            replay.update(batch.index, np.ones(4))
    replay.check()


@pytest.mark.parametrize("view", VIEWS, ids=name_of)
def test_batches_become_tensors(view):
    replay, _ = filled(view)
    batch = replay.sample(4)
    tensors = batch.torch()
    assert type(tensors) is type(batch)
    rows, converted = (getattr(one, "episodes", one) for one in (batch, tensors))
    np.testing.assert_array_equal(converted.action.numpy(), rows.action)
    assert converted.reward.dtype == tensors.weight.dtype == torch.float32
    assert tensors.index.dtype == torch.int64
    assert batch.nbytes > 0
    assert "float64" in repr(batch)
    with replay.batches(4, device="cpu") as ahead:
        first = next(ahead)
    moved = getattr(first, "episodes", first)
    assert isinstance(moved.action, torch.Tensor)


@pytest.mark.parametrize("view", VIEWS[:4], ids=name_of)
def test_a_batch_is_the_callers(view):
    replay, _ = filled(view)
    serials = replay.sample(8).index
    first, second = (replay._look.gather(serials, np.ones(8), None) for _ in range(2))
    first = getattr(first, "episodes", first)
    for leaf in tree.leaves((first.obs, first.reward, first.action)):
        np.multiply(leaf, 0, out=leaf)
    third = replay._look.gather(serials, np.ones(8), None)
    kept, again = (getattr(one, "episodes", one) for one in (second, third))
    assert_equal(again.obs, kept.obs)
    assert_equal(again.reward, kept.reward)
    assert kept.reward.any()


# -- sequences ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", (Sequences(3), Sequences(4, burn_in=2, stride=3, pad=True), Sequences(2, stride=2)))
def test_each_sequence_is_equally_likely(view):
    replay, model = filled(view, nesting="array")
    possible = starts(model, lambda window: fits(window, view), view.length)
    index = np.concatenate([replay.sample(200).index for _ in range(100)])
    assert_equally_likely(index, possible)


def test_sequences_are_as_likely_as_the_priorities_of_their_first_steps():
    view = Sequences(3)
    replay, model = filled(view, Prioritized(alpha=1.0))
    possible = np.array(starts(model, lambda window: fits(window, view), view.length))
    priorities = np.arange(len(possible)) + 1.0
    replay.update(possible, priorities)
    index = np.concatenate([replay.sample(200).index for _ in range(100)])
    assert_frequencies(counts_of(index, possible), priorities)


def test_states_are_kept_at_possible_starts_alone():
    replays = [filled(Sequences(4, stride=stride), nesting="array")[0] for stride in (1, 4)]
    few = replays[1]._ring.tables["states4"]
    held = replays[1]._ring.serials() % replays[1]._ring.rows
    assert len(replays[0]._ring.tables["states1"]) == len(replays[0])
    assert len(few) == (replays[1]._ring.columns["step"][held] % 4 == 0).sum()


def test_states_that_are_missing_are_zeros():
    view = Sequences(1)
    streams = Streams(1, np.random.default_rng(0), ends=("run",))
    spec = streams.spec()
    replay = ReplayBuffer(10, spec, view=view, seed=0)
    (first, steps), streams.stateless = streams.rollout(2), 1.0
    second, more = streams.rollout(2)
    replay.extend(first)
    replay.extend(second)
    batch = replay._look.gather(np.arange(4), np.ones(4), None)
    assert_equal(batch.state, state_of(np.array([one.obs for one in steps] + [0, 0])))
    without = ReplayBuffer(10, replace(spec, state=None), view=view)
    without.extend(first)
    assert without.sample(2).state is None
    assert more[0].episode == steps[0].episode


def test_states_of_a_hand_written_loop_are_checked():
    spec = StepSpec(
        obs=LeafSpec((), np.dtype("f8")),
        action=LeafSpec((), np.dtype("i8")),
        num_envs=2,
        state=LeafSpec((3,), np.dtype("f4")),
    )
    columns = {
        "obs": np.zeros(2),
        "action": np.zeros(2, int),
        "reward": np.ones(2),
        "next_obs": np.zeros(2),
        "terminated": np.zeros(2, bool),
        "truncated": np.zeros(2, bool),
    }
    replay = ReplayBuffer(10, spec, view=Sequences(1))
    with pytest.raises(SpecError, match="'state'"):
        replay.add(**columns, state=np.ones((2, 4), np.float32))
    with pytest.raises(SpecError, match="state"):
        ReplayBuffer(10, replace(spec, state=None)).add(**columns, state=np.ones((2, 3), np.float32))
    replay.add(**columns, state=np.ones((2, 3), np.float32))
    assert_equal(replay.sample(1).state, np.ones((1, 3), np.float32))
    record = Streams(2, np.random.default_rng(0)).rollout(2)[0]
    other = ReplayBuffer(10, StepSpec.of(record), view=Sequences(1))
    with pytest.raises(SpecError, match="'state/h'"):
        other.extend(replace(record, state={"h": np.zeros((3, 2, 5))}))
    assert not len(other)


def test_states_are_saved(tmp_path):
    view = Sequences(3, stride=2)
    replay, _ = filled(view, stateless=0.3)
    replay.save(tmp_path / "replay")
    loaded = ReplayBuffer.load(tmp_path / "replay")
    loaded.check()
    assert loaded.view == view
    assert_equal(loaded.sample(20).state, replay.sample(20).state)
    other = ReplayBuffer.load(tmp_path / "replay", view=Sequences(3))
    other.check()
    assert not other.sample(20).state["h"].any()


@pytest.mark.parametrize(
    "arguments",
    ({"length": 0}, {"length": 2, "burn_in": 2}, {"length": 2, "burn_in": -1}, {"length": 2, "stride": 0}),
    ids=repr,
)
def test_sequences_refuses_what_cannot_be(arguments):
    with pytest.raises(ConfigError, match=r"Sequences\("):
        Sequences(**arguments)


def test_too_few_steps_are_refused_at_once():
    streams = Streams(2, np.random.default_rng(0), ends=("run",))
    for view in (Sequences(5), WholeEpisodes()):
        replay = ReplayBuffer(20, streams.spec(), view=view, seed=0)
        replay.extend(streams.rollout(4)[0])
        with pytest.raises(OutriderError, match="that the view can begin with"):
            replay.sample(1)


# -- whole episodes ----------------------------------------------------------------------------------------------------


def test_each_whole_episode_is_equally_likely():
    replay, model = filled(WholeEpisodes())
    index = np.concatenate([replay.sample(50).index for _ in range(100)])
    assert_equally_likely(index, starts(model, is_whole))


# -- hindsight ---------------------------------------------------------------------------------------------------------


def one_episode(view):
    """States s0 to s3, known by 1 to 4."""
    streams = Streams(1, np.random.default_rng(0), "goals", ends=("run",))
    _, steps = streams.steps([0, 0, 0])
    steps[-1] = replace(steps[-1], end="truncated")
    replay = ReplayBuffer(10, streams.spec(), view=view, seed=0)
    replay.extend(streams.record(steps))
    assert [one.obs for one in steps] == [1, 2, 3]
    return replay


@pytest.mark.parametrize(
    ("strategy", "goals"),
    (
        ("final", {0: {4}, 1: {4}, 2: {4}}),
        ("future", {0: {2, 3, 4}, 1: {3, 4}, 2: {4}}),
        ("episode", {0: {2, 3, 4}, 1: {2, 3, 4}, 2: {2, 3, 4}}),
    ),
)
def test_goals_of_one_episode(strategy, goals):
    view = replace(HINDSIGHT, strategy=strategy, k=3, gamma=0.9)
    replay = one_episode(view)
    stored = replay._ring.obs["desired_goal"].copy()
    batch = replay.sample(12_000)
    new = batch.obs["desired_goal"][:, 0] % 1 == 0
    # Three of four have another goal, and all that there are equally often.
    assert_frequencies([new.sum(), (~new).sum()], [3, 1])
    for step, expected in goals.items():
        found = batch.obs["desired_goal"][new & (batch.step == step), 0]
        assert_equally_likely(found, expected)
    assert_equal(batch.obs["desired_goal"][new], batch.next_obs["desired_goal"][new])
    assert_equal(batch.reward[new], (batch.step + 2.0 - batch.obs["desired_goal"][:, 0])[new])
    assert_equal(batch.terminated[new], (batch.reward == 0)[new])
    assert_equal(batch.discount, np.where(batch.terminated, 0.0, 0.9))
    assert_equal(batch.truncated, batch.step == 2)
    assert not batch.terminated[~new].any()
    assert_equal(batch.reward[~new], batch.step[~new] + 1.5)
    assert_equal(replay._ring.obs["desired_goal"], stored)


def test_goals_come_from_episodes_that_are_over():
    replay, model = filled(HINDSIGHT)
    possible = starts(model, is_over)
    batch = replay.sample(5_000)
    assert_equally_likely(batch.index, possible)
    places = [model.serials()[serial] for serial in batch.index.tolist()]
    windows, befores = [model.window(*place) for place in places], [model.before(*place) for place in places]
    changed = check_hindsight(batch, windows, befores, HINDSIGHT)
    assert_frequencies([sum(changed), len(changed) - sum(changed)], [4, 1])


def test_goal_functions_get_infos():
    streams = Streams(2, np.random.default_rng(0), "goals", ends=("truncated",))
    record = replace(streams.rollout(20)[0], info={"x": np.arange(40.0).reshape(20, 2), "_x": np.ones((20, 2), bool)})
    view = Hindsight(k=1, reward=lambda achieved, desired, info: info["x"], terminated=hindsight_terminated)
    replay = ReplayBuffer(100, StepSpec.of(record), view=view, seed=0)
    replay.extend(record)
    batch = replay.sample(200)
    # Serial numbers are those of the rows.
    new = batch.terminated
    assert 50 < new.sum() < 150
    assert_equal(batch.reward[new], batch.index[new].astype(np.float64))


@pytest.mark.parametrize(
    ("functions", "name"),
    (
        ({"reward": lambda achieved, desired, info: 0.0}, "reward"),
        ({"reward": lambda achieved, desired, info: achieved}, "reward"),
        ({"terminated": lambda achieved, desired, info: np.ones(len(achieved))}, "terminated"),
    ),
)
def test_what_goal_functions_return_is_checked(functions, name):
    replay = one_episode(replace(HINDSIGHT, **functions))
    with pytest.raises(SpecError, match=rf"Hindsight\({name}=\.\.\.\)"):
        replay.sample(50)


def test_goal_functions_that_return_the_wrong_kind_are_told_the_right_one():
    replay = one_episode(replace(HINDSIGHT, terminated=lambda achieved, desired, info: np.zeros(len(achieved))))
    with pytest.raises(
        SpecError, match=r"dtype float64\. To fix it: return one bool, e\.g\. distance < 0\.05, for each"
    ):
        replay.sample(50)
    replay = one_episode(replace(HINDSIGHT, reward=lambda achieved, desired, info: 0.0))
    with pytest.raises(SpecError, match="return one float, for each row"):
        replay.sample(50)


@pytest.mark.parametrize("name", ("reward", "terminated"))
def test_an_info_that_a_goal_function_misses_is_named(name):
    def wants(achieved, desired, info):
        return info["is_success"]

    replay = one_episode(replace(HINDSIGHT, **{name: wants}))
    words = rf"Hindsight\({name}=\.\.\.\): .*infos than \[\].*looks for 'is_success'.*info_keys="
    with pytest.raises(SpecError, match=words) as caught:
        replay.sample(50)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "changed",
    ({"strategy": "past"}, {"k": 0}, {"reward": None}, {"terminated": 1}, {"gamma": 2}, {"keys": ("a", "b")}),
    ids=repr,
)
def test_hindsight_refuses_what_cannot_be(changed):
    with pytest.raises(ConfigError):
        replace(HINDSIGHT, **changed)


def test_hindsight_needs_two_goals_of_one_kind():
    for nesting, keys in (("array", GoalKeys()), ("goals", GoalKeys("observation")), ("goals", GoalKeys("a", "b"))):
        with pytest.raises(SpecError, match="keys"):
            ReplayBuffer(10, Streams(1, np.random.default_rng(0), nesting).spec(), view=replace(HINDSIGHT, keys=keys))
    renamed = {"here": tree_of([1], "array"), "there": tree_of([2], "array")}
    record = Streams(1, np.random.default_rng(0), ends=("truncated",)).rollout(3)[0]
    obs = {name: np.repeat(leaf[None], 4, 0) for name, leaf in renamed.items()}
    record = replace(record, obs=obs, final_obs={name: leaf[:3, 0] for name, leaf in obs.items()})
    view = replace(HINDSIGHT, keys=GoalKeys("here", "there"))
    replay = ReplayBuffer(10, StepSpec.of(record), view=view, seed=0)
    replay.extend(record)
    assert (replay.sample(100).obs["there"] == 1).any()


def test_rows_that_come_twice_or_in_disorder_are_no_sequence():
    streams = Streams(1, np.random.default_rng(0))
    record = streams.record([Step(0, 1, at, 10 + at, 11 + at, "run", 0) for at in range(10)])
    for rows in ([0, 7, 2], [0, 1, 1, 3]):
        replay = ReplayBuffer(100, streams.spec(), view=Sequences(len(rows)))
        replay.extend(record[np.array(rows)])
        with pytest.raises(OutriderError, match="expected"):
            replay.sample(1)


def test_lanes_keep_the_numbers_that_they_have_elsewhere():
    streams = Streams(5, np.random.default_rng(0), "array")
    spec = replace(streams.spec(), num_envs=2)
    for view in (Transitions(), Sequences(1), WholeEpisodes()):
        replay = ReplayBuffer(200, spec, view=view, seed=0)
        replay.extend(streams.rollout(40)[0][:, [3, 4]])
        batch = replay.sample(30)
        assert set(getattr(batch, "episodes", batch).env_id.tolist()) == {3, 4}
