"""What can be refused before anything is started or stored."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from outrider import tree
from outrider.cli.failures import Refusal
from outrider.dataset import Dataset
from outrider.dataset.space_json import space_from_json, space_to_json
from outrider.errors import ConfigError, DatasetError
from outrider.records import StepSpec
from outrider.spec import LeafSpec, RaggedSpec

__all__ = ["check_new_folder", "check_same_spec", "count_of", "open_for_appending", "workers_of"]

COLUMNS = ("obs", "action", "reward", "extras", "state", "info", "obs_info")
SPACES = ("environment", "observation space", "action space")


def count_of(steps: int | None, episodes: int | None) -> tuple[str, int]:
    """The unit, "steps" or "episodes", and how many.

    Raises:
        Refusal: not exactly one of them was given.
    """
    given = [(name, count) for name, count in (("steps", steps), ("episodes", episodes)) if count is not None]
    if len(given) != 1:
        found = "both" if given else "neither"
        msg = f"expected one of --steps N and --episodes N, found {found}"
        raise Refusal(msg)
    return given[0]


def workers_of(text: str, num_envs: int, *, environments_alone: bool = False) -> int:
    """The number of workers that run environments and policy; 0 means that the policy runs in this process.

    Args:
        text: what was asked for.
        num_envs: how many environments.
        environments_alone: whether they need workers that run no policy.

    Raises:
        Refusal: no number of 0 or more and not "auto", or more workers than environments, or than may be.
    """
    if environments_alone and text in ("0", "auto"):
        return 0
    if text == "auto":
        workers = min(len(os.sched_getaffinity(0)), num_envs)
        return 0 if workers == 1 else workers  # a single one would only add a process
    if not text.isdecimal():
        msg = f"--workers: expected a number of 0 or more, or auto, found {text!r}"
        raise Refusal(msg)
    workers = int(text)
    if environments_alone and workers:
        msg = (
            f"--workers {workers}: workers that run the policy can neither end a call (--step-timeout) nor go on after "
            "a failure (--on-failure); leave --workers out: the environments then run in workers of their own, one for "
            "each core, and the policy in this process"
        )
        raise Refusal(msg)
    if workers > num_envs:
        msg = (
            f"--workers: expected at most one worker for each of the {num_envs} environments, found {workers}; "
            "ask for fewer workers or more --envs"
        )
        raise Refusal(msg)
    return workers


def check_new_folder(out: Path) -> None:
    """Refuse a folder in which no dataset can be made.

    Raises:
        Refusal: something is there, or its parent cannot be written to.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        what = "a file" if out.is_file() else "a folder with something in it"
        msg = f"--out {out}: this is {what}; choose another path, or add to a dataset with --append"
        raise Refusal(msg)
    # The dataset is made beside its final name and then renamed: it is the parent that must be writable.
    parent = next(folder for folder in out.resolve().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        msg = f"--out {out}: {parent} is not a folder that you may write to; choose another path"
        raise Refusal(msg)


def open_for_appending(out: Path) -> Dataset:
    """Open a dataset; nobody else can append to it from now on.

    Raises:
        Refusal: there is none, or somebody else appends to it.
    """
    if not out.exists():
        msg = f"--append: there is no dataset at {out}; leave the option out to make one"
        raise Refusal(msg)
    try:
        return Dataset.open(out, writable=True)
    except DatasetError as error:
        msg = f"--append: {error}"
        raise Refusal(msg) from error


def check_same_spec(dataset: Dataset, found: StepSpec) -> None:
    """Refuse rows that a dataset is not made for. The number of lanes may differ.

    Raises:
        Refusal: names the first difference.
    """
    stored, new = _parts(dataset.spec), _parts(found)
    # A dataset made from Python need not know its spaces and the name of its environment.
    for part in [*stored, *(part for part in new if part not in stored)]:
        before, now = (parts.get(part, "nothing") for parts in (stored, new))
        if before != now and not (before == "nothing" and part in SPACES):
            msg = f"--append: {part}: expected {before} as in {dataset.path}, found {now}; choose another --out"
            raise Refusal(msg)


def _as_stored(space: Any) -> Any:
    """A space as a dataset describes it, which does not know the strings of other packages in detail."""
    if space is None:
        return None
    try:
        return space_from_json(space_to_json(space))
    except ConfigError:  # no dataset knows it, so that it is compared with nothing
        return space


def _parts(spec: StepSpec) -> dict[str, Any]:
    """What must be equal, by name."""
    observation, action = (_as_stored(space) for space in (spec.observation_space, spec.action_space))
    spaces = dict(zip(SPACES, (spec.env_name, observation, action), strict=True))
    leaves = {path: leaf for name in COLUMNS for path, leaf in tree.items(getattr(spec, name), name)}
    described = {path: _leaf(leaf) for path, leaf in leaves.items()}
    return {part: value for part, value in spaces.items() if value is not None} | described


def _leaf(leaf: LeafSpec) -> str:
    return leaf.kind if isinstance(leaf, RaggedSpec) else f"shape {leaf.shape}, dtype {leaf.dtype}"
