"""When `VecEnv.step` resets a lane that has ended: one class for each of Gymnasium's three modes."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode

from outrider.errors import ConfigError, OutriderError, explain
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD
from outrider.vector.lanes import AT_END

__all__ = ["Autoreset", "Disabled", "NextStep", "SameStep", "autoreset", "check_mode"]

NOBODY = np.array([], np.int64)


class Autoreset(Protocol):
    """What a step asks of each lane.

    Attributes:
        lends: whether observations may be handed over in rows that the user may write to. Not where resets of some
            lanes are the rule, because they return the current observations of the others.
    """

    lends: bool

    def plan(self, last: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return the operation of the next step (one for all lanes, or int8 [N]), and the lanes that it only resets.

        Args:
            last: int8 [N], the operation before, or `AT_END`.
        """


class SameStep:
    """A lane that ends is reset in the same step."""

    lends = True

    def plan(self, last: np.ndarray) -> tuple[Any, np.ndarray]:
        """See `Autoreset.plan`."""
        return STEP, NOBODY


class NextStep:
    """A lane that ended is reset in the next step, which takes no heed of its action."""

    lends = True

    def plan(self, last: np.ndarray) -> tuple[Any, np.ndarray]:
        """See `Autoreset.plan`."""
        ended = np.flatnonzero(last == AT_END)
        if not len(ended):
            return STEP_AND_HOLD, NOBODY
        ops = np.full(len(last), STEP_AND_HOLD, np.int8)
        ops[ended] = RESET
        return ops, ended


class Disabled:
    """A lane that ended is reset by the user alone."""

    lends = False

    def plan(self, last: np.ndarray) -> tuple[Any, np.ndarray]:
        """See `Autoreset.plan`.

        Raises:
            OutriderError: a lane has ended and was not reset.
        """
        ended = np.flatnonzero(last == AT_END)
        if len(ended):
            raise OutriderError(
                explain(
                    expected="lanes whose episodes run",
                    found=f"lanes {ended.tolist()} at the end of theirs",
                    where="step() without autoreset",
                    fix='call reset(options={"reset_mask": terminated | truncated}) before the next step',
                )
            )
        return STEP_AND_HOLD, NOBODY


MODES: dict[AutoresetMode, type[Autoreset]] = {
    AutoresetMode.SAME_STEP: SameStep,
    AutoresetMode.NEXT_STEP: NextStep,
    AutoresetMode.DISABLED: Disabled,
}


def autoreset(mode: AutoresetMode) -> Autoreset:
    """What a step asks of each lane in this mode."""
    return MODES[mode]()


def check_mode(mode: object) -> AutoresetMode:
    """Return the mode that is meant by itself or by its value, as Gymnasium takes both.

    Raises:
        ConfigError: there is no such mode.

    Example:
        >>> check_mode("NextStep")
        <AutoresetMode.NEXT_STEP: 'NextStep'>
    """
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        names = ", ".join(repr(one.value) for one in AutoresetMode)
        raise ConfigError(
            explain(
                expected=f"one of {names}, or a gymnasium.vector.AutoresetMode",
                found=repr(mode),
                where="autoreset_mode",
                fix="leave it out for same-step, the mode that wastes no step",
            )
        ) from error
