"""What a buffer is made of, and what becomes of it."""

import gc
import weakref

import numpy as np
import pytest

import outrider
from helpers.replay_model import Streams
from outrider.errors import ConfigError


def spec():
    return Streams(2, np.random.default_rng(0)).spec()


@pytest.mark.parametrize(
    ("arguments", "name"),
    (
        ({"view": "x"}, "view"),
        ({"view": outrider.Transitions}, "view"),
        ({"view": outrider.Uniform()}, "view"),
        ({"sampler": outrider.Prioritized}, "sampler"),
        ({"sampler": outrider.Transitions()}, "sampler"),
        ({"sampler": 3}, "sampler"),
        ({"storage": "disk"}, "storage"),
    ),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parts_that_are_none_are_refused(arguments, name):
    with pytest.raises(ConfigError, match=rf"ReplayBuffer\({name}\)"):
        outrider.ReplayBuffer(10, spec(), **arguments)


def test_a_spec_that_is_none_is_refused():
    for wrong in (None, outrider.Transitions(), {"obs": 3}):
        with pytest.raises(ConfigError, match=r"ReplayBuffer\(spec\)"):
            outrider.ReplayBuffer(10, wrong)


@pytest.mark.parametrize("sampler", (outrider.Uniform(), outrider.Prioritized(), outrider.Stale(1)), ids=repr)
def test_memory_is_free_as_soon_as_nobody_has_the_buffer(sampler):
    gc.disable()
    try:
        replay = outrider.ReplayBuffer(10, spec(), sampler=sampler)
        rows = weakref.ref(replay._ring.columns["reward"])
        del replay
        assert rows() is None
    finally:
        gc.enable()


def test_with_another_view_priorities_begin_anew(tmp_path):
    streams = Streams(1, np.random.default_rng(0), ends=("run",))
    view = outrider.Sequences(4, stride=4)
    replay = outrider.ReplayBuffer(100, streams.spec(), view=view, sampler=outrider.Prioritized(), seed=0)
    replay.extend(streams.rollout(40)[0])
    replay.save(tmp_path / "file")
    again = outrider.ReplayBuffer.load(tmp_path / "file", view=outrider.Transitions())
    assert set(again.sample(2000).index.tolist()) == set(range(40))
    other = outrider.ReplayBuffer.load(tmp_path / "file", sampler=outrider.Prioritized(alpha=1.0))
    other.update([0], [7.0])
    other.check()
