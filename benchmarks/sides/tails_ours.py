"""Outrider on environments of uneven speed: tails_ours.py ENV FIRST LANES WORKERS WAIT_FOR CALL.

FIRST is the environment of lane 0, whose steps are not counted if it is another one. CALL is "steps", "rollouts" (of
64, with a lead of 4), or "shares", which prints how the rows of 20 000 steps are shared out among the lanes.
"""

import json
import sys

import numpy as np
from rounds import serve
from workloads import MAKERS

import outrider


def main() -> None:
    """Collect with actions that cost nothing."""
    env, first, lanes, workers, wait_for, call = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), sys.argv[6]
    backend = outrider.Processes(workers=workers, wait_for=wait_for)
    options = outrider.CollectOptions(lead=4)
    factories = [MAKERS[first], *[MAKERS[env]] * (lanes - 1)]
    with (
        outrider.make_vec(factories, backend=backend) as envs,
        outrider.Collector(envs, lambda obs: np.zeros(len(obs), np.int64), seed=0, options=options) as collector,
    ):
        if call == "shares":
            counts = np.bincount(collector.steps(20_000).env_id, minlength=lanes)
            print(json.dumps({"lowest": counts.min() / counts.mean(), "highest": counts.max() / counts.mean()}))
        elif call == "rollouts":
            serve(lambda: len(collector.rollout(64)))
        elif first == env:
            serve(lambda: len(collector.steps(8 * lanes)))
        else:
            serve(lambda: int((collector.steps(8 * lanes).env_id > 0).sum()))


if __name__ == "__main__":
    main()
