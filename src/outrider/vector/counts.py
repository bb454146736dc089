"""How many workers there are and how many arrivals are waited for: the checks that backends with workers share."""

from __future__ import annotations

import os

from outrider.errors import ConfigError, explain

__all__ = ["arrivals", "processors", "share_out"]


def processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_out(workers: int | None, num_envs: int, most: int, backend: str) -> int:
    """How many workers `num_envs` environments get: by default one per processor, at most one per environment.

    Raises:
        ConfigError: there would be workers without an environment, or more than `most`.
    """
    if workers is None:
        return min(num_envs, most, os.cpu_count() or 1)
    if workers > min(num_envs, most):
        raise ConfigError(
            explain(
                expected=f"at most {min(num_envs, most)} workers for {num_envs} environments",
                found=workers,
                where=f"{backend}(workers=...)",
                fix="ask for fewer workers or for more environments",
            )
        )
    return workers


def arrivals(wait_for: int | None, num_envs: int, backend: str) -> int | None:
    """How many of `num_envs` lanes are waited for; None: for all.

    Raises:
        ConfigError: more than there are.

    Example:
        >>> arrivals(2, 8, "Threads"), arrivals(8, 8, "Threads")
        (2, None)
    """
    if wait_for is not None and wait_for > num_envs:
        raise ConfigError(
            explain(
                expected=f"at most {num_envs} arrivals, one for each environment",
                found=wait_for,
                where=f"{backend}(wait_for=...)",
                fix="wait for fewer, or leave wait_for out to wait for all",
            )
        )
    return None if wait_for == num_envs else wait_for
