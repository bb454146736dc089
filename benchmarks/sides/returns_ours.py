"""Outrider's returns and advantages: returns_ours.py WHAT."""

import sys
from collections.abc import Callable

from returns_workloads import GAMMA, LAM, columns
from rounds import serve

import outrider

ENDS = ("terminated", "truncated")


def arrays(dtype: str, *names: str) -> list:
    """NumPy arrays, the flags behind the numbers."""
    found = columns(dtype)
    return [found[name] for name in (*names, *ENDS)]


def tensors(*names: str) -> list:
    """The same as tensors of single precision."""
    import torch

    torch.set_num_threads(1)
    return [torch.from_numpy(array) for array in arrays("float32", *names)]


def gae(*inputs: object) -> Callable[[], object]:
    """Advantages."""
    return lambda: outrider.gae(*inputs, gamma=GAMMA, lam=LAM)


def gradient() -> Callable[[], object]:
    """Advantages, and the gradient of their sum."""
    inputs = tensors("reward", "value", "next_value")
    inputs[1].requires_grad_()

    def both() -> None:
        inputs[1].grad = None
        outrider.gae(*inputs, gamma=GAMMA, lam=LAM).sum().backward()

    return both


def lambda_returns() -> Callable[[], object]:
    """Targets of TD(lambda)."""
    inputs = tensors("reward", "next_value")
    return lambda: outrider.lambda_returns(*inputs, gamma=GAMMA, lam=LAM)


def vtrace() -> Callable[[], object]:
    """Targets and advantages of V-trace."""
    *inputs, log_ratio, terminated, truncated = tensors("reward", "value", "next_value", "log_ratio")
    return lambda: outrider.vtrace(*inputs, terminated, truncated, log_ratio=log_ratio, gamma=GAMMA)


def n_step() -> Callable[[], object]:
    """Returns of five steps."""
    inputs = arrays("float32", "reward", "next_value")
    return lambda: outrider.n_step(*inputs, gamma=GAMMA, n=5)


WHAT = {
    "gae float64": lambda: gae(*arrays("float64", "reward", "value", "next_value")),
    "gae float32": lambda: gae(*arrays("float32", "reward", "value", "next_value")),
    "gae tensors": lambda: gae(*tensors("reward", "value", "next_value")),
    "gae gradient": gradient,
    "lambda tensors": lambda_returns,
    "vtrace tensors": vtrace,
    "n-step float32": n_step,
}

if __name__ == "__main__":
    work = WHAT[sys.argv[1]]()
    serve(lambda: sum(work() is not work for _ in range(20)))
