"""The suite of collected vector rewards, for every place where environments and policy can run."""

from contextlib import contextmanager

import outrider
from outrider.testing.rewards import RewardCollectionConformance


class OverBackend(RewardCollectionConformance):
    @contextmanager
    def make(self, plan, policy, seed):
        with (
            outrider.make_vec(plan, backend=self.backend()) as envs,
            outrider.Collector(envs, policy, seed=seed) as collector,
        ):
            yield collector


class TestInline(OverBackend):
    def backend(self):
        return outrider.Inline()


class TestProcesses(OverBackend):
    def backend(self):
        return outrider.Processes(2, "fork")


class TestThreads(OverBackend):
    def backend(self):
        return outrider.Threads(2)


class TestFirstFinishers(OverBackend):
    def backend(self):
        return outrider.Processes(2, "fork", wait_for=1)


class TestParallel(RewardCollectionConformance):
    def make(self, plan, policy, seed):
        return outrider.ParallelCollector(
            plan, lambda: policy, workers=2, backend=outrider.Processes(start_method="fork"), seed=seed
        )
