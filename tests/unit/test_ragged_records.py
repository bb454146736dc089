"""Ragged leaves in records, datasets and torch: whatever is done to a row, its values are those of its number."""

import json
import tempfile

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from outrider import tree
from outrider.dataset import Dataset, ragged_text
from outrider.dataset import stored as stored_form
from outrider.dataset.ragged_text import decode, encode
from outrider.errors import DatasetError, SpecError
from outrider.records import Episodes, Rollout, Steps, StepSpec
from outrider.spaces import observation_specs
from outrider.spec import LeafSpec, RaggedSpec, check_batch
from outrider.testing.envs import same
from outrider.values import describe, empty_like, kind_of, nbytes, objects

INT = LeafSpec((), np.dtype(np.int64))
SPEC = StepSpec(
    obs={"n": INT, "text": RaggedSpec("text"), "more": (RaggedSpec("sequence"), RaggedSpec("graph"))},
    action=INT,
    num_envs=3,
)
LENGTH = 8


def values_of(numbers):
    """The leaves of rows, each made of the number of its row."""
    flat = np.asarray(numbers).reshape(-1).tolist()
    leaves = (
        [f"text {n}" * (n % 3) for n in flat],
        [tuple(np.arange(n)) if n % 2 else tuple(f"{i}" for i in range(n % 5)) for n in flat],
        [spaces.GraphInstance(np.full((n % 4 + 1, 2), n), None, None) for n in flat],
    )
    text, sequence, graph = (objects(leaf, np.shape(numbers)) for leaf in leaves)
    return {"n": np.asarray(numbers), "text": text, "more": (sequence, graph)}


def assert_true(batch, numbers=None):
    """All leaves of a batch of observations go with its numbers."""
    numbers = batch["n"] if numbers is None else numbers
    assert same(batch, values_of(np.asarray(numbers)))


