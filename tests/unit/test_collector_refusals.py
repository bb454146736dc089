"""What collectors and vector environments refuse, because it could have no effect."""

import numpy as np
import pytest

import outrider
from helpers.envs import CounterEnv
from outrider.errors import ConfigError


@pytest.mark.parametrize(
    "backend",
    (
        outrider.Inline(),
        outrider.Threads(2),
        outrider.Threads(2, wait_for=2),
        outrider.Processes(2, "fork", on_failure=outrider.Restart()),
    ),
)
def test_nobody_can_be_ahead_where_all_are_waited_for(backend):
    with outrider.make_vec(CounterEnv, 2, backend=backend) as envs:
        policy = outrider.RandomPolicy(envs.single_action_space)
        with pytest.raises(ConfigError, match=r"CollectOptions\(lead=\.\.\.\).*found 4.*wait_for=1"):
            outrider.Collector(envs, policy, options=outrider.CollectOptions(lead=4))
        # Nothing has happened to them.
        assert envs.uses == 0
        outrider.Collector(envs, policy, options=outrider.CollectOptions(lead=1)).close()


def test_lanes_at_their_own_pace_may_be_ahead():
    with outrider.make_vec(CounterEnv, 2, backend=outrider.Threads(2, wait_for=1)) as envs:
        policy = outrider.RandomPolicy(envs.single_action_space)
        with outrider.Collector(envs, policy, options=outrider.CollectOptions(lead=4)) as collector:
            assert collector.rollout(3).reward.shape == (3, 2)


@pytest.mark.parametrize(
    ("mask", "match"),
    (
        (np.zeros(2, bool), "at least one lane to reset, found none: the mask is all False.*if mask.any"),
        (np.ones(3, bool), r"a bool array \[2\], one for each lane, found shape \(3,\), dtype bool"),
        (np.ones(2, int), r"found shape \(2,\), dtype int64"),
        ([True, False], r"found \[True, False\]"),
    ),
)
def test_a_mask_that_is_none_says_why(mask, match):
    with outrider.make_vec(CounterEnv, 2, autoreset_mode="Disabled") as envs:
        envs.reset()
        with pytest.raises(ConfigError, match=match):
            envs.reset(options={"reset_mask": mask})
