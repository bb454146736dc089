"""Tensors: gradients, where they are asked for and only there, and devices."""

import numpy as np
import pytest
import torch

import outrider
from outrider.returns import ClippedRatio

ENDS = torch.tensor([[0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0]], dtype=torch.bool)
TERMINATED, TRUNCATED, CUT = (end[:, None].repeat(1, 2) for end in ENDS)


def numbers(count, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(6, 2, generator=generator, dtype=dtype) for _ in range(count)]


CALLS = {
    "gae": lambda r, v, nv: outrider.gae(r, v, nv, TERMINATED, TRUNCATED, gamma=0.9, lam=0.8, cut=CUT),
    "lambda_returns": lambda r, nv: outrider.lambda_returns(r, nv, TERMINATED, TRUNCATED, gamma=0.9, lam=0.8, cut=CUT),
    "discounted_returns": lambda r, nv: outrider.discounted_returns(r, nv, TERMINATED, TRUNCATED, gamma=0.9, cut=CUT),
    "n_step": lambda r, nv: outrider.n_step(r, nv, TERMINATED, TRUNCATED, gamma=0.9, n=3, cut=CUT),
}


@pytest.mark.parametrize("name", tuple(CALLS))
def test_gradients_are_those_of_finite_differences(name):
    inputs = [one.requires_grad_() for one in numbers(3 if name == "gae" else 2)]
    assert torch.autograd.gradcheck(CALLS[name], inputs)


@pytest.mark.parametrize("name", tuple(CALLS))
def test_no_gradient_unless_one_is_asked_for(name):
    inputs = numbers(3 if name == "gae" else 2)
    assert not CALLS[name](*inputs).requires_grad
    inputs[1].requires_grad_()
    assert CALLS[name](*inputs).requires_grad
    with torch.no_grad():
        assert not CALLS[name](*inputs).requires_grad


def test_a_gradient_is_untouched_by_values_that_are_not_read():
    reward, value, next_value = (one.requires_grad_() for one in numbers(3))
    with torch.no_grad():
        next_value[2] = torch.nan  # terminated
    CALLS["gae"](reward, value, next_value).sum().backward()
    assert all(torch.isfinite(one.grad).all() for one in (reward, value, next_value))
    assert (next_value.grad[2] == 0).all()


def test_the_results_of_vtrace_are_constants():
    inputs = [one.requires_grad_() for one in numbers(4)]
    found = outrider.vtrace(*inputs[:3], TERMINATED, TRUNCATED, log_ratio=inputs[3], gamma=0.9, cut=CUT)
    assert not found.target.requires_grad
    assert not found.advantage.requires_grad


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_another_device_is_never_left(dtype):
    # Tensors of the device "meta" have no numbers: whatever asked for them, to wait or to copy, would raise.
    reward, value, next_value, log_ratio = (one.to("meta", dtype) for one in numbers(4))
    ends = {"terminated": TERMINATED.to("meta"), "truncated": TRUNCATED.to("meta"), "cut": CUT.to("meta")}
    found = [
        outrider.gae(reward, value, next_value, **ends, gamma=0.9, lam=0.8),
        outrider.lambda_returns(reward, next_value, **ends, gamma=0.9, lam=0.8),
        outrider.discounted_returns(reward, next_value, **ends, gamma=0.9),
        outrider.n_step(reward, next_value, **ends, gamma=0.9, n=3),
        *outrider.vtrace(reward, value, next_value, **ends, log_ratio=ClippedRatio(log_ratio, lam=0.9), gamma=0.9),
    ]
    assert {(one.device.type, one.dtype, tuple(one.shape)) for one in found} == {("meta", dtype, (6, 2))}


def test_results_share_no_memory_with_what_was_passed():
    reward, value, next_value = numbers(3)
    before = [one.clone() for one in (reward, value, next_value)]
    for name, call in CALLS.items():
        call(*((reward, value, next_value) if name == "gae" else (reward, next_value))).zero_()
    assert all(torch.equal(one, two) for one, two in zip((reward, value, next_value), before, strict=True))


def test_the_flags_may_be_of_another_layout():
    reward, value, next_value = numbers(3)
    wanted = CALLS["gae"](reward, value, next_value)
    flags = [np.asfortranarray(one.numpy()) for one in (TERMINATED, TRUNCATED, CUT)]
    found = outrider.gae(
        reward, value, next_value, *map(torch.from_numpy, flags[:2]), gamma=0.9, lam=0.8, cut=torch.from_numpy(flags[2])
    )
    assert torch.equal(found, wanted)
