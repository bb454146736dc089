"""Bad input is refused before anything is stored; failures of the disk lose nothing; damage is named."""

import dataclasses
import errno
import json
import multiprocessing
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from helpers.ctrl_c import CtrlC
from helpers.stored_runs import assert_stored, fixed_plan, pieces_of, record_of, stored_runs
from outrider.dataset import Dataset, stored
from outrider.dataset.column import Column
from outrider.errors import ClosedError, ConfigError, DatasetError, SpecError
from outrider.records import StepSpec
from outrider.spec import LeafSpec

PLAN = fixed_plan(["rrtrrrt", "rrrrrur"], nesting="nested")
PIECES = pieces_of(PLAN, [3, 4])
SPEC = StepSpec.of(record_of(PLAN, "rollout"))


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(stored, "CHUNK_ROWS", 4)


@pytest.fixture
def dataset(tmp_path):
    with Dataset.create(tmp_path / "d", SPEC) as dataset:
        dataset.append(record_of(PIECES[0], "rollout"))
        yield dataset


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def expected(*pieces):
    return stored_runs([[(piece, "rollout") for piece in pieces]])


# ------------------------------------------------------------------------------------------------------------ creation


def test_a_path_that_is_taken_is_refused(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "notes.txt").write_text("mine")
    with pytest.raises(DatasetError, match=r"a folder with something in it.*writable=True"):
        Dataset.create(tmp_path / "d", SPEC)
    with pytest.raises(DatasetError, match="a file"):
        Dataset.create(tmp_path / "d" / "notes.txt", SPEC)
    assert files_of(tmp_path) == {Path("d/notes.txt"): b"mine"}


def test_an_empty_folder_and_missing_parents_will_do(tmp_path):
    (tmp_path / "d").mkdir()
    Dataset.create(tmp_path / "d", SPEC).close()
    Dataset.create(tmp_path / "x" / "y" / "z", SPEC).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "x"]


def test_a_parent_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in ("file/d", "file/x/d"):
        with pytest.raises(DatasetError, match=r"Dataset.create.*a folder that can be created.*a file.*/file'"):
            Dataset.create(tmp_path / path, SPEC)
    assert files_of(tmp_path) == {Path("file"): b""}


def test_a_parent_that_may_not_be_written_to_is_refused(tmp_path, monkeypatch):
    # Permissions do not stop root, who may be the one to run this.
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.F_OK and path in (tmp_path, *tmp_path.parents))
    with pytest.raises(DatasetError, match=r"a parent that may not be written to: '.*'.*whose parent you may write to"):
        Dataset.create(tmp_path / "x" / "d", SPEC)
    assert list(tmp_path.iterdir()) == []


def raising(error):
    def stand_in(*args):
        raise error

    return stand_in


@pytest.mark.parametrize("place", ((Path, "rename"), (Column, "create"), (Dataset, "_load")))
@pytest.mark.parametrize(
    ("error", "seen"),
    ((OSError(errno.EROFS, "Read-only file system"), DatasetError), (KeyboardInterrupt("now"), KeyboardInterrupt)),
)
def test_a_creation_that_fails_leaves_nothing(tmp_path, monkeypatch, place, error, seen):
    (tmp_path / "x").mkdir()
    path = tmp_path / "x" / "y" / "z" / "d"
    with monkeypatch.context() as patch:
        patch.setattr(*place, raising(error))
        with pytest.raises(seen, match=str(error.args[-1])):
            Dataset.create(path, SPEC)
    assert list(tmp_path.rglob("*")) == [tmp_path / "x"]
    Dataset.create(path, SPEC).close()


