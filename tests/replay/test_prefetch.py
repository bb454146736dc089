"""Batches that are assembled ahead."""

import gc
import threading

import pytest

from outrider.errors import ClosedError
from outrider.replay.prefetch import Batches


class Source:
    """Counts what it has assembled."""

    def __init__(self, fails=()):
        self.count = self.cleared = 0
        self.fails = fails
        self.changed = threading.Condition()

    def draw(self):
        with self.changed:
            self.count += 1
            self.changed.notify_all()
            if self.count in self.fails:
                raise ZeroDivisionError(self.count)
            return self.cleared, self.count

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.count >= count, 60)


def batches(source, ahead=2):
    return Batches(source.draw, lambda: source.cleared, ahead)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "outrider-batches"]


def test_batches_come_in_order_and_not_further_ahead_than_asked_for():
    source = Source()
    with batches(source, 3) as found:
        for number in range(1, 100):
            assert next(found) == number
            assert source.count <= number + 3
    assert not threads()


def test_nothing_is_returned_that_was_assembled_before_the_buffer_was_cleared():
    source = Source()
    with batches(source, 2) as found:
        source.wait_for(2)
        with source.changed:
            source.cleared += 1
            before = source.count
        assert next(found) > before


def test_what_assembling_raises_comes_where_the_batch_would_have():
    source = Source(fails=range(2, 1_000))
    with batches(source) as found:
        assert next(found) == 1
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                next(found)
        source.fails = ()
        assert next(found) > 3


def test_what_failed_before_somebody_asked_is_tried_again():
    source = Source(fails=(1, 3))
    with batches(source) as found:
        source.wait_for(1)
        # The thread tries nothing more until it is asked.
        with source.changed:
            assert source.count == 1
        assert next(found) == 2
        source.wait_for(3)
        assert next(found) == 4


def test_the_thread_ends_when_nobody_has_the_batches_any_more():
    found = batches(Source())
    next(found)
    (thread,) = threads()
    del found
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_use_after_close():
    found = batches(Source())
    found.close()
    found.close()
    with pytest.raises(ClosedError, match="batches"):
        next(found)


def test_a_close_ends_a_wait():
    gate = threading.Event()

    def draw():
        gate.wait(60)
        return 0, 1

    found = Batches(draw, lambda: 0, 1)
    heard = []

    def wait():
        try:
            next(found)
        except ClosedError as error:
            heard.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    found._state.close()
    waiting.join(60)
    gate.set()
    found.close()
    assert len(heard) == 1
