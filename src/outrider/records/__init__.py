"""The records that experience comes in: frozen structs of arrays, cheap to make; `check` verifies their invariants.

`Rollout` is a block [T, N]; `Steps` are flat transitions; `Episode` and `Episodes` are whole trajectories;
`Padded` puts trajectories side by side; `StepSpec` says what a row looks like.
"""

from outrider.records.episode import Episode
from outrider.records.episodes import Episodes
from outrider.records.padded import Padded
from outrider.records.rollout import Rollout
from outrider.records.step_spec import StepSpec
from outrider.records.steps import Steps

__all__ = ["Episode", "Episodes", "Padded", "Rollout", "StepSpec", "Steps"]
