"""Making the folder of a dataset, in one step, and reading back what it says about itself."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.metadata
import json
import os
import platform
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.dataset.columns import Columns
from outrider.dataset.files import WriterLock, read_json, write_json
from outrider.dataset.spec_json import spec_from_json, spec_to_json
from outrider.errors import DatasetError, SpecError, explain
from outrider.records import StepSpec

__all__ = ["Committed", "append_run", "new_folder", "read_description", "runs_of"]

FORMAT, VERSION = "outrider-dataset", 1
RESERVED = ("created", "versions", "runs")


@dataclass(frozen=True, slots=True)
class Committed:
    """How much of the arrays counts: the content of `committed.json`, whose replacement is the commit of an append.

    Attributes:
        steps: rows of the columns of steps.
        segments: rows of the segment table; columns of observations have steps + segments rows.
    """

    steps: int
    segments: int

    def write(self, folder: Path) -> None:
        """Replace the file, and wait until the disk has it.

        Raises:
            OSError: the old one holds.
        """
        write_json(folder / "committed.json", {"steps": self.steps, "segments": self.segments})

    @classmethod
    def read(cls, folder: Path) -> Committed:
        """Read the file.

        Raises:
            DatasetError: it is missing or of something else.
        """
        found = read_json(folder / "committed.json")
        try:
            committed = cls(found["steps"], found["segments"])
            if 0 <= committed.segments <= committed.steps:
                return committed
        except (KeyError, TypeError):
            pass
        fix = "restore the file from a copy"
        expected = "the counts of steps and segments in 'committed.json'"
        raise DatasetError(explain(expected=expected, found=str(found)[:200], where=f"dataset '{folder}'", fix=fix))


@contextlib.contextmanager
def new_folder(folder: Path, spec: StepSpec, metadata: dict[str, Any]) -> Iterator[WriterLock]:
    """Make an empty dataset at `folder`, for the block to open; if anything raises, nothing of it is left.

    It is made under another name beside it, and then renamed. Yields the right to append to it.

    Raises:
        ConfigError: a space of the spec cannot be described.
        DatasetError: something is there already, the parent cannot be written to, or the metadata are not JSON.
    """
    description = {
        "format": FORMAT,
        "version": VERSION,
        "spec": spec_to_json(spec),
        "metadata": {**_own_metadata(), **_checked(metadata)},
    }
    _check_place(folder)
    missing = [parent for parent in folder.parents if not os.access(parent, os.F_OK)]
    made = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
    lock = None
    try:
        made.mkdir(parents=True)
        lock = WriterLock(made)
        Columns.create(made, spec)
        Committed(0, 0).write(made)
        write_json(made / "dataset.json", description)
        made = made.rename(folder)
        yield lock
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
        if lock is not None:
            lock.release()
        if isinstance(error, OSError):
            raise _cannot_be_made(folder, f"{type(error).__name__}: {error}") from error
        raise


def _check_place(folder: Path) -> None:
    """Refuse what is there already, and a place where nothing can be made."""
    nearest = next(parent for parent in folder.parents if os.access(parent, os.F_OK))
    if not nearest.is_dir():
        raise _cannot_be_made(folder, f"a file where its parent should be: '{nearest}'")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise _cannot_be_made(folder, f"a parent that may not be written to: '{nearest}'")
    if folder.is_dir() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise _cannot_be_made(folder, "a folder that may not be read or written to")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise DatasetError(
            explain(
                expected="a new or empty folder",
                found="a file" if folder.is_file() else "a folder with something in it",
                where=f"Dataset.create('{folder}')",
                fix="choose another path, or append to what is there with Dataset.open(path, writable=True)",
            )
        )


def _cannot_be_made(folder: Path, found: str) -> DatasetError:
    return DatasetError(
        explain(
            expected="a folder that can be created",
            found=found,
            where=f"Dataset.create('{folder}')",
            fix="choose a path whose parent you may write to, on a disk with free space",
        )
    )


def _own_metadata() -> dict[str, Any]:
    names = ("outrider", "gymnasium", "numpy")
    versions = {name: _version(name) for name in names}
    now = dt.datetime.now(dt.UTC)
    return {
        "created": now.isoformat(timespec="seconds"),
        "versions": {**versions, "python": platform.python_version()},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that was never installed


def append_run(folder: Path, run: dict[str, Any], first_step: int) -> dict[str, Any]:
    """Add a run that begins with the step of this number to the metadata of a dataset; return these.

    Raises:
        DatasetError: the description of the run is no JSON, or has names that are ours.
        OSError: nothing was changed.
    """
    where = "Dataset.begin_run(metadata)"
    if "first_step" in run or "steps" in run:
        raise DatasetError(
            explain(
                expected="other keys than 'first_step' and 'steps'",
                found=f"the keys {sorted(run)}",
                where=where,
                fix="leave these out: they are counted here",
            )
        )
    description = read_json(folder / "dataset.json")
    metadata = description["metadata"]
    begun = {"first_step": first_step, **_own_metadata(), **_checked(run, where)}
    # What came before runs were noted is one run.
    before = metadata.get("runs", [{"first_step": 0, **metadata}] if first_step else [])
    metadata["runs"] = [*before, begun]
    write_json(folder / "dataset.json", description)
    return dict(metadata)


def runs_of(metadata: dict[str, Any], steps: int) -> list[dict[str, Any]]:
    """The runs that a dataset of so many steps came from, each with its number of steps."""
    runs = metadata.get("runs", [{"first_step": 0, **metadata}] if steps else [])
    if not runs:
        return []
    ends = [*(run["first_step"] for run in runs[1:]), steps]
    return [{**run, "steps": end - run["first_step"]} for run, end in zip(runs, ends, strict=True)]


def _checked(metadata: dict[str, Any], where: str = "Dataset.create(metadata)") -> dict[str, Any]:
    """Refuse what JSON cannot hold, and the names that are ours."""
    problem = next((f"the reserved key {name!r}" for name in RESERVED if name in metadata), None)
    if problem is None:
        try:
            json.dumps(metadata, allow_nan=False)
        except (TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
    if problem is not None:
        expected = f"a dict of strings, finite numbers, lists and dicts, without the keys {RESERVED}"
        fix = "convert the values to plain Python types"
        raise DatasetError(explain(expected=expected, found=problem, where=where, fix=fix))
    return metadata


def read_description(folder: Path) -> tuple[StepSpec, dict[str, Any]]:
    """Return the spec and the metadata of the dataset at `folder`.

    Raises:
        DatasetError: it is none, or was written by a newer version.
    """
    found = read_json(folder / "dataset.json")
    kind = (found.get("format"), found.get("version")) if isinstance(found, dict) else (None, None)
    try:
        if kind == (FORMAT, VERSION):
            return spec_from_json(found["spec"]), dict(found["metadata"])
        problem = f"format {kind[0]!r}, version {kind[1]!r}"
    except (KeyError, TypeError, SpecError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise DatasetError(
        explain(
            expected=f"format {FORMAT!r}, version {VERSION}, in 'dataset.json'",
            found=problem,
            where=f"dataset '{folder}'",
            fix="pass the folder of a dataset, or open it with the version of outrider that wrote it",
        )
    )
