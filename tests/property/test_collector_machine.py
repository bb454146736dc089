"""Random calls to a collector, against lanes that are simulated one by one in plain Python."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import outrider
from helpers.plain_lanes import PlainLanes, column
from outrider import tree
from outrider.testing.traced import Traced, TracedPolicy

COLUMNS = (
    *("obs", "next_obs", "action", "reward", "terminated", "truncated", "cut", "episode_id", "step", "env_id"),
    *("version", "state", "next_state", "extras"),
)

LENGTHS = ((1,), (3,), (1, 2), (1, 7), (2, 5, 40))


class Recurrent(TracedPolicy):
    """Takes any weights, and raises `error` in the call that `countdown` says."""

    countdown = 0
    error = None

    def act(self, obs, state, ctx):
        self.tick()
        return super().act(obs, state, ctx)

    def tick(self):
        self.countdown -= 1
        if self.countdown == 0:
            raise self.error

    def load(self, tree):
        pass


class Stateless(outrider.Policy):
    """The same without a state."""

    def __init__(self):
        self.inner = Recurrent()

    def act(self, obs, state, ctx):
        output = self.inner.act(obs, {"sum": np.zeros((len(obs), 3)), "count": ctx.step}, ctx)
        del output["state"]
        return output

    def load(self, tree):
        pass


def assert_same(found, rows):
    """Steps are exactly these rows, in this order."""
    assert len(found) == len(rows)
    for name in COLUMNS:
        mine, expected = getattr(found, name), column(rows, name)
        assert tree.paths(mine) == tree.paths(expected) or sorted(tree.paths(mine)) == sorted(tree.paths(expected))
        tree.map(lambda a, b, name=name: np.testing.assert_array_equal(a, b, err_msg=name, strict=True), mine, expected)


class Machine(RuleBasedStateMachine):
    """Calls that every collector takes; `open` makes one, whose lanes are those of `plain`."""

    collector = None

    def __init__(self):
        super().__init__()
        self.held = []

    @initialize(
        lanes=st.integers(1, 4), lengths=st.sampled_from(LENGTHS), seed=st.integers(0, 99), recurrent=st.booleans()
    )
    def begin(self, lanes, lengths, seed, recurrent):
        self.policy = Recurrent() if recurrent else Stateless()
        self.failing = self.policy if recurrent else self.policy.inner
        self.plain = PlainLanes([Traced(lengths) for _ in range(lanes)], self.policy, seed)
        self.returned = 0
        self.known = False
        self.collector = self.open(outrider.Envs(lambda: Traced(lengths), lanes), seed)

    def keep(self, record):
        """What is held must not change while collection goes on."""
        copy = tree.map(np.copy, (record.obs, record.action, record.extras, record.state, record.reward, record.cut))
        self.held = [*self.held[-3:], (record, copy)]

    def first_use(self):
        """The first call of all decides once, and so resets, even if it has to do nothing else."""
        self.known = True

    @rule(length=st.integers(1, 9))
    def rollout(self, length):
        found = self.collector.rollout(length)
        rows = self.plain.rollout(length)
        found.check()
        assert_same(found.flatten(), rows)
        self.returned += len(rows)
        lanes = len(self.plain.lanes)
        for index, final in zip(found.final_index, range(len(found.final_index)), strict=True):
            np.testing.assert_array_equal(found.final_obs[final], rows[index]["next_obs"])
        for n in range(lanes):
            last = rows[(length - 1) * lanes + n]
            if not (last["terminated"] or last["truncated"] or last["cut"]):
                np.testing.assert_array_equal(found.obs[length, n], last["next_obs"])
                if found.state is not None:
                    np.testing.assert_array_equal(found.state["sum"][length, n], last["next_state"]["sum"][0])
        self.keep(found)
        self.first_use()

    @rule(count=st.integers(1, 30))
    def steps(self, count):
        found = self.collector.steps(count)
        found.check()
        assert_same(found, self.plain.steps(count))
        self.returned += count
        self.keep(found)
        self.first_use()

    @rule(count=st.integers(1, 9), per_env=st.booleans())
    def episodes(self, count, per_env):
        self.run_episodes(count, per_env)

    def run_episodes(self, count, per_env):
        before = sum(lane.resets for lane in self.plain.lanes)
        found = self.collector.episodes(count, quota="per_env" if per_env else None)
        found.check()
        episodes = self.plain.episodes(count, per_env)
        assert len(found) == len(episodes) == count
        assert sum(lane.resets for lane in self.plain.lanes) - before == count
        assert np.diff(found.boundaries).tolist() == [len(rows) for rows in episodes]
        assert_same(found.flatten(), [row for rows in episodes for row in rows])
        assert all(episode.is_complete for episode in found)
        self.returned += len(found.reward)
        self.keep(found)
        self.first_use()

    @rule(seed=st.none() | st.integers(0, 99))
    def reset(self, seed):
        self.collector.reset(seed=seed)
        self.plain.reset(seed)

    @rule()
    def spec(self):
        spec = self.collector.spec
        assert (spec.num_envs, spec.obs.shape, spec.reward.dtype) == (len(self.plain.lanes), (3,), np.float64)
        if not self.known:
            self.plain.settle()
            self.first_use()

    @rule()
    def publish(self):
        self.plain.version += 1
        # What was decided before, for the first row of all, keeps its version.
        if self.known and self.plain.taken == 0:
            self.plain.version -= 1
            self.collector.steps(1)
            self.plain.steps(1)
            self.returned += 1
            self.plain.version += 1
        assert self.collector.publish(None) == self.plain.version

    @precondition(lambda self: self.held)
    @rule()
    def write(self):
        """Whoever holds a record may write to it."""
        record, _ = self.held.pop()
        for leaf in tree.leaves((record.obs, record.action, record.extras, record.state, record.reward)):
            if leaf.flags.writeable:
                leaf[...] = 77

    @invariant()
    def nothing_is_lost(self):
        if self.collector is None:
            return
        stats = self.collector.stats
        assert stats.steps == self.plain.taken == self.returned + stats.carried
        assert stats.carried == len(self.plain.rows)
        ended = [pair for lane in self.plain.lanes for pair in lane.ended]
        assert stats.episodes == len(ended)
        assert stats.cuts == self.plain.cuts
        assert sorted(zip(stats.returns.tolist(), stats.lengths.tolist(), strict=True)) == sorted(ended)
        assert stats.episodes_per_lane.tolist() == [len(lane.ended) for lane in self.plain.lanes]

    @invariant()
    def what_is_held_stays(self):
        for record, copy in self.held:
            now = (record.obs, record.action, record.extras, record.state, record.reward, record.cut)
            tree.map(np.testing.assert_array_equal, now, copy)

    def teardown(self):
        if self.collector is not None:
            self.close()
        # Hypothesis keeps machines for a while; each has reserved much address space.
        self.collector = self.plain = None
        self.held.clear()


class InlineMachine(Machine):
    """Everything in this process: resets can be counted, and failures leave the collector usable."""

    envs = None

    def open(self, plan, seed):
        self.envs = outrider.make_vec(plan)
        return outrider.Collector(self.envs, self.policy, seed=seed)

    def close(self):
        self.collector.close()
        self.envs.close()
        self.envs = None

    @invariant()
    def resets_are_as_many_as_needed(self):
        if self.envs is not None:
            assert self.envs.get_attr("resets") == tuple(lane.resets for lane in self.plain.lanes)

    @precondition(lambda self: self.collector is not None and self.plain.taken)
    @rule(
        at=st.integers(1, 6),
        error=st.sampled_from((ValueError, KeyboardInterrupt)),
        call=st.sampled_from(("steps", "rollout", None, "per_env")),
    )
    def fail(self, at, error, call):
        """The policy fails in its decision number `at` of a call that wants more: no row is lost, nothing is joined."""
        turns = at + 3 + max(self.plain.count(lane.number) for lane in self.plain.lanes)
        self.failing.error, self.failing.countdown = error, at
        if call in ("steps", "rollout"):
            count = turns * len(self.plain.lanes) if call == "steps" else turns
            with pytest.raises(error):
                getattr(self.collector, call)(count)
            self.plain.settle()
            for _ in range(at - 1):
                self.plain.turn()
        else:
            with pytest.raises(error):
                self.collector.episodes(50, quota=call)
            assert self.plain.episodes(50, call == "per_env", at - 1) is None


class ParallelMachine(Machine):
    """Two workers, where there are two lanes."""

    def open(self, plan, seed):
        policy = self.policy
        backend = outrider.Processes(start_method="fork")
        workers = min(2, plan.num_envs)
        collector = outrider.ParallelCollector(plan, lambda: policy, workers=workers, backend=backend, seed=seed)
        # The first call resets all lanes in any case.
        assert collector.spec.num_envs == plan.num_envs
        self.plain.settle()
        self.known = True
        return collector

    def close(self):
        self.collector.close()

    @rule(count=st.integers(1, 9))
    def episodes(self, count):
        """Each worker has its share of episodes, so that only equal shares are those of one process."""
        self.run_episodes(count, per_env=True)


InlineMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
ParallelMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
TestInline = InlineMachine.TestCase
TestParallel = ParallelMachine.TestCase
