"""Observations with stacks of frames, which depend on what was before: beside those of `plain_rows.tree_of`."""

import numpy as np


class Stacks:
    """Makes the observations known by numbers, as soon as it has been told what came before each.

    They are goals of `Hindsight`, and two leaves with stacks: one of frames of 8 bytes, one of frames of 3 floats.

    Args:
        count: frames of each stack.
        rng: chooses what is in a stack before its first frame.
    """

    def __init__(self, count, rng):
        self.count, self.rng = count, rng
        # The numbers of the frames of each, oldest first; 0 is that of a black one.
        self.frames = {0: (0,) * count}

    def begin(self, number):
        """An episode begins with this one."""
        older = self.rng.choice([0, number, *self.rng.integers(1, number + 1, 3)], self.count - 1).tolist()
        self.frames[number] = (*older, number)

    def follow(self, before, number):
        """This one comes behind that one."""
        self.frames[number] = (*self.frames[before][1:], number)

    def apart(self):
        """Another one that knows nothing yet."""
        return Stacks(self.count, np.random.default_rng(0))

    def __call__(self, numbers):
        known = [self.frames[number] for number in numbers.reshape(-1).tolist()]
        frames = np.array(known, np.int64).reshape(*numbers.shape, self.count)
        pair = np.stack([numbers, -numbers], -1).astype(np.float32)
        eye = (frames[..., None, None] >> np.array([[0, 4, 8, 12]] * 2) & 255).astype(np.uint8)
        ear = np.repeat(frames[..., None, None], 3, -1).astype(np.float32)
        # NaN is the same as itself.
        ear[..., 1][frames % 5 == 0] = np.nan
        return {"eyes": (eye, ear), "achieved_goal": pair, "desired_goal": pair + np.float32(0.5)}
