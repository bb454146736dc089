"""Texts, sequences and graphs from environments to records, the same wherever the environments run."""

import dataclasses

import numpy as np
import pytest
from gymnasium import spaces

import outrider
from outrider import tree
from outrider.errors import ConfigError, EnvironmentFailure
from outrider.seeding import lane_seed
from outrider.testing.envs import CASES, Sampled, make_case, same

LANES = 3
RAGGED = ("text", "graph", "stack", "ragged")


def policy_of(case):
    return lambda: outrider.RandomPolicy(CASES[case][1])


def gathered(collector):
    """What a collector returns, in all the ways in which it can."""
    return [
        collector.rollout(20),
        collector.steps(2 * LANES * 20 + 5),
        collector.episodes(LANES + 1, quota="per_env"),
        collector.rollout(7),
    ]


def columns(record):
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.init}


@pytest.fixture(scope="module")
def expected():
    found = {}
    for case in RAGGED:
        with outrider.make_vec(make_case(case), LANES) as envs:
            found[case] = [columns(one) for one in gathered(outrider.Collector(envs, policy_of(case)(), seed=4))]
    return found


@pytest.mark.parametrize("case", RAGGED)
def test_rows_are_what_the_environment_returned(case, expected):
    rollout = outrider.Rollout(**expected[case][0])
    rollout.check()
    for lane in range(LANES):
        env, actions = make_case(case)(), tree.take(rollout.action, (slice(None), lane))
        true, end = [env.reset(seed=lane_seed(4, lane))[0]], []
        for t in range(20):
            action = tree.map(lambda leaf, t=t: leaf[t], actions)
            obs, _, terminated, truncated, _ = env.step(action)
            assert_row(rollout.next_obs, (t, lane), obs)
            if terminated or truncated:
                end.append(t)
                obs = env.reset()[0]
            true.append(obs)
        assert end == np.flatnonzero(rollout.ended[:, lane]).tolist()
        for t, obs in enumerate(true):
            assert_row(rollout.obs, (t, lane), obs)


def assert_row(batch, place, obs):
    """Whether a row of a tree of arrays is this observation."""
    if isinstance(batch, dict):
        assert batch.keys() == obs.keys()
        for key, part in batch.items():
            assert_row(part, place, obs[key])
    elif isinstance(batch, tuple):
        for part, value in zip(batch, obs, strict=True):
            assert_row(part, place, value)
    else:
        found = batch[place]
        assert same(found, obs) if batch.dtype == np.object_ else np.array_equal(found, obs)


@pytest.mark.parametrize(
    "backend",
    (
        outrider.Threads(2),
        outrider.Processes(2, "fork"),
        outrider.Processes(2, "forkserver"),
        outrider.Processes(2, "fork", on_failure=outrider.Restart()),
    ),
    ids=repr,
)
def test_backends_return_the_same(backend, expected):
    for case in ("graph", "ragged"):
        with outrider.make_vec(make_case(case), LANES, backend=backend) as envs:
            found = gathered(outrider.Collector(envs, policy_of(case)(), seed=4))
        for one, columns_ in zip(found, expected[case], strict=True):
            assert same(columns(one), columns_)


@pytest.mark.parametrize("case", ("text", "ragged"))
def test_policies_in_workers_see_and_hand_over_the_same(case, expected):
    plan = outrider.Envs(make_case(case), LANES)
    backend = outrider.Processes(start_method="fork")
    with outrider.ParallelCollector(plan, policy_of(case), workers=2, backend=backend, seed=4) as collector:
        for one, columns_ in zip(gathered(collector), expected[case], strict=True):
            assert same(columns(one), columns_)


def test_the_first_to_finish_bring_their_texts():
    with outrider.make_vec(make_case("ragged"), 4, backend=outrider.Processes(2, "fork", wait_for=1)) as envs:
        references = [make_case("ragged")() for _ in range(4)]
        envs.send_reset(seeds=[0, 1, 2, 3])
        steps = np.zeros(4, np.int64) - 1
        while steps.min() < 20:
            back = envs.recv()
            for place, lane in enumerate(back.env_id.tolist()):
                env = references[lane]
                if steps[lane] < 0:
                    obs = env.reset(seed=lane)[0]
                else:
                    obs, _, terminated, truncated, _ = env.step(1)
                    if lane in back.ended:
                        assert terminated or truncated
                        assert_row(back.final_obs, back.ended.index(lane), obs)
                        obs = env.reset()[0]
                assert_row(back.obs, place, obs)
            steps[back.env_id] += 1
            envs.send(np.ones(len(back.env_id), np.int64), back.env_id)
        envs.drain()


class Restless(Sampled):
    """Raises in every tenth step of its life."""

    life = 0

    def step(self, action):
        self.life += 1
        if self.life == 10:
            msg = "restless"
            raise RuntimeError(msg)
        return super().step(action)


def test_a_new_environment_begins_with_its_own_text():
    backend = outrider.Processes(1, "fork", on_failure=outrider.Restart())
    with outrider.make_vec(lambda: Restless(*CASES["text"]), 1, backend=backend) as envs:
        collector = outrider.Collector(envs, policy_of("text")(), seed=0)
        with pytest.warns(RuntimeWarning, match="restart"):
            rollout = collector.rollout(25)
        rollout.check()
        assert all(text in CASES["text"][0] for text in rollout.obs.flat)
        assert envs.driver.restarts


