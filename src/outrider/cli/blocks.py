"""Collecting in blocks: large enough to be stored fast, small enough that little is lost when something stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TypeAlias

import numpy as np

from outrider.collect.interface import BaseCollector
from outrider.records import Episodes, Steps

__all__ = ["Block", "blocks", "take_episodes"]

Block: TypeAlias = Steps | Episodes

MOST_ROWS = 8192
"""Rows of a block, as long as one vector step, or one episode of each lane, has no more."""

GOAL_S = 0.5
"""Seconds that a block may take before the next one is smaller."""


def blocks(take: Callable[[int], Block], count: int, lanes: int) -> Iterator[tuple[Block, int]]:
    """Take `count` steps or episodes, some at a time.

    The size follows the speed. What is collected does not depend on it: each lane goes on where it was, and the
    episodes of a dataset are in the order in which they begin.

    Args:
        take: returns as many as it is asked for.
        count: how many in all.
        lanes: a block is a multiple of this, but for the last one.

    Yields:
        A block, and how many steps or episodes it counts for.
    """
    rounds = 1
    while count:
        units = min(count, rounds * lanes)
        began = perf_counter()
        block = take(units)
        seconds = perf_counter() - began
        count -= units
        rows = block.num_steps if isinstance(block, Episodes) else len(block)
        yield block, units
        if rows > MOST_ROWS or seconds > GOAL_S:
            rounds = max(1, rounds // 2)
        elif 2 * rows <= MOST_ROWS:
            rounds *= 2


def take_episodes(collector: BaseCollector, count: int) -> Episodes:
    """Collect whole episodes, equal shares from each lane, in the order of (number in its lane, lane).

    In this order the episodes of two calls follow each other as those of one call do, however fast a lane is.
    """
    episodes = collector.episodes(count, quota="per_env")
    return episodes[np.argsort(episodes.episode_id, kind="stable")]
