"""How rows of a leaf lie on the disk: as they are where zarr v3 has a type for them, else as bytes or as text."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from outrider.dataset.ragged_text import decode, encode
from outrider.spec import LeafSpec, RaggedSpec
from outrider.values import objects

__all__ = ["Stored"]

CHUNK_BYTES, CHUNK_ROWS = 2 << 20, 8192
"""Upper bounds of a chunk: large enough for compression, small enough to decode for the sake of one episode."""

RAGGED_BYTES = 2048
"""What a row of a ragged leaf is taken to have."""


class Stored:
    """Rows of a leaf in the form in which zarr gets them: of the same dtype, as uint8, or as strings.

    Attributes:
        shape: of a row in this form.
        dtype: of the blocks in memory in this form: that of the leaf, uint8, or objects (strings).
        nbytes: of a row in this form; of strings a guess.
    """

    def __init__(self, leaf: LeafSpec) -> None:
        self.leaf = leaf
        self.shape, self.dtype = leaf.shape, leaf.dtype
        self.is_text = isinstance(leaf, RaggedSpec)
        plain = leaf.dtype.kind in "biuf" and leaf.dtype.itemsize <= 8
        self._is_plain = (plain or leaf.dtype.str in {"<c8", "<c16"}) and leaf.dtype.isnative
        if not self._is_plain and not self.is_text:
            self.shape, self.dtype = (*leaf.shape, leaf.dtype.itemsize), np.dtype(np.uint8)
        self.nbytes = RAGGED_BYTES if self.is_text else math.prod(self.shape) * self.dtype.itemsize

    @property
    def zarr_dtype(self) -> Any:
        """The dtype of the array on the disk."""
        from zarr.dtype import VariableLengthUTF8

        return VariableLengthUTF8().to_native_dtype() if self.is_text else self.dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The shape of a chunk."""
        rows = CHUNK_ROWS
        while rows > 1 and rows * self.nbytes > CHUNK_BYTES:
            rows //= 2
        return (rows, *(max(size, 1) for size in self.shape))

    def blank(self, rows: int) -> np.ndarray:
        """A block of zeros, or of empty strings."""
        shape = (rows, *self.shape)
        return np.full(shape, "", object) if self.is_text else np.zeros(shape, self.dtype)

    def pack(self, rows: np.ndarray) -> np.ndarray:
        """Rows of the leaf in this form.

        Raises:
            SpecError: a ragged value cannot be written.
        """
        if self._is_plain:
            return rows
        if isinstance(self.leaf, RaggedSpec):
            return objects([encode(self.leaf.kind, value) for value in rows.tolist()])
        packed = np.ascontiguousarray(rows).reshape(*rows.shape, 1)
        return packed.view(np.uint8).reshape(len(rows), *self.shape)

    def unpack(self, rows: np.ndarray) -> np.ndarray:
        """The rows that were packed.

        Raises:
            ValueError: a text is none of a ragged value.
        """
        if self._is_plain:
            return rows
        if isinstance(self.leaf, RaggedSpec):
            return objects(list(map(partial(decode, self.leaf.kind), rows.tolist())))
        return rows.view(self.leaf.dtype).reshape(len(rows), *self.leaf.shape)
