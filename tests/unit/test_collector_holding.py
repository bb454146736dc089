"""What was handed out never changes; what policies do to their arguments changes nothing; a failure loses no row."""

import gc
import os
import tracemalloc

import numpy as np
import psutil
import pytest
import torch
from gymnasium import spaces

import outrider
from helpers.envs import CounterEnv, FaultyEnv, NestedEnv
from outrider import tree
from outrider.errors import ClosedError, EnvironmentFailure, PolicyError
from outrider.testing.traced import Traced, TracedPolicy
from outrider.torch.policy import TorchPolicy

BACKENDS = (outrider.Inline(), outrider.Processes(workers=2, start_method="fork"))


@pytest.fixture(params=BACKENDS, ids=("inline", "processes"))
def backend(request):
    return request.param


def columns(record):
    """All arrays of a record."""
    values = {name: getattr(record, name) for name in dir(record) if not name.startswith("_")}
    return {name: value for name, value in values.items() if isinstance(value, (np.ndarray, dict, tuple))}


def copies(record):
    return tree.map(np.copy, columns(record))


def assert_equal(record, copy):
    tree.map(np.testing.assert_array_equal, columns(record), copy)


def mixed(collector):
    """Every kind of call, again and again."""
    while True:
        yield collector.rollout(4)
        yield collector.steps(5)
        yield collector.rollout(2)
        yield collector.episodes(4)
        collector.reset()
        yield collector.rollout(1)


