"""Selected infos become masked columns of rollouts, steps and episodes; all others cost and break nothing."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import outrider
from helpers.info_envs import InfoEnvOf
from outrider.collect.infos import InfoTable
from outrider.errors import SpecError

KEYS = ("x", "t", "won", "never")
LENGTHS = (4, 6, 5)


def make_policy() -> outrider.RandomPolicy:
    return outrider.RandomPolicy(spaces.Discrete(2))


def plan() -> outrider.Envs:
    return outrider.Envs([InfoEnvOf(length) for length in LENGTHS], info_keys=KEYS)


def mixed_calls(collector) -> list:
    """Records of every kind; surplus rows are carried from the third to the fourth."""
    records = [collector.rollout(5), collector.rollout(3), collector.steps(7), collector.rollout(4)]
    records += [collector.episodes(5, quota="per_env"), collector.rollout(3)]
    for record in records:
        record.check()
    return records


def expected_step_infos(t: int, length: int) -> dict[str, float | None]:
    """What the step from t - 1 to t gives."""
    return {
        "x": t if t % 2 else t + 0.5,
        "t": t if t % 3 == 0 else None,
        "won": True if t == length else None,
        "never": None,
    }


def assert_columns(record, lane_of_row, step_of_row) -> None:
    for row in np.ndindex(record.reward.shape):
        length, step = LENGTHS[lane_of_row(row)], step_of_row(row)
        for key, value in expected_step_infos(step + 1, length).items():
            assert record.info[f"_{key}"][row] == (value is not None)
            assert record.info[key][row] == (0 if value is None else value)
        came_with = {"t": 100} if step == 0 else expected_step_infos(step, length)
        for key in KEYS:
            value = came_with.get(key)
            assert record.obs_info[f"_{key}"][row] == (value is not None)
            assert record.obs_info[key][row] == (0 if value is None else value)


def test_columns_of_every_record_follow_from_the_steps():
    with outrider.make_vec(plan()) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
        records = mixed_calls(collector)
    for record in records:
        if isinstance(record, outrider.Rollout):
            assert_columns(record, lambda row: row[1], lambda row, r=record: r.step[row])
        elif isinstance(record, outrider.Steps):
            assert_columns(record, lambda row, r=record: r.env_id[row], lambda row, r=record: r.step[row])
        else:
            lanes = np.repeat(record.env_id, record.lengths)
            assert_columns(record, lambda row, n=lanes: n[row], lambda row, r=record: r.step[row])


def test_the_observation_behind_the_last_step_has_its_infos_too():
    with outrider.make_vec(plan()) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
        rollout = collector.rollout(4)
    # Lane 0 has just been reset: its info at the end is that of the reset. The others are at their fourth step.
    assert rollout.obs_info["t"].shape == (5, 3)
    assert rollout.obs_info["t"][4].tolist() == [100, 0, 0]
    assert rollout.obs_info["_x"][4].tolist() == [False, True, True]


@pytest.mark.parametrize("where", ("processes", "parallel"))
def test_the_same_columns_wherever_the_environments_run(where):
    with outrider.make_vec(plan()) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
        expected = mixed_calls(collector)
    if where == "processes":
        with (
            outrider.make_vec(plan(), backend=outrider.Processes(workers=2)) as envs,
            outrider.Collector(envs, make_policy(), seed=0) as collector,
        ):
            found = mixed_calls(collector)
    else:
        with outrider.ParallelCollector(plan(), make_policy, workers=2, seed=0) as collector:
            found = mixed_calls(collector)
    for one, other in zip(expected, found, strict=True):
        for infos in ("info", "obs_info"):
            np.testing.assert_equal(getattr(other, infos), getattr(one, infos))


def test_without_keys_there_are_no_columns():
    with outrider.make_vec([InfoEnvOf(3)]) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
        rollout = collector.rollout(4)
    assert rollout.info == {}
    assert rollout.obs_info == {}


def test_a_policy_sees_the_infos_that_came_with_its_observations():
    seen = []

    class Watcher(outrider.Policy):
        def act(self, obs, state, ctx):
            seen.append((ctx.obs_info["t"].copy(), ctx.obs_info["_t"].copy()))
            return {"action": np.zeros(len(obs), np.int64)}

    with outrider.make_vec(plan()) as envs, outrider.Collector(envs, Watcher(), seed=0) as collector:
        rollout = collector.rollout(7)
    np.testing.assert_array_equal([t for t, _ in seen], rollout.obs_info["t"][:-1])
    np.testing.assert_array_equal([mask for _, mask in seen], rollout.obs_info["_t"][:-1])


def test_types_are_promoted_without_loss_and_stay_promoted():
    table = InfoTable(("a",))
    table.put(0, {"a": 3})
    table.put(1, {"a": 2.7})
    assert table.columns(np.array([0, 1, 2]))["a"].tolist() == [3.0, 2.7, 0.0]
    table.take(0, 2)
    table.put(5, {"a": 4})
    assert table.columns(np.array([5]))["a"].dtype == np.float64


@pytest.mark.parametrize(
    ("first", "second"),
    ((1, [1, 2]), (1, "one"), (np.zeros(2), np.zeros(3))),
    ids=["scalar then list", "number then string", "other shape"],
)
def test_a_key_that_changes_its_kind_is_refused_by_name(first, second):
    table = InfoTable(("a",))
    table.put(0, {"a": first})
    with pytest.raises(SpecError, match="info at 'a'"):
        table.put(1, {"a": second})


def test_a_value_that_is_no_array_of_numbers_is_refused_by_name():
    table = InfoTable(("a",))
    with pytest.raises(SpecError, match="info at 'a': expected numbers"):
        table.put(0, {"a": object()})
