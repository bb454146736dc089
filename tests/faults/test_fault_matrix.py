"""A part of the fault matrix that has every pair of operation, fault and backend; `make faults` runs all of it."""

import pytest

from helpers.fault_matrix import PATIENT, all_cells, pairwise, problems, run

PART = pairwise(all_cells())


@pytest.mark.parametrize("cell", PART, ids=map(str, PART))
def test_a_fault_is_known_in_time_and_leaves_nothing(cell, tmp_path):
    assert problems(cell, run(cell, tmp_path, PATIENT), PATIENT) == []
