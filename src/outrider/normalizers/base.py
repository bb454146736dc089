"""What the normalisers of observations and of rewards have in common."""

from __future__ import annotations

import copy
import dataclasses
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from outrider.errors import ConfigError, SpecError, explain
from outrider.normalizers.moments import Moments
from outrider.records import Episodes, Rollout, Steps, arrays, describe
from outrider.records.arrays import Array
from outrider.tree import Tree

__all__ = ["Normalizer"]

Record = TypeVar("Record")

REALS = (int, float, np.integer, np.floating)

PARTS = ("count", "mean", "squares")
"""Of each leaf in a `state_dict`: "mean/obs" for example."""


class Normalizer(ABC):
    """Statistics by the path of a leaf, and what is computed from them.

    Moments never change but are replaced, all at once: a call that fails leaves everything as it was, and whoever reads
    in another thread sees those before or those after.
    """

    _columns: ClassVar[frozenset[str]]
    """The fields of records that are put on scale."""

    def __init__(self, clip: float, epsilon: float) -> None:
        where = type(self).__name__
        self.clip = _above_zero(f"{where}(clip)", clip, "pass 10.0, or math.inf for no bound")
        self.epsilon = _above_zero(f"{where}(epsilon)", epsilon, "pass a small number such as 1e-8")
        self._is_frozen = False
        self._put({})

    @property
    def moments(self) -> dict[str, Moments]:
        """Count, mean and variance of each leaf that is normalised, by its path; empty before the first update."""
        return dict(self._moments)

    @property
    def count(self) -> int:
        """How many steps have been counted."""
        return next((one.count for one in self._moments.values()), 0)

    def update(self, record: Rollout | Steps | Episodes) -> None:
        """Count the steps of what a collector returned, those that are valid, each once.

        Nothing else changes the statistics. Call it between the calls of a collector: all rows of a rollout are then
        decided by the same statistics, which are the same wherever environments run.

        Args:
            record: as it was collected, not normalised, of arrays or tensors.

        Raises:
            SpecError: it is something else, such as a sample of a replay buffer, which has steps that were counted
                before; or leaves differ from those before, or are not finite. Nothing has been counted then.
            ConfigError: this is a frozen copy.
        """
        self._check_thawed("update")
        if not isinstance(record, (Rollout, Steps, Episodes)):
            raise self._refuse(
                "update(record)",
                "a Rollout, Steps or Episodes",
                f"an object of type {type(record).__name__}",
                "pass what the collector returned, once; samples of a replay buffer repeat steps",
            )
        steps = record if isinstance(record, Steps) else record.flatten()
        valid = np.flatnonzero(arrays.to_numpy(steps.valid))
        if len(valid):
            self._count(steps, valid)

    @abstractmethod
    def _count(self, steps: Steps, valid: arrays.IntArray) -> None:
        """Count the rows `valid`, one or more."""

    def merge(self, other: Self) -> None:
        """Count what another normaliser has counted; in whatever order several are merged, but for rounding.

        The other one, which stays as it is, must have counted other steps. To gather from workers that go on counting,
        merge all of them into a new one each time.

        Raises:
            ConfigError: it is of another class or has other settings, or this is a frozen copy.
            SpecError: its leaves have other paths or shapes.
        """
        self._check_thawed("merge")
        if type(other) is not type(self) or other._settings() != self._settings():
            raise ConfigError(
                explain(
                    expected=f"another {self!r}",
                    found=repr(other),
                    where=f"{type(self).__name__}.merge(other)",
                    fix="make all of them with the same settings",
                )
            )
        if other._moments:
            self._put(self._joined(other._moments, "merge(other)"))

    def frozen(self) -> Self:
        """Return a copy with these statistics, which refuses to change."""
        twin = copy.copy(self)
        twin._is_frozen = True  # noqa: SLF001 - of this class
        return twin

    def state_dict(self) -> dict[str, np.ndarray[Any, Any]]:
        """All that was counted as arrays by name, which `numpy.savez` stores; their `tolist()` goes into JSON."""
        return {f"{part}/{path}": np.array(getattr(one, part)) for path, one in self._moments.items() for part in PARTS}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with what `state_dict` returned; settings are those of this object.

        Args:
            state: a mapping of names to arrays, or to the lists that JSON makes of them.

        Raises:
            SpecError: it is something else, or of other leaves than were counted here. Nothing has changed then.
            ConfigError: this is a frozen copy.
        """
        self._check_thawed("load_state_dict")
        if not isinstance(state, Mapping):
            raise self._refuse(
                "load_state_dict(state)",
                "a mapping of names to arrays",
                f"an object of type {type(state).__name__}",
                "pass what state_dict() returned",
            )
        self._restore(self._read(state))

    def _read(self, state: Mapping[str, Any]) -> Any:
        """What `_restore` takes, checked, so that nothing fails afterwards."""
        where = "load_state_dict(state)"
        fix = "pass what state_dict() of the same class returned"
        paths = [str(name).removeprefix("count/") for name in state if str(name).startswith("count/")]
        names = {f"{part}/{path}" for path in paths for part in PARTS}
        if names != set(state):
            raise self._refuse(where, f"the names {sorted(names)}", f"{sorted(map(str, state))}", fix)
        try:
            found = {path: _moments_of(state, path) for path in paths}
        except (TypeError, ValueError) as error:
            raise self._refuse(where, "numbers", str(error), fix) from error
        for path, one in found.items():
            if one.count < 1 or one.mean.shape != one.squares.shape or not one.is_finite or (one.squares < 0).any():
                raise self._refuse(where, "a count, a mean and squares", f"others for '{path}'", fix)
        if len({one.count for one in found.values()}) > 1:
            raise self._refuse(where, "one count for all leaves", f"{ {p: o.count for p, o in found.items()} }", fix)
        self._check_same(found, where)
        return found

    def _restore(self, read: Any) -> None:
        self._put(read)

    def __call__(self, record: Record) -> Record:
        """Return a record or batch with its columns on scale, of the same class, kind of array and dtypes.

        It takes rollouts, steps and episodes, and samples of replay buffers; what it is given stays as it is. Rows that
        samples are filled up with are no longer zero: go by their mask.

        Raises:
            SpecError: it has no such column, or leaves of other shapes or dtypes than were counted.
        """
        if not dataclasses.is_dataclass(record) or isinstance(record, type):
            fix = "pass a record; arrays go to normalize()"
            raise self._refuse("", "a record or a batch", f"an object of type {type(record).__name__}", fix)
        columns = describe.columns_of(record)
        changed = {name: self.normalize(column) for name, column in columns.items() if name in self._columns}
        changed |= {name: self(column) for name, column in columns.items() if dataclasses.is_dataclass(column)}
        if not changed:
            raise self._refuse("", f"one of {sorted(self._columns)}", f"a {type(record).__name__}", "pass a record")
        return type(record)(**(columns | changed))

    @abstractmethod
    def normalize(self, values: Tree) -> Tree:
        """Return values of that kind on scale, with any leading axes; copies where anything changes."""

    def _on_scale(self, leaf: Array, path: str, *, centre: bool) -> Array:
        """A leaf that has been counted, computed in double precision and returned in its own."""
        moments, deviation = self._moments[path], self._deviations[path]
        self._check_leaf(leaf, path, moments.mean.shape)
        if isinstance(leaf, np.ndarray):
            wide = np.subtract(leaf, moments.mean if centre else 0.0, dtype=np.float64)
        else:
            wide = leaf.double() - (arrays.like(leaf, moments.mean) if centre else 0.0)
        wide = wide / arrays.like(leaf, deviation)
        if self.clip < math.inf:
            wide = wide.clip(-self.clip, self.clip)
        return arrays.cast(wide, leaf.dtype)

    def _check_leaf(self, leaf: Array, path: str, shape: tuple[int, ...]) -> None:
        """Refuse a leaf of another shape than was counted, and one that is not of floats."""
        found = tuple(leaf.shape)
        tail = found[max(len(found) - len(shape), 0) :]
        if tail != shape or not _is_float(leaf):
            expected = f"floats [..., {', '.join(map(str, shape))}]" if shape else "floats"
            fix = "normalise what comes from the environments that were counted"
            raise self._refuse(f"'{path}'", expected, f"{leaf.dtype} {list(found)}", fix)

    def _joined(self, more: dict[str, Moments], where: str) -> dict[str, Moments]:
        """The moments of what was counted and of more.

        Raises:
            SpecError: other leaves, other shapes, or numbers that are not finite.
        """
        self._check_same(more, where)
        own = self._moments
        with np.errstate(over="ignore", invalid="ignore"):
            joined = {path: own[path].joined(one) for path, one in more.items()} if own else more
        for path, one in joined.items():
            if not one.is_finite:
                fix = "leave out what is not finite, which would stay in the statistics for ever"
                raise self._refuse(where, "finite numbers whose squares are finite", f"others in '{path}'", fix)
        return joined

    def _check_same(self, more: dict[str, Moments], where: str) -> None:
        """Refuse moments of other leaves than were counted."""
        shapes, found = ({path: one.mean.shape for path, one in each.items()} for each in (self._moments, more))
        if shapes and found and shapes != found:
            fix = "use one normaliser for each kind of environment"
            raise self._refuse(where, f"leaves as before, {shapes}", f"{found}", fix)

    def _put(self, moments: dict[str, Moments]) -> None:
        deviations = {path: np.sqrt(one.variance + self.epsilon) for path, one in moments.items()}
        self._deviations, self._moments = deviations, moments

    def _settings(self) -> tuple[float, ...]:
        return (self.clip, self.epsilon)

    def _check_thawed(self, name: str) -> None:
        if self._is_frozen:
            raise ConfigError(
                explain(
                    expected="statistics that may change",
                    found="a frozen copy",
                    where=f"{type(self).__name__}.{name}",
                    fix="call it on the normaliser that frozen() was called on",
                )
            )

    def _refuse(self, where: str, expected: str, found: str, fix: str) -> SpecError:
        place = f"{type(self).__name__}{'.' if where and where[0].isalpha() else ' '}{where}".rstrip()
        return SpecError(explain(expected=expected, found=found, where=place, fix=fix))


def _moments_of(state: Mapping[str, Any], path: str) -> Moments:
    mean, squares = (np.array(state[f"{part}/{path}"], np.float64) for part in ("mean", "squares"))
    return Moments(operator.index(np.asarray(state[f"count/{path}"]).item()), mean, squares)


def _is_float(leaf: Array) -> bool:
    return bool(leaf.dtype.kind == "f" if isinstance(leaf, np.ndarray) else leaf.is_floating_point())


def _above_zero(where: str, value: object, fix: str) -> float:
    if not isinstance(value, REALS) or isinstance(value, bool) or not value > 0:
        raise ConfigError(explain(expected="a number above 0", found=repr(value), where=where, fix=fix))
    return float(value)
