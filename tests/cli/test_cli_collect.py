"""`outrider collect`: what it stores and says, and what it refuses."""

import errno
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from helpers.cli import SCRIPT, assert_same_steps, outrider, started, stored
from helpers.patience import RUNNING
from outrider import Dataset
from outrider.cli import blocks
from outrider.cli import collect as module
from outrider.cli.checks import workers_of
from outrider.dataset.columns import Columns

POLICY = """
import numpy as np
import outrider

class Sticky(outrider.Policy):
    def initial_state(self, n):
        return np.zeros((n, 1), np.float32)
    def act(self, obs, state, ctx):
        lean = obs[:, 2:3] + state
        return {"action": (lean[:, 0] > 0).astype(np.int64), "state": lean / 2, "lean": lean[:, 0]}

def failing(obs):
    failing.calls += 1
    if failing.calls > 30:
        raise ArithmeticError("cannot go on")
    return np.zeros(len(obs), np.int64)

failing.calls = 0
"""


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.py"
    path.write_text(POLICY)
    return path


def test_exact_steps(tmp_path):
    output = outrider("collect", "Pendulum-v1", "--steps", 145, "--envs", 10, "--out", tmp_path / "d")
    assert re.search(r"steps +145\n", output)
    assert "10 open" in output
    assert f"Stored in {tmp_path / 'd'}" in output
    with Dataset.open(tmp_path / "d") as dataset:
        assert (len(dataset), dataset.num_episodes, dataset.spec.num_envs) == (145, 10, 10)


def test_exact_episodes(tmp_path):
    output = outrider("collect", "CartPole-v1", "--episodes", 37, "--envs", 5, "--out", tmp_path / "d")
    assert "37 complete\n" in output
    with Dataset.open(tmp_path / "d") as dataset:
        counts = dataset.counts
        assert (counts.total, counts.complete) == (37, 37)
        lanes = [episode.env_id for episode in dataset.episodes()]
    assert lanes == [lane % 5 for lane in range(37)]


@pytest.mark.parametrize("count", (("--steps", 1001), ("--episodes", 43)))
def test_workers_change_nothing(tmp_path, policy, count):
    for workers in (0, 3):
        arguments = ("collect", "CartPole-v1", *count, "--envs", 7, "--seed", 5, "--policy", f"{policy}:Sticky")
        outrider(*arguments, "--workers", workers, "--out", tmp_path / f"{workers}")
    assert_same_steps(stored(tmp_path / "0"), stored(tmp_path / "3"))
    assert stored(tmp_path / "0").extras["lean"].any()


@pytest.mark.parametrize("env", ("Pendulum-v1", "LunarLander-v3", "HalfCheetah-v5"))
def test_random_actions_are_the_same_in_workers(tmp_path, env):
    for workers in ("0", "auto"):
        outrider("collect", env, "--steps", 333, "--envs", 4, "--workers", workers, "--out", tmp_path / workers)
    assert_same_steps(stored(tmp_path / "0"), stored(tmp_path / "auto"))


