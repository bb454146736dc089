"""Collection with a policy on CartPole-v1, MLP 2x64 with sampled actions, log-prob and value stored, rollouts of 64."""

from __future__ import annotations

import argparse

from rounds import PEERS, Side, compare, machine, ratio, table

TARGETS = {8: (1.9, 0.93), 32: (1.5, 0.93)}
LENGTH = 64


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    rows = []
    for lanes, (target_sb3, target_bare) in TARGETS.items():
        ours = Side("outrider", "collect_ours.py", [str(lanes), str(LENGTH), "0"])
        parallel = Side("outrider, 2 workers", "collect_ours.py", [str(lanes), str(LENGTH), "2"])
        bare = Side("bare loop", "collect_bare.py", [str(lanes), str(LENGTH)])
        sb3 = Side("stable-baselines3", "collect_sb3.py", [str(lanes), str(LENGTH)], python=PEERS)
        compare([ours, bare, sb3, parallel], options.rounds, options.seconds)
        for other, target in ((sb3, target_sb3), (bare, target_bare), (parallel, None)):
            middle, low, high = ratio(ours, other)
            rows.append([
                str(lanes), f"{ours.median / 1e3:.1f}", other.name, f"{other.median / 1e3:.1f}",
                f"{middle:.2f} ({low:.2f} to {high:.2f})", "" if target is None else f"{target:g}",
            ])  # fmt: skip
    print(f"Collection: thousands of env-steps per second. {machine()}, {options.rounds} rounds.\n")
    print(table(["lanes", "outrider, one process", "against", "k steps/s", "ratio", "target"], rows))


if __name__ == "__main__":
    main()
