"""Noise of actions: its distribution, the Ornstein-Uhlenbeck process lane by lane, and what it leaves alone."""

import copy
from functools import partial

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import outrider
from outrider.errors import ConfigError, PolicyError
from outrider.kernels import normals
from outrider.policies.base import Context, Policy
from outrider.policies.streams import ACTION_NOISE, stream_key

BOX = spaces.Box(-1, 1, (2,), np.float64)
WIDE = spaces.Box(-100, 100, (), np.float64)


def context(lanes, lane_steps, steps, space=BOX, seed=0, num_envs=1):
    lanes, lane_steps, steps = (np.asarray(values, np.int64) for values in (lanes, lane_steps, steps))
    return Context(lanes, steps == 0, steps, lane_steps, {}, seed, num_envs, space)


def zeros(obs, space=BOX):
    return np.zeros((len(obs), *space.shape), space.dtype)


def act(policy, ctx):
    return policy.act(np.zeros((len(ctx.env_id), 1)), None, ctx)["action"]


def gaussian(std, **options):
    return outrider.ActionNoise(zeros, outrider.GaussianNoise(std), **options)


def ou(sigma=1.0, theta=0.15, dt=0.01, inner=zeros):
    return outrider.ActionNoise(inner, outrider.OrnsteinUhlenbeckNoise(sigma, theta, dt))


def plain_ou(lane, lane_step, step, k, theta=0.15, dt=0.01, seed=0):
    """The process, one number after the other: x of step `step` of an episode, step `lane_step` of the lane."""
    x = np.zeros(k)
    key = stream_key(seed, ACTION_NOISE)
    for when in range(lane_step - step, lane_step + 1):
        x = x - theta * x * dt + np.sqrt(dt) * normals(key, np.array([lane]), np.array([when]), k)[0]
    return x


# -- Gaussian noise ----------------------------------------------------------------------------------------------------


def test_gaussian_noise_is_normal_in_each_lane_step_and_element():
    noise = np.array(
        [act(gaussian(0.3), context(np.arange(100), np.full(100, t), np.full(100, t))) for t in range(100)]
    )
    edges = 0.3 * np.array([-1.2815515655, -0.5244005127, 0.0, 0.5244005127, 1.2815515655])
    counts = np.histogram(noise, [-np.inf, *edges, np.inf])[0]
    expected = noise.size * np.array([0.1, 0.2, 0.2, 0.2, 0.2, 0.1])
    assert ((counts - expected) ** 2 / expected).sum() < 20.5  # 5 degrees of freedom, p = 0.001
    for first, second in (
        (noise[1:], noise[:-1]),
        (noise[:, 1:], noise[:, :-1]),
        (noise[..., 0], noise[..., 1]),
    ):
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.03


def test_wrapped_noise_is_other_noise():
    ctx = context(np.arange(4000), np.zeros(4000), np.zeros(4000))
    one = outrider.ActionNoise(zeros, outrider.GaussianNoise(1.0))
    two = outrider.ActionNoise(one, outrider.GaussianNoise(1.0))
    first, both = act(one, ctx), act(two, ctx)
    assert abs(np.corrcoef(first.ravel(), (both - first).ravel())[0, 1]) < 0.05
    assert 1.3 < both.std() < 1.5


def test_another_seed_is_other_noise_and_none_moves_random_actions():
    ctx, other = (context([0, 1], [3, 3], [3, 3], seed=seed) for seed in (0, 1))
    policy = gaussian(1.0)
    first = act(policy, ctx)
    assert (first != act(policy, other)).all()
    np.testing.assert_array_equal(act(policy, ctx), first)


def test_a_schedule_gets_the_steps_of_all_lanes():
    asked = []
    policy = gaussian(lambda step: (asked.append(step), step / 10)[1])
    unit = act(gaussian(1.0), context([0, 1, 2], [4, 5, 4], [0, 0, 0]))
    found = act(policy, context([0, 1, 2], [4, 5, 4], [0, 0, 0], num_envs=3))
    assert asked == [12, 15]
    np.testing.assert_allclose(found, unit * np.array([[1.2], [1.5], [1.2]]))


