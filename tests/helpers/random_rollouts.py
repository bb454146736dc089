"""Rollouts of random numbers, made without environments."""

import dataclasses

import numpy as np

import outrider
from outrider.records import StepSpec
from outrider.spec import LeafSpec

F4, F8, I8, U1 = (np.dtype(kind) for kind in ("f4", "f8", "i8", "u1"))
PLAIN = LeafSpec((3,), F4)
NESTED = {"speed": LeafSpec((2,), F8), "image": LeafSpec((4, 4), U1), "parts": (LeafSpec((), F4), LeafSpec((), I8))}


def rollout_of(rng, obs=PLAIN, length=12, lanes=3, *, offset=0.0, dummies=0.0, objectives=()):
    """A rollout of random numbers, whose episodes end at random; some rows are no steps."""
    spec = StepSpec(obs=obs, action=LeafSpec((), I8), num_envs=lanes, reward=LeafSpec(objectives, F8))
    block = (length, lanes)
    rollout = spec.zeros(length)
    for leaf in outrider.tree.leaves(rollout.obs):
        leaf[...] = (
            rng.integers(0, 100, leaf.shape) if leaf.dtype.kind in "iu" else offset + rng.normal(size=leaf.shape)
        )
    valid = rng.random(block) >= dummies
    ends = valid & (rng.random(block) < 0.2)
    step, ordinal = np.zeros(block, int), np.zeros(block, int)
    for n in range(lanes):
        index = episode = 0
        for t in range(length):
            step[t, n], ordinal[t, n] = index, episode
            index, episode = (0, episode + 1) if ends[t, n] else (index + int(valid[t, n]), episode)
    flat = np.flatnonzero(ends)
    finals = outrider.tree.map(lambda leaf: leaf[1:].reshape(-1, *leaf.shape[2:])[flat] + 1, rollout.obs)
    return dataclasses.replace(
        rollout,
        valid=valid,
        terminated=ends,
        step=step,
        episode_id=ordinal * lanes + np.arange(lanes),
        reward=offset + rng.normal(size=(*block, *objectives)),
        final_index=flat,
        final_obs=finals,
    )


def counted_rollout():
    """A normaliser of observations, one of rewards, and the rollout of 36 steps that both have counted."""
    rollout = rollout_of(np.random.default_rng(0), offset=5.0)
    pair = outrider.ObsNormalizer(), outrider.RewardNormalizer(gamma=0.9)
    for normalizer in pair:
        normalizer.update(rollout)
    return *pair, rollout
