"""Ends whose true last observation nobody knows: some foreign environments reset in the same step and do not tell it.

Such a row is marked in the column `blind`, which is None where there is none. Where its episode terminated this does no
harm, as nothing is to be bootstrapped there. Where it was truncated, nobody may take what stands in the place of the
last observation for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from outrider.errors import SpecError, explain
from outrider.records import arrays
from outrider.tree import Tree

__all__ = ["alike", "check_known"]


def check_known(record: Any, where: str) -> None:
    """Refuse to give observations that are not known although a value would be taken from them.

    Raises:
        SpecError: an episode was truncated in a blind row.
    """
    if record.blind is None:
        return
    unknown = arrays.to_numpy(record.blind & ~record.terminated)
    if unknown.any():
        first = np.argwhere(unknown)[0].tolist()
        raise SpecError(
            explain(
                expected="the last observation of each truncated episode",
                found=f"{int(unknown.sum())} that the environments do not tell, the first in row {first}",
                where=where,
                fix="leave out rows that are `blind & ~terminated`, or let the environments put final_obs into infos",
            )
        )


def alike(parts: Sequence[dict[str, Tree]]) -> list[dict[str, Tree]]:
    """The columns of records that are to be joined: with `blind` in all of them, if it is in one."""
    if all(part["blind"] is None for part in parts):
        return list(parts)
    return [
        part | {"blind": arrays.zeros_like(part["terminated"], part["terminated"].shape)}
        if part["blind"] is None
        else part
        for part in parts
    ]
