"""Vector environments of Gymnasium's API that somebody else has made, taken as they are."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

import outrider
from helpers.counter_batch import LAYOUTS, CounterBatch, ForeignArray
from helpers.envs import CounterEnv, FaultyEnv, RandomLengthEnv
from outrider.errors import ClosedError, ConfigError, EnvironmentFailure, OutriderError
from outrider.testing.envs import CASES, make_case, same
from outrider.vector.driver import RESET, STEP, STEP_AND_HOLD
from outrider.vector.group import ALL_INFOS, SOME_INFOS

MODES = tuple(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = MODES
ONES = np.ones(2, np.int64)


def counters(mode, lengths=(3, 3)):
    return SyncVectorEnv([lambda length=length: CounterEnv(length) for length in lengths], autoreset_mode=mode)


def transitions(envs, steps, op=STEP):
    """(lane, obs, next obs) of all valid steps of all lanes: next obs is the true one."""
    found = []
    before = envs.reset()[0][:, 0]
    actions = envs.action_space.sample()
    for _ in range(steps):
        envs.send(actions)
        arrival = envs.recv()
        now = arrival.obs[:, 0].copy()
        after = now.copy()
        after[arrival.ended] = arrival.final_obs[:, 0]
        found += [(lane, before[lane], after[lane]) for lane in range(envs.num_envs) if lane not in arrival.dummies]
        before = now
    return found


# -- the three modes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "valid"), ((NEXT_STEP, 12), (SAME_STEP, 16), (DISABLED, 16)))
def test_eight_steps_of_two_counters_of_length_three(mode, valid):
    with outrider.make_vec(counters(mode)) as envs:
        found = transitions(envs, 8)
    assert len(found) == valid
    assert all(after == before + 1 for _, before, after in found)


@pytest.mark.parametrize("num_envs", (1, 4))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", tuple(CASES))
def test_the_gymnasium_face_is_that_of_the_source(case, mode, num_envs):
    theirs = SyncVectorEnv([make_case(case)] * num_envs, autoreset_mode=mode)
    with outrider.make_vec(SyncVectorEnv([make_case(case)] * num_envs, autoreset_mode=mode)) as ours:
        assert ours.num_envs == num_envs
        assert ours.metadata["autoreset_mode"] == mode
        assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
        assert same(ours.reset(seed=3), theirs.reset(seed=3))
        theirs.action_space.seed(5)
        ends = 0
        for _ in range(60):
            actions = theirs.action_space.sample()
            mine = ours.step(actions)
            assert same(mine, theirs.step(actions))
            ended = mine[2] | mine[3]
            ends += int(ended.sum())
            if mode == DISABLED and ended.any():
                mask = {"reset_mask": ended}
                assert same(ours.reset(options=dict(mask)), theirs.reset(options=dict(mask)))
        assert ends > 0
    theirs.close()


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_those_of_the_same_environments_inline(mode):
    # In next-step mode the dummy steps fall out, and the others see the same actions: none, for these environments.
    factories = [RandomLengthEnv] * 4
    with (
        outrider.make_vec(factories) as inline,
        outrider.make_vec(SyncVectorEnv(factories, autoreset_mode=mode)) as envs,
    ):
        for some in (inline, envs):
            some.send_reset(seeds=[5, 6, 7, 8])
            some.recv()
        per_lane = [{lane: [] for lane in range(4)} for _ in range(2)]
        for some, rows in zip((inline, envs), per_lane, strict=True):
            for _ in range(60):
                some.send(np.zeros(4, np.int64))
                arrival = some.recv()
                finals = dict(zip(arrival.ended, arrival.final_obs, strict=True))
                for lane in range(4):
                    if lane not in arrival.dummies:
                        row = finals.get(lane, arrival.obs[lane]).tolist(), bool(arrival.terminated[lane])
                        rows[lane].append(row)
    for lane in range(4):
        short = min(len(rows[lane]) for rows in per_lane)
        assert short >= 30
        assert per_lane[0][lane][:short] == per_lane[1][lane][:short]


def test_workers_of_gymnasium_are_a_source_too():
    source = AsyncVectorEnv([lambda: CounterEnv(3)] * 2, autoreset_mode=SAME_STEP, shared_memory=False)
    with outrider.make_vec(source) as envs:
        assert len(transitions(envs, 8)) == 16
        assert envs.get_attr("length") == (3, 3)
    assert source.closed


def test_vectorised_environments_of_gymnasium_are_a_source_too():
    source = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    theirs = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    with outrider.make_vec(source) as ours:
        assert ours.name == "CartPole-v1"
        assert same(ours.reset(seed=4), theirs.reset(seed=4))
        for step in range(60):
            actions = np.full(3, step % 3 == 0, np.int64)
            mine, other = ours.step(actions), theirs.step(actions)
            assert same(mine[0], other[0])
            assert all(same(a, np.asarray(b, a.dtype)) for a, b in zip(mine[1:4], other[1:4], strict=True))
    theirs.close()


def test_a_wrapped_source_is_a_source():
    source = wrappers.ClipReward(counters(NEXT_STEP), 0.0, 0.5)
    with outrider.make_vec(source) as envs:
        envs.reset()
        assert envs.step(ONES)[1].tolist() == [0.5, 0.5]
    assert source.env.closed


# -- layouts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", (None, ForeignArray))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_last_observations_of_every_layout(layout, wrap):
    source = CounterBatch((2, 3), SAME_STEP, layout, wrap=wrap)
    with outrider.make_vec(outrider.Envs(source, info_keys=("twice",))) as envs:
        envs.reset(seed=8)
        found = []
        for _ in range(3):
            envs.post(envs.lanes, envs._scratch_rows, STEP, SOME_INFOS)
            arrival = envs._recv(None)
            twice = [arrival.info[lane]["twice"] for lane in range(2)]
            finals = arrival.final_obs["count"][:, 0].tolist() if arrival.ended else []
            found.append((arrival.obs["count"][:, 0].tolist(), arrival.ended, finals, arrival.blind, twice))
        assert arrival.obs["seed"].tolist() == [8, 8]
    counts = [([1, 1], [], [2, 2]), ([0, 2], [0], [4, 4]), ([1, 0], [1], [2, 6])]
    for (obs, ended, finals, blind, twice), (counted, ends, doubled) in zip(found, counts, strict=True):
        assert (obs, ended, twice) == (counted, ends, doubled)
        if layout == "nothing":
            assert blind == ends
        else:
            assert blind == []
            assert finals == [float(source.lengths[lane]) for lane in ends]


def test_a_mode_that_is_not_told_is_next_step_with_a_warning():
    source = CounterBatch((2, 2))
    source.metadata = {}
    with pytest.warns(UserWarning, match="NEXT_STEP"):
        envs = outrider.make_vec(source)
    with envs:
        assert envs.metadata["autoreset_mode"] == NEXT_STEP
        envs.reset()
        assert [envs.step(ONES)[0]["count"][0, 0] for _ in range(4)] == [1, 2, 0, 1]


def test_a_source_that_turns_out_to_be_same_step_is_refused_by_name():
    source = CounterBatch((2, 2), SAME_STEP)
    source.metadata = {}
    with pytest.warns(UserWarning, match="NEXT_STEP"):
        envs = outrider.make_vec(source)
    with envs:
        envs.reset()
        envs.step(ONES)
        with pytest.raises(EnvironmentFailure, match="SAME_STEP"):
            envs.step(ONES)


def test_what_a_source_writes_to_again_is_copied():
    with outrider.make_vec(CounterBatch((9, 9), SAME_STEP)) as envs:
        kept = [envs.reset()[0]["count"], *[envs.step(ONES)[0]["count"] for _ in range(3)]]
        rewards = [envs.step(ONES)[1] for _ in range(2)]
        infos = [envs.step(ONES)[-1]["twice"] for _ in range(2)]
    assert [batch[0, 0] for batch in kept] == [0, 1, 2, 3]
    assert [batch[0] for batch in rewards] == [4, 5]
    assert [batch[0] for batch in infos] == [12, 14]


# -- resets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_seeds_options_and_masks_reach_sources_that_take_them(mode):
    theirs = SyncVectorEnv([make_case("floats")] * 3, autoreset_mode=mode)
    mask = np.array([True, False, True])
    with outrider.make_vec(SyncVectorEnv([make_case("floats")] * 3, autoreset_mode=mode)) as ours:
        for seed, options in (
            ([1, 2, 9], {"level": 2}),
            (9, None),
            ([5, 6, 7], {"reset_mask": mask, "level": 1}),
            (4, {"reset_mask": mask}),
        ):
            expected = theirs.reset(seed=seed, options=None if options is None else dict(options))
            assert same(ours.reset(seed=seed, options=options), expected)
    theirs.close()


def test_a_source_that_takes_one_seed_gets_that_of_lane_0():
    source = CounterBatch((3, 3))
    with outrider.make_vec(source) as envs:
        envs.reset(seed=5)
        envs.reset(seed=[7, 3])
        assert [call[1] for call in source.calls] == [5, 7]
        for refused in ({"seed": [None, 3]}, {"options": {"reset_mask": np.array([True, False])}}):
            with pytest.raises(ConfigError):
                envs.reset(**refused)
        envs.step(ONES)
        envs.reset(options={"level": 3})
    assert source.calls[-1] == ("reset", None, {"level": 3}, [True, True])


@pytest.mark.parametrize("mode", MODES)
def test_held_lanes_go_along_and_are_reset_when_their_turn_comes(mode):
    with outrider.make_vec(counters(mode, (2, 5))) as envs:
        envs.reset()
        for _ in range(2):
            envs.send(np.zeros(2, np.int64), hold=True)
            arrival = envs.recv()
        assert (arrival.obs[:, 0].tolist(), arrival.ended, arrival.final_obs.tolist()) == ([2, 2], [0], [[2]])
        # Lane 0 is over: lane 1 goes on alone, and nothing is seen of what lane 0 does meanwhile.
        for count in (3, 4):
            envs.send(np.zeros(1, np.int64), [1], hold=True)
            arrival = envs.recv()
            assert (arrival.env_id.tolist(), arrival.obs[:, 0].tolist()) == ([1], [count])
        # Both in one request: a step, and a reset.
        rows = envs._own_rows(np.arange(2))
        envs.post(np.arange(2), rows, np.array([RESET, STEP_AND_HOLD], np.int8), ALL_INFOS)
        arrival = envs._recv(None)
        assert (arrival.obs[:, 0].tolist(), arrival.ended, arrival.dummies) == ([0, 5], [1], [])
        envs.send_reset([1])
        assert envs.recv().obs[:, 0].tolist() == [0]
        assert envs.step(np.zeros(2, np.int64))[0][:, 0].tolist() == [1, 1]


def test_a_held_lane_that_is_reset_in_the_next_step_loses_nothing():
    # What the source does by itself in that step is the reset: no second one is asked for.
    source = CounterBatch((1, 4))
    with outrider.make_vec(source) as envs:
        envs.reset()
        envs.send(ONES, hold=True)
        envs.recv()
        envs.post(np.arange(2), envs._own_rows(np.arange(2)), np.array([RESET, STEP], np.int8), ALL_INFOS)
        arrival = envs._recv(None)
        assert (arrival.obs["count"][:, 0].tolist(), arrival.dummies) == ([0, 2], [])
    assert [call[0] for call in source.calls] == ["reset", "step", "step"]


def test_infos_of_ends_and_of_resets_are_told_apart():
    class Telling(CounterEnv):
        def reset(self, **arguments):
            return super().reset(**arguments)[0], {"at": 0}

        def step(self, action):
            *step, _ = super().step(action)
            return *step, {"at": self.count}

    for mode in MODES:
        source = SyncVectorEnv([lambda: Telling(2)] * 2, autoreset_mode=mode)
        with outrider.make_vec(outrider.Envs(source, info_keys=("at",))) as envs:
            envs.reset()
            for op, held in ((STEP, False), (STEP_AND_HOLD, True)):
                for at in (1, 2):
                    envs.post(envs.lanes, envs._scratch_rows, op, SOME_INFOS)
                    arrival = envs._recv(None)
                    ends = at == 2
                    stays = mode == NEXT_STEP or held or not ends
                    assert arrival.info[0] == {"at": at if stays else 0}, (mode, held, at)
                    if ends and not stays:
                        assert arrival.final_info[0] == {"at": 2}
                envs.reset()


# -- what is refused -------------------------------------------------------------------------------------------------


def test_lanes_step_together_or_not_at_all():
    with outrider.make_vec(counters(NEXT_STEP, (5, 5, 5))) as envs:
        with pytest.raises(ConfigError, match=r"lanes \[0, 1, 2\] without"):
            envs.send(np.zeros(3, np.int64))
        envs.reset()
        for refused in (lambda: envs.send(ONES, [0, 2]), lambda: envs.send(ONES[:1], [1])):
            with pytest.raises(ConfigError, match="step together"):
                refused()
        assert envs.step(np.zeros(3, np.int64))[0][:, 0].tolist() == [1, 1, 1]
        envs.send(np.zeros(3, np.int64))
        with pytest.raises(OutriderError, match="recv"):
            envs.send_reset()
        assert envs.recv().obs[:, 0].tolist() == [2, 2, 2]


def test_several_requests_become_one_step_of_the_source():
    source = CounterBatch((2, 5, 5))
    with outrider.make_vec(source) as envs:
        envs.reset()
        for _ in range(2):
            envs.send(np.ones(3, np.int64), hold=True)
            envs.recv()
        # Lane 0 is reset by the step of the others, which has not been sent yet: so far nobody can reset it alone.
        envs.send_reset([0])
        with pytest.raises(ConfigError, match="step the others"):
            envs.recv()
        envs.send(np.ones(2, np.int64), [1, 2])
        arrival = envs.recv()
        assert arrival.env_id.tolist() == [0, 1, 2]
        assert arrival.obs["count"][:, 0].tolist() == [0, 3, 3]
        # The oldest request comes first.
        for _ in range(2):
            envs.send(np.ones(3, np.int64), hold=True)
            envs.recv()
        envs.send_reset([1, 2])
        envs.send(np.ones(1, np.int64), [0])
        arrival = envs.recv()
        assert arrival.env_id.tolist() == [1, 2, 0]
        assert arrival.obs["count"][:, 0].tolist() == [0, 0, 0]
        assert (arrival.ended, arrival.dummies) == ([], [0])
    assert [call[0] for call in source.calls] == ["reset", *["step"] * 6]


def test_what_makes_no_sense_is_refused_before_anything_is_touched():
    source = counters(SAME_STEP)
    closed = counters(SAME_STEP)
    closed.close()
    odd = counters(SAME_STEP)
    odd.metadata = {"autoreset_mode": "sometimes"}
    with outrider.make_vec(CounterEnv, 2) as ours:
        for match, refused in {
            "num_envs=2": lambda: outrider.make_vec(source, 3),
            "run where they were made": lambda: outrider.make_vec(source, backend=outrider.Processes(2)),
            "auto": lambda: outrider.make_vec(source, backend=outrider.Inline()),
            "max_episode_steps": lambda: outrider.Envs(source, max_episode_steps=5),
            "closed": lambda: outrider.make_vec(closed),
            "VecEnv": lambda: outrider.make_vec(ours),
            "autoreset_mode": lambda: outrider.make_vec(odd),
            "SAME_STEP": lambda: outrider.make_vec(source, autoreset_mode="NextStep"),
            "instance of SyncVectorEnv": lambda: outrider.make_vec([source, source]),
        }.items():
            with pytest.raises(ConfigError, match=match):
                refused()
    with outrider.make_vec(source, 2, autoreset_mode="SameStep") as envs:
        with pytest.raises(ConfigError, match="given to make_vec before"):
            outrider.make_vec(source)
        envs.reset()
    odd.close()


def test_a_factory_of_batches_is_refused_by_name():
    made = []

    def batch():
        made.append(counters(SAME_STEP))
        return made[-1]

    with pytest.raises(EnvironmentFailure, match=r"single gymnasium\.Env, found SyncVectorEnv"):
        outrider.make_vec(batch, 2)
    made[0].close()


def test_plans_of_batches_do_not_go_to_workers():
    plan = outrider.Envs(counters(SAME_STEP))
    assert (plan.num_envs, plan.name) == (2, "SyncVectorEnv")
    with pytest.raises(ConfigError, match="where it was made"):
        outrider.ParallelCollector(plan, lambda: outrider.RandomPolicy(CounterEnv().action_space), workers=2)
    plan.batch.close()


# -- errors and closing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ("reset", "step", "close"))
def test_errors_of_the_source_name_the_operation(where):
    source = SyncVectorEnv([lambda: FaultyEnv("raise", where, at=1 if where != "close" else 0)] * 2)
    envs = outrider.make_vec(source)
    envs.reset()
    use = {"reset": envs.reset, "step": lambda: [envs.step(ONES) for _ in range(2)], "close": envs.close}[where]
    with pytest.raises(EnvironmentFailure, match=f"SyncVectorEnv, {where}, process") as caught:
        use()
    assert (caught.value.lane, caught.value.operation) == (-1, where)
    assert "FaultyEnv was told to fail" in str(caught.value)
    assert "in fail_in" in str(caught.value), "the original traceback"
    if where != "close":
        with pytest.raises(ClosedError):
            envs.reset()
    envs.close()


@pytest.mark.parametrize("spoil", ("reward", "flag", "shape", "dtype", "key"))
def test_what_the_source_returns_is_checked(spoil):
    class Spoilt(CounterBatch):
        def step(self, actions):
            obs, reward, terminated, truncated, infos = super().step(actions)
            obs = {
                "shape": {**obs, "count": self.count[:1]},
                "dtype": {**obs, "count": self.count.astype(np.float64)},
                "key": {"count": self.count},
            }.get(spoil, obs)
            reward = reward[:1] if spoil == "reward" else reward
            return obs, reward, terminated[:1] if spoil == "flag" else terminated, truncated, infos

    with outrider.make_vec(Spoilt()) as envs:
        envs.reset()
        with pytest.raises(EnvironmentFailure, match=r"batch of observations|rewards|terminations"):
            envs.step(ONES)


def test_the_source_is_closed_once():
    source = CounterBatch()
    envs = outrider.make_vec(source)
    envs.reset()
    envs.close()
    envs.close()
    assert source.closings == 1


def test_attributes_of_lanes():
    with outrider.make_vec(counters(NEXT_STEP)) as envs:
        envs.reset()
        envs.set_attr("length", [4, 5])
        assert envs.get_attr("length") == (4, 5)
        assert envs.at([1]).get_attr("length") == (5,)
        assert envs.call("observation")[0].tolist() == [0]
        with pytest.raises(ConfigError, match="all lanes"):
            envs.at([1]).set_attr("length", 7)
        with pytest.raises(EnvironmentFailure, match="no_such_thing"):
            envs.get_attr("no_such_thing")
        envs.step(ONES)
    with outrider.make_vec(CounterBatch()) as envs, pytest.raises(ConfigError, match="get_attr"):
        envs.get_attr("lengths")


class Teller(gymnasium.Env):
    """Has leaves of no fixed size."""

    def __init__(self):
        bag = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(9))
        self.observation_space = gymnasium.spaces.Dict(words=gymnasium.spaces.Text(20), bag=bag)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.count = 0

    def observation(self):
        return {"words": f"step {self.count}", "bag": tuple(np.arange(self.count))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation(), {}

    def step(self, action):
        self.count += 1
        return self.observation(), 1.0, self.count >= 2, False, {}


@pytest.mark.parametrize("mode", MODES)
def test_ragged_leaves_come_through(mode):
    with outrider.make_vec(SyncVectorEnv([Teller] * 2, autoreset_mode=mode)) as envs:
        assert envs.reset()[0]["words"] == ("step 0", "step 0")
        for _ in range(2):
            envs.send(np.zeros(2, np.int64))
            arrival = envs.recv()
        first = 2 if mode == NEXT_STEP else 0
        assert arrival.obs["words"].tolist() == [f"step {first}"] * 2
        assert arrival.obs["bag"].tolist() == [tuple(range(first))] * 2
        assert arrival.final_obs["words"].tolist() == ["step 2"] * 2
        assert arrival.final_obs["bag"].tolist() == [(0, 1)] * 2
