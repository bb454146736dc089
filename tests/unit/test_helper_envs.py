"""The shared test environments do what the tests built on them take for granted."""

import multiprocessing
import pickle
import threading

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from helpers.envs import CounterEnv, FaultyEnv, NestedEnv, RandomLengthEnv
from helpers.patience import SLOW


@pytest.mark.parametrize("make", (CounterEnv, RandomLengthEnv, NestedEnv, FaultyEnv))
@pytest.mark.filterwarnings("ignore:.*Box observation space (minimum|maximum) value is:UserWarning")
@pytest.mark.filterwarnings("ignore:.*we recommend using a symmetric and normalized space:UserWarning")
def test_gymnasium_accepts_it(make):
    env = make(at=10**6) if make is FaultyEnv else make()
    check_env(env, skip_render_check=True)
    assert pickle.loads(pickle.dumps(env)).observation_space == env.observation_space


@pytest.mark.parametrize(
    ("mode", "flags"), (("truncate", (False, True)), ("terminate", (True, False)), ("both", (True, True)))
)
def test_counter_ends_as_told(mode, flags):
    env = CounterEnv(length=3, mode=mode)
    for _ in range(2):
        observation, _ = env.reset(seed=0)
        rows = [(observation, None, None, None), *(env.step(0)[:4] for _ in range(3))]
        assert [row[0].item() for row in rows] == [0.0, 1.0, 2.0, 3.0]
        assert [row[2:] for row in rows[1:]] == [(False, False), (False, False), flags]
    env.close()
    env.close()
    assert env.closed == 2


def test_random_length_repeats_with_its_seed():
    def lengths(seed):
        env = RandomLengthEnv((1, 4, 9))
        env.reset(seed=seed)
        drawn = []
        for _ in range(20):
            drawn.append(env.length)
            env.reset()
        return drawn

    assert lengths(0) == lengths(0)
    assert lengths(0) != lengths(1)
    assert set(lengths(0)) == {1, 4, 9}


def test_nested_refuses_a_wrong_action():
    env = NestedEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="expected an action of"):
        env.step({"move": (np.zeros(2), np.int64(2)), "bits": np.zeros(2, np.int8)})


def test_faulty_raises_only_when_told():
    env = FaultyEnv("raise", "step", at=1)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(RuntimeError, match="told to fail in step, call 1"):
        env.step(0)
    assert env.step(0)[0].item() == 2.0


def live(fault, where):
    env = FaultyEnv(fault, where)
    env.reset(seed=0)
    env.step(0)
    env.close()


@pytest.mark.parametrize("where", ("init", "reset", "step", "close"))
@pytest.mark.parametrize(("fault", "exitcode"), (("exit", 3), ("kill", -9)))
def test_faulty_ends_its_process(fault, exitcode, where):
    worker = multiprocessing.get_context("forkserver").Process(target=live, args=(fault, where))
    worker.start()
    worker.join()
    assert worker.exitcode == exitcode


def test_faulty_hangs_until_released():
    thread = threading.Thread(target=live, args=("hang", "step"))
    thread.start()
    thread.join(timeout=0.2)
    hung = thread.is_alive()
    FaultyEnv.release.set()
    thread.join(timeout=SLOW)
    FaultyEnv.release.clear()
    assert hung
    assert not thread.is_alive()
