"""Torch modules as policies: states of any axis order, flags restored, no gradients, weights loaded whole."""

import gc

import numpy as np
import pytest
import torch
from torch import nn

import outrider
from outrider import tree
from outrider.errors import ConfigError, PolicyError
from outrider.policies.base import Context
from outrider.policies.outputs import OutputSchema, as_arrays
from outrider.torch import TorchPolicy


class ActorCritic(nn.Module):
    """Dropout in a trunk, and a frozen encoder that stays in eval mode while the rest trains."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.trunk = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5))
        self.head = nn.Linear(8, 2)
        self.bias = nn.Parameter(torch.zeros(()))
        self.frozen.eval()

    def forward(self, obs):
        hidden = self.trunk(self.frozen(obs))
        logits = self.head(hidden)
        return {"action": logits.argmax(1), "value": hidden.sum(1), "bias": self.bias.expand(len(obs))}


class Recurrent(nn.Module):
    """A recurrent cell of torch: state (layers, n, hidden), a pair of them for the LSTM."""

    def __init__(self, kind):
        super().__init__()
        self.cell = kind(3, 5, num_layers=2)
        self.start = nn.Parameter(torch.randn(2, 1, 5))

    def initial_state(self, n):
        one = self.start.expand(2, n, 5)
        return (one, one) if isinstance(self.cell, nn.LSTM) else one

    def forward(self, obs, state):
        for leaf in tree.leaves(state):
            assert leaf.is_contiguous()
        out, state = self.cell(obs[None], state)
        return {"action": out[0], "state": state}


def flags(module):
    return [child.training for child in module.modules()]


def obs(n, width=4):
    return np.random.default_rng(n).normal(size=(n, width)).astype(np.float32)


def act(policy, observation, state=None):
    n = len(tree.leaves(observation)[0])
    return policy.act(observation, state, Context.start(n))


def test_action_tensor_alone_and_numpy_out():
    policy = TorchPolicy(nn.Linear(4, 2))
    with policy.session():
        output = act(policy, obs(3))
    assert list(output) == ["action"]
    assert type(output["action"]) is np.ndarray
    expected = policy.module(torch.from_numpy(obs(3))).detach().numpy()
    np.testing.assert_allclose(output["action"], expected, rtol=1e-6)


def test_eval_mode_and_flags_restored():
    module = ActorCritic()
    before = flags(module)
    assert True in before
    assert False in before
    policy = TorchPolicy(module)
    with policy.session():
        assert flags(module) == [False] * len(before)
        first, second = act(policy, obs(6)), act(policy, obs(6))
    assert flags(module) == before
    tree.map(np.testing.assert_array_equal, first, second)  # dropout is off


@pytest.mark.parametrize("mode", ("eval", "train", "keep"))
def test_flags_are_restored_after_an_exception(mode):
    module = ActorCritic()
    before = flags(module)
    policy = TorchPolicy(module, mode=mode)
    with pytest.raises(ZeroDivisionError), policy.session():
        raise ZeroDivisionError
    assert flags(module) == before
    assert not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("mode", ("eval", "train"))
def test_flags_are_restored_when_setting_them_fails(mode):
    class Stubborn(ActorCritic):
        def train(self, mode=True):
            super().train(mode)
            raise ZeroDivisionError

    module = Stubborn()
    before = flags(module)
    with pytest.raises(ZeroDivisionError), TorchPolicy(module, mode=mode).session():
        pytest.fail("the session must not begin")
    assert flags(module) == before


def test_train_mode_and_keep():
    module = ActorCritic()
    before = flags(module)
    with TorchPolicy(module, mode="train").session():
        assert all(flags(module))
    with TorchPolicy(module, mode="keep").session():
        assert flags(module) == before


def test_sessions_nest():
    module = ActorCritic()
    before = flags(module)
    policy = TorchPolicy(module)
    with policy.session():
        with policy.session():
            pass
        assert not any(flags(module))
        assert torch.is_inference_mode_enabled()
    assert flags(module) == before


def test_act_without_a_session_enters_one():
    module = ActorCritic()
    before = flags(module)
    policy = TorchPolicy(module)
    tree.map(np.testing.assert_array_equal, act(policy, obs(5)), act(policy, obs(5)))
    assert flags(module) == before


def test_no_gradients_are_kept_and_training_goes_on_after_acting():
    module = ActorCritic()
    policy = TorchPolicy(module, mode="keep")
    with torch.enable_grad():
        output = act(policy, obs(5))
    assert all(type(leaf) is np.ndarray for leaf in tree.leaves(output))
    assert all(parameter.grad is None for parameter in module.parameters())
    module(torch.from_numpy(obs(5)))["value"].sum().backward()
    assert module.trunk[0].weight.grad is not None


def test_a_parameter_as_an_extra_is_no_gradient_either():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = nn.Parameter(torch.zeros(3, 2))

        def forward(self, obs):
            return {"action": obs, "logits": self.logits}

    assert type(act(TorchPolicy(Bare()), obs(3))["logits"]) is np.ndarray


def test_no_tensor_is_left_behind_by_many_calls():
    policy = TorchPolicy(ActorCritic())
    observation = obs(4)

    def tensors():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    with policy.session():
        act(policy, observation)
        before = tensors()
        for _ in range(1000):
            act(policy, observation)
        assert tensors() == before


def test_updates_in_place_between_calls_are_seen():
    module = nn.Linear(4, 2)
    policy = TorchPolicy(module)
    act(policy, obs(3))
    with torch.no_grad():
        module.weight.zero_()
        module.bias.fill_(7)
    assert (act(policy, obs(3))["action"] == 7).all()


class DictObs(nn.Module):
    def forward(self, obs):
        image, (a, b) = obs["image"], obs["pair"]
        return {"action": {"move": image.float().mean((1, 2)), "turn": (a, b)}, "none": None, "seen": {"a": a}}


def test_dict_and_tuple_observations_and_actions():
    observation = {"image": np.full((2, 3, 3), 200, np.uint8), "pair": (np.arange(2), np.ones((2, 1)))}
    output = act(TorchPolicy(DictObs()), observation)
    assert output["action"]["move"].tolist() == [200.0, 200.0]
    assert output["action"]["turn"][0].dtype == np.int64
    assert output["seen"]["a"].tolist() == [0, 1]
    assert output["none"] is None


def test_a_dict_without_the_key_action_is_the_action():
    class Moves(nn.Module):
        def forward(self, obs):
            return {"move": obs, "jump": obs}

    assert set(act(TorchPolicy(Moves()), obs(2))["action"]) == {"move", "jump"}


@pytest.mark.parametrize("kind", (nn.LSTM, nn.GRU))
@pytest.mark.parametrize("axis", (1, -2))
def test_recurrent_states_are_batch_first_outside_and_equal_torch_inside(kind, axis):
    module = Recurrent(kind)
    policy = TorchPolicy(module, state_axis=axis)
    n = 4
    state = policy.initial_state(n)
    assert isinstance(state, tuple) == (kind is nn.LSTM)
    assert [leaf.shape for leaf in tree.leaves(state)] == [(n, 2, 5)] * len(tree.leaves(state))
    steps = np.stack([obs(n, 3) + t for t in range(3)])
    schema = None
    outputs = []
    with policy.session():
        for step in steps:
            output = act(policy, step, state)
            schema = schema or OutputSchema.of(output, n, state=as_arrays(state, n, "state"))
            schema.leaves(output, n)
            outputs.append(output["action"])
            state = output["state"]
    whole, last = module.cell(torch.from_numpy(steps), module.initial_state(n))
    np.testing.assert_allclose(np.stack(outputs), whole.detach().numpy(), rtol=1e-5, atol=1e-6)
    for found, expected in zip(tree.leaves(state), tree.leaves(last), strict=True):
        np.testing.assert_allclose(found, expected.detach().numpy().swapaxes(0, 1), rtol=1e-5, atol=1e-6)


def test_rows_of_a_state_may_be_mixed_and_subset():
    policy = TorchPolicy(Recurrent(nn.LSTM), state_axis=1)
    start = policy.initial_state(4)
    whole = act(policy, obs(4, 3), start)
    rows = np.array([2, 0])
    part = act(policy, obs(4, 3)[rows], tree.take(start, rows))
    np.testing.assert_allclose(part["action"], whole["action"][rows], rtol=1e-5, atol=1e-6)


class Counting(nn.Module):
    """Writes to the state it is given, and returns it."""

    def __init__(self):
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(2))

    def initial_state(self, n):
        return {"count": self.zero.expand(n, 2)}

    def forward(self, obs, state):
        state["count"] += 1
        return {"action": obs, "state": state}


def test_a_module_may_write_to_its_state_and_its_parameters_stay_as_they_are():
    policy = TorchPolicy(Counting())
    start = policy.initial_state(3)
    start["count"][0] = 5  # a copy: neither the other rows nor the parameter change
    assert start["count"].tolist() == [[5, 5], [0, 0], [0, 0]]
    assert policy.module.zero.tolist() == [0, 0]
    after = act(policy, obs(3), start)["state"]
    assert after["count"].tolist() == [[6, 6], [1, 1], [1, 1]]
    assert start["count"].tolist() == [[5, 5], [0, 0], [0, 0]]


def test_a_module_without_a_state():
    assert TorchPolicy(nn.Linear(2, 1)).initial_state(3) is None


def test_the_wrong_state_axis_is_explained():
    with pytest.raises(PolicyError, match=r"3 rows along axis 0, found shape \(2, 3, 5\).*state_axis"):
        TorchPolicy(Recurrent(nn.GRU)).initial_state(3)
    with pytest.raises(PolicyError, match=r"axis 7"):
        TorchPolicy(Recurrent(nn.GRU), state_axis=7).initial_state(3)


def test_a_recurrent_module_that_forgets_its_state_is_refused():
    class Forgetful(Counting):
        def forward(self, obs, state):
            return obs, state

    policy = TorchPolicy(Forgetful())
    with pytest.raises(PolicyError, match=r'"action" and "state", found a tuple'):
        act(policy, obs(3), policy.initial_state(3))


class Echo(nn.Module):
    """Shows the size of the batch it was given."""

    def initial_state(self, n):
        return torch.zeros(1, n, 2)

    def forward(self, obs, state=None):
        size = torch.full((len(obs),), len(obs))
        return {"action": obs, "size": size} | ({} if state is None else {"state": state + 1})


@pytest.mark.parametrize(
    ("pad", "n", "size"), ((False, 1, 1), (True, 1, 4), (True, 3, 4), (True, 4, 4), (True, 9, 9), (6, 2, 6), (6, 6, 6))
)
def test_padding(pad, n, size):
    policy = TorchPolicy(Echo(), pad=pad)
    output = act(policy, obs(n))
    assert output["size"].tolist() == [size] * n
    np.testing.assert_array_equal(output["action"], obs(n))


def test_padding_of_states():
    policy = TorchPolicy(Echo(), pad=True, state_axis=1)
    output = act(policy, obs(2), policy.initial_state(2))
    np.testing.assert_array_equal(output["state"], np.ones((2, 1, 2)))
    assert output["size"].tolist() == [4, 4]


def test_a_batch_beyond_the_fixed_size_is_refused():
    with pytest.raises(PolicyError, match=r"at most 2 rows, found a batch of 3"):
        act(TorchPolicy(Echo(), pad=2), obs(3))


def test_an_output_of_other_rows_is_refused_under_padding():
    class Mean(nn.Module):
        def forward(self, obs):
            return {"action": obs, "mean": obs.mean(0)[:3]}

    with pytest.raises(PolicyError, match=r"'mean'"):
        act(TorchPolicy(Mean(), pad=6), obs(3))


def test_read_only_observations_are_copied():
    class Eraser(nn.Module):
        def forward(self, obs):
            return obs.zero_()

    observation = obs(3)
    observation.flags.writeable = False
    assert not act(TorchPolicy(Eraser()), observation)["action"].any()
    assert observation.all()


def test_observations_that_torch_cannot_hold_are_explained():
    with pytest.raises(PolicyError, match=r"dtype <U1.*observation transform"):
        act(TorchPolicy(nn.Linear(4, 2)), np.array(["a", "b"]))


def test_outputs_that_numpy_cannot_hold_are_named():
    class Half(nn.Module):
        def forward(self, obs):
            return {"action": obs, "value": {"mean": obs.bfloat16()}}

    with pytest.raises(PolicyError, match=r"'value/mean'.*BFloat16"):
        act(TorchPolicy(Half()), obs(3))


def test_load_takes_modules_and_state_dicts_of_tensors_or_arrays():
    source = ActorCritic()
    weights = source.state_dict()
    for tree_ in (source, weights, {name: value.numpy() for name, value in weights.items()}):
        target = ActorCritic()
        TorchPolicy(target).load(tree_)
        for name, value in target.state_dict().items():
            torch.testing.assert_close(value, weights[name], rtol=0, atol=0)
        assert target.head.weight.requires_grad
        assert target.head.weight.data_ptr() != source.head.weight.data_ptr()


def test_load_copies():
    target, weights = nn.Linear(2, 1), {"weight": np.ones((1, 2), np.float32), "bias": np.ones(1, np.float32)}
    TorchPolicy(target).load(weights)
    weights["weight"][:] = 9
    assert target.weight.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("change", "message"),
    (
        ({"head.bias": None}, r"none for \['head.bias'\]"),
        ({"tail": torch.zeros(1)}, r"others, too: \['tail'\]"),
        ({"head.bias": torch.zeros(7)}, r"shape torch.Size\(\[2\]\) for 'head.bias', found shape torch.Size\(\[7\]\)"),
    ),
)
def test_weights_that_do_not_fit_change_nothing(change, message):
    module, other = ActorCritic(), ActorCritic()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    weights = {name: value for name, value in (other.state_dict() | change).items() if value is not None}
    with pytest.raises(PolicyError, match=message):
        TorchPolicy(module).load(weights)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


def test_load_refuses_what_is_no_state_dict():
    with pytest.raises(PolicyError, match="a module or a state dict, found an object of type list"):
        TorchPolicy(nn.Linear(2, 1)).load([np.zeros(2)])


def test_weights_of_a_plain_module_load_into_a_compiled_one():
    source, target = nn.Linear(2, 1), torch.compile(nn.Linear(2, 1), backend="eager")
    policy = TorchPolicy(target)
    policy.load(source)
    assert torch.equal(target.weight, source.weight)
    policy.load(torch.compile(source, backend="eager").state_dict())
    assert torch.equal(target.weight, source.weight)
    before = flags(target)
    with policy.session():
        assert not any(flags(target))
    assert flags(target) == before


@pytest.mark.parametrize(
    ("build", "message"),
    (
        (lambda: TorchPolicy(lambda obs: obs), r"a torch\.nn\.Module"),
        (lambda: TorchPolicy(nn.Linear), r"pass an instance"),
        (lambda: TorchPolicy(nn.Linear(2, 1), mode="test"), r"mode.*'eval', 'train', 'keep'.*'test'"),
        (lambda: TorchPolicy(nn.Linear(2, 1), state_axis=True), "state_axis"),
        (lambda: TorchPolicy(nn.Linear(2, 1), state_axis=1.0), "state_axis"),
        (lambda: TorchPolicy(nn.Linear(2, 1), pad=0), r"pad.*found 0"),
        (lambda: TorchPolicy(nn.Linear(2, 1), pad=2.5), r"pad.*found 2\.5"),
        (lambda: TorchPolicy(nn.Linear(2, 1, device="meta")), "a module on cpu, found meta"),
        (lambda: TorchPolicy(nn.LazyLinear(2)), r"lazy ones: \['weight', 'bias'\]"),
    ),
)
def test_contradictions_are_refused_at_construction(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_acting_draws_nothing_from_torch_s_generator():
    policy = TorchPolicy(ActorCritic())
    before = torch.get_rng_state()
    act(policy, obs(3))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("mode", ("eval", "train"))
def test_flags_that_a_modules_own_train_changes_are_restored(mode):
    class Keeping(ActorCritic):
        """Keeps its first part in evaluation mode, as models with frozen batch norms do."""

        def train(self, mode=True):
            super().train(mode)
            next(self.children()).train(False)
            return self

    module = Keeping()
    for part in module.modules():
        part.training = True
    with TorchPolicy(module, mode=mode).session():
        assert not next(module.children()).training
    assert all(flags(module))


# -- without chance ----------------------------------------------------------------------------------------------------


class Sampling(nn.Module):
    """Draws an action by its weights; the likeliest one without chance."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.drop = nn.Dropout()

    def forward(self, obs):
        logits = self.head(obs)
        action = torch.distributions.Categorical(logits=logits).sample()
        return {"action": action, "logits": logits}

    def deterministic(self, obs):
        logits = self.drop(self.head(obs))
        return {"action": logits.argmax(-1), "logits": logits}


