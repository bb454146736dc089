"""Writers of a dataset that are killed at a chosen moment: `python -m helpers.dying_writer FOLDER MOMENT`.

For each file that creating a dataset and appending to it replaces, one forked child does that work and kills itself
before it replaces the file with the file half written; for every third, before it or after it. A line of JSON says what
each had done.
"""

import itertools
import json
import os
import signal
import sys
from pathlib import Path

import zarr

from helpers.stored_runs import fixed_plan, pieces_of, record_of
from outrider.dataset import Dataset, stored
from outrider.records import StepSpec

PLAN = fixed_plan(["rrtrrrtrrr", "rrrrrurrrc"], nesting="dict")
PIECES = pieces_of(PLAN, [3, 8])
STRIDE = {"torn": 1, "before": 3, "after": 3}
SPEC = StepSpec.of(record_of(PLAN, "rollout"))


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(count, moment):
    """Replace `Path.replace`, by which every file of a dataset is committed."""
    replace = Path.replace
    calls = itertools.count(1)

    def dying(path, target):
        if next(calls) != count:
            return replace(path, target)
        if moment == "torn":
            os.truncate(path, path.stat().st_size // 2)
        if moment == "after":
            replace(path, target)
        return die()

    Path.replace = dying


def write(folder, report):
    """Create a dataset and append all pieces; write one byte for each append that has returned."""
    with Dataset.create(folder, SPEC) as dataset:
        for piece in PIECES:
            dataset.append(record_of(piece, "rollout"))
            os.write(report, b".")


def run_child(folder, count, moment):
    """Return how many appends returned in a child that dies at file `count`, and its wait status."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        die_at(count, moment)
        write(folder, theirs)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        done = len(pipe.read())
    return done, os.waitpid(pid, 0)[1]


def main(folder, moment):
    # Imported by the children, it would take most of the time; no thread of it may run before they are forked.
    assert zarr.__name__ in sys.modules
    stored.CHUNK_ROWS = 8
    for count in itertools.count(1, STRIDE[moment]):
        path = f"{folder}/{moment}-{count}"
        done, status = run_child(path, count, moment)
        line = {"path": path, "done": done, "killed": os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL}
        print(json.dumps(line))  # noqa: T201 - this is the result
        if not line["killed"]:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
