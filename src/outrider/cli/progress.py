"""The progress bar of long work, on a terminal only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from rich.progress import Progress, TaskID

__all__ = ["Bar", "progress_bar"]

RECENT = 100
"""Episodes that the running return is the mean of."""


class Bar(Protocol):
    """What shows how far the work is."""

    def advance(self, units: int, speed: float, returns: np.ndarray) -> None:
        """Show that so many more are done.

        Args:
            units: steps or episodes, whichever are counted.
            speed: steps per second so far.
            returns: float64 [e], of the last episodes, the newest last.
        """


class NoBar:
    """Shows nothing."""

    def advance(self, units: int, speed: float, returns: np.ndarray) -> None:
        """See `Bar.advance`."""


class RichBar:
    """A line that is drawn again and again."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, units: int, speed: float, returns: np.ndarray) -> None:
        """See `Bar.advance`."""
        mean = f"return {returns[-RECENT:].mean():.4g}" if len(returns) else ""
        self._progress.update(self._task, advance=units, speed=f"{speed:,.0f} steps/s", mean=mean)


@contextmanager
def progress_bar(unit: str, total: int, *, visible: bool) -> Iterator[Bar]:
    """A bar over `total` steps or episodes, gone when the block is left; without `visible`, nothing is written."""
    if not visible:
        yield NoBar()
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("collecting"),
        progress.BarColumn(),
        progress.TextColumn(f"{{task.completed:,.0f}}/{{task.total:,.0f}} {unit}"),
        progress.TextColumn("{task.fields[speed]}"),
        progress.TextColumn("{task.fields[mean]}"),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as shown:
        yield RichBar(shown, shown.add_task("", total=total, speed="", mean=""))