# -- Ornstein-Uhlenbeck ------------------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=3),
    seed=st.integers(0, 3),
    theta=st.sampled_from((0.15, 1.0, 20.0)),
    order=st.randoms(use_true_random=False),
)
def test_each_lane_has_the_plain_process_whatever_the_batch(lengths, seed, theta, order):
    """Lanes take turns in any company; only those whose episode begins are reset; some decisions are made twice."""
    policy = ou(2.0, theta, 0.05)
    places = [
        [(lane_step, step) for lane_step, step in enumerate(step for n in lane for step in range(n))]
        for lane in lengths
    ]
    while waiting := [lane for lane, left in enumerate(places) if left]:
        lanes = order.sample(waiting, order.randint(1, len(waiting)))
        lane_steps, steps = zip(*(places[lane][0] for lane in lanes), strict=True)
        found = act(policy, context(lanes, lane_steps, steps, seed=seed))
        expected = [2 * plain_ou(lane, *places[lane][0], 2, theta=theta, dt=0.05, seed=seed) for lane in lanes]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        for lane in lanes:
            if order.random() < 0.8:
                places[lane].pop(0)


def test_to_the_bit_the_same_after_other_runs():
    """A policy that others use in between, for another run or the same steps, goes on as if they had not."""
    policy, alone = ou(), ou()
    for t in range(30):
        ctx = context([0, 5], [t, t + 2], [t % 7, t])
        np.testing.assert_array_equal(act(policy, ctx), act(alone, ctx))
        if t % 4 == 0:
            act(policy, context([0, 5, 9], [90 + t, 3, 1], [60, 3, 1], seed=t % 3))
        if t % 5 == 0:
            act(policy, context([0, 5], [2, 1], [2, 1]))


def test_runs_of_other_seeds_that_go_side_by_side_are_not_mixed():
    policy, alone = ou(), (ou(), ou())
    for t in range(10):
        for seed in (0, 1):
            ctx = context([0, 1], [t, t], [t, t], seed=seed)
            np.testing.assert_array_equal(act(policy, ctx), act(alone[seed], ctx))


def test_a_reset_touches_only_its_lane():
    policy, undisturbed = ou(), ou()
    for t in range(10):
        act(policy, context([0, 1], [t, t], [t, t]))
        act(undisturbed, context([0, 1], [t, t], [t, t]))
    reset = act(policy, context([0, 1], [10, 10], [0, 10]))
    kept = act(undisturbed, context([0, 1], [10, 10], [10, 10]))
    np.testing.assert_array_equal(reset[1], kept[1])
    np.testing.assert_allclose(reset[0], plain_ou(0, 10, 0, 2))
    assert (reset[0] != kept[0]).all()


def test_moments_are_those_of_the_process():
    theta, dt, sigma, steps = 2.0, 0.05, 0.5, 120
    policy = ou(sigma, theta, dt, partial(zeros, space=WIDE))
    lanes = np.arange(4000)
    ctxs = [context(lanes, np.full(4000, t), np.full(4000, t), WIDE) for t in range(steps)]
    x = np.array([act(policy, ctx) for ctx in ctxs])
    decay = 1 - theta * dt
    # Of x[t+1] = decay x[t] + sigma sqrt(dt) N: from one step after the start to the stationary process.
    variances = sigma**2 * dt * (1 - decay ** (2 * np.arange(1, steps + 1))) / (1 - decay**2)
    np.testing.assert_allclose(x.var(axis=1), variances, rtol=0.1)
    np.testing.assert_allclose(np.corrcoef(x[-2], x[-1])[0, 1], decay, atol=0.02)
    assert abs(x[-1].mean()) < 4 * np.sqrt(variances[-1] / 4000)


def test_a_schedule_of_sigma_scales_the_process():
    faded = ou(lambda step: 1 / (1 + step))
    for t in range(5):
        ctx = context([0], [t], [t])
        np.testing.assert_allclose(act(faded, ctx), [plain_ou(0, t, t, 2) / (1 + t)])


