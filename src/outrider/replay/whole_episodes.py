"""Whole episodes."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from outrider.records.arrays import ranges
from outrider.records.episodes import Episodes
from outrider.replay.batches import EpisodeBatch
from outrider.replay.columns import FLAGS
from outrider.replay.gathering import behind, blank, observations, take
from outrider.replay.ring import Ring
from outrider.replay.settings import keep_whole
from outrider.replay.sparse import UNKNOWN

if TYPE_CHECKING:
    from outrider.replay.samplers import Accepts
    from outrider.replay.views import Look

__all__ = ["WholeEpisodes"]

PER_STEP = ("action", "reward", *FLAGS, "step", "version", "extras", "info", "obs_info")


@dataclass(frozen=True)
class WholeEpisodes:
    """Episodes that are there from their first step to the last one, which ended or was cut; each is equally likely.

    Running episodes are left out, and so are those of which the oldest steps have had to make room, and those that were
    truncated where nobody knows the last observation. Recurrent states are not kept.

    Attributes:
        frame_stack: k where the observations have stacks of k frames: leaves [k, height, width] or with more axes. Each
            frame is stored once then, and batches have the same stacks. With 1, observations are stored as they are.

    Raises:
        ConfigError: it is no number of frames; or when the buffer is made: no observation has such a stack.

    Example:
        >>> import outrider
        >>> with outrider.make_vec("CartPole-v1", 4) as envs:
        ...     collector = outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0)
        ...     replay = outrider.ReplayBuffer(1_000, collector.spec, view=WholeEpisodes(), seed=0)
        ...     added = replay.extend(collector.rollout(100))
        >>> batch = replay.sample(5)
        >>> len(batch.episodes), bool(batch.episodes.is_complete.all())
        (5, True)
    """

    frame_stack: int = 1

    def __post_init__(self) -> None:
        """Refuse a number that makes no sense."""
        keep_whole(self, {"frame_stack": 1})

    def start(self, ring: Ring) -> Look:
        """See `View.start`."""
        ring.keep_frames(self.frame_stack)
        ring.may_begin = lambda step: step == 0
        return EpisodeLook(ring)


class EpisodeLook:
    """`WholeEpisodes` of one ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._runs = importlib.import_module("outrider.replay.runs")

    @property
    def accepts(self) -> Accepts:
        """See `Look.accepts`."""
        return self._are_whole

    def _are_whole(self, serials: np.ndarray) -> np.ndarray:
        ring, columns = self._ring, self._ring.columns
        whole: np.ndarray = columns["step"][serials % ring.rows] == 0
        serials = serials[whole]
        over = ~self._runs.running(serials, ring.heads, ring.open, columns["run"])
        if ring.finals.has_unknown:
            last = (serials + (self._lengths(serials) - 1) * ring.num_envs) % ring.rows
            over &= (ring.finals.at[last] != UNKNOWN) | columns["terminated"][last]
        whole[whole] = over
        return whole

    def _lengths(self, serials: np.ndarray) -> np.ndarray:
        """How many steps these episodes have, which are over: int64 [n]."""
        lengths: np.ndarray = self._runs.ahead(serials, self._ring.heads, self._ring.finals.at, self._ring.rows)
        return lengths

    def advice(self) -> str:
        """See `Look.advice`."""
        most = -(-self._ring.capacity // self._ring.num_envs)
        return (
            "collect until more episodes have ended; one that is longer than what a lane holds is never whole: pass a "
            f"greater capacity if there are some of more than {most} steps"
        )

    def gather(self, serials: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> EpisodeBatch:
        """See `Look.gather`."""
        ring, columns = self._ring, self._ring.columns
        lengths = self._lengths(serials)
        firsts, ends = serials % ring.rows, np.cumsum(lengths)
        rows = (np.repeat(firsts, lengths) + ranges(np.zeros_like(lengths), lengths) * ring.num_envs) % ring.rows
        # The rows of steps, and behind those of each episode its last observation.
        index = np.insert(rows, ends, behind(ring, rows[ends - 1]))
        obs, blind = observations(ring, index), None
        if ring.finals.has_unknown:
            blind = ring.finals.at[rows] == UNKNOWN
            blank(obs, ring.spec.obs, np.flatnonzero(np.insert(np.zeros_like(blind), ends, blind[ends - 1])))
        episodes = Episodes(
            obs=obs,
            **{name: take(columns[name], rows) for name in PER_STEP},
            episode_id=columns["episode_id"][firsts],
            env_id=ring.env_ids.take(serials % ring.num_envs),
            lengths=lengths,
            blind=blind if blind is not None and blind.any() else None,
        )
        return EpisodeBatch(episodes=episodes, index=serials, weight=weights)
