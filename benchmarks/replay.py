"""Replay buffers, 8 lanes, against the peers' and against bare copies: microseconds a call, and ratios of them."""

from __future__ import annotations

import argparse
import os

from rounds import PEERS, Side, compare, machine, ratio, table

TIANSHOU = os.environ.get("PEERS_TIANSHOU_PYTHON", PEERS.replace("/bin/python", "-tianshou/bin/python"))

CASES = {
    # what: the others, and how long ours may take, in units of the best of those it is measured against
    "add": (("sb3", "cpprb", "tianshou", "torchrl"), ("sb3", 3.0)),
    "sample": (("bare", "sb3", "cpprb", "tianshou", "torchrl"), ("peers", 0.6)),
    "sample frames": (("bare", "sb3", "cpprb", "tianshou"), ("bare", 1.3)),
    "sample n-step": ((), None),
    "prioritized": (("cpprb", "tianshou"), ("peers", 0.75)),
    "prioritized 1e6": (("cpprb",), None),
    "extend": (("bare",), None),
    "extend frames": (("bare",), ("bare", 1.5)),
}


def side(library: str, what: str) -> Side:
    """One side of a case."""
    if library in ("outrider", "bare"):
        return Side(library, "replay_ours.py" if library == "outrider" else "replay_bare.py", [what])
    return Side(library, "replay_peers.py", [library, what], python=TIANSHOU if library == "tianshou" else PEERS)


def case(what: str, rounds: int, seconds: float) -> list[list[str]]:
    """The rows of one case."""
    others, target = CASES[what]
    sides = {name: side(name, what) for name in ("outrider", *others)}
    compare(list(sides.values()), rounds, seconds)
    ours = sides["outrider"]
    best = max((sides[name] for name in others if name != "bare"), key=lambda one: one.median, default=None)
    rows = [[what, "outrider", f"{1e6 / ours.median:.1f}", "", ""]]
    for name in others:
        middle, low, high = ratio(sides[name], ours)
        measured = target is not None and (target[0] == name or (target[0] == "peers" and sides[name] is best))
        goal = f"{target[1]:g}" if target is not None and measured else ""
        rows.append(["", name, f"{1e6 / sides[name].median:.1f}", f"{middle:.2f} ({low:.2f} to {high:.2f})", goal])
    return rows


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", choices=tuple(CASES), action="append")
    options = parser.parse_args()
    rows = [row for what in options.only or CASES for row in case(what, options.rounds, options.seconds)]
    print(f"Replay buffers, 8 lanes, batches of 256. {machine()}, {options.rounds} rounds.\n")
    print(table(["what", "library", "us a call", "ours takes (of its time)", "at most"], rows))


if __name__ == "__main__":
    main()
