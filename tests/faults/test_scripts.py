"""Whole programs that start workers: how they end, and who survives them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest

from helpers.patience import RUNNING, SLOW

METHODS = ("fork", "forkserver", "spawn")

HEAD = """
import os, signal, sys, threading, time
import gymnasium, numpy as np
import outrider

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    hang = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if self.hang:
            threading.Event().wait()
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self):
        if len(sys.argv) > 2:
            with open(sys.argv[2], "a") as file:
                file.write("closed\\n")

class Hanging(Env):
    hang = True

def make(env=Env):
    backend = outrider.Inline() if sys.argv[1] == "inline" else outrider.Processes(2, sys.argv[1])
    envs = outrider.make_vec(env, 4, backend=backend)
    envs.reset()
    return envs

def say_pids(envs):
    print(*envs.worker_pids, flush=True)

actions = np.zeros(4, np.int64)
"""


PATIENT = """
from outrider.vector import processes
processes.FAILING_TIME = 60.0
"""
"""Environments that were forgotten have all the time they need to close."""


@pytest.fixture
def start(tmp_path):
    """Starts a script in a session of its own; whatever is left of it is killed in the end."""
    started = []

    def start_script(body, *arguments, head=HEAD):
        path = tmp_path / f"script_{len(started)}.py"
        path.write_text(head + textwrap.dedent(body))
        process = subprocess.Popen(
            [sys.executable, path, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start_script
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def workers_of(process):
    """The workers that the script names in its first line."""
    return [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]


def everybody_of(process):
    return psutil.Process(process.pid).children(recursive=True)


def assert_gone(processes):
    _, alive = psutil.wait_procs(processes, timeout=SLOW)
    assert not alive


@pytest.mark.parametrize("state", ("idle", "in a step"))
def test_workers_follow_a_parent_that_was_killed(start, state):
    body = """
        if __name__ == "__main__":
            envs = make(%s)
            say_pids(envs)
            %s
    """ % (("Env", "threading.Event().wait()") if state == "idle" else ("Hanging", "envs.step(actions)"))
    scripts = [start(body, method) for method in METHODS]
    workers = [worker for script in scripts for worker in workers_of(script)]
    children = [child for script in scripts for child in everybody_of(script)]
    assert len(workers) == 6
    for script in scripts:
        script.kill()
    assert_gone(workers + children)


@pytest.mark.parametrize("state", ("stepping", "in a step that hangs", "in a step that hangs, forgotten"))
@pytest.mark.parametrize("method", ("forkserver", "spawn"))
def test_an_interrupt_gives_one_traceback_and_leaves_nobody(start, method, state):
    env = "Env" if state == "stepping" else "Hanging"
    body = f"""
        def work(envs):
            say_pids(envs)
            while True:
                envs.step(actions)

        if __name__ == "__main__":
            {f"work(make({env}))" if "forgotten" in state else f"with make({env}) as envs: work(envs)"}
    """
    script = start(body, method)
    workers = workers_of(script) + everybody_of(script)
    os.killpg(script.pid, signal.SIGINT)
    _, errors = script.communicate(timeout=SLOW)
    assert_gone(workers)
    assert errors.count("Traceback") == 1, errors
    assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("method", ("forkserver", "spawn"))
def test_an_unguarded_main_is_told_what_to_do(start, method):
    script = start("make()", method)
    _, errors = script.communicate(timeout=RUNNING)
    assert script.returncode == 1
    assert "if __name__ == '__main__'" in errors.rstrip().splitlines()[-1]


@pytest.mark.parametrize(
    ("method", "where"),
    (
        *((method, where) for method in ("inline", "fork") for where in ("module", "function", "cycle")),
        ("forkserver", "module"),
        ("spawn", "cycle"),
    ),
)
def test_a_script_may_forget_to_close(start, tmp_path, method, where):
    body = {
        "module": "if __name__ == '__main__': envs = make(); envs.step(actions)",
        "function": """
            def work():
                envs = make()
                envs.step(actions)

            if __name__ == "__main__":
                work()
        """,
        "cycle": """
            if __name__ == "__main__":
                envs = make()
                envs.me = envs
                envs.send(actions)
        """,
    }[where]
    log = tmp_path / "closed"
    script = start(body, method, log, head=HEAD + PATIENT)
    out, errors = script.communicate(timeout=RUNNING)
    assert (script.returncode, out, errors) == (0, "", "")
    assert log.read_text() == "closed\n" * 4


@pytest.mark.parametrize("method", ("forkserver", "spawn"))
def test_what_is_defined_in_a_script_works_in_workers(start, method):
    body = """
        gymnasium.register("Mine-v0", entry_point=lambda: Env())

        if __name__ == "__main__":
            gymnasium.register("Guarded-v0", entry_point=Env, max_episode_steps=3)
            bound = Env
            backend = outrider.Processes(2, sys.argv[1])
            for env in (lambda: bound(), "Mine-v0", "Guarded-v0", [Env, lambda: Env()] * 2):
                envs = outrider.make_vec(env, None if isinstance(env, list) else 4, backend=backend)
                envs.reset(seed=1)
                for _ in range(4):
                    result = envs.step(actions)
                envs.close()
            print("done")
    """
    script = start(body, method)
    out, errors = script.communicate(timeout=RUNNING)
    assert (script.returncode, out, errors) == (0, "done\n", "")


def test_an_error_reaches_the_end_of_the_script_once(start):
    body = """
        class Bad(Env):
            def step(self, action):
                raise ValueError("no way")

        if __name__ == "__main__":
            envs = make(Bad)
            envs.step(actions)
    """
    script = start(body, "forkserver")
    _, errors = script.communicate(timeout=RUNNING)
    assert script.returncode == 1
    assert errors.count("Traceback") == 2, "the parent's, and the environment's within the message"
    # Every lane fails; which worker is heard first is a matter of chance.
    assert re.search(r"lane \d, step, process \d+: ValueError: no way", errors)


@pytest.mark.parametrize("method", ("forkserver", "spawn"))
def test_a_worker_that_starts_while_its_parent_ends_says_nothing(start, tmp_path, method):
    body = """
        import multiprocessing, pathlib, warnings

        killed = pathlib.Path(sys.argv[2])

        class Reborn(Env):
            def __init__(self):
                if killed.exists():
                    print("made anew", flush=True)
                    multiprocessing.parent_process().join()

        if __name__ == "__main__":
            warnings.simplefilter("ignore")
            backend = outrider.Processes(1, sys.argv[1], on_failure=outrider.Restart())
            envs = outrider.make_vec(Reborn, 1, backend=backend)
            envs.reset()
            killed.touch()
            os.kill(envs.worker_pids[0], signal.SIGKILL)
            envs.step(actions[:1])
    """
    script = start(body, method, tmp_path / "killed")
    assert script.stdout.readline() == "made anew\n"
    script.kill()
    # This ends when the worker has.
    _, errors = script.communicate(timeout=SLOW)
    assert errors == ""
