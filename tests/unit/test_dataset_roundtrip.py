"""What is read back is what was appended: whole episodes, exact values, ids that are unique, nothing stitched."""

import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.plain_rows import assert_equal, plans, tree_of
from helpers.stored_runs import FORMS, assert_stored, fixed_plan, pieces_of, record_of, stored_runs
from outrider.dataset import Dataset, column
from outrider.dataset import stored as stored_form
from outrider.records import Episode, Rollout, StepSpec
from outrider.spec import LeafSpec


def spec_of(plan):
    return StepSpec.of(record_of(plan, "rollout"))


def append_all(path, sessions, spec):
    """Append each session with a writer of its own, and return how many steps they said they stored."""
    stored = 0
    for number, session in enumerate(sessions):
        with Dataset.open(path, writable=True) if number else Dataset.create(path, spec) as dataset:
            stored += sum(dataset.append(record_of(plan, form)) for plan, form in session)
    return stored


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(stored_form, "CHUNK_ROWS", 4)


# --------------------------------------------------------------------------------------------- the counter environment


@pytest.mark.parametrize("form", FORMS)
def test_episodes_of_1_3_and_5_steps_have_one_observation_more(tmp_path, form):
    plan = fixed_plan(["trrtrrrrt"], nesting="scalar")
    append_all(tmp_path / "d", [[(plan, form)]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        episodes = list(dataset.episodes())
    assert [len(episode) for episode in episodes] == [1, 3, 5]
    for number, episode in enumerate(episodes):
        assert (episode.obs - 100 * number).tolist() == list(range(len(episode) + 1))
        assert len(episode.action) == len(episode)
        assert episode.is_complete
        assert episode.terminated.tolist() == [False] * (len(episode) - 1) + [True]


def test_an_unfinished_episode_has_no_end(tmp_path):
    plan = fixed_plan(["rrr"])
    append_all(tmp_path / "d", [[(plan, "rollout")]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        episode = dataset.episodes()[0]
        assert not (episode.terminated | episode.truncated | episode.cut).any()
        assert (dataset.counts.open, dataset.counts.complete, dataset.counts.total) == (1, 0, 1)


def test_an_episode_in_pieces_is_whole(tmp_path):
    plan = fixed_plan(["rrrrrrrrt", "rrrrrrrru"], nesting="scalar")
    pieces = pieces_of(plan, [2, 3, 7])
    append_all(tmp_path / "d", [[(piece, "rollout") for piece in pieces]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        first, second = dataset.episodes()
    assert first.obs.tolist() == list(range(10))
    assert (first.is_complete, second.is_complete) == (True, True)
    assert (first.terminated[-1], second.truncated[-1]) == (True, True)


# ------------------------------------------------------------------------------------------------ against the reference


@settings(max_examples=30)
@given(plan=plans(max_length=12), data=st.data())
def test_all_that_was_appended_is_read_back(plan, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, plan.length - 1)), max_size=4)) - {plan.length})
    session = [(piece, data.draw(st.sampled_from(FORMS))) for piece in pieces_of(plan, cuts)]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(stored_form, "CHUNK_ROWS", data.draw(st.sampled_from((2, 8, 64))))
        stored = append_all(f"{folder}/d", [session], spec_of(plan))
        with Dataset.open(f"{folder}/d") as dataset:
            assert len(dataset) == stored
            assert_stored(dataset, stored_runs([session]), plan)


@settings(max_examples=20)
@given(plan=plans(max_length=6), data=st.data())
def test_no_run_is_joined_to_another(plan, data):
    pieces = pieces_of(plan, range(1, plan.length))
    sessions = [
        [(piece, data.draw(st.sampled_from(FORMS))) for piece in pieces[data.draw(st.integers(0, plan.length)) :]]
        for _ in range(3)
    ]
    with tempfile.TemporaryDirectory() as folder:
        append_all(f"{folder}/d", sessions, spec_of(plan))
        with Dataset.open(f"{folder}/d") as dataset:
            ids = [episode.episode_id for episode in dataset.episodes()]
            assert len(set(ids)) == len(ids)
            assert_stored(dataset, stored_runs(sessions), plan)


def test_what_an_earlier_writer_left_open_stays_open(tmp_path):
    plan = fixed_plan(["rrrt"], nesting="scalar")
    first, second = pieces_of(plan, [2])
    append_all(tmp_path / "d", [[(first, "rollout")], [(second, "rollout")]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        assert [episode.obs.tolist() for episode in dataset.episodes()] == [[0, 1, 2], [2, 3, 4]]
        assert (dataset.counts.open, dataset.counts.terminated, dataset.counts.complete) == (1, 1, 0)


def test_a_second_run_in_the_same_session_is_not_joined_by_chance(tmp_path):
    """Same id, lane and step number, but another observation: it is another episode."""
    first, second = pieces_of(fixed_plan(["rrrt"], nesting="scalar"), [2])
    record = record_of(second, "episodes")
    record.obs[:] += 50
    with Dataset.create(tmp_path / "d", spec_of(first)) as dataset:
        dataset.append(record_of(first, "rollout"))
        dataset.append(record)
        dataset.append(record_of(second, "rollout"))
        assert [episode.obs.tolist() for episode in dataset.episodes()] == [[0, 1, 2, 3, 4], [52, 53, 54]]


@pytest.mark.parametrize("flag", ("terminated", "truncated", "cut"))
def test_an_episode_that_ended_is_not_continued(tmp_path, flag):
    first, second = pieces_of(fixed_plan(["rrrr"], nesting="scalar"), [2])
    ended = record_of(first, "episodes")
    getattr(ended, flag)[-1] = True
    with Dataset.create(tmp_path / "d", spec_of(first)) as dataset:
        dataset.append(ended)
        dataset.append(record_of(second, "episodes"))
        assert [episode.obs.tolist() for episode in dataset.episodes()] == [[0, 1, 2], [2, 3, 4]]
        assert getattr(dataset.counts, flag) == 1


def test_two_runs_in_one_session_go_on_side_by_side(tmp_path):
    plan = fixed_plan(["rrrrt"], nesting="scalar")
    short, long = pieces_of(plan, [1]), pieces_of(plan, [3])
    with Dataset.create(tmp_path / "d", spec_of(plan)) as dataset:
        for piece in (short[0], long[0], short[1], long[1]):
            dataset.append(record_of(piece, "rollout"))
        assert [episode.obs.tolist() for episode in dataset.episodes()] == [[0, 1, 2, 3, 4, 5]] * 2
        assert [episode.episode_id for episode in dataset.episodes()] == [0, 1]


# ------------------------------------------------------------------------------------------------------------- values


def episode_with(obs, action):
    count = len(action)
    flags = np.zeros(count, bool)
    return Episode(
        obs=obs,
        action=action,
        reward=np.linspace(0, 1, count),
        terminated=flags,
        truncated=flags,
        cut=flags,
        step=np.arange(count),
        version=np.full(count, 2**60),
        episode_id=5,
        env_id=3,
    )


@pytest.mark.parametrize(
    "values",
    (
        np.array([[1, 0], [0, 1], [1, 1], [0, 0]], bool),
        np.array([2**60, -(2**62), 7, 0]),
        np.array([2**64 - 1, 0, 1, 2], np.uint64),
        np.array([0.5, np.nan, -np.inf, -0.0], np.float16),
        np.array([1, 2, 3, 4], np.longdouble) / 3,
        np.array([1 + 2j, 0, -1j, 3], np.complex64),
        np.array([300.5, 1, 2, 3], ">f4"),
        np.array(["go to", "the red", "", "door"]),
        np.array([b"ab", b"", b"c", b"d"]),
        np.array(["2024-01-01", "NaT", "1970-01-01", "2000-02-29"], "M8[us]"),
        np.zeros((4, 0), np.float32),
        np.arange(4 * 6, dtype=np.uint8).reshape(4, 1, 2, 3),
    ),
    ids=lambda values: str(values.dtype),
)
def test_every_dtype_survives(tmp_path, values):
    part = episode_with({"x": values, "y": (values[::-1].copy(),)}, values[:3])
    with Dataset.create(tmp_path / "d", StepSpec.of(part)) as dataset:
        dataset.append(part)
    with Dataset.open(tmp_path / "d") as dataset:
        found = dataset.episodes()[0]
        assert dataset.spec == StepSpec.of(part)
    assert_equal((found.obs, found.action, found.version), (part.obs, part.action, part.version))
    for new, old in zip((found.obs["x"], found.action), (values, values[:3]), strict=True):
        assert new.tobytes() == old.tobytes()


def test_the_order_of_keys_does_not_matter(tmp_path):
    one = episode_with({"a": np.zeros(3), "b": np.ones(3)}, np.zeros(2))
    other = episode_with({"b": np.ones(3), "a": np.zeros(3)}, np.zeros(2))
    with Dataset.create(tmp_path / "d", StepSpec.of(one)) as dataset:
        dataset.append(one)
        dataset.append(other)
        for episode in dataset.episodes():
            assert_equal(episode.obs, one.obs)


def test_keys_that_no_file_can_have(tmp_path):
    obs = {
        "../x": np.arange(3),
        "..-x": np.arange(3) + 1,
        "zarr.json": np.arange(3) + 2,
        7: np.arange(3) + 3,
        "": np.ones(3),
    }
    part = episode_with(obs, np.zeros(2))
    with Dataset.create(tmp_path / "d", StepSpec.of(part)) as dataset:
        dataset.append(part)
    assert [entry.name for entry in tmp_path.iterdir()] == ["d"]
    with Dataset.open(tmp_path / "d") as dataset:
        assert_equal(dataset.episodes()[0].obs, obs)


def test_broadcast_and_strided_leaves_are_stored_as_what_they_show(tmp_path):
    spec = StepSpec(obs=LeafSpec((2,), np.dtype(np.float32)), action=LeafSpec((), np.dtype(np.int64)), num_envs=3)
    zeros = Rollout.zeros(spec, 4)
    with Dataset.create(tmp_path / "d", spec) as dataset:
        assert dataset.append(zeros) == 12
        assert dataset.append(zeros.flatten()[::2]) == 6
        assert len(dataset) == 18


# ------------------------------------------------------------------------------------------------------------- reading


def test_selecting_reads_nothing(tmp_path, monkeypatch):
    plan = fixed_plan(["rrtrtu", "rrrrrr"])
    append_all(tmp_path / "d", [[(plan, "rollout")]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        monkeypatch.setattr(column.Column, "take", lambda *_: pytest.fail("read something"))
        episodes = dataset.episodes()
        assert (len(episodes), episodes.lengths.tolist()) == (4, [3, 2, 1, 6])
        assert episodes[1:][::-1].lengths.tolist() == [6, 1, 2]
        assert episodes[episodes.is_complete].lengths.tolist() == [3, 2, 1]
        assert episodes[[3, 0]].lengths.tolist() == [6, 3]
        with pytest.raises(IndexError):
            episodes[4]


def test_one_episode_reads_only_the_chunks_it_lies_in(tmp_path, small_chunks, monkeypatch):
    plan = fixed_plan(["rrt" * 20])
    append_all(tmp_path / "d", [[(plan, "rollout")]], spec_of(plan))
    decoded = []
    decode = column.Column._decode
    with Dataset.open(tmp_path / "d") as dataset:
        monkeypatch.setattr(column.Column, "_decode", lambda self, n: decoded.append((self, n)) or decode(self, n))
        assert len(dataset.episodes()[10]) == 3
    assert {number for _, number in decoded} <= {7, 8, 9, 10}


def test_selections_load_in_their_own_order(tmp_path, small_chunks):
    plan = fixed_plan(["rrtrtu", "rrrrrr"])
    append_all(tmp_path / "d", [[(piece, "rollout") for piece in pieces_of(plan, [2, 4])]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        episodes = dataset.episodes()
        found = episodes[[3, 1, 0]].load()
        assert found.lengths.tolist() == episodes.lengths[[3, 1, 0]].tolist()
        for one, i in zip(found, (3, 1, 0), strict=True):
            assert_equal((one.obs, one.reward), (episodes[i].obs, episodes[i].reward))
        assert len(episodes[:0].load()) == 0


def test_steps_are_the_episodes_one_after_the_other(tmp_path):
    plan = fixed_plan(["rrtr", "rrrr"], nesting="scalar")
    append_all(tmp_path / "d", [[(plan, "rollout")]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        steps = dataset.steps()
    steps.check()
    assert steps.step.tolist() == [0, 1, 2, 0, 0, 1, 2, 3]
    assert (steps.next_obs - steps.obs).tolist() == [1] * 8


def test_what_is_read_is_the_callers_own(tmp_path):
    plan = fixed_plan(["rrt"])
    append_all(tmp_path / "d", [[(plan, "rollout")]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        episode = dataset.episodes()[0]
        before = episode.obs.copy()
        episode.obs[:] = 99
        episode.reward[:] = 99
        assert_equal(dataset.episodes()[0].obs, before)
        assert 99 not in dataset.episodes()[0].reward


def test_iteration_in_small_blocks(tmp_path, monkeypatch):
    plan = fixed_plan(["rrtrtuutrrrrrt"])
    append_all(tmp_path / "d", [[(plan, "rollout")]], spec_of(plan))
    with Dataset.open(tmp_path / "d") as dataset:
        monkeypatch.setattr("outrider.dataset.episode_sequence.BLOCK_BYTES", 3 * dataset.episodes()._step_nbytes)
        assert [len(episode) for episode in dataset.episodes()] == [3, 2, 1, 1, 1, 6]


def test_a_reader_sees_what_was_committed_when_it_opened(tmp_path, small_chunks):
    plan = fixed_plan(["rrrrrr"], nesting="scalar")
    first, second = pieces_of(plan, [3])
    with Dataset.create(tmp_path / "d", spec_of(plan)) as writer:
        writer.append(record_of(first, "rollout"))
        with Dataset.open(tmp_path / "d") as reader:
            old = writer.episodes()
            writer.append(record_of(second, "rollout"))
            assert (len(reader), len(writer)) == (3, 6)
            assert reader.episodes()[0].obs.tolist() == old[0].obs.tolist() == [0, 1, 2, 3]
            assert writer.episodes()[0].obs.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_nothing_is_appended_for_no_rows(tmp_path):
    plan = fixed_plan(["rr"])
    with Dataset.create(tmp_path / "d", spec_of(plan)) as dataset:
        assert dataset.append(record_of(plan, "steps")[:0]) == 0
        assert (len(dataset), dataset.num_episodes, list(dataset.episodes())) == (0, 0, [])
        assert dataset.steps().obs.shape == (0, *tree_of([0], "array").shape[1:])
