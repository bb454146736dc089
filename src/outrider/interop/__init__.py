"""Environments of other APIs as Gymnasium environments; each needs the extra of its name."""

from outrider.interop.dm_env import DmEnv as DmEnv
from outrider.interop.dm_env import from_dm_env as from_dm_env

__all__ = ["DmEnv", "from_dm_env"]