@pytest.mark.parametrize(("cores", "envs", "workers"), ((1, 16, 0), (8, 1, 0), (4, 16, 4), (64, 16, 16)))
def test_as_many_workers_as_cores(monkeypatch, cores, envs, workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert workers_of("auto", envs) == workers


def test_seeds(tmp_path):
    for seed in (0, 1):
        outrider("collect", "CartPole-v1", "--steps", 50, "--seed", seed, "--out", tmp_path / f"{seed}")
    outrider("collect", "CartPole-v1", "--steps", 50, "--out", tmp_path / "default")
    assert_same_steps(stored(tmp_path / "0"), stored(tmp_path / "default"))
    assert not np.array_equal(stored(tmp_path / "0").obs, stored(tmp_path / "1").obs)


@pytest.mark.parametrize("workers", (0, 2))
def test_text_is_stored(tmp_path, workers):
    env = "minigrid:MiniGrid-Empty-5x5-v0"
    output = outrider("collect", env, "--steps", 64, "--envs", 4, "--workers", workers, "--out", tmp_path / "d")
    assert "note" not in output
    # The same space again, as the dataset knows it.
    outrider("collect", env, "--steps", 8, "--envs", 4, "--seed", 9, "--append", "--out", tmp_path / "d")
    found = stored(tmp_path / "d").obs
    assert set(found) == {"image", "direction", "mission"}
    assert found["mission"].tolist() == ["get to the green goal square"] * 72
    assert ["obs/mission", "text"] in [line.split() for line in outrider("show", tmp_path / "d").splitlines()]


def test_metadata(tmp_path, policy):
    out = tmp_path / "d"
    outrider("collect", "CartPole-v1", "--steps", 20, "--envs", 2, "--policy", f"{policy}:Sticky", "--out", out)
    with Dataset.open(out) as dataset:
        found = dataset.metadata
    assert {"created", "versions"} < set(found)
    assert (found["env"], found["policy"], found["seed"], found["num_envs"]) == (
        "CartPole-v1",
        "policy.py:Sticky",
        0,
        2,
    )
    assert found["command"] == {"name": "collect", "steps": 20, "envs": 2, "workers": 0}
    assert str(tmp_path) not in "".join(file.read_text() for file in out.rglob("*.json"))


def test_append(tmp_path):
    out = tmp_path / "d"
    outrider("collect", "CartPole-v1", "--steps", 100, "--out", out)
    output = outrider("collect", "CartPole-v1", "--episodes", 20, "--envs", 3, "--append", "--out", out)
    assert "Added" in output
    assert "The dataset now holds" in output
    rows = stored(out)
    assert len(rows) > 100
    assert len(np.unique(rows.obs, axis=0)) == len(rows), "a default seed of its own: nothing comes twice"
    assert "note: seed 0 was used" in outrider(
        "collect", "CartPole-v1", "--steps", 9, "--seed", 0, "--append", "--out", out
    )


@pytest.mark.parametrize("workers", (0, 2))
@pytest.mark.parametrize(
    ("other", "difference"),
    (
        (("MountainCar-v0",), "environment: expected CartPole-v1 as in .*, found MountainCar-v0"),
        (("CartPole-v1", "--policy", "POLICY:Sticky"), "extras/lean: expected nothing .*, found shape .*float32"),
    ),
)
def test_append_of_other_rows(tmp_path, policy, other, difference, workers):
    out = tmp_path / "d"
    outrider("collect", "CartPole-v1", "--steps", 100, "--out", out)
    other = [word.replace("POLICY", str(policy)) for word in other]
    output = outrider("collect", *other, "--steps", 10, "--workers", workers, "--append", "--out", out, code=2)
    assert re.search(difference, output)
    assert len(stored(out)) == 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    (
        (("CartPole-v1",), "expected one of --steps N and --episodes N, found neither"),
        (("CartPole-v1", "--steps", 5, "--episodes", 5), "found both"),
        (("CartPole-v1", "--steps", 0), "--steps"),
        (("CartPole-v1", "--episodes", -2), "--episodes"),
        (("CartPole-v1", "--steps", 5, "--envs", 0), "--envs"),
        (("CartPole-v1", "--steps", 5, "--seed", -1), "--seed"),
        (("CartPole-v1", "--steps", 5, "--workers", "many"), "found 'many'"),
        (("CartPole-v1", "--steps", 5, "--workers", "-1"), "found '-1'"),
        (("CartPole-v1", "--steps", 5, "--envs", 2, "--workers", 3), "at most one worker for each of the 2"),
        (("CartPol-v1", "--steps", 5), "did you mean CartPole-v1"),
        (("nowhere:CartPole-v1", "--steps", 5), "'nowhere' cannot be imported"),
        (("nowhere.py:Env", "--steps", 5), "ENV: there is no file 'nowhere.py'"),
        (("CartPole-v1", "--steps", 5, "--policy", "nowhere.py:f"), "--policy: there is no file 'nowhere.py'"),
        (("CartPole-v1", "--steps", 5, "--append"), "--append: there is no dataset"),
    ),
)
def test_refused_before_anything_is_started(tmp_path, monkeypatch, arguments, message):
    def started(*_, **__):
        pytest.fail("environments were started")

    monkeypatch.setattr(module, "make_vec", started)
    monkeypatch.setattr(module, "ParallelCollector", started)
    assert message in outrider("collect", *arguments, "--out", tmp_path / "d", code=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("append", ((), ("--append",)))
def test_folders_that_are_no_dataset(tmp_path, monkeypatch, append):
    monkeypatch.setattr(module, "make_vec", None)
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        output = outrider("collect", "CartPole-v1", "--steps", 5, *append, "--out", out, code=2)
        assert f"error: --{'append' if append else 'out'}" in output
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_dataset_in_use(tmp_path):
    outrider("collect", "CartPole-v1", "--steps", 5, "--out", tmp_path / "d")
    with Dataset.open(tmp_path / "d", writable=True):
        assert "no other writer" in outrider(
            "collect", "CartPole-v1", "--steps", 5, "--append", "--out", tmp_path / "d", code=2
        )


def test_an_existing_dataset_is_not_written_over(tmp_path):
    for code in (0, 2):
        output = outrider("collect", "CartPole-v1", "--steps", 5, "--out", tmp_path / "d", code=code)
    assert "add to a dataset with --append" in output
    assert len(stored(tmp_path / "d")) == 5


def test_an_empty_folder_will_do(tmp_path):
    outrider("collect", "CartPole-v1", "--steps", 5, "--out", tmp_path)
    assert len(stored(tmp_path)) == 5


def test_a_full_disk(tmp_path, monkeypatch):
    write, calls = Columns.write, []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*arguments)

    monkeypatch.setattr(Columns, "write", failing)
    # Blocks that seem to take no time become larger.
    monkeypatch.setattr(blocks, "perf_counter", lambda: 0.0)
    output = outrider("collect", "CartPole-v1", "--steps", 10_000, "--out", tmp_path / "d", code=1)
    assert re.search(r"error: append to .*No space left on device", output)
    assert f"{len(stored(tmp_path / 'd'))} steps are stored in" in output
    assert len(stored(tmp_path / "d")) == 16 + 32 + 64
    assert "Traceback" not in output


