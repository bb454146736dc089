"""What is looked at in a record before any of it is written."""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import numpy as np

from outrider.errors import SpecError, explain
from outrider.records.checks import count_rows
from outrider.records.rollout import Rollout
from outrider.records.step_spec import StepSpec
from outrider.records.steps import Steps
from outrider.replay.blocks import PER_STEP
from outrider.replay.columns import FLAGS, NUMBERS
from outrider.replay.leaves import Leaves
from outrider.replay.ring import Ring
from outrider.spec import LeafSpec
from outrider.tree import Tree

__all__ = ["Checks", "columns_of", "infos_of", "require_arrays"]

Found: TypeAlias = tuple[list[Any], list[Any], list[Any]]
"""The leaves of a rollout: of `PER_STEP`, of obs, of obs_info."""

FLAG, NUMBER = LeafSpec((), np.dtype(np.bool_)), LeafSpec((), np.dtype(np.int64))


class Checks:
    """Refuses records that are not as the spec of a ring says, or that contradict themselves.

    Args:
        ring: for which they are.
    """

    def __init__(self, ring: Ring) -> None:
        self._spec = spec = ring.spec
        flags, numbers = dict.fromkeys((*FLAGS, "valid"), FLAG), dict.fromkeys(NUMBERS, NUMBER)
        own = {name: getattr(spec, name) for name in PER_STEP if name not in flags | numbers}
        # The leaves of "valid" are the fourth from the end.
        self._columns = Leaves(own | flags | numbers)
        self._obs, self._obs_info = Leaves({"obs": spec.obs}), Leaves({"obs_info": spec.obs_info})
        self._state = Leaves({"state": spec.state}) if ring.states is not None else None
        self._finals = Leaves({"final_index": NUMBER, "final_obs": spec.obs})
        self._lanes, self._blind = Leaves({"env_id": NUMBER}), Leaves({"blind": FLAG})
        self._moves = importlib.import_module("outrider.replay.moves")

    def rollout(self, rollout: Rollout) -> tuple[Found, bool]:
        """The leaves of a rollout, and whether all of its steps are valid and follow from the ones before them.

        Raises:
            SpecError: names the column that is wrong.
        """
        where, spec = "extend(Rollout)", self._spec
        block = rollout.length, rollout.num_envs
        with_last, finals = (block[0] + 1, block[1]), np.shape(rollout.final_index)[:1]
        columns = self._columns.of(columns_of(rollout, spec), block, where)
        obs = self._obs.of({"obs": rollout.obs}, with_last, where)
        obs_info = self._obs_info.of({"obs_info": infos_of(rollout.obs_info, spec.obs_info)}, with_last, where)
        self._lanes.of({"env_id": rollout.env_id}, block[1:], where)
        self._finals.of({"final_index": rollout.final_index, "final_obs": rollout.final_obs}, finals, where)
        if self._state is not None and rollout.state is not None:
            self._state.of({"state": rollout.state}, with_last, where)
        kind = self._kind(rollout, columns[-7:-1])
        if kind == self._moves.BROKEN or self._is_blind_elsewhere(rollout, block):
            rollout.check()  # Which says what is wrong.
        del columns[-4]
        return (columns, obs, obs_info), kind == self._moves.WHOLE

    def _kind(self, rollout: Rollout, leaves: list[Any]) -> int:
        """What `moves.kind_of_block` says of flags and ids, six arrays [T, N]."""
        columns = [self._moves.plain(leaf) for leaf in leaves]
        index = self._moves.plain(rollout.final_index)
        kind: int = self._moves.kind_of_block(tuple(columns[:4]), tuple(columns[4:]), index)
        return kind

    def _is_blind_elsewhere(self, rollout: Rollout, block: tuple[int, int]) -> bool:
        """Whether a row is blind in which no episode ends."""
        if rollout.blind is None:
            return False
        blind = self._blind.of({"blind": rollout.blind}, block, "extend(Rollout)")[0]
        return bool((blind & ~(rollout.terminated | rollout.truncated)).any())

    def steps(self, steps: Steps, where: str) -> None:
        """Look at the columns of steps that have passed their own check.

        Raises:
            SpecError: names the column that is wrong.
        """
        spec, rows, block = self._spec, (count_rows(steps.obs_rows),), (len(steps),)
        self._columns.of(columns_of(steps, spec), block, where)
        self._obs.of({"obs": steps.obs_rows}, rows, where)
        self._obs_info.of({"obs_info": infos_of(steps.obs_info, spec.obs_info)}, block, where)
        if self._state is not None and steps.state_rows is not None:
            self._state.of({"state": steps.state_rows}, rows, where)


def columns_of(record: Rollout | Steps, spec: StepSpec) -> dict[str, Tree]:
    """The columns of `PER_STEP`, and "valid"."""
    columns = {name: getattr(record, name) for name in (*PER_STEP, "valid")}
    columns["info"] = infos_of(record.info, spec.info)
    return columns


def infos_of(infos: dict[str, Tree], wanted: dict[str, Tree]) -> dict[str, Tree]:
    """Those of the infos of a record that a spec has: which there are, and their dtypes, may change."""
    return {key: infos[key] for key in wanted if key in infos} if wanted else {}


def require_arrays(record: Any, where: str, axes: int) -> None:
    """Refuse records of tensors, and those whose reward has not as many axes as its rows.

    Raises:
        SpecError: this is one.
    """
    reward = record.reward
    if not isinstance(reward, np.ndarray) or reward.ndim < axes:
        raise SpecError(
            explain(
                expected="a record of NumPy arrays",
                found="tensors" if hasattr(reward, "detach") else f"reward {reward!r:.60}",
                where=where,
                fix="extend with the record as it was before `.torch()`",
            )
        )
