"""What becomes of actions: what is stored, what the environments get, what is refused."""

import numpy as np
import pytest
from gymnasium import spaces

import outrider
from helpers.envs import NestedEnv, StrictEnv
from outrider import tree
from outrider.errors import ConfigError, PolicyError

INF = np.inf


class Fixed(outrider.Policy):
    """The same actions [lanes, ...] in every step, in a convention; other keys are extras."""

    def __init__(self, action, convention=None, **extras):
        self.output = {"action": action, **extras}
        self.actions = convention

    def act(self, obs, state, ctx):
        return dict(self.output)


def collect(space, policy, action_map="auto", *, lanes=1, strict=True):
    """One step: the actions that are stored [lanes, ...] and what each environment has received."""
    with (
        outrider.make_vec(lambda: StrictEnv(space, strict=strict), lanes) as envs,
        outrider.Collector(envs, policy, seed=0, action_map=action_map) as collector,
    ):
        rollout = collector.rollout(1)
        rollout.check()
        return tree.take(rollout.action, 0), [got[0] for got in envs.get_attr("received")], rollout


def box(low, high, dtype=np.float32):
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


def test_the_policys_own_action_is_stored_beside_its_log_prob_and_the_env_gets_a_member():
    policy = Fixed(np.array([[1.7], [-0.25]]), log_prob=np.array([-3.5, -1.25]))
    stored, received, rollout = collect(spaces.Box(-1, 1, (1,)), policy, lanes=2)
    assert stored.tolist() == [[1.7], [-0.25]]
    assert rollout.extras["log_prob"].tolist() == [[-3.5, -1.25]]
    assert [got.tolist() for got in received] == [[1.0], [-0.25]]
    assert received[0].dtype == np.float32


@pytest.mark.parametrize(
    ("low", "high", "action", "expected"),
    (
        (-2.0, 2.0, 0.5, 1.0),
        (-2.0, 2.0, 1.0, 2.0),
        (-1.0, 3.0, -1.0, -1.0),
        (-1.0, 3.0, 0.0, 1.0),
        (-1.0, 3.0, 1.0, 3.0),
        (-1.0, 3.0, 1.5, 3.0),
        (-1.0, 3.0, -7.0, -1.0),
        (5.0, 5.0, 0.3, 5.0),
        (-INF, INF, 100.0, 100.0),
        (0.0, INF, 100.0, 100.0),
        (0.0, INF, -1.0, 0.0),
    ),
)
def test_rescaling(low, high, action, expected):
    stored, received, _ = collect(box([low], [high]), Fixed(np.array([[action]], np.float32)), "rescale")
    assert stored.tolist() == [[np.float32(action)]]
    assert received[0].tolist() == [expected]


@pytest.mark.parametrize(
    ("low", "high", "action", "expected"),
    (
        (-2.0, 2.0, 2.0, 1.0),
        (-1.0, 3.0, 3.0, 1.0),
        (-1.0, 3.0, 1.0, 0.0),
        (-1.0, 3.0, -1.0, -1.0),
        (-INF, 1.0, -9.0, -9.0),
    ),
)
def test_an_action_of_the_environments_scale_is_stored_as_what_would_be_rescaled_to_it(low, high, action, expected):
    policy = Fixed(np.array([[action]], np.float32), "env")
    stored, received, _ = collect(box([low], [high]), policy, "rescale")
    assert stored.tolist() == [[expected]]
    assert received[0].tolist() == [action]
    # Only "rescale" changes what is stored.
    for other in ("auto", "clip", None):
        assert collect(box([low], [high]), policy, other)[0].tolist() == [[action]]


def test_a_replayed_warm_up_action_is_the_same_action():
    space = box([-2.0, -1.0, -INF], [2.0, 3.0, INF], np.float64)
    stored, received, _ = collect(space, outrider.RandomPolicy(space), "rescale", lanes=16)
    assert np.abs(stored[:, :2]).max() <= 1
    _, again, _ = collect(space, Fixed(stored), "rescale", lanes=16)
    np.testing.assert_allclose(np.array(again), np.array(received), rtol=0, atol=1e-15)


def test_the_convention_unit_rescales_by_itself_and_clip_overrides_it():
    policy = Fixed(np.array([[0.5]], np.float32), "unit")
    assert collect(spaces.Box(-2, 2, (1,)), policy)[1][0].tolist() == [1.0]
    assert collect(spaces.Box(-2, 2, (1,)), policy, "clip")[1][0].tolist() == [0.5]


