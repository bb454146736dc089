"""A dataset whose path is, or leads through, a symbolic link is made where the link points to."""

from __future__ import annotations

import numpy as np
import pytest

import outrider
from outrider.spec import LeafSpec

SPEC = outrider.StepSpec(obs=LeafSpec((2,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)


@pytest.mark.parametrize("target_exists", (True, False), ids=("to an empty folder", "to nothing yet"))
@pytest.mark.parametrize("below", ("", "deep/er"), ids=("itself", "below it"))
def test_created_where_the_link_points_to(tmp_path, target_exists, below):
    target = tmp_path / "target"
    if target_exists:
        target.mkdir()
    link = tmp_path / "link"
    link.symlink_to(target)
    with outrider.Dataset.create(link / below, SPEC) as dataset:
        dataset.append(outrider.Rollout.zeros(SPEC, 3))
    assert link.is_symlink()
    with outrider.Dataset.open(target / below) as dataset:
        assert len(dataset) == 6
