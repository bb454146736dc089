"""Policies behind a normaliser: what they see, what is stored, and when statistics change."""

import copy

import cloudpickle
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import outrider
from helpers.envs import CounterEnv
from helpers.random_rollouts import counted_rollout
from outrider.errors import ConfigError, PolicyError, SpecError
from outrider.policies.base import Context, Policy
from outrider.torch import TorchPolicy

LANES, LENGTH = 4, 30


class Gain(Policy):
    """Acts on each row for itself, and says what it has seen."""

    actions = "env"
    gain = 1.0

    def act(self, obs, state, ctx):
        seen = obs.copy()
        obs[...] = np.nan  # what it is given is its own
        return {"action": np.tanh(self.gain * seen[:, :1]), "seen": seen}

    def load(self, tree):
        if not isinstance(tree, float):
            raise PolicyError("no number")
        self.gain = tree

    def deterministic(self):
        calm = Gain()
        calm.gain = self.gain
        return calm


def make_policy():
    return outrider.NormalizedPolicy(Gain(), outrider.ObsNormalizer())


def plan():
    return outrider.Envs("Pendulum-v1", LANES, max_episode_steps=11)


def in_one_process(backend):
    policy = make_policy()
    with (
        outrider.make_vec(plan(), backend=backend) as envs,
        outrider.Collector(envs, policy, seed=3) as collector,
    ):
        yield from learned(collector, policy.normalizer)


def in_workers():
    with outrider.ParallelCollector(plan(), make_policy, workers=2, seed=3) as collector:
        yield from learned(collector, outrider.ObsNormalizer())


def learned(collector, normalizer):
    """Rollouts with the statistics that they were decided by, and those after the last one."""
    for gain in (1.0, 2.0, 0.5):
        before = copy.copy(normalizer)
        rollout = collector.rollout(LENGTH)
        yield rollout, before
        normalizer.update(rollout)
        collector.publish({"weights": gain, "normalizer": normalizer.state_dict()})
    yield None, normalizer


PLACES = {
    "inline": lambda: in_one_process(outrider.Inline()),
    "threads": lambda: in_one_process(outrider.Threads(2)),
    "processes": lambda: in_one_process(outrider.Processes(2)),
    "first-finishers": lambda: in_one_process(outrider.Processes(2, wait_for=1)),
    "workers": in_workers,
}


@pytest.fixture(scope="module")
def reference():
    return list(PLACES["inline"]())


@pytest.mark.parametrize("place", PLACES)
def test_all_of_a_rollout_is_decided_by_the_same_statistics_wherever_environments_run(place, reference):
    versions = []
    for (rollout, normalizer), (theirs, their_normalizer) in zip(PLACES[place](), reference, strict=True):
        ours = normalizer.state_dict()
        assert ours.keys() == their_normalizer.state_dict().keys()
        for name, array in their_normalizer.state_dict().items():
            np.testing.assert_array_equal(ours[name], array)
        if rollout is None:
            continue
        versions += np.unique(rollout.version).tolist()
        assert np.isfinite(rollout.obs).all()
        np.testing.assert_array_equal(rollout.obs, theirs.obs)
        np.testing.assert_array_equal(rollout.action, theirs.action)
        np.testing.assert_array_equal(normalizer(rollout).obs[:-1], rollout.extras["seen"])
    assert versions == [0, 1, 2]
    assert ours["count/obs"] == 3 * LANES * LENGTH


def test_published_statistics_reach_exploration_and_modules_inside():
    module = torch.nn.Linear(4, 2)
    inside = outrider.NormalizedPolicy(TorchPolicy(module), outrider.ObsNormalizer())
    policy = outrider.ActionNoise(inside, outrider.GaussianNoise(0.0))
    normalizer = outrider.ObsNormalizer()
    normalizer.load_state_dict({"count/obs": 2, "mean/obs": [1.0] * 4, "squares/obs": [8.0] * 4})
    source = torch.nn.Linear(4, 2)
    policy.load({"weights": source, "normalizer": normalizer.state_dict()})
    assert torch.equal(module.weight, source.weight)
    obs = np.array([[1.0, 3.0, 5.0, 7.0]], np.float32)
    ctx = Context.start(1, 0, spaces.Box(-9, 9, (2,)))
    with torch.no_grad():
        wanted = source(torch.from_numpy(normalizer.normalize(obs))).numpy()
    np.testing.assert_allclose(policy.act(obs, None, ctx)["action"], wanted, rtol=1e-5)


