"""Pickles and copies of buffers and mixes, and how they are shown."""

import copy
import pickle

import cloudpickle
import numpy as np
import pytest

import outrider
from helpers.plain_rows import assert_equal
from helpers.replay_model import Streams

WAYS = {
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
    "cloudpickle": lambda one: cloudpickle.loads(cloudpickle.dumps(one)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def filled(count=40, **settings):
    streams = Streams(3, np.random.default_rng(count), "dict")
    replay = outrider.ReplayBuffer(24, streams.spec(), seed=5, **settings)
    replay.extend(streams.steps(np.resize([0, 1, 2, 1], count).tolist())[0])
    return replay, streams


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "sampler",
    (outrider.Uniform(), outrider.Prioritized(), outrider.WithoutReplacement(), outrider.Newest(), outrider.Stale(1)),
    ids=lambda one: type(one).__name__,
)
def test_a_copy_samples_what_the_buffer_would(way, sampler):
    replay, streams = filled(sampler=sampler, view=outrider.Transitions(n_step=2))
    index = replay.sample(3).index
    if replay.has_priorities:
        replay.update(index, [5.0, 0.5, 2.0])
    again = WAYS[way](replay)
    again.check()
    assert (again.spec, again.view, again.sampler) == (replay.spec, replay.view, replay.sampler)
    before = replay.nbytes, len(replay)
    for _ in range(3):
        assert_equal(again.sample(7).obs, replay.sample(7).obs)
    # They are two: the copy goes on alone.
    again.extend(streams.rollout(20)[0])
    again.check()
    replay.check()
    assert (replay.nbytes, len(replay)) == before
    again.clear()
    assert len(replay.sample(5)) == 5


def test_episodes_that_run_are_cut_in_a_copy():
    streams = Streams(1, np.random.default_rng(0), ends=("run",))
    replay = outrider.ReplayBuffer(20, streams.spec(), view=outrider.WholeEpisodes(), seed=0)
    replay.extend(streams.rollout(5)[0])
    assert copy.deepcopy(replay).sample(1).episodes.lengths.tolist() == [5]
    with pytest.raises(outrider.OutriderError, match=r"sample\(count\)"):
        replay.sample(1)


def test_views_with_functions_are_copied_with_them():
    beta = outrider.Prioritized(beta=lambda drawn: 0.5 + drawn / 100)
    replay, _ = filled(sampler=beta)
    replay.sample(10)
    for way in ("cloudpickle", "deepcopy"):
        again = WAYS[way](replay)
        assert again._draws.drawn == 10
        assert again.sampler.beta(50) == 1.0
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(replay)


def test_a_copy_is_stored_as_the_buffer_is(tmp_path):
    replay, _ = filled(storage=outrider.Memmap(tmp_path))
    again = pickle.loads(pickle.dumps(replay))
    assert "Memmap" in repr(again)
    assert_equal(again.sample(5).obs, replay.sample(5).obs)


def test_somebody_elses_kind_of_buffer_stays_it():
    replay = pickle.loads(pickle.dumps(Own(10, Streams(2, np.random.default_rng(0)).spec())))
    assert type(replay) is Own


class Own(outrider.ReplayBuffer):
    pass


@pytest.mark.parametrize("way", ("pickle", "deepcopy"))
def test_mixes_are_copied_with_their_buffers(way):
    mix = outrider.Mix((filled(30)[0], filled(40)[0]), (0.3, 0.7))
    mix.sample(3)
    again = WAYS[way](mix)
    for _ in range(5):
        assert again.sample(3).index.tolist() == mix.sample(3).index.tolist()
    again.sources[0].clear()
    assert len(mix.sample(8)) == 8


def test_a_buffer_shows_what_it_holds_and_how():
    replay, _ = filled(10, view=outrider.Transitions(n_step=3), sampler=outrider.Prioritized())
    shown = repr(replay)
    assert shown == (
        "ReplayBuffer(10 of 24 steps, num_envs=3, view=Transitions(n_step=3, gamma=0.99, frame_stack=1), "
        f"sampler=Prioritized(alpha=0.6, beta=0.4), storage=Memory(), nbytes={replay.nbytes})"
    )
    mix = outrider.Mix((replay, replay), (0.25, 0.75))
    assert repr(mix) == f"Mix(0.25 of {shown}, 0.75 of {shown})"


class PlainView:
    """A view that is no dataclass."""

    def start(self, ring):
        return outrider.Transitions().start(ring)


def test_views_of_any_class_can_be_saved(tmp_path):
    view = PlainView()
    replay, _ = filled(view=view)
    replay.save(tmp_path / "file")
    with pytest.raises(outrider.ReplayError, match="pass view="):
        outrider.ReplayBuffer.load(tmp_path / "file")
    again = outrider.ReplayBuffer.load(tmp_path / "file", view=view)
    assert_equal(again.sample(5).obs, replay.sample(5).obs)
