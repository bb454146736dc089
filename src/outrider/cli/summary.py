"""Tables of what was collected and what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from outrider.dataset import DatasetSummary, Moments

__all__ = ["Timing", "show_run", "show_table", "summary_rows"]


@dataclass
class Timing:
    """Steps stored by a run, and where its seconds went.

    Attributes:
        steps: how many were stored.
        total: all seconds.
        loop: of these, to collect and store.
        storing, policy, environments: of these, in each; with workers, the mean of theirs.
    """

    steps: int = 0
    total: float = 0.0
    loop: float = 0.0
    storing: float = 0.0
    policy: float = 0.0
    environments: float = 0.0

    @property
    def split(self) -> str:
        """The shares of the loop."""
        parts = {"policy": self.policy, "environments": self.environments, "storing": self.storing}
        parts["other"] = max(0.0, self.loop - sum(parts.values()))
        return ", ".join(f"{name} {seconds / self.loop:.0%}" for name, seconds in parts.items())


def show_table(rows: Sequence[Sequence[str]], *, title: str, right: int = 0) -> None:
    """Print a title, and rows of cells below it; the first `right` columns end at one place, the others begin at one.

    Plain text: it reads the same on a terminal, in a log and in a pipe.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    typer.echo(title)
    for row in rows:
        cells = [
            cell.rjust(width) if i < right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo(f"  {'  '.join(cells)}".rstrip())


def summary_rows(found: DatasetSummary) -> list[tuple[str, str]]:
    """What a dataset holds, line by line."""
    counts = found.episodes
    open_ones = f", {counts.open:,} open" if counts.open else ""
    cut = f", {counts.cut:,} cut" if counts.cut else ""
    return [
        ("steps", f"{found.steps:,}"),
        ("episodes", f"{counts.complete:,} complete{open_ones}{cut}"),
        *_returns(found.returns),
        ("length", _moments(found.lengths)),
        ("on disk", f"{_size(found.disk_nbytes)}, {found.bytes_per_step:.1f} bytes per step"),
    ]


def show_run(out: Path, stored: DatasetSummary, timing: Timing) -> None:
    """Print what a run has added to a dataset, how fast, and what the dataset holds now."""
    speed = [
        ("speed", f"{timing.steps / timing.loop:,.0f} steps/s"),
        ("wall time", f"{timing.total:.2f} s, {timing.total - timing.loop:.2f} s of it to start and stop"),
        ("time split", timing.split),
    ]
    if stored.steps == timing.steps:
        show_table([*summary_rows(stored), *speed], title="Collected")
    else:
        show_table([("steps", f"{timing.steps:,}"), *speed], title="Added")
        show_table(summary_rows(stored), title="The dataset now holds")
    typer.echo(f"Stored in {out}")


def _returns(found: Moments | tuple[Moments, ...] | None) -> list[tuple[str, str]]:
    """A line, or one for each objective of vector rewards."""
    if not isinstance(found, tuple):
        return [("return", _moments(found))]
    return [(f"return {objective}", _moments(one)) for objective, one in enumerate(found)]


def _moments(found: Moments | None) -> str:
    if found is None:
        return "no complete episode"
    return f"mean {found.mean:.4g}, std {found.std:.4g}, min {found.min:.4g}, max {found.max:.4g}"


def _size(nbytes: int) -> str:
    size, units = float(nbytes), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.0f} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"
