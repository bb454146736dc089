"""What memory processes have; needs nothing but the standard library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

COUNTED = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
"""Not the files of programs and libraries: a process has less of these while others run that have them, too."""


def pss(pids: Iterable[int] = ()) -> int:
    """Proportional set size of this process and others in bytes: pages that several have are shared out among them."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in ("self", *pids)]
    lines = [line for rollup in rollups for line in rollup.splitlines() if line.startswith(COUNTED)]
    return sum(int(line.split()[1]) for line in lines) * 1024
