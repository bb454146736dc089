"""Whether what a collector is asked for makes sense; refused before anything is stepped."""

from __future__ import annotations

from outrider.errors import ClosedError, ConfigError, explain
from outrider.records.step_spec import StepSpec
from outrider.vector.env import VecEnv
from outrider.vector.plan import check_count

__all__ = [
    "check_envs",
    "check_lane_count",
    "check_lanes_left",
    "check_open",
    "check_quota",
    "check_request",
    "check_rows",
]


def check_envs(envs: object, where: str) -> None:
    """Refuse what `make_vec` has not made.

    Raises:
        ConfigError: it is such.
    """
    if not isinstance(envs, VecEnv):
        raise ConfigError(
            explain(
                expected="what outrider.make_vec returns",
                found=type(envs).__name__,
                where=where,
                fix="call outrider.make_vec first; it takes vector environments of others as well",
            )
        )


def check_request(count: object, where: str, least: int) -> None:
    """Refuse what is not an integer of at least `least`.

    Raises:
        ConfigError: it is not.
    """
    check_count(count, where, least)


def check_lane_count(lanes: object, num_envs: int) -> None:
    """Refuse a number of lanes that is neither None nor from 1 to `num_envs`.

    Raises:
        ConfigError: it is.
    """
    if lanes is not None and check_count(lanes, "rollout(lanes=...)") > num_envs:
        raise ConfigError(
            explain(
                expected=f"at most {num_envs} lanes, as many as there are",
                found=lanes,
                where="rollout(lanes=...)",
                fix="ask for fewer, or leave it out for all of them",
            )
        )


def check_lanes_left(lanes: int | None, left: int, num_envs: int) -> None:
    """Refuse a number of lanes that there no longer are.

    Raises:
        ConfigError: so many have been dropped that fewer are left.
    """
    if lanes is not None and lanes > left:
        raise ConfigError(
            explain(
                expected=f"at most {left} lanes: {num_envs - left} of {num_envs} have failed and were dropped",
                found=lanes,
                where="rollout(lanes=...)",
                fix="ask for fewer, or leave it out for all that are left; rows that were collected are kept for the "
                "next call, and `envs.dropped` says who is gone",
            )
        )


def check_quota(quota: object) -> None:
    """Refuse an unknown quota.

    Raises:
        ConfigError: it is neither None nor "per_env".
    """
    if quota not in (None, "per_env"):
        raise ConfigError(
            explain(expected="None or 'per_env'", found=repr(quota), where="episodes(quota=...)", fix="choose one")
        )


def check_rows(expected: StepSpec, found: StepSpec) -> None:
    """Refuse to add rows to a buffer that is for others.

    Raises:
        ConfigError: a column differs in structure, shape or dtype; names the first one. Or there are more lanes.
    """
    for name in ("obs", "action", "reward", "extras", "num_envs"):
        ours, theirs = getattr(expected, name), getattr(found, name)
        if theirs > ours if name == "num_envs" else theirs != ours:
            raise ConfigError(
                explain(
                    expected=f"rows with {name} = {ours}",
                    found=f"{theirs}",
                    where="fill(replay, count)",
                    fix="make the buffer with `collector.new_replay(capacity)`",
                )
            )
    for name in ("info", "obs_info"):
        missing = getattr(expected, name).keys() - getattr(found, name).keys()
        if missing:
            keys = ", ".join(sorted(key for key in missing if not key.startswith("_")))
            raise ConfigError(
                explain(
                    expected=f"rows with {name} = {keys}, which the buffer has columns for",
                    found=f"{sorted(getattr(found, name))}",
                    where="fill(replay, count)",
                    fix="ask the environments for them with info_keys=, or make the buffer without",
                )
            )


def check_open(*, closed: bool) -> None:
    """Refuse to go on after close.

    Raises:
        ClosedError: the collector is closed.
    """
    if closed:
        msg = "the collector is closed; make a new one with outrider.Collector(envs, policy)"
        raise ClosedError(msg)
