"""Random actions: members of the space, spread as they should be, and a function of seed, lane and lane step alone."""

import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from outrider import tree
from outrider.errors import ConfigError
from outrider.policies.base import Context
from outrider.policies.outputs import OutputSchema
from outrider.policies.random import RandomPolicy
from outrider.spaces import leaf_specs
from outrider.spec import specs_of

INF = np.inf
I64 = np.iinfo(np.int64)
U64 = np.iinfo(np.uint64)


def box(low, high, dtype=np.float32):
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


SPACES = {
    "discrete": spaces.Discrete(5),
    "start": spaces.Discrete(3, start=-1),
    "int8": spaces.Discrete(100, start=27, dtype=np.int8),
    "huge discrete": spaces.Discrete(I64.max),
    "multi-discrete": spaces.MultiDiscrete([2, 7]),
    "multi-discrete 2-D": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[-1, 0], [5, 9]]),
    "multi-binary": spaces.MultiBinary(4),
    "multi-binary 2-D": spaces.MultiBinary((2, 3)),
    "box": spaces.Box(-1, 1, (3,)),
    "box scalar": spaces.Box(-1, 1, ()),
    "box 10x10": spaces.Box(-1, 1, (10, 10)),
    "box empty": spaces.Box(-1, 1, (0,)),
    "box per element": box([-1.0, 0.0, 5.0], [3.0, 0.0, 5.5], np.float64),
    "box all floats": box([np.finfo(np.float64).min] * 2, [np.finfo(np.float64).max] * 2, np.float64),
    "box float16": box([-60000.0], [60000.0], np.float16),
    "box open": box([-INF, -2.0, -INF, -1.0], [INF, INF, 2.0, 1.0]),
    "box open float16": box([65504.0, -INF], [INF, -65504.0], np.float16),
    "box open float64": box([[-INF], [0.0]], [[0.0], [INF]], np.float64),
    "box uint8": spaces.Box(0, 255, (2, 2), np.uint8),
    "box int64": spaces.Box(I64.min, I64.max - 1, (2,), np.int64),
    "box uint64": spaces.Box(U64.max - 5, U64.max, (2,), np.uint64),
    "box bool": spaces.Box(0, 1, (3,), np.bool_),
    "box open int": spaces.Box(-INF, INF, (3,), np.int64),
    "box half open int8": spaces.Box(120, INF, (3,), np.int8),
    "box half open int": spaces.Box(-INF, 4, (3,), np.int32),
    "box mixed int": spaces.Box(np.array([-INF, 0.0, -INF, -3.0]), np.array([INF, INF, 9.0, 3.0]), dtype=np.int32),
    "nested": spaces.Dict(a=spaces.Tuple((spaces.Discrete(2), spaces.Box(-INF, INF, (2,)))), b=spaces.MultiBinary(2)),
}


def context(lanes, steps, seed=0):
    lanes = np.asarray(lanes, np.int64)
    steps = np.broadcast_to(np.asarray(steps, np.int64), lanes.shape)
    return Context(lanes, steps == 0, steps, steps, {}, seed)


def act(policy, lanes, steps=0, seed=0):
    return policy.act(None, None, context(lanes, steps, seed))["action"]


@pytest.mark.parametrize("name", SPACES)
def test_members_of_the_space_with_its_dtypes(name):
    space = SPACES[name]
    actions = act(RandomPolicy(space, seed=1), np.arange(300))
    OutputSchema.of({"action": actions}, 300, space)
    for row in range(300):
        member = tree.map(lambda leaf, row=row: leaf[row, ...], actions)
        assert space.contains(member), member
    assert specs_of(actions) == leaf_specs(space)


@given(
    seed=st.integers(0, 2**80),
    lanes=st.lists(st.integers(0, 10**6), min_size=1, max_size=6),
    step=st.integers(0, 2**40),
    name=st.sampled_from(sorted(SPACES)),
)
def test_a_pure_function_of_seed_lane_and_lane_step(seed, lanes, step, name):
    policy = RandomPolicy(SPACES[name], seed)
    together = act(policy, lanes, step)
    act(policy, lanes, step + 1)
    for row, lane in enumerate(lanes):
        alone = act(RandomPolicy(SPACES[name], seed), [lane], step)
        tree.map(lambda a, b, row=row: np.testing.assert_array_equal(a[0], b[row]), alone, together)


