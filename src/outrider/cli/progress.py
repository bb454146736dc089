"""The progress bar of long work, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from outrider.records.describe import figures

if TYPE_CHECKING:
    import numpy as np
    from rich.progress import Progress, TaskID

__all__ = ["Bar", "progress_bar"]

Returns: TypeAlias = "Callable[[], np.ndarray]"
"""Gives the returns of the last episodes, float64 [e] or [e, k], the newest last."""

RECENT = 100
"""Episodes that the running return is the mean of."""


class Bar(Protocol):
    """What shows how far the work is."""

    def advance(self, units: int, speed: float) -> None:
        """Show that so many more steps or episodes are done, and how many steps per second were taken so far."""


class NoBar:
    """Shows nothing."""

    def advance(self, units: int, speed: float) -> None:
        """See `Bar.advance`."""


class RichBar:
    """A line that is drawn again and again."""

    def __init__(self, returns: Returns, progress: Progress, task: TaskID) -> None:
        self._returns = returns
        self._progress = progress
        self._task = task

    def advance(self, units: int, speed: float) -> None:
        """See `Bar.advance`."""
        returns = self._returns()
        mean = f"return {figures(returns[-RECENT:].mean(axis=0), '.4g')}" if len(returns) else ""
        self._progress.update(self._task, advance=units, speed=f"{speed:,.0f} steps/s", mean=mean)


@contextmanager
def progress_bar(unit: str, total: int, returns: Returns, *, visible: bool) -> Iterator[Bar]:
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
        yield RichBar(returns, shown, shown.add_task("", total=total, speed="", mean=""))
