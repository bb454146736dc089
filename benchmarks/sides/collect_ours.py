"""Outrider's collectors with an actor-critic: collect_ours.py LANES LENGTH WORKERS (0: in this process)."""

import sys

from rounds import serve
from workloads import actor_critic, cartpole

import outrider
from outrider.torch import TorchPolicy


def make_policy() -> TorchPolicy:
    """The policy; called in each worker."""
    return TorchPolicy(actor_critic())


def main() -> None:
    """Collect rollouts."""
    lanes, length, workers = (int(argument) for argument in sys.argv[1:4])
    if workers:
        plan = outrider.Envs(cartpole, lanes)
        with outrider.ParallelCollector(plan, make_policy, workers=workers, seed=0) as collector:
            serve(lambda: len(collector.rollout(length)))
    else:
        with outrider.make_vec(cartpole, lanes) as envs, outrider.Collector(envs, make_policy(), seed=0) as collector:
            serve(lambda: len(collector.rollout(length)))


if __name__ == "__main__":
    main()
