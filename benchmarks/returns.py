"""Returns and advantages of 2048 steps of 64 lanes, against the peers': microseconds a call, and ratios of them."""

from __future__ import annotations

import argparse

from rounds import PEERS, TIANSHOU, Side, compare, machine, ratio, table

CASES = {
    # what: the others, and what part of the time of each ours may take
    "gae float64": {"tianshou": 1.0},
    "gae float32": {"sb3": 0.05, "tianshou": 1.0},
    "gae tensors": {"torchrl": None, "torchrl-vec": None},
    "gae gradient": {"torchrl": None, "torchrl-vec": None},
    "lambda tensors": {"torchrl": None, "torchrl-vec": None},
    "vtrace tensors": {"torchrl": None},
    "n-step float32": {},
}


def side(library: str, what: str) -> Side:
    """One side of a case."""
    if library == "outrider":
        return Side(library, "returns_ours.py", [what])
    return Side(library, "returns_peers.py", [library, what], python=TIANSHOU if library == "tianshou" else PEERS)


def case(what: str, rounds: int, seconds: float) -> list[list[str]]:
    """The rows of one case."""
    sides = {name: side(name, what) for name in ("outrider", *CASES[what])}
    compare(list(sides.values()), rounds, seconds)
    ours = sides["outrider"]
    rows = [[what, "outrider", f"{1e6 / ours.median:.0f}", "", ""]]
    for name, most in CASES[what].items():
        middle, low, high = ratio(sides[name], ours)
        figure = f"{middle:.3f} ({low:.3f} to {high:.3f})"
        rows.append(["", name, f"{1e6 / sides[name].median:.0f}", figure, "" if most is None else f"{most:g}"])
    return rows


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", choices=tuple(CASES), action="append")
    options = parser.parse_args()
    rows = [row for what in options.only or CASES for row in case(what, options.rounds, options.seconds)]
    print(f"Returns of 2048 steps of 64 lanes. {machine()}, {options.rounds} rounds.\n")
    print(table(["what", "library", "us a call", "ours takes (of its time)", "at most"], rows))


if __name__ == "__main__":
    main()
