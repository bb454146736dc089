"""How much memory a replay buffer will take, and whether the machine has so much."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from outrider.errors import ConfigError, explain
from outrider.records.step_spec import StepSpec
from outrider.replay.ring import Ring
from outrider.replay.settings import whole_number
from outrider.replay.storage import Memory
from outrider.replay.transitions import Transitions
from outrider.replay.views import View

__all__ = ["estimate_nbytes", "machine_memory", "require_room"]

MEMINFO = Path("/proc/meminfo")


def estimate_nbytes(
    capacity: int, spec: StepSpec, view: View | None = None, *, episode_length: int | None = None
) -> int:
    """The bytes of a `ReplayBuffer` of these arguments; nothing is allocated.

    This is `replay.nbytes` of a new buffer, plus the recurrent states that `Sequences` keep (there is one for every
    `stride` steps): rows, columns, and for every table where its values are. Tables grow by half at a time, and are
    counted as if they just had. What ragged leaves hold and priorities are not counted.

    Args:
        capacity: steps over all lanes.
        spec: what a step looks like.
        view: what a sample looks like; `Transitions()` by default.
        episode_length: the steps of an episode on average, if the true last observations, and the older frames of first
            stacks, are to be counted as well: one of each for an episode.

    Raises:
        ConfigError: `capacity` is less than one step for each lane, or the view is not for such steps.

    Example:
        >>> import numpy as np
        >>> from outrider.spec import LeafSpec
        >>> frames, action = LeafSpec((4, 84, 84), np.dtype("u1")), LeafSpec((), np.dtype("i8"))
        >>> atari = StepSpec(obs=frames, action=action, num_envs=8)
        >>> sizes = [estimate_nbytes(1_000_000, atari, Transitions(frame_stack=k), episode_length=500) for k in (1, 4)]
        >>> [round(size / 1e9, 2) for size in sizes]
        [28.37, 7.2]
    """
    ring = Ring(spec, capacity, Memory())
    (Transitions() if view is None else view).start(ring)
    if episode_length is None:
        return ring.nbytes_with(0)
    length = whole_number(episode_length, 1, "estimate_nbytes(episode_length)")
    # Of each lane some of the oldest episode, and of the newest one.
    return ring.nbytes_with(ring.capacity // length + 2 * ring.num_envs)


def require_room(nbytes: int) -> None:
    """Refuse to take more memory than the machine has; warn where it is more than it has left.

    Raises:
        ConfigError: it is more than all of it.
    """
    total, available = machine_memory()
    if total is not None and nbytes > total:
        raise ConfigError(
            explain(
                expected=f"a buffer of at most {_gigabytes(total)}, the memory of this machine",
                found=f"{_gigabytes(nbytes)} by outrider.estimate_nbytes",
                where="ReplayBuffer(capacity)",
                fix="pass less capacity, frame_stack= of the view where frames are stacked, or "
                "storage=outrider.Memmap(path), which keeps the rows on a disk",
            )
        )
    if available is not None and nbytes > available:
        warnings.warn(
            f"the replay buffer will take {_gigabytes(nbytes)} of memory when it is full, of which only "
            f"{_gigabytes(available)} are available now; storage=outrider.Memmap(path) keeps the rows on a disk",
            RuntimeWarning,
            stacklevel=3,
        )


def machine_memory() -> tuple[int | None, int | None]:
    """Bytes of memory of this machine, and those that are available now; None where nobody says."""
    try:
        lines = [line.split() for line in MEMINFO.read_text().splitlines()]
    except OSError:
        return _total(), None
    sizes = {line[0]: int(line[1]) * 1024 for line in lines if len(line) > 1}
    return sizes.get("MemTotal:"), sizes.get("MemAvailable:")


def _total() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _gigabytes(nbytes: int) -> str:
    return f"{nbytes / 1e9:.3g} GB"