def test_values_belong_to_nobody_else():
    """What a policy or a user does to them changes no storage."""
    space = spaces.Dict(
        a=spaces.Sequence(spaces.Box(-1, 1, (2,)), stack=True), b=spaces.Graph(spaces.Box(-1, 1, (2,)), None)
    )
    seen = []

    def act(obs):
        seen.append(obs)
        obs["a"][:] = None
        return np.zeros(2, np.int64)

    for backend in (outrider.Inline(), outrider.Processes(2, "fork")):
        with outrider.make_vec(lambda: Sampled(space, spaces.Discrete(2)), 2, backend=backend) as envs:
            rollout = outrider.Collector(envs, act, seed=0).rollout(5)
        assert all(value is not None for value in rollout.obs["a"].flat)
        for value in (rollout.obs["a"][0, 0], rollout.obs["b"][0, 0].nodes):
            with pytest.raises(ValueError, match="read-only"):
                value[:] = 0


@pytest.mark.parametrize("backend", (outrider.Inline(), outrider.Processes(2, "fork")), ids=repr)
def test_values_of_rows_that_are_given_back_are_forgotten(backend):
    with outrider.make_vec(make_case("text"), 4, backend=backend) as envs:
        collector = outrider.Collector(envs, policy_of("text")(), seed=0)
        pool = envs.store.pool
        for length in range(1, 60, 3):
            collector.rollout(length)
            collector.steps(30)
            collector.episodes(3)
            kept = pool.rows_out + sum(rows for _, rows, _ in pool._warm)
            assert max(leaf.held for leaf in envs.store.ragged) <= kept <= 6 * 4 * 130
        collector.close()
        envs.trim()
        # What is left are the rows for which there is always a place.
        assert max(leaf.held for leaf in envs.store.ragged) <= 4 * 4


def test_workers_of_policies_forget_them_as_well():
    plan = outrider.Envs(make_case("text"), 4)
    backend = outrider.Processes(start_method="fork")
    with outrider.ParallelCollector(plan, policy_of("text"), workers=2, backend=backend, seed=0) as collector:
        held = []
        for _ in range(30):
            collector.rollout(16)
            held.append(collector._store.ragged[0].held)
        assert max(held[15:]) <= max(held[:15])


@pytest.mark.parametrize(
    ("space", "bad", "match"),
    (
        (spaces.Text(5), b"bytes", "observation: expected a str, found bytes"),
        (spaces.Dict(a=spaces.Text(5)), {"a": 3}, "'a': expected a str, found int 3"),
        (spaces.Sequence(spaces.Discrete(3)), 3, r"expected a tuple of elements"),
        (spaces.Dict(a=spaces.Sequence(spaces.Discrete(3))), {"a": (1, 1.5)}, r"'a/\*': expected an integer"),
        (spaces.Dict(a=spaces.Sequence(spaces.Box(-1, 1, (2,)))), {"a": (np.zeros(2),)}, r"'a/\*'.*float32.*float64"),
        (spaces.Sequence(spaces.Box(-1, 1, (2,)), stack=True), np.zeros((3, 1), np.float32), r"shape \(n, 2\)"),
        (spaces.Sequence(spaces.Box(-1, 1, (2,)), stack=True), (np.zeros(2, np.float32),), r"shape \(n, 2\)"),
        (
            spaces.Sequence(spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2)), stack=True),
            {"a": np.zeros(2, int), "b": np.zeros(3, int)},
            r"equal length, found lengths \[2, 3\]",
        ),
        (spaces.Graph(spaces.Discrete(3), None), (np.zeros(2, int), None, None), "expected a GraphInstance"),
        (
            spaces.Dict(g=spaces.Graph(spaces.Discrete(3), None)),
            {"g": spaces.GraphInstance(np.zeros(2, int), np.zeros(1, int), np.zeros((1, 2), int))},
            "'g': expected a graph without edges",
        ),
        (
            spaces.Dict(g=spaces.Graph(spaces.Discrete(3), spaces.Discrete(3))),
            {"g": spaces.GraphInstance(np.zeros(2, int), np.zeros(1, int), np.zeros((2, 2), int))},
            r"'g/edge_links': expected shape \(1, 2\)",
        ),
        (
            spaces.Sequence(spaces.Dict(a=spaces.Discrete(2))),
            ({"b": 1},),
            r"'/\*'|'\*'",
        ),
    ),
)
def test_what_is_no_member_is_named(space, bad, match):
    class Bad(Sampled):
        def reset(self, *, seed=None, options=None):
            return bad, {}

    with (
        outrider.make_vec(lambda: Bad(space, spaces.Discrete(2)), 1) as envs,
        pytest.raises(EnvironmentFailure, match=match),
    ):
        envs.reset()


@pytest.mark.parametrize("backend", (outrider.Inline(), outrider.Threads(1), outrider.Processes(1, "fork")), ids=repr)
def test_actions_without_a_fixed_size_are_refused(backend):
    space = spaces.Dict(say=spaces.Text(5))
    with pytest.raises(ConfigError, match="action space/say: expected Box"):
        outrider.make_vec(lambda: Sampled(spaces.Text(5), space), 1, backend=backend)
