"""Batches of several buffers."""

import threading
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.patience import SLOW
from helpers.plain_rows import assert_equal
from helpers.replay_model import Streams
from outrider import (
    ConfigError,
    Mix,
    OutriderError,
    Prioritized,
    ReplayBuffer,
    Sequences,
    SpecError,
    Transitions,
    Uniform,
    WholeEpisodes,
    WithoutReplacement,
    tree,
)
from outrider.records import Rollout, StepSpec
from outrider.spec import LeafSpec

SPEC = StepSpec(
    obs={"a": LeafSpec((2,), np.dtype("f4"))},
    action=LeafSpec((), np.dtype("i8")),
    num_envs=2,
    extras={"log_prob": LeafSpec((), np.dtype("f4"))},
)


def buffer(mark, steps=20, spec=SPEC, **settings):
    """A buffer whose actions are all `mark`."""
    replay = ReplayBuffer(100, spec, seed=mark, **settings)
    if steps:
        rollout = Rollout.zeros(spec, steps)
        rollout.action[:] = mark
        replay.extend(rollout)
    return replay


class Counted:
    """A source that counts what it is asked for."""

    spec, view, has_priorities, clears, locks = SPEC, Transitions(), False, 0, ()
    undone_by_errors = nullcontext

    def __init__(self):
        self.asked = []

    def __len__(self):
        return 1

    def sample(self, count):
        self.asked.append(count)
        return ONE.sample(count)


ONE = buffer(0)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
)
def test_exactly_as_many_as_asked_for_in_exact_fractions(weights, counts):
    sources = [Counted() for _ in weights]
    fractions = [Fraction(weight, sum(weights)) for weight in weights]
    mix = Mix(sources, [float(one) for one in fractions])
    total = 0
    for count in counts:
        assert len(mix.sample(count)) == count
        total += count
        mix.check()
        bound = Fraction(1, 2) if len(weights) == 2 else max(1, len(weights) - 1)
        for source, fraction in zip(sources, fractions, strict=True):
            assert abs(sum(source.asked) - fraction * total) <= bound + Fraction(1, 10**9)
    if total % sum(weights) == 0 and len(weights) == 2:
        assert [sum(source.asked) for source in sources] == [fraction * total for fraction in fractions]


def test_halves_of_an_odd_number_take_turns():
    sources = Counted(), Counted()
    mix = Mix(sources, (0.5, 0.5))
    for _ in range(4):
        mix.sample(5)
    assert [sorted(source.asked) for source in sources] == [[2, 2, 3, 3]] * 2


def test_rows_say_which_buffer_they_are_of():
    mix = Mix((buffer(7), buffer(8), buffer(9)), (0.5, 0.25, 0.25))
    batch = mix.sample(40)
    assert batch.action.tolist() == [7] * 20 + [8] * 10 + [9] * 10
    assert mix.source_of(batch.index).tolist() == [0] * 20 + [1] * 10 + [2] * 10
    assert mix.source_of(batch.torch().index).tolist() == mix.source_of(batch.index).tolist()
    assert batch.obs["a"].shape == batch.next_obs["a"].shape == (40, 2)
    assert batch.extras["log_prob"].shape == (40,)
    assert len(mix) == 120
    assert ((batch.index & ((1 << mix.shift) - 1)) < 40).all()


def test_priorities_reach_the_buffer_that_a_row_is_of():
    first, second = (buffer(mark, sampler=Prioritized(alpha=1.0)) for mark in (0, 1))
    mix = Mix((first, second), (0.5, 0.5))
    serials = np.arange(40)
    # Priorities that tell step and buffer: only step 3 of the first and step 5 of the second stay above zero.
    index = np.concatenate([serials, serials | (1 << mix.shift)])
    priorities = np.zeros(80)
    priorities[[3, 40 + 5]] = 1
    order = np.random.default_rng(0).permutation(80)
    assert mix.update(index[order], priorities[order]) == 0
    batch = mix.sample(20)
    assert set(batch.index.tolist()) == {3, 5 | (1 << mix.shift)}
    for source, serial in ((first, 3), (second, 5)):
        assert set(source.sample(10).index.tolist()) == {serial}
        source.check()


def test_stale_priorities_are_counted_over_all_buffers():
    first, second = (buffer(mark, sampler=Prioritized()) for mark in (0, 1))
    mix = Mix((first, second), (0.5, 0.5))
    index = mix.sample(10).index
    first.extend(Rollout.zeros(SPEC, 60))
    assert mix.update(index, np.ones(10)) == 5 == first.stale_updates
    assert second.stale_updates == 0


def test_buffers_without_priorities_are_passed_over_unless_none_has_any():
    mix = Mix((buffer(0), buffer(1, sampler=Prioritized(alpha=1.0))), (0.5, 0.5))
    batch = mix.sample(8)
    assert mix.update(batch.index, np.full(8, 2.0)) == 0
    assert mix.sources[1]._draws.state()["numbers"].max() == 2
    with pytest.raises(ConfigError, match=r"a Mix of buffers without.*Prioritized\(\)"):
        Mix((buffer(0), buffer(1)), (0.5, 0.5)).update(batch.index, np.ones(8))


