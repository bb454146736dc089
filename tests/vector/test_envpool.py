"""Pools of EnvPool, taken as they are: their synchronous and their asynchronous side."""

import gc
import warnings

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import outrider
from outrider.errors import ClosedError, ConfigError, OutriderError
from outrider.testing.envs import Counter, same
from outrider.vector.driver import STEP
from outrider.vector.group import SOME_INFOS

envpool = pytest.importorskip("envpool")

LIMIT = 5
"""CartPole that is always pushed to the left falls later."""


def make_pool(num_envs=4, name="CartPole-v1", **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its spaces, about precision
        settings = {"max_episode_steps": LIMIT, "seed": 3, **settings}
        pool = envpool.make(name, env_type="gymnasium", num_envs=num_envs, **settings)
        assert pool.observation_space, pool.action_space  # made when they are first asked for
        return pool


def zeros(count):
    return np.zeros(count, np.int64)


@pytest.mark.parametrize("name", ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Taxi-v3", "CheetahRun-v1", "Pong-v5"))
def test_the_gymnasium_face_is_that_of_the_pool(name):
    theirs = make_pool(name=name)
    with outrider.make_vec(make_pool(name=name)) as ours:
        assert ours.num_envs == 4
        assert ours.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
        assert ours.single_observation_space == theirs.observation_space
        assert ours.single_action_space == theirs.action_space
        mine, other = ours.reset(), theirs.reset()
        assert equal(mine[0], other[0])
        assert same(mine[1], other[1])
        ours.action_space.seed(0)
        ends, over = 0, np.zeros(4, bool)
        for _ in range(15):
            actions = ours.action_space.sample()
            mine, other = (
                ours.step(actions),
                theirs.step(actions.astype(np.int32) if actions.dtype == np.int64 else actions),
            )
            assert equal(mine[0], other[0])
            assert mine[1].dtype == np.float64
            # Some pools give rewards in the step that only resets.
            assert np.array_equal(mine[1], np.where(over, 0, other[1]))
            assert same(mine[2:], other[2:])
            over = mine[2] | mine[3]
            ends += int(over.sum())
        assert ends > 0


def equal(mine, other):
    """Whether observations have the same values; Discrete ones of a pool are narrower than their space says."""
    if isinstance(mine, dict):
        return mine.keys() == other.keys() and all(equal(mine[key], other[key]) for key in mine)
    return np.array_equal(mine, other)


def test_the_step_after_an_end_is_a_dummy():
    with outrider.make_vec(outrider.Envs(make_pool(2), info_keys=("elapsed_step",))) as envs:
        envs.reset()
        found = []
        for _ in range(8):
            envs.post(envs.lanes, envs._scratch_rows, STEP, SOME_INFOS)
            arrival = envs._recv(None)
            elapsed = [int(arrival.info[lane]["elapsed_step"]) for lane in range(2)]
            found.append((elapsed[0], arrival.ended, arrival.dummies, arrival.reward.tolist()))
            if arrival.ended:
                assert np.array_equal(arrival.final_obs, arrival.obs)
    assert found[4:7] == [
        (LIMIT, [0, 1], [], [1, 1]),
        (0, [], [0, 1], [0, 0]),
        (1, [], [], [1, 1]),
    ]


def test_large_observations_are_handed_over_as_the_pool_gives_them():
    frames = {"name": "Pong-v5", "max_episode_steps": 3}
    theirs = make_pool(6, **frames)
    with outrider.make_vec(make_pool(6, **frames)) as ours:
        kept = [(ours.reset()[0], theirs.reset()[0])]
        for _ in range(9):
            step, other = ours.step(zeros(6)), theirs.step(np.zeros(6, np.int32))
            kept.append((step[0], other[0]))
            assert same(step[4], other[4])
            assert step[0].flags.writeable
        assert ours.store.pool.rows_out == 4 * ours.num_envs
        # Others have moved on meanwhile; what was returned has not.
        assert all(np.array_equal(mine, other) for mine, other in kept)


@pytest.mark.parametrize("by_mask", (True, False))
def test_lanes_whose_observations_were_handed_over_can_go_apart(by_mask):
    theirs = make_pool(6, "Pong-v5")
    with outrider.make_vec(make_pool(6, "Pong-v5")) as ours:
        ours.reset()
        expected = theirs.reset()[0]
        last = ours.step(zeros(6))[0]
        assert np.array_equal(last, theirs.step(np.zeros(6, np.int32))[0])
        ours.send(np.full(2, 2), [1, 4])
        expected = last.copy()
        expected[[1, 4]] = theirs.step(np.full(2, 2, np.int32), np.array([1, 4]))[0]
        assert np.array_equal(ours.recv().obs, expected[[1, 4]])
        lanes = np.array([0, 1])
        expected[lanes] = theirs.reset(lanes)[0]
        if by_mask:
            obs = ours.reset(options={"reset_mask": np.arange(6) < 2})[0]
            assert np.array_equal(obs, expected)
        else:
            ours.send_reset(lanes)
            assert np.array_equal(ours.recv().obs, expected[:2])
        assert np.array_equal(ours.step(zeros(6))[0], theirs.step(np.zeros(6, np.int32))[0])


@pytest.mark.parametrize("name", ("CartPole-v1", "Pong-v5"))
def test_a_step_that_is_refused_leaves_the_lanes_where_they_are(name):
    with outrider.make_vec(make_pool(6, name)) as envs:
        for _ in range(2):
            with pytest.raises(ConfigError, match="reset them first"):
                envs.step(zeros(6))
        envs.reset()
        assert not envs.step(zeros(6))[2].any()


def test_lanes_of_a_synchronous_pool_step_apart():
    # EnvPool itself spoils its answers where it is sent to twice before a recv().
    theirs = make_pool()
    with outrider.make_vec(make_pool()) as ours:
        assert ours.driver.wait_for is None
        assert np.array_equal(ours.reset()[0], theirs.reset()[0])
        ours.send(zeros(2), [3, 1])
        ours.send(np.ones(1, np.int64), [0])
        ours.send_reset([2])
        arrival = ours.recv()
        assert arrival.env_id.tolist() == [1, 3, 0, 2]
        expected = [
            theirs.step(np.zeros(2, np.int32), np.array([1, 3]))[0],
            theirs.step(np.ones(1, np.int32), np.array([0]))[0],
        ]
        assert np.array_equal(arrival.obs[:3], np.concatenate(expected))
        assert np.array_equal(arrival.obs[3:], theirs.reset(np.array([2]))[0])
        assert arrival.reward[:3].tolist() == [1, 1, 1]


def test_held_lanes_wait_for_their_reset():
    with outrider.make_vec(make_pool(2)) as envs:
        envs.reset()
        for _ in range(LIMIT):
            envs.send(zeros(2), hold=True)
            arrival = envs.recv()
        assert arrival.ended == [0, 1]
        last = arrival.obs.copy()
        envs.send_reset([1])
        first = envs.recv()
        assert first.env_id.tolist() == [1]
        assert first.dummies == []
        assert not np.array_equal(first.obs[0], last[1])
        envs.driver.let_go([1])
        with pytest.raises(ConfigError, match="reset"):
            envs.send(zeros(1), [1])


@pytest.mark.parametrize(("num_envs", "batch_size"), ((6, 2), (6, 4), (5, 3), (3, 1)))
def test_an_asynchronous_pool_returns_batches(num_envs, batch_size):
    with outrider.make_vec(make_pool(num_envs, batch_size=batch_size)) as envs:
        assert envs.driver.wait_for == batch_size
        obs = envs.reset()[0]
        counts, steps = zeros(num_envs), zeros(num_envs)
        assert len(obs) == num_envs
        envs.send(zeros(num_envs))
        turns = 0
        # Whoever is ready comes first: it may take long until each has come.
        while turns < 60 or not counts.all():
            turns += 1
            arrival = envs.recv()
            lanes = arrival.env_id
            assert len(lanes) == batch_size
            for at, lane in enumerate(lanes):
                # Each lane goes 1, 2, ... LIMIT, and then takes a dummy step.
                assert (lane in arrival.dummies) == (steps[lane] == LIMIT)
                steps[lane] = 0 if steps[lane] == LIMIT else steps[lane] + 1
                assert bool(arrival.truncated[at]) == (steps[lane] == LIMIT) == (lane in arrival.ended)
            counts[lanes] += 1
            envs.send(zeros(batch_size), np.sort(lanes))
        # What is under way is dropped, and a batch that is not whole is filled up with lanes that are reset anyway.
        envs.reset()
        if num_envs % batch_size == 0:
            assert envs.step(zeros(num_envs))[1].tolist() == [1] * num_envs


def test_what_an_asynchronous_pool_would_not_return_is_refused():
    with outrider.make_vec(make_pool(6, batch_size=4)) as envs:
        envs.reset()
        envs.send(zeros(3), [0, 1, 2])
        with pytest.raises(OutriderError, match="send to 1 lanes more"):
            envs.recv()
        # Nothing is lost by that.
        envs.send(zeros(1), [5])
        assert sorted(envs.recv().env_id.tolist()) == [0, 1, 2, 5]
        with pytest.raises(OutriderError, match="send to 2 lanes more"):
            envs.step(zeros(6))
        envs.reset()


def test_lanes_at_their_end_fill_up_what_an_asynchronous_pool_lacks():
    with outrider.make_vec(make_pool(4, batch_size=2)) as envs:
        envs.reset()
        for _ in range(LIMIT):
            envs.send(zeros(4), hold=True)
            arrivals = [envs.recv(), envs.recv()]
        assert sorted(lane for arrival in arrivals for lane in arrival.ended) == [0, 1, 2, 3]
        envs.send_reset([2])
        arrival = envs.recv()
        assert arrival.env_id.tolist() == [2]
        envs.send(zeros(1), [2])
        arrival = envs.recv()
        assert (arrival.env_id.tolist(), arrival.reward.tolist(), arrival.dummies) == ([2], [1.0], [])
        envs.send_reset([0, 1, 3])
        assert envs._recv(None).env_id.tolist() == [0, 1, 3]


def test_pools_that_cannot_be_taken_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_dm = envpool.make("CartPole-v1", env_type="dm", num_envs=2)
        of_two = envpool.make("Go9x9-v1", env_type="gymnasium", num_envs=2)
    with pytest.raises(ConfigError, match="env_type"):
        outrider.make_vec(of_dm)
    with pytest.raises(ConfigError, match="max_num_players"):
        outrider.make_vec(of_two)
    pool = make_pool()
    with pytest.raises(ConfigError, match="num_envs=4"):
        outrider.make_vec(pool, 2)
    with pytest.raises(ConfigError, match="where it was made"):
        outrider.Processes(2).start(outrider.Envs(pool))
    with pytest.raises(OutriderError, match=r"single gymnasium\.Env"):
        outrider.make_vec(make_pool, 2)


def test_seeds_that_come_too_late_are_told():
    with outrider.make_vec(make_pool()) as envs:
        with pytest.warns(UserWarning, match=r"envpool\.make"):
            envs.reset(seed=3)
        envs.reset(seed=4)
        with pytest.raises(ConfigError, match="options"):
            envs.reset(options={"level": 3})
        envs.reset()


def test_forked_workers_leave_the_pools_of_their_parent_alone():
    class Collecting(Counter):
        def __init__(self):
            super().__init__()
            gc.collect()

    # What ends a pool waits for its threads, which no fork has.
    pool = make_pool(2)
    pool.reset()
    pool.itself = pool
    gc.disable()
    try:
        del pool
        with outrider.make_vec(Collecting, 1, backend=outrider.Processes(1, "fork")) as envs:
            envs.reset()
    finally:
        gc.enable()


def test_use_after_close():
    envs = outrider.make_vec(make_pool())
    envs.reset()
    envs.send(zeros(4))
    envs.close()
    envs.close()
    with pytest.raises(ClosedError):
        envs.reset()


def test_a_pool_has_no_attributes():
    with outrider.make_vec(make_pool()) as envs, pytest.raises(ConfigError, match="attributes"):
        envs.get_attr("state")
