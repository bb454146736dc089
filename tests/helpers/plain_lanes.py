"""What a collector must return, worked out without any of its code: one lane after the other, a dict for each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from outrider.seeding import lane_seed


@dataclass
class PlainLane:
    """One environment and where it stands."""

    env: object
    number: int
    seed: int | None
    policy: object
    obs: np.ndarray = None
    state: dict = None
    needs_reset: bool = True
    ordinal: int = 0
    step: int = 0
    lane_step: int = 0
    total: float = 0.0
    resets: int = 0
    ended: list = field(default_factory=list)

    def reset(self, options=None):
        self.obs = self.env.reset(seed=self.seed, options=options)[0].copy()
        self.seed, self.needs_reset, self.resets = None, False, self.resets + 1
        self.step, self.total = 0, 0.0
        self.state = None if self.policy.initial_state(1) is None else copied(self.policy.initial_state(1))

    def cut(self):
        """Stop what is running; return whether anything was."""
        running = self.step > 0
        self.ordinal += running
        self.step, self.total = 0, 0.0
        return running

    def take_step(self, version):
        """Step once and return the row; at an end the lane needs a reset."""
        context = SimpleNamespace(
            env_id=np.array([self.number]),
            is_first=np.array([self.step == 0]),
            step=np.array([self.step]),
            lane_step=np.array([self.lane_step]),
        )
        given = None if self.state is None else copied(self.state)
        output = self.policy.act(self.obs[None].copy(), given, context)
        obs, reward, terminated, truncated, _ = self.env.step(output["action"][0])
        row = {
            "obs": self.obs,
            "next_obs": obs.copy(),
            "action": output["action"][0],
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "cut": False,
            "episode_id": (self.ordinal << 32) + self.number,
            "step": self.step,
            "env_id": self.number,
            "version": version,
            "state": self.state,
            "next_state": output.get("state"),
            "extras": {k: v for k, v in output.items() if k not in ("action", "state")},
        }
        self.obs, self.state = row["next_obs"], output.get("state")
        self.step, self.lane_step, self.total = self.step + 1, self.lane_step + 1, self.total + reward
        if terminated or truncated:
            self.ended.append((self.total, self.step))
            self.ordinal, self.step, self.total, self.needs_reset = self.ordinal + 1, 0, 0.0, True
        return row


class PlainLanes:
    """Lanes in lockstep, and the rows that nobody has asked for yet."""

    def __init__(self, envs, policy, seed):
        self.lanes = [PlainLane(env, n, lane_seed(seed, n), policy) for n, env in enumerate(envs)]
        self.rows = []
        self.version = 0
        self.taken = 0
        self.cuts = 0

    def settle(self):
        for lane in self.lanes:
            if lane.needs_reset:
                lane.reset()

    def turn(self):
        self.settle()
        for lane in self.lanes:
            self.put(lane)
        self.settle()

    def put(self, lane):
        self.rows.append(lane.take_step(self.version))
        self.taken += 1

    def count(self, lane):
        return sum(row["env_id"] == lane for row in self.rows)

    def rollout(self, length):
        """Rows [length, lanes], time first."""
        while min(self.count(lane.number) for lane in self.lanes) < length:
            self.turn()
        columns = []
        for lane in self.lanes:
            mine = [row for row in self.rows if row["env_id"] == lane.number][:length]
            columns.append(mine)
        chosen = [column[t] for t in range(length) for column in columns]
        self.rows = [row for row in self.rows if not any(row is one for one in chosen)]
        return chosen

    def steps(self, count):
        while len(self.rows) < count:
            self.turn()
        chosen, self.rows = self.rows[:count], self.rows[count:]
        return chosen

    def cut(self):
        """Cut what runs; the last row of a lane says so if it is still here."""
        for lane in self.lanes:
            mine = [row for row in self.rows if row["env_id"] == lane.number]
            if lane.cut():
                self.cuts += 1
                for row in mine[-1:]:
                    row["cut"] = True

    def reset(self, seed=None, options=None):
        self.cut()
        for lane in self.lanes:
            if seed is not None:
                lane.seed = lane_seed(seed, lane.number)
            lane.reset(options)

    def episodes(self, count, per_env, decisions=None):
        """The episodes, each a list of rows, in the order of their starts.

        With only so many `decisions`, they may not come to an end: their rows stay, cut, and None is returned.
        """
        self.cut()
        starts = Starts(count, len(self.lanes), per_env)
        for lane in self.lanes:
            lane.needs_reset = True
        stepping, waiting = [lane for lane in self.lanes if starts.claim_first(lane.number)], []
        for lane in stepping:
            lane.reset()
        begun, arrivals = [], []
        while stepping or waiting:
            if stepping and decisions is not None:
                if not decisions:
                    return self.give_up(arrivals)
                decisions -= 1
            rows = [lane.take_step(self.version) for lane in stepping]
            self.taken += len(rows)
            arrivals += rows
            begun += [[row] for row in rows if row["step"] == 0]
            for row in rows:
                if row["step"]:
                    next(e for e in begun if e[0]["episode_id"] == row["episode_id"]).append(row)
            stepping, waiting = next_turn(stepping, waiting, starts)
        for lane in self.lanes:
            lane.needs_reset = True
        return begun

    def give_up(self, arrivals):
        self.rows += arrivals
        self.cut()
        for lane in self.lanes:
            lane.needs_reset = True


class Starts:
    """How many episodes may still begin: in each lane, or in all together."""

    def __init__(self, count, lanes, per_env):
        self.share = [count // lanes + (n < count % lanes) for n in range(lanes)]
        self.pot = count
        self.per_env = per_env

    def claim_first(self, number):
        return bool(self.share[number]) and self.claim(number)

    def claim(self, number):
        granted = self.share[number] > 0 if self.per_env else self.pot > 0
        self.share[number] -= granted
        self.pot -= granted
        return granted


def next_turn(stepping, waiting, starts):
    """The lanes that step in the next turn, and those that wait for their reset until then.

    Where not every lane could begin another episode, a lane that ends waits to be told, and is reset in the next turn.
    """
    told_before = starts.per_env or starts.pot >= len(stepping)
    for lane in waiting:
        lane.reset()
    going, later = [lane for lane in stepping if not lane.needs_reset] + waiting, []
    for lane in stepping:
        if lane.needs_reset and starts.claim(lane.number):
            if told_before:
                lane.reset()
            (going if told_before else later).append(lane)
    return sorted(going, key=lambda lane: lane.number), later


def copied(tree):
    return {key: value.copy() for key, value in tree.items()} if isinstance(tree, dict) else tree.copy()


def column(rows, name):
    """One column of rows, as a tree of arrays [rows, ...]."""
    if name in ("state", "next_state", "extras"):
        return _join([row[name] for row in rows])
    return np.stack([np.asarray(row[name]) for row in rows])


def _join(values):
    if values[0] is None:
        return None
    if isinstance(values[0], dict):
        return {key: _join([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(_join([value[i] for value in values]) for i in range(len(values[0])))
    return np.concatenate(values)
