"""Vector environments, env-steps per second with fixed actions, against gymnasium.vector in alternating rounds."""

from __future__ import annotations

import argparse

from rounds import PEERS, Side, compare, machine, ratio, table

CASES = [
    # environment, lanes, workers (0: in one process), target ratio
    ("noop_small", 8, 0, 0.9),
    ("noop_small", 32, 0, 0.9),
    ("cartpole", 8, 0, 0.9),
    ("cartpole", 32, 0, 0.9),
    ("noop_small", 8, 2, 6.0),
    ("noop_small", 32, 2, 20.0),
    ("noop_pixels", 32, 2, 15.0),
    ("cartpole", 32, 2, None),
]


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    rows = []
    for env, lanes, workers, target in CASES:
        kind = "async" if workers else "sync"
        ours = Side("outrider", "vector_ours.py", [env, str(lanes), str(workers)])
        theirs = Side("gymnasium", "vector_gymnasium.py", [env, str(lanes), kind], python=PEERS)
        compare([ours, theirs], options.rounds, options.seconds)
        middle, low, high = ratio(ours, theirs)
        where = f"Processes(workers={workers})" if workers else "Inline()"
        rows.append([
            env, str(lanes), where, f"{ours.median / 1e3:.1f}", f"{1e6 * lanes / ours.median:.0f}",
            f"{'AsyncVectorEnv' if workers else 'SyncVectorEnv'}", f"{theirs.median / 1e3:.1f}",
            f"{middle:.2f} ({low:.2f} to {high:.2f})", "" if target is None else f"{target:g}",
        ])  # fmt: skip
    print(f"Vector environments: thousands of env-steps per second. {machine()}, {options.rounds} rounds.\n")
    heads = [
        "environment",
        "lanes",
        "ours",
        "k steps/s",
        "us a vector step",
        "Gymnasium",
        "k steps/s",
        "ratio",
        "target",
    ]
    print(table(heads, rows))


if __name__ == "__main__":
    main()