@pytest.mark.parametrize("action_map", ("auto", "clip"))
def test_only_finite_bounds_clip(action_map):
    space = box([-INF, 0.0, -INF, -1.0], [INF, INF, 1.0, 1.0])
    action = np.array([[-1e30, -5.0, 5.0, INF]], np.float32)
    assert collect(space, Fixed(action), action_map)[1][0].tolist() == [np.float32(-1e30), 0.0, 1.0, 1.0]


def test_without_a_map_actions_pass_as_they_are():
    stored, received, _ = collect(spaces.Box(-1, 1, (1,)), Fixed(np.array([[1.7]], np.float32)), None, strict=False)
    assert stored.tolist() == [received[0].tolist()] == [[np.float32(1.7)]]
    assert collect(box([0], [9], np.int64), Fixed(np.array([[4]])), None)[1][0].tolist() == [4]


def test_boxes_of_integers_are_clipped_and_never_rescaled():
    space = box([0, 250], [10, 255], np.uint8)
    assert collect(space, Fixed(np.array([[-3, 1000]])))[1][0].tolist() == [0, 255]
    with (
        outrider.make_vec(lambda: StrictEnv(space), 1) as envs,
        pytest.raises(ConfigError, match=r"Boxes of floats.*'clip'"),
    ):
        outrider.Collector(envs, Fixed(np.array([[1, 1]])), action_map="rescale")


def test_integers_cannot_be_stored_in_the_unit_scale():
    with pytest.raises(PolicyError, match=r"floats.*int8"):
        collect(spaces.Box(-2, 2, (1,)), Fixed(np.array([[1]], np.int8), "env"), "rescale")


def test_a_discrete_that_does_not_start_at_zero():
    space = spaces.Discrete(3, start=-1)
    stored, received, _ = collect(space, Fixed(np.array([-1, 0, 1])), lanes=3)
    assert stored.tolist() == received == [-1, 0, 1]
    stored, received, _ = collect(space, Fixed(np.array([0, 1, 2]), "index"), lanes=3)
    assert (stored.tolist(), received) == ([0, 1, 2], [-1, 0, 1])
    with pytest.raises(PolicyError, match=r"lane 1: expected a member of Discrete\(3, start=-1\), found .*2.*'index'"):
        collect(space, Fixed(np.array([0, 2])), lanes=2)
    with pytest.raises(PolicyError, match="lane 0"):
        collect(space, Fixed(np.array([-1]), "index"))


def test_an_index_counts_from_the_start_of_each_element():
    space = spaces.MultiDiscrete([2, 3], start=[-1, 10])
    stored, received, _ = collect(space, Fixed(np.array([[1, 0]], np.int8), "index"))
    assert (stored.tolist(), received[0].tolist()) == ([[1, 0]], [0, 10])


@pytest.mark.parametrize("dtype", (np.int8, np.int32, np.uint64, np.bool_))
def test_any_integers_do_for_discrete(dtype):
    stored, received, _ = collect(spaces.Discrete(2), Fixed(np.array([0, 1], dtype)), lanes=2)
    assert stored.dtype == dtype
    assert received == [0, 1]
    assert type(received[0]) is np.int64


@pytest.mark.parametrize(
    ("space", "action"),
    (
        (spaces.MultiDiscrete([2, 7]), [[1, 6], [1, 7]]),
        (spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[-1, 0], [5, 9]]), [[[0, 2], [8, 13]], [[0, 2], [4, 13]]]),
        (spaces.MultiBinary(3), [[0, 1, 1], [0, 1, 2]]),
        (spaces.MultiBinary((2, 2)), [[[0, 1], [1, 1]], [[0, 1], [-1, 1]]]),
        (spaces.Discrete(256), [255, 256]),
    ),
)
def test_integers_out_of_range_are_refused_by_path_and_lane(space, action):
    good = np.array(action[0])
    assert len(collect(space, Fixed(np.array([good, good])), lanes=2)[1]) == 2
    with pytest.raises(PolicyError, match=r"'action', lane 1"):
        collect(space, Fixed(np.array(action)), lanes=2)
    nested = spaces.Dict(outer=spaces.Tuple((spaces.Discrete(1), space)))
    with pytest.raises(PolicyError, match=r"'action/outer/1', lane 1"):
        collect(nested, Fixed({"outer": (np.zeros(2, int), np.array(action))}), lanes=2)


