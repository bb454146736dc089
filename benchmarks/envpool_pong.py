"""What a pool of EnvPool's Pong loses behind `make_vec`, env-steps per second in alternating rounds."""

from __future__ import annotations

import argparse

from rounds import Side, compare, machine, ratio, table

LANES = 8
WAYS = {"step": "VecEnv.step", "recv": "send, recv", "collector": "Collector.rollout"}
TARGET = 0.95


def main() -> None:
    """Run all ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    alone = Side("EnvPool alone", "envpool_pong.py", ["alone", str(LANES)])
    sides = [Side(name, "envpool_pong.py", [way, str(LANES)]) for way, name in WAYS.items()]
    compare([alone, *sides], options.rounds, options.seconds)
    rows = [[alone.name, f"{alone.median / 1e3:.2f}", f"{1e6 * LANES / alone.median:.0f}", "", ""]]
    for side in sides:
        middle, low, high = ratio(side, alone)
        rows.append([
            side.name, f"{side.median / 1e3:.2f}", f"{1e6 * LANES / side.median:.0f}",
            f"{middle:.3f} ({low:.3f} to {high:.3f})", f"{TARGET:g}",
        ])  # fmt: skip
    print(f"A pool of {LANES} Pongs: thousands of env-steps per second. {machine()}, {options.rounds} rounds.\n")
    print(table(["way", "k steps/s", "us a vector step", "of EnvPool alone", "target"], rows))


if __name__ == "__main__":
    main()
