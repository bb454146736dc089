"""`on_failure`: environments that are made anew, or done without."""

import functools
import os
import signal
import time
from multiprocessing import connection

import numpy as np
import pytest
from gymnasium import spaces

import outrider
from helpers.patience import SLOW, STEP_TIMEOUT
from helpers.worker_envs import LoggedEnv, ManyLivesEnv
from outrider.errors import ClosedError, ConfigError, EnvironmentFailure, EnvironmentTimeout, WorkerDied
from outrider.vector.driver import RESET, STEP
from outrider.vector.group import ALL_INFOS
from outrider.vector.recovery import fresh_seed

FAULTS = ("raise", "exit", "kill", "hang")


class Lanes:
    """Collects from a driver as a collector does: blocks of rows, and what to do about lost steps."""

    def __init__(self, envs):
        self.driver, self.store = envs.driver, envs.store
        self.num_envs = envs.num_envs
        self.base = envs.store.pool.take(64 * envs.num_envs)
        self.at = np.zeros(self.num_envs, np.int64)
        self.episodes = [[] for _ in range(self.num_envs)]
        self.live = list(range(self.num_envs))
        self.infos = {}

    def rows(self, lanes):
        return self.base + self.at[lanes] * self.num_envs + lanes

    def reset(self, seed=None):
        lanes = np.array(self.live)
        if seed is not None:
            self.driver.arrange_resets({lane: (seed + lane, {"level": lane}) for lane in self.live})
        self.driver.post(lanes, self.rows(lanes), RESET, ALL_INFOS)
        self.receive(len(lanes))

    def step(self, lanes=None):
        lanes = np.array(self.live if lanes is None else lanes)
        self.driver.post(lanes, self.rows(lanes) + self.num_envs, STEP, ALL_INFOS)
        return self.receive(len(lanes), stepped=True)

    def receive(self, count, *, stepped=False):
        """Wait for all; keep what each lane has seen, episode by episode."""
        back = self.driver.wait()
        self.infos = back.infos
        self.live = [lane for lane in self.live if lane not in back.dropped]
        obs, final = self.store.obs, self.store.final
        for lane in np.asarray(back.lanes).tolist():
            row = int(self.rows(np.array([lane]))[0])
            if not stepped or lane in back.lost:
                if lane in back.lost:
                    obs[row] = obs[final + lane]
                self.episodes[lane].append([(*obs[row].tolist(), None)])
                continue
            self.at[lane] += 1
            self.episodes[lane][-1].append((*obs[row + self.num_envs].tolist(), float(self.store.reward[row])))
        return back


def make(factories, on_failure, workers=2, method="fork", **settings):
    backend = outrider.Processes(workers, method, on_failure=on_failure, **settings)
    return outrider.make_vec(factories, backend=backend)


def limit(fault):
    """A time limit only for what hangs: all else takes the time that it takes."""
    return {"step_timeout": STEP_TIMEOUT} if fault == "hang" else {}


def told(what):
    return pytest.warns(RuntimeWarning, match=what)


def lives(tmp_path, fault, steps, where="step", count=4):
    """Environments of which the last but one fails."""
    factories = [functools.partial(ManyLivesEnv, tmp_path / str(lane)) for lane in range(count)]
    factories[-2] = functools.partial(ManyLivesEnv, tmp_path / str(count - 2), fault, steps, where)
    return factories


@pytest.mark.parametrize("method", ("fork", "forkserver"))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_lane_that_fails_in_steps_7_and_19_is_restarted(fault, method, tmp_path):
    with make(lives(tmp_path, fault, (7, 19)), outrider.Restart(), method=method, **limit(fault)) as envs:
        lanes = Lanes(envs)
        lanes.reset(seed=10)
        pids = envs.worker_pids
        with told("restarted"):
            for _ in range(30):
                lanes.step()
        assert lanes.driver.restarts == 2
        process = fault != "raise"
        assert len(set(envs.worker_pids) & set(pids)) == (1 if process else 2)
    # Lanes 0 and 1 are of another worker, lane 3 shares that of lane 2 and is lost with it, but not otherwise.
    untouched = lanes.episodes[:2] if process else [*lanes.episodes[:2], lanes.episodes[3]]
    for found in untouched:
        assert [[step for _, step, _ in episode] for episode in found] == [list(range(31))]
    assert lanes.driver.lost_steps == (4 if process else 2)
    found = lanes.episodes[2]
    assert [len(episode) - 1 for episode in found] == [6, 11, 11]
    # No episode joins two lives: what is drawn at the reset is the same in all of its observations.
    drawn = [{one for one, *_ in episode} for episode in found]
    assert [len(some) for some in drawn] == [1, 1, 1]
    assert len(set.union(*drawn)) == 3
    assert [step for _, step, _ in found[1]] == list(range(12))
    assert [reward for *_, reward in found[1][1:]] == list(range(8, 19))


