"""Suites about what comes back when: for every backend, and for those that return the first lanes to finish."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import outrider
from outrider.errors import ConfigError, OutriderError
from outrider.testing.gates import Gate, Gated
from outrider.vector.driver import STEP, Backend
from outrider.vector.env import VecEnv
from outrider.vector.group import ALL_INFOS, NO_INFOS

__all__ = ["ArrivalConformance", "FirstFinishersConformance"]

LANES = 6


class ArrivalConformance:
    """What holds for every backend, whether it waits for all lanes or for some.

    Subclass it in a module that pytest collects, and say what to test.

    Example:
        >>> class TestInlineArrivals(ArrivalConformance):
        ...     def backend(self, workers, wait_for):
        ...         return outrider.Inline()
    """

    def backend(self, workers: int, wait_for: int | None) -> Backend:
        """A backend with so many workers, if it has any, that waits for so many lanes, if it can."""
        raise NotImplementedError

    @contextmanager
    def make(self, lengths: Sequence[int], workers: int = 1, wait_for: int | None = None) -> Iterator[VecEnv]:
        """`Gated` environments with episodes of these lengths and no gates."""
        factories = [partial(Gated, None, length, lane) for lane, length in enumerate(lengths)]
        with outrider.make_vec(factories, backend=self.backend(workers, wait_for)) as envs:
            yield envs

    @pytest.mark.parametrize("wait_for", (None, 1, 4))
    @pytest.mark.parametrize("workers", (1, 3))
    def test_random_subsets_against_a_list_of_counters(self, workers: int, wait_for: int | None) -> None:
        rng = np.random.default_rng(workers)
        lengths = rng.integers(2, 12, LANES).tolist()
        with self.make(lengths, workers, wait_for) as envs:
            model = Model(envs, lengths)
            model.send_reset(np.arange(LANES))
            for _ in range(200):
                model.receive()
                idle = rng.permutation(np.flatnonzero(~np.isin(np.arange(LANES), list(model.flight))))
                cuts = np.sort(rng.integers(0, len(idle) + 1, 2))
                for some in np.split(idle, cuts)[: rng.integers(1, 4)]:
                    if len(some):
                        model.send_reset(some) if rng.random() < 0.1 else model.send(some, rng)
                if rng.random() < 0.03:
                    assert envs.reset()[0].tolist() == [[0]] * LANES
                    model.start_again()
                if not model.flight:
                    with pytest.raises(OutriderError, match="recv"):
                        envs.recv()
                    model.send(np.arange(LANES), rng)

    @pytest.mark.parametrize("wait_for", (None, 1))
    def test_infos_arrive_with_their_lanes_or_not_at_all(self, wait_for: int | None) -> None:
        with self.make([3] * LANES, 2, wait_for) as envs:
            envs.reset()
            rows = np.arange(LANES) + envs.store.scratch + LANES
            for turn in range(1, 7):
                want = ALL_INFOS if turn % 2 else NO_INFOS
                envs.store.action[:] = 0
                envs.post(np.arange(LANES), rows, STEP, want)
                left = LANES
                while left:
                    arrival = envs.recv()
                    left -= len(arrival.lanes)
                    lanes = arrival.env_id.tolist() if want else []
                    info = {"count": turn % 3}
                    assert arrival.info == {lane: {"number": lane, **info} for lane in lanes}
                    final = {"count": 3}
                    assert arrival.final_info == {lane: {"number": lane, **final} for lane in lanes if turn % 3 == 0}

    def test_all_lanes_at_once_come_back_in_order(self) -> None:
        with self.make([9] * LANES, 2, 1) as envs:
            envs.reset()
            for count in range(1, 20):
                obs, reward, *_ = envs.step(np.arange(LANES) % 3)
                assert obs.tolist() == [[count % 9]] * LANES
                assert reward.tolist() == [10 * ((count - 1) % 9 + 1) + lane % 3 for lane in range(LANES)]


class Model:
    """The environments as a list of counters, beside the real ones."""

    def __init__(self, envs: VecEnv, lengths: Sequence[int]) -> None:
        self.envs = envs
        self.lengths = lengths
        self.counts = [0] * len(lengths)
        self.flight: dict[int, tuple[int, float | None]] = {}
        self.number = 0

    def send(self, lanes: np.ndarray, rng: np.random.Generator) -> None:
        """Step `lanes`, some of them held at their ends."""
        actions = rng.integers(0, 3, len(lanes))
        self.envs.send(actions, lanes)
        self.number += 1
        for lane, action in zip(lanes.tolist(), actions.tolist(), strict=True):
            self.counts[lane] += 1
            self.flight[lane] = self.number, 10.0 * self.counts[lane] + action

    def send_reset(self, lanes: np.ndarray) -> None:
        """Reset `lanes`."""
        self.envs.send_reset(lanes)
        self.number += 1
        for lane in lanes.tolist():
            self.counts[lane] = 0
            self.flight[lane] = self.number, None

    def start_again(self) -> None:
        """All have been reset, and nothing is under way."""
        self.flight.clear()
        self.counts = [0] * len(self.counts)

    def receive(self) -> None:
        """Receive, and compare."""
        if not self.flight:
            return
        least = self.envs.driver.wait_for
        arrival = self.envs.recv()
        lanes = arrival.env_id.tolist()
        assert len(lanes) >= min(len(self.flight), least or len(self.flight))
        assert lanes == sorted(lanes, key=lambda lane: (self.flight[lane][0], lane))
        ended = [lane for lane in lanes if self.counts[lane] == self.lengths[lane]]
        assert arrival.ended == ended
        assert arrival.final_obs.tolist() == [[self.counts[lane]] for lane in ended]
        for at, lane in enumerate(lanes):
            reward = self.flight.pop(lane)[1]
            if reward is not None:
                assert (arrival.reward[at], bool(arrival.terminated[at])) == (reward, lane in ended)
            if lane in ended:
                self.counts[lane] = 0
            assert arrival.obs[at].tolist() == [self.counts[lane]]


class FirstFinishersConformance(ArrivalConformance):
    """What holds where `wait_for` is there: lanes come back while others are still under way."""

    @contextmanager
    def at_gates(
        self, folder: Path, gated: Sequence[int], num_envs: int, workers: int, wait_for: int = 1
    ) -> Iterator[tuple[VecEnv, list[Gate]]]:
        """Environments whose episodes do not end, and the gates of those in `gated`. They stand at a reset."""
        gates = {lane: Gate(folder / str(lane)) for lane in gated}
        factories = [partial(Gated, gates[i].path if i in gates else None, number=i) for i in range(num_envs)]
        with ExitStack() as stack:
            envs = stack.enter_context(outrider.make_vec(factories, backend=self.backend(workers, wait_for)))
            # They open before the environments are closed.
            for gate in gates.values():
                stack.enter_context(gate)
            envs.reset()
            yield envs, list(gates.values())

    def test_others_arrive_while_a_lane_is_slow(self, tmp_path: Path) -> None:
        with self.at_gates(tmp_path, [0], 4, workers=4) as (envs, (gate,)):
            send(envs, 0, 1, 2, 3)
            assert until(envs, 3) == {1, 2, 3}
            for _ in range(20):
                send(envs, 2, 3)
                assert until(envs, 2) == {2, 3}
            with pytest.raises(ConfigError, match="env_ids"):
                send(envs, 0)
            gate.open()
            arrival = envs.recv()
            assert (arrival.env_id.tolist(), arrival.obs.tolist()) == ([0], [[1]])

    def test_at_least_so_many_arrive_and_fewer_only_if_fewer_are_under_way(self, tmp_path: Path) -> None:
        with self.at_gates(tmp_path, [2], 5, workers=5, wait_for=3) as (envs, (gate,)):
            send(envs, 0, 1, 2, 3)
            assert envs.recv().env_id.tolist() == [0, 1, 3]
            send(envs, 3, 4)
            gate.open()
            # Three are under way, so that all of them are waited for; the oldest comes first.
            assert envs.recv().env_id.tolist() == [2, 3, 4]
            send(envs, 4)
            assert envs.recv().env_id.tolist() == [4]
            with pytest.raises(OutriderError, match="recv"):
                envs.recv()

    def test_the_oldest_request_comes_first_whoever_finishes_first(self, tmp_path: Path) -> None:
        with self.at_gates(tmp_path, [0, 1, 2, 3], 5, workers=4, wait_for=4) as (envs, gates):
            for lanes in ((2,), (3, 1), (0,)):
                send(envs, *lanes)
            for lane in (0, 1, 3, 2):
                gates[lane].open()
            assert envs.recv().env_id.tolist() == [2, 1, 3, 0]

    def test_a_lane_is_delayed_by_lanes_of_its_worker_for_one_call_each(self, tmp_path: Path) -> None:
        with self.at_gates(tmp_path, [0, 1], 3, workers=1) as (envs, (first, second)):
            send(envs, 0)
            send(envs, 1, 2)
            first.open()
            assert envs.recv().env_id.tolist() == [0]
            # It is asked for again, and stands behind those that were there before.
            send(envs, 0)
            second.open()
            assert until(envs, 2) == {1, 2}
            first.open()
            assert envs.recv().env_id.tolist() == [0]

    def test_a_lane_is_not_delayed_by_other_workers(self, tmp_path: Path) -> None:
        with self.at_gates(tmp_path, [0, 1], 4, workers=2) as (envs, (first, second)):
            send(envs, 0, 1)
            for _ in range(5):
                send(envs, 2, 3)
                assert until(envs, 2) == {2, 3}
            # The lanes of one worker come back one by one.
            first.open()
            assert envs.recv().env_id.tolist() == [0]
            second.open()
            assert envs.recv().env_id.tolist() == [1]

    def test_a_reset_waits_for_what_is_under_way(self, tmp_path: Path) -> None:
        with self.at_gates(tmp_path, [0], 3, workers=2) as (envs, (gate,)):
            send(envs, 0, 1, 2)
            assert 0 not in envs.recv().env_id
            gate.open()
            obs, infos = envs.reset()
            assert obs.tolist() == [[0]] * 3
            assert infos["count"].tolist() == [0, 0, 0]
            gate.open()
            obs, reward, *_, infos = envs.step(np.zeros(3, np.int64))
            assert obs.tolist() == [[1]] * 3
            assert reward.tolist() == [10.0] * 3
            assert infos["count"].tolist() == [1, 1, 1]

    def test_resets_of_single_lanes_beside_a_slow_one(self, tmp_path: Path) -> None:
        with self.at_gates(tmp_path, [0], 3, workers=3) as (envs, (gate,)):
            send(envs, 0, 1, 2)
            assert until(envs, 2) == {1, 2}
            envs.send_reset([2], seeds=[3])
            arrival = envs.recv()
            assert (arrival.env_id.tolist(), arrival.obs.tolist()) == ([2], [[0]])
            gate.open()
            assert envs.recv().env_id.tolist() == [0]

    def test_an_interrupted_wait_can_be_called_again(self, tmp_path: Path) -> None:
        with self.at_gates(tmp_path, [0, 1], 2, workers=2) as (envs, gates):
            send(envs, 0, 1)
            for count in range(2):
                with pytest.raises(KeyboardInterrupt):
                    interrupted(envs)
                gates[1].open()
                arrival = envs.recv()
                assert (arrival.env_id.tolist(), arrival.obs.tolist()) == ([1], [[count + 1]])
                send(envs, 1)
            gates[0].open()
            assert envs.recv().env_id.tolist() == [0]

    def test_arrivals_that_make_no_sense_are_refused(self) -> None:
        for wait_for in (0, -1, 1.5, True):
            with pytest.raises(ConfigError, match="wait_for"):
                self.backend(1, wait_for)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(ConfigError, match="at most 2 arrivals"), self.make([9, 9], 1, 3):
            pass
        with self.make([9, 9], 1, 2) as envs:
            assert envs.driver.wait_for is None


def send(envs: VecEnv, *lanes: int) -> None:
    """Step these lanes with the action 0."""
    envs.send(np.zeros(len(lanes), np.int64), list(lanes))


def until(envs: VecEnv, count: int) -> set[int]:
    """Receive until so many lanes have arrived."""
    found: list[int] = []
    while len(found) < count:
        found += envs.recv().env_id.tolist()
    assert len(set(found)) == len(found) == count
    return set(found)


def interrupted(envs: VecEnv) -> None:
    """Press Ctrl-C in a wait that would never end, once it has had time to begin."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        envs.recv()
    finally:
        # It has been pressed: nothing else ends the wait.
        timer.join()
        signal.signal(signal.SIGINT, before)
