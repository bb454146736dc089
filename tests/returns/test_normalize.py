"""Advantages on one scale, of arrays and tensors, with and without rows that do not count."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as shapes

import outrider
from outrider.errors import SpecError

NUMBERS = st.floats(-1e3, 1e3, width=32)


def plain(advantage, valid):
    """In double precision, one number after the other."""
    wide = [float(one) for one, counts in zip(advantage.reshape(-1), valid.reshape(-1), strict=True) if counts]
    mean = sum(wide) / max(len(wide), 1)
    deviation = (sum((one - mean) ** 2 for one in wide) / max(len(wide), 1)) ** 0.5
    return np.where(valid, (advantage.astype(np.float64) - mean) / (deviation + 1e-8), 0.0)


@given(data=st.data(), tensors=st.booleans(), masked=st.booleans(), dtype=st.sampled_from((np.float32, np.float64)))
def test_is_mean_and_deviation_of_the_rows_that_count(data, tensors, masked, dtype):
    shape = data.draw(shapes.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=5))
    # Whole numbers: those that are all equal but for rounding have no scale to be compared on.
    advantage = data.draw(shapes.arrays(dtype, shape, elements=NUMBERS.map(round)))
    valid = data.draw(shapes.arrays(bool, shape)) if masked else np.ones(shape, bool)
    before = advantage.copy()
    given_ = torch.from_numpy(advantage) if tensors else advantage
    mask = (torch.from_numpy(valid) if tensors else valid) if masked else None
    found = outrider.normalize_advantages(given_, valid=mask)
    assert isinstance(found, torch.Tensor) == tensors
    assert str(found.dtype).removeprefix("torch.") == np.dtype(dtype).name
    np.testing.assert_allclose(np.asarray(found), plain(advantage, valid), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(advantage, before)


@pytest.mark.parametrize(
    "make", (np.float32, lambda one: torch.tensor(one, dtype=torch.float32)), ids=("numpy", "torch")
)
def test_equal_advantages_far_from_zero_become_zero(make):
    """The mean of so many in single precision differs from each of them."""
    found = outrider.normalize_advantages(make([[1234.5678] * 7] * 143))
    assert abs(found).max() < 1e-3
    assert outrider.normalize_advantages(make([0.1])).tolist() == [0.0]


def test_advantages_far_from_zero_keep_their_digits():
    advantage = (1e4 + np.random.default_rng(0).normal(size=(64, 8))).astype(np.float32)
    found = outrider.normalize_advantages(advantage)
    np.testing.assert_allclose(found, plain(advantage, np.ones((64, 8), bool)), rtol=1e-4, atol=1e-4)


def test_rows_that_do_not_count_may_hold_anything():
    advantage, valid = np.array([1.0, np.nan, 3.0, np.inf]), np.array([True, False, True, False])
    assert outrider.normalize_advantages(advantage, valid=valid).round(6).tolist() == [-1.0, 0.0, 1.0, 0.0]
    assert np.isnan(outrider.normalize_advantages(advantage)).all()


def test_epsilon_bounds_the_scale():
    assert outrider.normalize_advantages(np.array([0.0, 2.0]), epsilon=1.0).tolist() == [-0.5, 0.5]


ZEROS = np.zeros((4, 2))


@pytest.mark.parametrize(
    ("advantage", "valid", "words"),
    (
        ([1.0], None, r"\(advantage\): expected a NumPy array or a torch tensor, found an object of type list"),
        (np.zeros(3, int), None, r"\(advantage\): expected dtype float32 or float64, found dtype int64"),
        (ZEROS, np.ones((4, 2)), r"\(valid\): expected dtype bool, found dtype float64"),
        (ZEROS, np.ones(4, bool), r"\(valid\): expected shape \(4, 2\), found shape \(4,\)"),
        (ZEROS, torch.ones(4, 2, dtype=torch.bool), r"\(valid\): expected a NumPy array, as the advantage is"),
    ),
    ids=("list", "integers", "no flags", "shape", "kind"),
)
def test_what_it_cannot_use_is_refused(advantage, valid, words):
    with pytest.raises(SpecError, match=rf"^normalize_advantages{words}"):
        outrider.normalize_advantages(advantage, valid=valid)
