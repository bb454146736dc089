"""Where workers run: each on a processor of its own, where there are enough."""

from __future__ import annotations

import contextlib
import os

__all__ = ["move_apart"]


def move_apart(index: int, group: int) -> int | None:
    """Move this thread to a processor that others of its group are not moved to, and leave it free to go elsewhere.

    Workers that look around for some microseconds before they sleep are seldom woken, so a system that chooses a
    processor for whoever is woken seldom chooses one for them: those that stand on one processor stay there and take
    turns, and so do those that a parent on a busy machine has woken beside itself. Once apart, they stay apart. It is
    for who is at work: a thread that is moved in its sleep wakes where it likes.

    Args:
        index: number of this thread in its group.
        group: a number of the group, by which several groups begin at different processors.

    Returns:
        The number of the processor; None where there is no choice, or the system gives none.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        return None
    chosen = sorted(allowed)[(index + group) % len(allowed)]
    # A sandbox may refuse it, and processors may be taken away meanwhile.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {chosen})
        os.sched_setaffinity(0, allowed)
        return chosen
    return None
