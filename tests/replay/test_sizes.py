"""Memory of replay buffers, before they are made."""

import dataclasses

import numpy as np
import pytest

import outrider
from helpers.replay_model import Streams
from outrider import ConfigError, ReplayBuffer, Sequences, StepSpec, Transitions, WholeEpisodes, estimate_nbytes
from outrider.replay import sizes
from outrider.spec import LeafSpec

ATARI = StepSpec(obs=LeafSpec((4, 84, 84), np.dtype("u1")), action=LeafSpec((), np.dtype("i8")), num_envs=8, state=None)
GIGABYTE = 1 << 30


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """Say how much memory the machine has, and how much is available."""

    def say(total, available):
        lines = [f"MemTotal:  {total // 1024} kB", "MemFree:  12 kB", f"MemAvailable:  {available // 1024} kB", ""]
        (tmp_path / "meminfo").write_text("\n".join(lines))

    monkeypatch.setattr(sizes, "MEMINFO", tmp_path / "meminfo")
    return say


@pytest.mark.parametrize("capacity", (24, 25, 1_000))
@pytest.mark.parametrize(
    "view", (None, Transitions(frame_stack=4), WholeEpisodes(), Sequences(3, frame_stack=4)), ids=repr
)
def test_an_estimate_is_what_a_buffer_takes(capacity, view):
    assert estimate_nbytes(capacity, ATARI, view) == ReplayBuffer(capacity, ATARI, view=view).nbytes


@pytest.mark.parametrize("view", (Transitions(), Sequences(3, stride=2)), ids=repr)
def test_full_buffers_take_no_more(view):
    streams = Streams(3, np.random.default_rng(0), "nested")
    spec = streams.spec()
    replay = ReplayBuffer(2_000, spec, view=view)
    for _ in range(20):
        replay.extend(streams.rollout(60)[0])
    length = 2_000 // int(replay._ring.columns["cut"].sum() * 5)
    bound = estimate_nbytes(2_000, spec, view, episode_length=max(1, length))
    assert estimate_nbytes(2_000, dataclasses.replace(spec, state=None), view) < replay.nbytes <= bound


def test_a_million_frames():
    assert estimate_nbytes(1_000_000, ATARI, Transitions(frame_stack=4), episode_length=500) < 7.5e9
    assert estimate_nbytes(1_000_000, ATARI, Transitions()) > 28e9


def test_nothing_is_allocated_for_an_estimate():
    assert estimate_nbytes(10**15, ATARI, Sequences(4, frame_stack=4), episode_length=1_000) > 10**18


def test_what_can_never_fit_is_refused(memory):
    memory(4 * GIGABYTE, GIGABYTE)
    with pytest.raises(ConfigError, match=r"at most 4\.29 GB.*found 28\.3 GB.*Memmap"):
        ReplayBuffer(1_000_000, ATARI)
    with pytest.warns(RuntimeWarning, match=r"3\.56 GB .* 1\.07 GB are available now; .*Memmap") as caught:
        ReplayBuffer(500_000, ATARI, view=Transitions(frame_stack=4))
    assert caught[0].filename == __file__
    ReplayBuffer(100_000, ATARI, view=Transitions(frame_stack=4))


def test_files_may_be_larger(memory, tmp_path):
    memory(4096, 4096)
    ReplayBuffer(100, ATARI, storage=outrider.Memmap(tmp_path / "rows"))
    with pytest.raises(ConfigError, match="Memmap"):
        ReplayBuffer(100, ATARI)


def test_elsewhere_only_the_total_is_known(memory, monkeypatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1 << 18}
    monkeypatch.setattr(sizes.os, "sysconf", pages.__getitem__)
    assert sizes.machine_memory() == (GIGABYTE, None)
    with pytest.raises(ConfigError, match=r"1\.07 GB"):
        ReplayBuffer(1_000_000, ATARI)
    monkeypatch.delattr(sizes.os, "sysconf")
    assert sizes.machine_memory() == (None, None)


def test_this_machine_has_memory():
    total, available = sizes.machine_memory()
    assert total > 100_000_000
    assert available is None or 0 < available <= total


@pytest.mark.parametrize("length", (0, 1.5))
def test_lengths_of_episodes_that_cannot_be(length):
    with pytest.raises(ConfigError, match=r"estimate_nbytes\(episode_length\)"):
        estimate_nbytes(100, ATARI, episode_length=length)
