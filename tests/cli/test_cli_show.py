"""`outrider show`: what it prints, and what it refuses."""

import json
import re

import pytest

from helpers.cli import outrider, started
from helpers.patience import RUNNING
from outrider import Dataset


@pytest.fixture
def dataset(tmp_path):
    out = tmp_path / "d"
    outrider("collect", "CartPole-v1", "--steps", 300, "--envs", 3, "--seed", 1, "--out", out)
    return out


def test_everything_is_there(dataset):
    output = outrider("show", dataset)
    with Dataset.open(dataset) as opened:
        summary, episodes = opened.summary(), opened.episodes()
        assert re.search(r"steps +300\n", output)
        assert f"{summary.episodes.complete} complete, {summary.episodes.open} open\n" in output
        assert f"return    mean {summary.returns.mean:.4g}, std {summary.returns.std:.4g}, min " in output
        assert f"{summary.bytes_per_step:.1f} bytes per step" in output
        first = episodes[0]
    for line in (
        r"obs +float32 \[4\]",
        r"action +int64",
        r"reward +float64",
        "env +CartPole-v1",
        "policy +RandomPolicy",
        "seed +1",
        "num_envs +3",
        r"versions +outrider \d.*gymnasium \d.*",
        "command +name collect, steps 300, envs 3, workers 0",
        r"action space +Discrete\(2\)",
        rf"0 +0 +{len(first)} +{first.reward.sum():g}  terminated",
        rf"First 5 of {len(episodes)} episodes",
    ):
        assert re.search(rf"^ *{line}$", output, re.MULTILINE), line
    assert not re.search(r"[ \t]$", output, re.MULTILINE)


@pytest.mark.parametrize("count", (0, 1, 10_000))
def test_number_of_episodes(dataset, count):
    output = outrider("show", dataset, "--episodes", count)
    with Dataset.open(dataset) as opened:
        shown = min(count, opened.num_episodes)
    _, _, table = output.partition("First ")
    assert len(re.findall(r"(terminated|truncated|open)$", table, re.MULTILINE)) == shown
    assert bool(table) == (count > 0)


def test_an_empty_dataset(dataset, tmp_path):
    with Dataset.open(dataset) as opened, Dataset.create(tmp_path / "empty", opened.spec) as empty:
        assert len(empty) == 0
    output = outrider("show", tmp_path / "empty")
    assert "0 complete" in output
    assert "no complete episode" in output


def test_what_is_no_dataset(tmp_path, dataset):
    (tmp_path / "file").touch()
    assert "found no such folder" in outrider("show", tmp_path / "nothing", code=2)
    assert "found a file" in outrider("show", tmp_path / "file", code=2)
    assert "found no dataset" in outrider("show", tmp_path, code=2)
    description = json.loads((dataset / "dataset.json").read_text())
    (dataset / "dataset.json").write_text(json.dumps(description | {"version": 99}))
    assert "version 99" in outrider("show", dataset, code=2)
    (dataset / "dataset.json").write_text("{")
    assert "JSONDecodeError" in outrider("show", dataset, code=2)


def test_a_damaged_dataset(dataset):
    for chunk in dataset.rglob("*reward/c*"):
        chunk.write_bytes(chunk.read_bytes()[:-8])
    output = outrider("show", dataset, code=1)
    assert "error: " in output
    assert "Traceback" not in output


def test_a_pipe_that_is_closed(dataset):
    process = started("show", dataset)
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.wait(timeout=RUNNING)
    process.stderr.close()
