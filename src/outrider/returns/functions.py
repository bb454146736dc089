"""Returns and advantages of arrays [T] or [T, N].

What all functions here have in common:

- Arrays are NumPy arrays, or tensors on one device, of one shape [T] or [T, N]; T and N may be 0. Numbers are float32
  or float64; the result has the dtype of the values. Flags are bool. Nothing that is passed is changed.
- `next_value[t]` is the value of the true observation after step t (`rollout.next_values`), also in the last row. It is
  not read where the episode terminated.
- Where `terminated` is set nothing follows. Where `truncated` or `cut` is set `next_value` stands for what would have
  followed, and behind the last row as well. Both flags together count as terminated. Nothing behind an end reaches a
  row before it. Pass `cut` if there are cuts: nobody can see them otherwise.
- NaN and infinity are not refused: they show in all rows of their episode up to them.
- Rows of a rollout that are not `valid` stand behind an end and do no harm; their own results mean nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from outrider.errors import ConfigError, explain
from outrider.records.arrays import Array
from outrider.returns.inputs import REALS, check_arrays, check_fractions, compute

__all__ = ["ClippedRatio", "VTrace", "discounted_returns", "gae", "lambda_returns", "n_step", "vtrace"]


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float,
    lam: float,
    cut: Array | None = None,
) -> Array:
    """Generalized advantage estimates: exponentially weighted sums of temporal differences.

    Equation 16 of Schulman et al., "High-dimensional continuous control using generalized advantage estimation", ICLR
    2016: the sum over l of (gamma * lam)**l * delta[t + l], where delta = reward + gamma * next_value - value, up to
    the end of the episode or of the rows. `advantage + value` is the target of the critic (TD(lambda)).

    Tensors: differentiable in reward, value and next_value. Where it is to be a constant, detach them, or call it under
    `torch.no_grad`.

    Args:
        reward: float [T] or [T, N].
        value: float, the same shape: V of the observations acted upon.
        next_value: float, V of the true observations after the steps.
        terminated: bool: the episode is over, and nothing follows.
        truncated: bool: the episode was broken off; `next_value` stands for what would have followed.
        gamma: the discount of a step, from 0 to 1.
        lam: lambda, from 0 (one step) to 1 (all rewards).
        cut: bool, as truncated: the episode was stopped by us; None if none was.

    Returns:
        Advantages, of the shape of the reward and the dtype of `value`.

    Raises:
        SpecError: arrays of different shapes, kinds or devices, or of another dtype.
        ConfigError: gamma or lam is not from 0 to 1.

    Example:
        >>> import numpy as np
        >>> reward, value = np.arange(1.0, 6.0), np.arange(10.0, 60.0, 10.0)
        >>> next_value = np.array([20.0, 30.0, 35.0, 50.0, 60.0])  # 35 is that of the last observation of the episode
        >>> none, truncated = np.zeros(5, bool), np.arange(5) == 2
        >>> gae(reward, value, next_value, none, truncated, gamma=0.9, lam=0.8).round(4).tolist()
        [17.8128, 12.24, 4.5, 15.48, 9.0]
    """
    check_fractions("gae", gamma=gamma, lam=lam)
    numbers = {"reward": reward, "value": value, "next_value": next_value}
    flags = {"terminated": terminated, "truncated": truncated, "cut": cut}
    check_arrays("gae", numbers, flags)
    return compute("gae", numbers, flags, (float(gamma), float(lam)))


def lambda_returns(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float,
    lam: float,
    cut: Array | None = None,
) -> Array:
    """Targets of TD(lambda): n-step returns of all n, weighted by (1 - lam) * lam**(n - 1).

    Equation 12.3 of Sutton and Barto, "Reinforcement Learning", 2nd edition, computed backwards:
    G[t] = reward[t] + gamma * ((1 - lam) * next_value[t] + lam * G[t + 1]). The longest n-step return that there is, to
    the end of the episode or of the rows, takes the rest of the weight.

    Tensors: differentiable in reward and next_value.

    Args:
        reward: float [T] or [T, N].
        next_value: float, the same shape: V of the true observations after the steps.
        terminated: bool: the episode is over, and nothing follows.
        truncated: bool: the episode was broken off; `next_value` stands for what would have followed.
        gamma: the discount of a step, from 0 to 1.
        lam: lambda, from 0 (one step) to 1 (all rewards).
        cut: bool, as truncated: the episode was stopped by us; None if none was.

    Returns:
        Returns, of the shape of the reward and the dtype of `next_value`.

    Raises:
        SpecError: arrays of different shapes, kinds or devices, or of another dtype.
        ConfigError: gamma or lam is not from 0 to 1.

    Example:
        >>> import numpy as np
        >>> none = np.zeros(3, bool)
        >>> lambda_returns(np.ones(3), np.full(3, 10.0), none, none, gamma=0.5, lam=0.5).tolist()
        [4.75, 5.0, 6.0]
    """
    check_fractions("lambda_returns", gamma=gamma, lam=lam)
    numbers = {"reward": reward, "next_value": next_value}
    flags = {"terminated": terminated, "truncated": truncated, "cut": cut}
    check_arrays("lambda_returns", numbers, flags)
    return compute("lambda_returns", numbers, flags, (float(gamma), float(lam)))


def discounted_returns(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float,
    cut: Array | None = None,
) -> Array:
    """Discounted sums of all rewards to come, with `next_value` for those behind a truncation or the last row.

    Equation 3.8 of Sutton and Barto, "Reinforcement Learning", 2nd edition. Without a critic pass zeros for
    `next_value`: what a truncated episode would still have brought is missing then.

    Tensors: differentiable in reward and next_value.

    Args:
        reward: float [T] or [T, N].
        next_value: float, the same shape; it counts where an episode was truncated or cut, and in the last row.
        terminated: bool: the episode is over, and nothing follows.
        truncated: bool: the episode was broken off; `next_value` stands for what would have followed.
        gamma: the discount of a step, from 0 to 1.
        cut: bool, as truncated: the episode was stopped by us; None if none was.

    Returns:
        Returns, of the shape of the reward and the dtype of `next_value`.

    Raises:
        SpecError: arrays of different shapes, kinds or devices, or of another dtype.
        ConfigError: gamma is not from 0 to 1.

    Example:
        >>> import numpy as np
        >>> none, terminated = np.zeros(3, bool), np.array([False, True, False])
        >>> discounted_returns(np.ones(3), np.full(3, 10.0), terminated, none, gamma=0.5).tolist()
        [1.5, 1.0, 6.0]
    """
    check_fractions("discounted_returns", gamma=gamma)
    numbers = {"reward": reward, "next_value": next_value}
    flags = {"terminated": terminated, "truncated": truncated, "cut": cut}
    check_arrays("discounted_returns", numbers, flags)
    return compute("lambda_returns", numbers, flags, (float(gamma), 1.0))


def n_step(
    reward: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float,
    n: int,
    cut: Array | None = None,
) -> Array:
    """Returns of n steps: their discounted rewards, and the value of what follows the last of them.

    Equation 7.1 of Sutton and Barto, "Reinforcement Learning", 2nd edition. Fewer than n steps where the episode or the
    rows end before.

    Tensors: differentiable in reward and next_value.

    Args:
        reward: float [T] or [T, N].
        next_value: float, the same shape: V of the true observations after the steps.
        terminated: bool: the episode is over, and nothing follows.
        truncated: bool: the episode was broken off; `next_value` stands for what would have followed.
        gamma: the discount of a step, from 0 to 1.
        n: steps, 1 or more.
        cut: bool, as truncated: the episode was stopped by us; None if none was.

    Returns:
        Returns, of the shape of the reward and the dtype of `next_value`: as many as there are rewards.

    Raises:
        SpecError: arrays of different shapes, kinds or devices, or of another dtype.
        ConfigError: gamma is not from 0 to 1, or n is less than 1.

    Example:
        >>> import numpy as np
        >>> none = np.zeros(4, bool)
        >>> n_step(np.ones(4), np.full(4, 8.0), none, none, gamma=0.5, n=2).tolist()
        [3.5, 3.5, 3.5, 5.0]
    """
    check_fractions("n_step", gamma=gamma)
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        fix = "pass the number of steps"
        raise ConfigError(explain(expected="an integer of 1 or more", found=repr(n), where="n_step(n)", fix=fix))
    numbers = {"reward": reward, "next_value": next_value}
    flags = {"terminated": terminated, "truncated": truncated, "cut": cut}
    check_arrays("n_step", numbers, flags)
    return compute("n_step", numbers, flags, (float(gamma), int(n)))


@dataclass(frozen=True, eq=False)
class ClippedRatio:
    """Importance ratios with other bounds than 1: rho = min(rho_max, ratio) and c = lam * min(c_max, ratio).

    Attributes:
        log_ratio: float [T] or [T, N]: log-probability of the action under the policy that learns, minus that under the
            policy that acted.
        rho: the bound of rho, above 0; `math.inf` for none. It decides which policy's value the target is.
        c: the bound of c, above 0, at most `rho` where the paper's proof is to hold. It decides how far errors travel.
        lam: lambda, from 0 to 1.

    Raises:
        ConfigError: a bound is not above 0, or lam is not from 0 to 1.

    Example:
        >>> import numpy as np
        >>> ClippedRatio(np.zeros(5), rho=2.0, lam=0.95).c
        1.0
    """

    log_ratio: Array
    rho: float = 1.0
    c: float = 1.0
    lam: float = 1.0

    def __post_init__(self) -> None:
        """Refuse bounds that make no sense."""
        check_fractions("ClippedRatio", lam=self.lam)
        for name, bound in (("rho", self.rho), ("c", self.c)):
            if not isinstance(bound, REALS) or isinstance(bound, bool) or not bound > 0:
                raise ConfigError(
                    explain(
                        expected="a number above 0",
                        found=repr(bound),
                        where=f"ClippedRatio({name})",
                        fix="pass 1.0, as the paper does, or math.inf for no bound",
                    )
                )


class VTrace(NamedTuple):
    """What `vtrace` returns: two arrays of the shape of the reward.

    Attributes:
        target: v[t], what the critic is to predict.
        advantage: rho[t] * (reward[t] + gamma * v[t + 1] - value[t]), which the gradient of the policy is weighted by.
    """

    target: Array
    advantage: Array


def vtrace(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    log_ratio: Array | ClippedRatio,
    gamma: float,
    cut: Array | None = None,
) -> VTrace:
    """V-trace targets and advantages, for steps of another (earlier) policy than the one that learns.

    Equation 1 of Espeholt et al., "IMPALA: Scalable distributed deep-RL with importance weighted actor-learner
    architectures", ICML 2018: v[t] = value[t] + the sum over s >= t of gamma**(s-t) * c[t] * ... * c[s-1] * delta[s],
    with delta = rho * (reward + gamma * next_value - value); and the advantages of section 4.2. Values are those of the
    critic that learns: `rollout.with_columns(value=critic(rollout.obs[:-1]))` before `next_values`.

    Tensors: both results are constants, whatever needs gradients.

    Args:
        reward: float [T] or [T, N].
        value: float, the same shape: V of the observations acted upon.
        next_value: float, V of the true observations after the steps.
        terminated: bool: the episode is over, and nothing follows.
        truncated: bool: the episode was broken off; `next_value` stands for what would have followed.
        log_ratio: float: log-probability of the action under the policy that learns, minus that under the policy that
            acted (`extras["log_prob"]`), summed over parts of an action. Ratios are clipped at 1; a `ClippedRatio` has
            other bounds, and a lambda.
        gamma: the discount of a step, from 0 to 1.
        cut: bool, as truncated: the episode was stopped by us; None if none was.

    Returns:
        (target, advantage), of the shape of the reward and the dtype of `value`.

    Raises:
        SpecError: arrays of different shapes, kinds or devices, or of another dtype.
        ConfigError: gamma is not from 0 to 1.

    Example:
        >>> import numpy as np
        >>> none, zeros = np.zeros(3, bool), np.zeros(3)
        >>> target, advantage = vtrace(np.ones(3), zeros, zeros, none, none, log_ratio=zeros, gamma=0.5)
        >>> target.tolist(), advantage.tolist()
        ([1.75, 1.5, 1.0], [1.75, 1.5, 1.0])
    """
    check_fractions("vtrace", gamma=gamma)
    ratio = log_ratio if isinstance(log_ratio, ClippedRatio) else ClippedRatio(log_ratio)
    numbers = {"reward": reward, "value": value, "next_value": next_value, "log_ratio": ratio.log_ratio}
    flags = {"terminated": terminated, "truncated": truncated, "cut": cut}
    check_arrays("vtrace", numbers, flags)
    settings = (float(gamma), float(ratio.rho), float(ratio.c), float(ratio.lam))
    return VTrace(*compute("vtrace", numbers, flags, settings))
