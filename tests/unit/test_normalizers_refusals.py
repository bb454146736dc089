"""What normalisers refuse, and that nothing has been counted then."""

import dataclasses
import math
import re

import numpy as np
import pytest

import outrider
from helpers.random_rollouts import F4, F8, I8, PLAIN, U1, counted_rollout, rollout_of
from outrider.errors import ConfigError, SpecError
from outrider.records import StepSpec
from outrider.spec import LeafSpec


@pytest.fixture
def counted():
    return counted_rollout()


def with_obs(rollout, value, at=(3, 1, 2)):
    obs = rollout.obs.copy()
    obs[at] = value
    return dataclasses.replace(rollout, obs=obs)


@pytest.mark.parametrize("value", (np.nan, np.inf, -np.inf))
def test_numbers_that_are_not_finite_are_refused_and_nothing_is_counted(counted, value):
    normalizer, rewards, rollout = counted
    before = normalizer.state_dict() | rewards.state_dict()
    with pytest.raises(SpecError, match=r"^ObsNormalizer\.update\(record\): expected finite numbers .* 'obs'"):
        normalizer.update(with_obs(rollout, value))
    with pytest.raises(SpecError, match=r"^ObsNormalizer\.update"):
        outrider.ObsNormalizer().update(with_obs(rollout, value))
    reward = rollout.reward.copy()
    reward[2, 2] = value
    with pytest.raises(SpecError, match=r"^RewardNormalizer\.update\(record\): expected finite numbers .* 'reward'"):
        rewards.update(dataclasses.replace(rollout, reward=reward))
    after = normalizer.state_dict() | rewards.state_dict()
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_rows_that_do_not_count_may_hold_anything(counted):
    normalizer, _, rollout = counted
    valid = rollout.valid.copy()
    valid[3, 1] = False
    normalizer.update(dataclasses.replace(with_obs(rollout, np.nan), valid=valid))
    normalizer.update(with_obs(rollout, np.nan, (-1, 0, 0)))  # the newest one has not been acted upon
    assert normalizer.count == 36 + 35 + 36


def test_numbers_whose_squares_are_not_finite_are_refused(counted):
    spec = StepSpec(obs=LeafSpec((), F8), action=LeafSpec((), I8), num_envs=1)
    rollout = dataclasses.replace(spec.zeros(2), obs=np.array([[1e200], [-1e200], [0.0]]))
    with pytest.raises(SpecError, match="whose squares are finite"):
        outrider.ObsNormalizer().update(rollout)


