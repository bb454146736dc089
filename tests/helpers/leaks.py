"""Fails a test that leaves something behind: a process, a thread, a descriptor, or a file in /dev/shm.

What is there before the test is compared with what is there after it. Only where something is new does the slow part
run: garbage is collected, and leftovers that are about to end are given `GRACE_S` to do so.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import psutil
import pytest

GRACE_S = 30.0
"""Seconds for what is about to end; only what never ends takes them."""

SHM = Path("/dev/shm")  # noqa: S108 - shared memory lives there; nothing is created
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>


@dataclass(frozen=True)
class Snapshot:
    """What this process holds, without what is shared by the whole session."""

    processes: frozenset[psutil.Process]  # equal by pid and start time
    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]  # number and what it points to
    shm: frozenset[str]

    @classmethod
    def take(cls) -> Snapshot:
        children = psutil.Process().children(recursive=True)
        processes, threads, descriptors = shared_processes(), shared_threads(), shared_descriptors()
        return cls(
            processes=frozenset(p for p in children if p.pid not in processes),
            threads=frozenset(t for t in threading.enumerate() if t not in threads and not is_native(t)),
            descriptors=frozenset((fd, to) for fd, to in open_descriptors() if fd not in descriptors),
            shm=frozenset(file.name for file in SHM.iterdir()),
        )

    def is_within(self, earlier: Snapshot) -> bool:
        return (
            self.processes <= earlier.processes
            and self.threads <= earlier.threads
            and self.descriptors <= earlier.descriptors
            and self.shm <= earlier.shm
        )


def shared_processes() -> set[int | None]:
    """The helpers of multiprocessing: started once, on first use, for all tests."""
    return {forkserver._forkserver._forkserver_pid, resource_tracker._resource_tracker._pid}


def zarr_loop() -> object | None:
    """The event loop that zarr starts on first use, in a thread of its own, and keeps until exit."""
    sync = sys.modules.get("zarr.core.sync")
    return None if sync is None else sync.loop[0]


def shared_threads() -> set[threading.Thread]:
    loop = zarr_loop()
    if loop is None:
        return set()
    pool = loop._default_executor
    return {sys.modules["zarr.core.sync"].iothread[0], *(pool._threads if pool is not None else ())}


def shared_descriptors() -> set[int | None]:
    # The pipes by which the helpers of multiprocessing see that this process has ended.
    shared = {forkserver._forkserver._forkserver_alive_fd, resource_tracker._resource_tracker._fd}
    loop = zarr_loop()
    if loop is not None:  # its epoll, and the socket pair that wakes it
        shared |= {loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()}
    return shared


def is_native(thread: threading.Thread) -> bool:
    """Whether it is a library's C thread that Python has only met: it belongs to a pool that lives until exit."""
    return isinstance(thread, threading._DummyThread)


def open_descriptors() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc/self/fd").iterdir():
        try:
            yield int(entry.name), str(entry.readlink())
        except FileNotFoundError:  # the descriptor of the listing itself, closed by now
            continue


def command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) or process.name()
    except psutil.NoSuchProcess:
        return "(has ended meanwhile)"


def used_elsewhere(name: str) -> bool:
    """Whether a process that is not ours has the file open or mapped: then another program made it."""
    ours = {os.getpid(), *shared_processes(), *(p.pid for p in psutil.Process().children(recursive=True))}
    path = str(SHM / name)
    for process in psutil.process_iter():
        if process.pid in ours:
            continue
        try:
            if any(m.path == path for m in process.memory_maps(grouped=True)):
                return True
            if any(f.path == path for f in process.open_files()):
                return True
        except psutil.Error:  # it has ended, or belongs to somebody else
            continue
    return False


def leftovers(before: Snapshot) -> list[str]:
    """What is still there after garbage collection and the grace; the processes among it are killed."""
    gc.collect()
    found = []
    _, alive = psutil.wait_procs(Snapshot.take().processes - before.processes, timeout=GRACE_S)
    for process in alive:
        found.append(f"process {process.pid}: {command(process)}")
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=GRACE_S)

    deadline = time.monotonic() + GRACE_S
    for thread in Snapshot.take().threads - before.threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            found.append(f"thread {thread.name!r} (daemon={thread.daemon})")

    found += [f"descriptor {fd} -> {to}" for fd, to in sorted(left_descriptors(before))]
    found += [f"shared memory {SHM / name}" for name in sorted(left_files(Snapshot.take().shm - before.shm))]
    return found


def left_descriptors(before: Snapshot) -> frozenset[tuple[int, str]]:
    """Those that nobody is about to close, such as a thread that has just ended."""
    deadline = time.monotonic() + GRACE_S
    while True:
        gc.collect()
        left = Snapshot.take().descriptors - before.descriptors
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def left_files(names: frozenset[str]) -> set[str]:
    """Those of `names` that nobody else uses, and nobody else is about to remove: other tests run at the same time."""
    deadline = time.monotonic() + GRACE_S
    while left := {name for name in names if not used_elsewhere(name) and (SHM / name).exists()}:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return left


def become_reaper() -> None:
    """Make this process the parent of orphans, so that the children of a killed worker stay in sight."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become the reaper of orphans")


@pytest.fixture(scope="session", autouse=True)
def adopt_orphans() -> None:
    """Keep orphans in sight for the whole session."""
    become_reaper()


@pytest.fixture(autouse=True)
def no_leaks(adopt_orphans: None) -> Iterator[None]:
    before = Snapshot.take()
    yield
    if Snapshot.take().is_within(before):
        return
    if found := leftovers(before):
        pytest.fail("the test left behind:\n  " + "\n  ".join(found), pytrace=False)
