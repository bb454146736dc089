"""Named arrays and a description in one file that is either old or new, never half written.

The file is a zip archive of `.npy` files and one `meta.json`, which NumPy, and most other tools, can open. Its entries
carry checksums, and its table of contents is written last, so that a torn file is recognised.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy

from outrider.errors import ReplayError, explain

__all__ = ["Reader", "Writer", "packed", "write"]

FORMAT, VERSION = "outrider replay buffer", 1
META = "meta.json"
READING = (OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError)
DAMAGE = (*READING, zipfile.BadZipFile, zlib.error)
"""What comes of reading a file with bits that were changed."""

CHUNK = 1 << 24
"""Bytes that are read or written at a time, so that no array has to be held twice."""


def write(path: str | os.PathLike[str], fill: Callable[[Writer], dict[str, Any]]) -> None:
    """Replace the file at `path` in one step by one that `fill` writes; its content is on the disk before that.

    Args:
        path: of the file; its folder exists. A killed writer leaves `.NAME.partial` there, which the next one replaces.
        fill: writes arrays, and returns the description, of which JSON must be able to hold all values.

    Raises:
        ReplayError: the file cannot be written; what was there before still is.
    """
    # Not the link, but what it points to, is replaced.
    target = Path(os.path.realpath(path))
    try:
        _require_replaceable(target)
        with _partial(target) as (file, partial):
            _write(file, fill)
            file.flush()
            os.fsync(file.fileno())
            if target.exists():
                shutil.copymode(target, partial)
            partial.replace(target)
    except OSError as error:
        found = f"{type(error).__name__}: {error}"
        raise _refused(
            "a place where the file can be written", found, target, "free space, or choose another"
        ) from error


def _require_replaceable(target: Path) -> None:
    if not target.name or target.is_dir():
        raise IsADirectoryError(target)
    if target.exists() and not target.is_file():
        msg = f"{target} is a device, a pipe or a socket, and would be replaced"
        raise OSError(msg)


def packed(fill: Callable[[Writer], dict[str, Any]]) -> bytes:
    """The file that `write` would write."""
    file = io.BytesIO()
    _write(file, fill)
    return file.getvalue()


def _write(file: Any, fill: Callable[[Writer], dict[str, Any]]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        meta = fill(Writer(archive)) | {"format": FORMAT, "format_version": VERSION}
        archive.writestr(META, json.dumps(meta, allow_nan=False))


@contextmanager
def _partial(target: Path) -> Iterator[tuple[Any, Path]]:
    """The file that is to replace `target`, empty, and its name; removed if the block fails.

    Another writer of the same one waits until this one has finished or died.
    """
    name = target.with_name(f".{target.name}.partial")
    with _locked(name) as file:
        try:
            file.truncate(0)
            yield file, name
        except BaseException:
            name.unlink(missing_ok=True)
            raise


def _locked(name: Path) -> Any:
    """Open a file, made if there is none, that nobody else has locked."""
    while True:
        file = os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Who had the lock before may have moved the file to its place, or removed it.
            if name.exists() and name.stat().st_ino == os.fstat(file.fileno()).st_ino:
                return file
        except BaseException:
            file.close()
            raise
        file.close()


class Writer:
    """Writes arrays into an archive."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def array(self, name: str, array: np.ndarray) -> None:
        """Write an array, in C order, under a name."""
        with self._archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
            npy.write_array_header_2_0(entry, npy.header_data_from_array_1_0(array))
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            for start in range(0, len(data), CHUNK):
                entry.write(data[start : start + CHUNK])

    def arrays(self, prefix: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write several arrays, under "prefix/name"."""
        for name, array in arrays.items():
            self.array(f"{prefix}/{name}", array)


class Reader:
    """Reads an archive; a context manager.

    Args:
        path: of the file, or what `packed` has returned.

    Attributes:
        meta: the description.

    Raises:
        ReplayError: there is no such file, or it is torn, foreign, or of a newer format.
    """

    def __init__(self, path: str | os.PathLike[str] | bytes) -> None:
        file = io.BytesIO(path) if isinstance(path, bytes) else Path(path)
        self._path = file if isinstance(file, Path) else Path("in memory")
        try:
            self._archive = zipfile.ZipFile(file)
        except FileNotFoundError as error:
            raise _refused("a file", "none of that name", self._path, "look at the path") from error
        except DAMAGE as error:
            raise self._torn(error) from error
        try:
            self.meta = self._describe()
        except BaseException:
            self._archive.close()
            raise

    def _describe(self) -> dict[str, Any]:
        try:
            meta: dict[str, Any] = json.loads(self._archive.read(META))
            found = meta["format"], meta["format_version"]
        except (TypeError, *DAMAGE) as error:
            raise self._torn(error) from error
        if found[0] != FORMAT or found[1] != VERSION:
            expected = f"a file of format '{FORMAT}', version {VERSION}"
            raise _refused(
                expected, f"'{found[0]}', version {found[1]}", self._path, "load it with the release that wrote it"
            )
        return meta

    def has(self, name: str) -> bool:
        """Whether there is an array of this name."""
        return f"{name}.npy" in self._archive.namelist()

    def into(self, name: str, target: np.ndarray) -> None:
        """Read an array into the first rows of `target`, which has its dtype and shape of rows.

        Raises:
            ReplayError: the array is missing, torn, or of another shape or dtype.
        """
        try:
            with self._archive.open(f"{name}.npy") as entry:
                shape, dtype = self._header(entry)
                if dtype != target.dtype or shape[1:] != target.shape[1:] or shape[0] > len(target):
                    expected = f"rows of shape {target.shape[1:]}, dtype {target.dtype}, {len(target)} at most"
                    found = f"shape {shape}, dtype {dtype} in '{name}'"
                    raise _refused(expected, found, self._path, "load it with the arguments that it was saved with")
                rows = target[: shape[0]]
                into = rows if rows.flags.c_contiguous else np.empty(shape, dtype)
                data = into.reshape(-1).view(np.uint8).data
                for start in range(0, len(data), CHUNK):
                    _read(entry, data[start : start + CHUNK])
                # The checksum is looked at when the end is read.
                entry.read(1)
                if into is not rows:
                    rows[...] = into
        except DAMAGE as error:
            raise self._torn(error) from error

    def array(self, name: str) -> np.ndarray:
        """Read an array.

        Raises:
            ReplayError: it is missing or torn.
        """
        try:
            with self._archive.open(f"{name}.npy") as entry:
                shape, dtype = self._header(entry)
        except DAMAGE as error:
            raise self._torn(error) from error
        found = np.zeros(shape, dtype)
        self.into(name, found)
        return found

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """Read all arrays under "prefix/", by the rest of their names."""
        start = f"{prefix}/"
        names = [name.removesuffix(".npy") for name in self._archive.namelist() if name.startswith(start)]
        return {name.removeprefix(start): self.array(name) for name in names}

    @staticmethod
    def _header(entry: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
        npy.read_magic(entry)
        shape, _, dtype = npy.read_array_header_2_0(entry)
        return shape, dtype

    def _torn(self, error: Exception) -> ReplayError:
        expected, fix = (
            "a whole file that ReplayBuffer.save has written",
            "restore it from a copy, or begin a new buffer",
        )
        return _refused(expected, f"{type(error).__name__}: {error}", self._path, fix)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._archive.close()


def _read(entry: Any, part: memoryview) -> None:
    """Fill `part` from an entry.

    Raises:
        EOFError: it has not as much.
    """
    if entry.readinto(part) != len(part):
        msg = f"the entry ends {len(part)} bytes before its array or earlier"
        raise EOFError(msg)


def _refused(expected: str, found: str, path: Path, fix: str) -> ReplayError:
    return ReplayError(explain(expected=expected, found=found, where=f"replay file '{path}'", fix=fix))
