"""Locks of replay buffers: several can be taken together, and no child finds one taken by a thread that it has not.

A fork waits until nobody is at work on a buffer, so that what the child has of it is whole.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

__all__ = ["Lock", "new_lock", "taken"]

Lock: TypeAlias = Any
"""What `threading.RLock()` returns, which has no name of its own."""

_registry = threading.Lock()
_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
# What a thread that is about to fork has taken.
_forking = threading.local()


def new_lock() -> Lock:
    """A reentrant lock that forks wait for."""
    lock = threading.RLock()
    with _registry:
        _locks.add(lock)
    return lock


@contextmanager
def taken(locks: Iterable[Lock]) -> Iterator[None]:
    """A block in which all of these locks are taken; always in the same order, so that nobody waits for ever."""
    with ExitStack() as stack:
        _take(stack, locks)
        yield


def _take(stack: ExitStack, locks: Iterable[Lock]) -> None:
    for lock in sorted(locks, key=id):
        stack.enter_context(lock)


def _before_fork() -> None:
    with _registry:
        locks = list(_locks)
    _forking.stack = ExitStack()
    _take(_forking.stack, locks)
    # Last, as who makes a buffer may have taken others.
    _forking.stack.enter_context(_registry)


def _after_fork() -> None:
    _forking.stack.close()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
