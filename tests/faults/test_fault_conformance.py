"""The shipped suites about faults on every backend that does something about them."""

import pytest

import outrider
from helpers.bare import go_without
from outrider.testing import ArrivalConformance, RecoveryConformance, TimeoutConformance


class TestProcessesTimeouts(TimeoutConformance):
    def backend(self, step_timeout, workers):
        return outrider.Processes(workers, "fork", step_timeout=step_timeout)


class TestFirstFinishersTimeouts(TimeoutConformance):
    # It takes seconds, and they construct as the others do.
    test_construction_may_take_any_time = None

    def backend(self, step_timeout, workers):
        return outrider.Processes(workers, "fork", wait_for=1, step_timeout=step_timeout)


class TestThreadsTimeouts(TimeoutConformance):
    def backend(self, step_timeout, workers):
        return outrider.Threads(workers, step_timeout=step_timeout)


class TestProcessesRecovery(RecoveryConformance):
    def backend(self, on_failure):
        return outrider.Processes(2, "fork", on_failure=on_failure)


class TestPortableRecovery(RecoveryConformance):
    """On systems without memfd, eventfd, pidfd and poll."""

    @pytest.fixture(autouse=True)
    def _nothing_of_linux(self, monkeypatch):
        go_without(monkeypatch)

    def backend(self, on_failure):
        return outrider.Processes(2, "fork", on_failure=on_failure)


class TestRestartingArrivals(ArrivalConformance):
    """Where nothing fails, nothing is different."""

    def backend(self, workers, wait_for):
        return outrider.Processes(workers, "fork", wait_for=wait_for, on_failure=outrider.Restart(), step_timeout=20)


class TestDroppingArrivals(ArrivalConformance):
    def backend(self, workers, wait_for):
        return outrider.Processes(workers, "fork", wait_for=wait_for, on_failure=outrider.Drop())
