"""The plain references of returns: sums as they stand in the papers, term by term, in Python's floats.

A lane is a list of `Step`s. Its windows end at an end of the episode or at the last step.
"""

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


@dataclass(frozen=True)
class Step:
    """One step of one lane."""

    reward: float
    value: float
    next_value: float
    log_ratio: float
    terminated: bool
    truncated: bool
    cut: bool

    @property
    def ended(self):
        return self.terminated or self.truncated or self.cut

    @property
    def bootstrap(self):
        """The value of what follows."""
        return 0.0 if self.terminated else self.next_value


def run_from(lane, t):
    """The steps from t to the end of their episode, or to the last one."""
    run = []
    for step in lane[t:]:
        run.append(step)
        if step.ended:
            break
    return run


def n_step_return(run, n, gamma):
    """Sutton and Barto, equation 7.1: n rewards and the value of what follows them, n at most the length of the run."""
    return math.fsum([*(gamma**k * run[k].reward for k in range(n)), gamma**n * run[n - 1].bootstrap])


def gae(lane, t, gamma, lam):
    """Schulman et al. 2016, equations 11 to 16: k-step advantages of all k, weighted by (1 - lam) * lam**(k - 1).

    Equation 16 has infinitely many; those beyond the run are equal to that of the whole run, which gets their weight.
    """
    run = run_from(lane, t)

    def error(step):
        return step.reward + gamma * step.bootstrap - step.value

    def advantage(k):  # equation 14, with the sum of temporal differences
        return math.fsum(gamma**i * error(run[i]) for i in range(k))

    weights = [(1 - lam) * lam ** (k - 1) for k in range(1, len(run))] + [lam ** (len(run) - 1)]
    return math.fsum(weight * advantage(k) for k, weight in enumerate(weights, start=1))


def lambda_return(lane, t, gamma, lam):
    """Sutton and Barto, equation 12.3."""
    run = run_from(lane, t)
    shorter = [(1 - lam) * lam ** (n - 1) * n_step_return(run, n, gamma) for n in range(1, len(run))]
    return math.fsum([*shorter, lam ** (len(run) - 1) * n_step_return(run, len(run), gamma)])


def discounted_return(lane, t, gamma):
    """Sutton and Barto, equation 3.8, with the value of what follows the run."""
    run = run_from(lane, t)
    return n_step_return(run, len(run), gamma)


def n_step(lane, t, gamma, n):
    run = run_from(lane, t)
    return n_step_return(run, min(n, len(run)), gamma)


def vtrace_target(lane, t, gamma, bounds):
    """Espeholt et al. 2018, equation 1, with lambda in the c, as in their remark 2."""
    rho_max, c_max, lam = bounds
    run = run_from(lane, t)
    total = run[0].value
    for s, step in enumerate(run):
        weight = gamma**s * math.prod(lam * min(c_max, math.exp(run[i].log_ratio)) for i in range(s))
        rho = min(rho_max, math.exp(step.log_ratio))
        total += weight * rho * (step.reward + gamma * step.bootstrap - step.value)
    return total


def vtrace_advantage(lane, t, gamma, bounds):
    """Section 4.2 there: rho * (r + gamma * v[s+1] - V(x[s]))."""
    step = lane[t]
    following = step.bootstrap if len(run_from(lane, t)) == 1 else vtrace_target(lane, t + 1, gamma, bounds)
    return min(bounds[0], math.exp(step.log_ratio)) * (step.reward + gamma * following - step.value)


@dataclass(frozen=True)
class Block:
    """Arrays [T, N] and the lanes that they were made of."""

    lanes: list
    numbers: dict
    flags: dict

    def expected(self, function, *settings):
        """What `function` gives for each step, float64 [T, N]."""
        columns = [[function(lane, t, *settings) for t in range(len(lane))] for lane in self.lanes]
        return np.array(columns, np.float64).reshape(self.numbers["reward"].shape[::-1]).T


NUMBERS = ("reward", "value", "next_value", "log_ratio")
FLAGS = ("terminated", "truncated", "cut")


@st.composite
def blocks(draw):
    """Random numbers and ends in random sizes, no steps and no lanes included."""
    length, lanes = draw(st.integers(0, 12)), draw(st.integers(0, 4))
    shape = (length, lanes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    often = draw(st.sampled_from((0.0, 0.2, 0.7)))
    # Multiples of 1/64, which float32 has exactly: both precisions get the same numbers.
    numbers = {name: np.round(rng.normal(0, 3, shape) * 64) / 64 for name in NUMBERS}
    numbers["log_ratio"] = np.round(rng.normal(0, 0.7, shape) * 64) / 64
    flags = {name: rng.random(shape) < often for name in FLAGS}
    # A cut is neither terminated nor truncated.
    flags["cut"] &= ~(flags["terminated"] | flags["truncated"])
    columns = {**numbers, **flags}
    steps = [
        [Step(**{name: column[t, lane].item() for name, column in columns.items()}) for t in range(length)]
        for lane in range(lanes)
    ]
    return Block(steps, numbers, flags)
