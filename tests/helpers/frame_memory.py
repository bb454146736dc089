"""A program that fills a replay buffer with stacked frames, samples, and prints what memory it took for that."""

import gc
import json
import sys
from pathlib import Path

import numpy as np

from outrider import ReplayBuffer, Rollout, StepSpec, Transitions
from outrider.spec import LeafSpec

LANES, STACK, SIDE = 4, 4, 84
SPEC = StepSpec(obs=LeafSpec((STACK, SIDE, SIDE), np.dtype("u1")), action=LeafSpec((), np.dtype("i8")), num_envs=LANES)


def memory():
    """Bytes that are of this process alone, whatever others do."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Pss_Anon:", "SwapPss:")))


def rollouts(count, length):
    """Episodes that go on over all rollouts but end every fifth one."""
    zeros = Rollout.zeros(SPEC, length)
    for number in range(count):
        frames = np.arange(number * length, (number + 1) * length + STACK, dtype=np.int64) + 1
        stacks = np.stack([frames[i : i + length + 1] for i in range(STACK)], -1).astype(np.uint8)
        obs = np.broadcast_to(stacks[:, None, :, None, None], (length + 1, LANES, STACK, SIDE, SIDE))
        truncated = np.zeros((length, LANES), bool)
        truncated[-1] = number % 5 == 4
        yield Rollout(
            obs=np.ascontiguousarray(obs),
            action=zeros.action,
            reward=zeros.reward,
            terminated=zeros.terminated,
            truncated=truncated,
            cut=zeros.cut,
            valid=np.ones((length, LANES), bool),
            episode_id=np.full((length, LANES), number // 5),
            step=np.tile(number % 5 * length + np.arange(length)[:, None], LANES),
            version=zeros.version,
            env_id=np.arange(LANES),
            final_index=np.flatnonzero(truncated.reshape(-1)),
            final_obs=np.ascontiguousarray(obs[-1]) if truncated.any() else zeros.final_obs,
        )


def filled(capacity, count):
    replay = ReplayBuffer(capacity, SPEC, view=Transitions(n_step=3, frame_stack=STACK), seed=0)
    for rollout in rollouts(count, 50):
        replay.extend(rollout)
    return replay


def main():
    filled(200, 6).sample(32)  # Whatever is compiled and kept is there now.
    before = memory()
    replay = filled(10_000, 110)
    full = memory()
    replay.sample(32)
    first = memory()
    for _ in range(1_000):
        replay.sample(32)
    found = {"full": full - before, "grown": memory() - first, "nbytes": replay.nbytes, "rows": len(replay)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
