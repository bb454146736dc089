"""The plain reference of the replay buffer: lanes as lists of small Python objects, and the records made of them."""

from dataclasses import dataclass, replace

import numpy as np

from helpers.plain_rows import state_of, tree_of
from outrider.records import Rollout, Steps, StepSpec

ENDS = ("run", "run", "run", "run", "terminated", "truncated", "both", "cut")
BLIND_ENDS = (*ENDS, "terminated blind", "truncated blind")
"""With ends whose last observation nobody knows."""


@dataclass(frozen=True)
class Step:
    """One step. Observations are known by numbers that no other has."""

    lane: int
    episode: int
    step: int
    obs: int
    next_obs: int
    end: str
    version: int
    has_state: bool = True

    @property
    def terminated(self):
        return self.end in ("terminated", "both", "terminated blind")

    @property
    def truncated(self):
        return self.end in ("truncated", "both", "truncated blind")

    @property
    def blind(self):
        return self.end.endswith("blind")

    @property
    def is_usable_end(self):
        """Whether nothing would have to be bootstrapped from what nobody knows."""
        return not self.blind or self.terminated

    @property
    def reward(self):
        return self.obs % 97 + 0.5


class Streams:
    """Lanes that run by themselves, and what a collector would return of them.

    A share `stateless` of what it returns has no recurrent states.
    """

    def __init__(self, lanes, rng, nesting="array", ends=ENDS, stateless=0.0):
        self.lanes, self.rng, self.nesting, self.ends, self.stateless = lanes, rng, nesting, ends, stateless
        self.number, self.episode = 0, 0
        self.now = {}
        for lane in range(lanes):
            self.reset(lane)

    def fresh(self):
        self.number += 1
        return self.number

    def reset(self, lane):
        """Begin an episode, as a user does who resets in the middle of one."""
        self.episode += 1
        self.now[lane] = (self.episode, 0, self.fresh())
        if callable(self.nesting):
            self.nesting.begin(self.number)

    def step(self, lane, version=0):
        episode, step, obs = self.now[lane]
        end = self.ends[self.rng.integers(len(self.ends))]
        found = Step(lane, episode, step, obs, self.fresh(), end, version)
        if callable(self.nesting):
            self.nesting.follow(obs, found.next_obs)
        if end == "run":
            self.now[lane] = (episode, step + 1, found.next_obs)
        else:
            self.reset(lane)
        return found

    def rollout(self, length, version=0):
        """A rollout of all lanes, and its steps in order of time and lane."""
        return self.block([self.step(lane, version) for _ in range(length) for lane in range(self.lanes)])

    def rollout_with_seams(self, length, places):
        """As `rollout`, but lanes are reset behind the steps at `places` (t, lane), and the rollout does not tell."""
        steps = []
        for t in range(length):
            for lane in range(self.lanes):
                steps.append(self.step(lane))
                if (t, lane) in places and steps[-1].end == "run":
                    self.reset(lane)
                    steps[-1] = replace(steps[-1], next_obs=self.now[lane][2])
        return self.block(steps)

    def block(self, steps):
        """The rollout of these steps, and the steps."""
        block = (len(steps) // self.lanes, self.lanes)
        newest = [self.now[lane][2] for lane in range(self.lanes)]
        final = [i for i, one in enumerate(steps) if one.end != "run"]
        last = np.array([steps[i].next_obs for i in final], np.int64)
        obs = np.array([one.obs for one in steps] + newest).reshape(block[0] + 1, self.lanes)
        has_state, steps = self.maybe_without_state(steps)
        columns = {name: column.reshape(block) for name, column in flat(steps).items()}
        return Rollout(
            obs=tree_of(obs, self.nesting),
            valid=np.ones(block, bool),
            env_id=np.arange(self.lanes),
            final_index=np.array(final, np.int64),
            final_obs=tree_of(last, self.nesting),
            state=state_of(obs) if has_state else None,
            final_state=state_of(last) if has_state else None,
            blind=blind_of(steps, block),
            **columns,
        ), steps

    def steps(self, lanes):
        """Steps of lanes in any order, each as often as it is named."""
        _, steps = self.maybe_without_state([self.step(lane) for lane in lanes])
        return self.record(steps), steps

    def maybe_without_state(self, steps):
        """Whether these steps have states, and the steps."""
        has_state = self.rng.random() >= self.stateless
        return has_state, [replace(one, has_state=has_state) for one in steps]

    def record(self, steps):
        """`Steps` of these, each with observations of its own."""
        count = len(steps)
        numbers = np.array([one.obs for one in steps] + [one.next_obs for one in steps], np.int64)
        has_state = steps[0].has_state
        return Steps(
            obs_rows=tree_of(numbers, self.nesting),
            obs_index=np.arange(count),
            next_index=np.arange(count, 2 * count),
            final_obs=tree_of(np.zeros(0, np.int64), self.nesting),
            state_rows=state_of(numbers) if has_state else None,
            final_state=state_of(np.zeros(0)) if has_state else None,
            blind=blind_of(steps, (count,)),
            valid=np.ones(count, bool),
            env_id=np.array([one.lane for one in steps]),
            **flat(steps),
        )

    def spec(self):
        """What the steps look like."""
        nesting = self.nesting.apart() if callable(self.nesting) else self.nesting
        twin = Streams(self.lanes, np.random.default_rng(0), nesting)
        return StepSpec.of(twin.rollout(1)[0])


def flat(steps):
    """Columns of steps that need no other."""
    return {
        "action": np.array([one.obs * 7 % 1009 for one in steps], np.int64),
        "reward": np.array([one.reward for one in steps]),
        "terminated": np.array([one.terminated for one in steps]),
        "truncated": np.array([one.truncated for one in steps]),
        "cut": np.array([one.end == "cut" for one in steps]),
        "episode_id": np.array([one.episode for one in steps], np.int64),
        "step": np.array([one.step for one in steps], np.int64),
        "version": np.array([one.version for one in steps], np.int64),
    }


def blind_of(steps, shape):
    """The column `blind`, or None where there is none."""
    blind = np.array([one.blind for one in steps]).reshape(shape)
    return blind if blind.any() else None


class Model:
    """What a buffer of this capacity holds."""

    def __init__(self, capacity, lanes):
        self.shares = [capacity // lanes + (lane < capacity % lanes) for lane in range(lanes)]
        self.lanes = [[] for _ in range(lanes)]
        # How many steps of each lane there have been: serial numbers.
        self.count = [0] * lanes
        self.joined = [True] * lanes

    def add(self, steps):
        for one in steps:
            lane = self.lanes[one.lane]
            last = lane[-1] if lane else None
            goes_on = last and last.end == "run" and last.episode == one.episode and last.step + 1 == one.step
            if last and last.end == "run" and not goes_on:
                lane[-1] = replace(last, end="cut")
            lane.append(one)
            self.count[one.lane] += 1
            del lane[: -self.shares[one.lane]]

    def clear(self):
        for lane in self.lanes:
            lane.clear()

    def serials(self):
        """Every step by its serial number."""
        width = len(self.lanes)
        return {
            (self.count[number] - len(lane) + at) * width + number: (number, at)
            for number, lane in enumerate(self.lanes)
            for at in range(len(lane))
        }

    def window(self, lane, at, n_step=None):
        """The steps from there on, up to `n_step`, to the end of their episode or to the newest one."""
        found = []
        for one in self.lanes[lane][at:][:n_step]:
            found.append(one)
            if one.end != "run":
                break
        return found

    def before(self, lane, at):
        """The steps of the same episode that are there before this one."""
        first = at
        while first and self.lanes[lane][first - 1].end == "run":
            first -= 1
        return self.lanes[lane][first:at]