def example():
    """Episodes of length 3 in lane 0, 5 in lane 1, none that ends in lane 2; observations numbered as they come."""
    rollout = SPEC.zeros(LENGTH)
    numbers = np.arange((LENGTH + 1) * 3).reshape(-1, 3)
    terminated = np.zeros((LENGTH, 3), np.bool_)
    terminated[2::3, 0] = terminated[4::5, 1] = True
    index = np.flatnonzero(terminated)
    step = np.array([[t % 3, t % 5, t] for t in range(LENGTH)])
    episode = np.array([[t // 3 * 10, t // 5 * 10 + 1, 2] for t in range(LENGTH)])
    return rollout._with(
        obs=values_of(numbers),
        terminated=terminated,
        step=step,
        episode_id=episode,
        final_index=index,
        final_obs=values_of(1000 + np.arange(len(index))),
    )


def true_next():
    numbers = (np.arange((LENGTH + 1) * 3).reshape(-1, 3))[1:].copy().reshape(-1)
    index = np.flatnonzero(example().terminated)
    numbers[index] = 1000 + np.arange(len(index))
    return numbers.reshape(LENGTH, 3)


def test_rollouts():
    rollout = example()
    rollout.check()
    assert_true(rollout.next_obs, true_next())
    part = rollout[2:6, [2, 0]]
    part.check()
    assert_true(part.next_obs, true_next()[2:6][:, [2, 0]])
    assert_true(part.obs)
    assert "text: object[9, 3]" in repr(rollout)
    values = sum(nbytes(value) for leaf in tree.leaves(rollout.obs)[1:] for value in leaf.flat)
    assert rollout.nbytes > values > 1000
    assert SPEC.row_nbytes == StepSpec(obs={"n": INT}, action=INT, num_envs=3).row_nbytes


def test_steps():
    steps = example().flatten()
    steps.check()
    for some in (steps, steps[5:20], steps[[7, 3, 3]], steps[steps.env_id == 1], steps[::2].compact()):
        some.check()
        assert_true(some.obs)
        assert_true(some.next_obs, true_next().reshape(-1)[some.obs["n"]])
    joined = Steps.concatenate([steps[3:9], steps[[20, 1]]])
    assert_true(joined.next_obs, true_next().reshape(-1)[[*range(3, 9), 20, 1]])
    seen = [batch.obs for batch in steps.minibatches(6, seed=0)]
    assert len(seen) == 4
    for batch in seen:
        assert_true(batch)


def test_episodes():
    episodes = example().segments()
    episodes.check()
    assert_true(episodes.obs)
    assert episodes.lengths.tolist() == [3, 3, 2, 5, 3, 8]
    assert_true(episodes[1].obs)
    assert_true(episodes[[4, 0]].obs)
    assert_true(episodes.flatten().next_obs)
    assert same(Episodes.concatenate([episodes[:2], episodes[2:]]).obs, episodes.obs)
    padded = episodes.padded()
    inside = np.arange(9) < episodes.lengths[:, None] + 1
    assert_true(tree.take(padded.obs, inside))
    empty = tree.take(padded.obs, ~inside)
    assert set(empty["text"]) == {""}
    assert set(empty["more"][0]) == {()}
    assert {graph.nodes.shape for graph in empty["more"][1]} == {(0, 2)}


def test_tensors_leave_ragged_leaves_as_they_are():
    torch = pytest.importorskip("torch")
    rollout = example()
    tensors = rollout.torch()
    assert isinstance(tensors.obs["n"], torch.Tensor)
    assert tensors.obs["text"] is rollout.obs["text"]
    assert_same_rows(tensors.next_obs, rollout.next_obs)
    assert_same_rows(tensors[1:5, [2, 1]].obs, rollout[1:5, [2, 1]].obs)
    steps = tensors.flatten()
    assert_same_rows(steps.next_obs, rollout.flatten().next_obs)
    assert_same_rows(steps[[4, 2]].compact().next_obs, rollout.flatten()[[4, 2]].next_obs)
    episodes = tensors.segments()
    assert_same_rows(episodes[[2, 0]].obs, rollout.segments()[[2, 0]].obs)
    assert_same_rows(episodes.padded().obs, rollout.segments().padded().obs)
    for batch in steps.minibatches(7, seed=1):
        assert_true(tree.map(np.asarray, batch.obs))


def assert_same_rows(found, expected):
    assert same(tree.map(np.asarray, found), expected)


def test_a_module_gets_them_as_they_are():
    torch = pytest.importorskip("torch")
    from outrider.torch import TorchPolicy

    class Reader(torch.nn.Module):
        def forward(self, obs):
            assert obs["text"].dtype == np.object_
            return torch.tensor([len(text) for text in obs["text"]]) + obs["n"] * 0

    from outrider.policies.base import Context

    for pad in (False, 5):
        found = TorchPolicy(Reader(), pad=pad).act(
            {"n": np.arange(2), "text": objects(["a", "bcd"])}, None, Context.start(2)
        )
        assert found["action"].tolist() == [1, 3]


def test_specs():
    assert StepSpec.of(example()).obs == SPEC.obs
    assert StepSpec.of(example().flatten()).obs == SPEC.obs
    assert len({RaggedSpec("text"), RaggedSpec("text", "x"), RaggedSpec("graph")}) == 2
    zeros = SPEC.zeros(2).obs
    assert zeros["text"].tolist() == [[""] * 3] * 3
    with pytest.raises(SpecError, match=r"at 'a': expected values of kind 'text' in each row, found int 3"):
        check_batch({"a": RaggedSpec("text")}, {"a": objects(["x", 3])}, (2,), "here")
    assert kind_of(np.float64(1)) is None
    assert kind_of(np.array(1)) is None
    assert empty_like(7) == 0
    assert same(empty_like({"a": np.ones((2, 3))}), {"a": np.ones((0, 3))})
    assert describe([1]) == "a list of 1"


def test_the_space_says_what_is_empty():
    space = spaces.Dict(
        a=spaces.Sequence(spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Text(3))), stack=True),
        b=spaces.Graph(spaces.Box(-1, 1, (3,), np.float64), None),
    )
    zeros = tree.zeros(observation_specs(space), 1)
    assert same(zeros["a"][0], (np.zeros((0, 2), np.float32), ()))
    assert same(zeros["b"][0], spaces.GraphInstance(np.zeros((0, 3)), None, None))
    assert zeros["a"][0] in space["a"]


DTYPES = st.one_of(npst.boolean_dtypes(), npst.integer_dtypes(), npst.floating_dtypes(), npst.complex_number_dtypes())
ARRAYS = npst.arrays(DTYPES, npst.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3))
NUMBERS = DTYPES.flatmap(lambda dtype: npst.arrays(dtype, ())).map(lambda array: array[()])
PARTS = st.recursive(
    st.one_of(st.text(st.characters(), max_size=5), ARRAYS, NUMBERS, npst.arrays(DTYPES, ()), st.none()),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), parts, max_size=3),
        st.builds(spaces.GraphInstance, parts, parts, parts),
    ),
    max_leaves=5,
)
VALUES = {
    "text": st.text(max_size=20),
    "sequence": st.one_of(
        st.lists(PARTS, max_size=4).map(tuple), ARRAYS, st.dictionaries(st.text(max_size=3), ARRAYS, max_size=3)
    ),
    "graph": st.builds(spaces.GraphInstance, ARRAYS, st.one_of(st.none(), ARRAYS), st.one_of(st.none(), ARRAYS)),
}


