"""Where the rows of a dataset come from: the runs that it was written by."""

import json

import numpy as np
import pytest

from outrider.dataset import Dataset, creation
from outrider.errors import ClosedError, DatasetError
from outrider.records import StepSpec
from outrider.spec import LeafSpec

SPEC = StepSpec(obs=LeafSpec((4,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data"


def counts(dataset):
    return [(run.get("seed"), run["first_step"], run["steps"]) for run in dataset.runs]


def test_each_run_has_the_steps_that_were_appended_in_it(path):
    with Dataset.create(path, SPEC, metadata={"env": "e"}) as dataset:
        assert dataset.runs == []
        dataset.begin_run({"seed": 1, "policy": "a"})
        dataset.append(SPEC.zeros(3))
        dataset.append(SPEC.zeros(2))
        assert counts(dataset) == [(1, 0, 10)]
    with Dataset.open(path, writable=True) as dataset:
        dataset.begin_run({"seed": 2})
        assert counts(dataset) == [(1, 0, 10), (2, 10, 0)]
        dataset.append(SPEC.zeros(4))
    with Dataset.open(path) as dataset:
        assert counts(dataset) == [(1, 0, 10), (2, 10, 8)]
        assert dataset.metadata["env"] == "e"
        assert len(dataset.metadata["runs"]) == 2
        assert all(run["created"] and run["versions"]["numpy"] == np.__version__ for run in dataset.runs)


def test_what_was_there_before_runs_were_noted_is_the_first(path):
    with Dataset.create(path, SPEC, metadata={"seed": 7, "policy": "old"}) as dataset:
        dataset.append(SPEC.zeros(3))
        assert counts(dataset) == [(7, 0, 6)]
        assert "runs" not in dataset.metadata
        dataset.begin_run({"seed": 8})
        dataset.append(SPEC.zeros(1))
        assert counts(dataset) == [(7, 0, 6), (8, 6, 2)]
        assert dataset.runs[0]["policy"] == "old"
        assert dataset.metadata["seed"] == 7
    assert json.loads((path / "dataset.json").read_text())["metadata"]["runs"][1]["first_step"] == 6


@pytest.mark.parametrize("metadata", ({"steps": 3}, {"first_step": 0}, {"created": "now"}, {"a": np.zeros(1)}))
def test_descriptions_that_are_none_change_nothing(path, metadata):
    with Dataset.create(path, SPEC) as dataset:
        with pytest.raises(DatasetError, match="begin_run"):
            dataset.begin_run(metadata)
        assert dataset.runs == []
    with pytest.raises(ClosedError):
        dataset.begin_run({})
    with Dataset.open(path) as dataset, pytest.raises(DatasetError, match="writable=True"):
        dataset.begin_run({})


def test_a_full_disk_changes_nothing(path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with Dataset.create(path, SPEC) as dataset:
        dataset.begin_run({"seed": 1})
        with monkeypatch.context() as patch:
            patch.setattr(creation, "write_json", full)
            with pytest.raises(DatasetError, match="No space left"):
                dataset.begin_run({"seed": 2})
        assert counts(dataset) == [(1, 0, 0)]


def test_runs_are_no_metadata_to_be_given(path):
    with pytest.raises(DatasetError, match="'runs'"):
        Dataset.create(path, SPEC, metadata={"runs": []})
