"""One leaf of a dataset: rows of one shape and dtype in a zarr v3 array, written chunk by chunk.

zarr's own writer works through an event loop in a second thread: when one chunk fails, or Ctrl-C strikes, others are
still being written behind our back. Here every chunk is written, in whole, before the next statement runs. What lies on
the disk is a plain zarr v3 array (one file a chunk, codecs `bytes` and `zstd`), which `zarr.open_array` reads.
"""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs.zstd import Zstd  # type: ignore[import-untyped]  # it has no types

from outrider.dataset.files import read_json, write_file, write_json
from outrider.errors import DatasetError, explain
from outrider.spec import LeafSpec

__all__ = ["Column"]

CHUNK_BYTES, CHUNK_ROWS = 2 << 20, 8192
"""Upper bounds of a chunk: large enough for compression, small enough to decode for the sake of one episode."""

CACHE_BYTES = 32 << 20
"""Decoded chunks that one column keeps (two at least): neighbouring episodes share chunks."""

LEVEL = 1
"""Of zstd: level 3 saves nothing on frames and floats, and takes longer."""


def _stored(leaf: LeafSpec) -> LeafSpec:
    """How a leaf lies on the disk: as it is if zarr v3 has a type for it, else as bytes."""
    plain = leaf.dtype.kind in "biuf" and leaf.dtype.itemsize <= 8
    if (plain or leaf.dtype.str in {"<c8", "<c16"}) and leaf.dtype.isnative:
        return leaf
    return LeafSpec((*leaf.shape, leaf.dtype.itemsize), np.dtype(np.uint8))


def _fill_value(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "b":
        return False
    return [0.0, 0.0] if dtype.kind == "c" else 0


def _array_metadata(stored: LeafSpec, rows: int, chunk_rows: int, name: str) -> dict[str, Any]:
    """The `zarr.json` of an array (https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html)."""
    inner = [max(size, 1) for size in stored.shape]
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [rows, *stored.shape],
        "data_type": stored.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk_rows, *inner]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": _fill_value(stored.dtype),
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}},
            {"name": "zstd", "configuration": {"level": LEVEL, "checksum": True}},
        ],
        "attributes": {"outrider_path": name},
        "storage_transformers": [],
    }


