"""Seeds of lanes, and what is accepted as the seed of a run."""

import numpy as np
import pytest

from outrider.errors import ConfigError
from outrider.seeding import ENVIRONMENT, NOISE, WORKER, lane_seed, lane_seeds, resolve_seed


def test_seeds_differ_over_lanes_run_seeds_and_purposes():
    seeds = {
        lane_seed(run, lane, purpose)
        for run in range(10)
        for lane in range(64)
        for purpose in (ENVIRONMENT, NOISE, WORKER)
    }
    assert len(seeds) == 10 * 64 * 3


def test_a_seed_depends_on_nothing_but_run_lane_and_purpose():
    assert lane_seeds(7, np.array([5, 0, 5])) == [lane_seed(7, 5), lane_seed(7, 0), lane_seed(7, 5)]
    assert lane_seeds(7, np.array([1]), NOISE) == [lane_seed(7, 1, NOISE)]


def test_a_seed_is_what_numpy_documents():
    expected = np.random.SeedSequence(3, spawn_key=(ENVIRONMENT, 2)).generate_state(1, np.uint32)[0]
    assert lane_seed(3, 2) == int(expected)
    np.random.RandomState(lane_seed(3, 2))


def test_a_given_seed_is_kept_and_a_missing_one_drawn():
    assert resolve_seed(5) == 5
    assert type(resolve_seed(np.int64(5))) is int
    assert resolve_seed(None) != resolve_seed(None)
    assert 0 <= resolve_seed(None) < 2**63


@pytest.mark.parametrize("seed", (-1, 1.0, "1", True, np.int64(-3)))
def test_other_seeds_are_refused(seed):
    with pytest.raises(ConfigError, match="an integer of 0 or more"):
        resolve_seed(seed)
