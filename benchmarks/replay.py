"""Replay buffers against the peers' and against bare copies: microseconds of processor time a call, and ratios."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass

from rounds import PEERS, TIANSHOU, Side, compare, machine, ratio, table

WARM = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
"""What is freed stays with the process. By default, that depends on the largest block that it has freed before: a batch
of frames takes one millisecond or four, whatever the library, as its pages are there already or not."""


@dataclass(frozen=True)
class Limit:
    """What our time may be at most.

    Attributes:
        most: a multiple of the time of `of`; if there is nothing to compare with, microseconds.
        of: the side that it is measured against, "peers" for the fastest of them.
        more: `most` is microseconds more than that of `of`.
    """

    most: float
    of: str = ""
    more: bool = False

    def __str__(self) -> str:
        """How a table shows it."""
        return f"+{self.most:g} us" if self.more else f"{self.most:g}" if self.of else f"{self.most:g} us"


FULL = "outrider, full"
ALL = ("sb3", "cpprb", "tianshou", "torchrl")
# TorchRL has no priorities without its extension, for which there is no wheel that fits.
RANKED = ("cpprb", "tianshou")

CASES = {
    # what: the others, and how long ours may take
    "add": (ALL, Limit(3.0, "sb3")),
    "sample": (("bare", *ALL), Limit(0.6, "peers")),
    "sample 10 % full": ((FULL, "bare"), Limit(1.1, FULL)),
    "sample frames": (("bare", *ALL), Limit(1.3, "bare")),
    "n-step 3": (("bare",), Limit(2.0, "bare")),
    "frame stack 4": (("bare",), Limit(2.0, "bare")),
    "sequences": (("bare",), Limit(2.0, "bare")),
    "padded sequences": (("bare",), Limit(2.0, "bare")),
    "dict": (("bare",), Limit(2.0, "bare")),
    "hindsight": (("bare",), Limit(2.0, "bare")),
    "prioritized": (RANKED, Limit(0.75, "peers")),
    "prioritized 1e6": (RANKED, Limit(150.0)),
    "extend": (("bare",), Limit(30.0, "bare", more=True)),
    "extend frames": (("bare",), Limit(1.5, "bare")),
    "extend stacks": (("bare",), Limit(1.5, "bare")),
}


def side(library: str, what: str) -> Side:
    """One side of a case."""
    if library == "bare":
        return Side(library, "replay_bare.py", [what], env=WARM)
    if library.startswith("outrider"):
        return Side(library, "replay_ours.py", ["sample" if library == FULL else what], env=WARM)
    python = TIANSHOU if library == "tianshou" else PEERS
    return Side(library, "replay_peers.py", [library, what], python=python, env=WARM)


def case(what: str, rounds: int, seconds: float) -> list[list[str]]:
    """The rows of one case; what is over its limit is in bold."""
    others, limit = CASES[what]
    sides = {name: side(name, what) for name in ("outrider", *others)}
    compare(list(sides.values()), rounds, seconds)
    ours = sides["outrider"]
    best = max((sides[name] for name in others if name in ALL), key=lambda one: one.median, default=None)
    time = 1e6 / ours.median
    alone = "" if limit.of else str(limit)
    rows = [[what, "outrider", f"**{time:.1f}**" if alone and time > limit.most else f"{time:.1f}", "", alone]]
    for name in others:
        other = sides[name]
        limits = limit.of == name or (limit.of == "peers" and other is best)
        middle, text = difference(other, ours) if limit.more else as_ratio(other, ours)
        if limits and middle > limit.most:
            text = f"**{text}**"
        rows.append(["", name, f"{1e6 / other.median:.1f}", text, str(limit) if limits else ""])
    return rows


def as_ratio(other: Side, ours: Side) -> tuple[float, str]:
    """Our time in units of another's: the figure, and with its range."""
    middle, low, high = ratio(other, ours)
    return middle, f"{middle:.2f} ({low:.2f} to {high:.2f})"


def difference(other: Side, ours: Side) -> tuple[float, str]:
    """How many microseconds more ours takes: the median of neighbouring rounds, and with its range."""
    pairs = [1e6 / x - 1e6 / y for x, y in zip(ours.figures, other.figures, strict=True)]
    middle = statistics.median(pairs)
    return middle, f"{middle:+.1f} us ({min(pairs):+.1f} to {max(pairs):+.1f})"


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--only", choices=tuple(CASES), action="append")
    options = parser.parse_args()
    rows = [row for what in options.only or CASES for row in case(what, options.rounds, options.seconds)]
    print(
        "Replay buffers of 8 lanes, batches of 256; sequences of 80, 32 at a time; appended are rollouts of 64 x 32. "
        f"{machine()}, {options.rounds} rounds.\n"
    )
    print(table(["what", "library", "us a call", "ours takes (of its time)", "at most"], rows))


if __name__ == "__main__":
    main()
