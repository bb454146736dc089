"""What proves that environments, policies and backends keep Outrider's rules; the suites need pytest.

Names are imported when they are first used, so that a check without pytest can be used without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.testing.arrivals import ArrivalConformance as ArrivalConformance
    from outrider.testing.arrivals import FirstFinishersConformance as FirstFinishersConformance
    from outrider.testing.batches import BatchConformance as BatchConformance
    from outrider.testing.collector import CollectorConformance as CollectorConformance
    from outrider.testing.faults import RecoveryConformance as RecoveryConformance
    from outrider.testing.faults import TimeoutConformance as TimeoutConformance
    from outrider.testing.gymnasium_face import GymnasiumConformance as GymnasiumConformance
    from outrider.testing.pools import PoolConformance as PoolConformance
    from outrider.testing.rewards import RewardCollectionConformance as RewardCollectionConformance
    from outrider.testing.rewards import RewardConformance as RewardConformance
    from outrider.testing.sources import SourceConformance as SourceConformance
    from outrider.testing.vec_env import VecEnvConformance as VecEnvConformance

_HOMES = {
    "ArrivalConformance": "outrider.testing.arrivals",
    "BatchConformance": "outrider.testing.batches",
    "CollectorConformance": "outrider.testing.collector",
    "FirstFinishersConformance": "outrider.testing.arrivals",
    "GymnasiumConformance": "outrider.testing.gymnasium_face",
    "PoolConformance": "outrider.testing.pools",
    "RecoveryConformance": "outrider.testing.faults",
    "SourceConformance": "outrider.testing.sources",
    "TimeoutConformance": "outrider.testing.faults",
    "RewardCollectionConformance": "outrider.testing.rewards",
    "RewardConformance": "outrider.testing.rewards",
    "VecEnvConformance": "outrider.testing.vec_env",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module 'outrider.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
