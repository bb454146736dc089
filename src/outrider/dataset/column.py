"""One leaf of a dataset: rows of one shape and dtype in a zarr v3 array, written chunk by chunk.

What writes here is for `run_to_end`: zarr itself goes on writing when Ctrl-C strikes its caller.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outrider.dataset.stored import Stored
from outrider.errors import DatasetError, explain
from outrider.spec import LeafSpec

if TYPE_CHECKING:
    import zarr

__all__ = ["Column"]

GROWTH = 16
"""Chunks by which an array grows: zarr rewrites its `zarr.json` each time, which takes as long as writing a chunk."""

CACHE_BYTES = 32 << 20
"""Decoded chunks that one column keeps (two at least): neighbouring episodes share chunks."""

LEVEL = 1
"""Of zstd: level 3 saves nothing on frames and floats, and takes longer."""


def _is_ours(array: zarr.Array[Any], stored: Stored) -> bool:
    """Whether an array has such rows, in chunks of whole rows with checksums."""
    from zarr.codecs import ZstdCodec

    rows = (array.shape[1:], array.dtype, array.chunks[1:])
    codec = array.compressors[-1] if array.compressors else None
    return rows == (stored.shape, stored.zarr_dtype, stored.chunk_shape[1:]) and (
        isinstance(codec, ZstdCodec) and codec.checksum
    )


class Column:
    """Rows of one `LeafSpec` in the folder `folder`.

    The column itself knows no end: who writes says where, who reads asks for rows that were written. The array is
    longer than the rows while they are being written, and as long as they are after `set_rows`.

    Args:
        folder: made by `Column.create`.
        leaf: shape and dtype of a row; refused if the folder holds something else.

    Raises:
        DatasetError: the folder is no such array.
    """

    def __init__(self, folder: Path, leaf: LeafSpec) -> None:
        self.folder = folder
        self.leaf = leaf
        self._stored = Stored(leaf)
        self._array = self._open()
        self._chunk_rows = self._array.chunks[0]
        self._cache: dict[int, np.ndarray] = {}
        self._cache_chunks = max(2, CACHE_BYTES // max(1, self._chunk_rows * self._stored.nbytes))
        self._lock = threading.Lock()

    @classmethod
    def create(cls, folder: Path, leaf: LeafSpec, name: str) -> None:
        """Make an array without rows. `name` is the path of the leaf, kept as an attribute for foreign readers.

        Raises:
            OSError: for instance a full disk.
        """
        import zarr
        from zarr.codecs import ZstdCodec

        stored = Stored(leaf)
        zarr.create_array(
            folder,
            zarr_format=3,
            shape=(0, *stored.shape),
            chunks=stored.chunk_shape,
            dtype=stored.zarr_dtype,
            compressors=ZstdCodec(level=LEVEL, checksum=True),
            chunk_key_encoding={"name": "default", "separator": "."},
            attributes={"outrider_path": name},
        )

    def _open(self) -> zarr.Array[Any]:
        import zarr

        array, cause = None, None
        try:
            array = zarr.open_array(self.folder, mode="r+", zarr_format=3)
        except Exception as error:  # noqa: BLE001 - zarr lets through whatever a damaged zarr.json makes it trip over
            cause = error
        if array is not None and _is_ours(array, self._stored):
            # Chunks of zeros are written like others, so that a missing one is damage.
            return array.with_config({"write_empty_chunks": True})
        msg = explain(
            expected=f"an array of rows of shape {self.leaf.shape}, dtype {self.leaf.dtype}, as Dataset writes it",
            found=f"{type(cause).__name__}: {cause}" if array is None else str(array.metadata)[:200],
            where=f"dataset column '{self.folder}'",
            fix="restore the folder from a copy; do not rewrite it with other tools",
        )
        raise DatasetError(msg) from cause

    @property
    def row_nbytes(self) -> int:
        """Bytes of one decoded row, of a ragged one a guess."""
        return self._stored.nbytes

    def write(self, start: int, rows: np.ndarray) -> Iterator[None]:
        """Write `rows` at `start`, one chunk with each `next`.

        Whatever lay there or behind is gone, whatever lay before stays.

        Raises:
            DatasetError: the chunk to be continued is missing or damaged.
            SpecError: a ragged value cannot be written; nothing was.
            OSError: for instance a full disk; rows before `start` are as they were, those behind are undefined.
        """
        if self._stored.nbytes == 0:
            return
        rows = self._stored.pack(rows)
        chunks = -(-(start + len(rows)) // self._chunk_rows)
        if chunks * self._chunk_rows > self._array.shape[0]:
            self._resize(-(-chunks // GROWTH) * GROWTH * self._chunk_rows)
        done = 0
        while done < len(rows):
            number, offset = divmod(start + done, self._chunk_rows)
            count = min(self._chunk_rows - offset, len(rows) - done)
            self._write_chunk(number, offset, rows[done : done + count])
            done += count
            yield

    def _write_chunk(self, number: int, offset: int, rows: np.ndarray) -> None:
        """Write a chunk in whole, so that zarr need not read it."""
        block = self._stored.blank(self._chunk_rows)
        if offset:
            block[:offset] = self._chunk(number)[:offset]
        block[offset : offset + len(rows)] = rows
        self._array[self._rows_of(number)] = block
        self._keep(number, block)

    def set_rows(self, count: int) -> None:
        """End the array after `count` rows, for foreign readers.

        Raises:
            OSError: for instance a full disk; the array has as many rows as before.
        """
        if self._array.shape[0] != count:
            self._resize(count)

    def _resize(self, count: int) -> None:
        self._array.resize((count, *self._stored.shape))

    def take(self, index: np.ndarray) -> np.ndarray:
        """Return the rows `index` (int64 [K], in any order) as a new array [K, ...]; each chunk is decoded once.

        Raises:
            DatasetError: a chunk is missing or damaged.
        """
        self._check_rows(index)
        out = np.empty((len(index), *self._stored.shape), self._stored.dtype)
        if self._stored.nbytes:
            numbers = index // self._chunk_rows
            order = np.argsort(numbers, kind="stable")
            bounds = np.flatnonzero(np.diff(numbers[order], prepend=-1, append=-1))
            for begin, end in itertools.pairwise(bounds):
                at = order[begin:end]
                number = int(numbers[at[0]])
                out[at] = self._chunk(number)[index[at] - number * self._chunk_rows]
        try:
            return self._stored.unpack(out)
        except ValueError as error:
            msg = explain(
                expected="ragged values as Dataset writes them",
                found=str(error),
                where=f"dataset column '{self.folder}'",
                fix="restore the folder from a copy; do not rewrite it with other tools",
            )
            raise DatasetError(msg) from error

    def _check_rows(self, index: np.ndarray) -> None:
        rows = self._array.shape[0]
        if len(index) and self._stored.nbytes and index.max() >= rows:
            msg = explain(
                expected=f"at least {index.max() + 1} rows",
                found=f"an array of {rows}",
                where=f"dataset column '{self.folder}'",
                fix="restore the folder from a copy: its files are not of one time",
            )
            raise DatasetError(msg)

    def _rows_of(self, number: int) -> slice:
        return slice(number * self._chunk_rows, (number + 1) * self._chunk_rows)

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
        file = self.folder / self._array.metadata.encode_chunk_key((number, *(0 for _ in self._stored.shape)))
        try:
            block = np.asarray(self._array[self._rows_of(number)]).astype(self._stored.dtype, copy=False)
            file.stat()  # zarr fills in for a chunk that is missing
        except (OSError, RuntimeError, ValueError) as error:
            msg = explain(
                expected=f"a chunk of shape {self._array.chunks}, dtype {self._stored.dtype}",
                found=f"{type(error).__name__}: {error}",
                where=f"dataset file '{file}'",
                fix="restore the file from a copy; the episodes in other chunks can still be read",
            )
            raise DatasetError(msg) from error
        return block