@pytest.mark.parametrize(
    ("metadata", "problem"),
    (
        ({"created": "today"}, "the reserved key 'created'"),
        ({"policy": object()}, "TypeError.*not JSON serializable"),
        ({"gamma": float("nan")}, "ValueError"),
    ),
)
def test_metadata_must_be_json(tmp_path, metadata, problem):
    with pytest.raises(DatasetError, match=problem):
        Dataset.create(tmp_path / "d", SPEC, metadata=metadata)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    (
        ({"observation_space": spaces.OneOf([spaces.Text(8)])}, "observation_space: .*class OneOf"),
        ({"info": {"who": LeafSpec((), np.dtype(object))}}, "'info/who'.*dtype object"),
        ({"extras": {"p": LeafSpec((), np.dtype([("a", "f4")]))}}, "'extras/p'"),
        ({"info": {1.5: LeafSpec((), np.dtype("f4"))}}, "the key 1.5"),
    ),
)
def test_specs_that_cannot_be_stored_are_refused(tmp_path, change, problem):
    with pytest.raises((DatasetError, ConfigError), match=problem):
        Dataset.create(tmp_path / "d", dataclasses.replace(SPEC, **change))
    assert list(tmp_path.iterdir()) == []


# ----------------------------------------------------------------------------------------------------------- appending


def changed(**columns):
    return dataclasses.replace(record_of(PIECES[1], "episodes"), **columns)


def bad_records():
    good = record_of(PIECES[1], "episodes")
    frame, pair = good.obs["x"]
    yield changed(obs={"x": (frame.astype(np.float32), pair)}), "append: obs at 'x/0'.*dtype uint8.*dtype float32"
    yield changed(obs={"x": (frame[..., :1], pair)}), "append: obs at 'x/0': expected shape"
    yield changed(obs={"x": (frame,)}), "append: obs.*a tuple of 2"
    yield changed(reward=good.reward.astype(np.float32)), "append: reward.*dtype float64"
    yield changed(action=good.action[:-1]), "append: action"
    yield changed(version=good.version.astype(np.int32)), "append: version"
    yield changed(extras={**good.extras, "advantage": good.reward}), "append: extras.*'advantage'.*StepSpec.of"
    yield changed(info={}), "append: info"
    yield changed(state=good.reward), "append: state"
    yield (
        changed(truncated=np.ones_like(good.truncated), lengths=np.array([2]), **whole(good)),
        "an end in the last step of an episode only",
    )
    yield changed(step=np.array([3, 5]), lengths=np.array([2]), **whole(good)), "step"


def whole(good):
    """One segment of the two rows of the two lanes: its inner row shows."""
    frame, pair = good.obs["x"]
    obs = {"x": (frame[:3], {"y": pair["y"][:3]})}
    return {"obs": obs, "episode_id": good.episode_id[:1], "env_id": good.env_id[:1]}


@pytest.mark.parametrize(("record", "problem"), tuple(bad_records()))
def test_what_does_not_fit_is_refused_and_named(dataset, record, problem):
    before = files_of(dataset.path)
    with pytest.raises(SpecError, match=problem):
        dataset.append(record)
    assert files_of(dataset.path) == before
    dataset.append(record_of(PIECES[1], "rollout"))
    assert_stored(dataset, expected(*PIECES[:2]), PLAN)


def test_torch_records_are_refused(dataset):
    pytest.importorskip("torch")
    with pytest.raises(SpecError, match=r"append: obs/x/0: expected a NumPy array, found a Tensor.*before .torch"):
        dataset.append(record_of(PIECES[1], "rollout").torch())


def test_other_objects_are_refused(dataset):
    with pytest.raises(ConfigError, match="an object of class dict"):
        dataset.append({"obs": 1})


def test_a_reader_does_not_append(dataset):
    with (
        Dataset.open(dataset.path) as reader,
        pytest.raises(DatasetError, match=r"open for reading.*writable=True"),
    ):
        reader.append(record_of(PIECES[1], "rollout"))


# ---------------------------------------------------------------------------------------------------------- two writers


def open_for_writing(path, connection):
    try:
        Dataset.open(path, writable=True).close()
        connection.send("opened")
    except DatasetError as error:
        connection.send(str(error))


def ask_another_process(path):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=open_for_writing, args=(path, theirs))
    process.start()
    answer = ours.recv()
    process.join()
    process.close()
    ours.close()
    theirs.close()
    return answer


