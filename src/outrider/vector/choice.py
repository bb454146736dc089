"""What `backend="auto"` means: one environment is measured for some steps, and workers are used where they pay."""

from __future__ import annotations

import copy
import logging
import math
import multiprocessing
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import ConfigError, explain
from outrider.seeding import kept_globals
from outrider.vector.counts import processors
from outrider.vector.crew import packed
from outrider.vector.driver import Backend
from outrider.vector.group import FAILURES, build, quietly
from outrider.vector.inline import Inline
from outrider.vector.plan import EnvFactory, Envs
from outrider.vector.processes import Processes

if TYPE_CHECKING:
    import gymnasium

__all__ = ["Cost", "choose", "measure", "workers_for"]

LOG = logging.getLogger("outrider")

SECONDS = 0.2
"""How long to measure, if `LEAST` steps do not take longer."""

LEAST, MOST = 2, 30
"""Steps to measure."""

WORKERS_COST = 300e-6
"""Seconds a vector step that workers cost, generously: a policy that runs between the steps loses its caches, too."""

GAIN = 1.25
"""How many times faster it has to become to be worth more processes."""

MOST_WORKERS = 32
"""Each takes memory for an interpreter and whatever it imports; more have to be asked for."""


@dataclass(frozen=True)
class Cost:
    """Seconds that a step of one environment takes, resets included, on the clock and of the processors' time."""

    wall: float
    cpu: float


def choose(plan: Envs) -> tuple[Backend, str]:
    """Return a backend for `plan`, and why; the log has it, too.

    To measure, one environment more is made by the first factory, reset, stepped with random actions, and closed.
    Processes are not chosen where they cannot be used; threads never are, because nobody can know whether environments
    are safe in them.

    Raises:
        ConfigError: a worker that imports the main script has come here.
        EnvironmentFailure: the environment could not be made.
    """
    backend, reason = _choice(plan)
    LOG.info("%s x %d: %s", plan.name, plan.num_envs, reason)
    return backend, reason


def _choice(plan: Envs) -> tuple[Backend, str]:
    obstacle = _obstacle(plan.num_envs)
    if obstacle:
        return Inline(), f"Inline(), not measured: {obstacle}"
    cost = measure(plan.factories[0])
    if isinstance(cost, BaseException):
        return Inline(), f"Inline(): the steps to be measured failed with {type(cost).__name__}: {cost}"
    workers = workers_for(cost, plan.num_envs, processors())
    spent = (
        f"a step takes {_shown(cost.wall)} ({_shown(cost.cpu)} of a processor), "
        f"{plan.num_envs} of them {_shown(cost.wall * plan.num_envs)} one after the other"
    )
    if workers == 1:
        return Inline(), f"Inline(): {spent}; workers would cost more than they save"
    try:
        packed(plan.factories, range(plan.num_envs))
    except ConfigError:
        return Inline(), f"Inline(): {spent}, but the factories cannot be sent to workers, which would be faster"
    expected = _shown(_vector_step(cost, plan.num_envs, workers, processors()))
    return Processes(workers=workers), f"Processes(workers={workers}): {spent}, about {expected} in {workers} workers"


def _obstacle(num_envs: int) -> str:
    """Why there is no choice; nothing if there is one."""
    if num_envs == 1:
        return "there is one environment"
    if processors() == 1:
        return "there is one processor"
    if multiprocessing.current_process().daemon:
        return "a daemonic process may not start others"
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            explain(
                expected="a main script whose import starts nothing",
                found="a worker that makes environments while it imports the script",
                where='make_vec(..., backend="auto")',
                fix="put the main part under `if __name__ == '__main__':`, or pass backend=outrider.Inline()",
            )
        )
    if _would_run_main_again():
        return "workers would run the script again, which has no `if __name__ == '__main__':`"
    return ""


def _would_run_main_again() -> bool:
    """Whether workers would import a main script that never asks for its name, and so runs as a whole again."""
    main: Any = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    name = getattr(getattr(main, "__spec__", None), "name", "")
    if path is None or name.endswith("__main__"):
        # An interactive session, or `python -m package`: workers do not import it.
        return False
    try:
        return "__name__" not in Path(path).read_text(errors="replace")
    except OSError:
        return False


def measure(factory: EnvFactory) -> Cost | Exception | SystemExit:
    """Make an environment, measure some steps, and close it; return what it raised, if it did in a step or reset.

    The global generators of random numbers are afterwards as they were.

    Raises:
        EnvironmentFailure: it could not be made.
    """
    with kept_globals():
        (env,) = build([factory], 0)
        try:
            return _measured(env)
        except FAILURES as error:
            return error
        finally:
            quietly(env.close)


def _measured(env: gymnasium.Env[Any, Any]) -> Cost:
    # A copy: the space may be shared by all environments, and be drawn from later.
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    actions = [space.sample() for _ in range(MOST + 1)]
    env.reset()
    # The first step may compile or load something.
    over = _step(env, actions.pop())
    # Steps in which others took the processor away, which looks as if the environment waited, and all others.
    lost: list[Cost] = []
    kept: list[Cost] = []
    began = time.perf_counter()
    while actions and (len(lost) + len(kept) < LEAST or time.perf_counter() < began + SECONDS):
        losses, wall, cpu = _losses(), time.perf_counter(), time.process_time()
        if over:
            env.reset()
        over = _step(env, actions.pop())
        cost = Cost(time.perf_counter() - wall, time.process_time() - cpu)
        (kept if _losses() == losses else lost).append(cost)
    steps = kept or lost
    return Cost(sum(one.wall for one in steps) / len(steps), sum(one.cpu for one in steps) / len(steps))


def _losses() -> int:
    """How often the processor was taken from this thread for somebody else, where the system tells."""
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    except (ImportError, AttributeError):
        return 0


def _step(env: gymnasium.Env[Any, Any], action: Any) -> bool:
    _, _, terminated, truncated, _ = env.step(action)
    return bool(terminated or truncated)


def workers_for(cost: Cost, num_envs: int, cpus: int) -> int:
    """How many workers are worth it; 1 means none.

    One for each processor where environments compute, more where they wait for something else.

    Example:
        >>> cheap, heavy, waiting = Cost(wall=6e-6, cpu=6e-6), Cost(wall=1e-3, cpu=1e-3), Cost(wall=1e-2, cpu=1e-4)
        >>> workers_for(cheap, 8, 2), workers_for(heavy, 8, 2), workers_for(waiting, 8, 2)
        (1, 2, 8)
    """
    best, time_of_best = 1, cost.wall * num_envs
    for workers in (min(num_envs, cpus), min(num_envs, MOST_WORKERS)):
        expected = _vector_step(cost, num_envs, workers, cpus)
        if workers > best and expected * GAIN < time_of_best:
            best, time_of_best = workers, expected
    return best


def _vector_step(cost: Cost, num_envs: int, workers: int, cpus: int) -> float:
    """Seconds that a step of all environments can be expected to take in so many workers."""
    rounds = math.ceil(num_envs / workers)
    return max(rounds * cost.wall, num_envs * cost.cpu / cpus) + WORKERS_COST


def _shown(seconds: float) -> str:
    """A time as a reader wants it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
