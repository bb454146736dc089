"""What hand-written loops add, and what they are told when it does not fit."""

import numpy as np
import pytest

from helpers.plain_rows import assert_equal
from outrider import ConfigError, Prioritized, ReplayBuffer, SpecError, StepSpec, Transitions
from outrider.spec import LeafSpec, RaggedSpec

SPEC = StepSpec(
    obs={"place": LeafSpec((2,), "f4"), "eye": LeafSpec((2, 2), "u1")},
    action=LeafSpec((), "i4"),
    num_envs=2,
    extras={"value": LeafSpec((), "f4")},
)


def columns(**changed):
    """Columns that are right, but for some."""
    obs = {"place": np.array([[1, 2], [3, 4]], "f4"), "eye": np.arange(8, dtype="u1").reshape(2, 2, 2)}
    right = {
        "obs": obs,
        "action": np.array([5, 6], "i4"),
        "reward": np.array([0.5, 1.5]),
        "next_obs": {"place": obs["place"] + 1, "eye": obs["eye"] + 1},
        "terminated": np.array([True, False]),
        "truncated": np.zeros(2, bool),
        "value": np.array([0.25, 0.75], "f4"),
    }
    return right | changed


def everything(replay):
    serials = replay._ring.serials()
    return replay._look.gather(serials, np.ones(len(serials)), np.random.default_rng())


def assert_alike(replay, other):
    for name in ("obs", "next_obs", "action", "reward", "terminated", "truncated", "extras", "env_id", "version"):
        assert_equal(getattr(everything(replay), name), getattr(everything(other), name))


def test_lists_are_as_good_as_arrays():
    right, arrays = columns(), ReplayBuffer(20, SPEC)
    lists = {
        name: {key: leaf.tolist() for key, leaf in column.items()} if isinstance(column, dict) else column.tolist()
        for name, column in right.items()
    }
    replay = ReplayBuffer(20, SPEC)
    assert replay.add(**lists, version=[3, 4], env_id=[0, 1]) == arrays.add(**right, version=np.array([3, 4])) == 2
    assert_alike(replay, arrays)
    # Numbers without a point are floats, too, and views of the right dtype need not be contiguous or writable.
    fixed = np.broadcast_to(False, 2)
    changed = {"reward": [1, 2], "terminated": fixed, "truncated": np.zeros((2, 2), bool)[:, 1], "value": [1, 0]}
    same = {"reward": np.array([1.0, 2.0]), "terminated": np.zeros(2, bool), "value": np.array([1, 0], "f4")}
    for buffer, some in ((replay, changed), (arrays, same)):
        buffer.add(**columns(**some))
        buffer.check()
    assert_alike(replay, arrays)


