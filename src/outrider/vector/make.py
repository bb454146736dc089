"""`make_vec`: from a plan to running environments."""

from __future__ import annotations

from gymnasium.vector import AutoresetMode

from outrider.errors import ConfigError, explain
from outrider.vector.autoreset import check_mode
from outrider.vector.batched import refusal
from outrider.vector.choice import choose
from outrider.vector.driver import Backend
from outrider.vector.env import VecEnv
from outrider.vector.plan import Envs, EnvSource, as_plan
from outrider.vector.take_over import take_over

__all__ = ["make_vec"]


def make_vec(
    env: Envs | EnvSource,
    num_envs: int | None = None,
    *,
    backend: Backend | str = "auto",
    autoreset_mode: AutoresetMode | str | None = None,
) -> VecEnv:
    """Start environments; the result is a `gymnasium.vector.VectorEnv`.

    Args:
        env: a plan, a Gymnasium id, a factory, a list of factories, or a batch of environments that exists already: a
            `gymnasium.vector.VectorEnv` or an EnvPool pool, which is taken over and closed with the result.
        num_envs: how many. A plan, a list and a batch say it themselves: leave it out, or pass the same number.
        backend: where they run: `Inline()`, `Threads(...)`, `Processes(...)`, or "auto": one environment more is made
            by the first factory, stepped for about 0.2 seconds at most, and closed; where workers pay, they are used.
            What was chosen, and why, stands in `backend_reason` and in the log `outrider` (level INFO).
        autoreset_mode: when `step()` resets a lane that has ended, as Gymnasium has it: "SameStep" (in the step that
            ends it), "NextStep" (in the step after, whose action it does not see) or "Disabled" (never: call
            `reset(options={"reset_mask": mask})`). Collectors are not affected. None: same-step, or as a batch does it,
            which cannot be changed.

    Raises:
        ConfigError: arguments that cannot be used; nothing has been started then.
        EnvironmentFailure: an environment could not be made.

    Example:
        >>> envs = make_vec("CartPole-v1", 3)
        >>> obs, info = envs.reset(seed=0)
        >>> obs.shape
        (3, 4)
        >>> envs.close()
    """
    mode = None if autoreset_mode is None else check_mode(autoreset_mode)
    plan = as_plan(env, num_envs)
    if plan.batch is not None:
        return _of_batch(plan, backend, mode)
    reason = ""
    if backend == "auto":
        backend, reason = choose(plan)
    if isinstance(backend, (str, type)) or not isinstance(backend, Backend):
        raise ConfigError(
            explain(
                expected="Inline(), Threads(...), Processes(...) or 'auto'",
                found=repr(backend),
                where="backend",
                fix="pass e.g. outrider.Processes(workers=2)",
            )
        )
    mode = mode or AutoresetMode.SAME_STEP
    envs = VecEnv(backend.start(plan), plan.name, info_keys=plan.info_keys, autoreset_mode=mode)
    envs.backend_reason = reason
    return envs


def _of_batch(plan: Envs, backend: Backend | str, mode: AutoresetMode | None) -> VecEnv:
    """Take over environments that exist already."""
    if backend != "auto":
        found, fix = f"{backend!r} for an instance of {type(plan.batch).__name__}", "leave it out, or pass a factory"
        raise refusal("backend='auto': environments that exist run where they were made", found, "backend", fix)
    driver, own = take_over(plan.batch, plan.info_keys, mode)
    return VecEnv(driver, plan.name, info_keys=plan.info_keys, autoreset_mode=own)