@pytest.mark.parametrize("where", ("step", "reset", "init"))
@pytest.mark.parametrize("fault", ("raise", "kill"))
def test_what_always_fails_is_raised_after_the_bound(fault, where, tmp_path):
    steps = range({"step": 1, "reset": 3, "init": 2}[where], 100)
    factories = lives(tmp_path, fault, steps, where)
    if where == "init":
        # It is made anew because of its first step.
        factories[2] = functools.partial(FirstStepFails, tmp_path / "2", fault, steps, where)
    with make(factories, outrider.Restart(max_restarts=3)) as envs:
        lanes = Lanes(envs)
        lanes.reset()
        error = use_until_it_fails(lanes)
        assert isinstance(error, WorkerDied if fault == "kill" else EnvironmentFailure)
        assert error.lane == 2
        # Environments and workers are counted apart.
        assert lanes.driver.restarts == (4 if (fault, where) == ("kill", "init") else 3)
        with pytest.raises(ClosedError):
            envs.get_attr("count")


class FirstStepFails(ManyLivesEnv):
    def step(self, action):
        raise RuntimeError("the first")


def use_until_it_fails(lanes):
    with told("restarted"), pytest.raises(EnvironmentFailure) as caught:  # noqa: PT012
        for _ in range(10):
            lanes.step()
            lanes.reset()
    return caught.value


@pytest.mark.parametrize("fault", ("raise", "kill"))
def test_a_reset_that_fails_is_done_by_the_new_environment(fault, tmp_path):
    with make(lives(tmp_path, fault, (2,), "reset"), outrider.Restart()) as envs:
        lanes = Lanes(envs)
        lanes.reset(seed=5)
        with told("restarted"):
            lanes.reset(seed=50)
        assert lanes.driver.lost_steps == 0
        # With the options of the reset that failed, and a seed that nobody has used.
        assert lanes.infos[2]["options"] == "{'level': 2}"
        drawn = [episode[0][0] for found in lanes.episodes for episode in found]
        assert len(set(drawn)) == len(drawn) == 8
        lanes.step()
        assert lanes.driver.lost_steps == 0
        assert [found[-1][-1][1] for found in lanes.episodes] == [1, 1, 1, 1]


def test_a_reset_that_fails_within_a_step_loses_the_step(tmp_path):
    factory = functools.partial(ManyLivesEnv, tmp_path / "0", "raise", (2,), "reset", length=3)
    with make([factory], outrider.Restart(), workers=1) as envs:
        lanes = Lanes(envs)
        lanes.reset()
        with told("restarted"):
            found = [lanes.step() for _ in range(4)]
        assert [(back.lost, back.ended) for back in found] == [([], []), ([], []), ([0], []), ([], [])]


def test_a_worker_that_was_killed_while_idle_is_replaced(tmp_path):
    with make(lives(tmp_path, "raise", ()), outrider.Restart()) as envs:
        lanes = Lanes(envs)
        lanes.reset()
        lanes.step()
        os.kill(envs.worker_pids[1], signal.SIGKILL)
        with told("lanes 2 to 3 are restarted in a new worker"):
            back = lanes.step()
        assert back.lost == [2, 3]
        assert lanes.step().lost == []
        # Also where it is noticed by a question.
        os.kill(envs.worker_pids[0], signal.SIGKILL)
        assert connection.wait([envs.driver._crew.members[0].sentinel], SLOW)
        with told("lanes 0 to 1"):
            counts = envs.get_attr("count")
        assert counts[2:] == (1, 1)
        assert lanes.step([0, 2]).lost == [0]
        assert lanes.step([1, 3]).lost == [1]
        assert lanes.step().lost == []