@pytest.mark.parametrize("wrong", (np.nan, -1.0, np.inf))
def test_wrong_priorities_change_no_buffer(wrong):
    mix = Mix([buffer(mark, sampler=Prioritized()) for mark in (0, 1)], (0.5, 0.5))
    with pytest.raises(ConfigError, match="finite priorities"):
        mix.update([0, 1], [5.0, wrong])
    with pytest.raises(ConfigError, match="same length"):
        mix.update([0, 1], [5.0])
    for source in mix.sources:
        assert (source._draws.state()["numbers"] == 1).all()


def test_a_source_without_enough_is_named_and_nothing_is_counted():
    mix = Mix((buffer(0), buffer(1, steps=0)), (0.75, 0.25))
    with pytest.raises(OutriderError, match=r"source 1 of Mix.*expected 1 steps to draw from or more.*found 0"):
        mix.sample(4)
    assert mix.state()["given"].tolist() == [0, 0]
    mix = Mix((buffer(0), buffer(1, steps=2, sampler=WithoutReplacement())), (0.5, 0.5))
    with pytest.raises(OutriderError, match=r"source 1 of Mix.*expected 5 steps.*found 4"):
        mix.sample(10)
    assert len(mix.sample(8)) == 8


def test_buffers_of_other_columns_are_refused_by_name():
    others = {
        "extras/log_prob": replace(SPEC, extras={}),
        "obs/a": replace(SPEC, obs={"a": LeafSpec((3,), np.dtype("f4"))}),
        "action": replace(SPEC, action=LeafSpec((), np.dtype("i4"))),
        "info/x": replace(SPEC, info={"x": LeafSpec((), np.dtype("f8"))}),
    }
    for path, spec in others.items():
        with pytest.raises(SpecError, match=f"source 2 of Mix at '{path}'"):
            Mix((buffer(0), buffer(1), buffer(2, steps=0, spec=spec)), (0.5, 0.25, 0.25))
    # As many lanes as one likes.
    assert len(Mix((buffer(0), buffer(1, spec=replace(SPEC, num_envs=3))), (0.5, 0.5)).sample(7)) == 7


def test_buffers_of_other_views_are_refused():
    with pytest.raises(ConfigError, match=r"source 1 of Mix.*n_step=1.*n_step=3.*equal views"):
        Mix((buffer(0), buffer(1, view=Transitions(n_step=3))), (0.5, 0.5))


@pytest.mark.parametrize(
    "fractions", ((), (1.0,), (0.5, 0.4), (1.5, -0.5), (1.0, 0.0), (np.nan, 0.5), "ab", None, ("a", "b")), ids=str
)
def test_fractions_that_are_none_are_refused(fractions):
    with pytest.raises(ConfigError, match="fraction above 0 for each of 2 buffers"):
        Mix((buffer(0), buffer(1)), fractions)
    with pytest.raises(ConfigError):
        Mix((), ())


def test_it_goes_on_from_its_state():
    mix, other = (Mix((buffer(0), buffer(1, sampler=Uniform())), (0.3, 0.7)) for _ in range(2))
    mix.sample(1)
    other.restore(mix.state())
    found = [[one.sample(1).action[0] for _ in range(9)] for one in (mix, other)]
    assert found[0] == found[1]
    assert found[0].count(0) == 3


@pytest.mark.parametrize("nesting", ("dict", "nested"))
@pytest.mark.parametrize(
    "view", (Transitions(n_step=2), Sequences(4), Sequences(3, pad=True), WholeEpisodes()), ids=repr
)
def test_batches_of_every_view_are_joined(view, nesting):
    buffers = []
    for seed in range(2):
        streams = Streams(3, np.random.default_rng(seed), nesting)
        buffers.append(ReplayBuffer(300, streams.spec(), view=view, seed=seed))
        buffers[-1].extend(streams.rollout(80)[0])
    states = [one._rng.bit_generator.state for one in buffers]
    mix = Mix(buffers, (0.25, 0.75))
    batch = mix.sample(8)
    for one, state in zip(buffers, states, strict=True):
        one._rng.bit_generator.state = state
    parts = [one.sample(count) for one, count in zip(buffers, (2, 6), strict=True)]
    assert len(batch) == 8
    assert (batch.index == np.concatenate([parts[0].index, parts[1].index | (1 << mix.shift)])).all()
    if isinstance(view, WholeEpisodes):
        batch, parts = batch.episodes, [part.episodes for part in parts]
        batch.check()
        assert_equal(batch[5].obs, parts[1][3].obs)
        return
    samples = 1 if isinstance(view, Sequences) else 0
    for name in ("obs", "action", "reward", "terminated"):
        pieces = [getattr(part, name) for part in parts]
        assert_equal(getattr(batch, name), tree.concatenate(pieces, samples))


