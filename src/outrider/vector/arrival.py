"""What `recv` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import EnvironmentFailure
from outrider.tree import Tree
from outrider.vector.store import Store, indexer

__all__ = ["Arrival"]


@dataclass(slots=True)
class Arrival:
    """Lanes that have stepped or were reset, lent: copy what you keep, the arrays change once those lanes are sent on.

    Attributes:
        store: the arrays that the rows belong to.
        lanes: range or int64 array [k] of the lanes, the oldest request first.
        rows: range or int64 array [k] of the rows of their current observations.
        ended: the lanes [e] whose step ended their episode, in the same order.
        final_rows: int64 [e], the rows of the true last observations of the lanes in `ended`.
        info, final_info: info dicts by lane, those that were asked for and are not empty.
        dummies: lanes whose step did nothing but reset them; only of foreign environments that reset in the step after
            an end.
        blind: lanes in `ended` whose last observation is not known; only of foreign environments that do not tell it.
        lost: lanes whose step did not happen, because the environment failed and was made anew: they are in `ended`,
            too, with reward 0, `truncated`, and "restarted" among their infos.
        dropped: lanes that failed and are gone for good, and why. They are not among `lanes`.
        batch_info: in place of `info` and `final_info`, the infos of all lanes as foreign environments gave them.
    """

    store: Store
    lanes: Any
    rows: Any
    ended: list[int]
    final_rows: np.ndarray
    info: dict[int, dict[str, Any]]
    final_info: dict[int, dict[str, Any]]
    dummies: list[int] = field(default_factory=list)
    blind: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    dropped: dict[int, EnvironmentFailure] = field(default_factory=dict)
    batch_info: dict[str, Any] | None = None

    @property
    def env_id(self) -> np.ndarray:
        """Lane numbers, int64 [k]."""
        return np.asarray(self.lanes, np.int64)

    @property
    def obs(self) -> Tree:
        """What the policy sees next, [k, ...]."""
        return tree.take(self.store.obs, indexer(self.rows))

    @property
    def steps(self) -> slice | np.ndarray:
        """Index of the rows that hold reward and flags: those before `rows` in each lane."""
        return self.store.before(self.rows)

    @property
    def reward(self) -> np.ndarray:
        """float64 [k], a vector for each where such are declared; of lanes that were reset, anything."""
        return self.store.reward[self.steps]

    @property
    def terminated(self) -> np.ndarray:
        """Bool [k]; of lanes that were reset, anything."""
        return self.store.terminated[self.steps]

    @property
    def truncated(self) -> np.ndarray:
        """Bool [k]; of lanes that were reset, anything."""
        return self.store.truncated[self.steps]

    @property
    def final_obs(self) -> Tree:
        """True last observations of the lanes in `ended`, [e, ...]; of lanes in `blind`, anything."""
        return tree.take(self.store.obs, self.final_rows)
