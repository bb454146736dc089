"""The folder itself: plain zarr v3 for other readers, what it says about itself, its size."""

import dataclasses
import math
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import zarr
from gymnasium import spaces

from helpers.stored_runs import fixed_plan, pieces_of, record_of
from outrider.dataset import Dataset, EpisodeCounts, Moments, column, stored
from outrider.errors import DatasetError
from outrider.records import Episode, StepSpec
from outrider.spec import LeafSpec


def test_zarr_reads_every_array(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "CHUNK_ROWS", 4)
    plan = fixed_plan(["rrtrrrt", "rrrrrur"], nesting="nested")
    with Dataset.create(tmp_path / "d", StepSpec.of(record_of(plan, "rollout"))) as dataset:
        for piece in pieces_of(plan, [2, 5]):
            dataset.append(record_of(piece, "rollout"))
    group = zarr.open_group(tmp_path / "d" / "data", mode="r")
    arrays = {array.attrs["outrider_path"]: array for _, array in group.arrays()}
    assert set(arrays) == {
        *("obs/x/0", "obs/x/1/y", "action", "reward", "version", "extras/logits/a", "info/x", "info/_x"),
        *("obs_info/seen", "segments"),
    }
    segments = [record_of(piece, "rollout").segments() for piece in pieces_of(plan, [2, 5])]
    for path, leaf in (("obs/x/0", lambda part: part.obs["x"][0]), ("reward", lambda part: part.reward)):
        expected = np.concatenate([leaf(part) for part in segments])
        np.testing.assert_array_equal(arrays[path][:], expected, strict=True)
    assert arrays["info/_x"].dtype == np.bool_
    assert arrays["segments"][:, 3].tolist() == [len(episode) for part in segments for episode in part]


def test_zarr_sees_the_rows_of_a_writer_that_died_once_another_opens(tmp_path):
    plan = fixed_plan(["rrtrrrt"], nesting="scalar")

    def rows_for_zarr():
        group = zarr.open_group(tmp_path / "d" / "data", mode="r")
        return {array.attrs["outrider_path"]: array.shape[0] for _, array in group.arrays()}

    with Dataset.create(tmp_path / "d", StepSpec.of(record_of(plan, "rollout"))) as dataset:
        dataset.append(record_of(plan, "rollout"))
        assert rows_for_zarr()["reward"] > 7  # it grows by many rows at a time
        dataset._lock.release()  # as when the process dies
        with Dataset.open(tmp_path / "d", writable=True):
            found = rows_for_zarr()
    assert (found["reward"], found["obs"], found["segments"]) == (7, 9, 2)


@pytest.mark.parametrize("dtype", ("?", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"))
def test_zarr_knows_our_dtypes(tmp_path, dtype):
    rows = np.arange(6).reshape(3, 2).astype(dtype)
    column.Column.create(tmp_path / "c", LeafSpec((2,), np.dtype(dtype)), "x")
    ours = column.Column(tmp_path / "c", LeafSpec((2,), np.dtype(dtype)))
    assert len(list(ours.write(0, rows))) == 1
    ours.set_rows(3)
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "c", mode="r")[:], rows, strict=True)


def test_chunks_of_zeros_are_written_and_missed(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "CHUNK_ROWS", 4)
    leaf = LeafSpec((), np.dtype(bool))
    column.Column.create(tmp_path / "c", leaf, "x")
    assert len(list(column.Column(tmp_path / "c", leaf).write(0, np.zeros(7, bool)))) == 2
    assert column.Column(tmp_path / "c", leaf).take(np.array([6, 0])).tolist() == [False, False]
    (tmp_path / "c" / "c.1").unlink()
    with pytest.raises(DatasetError, match=r"c\.1'.*restore the file"):
        column.Column(tmp_path / "c", leaf).take(np.array([6, 0]))


def test_importing_datasets_does_not_import_zarr():
    script = "import sys, outrider.dataset; print(sorted({'zarr', 'numcodecs'} & set(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert output == "[]\n"


