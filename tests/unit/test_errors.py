"""Errors on their way from one process to another."""

import pickle

import pytest

from helpers.worker_envs import UnpicklableError, UnreadableError
from outrider.errors import EnvironmentFailure, PolicyError, WorkerDied


def sent(error):
    return pickle.loads(pickle.dumps(error))


def test_an_error_keeps_its_attributes_notes_and_causes():
    error = WorkerDied("killed", lane=3, operation="step", pid=7)
    error.exitcode = -9
    error.add_note("a note")
    error.__cause__ = EnvironmentFailure("before", lane=3, operation="step", pid=6)
    error.__cause__.__cause__ = ValueError("the first", 1)
    back = sent(error)
    assert type(back) is WorkerDied
    assert (str(back), back.lane, back.operation, back.pid, back.exitcode) == ("killed", 3, "step", 7, -9)
    assert back.__notes__ == ["a note"]
    assert (type(back.__cause__), str(back.__cause__), back.__cause__.pid) == (EnvironmentFailure, "before", 6)
    assert repr(back.__cause__.__cause__) == "ValueError('the first', 1)"


@pytest.mark.parametrize("cause", (UnpicklableError("a"), UnreadableError("a", "b"), None), ids=repr)
def test_a_cause_that_cannot_be_sent_is_left_out(cause):
    error = PolicyError("says it all")
    error.__cause__ = cause
    back = sent(error)
    assert (type(back), str(back), back.__cause__) == (PolicyError, "says it all", None)
