"""What a vector step costs beside the environments: microseconds, and processor seconds for a million env-steps."""

from __future__ import annotations

import argparse
import statistics

from rounds import PEERS, Side, compare, machine, ratio, table

OBSERVATIONS = {
    "noop_small": "4 float32",
    "noop_376": "376 float64",
    "noop_pixels": "84 x 84 x 4 uint8",
    "noop_dict": "dict of three",
}
LANES = (8, 32, 128)
WORKERS = (0, 2)  # 0: in one process


def costs(env: str, lanes: int, workers: int, rounds: int, seconds: float) -> list[str]:
    """One row of the table."""
    ours = Side("outrider", "vector_ours.py", [env, str(lanes), str(workers)])
    kind = "async" if workers else "sync"
    theirs = Side("gymnasium", "vector_gymnasium.py", [env, str(lanes), kind], python=PEERS)
    compare([ours, theirs], rounds, seconds)
    middle, low, high = ratio(ours, theirs)
    places = ("Processes(2)", "AsyncVectorEnv") if workers else ("Inline()", "SyncVectorEnv")
    cells = [OBSERVATIONS[env], str(lanes)]
    for place, side in zip(places, (ours, theirs), strict=True):
        cells += [place, f"{1e6 * lanes / side.median:.0f}", f"{statistics.median(side.cpu):.1f}"]
    return [*cells, f"{middle:.2f} ({low:.2f} to {high:.2f})"]


def main() -> None:
    """Run all cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--lanes", type=int, nargs="+", default=LANES)
    options = parser.parse_args()
    rows = [
        costs(env, lanes, workers, options.rounds, options.seconds)
        for workers in WORKERS
        for env in OBSERVATIONS
        for lanes in options.lanes
    ]
    print(f"Vector steps of environments that do nothing. {machine()}, {options.rounds} rounds.\n")
    measured = ["us a vector step", "CPU s a million env-steps"]
    print(table(["observation", "lanes", "ours", *measured, "Gymnasium", *measured, "ratio of env-steps/s"], rows))
    print("\nProcessor seconds are those of the process and of its workers together.")


if __name__ == "__main__":
    main()
