"""A driver that shows each frame of the first episodes of a lane, and changes nothing of what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from outrider import tree
from outrider.errors import EnvironmentFailure
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD, Driver, Returned

__all__ = ["Filming"]


class Filming(Driver):
    """Drives what another driver drives, and waits for all of it: lanes are rendered while none is under way.

    A lane that would be reset in the step that ends it is held there for its last frame, and reset then. A batch of
    environments that resets by itself cannot be held: there the last frame of an episode is missing.
    """

    def __init__(self, driver: Driver, lane: int, episodes: int, show: Callable[[Any], None]) -> None:
        self._driver = driver
        self._lane = lane
        self._left = episodes
        self._show = show
        self._holds = driver.autoreset_mode is None
        # Row, operation and wanted infos of the lane that is filmed, while it is under way.
        self._asked: tuple[int, int, int] | None = None
        self.store = driver.store
        self.description = driver.description
        self.num_envs = driver.num_envs
        self.autoreset_mode, self.takes_seeds = driver.autoreset_mode, driver.takes_seeds
        self.resets_apart = driver.resets_apart
        self.rebuilds, self.drops = driver.rebuilds, driver.drops
        self._count_losses()

    def _count_losses(self) -> None:
        driver = self._driver
        self.restarts, self.lost_steps, self.dropped = driver.restarts, driver.lost_steps, driver.dropped

    def post(self, lanes: Any, rows: Any, op: Any, want: int) -> None:
        """See `Driver.post`."""
        numbers = np.asarray(lanes)
        if self._left and self._lane in numbers:
            at = int(np.flatnonzero(numbers == self._lane)[0])
            ops = np.full(len(numbers), op, np.int8) if isinstance(op, int) else np.array(op, np.int8)
            self._asked = int(rows[at]), int(ops[at]), want
            if self._holds and ops[at] == STEP:
                ops[at] = STEP_AND_HOLD
                op = ops
        self._driver.post(lanes, rows, op, want)

    def wait(self, least: int | None = None) -> Returned:
        """See `Driver.wait`."""
        del least
        back = self._driver.wait()
        self._count_losses()
        asked, self._asked = self._asked, None
        if asked is None or self._lane not in back.lanes:
            return back
        row, op, want = asked
        self._film()
        if op != RESET and self._lane in back.ended:
            self._left -= 1
            if op == STEP and self._holds:
                self._reset(back, row, want)
                if self._left:
                    self._film()
        return back

    def _film(self) -> None:
        (frame,) = self._driver.call([self._lane], "render", "", [()])
        self._show(frame)

    def _reset(self, back: Returned, row: int, want: int) -> None:
        """Reset the lane at its end, and make that look like the step that it was part of."""
        for leaf in tree.leaves(self.store.obs):
            leaf[self.store.final + self._lane] = leaf[row]
        if self._lane in back.infos:
            back.final_infos[self._lane] = back.infos.pop(self._lane)
        begun = self._driver.exchange(np.array([self._lane]), np.array([row]), RESET, want)
        back.infos |= begun.infos

    def arrange_resets(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        """See `Driver.arrange_resets`."""
        self._driver.arrange_resets(arguments)

    def call(self, lanes: Sequence[int], operation: str, name: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """See `Driver.call`."""
        return self._driver.call(lanes, operation, name, arguments)

    def close(self) -> list[EnvironmentFailure]:
        """See `Driver.close`."""
        return self._driver.close()

    def let_go(self, lanes: Any) -> None:
        """See `Driver.let_go`."""
        self._driver.let_go(lanes)

    @property
    def lanes(self) -> range:
        """See `Driver.lanes`."""
        return self._driver.lanes

    @property
    def is_open(self) -> bool:
        """See `Driver.is_open`."""
        return self._driver.is_open

    @property
    def pids(self) -> list[int]:
        """See `Driver.pids`."""
        return self._driver.pids
