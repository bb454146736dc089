"""The worker's side of `ParallelCollector`: it runs the loop for its own lanes, with its own copy of the policy."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle

from outrider.collect.actions import ActionMapName
from outrider.collect.decide import Terms, raised
from outrider.collect.loop import Loop
from outrider.collect.shares import Shares
from outrider.collect.stats import Recorder
from outrider.errors import EnvironmentFailure, OutriderError, PolicyError
from outrider.memory.rows import Layout, Rows
from outrider.policies.base import Policy
from outrider.policies.function import as_policy
from outrider.seeding import NOISE, lane_seed, lane_seeds, seed_globals
from outrider.tree import Tree
from outrider.vector.bootstrap import WorkerStart
from outrider.vector.driver import describe
from outrider.vector.env import VecEnv
from outrider.vector.group import IDLE, EnvGroup
from outrider.vector.inline import InlineDriver
from outrider.vector.worker import OPERATION, Channel, host

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Assignment", "Happened", "PolicyFactory", "run"]

PolicyFactory = Callable[[], Policy | Callable[[Any], Any]]


@dataclass(frozen=True)
class Assignment:
    """What a worker is to do beside building its environments.

    Attributes:
        make_policy: called once in the worker.
        seed, action_map: as of `Collector`.
        workers: how many there are in all.
    """

    make_policy: PolicyFactory
    seed: int
    action_map: ActionMapName
    workers: int


@dataclass(frozen=True)
class Happened:
    """What a worker's recorder has seen since it was last asked.

    Attributes:
        steps: environment steps.
        cuts: episodes cut between rows.
        stopped: lane, return, length and cut of the episodes that stopped at a row, [e] each, in pieces.
        seconds: time in all, in the policy, in the environments.
    """

    steps: int
    cuts: int
    stopped: list[tuple[np.ndarray, ...]]
    seconds: tuple[float, ...]


def run(start: WorkerStart) -> None:
    """Build environments and policy, and serve requests until told to close."""
    host(start, lambda channel, group, assignment: _Server(channel, group, assignment, start.index).serve())


class _Server:
    """Serves the requests for the lanes of one worker."""

    def __init__(self, channel: Channel, group: EnvGroup, assignment: Assignment, index: int) -> None:
        self._channel = channel
        self._group = group
        self._assignment = assignment
        self._index = index
        self._loop: Loop | None = None
        self._events = Events(range(group.first, group.first + len(group.envs)))
        self._handlers: dict[str, Callable[..., tuple[str, Any]]] = {
            "spec": self._spec,
            "fill": self._fill,
            "episodes": self._episodes,
            "reset": self._reset,
            "publish": self._publish,
            "stand_in": self._stand_in,
        }

    def serve(self) -> None:
        """Answer until told to close or orphaned."""
        channel = self._channel
        while not channel.orphaned:
            channel.header[OPERATION] = IDLE
            kind, *content = channel.receive() or ("close",)
            if kind == "close":
                channel.send("closed", self._group.close())
                return
            try:
                channel.send(*self._handlers[kind](*content))
            except Exception as error:  # noqa: BLE001 - whatever a policy raises belongs to the parent
                channel.send("failure", self._named(error))

    def _named(self, error: Exception) -> Exception:
        """The error with its traceback and where it happened, fit to be sent."""
        if isinstance(error, EnvironmentFailure):
            return error
        trace = "".join(traceback.format_exception(error))
        if not isinstance(error, OutriderError):
            cause, error = error, OutriderError(f"worker {self._index}: {type(error).__name__}: {error}")
            error.__cause__ = cause
        error.add_note(f"in worker {self._index} (process {os.getpid()}):\n{trace}")
        return error

    def _made_loop(self) -> Loop:
        if self._loop is None:
            store, given = self._group.store, self._assignment
            driver = InlineDriver(self._group, store)
            driver.description = describe(self._group.envs, self._group.first)
            envs = VecEnv(driver, "", info_keys=self._group.info_keys)
            terms = Terms(given.seed, given.action_map, self._columns)
            policy = as_policy(self._made_policy())
            # Whatever the policy was made with, no two workers may draw the same noise from a global generator.
            seed_globals(lane_seed(given.seed, self._group.first, NOISE))
            self._loop = Loop(envs, policy, terms, self._events)
            self._arrange(lane_seeds(given.seed, self._loop.lane_numbers), None)
        return self._loop

    def _made_policy(self) -> Policy | Callable[[Any], Any]:
        try:
            return self._assignment.make_policy()
        except PolicyError:
            raise
        except Exception as error:
            raise raised(error, "make_policy", "no arguments") from error

    def _columns(self, specs: Tree) -> Rows:
        """Ask the parent where the columns for these specs are; take rows of one's own behind the parent's half."""
        self._channel.send("columns", specs)
        layout: Layout = self._channel.receive()
        store, workers = self._group.store, self._assignment.workers
        columns = store.attach_columns(layout)
        store.pool.add(columns)
        half = store.pool.capacity // 2
        share = half // workers // store.num_envs * store.num_envs
        first = -(-half // store.num_envs) * store.num_envs + self._index * share
        store.pool.restrict(first, min(first + share, store.pool.capacity))
        return columns

    def _spec(self) -> tuple[str, Any]:
        return "spec", (self._made_loop().spec(), self._events.take())

    def _fill(self, base: int, turns: int) -> tuple[str, Any]:
        loop = self._made_loop()
        with loop.calls():
            loop.ready()
            loop.fill(base, turns)
        tape, stop = loop.tape, base + (turns + 1) * self._group.store.num_envs
        infos = tape.infos.take(base, stop), tape.obs_infos.take(base, stop)
        ends = tape.side.take_all()
        tape.discard()
        return "filled", (ends, infos, self._group.store.take_ragged(base, stop), self._events.take())

    def _episodes(self, count: int, per_lane: bool) -> tuple[str, Any]:  # noqa: FBT001 - part of a message
        loop, group, store = self._made_loop(), self._group, self._group.store
        lanes = range(group.first, group.first + len(group.envs))
        shares = Shares.of(count, lanes, store.num_envs, per_lane=per_lane)
        loop.cut_running()
        loop.run_episodes(shares)
        tape = loop.tape
        episodes = tape.take_episodes(0) if tape.count else None
        return "episodes", (episodes, (tape.infos.known, tape.obs_infos.known), self._events.take())

    def _reset(self, seeds: Any, options: Any) -> tuple[str, Any]:
        loop, first = self._made_loop(), self._group.first
        mine = slice(first, first + len(self._group.envs))
        self._arrange(*(None if given is None else given[mine] for given in (seeds, options)))
        loop.reset()
        return "reset", self._events.take()

    def _arrange(self, seeds: Any, options: Any) -> None:
        """Set what the next resets of this worker's lanes are called with, one each."""
        assert self._loop is not None
        self._loop.envs.arrange_resets(self._loop.envs.lanes, seeds, options)

    def _publish(self, weights: Tree) -> tuple[str, Any]:
        return "published", self._made_loop().decider.load(weights)

    def _stand_in(self, pickled: bytes | None) -> tuple[str, Any]:
        # Unpickled here, where an error is told: one in the middle of a message would end the worker.
        self._made_loop().stand_in(None if pickled is None else cloudpickle.loads(pickled))
        return "stood_in", None


class Events(Recorder):
    """A recorder whose figures are sent to the parent, piece by piece."""

    def __init__(self, lanes: range) -> None:
        super().__init__(len(lanes))
        self._first = lanes.start
        self._stopped: list[tuple[np.ndarray, ...]] = []
        self._seen = (0, 0), (0.0, 0.0, 0.0)

    def add_episodes(self, lanes: np.ndarray, returns: np.ndarray, lengths: np.ndarray, cut: np.ndarray) -> None:
        """See `Recorder.add_episodes`."""
        super().add_episodes(lanes, returns, lengths, cut)
        self._stopped.append((lanes + self._first, returns, lengths, cut))

    def take(self) -> Happened:
        """What has happened since the last call."""
        counts, seconds = (self.steps, self.cuts), (self.seconds, self.policy_seconds, self.env_seconds)
        (old_steps, old_cuts), old_seconds = self._seen
        self._seen = counts, seconds
        stopped, self._stopped = self._stopped, []
        marked = sum(int(cut.sum()) for *_, cut in stopped)
        spent = tuple(now - before for before, now in zip(old_seconds, seconds, strict=True))
        return Happened(self.steps - old_steps, self.cuts - old_cuts - marked, stopped, spent)
