"""Running the command line, in this process or as one of its own, and reading what it has stored."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from outrider import tree
from outrider.cli.main import app
from outrider.dataset import Dataset
from outrider.records import describe

SCRIPT = Path(sys.executable).parent / "outrider"

OURS = ("OUTRIDER_DEBUG", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "COLUMNS")
"""Settings of the user's that would change what the tests see."""


def environment():
    return {name: value for name, value in os.environ.items() if name not in OURS}


def outrider(*arguments, code=0):
    """Run the command line in this process; return what it printed, stderr last."""
    env = dict.fromkeys(OURS)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout + result.stderr


def started(*arguments, **options):
    """Start the command line as a process, in a session of its own as a shell would."""
    command = [str(SCRIPT), *(str(argument) for argument in arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, start_new_session=True, env=environment(), **(pipes | options))


def stored(path):
    """All steps of a dataset."""
    with Dataset.open(path) as dataset:
        return dataset.steps()


def assert_same_steps(one, other):
    """Every column of two `Steps` is equal, in the same order."""
    for name, column in describe.columns_of(one).items():
        if isinstance(column, slice):
            assert column == getattr(other, name)
            continue
        for leaf, same in zip(tree.leaves(column), tree.leaves(getattr(other, name)), strict=True):
            np.testing.assert_array_equal(leaf, same, err_msg=name)
