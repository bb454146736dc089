"""What `backend="auto"` chooses, and what it leaves as it was."""

import logging
import random
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from gymnasium import spaces

import outrider
from helpers.patience import RUNNING
from outrider.errors import EnvironmentFailure
from outrider.seeding import seed_globals
from outrider.testing.envs import Counter
from outrider.vector import choice
from outrider.vector.choice import Cost, choose, measure, workers_for
from outrider.vector.inline import Inline, InlineDriver
from outrider.vector.processes import ProcessDriver, Processes

WAIT = 0.02


class Waiting(Counter):
    """Waits for something else than a processor."""

    def step(self, action):
        threading.Event().wait(WAIT)
        return super().step(action)


class Drawing(Counter):
    """Draws from all global generators, and from its action space."""

    shared = spaces.Discrete(2, seed=3)

    def __init__(self):
        super().__init__()
        self.action_space = self.shared

    def step(self, action):
        draw()
        return super().step(action)


class Counted(Counter):
    made, closed, steps = 0, 0, 0

    def __init__(self):
        super().__init__(4)
        Counted.made += 1

    def step(self, action):
        assert self.count < self.length, "it is reset at its end"
        Counted.steps += 1
        return super().step(action)

    def close(self):
        Counted.closed += 1


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch):
    monkeypatch.setattr(choice, "processors", lambda: 2)


@pytest.mark.parametrize(
    ("cost", "num_envs", "cpus", "expected"),
    (
        (Cost(6e-6, 6e-6), 8, 2, 1),
        (Cost(6e-6, 6e-6), 32, 2, 1),
        (Cost(6e-6, 6e-6), 32, 64, 1),
        (Cost(2e-3, 2e-3), 8, 2, 2),
        (Cost(2e-3, 2e-3), 8, 4, 4),
        (Cost(2e-3, 2e-3), 2, 4, 2),
        (Cost(2e-3, 2e-3), 100, 64, 64),
        # Half of the time they wait: more workers than processors.
        (Cost(2e-3, 1e-3), 8, 2, 8),
        (Cost(1e-1, 1e-4), 100, 2, 32),
        # Not worth it for a tenth of a millisecond.
        (Cost(1e-4, 1e-6), 2, 2, 1),
        # More on the processors than on the clock: threads of its own.
        (Cost(1e-2, 2e-2), 8, 2, 1),
    ),
)
def test_as_many_workers_as_pay(cost, num_envs, cpus, expected):
    assert workers_for(cost, num_envs, cpus) == expected


def test_cheap_environments_run_here(caplog, monkeypatch):
    # Measured on a busy machine they might seem to wait for something.
    monkeypatch.setattr(choice, "measure", lambda _: Cost(6e-6, 6e-6))
    with caplog.at_level(logging.INFO, "outrider"), outrider.make_vec("CartPole-v1", 4) as envs:
        assert type(envs.driver) is InlineDriver
        assert envs.backend_reason.startswith("Inline(): a step takes")
        assert envs.backend_reason in caplog.text
    with outrider.make_vec("CartPole-v1", 4, backend=Inline()) as envs:
        assert envs.backend_reason == ""


def test_environments_that_wait_run_in_processes_of_their_own(caplog):
    with caplog.at_level(logging.INFO, "outrider"), outrider.make_vec(Waiting, 3) as envs:
        assert type(envs.driver) is ProcessDriver
        assert len(envs.worker_pids) == 3
        assert envs.backend_reason.startswith("Processes(workers=3): a step takes ")
        assert envs.backend_reason in caplog.text
        envs.reset()
        assert envs.step(np.zeros(3, np.int64))[0].tolist() == [[1]] * 3


@pytest.mark.parametrize(("losses", "wall"), ((1, 0.001), (0, 0.5)))
def test_what_others_take_of_the_time_is_no_cost(monkeypatch, losses, wall):
    """Every second step takes long: while somebody else has the processor, or because it is so."""
    clock, lost = [0.0], [0]

    class Uneven(Counter):
        def step(self, action):
            long = self.count % 2
            clock[0] += 0.999 if long else 0.001
            lost[0] += losses * long
            return super().step(action)

    monkeypatch.setattr(choice, "SECONDS", 1e9)
    monkeypatch.setattr(choice, "_losses", lambda: lost[0])
    monkeypatch.setattr(choice.time, "perf_counter", lambda: clock[0])
    cost = measure(lambda: Uneven(1000))
    assert cost.wall == pytest.approx(wall)


