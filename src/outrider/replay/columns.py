"""The columns of a ring: what every row has, but for its observation."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.records.step_spec import StepSpec
from outrider.spec import LeafSpec

__all__ = ["FLAGS", "NUMBERS", "column_specs"]

FLAGS = ("terminated", "truncated", "cut")
NUMBERS = ("episode_id", "step", "version")


def column_specs(spec: StepSpec) -> dict[str, Any]:
    """The columns that every row has, but for its observation.

    "run" is the position at which the run of a step began: steps of a lane are of one run if nothing that ends, cuts or
    lacks a step is between them.
    """
    flag, number = LeafSpec((), np.dtype(np.bool_)), LeafSpec((), np.dtype(np.int64))
    return {
        "action": spec.action,
        "reward": spec.reward,
        **dict.fromkeys(FLAGS, flag),
        **dict.fromkeys((*NUMBERS, "run"), number),
        "extras": spec.extras,
        "info": spec.info,
        "obs_info": spec.obs_info,
    }