# -- actions -----------------------------------------------------------------------------------------------------------


def test_the_dtype_and_the_array_of_the_policy_stay_as_they_are():
    own = np.full((3, 2), 0.5, np.float32)
    own.flags.writeable = False
    found = act(
        outrider.ActionNoise(lambda obs: own, outrider.GaussianNoise(0.1)), context([0, 1, 2], [0] * 3, [0] * 3)
    )
    assert found.dtype == np.float32
    assert (found != own).all()
    assert (own == 0.5).all()


def test_only_boxes_of_floats_get_noise_each_its_own():
    space = spaces.Dict(n=spaces.Discrete(3), a=BOX, b=spaces.Tuple((BOX, spaces.Box(0, 9, (2,), np.int64))))
    own = {
        "a": np.zeros((50, 2)),
        "n": np.zeros(50, np.int64),
        "b": (np.zeros((50, 2), np.float32), np.ones((50, 2), np.int64)),
    }
    found = act(
        outrider.ActionNoise(lambda obs: own, outrider.GaussianNoise(1.0)),
        context(np.arange(50), [0] * 50, [0] * 50, space),
    )
    assert (found["n"] == 0).all()
    assert (found["b"][1] == 1).all()
    assert found["b"][0].dtype == np.float32
    assert abs(np.corrcoef(found["a"].ravel(), found["b"][0].ravel())[0, 1]) < 0.3
    assert (found["a"] != found["b"][0]).all()


def test_shapes_of_two_axes_and_none():
    for space in (spaces.Box(-1, 1, (3, 2)), spaces.Box(-1, 1, ())):
        ctx = context(np.arange(4), [0] * 4, [0] * 4, space)
        for policy in (ou(inner=partial(zeros, space=space)),):
            found = act(policy, ctx)
            assert found.shape == (4, *space.shape)
            assert len(np.unique(found)) == found.size


def test_clipping_is_in_the_policy_s_scale():
    ctx = context(np.arange(500), [0] * 500, [0] * 500)
    found = act(gaussian(5.0, clip=(-1, 0.5)), ctx)
    assert (found.min(), found.max()) == (-1, 0.5)
    found = act(gaussian(5.0, clip=([-1, -2], [1, 2])), ctx)
    np.testing.assert_array_equal(found.max(axis=0), [1, 2])
    assert np.abs(act(gaussian(5.0), ctx)).max() > 5


@pytest.mark.parametrize("map_name", ("auto", "clip", "rescale", None))
def test_noise_is_added_before_the_actions_are_mapped(map_name):
    """The same policy in [-1, 1] has the same noise, whatever becomes of it; what is stored is the sum."""

    def centre(obs):
        return np.zeros((len(obs), 1), np.float32)

    policy = outrider.ActionNoise(centre, outrider.GaussianNoise(0.7))
    with (
        outrider.make_vec("Pendulum-v1", 3, backend=outrider.Inline()) as envs,
        outrider.Collector(envs, policy, seed=0, action_map=map_name) as collector,
    ):
        rollout = collector.rollout(20)
    expected = [
        normals(stream_key(0, ACTION_NOISE), np.arange(3), np.full(3, t), 1).astype(np.float64) * 0.7 for t in range(20)
    ]
    np.testing.assert_allclose(rollout.action, np.array(expected, np.float32))


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", (-0.1, np.nan, np.inf, "1", None, True))
def test_scales_out_of_range(bad):
    with pytest.raises(ConfigError, match=r"GaussianNoise\(std\)"):
        outrider.GaussianNoise(bad)
    with pytest.raises(ConfigError, match=r"OrnsteinUhlenbeckNoise\(sigma\)"):
        outrider.OrnsteinUhlenbeckNoise(bad)
    with pytest.raises(PolicyError, match="at step 6"):
        act(gaussian(lambda step: bad), context([0], [3], [3], num_envs=2))


