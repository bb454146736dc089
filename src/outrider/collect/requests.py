"""Whether what a collector is asked for makes sense; refused before anything is stepped."""

from __future__ import annotations

from outrider.errors import ClosedError, ConfigError, explain
from outrider.vector.plan import check_count

__all__ = ["check_open", "check_quota", "check_request"]


def check_request(count: object, where: str, least: int) -> None:
    """Refuse what is not an integer of at least `least`.

    Raises:
        ConfigError: it is not.
    """
    check_count(count, where, least)


def check_quota(quota: object) -> None:
    """Refuse an unknown quota.

    Raises:
        ConfigError: it is neither None nor "per_env".
    """
    if quota not in (None, "per_env"):
        raise ConfigError(
            explain(expected="None or 'per_env'", found=repr(quota), where="episodes(quota=...)", fix="choose one")
        )


def check_open(*, closed: bool) -> None:
    """Refuse to go on after close.

    Raises:
        ClosedError: the collector is closed.
    """
    if closed:
        msg = "the collector is closed; make a new one with outrider.Collector(envs, policy)"
        raise ClosedError(msg)
