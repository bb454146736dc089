"""A `StepSpec` as JSON and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.dataset.space_json import space_from_json, space_to_json
from outrider.errors import DatasetError, SpecError, explain
from outrider.records import StepSpec
from outrider.records.step_spec import ONE_NUMBER
from outrider.spaces import observation_specs
from outrider.spec import LeafSpec, RaggedSpec
from outrider.tree import Tree

__all__ = ["spec_from_json", "spec_to_json"]

_TREES = ("obs", "action", "extras", "state", "info", "obs_info")
_SPACES = ("observation_space", "action_space")


def spec_to_json(spec: StepSpec) -> dict[str, Any]:
    """Describe a spec in values that JSON can hold.

    Raises:
        ConfigError: a space that has no description; see `space_to_json`.
        DatasetError: a leaf of objects or of a structured dtype, a key that is neither a string nor an integer.
    """
    described: dict[str, Any] = {name: _tree_to_json(getattr(spec, name), name) for name in _TREES}
    for name in _SPACES:
        space = getattr(spec, name)
        described[name] = None if space is None else space_to_json(space, name)
    reward = _tree_to_json(spec.reward, "reward")
    return {**described, "num_envs": spec.num_envs, "env_name": spec.env_name, "reward": reward}


def spec_from_json(described: dict[str, Any]) -> StepSpec:
    """Make the spec that `spec_to_json` described.

    Raises:
        SpecError: the description is incomplete or of something else.
    """
    try:
        trees = {name: _tree_from_json(described[name]) for name in _TREES}
        spaces: dict[str, Any] = {name: described[name] and space_from_json(described[name]) for name in _SPACES}
        if spaces["observation_space"] is not None:
            # The space also says what an empty value looks like.
            full = observation_specs(spaces["observation_space"])
            trees["obs"] = full if full == trees["obs"] else trees["obs"]
        # Datasets of before there were vector rewards do not say what theirs are.
        reward = _leaf_from_json(described["reward"]) if "reward" in described else ONE_NUMBER
        names = {"num_envs": int(described["num_envs"]), "env_name": described["env_name"]}
        return StepSpec(**trees, **spaces, **names, reward=reward)
    except (KeyError, TypeError, ValueError) as error:
        msg = f"no description of a StepSpec: {type(error).__name__}: {error}"
        raise SpecError(msg) from error


def _tree_to_json(specs: Tree, path: str) -> Any:
    """Dicts become lists of pairs, so that keys keep their order and integers stay integers."""
    if specs is None:
        return None
    if isinstance(specs, dict):
        for key in specs:
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise _refused(f"the key {key!r}", path, "keys that are strings or integers")
        return {"dict": [[key, _tree_to_json(child, f"{path}/{key}")] for key, child in specs.items()]}
    if isinstance(specs, tuple):
        return {"tuple": [_tree_to_json(child, f"{path}/{i}") for i, child in enumerate(specs)]}
    if isinstance(specs, RaggedSpec):
        return {"ragged": specs.kind}
    if specs.dtype.hasobject or specs.dtype.fields is not None:
        raise _refused(f"dtype {specs.dtype}", path, "numbers, bools, strings or times of one fixed size")
    return {"shape": list(specs.shape), "dtype": specs.dtype.str}


def _refused(found: str, path: str, expected: str) -> DatasetError:
    fix = "store it as a plain array, or leave the column out"
    return DatasetError(explain(expected=expected, found=found, where=f"spec of a dataset at '{path}'", fix=fix))


def _tree_from_json(described: Any) -> Tree:
    if described is None:
        return None
    if "dict" in described:
        return {key: _tree_from_json(child) for key, child in described["dict"]}
    if "tuple" in described:
        return tuple(_tree_from_json(child) for child in described["tuple"])
    if "ragged" in described:
        return RaggedSpec(described["ragged"])
    return _leaf_from_json(described)


def _leaf_from_json(described: dict[str, Any]) -> LeafSpec:
    return LeafSpec(tuple(described["shape"]), np.dtype(described["dtype"]))
