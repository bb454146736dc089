"""Every function against sums written out term by term: sizes, ends, precisions and layouts of arrays and tensors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import outrider
from helpers import plain_returns
from helpers.plain_returns import FLAGS, NUMBERS, blocks
from outrider.returns import ClippedRatio

fractions = st.sampled_from((0.0, 0.3, 0.9, 0.99, 1.0))
bounds = st.sampled_from(((1.0, 1.0, 1.0), (2.0, 0.5, 0.9), (math.inf, math.inf, 1.0), (0.8, 1.2, 0.0)))
every_setting = st.tuples(fractions, fractions, st.integers(1, 14), bounds)
"""gamma, lam, n, and (rho, c, lam) of V-trace"""

VALUES = {
    "gae": ("value", "next_value"),
    "lambda_returns": ("next_value",),
    "discounted_returns": ("next_value",),
    "n_step": ("next_value",),
    "vtrace": ("value", "next_value"),
}


def plain(name, block, settings):
    """What the reference says, as a tuple of arrays [T, N]."""
    gamma, lam, n, clips = settings
    one = {
        "gae": lambda: block.expected(plain_returns.gae, gamma, lam),
        "lambda_returns": lambda: block.expected(plain_returns.lambda_return, gamma, lam),
        "discounted_returns": lambda: block.expected(plain_returns.discounted_return, gamma),
        "n_step": lambda: block.expected(plain_returns.n_step, gamma, n),
    }
    if name in one:
        return (one[name](),)
    return (
        block.expected(plain_returns.vtrace_target, gamma, clips),
        block.expected(plain_returns.vtrace_advantage, gamma, clips),
    )


def ours(name, columns, settings):
    """What Outrider says, as a tuple of arrays of the shape of the columns."""
    gamma, lam, n, clips = settings
    own = {"gae": {"lam": lam}, "lambda_returns": {"lam": lam}, "n_step": {"n": n}}.get(name, {})
    if name == "vtrace":
        own = {"log_ratio": ClippedRatio(columns["log_ratio"], *clips)}
    arrays = [columns[column] for column in ("reward", *VALUES[name], "terminated", "truncated")]
    found = getattr(outrider, name)(*arrays, gamma=gamma, cut=columns["cut"], **own)
    return tuple(found) if name == "vtrace" else (found,)


def strided(array):
    """The same numbers, every second of a larger array."""
    larger = np.zeros(tuple(2 * size for size in array.shape), array.dtype)
    view = larger[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "strided": strided,
    "reversed": lambda array: np.ascontiguousarray(array[::-1])[::-1],
}


def assert_close(found, expected, dtype):
    tolerance = 1e-11 if dtype == "float64" else 2e-5
    assert str(found.dtype).removeprefix("torch.") == dtype
    assert tuple(found.shape) == expected.shape
    scale = max(1.0, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("name", tuple(VALUES))
@given(
    block=blocks(),
    settings=every_setting,
    reward=st.sampled_from(("float32", "float64")),
    values=st.sampled_from(("float32", "float64")),
    layout=st.sampled_from(tuple(LAYOUTS)),
    flat=st.booleans(),
)
def test_is_the_sum_of_the_paper(name, block, settings, reward, values, layout, flat):
    columns = {**block.numbers, **block.flags}
    for column in NUMBERS:
        columns[column] = columns[column].astype(reward if column == "reward" else values)
    expected = plain(name, block, settings)
    if flat:
        lanes = range(len(block.lanes))
        parts = [
            ours(name, {key: LAYOUTS[layout](one[:, lane]) for key, one in columns.items()}, settings) for lane in lanes
        ]
        for lane in lanes:
            for found, wanted in zip(parts[lane], expected, strict=True):
                assert_close(found, wanted[:, lane], values)
        return
    columns = {key: LAYOUTS[layout](one) for key, one in columns.items()}
    before = {key: one.copy() for key, one in columns.items()}
    for found, wanted in zip(ours(name, columns, settings), expected, strict=True):
        assert_close(found, wanted, values)
    for key, one in columns.items():
        np.testing.assert_array_equal(one, before[key])


@pytest.mark.parametrize("name", tuple(VALUES))
@pytest.mark.parametrize("gradient", (False, True))
@given(
    block=blocks(),
    settings=every_setting,
    values=st.sampled_from(("float32", "float64")),
    transposed=st.booleans(),
)
def test_tensors_give_the_same(name, gradient, block, settings, values, transposed):
    columns = {key: torch.from_numpy(one.copy()) for key, one in {**block.numbers, **block.flags}.items()}
    for column in NUMBERS:
        columns[column] = columns[column].to(getattr(torch, values)).requires_grad_(gradient)
    if transposed:
        columns = {key: one.t().contiguous().t() for key, one in columns.items()}
    found = ours(name, columns, settings)
    for one, wanted in zip(found, plain(name, block, settings), strict=True):
        assert one.requires_grad == (gradient and name != "vtrace")
        assert_close(one.detach(), wanted, values)


@pytest.mark.parametrize("name", tuple(VALUES))
@given(block=blocks(), settings=every_setting)
def test_operations_of_tensors_are_the_kernels(name, block, settings):
    # Those of other devices, on the CPU: nothing else differs there.
    from outrider.torch import returns

    columns = {key: torch.from_numpy(one.copy()) for key, one in {**block.numbers, **block.flags}.items()}
    numbers = tuple(columns[column] for column in ("reward", *VALUES[name]))
    ends = (columns["terminated"], columns["terminated"] | columns["truncated"] | columns["cut"])
    gamma, lam, n, clips = settings
    own = {"gae": (gamma, lam), "lambda_returns": (gamma, lam), "n_step": (gamma, n), "vtrace": (gamma, *clips)}
    if name == "vtrace":
        numbers = (*numbers, columns["log_ratio"])
    if name == "discounted_returns":
        found = (returns.FUNCTIONS["lambda_returns"](numbers, ends, (gamma, 1.0)),)
    else:
        found = returns.FUNCTIONS[name](numbers, ends, own[name])
        found = found if isinstance(found, tuple) else (found,)
    for one, wanted in zip(found, plain(name, block, settings), strict=True):
        assert_close(one, wanted, "float64")


@given(block=blocks(), gamma=fractions)
def test_without_cuts_they_can_be_left_out(block, gamma):
    columns = {**block.numbers, **block.flags}
    arrays = [columns[column] for column in ("reward", "value", "next_value", "terminated", "truncated")]
    without = outrider.gae(*arrays, gamma=gamma, lam=0.9)
    with_none = outrider.gae(*arrays, gamma=gamma, lam=0.9, cut=np.zeros_like(columns["cut"]))
    np.testing.assert_array_equal(without, with_none)


@pytest.mark.parametrize("name", tuple(VALUES))
@pytest.mark.parametrize("kind", ("kernel", "operations"))
@pytest.mark.parametrize("flag", FLAGS)
def test_nothing_behind_an_end_reaches_the_rows_before_it(name, kind, flag):
    rng = np.random.default_rng(0)
    columns = {column: rng.normal(size=(9, 3)) for column in NUMBERS}
    columns |= {column: np.zeros((9, 3), bool) for column in FLAGS}
    columns[flag][4, 1] = True
    spoilt = {column: one.copy() for column, one in columns.items()}
    for column in NUMBERS:
        spoilt[column][5:, 1] = np.nan
    if flag == "terminated":
        spoilt["next_value"][4, 1] = np.nan
    tensors = [{key: torch.from_numpy(one) for key, one in both.items()} for both in (columns, spoilt)]
    if kind == "operations":
        for both in tensors:
            both["reward"].requires_grad_()
    clean, found = (ours(name, both, (0.9, 0.8, 4, (1.0, 1.0, 1.0))) for both in tensors)
    for one, wanted in zip(found, clean, strict=True):
        assert torch.isnan(one[5:, 1]).all()
        before = torch.ones(9, 3, dtype=torch.bool)
        before[5:, 1] = False
        np.testing.assert_array_equal(one.detach()[before], wanted.detach()[before])


@pytest.mark.parametrize("name", tuple(VALUES))
def test_a_long_run_is_exact_enough(name):
    rng = np.random.default_rng(0)
    columns = {column: rng.normal(size=(3000, 2)).astype(np.float32) for column in NUMBERS}
    columns |= {column: rng.random((3000, 2)) < 0.001 for column in FLAGS}
    columns["log_ratio"] *= np.float32(0.1)
    double = {key: one.astype(np.float64) if key in NUMBERS else one for key, one in columns.items()}
    settings = (0.999, 0.99, 50, (1.0, 1.0, 1.0))
    wanted = ours(name, double, settings)
    tensors = {key: torch.from_numpy(one) for key, one in columns.items()}
    tensors["reward"].requires_grad_()
    for found in (ours(name, columns, settings), ours(name, tensors, settings)):
        for one, two in zip(found, wanted, strict=True):
            assert np.abs(torch.as_tensor(one).detach().numpy() - two).max() < 1e-5 * np.abs(two).max()
