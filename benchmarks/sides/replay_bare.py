"""What no buffer can do without: replay_bare.py WHAT.

"sample" and "sample frames" are two bare `take`s, of observations and of those behind them, and nothing else. The
others return every column that a batch of ours has, of rows drawn uniformly, gathered from plain arrays by `take`;
columns that follow from others are computed. What they are spared:

- to look for ends of episodes: rows are laid out so that these follow from the index in the episode, and the starts
  that may be drawn are listed beforehand;
- true last observations: each episode has a row more for its own, so that what follows is always the next row;
- stacks at the start of an episode: none is drawn from there;
- blanks behind short sequences: there is a row of zeros to take;
- checks, locks, generations of rows, records to return.

The functions of goals are the same ones, called in the same way.

"extend" is one copy of as many bytes as a buffer stores of the rollout.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from replay_checks import check_sequences, check_transitions
from replay_workloads import (
    BATCH,
    GAMMA,
    LENGTH,
    SEQUENCES,
    SIZES,
    STACK,
    Size,
    calls,
    punished,
    reached,
    rollout_nbytes,
)
from rounds import serve

Columns = dict[str, Any]


class Plain:
    """Rows of all lanes, time first, in plain arrays: an episode has one more than steps, for its last observation.

    Attributes:
        period: rows of an episode in each lane.
        rows: all of them, behind which there is one of zeros.
        obs: dict of arrays [rows+1, ...]; where frames of stacks are stored once, [rows+1, 84, 84].
        columns: all others, [rows+1, ...].
    """

    def __init__(self, size: Size, share: float = 1.0, *, frames: bool = False) -> None:
        self.size, self.lanes, self.period = size, size.lanes, size.episode + 1
        self.rows = int(size.rows * share) // self.lanes * self.lanes
        mark = np.arange(self.rows)
        self.index = mark // self.lanes % self.period
        is_last = self.index == size.episode
        self.obs: Columns = {}
        for name, leaf in size.leaves.items():
            shape = leaf.shape[1:] if frames else leaf.shape
            self.obs[name] = np.zeros((self.rows + 1, *shape), leaf.dtype)
        for start in range(0, self.rows, 800):
            part = slice(start, min(start + 800, self.rows))
            found = size.observe(np.where(is_last, -mark, mark)[part], self.index[part])
            for name, rows in self.obs.items():
                leaf = found[name] if name else found
                rows[part] = leaf[:, -1] if frames else leaf
        flags = {name: np.zeros(self.rows, np.bool_) for name in ("terminated", "truncated", "cut")}
        flags["truncated"][self.index == size.episode - 1] = True
        columns = {
            "action": np.repeat(mark[:, None] % 1000, 6, -1).astype("f4"),
            "reward": (mark % 1000).astype("f8"),
            **flags,
            "episode_id": mark // self.lanes // self.period,
            "step": self.index.copy(),
            "version": np.zeros(self.rows, np.int64),
        }
        self.columns: Columns = {name: np.concatenate([one, np.zeros_like(one[:1])]) for name, one in columns.items()}
        self.rng = np.random.default_rng(0)

    def starts(self, steps: int, before: int = 0) -> np.ndarray:
        """The rows from which an episode has so many steps, and so many behind it: int64."""
        fit = (self.index >= before) & (self.index <= self.size.episode - steps)
        fit[max(0, self.rows - steps * self.lanes) :] = False
        return np.flatnonzero(fit)

    def draw(self, starts: np.ndarray, count: int) -> np.ndarray:
        """Draw from these rows."""
        return starts.take(self.rng.integers(0, len(starts), count))

    def take(self, rows: np.ndarray, *names: str) -> Columns:
        """These columns of these rows."""
        return {name: self.columns[name].take(rows, 0) for name in names}

    def observe(self, rows: np.ndarray) -> Columns:
        """Observations of these rows, int64 [...]."""
        return {name: leaf.take(rows, 0) for name, leaf in self.obs.items()}

    def transitions(self, rows: np.ndarray, steps: int = 1, older: np.ndarray | None = None) -> Columns:
        """Every column of transitions that begin in these rows; with stacks of the frames of `older` rows."""
        last, following = rows + (steps - 1) * self.lanes, rows + steps * self.lanes
        found = self.take(rows, "action", "episode_id", "step", "version") | self.take(last, "terminated", "truncated")
        if steps == 1:
            found |= self.take(rows, "reward")
        else:
            window = np.arange(steps)
            rewards = self.columns["reward"].take(rows[:, None] + window * self.lanes)
            found["reward"] = rewards @ GAMMA**window
        if older is not None:
            rows, following = rows[:, None] + older, following[:, None] + older
        count = len(last)
        return found | {
            "obs": self.observe(rows),
            "next_obs": self.observe(following),
            "discount": np.where(found["terminated"], 0.0, GAMMA**steps),
            "env_id": last % self.lanes,
            "index": last.copy(),
            "weight": np.ones(count),
        }

    def sequences(self, starts: np.ndarray, lengths: np.ndarray | None = None) -> Columns:
        """Every column of sequences that begin in these rows, of these lengths, or all of the same one."""
        offsets = np.arange(LENGTH + 1)[:, None]
        rows = starts + offsets * self.lanes
        steps = rows[:-1]
        mask = np.ones(steps.shape, np.bool_)
        if lengths is None:
            lengths = np.full(len(starts), LENGTH)
        else:
            np.less(offsets[:-1], lengths, out=mask)
            steps = np.where(mask, steps, self.rows)
            rows = np.where(offsets <= lengths, rows, self.rows)
        per_step = ("action", "reward", "terminated", "truncated", "cut", "step", "version")
        found = {"obs": self.observe(rows), **self.take(steps, *per_step), **self.take(starts, "episode_id")}
        return found | {
            "mask": mask,
            "is_first": mask & (found["step"] == 0),
            "lengths": lengths,
            "index": starts,
            "env_id": starts % self.lanes,
            "weight": np.ones(len(starts)),
        }

    def hindsight(self, starts: np.ndarray) -> Columns:
        """Transitions of which four of five have a goal that their episode achieves later."""
        batch = self.transitions(starts)
        chosen = np.flatnonzero(self.rng.integers(0, 5, BATCH) > 0)
        left = self.size.episode - 1 - batch["step"].take(chosen)
        at = starts.take(chosen) + (self.rng.integers(0, left, endpoint=True) + 1) * self.lanes
        goals = self.obs["achieved_goal"].take(at, 0)
        for obs in (batch["obs"], batch["next_obs"]):
            obs["desired_goal"][chosen] = goals
        achieved = batch["next_obs"]["achieved_goal"].take(chosen, 0)
        terminated = reached(achieved, goals, {})
        batch["reward"][chosen] = punished(achieved, goals, {})
        batch["terminated"][chosen] = terminated
        batch["discount"][chosen] = np.where(terminated, 0.0, GAMMA)
        return batch


def two_takes(size: Size, share: float = 1.0) -> Callable[[], Columns]:
    """Observations and those behind them, both held at once, as those of a batch are."""
    plain = Plain(size, share)
    starts = plain.starts(1)
    (obs,) = plain.obs.values()

    def gather() -> Columns:
        rows = plain.draw(starts, BATCH)
        return {"obs": {"": obs.take(rows, 0)}, "next_obs": {"": obs.take(rows + size.lanes, 0)}, "rows": rows}

    found = gather()
    checked(plain, found | plain.take(found["rows"], "action", "reward", "truncated"))
    return gather


def batches(what: str, size: Size) -> Callable[[], Columns]:
    """Whole batches."""
    plain = Plain(size, frames=what == "frame stack 4")
    older = np.arange(1 - STACK, 1) * size.lanes
    steps = 3 if what == "n-step 3" else LENGTH if what == "sequences" else 1
    starts = plain.starts(steps, STACK - 1 if what == "frame stack 4" else 0)
    left = size.episode - plain.index
    # Of the newest episodes only those are drawn from that are whole.
    whole = starts[starts // size.lanes // plain.period < plain.rows // size.lanes // plain.period]

    def padded() -> Columns:
        rows = plain.draw(whole, SEQUENCES)
        return plain.sequences(rows, np.minimum(left.take(rows), LENGTH))

    work: dict[str, Callable[[], Columns]] = {
        "n-step 3": lambda: plain.transitions(plain.draw(starts, BATCH), 3),
        "frame stack 4": lambda: plain.transitions(plain.draw(starts, BATCH), older=older),
        "sequences": lambda: plain.sequences(plain.draw(starts, SEQUENCES)),
        "padded sequences": padded,
        "dict": lambda: plain.transitions(plain.draw(starts, BATCH)),
        "hindsight": lambda: plain.hindsight(plain.draw(whole, BATCH)),
    }
    batch = work[what]()
    if "sequences" in what:
        check_sequences(size, batch | {"obs": batch["obs"][""]}, plain.period)
    else:
        checked(plain, batch, steps)
    return work[what]


def checked(plain: Plain, batch: Columns, steps: int = 1) -> None:
    """Verify a batch of transitions."""
    size = plain.size
    flat = {name: batch[name] if isinstance(size.obs, dict) else batch[name][""] for name in ("obs", "next_obs")}
    check_transitions(size, batch | flat | {"ended": batch["truncated"]}, steps, plain.period)


def copy(size: Size) -> Callable[[], None]:
    """Copy as many bytes as are stored of a rollout to where the next ones belong."""
    count = rollout_nbytes(size)
    row = count // (64 * size.lanes)
    room = np.zeros(size.rows * row // count * count + count, np.uint8)
    room[:] = 1
    block = np.ones(count, np.uint8)
    at = 0

    def write() -> None:
        nonlocal at
        room[at : at + count] = block
        at = (at + count) % len(room)

    return write


def work_of(what: str) -> Callable[[], Any]:
    """What is measured."""
    size = SIZES[what]
    if what.startswith("extend"):
        return copy(size)
    if what.startswith("sample"):
        return two_takes(size, 0.1 if "10 %" in what else 1.0)
    return batches(what, size)


if __name__ == "__main__":
    call, count = work_of(sys.argv[1]), calls(sys.argv[1])

    def several() -> int:
        """So many calls."""
        for _ in range(count):
            call()
        return count

    serve(several, clock=time.process_time)
