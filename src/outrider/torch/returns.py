"""Returns and advantages of tensors.

On the CPU, where no gradient is asked for, the Numba kernels work on the memory of the tensors. Everywhere else the
same is written in tensor operations: nothing leaves the device, and nothing waits for it. A loop over T steps would
start thousands of small kernels, so sums over later rows are doubled in length log2(T) times.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from outrider.returns.inputs import compute_numpy

__all__ = ["compute"]

Numbers = tuple[Tensor, ...]
Ends = tuple[Tensor, Tensor]


def compute(name: str, numbers: Numbers, ends: Ends, settings: tuple[Any, ...]) -> Tensor | tuple[Tensor, ...]:
    """What the kernel `name` computes, of tensors that were checked."""
    if name == "vtrace":  # its results are constants
        numbers = tuple(tensor.detach() for tensor in numbers)
    differentiates = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in numbers)
    if numbers[0].device.type == "cpu" and not differentiates:
        found = compute_numpy(
            name,
            tuple(tensor.detach().numpy() for tensor in numbers),
            (ends[0].numpy(), ends[1].numpy()),
            settings,
        )
        return tuple(map(torch.from_numpy, found)) if isinstance(found, tuple) else torch.from_numpy(found)
    precision = numbers[1].dtype
    result: Tensor | tuple[Tensor, ...] = FUNCTIONS[name](
        tuple(tensor.to(precision) for tensor in numbers), ends, settings
    )
    return result


def gae(numbers: Numbers, ends: Ends, settings: tuple[float, float]) -> Tensor:
    """As the kernel."""
    reward, value, next_value = numbers
    gamma, lam = settings
    error = reward + gamma * _bootstrap(next_value, ends[0]) - value
    return _sums(error, gamma * lam * _goes_on(ends[1]).to(error.dtype))


def lambda_returns(numbers: Numbers, ends: Ends, settings: tuple[float, float]) -> Tensor:
    """As the kernel."""
    reward, next_value = numbers
    gamma, lam = settings
    goes_on = _goes_on(ends[1])
    following = _bootstrap(next_value, ends[0])
    following = torch.where(goes_on, (1 - lam) * following, following)
    return _sums(reward + gamma * following, gamma * lam * goes_on.to(reward.dtype))


def n_step(numbers: Numbers, ends: Ends, settings: tuple[float, int]) -> Tensor:
    """As the kernel, by returns of 1, 2, ... n steps, each made of the one before."""
    reward, next_value = numbers
    gamma, count = settings
    goes_on = _goes_on(ends[1])
    following = _bootstrap(next_value, ends[0])
    returns = reward + gamma * following
    for _ in range(min(count, len(reward)) - 1):
        returns = reward + gamma * torch.where(goes_on, _later(returns), following)
    return returns


def vtrace(numbers: Numbers, ends: Ends, settings: tuple[float, float, float, float]) -> tuple[Tensor, Tensor]:
    """As the kernel."""
    reward, value, next_value, log_ratio = numbers
    gamma, rho_clip, c_clip, lam = settings
    goes_on = _goes_on(ends[1])
    ratio = log_ratio.exp()
    rho, c = ratio.clamp(max=rho_clip), lam * ratio.clamp(max=c_clip)
    following = _bootstrap(next_value, ends[0])
    error = rho * (reward + gamma * following - value)
    target = value + _sums(error, torch.where(goes_on, gamma * c, 0.0))
    following = torch.where(goes_on, _later(target), following)
    return target, rho * (reward + gamma * following - value)


FUNCTIONS: dict[str, Any] = {"gae": gae, "lambda_returns": lambda_returns, "n_step": n_step, "vtrace": vtrace}


def _bootstrap(next_value: Tensor, terminated: Tensor) -> Tensor:
    return torch.where(terminated, 0.0, next_value)


def _later(rows: Tensor) -> Tensor:
    """The row behind each; the last one stays, and nobody looks at it."""
    return torch.cat((rows[1:], rows[-1:]))


def _goes_on(ended: Tensor) -> Tensor:
    """Whether the next row is of the same episode, and there."""
    goes_on = ~ended
    goes_on[-1:] = False
    return goes_on


def _sums(addends: Tensor, decay: Tensor) -> Tensor:
    """x[t] = addends[t] + decay[t] * x[t + 1], by sums over 1, 2, 4, ... rows.

    Where a decay is 0 nothing of the later rows counts, not even a NaN.
    """
    reach = 1
    while reach < len(addends):
        decay = decay[: len(addends) - reach]
        later = torch.where(decay == 0, 0.0, decay * addends[reach:])
        addends = torch.cat((addends[:-reach] + later, addends[-reach:]))
        decay = decay[:-reach] * decay[reach:]
        reach *= 2
    return addends
