"""What Outrider's replay buffer of stacked frames takes: replay_memory_ours.py outrider SETTINGS ROWS."""

import gc
import json
import sys

from pss import pss
from replay_checks import check_stacks
from replay_ours import make, spec_of
from replay_workloads import Size, atari

import outrider

SETTINGS = {f"frame_stack={count}": outrider.Transitions(frame_stack=count) for count in (1, 4)}


def measure(view: outrider.Transitions, size: Size) -> dict[str, int]:
    """Fill a buffer, and read from it: bytes."""
    make(atari(800), view=view).sample(32)  # Whatever is compiled and kept is there now.
    gc.collect()
    before = pss()
    replay = make(size, view=view)
    check_stacks(size, replay.sample(32).obs)
    gc.collect()
    full = pss()
    for _ in range(1_000):
        replay.sample(32)
    estimate = outrider.estimate_nbytes(1_000_000, spec_of(size), view, episode_length=size.episode)
    return {"full": full - before, "grown": pss() - full, "estimate": estimate}


if __name__ == "__main__":
    print(json.dumps(measure(SETTINGS[sys.argv[2]], atari(int(sys.argv[3])))))