def test_nothing_global_is_drawn_from():
    draw()  # loads what there is to draw from
    seed_globals(1)
    expected = *draw(), spaces.Discrete(2, seed=3).sample()
    seed_globals(1)
    assert isinstance(measure(Drawing), Cost)
    assert (*draw(), Drawing.shared.sample()) == expected


def draw():
    import torch  # not at the top: workers import this module

    return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002, S311 - the global ones are meant


def test_one_environment_more_is_made_and_closed():
    Counted.made = Counted.closed = Counted.steps = 0
    with outrider.make_vec(Counted, 3) as envs:
        assert (Counted.made, Counted.closed, Counted.steps) == (4, 1, choice.MOST + 1)
        envs.reset()
    assert Counted.closed == 4


@pytest.mark.parametrize("what", ("one environment", "one processor", "daemonic"))
def test_where_there_is_no_choice_nothing_is_measured(what, monkeypatch):
    Counted.made = 0
    if what == "one processor":
        monkeypatch.setattr(choice, "processors", lambda: 1)
    if what == "daemonic":
        monkeypatch.setitem(choice.multiprocessing.current_process()._config, "daemon", True)
    with outrider.make_vec(Counted, 1 if what == "one environment" else 2) as envs:
        assert type(envs.driver) is InlineDriver
        assert envs.backend_reason.startswith("Inline(), not measured: ")
        assert what in envs.backend_reason
    assert Counted.made == envs.num_envs


def test_what_cannot_be_sent_runs_here():
    lock = threading.Lock()

    def factory():
        with lock:
            return Waiting()

    backend, reason = choose(outrider.Envs(factory, 3))
    assert backend == Inline()
    assert "cannot be sent" in reason


def test_an_environment_that_cannot_be_stepped_fails_where_it_is_stepped():
    class Failing(Counter):
        def step(self, action):
            raise ValueError("never")

    with outrider.make_vec(Failing, 2) as envs:
        assert "ValueError: never" in envs.backend_reason
        envs.reset()
        with pytest.raises(EnvironmentFailure, match="never") as caught:
            envs.step(np.zeros(2, np.int64))
        assert caught.value.lane == 0


def test_a_factory_that_fails_is_named():
    with pytest.raises(EnvironmentFailure, match="no such thing") as caught:
        outrider.make_vec(broken, 2)
    assert (caught.value.lane, caught.value.operation) == (0, "construct")


def broken():
    raise OSError("no such thing")


SCRIPT = """
    import threading
    import outrider
    from outrider.testing.envs import Counter
    from outrider.vector import choice

    choice.processors = lambda: 2

    class Waiting(Counter):
        def step(self, action):
            threading.Event().wait(0.02)
            return super().step(action)

    GUARD
        with outrider.make_vec(Waiting, 2) as envs:
            print(envs.backend_reason)
"""


@pytest.mark.parametrize(
    ("guard", "expected"),
    (
        ("if __name__ == '__main__':", "Processes(workers=2): "),
        ("if True:", "Inline(), not measured: workers would run the script again"),
    ),
)
def test_a_script_is_not_run_again_by_its_workers(tmp_path, guard, expected):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT).replace("GUARD", guard))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=RUNNING, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(expected)
    assert done.stdout.count("\n") == 1


def test_a_worker_that_imports_a_script_must_not_make_environments(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT).replace("GUARD", "if __name__:"))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=RUNNING, check=False)
    assert done.returncode == 1
    assert "expected a main script whose import starts nothing" in done.stderr
    assert "WorkerDied" in done.stderr


def test_processes_can_be_chosen_by_hand():
    with outrider.make_vec(Waiting, 2, backend=Processes(2, "fork")) as envs:
        assert envs.backend_reason == ""