def test_a_second_writer_is_refused_until_the_first_closes(dataset):
    with pytest.raises(DatasetError, match="expected no other writer"):
        Dataset.open(dataset.path, writable=True)
    assert "expected no other writer" in ask_another_process(dataset.path)
    dataset.close()
    assert ask_another_process(dataset.path) == "opened"


def test_closing_twice_and_use_after_close(dataset):
    episodes = dataset.episodes()
    dataset.close()
    dataset.close()
    for use in (
        lambda: dataset.append(record_of(PIECES[1], "rollout")),
        dataset.episodes,
        dataset.summary,
        lambda: episodes[0],
        lambda: dataset.num_episodes,
    ):
        with pytest.raises(ClosedError, match="used after close"):
            use()
    assert "closed" in repr(dataset)


# --------------------------------------------------------------------------------------------------- a disk that fails


class FailingReplace:
    """Stands in for `Path.replace`, by which every file is committed, in whatever thread; call number `at` strikes.

    Args:
        strike: fails, or sends a signal.
        after: whether it strikes when the file has been replaced, and not before.
    """

    def __init__(self, at, strike, *, after=False):
        self.left, self.strike, self.after, self.armed = at, strike, after, True

    def install(self, monkeypatch):
        replace = Path.replace

        def failing(path, target):
            self.left -= self.armed
            strikes = self.armed and self.left == 0
            if strikes and not self.after:
                self.strike()
            replace(path, target)
            if strikes and self.after:
                self.strike()

        monkeypatch.setattr(Path, "replace", failing)

    @property
    def struck(self):
        return self.left <= 0


def each_file(folder, monkeypatch, strike, *, after=False):
    """For each file that an append replaces: a dataset, and the failure that it is about to meet."""
    for at in range(1, 200):
        with Dataset.create(folder / f"{at}", SPEC) as dataset:
            dataset.append(record_of(PIECES[0], "rollout"))
            failure = FailingReplace(at, strike, after=after)
            with monkeypatch.context() as patch:
                failure.install(patch)
                yield dataset, failure
        if not failure.struck:
            assert at > 10
            return


def error_of_append(dataset, failure, kind):
    try:
        dataset.append(record_of(PIECES[1], "rollout"))
    except kind as error:
        return error
    finally:
        failure.armed = False
    return None


def test_a_full_disk_loses_nothing_whatever_file_it_meets(tmp_path, monkeypatch):
    for dataset, failure in each_file(tmp_path, monkeypatch, raising(OSError(errno.ENOSPC, "No space left on device"))):
        error = error_of_append(dataset, failure, DatasetError)
        assert (error is not None) == failure.struck
        if error is not None:
            assert "No space left on device" in str(error)
            assert "the 6 steps before are safe" in str(error)
            assert not list(dataset.path.rglob("*.partial"))
            assert_stored(dataset, expected(PIECES[0]), PLAN)
            with Dataset.open(dataset.path) as reader:
                assert_stored(reader, expected(PIECES[0]), PLAN)
            dataset.append(record_of(PIECES[1], "rollout"))
        dataset.append(record_of(PIECES[2], "rollout"))
        assert_stored(dataset, expected(*PIECES), PLAN)
        with Dataset.open(dataset.path) as reader:
            assert_stored(reader, expected(*PIECES), PLAN)


