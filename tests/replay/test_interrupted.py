"""Calls that are interrupted, or fail, half way: the buffer is whole, and nothing is lost for good."""

from itertools import count

import numpy as np
import pytest

from helpers.interrupts import interrupted
from helpers.plain_rows import tree_of
from helpers.replay_model import Model, Streams
from helpers.replay_views import check_transitions
from helpers.stacks import Stacks
from outrider import Prioritized, ReplayBuffer, Sequences, Stale, Transitions
from outrider.replay.sparse import Sparse

ENDS = ("run", "run", "terminated", "cut", "truncated blind")


def plain(rng):
    return Streams(2, rng, ends=ENDS), {"sampler": Prioritized()}


def texts(rng):
    return Streams(2, rng, "texts", ENDS), {}


def stacks(rng):
    return Streams(2, rng, Stacks(3, rng), ENDS), {"view": Transitions(frame_stack=3), "sampler": Stale(1)}


def states(rng):
    return Streams(2, rng, ends=ENDS), {"view": Sequences(2, stride=2)}


def block(streams):
    return streams.rollout(6)


def longer_than_the_buffer(streams):
    return streams.rollout(11)


def unordered(streams):
    return streams.steps(streams.rng.integers(0, streams.lanes, 9).tolist())


def behind_resets(streams):
    for lane in range(streams.lanes):
        streams.reset(lane)
    return streams.rollout(2)


class Scene:
    """A full buffer, and a record that is to come.

    Attributes:
        steps: all steps that have come or are to come, by serial number.
    """

    def __init__(self, make, record):
        self.streams, arguments = make(np.random.default_rng(0))
        lanes = self.streams.lanes
        self.replay = ReplayBuffer(7 * lanes, self.streams.spec(), seed=0, **arguments)
        every = Model(1 << 30, lanes)
        for _ in range(3):
            rollout, steps = self.streams.rollout(5)
            self.replay.extend(rollout)
            every.add(steps)
        self.record, steps = record(self.streams)
        every.add(steps)
        self.steps = {serial: every.window(*place, 1)[0] for serial, place in every.serials().items()}

    def assert_whole(self):
        """What is there is right, and nothing is lost."""
        self.replay.check()
        look = Transitions(n_step=1).start(self.replay._ring)
        serials = self.replay._ring.serials()
        if look.accepts is not None:
            serials = serials[look.accepts(serials)]
        found = look.gather(serials, np.ones(len(serials)), np.random.default_rng())
        windows = [[self.steps[serial]] for serial in serials.tolist()]
        check_transitions(found, windows, 0.99, self.streams.nesting)


@pytest.mark.parametrize("record", (block, longer_than_the_buffer, unordered, behind_resets))
@pytest.mark.parametrize("make", (plain, texts, stacks, states))
def test_an_interrupted_extend(make, record):
    for at in count(0, 3):
        scene = Scene(make, record)
        if not interrupted(lambda scene=scene: scene.replay.extend(scene.record), at):
            break
        scene.assert_whole()
        # Whoever comes next finds nothing in the way.
        scene.replay.extend(scene.streams.rollout(9)[0])
        scene.replay.check()
        assert len(scene.replay) == scene.replay.capacity
    assert at > 100


@pytest.mark.parametrize("make", (plain, stacks, states))
def test_an_interrupted_clear(make):
    for at in count():
        scene = Scene(make, block)
        if not interrupted(scene.replay.clear, at):
            break
        scene.assert_whole()
        scene.replay.extend(scene.record)
        scene.replay.check()
    assert at > 10


def add(replay, streams, steps):
    obs, behind = ([getattr(one, name) for one in steps] for name in ("obs", "next_obs"))
    replay.add(
        obs=tree_of(obs, streams.nesting),
        action=np.array(obs) * 7 % 1009,
        reward=[one.reward for one in steps],
        next_obs=tree_of(behind, streams.nesting),
        terminated=[one.terminated for one in steps],
        truncated=[one.truncated for one in steps],
        env_id=[one.lane for one in steps],
    )


@pytest.mark.parametrize("make", (plain, texts, stacks, states))
def test_an_interrupted_add(make):
    for at in count():
        scene = Scene(make, lambda streams: ([streams.step(lane) for lane in (1, 0)],) * 2)
        if not interrupted(lambda scene=scene: add(scene.replay, scene.streams, scene.record), at):
            break
        scene.replay.check()
        add(scene.replay, scene.streams, [scene.streams.step(0)])
        scene.replay.check()
    assert at > 50


def test_interruptions_cost_no_memory():
    rng = np.random.default_rng(0)
    streams = Streams(2, rng, ends=("terminated",))
    replay = ReplayBuffer(200, streams.spec(), sampler=Prioritized(), seed=0)
    replay.extend(streams.rollout(150)[0])
    nbytes = replay.nbytes
    for _ in range(200):
        record = streams.rollout(20)[0]
        interrupted(lambda record=record: replay.extend(record), int(rng.integers(200)))
        replay.check()
    replay.extend(streams.rollout(150)[0])
    assert replay.nbytes <= 2 * nbytes


def test_an_interrupted_mending_is_mended():
    scene = Scene(plain, block)
    for at in range(0, 60, 2):
        interrupted(lambda scene=scene: scene.replay.extend(scene.streams.rollout(3)[0]), 120 + at)
        interrupted(scene.replay.check, at)
        scene.replay.check()


@pytest.mark.parametrize("name", ("put", "drop", "mark_unknown"))
def test_a_call_that_fails_half_way(name, monkeypatch):
    scene = Scene(plain, longer_than_the_buffer)

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Sparse, name, fail)
        with pytest.raises(MemoryError):
            scene.replay.extend(scene.record)
    scene.assert_whole()
    assert scene.replay.extend(scene.streams.rollout(9)[0]) == 18
    scene.replay.check()
    assert len(scene.replay.sample(5)) == 5
