"""What may happen to worker processes while others are waited for."""

import os
import signal
from functools import partial

import numpy as np
import pytest

import outrider
from outrider.errors import ConfigError, EnvironmentFailure, WorkerDied
from outrider.testing.envs import Counter, Failing
from outrider.testing.gates import Gate, Gated
from outrider.vector import processes


def go_on(envs):
    """Step whichever lane has arrived, for ever."""
    while True:
        lanes = envs.recv().env_id
        envs.send(np.zeros(len(lanes), np.int64), lanes)


@pytest.mark.parametrize("ordered", (True, False))
def test_a_failure_is_seen_while_others_arrive(ordered, monkeypatch):
    # As on processors whose stores may be seen out of order.
    monkeypatch.setattr(processes.platform, "machine", lambda: "x86_64" if ordered else "aarch64")
    backend = outrider.Processes(3, "fork", wait_for=1)
    with outrider.make_vec([lambda: Failing("step"), Counter, Counter], backend=backend) as envs:
        envs.reset()
        envs.send(np.zeros(3, np.int64))
        with pytest.raises(EnvironmentFailure, match="told to fail in step") as caught:
            go_on(envs)
        assert caught.value.lane == 0
    assert envs.worker_pids == []


def test_a_death_is_seen_while_others_arrive(tmp_path):
    with Gate(tmp_path / "gate") as gate:
        backend = outrider.Processes(3, "fork", wait_for=1)
        with outrider.make_vec([lambda: Gated(gate.path), Gated, Gated], backend=backend) as envs:
            envs.reset()
            envs.send(np.zeros(3, np.int64))
            os.kill(envs.worker_pids[0], signal.SIGKILL)
            with pytest.raises(WorkerDied, match="SIGKILL"):
                go_on(envs)


def test_the_workers_of_a_parallel_collector_take_no_number_of_arrivals():
    with pytest.raises(ConfigError, match="wait_for"):
        outrider.ParallelCollector(
            outrider.Envs(Counter, 2), lambda: None, workers=2, backend=outrider.Processes(wait_for=1)
        )


def test_lanes_come_back_one_by_one_from_spawned_workers(tmp_path):
    with Gate(tmp_path / "gate") as gate:
        backend = outrider.Processes(1, "spawn", wait_for=1)
        with outrider.make_vec([partial(Gated, gate.path), Gated], backend=backend) as envs:
            envs.reset()
            envs.send(np.zeros(1, np.int64), [1])
            assert envs.recv().env_id.tolist() == [1]
            envs.send(np.zeros(2, np.int64))
            gate.open()
            assert envs.reset()[0].tolist() == [[0], [0]]
