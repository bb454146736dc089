"""What a policy returned becomes NumPy arrays of a structure, shape and dtype that are fixed at the first call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from outrider import tree
from outrider.errors import PolicyError, explain
from outrider.policies.action_check import check_action
from outrider.policies.base import ActionConvention
from outrider.records import Rollout, Steps
from outrider.spec import LeafSpec, specs_of
from outrider.tree import Tree

if TYPE_CHECKING:
    import gymnasium as gym
    from numpy.typing import NDArray

__all__ = ["OutputSchema", "as_arrays", "check_action", "to_array"]

Array: TypeAlias = "NDArray[Any]"


def as_arrays(batch: Tree, n: int, where: str) -> Tree:
    """Return a tree of NumPy arrays [n, ...] of what a policy returned.

    Leaves may be NumPy arrays, lists of n values (numbers, or arrays of equal shape), torch tensors of any device, and
    whatever else `numpy.asarray` takes. The arrays share memory with their source where that is possible.

    Raises:
        PolicyError: a leaf is not numeric, cannot become an array, or has not n rows; named by its path below `where`.

    Example:
        >>> as_arrays({"a": [1.0, 2.0]}, 2, "state")
        {'a': array([1., 2.])}
    """
    arrays = [_check_rows(to_array(leaf, path), n, path) for path, leaf in tree.items(batch, where)]
    return tree.unflatten(batch, arrays)


@final
class OutputSchema:
    """The structure, shapes and dtypes of a policy's output, fixed at its first call and checked at every later one.

    Attributes:
        specs: {"action": tree, "extras": {name: tree}, "state": tree or None} of `LeafSpec`; its leaves are in the
            order in which `leaves` returns arrays.
        paths: the path of each leaf, in that order: "action", "extras/value", "state/0", ...

    Example:
        >>> from gymnasium.spaces import Discrete
        >>> first = {"action": np.zeros(2, np.int64), "value": np.zeros(2, np.float32)}
        >>> schema = OutputSchema.of(first, 2, Discrete(3))
        >>> schema.paths
        ['action', 'extras/value']
        >>> schema.leaves({"value": np.ones(1, np.float32), "action": [2]}, 1)
        [array([2]), array([1.], dtype=float32)]
    """

    def __init__(self, specs: dict[str, Tree]) -> None:
        self.specs = specs
        self.paths = tree.paths(specs)
        self._layout = {"action": specs["action"], **specs["extras"]}
        if specs["state"] is not None:
            self._layout["state"] = specs["state"]
        self._leaf_specs: list[LeafSpec] = tree.leaves(self._layout)
        self._first_state = len(self._leaf_specs) - len(tree.leaves(specs["state"]))
        self._is_flat = all(type(child) is LeafSpec for child in self._layout.values())
        self._expected: list[tuple[np.dtype[Any], tuple[int, ...]]] = []
        self._flat: list[tuple[str, tuple[np.dtype[Any], tuple[int, ...]]]] = []
        self._rows = -1

    @classmethod
    def of(
        cls,
        output: dict[str, Tree],
        n: int,
        action_space: gym.Space[Any] | None = None,
        *,
        state: Tree = None,
        convention: ActionConvention = "env",
    ) -> OutputSchema:
        """The schema of a first output of n rows.

        Args:
            output: what `Policy.act` returned.
            n: the count of rows.
            action_space: the space of one environment, which the actions are checked against; None: not checked.
            state: `as_arrays` of what the policy's `initial_state(n)` returned; None for a stateless policy.
            convention: the policy's `actions`.

        Raises:
            PolicyError: the output is no dict with an action, an extra is called like a column of records, a leaf is no
                array of n rows, the actions do not fit the space, or the state is not of the structure, shape and dtype
                of the initial one.
        """
        _check_keys(output, state)
        action = as_arrays(output["action"], n, "action")
        if action_space is not None:
            check_action(action_space, action, n, convention)
        extras = {k: as_arrays(v, n, f"extras/{k}") for k, v in output.items() if k not in ("action", "state")}
        specs = {"action": specs_of(action), "extras": specs_of(extras), "state": specs_of(state)}
        schema = cls(specs)
        schema.leaves(output, n)
        return schema

    def leaves(self, output: dict[str, Tree], n: int) -> list[Array]:
        """Return the leaves of an output of n rows as NumPy arrays, in the order of `specs`.

        The arrays may share memory with what the policy returned: copy them before the policy is called again.

        Raises:
            PolicyError: a key is missing or unknown, or a leaf has another shape, dtype or count of rows than at the
                first call; named by its path.
        """
        if n != self._rows:
            self._expected = [(spec.dtype, (n, *spec.shape)) for spec in self._leaf_specs]
            self._flat = list(zip(self._layout, self._expected, strict=True)) if self._is_flat else []
            self._rows = n
        found: list[Any] = []
        # The usual case; whatever is otherwise is left to the walk below, which finds, converts and names it.
        if type(output) is dict and len(output) == len(self._flat):
            for key, (dtype, shape) in self._flat:
                leaf = output.get(key)
                # Identity is enough here: NumPy's native dtypes are singletons.
                if type(leaf) is not np.ndarray or leaf.dtype is not dtype or leaf.shape != shape:
                    break
                found.append(leaf)
            else:
                return found
            found = []
        _gather(self._layout, output, "", found)
        for index, (dtype, shape) in enumerate(self._expected):
            leaf = found[index]
            if type(leaf) is not np.ndarray:
                found[index] = leaf = self._to_array(leaf, index)
            if leaf.shape != shape or leaf.dtype != dtype:
                found[index] = self._settle(leaf, index)
        return found

    def _to_array(self, leaf: Any, index: int) -> Array:
        """Make one leaf an array."""
        array = to_array(leaf, self.paths[index])
        dtype = self._expected[index][0]
        if isinstance(leaf, list) and np.can_cast(array.dtype, dtype, "safe"):
            return array.astype(dtype)  # Python numbers have no dtype of their own: 1 among floats is a float
        return array

    def _settle(self, array: Array, index: int) -> Array:
        """Turn foreign byte order into native; say how anything else differs from the first call."""
        dtype, shape = self._expected[index]
        _check_rows(array, shape[0], self.paths[index])
        if array.shape == shape and array.dtype.newbyteorder("=") == dtype:
            return array.astype(dtype)
        before = "as initial_state() gives it" if index >= self._first_state else "as at the first call"
        raise PolicyError(
            explain(
                expected=f"shape {shape}, dtype {dtype}, {before}",
                found=f"shape {array.shape}, dtype {array.dtype}",
                where=f"policy output at '{self.paths[index]}'",
                fix="return the same shape and dtype at every call",
            )
        )


def _gather(layout: Tree, value: Tree, path: str, found: list[Any]) -> None:
    """Append the leaves of `value` in the order of `layout`, refusing another structure."""
    if type(layout) is LeafSpec:
        found.append(value)
    elif isinstance(layout, dict):
        if not isinstance(value, dict) or layout.keys() != value.keys():
            raise _differs(layout, value, path)
        for key, child in layout.items():
            _gather(child, value[key], f"{path}/{key}" if path else str(key), found)
    elif isinstance(layout, tuple):
        if not isinstance(value, tuple) or len(layout) != len(value):
            raise _differs(layout, value, path)
        for index, child in enumerate(layout):
            _gather(child, value[index], f"{path}/{index}", found)
    elif value is not None:
        raise _differs(layout, value, path)


def _differs(layout: Tree, value: Tree, path: str) -> PolicyError:
    fix = "return the same structure at every call; an extra is computed for every row, or never"
    where = f"policy output at '{path or '/'}'"
    return PolicyError(explain(expected=_kind(layout), found=_kind(value), where=where, fix=fix))


def _kind(value: Tree) -> str:
    if isinstance(value, dict):
        return f"a dict with keys {sorted(value, key=str)}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return "nothing (None)" if value is None else f"an object of type {type(value).__name__}"


def _check_keys(output: Any, state: Tree) -> None:
    """Refuse a first output without action, with an extra called like a column, or a state that is not wanted."""
    if not isinstance(output, dict) or "action" not in output:
        expected, found = 'a dict with the key "action"', _kind(output)
        fix = 'return {"action": actions} from act(), with extras as further keys'
    elif state is None and "state" in output:
        expected, found = 'no key "state": initial_state(n) returned None', f"keys {sorted(output, key=str)}"
        fix = "derive from outrider.Policy and define initial_state(n), or give the extra another name"
    elif state is not None and "state" not in output:
        expected, found = 'the key "state": initial_state(n) returned one', f"keys {sorted(output, key=str)}"
        fix = "return the new state from act()"
    elif taken := [key for key in output if key not in ("action", "state") and _is_taken(key)]:
        expected, found = "extras with names of their own", f"{taken[0]!r}, which records have themselves"
        fix = f"give the extra another name, e.g. 'policy_{taken[0]}'"
    else:
        return
    raise PolicyError(explain(expected=expected, found=found, where="policy output", fix=fix))


def _is_taken(name: object) -> bool:
    """Whether records have something of that name, so that an extra could be taken for it."""
    return isinstance(name, str) and any(hasattr(kind, name) for kind in (Rollout, Steps))


def _check_rows(array: Array, n: int, path: str) -> Array:
    """Return the array in native byte order; refuse one that is not numeric or has not n rows."""
    if array.dtype.kind not in "biufc":
        raise _bad_leaf("an array of numbers", f"dtype {array.dtype}", path)
    if array.ndim == 0 or len(array) != n:
        raise _bad_leaf(f"{n} rows, one for each environment of the batch", f"shape {array.shape}", path)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def to_array(leaf: Any, path: str) -> Array:
    """Return one leaf as a NumPy array, sharing memory where possible; its rows are not looked at.

    Raises:
        PolicyError: it is a tree, or cannot become an array; the message names `path`.
    """
    try:
        if hasattr(leaf, "detach"):  # a torch tensor; torch itself is not imported here
            array: Array = leaf.numpy(force=True)
        elif leaf is None or isinstance(leaf, (dict, tuple)):
            raise _bad_leaf("one array", _kind(leaf), path)
        else:
            array = np.asarray(leaf)
    except PolicyError:  # a ValueError, too
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise _bad_leaf("something that converts to a NumPy array", f"{_kind(leaf)} ({error})", path) from error
    return array


def _bad_leaf(expected: str, found: str, path: str) -> PolicyError:
    where = f"policy output at '{path}'"
    return PolicyError(explain(expected=expected, found=found, where=where, fix="return one such array for each leaf"))