@pytest.mark.parametrize("workers", (0, 2))
def test_a_failing_policy(tmp_path, policy, workers):
    arguments = ("collect", "CartPole-v1", "--steps", 10_000, "--policy", f"{policy}:failing", "--workers", workers)
    output = outrider(*arguments, "--out", tmp_path / "d", code=1)
    line = next(line for line in output.splitlines() if "error: " in line)
    assert re.search(rf"ArithmeticError: cannot go on \(at {policy}, line 15\)$", line)
    assert f"{len(stored(tmp_path / 'd'))} steps are stored in {tmp_path / 'd'}" in output
    assert "Traceback" not in output


def test_a_policy_of_wrong_shape_stores_nothing(tmp_path):
    path = tmp_path / "policy.py"
    path.write_text("def wrong(obs):\n    return [0]\n")
    out = tmp_path / "d"
    output = outrider("collect", "CartPole-v1", "--steps", 9, "--policy", f"{path}:wrong", "--out", out, code=1)
    assert "nothing is stored" in output
    assert not out.exists()


@pytest.mark.parametrize("flag", (True, False))
def test_debugging_shows_the_traceback(tmp_path, policy, monkeypatch, flag):
    arguments = ["collect", "CartPole-v1", "--steps", 10_000, "--policy", f"{policy}:failing", "--out", tmp_path / "d"]
    if flag:
        output = outrider(*arguments, "--debug", code=1)
        assert "Traceback" in output
        assert "raise ArithmeticError" in output
    else:
        process = started(*arguments)
        out, err = process.communicate(timeout=RUNNING)
        assert process.returncode == 1
        assert (out, "Traceback" in err) == ("", False)


def test_no_escape_codes_where_there_is_no_terminal(tmp_path):
    process = started("collect", "CartPole-v1", "--steps", 30_000, "--out", tmp_path / "d")
    out, err = process.communicate(timeout=RUNNING)
    assert process.returncode == 0, err
    assert "\x1b" not in out + err
    assert "\r" not in out + err
    assert (err, "Collected" in out) == ("", True)


def test_warnings_become_notes_without_colour(tmp_path):
    path = tmp_path / "env.py"
    path.write_text(
        "import gymnasium\ndef make():\n    gymnasium.logger.warn('mind the gap')\n"
        "    return gymnasium.make('CartPole-v1')\n"
    )
    process = started("collect", f"{path}:make", "--steps", 100, "--out", tmp_path / "d")
    _, err = process.communicate(timeout=RUNNING)
    assert process.returncode == 0
    assert err == "outrider: note: WARN: mind the gap\n"


def test_help_is_quick_and_says_what_there_is():
    program = "import sys, outrider.cli.main as m; assert not {'numpy', 'gymnasium', 'zarr', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert SCRIPT.exists()
    text = outrider("collect", "--help")
    for option in (
        "--steps",
        "--episodes",
        "--out",
        "--policy",
        "--envs",
        "--workers",
        "--seed",
        "--append",
        "--max-episode-steps",
        "--step-timeout",
        "--on-failure",
    ):
        assert option in text


def test_version():
    assert re.fullmatch(r"outrider \d+\.\d+\.\d+\n", outrider("--version"))
