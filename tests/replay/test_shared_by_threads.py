"""Threads that use one buffer at the same time, and what its calls cost when it is nearly empty and when it is full."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from outrider import Prioritized, ReplayBuffer, Sequences, StepSpec, Transitions
from outrider.spec import LeafSpec

LANES, STACK = 8, 3
SPEC = StepSpec(
    obs={"eye": LeafSpec((STACK, 2, 2), np.dtype("f8")), "tag": LeafSpec((), np.dtype("i8"))},
    action=LeafSpec((5,), np.dtype("i8")),
    num_envs=LANES,
    extras={"value": LeafSpec((), np.dtype("f4"))},
)


@pytest.fixture
def restless():
    """Threads take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(usual)


def observation(tags):
    frames = tags[:, None] + np.arange(STACK)
    return {"eye": np.repeat(frames, 4, 1).reshape(len(tags), STACK, 2, 2).astype(float), "tag": tags}


def add(replay, lanes, count):
    """Add steps of these lanes, all columns of which have the same tag: a multiple of 100 000 for each lane, and on."""
    for number in range(count):
        tags = lanes * 100_000 + number
        replay.add(
            obs=observation(tags),
            action=np.repeat(tags[:, None], 5, 1),
            reward=tags.astype(float),
            next_obs=observation(tags + 1),
            terminated=np.zeros(len(lanes), bool),
            truncated=tags % 7 == 6,
            value=tags.astype(np.float32),
            version=number,
            env_id=lanes,
        )


def assert_whole(batch):
    """No column of a row is of another one."""
    tags = batch.obs["tag"]
    np.testing.assert_array_equal(batch.obs["eye"][..., 0, 0], tags[..., None] + np.arange(STACK))
    if isinstance(batch.step, np.ndarray) and batch.step.ndim == 1:
        np.testing.assert_array_equal(batch.next_obs["tag"], tags + 1)
        np.testing.assert_array_equal(batch.next_obs["eye"][..., 0, 0], tags[..., None] + 1 + np.arange(STACK))
    else:
        np.testing.assert_array_equal(tags[1:], tags[:-1] + 1)
        tags = tags[:-1]
    np.testing.assert_array_equal(batch.action, np.repeat(tags[..., None], 5, -1))
    np.testing.assert_array_equal(batch.extras["value"], tags)
    np.testing.assert_array_equal(batch.reward, tags)
    np.testing.assert_array_equal(batch.version, tags % 100_000)
    np.testing.assert_array_equal(np.broadcast_to(batch.env_id, tags.shape), tags // 100_000)


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("view", (Transitions(frame_stack=STACK), Sequences(3, frame_stack=STACK)), ids=repr)
def test_no_row_is_torn(view):
    # So small that rows are written over all the time.
    replay = ReplayBuffer(12 * LANES, SPEC, view=view, sampler=Prioritized(), seed=0)
    add(replay, np.arange(LANES), 10)
    replay.clear()
    every = np.arange(LANES)
    add(replay, every, 20)

    def learn():
        for _ in range(600):
            batch = replay.sample(16)
            assert_whole(batch)
            replay.update(batch.index, np.ones(16) + batch.index % 5)

    def collect(lanes):
        for _ in range(30):
            add(replay, lanes, 20)

    with ThreadPoolExecutor(4) as pool:
        calls = [
            pool.submit(learn),
            pool.submit(collect, every[:3]),
            pool.submit(learn),
            pool.submit(collect, every[3:]),
        ]
        for call in calls:
            call.result(timeout=300)
    replay.check()
    assert replay._ring.heads.tolist() == [630] * LANES


def quickest(call, rounds=15, calls=20):
    """Seconds that a call takes when nobody disturbs."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - start) / calls)
    return min(found)


def test_a_full_buffer_costs_about_what_an_empty_one_does():
    spec = StepSpec(obs=LeafSpec((17,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=8)
    replay = ReplayBuffer(8 * 10_000, spec, seed=0)
    flags = np.zeros(8, bool)
    obs = np.zeros((8, 17), np.float32)

    def one():
        replay.add(obs=obs, action=np.zeros(8, int), reward=np.ones(8), next_obs=obs, terminated=flags, truncated=flags)

    def costs():
        return np.array([quickest(one), quickest(lambda: replay.sample(256))])

    while len(replay) < replay.capacity // 10:
        one()
    early = costs()
    while len(replay) < replay.capacity:
        one()
    assert (costs() < 5 * early).all()