def test_a_backoff_delays_nobody_else(tmp_path):
    with make(lives(tmp_path, "raise", (1,), count=2), outrider.Restart(backoff=600.0), workers=1, wait_for=1) as envs:
        lanes = Lanes(envs)
        lanes.reset()
        step(lanes, np.arange(2))
        with told("restarted"):
            step_others_until_it_is_restarted(lanes)
        for _ in range(50):
            arrived = lanes.driver.wait(1).lanes
            assert list(arrived) == [1]
            step(lanes, arrived)


def test_a_second_backoff_is_twice_as_long(tmp_path):
    with make(lives(tmp_path, "raise", (1, 2), count=2), outrider.Restart(backoff=0.2), workers=1) as envs:
        lanes = Lanes(envs)
        lanes.reset()
        began = time.monotonic()
        with told("restarted"):
            assert [lanes.step().lost for _ in range(2)] == [[0], [0]]
        assert time.monotonic() - began >= 0.6


@pytest.mark.parametrize("fault", ("raise", "kill"))
def test_close_does_not_wait_for_a_backoff(fault, tmp_path):
    envs = make(lives(tmp_path, fault, range(1, 100)), outrider.Restart(backoff=600.0), wait_for=2)
    lanes = Lanes(envs)
    lanes.reset()
    step(lanes, np.arange(4))
    with told("restarted"):
        step_others_until_it_is_restarted(lanes)
    began = time.monotonic()
    envs.close()
    assert time.monotonic() - began < SLOW


def step(lanes, numbers):
    lanes.driver.post(numbers, lanes.rows(numbers) + lanes.num_envs, STEP, 0)


def step_others_until_it_is_restarted(lanes):
    while not lanes.driver.restarts:
        step(lanes, lanes.driver.wait(1).lanes)


@pytest.mark.usefixtures("time_to_close")
def test_each_environment_is_closed_once(tmp_path):
    log = tmp_path / "closed"
    factories = [functools.partial(LoggedEnv, log, 0), functools.partial(LoggedEnv, log, 1, "raise", "step", 1)]
    with make(factories, outrider.Restart(), workers=1) as envs:
        lanes = Lanes(envs)
        lanes.reset()
        lanes.step()
        with told("restarted"):
            lanes.step()
        assert log.read_text() == "1\n"
    assert sorted(log.read_text().split()) == ["0", "1", "1"]


@pytest.mark.parametrize("fault", FAULTS)
def test_lanes_that_fail_are_dropped(fault, tmp_path):
    with make(lives(tmp_path, fault, (3,)), outrider.Drop(), **limit(fault)) as envs:
        lanes = Lanes(envs)
        lanes.reset()
        lanes.step()
        lanes.step()
        gone = [2] if fault == "raise" else [2, 3]
        with told("dropped"):
            back = lanes.step()
        assert sorted(back.dropped) == gone == list(lanes.driver.dropped)
        assert isinstance(back.dropped[2], EnvironmentTimeout if fault == "hang" else EnvironmentFailure)
        assert np.asarray(back.lanes).tolist() == sorted({0, 1, 2, 3} - set(gone))
        with pytest.raises(ConfigError, match=r"lanes \[2"):
            lanes.step([1, 2])
        for _ in range(3):
            back = lanes.step()
            assert not back.dropped
        assert lanes.episodes[0][-1][-1][1] == 6


@pytest.mark.parametrize(
    "arguments",
    ({"max_restarts": 0}, {"max_restarts": 1.5}, {"window": 0}, {"window": "60"}, {"backoff": -1}, {"backoff": None}),
)
def test_terms_that_are_none_are_refused(arguments):
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        outrider.Restart(**arguments)


@pytest.mark.parametrize("choice", ("restart", None, outrider.Restart, outrider.Drop))
def test_choices_that_are_none_are_refused(choice):
    with pytest.raises(ConfigError, match="on_failure"):
        outrider.Processes(on_failure=choice)


def test_fresh_seeds_are_distinct():
    seeds = [fresh_seed(seed, lane, k, n) for seed in (0, 1) for lane in (0, 1) for k in range(3) for n in range(3)]
    assert len(set(seeds)) == len(seeds)
    assert fresh_seed(None, 0, 1, 0) != fresh_seed(None, 0, 1, 0)
    assert fresh_seed(3, 1, 0, 2) == fresh_seed(3, 1, 0, 2)


