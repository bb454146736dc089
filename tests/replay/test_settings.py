"""Settings of views, samplers and storage: plain numbers, whatever they were given as, or a clear refusal."""

import dataclasses
import pathlib

import numpy as np
import pytest

import outrider
from helpers.replay_model import Streams
from outrider.errors import ConfigError

HINDSIGHT = {"reward": lambda *goals: 0.0, "terminated": lambda *goals: False}

PAIRS = (
    (
        outrider.Transitions(n_step=np.int64(3), gamma=np.float32(0.5), frame_stack=np.uint8(1)),
        outrider.Transitions(3, 0.5, 1),
    ),
    (outrider.Transitions(gamma=np.int32(1)), outrider.Transitions(gamma=1)),
    (
        outrider.Sequences(np.int16(8), burn_in=np.int64(2), stride=np.uint32(2), pad=np.bool_(True)),
        outrider.Sequences(8, 2, 2, pad=True),
    ),
    (outrider.WholeEpisodes(np.int64(1)), outrider.WholeEpisodes(1)),
    (outrider.Prioritized(np.float64(0.5), np.float16(0.25)), outrider.Prioritized(0.5, 0.25)),
    (outrider.Prioritized(1, 0), outrider.Prioritized(1.0, 0.0)),
    (outrider.WithoutReplacement(np.bool_(True)), outrider.WithoutReplacement(drop_last=True)),
    (outrider.Stale(np.int8(3)), outrider.Stale(3)),
)


@pytest.mark.parametrize(("given", "plain"), PAIRS, ids=lambda one: type(one).__name__)
def test_numbers_of_numpy_become_plain(given, plain):
    assert given == plain
    for field in dataclasses.fields(given):
        assert type(getattr(given, field.name)) in {int, float, bool}
    assert repr(given) == repr(plain)


@pytest.mark.parametrize("part", [given for given, _ in PAIRS], ids=lambda one: type(one).__name__)
def test_they_can_be_saved(tmp_path, part):
    streams = Streams(2, np.random.default_rng(0))
    argument = "view" if hasattr(part, "frame_stack") else "sampler"
    replay = outrider.ReplayBuffer(40, streams.spec(), **{argument: part})
    replay.save(tmp_path / "file")
    assert getattr(outrider.ReplayBuffer.load(tmp_path / "file"), argument) == part


def test_numbers_of_hindsight_become_plain():
    view = outrider.Hindsight(k=np.int64(2), gamma=np.float32(0.5), frame_stack=np.int64(1), **HINDSIGHT)
    assert {type(view.k), type(view.frame_stack)} == {int}
    assert type(view.gamma) is float


@pytest.mark.parametrize(
    ("make", "name"),
    (
        (lambda n: outrider.Transitions(n_step=n), r"Transitions\(n_step\)"),
        (lambda n: outrider.Transitions(frame_stack=n), r"Transitions\(frame_stack\)"),
        (outrider.Sequences, r"Sequences\(length\)"),
        (lambda n: outrider.Sequences(4, stride=n), r"Sequences\(stride\)"),
        (outrider.WholeEpisodes, r"WholeEpisodes\(frame_stack\)"),
        (lambda n: outrider.Hindsight(k=n, **HINDSIGHT), r"Hindsight\(k\)"),
        (outrider.Stale, r"Stale\(max_lag\)"),
    ),
    ids=("n_step", "frame_stack", "length", "stride", "frames", "k", "max_lag"),
)
def test_numbers_that_no_lane_could_reach_are_refused(make, name):
    for number in (2**31, 10**30):
        with pytest.raises(ConfigError, match=name + r": expected an integer of 2147483647 or less.*no buffer holds"):
            make(number)
    with pytest.raises(ConfigError, match=name):
        make(2.5)


@pytest.mark.parametrize("gamma", (-0.1, 1.1, np.nan, np.float32(2), True, "1", None))
def test_discounts_that_are_none_are_refused(gamma):
    for make in (outrider.Transitions, lambda gamma: outrider.Hindsight(gamma=gamma, **HINDSIGHT)):
        with pytest.raises(ConfigError, match=r"\(gamma\): expected a number from 0 to 1"):
            make(gamma=gamma)


@pytest.mark.parametrize("value", (1, "yes", None, np.int64(1)))
def test_flags_that_are_none_are_refused(value):
    with pytest.raises(ConfigError, match=r"Sequences\(pad\): expected True or False"):
        outrider.Sequences(4, pad=value)
    with pytest.raises(ConfigError, match=r"WithoutReplacement\(drop_last\): expected True or False"):
        outrider.WithoutReplacement(value)


def test_samples_that_nobody_could_hold_are_refused():
    streams = Streams(2, np.random.default_rng(0))
    replay = outrider.ReplayBuffer(10, streams.spec())
    for draw in (replay.sample, replay.batches, outrider.Mix((replay,), (1.0,)).sample):
        with pytest.raises(ConfigError, match="2147483647"):
            draw(10**30)


def test_sequences_that_no_lane_can_ever_hold_are_refused():
    spec = Streams(2, np.random.default_rng(0)).spec()
    # Of 11 steps one lane has 6, the other 5.
    assert outrider.ReplayBuffer(11, spec, view=outrider.Sequences(6)).capacity == 11
    with pytest.raises(ConfigError, match=r"ReplayBuffer\(view\).*6 steps or fewer.*7 steps.*14 or more for 2 lanes"):
        outrider.ReplayBuffer(11, spec, view=outrider.Sequences(7))
    with pytest.raises(ConfigError, match=r"ReplayBuffer\(view\)"):
        outrider.estimate_nbytes(11, spec, outrider.Sequences(7))
    # Shorter ones are filled up, as long as something is left behind their burn-in.
    view = outrider.Sequences(7, burn_in=5, pad=True)
    assert outrider.ReplayBuffer(11, spec, view=view).capacity == 11
    with pytest.raises(ConfigError, match="7 steps at least"):
        outrider.ReplayBuffer(11, spec, view=outrider.Sequences(8, burn_in=6, pad=True))


def test_what_is_no_path_is_refused(tmp_path):
    for path in (3, None, b"bytes"):
        with pytest.raises(ConfigError, match=r"Memmap\(path\).*path of a folder"):
            outrider.Memmap(path)
    for path in (str(tmp_path), np.str_(tmp_path), pathlib.Path(tmp_path)):
        assert outrider.Memmap(path).zeros((2,), np.dtype("f4")).shape == (2,)
