"""Prioritized sampling, on whole numbers alone."""

import numpy as np
import pytest
import torch

from helpers.integer_ring import advance, assert_frequencies, counts_of, ring_of
from outrider import ConfigError, OutriderError, Prioritized, ReplayBuffer, Sequences, WholeEpisodes
from outrider.records import Rollout, StepSpec
from outrider.spec import LeafSpec


def started(lanes=1, capacity=4, steps=4, **settings):
    ring = ring_of(lanes, capacity)
    draws = Prioritized(**settings).start(ring)
    advance(ring, np.arange(lanes), steps)
    return ring, draws


def drawn(draws, count=20_000, accepts=None, seed=0):
    serials, weights = draws.draw(count, np.random.default_rng(seed), accepts)
    draws.check()
    return serials, weights


def test_probabilities_and_weights_of_the_paper():
    _, draws = started(alpha=0.5, beta=0.5)
    assert draws.update(np.arange(4), np.array([1.0, 2.0, 3.0, 4.0])) == 0
    serials, weights = drawn(draws, 100_000)
    assert_frequencies(np.bincount(serials), [0.1627, 0.2301, 0.2818, 0.3254])
    for serial, weight in enumerate((1, 0.8409, 0.7598, 0.7071)):
        assert weights[serials == serial] == pytest.approx(weight, abs=5e-5)


def test_weights_are_those_of_the_definition_over_the_maximum_of_the_batch():
    _, draws = started(capacity=40, steps=40, alpha=0.7, beta=0.4)
    priorities = np.random.default_rng(1).random(40) + 0.1
    draws.update(np.arange(40), priorities)
    serials, weights = drawn(draws, 5)
    scaled = priorities**0.7
    plain = (40 * scaled / scaled.sum())[serials] ** -0.4
    assert weights == pytest.approx(plain / plain.max())


def test_new_steps_have_the_greatest_priority_that_is_there():
    ring, draws = started(capacity=4, steps=2, alpha=1.0)
    assert draws.state()["numbers"].tolist() == [1, 1]
    draws.update([0, 1], [5.0, 0.25])
    advance(ring, 0, 1)
    assert draws.state()["numbers"].tolist() == [5, 0.25, 5]
    # The one that has 9 leaves to make room, so that 2 is the greatest: what was ever seen does not count.
    draws.update([0, 2], [9.0, 2.0])
    advance(ring, 0, 1)
    draws.update([3], [1.0])
    advance(ring, 0, 1)
    assert draws.state()["numbers"].tolist() == [0.25, 2, 1, 2]
    draws.check()


def test_without_a_priority_above_zero_new_steps_have_1():
    ring, draws = started(steps=2)
    draws.update([0, 1], [0.0, 0.0])
    advance(ring, 0, 1)
    assert draws.state()["numbers"].tolist() == [0, 0, 1]
    ring.clear()
    draws.check()
    advance(ring, 0, 1)
    assert draws.state()["numbers"].tolist() == [1]


def test_zero_and_empty_rows_are_never_drawn_and_the_last_row_is():
    ring, draws = started(lanes=2, capacity=64, steps=10)
    draws.update(np.arange(19), np.zeros(19))
    assert set(drawn(draws)[0].tolist()) == {19}
    advance(ring, np.arange(2), 22)
    draws.update(np.arange(64), np.zeros(64))
    draws.update([7, 63], [1.0, 1.0])
    assert counts_of(drawn(draws)[0], [7, 63]) == pytest.approx([10_000, 10_000], rel=0.05)


def test_all_zero_is_uniform_over_the_steps_that_are_there():
    ring, draws = started(lanes=2, capacity=10, steps=4)
    advance(ring, 1, 2)
    draws.update(ring.serials(), np.zeros(len(ring)))
    serials, weights = drawn(draws)
    assert_frequencies(counts_of(serials, ring.serials()), np.ones(len(ring)))
    assert (weights == 1).all()


def test_alpha_0_is_uniform_over_priorities_above_zero():
    _, draws = started(alpha=0.0)
    draws.update(np.arange(4), [0.0, 1.0, 100.0, 1e-9])
    assert_frequencies(np.bincount(drawn(draws)[0], minlength=4), [0, 1, 1, 1])


