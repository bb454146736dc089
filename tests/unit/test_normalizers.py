"""Running statistics of observations and rewards against NumPy in double precision over all of the data."""

import copy
import dataclasses
import io
import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import outrider
from helpers.random_rollouts import I8, NESTED, PLAIN, counted_rollout, rollout_of
from outrider.errors import ConfigError
from outrider.normalizers.moments import Moments
from outrider.records import Episodes, StepSpec
from outrider.spec import LeafSpec


def sums_of(rollout, gamma):
    """Discounted sums so far of the valid rows, one after the other."""
    found = []
    for n in range(rollout.num_envs):
        running, episode = 0.0, None
        for t in range(rollout.length):
            if rollout.valid[t, n]:
                same = episode == rollout.episode_id[t, n]
                running = (running * gamma if same else 0.0) + rollout.reward[t, n]
                episode = rollout.episode_id[t, n]
                found.append(running)
    return np.array(found)


def same(one, other, rtol=1e-9):
    """Whether two normalisers have counted the same, but for rounding."""
    assert one.moments.keys() == other.moments.keys()
    for path, moments in one.moments.items():
        theirs = other.moments[path]
        assert moments.count == theirs.count
        np.testing.assert_allclose(moments.mean, theirs.mean, rtol, atol=1e-12)
        np.testing.assert_allclose(moments.variance, theirs.variance, rtol, atol=1e-12)
    return True


SEEDS = st.integers(0, 2**32 - 1)


