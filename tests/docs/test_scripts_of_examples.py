"""The scripts in examples/ run as they stand, with small budgets."""

import re
import subprocess
import sys
from pathlib import Path

from helpers.patience import RUNNING

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    command = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=RUNNING, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_one_changed_line_and_equal_data():
    shown = run("vector_env_swap.py", "--envs", "4", "--steps", "120", "--workers", "2")
    assert int(re.search(r"equal data, (\d+) episodes", shown)[1]) > 4
    assert len(re.findall(r"[\d,]+ steps/s", shown)) == 2


def test_dqn_runs_to_its_end():
    shown = run("dqn.py", "--steps", "1500")
    # What it learns in so few steps differs from machine to machine; an episode has 8 steps at least.
    assert 8 <= float(re.search(r"mean return ([\d.]+) of 50 episodes", shown)[1]) <= 500


def test_ppo_learns_a_little():
    shown = run("ppo.py", "--steps", "12000")
    greedy, sampled = (float(re.search(rf"{name} ([\d.]+)", shown)[1]) for name in ("greedy", "sampled"))
    # Random actions have a mean return of 22. What so few steps bring differs from machine to machine.
    assert 40 <= greedy <= 500
    assert 40 <= sampled <= 500
    assert len((EXAMPLES / "ppo.py").read_text().splitlines()) < 100


def test_sac_runs_to_its_end():
    shown = run("sac.py", "--steps", "1200")
    # What 200 updates bring differs from machine to machine; the worst return of an episode is -3255.
    assert -3256 <= float(re.search(r"mean return (-[\d.]+) of 100 episodes", shown)[1]) <= -100
    assert len((EXAMPLES / "sac.py").read_text().splitlines()) < 150


def test_recurrent_ppo_runs_to_its_end():
    shown = run("ppo_recurrent.py", "--steps", "4096")
    for name in ("greedy", "sampled"):
        # An episode has 8 steps at least.
        assert 8 <= float(re.search(rf"{name} ([\d.]+)", shown)[1]) <= 500
    assert len((EXAMPLES / "ppo_recurrent.py").read_text().splitlines()) < 150
