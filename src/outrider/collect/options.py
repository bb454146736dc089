"""What is rarely needed of a collector, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.vector.plan import check_count

__all__ = ["CollectOptions"]


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """Options of a `Collector`.

    Args:
        lead: how many rollouts' worth of rows a lane may have before it idles, where lanes go at their own pace
            (`wait_for`): with 1 the fast ones wait for the slow ones at the end of each rollout, with more they go on
            into the next ones. It costs the memory of so many rollouts. Where the backend waits for all lanes, none
            can be ahead, and `Collector` refuses more than 1.
        desynchronise: cut the first episode of each lane after 1 to so many steps, drawn from the run seed, unless it
            has ended before: lanes of episodes of equal length then do not all end together. 0: do not.

    Raises:
        ConfigError: an option that makes no sense.

    Example:
        >>> CollectOptions(lead=4)
        CollectOptions(lead=4, desynchronise=0)
    """

    lead: int = 1
    desynchronise: int = 0

    def __post_init__(self) -> None:
        check_count(self.lead, "CollectOptions(lead=...)")
        check_count(self.desynchronise, "CollectOptions(desynchronise=...)", 0)
