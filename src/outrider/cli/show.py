"""`outrider show`: what a dataset holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from outrider import tree
from outrider.cli.failures import Refusal
from outrider.cli.summary import show_table, summary_rows
from outrider.dataset import Dataset
from outrider.errors import DatasetError
from outrider.records import Episode, StepSpec
from outrider.records.describe import figures
from outrider.spec import LeafSpec, RaggedSpec

__all__ = ["run"]

COLUMNS = ("obs", "action", "reward", "extras", "state", "info", "obs_info")


def run(folder: Path, count: int) -> None:
    """Print summary, columns and metadata of a dataset, and its first `count` episodes.

    Raises:
        Refusal: there is no dataset.
        DatasetError: it is damaged.
    """
    if not (folder / "dataset.json").is_file():
        what = "no such folder" if not folder.exists() else "a file" if folder.is_file() else "no dataset"
        msg = f"{folder}: expected the folder of a dataset, found {what}"
        raise Refusal(msg)
    try:
        dataset = Dataset.open(folder)
    except DatasetError as error:
        raise Refusal(str(error)) from error
    with dataset:
        show_table(summary_rows(dataset.summary()), title=f"Dataset {folder}")
        show_table(_columns(dataset.spec), title="Columns of a step")
        show_table(_metadata(dataset), title="Metadata")
        _show_runs(dataset)
        _show_episodes(dataset, count)


def _columns(spec: StepSpec) -> list[tuple[str, str]]:
    leaves = [item for name in COLUMNS for item in tree.items(getattr(spec, name), name)]
    return [(path, _leaf(leaf)) for path, leaf in leaves]


def _leaf(leaf: LeafSpec) -> str:
    return leaf.kind if isinstance(leaf, RaggedSpec) else f"{leaf.dtype} {list(leaf.shape) or ''}"


def _metadata(dataset: Dataset) -> list[tuple[str, str]]:
    spec = dataset.spec
    spaces = {"observation space": spec.observation_space, "action space": spec.action_space}
    rows = [(name, _plain(value)) for name, value in dataset.metadata.items() if name != "runs"]
    return rows + [(name, str(space)) for name, space in spaces.items() if space is not None]


def _plain(value: Any) -> str:
    """A value of JSON as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    return value if isinstance(value, str) else json.dumps(value)


def _show_runs(dataset: Dataset) -> None:
    """Print a table of the runs that the dataset came from, if there was more than one."""
    runs = dataset.runs
    if len(runs) < 2:
        return
    rows = [("run", "steps", "seed", "policy", "outrider", "created")]
    for number, one in enumerate(runs):
        seed, policy = (_plain(one[name]) if name in one else "" for name in ("seed", "policy"))
        made = _plain(one["versions"]["outrider"]), _plain(one["created"])
        rows.append((str(number), f"{one['steps']:,}", seed, policy, *made))
    show_table(rows, title=f"{len(runs)} runs", right=3)


def _show_episodes(dataset: Dataset, count: int) -> None:
    """Print a table of the first `count` episodes."""
    episodes = dataset.episodes()
    shown = min(count, len(episodes))
    if not shown:
        return
    rows = [("episode", "lane", "steps", "return", "end")]
    for number, one in enumerate(episodes[:shown]):
        rows.append((str(number), str(one.env_id), f"{len(one):,}", figures(one.return_), _end(one)))
    show_table(rows, title=f"First {shown} of {len(episodes):,} episodes", right=4)


def _end(episode: Episode) -> str:
    for name in ("terminated", "truncated", "cut"):
        if getattr(episode, name)[-1]:
            return name
    return "open"
