"""Values to bootstrap from: of the true next observation of each step, each evaluated once."""

import contextlib
import dataclasses
import subprocess
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import outrider
from helpers import plain_returns
from helpers.envs import CounterEnv
from helpers.plain_returns import Step
from helpers.plain_rows import plans, rollout_of
from outrider import tree
from outrider.errors import ConfigError, SpecError
from outrider.records import StepSpec
from outrider.spec import LeafSpec

SPEC = StepSpec(obs=LeafSpec((2,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)


def number_of(obs):
    """The number by which the helpers know each observation, a little other than what frames have of it."""
    leaf = tree.leaves(obs)[-1]
    return leaf[..., -1] if leaf.ndim > 1 else leaf


def value_of(number):
    return np.float32(number % 97) / 8 - 5


class Critic:
    """Values by the number of the observation; notes how many it has evaluated, and checks the states."""

    def __init__(self, plan):
        self.plan = plan
        self.calls = []

    def __call__(self, obs, *state):
        numbers = np.abs(np.asarray(number_of(obs))).astype(np.int64)
        self.calls.append(len(numbers))
        assert len(state) == self.plan.recurrent
        if state:
            np.testing.assert_array_equal(np.asarray(state[0]["h"])[:, 0], numbers / 2)
        found = value_of(numbers)
        return torch.from_numpy(found) if isinstance(tree.leaves(obs)[0], torch.Tensor) else found


def with_values(rollout, plan):
    stored = value_of(np.array([row.obs for row in plan.rows])).reshape(plan.length, plan.lanes)
    return rollout.with_columns(value=stored)


@given(plan=plans(), tensors=st.booleans(), stored=st.booleans())
def test_is_the_value_of_the_true_next_observation(plan, tensors, stored):
    rollout = rollout_of(plan)
    if stored:
        rollout = with_values(rollout, plan)
    if tensors:
        rollout = rollout.torch()
    critic = Critic(plan)
    before = [np.asarray(leaf).copy() for leaf in tree.leaves(rollout.obs)]
    found = rollout.next_values(critic)
    assert isinstance(found, torch.Tensor) == tensors
    assert tuple(found.shape) == (plan.length, plan.lanes)
    assert str(found.dtype).endswith("float32")
    for row in plan.rows:
        if row.valid:
            assert found[row.t, row.lane].item() == value_of(row.next_obs)
    assert critic.calls == [(1 if stored else plan.length + 1) * plan.lanes + len(rollout.final_index)]
    for leaf, old in zip(tree.leaves(rollout.obs), before, strict=True):
        np.testing.assert_array_equal(np.asarray(leaf), old)


@given(plan=plans(), tensors=st.booleans(), stored=st.booleans())
def test_advantages_of_any_rollout(plan, tensors, stored):
    rollout = rollout_of(plan)
    if stored:
        rollout = with_values(rollout, plan)
    if tensors:
        rollout = rollout.torch()
    columns = outrider.advantages(rollout, Critic(plan), gamma=0.9, lam=0.8)
    rollout = rollout.with_columns(**columns)
    for lane in range(plan.lanes):
        rows = [plan.at(t, lane) for t in range(plan.length)]
        steps = [
            Step(
                row.reward,
                value_of(row.obs).item(),
                value_of(row.next_obs).item(),
                0.0,
                row.terminated,
                row.truncated,
                row.end == "cut",
            )
            for row in rows
        ]
        for t, row in enumerate(rows):
            wanted = plain_returns.gae(steps, t, 0.9, 0.8) if row.valid else 0
            found = float(rollout.extras["advantage"][t, lane])
            assert found == pytest.approx(wanted, rel=1e-4, abs=0.05 if tensors else 1e-4)
            if row.valid:
                target = float(rollout.extras["target"][t, lane])
                assert target == pytest.approx(wanted + steps[t].value, rel=1e-4, abs=0.05 if tensors else 1e-4)


@given(plan=plans(), data=st.data())
def test_a_part_of_a_rollout_has_the_values_of_its_rows(plan, data):
    rollout = rollout_of(plan)
    start = data.draw(st.integers(0, plan.length - 1))
    stop = data.draw(st.integers(start, plan.length))
    lanes = np.array(data.draw(st.lists(st.integers(0, plan.lanes - 1), max_size=3)), np.int64)
    whole, valid = rollout.next_values(Critic(plan)), rollout.valid[start:stop][:, lanes]
    part = rollout[start:stop, lanes].next_values(Critic(plan))
    np.testing.assert_array_equal(part[valid], whole[start:stop][:, lanes][valid])


def test_a_module_gets_tensors_from_a_rollout_of_arrays():
    module = torch.nn.Linear(2, 1)
    rollout = SPEC.zeros(5)
    rollout.obs[:] = np.random.default_rng(0).normal(size=rollout.obs.shape)
    found = rollout.next_values(module)
    assert isinstance(found, np.ndarray)
    with torch.no_grad():
        wanted = module(torch.from_numpy(rollout.obs[1:]))[..., 0].numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    tensors = rollout.torch().next_values(module)
    assert not tensors.requires_grad
    np.testing.assert_allclose(tensors, wanted, rtol=1e-6)


def test_half_precision_becomes_single():
    found = SPEC.zeros(3).torch().next_values(lambda obs: obs.sum(-1).to(torch.bfloat16))
    assert found.dtype == torch.float32


def test_stored_values_keep_their_precision_and_lose_their_gradient():
    rollout = SPEC.zeros(3).torch()
    stored = torch.arange(6.0, requires_grad=True).reshape(3, 2, 1)
    found = rollout.with_columns(value=stored).next_values(lambda obs: obs.sum(-1).double() + 7)
    assert found.tolist() == [[2, 3], [4, 5], [7, 7]]
    assert found.dtype == torch.float32
    assert not found.requires_grad
    columns = outrider.advantages(rollout.with_columns(value=stored), lambda obs: obs.sum(-1), gamma=0.9, lam=0.9)
    assert not any(column.requires_grad for column in columns.values())


def test_what_the_critic_writes_to_its_input_changes_no_rollout():
    rollout = SPEC.zeros(3)

    def critic(obs):
        obs += 1
        return obs.sum(-1)

    assert rollout.next_values(critic).tolist() == [[2, 2]] * 3
    assert (rollout.obs == 0).all()


def test_vector_rewards_have_vectors_of_values():
    spec = dataclasses.replace(SPEC, reward=LeafSpec((3,), np.dtype("f8")))
    rollout = spec.zeros(4)
    found = rollout.next_values(lambda obs: np.repeat(np.arange(len(obs), dtype=float)[:, None], 3, 1))
    assert found.shape == (4, 2, 3)
    assert found[:, 1, 2].tolist() == [3, 5, 7, 9]
    assert rollout.next_values(lambda obs: np.zeros(len(obs))).shape == (4, 2)
    with pytest.raises(SpecError, match="objectives"):
        outrider.advantages(rollout, lambda obs: np.zeros(len(obs)), gamma=0.9, lam=0.9)


def blind(flag):
    """Lane 1 ends blindly after its first step."""
    rollout = SPEC.zeros(3)
    ends = np.zeros((3, 2), bool)
    ends[0, 1] = True
    changed = {flag: ends, "blind": ends.copy(), "final_index": np.array([1])}
    return dataclasses.replace(rollout, **changed, final_obs=np.full((1, 2), np.nan, np.float32))


@pytest.mark.parametrize("kind", ("arrays", "tensors"))
def test_blind_rows(kind):
    seen = []

    def critic(obs):
        seen.append(len(obs))
        assert not np.isnan(np.asarray(obs)).any()
        return obs.sum(-1) + 3

    terminated, truncated = (blind(flag) for flag in ("terminated", "truncated"))
    if kind == "tensors":
        terminated, truncated = terminated.torch(), truncated.torch()
    assert terminated.next_values(critic).tolist() == [[3, 0], [3, 3], [3, 3]]
    columns = outrider.advantages(terminated, critic, gamma=0.9, lam=0.9)
    assert columns["target"][0, 1] == 0
    assert seen == [8, 8]
    with pytest.raises(SpecError, match=r"Rollout.next_values.*row \[0, 1\]"):
        truncated.next_values(critic)
    with pytest.raises(SpecError, match=r"advantages.*do not tell"):
        outrider.advantages(truncated, critic, gamma=0.9, lam=0.9)
    assert seen == [8, 8]


def test_dummy_rows_have_no_advantage():
    rollout = SPEC.zeros(4)
    rollout.reward[:] = 1
    rollout.valid[2, 0] = False
    rollout.terminated[1, 0] = True
    rollout = dataclasses.replace(rollout, final_index=np.array([2]), final_obs=np.zeros((1, 2), np.float32))
    for one in (rollout, rollout.torch()):
        columns = outrider.advantages(one, lambda obs: obs.sum(-1), gamma=0.5, lam=1.0)
        assert columns["advantage"][:, 0].tolist() == [1.5, 1, 0, 1]
        assert columns["advantage"][:, 1].tolist() == [1.875, 1.75, 1.5, 1]


@pytest.mark.parametrize(
    ("critic", "error", "words"),
    (
        (3, ConfigError, "something to call, found an object of type int"),
        (lambda obs: {"value": obs[:, 0]}, SpecError, r"a dict with keys \['value'\].*lambda obs"),
        (lambda obs: (obs[:, 0], obs), SpecError, "one array of values, found a tuple"),
        (lambda obs: None, SpecError, "found a NoneType"),
        (lambda obs: obs, SpecError, r"shape \(12,\), found shape \(12, 2\)"),
        (lambda obs: obs[:5, 0], SpecError, r"shape \(12,\), found shape \(5,\)"),
        (lambda obs: obs[:, 0].astype(int), SpecError, "floating point, found dtype int64"),
    ),
    ids=("uncallable", "dict", "tuple", "none", "two", "few", "integers"),
)
def test_what_is_no_critic_is_told(critic, error, words):
    with pytest.raises(error, match=rf"Rollout.next_values.*{words}"):
        SPEC.zeros(5).next_values(critic)


def test_stored_values_that_are_none_are_told():
    rollout = SPEC.zeros(5)
    critic = lambda obs: obs[:, 0]  # noqa: E731 - the shortest way to say it
    wrong = (np.zeros((5, 2), int), np.zeros((5, 2, 4)), {"a": np.zeros((5, 2))})
    for column in wrong:
        with pytest.raises(SpecError, match="the column 'value' of extras"):
            rollout.with_columns(value=column).next_values(critic)


class Counting(outrider.Policy):
    """Its state counts the steps of the episode, as the observation does; its value is the count."""

    def initial_state(self, n):
        return np.zeros((n, 1), np.float32)

    def act(self, obs, state, ctx):
        return {"action": np.zeros(len(obs), int), "state": state + 1, "value": obs[:, 0]}


def backends():
    """Vector environments of lanes of different lengths, one of which makes dummy rows."""
    factories = [partial(CounterEnv, 3, "truncate"), partial(CounterEnv, 4, "terminate")]
    next_step = gymnasium.vector.SyncVectorEnv(factories, autoreset_mode=gymnasium.vector.AutoresetMode.NEXT_STEP)
    return {
        "inline": outrider.make_vec(factories, backend=outrider.Inline()),
        "next-step": outrider.make_vec(next_step),
    }


@pytest.mark.parametrize("backend", ("inline", "next-step"))
@pytest.mark.parametrize("stored", (True, False))
def test_what_a_recurrent_policy_has_collected(backend, stored):
    with contextlib.ExitStack() as stack:
        envs = {name: stack.enter_context(one) for name, one in backends().items()}[backend]
        rollout = outrider.Collector(envs, Counting(), seed=0).rollout(11)
    if not stored:
        rollout = dataclasses.replace(rollout, extras={})

    following = rollout.next_values(lambda obs, state: state)
    valid = rollout.valid
    assert valid.all() == (backend == "inline")
    np.testing.assert_array_equal(following[valid], rollout.obs[:-1, :, 0][valid] + 1)
    assert rollout.truncated.sum() >= 2
    assert rollout.terminated.sum() >= 2


def test_no_torch_is_imported_for_arrays():
    code = (
        "import sys, numpy as np, outrider\n"
        "from outrider.spec import LeafSpec as Leaf\n"
        "spec = outrider.StepSpec(obs=Leaf((2,), np.dtype('f4')), action=Leaf((), np.dtype('i8')), num_envs=2)\n"
        "assert 'numba' not in sys.modules\n"
        "outrider.advantages(spec.zeros(3), lambda obs: obs.sum(-1), gamma=.9, lam=.9)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