def test_another_seed_lane_step_or_element_gives_another_action():
    policy = RandomPolicy(spaces.Box(0, 1, (3,), np.float64), 0)
    base = act(policy, [0])
    others = [act(policy, [1]), act(policy, [0], 1), act(RandomPolicy(policy.space, 1), [0])]
    values = np.concatenate([base, *others]).reshape(-1)
    assert len(np.unique(values)) == 12


def test_seeds_beyond_64_bits_are_different_seeds():
    space = spaces.Box(0, 1, (1,), np.float64)
    assert act(RandomPolicy(space, 1), [0]) != act(RandomPolicy(space, 1 + 2**64), [0])


def test_leaves_of_equal_spaces_are_independent():
    actions = act(RandomPolicy(spaces.Tuple([spaces.Box(0, 1, (1,), np.float64)] * 2), 0), np.arange(5000))
    assert abs(np.corrcoef(actions[0][:, 0], actions[1][:, 0])[0, 1]) < 0.06


def test_without_a_seed_the_run_s_seed_counts():
    free, fixed = RandomPolicy(spaces.Discrete(1000)), RandomPolicy(spaces.Discrete(1000), 7)
    lanes = np.arange(20)
    for seed in (7, 8, 7):
        same = np.array_equal(act(free, lanes, seed=seed), act(fixed, lanes, seed=3))
        assert same == (seed == 7)


@pytest.mark.parametrize("space", (spaces.Discrete(3, start=-1), spaces.MultiDiscrete([6]), spaces.MultiBinary(1)))
def test_choices_are_equally_likely(space):
    actions = act(RandomPolicy(space, 2), np.arange(12_000)).reshape(-1)
    _, counts = np.unique(actions, return_counts=True)
    expected = 12_000 / len(counts)
    assert ((counts - expected) ** 2 / expected).sum() < 25


def test_a_small_integer_box_is_covered_with_both_ends():
    actions = act(RandomPolicy(spaces.Box(-2, 2, (1,), np.int8), 2), np.arange(200))
    assert sorted(set(actions.reshape(-1).tolist())) == [-2, -1, 0, 1, 2]


def test_distributions_of_a_box_are_gymnasium_s():
    space = box([-INF, -2.0, -INF, -1.0], [INF, INF, 2.0, 3.0], np.float64)
    normal, above, below, uniform = act(RandomPolicy(space, 4), np.arange(40_000)).T
    np.testing.assert_allclose([normal.mean(), normal.std()], [0, 1], atol=0.02)
    np.testing.assert_allclose([above.mean(), above.std(), above.min()], [-1, 1, -2], atol=0.03)
    np.testing.assert_allclose([below.mean(), below.std(), below.max()], [1, 1, 2], atol=0.03)
    np.testing.assert_allclose([uniform.mean(), uniform.std()], [1, 4 / 12**0.5], atol=0.03)
    np.testing.assert_allclose(np.quantile(normal, [0.025, 0.975]), [-1.96, 1.96], atol=0.05)


@pytest.mark.parametrize(
    "space",
    (
        spaces.Text(4),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((spaces.Text(4),))),
        spaces.Box(-1, 1, (2,), np.longdouble),
    ),
)
def test_spaces_without_rows_of_fixed_size_are_refused(space):
    with pytest.raises(ConfigError, match=r"RandomPolicy\(space\)"):
        RandomPolicy(space)


def test_the_refused_leaf_is_named():
    with pytest.raises(ConfigError, match=r"RandomPolicy\(space\)/b/0: .*found Text"):
        RandomPolicy(spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple((spaces.Text(4),))))


@pytest.mark.parametrize("seed", (-1, 0.5, True))
def test_bad_seeds_are_refused(seed):
    with pytest.raises(ConfigError, match="seed"):
        RandomPolicy(spaces.Discrete(2), seed)


def test_no_global_generator_is_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the legacy generator is what must stay as it is
    act(RandomPolicy(spaces.Discrete(2)), np.arange(4))
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002 - the same


def test_copies_act_alike():
    policy = RandomPolicy(SPACES["nested"], 3)
    for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        tree.map(np.testing.assert_array_equal, act(policy, [0, 4], 2), act(twin, [0, 4], 2))
