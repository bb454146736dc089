"""The pool of rows against a plain list of who holds what, and what the system says about memory."""

import gc
import os
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

import outrider
from outrider import tree
from outrider.errors import OutriderError
from outrider.memory.mapping import (
    LEAST,
    MOST,
    MemfdMapping,
    PortableMapping,
    PrivateMapping,
    _largest,
    reserve,
    shared_mapping,
)
from outrider.memory.pool import RowPool
from outrider.memory.rows import Layout, Rows
from outrider.spec import LeafSpec
from outrider.testing.envs import Counter

SPECS = {"a": LeafSpec((3,), np.dtype(np.int32)), "b": (LeafSpec((), np.dtype(np.float64)),)}
KINDS = (PrivateMapping, MemfdMapping, PortableMapping)

# Ways to keep a part of an array that need not keep the array object itself.
KEEPERS = {
    "the array": lambda array: array,
    "a slice": lambda array: array[1:],
    "a strided view": lambda array: np.lib.stride_tricks.as_strided(array, (2,), array.strides[:1]),
    "a torch tensor": torch.from_numpy,
    "a view of a torch tensor": lambda array: torch.from_numpy(array)[:1].view(-1),
    "DLPack": torch.from_dlpack,
    "a memory view": lambda array: memoryview(array)[:1],
    "a reshaped view of another type": lambda array: array.view(np.uint8).reshape(-1)[-1:],
}


def make_pool(mapping, most=None):
    return RowPool(mapping, [Rows(mapping, Layout.fit(SPECS, 4096, mapping.nbytes, most))])


class PoolMachine(RuleBasedStateMachine):
    """Takes, lends, keeps and lets go; every row that is held has the mark of its holder."""

    def __init__(self):
        super().__init__()
        self.mapping = PrivateMapping()
        self.pool = make_pool(self.mapping)
        self.rows = self.pool._rows[0]
        self.held = {}  # base: (count, mark)
        self.mark = 0

    taken, lent = Bundle("taken"), Bundle("lent")

    @rule(target=taken, count=st.integers(1, 40))
    def take(self, count):
        base = self.pool.take(count)
        assert base >= 0
        assert base + count <= self.pool.capacity
        for other, (size, _) in self.held.items():
            assert base + count <= other or other + size <= base, "rows of somebody else"
        self.mark += 1
        self.held[base] = count, self.mark
        for leaf in self.rows.leaves:
            leaf[base : base + count] = self.mark
        return base

    @rule(base=consumes(taken))
    def give_back(self, base):
        self.pool.give_back(base, self.held.pop(base)[0])

    @rule(target=lent, base=consumes(taken), keeper=st.sampled_from(sorted(KEEPERS)))
    def lend(self, base, keeper):
        count = self.held[base][0]
        root = self.pool.lend(base, count)
        return base, KEEPERS[keeper](self.rows.view(root, base, (count,))["b"][0])

    @rule(loan=consumes(lent))
    def let_go(self, loan):
        del self.held[loan[0]]

    @rule()
    def trim(self):
        self.pool.trim()

    @invariant()
    def what_is_held_is_untouched(self):
        for base, (count, mark) in self.held.items():
            for leaf in self.rows.leaves:
                assert (leaf[base : base + count] == mark).all()


PoolMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestPool = PoolMachine.TestCase


@pytest.mark.parametrize("keeper", tuple(KEEPERS))
def test_rows_come_back_when_the_last_view_has_died(keeper):
    pool = make_pool(PrivateMapping())
    base = pool.take(10)
    array = pool._rows[0].view(pool.lend(base, 10), base, (10,))["b"][0]
    kept = KEEPERS[keeper](array)
    del array
    gc.collect()
    assert pool.rows_out == 10
    assert pool.take(10) != base
    del kept
    assert pool.rows_out == 10
    assert pool.take(10) == base, "warm rows are used again"


def test_a_part_of_a_view_is_the_same_as_the_view():
    mapping = PrivateMapping()
    rows = Rows(mapping, Layout.fit(SPECS, 4096, 1 << 20))
    root = np.frombuffer(mapping.buffer, np.uint8)
    rows.arrays["a"][3:9] = np.arange(18).reshape(6, 3)
    for key in SPECS:
        whole, part = rows.view(root, 3, (2, 3))[key], rows.view_part(key, root, 3, (2, 3))
        assert type(whole) is type(part)
        for one, other in zip(tree.leaves(whole), tree.leaves(part), strict=True):
            assert one.__array_interface__ == other.__array_interface__


def test_asking_for_more_rows_than_there_are():
    pool = make_pool(PrivateMapping(), most=100)
    base = pool.take(60)
    with pytest.raises(OutriderError, match="let go of rollouts"):
        pool.take(50)
    pool.give_back(base, 60)
    pool.trim()
    assert pool.take(100) == 0


