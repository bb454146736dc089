"""The progress bar: on a terminal only."""

import os
import pty
import re

import numpy as np
import pytest

from helpers.cli import started
from helpers.patience import RUNNING
from outrider.cli.progress import progress_bar


def test_nothing_is_written_where_there_is_no_terminal(capfd):
    with progress_bar("steps", 10, lambda: np.ones(3), visible=False) as bar:
        bar.advance(10, 5.0)
    assert capfd.readouterr() == ("", "")


def read_all(terminal):
    """What was written to a terminal until its other side was closed."""
    pieces = []
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how Linux tells that nobody has the other side open
            piece = b""
        if not piece:
            return b"".join(pieces).decode()
        pieces.append(piece)


@pytest.mark.parametrize("unit", ("steps", "episodes"))
def test_bar_on_a_terminal(tmp_path, unit):
    ours, theirs = pty.openpty()
    count = {"steps": 60_000, "episodes": 3_000}[unit]
    process = started("collect", "CartPole-v1", f"--{unit}", count, "--out", tmp_path / "d", stderr=theirs)
    os.close(theirs)
    shown = read_all(ours)
    os.close(ours)
    output, _ = process.communicate(timeout=RUNNING)
    assert process.returncode == 0
    assert re.search(rf"\d/{count:,} {unit}", shown)
    assert re.search(r"[\d,]+ steps/s", shown)
    assert re.search(r"return \d+\.\d", shown)
    assert "\x1b" not in output
    assert "Stored in" in output