class Column:
    """Rows of one `LeafSpec` in the folder `folder`.

    The column itself knows no end: who writes says where, who reads asks for rows that were written.

    Args:
        folder: made by `Column.create`.
        leaf: shape and dtype of a row; refused if the folder holds something else.

    Raises:
        DatasetError: the folder is no such array.
    """

    def __init__(self, folder: Path, leaf: LeafSpec) -> None:
        self.folder = folder
        self.leaf = leaf
        self._stored = _stored(leaf)
        self._metadata = read_json(folder / "zarr.json")
        self._chunk_rows = self._check_metadata()
        self._suffix = ".0" * len(self._stored.shape)
        self._codec = Zstd(level=LEVEL, checksum=True)
        self._cache: dict[int, np.ndarray] = {}
        self._cache_chunks = max(2, CACHE_BYTES // max(1, self._chunk_rows * self._stored.nbytes))
        self._lock = threading.Lock()

    @classmethod
    def create(cls, folder: Path, leaf: LeafSpec, name: str) -> None:
        """Make an array without rows. `name` is the path of the leaf, kept as an attribute for foreign readers."""
        stored = _stored(leaf)
        chunk_rows = CHUNK_ROWS
        while chunk_rows > 1 and chunk_rows * stored.nbytes > CHUNK_BYTES:
            chunk_rows //= 2
        folder.mkdir(parents=True)
        write_json(folder / "zarr.json", _array_metadata(stored, 0, chunk_rows, name))

    def _check_metadata(self) -> int:
        """Return the rows of a chunk, after comparing everything else with what we would write."""
        found = self._metadata
        try:
            rows, name = found["shape"][0], found["attributes"]["outrider_path"]
            chunk_rows = int(found["chunk_grid"]["configuration"]["chunk_shape"][0])
            expected = _array_metadata(self._stored, rows, chunk_rows, name)
        except (KeyError, TypeError, IndexError, ValueError):
            expected, chunk_rows = None, 0
        if found != expected or chunk_rows < 1:
            msg = explain(
                expected=f"an array of rows of shape {self.leaf.shape}, dtype {self.leaf.dtype}, as Dataset writes it",
                found=f"another zarr.json: {str(found)[:200]}",
                where=f"dataset column '{self.folder}'",
                fix="restore the folder from a copy; do not rewrite it with other tools",
            )
            raise DatasetError(msg)
        return chunk_rows

    @property
    def row_nbytes(self) -> int:
        """Bytes of one decoded row."""
        return self._stored.nbytes

    def write(self, start: int, rows: np.ndarray) -> None:
        """Write `rows` at `start`; whatever lay there or behind is gone, whatever lay before stays.

        Raises:
            OSError: for instance a full disk; rows before `start` are as they were, those behind are undefined.
        """
        if self._stored.nbytes == 0:
            return
        if self._stored is not self.leaf:
            packed = np.ascontiguousarray(rows).reshape(*rows.shape, 1)
            rows = packed.view(np.uint8).reshape(len(rows), *self._stored.shape)
        done = 0
        while done < len(rows):
            chunk, offset = divmod(start + done, self._chunk_rows)
            count = min(self._chunk_rows - offset, len(rows) - done)
            self._write_chunk(chunk, offset, rows[done : done + count])
            done += count

    def _write_chunk(self, number: int, offset: int, rows: np.ndarray) -> None:
        block = np.zeros((self._chunk_rows, *self._stored.shape), self._stored.dtype)
        if offset:
            block[:offset] = self._chunk(number)[:offset]
        block[offset : offset + len(rows)] = rows
        write_file(self._file(number), self._codec.encode(block))
        self._keep(number, block)

    def set_rows(self, count: int) -> None:
        """Write into `zarr.json` how many rows there are, for foreign readers; nothing here depends on it."""
        shape = [count, *self._stored.shape]
        if self._metadata["shape"] != shape:
            metadata = {**self._metadata, "shape": shape}
            write_json(self.folder / "zarr.json", metadata)
            self._metadata = metadata

    def take(self, index: np.ndarray) -> np.ndarray:
        """Return the rows `index` (int64 [K], in any order) as a new array [K, ...]; each chunk is decoded once.

        Raises:
            DatasetError: a chunk is missing or damaged.
        """
        out = np.empty((len(index), *self._stored.shape), self._stored.dtype)
        if self._stored.nbytes:
            numbers = index // self._chunk_rows
            order = np.argsort(numbers, kind="stable")
            bounds = np.flatnonzero(np.diff(numbers[order], prepend=-1, append=-1))
            for begin, end in itertools.pairwise(bounds):
                at = order[begin:end]
                number = int(numbers[at[0]])
                out[at] = self._chunk(number)[index[at] - number * self._chunk_rows]
        if self._stored is not self.leaf:
            return out.view(self.leaf.dtype).reshape(len(index), *self.leaf.shape)
        return out

    def _file(self, number: int) -> Path:
        return self.folder / f"c.{number}{self._suffix}"

    def _chunk(self, number: int) -> np.ndarray:
        """A decoded chunk; it belongs to the cache, so that callers copy from it."""
        with self._lock:
            block = self._cache.get(number)
        if block is None:
            block = self._decode(number)
        self._keep(number, block)
        return block

    def _keep(self, number: int, block: np.ndarray) -> None:
        """Put a chunk at the young end of the cache and drop the oldest ones."""
        with self._lock:
            self._cache.pop(number, None)
            self._cache[number] = block
            while len(self._cache) > self._cache_chunks:
                del self._cache[next(iter(self._cache))]

    def _decode(self, number: int) -> np.ndarray:
        file = self._file(number)
        shape = (self._chunk_rows, *self._stored.shape)
        try:
            return np.frombuffer(self._codec.decode(file.read_bytes()), self._stored.dtype).reshape(shape)
        except (OSError, RuntimeError, ValueError) as error:
            msg = explain(
                expected=f"a chunk of shape {shape}, dtype {self._stored.dtype}",
                found=f"{type(error).__name__}: {error}",
                where=f"dataset file '{file}'",
                fix="restore the file from a copy; the episodes in other chunks can still be read",
            )
            raise DatasetError(msg) from error
