"""What cannot be computed with is refused by name, with what to do about it."""

import math

import numpy as np
import pytest
import torch

import outrider
from outrider.errors import ConfigError, SpecError
from outrider.returns import ClippedRatio


def columns(**changed):
    """Columns of 5 steps in 2 lanes, some of them changed."""
    numbers = {name: np.zeros((5, 2)) for name in ("reward", "value", "next_value")}
    flags = {name: np.zeros((5, 2), bool) for name in ("terminated", "truncated", "cut")}
    return {**numbers, **flags, **changed}


def gae(**changed):
    return outrider.gae(**columns(**changed), gamma=0.9, lam=0.9)


ZEROS = np.zeros((5, 2))
FLAGS = np.zeros((5, 2), bool)


@pytest.mark.parametrize(
    ("changed", "words"),
    (
        (
            {"value": ZEROS[..., None]},
            r"gae\(value\).*\(5, 2\).*found shape \(5, 2, 1\).*value.reshape\(reward.shape\)",
        ),
        ({"value": np.zeros((6, 2))}, r"gae\(value\).*found shape \(6, 2\).*value\[:-1\]"),
        ({"next_value": np.zeros(5)}, r"gae\(next_value\).*\(5, 2\), that of the reward, found shape \(5,\)"),
        ({"terminated": FLAGS[:4]}, r"gae\(terminated\).*\(5, 2\).*found shape \(4, 2\)"),
        ({"cut": FLAGS.T}, r"gae\(cut\).*\(5, 2\).*found shape \(2, 5\)"),
        ({"reward": np.zeros((5, 2, 3))}, r"gae\(reward\).*\[T\] or \[T, N\].*reward @ weights"),
        ({"reward": np.float64(1)}, r"gae\(reward\).*an object of type float64"),
        ({"reward": np.zeros(())}, r"gae\(reward\).*\[T\] or \[T, N\].*found shape \(\)"),
        (
            {"reward": np.zeros((5, 2), int)},
            r"gae\(reward\).*float32 or float64, found dtype int64.*astype\(np.float64\)",
        ),
        ({"value": ZEROS.astype(np.float16)}, r"gae\(value\).*found dtype float16"),
        ({"reward": ZEROS.astype(">f8")}, r"gae\(reward\).*found dtype >f8"),
        ({"terminated": FLAGS.astype(np.uint8)}, r"gae\(terminated\).*dtype bool, found dtype uint8.*astype\(bool\)"),
        ({"truncated": FLAGS.astype(float)}, r"gae\(truncated\).*dtype bool, found dtype float64"),
        ({"truncated": None}, r"gae\(truncated\).*an object of type NoneType"),
        ({"reward": [[0.0, 0.0]] * 5}, r"gae\(reward\).*a NumPy array or a torch tensor.*list.*np.asarray\(reward"),
        ({"cut": [[False, False]] * 5}, r"gae\(cut\).*list.*np.asarray\(cut, bool\)"),
        ({"value": torch.zeros(5, 2)}, r"gae\(value\).*a NumPy array, as the reward is, found a tensor on cpu"),
    ),
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_arrays_that_do_not_go_together(changed, words):
    with pytest.raises(SpecError, match=words):
        gae(**changed)


def test_tensors_that_do_not_go_together():
    tensors = {name: torch.from_numpy(one) for name, one in columns().items()}
    with pytest.raises(SpecError, match=r"gae\(value\).*a tensor on cpu, as the reward is, found a tensor on meta"):
        outrider.gae(**tensors | {"value": torch.zeros(5, 2, device="meta")}, gamma=0.9, lam=0.9)
    with pytest.raises(SpecError, match=r"gae\(terminated\).*found a NumPy array.*rollout.torch\(device\)"):
        outrider.gae(**tensors | {"terminated": FLAGS}, gamma=0.9, lam=0.9)
    with pytest.raises(SpecError, match=r"gae\(value\).*found dtype bfloat16.*value.float\(\)"):
        outrider.gae(**tensors | {"value": torch.zeros(5, 2).bfloat16()}, gamma=0.9, lam=0.9)
    with pytest.raises(SpecError, match=r"gae\(cut\).*found dtype uint8.*cut.bool\(\)"):
        outrider.gae(**tensors | {"cut": torch.zeros(5, 2, dtype=torch.uint8)}, gamma=0.9, lam=0.9)


@pytest.mark.parametrize("name", ("lambda_returns", "discounted_returns", "n_step", "vtrace"))
def test_each_function_says_its_own_name(name):
    given = columns(reward=np.zeros((4, 2)))
    settings = {"lambda_returns": {"lam": 0.9}, "n_step": {"n": 2}, "vtrace": {"log_ratio": ZEROS}}.get(name, {})
    if name != "vtrace":
        del given["value"]
    with pytest.raises(SpecError, match=rf"^{name}\(\w+\): expected shape \(4, 2\)"):
        getattr(outrider, name)(**given, gamma=0.9, **settings)
    with pytest.raises(ConfigError, match=rf"^{name}\(gamma\): expected a number from 0 to 1, found 1.5"):
        getattr(outrider, name)(**given, gamma=1.5, **settings)


def test_a_ratio_of_another_shape():
    with pytest.raises(SpecError, match=r"vtrace\(log_ratio\).*\(5, 2\).*found shape \(5, 2, 3\)"):
        outrider.vtrace(**columns(), log_ratio=np.zeros((5, 2, 3)), gamma=0.9)


@pytest.mark.parametrize("value", (-0.1, 1.01, math.nan, math.inf, None, "0.9", True, np.zeros(2), 0.9j))
def test_fractions_that_are_none(value):
    with pytest.raises(ConfigError, match=r"gae\(gamma\): expected a number from 0 to 1"):
        outrider.gae(**columns(), gamma=value, lam=0.9)
    with pytest.raises(ConfigError, match=r"gae\(lam\): expected a number from 0 to 1"):
        outrider.gae(**columns(), gamma=0.9, lam=value)


@pytest.mark.parametrize("value", (0, -1, 2.0, None, True))
def test_numbers_of_steps_that_are_none(value):
    given = columns()
    del given["value"]
    with pytest.raises(ConfigError, match=r"n_step\(n\): expected an integer of 1 or more"):
        outrider.n_step(**given, gamma=0.9, n=value)


@pytest.mark.parametrize("value", (0, -1.0, math.nan, None, "1", True))
def test_bounds_of_ratios_that_are_none(value):
    for name in ("rho", "c"):
        with pytest.raises(ConfigError, match=rf"ClippedRatio\({name}\): expected a number above 0"):
            ClippedRatio(ZEROS, **{name: value})


def test_numbers_of_numpy_are_numbers():
    wanted = outrider.gae(**columns(reward=ZEROS + 1), gamma=0.5, lam=1.0)
    found = outrider.gae(**columns(reward=ZEROS + 1), gamma=np.float32(0.5), lam=1)
    np.testing.assert_array_equal(found, wanted)
    given = columns(reward=ZEROS + 1)
    del given["value"]
    assert outrider.n_step(**given, gamma=1, n=np.int64(2))[0, 0] == 2


@pytest.mark.parametrize("bad", (np.nan, np.inf))
def test_what_is_not_finite_shows_and_is_not_refused(bad):
    reward = ZEROS.copy()
    reward[2, 0] = bad
    found = gae(reward=reward)
    assert not np.isfinite(found[:3, 0]).any()
    assert np.isfinite(found[3:]).all()
    assert np.isfinite(found[:, 1]).all()


def test_ratios_without_bound_are_clipped_and_missing_ones_show():
    given = columns(reward=ZEROS + 1)
    log_ratio = ZEROS.copy()
    log_ratio[4] = 1000  # the ratio is infinite in float64
    log_ratio[1, 1] = np.nan
    found = outrider.vtrace(**given, log_ratio=log_ratio, gamma=0.5)
    tensors = {name: torch.from_numpy(one) for name, one in given.items()}
    from_tensors = outrider.vtrace(**tensors, log_ratio=torch.from_numpy(log_ratio), gamma=0.5)
    for one in (found, from_tensors):
        assert np.asarray(one.target)[:, 0].tolist() == [1.9375, 1.875, 1.75, 1.5, 1]
        assert np.isnan(np.asarray(one.target)[:, 1]).tolist() == [True, True, False, False, False]
        assert np.isnan(np.asarray(one.advantage)[:, 1]).tolist() == [True, True, False, False, False]
