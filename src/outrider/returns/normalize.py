"""Advantages on one scale."""

from __future__ import annotations

from outrider.errors import SpecError, explain
from outrider.records import arrays
from outrider.records.arrays import Array
from outrider.returns.inputs import check_kind, check_place

__all__ = ["normalize_advantages"]


def normalize_advantages(advantage: Array, *, valid: Array | None = None, epsilon: float = 1e-8) -> Array:
    """Return advantages less their mean, divided by their standard deviation plus `epsilon`.

    For each minibatch, as PPO is mostly written (Huang et al., "The 37 implementation details of proximal policy
    optimization", ICLR blog track 2022, detail 7), or for a whole rollout. The deviation is that of the population, so
    that a single advantage, or equal ones, become 0.

    Args:
        advantage: float32 or float64, of any shape; NumPy array, or tensor on any device. It is not changed.
        valid: bool, the same shape: which rows count, `rollout.valid` for a whole rollout; the others become 0. None if
            all do, as in minibatches.
        epsilon: keeps the division from one by 0.

    Returns:
        Of the kind, shape and dtype of `advantage`. NaN and infinity are not refused: they make all of it NaN.

    Raises:
        SpecError: no arrays of those dtypes, or of different shapes, kinds or devices.

    Example:
        >>> import numpy as np
        >>> normalize_advantages(np.array([1.0, 3.0, 5.0, 7.0])).round(3).tolist()
        [-1.342, -0.447, 0.447, 1.342]
    """
    check_kind("normalize_advantages", "advantage", advantage)
    if valid is not None:
        _check_valid(valid, advantage)
    counted = advantage if valid is None else advantage[valid]
    if not all(counted.shape):
        return arrays.zeros_like(advantage, tuple(advantage.shape))
    centred = advantage - counted.mean()
    # Once more: a mean in single precision is off by more than `epsilon` where advantages are far from 0.
    centred = centred - (centred if valid is None else centred[valid]).mean()
    counted = centred if valid is None else centred[valid]
    normalized = centred / ((counted * counted).mean() ** 0.5 + epsilon)
    if valid is not None:
        normalized[~valid] = 0
    return normalized


def _check_valid(valid: Array, advantage: Array) -> None:
    where = "normalize_advantages"
    check_kind(where, "valid", valid, is_flag=True)
    check_place(where, "valid", valid, advantage, "advantage")
    if valid.shape != advantage.shape:
        expected, found = (f"shape {tuple(one.shape)}" for one in (advantage, valid))
        fix = "pass the column `valid` of the record that the advantages are of"
        raise SpecError(explain(expected=expected, found=found, where=f"{where}(valid)", fix=fix))