def exactly(a, b):
    """Equal in classes, dtypes and bits, NaN included."""
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(exactly(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(exactly, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        return type(a) is type(b) and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    return type(a) is type(b) and a == b


@given(st.data())
def test_values_as_text_and_back(data):
    kind = data.draw(st.sampled_from(tuple(VALUES)))
    value = data.draw(VALUES[kind])
    assert exactly(decode(kind, encode(kind, value)), value)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_datasets_return_exactly_what_they_were_given(data):
    texts = data.draw(st.lists(VALUES["text"], min_size=9, max_size=9))
    sequences = data.draw(st.lists(VALUES["sequence"], min_size=9, max_size=9))
    graphs = data.draw(st.lists(VALUES["graph"], min_size=9, max_size=9))
    spec = StepSpec(
        obs={"t": RaggedSpec("text"), "s": RaggedSpec("sequence"), "g": RaggedSpec("graph")}, action=INT, num_envs=1
    )
    obs = {"t": objects(texts, (9, 1)), "s": objects(sequences, (9, 1)), "g": objects(graphs, (9, 1))}
    rollout = Rollout.zeros(spec, 8)._with(obs=obs)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(stored_form, "CHUNK_ROWS", data.draw(st.sampled_from((2, 4, 64))))
        cut = data.draw(st.integers(1, 7))
        with Dataset.create(f"{folder}/d", spec) as dataset:
            dataset.append(rollout[:cut])
            dataset.append(rollout[cut:])
        with Dataset.open(f"{folder}/d") as dataset:
            assert dataset.spec == spec
            assert dataset.num_episodes == 1, "joined, because the observation at the seam is the same"
            found = dataset.episodes()[0].obs
    for name, values in (("t", texts), ("s", sequences), ("g", graphs)):
        assert all(map(exactly, found[name].tolist(), values))


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(stored_form, "CHUNK_ROWS", 4)
    with Dataset.create(tmp_path / "d", SPEC) as made:
        made.append(example())
        yield made


def test_a_dataset_of_numbered_rows(dataset):
    steps = dataset.steps()
    assert_true(steps.obs)
    assert_true(steps.next_obs, true_next().reshape(-1)[steps.obs["n"]])
    assert_true(dataset.episodes()[4].obs)


@pytest.mark.parametrize(
    ("leaf", "match"),
    (
        (objects([3] * 9, (9, 1)), "kind 'text'"),
        (objects(["\ud800"] * 9, (9, 1)), "UTF-8"),
        (np.full((9, 1), "x"), "dtype object"),
    ),
)
def test_values_that_cannot_be_stored_are_refused_and_nothing_counts(tmp_path, leaf, match):
    spec = StepSpec(obs=RaggedSpec("text"), action=INT, num_envs=1)
    good = Rollout.zeros(spec, 8)
    with Dataset.create(tmp_path / "d", spec) as made:
        made.append(good)
        with pytest.raises(SpecError, match=match):
            made.append(good._with(obs=leaf))
        assert len(made) == 8
        made.append(good)
        assert len(made) == 16
        assert made.steps().obs.tolist() == [""] * 16


def test_what_is_no_ragged_value_is_refused():
    for bad in (object(), [1, 2], {(1, 2): "x"}, {True: "x"}, np.array(["x"]), np.array([None])):
        with pytest.raises(SpecError, match=r"a value to be stored: expected a ragged value"):
            encode("sequence", (bad,))
    for bad in ("", "{}", '{"unknown": 1}', '{"array": ["<f4", [2], "AAAA"]}'):
        with pytest.raises(ValueError, match="no ragged value"):
            decode("sequence", bad)


def test_damage_is_named(dataset, tmp_path, monkeypatch):
    folder = next(folder for folder in (tmp_path / "d" / "data").iterdir() if folder.name.endswith("obs-more-0"))
    assert json.loads((folder / "zarr.json").read_text())["data_type"] == "string"
    dataset.close()
    with Dataset.open(tmp_path / "d") as opened, monkeypatch.context() as patch:
        patch.setitem(ragged_text._READERS, "number", lambda content: content["no such thing"])
        with pytest.raises(DatasetError, match="expected ragged values as Dataset writes them"):
            opened.steps()
    chunk = next(file for file in folder.iterdir() if file.name.startswith("c."))
    chunk.write_bytes(chunk.read_bytes()[:-3])
    with Dataset.open(tmp_path / "d") as opened, pytest.raises(DatasetError, match=chunk.name):
        opened.steps()


def test_texts_can_be_read_by_others(dataset, tmp_path):
    zarr = pytest.importorskip("zarr")
    dataset.close()
    folder = next(folder for folder in (tmp_path / "d" / "data").iterdir() if folder.name.endswith("obs-text"))
    found = zarr.open_array(folder, mode="r")[:].tolist()
    numbers = Dataset.open(tmp_path / "d").steps().obs_rows["n"]
    assert sorted(found) == sorted(values_of(numbers)["text"].tolist())
