"""A vector environment as others write them by hand: one batch, its own buffers, its own kind of array."""

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

LAYOUTS = ("final_obs", "final_observation", "terminal_observation", "batch", "nothing")


class ForeignArray:
    """What NumPy can only read, as an array of JAX: it has a shape and a dtype, and nothing can be done with it."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __array__(self, dtype=None, copy=None):
        return self._array if dtype is None else self._array.astype(dtype)


class CounterBatch(VectorEnv):
    """Counts the steps of each lane, which ends after `lengths[lane]` steps; the reward is the count, truncated or not.

    It is reset as a whole and takes one seed, but for the mode DISABLED, which has masks. Everything that it returns
    stands in buffers that the next call writes to. `layout` says where the last observations are in same-step mode.
    """

    def __init__(self, lengths=(3, 3), mode=AutoresetMode.NEXT_STEP, layout="final_obs", *, truncate=False, wrap=None):
        self.num_envs = len(lengths)
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = spaces.Dict(
            {"count": spaces.Box(0.0, np.inf, (1,), np.float32), "seed": spaces.Discrete(1000)}
        )
        self.single_action_space = spaces.Discrete(3, start=1)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.lengths = np.array(lengths)
        self.mode, self.layout, self.truncate = mode, layout, truncate
        self.wrap = wrap or (lambda array: array)
        self.count = np.zeros((self.num_envs, 1), np.float32)
        self.seeds = np.zeros(self.num_envs, np.int32)
        self.over = np.zeros(self.num_envs, bool)
        self.rewards = np.zeros(self.num_envs, np.float32)
        self.calls = []
        self.closings = 0

    def observations(self):
        return {"count": self.wrap(self.count), "seed": self.wrap(self.seeds)}

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if self.mode != AutoresetMode.DISABLED and not mask.all():
            raise AssertionError("a mask for a source that knows none")
        if seed is not None and not isinstance(seed, int):
            raise AssertionError(f"one seed, not {seed!r}")
        self.calls.append(("reset", seed, options, mask.tolist()))
        self.count[mask] = 0
        self.over[mask] = False
        if seed is not None:
            self.seeds[mask] = seed % 1000
        return self.observations(), {"began": self.wrap(mask.copy())}

    def step(self, actions):
        if not self.action_space.contains(actions):
            raise AssertionError(f"{actions!r} is no member of {self.action_space}")
        self.calls.append(("step", actions.tolist()))
        resetting = self.over.copy()
        if self.mode == AutoresetMode.DISABLED and resetting.any():
            raise AssertionError("stepped at an end")
        self.count += 1
        self.count[resetting] = 0
        self.rewards[:] = self.count[:, 0]
        ended = (self.count[:, 0] >= self.lengths) & ~resetting
        infos = {"twice": self.wrap(2 * self.count[:, 0])}
        if self.mode == AutoresetMode.SAME_STEP:
            infos = self.finals(ended, infos)
            self.count[ended] = 0
        else:
            self.over[:] = ended
        terminated, truncated = ended & (not self.truncate), ended & self.truncate
        return self.observations(), self.wrap(self.rewards), self.wrap(terminated), self.wrap(truncated), infos

    def finals(self, ended, infos):
        lanes = range(self.num_envs)
        last = [{"count": self.count[lane].copy(), "seed": self.seeds[lane]} for lane in lanes]
        if self.layout == "terminal_observation":
            plain = [{"twice": 2 * self.count[lane, 0]} for lane in lanes]
            return [
                info | ({"terminal_observation": last[lane]} if ended[lane] else {}) for lane, info in enumerate(plain)
            ]
        if self.layout == "batch":
            whole = {"count": self.wrap(self.count.copy()), "seed": self.wrap(self.seeds.copy())}
            return infos | {"final_obs": whole, "_final_obs": self.wrap(ended)}
        if self.layout == "nothing" or not ended.any():
            return infos
        found = np.full(self.num_envs, None, object)
        for lane in np.flatnonzero(ended):
            found[lane] = last[lane]
        return infos | {self.layout: found, f"_{self.layout}": ended.copy()}

    def close_extras(self, **kwargs):
        self.closings += 1
