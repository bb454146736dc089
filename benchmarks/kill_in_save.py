"""A buffer of a million rows is saved; then a process that saves it anew is killed, at different moments.

After each kill the file must be the old one to the last byte, unless the new one was already whole; it is loaded,
`check` verifies it, and all of its rows are compared with those that were saved.
"""

from __future__ import annotations

import argparse
import hashlib
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rounds import HERE, machine, table

import outrider
from outrider.records import Rollout, StepSpec
from outrider.spec import LeafSpec

ROWS, LANES, LENGTH = 1_000_000, 8, 1000
SPEC = StepSpec(obs=LeafSpec((17,), np.dtype("f4")), action=LeafSpec((6,), np.dtype("f4")), num_envs=LANES)
SHARES = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.5)
"""Of the time that a save takes, when the process is killed."""

WRITER = """
import sys, time
sys.path.insert(0, sys.argv[2])
import outrider
from kill_in_save import block
replay = outrider.ReplayBuffer.load(sys.argv[1])
replay.extend(block(1000))
print("begins", flush=True)
began = time.perf_counter()
replay.save(sys.argv[1])
print(time.perf_counter() - began, flush=True)
"""
"""Loads the file, changes what is in it, and saves it over the old one."""


def block(number: int) -> Rollout:
    """Steps whose observations and rewards nobody could take for those of another block."""
    zeros = Rollout.zeros(SPEC, LENGTH)
    rng = np.random.default_rng(number)
    zeros.obs[:] = rng.random(zeros.obs.shape, np.float32)
    zeros.action[:] = rng.random(zeros.action.shape, np.float32)
    zeros.reward[:] = rng.random(zeros.reward.shape)
    zeros.episode_id[:] = (number << 32) + np.arange(LANES)
    return zeros


def digest(path: Path) -> str:
    """A hash of all rows that a file holds, with their next observations, once `check` has found nothing."""
    replay = outrider.ReplayBuffer.load(path, sampler=outrider.Newest())
    replay.check()
    assert len(replay) == ROWS
    batch, found = replay.sample(ROWS), hashlib.sha256()
    for name in ("obs", "action", "reward", "next_obs", "terminated", "truncated", "episode_id", "step", "index"):
        found.update(np.ascontiguousarray(getattr(batch, name)).data)
    return found.hexdigest()


def file_hash(path: Path) -> str:
    """A hash of the bytes of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def start(path: Path) -> subprocess.Popen[str]:
    """A process that is about to save over the file."""
    command = [sys.executable, "-c", WRITER, str(path), str(HERE)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    return process


@dataclass(frozen=True)
class Files:
    """What may be found: the digests of the old file and of the new one, and the bytes of the old one as a hash."""

    old: str
    new: str
    bytes: str


def kill(path: Path, after: float, known: Files) -> list[str]:
    """Kill a save after so many seconds and look at what is there: a row of the table."""
    size = path.stat().st_size
    process, partial = start(path), path.with_name(f".{path.name}.partial")
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    status = process.wait()
    assert process.stdout is not None
    process.stdout.close()
    written = f"{partial.stat().st_size / size:.0%}" if partial.exists() else "none left"
    began = time.perf_counter()
    found = digest(path)
    seconds = time.perf_counter() - began
    assert found in (known.old, known.new), "the file is neither the old one nor the new one"
    whole = "old" if found == known.old else "new"
    if whole == "old":
        assert status == -signal.SIGKILL
        assert file_hash(path) == known.bytes
    ending = f"signal {-status}" if status < 0 else f"status {status}"
    return [f"{after:.3f}", ending, written, whole, f"{seconds:.1f}"]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where the file is to be; by default one for temporary files")
    options = parser.parse_args()
    replay = outrider.ReplayBuffer(ROWS, SPEC, sampler=outrider.Prioritized(), seed=0)
    for number in range(ROWS // (LANES * LENGTH)):
        replay.extend(block(number))
    assert len(replay) == ROWS
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path, other = Path(folder) / "replay", Path(folder) / "other"
        replay.save(path)
        takes = []
        for _ in range(3):
            replay.save(other)
            takes.append(float(start(other).communicate()[0]))
        known = Files(digest(path), digest(other), file_hash(path))
        assert known.old != known.new
        other.unlink()
        rows, megabytes = [], path.stat().st_size / 1e6
        for share in SHARES:
            rows.append(kill(path, share * min(takes), known))
            if rows[-1][3] == "new":
                replay.save(path)
                known = Files(known.old, known.new, file_hash(path))
    print("After each signal the file was loaded, `check` found nothing, and all rows were the old or the new ones.")
    times = f"{min(takes):.2f} to {max(takes):.2f} s"
    print(f"{ROWS:,} rows, {megabytes:.0f} MB, which take {times} to save. {machine()}\n")
    heads = ["killed after s", "ended by", "of the new file was written", "the file is the", "load and check s"]
    print(table(heads, rows))


if __name__ == "__main__":
    main()
