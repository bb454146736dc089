"""A suite that every collector has to pass, wherever it runs its environments and its policy."""

from __future__ import annotations

import traceback
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import pytest

import outrider
from outrider import tree
from outrider.collect.interface import BaseCollector
from outrider.errors import ClosedError, ConfigError, EnvironmentFailure, PolicyError
from outrider.policies.base import Policy
from outrider.testing.judging import assert_same, checked, judge, require_alike, resets
from outrider.testing.traced import Broken, Coin, Failing, Rewarded, Traced, TracedPolicy, Zeros

__all__ = ["CollectorConformance"]

FOREVER = 10**9

COLUMNS = (
    *("obs", "next_obs", "action", "reward", "terminated", "truncated", "cut", "episode_id", "step", "version"),
    *("env_id", "state", "next_state", "extras"),
)


class CollectorConformance:
    """Tests of a collector. Subclass it in a module that pytest collects, and say how it is made.

    Attributes:
        lockstep: whether all lanes take their steps together; else only the order within each lane is fixed.
        repeats, tolerance: how often the test of bias collects 16 episodes, and how far their mean length may be from
            5.5. The tolerance is four standard errors: 18 / sqrt(16 * repeats).
        long: length of an episode with rewards of 0.1, whose return must be exact.

    Example:
        >>> from contextlib import contextmanager
        >>> class TestInline(CollectorConformance):
        ...     @contextmanager
        ...     def make(self, plan, policy, seed):
        ...         with outrider.make_vec(plan) as envs, outrider.Collector(envs, policy, seed=seed) as collector:
        ...             yield collector
    """

    lockstep = True
    repeats = 100
    tolerance = 0.45
    long = 2_000

    def make(self, plan: outrider.Envs, policy: Policy, seed: int) -> AbstractContextManager[BaseCollector]:
        """A context with a collector of this plan, policy and seed, closed at the end with all that belongs to it.

        The policy may be sent to workers, or a copy of it used in each.
        """
        raise NotImplementedError

    def traced(
        self, num_envs: int, *lengths: int, ends: tuple[str, ...] = ("terminate", "truncate", "both"), seed: int = 3
    ) -> AbstractContextManager[BaseCollector]:
        """A collector of `Traced` environments with episodes of these lengths."""
        plan = outrider.Envs(partial(Traced, lengths or (1, 2, 3, 5), ends), num_envs)
        return self.make(plan, TracedPolicy(), seed)

    # -- counts ------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("num_envs", "count"), ((10, 145), (8, 1), (4, 32)))
    def test_exactly_as_many_steps_as_asked_for(self, num_envs: int, count: int) -> None:
        with self.traced(num_envs, FOREVER) as collector:
            steps = collector.steps(count)
            assert len(steps) == count
            assert collector.stats.steps == count + collector.stats.carried
            if self.lockstep:
                assert collector.stats.steps == -(-count // num_envs) * num_envs
                # Nobody is favoured: lanes differ by one row at most.
                assert np.ptp(np.bincount(steps.env_id, minlength=num_envs)) <= 1

    def test_nothing_is_lost_over_many_different_calls(self) -> None:
        with self.traced(4) as collector:
            returned = 0
            for call in range(20):
                match call % 5:
                    case 0:
                        returned += len(checked(collector.steps(call * 3 + 1)))
                    case 1 | 2:
                        returned += len(checked(collector.rollout(call % 7 + 1)))
                    case 3:
                        returned += len(checked(collector.episodes(call, quota="per_env")).reward)
                    case _:
                        returned += len(checked(collector.episodes(call)).reward)
                stats = collector.stats
                assert stats.steps == returned + stats.carried
            collector.close()
            assert collector.stats.discarded == stats.carried
            assert collector.stats.carried == 0

    def test_rows_come_once_and_in_order(self) -> None:
        with self.traced(3) as collector:
            parts = [collector.steps(5), collector.rollout(4).flatten(), collector.steps(1), collector.steps(20)]
            for lane in range(3):
                told = np.concatenate([part.extras["told"][2][part.env_id == lane] for part in parts])
                assert told.tolist() == list(range(len(told)))

    def test_bad_requests_are_refused_before_anything_is_stepped(self) -> None:
        with self.traced(2) as collector:
            refused: tuple[Any, ...] = (0, -1, 2.0, True, None, "2")
            for bad in refused:
                for call in (collector.rollout, collector.steps, collector.episodes, collector.rollouts):
                    with pytest.raises(ConfigError):
                        call(bad)
            with pytest.raises(ConfigError, match="quota"):
                collector.episodes(2, quota="fair")
            with pytest.raises(ConfigError, match="options"):
                collector.reset(options=[None])
            assert collector.stats.steps == 0
            assert collector.rollout(2).reward.shape == (2, 2)
            collector.close()
            with pytest.raises(ClosedError):
                collector.rollout(1)

    # -- streams -----------------------------------------------------------------------------------------------------

    def test_chunks_are_what_one_call_returns(self) -> None:
        with self.traced(3) as collector:
            whole = collector.rollout(6)
        with self.traced(3) as collector:
            first, second, third = (collector.rollout(length) for length in (2, 3, 1))
        parts = [part.flatten() for part in (first, second, third)]
        for name in COLUMNS:
            joined = tree.concatenate([getattr(part, name) for part in parts])
            assert_same(joined, getattr(whole.flatten(), name), name)
        for earlier, later in ((first, second), (second, third)):
            # What stands behind the last step is what the next call begins with.
            for name in ("obs", "state"):
                behind, before = getattr(earlier, name), getattr(later, name)
                assert_same(tree.take(behind, -1), tree.take(before, 0), name)
        assert_same(third.obs[-1], whole.obs[-1], "obs")

    def test_a_lane_has_the_same_rows_by_whatever_calls(self) -> None:
        with self.traced(3) as collector:
            rows = [collector.rollout(30).flatten()]
        with self.traced(3) as collector:
            rows.append(outrider.Steps.concatenate([collector.steps(count) for count in (7, 1, 25, 57)]))
        for lane in range(3):
            for name in COLUMNS:
                ours, theirs = (tree.take(getattr(part, name), part.env_id == lane) for part in rows)
                if not self.lockstep:
                    both = slice(0, min(int((part.env_id == lane).sum()) for part in rows))
                    ours, theirs = tree.take(ours, both), tree.take(theirs, both)
                assert_same(ours, theirs, name)

    def test_rows_are_those_of_the_reference(self) -> None:
        plan = outrider.Envs(partial(Traced, (1, 2, 3, 5)), 4)

        def collect(collector: BaseCollector) -> list[outrider.Steps]:
            found = [collector.rollout(9).flatten(), collector.steps(17)]
            # How far each lane has come by now, and so how its episodes go on, is the same in lockstep only.
            return [*found, collector.episodes(6, quota="per_env").flatten()] if self.lockstep else found

        with self.make(plan, TracedPolicy(), 11) as collector:
            ours = collect(collector)
        with outrider.make_vec(plan) as envs, outrider.Collector(envs, TracedPolicy(), seed=11) as reference:
            theirs = collect(reference)
        for mine, other in zip(ours, theirs, strict=True):
            for lane in range(4):
                a, b = mine[mine.env_id == lane], other[other.env_id == lane]
                both = slice(0, max(len(a), len(b)) if self.lockstep else min(len(a), len(b)))
                for name in COLUMNS:
                    assert_same(tree.take(getattr(a, name), both), tree.take(getattr(b, name), both), name)
            if self.lockstep:
                assert_same(mine.env_id, other.env_id, "env_id")

    @pytest.mark.parametrize("first", ("episodes", "reset", "reset with options"))
    def test_the_first_resets_have_the_seeds_of_the_run(self, first: str) -> None:
        def collect(collector: BaseCollector) -> Any:
            if first == "episodes":
                episodes = sorted(collector.episodes(3, quota="per_env"), key=lambda episode: episode.env_id)
                return *(episode.obs[:, 1:] for episode in episodes), collector.rollout(4).obs[..., 1:]
            collector.reset(options=None if first == "reset" else {"level": 1})
            return (collector.rollout(4).obs[..., 1:],)

        with self.traced(4, seed=11) as collector:
            found = collect(collector)
        envs = outrider.make_vec(partial(Traced, (1, 2, 3, 5)), 4)
        reference = outrider.Collector(envs, TracedPolicy(), seed=11)
        if first != "episodes":
            expected: Any = (reference.rollout(4).obs[..., 1:],)
        else:
            expected = collect(reference)
        reference.close()
        envs.close()
        assert_same(found, expected, "obs")

    def test_ids_and_steps_go_on_over_calls(self) -> None:
        with self.traced(2, 5) as collector:
            first, second = collector.rollout(2), collector.rollout(2)
            assert np.concatenate([first.obs[:2, 0, 1], second.obs[:2, 0, 1]]).tolist() == [0, 1, 2, 3]
            assert np.unique(np.concatenate([first.episode_id, second.episode_id])).tolist() == [0, 1]
            third = collector.rollout(2)
            assert third.step.tolist() == [[4, 4], [0, 0]]
            assert third.episode_id[0].tolist() == [0, 1]
            assert len(set(third.episode_id.ravel().tolist())) == 4
            assert third.ended.tolist() == [[True, True], [False, False]]

    def test_every_row_agrees_with_what_the_policy_was_told(self) -> None:
        with self.traced(4) as collector:
            for record in (collector.rollout(20), collector.steps(33), collector.episodes(9)):
                judge(checked(record) if isinstance(record, outrider.Steps) else checked(record).flatten())

    def test_a_spec_read_first_changes_nothing(self) -> None:
        with self.traced(3) as collector:
            expected = collector.rollout(8)
        with self.traced(3) as collector:
            zeros = collector.spec.zeros(8)
            found = collector.rollout(8)
        for name in ("obs", "state", "action", "extras", "reward", "step", "episode_id"):
            assert_same(getattr(found, name), getattr(expected, name), name)
            tree.map(require_alike, getattr(zeros, name), getattr(found, name))

    # -- episodes ----------------------------------------------------------------------------------------------------

    def test_episodes_favour_no_length(self) -> None:
        with self.make(outrider.Envs(Coin, 8), Zeros(), 3) as collector:
            lengths = [np.diff(collector.episodes(16).boundaries) for _ in range(self.repeats)]
        assert set(np.unique(lengths)) == {1, 10}
        assert abs(np.mean(lengths) - 5.5) < self.tolerance

    def test_equal_shares(self) -> None:
        plan = outrider.Envs([partial(Traced, (1,)), partial(Traced, (100,))])
        with self.make(plan, TracedPolicy(), 0) as collector:
            episodes = collector.episodes(10, quota="per_env")
            assert np.bincount(episodes.env_id).tolist() == [5, 5]
            assert np.diff(episodes.boundaries).mean() == 50.5
            assert collector.stats.mean_length == 50.5
            assert collector.episodes(3, quota="per_env").env_id.tolist() == [0, 1, 0]

    @pytest.mark.parametrize("quota", (None, "per_env"))
    @pytest.mark.parametrize("count", (1, 3, 4, 11))
    def test_exactly_as_many_resets_as_episodes(self, count: int, quota: str | None) -> None:
        with self.traced(4) as collector:
            collector.rollout(1)
            before = resets(collector, 4)
            episodes = checked(collector.episodes(count, quota=quota))
            assert len(episodes) == count
            assert all(episode.is_complete for episode in episodes)
            assert len(np.unique(episodes.episode_id)) == count
            # The rollout resets every lane again: each stood at an end.
            assert resets(collector, 4) - before == count + 4

    def test_lanes_that_idle_lose_nothing(self) -> None:
        with self.traced(4, 3) as collector:
            first = collector.steps(2)
            episodes = collector.episodes(2)
            assert episodes.env_id.tolist() == [0, 1]
            # The rows that were not asked for are still there, and say that their episodes were cut.
            if self.lockstep:
                assert first.env_id.tolist() == [0, 1]
                rest = checked(collector.steps(2))
                assert rest.env_id.tolist() == [2, 3]
                assert rest.cut.tolist() == [True, True]
            elif collector.stats.carried:
                rest = checked(collector.steps(collector.stats.carried))
                for lane in np.unique(rest.env_id):
                    assert rest.cut[rest.env_id == lane][-1] | rest.terminated[rest.env_id == lane][-1]

    # -- ends and cuts -----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("end", "flags"), (("terminate", (True, False)), ("truncate", (False, True)), ("both", (True, True)))
    )
    def test_ends_keep_their_flags_and_true_last_observations(self, end: str, flags: tuple[bool, bool]) -> None:
        with self.traced(2, 3, ends=(end,)) as collector:
            rollout = checked(collector.rollout(8))
        assert rollout.next_obs[:, 0, 1].tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
        assert rollout.obs[:, 0, 1].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
        assert (rollout.terminated[2, 0], rollout.truncated[2, 0]) == flags
        assert rollout.final_index.tolist() == [4, 5, 10, 11]
        assert not rollout.cut.any()
        assert rollout.terminated.sum() == 4 * flags[0]

    def test_a_limit_and_an_own_end_set_both_flags(self) -> None:
        plan = outrider.Envs(partial(Traced, (5,), ("terminate",)), 2, max_episode_steps=5)
        with self.make(plan, TracedPolicy(), 0) as collector:
            rollout = checked(collector.rollout(6))
        assert rollout.terminated[:, 0].tolist() == rollout.truncated[:, 0].tolist() == [False] * 4 + [True, False]
        plan = outrider.Envs(partial(Traced, (5,), ("terminate",)), 2, max_episode_steps=4)
        with self.make(plan, TracedPolicy(), 0) as collector:
            rollout = checked(collector.rollout(6))
        assert not rollout.terminated.any()
        assert rollout.truncated[:, 0].tolist() == [False] * 3 + [True, False, False]

    def test_a_reset_begins_episodes_that_nothing_joins(self) -> None:
        with self.traced(2, 5) as collector:
            before = checked(collector.rollout(2))
            collector.reset()
            after = checked(collector.rollout(2))
            assert not before.cut.any()
            assert not np.isin(after.episode_id, before.episode_id).any()
            assert after.step.tolist() == [[0, 0], [1, 1]]
            assert after.obs[:, 0, 0].tolist() == [2, 2, 2]
            assert_same(tree.take(after.state, 0), TracedPolicy().initial_state(2), "state")
            assert (collector.stats.episodes, collector.stats.cuts) == (0, 2)

    def test_a_cut_marks_rows_that_are_still_there(self) -> None:
        with self.traced(3, 50) as collector:
            collector.steps(7)
            collector.reset()
            # Lane 0 was handed out up to its last row; lanes 1 and 2 have one left.
            steps = checked(collector.steps(8))
            if not self.lockstep:
                judge(steps)
                return
            assert steps.env_id.tolist() == [1, 2, 0, 1, 2, 0, 1, 2]
            assert steps.cut.tolist() == [True, True] + [False] * 6
            assert steps.obs[:2, :2].tolist() == [[1, 2], [1, 2]]
            assert steps.next_obs[:2, :2].tolist() == [[1, 3], [1, 3]]
            assert tree.take(steps.next_state, slice(0, 2))["count"].tolist() == [3, 3]
            assert steps.obs[2:5, :2].tolist() == [[2, 0]] * 3
            assert collector.stats.cuts == 3
            judge(steps)

    def test_nothing_is_stitched(self) -> None:
        with self.traced(3, 4) as collector:
            parts = [collector.steps(5)]
            collector.reset()
            parts += [collector.steps(4), collector.rollout(3).flatten(), collector.episodes(4).flatten()]
            parts.append(collector.steps(20))
            for part in parts:
                judge(part)
            joined = outrider.Steps.concatenate(parts)
        for identity in np.unique(joined.episode_id):
            mine = joined[joined.episode_id == identity]
            assert len(np.unique(mine.obs[:, 0])) == 1
            assert mine.step.tolist() == list(range(len(mine)))
            assert not mine.ended[:-1].any()

    def test_a_new_seed_repeats_the_environments(self) -> None:
        with self.traced(3, seed=5) as collector:
            first = collector.rollout(6)
            collector.reset(seed=5)
            again = collector.rollout(6)
            assert_same(again.obs[..., 1:], first.obs[..., 1:], "obs")
            collector.reset(seed=6)
            assert (collector.rollout(6).obs[..., 2] != first.obs[..., 2]).all()

    # -- statistics --------------------------------------------------------------------------------------------------

    def test_returns_and_lengths(self) -> None:
        with self.make(outrider.Envs(partial(Rewarded, 3), 2), Zeros(), 0) as collector:
            collector.rollout(2)
            assert collector.stats.episodes == 0
            collector.rollout(8)
            stats = collector.stats
            assert stats.returns.tolist() == [3.0] * 6
            assert stats.lengths.tolist() == [3] * 6
            assert stats.episodes_per_lane.tolist() == [3, 3]
            collector.reset()
            collector.rollout(3)
            assert collector.stats.returns.tolist() == [3.0] * 8
            assert collector.stats.cuts == 2

    def test_returns_are_summed_in_double_precision(self) -> None:
        with self.make(outrider.Envs(partial(Rewarded, self.long, 0.1), 1), Zeros(), 0) as collector:
            collector.rollout(self.long)
            assert collector.stats.mean_return == pytest.approx(self.long / 10, abs=1e-6)

    # -- failures ----------------------------------------------------------------------------------------------------

    def test_rows_are_countable_after_a_failure(self) -> None:
        plan = outrider.Envs([partial(Traced, (FOREVER,)), partial(Failing, 4)])
        with self.make(plan, TracedPolicy(), 0) as collector:
            assert len(collector.steps(3)) == 3
            # Of a rollout each lane has to take its part, however long the other one could go on alone.
            with pytest.raises(EnvironmentFailure, match="told to fail in step 4") as caught:
                collector.rollout(20)
            assert caught.value.lane == 1
            stats = collector.stats
            assert stats.steps == 3 + stats.carried + stats.discarded

    def test_an_error_of_the_policy_is_called_that(self) -> None:
        with self.make(outrider.Envs(partial(Traced, (FOREVER,)), 2), Broken(3), 0) as collector:
            with pytest.raises(PolicyError, match="the policy raised ArithmeticError: cannot go on") as caught:
                collector.rollout(20)
            assert repr(caught.value.__cause__) == "ArithmeticError('cannot go on')"
            shown = "".join(traceback.format_exception(caught.value))
            assert "in act" in shown
            assert "was called with a batch of" in shown