@pytest.mark.parametrize("few", (False, True))
def test_a_view_that_accepts_some_steps_keeps_their_proportions(few):
    ring, draws = started(capacity=600, steps=600, alpha=1.0, beta=1.0)
    draws.update(np.arange(600), np.arange(600.0) % 5)
    allowed = np.array([1, 2, 3, 5, 599] if few else range(0, 600, 2))
    serials, weights = drawn(draws, 40_000, lambda some: np.isin(some, allowed))
    assert_frequencies(counts_of(serials, allowed), allowed % 5)
    least = (serials % 5).min()
    assert weights == pytest.approx(least / (serials % 5))
    assert draws.drawn == 40_000
    assert len(ring) == 600


def test_a_view_that_accepts_only_steps_of_priority_zero_gets_each_as_often():
    _, draws = started(capacity=8, steps=8)
    draws.update([6, 7], [0.0, 0.0])
    serials, weights = drawn(draws, accepts=lambda some: some >= 6)
    assert_frequencies(counts_of(serials, [6, 7]), [1, 1])
    assert (weights == 1).all()


def test_draws_are_independent():
    _, draws = started(alpha=1.0)
    draws.update(np.arange(4), [1.0, 2.0, 3.0, 4.0])
    serials = drawn(draws, 100_000)[0]
    pairs = np.bincount(serials[::2] * 4 + serials[1::2], minlength=16)
    assert_frequencies(pairs, np.outer([1, 2, 3, 4], [1, 2, 3, 4]).reshape(-1))


def test_stale_updates_are_ignored_and_counted():
    ring, draws = started()
    advance(ring, 0, 2)
    before = draws.state()["numbers"]
    assert draws.update([0, 1, 3, 0], [50.0, 50.0, 2.0, 50.0]) == 3
    assert draws.update([1], [50.0]) == 1
    assert draws.stale_updates == 4
    assert draws.state()["numbers"].tolist() == [before[0], 2**0.6, *before[2:]]
    draws.check()


@pytest.mark.parametrize(
    ("wrong", "alpha"),
    ((np.nan, 0.6), (-1.0, 0.6), (np.inf, 0.6), (-np.inf, 0.6), (-1.0, 2.0), (np.inf, 0.0), (1e308, 1.0), (1e200, 2.0)),
)
def test_wrong_priorities_raise_before_anything_is_changed(wrong, alpha):
    ring, draws = started(alpha=alpha)
    advance(ring, 0, 1)
    before = draws.state()
    with pytest.raises(ConfigError, match=r"update\(index, priorities\).*finite priorities of 0 or more") as caught:
        draws.update([0, 1, 2], [3.0, 2.0, wrong])
    assert f"found {np.array([wrong])}" in str(caught.value)
    after = draws.state()
    assert (after.pop("numbers") == before.pop("numbers")).all()
    assert after == before


@pytest.mark.parametrize(
    ("index", "priorities", "message"),
    (
        ([0, 4], [1.0, 1.0], r"of batches of this buffer.*\[4\]"),
        ([-1], [1.0], r"\[-1\]"),
        ([0, 1], [1.0], r"\(2,\) and \(1,\)"),
        ([[0]], [[1.0]], "two vectors"),
        ([0.0], [1.0], "integers"),
        ([0], [1j], "real numbers"),
    ),
)
def test_what_is_no_index_or_priority_is_refused(index, priorities, message):
    _, draws = started()
    with pytest.raises(ConfigError, match=message):
        draws.update(index, priorities)
    assert draws.state()["numbers"].tolist() == [1] * 4


def test_beta_follows_a_schedule_of_the_samples_drawn_before():
    asked = []
    _, draws = started(alpha=1.0, beta=lambda count: asked.append(count) or count / 100)
    draws.update([0], [2.0])
    weights = [drawn(draws, 50)[1].min() for _ in range(3)]
    assert asked == [0, 50, 100]
    assert weights == pytest.approx([1, 2**-0.5, 0.5])


@pytest.mark.parametrize("value", (-0.1, np.nan, np.inf, "a", None, True))
def test_exponents_that_make_no_sense_are_refused(value):
    for name in ("alpha", "beta"):
        with pytest.raises(ConfigError, match=rf"Prioritized\({name}\)"):
            Prioritized(**{name: value})
    _, draws = started(beta=lambda count: value)
    with pytest.raises(ConfigError, match=r"beta.*after 0 samples"):
        drawn(draws)


def test_too_little_says_how_much_there_is():
    draws = Prioritized().start(ring_of(2, 10))
    with pytest.raises(OutriderError, match=r"expected 1 steps.* found 0"):
        drawn(draws)
    _, draws = started()
    with pytest.raises(OutriderError, match="steps that the view can begin with"):
        drawn(draws, accepts=lambda some: np.zeros(len(some), bool))
    assert draws.drawn == 0


