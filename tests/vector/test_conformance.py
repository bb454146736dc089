"""The shipped suite on every backend that there is."""

import numpy as np
import pytest

import outrider
from helpers.bare import go_without
from outrider import tree
from outrider.memory.mapping import MemfdMapping, PortableMapping
from outrider.testing import VecEnvConformance
from outrider.testing.envs import CASES, make_case, same
from outrider.vector.bells import EventBell, PipeBell

METHODS = ("fork", "forkserver", "spawn")


class TestInline(VecEnvConformance):
    def backend(self):
        return outrider.Inline()


class TestProcesses(VecEnvConformance):
    def backend(self):
        return outrider.Processes(start_method="fork")


class TestPortable(VecEnvConformance):
    """On systems without memfd, eventfd, pidfd and poll."""

    @pytest.fixture(autouse=True)
    def _nothing_of_linux(self, monkeypatch):
        go_without(monkeypatch)

    def backend(self):
        return outrider.Processes(start_method="fork")


@pytest.fixture
def bare(monkeypatch, request):
    if request.param:
        go_without(monkeypatch)
    return request.param


@pytest.mark.parametrize("bare", (False, True), indirect=True)
@pytest.mark.parametrize("method", METHODS)
def test_start_methods_and_worker_counts_give_the_same_rows(method, bare):
    workers = {"fork": (1, 2, 3), "forkserver": (2,), "spawn": (2,)}[method]
    expected = record(outrider.Inline())
    for count in workers:
        assert same(record(outrider.Processes(count, method)), expected)


@pytest.mark.parametrize("case", tuple(CASES))
def test_every_space_gives_the_same_rows_for_every_worker_count(case):
    expected = record(outrider.Inline(), case, steps=45)
    for workers in (1, 3):
        assert same(record(outrider.Processes(workers, "fork"), case, steps=45), expected)


def record(backend, case="nested", steps=120):
    """What five lanes return, some of them sent to apart."""
    rng = np.random.default_rng(0)
    rows = []
    with outrider.make_vec(make_case(case), 5, backend=backend) as envs:
        envs.action_space.seed(1)
        rows.append(envs.reset(seed=8))
        for step in range(steps):
            if step % 3:
                rows.append(envs.step(envs.action_space.sample()))
                continue
            lanes = rng.permutation(5)
            for some in (lanes[:2], lanes[2:4]):
                envs.send(take(envs.action_space.sample(), some), some, hold=bool(step % 2))
            arrival = envs.recv()
            rows.append((arrival.env_id, arrival.obs, arrival.reward, arrival.terminated, arrival.truncated))
            rows.append((list(arrival.ended), arrival.final_obs))
    return rows


def take(batch, lanes):
    return tree.take(batch, lanes)


@pytest.mark.parametrize("bare", (False, True), indirect=True)
def test_what_the_system_lacks_is_replaced(bare):
    with outrider.make_vec(make_case("floats"), 2, backend=outrider.Processes(2, "fork")) as envs:
        member = envs.driver._crew.members[0]
        assert type(envs.store.mapping) is (PortableMapping if bare else MemfdMapping)
        assert type(member.inbox) is (PipeBell if bare else EventBell)
