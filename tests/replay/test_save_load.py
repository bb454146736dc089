"""Buffers that are saved and loaded: they sample as before, and nothing goes on behind the seam."""

import dataclasses

import numpy as np
import pytest
import torch

import outrider
from helpers.plain_rows import assert_equal
from helpers.replay_model import Step, Streams
from outrider.errors import ReplayError
from outrider.records import Steps
from outrider.spec import RaggedSpec
from outrider.values import objects

CAPACITY = 24
SAMPLERS = (
    outrider.Uniform(),
    outrider.Prioritized(),
    outrider.WithoutReplacement(drop_last=True),
    outrider.Newest(),
    outrider.Stale(1),
)


def filled(count, sampler=None, **settings):
    """A buffer that has seen `count` steps of 3 lanes, and the streams that they came from."""
    streams = Streams(3, np.random.default_rng(count), "dict")
    replay = outrider.ReplayBuffer(CAPACITY, streams.spec(), sampler=sampler, seed=5, **settings)
    if count:
        lanes = np.resize([0, 1, 2, 1], count).tolist()
        replay.extend(streams.steps(lanes)[0])
    return replay, streams


def same(a, b):
    for field in dataclasses.fields(a):
        assert_equal(getattr(a, field.name), getattr(b, field.name))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("count", (0, 3, CAPACITY, CAPACITY + 2, 5 * CAPACITY))
def test_it_samples_as_before(tmp_path, count, sampler):
    replay, streams = filled(count, sampler, view=outrider.Transitions(n_step=2, gamma=0.9))
    if count:
        index = replay.sample(2).index
        if replay.has_priorities:
            replay.update(index, [5.0, 0.5])
    replay.save(tmp_path / "file")
    again = outrider.ReplayBuffer.load(tmp_path / "file")
    (tmp_path / "file").unlink()
    again.check()
    assert (len(again), again.capacity, again.spec) == (len(replay), CAPACITY, replay.spec)
    assert (again.view, again.sampler) == (replay.view, replay.sampler)
    for _ in range(3 if count else 0):
        same(replay.sample(min(len(replay), 9)), again.sample(min(len(replay), 9)))
    # It goes on as any other.
    again.extend(streams.rollout(20)[0])
    again.check()
    assert len(again) == CAPACITY


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda one: type(one).__name__)
def test_a_sampler_of_another_kind_begins_anew(tmp_path, sampler):
    other = outrider.Uniform() if sampler != outrider.Uniform() else outrider.Prioritized()
    replay, streams = filled(40, other)
    replay.save(tmp_path / "file")
    again = outrider.ReplayBuffer.load(tmp_path / "file", sampler=sampler)
    again.check()
    assert len(again.sample(5)) == 5
    again.extend(streams.rollout(20)[0])
    again.check()


def test_nothing_goes_on_behind_a_reload(tmp_path):
    streams = Streams(1, np.random.default_rng(0))
    view = outrider.Transitions(n_step=3, gamma=0.99)
    replay = outrider.ReplayBuffer(10, streams.spec(), view=view)
    steps = [Step(0, 1, at, 10 + at, 11 + at, "run", 0) for at in range(4)]
    record = dataclasses.replace(streams.record(steps), reward=np.ones(4))
    replay.extend(record[:2])
    replay.save(tmp_path / "file")
    replay = outrider.ReplayBuffer.load(tmp_path / "file")
    replay.extend(record[2:])
    replay.check()
    batch = replay._look.gather(np.arange(4), np.ones(4), np.random.default_rng())
    np.testing.assert_allclose(batch.reward, [1.99, 1, 1.99, 1])
    np.testing.assert_allclose(batch.discount, [0.99**2, 0.99, 0.99**2, 0.99])
    assert_equal(batch.next_obs[0], record.next_obs[1])


