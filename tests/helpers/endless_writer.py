"""Append to a dataset until killed, and print after each append: `python -m helpers.endless_writer FOLDER`."""

import itertools
import sys

import numpy as np

from outrider.dataset import Dataset
from outrider.records import Episode, StepSpec


def episode(number):
    """An episode that says which one it is; lengths differ."""
    length = number % 7 + 1
    flags = np.zeros(length, bool)
    return Episode(
        obs=np.full((length + 1, 500), number, np.int64) + np.arange(length + 1)[:, None],
        action=np.full(length, number),
        reward=np.full(length, float(number)),
        terminated=np.arange(length) == length - 1,
        truncated=flags,
        cut=flags,
        step=np.arange(length),
        version=np.zeros(length, np.int64),
        episode_id=number,
        env_id=0,
    )


def main(folder):
    with Dataset.open(folder, writable=True) as dataset:
        for number in itertools.count(dataset.num_episodes):
            dataset.append(episode(number))
            print(number, flush=True)  # noqa: T201 - the test waits for this


SPEC = StepSpec.of(episode(0))

if __name__ == "__main__":
    main(sys.argv[1])