# -- as users see it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", (2, 40_000))
@pytest.mark.parametrize("mode", ("SameStep", "NextStep", "Disabled"))
@pytest.mark.parametrize("fault", ("raise", "kill"))
def test_a_step_that_is_lost_looks_truncated(fault, mode, width, tmp_path):
    factories = [functools.partial(WideEnv, width, tmp_path / str(lane)) for lane in range(2)]
    factories.append(functools.partial(WideEnv, width, tmp_path / "2", fault, (3, 5)))
    backend = outrider.Processes(3, "fork", on_failure=outrider.Restart())
    with outrider.make_vec(factories, backend=backend, autoreset_mode=mode) as envs:
        envs.reset(seed=1)
        actions = np.zeros(3, np.int64)
        before = [envs.step(actions) for _ in range(2)][-1][0]
        kept = before.copy()
        with told("restarted"):
            obs, reward, terminated, truncated, infos = envs.step(actions)
        assert (before == kept).all()
        assert (reward[2], terminated.tolist(), truncated.tolist()) == (0, [False] * 3, [False, False, True])
        assert (obs[:2, 1] == 3).all()
        assert obs[2, 1] == 0
        assert obs[2, 0] != before[2, 0]
        assert (infos["final_obs"][2] == before[2]).all()
        assert infos["_final_obs"].tolist() == infos["restarted"].tolist() == [False, False, True]
        assert infos["seeded"][2]
        # The episode of the new environment has begun, whatever the mode.
        assert envs.step(actions)[0][:, 1].tolist() == [4, 4, 1]
        with told("restarted"):
            assert envs.step(actions)[0][:, 1].tolist() == [5, 5, 0]


class WideEnv(ManyLivesEnv):
    """Large observations are lent, small ones copied."""

    def __init__(self, width, *arguments):
        super().__init__(*arguments)
        self.width = width
        self.observation_space = spaces.Box(0.0, np.inf, (width,), np.float64)

    def observation(self):
        return np.resize(super().observation(), self.width)


def test_what_arrives_apart_may_be_lost(tmp_path):
    with make(lives(tmp_path, "raise", (2,)), outrider.Restart(), wait_for=4) as envs:
        envs.reset()
        envs.step(np.zeros(4, np.int64))
        envs.send(np.zeros(4, np.int64), [3, 2, 1, 0], hold=True)
        with told("restarted"):
            arrival = envs.recv()
        assert arrival.lost == arrival.ended == [2]
        assert arrival.obs[:, 1].tolist() == [2, 2, 0, 2]
        assert arrival.reward.tolist() == [2, 2, 0, 2]
        assert arrival.truncated.tolist() == [False, False, True, False]
        assert arrival.final_obs[:, 1].tolist() == [1]
        # What is dropped is lost all the same, and lanes that are not reset show where they stand.
        envs.send(np.zeros(1, np.int64), [2])
        mask = np.array([True, False, False, False])
        assert envs.reset(options={"reset_mask": mask})[0][:, 1].tolist() == [0, 2, 1, 2]


def test_gymnasiums_face_cannot_do_with_fewer_lanes(tmp_path):
    with make(lives(tmp_path, "raise", (1,)), outrider.Drop()) as envs:
        envs.reset()
        with told("lane 2 is dropped"), pytest.raises(EnvironmentFailure, match="told to fail") as caught:
            envs.step(np.zeros(4, np.int64))
        assert "lane 2 was dropped" in caught.value.__notes__[0]
        assert envs.dropped == (2,)
        for use in (lambda: envs.step(np.zeros(4, np.int64)), envs.reset, lambda: envs.get_attr("count")):
            with pytest.raises(ConfigError, match=r"lanes \[2\].*`envs.dropped`"):
                use()
        assert envs.at([0, 3]).get_attr("count") == (1, 1)
        with pytest.raises(ConfigError, match=r"lanes \[2\]"):
            envs.send(np.zeros(2, np.int64), [2, 3])
        # With the others one can go on.
        envs.send(np.zeros(3, np.int64), [0, 1, 3])
        assert envs.recv().obs[:, 1].tolist() == [2, 2, 2]


def test_the_last_lane_under_way_may_be_dropped(tmp_path):
    with make(lives(tmp_path, "raise", (1,)), outrider.Drop()) as envs:
        envs.reset()
        envs.send(np.zeros(1, np.int64), [2])
        with told("dropped"):
            arrival = envs.recv()
        assert (list(arrival.dropped), len(arrival.obs), arrival.env_id.tolist()) == ([2], 0, [])