@pytest.mark.parametrize(("theta", "dt"), ((0, 0.1), (0.1, 0), (-1, 0.1), (1, np.nan), (2, 0.6), (float, 0.1)))
def test_a_process_that_would_overshoot_is_refused(theta, dt):
    with pytest.raises(ConfigError, match=r"OrnsteinUhlenbeckNoise\("):
        outrider.OrnsteinUhlenbeckNoise(1.0, theta, dt)


@pytest.mark.parametrize("clip", (1.0, (1,), (1, -1), (np.nan, 1), ("a", "b"), (0, 1, 2)))
def test_wrong_bounds_are_refused(clip):
    with pytest.raises(ConfigError, match=r"ActionNoise\(clip\)"):
        gaussian(0.1, clip=clip)


def test_bounds_of_another_shape_and_noise_of_another_kind_are_refused():
    policy = gaussian(0.1, clip=(np.zeros(3), np.ones(3)))
    with pytest.raises(ConfigError, match=r"shape \(2,\).*found shape \(3,\)"):
        policy.check_action_space(BOX)
    with pytest.raises(ConfigError, match="GaussianNoise"):
        outrider.ActionNoise(zeros, 0.1)


def test_spaces_without_floats_are_refused_when_a_collector_is_made():
    with (
        outrider.make_vec("CartPole-v1", 2, backend=outrider.Inline()) as envs,
        pytest.raises(ConfigError, match=r"Box of floats.*EpsilonGreedy"),
    ):
        outrider.Collector(envs, gaussian(0.1))


@pytest.mark.parametrize(
    ("output", "words"),
    (
        (np.zeros((3, 1)), r"shape \(3, 2\)"),
        (np.zeros((3, 2), np.int64), "floats"),
        (np.zeros((3, 2), np.int8), "floats, to add noise to"),
        ((np.zeros((3, 2)),), "one array"),
    ),
    ids=("shape", "integers", "small integers", "tuple"),
)
def test_wrong_actions_of_the_policy_are_refused(output, words):
    with pytest.raises(PolicyError, match=words):
        act(outrider.ActionNoise(lambda obs: output, outrider.GaussianNoise(1.0)), context([0, 1, 2], [0] * 3, [0] * 3))


# -- what stays the policy's own ---------------------------------------------------------------------------------------


class Own(Policy):
    """Has a convention, extras and a state."""

    actions = "unit"

    def initial_state(self, n):
        return np.zeros(n)

    def act(self, obs, state, ctx):
        action = np.zeros((len(obs), 1), np.float32)
        return {"action": action, "own": action.copy(), "state": state + 1}

    def deterministic(self):
        return self


def test_convention_extras_and_states_are_the_policy_s():
    policy = outrider.ActionNoise(Own(), outrider.OrnsteinUhlenbeckNoise(1.0))
    assert policy.actions == "unit"
    with (
        outrider.make_vec("Pendulum-v1", 2, backend=outrider.Inline()) as envs,
        outrider.Collector(envs, policy, seed=0) as collector,
    ):
        rollout = collector.rollout(20)
    np.testing.assert_array_equal(rollout.state[:20], rollout.step)
    assert (rollout.extras["own"] == 0).all()
    assert (rollout.action != 0).all()
    assert policy.deterministic() is policy.policy


def test_the_convention_can_be_set_on_the_wrapper():
    policy = gaussian(0.1)
    policy.actions = "unit"
    assert policy.policy.actions == "unit"


def test_copies_act_alike():
    policy = outrider.ActionNoise(gaussian(0.1), outrider.OrnsteinUhlenbeckNoise(lambda step: 1.0))
    for t in range(3):
        before = act(policy, context([0, 4], [t, t], [t, t]))
    for twin in (copy.deepcopy(policy), copy.copy(policy), cloudpickle.loads(cloudpickle.dumps(policy))):
        np.testing.assert_array_equal(act(twin, context([0, 4], [2, 2], [2, 2])), before)
        after = act(twin, context([0, 4], [3, 3], [3, 3]))
    np.testing.assert_array_equal(after, act(policy, context([0, 4], [3, 3], [3, 3])))