def test_what_is_held_never_changes(backend):
    with (
        outrider.make_vec(Traced, 3, backend=backend) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        records = [record for record, _ in zip(mixed(collector), range(25), strict=False)]
        kept = [copies(record) for record in records]
        for record, _ in zip(mixed(collector), range(25), strict=False):
            assert record is not None
        for record, copy in zip(records, kept, strict=True):
            assert_equal(record, copy)
    # Nor when all is closed.
    for record, copy in zip(records, kept, strict=True):
        assert_equal(record, copy)


def test_writing_into_what_is_held_changes_nothing(backend):
    def collect(*, spoil):
        with (
            outrider.make_vec(Traced, 3, backend=backend) as envs,
            outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
        ):
            found = []
            for record, _ in zip(mixed(collector), range(15), strict=False):
                found.append(copies(record))
                if spoil:
                    for leaf in tree.leaves(columns(record)):
                        if leaf.flags.writeable:
                            leaf[...] = 1
            return found, collector.stats

    (clean, before), (spoilt, after) = collect(spoil=False), collect(spoil=True)
    for mine, theirs in zip(spoilt, clean, strict=True):
        tree.map(np.testing.assert_array_equal, mine, theirs)
    assert after.returns.tolist() == before.returns.tolist()


class Hoarder(outrider.Policy):
    """Keeps everything that it was given, and what it returned, and writes to it at every later call."""

    def __init__(self):
        self.kept = []

    def initial_state(self, n):
        state = np.zeros((n, 3))
        self.kept.append(state)
        return state

    def act(self, obs, state, ctx):
        for leaf in self.kept:
            leaf[...] = 55
        action, seen = ctx.lane_step % 5, obs.copy()
        self.kept = [*self.kept[-20:], obs, state, action, seen]
        new = state + obs
        self.kept.append(new)
        return {"action": action, "seen": seen, "state": new}


def test_policies_that_keep_and_change_their_arrays_corrupt_nothing(backend):
    with (
        outrider.make_vec(Traced, 2, backend=backend) as envs,
        outrider.Collector(envs, Hoarder(), seed=0) as collector,
    ):
        for steps in (collector.rollout(7).flatten(), collector.steps(9), collector.episodes(5).flatten()):
            np.testing.assert_array_equal(steps.extras["seen"], steps.obs)
            np.testing.assert_array_equal(steps.obs[:, 1], steps.step)
            np.testing.assert_array_equal(steps.next_state, steps.state + steps.obs)
            np.testing.assert_array_equal(steps.state[steps.step == 0], 0)
            np.testing.assert_array_equal(steps.next_obs[:, :2], steps.obs[:, :2] + [0, 1])


# -- bad policies -----------------------------------------------------------------------------------------------------


class Scripted(outrider.Policy):
    """Returns `good`, but `bad` in its decision number `at`."""

    def __init__(self, bad, at):
        self.bad = bad
        self.at = at
        self.calls = 0

    def act(self, obs, state, ctx):
        self.calls += 1
        good = {"action": np.zeros(len(obs), np.int64), "value": np.arange(len(obs)) + 0.5}
        return self.bad(good) if self.calls == self.at else good


BAD = {
    "action shape": (lambda good: {**good, "action": good["action"][:, None]}, "'action'|^action"),
    "action count": (lambda good: {**good, "action": good["action"][:1]}, "'action'|^action"),
    "action dtype": (lambda good: {**good, "action": good["action"] + 0.5}, "'action'|^action"),
    "no action": (lambda good: {"value": good["value"]}, "action"),
    "no dict": (lambda good: good["action"], "dict"),
    "outside": (lambda good: {**good, "action": good["action"] + 2}, r"Discrete\(2\).*|lane 0"),
}

LATER = {
    "another key": (lambda good: {**good, "log_prob": good["value"]}, "log_prob"),
    "a key less": (lambda good: {"action": good["action"]}, "value"),
    "extra shape": (lambda good: {**good, "value": good["value"][:, None]}, "extras/value"),
    "extra count": (lambda good: {**good, "value": good["value"][:1]}, "extras/value"),
    "extra dtype": (lambda good: {**good, "value": good["value"].astype(np.float32)}, "extras/value"),
    "extra object": (lambda good: {**good, "value": [None] * len(good["value"])}, "extras/value"),
    "state from nowhere": (lambda good: {**good, "state": good["value"]}, "state"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_first_output_is_refused_and_the_next_one_taken(name):
    bad, match = BAD[name]
    with outrider.make_vec(CounterEnv, 2) as envs, outrider.Collector(envs, Scripted(bad, 1), seed=0) as collector:
        with pytest.raises(PolicyError, match=match):
            collector.rollout(3)
        assert collector.stats.steps == 0
        rollout = collector.rollout(3)
        assert rollout.obs[:, 0, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", (*BAD, *LATER))
@pytest.mark.parametrize("call", ("rollout", "steps", "episodes"))
def test_a_bad_later_output_is_refused_by_name_and_loses_no_row(name, call):
    bad, match = {**BAD, **LATER}[name]
    with outrider.make_vec(CounterEnv, 2) as envs, outrider.Collector(envs, Scripted(bad, 4), seed=0) as collector:
        with pytest.raises(PolicyError, match=match):
            getattr(collector, call)(20)
        assert (collector.stats.steps, collector.stats.carried) == (6, 6)
        steps = collector.steps(10)
        steps.check()
        lane = steps[steps.env_id == 0]
        if call == "episodes":
            # What had been begun is not what the next call continues.
            assert lane.cut.tolist() == [False, False, True, False, False]
            assert lane.step.tolist() == [0, 1, 2, 0, 1]
            assert lane.next_obs[:, 0].tolist() == [1, 2, 3, 1, 2]
        else:
            assert lane.step.tolist() == [0, 1, 2, 3, 4]
            assert lane.obs[:, 0].tolist() == [0, 1, 2, 3, 4]


class Forgetful(TracedPolicy):
    """Its `initial_state` fails, or returns something else, in call number `at`."""

    def __init__(self, at, returns=None):
        self.at = at
        self.returns = returns
        self.calls = 0

    def initial_state(self, n):
        self.calls += 1
        if self.calls != self.at:
            return super().initial_state(n)
        if self.returns is None:
            msg = "no initial state"
            raise RuntimeError(msg)
        return self.returns(super().initial_state(n))


STATES = {
    "a key less": lambda good: {"sum": good["sum"]},
    "another dtype": lambda good: {**good, "count": good["count"].astype(np.int32)},
    "another shape": lambda good: {**good, "sum": good["sum"][:, :2]},
    "more rows": lambda good: tree.map(lambda leaf: np.concatenate([leaf, leaf]), good),
}


@pytest.mark.parametrize("at", (2, 3))
@pytest.mark.parametrize("name", ("raises", *STATES))
def test_a_failing_initial_state_joins_nothing(name, at):
    policy = Forgetful(at, STATES.get(name))
    with outrider.make_vec(lambda: Traced((3, 4)), 2) as envs, outrider.Collector(envs, policy, seed=0) as collector:
        with pytest.raises(outrider.SpecError, match="initial"):
            collector.rollout(20)
        before = collector.stats.steps
        assert before == collector.stats.carried > 0
        steps = collector.rollout(20).flatten()
        steps.check()
        np.testing.assert_array_equal(steps.extras["seen"], steps.obs)
        np.testing.assert_array_equal(steps.state["count"], steps.step)
        np.testing.assert_array_equal(steps.obs[:, 1], steps.step)
        assert steps.cut.sum() == collector.stats.cuts


class Interrupting(CounterEnv):
    def step(self, action):
        if self.count == 3:
            raise KeyboardInterrupt
        return super().step(action)


def test_rows_before_an_interrupt_stay_countable():
    with (
        outrider.make_vec(Interrupting, 2, backend=outrider.Inline()) as envs,
        outrider.Collector(envs, zeros, seed=0) as collector,
    ):
        with pytest.raises(KeyboardInterrupt):
            collector.rollout(9)
        assert (collector.stats.steps, collector.stats.carried) == (6, 6)


def zeros(obs):
    return np.zeros(len(obs), np.int64)


def test_rows_before_a_failing_environment_can_be_had(backend):
    def make(lane):
        return FaultyEnv("raise", "step", 4) if lane else CounterEnv()

    plan = outrider.Envs([lambda lane=lane: make(lane) for lane in range(2)])
    with outrider.make_vec(plan, backend=backend) as envs, outrider.Collector(envs, zeros, seed=0) as collector:
        collector.steps(3)
        with pytest.raises(EnvironmentFailure, match="lane 1, step"):
            collector.rollout(9)
        assert collector.stats.carried == 5
        steps = collector.steps(4)
        steps.check()
        assert steps.obs[:, 0].tolist() == [1, 2, 2, 3]
        with pytest.raises(ClosedError):
            collector.steps(2)
        assert (collector.stats.steps, collector.stats.carried) == (8, 1)


def interrupt(envs, monkeypatch, call):
    """Let Ctrl-C come while the collector waits for the environments, in that call of `wait` from now on."""
    wait, calls = envs.driver.wait, []

    def interrupted(least=None):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return wait(least)

    monkeypatch.setattr(envs.driver, "wait", interrupted)


@pytest.mark.parametrize("doing", ("rollout", "steps", "episodes"))
@pytest.mark.parametrize("then", ("rollout", "steps", "episodes", "reset"))
def test_an_interrupt_while_waiting_joins_nothing_and_loses_no_row(doing, then, monkeypatch):
    backend = BACKENDS[1]
    with (
        outrider.make_vec(lambda: Traced((6,)), 3, backend=backend) as envs,
        outrider.Collector(envs, TracedPolicy(), seed=0) as collector,
    ):
        collector.steps(4)
        interrupt(envs, monkeypatch, 3)
        with pytest.raises(KeyboardInterrupt):
            getattr(collector, doing)(30)
        before = collector.stats
        assert before.steps == 4 + before.carried
        if then == "reset":
            collector.reset()
        elif then == "episodes":
            assert all(episode.is_complete for episode in collector.episodes(4))
        else:
            getattr(collector, then)(1)
        parts = [collector.steps(40)]
        for steps in parts:
            steps.check()
            np.testing.assert_array_equal(steps.extras["seen"], steps.obs)
            np.testing.assert_array_equal(steps.obs[:, 1], steps.step)
            np.testing.assert_array_equal(steps.state["count"], steps.step)
            np.testing.assert_array_equal(steps.next_obs[:, :2], steps.obs[:, :2] + [0, 1])


# -- torch ------------------------------------------------------------------------------------------------------------


class Dropping(torch.nn.Module):
    """Logits behind dropout, with a frozen part in eval mode."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 2))
        self.frozen = torch.nn.Sequential(torch.nn.Dropout(0.5))
        self.frozen.eval()

    def forward(self, obs):
        logits = self.frozen(self.body(obs))
        return {"action": logits.argmax(1), "logits": logits}


def flags(module):
    return [part.training for part in module.modules()]


@pytest.mark.parametrize("mode", ("eval", "train", "keep"))
def test_training_flags_are_restored_and_no_gradient_is_stored(mode):
    module = Dropping()
    before = flags(module)
    with (
        outrider.make_vec(lambda: FaultyEnv("raise", "step", 30), 3) as envs,
        outrider.Collector(envs, TorchPolicy(module, mode=mode), seed=0) as collector,
    ):
        for record in (collector.rollout(4), collector.steps(7), collector.episodes(2)):
            assert flags(module) == before
            assert not record.torch().extras["logits"].requires_grad
        with pytest.raises(EnvironmentFailure):
            collector.rollout(100)
        assert flags(module) == before
    assert all(parameter.grad is None and not parameter.is_inference() for parameter in module.parameters())


def test_memory_is_flat_over_a_thousand_calls():
    policy = TorchPolicy(Dropping())
    with outrider.make_vec(CounterEnv, 2) as envs, outrider.Collector(envs, policy, seed=0) as collector:

        def collect(calls):
            for _ in range(calls):
                collector.rollout(2)
                collector.steps(3)

        collect(100)
        process = psutil.Process(os.getpid())
        gc.collect()
        tracemalloc.start()
        first, resident = tracemalloc.get_traced_memory()[0], process.memory_info().rss
        collect(500)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - first
        tracemalloc.stop()
        # The last 10 000 returns and lengths are kept: at most some 70 bytes for each of the 250 episodes.
        assert grown < 100_000
        assert process.memory_info().rss - resident < 20_000_000


class Running(torch.nn.Module):
    """A GRU: its state is [layers, n, hidden]."""

    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(8, 4, 2)
        self.embed = torch.nn.Linear(3, 8)

    def initial_state(self, n):
        return torch.zeros(2, n, 4)

    def forward(self, obs, state):
        out, state = self.gru(self.embed(obs.float())[None], state)
        return {"action": (out[0].sum(1) > 0).long(), "out": out[0], "state": state}


def test_a_recurrent_module_is_fed_its_own_states(backend):
    torch.manual_seed(0)
    module = Running()
    with (
        outrider.make_vec(Traced, 5, backend=backend) as envs,
        outrider.Collector(envs, TorchPolicy(module, state_axis=1, pad=True), seed=0) as collector,
    ):
        for steps in (collector.rollout(9).flatten(), collector.steps(12), collector.episodes(7).flatten()):
            assert steps.state.shape == (len(steps), 2, 4)
            np.testing.assert_array_equal(steps.state[steps.step == 0], 0)
            with torch.no_grad():
                state = torch.from_numpy(steps.state.copy()).transpose(0, 1).contiguous()
                again = module(torch.from_numpy(steps.obs.copy()), state)
            np.testing.assert_allclose(steps.extras["out"], again["out"].numpy(), atol=1e-6)
            np.testing.assert_allclose(steps.next_state, again["state"].transpose(0, 1).numpy(), atol=1e-6)


def test_rows_of_a_recurrent_module_are_the_same_on_every_backend():
    torch.manual_seed(0)
    policy = TorchPolicy(Running(), state_axis=1, pad=True)
    found = []
    for backend in BACKENDS:
        with (
            outrider.make_vec(Traced, 5, backend=backend) as envs,
            outrider.Collector(envs, policy, seed=0) as collector,
        ):
            found.append([copies(collector.rollout(20)), copies(collector.episodes(7, quota="per_env"))])
    tree.map(np.testing.assert_array_equal, tuple(found[0]), tuple(found[1]))


def test_nested_observations_and_actions_are_the_same_on_every_backend():
    space = NestedEnv().action_space
    found = []
    for backend in BACKENDS:
        with (
            outrider.make_vec(NestedEnv, 3, backend=backend) as envs,
            outrider.Collector(envs, outrider.RandomPolicy(space), seed=0) as collector,
        ):
            found.append((copies(collector.rollout(50)), copies(collector.steps(20)), copies(collector.episodes(4))))
    tree.map(np.testing.assert_array_equal, found[0], found[1])
    assert isinstance(space, spaces.Dict)