def test_a_file_that_may_not_grow(dataset):
    """The kernel's own error, in the middle of a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, limits[1]))
    try:
        with pytest.raises(DatasetError, match="File too large"):
            dataset.append(record_of(PIECES[1], "rollout"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    dataset.append(record_of(PIECES[1], "rollout"))
    assert_stored(dataset, expected(*PIECES[:2]), PLAN)


@pytest.mark.parametrize("after", (False, True))
def test_ctrl_c_leaves_an_append_done_or_undone(tmp_path, monkeypatch, after):
    outcomes = set()
    for dataset, failure in each_file(tmp_path, monkeypatch, CtrlC(monkeypatch), after=after):
        error = error_of_append(dataset, failure, KeyboardInterrupt)
        assert (error is not None) == failure.struck
        if error is None:
            continue
        assert not list(dataset.path.rglob("*.partial"))
        steps = len(dataset)
        outcomes.add(steps)
        with Dataset.open(dataset.path) as reader:
            assert len(reader) == steps
            assert_stored(reader, expected(*PIECES[: 1 if steps == 6 else 2]), PLAN)
        before = [episode.obs["x"][0].tolist() for episode in dataset.episodes()]
        assert dataset.append(record_of(PIECES[2], "rollout")) == 6
        after_more = [episode.obs["x"][0].tolist() for episode in dataset.episodes()]
        assert after_more[: len(before)] == before
    assert outcomes == ({6, 8} if after else {6})


def test_ctrl_c_behind_the_commit_and_then_close_lose_nothing(dataset, monkeypatch):
    replace = Path.replace

    def interrupted(path, target):
        replace(path, target)
        if target.name == "committed.json":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dataset.append(record_of(PIECES[1], "rollout"))
    dataset.close()
    with Dataset.open(dataset.path, writable=True) as writer:
        assert_stored(writer, expected(*PIECES[:2]), PLAN)


# --------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("path", ("nowhere", "."))
def test_a_folder_without_a_dataset(tmp_path, path):
    for writable in (False, True):
        with pytest.raises(DatasetError, match=r"'dataset.json'.*FileNotFoundError.*Dataset.create"):
            Dataset.open(tmp_path / path, writable=writable)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    (
        ("dataset.json", "{", "JSONDecodeError"),
        ("dataset.json", "[]", "format None"),
        ("dataset.json", '{"format": "outrider-dataset", "version": 99}', "version 99.*the version of outrider"),
        ("dataset.json", '{"format": "outrider-dataset", "version": 1, "spec": {}}', "no description of a StepSpec"),
        ("committed.json", "", "JSONDecodeError"),
        ("committed.json", '{"steps": 6}', "counts of steps"),
        ("committed.json", '{"steps": -6, "segments": 2}', "counts of steps"),
        ("committed.json", '{"steps": 5, "segments": 2}', "segments of 5 steps.*a table of 6"),
        ("committed.json", '{"steps": 6, "segments": 5}', "at least 5 rows.*an array of"),
        ("data/segments/zarr.json", "{}", "an array of rows"),
    ),
)
def test_a_file_that_is_not_ours(dataset, name, content, problem):
    dataset.close()
    (dataset.path / name).write_text(content)
    for writable in (False, True):
        with pytest.raises(DatasetError, match=problem):
            Dataset.open(dataset.path, writable=writable)


@pytest.mark.parametrize(
    "change",
    (
        {"data_type": "float32"},
        {"shape": [6, 1], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 1]}}},
        {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]},
        {"codecs": [{"name": "bytes"}, {"name": "zstd", "configuration": {"level": 1, "checksum": False}}]},
        {"codecs": []},
        {"codecs": None},
    ),
    ids=str,
)
def test_an_array_of_another_kind_is_refused(dataset, change):
    dataset.close()
    file = dataset.path / "data" / "003-reward" / "zarr.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(DatasetError, match=r"003-reward.*dtype float64"):
        Dataset.open(dataset.path)


@pytest.mark.parametrize("damage", ("missing", "cut short", "one bit", "empty"))
def test_a_damaged_chunk_is_an_error_and_never_data(dataset, damage):
    dataset.close()
    file = dataset.path / "data" / "003-reward" / "c.1"
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        flipped = bytes([*content[:-6], content[-6] ^ 1, *content[-5:]])
        file.write_bytes({"cut short": content[:-3], "one bit": flipped, "empty": b""}[damage])
    with Dataset.open(dataset.path) as reader:
        assert reader.num_episodes == 2
        assert len(reader.episodes()[0]) == 3
        with pytest.raises(DatasetError, match=r"dataset file '.*003-reward/c.1'.*other chunks can still be read"):
            reader.episodes()[1]
