"""Infos in replay buffers: their columns become what the values need that come."""

import dataclasses
import pickle
from contextlib import contextmanager

import numpy as np
import pytest
from gymnasium import spaces

import outrider
from helpers.info_envs import InfoEnvOf
from outrider import ConfigError, LeafSpec, Rollout, SpecError, StepSpec

SPEC = StepSpec(obs=LeafSpec((1,), "f4"), action=LeafSpec((), "i8"), num_envs=2)
LENGTHS = (4, 6, 5)
KEYS = ("x", "t", "won", "never")


def policy():
    return outrider.RandomPolicy(spaces.Discrete(2))


@contextmanager
def inline(**arguments):
    plan = outrider.Envs([InfoEnvOf(length) for length in LENGTHS], **arguments)
    with outrider.make_vec(plan) as envs, outrider.Collector(envs, policy(), seed=0) as collector:
        yield collector


def parallel(**arguments):
    plan = outrider.Envs([InfoEnvOf(length) for length in LENGTHS], **arguments)
    return outrider.ParallelCollector(plan, policy, workers=2, seed=0)


def everything(replay):
    serials = replay._ring.serials()
    return replay._look.gather(serials, np.ones(len(serials)), np.random.default_rng())


def expected(key, t, length):
    """The info of the step from t - 1 to t."""
    if key == "x":
        return t if t % 2 else t + 0.5
    if key == "t":
        return t if t % 3 == 0 else None
    return True if key == "won" and t == length else None


@pytest.mark.parametrize("make", (inline, parallel))
def test_a_buffer_of_a_collector_keeps_the_infos_that_were_asked_for(make):
    with make(info_keys=KEYS) as collector:
        # Only "t" comes with resets.
        assert collector.spec.obs_info["t"] == collector.spec.info["t"] == LeafSpec((), "i8")
        assert collector.spec.info["won"] == LeafSpec((), "f8")
        assert collector.spec.info["_won"] == LeafSpec((), "?")
        replay = collector.new_replay(600)
        collector.fill(replay, 80)
        collector.fill(replay, 100)
        replay.check()
        assert collector.spec.info["won"] == replay.spec.info["won"] == LeafSpec((), "?")
        assert collector.spec.info["x"] == replay.spec.info["x"] == LeafSpec((), "f8")
    batch = everything(replay)
    assert len(batch) == 180
    assert batch.info["won"].dtype == np.bool_
    for row in range(len(batch)):
        t, length = batch.step[row], LENGTHS[batch.env_id[row]]
        for key in KEYS:
            value = expected(key, t + 1, length)
            assert batch.info[f"_{key}"][row] == (value is not None)
            assert batch.info[key][row] == (value or 0)
            value = expected(key, t, length) if t else {"t": 100}.get(key)
            assert batch.obs_info[f"_{key}"][row] == (value is not None)
            assert batch.obs_info[key][row] == (value or 0)


def test_without_keys_a_spec_has_no_infos():
    with inline() as collector:
        assert collector.spec.info == collector.spec.obs_info == {}
        assert everything_of(collector).info == {}


def everything_of(collector):
    replay = collector.new_replay(100)
    collector.fill(replay, 30)
    return everything(replay)


def with_infos(first, *values, key="a", dtype=None):
    """A rollout of two lanes, of which the first has these values, None being none; observations count from `first`."""
    rollout = Rollout.zeros(SPEC, len(values))
    some = np.asarray(next((value for value in values if value is not None), 0), dtype)
    kind = np.result_type(*[np.asarray(value, dtype) for value in values if value is not None] or [np.float64])
    column, mask = np.zeros((len(values), 2, *some.shape), kind), np.zeros((len(values), 2), bool)
    for t, value in enumerate(values):
        if value is not None:
            column[t, 0], mask[t, 0] = value, True
    rollout.obs[:] = np.arange(first, first + len(values) + 1)[:, None, None]
    return dataclasses.replace(rollout, info={key: column, f"_{key}": mask}, step=rollout.step + first)


def a_buffer(**settings):
    infos = {"a": LeafSpec((), "f8"), "_a": LeafSpec((), "?")}
    return outrider.ReplayBuffer(40, dataclasses.replace(SPEC, info=infos), seed=0, **settings)


def values_of(replay):
    batch = everything(replay)
    mine = batch.env_id == 0
    order = np.argsort(batch.index[mine])
    return batch.info["a"][mine][order], batch.info["_a"][mine][order]


@pytest.mark.parametrize("as_steps", (False, True), ids=("rollouts", "steps"))
@pytest.mark.parametrize("storage", ("memory", "files"))
def test_types_are_promoted_and_earlier_values_stay(tmp_path, storage, as_steps):
    replay = a_buffer(storage="memory" if storage == "memory" else outrider.Memmap(tmp_path))
    dtypes = []
    records = (
        with_infos(0, None, None),
        with_infos(2, True, None),
        with_infos(4, 3, 2**40),
        with_infos(6, None, None),
        with_infos(8, 2.75, None),
        with_infos(10, 7, None),
    )
    for record in records:
        replay.extend(record.flatten() if as_steps else record)
        replay.check()
        dtypes.append(replay.spec.info["a"].dtype.kind)
    # Of what is declared nothing is left with the first value.
    assert "".join(dtypes) == "fbiiff"
    column, mask = values_of(replay)
    assert column.dtype == np.float64
    assert column.tolist() == [0, 0, 1, 0, 3, 2**40, 0, 0, 2.75, 0, 7, 0]
    assert mask.tolist() == [False, False, True, False, True, True, False, False, True, False, True, False]


