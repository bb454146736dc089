"""A recurrent network over sequences of a rollout gives what it gave when they were collected."""

import dataclasses

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import outrider
from helpers.envs import CounterEnv
from outrider import tree
from outrider.errors import ConfigError, SpecError
from outrider.records import StepSpec
from outrider.spec import LeafSpec
from outrider.torch import TorchPolicy, unroll

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
"""Matrix products round differently for another number of rows."""


class Recurrent(nn.Module):
    """A cell of torch of two layers, (layers, n, hidden), whose initial state is not zero; or dicts of one cell's."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.cell = nn.GRUCell(1, 6) if kind == "dict" else getattr(nn, kind)(1, 6, num_layers=2)
        self.heads = nn.Linear(6, 3)

    def initial_state(self, n):
        if self.kind == "dict":
            return {"h": torch.full((n, 6), 0.5)}
        start = torch.full((2, n, 6), 0.5)
        return (start, -start) if self.kind == "LSTM" else start

    def heads_of(self, obs, state):
        obs = obs / 10
        if self.kind == "dict":
            features = self.cell(obs, state["h"])
            state = {"h": features}
        else:
            features, state = self.cell(obs[None], state)
            features = features[0]
        found = self.heads(features)
        return {"logits": found[:, :2], "more": (found[:, 2],), "state": state}

    def forward(self, obs, state):
        found = self.heads_of(obs, state)
        return {**found, "action": found["logits"].argmax(-1)}


def factories():
    return [
        lambda length=length, mode=mode: CounterEnv(length, mode)
        for length, mode in ((3, "terminate"), (5, "truncate"), (40, "truncate"), (1, "both"))
    ]


SOURCES = {
    "same-step": lambda: outrider.make_vec(outrider.Envs(factories()), backend=outrider.Inline()),
    "next-step": lambda: outrider.make_vec(
        gymnasium.vector.SyncVectorEnv(factories(), autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP)
    ),
}


PACES = {
    "threads": lambda: outrider.make_vec(outrider.Envs(factories()), backend=outrider.Threads(workers=2, wait_for=1)),
    "processes": lambda: outrider.make_vec(
        outrider.Envs(factories()), backend=outrider.Processes(workers=2, wait_for=1)
    ),
}
"""Lanes at their own pace: the policy decides for one to four of them."""


def collected(kind, source="same-step", desynchronise=0):
    """The module, and the second rollout of 24 steps of 4 lanes, which begins in the middle of episodes."""
    torch.manual_seed(1)
    module = Recurrent(kind)
    policy = TorchPolicy(module, state_axis=0 if kind == "dict" else 1)
    options = outrider.CollectOptions(desynchronise=desynchronise)
    with (SOURCES | PACES)[source]() as envs, outrider.Collector(envs, policy, seed=0, options=options) as collector:
        collector.rollout(11)
        return module, collector.rollout(24)


def assert_replayed(module, batch):
    steps = batch.flatten()
    found = unroll(module.heads_of, batch, state_axis=0 if module.kind == "dict" else 1)
    assert set(found) == {"logits", "more"}
    torch.testing.assert_close(found["logits"], steps.extras["logits"], **CLOSE)
    torch.testing.assert_close(found["more"][0], steps.extras["more"][0], **CLOSE)


@pytest.mark.parametrize("source", ("same-step", "next-step"))
@pytest.mark.parametrize("kind", ("GRU", "LSTM", "dict"))
def test_outputs_are_those_of_collection(kind, source):
    module, rollout = collected(kind, source)
    assert rollout.is_first[1:].any()
    assert bool(rollout.valid.all()) == (source == "same-step")
    data = rollout.torch()
    assert_replayed(module, data)
    for length in (24, 8, 1):
        for batch in data.sequence_minibatches(4, length=length, epochs=2, seed=0):
            assert_replayed(module, batch)


@pytest.mark.parametrize("source", tuple(PACES))
def test_lanes_may_have_gone_at_their_own_pace(source):
    module, rollout = collected("GRU", source)
    for batch in rollout.torch().sequence_minibatches(4, length=12, seed=0):
        assert_replayed(module, batch)


def test_episodes_that_were_cut_begin_anew():
    module, rollout = collected("GRU", desynchronise=30)
    assert rollout.cut.any()
    for batch in rollout.torch().sequence_minibatches(2, length=12, seed=0):
        assert_replayed(module, batch)


def test_gradients_go_back_in_time_to_the_beginning_of_the_episode():
    module, rollout = collected("GRU")
    lane = rollout[:, [1]].torch()  # episodes of 5 steps
    obs = lane.obs.clone().requires_grad_()
    found = unroll(module.heads_of, dataclasses.replace(lane, obs=obs), state_axis=1)
    found["logits"][12].sum().backward()
    begin = 12 - int(lane.step[12, 0])
    assert 1 < begin < 12
    assert (obs.grad[begin:13] != 0).all()
    assert (obs.grad[:begin] == 0).all()
    assert (obs.grad[13:] == 0).all()
    assert all(parameter.grad is not None for parameter in module.parameters())


SPEC = StepSpec(
    obs=LeafSpec((1,), np.dtype("f4")),
    action=LeafSpec((), np.dtype("i8")),
    num_envs=2,
    state=LeafSpec((6,), np.dtype("f4")),
)


def test_what_has_no_tensors_or_states_is_refused():
    with pytest.raises(ConfigError, match=r"unroll\(rollout\): expected a rollout of tensors.*rollout.torch\(\)"):
        unroll(nn.GRUCell(1, 6), SPEC.zeros(3))
    with pytest.raises(ConfigError, match=r"unroll\(rollout\): expected a rollout with recurrent states"):
        unroll(nn.GRUCell(1, 6), dataclasses.replace(SPEC, state=None).zeros(3).torch())


@pytest.mark.parametrize(
    ("function", "words"),
    (
        (lambda obs, state: state, r"a dict of outputs and the new \"state\", found a Tensor"),
        (lambda obs, state: {"value": obs}, r"found a dict with keys \['value'\]"),
        (lambda obs, state: {"value": obs.sum(), "state": state}, r"a tensor of 2 rows at 'value', found shape \(\)"),
        (lambda obs, state: {"value": (obs, 1.0), "state": state}, r"at 'value/1', found a float"),
        (lambda obs, state: {"value": obs, "state": (state,)}, "state"),
    ),
    ids=("no dict", "no state", "one number", "no tensor", "another state"),
)
def test_what_the_network_should_not_return_is_refused(function, words):
    rollout = SPEC.zeros(3)
    rollout.step[1] = 0  # an episode begins, so that states have to be put together
    with pytest.raises(SpecError, match=words):
        unroll(function, rollout.torch())


# -- sequences of a replay buffer --------------------------------------------------------------------------------------


def sampled(kind, **view):
    """The module, and a batch of sequences of what it has collected."""
    module, rollout = collected(kind)
    spec = StepSpec.of(rollout)
    replay = outrider.ReplayBuffer(400, spec, view=outrider.Sequences(**view), seed=0)
    replay.extend(rollout)
    return module, replay.sample(32).torch()


def axis_of(module):
    return 0 if module.kind == "dict" else 1


@pytest.mark.parametrize("kind", ("GRU", "LSTM", "dict"))
@pytest.mark.parametrize("view", ({"length": 3}, {"length": 6, "burn_in": 2, "pad": True}), ids=("full", "padded"))
def test_outputs_of_sequences_are_those_of_collection(kind, view):
    module, batch = sampled(kind, **view)
    assert bool(batch.mask.all()) == ("pad" not in view)
    found = unroll(module.heads_of, batch, state_axis=axis_of(module))
    assert found["logits"].shape == (view["length"] + 1, 32, 2)
    torch.testing.assert_close(found["logits"][:-1][batch.mask], batch.extras["logits"][batch.mask], **CLOSE)
    torch.testing.assert_close(found["more"][0][:-1][batch.mask], batch.extras["more"][0][batch.mask], **CLOSE)


def test_what_follows_the_last_step_is_evaluated_with_the_state_behind_it():
    module, batch = sampled("dict", length=4)
    last = unroll(module.heads_of, batch)["logits"][-1]
    state = batch.state
    for t in range(4):
        state = module.heads_of(batch.obs[t], state)["state"]
    torch.testing.assert_close(last, module.heads_of(batch.obs[4], state)["logits"])


def test_no_gradient_comes_from_the_burn_in():
    module, batch = sampled("GRU", length=5, burn_in=3)
    obs = batch.obs.clone().requires_grad_()
    found = unroll(module.heads_of, dataclasses.replace(batch, obs=obs), state_axis=1)
    found["logits"].sum().backward()
    assert (obs.grad[:3] == 0).all()
    assert (obs.grad[3:] != 0).all()
    with torch.no_grad():
        assert not unroll(module.heads_of, batch, state_axis=1)["logits"].requires_grad


def test_batches_that_cannot_be_unrolled_are_refused_by_name():
    module, batch = sampled("dict", length=4)
    with pytest.raises(ConfigError, match=r"a batch with recurrent states, found none.*dataclasses.replace\(batch"):
        unroll(module.heads_of, dataclasses.replace(batch, state=None))
    spec = dataclasses.replace(SPEC, state=None)
    for view, words in (
        (outrider.Sequences(2), r"a batch of tensors, found one of NumPy arrays.*batch.torch\(\)"),
        (outrider.Transitions(), r"a rollout, or a batch of outrider.Sequences, found a TransitionBatch"),
    ):
        replay = outrider.ReplayBuffer(40, spec, view=view, seed=0)
        replay.extend(spec.zeros(9))
        with pytest.raises(ConfigError, match=words):
            unroll(module.heads_of, replay.sample(4))
    with pytest.raises(ConfigError, match=r"advantages\(rollout, critic\): expected a Rollout.*found a SequenceBatch"):
        outrider.advantages(batch, module, gamma=0.9, lam=0.9)


# -- the axis of states ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ("GRU", "LSTM"))
def test_a_critic_gets_states_as_the_policy_does(kind):
    module, rollout = collected(kind)
    data = rollout.torch()

    def critic(obs, state):
        return module.heads_of(obs, state)["more"][0]

    expected = data.next_values(lambda obs, state: critic(obs, tree.map(lambda leaf: leaf.movedim(0, 1), state)))
    torch.testing.assert_close(data.next_values(critic, state_axis=1), expected)
    stored = data.with_columns(value=data.extras["more"][0])
    found = outrider.advantages(stored, critic, gamma=0.9, lam=0.9, state_axis=1)
    torch.testing.assert_close(
        found["target"], outrider.advantages(data, critic, gamma=0.9, lam=0.9, state_axis=1)["target"], **CLOSE
    )
    same = rollout.next_values(lambda obs, state: obs[:, 0] + tree.leaves(state)[0][0, :, 0], state_axis=-2)
    np.testing.assert_allclose(same, rollout.next_values(lambda obs, state: obs[:, 0] + tree.leaves(state)[0][:, 0, 0]))


def test_networks_that_cannot_take_the_states_say_what_may_be_wrong():
    module, rollout = collected("GRU")
    data = rollout.torch()
    for where, call in (
        (r"unroll\(function\)", lambda: unroll(module.heads_of, data)),
        (r"Rollout.next_values", lambda: data.next_values(lambda obs, state: module.heads_of(obs, state)["more"][0])),
        (r"advantages\(rollout, critic\)", lambda: outrider.advantages(data, module.heads_of, gamma=0.9, lam=0.9)),
    ):
        with pytest.raises(
            SpecError, match=rf"{where}: .*'state' \(\d+, 2, 6\), found RuntimeError.*state_axis=k"
        ) as caught:
            call()
        assert isinstance(caught.value.__cause__, RuntimeError)
    for axis in (3, True, None):
        with pytest.raises(ConfigError, match=r"state_axis: expected an axis of the states, .*at 'state'"):
            data.next_values(module.heads_of, state_axis=axis)
        with pytest.raises(ConfigError, match=r"unroll\(rollout\): state_axis"):
            unroll(module.heads_of, data, state_axis=axis)