@pytest.mark.parametrize(
    ("call", "words"),
    (
        (lambda obs, reward, rollout: obs.update(rollout.obs), "Rollout, Steps or Episodes.*ndarray"),
        (lambda obs, reward, rollout: obs(rollout.obs), "a record or a batch.*ndarray"),
        (lambda obs, reward, rollout: obs(rollout.flatten().obs_index), "a record or a batch.*slice"),
        (lambda obs, reward, rollout: obs(PLAIN), "one of .*'obs'.*LeafSpec"),
        (lambda obs, reward, rollout: obs.normalize(rollout.obs[..., :2]), r"'obs'.*\[\.\.\., 3\].*\[13, 3, 2\]"),
        (lambda obs, reward, rollout: obs.normalize(rollout.obs.astype(int)), "floats.*int64"),
        (lambda obs, reward, rollout: obs.normalize({"a": rollout.obs}), r"the leaves \['obs'\].*\['obs/a'\]"),
        (lambda obs, reward, rollout: reward.normalize(np.ones(2, int)), "'reward'.*floats.*int64"),
        (lambda obs, reward, rollout: obs.load_state_dict([1]), "a mapping of names.*list"),
        (lambda obs, reward, rollout: obs.load_state_dict({"count/obs": 3}), "the names.*mean/obs.*squares/obs"),
        (lambda obs, reward, rollout: obs.load_state_dict(obs.state_dict() | {"count/obs": 0}), "'obs'"),
        (lambda obs, reward, rollout: obs.load_state_dict(obs.state_dict() | {"mean/obs": "x"}), "expected numbers"),
        (lambda obs, reward, rollout: obs.load_state_dict(obs.state_dict() | {"squares/obs": [-1.0] * 3}), "'obs'"),
        (lambda obs, reward, rollout: obs.load_state_dict(obs.state_dict() | {"mean/obs": [np.nan] * 3}), "'obs'"),
        (lambda obs, reward, rollout: obs.load_state_dict(obs.state_dict() | {"count/obs": 2.5}), "expected numbers"),
        (
            lambda obs, reward, rollout: obs.load_state_dict({"count/obs": 2, "mean/obs": [0.0], "squares/obs": [1.0]}),
            "leaves as before",
        ),
        (lambda obs, reward, rollout: obs.load_state_dict(reward.state_dict()), "the names"),
        (lambda obs, reward, rollout: reward.load_state_dict(obs.state_dict()), "leaves as before"),
        (
            lambda obs, reward, rollout: outrider.RewardNormalizer(gamma=0.9).load_state_dict(obs.state_dict()),
            "moments of the reward",
        ),
        (
            lambda obs, reward, rollout: reward.load_state_dict(reward.state_dict() | {"lanes/step": [1]}),
            "columns of 3 lanes",
        ),
    ),
    ids=lambda case: re.sub(r"\W+", "-", case)[:24] if isinstance(case, str) else "",
)
def test_what_makes_no_sense_is_refused(counted, call, words):
    before = counted[0].state_dict() | counted[1].state_dict()
    with pytest.raises(SpecError, match=f"^(Obs|Reward)Normalizer.*{words}.* To fix it: "):
        call(*counted)
    after = counted[0].state_dict() | counted[1].state_dict()
    assert all(np.array_equal(after[name], before[name]) for name in before)


def test_samples_of_a_replay_buffer_are_not_counted_again(counted):
    replay = outrider.ReplayBuffer(100, StepSpec(obs=PLAIN, action=LeafSpec((), I8), num_envs=3), seed=0)
    replay.extend(counted[-1])
    with pytest.raises(SpecError, match=r"TransitionBatch.*samples of a replay buffer repeat steps"):
        counted[0].update(replay.sample(4))


def test_other_environments_are_refused_by_an_update(counted):
    normalizer, _, _ = counted
    for obs in (LeafSpec((4,), F4), {"obs": PLAIN}):
        with pytest.raises(SpecError, match="expected leaves as before"):
            normalizer.update(rollout_of(np.random.default_rng(0), obs))
    assert normalizer.count == 36
    with pytest.raises(SpecError, match=r"a leaf of floats, found \{'obs': 'uint8'\}.*obs / 255"):
        outrider.ObsNormalizer().update(rollout_of(np.random.default_rng(0), LeafSpec((4, 4), U1)))


def test_only_the_same_settings_are_merged(counted):
    obs, reward, _ = counted
    for one, other in (
        (obs, reward),
        (obs, outrider.ObsNormalizer(clip=5.0)),
        (reward, outrider.RewardNormalizer(gamma=0.99)),
        (reward, None),
    ):
        with pytest.raises(ConfigError, match="the same settings"):
            one.merge(other)


@pytest.mark.parametrize("bad", (0, -1.0, math.nan, True, "10", None))
def test_settings_are_checked(bad):
    for name in ("clip", "epsilon"):
        with pytest.raises(ConfigError, match=rf"^ObsNormalizer\({name}\): expected a number above 0"):
            outrider.ObsNormalizer(**{name: bad})
    if bad != 0 or isinstance(bad, bool):
        with pytest.raises(ConfigError, match=r"^RewardNormalizer\(gamma\): expected a number from 0 to 1"):
            outrider.RewardNormalizer(gamma=bad)
