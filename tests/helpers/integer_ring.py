"""Rings of steps that hold nothing but their version: for tests of samplers, which know whole numbers only."""

import numpy as np

from outrider.records import StepSpec
from outrider.replay.ring import Ring
from outrider.replay.storage import Memory


def ring_of(lanes, capacity):
    """An empty ring."""
    ring = Ring(StepSpec(obs={}, action={}, num_envs=lanes), capacity, Memory())
    ring.allocate()
    return ring


def advance(ring, lanes, count, version=0):
    """Let `count` steps of each of `lanes` come, one at a time; return their serial numbers in order."""
    lanes = np.atleast_1d(np.asarray(lanes, np.int64))
    serials = []
    for _ in range(count):
        ones = np.ones(len(lanes), np.int64)
        ring.make_room(lanes, ones)
        positions = ring.heads[lanes].copy()
        ring.columns["version"][ring.row_of(lanes, positions)] = version
        serials += (positions * ring.num_envs + lanes).tolist()
        ring.arrive(lanes, ones)
    return serials


def filled(lanes, capacity, steps, version=0):
    """A ring after `steps` steps of each lane; what came before a sampler was started it does not know."""
    ring = ring_of(lanes, capacity)
    advance(ring, np.arange(lanes), steps, version)
    return ring


def assert_frequencies(counts, probabilities):
    """Counts are as likely as not under these probabilities: chi-square is not far from its degrees of freedom.

    None is counted where the probability is 0.
    """
    counts, probabilities = np.asarray(counts, float), np.asarray(probabilities, float)
    assert not counts[probabilities == 0].any()
    expected = (counts.sum() * probabilities / probabilities.sum())[probabilities > 0]
    statistic = ((counts[probabilities > 0] - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    # Five standard deviations; seeds are fixed, so that this either always holds or never.
    assert statistic < freedom + 5 * np.sqrt(2 * max(freedom, 1)) + 5, (statistic, freedom)


def counts_of(serials, among):
    """How often each of `among` was drawn; nothing else was."""
    assert np.isin(serials, among).all()
    return [int((serials == one).sum()) for one in among]