def test_a_dataset_says_where_it_comes_from(tmp_path):
    spec = StepSpec(
        obs=LeafSpec((4,), np.dtype(np.float32)),
        action=LeafSpec((), np.dtype(np.int64)),
        num_envs=16,
        extras={"logits": (LeafSpec((2,), np.dtype(np.float32)),)},
        state={"h": LeafSpec((8,), np.dtype(np.float16))},
        info={"x": LeafSpec((), np.dtype(np.float64)), "_x": LeafSpec((), np.dtype(np.bool_))},
        observation_space=spaces.Box(-np.inf, np.inf, (4,), np.float32),
        action_space=spaces.Discrete(2, start=-1),
        env_name="CartPole-v1",
    )
    with Dataset.create(tmp_path / "d", spec, metadata={"seed": 3, "policy": ["a", {"b": None}]}) as dataset:
        dataset.append(spec.zeros(2))
    with Dataset.open(str(tmp_path / "d")) as dataset:
        assert dataset.spec == spec
        metadata = dataset.metadata
        assert (metadata["seed"], metadata["policy"]) == (3, ["a", {"b": None}])
        assert metadata["versions"]["gymnasium"] == gymnasium.__version__
        assert metadata["versions"]["numpy"] == np.__version__
        assert metadata["versions"]["python"].startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
        assert metadata["created"].endswith("+00:00")
        metadata["seed"] = 4
        assert dataset.metadata["seed"] == 3


# ------------------------------------------------------------------------------------------------------------- summary


def test_the_summary_counts_every_end(tmp_path):
    plan = fixed_plan(["rrtbrruc", "rrrrrrrr"], nesting="scalar")
    with Dataset.create(tmp_path / "d", StepSpec.of(record_of(plan, "rollout"))) as dataset:
        dataset.append(record_of(plan, "rollout"))
        summary = dataset.summary()
        assert summary.episodes == dataset.counts
        assert summary.episodes == EpisodeCounts(total=5, complete=3, terminated=2, truncated=1, cut=1, open=1)
        returns = [sum(n + 0.1 for n in numbers) for numbers in ((0, 1, 2), (100,), (200, 201, 202))]
        assert summary.steps == len(dataset) == 16
        assert summary.returns == Moments(
            mean=pytest.approx(np.mean(returns)),
            std=pytest.approx(np.std(returns)),
            min=pytest.approx(min(returns)),
            max=pytest.approx(max(returns)),
        )
        assert summary.lengths == Moments(mean=7 / 3, std=pytest.approx(math.sqrt(8 / 9)), min=1.0, max=3.0)
        on_disk = sum(path.stat().st_size for path in (tmp_path / "d").rglob("*") if path.is_file())
        assert summary.disk_nbytes == on_disk
        assert summary.bytes_per_step == on_disk / 16


def test_the_summary_of_pieces_is_that_of_the_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("outrider.dataset.dataset.SUMMARY_STEPS", 3)
    plan = fixed_plan(["rrtbrruc", "rrrtrrut"], nesting="scalar")
    spec = StepSpec.of(record_of(plan, "rollout"))
    found = []
    for name, cuts in (("whole", []), ("pieces", [1, 2, 6])):
        with Dataset.create(tmp_path / name, spec) as dataset:
            for piece in pieces_of(plan, cuts):
                dataset.append(record_of(piece, "rollout"))
            summary = dataset.summary()
            found.append(dataclasses.replace(summary, disk_nbytes=0))
    assert found[0] == found[1]


def test_an_empty_dataset_has_no_returns(tmp_path):
    spec = StepSpec(obs=LeafSpec((), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=1)
    with Dataset.create(tmp_path / "d", spec) as dataset:
        summary = dataset.summary()
    assert (summary.steps, summary.returns, summary.lengths, summary.bytes_per_step) == (0, None, None, 0.0)


def test_an_episode_whose_beginning_is_missing_is_not_complete(tmp_path):
    flags = np.zeros(2, bool)
    tail = Episode(
        obs=np.arange(3),
        action=np.zeros(2),
        reward=np.ones(2),
        terminated=np.array([False, True]),
        truncated=flags,
        cut=flags,
        step=np.array([7, 8]),
        version=np.zeros(2, np.int64),
        episode_id=0,
        env_id=0,
    )
    with Dataset.create(tmp_path / "d", StepSpec.of(tail)) as dataset:
        dataset.append(tail)
        assert (dataset.counts.terminated, dataset.counts.complete, dataset.summary().returns) == (1, 0, None)
        assert dataset.episodes()[0].step.tolist() == [7, 8]


def test_rewards_of_a_tenth_add_up(tmp_path):
    count = 20_000
    flags = np.zeros(count, bool)
    end = np.arange(count) == count - 1
    episode = Episode(
        obs=np.zeros(count + 1, np.uint8),
        action=np.zeros(count, np.uint8),
        reward=np.full(count, 0.1),
        terminated=end,
        truncated=flags,
        cut=flags,
        step=np.arange(count),
        version=np.zeros(count, np.int64),
        episode_id=0,
        env_id=0,
    )
    with Dataset.create(tmp_path / "d", StepSpec.of(episode)) as dataset:
        dataset.append(episode)
        assert dataset.summary().returns.mean == pytest.approx(2000, abs=1e-6)
        assert dataset.summary().bytes_per_step < 1
