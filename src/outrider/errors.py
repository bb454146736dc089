"""What Outrider raises. Every message says what was expected, what was found, where, and what to do."""

from __future__ import annotations

__all__ = [
    "ClosedError",
    "ConfigError",
    "DatasetError",
    "EnvironmentFailure",
    "EnvironmentTimeout",
    "OutriderError",
    "PolicyError",
    "SpecError",
    "WorkerDied",
    "explain",
]


class OutriderError(Exception):
    """Base class of everything that Outrider raises on its own account."""


class ConfigError(OutriderError, ValueError):
    """Arguments that contradict each other or cannot be used; raised before anything is started."""


class SpecError(OutriderError, ValueError):
    """A value whose structure, shape or dtype differs from what was declared."""


class PolicyError(SpecError):
    """A policy that returned something else than it is expected to, or than it returned before."""


class ClosedError(OutriderError, RuntimeError):
    """Use of environments, a collector or a dataset after `close()`."""


class DatasetError(OutriderError):
    """A dataset that cannot be created, opened or appended to."""


class EnvironmentFailure(OutriderError):  # noqa: N818 - "failure" is what it is called everywhere
    """An environment raised. The original exception is the cause; its traceback is in the message.

    Attributes:
        lane: the lane (`env_id`) of the environment, or -1 when it concerns a whole worker.
        operation: what was asked of it: "construct", "reset", "step", "close", ...
        pid: the process that it ran in.
    """

    def __init__(self, message: str, *, lane: int, operation: str, pid: int) -> None:
        super().__init__(message)
        self.lane = lane
        self.operation = operation
        self.pid = pid

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the keyword arguments when the error crosses a process boundary."""
        return (_rebuild, (type(self), str(self), self.lane, self.operation, self.pid))


class WorkerDied(EnvironmentFailure):
    """A worker process ended without a word: it was killed, it exited, or it ran out of memory.

    Attributes:
        exitcode: as `multiprocessing.Process.exitcode`: the status, or the negative number of the signal.
    """

    exitcode: int | None = None


class EnvironmentTimeout(EnvironmentFailure):
    """An environment was in one call for longer than `step_timeout`: its process was killed or its thread abandoned."""


def _rebuild(cls: type[EnvironmentFailure], message: str, lane: int, operation: str, pid: int) -> EnvironmentFailure:
    return cls(message, lane=lane, operation=operation, pid=pid)


def explain(*, expected: object, found: object, where: str, fix: str) -> str:
    """Put the four parts of an error message into one sentence each.

    Example:
        >>> explain(expected="a count of 1 or more", found=-3, where="steps(count)", fix="pass a positive number")
        'steps(count): expected a count of 1 or more, found -3. To fix it: pass a positive number.'
    """
    return f"{where}: expected {expected}, found {found}. To fix it: {fix}."
