"""The suite of collectors, for every place where environments and policy can run."""

from contextlib import contextmanager

import outrider
from outrider.testing.collector import CollectorConformance

START = "fork"
"""Which way workers start is for the tests of environments; this one takes least time."""


class OverProcesses(CollectorConformance):
    """A `Collector` over environments in worker processes; no more of them than lanes."""

    workers = 1

    @contextmanager
    def make(self, plan, policy, seed):
        backend = outrider.Processes(workers=min(self.workers, plan.num_envs), start_method=START)
        with outrider.make_vec(plan, backend=backend) as envs, outrider.Collector(envs, policy, seed=seed) as collector:
            yield collector


class TestInline(CollectorConformance):
    repeats, tolerance, long = 2000, 0.1, 20_000

    @contextmanager
    def make(self, plan, policy, seed):
        with outrider.make_vec(plan) as envs, outrider.Collector(envs, policy, seed=seed) as collector:
            yield collector


class TestOneProcess(OverProcesses):
    workers = 1


class TestTwoProcesses(OverProcesses):
    workers = 2


class TestThreeProcesses(OverProcesses):
    workers = 3


class TestFirstFinishers(OverProcesses):
    """Lanes at their own pace: a decision for whichever have arrived, one at least."""

    lockstep = False
    # Which episodes come is not the same in every run: five and a half standard errors, where others have four.
    tolerance = 0.62

    @contextmanager
    def make(self, plan, policy, seed):
        backend = outrider.Processes(workers=min(2, plan.num_envs), start_method=START, wait_for=1)
        with outrider.make_vec(plan, backend=backend) as envs, outrider.Collector(envs, policy, seed=seed) as collector:
            yield collector


class TestParallel(CollectorConformance):
    """Environments and policy in two workers."""

    def make(self, plan, policy, seed):
        workers = min(2, plan.num_envs)
        backend = outrider.Processes(start_method=START)
        return outrider.ParallelCollector(plan, lambda: policy, workers=workers, backend=backend, seed=seed)