@given(
    seed=SEEDS,
    cuts=st.lists(st.integers(1, 39), max_size=6),
    offset=st.sampled_from((0.0, 1e6)),
    dtype=st.sampled_from((np.float32, np.float64)),
)
def test_moments_of_parts_are_those_of_all_in_any_order(seed, cuts, offset, dtype):
    rng = np.random.default_rng(seed)
    rows = (offset + rng.normal(size=(40, 2))).astype(dtype)
    parts = [Moments.of(part) for part in np.split(rows, sorted(cuts)) if len(part)]
    rng.shuffle(parts)
    while len(parts) > 1:
        # Any tree of merges, not only a chain.
        one, other = (parts.pop(rng.integers(len(parts))) for _ in range(2))
        parts.append(one.joined(other))
    wide = rows.astype(np.float64)
    assert parts[0].count == 40
    np.testing.assert_allclose(parts[0].mean, wide.mean(0), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(parts[0].variance, wide.var(0), rtol=1e-8)


def test_a_mean_of_many_is_summed_in_double_precision():
    moments = Moments.of(np.full((300_000, 1), 0.1, np.float32))
    assert abs(moments.mean.item() - float(np.float32(0.1))) < 1e-15
    assert moments.variance.item() < 1e-30


def test_numbers_far_from_zero_keep_their_digits():
    rows = 1e12 + np.random.default_rng(0).normal(size=(131_072, 2))
    moments = Moments.of(rows)
    mean = math.fsum(rows[:, 0]) / len(rows)
    np.testing.assert_allclose(moments.mean[0], mean, rtol=1e-16)
    variance = math.fsum((rows[:, 0] - mean) ** 2) / len(rows)
    np.testing.assert_allclose(moments.variance[0], variance, rtol=1e-8)


@given(seed=SEEDS, dummies=st.sampled_from((0.0, 0.3)), form=st.sampled_from(("rollout", "steps", "torch", "parts")))
def test_each_observation_acted_upon_counts_once(seed, dummies, form):
    rollout = rollout_of(np.random.default_rng(seed), NESTED, dummies=dummies)
    parts = {
        "rollout": [rollout],
        "steps": [rollout.flatten()],
        "torch": [rollout.torch()],
        "parts": [rollout[:5], rollout[5:, :1].flatten(), rollout[5:, 1:]],
    }[form]
    normalizer = outrider.ObsNormalizer()
    for part in parts:
        normalizer.update(part)
    assert normalizer.moments.keys() == {"obs/speed", "obs/parts/0"}
    assert normalizer.count == rollout.valid.sum() == len(rollout)
    for path, leaf in (("obs/speed", rollout.obs["speed"]), ("obs/parts/0", rollout.obs["parts"][0])):
        rows = leaf[:-1][rollout.valid].astype(np.float64)
        np.testing.assert_allclose(normalizer.moments[path].mean, rows.mean(0), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(normalizer.moments[path].variance, rows.var(0), rtol=1e-9, atol=1e-12)


@given(
    seed=SEEDS,
    gamma=st.sampled_from((0.0, 0.9, 1.0)),
    dummies=st.sampled_from((0.0, 0.3)),
    objectives=st.sampled_from(((), (2,))),
    split=st.integers(1, 11),
)
def test_sums_of_rewards_go_on_over_parts(seed, gamma, dummies, objectives, split):
    rng = np.random.default_rng(seed)
    rollout = rollout_of(rng, dummies=dummies, objectives=objectives)
    whole, parts = (outrider.RewardNormalizer(gamma=gamma) for _ in range(2))
    whole.update(rollout)
    for lanes in rng.permutation(3):
        parts.update(rollout[:split, [lanes]])
    second = rollout[split:].flatten()
    # A restart in between, and rows of lanes in another order.
    again = outrider.RewardNormalizer(gamma=gamma)
    again.load_state_dict(parts.state_dict())
    again.update(second[rng.permutation(len(second))])
    assert same(whole, again)
    sums = sums_of(rollout, gamma)
    assert whole.count == len(sums)
    np.testing.assert_allclose(whole.moments["reward"].mean, sums.mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whole.moments["reward"].variance, sums.var(0), rtol=1e-9, atol=1e-12)
    scaled = np.clip(rollout.reward / np.sqrt(sums.var(0) + 1e-8), -10, 10)
    np.testing.assert_allclose(whole(rollout).reward, scaled, rtol=1e-6)


def test_a_sum_begins_anew_behind_steps_that_are_missing():
    rollout = dataclasses.replace(
        StepSpec(obs=PLAIN, action=LeafSpec((), I8), num_envs=1).zeros(6), reward=np.arange(1.0, 7.0)[:, None]
    )
    normalizer = outrider.RewardNormalizer(gamma=0.5)
    normalizer.update(rollout[:2])
    normalizer.update(rollout[4:])
    np.testing.assert_allclose(normalizer.moments["reward"].mean, np.mean([1, 2.5, 5, 8.5]))
    normalizer.update(rollout[2:3])  # older than what was counted last
    np.testing.assert_allclose(normalizer.moments["reward"].mean, np.mean([1, 2.5, 5, 8.5, 3]))


def test_a_sum_does_not_go_on_into_the_middle_of_another_episode():
    """Steps 0 and 1 of one, step 2 of the next: the numbers of steps alone would look like one episode."""
    rollout = StepSpec(obs=PLAIN, action=LeafSpec((), I8), num_envs=1).zeros(3)
    ids = np.array([[0], [0], [1]])
    rollout = dataclasses.replace(rollout, reward=np.ones((3, 1)), episode_id=ids)
    for parts in ([rollout], [rollout[:2], rollout[2:]]):
        normalizer = outrider.RewardNormalizer(gamma=0.5)
        for part in parts:
            normalizer.update(part)
        np.testing.assert_allclose(normalizer.moments["reward"].mean, np.mean([1, 1.5, 1]))


def test_episodes_are_counted_as_their_steps():
    rollout = rollout_of(np.random.default_rng(3))
    for make in (outrider.ObsNormalizer, lambda: outrider.RewardNormalizer(gamma=0.9)):
        one, other = make(), make()
        one.update(rollout)
        episodes = rollout.segments()
        assert isinstance(episodes, Episodes)
        other.update(episodes)
        assert same(one, other)


@given(seed=SEEDS, workers=st.integers(1, 4))
def test_merges_are_the_same_in_any_order(seed, workers):
    rng = np.random.default_rng(seed)
    rollouts = [rollout_of(rng, offset=float(rng.normal() * 100)) for _ in range(workers)]
    for make in (outrider.ObsNormalizer, lambda: outrider.RewardNormalizer(gamma=0.9)):
        each = [make() for _ in rollouts]
        for normalizer, rollout in zip(each, rollouts, strict=True):
            normalizer.update(rollout)
        each.append(make())  # one that has counted nothing
        one, other = make(), make()
        for normalizer in each:
            one.merge(normalizer)
        for index in rng.permutation(len(each)):
            other.merge(each[index])
        assert same(one, other)
        assert one.count == 36 * workers
        if isinstance(one, outrider.ObsNormalizer):
            rows = np.concatenate([rollout.obs[:-1].reshape(-1, 3) for rollout in rollouts]).astype(np.float64)
            np.testing.assert_allclose(one.moments["obs"].mean, rows.mean(0), rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(one.moments["obs"].variance, rows.var(0), rtol=1e-9)


@pytest.fixture
def counted():
    return counted_rollout()


def expected_obs(normalizer, obs):
    moments = normalizer.moments["obs"]
    wide = (obs.astype(np.float64) - moments.mean) / np.sqrt(moments.variance + normalizer.epsilon)
    return np.clip(wide, -normalizer.clip, normalizer.clip).astype(obs.dtype)


def test_records_are_put_on_scale_with_their_true_next_observations(counted):
    normalizer, rewards, rollout = counted
    before = copy.deepcopy(rollout)
    found = rewards(normalizer(rollout))
    np.testing.assert_array_equal(found.next_obs, expected_obs(normalizer, rollout.next_obs))
    np.testing.assert_array_equal(found.obs, expected_obs(normalizer, rollout.obs))
    assert found.obs.dtype == np.float32
    assert found.reward.dtype == np.float64
    np.testing.assert_array_equal(rollout.obs, before.obs)
    np.testing.assert_array_equal(rollout.final_obs, before.final_obs)
    np.testing.assert_array_equal(rollout.reward, before.reward)
    np.testing.assert_array_equal(normalizer(rollout.flatten()).next_obs, found.flatten().next_obs)
    np.testing.assert_array_equal(normalizer(rollout.segments()).obs, found.segments().obs)


VIEWS = {
    "transitions": outrider.Transitions(n_step=2),
    "sequences": outrider.Sequences(3, pad=True),
    "episodes": outrider.WholeEpisodes(),
}


@pytest.mark.parametrize("tensors", (False, True))
@pytest.mark.parametrize("name", VIEWS)
def test_samples_are_put_on_scale_and_what_is_stored_stays_raw(name, tensors):
    with outrider.make_vec("Pendulum-v1", 2) as envs:
        collector = outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0)
        rollout = collector.rollout(401)
        replay = outrider.ReplayBuffer(1000, collector.spec, view=VIEWS[name], seed=0)
    normalizer, rewards = outrider.ObsNormalizer(clip=1.5), outrider.RewardNormalizer(gamma=0.99, clip=0.5)
    for counting in (normalizer, rewards):
        counting.update(rollout)
    replay.extend(rollout)
    raw = replay.sample(4)
    given_ = raw.torch() if tensors else raw
    found = rewards(normalizer(given_))
    assert type(found) is type(raw)
    raw, found = (one.episodes if name == "episodes" else one for one in (raw, found))
    columns = ("obs", "next_obs") if name == "transitions" else ("obs",)
    for column in columns:
        scaled = getattr(found, column)
        assert isinstance(scaled, torch.Tensor) == tensors
        assert str(scaled.dtype).endswith("float32")
        np.testing.assert_array_equal(np.asarray(scaled), expected_obs(normalizer, getattr(raw, column)))
    deviation = math.sqrt(rewards.moments["reward"].variance + 1e-8)
    np.testing.assert_allclose(np.asarray(found.reward), np.clip(raw.reward / deviation, -0.5, 0.5), rtol=1e-5)


def test_leaves_that_are_no_floats_are_left_alone():
    rollout = rollout_of(np.random.default_rng(0), NESTED)
    normalizer = outrider.ObsNormalizer()
    normalizer.update(rollout)
    found = normalizer(rollout)
    assert found.obs["image"] is rollout.obs["image"]
    assert found.obs["parts"][1] is rollout.obs["parts"][1]
    assert found.obs["speed"].dtype == np.float64
    assert abs(found.obs["speed"][:-1].std((0, 1)) - 1).max() < 1e-6


def test_before_the_first_update_nothing_changes(counted):
    rollout = counted[-1]
    assert outrider.ObsNormalizer().count == 0
    assert outrider.ObsNormalizer()(rollout).obs is rollout.obs
    assert outrider.RewardNormalizer(gamma=0.9)(rollout).reward is rollout.reward


def test_no_valid_rows_count_nothing(counted):
    normalizer, _, rollout = counted
    normalizer.update(dataclasses.replace(rollout, valid=np.zeros_like(rollout.valid)).flatten())
    assert normalizer.count == 36


def test_no_clip_is_an_infinite_one(counted):
    rollout = counted[-1]
    normalizer = outrider.ObsNormalizer(clip=math.inf)
    normalizer.update(rollout)
    assert normalizer.normalize(np.full((1, 3), 1e6, np.float32)).min() > 1e5
    assert counted[0].normalize(np.full((1, 3), 1e6, np.float32)).tolist() == [[10.0] * 3]


def through_npz(state):
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    return np.load(file)


def through_json(state):
    return json.loads(json.dumps({name: array.tolist() for name, array in state.items()}))


@pytest.mark.parametrize("travel", (dict, through_npz, through_json), ids=("dict", "npz", "json"))
def test_is_saved_and_restored_bit_for_bit(counted, travel):
    more = rollout_of(np.random.default_rng(1), NESTED)
    nested = outrider.ObsNormalizer()
    nested.update(more)
    for normalizer in (*counted[:2], nested):
        new = outrider.RewardNormalizer(gamma=0.9) if normalizer is counted[1] else outrider.ObsNormalizer()
        assert travel(new.state_dict()).keys() == set()
        new.load_state_dict(travel(normalizer.state_dict()))
        for name, array in normalizer.state_dict().items():
            np.testing.assert_array_equal(new.state_dict()[name], array)
        for one in (normalizer, new):
            one.update(more if normalizer is nested else counted[-1])
        for name, array in normalizer.state_dict().items():
            np.testing.assert_array_equal(new.state_dict()[name], array)


def test_what_was_saved_does_not_change_with_it(counted):
    state = counted[0].state_dict()
    before = {name: array.copy() for name, array in state.items()}
    counted[0].update(counted[-1])
    assert all(np.array_equal(state[name], before[name]) for name in before)
    state["mean/obs"][...] = np.nan
    assert counted[0].moments["obs"].is_finite


def test_frozen_copies_stay_and_refuse_to_change(counted):
    for normalizer in counted[:2]:
        frozen = normalizer.frozen()
        before = frozen.state_dict()
        normalizer.update(rollout_of(np.random.default_rng(9), offset=50.0))
        assert normalizer.count == 72
        assert frozen.count == 36
        for call in (
            lambda frozen=frozen: frozen.update(counted[-1]),
            lambda frozen=frozen, other=normalizer: frozen.merge(other),
            lambda frozen=frozen, other=normalizer: frozen.load_state_dict(other.state_dict()),
        ):
            with pytest.raises(ConfigError, match="expected statistics that may change, found a frozen copy"):
                call()
        for travelled in (frozen, pickle.loads(pickle.dumps(frozen))):
            for name, array in before.items():
                np.testing.assert_array_equal(travelled.state_dict()[name], array)
            with pytest.raises(ConfigError, match="frozen"):
                travelled.update(counted[-1])
