"""`outrider collect`: limits of episodes and calls, and what becomes of environments that fail."""

import re

import numpy as np
import pytest

from helpers.cli import assert_same_steps, outrider, stored
from outrider import Dataset

ENVS = """
import os
import time

import gymnasium

class Frail(gymnasium.Wrapper):
    '''The environment of one lane, found by a file that only one can make, raises or hangs in its steps 5 and 9.'''

    def __init__(self, what="raise"):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.what, self.taken = what, 0
        try:
            open(os.path.join(os.path.dirname(__file__), "frail"), "x").close()
            self.frail = True
        except FileExistsError:
            self.frail = False

    def step(self, action):
        self.taken += 1
        if self.frail and self.taken in (5, 9):
            if self.what == "hang":
                time.sleep(1000)
            raise ConnectionError("the simulator has gone")
        return super().step(action)

def hanging():
    return Frail("hang")
"""


@pytest.fixture
def envs(tmp_path):
    path = tmp_path / "envs.py"
    path.write_text(ENVS)
    return path


def collect(env, *options, out, code=0, envs=3):
    return outrider("collect", env, "--steps", 120, "--envs", envs, *options, "--out", out, code=code)


@pytest.mark.parametrize("workers", (0, 2))
def test_a_limit_of_steps(tmp_path, workers):
    collect("Pendulum-v1", "--max-episode-steps", 7, "--workers", workers, out=tmp_path / "d")
    rows = stored(tmp_path / "d")
    assert rows.step.max() == 6
    assert (rows.truncated == (rows.step == 6)).all()
    with Dataset.open(tmp_path / "d") as dataset:
        assert dataset.metadata["command"]["max_episode_steps"] == 7


def test_a_failure_ends_the_collection_unless_told_otherwise(tmp_path, envs):
    output = collect(f"{envs}:Frail", out=tmp_path / "d", code=1)
    assert re.search(rf"error: lane \d, step.*ConnectionError: the simulator has gone \(at {envs}", output)


def test_a_failure_may_be_followed_by_a_restart(tmp_path, envs):
    output = collect(f"{envs}:Frail", "--on-failure", "restart", out=tmp_path / "d")
    notes = re.findall(r"note: lane \d is restarted at once \(restart \d of at most 3 within 300 s\)", output)
    assert len(notes) == 1
    rows = stored(tmp_path / "d")
    assert len(rows) == 120
    assert np.bincount(rows.env_id, minlength=3).min() > 30
    # The episode that the failure ended is cut.
    assert rows.cut.sum() == 1


@pytest.mark.parametrize(("name", "options"), (("Frail", ()), ("hanging", ("--step-timeout", 2))))
def test_a_failure_may_cost_a_lane(tmp_path, envs, name, options):
    output = collect(f"{envs}:{name}", *options, "--on-failure", "drop", out=tmp_path / "d", envs=8)
    assert re.search(r"note: lanes? .* dropped", output)
    assert len(stored(tmp_path / "d")) == 120


def test_a_call_that_hangs_ends_the_collection(tmp_path, envs):
    output = collect(f"{envs}:hanging", "--step-timeout", 2, out=tmp_path / "d", code=1)
    assert re.search(r"error: lane \d, step.*has not returned after.*step_timeout=2", output)


def test_where_environments_run_changes_no_row(tmp_path):
    collect("CartPole-v1", out=tmp_path / "here")
    collect("CartPole-v1", "--step-timeout", 60, "--workers", "auto", out=tmp_path / "there")
    assert_same_steps(stored(tmp_path / "here"), stored(tmp_path / "there"))


@pytest.mark.parametrize("options", (("--on-failure", "restart"), ("--step-timeout", 5)))
def test_workers_that_run_the_policy_cannot_do_it(tmp_path, options):
    output = collect("CartPole-v1", *options, "--workers", 2, out=tmp_path / "d", code=2)
    assert "error: --workers 2: " in output
    assert "leave --workers out" in output
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    (
        (("--max-episode-steps", 0), "max-episode-steps"),
        (("--step-timeout", 0), "step_timeout: expected seconds, a number above 0"),
        (("--on-failure", "retry"), "'raise', 'restart', 'drop'"),
    ),
)
def test_limits_that_are_none(tmp_path, options, message):
    assert message in collect("CartPole-v1", *options, out=tmp_path / "d", code=2)


def test_what_was_appended_says_where_it_comes_from(tmp_path):
    policy = tmp_path / "policy.py"
    policy.write_text("import numpy as np\n\ndef left(obs):\n    return np.zeros(len(obs), np.int64)\n")
    collect("CartPole-v1", "--seed", 3, out=tmp_path / "d")
    assert "runs" not in outrider("show", tmp_path / "d")
    again = ("--policy", f"{policy}:left", "--seed", 4, "--append")
    assert "note: seed" not in collect("CartPole-v1", *again, out=tmp_path / "d")
    assert "note: seed 4" in collect("CartPole-v1", *again, out=tmp_path / "d")
    with Dataset.open(tmp_path / "d") as dataset:
        assert [(run["policy"], run["seed"], run["steps"]) for run in dataset.runs] == [
            ("RandomPolicy", 3, 120),
            ("policy.py:left", 4, 120),
            ("policy.py:left", 4, 120),
        ]
    output = outrider("show", tmp_path / "d")
    assert re.search(r"^3 runs$", output, re.MULTILINE)
    assert re.search(r"^ +0 +120 +3  RandomPolicy  ", output, re.MULTILINE)
    assert re.search(r"^ +2 +120 +4  policy\.py:left  ", output, re.MULTILINE)
