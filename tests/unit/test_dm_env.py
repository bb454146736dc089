"""dm_env environments as Gymnasium environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import outrider
from outrider.errors import ConfigError, EnvironmentFailure, SpecError
from outrider.interop import from_dm_env
from outrider.testing.envs import Counter

dm_env = pytest.importorskip("dm_env")
specs = dm_env.specs


class Script(dm_env.Environment):
    """Returns time steps from a list, (reward, discount, last) each; its observation counts them."""

    def __init__(self, *steps, observation=None, action=None, discount=None):
        self.steps = steps
        self.observation = observation or specs.BoundedArray((1,), np.float32, 0, 10)
        self.action = action or specs.DiscreteArray(3)
        self.discount = discount
        self.at = 0
        self.received = []
        self.closings = 0

    def observe(self):
        return np.full(1, self.at, np.float32)

    def reset(self):
        self.at = 0
        return dm_env.restart(self.observe())

    def step(self, action):
        self.received.append(action)
        reward, discount, last = self.steps[self.at]
        self.at += 1
        kind = dm_env.StepType.LAST if last else dm_env.StepType.MID
        return dm_env.TimeStep(kind, reward, discount, self.observe())

    def observation_spec(self):
        return self.observation

    def action_spec(self):
        return self.action

    def discount_spec(self):
        return self.discount or super().discount_spec()

    def close(self):
        self.closings += 1


@pytest.mark.parametrize(
    ("discount", "flags"),
    ((0.0, (True, False)), (1.0, (False, True)), (0.9, (False, True)), (np.float32(0), (True, False))),
)
def test_the_discount_of_the_last_step_says_how_it_ended(discount, flags):
    env = from_dm_env(Script((1.0, 1.0, False), (2.0, 0.0, False), (3.0, discount, True)))
    observation, info = env.reset()
    assert (observation.tolist(), info) == ([0], {})
    assert env.step(0)[1:] == (1.0, False, False, {"discount": 1.0})
    # A discount of 0 in mid-sequence ends nothing.
    assert env.step(0)[1:] == (2.0, False, False, {"discount": 0.0})
    assert env.step(0)[1:] == (3.0, *flags, {"discount": pytest.approx(float(discount))})
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    assert env.reset()[0].tolist() == [0]


class Plain(specs.Array):
    pass


NESTED = {
    "position": specs.BoundedArray((2,), np.float64, -1.0, [1.0, 2.0]),
    "speed": specs.Array((), np.float32),
    "seen": specs.Array((3,), np.bool_),
    "level": specs.Array((2,), np.int16),
    "kinds": [specs.DiscreteArray(4), specs.StringArray(())],
    "place": (specs.BoundedArray((1,), np.uint8, 0, 255),),
}


def test_specs_become_spaces():
    env = from_dm_env(
        Script(
            observation=NESTED,
            action={"move": specs.BoundedArray((2,), np.float32, -1, 1), "fire": [specs.DiscreteArray(2)]},
        )
    )
    kinds = env.observation_space["kinds"]
    assert isinstance(kinds[1], spaces.Text)
    assert env.observation_space["position"] == spaces.Box(
        np.array([-1.0, -1.0]), np.array([1.0, 2.0]), dtype=np.float64
    )
    assert env.observation_space["speed"] == spaces.Box(-np.inf, np.inf, (), np.float32)
    assert env.observation_space["seen"] == spaces.MultiBinary((3,))
    assert env.observation_space["level"] == spaces.Box(-(2**15), 2**15 - 1, (2,), np.int16)
    assert kinds[0] == spaces.Discrete(4)
    assert env.observation_space["place"] == spaces.Tuple([spaces.Box(0, 255, (1,), np.uint8)])
    move = spaces.Box(-1, 1, (2,), np.float32)
    assert env.action_space == spaces.Dict(move=move, fire=spaces.Tuple([spaces.Discrete(2)]))


def test_values_become_members_of_the_spaces_and_back():
    class Nested(Script):
        def observe(self):
            return {
                "position": np.array([0.5, 1.5]),
                "speed": 2.0,
                "seen": np.array([True, False, True]),
                "level": np.array([3, 4], np.int16),
                "kinds": [np.int32(2), "door"],
                "place": (np.array([7], np.uint8),),
            }

    action = {"move": specs.BoundedArray((2,), np.float32, -1, 1), "fire": [specs.DiscreteArray(2)]}
    inner = Nested((1.0, 1.0, False), observation=NESTED, action=action)
    env = from_dm_env(inner)
    observation = env.reset()[0]
    # A Text space knows letters alone: the rest is a member.
    assert observation["kinds"] == (2, "door")
    assert all(env.observation_space[key].contains(observation[key]) for key in ("position", "seen", "level", "place"))
    assert (observation["speed"].dtype, observation["seen"].dtype) == (np.float32, np.int8)
    env.step({"move": np.zeros(2, np.float32), "fire": (np.int64(1),)})
    received = inner.received[0]
    assert (received["fire"][0], received["fire"][0].dtype, type(received["fire"])) == (1, np.int32, list)
    assert received["move"].dtype == np.float32


def test_it_is_collected_like_any_other_environment():
    def make():
        return from_dm_env(
            Script((1.0, 1.0, False), (2.0, 1.0, False), (3.0, 0.0, True)), seeder=lambda env, seed: None
        )

    plan = outrider.Envs(make, 2, info_keys=("discount",))
    with outrider.make_vec(plan) as envs:
        collector = outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=1)
        rollout = collector.rollout(6)
    assert rollout.reward[:, 0].tolist() == [1, 2, 3, 1, 2, 3]
    assert rollout.terminated[:, 1].tolist() == [False, False, True] * 2
    assert rollout.next_obs[:, 0, 0].tolist() == [1, 2, 3, 1, 2, 3]
    assert rollout.info["discount"][:, 0].tolist() == [1, 1, 0] * 2


def test_seeds_reach_environments_that_can_be_told():
    seeds = []
    env = from_dm_env(Script(), seeder=lambda inner, seed: seeds.append((inner, seed)))
    env.reset(seed=5)
    env.reset()
    assert seeds == [(env.environment, 5)]
    with pytest.warns(UserWarning, match="seeder"):
        from_dm_env(Script()).reset(seed=5)
    with pytest.raises(ConfigError, match="options"):
        env.reset(options={"level": 1})


@pytest.mark.parametrize(
    "step",
    (
        dm_env.restart(np.zeros(1, np.float32)),
        dm_env.TimeStep(dm_env.StepType.MID, None, 1.0, np.zeros(1, np.float32)),
        dm_env.TimeStep(dm_env.StepType.LAST, 1.0, None, np.zeros(1, np.float32)),
    ),
)
def test_time_steps_that_cannot_be_are_refused(step):
    class Odd(Script):
        def step(self, action):
            return step

    env = from_dm_env(Odd())
    env.reset()
    with pytest.raises(SpecError, match="middle or last"):
        env.step(0)


def test_what_is_no_single_environment_is_refused():
    with pytest.raises(ConfigError, match="Counter"):
        from_dm_env(Counter())
    for bad in (
        {"observation": specs.Array((2,), np.complex64)},
        {"action": object()},
        {"discount": specs.Array((2,), float)},
    ):
        with pytest.raises(ConfigError, match="from_dm_env: "):
            from_dm_env(Script(**bad))
    with pytest.raises(EnvironmentFailure, match="Script"):
        outrider.make_vec(Script, 2)


def test_closing_closes_it():
    inner = Script()
    from_dm_env(inner).close()
    assert inner.closings == 1
