"""What a buffer is put together of: refused where it is something else."""

from __future__ import annotations

from typing import Any

from outrider.errors import ConfigError, explain
from outrider.records.step_spec import StepSpec
from outrider.replay.ring import Ring

__all__ = ["require_spec", "started"]


def require_spec(spec: object) -> None:
    """Refuse what is no spec of any lanes.

    Raises:
        ConfigError: it is none.
    """
    if not isinstance(spec, StepSpec) or not spec.num_envs:
        raise _refused("spec", "a StepSpec of one lane or more, as `collector.spec` is", spec)


def started(part: Any, ring: Ring, does: str, argument: str, expected: str) -> Any:
    """A view or a sampler at work on a ring.

    Raises:
        ConfigError: it is neither, or one in the place of the other.
    """
    if isinstance(part, type) or not hasattr(part, "start"):
        raise _refused(argument, expected, part)
    started = part.start(ring)
    if not hasattr(started, does):
        raise _refused(argument, expected, part)
    return started


def _refused(argument: str, expected: str, found: object) -> ConfigError:
    fix = "see the arguments of outrider.ReplayBuffer"
    return ConfigError(explain(expected=expected, found=repr(found), where=f"ReplayBuffer({argument})", fix=fix))
