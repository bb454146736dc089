"""A writer killed at any moment leaves everything that it had appended, and a dataset that can be appended to."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.dying_writer import PIECES, PLAN, SPEC, STRIDE
from helpers.endless_writer import SPEC as ENDLESS_SPEC
from helpers.endless_writer import episode
from helpers.plain_rows import assert_equal
from helpers.stored_runs import assert_stored, record_of, stored_runs
from outrider.dataset import Dataset

TESTS = Path(__file__).parents[1]


def session(*pieces):
    return [(piece, "rollout") for piece in pieces]


def committed_pieces(dataset):
    """How many of the pieces the dataset holds; part of one is an error."""
    steps = [sum(len(piece.rows) for piece in PIECES[:count]) for count in range(len(PIECES) + 1)]
    assert len(dataset) in steps
    return steps.index(len(dataset))


@pytest.mark.parametrize("moment", ("before", "torn", "after"))
def test_killed_at_every_file(tmp_path, moment):
    command = [sys.executable, "-m", "helpers.dying_writer", str(tmp_path), moment]
    output = subprocess.run(command, cwd=TESTS, check=True, capture_output=True, text=True).stdout
    *killed, last = [json.loads(line) for line in output.splitlines()]
    assert (last["killed"], last["done"]) == (False, len(PIECES))
    assert len(killed) * STRIDE[moment] > 50
    surplus = {check_survivor(Path(line["path"]), line["done"]) for line in killed}
    assert surplus == ({0, 1} if moment == "after" else {0})


def check_survivor(path, done):
    """Verify and complete what a killed writer left; return how many appends were committed without returning."""
    if not path.exists():
        assert done == 0
        Dataset.create(path, SPEC).close()
    with Dataset.open(path) as reader:
        committed = committed_pieces(reader)
        assert_stored(reader, stored_runs([session(*PIECES[:committed])]), PLAN)
    with Dataset.open(path, writable=True) as writer:
        assert not list(path.rglob("*.partial"))
        for piece in PIECES[committed:]:
            writer.append(record_of(piece, "rollout"))
    with Dataset.open(path) as reader:
        assert_stored(reader, stored_runs([session(*PIECES[:committed]), session(*PIECES[committed:])]), PLAN)
    return committed - done


def test_killed_from_outside_again_and_again(tmp_path):
    path = tmp_path / "d"
    Dataset.create(path, ENDLESS_SPEC).close()
    for lines in (1, 20, 57):
        command = [sys.executable, "-m", "helpers.endless_writer", str(path)]
        with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as process:
            printed = [int(process.stdout.readline()) for _ in range(lines)]
            process.kill()
            printed += [int(line) for line in process.stdout.read().splitlines()]
        with Dataset.open(path) as reader:
            assert reader.num_episodes in (printed[-1] + 1, printed[-1] + 2)
            for number, found in enumerate(reader.episodes()):
                expected = episode(number)
                assert_equal((found.obs, found.action, found.reward), (expected.obs, expected.action, expected.reward))
                assert found.is_complete
