"""What is raised where the code of a policy raises, in this process and in workers."""

import re
from contextlib import contextmanager
from functools import partial

import pytest

import outrider
from helpers.envs import CounterEnv
from helpers.worker_envs import UnpicklableError, UnreadableError
from outrider.errors import PolicyError
from outrider.testing.traced import Traced, TracedPolicy


class Raising(TracedPolicy):
    """Raises `error()` in one of its methods."""

    def __init__(self, method, error):
        def fail(*_):
            raise error()

        setattr(self, method, fail)


@pytest.fixture(params=("here", "workers"))
def collector_of(request):
    @contextmanager
    def make(make_policy, env=Traced):
        plan = outrider.Envs(partial(env, (4,)), 2)
        if request.param == "workers":
            backend = outrider.Processes(start_method="fork")
            with outrider.ParallelCollector(plan, make_policy, workers=2, backend=backend, seed=0) as collector:
                yield collector
        else:
            with outrider.make_vec(plan) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
                yield collector

    return make


@pytest.mark.parametrize(
    ("method", "where"),
    (
        ("act", "the policy"),
        ("initial_state", "initial_state of the policy"),
        ("session", "session of the policy"),
        ("load", "load of the policy"),
    ),
)
def test_what_a_policy_raises_is_the_cause_of_a_policy_error(collector_of, method, where):
    with (
        collector_of(lambda: Raising(method, partial(KeyError, "no such part"))) as collector,
        pytest.raises(PolicyError, match=f"^{where} raised KeyError: 'no such part'") as caught,
    ):
        collector.publish({}) if method == "load" else collector.rollout(3)
    assert isinstance(caught.value.__cause__, KeyError)
    assert f"{where} was called with" in caught.value.__notes__[0]


def test_a_policy_error_of_its_own_stays_as_it_is(collector_of):
    with (
        collector_of(lambda: Raising("act", partial(PolicyError, "as it says"))) as collector,
        pytest.raises(PolicyError, match="as it says") as caught,
    ):
        collector.rollout(3)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("error", (partial(UnpicklableError, "stuck"), partial(UnreadableError, "stuck", "there")))
def test_a_cause_that_cannot_come_along_is_told(error):
    plan, backend = outrider.Envs(CounterEnv, 2), outrider.Processes(start_method="fork")
    with (
        outrider.ParallelCollector(plan, lambda: Raising("act", error), workers=2, backend=backend) as collector,
        pytest.raises(PolicyError, match=f"the policy raised {error.func.__name__}: stuck") as caught,
    ):
        collector.rollout(3)
    assert caught.value.__cause__ is None
    # Either may be heard first.
    assert re.search(r"in worker [01] \(process", caught.value.__notes__[-1])
    assert "raise error()" in caught.value.__notes__[-1]


def test_a_factory_of_policies_that_raises():
    def make_policy():
        return 1 // 0

    plan, backend = outrider.Envs(CounterEnv, 2), outrider.Processes(start_method="fork")
    with (
        outrider.ParallelCollector(plan, make_policy, workers=2, backend=backend) as collector,
        pytest.raises(PolicyError, match="make_policy raised ZeroDivisionError") as caught,
    ):
        collector.rollout(3)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
