"""Cases with known right answers."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import outrider
from helpers.envs import CounterEnv

KINDS = {"arrays": lambda array: array, "tensors": torch.from_numpy}
kinds = pytest.mark.parametrize("kind", tuple(KINDS.values()), ids=tuple(KINDS))


def flags(length, *ends):
    found = np.zeros(length, bool)
    found[list(ends)] = True
    return found


@kinds
@pytest.mark.parametrize(
    ("end", "expected"),
    (
        ("truncated", [17.8128, 12.24, 4.5, 15.48, 9]),
        ("cut", [17.8128, 12.24, 4.5, 15.48, 9]),
        ("terminated", [1.4832, -10.44, -27, 15.48, 9]),
        ("both", [1.4832, -10.44, -27, 15.48, 9]),
    ),
)
def test_gae_over_an_end(kind, end, expected):
    reward, value = np.arange(1.0, 6.0), np.arange(10.0, 60.0, 10.0)
    next_value = np.array([20.0, 30.0, 35.0, 50.0, 60.0])
    none, over = flags(5), flags(5, 2)
    terminated = over if end in ("terminated", "both") else none
    truncated = over if end in ("truncated", "both") else none
    arrays = map(kind, (reward, value, next_value, terminated, truncated))
    found = outrider.gae(*arrays, gamma=0.9, lam=0.8, cut=kind(over if end == "cut" else none))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


@kinds
def test_gae_of_two_episodes(kind):
    reward, value = np.arange(1.0, 6.0), np.arange(1, 6) / 10
    next_value = np.append(value[1:], 0.7)
    found = outrider.gae(*map(kind, (reward, value, next_value, flags(5, 2), flags(5))), gamma=0.99, lam=0.9)
    np.testing.assert_allclose(np.asarray(found), [5.109906, 4.5027, 2.7, 8.721963, 5.193], atol=5e-7)


@kinds
@pytest.mark.parametrize(
    ("end", "discounts"), (("truncated", [0.125, 0.25, 0.5, 0.125]), ("terminated", [0, 0, 0, 0.125]))
)
def test_n_steps_over_an_end(kind, end, discounts):
    reward, none, over = 2.0 ** np.arange(7), flags(7), flags(7, 3)
    ends = [kind(over if end == name else none) for name in ("terminated", "truncated")]
    rewards = outrider.n_step(kind(reward), kind(np.zeros(7)), *ends, gamma=0.5, n=3)
    # The discount of what follows is what is left of a value of 1.
    discount = outrider.n_step(kind(np.zeros(7)), kind(np.ones(7)), *ends, gamma=0.5, n=3)
    assert len(rewards) == len(discount) == 7
    assert rewards[1:5].tolist() == [6, 8, 8, 48]
    assert discount[1:5].tolist() == discounts


def test_three_steps_over_a_seam_and_without_one():
    reward, none = np.ones(3), flags(3)
    both = [outrider.n_step(reward, np.zeros(3), none, none, gamma=0.99, n=3, cut=cut) for cut in (flags(3, 1), None)]
    assert [one[0] for one in both] == pytest.approx([1.99, 2.9701])


class Constant(CounterEnv):
    """The observation never changes, so that one number is the value of all."""

    def observation(self):
        return np.ones(1, np.float32)


@pytest.mark.parametrize("lam", (0.0, 0.95, 1.0))
def test_the_value_of_an_endless_reward_under_a_time_limit(lam):
    plan = outrider.Envs(lambda: Constant(10**9), 4, max_episode_steps=8)
    with outrider.make_vec(plan, backend=outrider.Inline()) as envs:
        policy = outrider.RandomPolicy(envs.single_action_space)
        rollout = outrider.Collector(envs, policy, seed=0).rollout(50)
    assert rollout.truncated.sum() == 4 * (50 // 8)
    value = 0.0
    for _ in range(400):
        columns = outrider.advantages(rollout, lambda obs, v=value: v * obs[:, 0].astype(float), gamma=0.98, lam=lam)
        value = columns["target"].mean()
    assert value == pytest.approx(50, abs=1)


class Line(gymnasium.Env):
    """The observation is the place, which is never that of a reset again; rewards are 1."""

    observation_space = spaces.Box(0.0, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 100.0
        return np.array([self.place]), {}

    def step(self, action):
        self.place += 1
        return np.array([self.place]), 1.0, False, False, {}


def test_a_cut_in_the_middle_of_a_rollout():
    with outrider.make_vec(Line, 3, backend=outrider.Inline()) as envs:
        policy, options = outrider.RandomPolicy(envs.single_action_space), outrider.CollectOptions(desynchronise=8)
        rollout = outrider.Collector(envs, policy, seed=0, options=options).rollout(10)
    assert rollout.cut[:-1].sum() >= 2
    seen = []

    def critic(obs):
        seen.append(len(obs))
        return obs[:, 0]

    following = rollout.next_values(critic)
    # The place that each step has led to: never that of a reset, 100.
    np.testing.assert_array_equal(following, rollout.obs[:-1, :, 0] + 1)
    assert seen == [11 * 3 + rollout.cut.sum()]
    # Rewards and values of 1: whatever is bootstrapped from, the advantage is that of an endless episode, cut or not.
    columns = outrider.advantages(rollout, lambda obs: np.full(len(obs), 50.0), gamma=0.98, lam=0.95)
    np.testing.assert_allclose(columns["advantage"], 0, atol=1e-12)
    steps = outrider.n_step(
        rollout.reward, following * 0, rollout.terminated, rollout.truncated, gamma=1.0, n=10, cut=rollout.cut
    )
    for t, lane in np.argwhere(rollout.cut):
        assert steps[t, lane] == 1
        assert (steps[:t, lane] <= t + 1).all()
