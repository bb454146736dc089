"""Environments of uneven speed, env-steps per second, against the ceiling at which no lane ever waits."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

from rounds import HERE, PEERS, Side, compare, machine, ratio, table

CASES = [
    # environment, lanes, workers, wait_for, call, target
    ("tail_sleeping", 32, 32, 1, "steps", 0.95),
    ("tail_sleeping", 32, 32, 4, "steps", None),
    ("tail_sleeping", 32, 32, 1, "rollouts", 0.85),
    ("tail_spinning", 32, 2, 1, "steps", None),
    ("tail_spinning", 32, 2, 1, "rollouts", None),
]


def tails(rounds: int, seconds: float) -> list[list[str]]:
    """The heavy tails."""
    rows = []
    for env, lanes, workers, wait_for, call, target in CASES:
        place = [str(lanes), str(workers)]
        ours = Side("outrider", "tails_ours.py", [env, env, *place, str(wait_for), call])
        ceiling = Side("ceiling", "tails_ceiling.py", [env, *place])
        compare([ours, ceiling], rounds, seconds)
        middle, low, high = ratio(ours, ceiling)
        rows.append([
            env, str(lanes), str(workers), str(wait_for), call, f"{ours.median:.0f}", f"{ceiling.median:.0f}",
            f"{middle:.2f} ({low:.2f} to {high:.2f})", "" if target is None else f"{target:g}",
        ])  # fmt: skip
    theirs = Side("AsyncVectorEnv", "vector_gymnasium.py", ["tail_sleeping", "32", "async"], python=PEERS)
    ceiling = Side("ceiling", "tails_ceiling.py", ["tail_sleeping", "32", "32"])
    compare([theirs, ceiling], 2, 3 * seconds)
    rows.append([
        "tail_sleeping", "32", "32", "all", "AsyncVectorEnv", f"{theirs.median:.0f}", f"{ceiling.median:.0f}",
        f"{ratio(theirs, ceiling)[0]:.2f}", "",
    ])  # fmt: skip
    return rows


def slow_reset(rounds: int, seconds: float) -> str:
    """What the others lose to one lane whose resets take 200 ms."""
    among = Side("slow", "tails_ours.py", ["quick", "slow_reset", "8", "8", "1", "steps"])
    alone = Side("quick", "tails_ours.py", ["quick", "quick", "8", "8", "1", "steps"])
    compare([among, alone], rounds, seconds)
    pairs = sorted(x / y * 8 / 7 for x, y in zip(among.figures, alone.figures, strict=True))
    return f"{pairs[len(pairs) // 2]:.3f} ({pairs[0]:.3f} to {pairs[-1]:.3f})"


def shares() -> str:
    """How evenly the rows are shared out."""
    script = str(HERE / "sides" / "tails_ours.py")
    arguments = ["tail_sleeping", "tail_sleeping", "32", "32", "1", "shares"]
    done = subprocess.run(
        [sys.executable, script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    found = json.loads(done.stdout)
    return f"{found['lowest']:.2f} to {found['highest']:.2f} of an equal share"


def main() -> None:
    """Run all cases and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    rows = tails(options.rounds, options.seconds)
    print(f"Log-normal steps, median 2 ms, sigma 1.2. {machine()}, {options.rounds} rounds.\n")
    heads = ["environment", "lanes", "workers", "wait_for", "call", "steps/s", "ceiling", "ratio", "target"]
    print(table(heads, rows))
    print(f"\nRows of each of 32 lanes, wait_for=1: {shares()}.")
    beside = slow_reset(options.rounds, options.seconds)
    print(f"Speed of 7 lanes beside one with resets of 200 ms: {beside}, target 0.95.")


if __name__ == "__main__":
    main()
