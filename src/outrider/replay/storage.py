"""Where the rows of a replay buffer stand: in memory, or in files that are mapped into it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, explain
from outrider.memory.ragged import RaggedLeaf
from outrider.spec import LeafSpec, RaggedSpec
from outrider.tree import Tree

__all__ = ["Memmap", "Memory", "Storage", "allocate", "storage_of"]


class Storage(Protocol):
    """Makes arrays."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """A writable array of zeros, whose pages cost memory or disk only when they are written."""


@dataclass(frozen=True)
class Memory:
    """The memory of this process; the default, also written "memory"."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """See `Storage.zeros`."""
        return np.zeros(shape, dtype)


@dataclass(frozen=True)
class Memmap:
    """Files in a folder, mapped into memory: for buffers that are larger than the memory of the machine.

    The files have no names: they are gone when the buffer is, also after a crash. To keep what is in a buffer, `save`
    it. The folder should be on a local disk, of which the files take their whole size at once.

    Attributes:
        path: the folder; it is made if there is none.

    Raises:
        ConfigError: it is no path; or when the buffer is made: the folder cannot be written to.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Memmap(folder).zeros((3, 2), np.dtype("u1")).sum()
        np.uint64(0)
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        """Refuse what is no path."""
        if not isinstance(self.path, (str, os.PathLike)):
            raise _refused("the path of a folder", repr(self.path), "pass a string or a pathlib.Path")

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        """See `Storage.zeros`.

        Raises:
            ConfigError: the folder cannot be made or written to.
        """
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True)
            if 0 in shape:
                return np.zeros(shape, dtype)
            with tempfile.TemporaryFile(dir=self.path) as file:
                nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
                file.truncate(nbytes)
                if hasattr(os, "posix_fallocate"):
                    # A disk that is full when a page is written to kills the process without a word.
                    os.posix_fallocate(file.fileno(), 0, nbytes)
                return np.memmap(file, dtype, "r+", shape=shape).view(np.ndarray)
        except OSError as error:
            fix = "pass a folder that can be written to, on a disk with room for the rows"
            raise _refused("a writable folder", str(error), fix) from error


def _refused(expected: str, found: str, fix: str) -> ConfigError:
    return ConfigError(explain(expected=expected, found=found, where="Memmap(path)", fix=fix))


def storage_of(storage: Any) -> Storage:
    """What `storage=` says.

    Raises:
        ConfigError: it is neither "memory" nor something that makes arrays.
    """
    if storage == "memory":
        return Memory()
    if not hasattr(storage, "zeros"):
        raise ConfigError(
            explain(
                expected="'memory' or outrider.Memmap(path)",
                found=repr(storage),
                where="ReplayBuffer(storage)",
                fix="pass one of them",
            )
        )
    found: Storage = storage
    return found


def allocate(storage: Storage, specs: Tree, rows: int) -> Tree:
    """A tree of arrays [rows, ...], and of tables of values where a leaf is ragged."""

    def make(spec: LeafSpec) -> Any:
        if isinstance(spec, RaggedSpec):
            return RaggedLeaf(spec, rows)
        return storage.zeros((rows, *spec.shape), spec.dtype)

    return tree.map(make, specs)