def written():
    """Bytes of this process that are no file's, and so nobody else's; also those that were moved to the disk."""
    found = Path("/proc/self/smaps_rollup").read_text().splitlines()
    kinds = ("Pss_Anon:", "Pss_Shmem:", "SwapPss:")
    return sum(int(line.split()[1]) * 1024 for line in found if line.startswith(kinds))


@pytest.mark.parametrize("kind", (PrivateMapping, MemfdMapping))
def test_trim_gives_the_memory_back(kind):
    mapping = kind()
    pool = RowPool(mapping, [Rows(mapping, Layout.fit(LeafSpec((1 << 20,), np.dtype(np.uint8)), 0, mapping.nbytes))])
    empty = written()
    base = pool.take(64)
    root = pool.lend(base, 64)
    kept = pool._rows[0].view(root, base, (64,))
    kept[:] = 1
    del root
    full = written()
    assert full - empty > 60 << 20
    pool.trim()
    assert written() - empty > 60 << 20, "what is held is not trimmed"
    assert (kept == 1).all()
    del kept
    pool.trim()
    assert full - written() > 60 << 20
    if kind is MemfdMapping:
        mapping.seal()


def test_rows_that_were_free_for_long_are_given_back():
    mapping = PrivateMapping()
    pool = RowPool(mapping, [Rows(mapping, Layout.fit(LeafSpec((1 << 20,), np.dtype(np.uint8)), 0, mapping.nbytes))])
    base = pool.take(32)
    pool._rows[0].arrays[base : base + 32] = 1
    full = written()
    pool.give_back(base, 32)
    for _ in range(10):
        pool.give_back(pool.take(1), 1)
    assert full - written() > 28 << 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_mapping_begins_with_zeros_and_can_be_discarded(kind):
    mapping = kind()
    array = np.frombuffer(mapping.buffer, np.uint8)
    page = 1 << 16
    assert not array[:page].any()
    array[: 3 * page] = 7
    mapping.discard(page, 2 * page)
    assert (array[:page] == 7).all()
    assert (array[2 * page : 3 * page] == 7).all()
    if kind is not PrivateMapping:
        mapping.seal()


def test_a_system_that_grants_less_address_space():
    asked = []

    def make(size):
        asked.append(size)
        if size > LEAST:
            raise OSError("no more")
        return "made"

    assert _largest(make, 4 * LEAST) == ("made", LEAST)
    assert asked == [4 * LEAST, 2 * LEAST, LEAST]


def test_no_mapping_takes_the_last_of_the_address_space():
    def make(size):
        raise OSError("no more")

    with pytest.raises(OutriderError, match="address space for the rows of one more vector environment"):
        _largest(make)


def test_what_is_reserved_is_in_proportion_to_the_memory():
    assert LEAST <= reserve() <= MOST
    assert reserve() == min(MOST, max(LEAST, 4 * psutil.virtual_memory().total)) or reserve() == MOST


def refuse(size):
    raise MemoryError


def test_the_best_mapping_that_the_system_has_is_taken(monkeypatch):
    for kind in (MemfdMapping, PortableMapping):
        mapping = shared_mapping()
        mapping.seal()
        assert type(mapping) is kind
        monkeypatch.delattr(os, "memfd_create", raising=False)


def descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def test_no_descriptor_is_left_when_environments_are_let_go_of():
    before = descriptors()
    envs = outrider.make_vec(Counter, 2, backend=outrider.Processes(2, "fork"))
    obs, _ = envs.reset()
    envs.close()
    gc.disable()
    try:
        del envs
        assert descriptors() == before, "at once, without a garbage collection"
    finally:
        gc.enable()
    assert obs.tolist() == [[0], [0]]


@pytest.mark.parametrize("backend", (outrider.Inline(), outrider.Processes(2, "fork")))
def test_large_observations_are_lent_and_come_back(backend):
    envs = outrider.make_vec(lambda: Counter(1000, (150, 150)), 3, backend=backend)
    pool = envs.store.pool
    permanent = pool.rows_out
    envs.reset()
    actions = np.zeros(3, np.int64)
    kept = [envs.step(actions)[0] for _ in range(12)]
    parts = [obs[1:2, 5] for obs in kept[::2]]
    assert [np.unique(obs).tolist() for obs in kept] == [[i] for i in range(1, 13)]
    del kept
    # The rows of the last step stay: a reset of other lanes would return them again.
    assert pool.rows_out == permanent + 6 * (len(parts) + 1)
    for _ in range(10):
        envs.step(actions)
    assert [np.unique(part).tolist() for part in parts] == [[i] for i in range(1, 13, 2)]
    envs.close()
    assert [np.unique(part).tolist() for part in parts] == [[i] for i in range(1, 13, 2)]
    del parts
    assert pool.rows_out == permanent