def test_texts_come_back(tmp_path):
    streams = Streams(2, np.random.default_rng(0))
    spec = dataclasses.replace(streams.spec(), obs={"text": RaggedSpec("text"), "n": streams.spec().obs})
    replay = outrider.ReplayBuffer(12, spec, seed=0)
    for _ in range(9):
        steps = streams.steps([0, 1, 1])[0]
        words = objects([f"é{number}" for number in steps.obs_rows[:, 0]], (len(steps.obs_rows),))
        finals = {"text": objects([], (0,)), "n": steps.final_obs}
        texts = dataclasses.replace(steps, obs_rows={"text": words, "n": steps.obs_rows}, final_obs=finals)
        assert isinstance(texts, Steps)
        replay.extend(texts)
    replay.save(tmp_path / "file")
    again = outrider.ReplayBuffer.load(tmp_path / "file")
    again.check()
    ours, theirs = replay.sample(30), again.sample(30)
    assert ours.obs["text"].tolist() == theirs.obs["text"].tolist()
    assert ours.next_obs["text"].tolist() == [f"é{number}" for number in theirs.next_obs["n"][:, 0]]


@dataclasses.dataclass(frozen=True)
class OwnView:
    """A view of somebody's own."""

    inner: outrider.Transitions

    def start(self, ring):
        return self.inner.start(ring)


def test_what_a_file_cannot_hold_is_asked_for(tmp_path):
    view = OwnView(outrider.Transitions())
    replay, _ = filled(5, view=view)
    replay.save(tmp_path / "file")
    with pytest.raises(ReplayError, match="pass view="):
        outrider.ReplayBuffer.load(tmp_path / "file")
    same(outrider.ReplayBuffer.load(tmp_path / "file", view=view).sample(4), replay.sample(4))


@pytest.mark.parametrize("alpha", (0.5, 1.0))
def test_priorities_are_those_of_the_exponent_they_were_saved_with(tmp_path, alpha):
    replay, _ = filled(4, outrider.Prioritized(0.5, beta=lambda draws: 0.4))
    replay.update(replay.sample(4).index, np.full(4, 64.0))
    numbers = replay._draws.state()["numbers"]
    replay.save(tmp_path / "file")
    again = outrider.ReplayBuffer.load(tmp_path / "file", sampler=outrider.Prioritized(alpha, beta=lambda draws: 0.4))
    assert numbers.max() == 8
    assert again._draws.state()["numbers"].tolist() == (numbers.tolist() if alpha == 0.5 else [1.0] * 4)


def test_memory_may_be_elsewhere_afterwards(tmp_path):
    replay, _ = filled(40, storage=outrider.Memmap(tmp_path / "rows"))
    replay.save(tmp_path / "file")
    for storage in ("memory", outrider.Memmap(tmp_path / "rows")):
        again = outrider.ReplayBuffer.load(tmp_path / "file", storage=storage)
        same(again.sample(5), outrider.ReplayBuffer.load(tmp_path / "file").sample(5))
    assert list((tmp_path / "rows").iterdir()) == []


def test_batches_are_those_of_sample(tmp_path):
    replay, streams = filled(30)
    replay.save(tmp_path / "file")
    again = outrider.ReplayBuffer.load(tmp_path / "file")
    with replay.batches(6, prefetch=3) as batches:
        for _ in range(20):
            same(next(batches), again.sample(6))
        record, steps = streams.rollout(2)
        replay.clear()
        replay.extend(record)
        batch = next(batches)
        assert set(batch.step.tolist()) <= {one.step for one in steps}
        assert set(batch.episode_id.tolist()) <= {one.episode for one in steps}


def test_batches_as_tensors():
    replay, _ = filled(30)
    with replay.batches(6, device="cpu") as batches:
        batch = next(batches)
    assert batch.obs["a"].dtype == torch.int64
    assert {batch.reward.dtype, batch.discount.dtype, batch.weight.dtype} == {torch.float32}


def test_sequences_do_not_cross_a_reload(tmp_path):
    streams = Streams(1, np.random.default_rng(0))
    steps = [Step(0, 1, at, 10 + at, 11 + at, "run", 0) for at in range(20)]
    record = streams.record(steps)
    replay = outrider.ReplayBuffer(100, streams.spec(), view=outrider.Sequences(4), seed=0)
    replay.extend(record[:10])
    replay.save(tmp_path / "file")
    replay = outrider.ReplayBuffer.load(tmp_path / "file")
    replay.extend(record[10:])
    found = replay.sample(500)
    assert (found.lengths == 4).all()
    assert set(found.index.tolist()) == {*range(7), *range(10, 17)}