def test_deterministic_calls_the_method_of_that_name_with_the_same_weights():
    module = Sampling()
    policy = TorchPolicy(module, pad=True)
    policy.actions = "index"
    greedy = policy.deterministic()
    assert greedy.actions == "index"
    obs = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    for _ in range(2):
        drawn, chosen = (one.act(obs.copy(), None, Context.start(200)) for one in (policy, greedy))
        expected = (obs @ module.head.weight.detach().numpy().T + module.head.bias.detach().numpy()).argmax(-1)
        np.testing.assert_array_equal(chosen["action"], expected)
        assert (drawn["action"] != expected).any()
        assert module.training
        policy.load({name: -value for name, value in module.state_dict().items()})
    assert len(greedy.act(obs[:1], None, Context.start(1))["action"]) == 1


class Alike(nn.Module):
    """Recurrent, and without chance anyhow."""

    def initial_state(self, n):
        return torch.zeros(n, 2)

    def forward(self, obs, state):
        return {"action": (obs[:, 0] > 0).long(), "state": state + 1}

    deterministic = forward


def test_a_recurrent_module_without_chance_says_so():
    policy = TorchPolicy(Alike()).deterministic()
    output = policy.act(np.ones((3, 1), np.float32), policy.initial_state(3), Context.start(3))
    assert output["action"].tolist() == [1, 1, 1]
    assert (output["state"] == 1).all()


def test_a_module_that_does_not_say_is_refused():
    with pytest.raises(PolicyError, match=r"Linear, which has none.*deterministic = forward"):
        TorchPolicy(nn.Linear(4, 2)).deterministic()


def test_exploration_around_a_module():
    policy = outrider.EpsilonGreedy(TorchPolicy(Alike()), 0.5)
    with (
        outrider.make_vec("CartPole-v1", 4, backend=outrider.Inline()) as envs,
        outrider.Collector(envs, policy, seed=0) as collector,
    ):
        rollout = collector.rollout(50)
        outrider.evaluate(envs, policy.deterministic(), 4, seed=0)
    np.testing.assert_array_equal(rollout.state[:50, :, 0], rollout.step)
    assert 0.1 < (rollout.action != (rollout.obs[:50, :, 0] > 0)).mean() < 0.4
