"""`outrider collect`: environments and a policy in, a dataset out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from outrider.cli.blocks import Block, blocks, take_episodes
from outrider.cli.checks import check_new_folder, check_same_spec, count_of, open_for_appending, workers_of
from outrider.cli.failures import say
from outrider.cli.progress import progress_bar
from outrider.cli.sources import PolicySource, plan_of, policy_of
from outrider.cli.summary import Timing, show_run
from outrider.collect.collector import Collector
from outrider.collect.interface import BaseCollector
from outrider.collect.parallel import ParallelCollector
from outrider.dataset import Dataset
from outrider.errors import EnvironmentFailure, PolicyError
from outrider.records import StepSpec
from outrider.vector.inline import Inline
from outrider.vector.make import make_vec
from outrider.vector.plan import Envs
from outrider.vector.processes import Processes
from outrider.vector.recovery import Drop, OnFailure, Restart

__all__ = ["Limits", "Request", "run"]


@dataclass(frozen=True)
class Limits:
    """What environments are allowed.

    Attributes:
        max_episode_steps: as of `Envs`.
        step_timeout: as of `Processes`.
        on_failure: "raise", "restart" or "drop".
    """

    max_episode_steps: int | None = None
    step_timeout: float | None = None
    on_failure: str = "raise"

    @property
    def backend(self) -> Inline | Processes:
        """Where environments run whose policy runs in this process: in workers only if these are needed.

        Raises:
            ConfigError: a bad time.
        """
        if self.step_timeout is None and self.on_failure == "raise":
            return Inline()
        choices: dict[str, OnFailure] = {"raise": "raise", "restart": Restart(), "drop": Drop()}
        return Processes(step_timeout=self.step_timeout, on_failure=choices[self.on_failure])

    @property
    def given(self) -> dict[str, Any]:
        """Those that are no defaults, as JSON takes them."""
        return {name: value for name, value in asdict(self).items() if value != getattr(Limits, name)}


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line, but for the count."""

    env: str
    policy: str | None
    out: Path
    num_envs: int
    workers: str
    seed: int | None
    append: bool
    limits: Limits


@dataclass(frozen=True)
class Job:
    """A request that has passed the checks which need nothing to be started.

    Attributes:
        unit, count: "steps" or "episodes", and how many.
        plan: of the environments.
        policy: where it comes from.
        workers: 0 for none.
    """

    request: Request
    unit: str
    count: int
    plan: Envs
    policy: PolicySource
    workers: int


def run(request: Request, steps: int | None, episodes: int | None) -> None:
    """Collect and store what is asked for, and say how it went.

    Raises:
        Refusal, ConfigError: it cannot be done; nothing was started or stored.
        OutriderError: it failed on the way; what was stored stays.
    """
    began = perf_counter()
    unit, count = count_of(steps, episodes)
    in_workers = isinstance(request.limits.backend, Processes)
    workers = workers_of(request.workers, request.num_envs, environments_alone=in_workers)
    dataset = open_for_appending(request.out) if request.append else None
    if dataset is None:
        check_new_folder(request.out)
    try:
        plan = plan_of(request.env, request.num_envs, request.limits.max_episode_steps)
        policy = policy_of(request.policy)
        job = Job(request, unit, count, plan, policy, workers)
        seed = request.seed if request.seed is not None else len(dataset) if dataset is not None else 0
        with _collector(job, seed, dataset) as collector:
            if dataset is None:
                dataset = Dataset.create(request.out, collector.spec, metadata=_metadata(job, seed))
            else:
                _warn_of_repetition(dataset, job, seed)
            dataset.begin_run(_metadata(job, seed))
            timing = _store(job, collector, dataset)
        timing.total = perf_counter() - began
        show_run(request.out, dataset.summary(), timing)
    finally:
        if dataset is not None:
            dataset.close()


@contextmanager
def _collector(job: Job, seed: int, dataset: Dataset | None) -> Iterator[BaseCollector]:
    """A collector whose rows fit into `dataset`, if there is one; without workers it runs in this process."""

    def check(spec: StepSpec) -> None:
        if dataset is not None:
            check_same_spec(dataset, spec)

    plan = job.plan if job.workers == 0 else plan_of(job.request.env, 1)
    backend = job.request.limits.backend
    with make_vec(plan, backend=backend) as envs:
        make_policy = job.policy.maker(envs.single_action_space, seed)
        with Collector(envs, make_policy(), seed=seed) as collector:
            check(collector.spec)
            if job.workers == 0:
                yield collector
                return
    with ParallelCollector(job.plan, make_policy, workers=job.workers, seed=seed) as parallel:
        yield parallel


def _metadata(job: Job, seed: int) -> dict[str, Any]:
    """Where the data come from. Folders are left out: they say something about the machine and its user only."""
    request = job.request
    return {
        "env": job.plan.name,
        "policy": job.policy.name,
        "seed": seed,
        "num_envs": request.num_envs,
        "command": {
            "name": "collect",
            job.unit: job.count,
            "envs": request.num_envs,
            "workers": job.workers,
            **request.limits.given,
        },
    }


def _warn_of_repetition(dataset: Dataset, job: Job, seed: int) -> None:
    """The same seed, policy and lanes give the same rows once more, which is seldom meant."""
    if (seed, job.policy.name) in [(run.get("seed"), run.get("policy")) for run in dataset.runs]:
        say(f"note: seed {seed} was used for this dataset before: its first rows are collected once more")


def _take(job: Job, take: Callable[[int], Block], collector: BaseCollector, dataset: Dataset, count: int) -> Block:
    """Take a block; where that fails, or Ctrl-C stops it, store what was collected before, if this process has it."""
    try:
        return take(count)
    except (EnvironmentFailure, PolicyError, KeyboardInterrupt):
        rest = min(collector.stats.carried, count)
        if rest and job.unit == "steps":
            dataset.append(collector.steps(rest))
        raise


def _store(job: Job, collector: BaseCollector, dataset: Dataset) -> Timing:
    """Collect block by block, and append each block at once."""
    take: Callable[[int], Block]
    take = collector.steps if job.unit == "steps" else partial(take_episodes, collector)
    timing, before, began = Timing(), collector.stats, perf_counter()
    visible = sys.stderr.isatty()
    with progress_bar(job.unit, job.count, lambda: collector.stats.returns, visible=visible) as bar:
        for block, units in blocks(partial(_take, job, take, collector, dataset), job.count, collector.num_envs):
            start = perf_counter()
            timing.steps += dataset.append(block)
            now = perf_counter()
            timing.storing += now - start
            timing.loop = now - began
            bar.advance(units, timing.steps / timing.loop)
    after = collector.stats
    timing.policy = after.policy_seconds - before.policy_seconds
    timing.environments = after.env_seconds - before.env_seconds
    return timing
