"""Large sparse anonymous mappings: address space is reserved once, pages cost memory only when they are touched.

Nothing here has a name in a file system that could outlive the processes that use it. This module imports nothing
beyond the standard library, so that a worker can unpickle a mapping before it loads NumPy.
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing.heap
import os
import sys
from multiprocessing import reduction
from typing import Any, Protocol

from outrider.errors import OutriderError

__all__ = ["Mapping", "MemfdMapping", "PortableMapping", "PrivateMapping", "shared_mapping"]

MOST, LEAST = 1 << 40, 1 << 30
"""Bounds of the address space that a mapping reserves."""

MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


class Mapping(Protocol):
    """A writable range of bytes, all zero at first."""

    @property
    def buffer(self) -> Any:
        """The object with the buffer protocol that arrays are made on; they keep the mapping alive."""

    @property
    def nbytes(self) -> int:
        """Size of the range."""

    def discard(self, start: int, stop: int) -> None:
        """Give the memory of whole pages in [start, stop) back to the system; they read as anything afterwards."""


class PrivateMapping:
    """Memory of this process alone, for environments that run in it."""

    def __init__(self) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE if sys.platform == "linux" else None
        self.buffer, self.nbytes = _largest(
            lambda size: mmap.mmap(-1, size, flags=flags) if flags else mmap.mmap(-1, size)
        )

    def discard(self, start: int, stop: int) -> None:
        """See `Mapping.discard`."""
        _advise(self.buffer, "MADV_DONTNEED", start, stop)


class MemfdMapping:
    """Shared memory without a name (Linux): a descriptor that travels with the process that is being started."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("outrider", os.MFD_CLOEXEC)
            try:
                self.buffer, self.nbytes = _largest(lambda size: _map_file(fd, size))
            except BaseException:
                os.close(fd)
                raise
        else:
            self.nbytes = os.fstat(fd).st_size
            self.buffer = mmap.mmap(fd, self.nbytes, flags=mmap.MAP_SHARED | MAP_NORESERVE)
        # mmap holds a duplicate of the descriptor; this one is kept to be passed on, and closed by `seal`.
        self._fd: int | None = fd

    def seal(self) -> None:
        """Close the descriptor once every process that needs the mapping has been started."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def discard(self, start: int, stop: int) -> None:
        """See `Mapping.discard`; it frees the pages in every process that has the mapping."""
        _advise(self.buffer, "MADV_REMOVE", start, stop)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pass the descriptor on; possible only while a process is being started."""
        if self._fd is None:
            msg = "the mapping is sealed: no further process can be given it"
            raise ValueError(msg)
        return (_attach_memfd, (reduction.DupFd(self._fd),))


class PortableMapping:
    """Shared memory for systems without memfd: the block that `multiprocessing.Array` is made of.

    An unlinked temporary file on POSIX, a page-file section that dies with its last handle on Windows.
    """

    def __init__(self, arena: Any = None) -> None:
        if arena is None:
            arena, self.nbytes = _largest(multiprocessing.heap.Arena, reserve() >> 6)
        else:
            self.nbytes = arena.size
        self._arena = arena
        self.buffer = arena.buffer

    def seal(self) -> None:
        """Nothing to do: the arena owns its descriptor and closes it when it dies."""

    def discard(self, start: int, stop: int) -> None:
        """See `Mapping.discard`."""
        _advise(self.buffer, "MADV_REMOVE", start, stop)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pass the arena on; possible only while a process is being started."""
        return (PortableMapping, (self._arena,))


def shared_mapping() -> MemfdMapping | PortableMapping:
    """Return fresh memory that workers can be given: memfd where the system has it, else the portable kind."""
    return MemfdMapping() if hasattr(os, "memfd_create") else PortableMapping()


def _attach_memfd(handle: Any) -> MemfdMapping:
    return MemfdMapping(handle.detach())


def _map_file(fd: int, size: int) -> mmap.mmap:
    os.ftruncate(fd, size)
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | MAP_NORESERVE)


def reserve() -> int:
    """Bytes of address space to ask for: four times the memory of the machine, which no mapping can fill."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = LEAST
    return min(MOST, max(LEAST, 4 * memory))


def _largest(make: Any, size: int | None = None) -> tuple[Any, int]:
    """Call `make(size)`, halving the size for as long as the system refuses it."""
    size = reserve() if size is None else size
    while True:
        try:
            return make(size), size
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            size //= 2
            if size < LEAST // 16:
                msg = (
                    f"memory: expected address space for the rows of one more vector environment, found none left "
                    f"({error}). To fix it: close vector environments that are no longer needed, and let go of their "
                    "rollouts"
                )
                raise OutriderError(msg) from error


def _advise(buffer: Any, advice: str, start: int, stop: int) -> None:
    page = mmap.PAGESIZE
    first, last = -(-start // page) * page, stop // page * page
    if last > first and hasattr(mmap, advice):
        # Advice that a file system does not take (a temporary file in place of memfd) leaves the pages where they are.
        with contextlib.suppress(OSError):
            buffer.madvise(getattr(mmap, advice), first, last - first)
