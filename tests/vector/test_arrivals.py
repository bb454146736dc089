"""What arrives when, on every backend, and threads and first finishers in everything else that backends must do."""

from contextlib import contextmanager

import outrider
from outrider.testing import ArrivalConformance, FirstFinishersConformance, VecEnvConformance


class TestInlineArrivals(ArrivalConformance):
    def backend(self, workers, wait_for):
        return outrider.Inline()


class TestThreadArrivals(FirstFinishersConformance):
    def backend(self, workers, wait_for):
        return outrider.Threads(workers, wait_for)


class TestForkArrivals(FirstFinishersConformance):
    def backend(self, workers, wait_for):
        return outrider.Processes(workers, "fork", wait_for)


class TestForkserverArrivals(FirstFinishersConformance):
    # Its workers take long to start, and nothing in these tests depends on how they do.
    test_random_subsets_against_a_list_of_counters = None
    test_infos_arrive_with_their_lanes_or_not_at_all = None
    test_an_interrupted_wait_can_be_called_again = None

    def backend(self, workers, wait_for):
        return outrider.Processes(workers, "forkserver", wait_for)


class TestOneThread(VecEnvConformance):
    def backend(self):
        return outrider.Threads(workers=1)


class ByLane(VecEnvConformance):
    """Lanes come back one by one, but all of them are waited for."""

    @contextmanager
    def make(self, env, num_envs=None):
        with super().make(env, num_envs) as envs:
            envs.driver.wait_for = None
            yield envs


class TestThreads(VecEnvConformance):
    def backend(self):
        return outrider.Threads()


class TestThreadsByLane(ByLane):
    def backend(self):
        return outrider.Threads(wait_for=1)


class TestProcessesByLane(ByLane):
    def backend(self):
        return outrider.Processes(start_method="fork", wait_for=1)
