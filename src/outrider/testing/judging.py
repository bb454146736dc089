"""What the suites say of records."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider import tree
from outrider.collect.interface import BaseCollector
from outrider.records import Steps

__all__ = ["assert_same", "checked", "judge", "require_alike", "resets"]


def resets(collector: BaseCollector, num_envs: int) -> int:
    """How often the environments were reset, as the first observations of a fresh row say, which takes a step."""
    rollout = collector.rollout(1)
    return int(rollout.obs[0, :num_envs, 0].sum())


def checked(record: Any) -> Any:
    """The record, its invariants verified."""
    record.check()
    return record


def judge(steps: Steps) -> None:
    """Each row by itself: the observation, what the policy was told, and what follows."""
    is_first, step, _, lane = steps.extras["told"]
    assert_same(steps.extras["seen"], steps.obs, "obs")
    assert_same(step, steps.step, "step")
    assert_same(is_first, steps.step == 0, "is_first")
    assert_same(lane, steps.env_id, "env_id")
    assert_same(steps.obs[:, 1], steps.step.astype(np.float64), "step")
    assert_same(steps.next_obs[:, :2], steps.obs[:, :2] + [0, 1], "next_obs")
    assert_same(steps.state["count"], steps.step, "state")
    assert_same(steps.next_state["sum"], steps.state["sum"] + steps.obs, "next_state")
    assert_same(steps.reward, steps.action + steps.next_obs[:, 2] / 100, "reward")


def assert_same(found: Any, expected: Any, name: str) -> None:
    """Equal trees of arrays."""

    def same(a: Any, b: Any) -> None:
        np.testing.assert_array_equal(a, b, err_msg=name, strict=True)

    tree.map(same, found, expected)


def require_alike(a: np.ndarray, b: np.ndarray) -> None:
    """Equal shapes and dtypes."""
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
