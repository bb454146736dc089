"""The passes over rewards and values, backwards in time, all lanes of a row together.

Each takes tuples: arrays of numbers [T, N], float32 or float64; (terminated, ended), bool [T, N], where `ended` has all
rows behind which another episode begins; and settings. Sums are kept in float64. What stands in `next_value` where an
episode terminated is never read, and nothing of what follows an end reaches the rows before it, not even a NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["gae", "lambda_returns", "n_step", "vtrace"]


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def gae(numbers: Any, ends: Any, settings: Any) -> Any:
    """Advantages [T, N] of (reward, value, next_value) with (gamma, lam), in the dtype of the values."""
    reward, value, next_value = numbers
    terminated, ended = ends
    gamma, lam = settings
    steps, lanes = reward.shape
    advantage = np.empty_like(value)
    trace = np.zeros(lanes)
    decay = gamma * lam
    for t in range(steps - 1, -1, -1):
        for n in range(lanes):
            following = 0.0 if terminated[t, n] else next_value[t, n]
            later = 0.0 if ended[t, n] else trace[n]
            trace[n] = reward[t, n] + gamma * following - value[t, n] + decay * later
        for n in range(lanes):  # in a loop of its own, because that takes three quarters of the time
            advantage[t, n] = trace[n]
    return advantage


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def lambda_returns(numbers: Any, ends: Any, settings: Any) -> Any:
    """Returns [T, N] of (reward, next_value) with (gamma, lam), in the dtype of the values."""
    reward, next_value = numbers
    terminated, ended = ends
    gamma, lam = settings
    steps, lanes = reward.shape
    returns = np.empty_like(next_value)
    later = np.zeros(lanes)
    for t in range(steps - 1, -1, -1):
        newest = t == steps - 1
        for n in range(lanes):
            following = 0.0 if terminated[t, n] else next_value[t, n]
            if not (ended[t, n] or newest):
                following = (1.0 - lam) * following + lam * later[n]
            later[n] = reward[t, n] + gamma * following
            returns[t, n] = later[n]
    return returns


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def n_step(numbers: Any, ends: Any, settings: Any) -> Any:
    """Returns [T, N] of (reward, next_value) with (gamma, n), in the dtype of the values."""
    reward, next_value = numbers
    terminated, ended = ends
    gamma, count = settings
    steps, lanes = reward.shape
    returns = np.empty_like(next_value)
    for t in range(steps):
        for n in range(lanes):
            total, scale = 0.0, 1.0
            for row in range(t, min(t + count, steps)):
                total += scale * reward[row, n]
                scale *= gamma
                if ended[row, n] or row == min(t + count, steps) - 1:
                    if not terminated[row, n]:
                        total += scale * next_value[row, n]
                    break
            returns[t, n] = total
    return returns


@njit(cache=True)  # type: ignore[untyped-decorator,unused-ignore]  # numba has no types
def vtrace(numbers: Any, ends: Any, settings: Any) -> Any:
    """(target, advantage) [T, N] of (reward, value, next_value, log_ratio) with (gamma, rho, c, lam)."""
    reward, value, next_value, log_ratio = numbers
    terminated, ended = ends
    gamma, rho_clip, c_clip, lam = settings
    steps, lanes = reward.shape
    target, advantage = np.empty_like(value), np.empty_like(value)
    trace, later = np.zeros(lanes), np.zeros(lanes)
    for t in range(steps - 1, -1, -1):
        newest = t == steps - 1
        for n in range(lanes):
            ratio = np.exp(np.float64(log_ratio[t, n]))
            # Not min(): a ratio that is NaN must stay one.
            rho, c = np.minimum(ratio, rho_clip), np.minimum(ratio, c_clip)
            following = 0.0 if terminated[t, n] else next_value[t, n]
            error = reward[t, n] + gamma * following - value[t, n]
            gain = error
            trace[n] = rho * error + gamma * lam * c * (0.0 if ended[t, n] else trace[n])
            if not (ended[t, n] or newest):
                gain = reward[t, n] + gamma * later[n] - value[t, n]
            advantage[t, n] = rho * gain
            later[n] = value[t, n] + trace[n]
            target[t, n] = later[n]
    return target, advantage
