"""The suite of backends over Gymnasium's own vector environments, in each of the three autoreset modes."""

import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from outrider.testing import SourceConformance


class Sync(SourceConformance):
    def plain(self, factories):
        return SyncVectorEnv(factories, autoreset_mode=self.mode)


class TestSyncSameStep(Sync):
    mode = AutoresetMode.SAME_STEP
    keeps_ends = False


class TestSyncNextStep(Sync):
    mode = AutoresetMode.NEXT_STEP


class TestSyncDisabled(Sync):
    mode = AutoresetMode.DISABLED


# It tells of errors in warnings, before it raises them.
@pytest.mark.filterwarnings("ignore:.*ERROR")
class Async(SourceConformance):
    far = True

    def plain(self, factories):
        # Its shared memory stays behind until the process ends.
        return AsyncVectorEnv(factories, autoreset_mode=self.mode, shared_memory=False, context="fork")


class TestAsyncSameStep(Async):
    mode = AutoresetMode.SAME_STEP
    keeps_ends = False


class TestAsyncNextStep(Async):
    mode = AutoresetMode.NEXT_STEP


class TestAsyncDisabled(Async):
    mode = AutoresetMode.DISABLED
