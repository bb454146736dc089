"""What Outrider raises. Every message says what was expected, what was found, where, and what to do."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ClosedError",
    "ConfigError",
    "DatasetError",
    "EnvironmentFailure",
    "EnvironmentTimeout",
    "OutriderError",
    "PolicyError",
    "ReplayError",
    "SpecError",
    "WorkerDied",
    "explain",
]


class OutriderError(Exception):
    """Base class of everything that Outrider raises on its own account.

    On the way from one process to another it keeps its attributes, its notes and, where that can be pickled, its cause.
    """

    def __reduce__(self) -> tuple[object, ...]:
        """Pickling an exception would lose its cause, and call `__init__` with nothing but the message."""
        return (_rebuild, (type(self), self.args, self.__dict__, _packed(self.__cause__)))


class ConfigError(OutriderError, ValueError):
    """Arguments that contradict each other or cannot be used; raised before anything is started."""


class SpecError(OutriderError, ValueError):
    """A value whose structure, shape or dtype differs from what was declared."""


class PolicyError(SpecError):
    """A policy that raised, or that returned something else than it is expected to, or than it returned before.

    If it raised, its type and message are in the message, and the original exception is the cause. From a worker comes
    its traceback in a note, and the cause if it can be pickled.
    """


class ClosedError(OutriderError, RuntimeError):
    """Use of environments, a collector or a dataset after `close()`."""


class DatasetError(OutriderError):
    """A dataset that cannot be created, opened or appended to."""


class ReplayError(OutriderError):
    """A replay buffer that holds too little to be drawn, or a file of one: torn, foreign, or not to be written."""


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


class WorkerDied(EnvironmentFailure):
    """A worker process ended without a word: it was killed, it exited, or it ran out of memory.

    Attributes:
        exitcode: as `multiprocessing.Process.exitcode`: the status, or the negative number of the signal.
    """

    exitcode: int | None = None


class EnvironmentTimeout(EnvironmentFailure):
    """An environment was in one call for longer than `step_timeout`: its process was killed or its thread abandoned."""


def _packed(error: BaseException | None) -> bytes | None:
    """Pickle a cause; None where there is none, or where it could not be made again."""
    if error is None:
        return None
    import cloudpickle

    try:
        data = bytes(cloudpickle.dumps(error))
    except Exception:  # noqa: BLE001 - a user's __reduce__ may raise anything
        return None
    return None if _unpacked(data) is None else data


def _unpacked(data: bytes) -> BaseException | None:
    import cloudpickle

    try:
        error = cloudpickle.loads(data)
    except Exception:  # noqa: BLE001 - so may what it calls
        return None
    return error if isinstance(error, BaseException) else None


def _rebuild(
    cls: type[OutriderError], args: tuple[Any, ...], attributes: dict[str, Any], cause: bytes | None
) -> OutriderError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(attributes)
    error.__cause__ = None if cause is None else _unpacked(cause)
    return error


def explain(*, expected: object, found: object, where: str, fix: str) -> str:
    """Put the four parts of an error message into one sentence each.

    Example:
        >>> explain(expected="a count of 1 or more", found=-3, where="steps(count)", fix="pass a positive number")
        'steps(count): expected a count of 1 or more, found -3. To fix it: pass a positive number.'
    """
    return f"{where}: expected {expected}, found {found}. To fix it: {fix}."