def test_it_goes_on_from_its_state():
    ring, draws = started(lanes=2, capacity=11, steps=9, beta=lambda count: count / 1000)
    draws.update(ring.serials(), np.random.default_rng(2).random(len(ring)))
    draws.update([0], [1.0])
    drawn(draws, 100)
    other_ring = ring_of(2, 11)
    other = Prioritized(beta=lambda count: count / 1000).start(other_ring)
    advance(other_ring, np.arange(2), 9)
    other.restore(draws.state())
    for seed in range(3):
        for a, b in zip(drawn(draws, 50, seed=seed), drawn(other, 50, seed=seed), strict=True):
            assert (a == b).all()
    assert (other.drawn, other.stale_updates) == (draws.drawn, 1)
    with pytest.raises(ConfigError, match="one number for each step"):
        Prioritized().start(ring_of(2, 11)).restore(draws.state())


@pytest.mark.parametrize(("view", "begin"), ((Sequences(3, stride=5), [0, 5, 10]), (WholeEpisodes(), [0])))
def test_only_what_a_sample_may_begin_with_has_a_priority(tmp_path, view, begin):
    spec = StepSpec(obs=LeafSpec((2,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
    replay = ReplayBuffer(60, spec, view=view, sampler=Prioritized(alpha=1.0), seed=0)
    record = Rollout.zeros(spec, 14)
    record.step[:] = np.arange(14)[:, None]
    replay.extend(record)
    with_priority = [2 * step + lane for step in begin for lane in range(2)]

    def numbers():
        replay.check()
        return dict(enumerate(replay._draws.state()["numbers"].tolist()))

    assert numbers() == {serial: float(serial in with_priority) for serial in range(28)}
    replay.update(with_priority, np.full(len(with_priority), 0.25))
    record.episode_id[:] = 1
    replay.extend(record)
    assert numbers() == {serial: 0.25 * (serial % 28 in with_priority) for serial in range(56)}
    assert set(replay.sample(50).index % 28) <= set(with_priority)
    replay.save(tmp_path / "file")
    again = ReplayBuffer.load(tmp_path / "file", sampler=Prioritized(0.5))
    assert (again._draws.state()["numbers"] > 0).tolist() == [number > 0 for number in numbers().values()]


def test_a_buffer_with_priorities():
    spec = StepSpec(obs=LeafSpec((2,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
    replay = ReplayBuffer(20, spec, sampler=Prioritized(alpha=1.0), seed=0)
    with pytest.raises(OutriderError, match="found 0"):
        replay.sample(3)
    replay.extend(Rollout.zeros(spec, 10))
    batch = replay.sample(30)
    assert (batch.weight == 1).all()
    assert replay.update(batch.torch().index, batch.torch().weight * 0) == 0
    replay.update([3, 4], np.float32([3, 1]))
    again = replay.sample(100)
    assert (again.weight == np.where(again.index == 4, 1, np.float64(3) ** -0.4))[np.isin(again.index, [3, 4])].all()
    replay.extend(Rollout.zeros(spec, 10))
    assert replay.update(batch.index, np.ones(30)) == replay.stale_updates == 30
    assert replay.has_priorities
    replay.check()


def test_priorities_may_be_tensors_of_a_network():
    priorities = torch.tensor([1.0, 2.0, 0.5, 4.0], requires_grad=True)
    given = (priorities, priorities.bfloat16(), priorities.half(), priorities.double(), (2 * priorities).int())
    for values in given:
        _, draws = started(alpha=1.0)
        serials = torch.arange(4)
        draws.check_update(serials, values)
        assert draws.update(serials, values) == 0
        assert draws.state()["numbers"].tolist() == values.detach().double().tolist()
    with pytest.raises(ConfigError, match="real numbers"):
        draws.update(serials, torch.zeros(4, dtype=torch.complex64))
    with pytest.raises(ConfigError, match="real numbers"):
        draws.update(serials, torch.zeros(4, dtype=torch.bool))


def test_priorities_that_would_be_refused_are_told_beforehand():
    _, draws = started(alpha=2.0)
    for serials, priorities, message in (
        ([9], [1.0], "index"),
        ([0], [-1.0], "finite priorities"),
        ([0], [1e200], "finite sum"),
    ):
        for call in (draws.check_update, draws.update):
            with pytest.raises(ConfigError, match=message):
                call(np.array(serials), np.array(priorities))
    draws.check_update(np.arange(4), np.full(4, 9.0))
    assert draws.state()["numbers"].tolist() == [1.0] * 4