def test_a_shape_is_that_of_the_first_value():
    replay = a_buffer(view=outrider.Sequences(3, pad=True))
    replay.extend(with_infos(0, None, None))
    replay.extend(with_infos(2, np.arange(3, dtype=np.int8), None))
    replay.extend(with_infos(4, None))
    replay.check()
    assert replay.spec.info["a"] == LeafSpec((3,), "i1")
    batch = replay.sample(200)
    assert batch.info["a"].dtype == np.int8
    assert (batch.info["a"][batch.info["_a"]] == [0, 1, 2]).all()
    assert not batch.info["a"][~batch.info["_a"]].any()
    with pytest.raises(SpecError, match=r"'info/a': expected shape \(1, 2, 3\)"):
        replay.extend(with_infos(5, np.zeros(4, np.int8)))
    with pytest.raises(SpecError, match="'info/a'"):
        replay.extend(with_infos(5, "text"))
    assert len(replay) == 10


def test_once_no_value_is_left_a_column_may_become_another():
    replay = a_buffer()
    replay.extend(with_infos(0, np.arange(3), None))
    replay.clear()
    replay.extend(with_infos(5, "text", "longer text"))
    assert replay.spec.info["a"] == LeafSpec((), "U11")
    replay.extend(with_infos(7, "the longest text"))
    replay.check()
    assert values_of(replay)[0].tolist() == ["text", "longer text", "the longest text"]


def test_wrapped_around_the_end():
    replay = a_buffer()
    for first in range(0, 60, 6):
        replay.extend(with_infos(first, *([first / 2] * 6 if first == 54 else range(first, first + 6))))
    replay.check()
    assert values_of(replay)[0].tolist() == [*range(40, 54), *[27.0] * 6]


def test_a_refused_record_adds_nothing():
    replay = a_buffer()
    replay.extend(with_infos(0, 1, 2))
    wrong = dataclasses.replace(with_infos(2, 0.5), action=np.zeros((1, 2), np.int32))
    with pytest.raises(SpecError, match="'action'"):
        replay.extend(wrong)
    replay.check()
    assert values_of(replay)[0].tolist() == [1, 2]


def test_steps_of_ones_own_go_on_as_the_column_has_become():
    replay = a_buffer()
    replay.extend(with_infos(0, np.arange(3)))
    row = {"action": np.zeros(2, int), "reward": np.zeros(2), "terminated": [False] * 2, "truncated": [False] * 2}
    obs = np.ones((2, 1), np.float32)
    info = {"a": np.full((2, 3), 7), "_a": np.ones(2, bool)}
    replay.add(obs=obs, next_obs=obs, info=info, **row)
    assert values_of(replay)[0].tolist() == [[0, 1, 2], [7, 7, 7]]


def test_what_it_has_become_is_saved_and_copied(tmp_path):
    replay = a_buffer()
    replay.extend(with_infos(0, np.arange(3), np.ones(3)))
    replay.save(tmp_path / "file")
    for again in (outrider.ReplayBuffer.load(tmp_path / "file"), pickle.loads(pickle.dumps(replay))):
        assert again.spec == replay.spec
        assert values_of(again)[0].tolist() == [[0, 1, 2], [1, 1, 1]]
        again.extend(with_infos(2, np.full(3, 0.5)))
        assert values_of(again)[0].tolist() == [[0, 1, 2], [1, 1, 1], [0.5] * 3]


def test_a_buffer_wants_the_infos_that_it_has_columns_for():
    with inline(info_keys=("x", "t")) as collector, inline(info_keys=("t",)) as other:
        replay = collector.new_replay(100)
        with pytest.raises(ConfigError, match=r"fill\(replay, count\): expected rows with info = x.*info_keys="):
            other.fill(replay, 10)
        assert other.stats.steps == 0
        # The other way round nothing is lacking.
        assert collector.fill(other.new_replay(100), 10) == 10


def test_mixes_join_infos_of_several_types():
    buffers = a_buffer(), a_buffer(), a_buffer()
    for buffer, value in zip(buffers, (3, 0.5, np.arange(3)), strict=True):
        buffer.extend(with_infos(0, value))
    mix = outrider.Mix(buffers[:2], (0.5, 0.5))
    batch = mix.sample(40)
    assert set(batch.info["a"][batch.info["_a"]].tolist()) == {3.0, 0.5}
    with pytest.raises(SpecError, match="source 1 of Mix at 'info/a'"):
        outrider.Mix(buffers[1:], (0.5, 0.5))
    empty = a_buffer()
    mix = outrider.Mix((buffers[0], empty), (0.5, 0.5))
    empty.extend(with_infos(0, np.arange(3)))
    with pytest.raises(SpecError, match="source 1 of Mix at 'info/a'"):
        mix.sample(4)
    assert mix.state()["given"].tolist() == [0, 0]
