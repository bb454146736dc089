"""Views and samplers as JSON: the name of their class, and those of its fields that are plain values."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from outrider.errors import ReplayError, explain

__all__ = ["describe", "revive"]

HOME = "outrider.replay."
PLAIN = (bool, int, float, str, type(None))


def describe(part: Any) -> dict[str, Any]:
    """Say what a view or sampler is: its plain fields, and the names of those that are functions or other objects.

    "fields" is None where nobody knows what its fields are.

    Example:
        >>> from outrider.replay.transitions import Transitions
        >>> describe(Transitions(n_step=3, gamma=0.5))["fields"]
        {'n_step': 3, 'gamma': 0.5, 'frame_stack': 1}
    """
    kind = type(part)
    known = dataclasses.is_dataclass(kind)
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)} if known else {}
    plain = {name: value for name, value in fields.items() if isinstance(value, PLAIN)}
    others = sorted(fields.keys() - plain)
    return {
        "module": kind.__module__,
        "class": kind.__qualname__,
        "fields": plain if known else None,
        "others": others,
    }


def revive(described: dict[str, Any], argument: str) -> Any:
    """Make the view or sampler that `describe` has described.

    Args:
        described: what it said.
        argument: the argument of `load` by which it can be given instead.

    Raises:
        ReplayError: it is not one of Outrider's, or not all of it was plain.
    """
    name = f"{described['module']}.{described['class']}"
    if described["fields"] is None or described["others"] or not name.startswith(HOME):
        raise ReplayError(
            explain(
                expected=f"{argument}=..., because the file cannot hold functions or classes of your own",
                found=f"a {name}",
                where="ReplayBuffer.load",
                fix=f"pass {argument}= to `load`, as it was when the buffer was made",
            )
        )
    kind = getattr(importlib.import_module(described["module"]), described["class"])
    return kind(**described["fields"])
