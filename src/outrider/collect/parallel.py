"""`ParallelCollector`: worker processes run the environments and the policy; whole rollouts are written in place."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from multiprocessing import util
from time import perf_counter
from typing import Any

import cloudpickle

from outrider.collect.actions import ActionMapName, check_action_map
from outrider.collect.infos import info_specs
from outrider.collect.interface import BaseCollector
from outrider.collect.order import in_order
from outrider.collect.parallel_worker import Assignment, Happened, PolicyFactory
from outrider.collect.stats import Recorder
from outrider.collect.tape import Tape
from outrider.errors import ConfigError, PolicyError, explain
from outrider.memory.rows import Rows
from outrider.policies.base import Policy
from outrider.records.episodes import Episodes
from outrider.records.step_spec import StepSpec
from outrider.seeding import resolve_seed
from outrider.tree import Tree
from outrider.vector.crew import FAILING_TIME, Crew
from outrider.vector.member import Member
from outrider.vector.plan import Envs, check_count
from outrider.vector.processes import Processes, hire

__all__ = ["ParallelCollector"]


class ParallelCollector(BaseCollector):
    """Collects in worker processes, each of which owns some lanes and a copy of the policy.

    Nothing crosses between processes in a step: the workers write their lanes of a block that all share, and the parent
    hands out the block. From the same seed the rows are those of `Collector`, whatever the number of workers, as long
    as the policy's output for a row does not depend on the other rows of its batch. See `BaseCollector` for what can be
    asked of it. A worker that fails or dies ends the collector, with an error that names lane, operation and cause.

    Args:
        plan: the environments; at least one for each worker.
        make_policy: a callable without arguments that returns a policy (see `Collector`); called in each worker.
        workers: how many.
        backend: how the workers are started.
        seed: run seed, from which each lane gets seeds of its own; None for a fresh one.
        action_map: as of `Collector`.

    Raises:
        ConfigError: an argument that cannot be used; nothing has been started then.
        EnvironmentFailure: an environment could not be made.

    Example:
        A script needs its main part under `if __name__ == "__main__":`, because each worker imports it.

        >>> import outrider
        >>> from gymnasium.spaces import Discrete
        >>> plan = outrider.Envs("CartPole-v1", 4)
        >>> def make_policy():
        ...     return outrider.RandomPolicy(Discrete(2))
        >>> with outrider.ParallelCollector(plan, make_policy, workers=2, seed=0) as collector:
        ...     rollout = collector.rollout(16)
        >>> rollout.reward.shape
        (16, 4)
    """

    def __init__(
        self,
        plan: Envs,
        make_policy: PolicyFactory,
        *,
        workers: int,
        backend: Processes | None = None,
        seed: int | None = None,
        action_map: ActionMapName = "auto",
    ) -> None:
        backend = _backend(plan, make_policy, workers, backend)
        self.seed = resolve_seed(seed)
        self.num_envs = plan.num_envs
        self._name = plan.name
        assignment = Assignment(make_policy, self.seed, check_action_map(action_map), workers)
        run = ("outrider.collect.parallel_worker", "run")
        self._crew, _, self._store = hire(plan, backend, run, assignment)
        self._closer = util.Finalize(self, Crew.close, (self._crew,), exitpriority=10)
        self._tape = Tape(self._store, plan.info_keys)
        self._recorder = Recorder(self.num_envs, self._store.reward.shape[1:])
        self._known_spec: StepSpec | None = None
        self._version = 0

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers."""
        return self._crew.pids

    def trim(self) -> None:
        """Give the memory of rollouts that were let go back to the system now."""
        self._store.pool.trim()

    def _advance(self, turns: int) -> None:
        if not turns:
            return
        began = perf_counter()
        base = self._tape.open(turns).base
        happened = []
        for ends, infos, ragged, some in self._ask("filled", "fill", base, turns):
            self._tape.side.extend(*ends)
            self._store.put_ragged(ragged)
            for table, entries in zip((self._tape.infos, self._tape.obs_infos), infos, strict=True):
                for row, info in entries:
                    table.put(row, info)
            happened.append(some)
        self._tape.append(range(base, base + turns * self.num_envs))
        self._record(happened, perf_counter() - began)

    def _episodes(self, count: int, *, per_lane: bool) -> Episodes:
        began = perf_counter()
        self._tape.cut_open()
        answers = self._ask("episodes", "episodes", count, per_lane)
        self._record([some for _, _, some in answers], perf_counter() - began)
        for _, (infos, obs_infos), _ in answers:
            self._tape.infos.learn(infos)
            self._tape.obs_infos.learn(obs_infos)
        return in_order(Episodes.concatenate([self._conform(one) for one, _, _ in answers if one is not None]))

    def _conform(self, episodes: Episodes) -> Episodes:
        """Episodes of a worker, with infos as all workers have seen them."""
        infos, obs_infos = self._tape.infos.conform(episodes.info), self._tape.obs_infos.conform(episodes.obs_info)
        return dataclasses.replace(episodes, info=infos, obs_info=obs_infos)

    def _reset(self, seeds: list[int] | None, options: Sequence[dict[str, Any] | None] | None) -> None:
        if options is not None and len(options) != self.num_envs:
            raise ConfigError(
                explain(
                    expected=f"{self.num_envs} options", found=len(options), where="reset", fix="pass one for each lane"
                )
            )
        self._tape.cut_open()
        self._record(self._ask("reset", "reset", seeds, options), 0.0)

    def _spec(self) -> StepSpec:
        if self._known_spec is None:
            began = perf_counter()
            answers = self._ask("spec", "spec")
            self._record([some for _, some in answers], perf_counter() - began)
            self._known_spec = dataclasses.replace(answers[0][0], num_envs=self.num_envs, env_name=self._name)
        infos = info_specs(self._tape.infos, self._tape.obs_infos, self._known_spec)
        return dataclasses.replace(self._known_spec, **infos)

    def _load(self, weights: Tree) -> int:
        self._version = max(self._ask("published", "publish", weights))
        return self._version

    def _stand_in(self, policy: Policy | None) -> None:
        self._ask("stood_in", "stand_in", None if policy is None else _pickled(policy))

    def _ask(self, answer: str, kind: str, *content: Any) -> list[Any]:
        """Ask all workers for something and return their answers.

        A failure, a death and an interrupt leave workers in the middle of something: they are ended.
        """
        try:
            for member in self._crew.members:
                member.send((kind, *content))
            return [self._answer(member, answer) for member in self._crew.members]
        except BaseException:
            self._give_up()
            raise

    def _answer(self, member: Member, kind: str) -> Any:
        """Wait for a worker's answer; a worker that decides for the first time is told where the columns are."""
        while True:
            found, content = member.expect_any(kind, "columns")
            if found == kind:
                return content
            member.send(self._columns(content, member.index).layout)

    def _columns(self, specs: Tree, index: int) -> Rows:
        """The columns for the policy's output, which is the same in every worker."""
        columns = self._tape.columns
        if columns is None:
            columns = self._store.columns(specs)
            # The other half of the row numbers is for what workers keep to themselves.
            self._store.pool.restrict(0, self._store.pool.capacity // 2)
            self._tape.fix(columns)
        _check_same(columns.layout.specs, specs, index)
        return columns

    def _give_up(self) -> None:
        """End the workers after a failure; what was collected before is not handed out any more."""
        self._crew.close(FAILING_TIME)
        self.close()

    def _record(self, happened: list[Happened], seconds: float) -> None:
        recorder, workers = self._recorder, len(self._crew.members)
        recorder.seconds += seconds
        for some in happened:
            recorder.steps += some.steps
            recorder.cuts += some.cuts
            # Workers run side by side: the mean of their times is what of the whole went there.
            recorder.policy_seconds += some.seconds[1] / workers
            recorder.env_seconds += some.seconds[2] / workers
            for stopped in some.stopped:
                recorder.add_episodes(*stopped)

    def _end(self) -> None:
        self._closer.cancel()
        failures = self._crew.close()
        self._store.pool.trim()
        if failures:
            raise failures[0]


def _backend(plan: Envs, make_policy: PolicyFactory, workers: int, backend: Processes | None) -> Processes:
    """The backend with its number of workers; refuses what cannot be used before anything is started."""
    if not isinstance(plan, Envs):
        raise ConfigError(
            explain(
                expected="a plan",
                found=f"{type(plan).__name__} {plan!r:.60}",
                where="ParallelCollector(plan, ...)",
                fix="pass outrider.Envs(env, num_envs): the environments are built in the workers",
            )
        )
    if isinstance(make_policy, Policy) or not callable(make_policy):
        raise ConfigError(
            explain(
                expected="a callable without arguments that returns a policy",
                found=f"{type(make_policy).__name__} {make_policy!r:.60}",
                where="make_policy",
                fix="pass e.g. `lambda: policy`: each worker makes a policy of its own",
            )
        )
    check_count(workers, "workers")
    backend = Processes() if backend is None else backend
    if not isinstance(backend, Processes):
        raise ConfigError(
            explain(
                expected="Processes()",
                found=repr(backend),
                where="backend",
                fix="workers that run the policy are processes; for other backends use Collector",
            )
        )
    if backend.workers not in (None, workers):
        raise ConfigError(
            explain(
                expected="Processes() without a number of workers of its own",
                found=repr(backend),
                where="backend",
                fix="give the number to ParallelCollector(workers=...)",
            )
        )
    for name, default in (("wait_for", None), ("step_timeout", None), ("on_failure", "raise")):
        value = getattr(backend, name)
        if value != default:
            raise ConfigError(
                explain(
                    expected=f"no {name}: each of these workers steps its own lanes together, by its own policy",
                    found=repr(value),
                    where=f"ParallelCollector(backend=Processes({name}=...))",
                    fix=f"leave it out, or let the policy run in this process: "
                    f"Collector(make_vec(plan, backend=Processes({name}={value!r})), policy)",
                )
            )
    backend = dataclasses.replace(backend, workers=workers)
    backend.count(plan.num_envs)
    return backend


def _pickled(policy: Policy) -> bytes:
    try:
        return bytes(cloudpickle.dumps(policy))
    except Exception as error:
        raise ConfigError(
            explain(
                expected="a policy that can be sent to the workers",
                found=f"{type(error).__name__}: {error}",
                where="fill(policy=...)",
                fix="leave what cannot be pickled (locks, files, connections) out of it",
            )
        ) from error


def _check_same(first: Tree, other: Tree, index: int) -> None:
    if first != other:
        raise PolicyError(
            explain(
                expected=f"{first} as in the others",
                found=other,
                where=f"policy output in worker {index}",
                fix="let make_policy return the same kind of policy in every worker",
            )
        )
