"""Files that are either old or new, never half written, and the lock that keeps a second writer out."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from outrider.errors import DatasetError, explain

__all__ = ["WriterLock", "read_json", "remove_partials", "write_json"]


def write_json(path: Path, value: Any) -> None:
    """Replace the file at `path` in one step: whoever reads it, or kills us, finds the old content or the new.

    The content is on the disk before the old file is replaced. The temporary name is fixed, because there is one
    writer.

    Args:
        path: the file; its folder exists.
        value: what JSON can hold.

    Raises:
        OSError: nothing was changed.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(json.dumps(value, indent=1, allow_nan=False).encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_partials(folder: Path) -> None:
    """Remove what a killed writer, or zarr in it, has half written in `folder`; what cannot be removed does no harm."""
    with contextlib.suppress(OSError):
        for file in folder.rglob("*.partial"):
            file.unlink()


def read_json(path: Path) -> Any:
    """Return the content of a JSON file that belongs to a dataset.

    Raises:
        DatasetError: it is missing, unreadable, or no JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        msg = explain(
            expected=f"the file '{path.name}' of a dataset",
            found=f"{type(error).__name__}: {error}",
            where=f"dataset '{path.parent}'",
            fix="pass the folder that Dataset.create made, or restore the file from a copy",
        )
        raise DatasetError(msg) from error


class WriterLock:
    """The right to append to a dataset: an advisory lock on a file, which the system drops when the process dies.

    `flock` belongs to the open file, so that a second `Dataset` of the same process is refused as well.

    Raises:
        DatasetError: somebody else has it, or the folder cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "writer.lock"
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            msg = explain(
                expected="a folder that can be written to",
                found=str(error),
                where=f"dataset '{folder}'",
                fix="open it without writable=True to read it, or change its permissions",
            )
            raise DatasetError(msg) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            msg = explain(
                expected="no other writer",
                found="one that has the dataset open for appending, in this process or another",
                where=f"dataset '{folder}'",
                fix="close the other one first; any number may read meanwhile",
            )
            raise DatasetError(msg) from error

    def release(self) -> None:
        """Give the lock back; copies of the descriptor in forked children do not keep it."""
        if self._descriptor >= 0:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1
