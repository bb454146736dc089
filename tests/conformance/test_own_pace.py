"""The suite of lanes that go at their own pace, over threads and processes."""

import outrider
from outrider.testing.own_pace import OwnPaceConformance


class TestThreads(OwnPaceConformance):
    def backend(self, workers):
        return outrider.Threads(workers, wait_for=1)


class TestProcesses(OwnPaceConformance):
    def backend(self, workers):
        return outrider.Processes(workers, wait_for=1, start_method="fork")
