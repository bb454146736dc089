"""Where workers begin to run."""

import os

import pytest

from outrider.vector.placement import move_apart

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system places threads by itself")


@needs_affinity
def test_consecutive_workers_are_moved_to_different_processors_and_left_free():
    allowed = os.sched_getaffinity(0)
    chosen = [move_apart(index, group=5) for index in range(len(allowed))]
    assert os.sched_getaffinity(0) == allowed
    if len(allowed) > 1:
        assert sorted(chosen) == sorted(allowed)
    assert move_apart(len(allowed), group=5) == chosen[0]


def test_nobody_is_moved_where_there_is_no_choice(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert move_apart(0, group=0) is None
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert move_apart(0, group=0) is None


@needs_affinity
def test_a_system_that_refuses_is_left_alone(monkeypatch):
    def refuse(_pid, _mask):
        raise PermissionError

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    assert move_apart(1, group=0) is None