@pytest.mark.parametrize("action_map", ("auto", "clip", "rescale", None))
@pytest.mark.parametrize("convention", (None, "env"))
def test_nan_is_refused_whatever_the_map(action_map, convention):
    policy = Fixed(np.array([[0.0, 0.0], [0.0, np.nan]], np.float32), convention)
    with pytest.raises(PolicyError, match=r"'action', lane 1: expected numbers, found .*nan"):
        collect(spaces.Box(-1, 1, (2,)), policy, action_map, lanes=2)


class Reversed(outrider.Policy):
    """Members of the action space of `NestedEnv`, the keys of each dict the other way round in every other step."""

    def act(self, obs, state, ctx):
        lane, step = ctx.env_id, ctx.lane_step
        bits = np.stack([lane % 2, step % 2], 1).astype(np.int8)
        move = (np.stack([lane * 0.5, step * -0.5], 1), lane % 3 - 1)
        action = {"move": move, "bits": bits}
        return {"action": action if step[0] % 2 else dict(reversed(action.items())), "value": step * 1.0}


@pytest.mark.parametrize("backend", (outrider.Inline(), outrider.Processes(workers=2, start_method="fork")))
def test_the_order_of_keys_does_not_matter(backend):
    with (
        outrider.make_vec(NestedEnv, 2, backend=backend) as envs,
        outrider.Collector(envs, Reversed(), seed=0) as collector,
    ):
        for step in range(4):
            rollout = collector.rollout(1)
            rollout.check()
            for lane, last in enumerate(envs.get_attr("last_action")):
                assert last["move"][0].tolist() == [lane * 0.5, max(step * -0.5, -2)]
                assert last["move"][1] == lane % 3 - 1
                assert last["bits"].tolist() == [lane % 2, step % 2]
                tree.map(
                    np.testing.assert_array_equal, tree.take(rollout.action, (0, lane)), dict(last, move=last["move"])
                )


SPACES = {
    "discrete": spaces.Discrete(5),
    "huge discrete": spaces.Discrete(np.iinfo(np.int64).max),
    "int8": spaces.Discrete(100, start=27, dtype=np.int8),
    "multi-discrete": spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[-1, 0], [5, 9]]),
    "multi-binary": spaces.MultiBinary((2, 3)),
    "box": spaces.Box(-1, 1, (3,)),
    "box scalar": spaces.Box(-1, 1, ()),
    "box 10x10": spaces.Box(-1, 1, (10, 10), np.float64),
    "box all floats": box([np.finfo(np.float64).min] * 2, [np.finfo(np.float64).max] * 2, np.float64),
    "box open": box([-INF, -2.0, -INF, -1.0], [INF, INF, 2.0, 1.0]),
    "box float16": box([-60000.0], [60000.0], np.float16),
    "box uint8": spaces.Box(0, 255, (2, 2), np.uint8),
    "box int64": spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max - 1, (2,), np.int64),
    "nested": spaces.Dict(a=spaces.Tuple((spaces.Discrete(2), spaces.Box(-INF, INF, (2,)))), b=spaces.MultiBinary(2)),
}


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("action_map", ("auto", "clip", "rescale", None))
def test_environments_get_members_of_their_space_only(name, action_map):
    space = SPACES[name]
    if action_map == "rescale" and name in ("box uint8", "box int64"):
        action_map = "clip"
    with (
        outrider.make_vec(lambda: StrictEnv(space), 3) as envs,
        outrider.Collector(envs, outrider.RandomPolicy(space), seed=0, action_map=action_map) as collector,
    ):
        rollout = collector.rollout(20)
        rollout.check()
        for leaf, spec in zip(tree.leaves(rollout.action), tree.leaves(collector.spec.action), strict=True):
            assert (leaf.shape[2:], leaf.dtype) == (spec.shape, spec.dtype)
        if action_map != "rescale":
            for lane, received in enumerate(envs.get_attr("received")):
                stored = tree.take(rollout.action, (slice(None), lane))
                tree.map(np.testing.assert_array_equal, stored, tree.stack(received))


def test_an_unknown_map_is_refused():
    with (
        outrider.make_vec(lambda: StrictEnv(spaces.Discrete(2)), 1) as envs,
        pytest.raises(ConfigError, match=r"action_map.*'tanh'"),
    ):
        outrider.Collector(envs, Fixed(np.array([0])), action_map="tanh")
