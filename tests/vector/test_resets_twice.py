"""AsyncVectorEnv without shared memory: it resets a lane at its end once more in the step behind a reset."""

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import outrider
from outrider.testing.envs import Counter


def source(lengths=(2, 9)):
    factories = [lambda length=length: Counter(length) for length in lengths]
    return AsyncVectorEnv(factories, autoreset_mode=AutoresetMode.NEXT_STEP, shared_memory=False, context="fork")


def test_gymnasium_does_so():
    # Where this fails, Gymnasium has mended it, and nothing needs to know of it any more.
    envs = source()
    envs.reset()
    for _ in range(2):
        envs.step([0, 0])
    envs.reset()
    assert envs.step([0, 0])[0].tolist() == [[0], [1]]
    envs.close()


def test_the_step_behind_such_a_reset_is_a_dummy():
    with outrider.make_vec(source()) as envs:
        envs.send_reset()
        envs.recv()
        for _ in range(2):
            envs.send(np.zeros(2, np.int64), hold=True)
            arrival = envs.recv()
        assert arrival.ended == [0]
        envs.send_reset([0])
        assert envs.recv().obs.tolist() == [[0]]
        found = []
        for _ in range(3):
            envs.send(np.zeros(2, np.int64), hold=True)
            arrival = envs.recv()
            found.append((arrival.obs.tolist(), arrival.reward.tolist(), arrival.dummies, arrival.ended))
        assert found == [
            ([[0], [3]], [0, 1], [0], []),
            ([[1], [4]], [1, 1], [], []),
            ([[2], [5]], [1, 1], [], [0]),
        ]


def test_lanes_that_end_together_are_reset_once():
    with outrider.make_vec(source((2, 2))) as envs:
        envs.reset()
        assert [envs.step([0, 0])[0].tolist()[0] for _ in range(6)] == [[1], [2], [0], [1], [2], [0]]


def test_what_is_collected_is_that_of_environments_in_this_process():
    def collected(envs):
        policy = outrider.RandomPolicy(envs.single_action_space)
        with envs, outrider.Collector(envs, policy, seed=0) as collector:
            episodes = [*collector.episodes(3), *collector.episodes(5)]
            return [(one.env_id, one.obs.tolist(), one.reward.tolist(), one.terminated.tolist()) for one in episodes]

    sync = SyncVectorEnv([lambda: Counter(2), lambda: Counter(9)], autoreset_mode=AutoresetMode.NEXT_STEP)
    assert collected(outrider.make_vec(source())) == collected(outrider.make_vec(sync))
