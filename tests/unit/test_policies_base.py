"""Policies by hand: the base class, functions as policies, what is refused."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from outrider.errors import ConfigError, PolicyError
from outrider.policies.base import Context, Policy
from outrider.policies.function import FunctionPolicy, as_policy

OBS = np.ones((3, 2))


class Left(Policy):
    def act(self, obs, state, ctx):
        return {"action": np.zeros(len(obs), np.int64)}


def test_defaults_of_the_base_class():
    policy = Left()
    assert policy.actions is None
    assert policy.initial_state(3) is None
    with policy.session(), policy.session():
        assert policy.act(OBS, None, Context.start(3))["action"].shape == (3,)


def test_a_policy_without_load_takes_no_weights():
    with pytest.raises(PolicyError, match=r"Left, which has no load\(\)"):
        Left().load({"weight": np.zeros(2)})


def test_a_policy_without_act_cannot_be_made():
    class Empty(Policy):
        pass

    with pytest.raises(TypeError, match="act"):
        Empty()


def test_context_of_the_first_decision():
    ctx = Context.start(2, seed=9)
    assert ctx.env_id.tolist() == [0, 1]
    assert ctx.is_first.all()
    assert ctx.step.tolist() == ctx.lane_step.tolist() == [0, 0]
    assert (ctx.obs_info, ctx.seed) == ({}, 9)
    assert not hasattr(ctx, "__dict__")


@pytest.mark.parametrize(
    ("returned", "expected"),
    (
        (1, {"action": 1}),
        ({"action": 1, "value": 2}, {"action": 1, "value": 2}),
        ({"move": 1, "jump": 2}, {"action": {"move": 1, "jump": 2}}),
        ((1, 2), {"action": (1, 2)}),
    ),
)
def test_what_a_function_returns_is_the_action_unless_it_says_action(returned, expected):
    assert FunctionPolicy(lambda _: returned).act(OBS, None, Context.start(3)) == expected


def test_a_function_sees_the_observations():
    policy = as_policy(lambda obs: obs.sum(1))
    assert policy.act(OBS, None, Context.start(3))["action"].tolist() == [2.0, 2.0, 2.0]


def test_as_policy_returns_a_policy_as_it_is():
    policy = Left()
    assert as_policy(policy) is policy


class HasAct:
    def act(self, obs, state, ctx):
        return {"action": obs}


@pytest.mark.parametrize(
    ("wrong", "advice"),
    (
        (None, "pass a function"),
        (spaces.Discrete(2), r"outrider\.RandomPolicy\(space\)"),
        (HasAct(), r"derive its class from outrider\.Policy"),
        (Left, "the class Left.* pass an instance"),
        (torch.nn.Linear(2, 1), r"Linear.* outrider\.torch\.TorchPolicy\(module\)"),
    ),
)
def test_as_policy_refuses_what_is_no_policy(wrong, advice):
    with pytest.raises(ConfigError, match=advice):
        as_policy(wrong)


def test_as_policy_refuses_an_unknown_convention():
    policy = Left()
    policy.actions = "rescale"
    with pytest.raises(ConfigError, match=r"Left\.actions.*'rescale'"):
        as_policy(policy)