@pytest.mark.parametrize(
    ("wrong", "where"),
    (
        ({"reward": [[1, 2], [3]]}, "reward"),
        ({"reward": ["a", "b"]}, "reward"),
        ({"reward": None}, "reward"),
        ({"reward": [1.0]}, "reward"),
        ({"reward": 1.0}, "reward"),
        ({"reward": [1 << 2000, 0]}, "reward"),
        ({"terminated": [0, 1]}, "terminated"),
        ({"terminated": np.zeros(2)}, "terminated"),
        ({"truncated": [True]}, "truncated"),
        ({"truncated": "no"}, "truncated"),
        ({"version": 1.5}, "version"),
        ({"version": 1 << 63}, "version"),
        ({"version": [1, 2, 3]}, "version"),
        ({"version": [1, 1 << 63]}, "version"),
        ({"action": [1.5, 2.0]}, "action"),
        ({"action": [1, 1 << 40]}, "action"),
        ({"action": [1, [2]]}, "action"),
        ({"action": 3}, "action"),
        ({"action": np.array([1, 2])}, "action"),
        ({"obs": [[1, 2], [3, 4]]}, "obs"),
        ({"obs": {"place": [[1, 2]] * 2, "eye": [[[0, 256], [0, 0]]] * 2}}, "obs/eye"),
        ({"obs": {"place": [[1, 2]] * 2, "eye": [[[0, -1], [0, 0]]] * 2}}, "obs/eye"),
        ({"obs": {"place": [[1, 1e300]] * 2, "eye": np.zeros((2, 2, 2), "u1")}}, "obs/place"),
        ({"next_obs": None}, "next_obs"),
        ({"value": [1.0, None]}, "extras/value"),
        ({"other": [1.0, 2.0]}, "other"),
        ({"info": {"x": [1, 2]}}, "info"),
        ({"obs_info": None}, "obs_info"),
        ({"state": [1, 2]}, "state"),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_by_name(wrong, where):
    replay, other = ReplayBuffer(20, SPEC, sampler=Prioritized()), ReplayBuffer(20, SPEC)
    for buffer in (replay, other):
        buffer.add(**columns())
    with pytest.raises(SpecError, match=rf"add\(\.\.\.\).*'{where}"):
        replay.add(**columns(**wrong))
    replay.check()
    assert_alike(replay, other)


def test_columns_that_are_none_are_told_what_ends_an_episode():
    words = r"expected extras of the spec: \['value'\], found 'done', which is no column.*'terminated' and 'truncated'"
    with pytest.raises(SpecError, match=words):
        ReplayBuffer(20, SPEC).add(**columns(done=np.zeros(2, bool)))
    given = columns()
    del given["value"]
    with pytest.raises(SpecError, match=r"expected 'value', an extra of the spec, found no extras.*pass value="):
        ReplayBuffer(20, SPEC).add(**given)


def test_tensors_are_taken_with_their_gradients_left_behind():
    torch = pytest.importorskip("torch")
    right = columns()
    tensors = {
        "value": torch.tensor(right["value"], requires_grad=True),
        "action": torch.tensor(right["action"]),
        "reward": torch.tensor(right["reward"], requires_grad=True),
        "obs": {key: torch.tensor(leaf) for key, leaf in right["obs"].items()},
    }
    replay, arrays = ReplayBuffer(20, SPEC), ReplayBuffer(20, SPEC)
    replay.add(**right | tensors)
    arrays.add(**right)
    assert_alike(replay, arrays)
    with pytest.raises(SpecError, match=r"add\(\.\.\.\) at 'extras/value'.*Tensor"):
        replay.add(**columns(value=torch.zeros(2, dtype=torch.bfloat16)))


@pytest.mark.parametrize(
    "env_id", ([], [0, 0], [0.0, 1.0], 0, [[0, 1]], [-1, 0], "ab", [True, False], [[0], 1]), ids=str
)
def test_lanes_that_are_none_are_refused(env_id):
    replay = ReplayBuffer(20, SPEC)
    with pytest.raises(ConfigError, match=r"add\(env_id=\.\.\.\)"):
        replay.add(**columns(), env_id=env_id)
    replay.check()
    assert len(replay) == 0


def test_ragged_leaves_may_be_lists():
    spec = StepSpec(obs=RaggedSpec("text"), action=LeafSpec((), "i8"), num_envs=2)
    replay = ReplayBuffer(20, spec)
    rest = {"action": [0, 1], "reward": [0, 0], "terminated": [False] * 2, "truncated": [False] * 2}
    replay.add(obs=["go", "to"], next_obs=["the", "door"], **rest)
    replay.add(obs=["the", "door"], next_obs=["red", "ball"], **rest)
    replay.check()
    assert everything(replay).next_obs.tolist() == ["the", "door", "red", "ball"]
    assert not replay._ring.columns["cut"].any()
    for wrong in (["red", 3], "red", ["red"]):
        with pytest.raises(SpecError, match=r"add\(\.\.\.\) at 'obs'"):
            replay.add(obs=wrong, next_obs=["a", "b"], **rest)


@pytest.mark.parametrize("dtype", ("f4", "f8", "c8"))
@pytest.mark.parametrize("size", (3, 3000))
def test_the_same_numbers_are_no_seam_whatever_their_bytes(dtype, size):
    """-0.0 is 0.0, and what is not a number is the same wherever it stands."""
    spec = StepSpec(obs=LeafSpec((size,), dtype), action=LeafSpec((), "i8"), num_envs=2)
    first, second = np.zeros((2, 2, size), dtype)
    first[1, 1] = np.nan
    second[1, 1] = -np.float64(np.nan)
    second[:, 0] = -0.0
    assert first.tobytes() != second.tobytes()
    rest = {"action": [0, 1], "reward": [0, 0], "terminated": [False] * 2, "truncated": [False] * 2}
    replay = ReplayBuffer(20, spec)
    replay.add(obs=first, next_obs=first, **rest)
    replay.add(obs=second, next_obs=second, **rest)
    assert not replay._ring.columns["cut"].any()
    # Another one of the two is another observation.
    second[1, 0] = 1.0
    replay.add(obs=second, next_obs=second, **rest)
    assert np.flatnonzero(replay._ring.columns["cut"]).tolist() == [3]
    replay.check()
    records = ReplayBuffer(20, spec)
    for one in (first, second):
        rollout = spec.zeros(1)
        rollout.obs[:] = one
        rollout.step[:] += one is second
        records.extend(rollout)
    assert np.flatnonzero(records._ring.columns["cut"]).tolist() == [1]
    records.check()


def test_frames_of_the_same_numbers_are_the_same():
    spec = StepSpec(obs=LeafSpec((2, 1, 3), "f4"), action=LeafSpec((), "i8"), num_envs=2)
    replay = ReplayBuffer(20, spec, view=Transitions(frame_stack=2))
    rest = {"action": [0, 1], "reward": [0, 0], "terminated": [False] * 2, "truncated": [False] * 2}
    first, second = np.zeros((2, 2, 2, 1, 3), "f4")
    first[:, 1, 0, 0], second[:, 0, 0, 0] = np.nan, -np.float32(np.nan)
    second[:, 0, 0, 1] = -0.0
    replay.add(obs=first, next_obs=second, **rest)
    second[:, 1, 0, 0] = -0.0
    third = second[:, [1, 1]]
    replay.add(obs=second, next_obs=third, **rest)
    replay.check()
    assert len(replay) == 4
    assert not replay._ring.columns["cut"].any()
    fourth = third.copy()
    fourth[1, 0, 0, 1] = 1.0
    with pytest.raises(SpecError, match="behind step 2 of lane 1"):
        replay.add(obs=third, next_obs=fourth, **rest)
