"""The suite of backends over SyncVectorEnv, in each of the three autoreset modes."""

from gymnasium.vector import AutoresetMode, SyncVectorEnv

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
