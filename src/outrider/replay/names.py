"""Which lane of a ring the steps of each lane of their source go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from outrider.errors import ConfigError, explain

if TYPE_CHECKING:
    from outrider.replay.ring import Ring

__all__ = ["Names"]


class Names:
    """Lanes by `env_id`, given when the first steps of it come and kept from then on.

    Each gets the lane of its own number, or the first free one where there is none of that number or another one has
    it.

    Args:
        ring: whose lanes are given; its `env_ids` say who has them.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._lanes: dict[int, int] = {}
        # Whether every lane has been given, to its own number.
        self._are_same = False

    def find(self, env_id: np.ndarray, where: str) -> tuple[np.ndarray, dict[int, int]]:
        """The lanes of these env_id, int64 [n], and those of them that have to be given first; see `give`.

        Returns:
            int64 [n], the very array `ring.everyone` where these are all lanes in order; and a dict.

        Raises:
            ConfigError: there are not so many lanes.
        """
        everyone, known = self._ring.everyone, self._lanes
        count = len(everyone)
        if self._are_same and len(env_id) == count and np.count_nonzero(env_id == everyone) == count:
            return everyone, {}
        if self._are_same and len(env_id) and env_id.min() >= 0 and env_id.max() < count:
            return env_id, {}
        numbers, inverse = np.unique(env_id, return_inverse=True)
        new = self._free_lanes([number for number in numbers.tolist() if number not in known], where)
        lanes = np.array([known[n] if n in known else new[n] for n in numbers.tolist()], np.int64)[inverse]
        return (everyone if np.array_equal(lanes, everyone) else lanes), new

    def _free_lanes(self, new: list[int], where: str) -> dict[int, int]:
        """Lanes that nobody has for these env_id, which have none."""
        if not new:
            return {}
        taken, count = set(self._lanes.values()), self._ring.num_envs
        if len(taken) + len(new) > count:
            every = [*self._lanes, *new]
            raise ConfigError(
                explain(
                    expected=f"at most {count} different env_id, as there are lanes",
                    found=f"{len(every)}: {', '.join(map(str, every[:10]))}{', and so on' if len(every) > 10 else ''}",
                    where=where,
                    fix="make the buffer with a spec of as many lanes (num_envs) as there are env_id",
                )
            )
        own = {number: number for number in new if 0 <= number < count and number not in taken}
        others = [number for number in new if number not in own]
        free = [lane for lane in range(count) if lane not in taken and lane not in own]
        return own | dict(zip(others, free, strict=False))

    def give(self, lanes: dict[int, int]) -> None:
        """Give lanes, by env_id, that `find` or `rest` has found."""
        if lanes:
            for env_id, lane in lanes.items():
                self._ring.env_ids[lane] = env_id
            self._lanes |= lanes
            is_own = all(env_id == lane for env_id, lane in self._lanes.items())
            self._are_same = is_own and len(self._lanes) == self._ring.num_envs

    def rest(self) -> dict[int, int]:
        """All lanes that have not been given; each to its own number, which nobody can have where it is free."""
        if len(self._lanes) == self._ring.num_envs:
            return {}
        return {lane: lane for lane in set(range(self._ring.num_envs)) - set(self._lanes.values())}

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of env_id and lane."""
        return list(self._lanes.items())
