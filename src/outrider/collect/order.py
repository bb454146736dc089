"""The order of episodes that does not depend on timing."""

from __future__ import annotations

import numpy as np

from outrider.records.episodes import Episodes

__all__ = ["in_order"]


def in_order(episodes: Episodes) -> Episodes:
    """Episodes in the order of their starts: by the steps that their lane had taken before, then by lane."""
    order = np.lexsort((episodes.episode_id, episodes.env_id))
    lengths = np.diff(episodes.boundaries)[order]
    lane = episodes.env_id[order]
    before = np.cumsum(lengths) - lengths
    is_first = np.append(True, lane[1:] != lane[:-1])
    started = before - np.maximum.accumulate(np.where(is_first, before, 0))
    return episodes[order[np.lexsort((lane, started))]]
