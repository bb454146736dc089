"""Exact, fast and safe collection of experience for reinforcement learning.

    Envs, make_vec               what environments there are, and a vector environment of them
    Inline, Threads, Processes   where they run
    Restart, Drop                what becomes of those that fail
    Collector                    rollouts, steps and episodes, collected in this process
    ParallelCollector            the same, collected by workers that run the policy
    evaluate, Video              returns and lengths of whole episodes, and what they looked like
    Policy, RandomPolicy         what decides; functions do too, and outrider.torch.TorchPolicy
    EpsilonGreedy, ActionNoise   exploration around a policy; GaussianNoise, OrnsteinUhlenbeckNoise
    ObsNormalizer                running statistics, before a policy (NormalizedPolicy) and a learner; RewardNormalizer
    Rollout, Steps, Episodes     what comes back; Episode, Padded
    StepSpec, LeafSpec           what the rows look like
    ReplayBuffer                 the newest steps, in memory or in files (Memmap)
    Transitions, Sequences       what samples look like; WholeEpisodes, Hindsight
    Uniform, Prioritized         how to sample; WithoutReplacement, Newest, Stale; Mix of buffers
    advantages, gae              what learners predict; lambda_returns, discounted_returns, n_step, vtrace;
                                 normalize_advantages
    Dataset                      episodes on disk
    OutriderError                what is raised, with a class for each kind of cause

Names are imported when they are first used, so that `import outrider` is quick and needs no extra.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.collect.collector import Collector as Collector
    from outrider.collect.evaluate import Evaluation as Evaluation
    from outrider.collect.evaluate import evaluate as evaluate
    from outrider.collect.options import CollectOptions as CollectOptions
    from outrider.collect.parallel import ParallelCollector as ParallelCollector
    from outrider.collect.stats import CollectStats as CollectStats
    from outrider.collect.video import Video as Video
    from outrider.dataset import Dataset as Dataset
    from outrider.errors import ClosedError as ClosedError
    from outrider.errors import ConfigError as ConfigError
    from outrider.errors import DatasetError as DatasetError
    from outrider.errors import EnvironmentFailure as EnvironmentFailure
    from outrider.errors import EnvironmentTimeout as EnvironmentTimeout
    from outrider.errors import OutriderError as OutriderError
    from outrider.errors import PolicyError as PolicyError
    from outrider.errors import ReplayError as ReplayError
    from outrider.errors import SpecError as SpecError
    from outrider.errors import WorkerDied as WorkerDied
    from outrider.normalizers.observations import ObsNormalizer as ObsNormalizer
    from outrider.normalizers.rewards import RewardNormalizer as RewardNormalizer
    from outrider.policies.action_noise import ActionNoise as ActionNoise
    from outrider.policies.base import Context as Context
    from outrider.policies.base import Policy as Policy
    from outrider.policies.epsilon_greedy import EpsilonGreedy as EpsilonGreedy
    from outrider.policies.noise import GaussianNoise as GaussianNoise
    from outrider.policies.noise import OrnsteinUhlenbeckNoise as OrnsteinUhlenbeckNoise
    from outrider.policies.normalized import NormalizedPolicy as NormalizedPolicy
    from outrider.policies.random import RandomPolicy as RandomPolicy
    from outrider.records import Episode as Episode
    from outrider.records import Episodes as Episodes
    from outrider.records import Padded as Padded
    from outrider.records import Rollout as Rollout
    from outrider.records import Steps as Steps
    from outrider.records import StepSpec as StepSpec
    from outrider.replay.buffer import ReplayBuffer as ReplayBuffer
    from outrider.replay.epochs import WithoutReplacement as WithoutReplacement
    from outrider.replay.hindsight import GoalKeys as GoalKeys
    from outrider.replay.hindsight import Hindsight as Hindsight
    from outrider.replay.mix import Mix as Mix
    from outrider.replay.prioritized import Prioritized as Prioritized
    from outrider.replay.recent import Newest as Newest
    from outrider.replay.recent import Stale as Stale
    from outrider.replay.samplers import Uniform as Uniform
    from outrider.replay.sequences import Sequences as Sequences
    from outrider.replay.sizes import estimate_nbytes as estimate_nbytes
    from outrider.replay.storage import Memmap as Memmap
    from outrider.replay.transitions import Transitions as Transitions
    from outrider.replay.whole_episodes import WholeEpisodes as WholeEpisodes
    from outrider.returns import ClippedRatio as ClippedRatio
    from outrider.returns import advantages as advantages
    from outrider.returns import discounted_returns as discounted_returns
    from outrider.returns import gae as gae
    from outrider.returns import lambda_returns as lambda_returns
    from outrider.returns import n_step as n_step
    from outrider.returns import normalize_advantages as normalize_advantages
    from outrider.returns import vtrace as vtrace
    from outrider.spec import LeafSpec as LeafSpec
    from outrider.vector.env import VecEnv as VecEnv
    from outrider.vector.inline import Inline as Inline
    from outrider.vector.make import make_vec as make_vec
    from outrider.vector.plan import Envs as Envs
    from outrider.vector.processes import Processes as Processes
    from outrider.vector.recovery import Drop as Drop
    from outrider.vector.recovery import Restart as Restart
    from outrider.vector.threads import Threads as Threads

_HOMES = {
    "CollectStats": "outrider.collect.stats",
    "CollectOptions": "outrider.collect.options",
    "Collector": "outrider.collect.collector",
    "Evaluation": "outrider.collect.evaluate",
    "ParallelCollector": "outrider.collect.parallel",
    "Video": "outrider.collect.video",
    "evaluate": "outrider.collect.evaluate",
    "ClosedError": "outrider.errors",
    "ConfigError": "outrider.errors",
    "DatasetError": "outrider.errors",
    "EnvironmentFailure": "outrider.errors",
    "EnvironmentTimeout": "outrider.errors",
    "OutriderError": "outrider.errors",
    "PolicyError": "outrider.errors",
    "ReplayError": "outrider.errors",
    "SpecError": "outrider.errors",
    "WorkerDied": "outrider.errors",
    "ObsNormalizer": "outrider.normalizers.observations",
    "RewardNormalizer": "outrider.normalizers.rewards",
    "ActionNoise": "outrider.policies.action_noise",
    "Context": "outrider.policies.base",
    "Dataset": "outrider.dataset",
    "Episode": "outrider.records",
    "Episodes": "outrider.records",
    "Padded": "outrider.records",
    "Policy": "outrider.policies.base",
    "EpsilonGreedy": "outrider.policies.epsilon_greedy",
    "GaussianNoise": "outrider.policies.noise",
    "OrnsteinUhlenbeckNoise": "outrider.policies.noise",
    "NormalizedPolicy": "outrider.policies.normalized",
    "RandomPolicy": "outrider.policies.random",
    "Rollout": "outrider.records",
    "StepSpec": "outrider.records",
    "Steps": "outrider.records",
    "Memmap": "outrider.replay.storage",
    "estimate_nbytes": "outrider.replay.sizes",
    "GoalKeys": "outrider.replay.hindsight",
    "Hindsight": "outrider.replay.hindsight",
    "ReplayBuffer": "outrider.replay.buffer",
    "Sequences": "outrider.replay.sequences",
    "Transitions": "outrider.replay.transitions",
    "Mix": "outrider.replay.mix",
    "Newest": "outrider.replay.recent",
    "Prioritized": "outrider.replay.prioritized",
    "Stale": "outrider.replay.recent",
    "Uniform": "outrider.replay.samplers",
    "WholeEpisodes": "outrider.replay.whole_episodes",
    "WithoutReplacement": "outrider.replay.epochs",
    "LeafSpec": "outrider.spec",
    "ClippedRatio": "outrider.returns",
    "advantages": "outrider.returns",
    "discounted_returns": "outrider.returns",
    "gae": "outrider.returns",
    "lambda_returns": "outrider.returns",
    "n_step": "outrider.returns",
    "normalize_advantages": "outrider.returns",
    "vtrace": "outrider.returns",
    "Drop": "outrider.vector.recovery",
    "Envs": "outrider.vector.plan",
    "Inline": "outrider.vector.inline",
    "Processes": "outrider.vector.processes",
    "Threads": "outrider.vector.threads",
    "Restart": "outrider.vector.recovery",
    "VecEnv": "outrider.vector.env",
    "make_vec": "outrider.vector.make",
}

_SUBMODULES = ("interop", "testing", "torch")
"""What needs an extra or pytest: `outrider.torch` is there without an import of its own."""

__all__ = [*_HOMES]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("outrider")
    if name in _SUBMODULES:
        return importlib.import_module(f"outrider.{name}")
    if name not in _HOMES:
        msg = f"module 'outrider' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_HOMES, *_SUBMODULES, "__all__", "__doc__", "__version__"])