def test_an_index_of_a_mix_is_of_no_step_of_the_second_buffer_itself():
    first, second = (buffer(mark, sampler=Prioritized()) for mark in (1, 2))
    mix = Mix((first, second), (0.5, 0.5))
    index = mix.sample(10).index
    of_first = mix.source_of(index) == 0
    # Those of the first one are its own.
    assert first.update(index[of_first], np.ones(5)) == 0
    with pytest.raises(ConfigError, match="index"):
        second.update(index[~of_first], np.ones(5))


def test_mixes_of_mixes_know_their_sources():
    inner = Mix((buffer(1), buffer(2)), (0.5, 0.5))
    mix = Mix((inner, buffer(3)), (0.5, 0.5))
    batch = mix.sample(8)
    assert mix.source_of(batch.index).tolist() == [0] * 4 + [1] * 4
    assert inner.source_of(batch.index[:4]).tolist() == [0, 0, 1, 1] == (batch.action[:4] - 1).tolist()
    with pytest.raises(ConfigError, match="but not of mixes"):
        Mix((mix, buffer(3)), (0.5, 0.5))


def test_a_sample_that_fails_leaves_the_others_as_they_were():
    samplers = (WithoutReplacement(), Prioritized(beta=lambda drawn: 0.5 + drawn / 1e3), Uniform())
    first = [buffer(mark, sampler=sampler) for mark, sampler in enumerate(samplers)]
    last = buffer(3, steps=2, sampler=WithoutReplacement())
    inner = Mix(first[:2], (0.5, 0.5))
    mix = Mix((inner, first[2], last), (0.5, 0.25, 0.25))
    mix.sample(8)
    before = [(one._draws.state(), one._rng.bit_generator.state) for one in first]
    given = mix.state()["given"].tolist(), inner.state()["given"].tolist()
    with pytest.raises(OutriderError, match=r"source 2 of Mix.*expected 8 steps.*found 4"):
        mix.sample(32)
    assert (mix.state()["given"].tolist(), inner.state()["given"].tolist()) == given
    for one, (draws, generator) in zip(first, before, strict=True):
        assert_equal(one._draws.state(), draws)
        assert one._rng.bit_generator.state == generator
    # So every step of the epoch still comes once: 2 of 40 came before.
    index = np.concatenate([first[0].sample(19).index for _ in range(2)])
    assert len(np.unique(index)) == 38


@pytest.mark.parametrize("wrong", ("priority", "step", "source"))
def test_nothing_is_changed_where_one_source_refuses(wrong):
    mix = Mix([buffer(mark, sampler=Prioritized(alpha=2.0)) for mark in (0, 1)], (0.5, 0.5))
    index, priorities = mix.sample(8).index, np.full(8, 5.0)
    # The second buffer could not square it; it has no such step; there is no such buffer.
    if wrong == "priority":
        priorities[-1] = 1e200
    else:
        index[-1] = 77 | 1 << mix.shift if wrong == "step" else 3 | 2 << mix.shift
    expected = {
        "priority": "source 1 of Mix.*a finite sum",
        "step": "source 1 of Mix.*index",
        "source": "sources 0 to 1",
    }
    with pytest.raises(ConfigError, match=expected[wrong]):
        mix.update(index, priorities)
    with pytest.raises(ConfigError, match=expected[wrong]):
        Mix((mix, buffer(2)), (0.5, 0.5)).update(index, priorities)
    for source in mix.sources:
        assert (source._draws.state()["numbers"] == 1).all()


def test_batches_are_those_of_sample():
    mixes = [Mix([buffer(mark, sampler=WithoutReplacement()) for mark in (0, 1)], (0.3, 0.7)) for _ in range(2)]
    with mixes[0].batches(7, prefetch=3) as batches:
        for _ in range(20):
            assert next(batches).index.tolist() == mixes[1].sample(7).index.tolist()
    with mixes[0].batches(7, device="cpu") as batches:
        assert next(batches).torch().obs["a"].shape == (7, 2)
    with pytest.raises(ConfigError, match=r"batches\(prefetch\)"):
        mixes[0].batches(7, prefetch=0)


def test_no_batch_is_of_steps_that_were_cleared():
    first, second = buffer(0), buffer(1)
    mix = Mix((first, second), (0.5, 0.5))
    with mix.batches(4, prefetch=4) as batches:
        next(batches)
        second.clear()
        second.extend(Rollout.zeros(SPEC, 20))
        # Serial numbers go on.
        assert ((next(batches).index[2:] & ((1 << mix.shift) - 1)) >= 40).all()


def test_mixes_of_the_same_buffers_in_another_order_do_not_wait_for_each_other():
    first, second = buffer(0), buffer(1)
    mixes = Mix((first, second), (0.5, 0.5)), Mix((second, first), (0.5, 0.5))
    threads = [threading.Thread(target=lambda mix=mix: [mix.sample(2) for _ in range(500)]) for mix in mixes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SLOW)
        assert not thread.is_alive()


@pytest.mark.parametrize("wrong", (3, None, ReplayBuffer, "dataset"), ids=("number", "nothing", "class", "text"))
def test_what_cannot_be_mixed_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"source 1 of Mix: expected an outrider.ReplayBuffer.*dataset.episodes"):
        Mix((buffer(0), wrong), (0.5, 0.5))