def test_what_is_published_is_taken_as_a_whole_or_not_at_all():
    normalizer = counted_rollout()[0]
    policy = outrider.NormalizedPolicy(Gain(), normalizer)
    before, other = normalizer.state_dict(), counted_rollout()[0]
    other.update(counted_rollout()[2])
    for tree, error, words in (
        ("weights", PolicyError, r'^NormalizedPolicy\.load: expected a dict with the keys "weights" and "normalizer"'),
        ({"weights": 2.0}, PolicyError, r"found keys \['weights'\]"),
        ({"weights": "x", "normalizer": other.state_dict()}, PolicyError, "no number"),
        ({"weights": 2.0, "normalizer": {"count/obs": 3}}, SpecError, "^ObsNormalizer"),
    ):
        with pytest.raises(error, match=words):
            policy.load(tree)
        assert policy.policy.gain == 1.0
        assert all(np.array_equal(normalizer.state_dict()[name], before[name]) for name in before)
    frozen = outrider.NormalizedPolicy(Gain(), normalizer.frozen())
    with pytest.raises(ConfigError, match="frozen copy"):
        frozen.load({"weights": 2.0, "normalizer": other.state_dict()})
    assert frozen.policy.gain == 1.0
    policy.load({"weights": 2.0, "normalizer": other.state_dict()})
    assert (policy.policy.gain, normalizer.count) == (2.0, 72)


def test_evaluation_changes_no_statistics():
    policy = make_policy()
    with outrider.make_vec(plan()) as envs:
        with outrider.Collector(envs, policy, seed=0) as collector:
            policy.normalizer.update(collector.rollout(LENGTH))
        before = policy.normalizer.state_dict()
        calm, frozen = policy.deterministic(), outrider.NormalizedPolicy(Gain(), policy.normalizer.frozen())
        first = outrider.evaluate(envs, calm, episodes=LANES, seed=1)
        assert all(np.array_equal(policy.normalizer.state_dict()[name], before[name]) for name in before)
        with outrider.Collector(envs, policy, seed=5) as collector:
            policy.normalizer.update(collector.rollout(LENGTH))
        later, same = (outrider.evaluate(envs, one, episodes=LANES, seed=1) for one in (calm, frozen))
    assert calm.normalizer is policy.normalizer
    np.testing.assert_array_equal(same.returns, first.returns)
    assert (later.returns != first.returns).any()


def test_dummy_rows_of_foreign_sources_are_not_counted():
    envs = outrider.make_vec(SyncVectorEnv([lambda: CounterEnv(3)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP))
    normalizer = outrider.ObsNormalizer()
    with envs, outrider.Collector(envs, lambda obs: np.zeros(len(obs), np.int64), seed=0) as collector:
        rollout = collector.rollout(8)
        normalizer.update(rollout)
    assert not rollout.valid.all()
    # 0, 1 and 2 are acted upon; 3, the last observation, would be in the dummy's row.
    assert (normalizer.count, normalizer.moments["obs"].mean.tolist()) == (12, [1.0])


def test_copies_travel_with_their_statistics():
    policy = outrider.NormalizedPolicy(Gain(), counted_rollout()[0])
    obs, ctx = np.ones((2, 3), np.float32), Context.start(2)
    twin = cloudpickle.loads(cloudpickle.dumps(policy))
    np.testing.assert_array_equal(twin.act(obs.copy(), None, ctx)["seen"], policy.act(obs.copy(), None, ctx)["seen"])
    assert repr(policy).startswith("NormalizedPolicy(")


def test_only_an_obs_normalizer_goes_before_a_policy():
    for wrong in (outrider.RewardNormalizer(gamma=0.9), None):
        with pytest.raises(ConfigError, match=r"^NormalizedPolicy\(policy, normalizer\): expected an ObsNormalizer"):
            outrider.NormalizedPolicy(Gain(), wrong)
