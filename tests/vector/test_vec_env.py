"""What is the same for every backend, and Gymnasium's own code on top of these environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import outrider
from helpers.envs import CounterEnv, NestedEnv, RandomLengthEnv
from outrider.errors import ConfigError, EnvironmentFailure, OutriderError
from outrider.testing.envs import Counter, same


@pytest.mark.parametrize("backend", (outrider.Inline(), outrider.Processes(2, "fork")))
def test_wrappers_of_gymnasium_work_on_it(backend):
    def wrap(envs):
        envs = wrappers.RecordEpisodeStatistics(envs)
        return wrappers.ClipReward(wrappers.ClipAction(envs), -1.0, 1.0)

    theirs = wrap(SyncVectorEnv([pendulum] * 3, autoreset_mode=AutoresetMode.SAME_STEP))
    ours = wrap(outrider.make_vec(pendulum, 3, backend=backend))
    assert same(ours.reset(seed=1), theirs.reset(seed=1))
    theirs.action_space.seed(0)
    for _ in range(50):
        actions = theirs.action_space.sample()
        mine, reference = ours.step(actions), theirs.step(actions)
        for infos in (mine[-1], reference[-1]):
            infos.get("episode", {}).pop("t", None)  # seconds on the clock
        assert same(mine, reference)
    ours.close()
    theirs.close()


def pendulum():
    return gymnasium.make("Pendulum-v1", max_episode_steps=20)


@pytest.mark.parametrize("name", ("CartPole-v1", "MountainCar-v0", "Acrobot-v1", "Taxi-v4", "FrozenLake-v1"))
def test_equals_gymnasiums_own_environments(name):
    # Classes that Gymnasium vectorises by hand reset elsewhere: the plain ones are meant.
    theirs = SyncVectorEnv([lambda: gymnasium.make(name)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    with outrider.make_vec(name, 3) as ours:
        assert ours.spec.id == name
        assert same(ours.reset(seed=7), theirs.reset(seed=7))
        theirs.action_space.seed(7)
        for _ in range(250):
            actions = theirs.action_space.sample()
            assert same(ours.step(actions), theirs.step(actions))
    theirs.close()


class EitherEnv(CounterEnv):
    """Has leaves that nobody can store."""

    def __init__(self, *, everything=False):
        super().__init__()
        either = spaces.OneOf([spaces.Discrete(2), spaces.Text(5)])
        parts = {"which": either, "goal": spaces.Dict({"name": either})}
        self.observation_space = spaces.Dict(parts if everything else {"count": self.observation_space, **parts})

    def observation(self):
        return {"count": super().observation(), "which": (0, 1), "goal": {"name": (1, "x")}}


def test_leaves_that_nobody_can_store_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="'goal/name', 'which'"):
        envs = outrider.make_vec(EitherEnv, 2)
    with envs:
        assert envs.single_observation_space == spaces.Dict({"count": CounterEnv().observation_space})
        envs.reset()
        assert envs.step(np.zeros(2, np.int64))[0]["count"].tolist() == [[1], [1]]
    with pytest.raises(ConfigError, match="lane 0"):
        outrider.make_vec(lambda: EitherEnv(everything=True), 2)


@pytest.mark.parametrize(
    ("arguments", "match"),
    (
        (("CartPole-v9", 2), "CartPole-v1"),
        (("no_module_of_this_name:X-v0", 2), "cannot be imported"),
        ((CounterEnv(), 2), "instance of CounterEnv"),
        (([CounterEnv, CounterEnv()],), r"env\[1\]"),
        (([CounterEnv], 2), "num_envs"),
        (([],), "at least one"),
        ((CounterEnv,), "1 or more"),
        ((CounterEnv, 0), "1 or more"),
        ((CounterEnv, 2.0), "1 or more"),
        ((outrider.Envs(CounterEnv, 3), 2), "num_envs"),
    ),
)
def test_plans_that_make_no_sense_are_refused(arguments, match):
    with pytest.raises(ConfigError, match=match):
        outrider.make_vec(*arguments)


@pytest.mark.parametrize("backend", ("threads", outrider.Inline, outrider.Processes, None, 3))
def test_only_backends_are_backends(backend):
    with pytest.raises(ConfigError, match="backend"):
        outrider.make_vec(CounterEnv, 2, backend=backend)


@pytest.mark.parametrize("arguments", ({"workers": 0}, {"workers": 1.5}, {"start_method": "teleport"}))
def test_workers_that_make_no_sense_are_refused(arguments):
    with pytest.raises(ConfigError):
        outrider.Processes(**arguments)


def test_more_workers_than_environments_are_refused():
    with pytest.raises(ConfigError, match="at most 2 workers"):
        outrider.make_vec(CounterEnv, 2, backend=outrider.Processes(3))


class InterruptedEnv(CounterEnv):
    armed = False

    def step(self, action):
        if self.armed:
            raise KeyboardInterrupt
        return super().step(action)


def test_after_an_interrupt_a_reset_makes_them_usable_again():
    with outrider.make_vec([CounterEnv, InterruptedEnv]) as envs:
        envs.reset()
        second = envs.driver._group.envs[1]
        second.armed = True
        actions = np.zeros(2, np.int64)
        with pytest.raises(KeyboardInterrupt):
            envs.step(actions)
        second.armed = False
        with pytest.raises(OutriderError, match="recv"):
            envs.step(actions)
        with pytest.raises(OutriderError, match="interrupted"):
            envs.recv()
        assert envs.reset()[0].tolist() == [[0], [0]]
        assert envs.step(actions)[0].tolist() == [[1], [1]]


def test_flags_of_any_truthy_kind():
    class Flags(Counter):
        def step(self, action):
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, np.array([terminated]), np.bool_(terminated), info

    with outrider.make_vec(lambda: Flags(2), 2) as envs:
        envs.reset()
        for flag in (False, True):
            *_, terminated, truncated, _ = envs.step(np.zeros(2, np.int64))
            assert terminated.tolist() == truncated.tolist() == [flag, flag]


def test_what_reset_and_step_return_is_checked():
    class OldReset(CounterEnv):
        def reset(self, *, seed=None, options=None):
            return self.observation()

    class OldStep(CounterEnv):
        def step(self, action):
            return self.observation(), 1.0, False, {}

    for kind, operation in ((OldReset, "reset"), (OldStep, "step")):
        with outrider.make_vec([CounterEnv, kind]) as envs:
            if operation == "step":
                envs.reset()
            with pytest.raises(EnvironmentFailure) as caught:
                envs.step(np.zeros(2, np.int64)) if operation == "step" else envs.reset()
        assert (caught.value.lane, caught.value.operation) == (1, operation)


def test_nested_actions_reach_environments_as_members_of_their_space():
    with outrider.make_vec(NestedEnv, 3, backend=outrider.Processes(2, "fork")) as envs:
        envs.reset(seed=2)
        envs.action_space.seed(3)
        for _ in range(20):
            actions = envs.action_space.sample()
            envs.step(actions)
            for lane, last in enumerate(envs.get_attr("last_action")):
                assert same(last["bits"], actions["bits"][lane])
                assert same(last["move"][0], actions["move"][0][lane])
                assert last["move"][1] == actions["move"][1][lane]


def test_lengths_are_drawn_by_the_environments_own_generators():
    lengths = []
    for backend in (outrider.Inline(), outrider.Processes(3, "fork")):
        with outrider.make_vec(RandomLengthEnv, 6, backend=backend) as envs:
            envs.reset(seed=5)
            lengths.append([envs.step(np.zeros(6, np.int64))[2].tolist() for _ in range(30)])
    assert lengths[0] == lengths[1]


@pytest.mark.parametrize("workers", (1, 2, 3))
def test_random_subsets_under_way_at_once(workers):
    rng = np.random.default_rng(workers)
    counts = np.zeros(6, np.int64)
    with outrider.make_vec(lambda: CounterEnv(10**6), 6, backend=outrider.Processes(workers, "fork")) as envs:
        envs.reset()
        for _ in range(300):
            lanes = rng.permutation(6)[: rng.integers(1, 7)]
            for some in np.split(lanes, np.unique(rng.integers(1, len(lanes) + 1, 2))):
                if len(some) == 0:
                    continue
                if rng.random() < 0.1:
                    envs.send_reset(some)
                    counts[some] = 0
                else:
                    envs.send(np.zeros(len(some), np.int64), some)
                    counts[some] += 1
            arrival = envs.recv()
            assert sorted(arrival.env_id.tolist()) == sorted(lanes.tolist())
            assert arrival.obs[:, 0].tolist() == counts[arrival.env_id].tolist()
