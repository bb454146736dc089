"""From exceptions to one line on stderr and an exit status: 2 refused, 1 failed, 130 Ctrl-C, 128 + n other signals."""

from __future__ import annotations

import re
import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from outrider.cli.files import LOADED
from outrider.errors import ConfigError, EnvironmentFailure, OutriderError, PolicyError

__all__ = ["Refusal", "reported"]

REFUSED, FAILED = 2, 1

STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Colours, which Gymnasium puts into its warnings."""

PLACE = re.compile(r'File "(.+?)", line (\d+)')


class Refusal(Exception):  # noqa: N818 - not every refusal is an error of somebody
    """What the command line refuses before anything is started or stored."""


class Signalled(KeyboardInterrupt):
    """A signal that asks the process to end, other than Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def reported(*, debug: bool, out: Path | None = None) -> Iterator[None]:
    """Run a command: warnings become notes, each once; an exception one line and an exit status.

    Args:
        debug: show the traceback as well.
        out: the folder of the dataset that the command writes, for telling how much of it is stored.
    """
    try:
        with warnings_as_notes(), ending_signals():
            yield
    except typer.Exit:
        raise
    except KeyboardInterrupt as stop:
        say(f"stopped by {'Ctrl-C' if not isinstance(stop, Signalled) else signal.Signals(stop.number).name}")
        code = 128 + (stop.number if isinstance(stop, Signalled) else signal.SIGINT)
        error: BaseException = stop
    except (Exception, SystemExit) as failure:  # noqa: BLE001 - the user gets one line, and the traceback on demand
        error = failure
        code = REFUSED if isinstance(failure, (Refusal, ConfigError)) else FAILED
        say(f"error: {first_line(failure)}")
    else:
        return
    if out is not None and code != REFUSED:
        say(stored_in(out))
    if debug:
        traceback.print_exception(error)
    raise typer.Exit(code)


def say(line: str) -> None:
    """Write a line about the command itself to stderr."""
    typer.echo(f"outrider: {STYLE.sub('', line)}", err=True)


def first_line(error: BaseException) -> str:
    """What is wrong, in one line, with the place in the user's code where there is one."""
    line = str(error).partition("\n")[0].strip().rstrip(".")
    if not isinstance(error, (OutriderError, Refusal)):
        line = f"{type(error).__name__}: {line}" if line else type(error).__name__
    elif not isinstance(error, (EnvironmentFailure, PolicyError)):
        return line
    place = place_of(error)
    return f"{line} (at {place[0]}, line {place[1]})" if place else line


def place_of(error: BaseException) -> tuple[str, str] | None:
    """File and line where it happened: the innermost in a file named on the command line, else the innermost.

    What a policy returned is looked at outside it: its errors are in its file or nowhere.
    """
    # The text of an error from a worker holds the traceback there.
    text = str(error) if isinstance(error, EnvironmentFailure) else "".join(traceback.format_exception(error))
    places = PLACE.findall(text)
    ours = [place for place in places if place[0] in LOADED]
    found: list[tuple[str, str]] = ours if isinstance(error, PolicyError) else ours or places
    return found[-1] if found else None


def stored_in(out: Path) -> str:
    """How many steps the dataset holds, by its files."""
    from outrider.dataset import Dataset

    try:
        with Dataset.open(out) as dataset:
            return f"{len(dataset)} steps are stored in {out}"
    except OutriderError:
        return "nothing is stored"


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print each warning once, as a line without file names and colours."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any) -> None:
        text = STYLE.sub("", str(message)).strip()
        if text not in said:
            said.add(text)
            say(f"note: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        # Restarts and dropped lanes; arithmetic of the user's code, too, once for each place.
        warnings.simplefilter("default", RuntimeWarning)
        # These are for who writes code, not for who runs a command. Raised as errors, they crash modules made by SWIG.
        warnings.simplefilter("ignore", DeprecationWarning)
        replacement: Any = show  # called with positions only, though its declaration has names for all
        warnings.showwarning = replacement
        yield


@contextmanager
def ending_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does, in order; one that is ignored (nohup) stays ignored."""

    def stop(number: int, _: FrameType | None) -> None:
        raise Signalled(number)

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
