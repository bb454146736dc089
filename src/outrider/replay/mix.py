"""Samples of several buffers in fixed fractions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

import numpy as np

from outrider import tree
from outrider.errors import ConfigError, OutriderError, SpecError, explain
from outrider.records.step_spec import StepSpec
from outrider.replay.locks import Lock, taken
from outrider.replay.prefetch import Batches, batches_of
from outrider.replay.prioritized import checked_priorities, checked_values
from outrider.replay.samplers import no_priorities
from outrider.replay.settings import whole_number
from outrider.replay.views import View
from outrider.spec import LeafSpec

__all__ = ["Mix", "Source"]

COLUMNS = ("obs", "action", "reward", "extras", "state", "info", "obs_info")


SERIAL_BITS, MOST_BITS = 48, 56
"""Bits of an index that are left to the serial numbers of buffers, and where the number of a source may stand at most.
Above them, so that an index that is given to a buffer by mistake is of no step there, but for the first one's own."""


class Source(Protocol):
    """What can be mixed: replay buffers, and mixes."""

    view: View

    @property
    def spec(self) -> StepSpec:
        """What a step looks like."""

    @property
    def clears(self) -> int:
        """How many times it was cleared."""

    @property
    def locks(self) -> Sequence[Lock]:
        """Whoever has all of these is alone with it."""

    def __len__(self) -> int: ...

    @property
    def has_priorities(self) -> bool:
        """Whether `update` is of any use."""

    def sample(self, count: int) -> Any:
        """Draw samples."""

    def undone_by_errors(self) -> AbstractContextManager[None]:
        """A block that other threads wait for; if it raises, it is as if it had drawn nothing."""

    def check_update(self, index: Any, priorities: Any) -> None:
        """Raise what `update` would; change nothing."""

    def update(self, index: Any, priorities: Any) -> int:
        """Give steps new priorities."""


class Mix:
    """Batches with rows of several buffers, for example of new experience and of a dataset.

    Over many calls each buffer gives its fraction exactly: what is rounded away in one batch is made up for in the next
    ones. With two buffers neither is ever further than half a sample from its fraction.

    A batch has the rows of the first buffer, then those of the second, and so on. In its `index` is also which buffer a
    row is of: `mix.source_of(batch.index)`. Weights are those of each buffer, over the maximum of its own rows.

    Attributes:
        shift: the bit of an index from which on the number of the buffer stands.

    Args:
        sources: the buffers, of the same columns and with equal views.
        fractions: of the samples, each above 0; their sum is 1.

    Raises:
        ConfigError: the fractions or sources are none, or the views differ.
        SpecError: columns differ; the message names the first one that does.

    Example:
        >>> from outrider.records import Rollout, StepSpec
        >>> from outrider.replay.buffer import ReplayBuffer
        >>> from outrider.spec import LeafSpec
        >>> spec = StepSpec(obs=LeafSpec((3,), np.dtype("f4")), action=LeafSpec((), np.dtype("i8")), num_envs=2)
        >>> replay, other = ReplayBuffer(100, spec), ReplayBuffer(100, spec)
        >>> added = replay.extend(Rollout.zeros(spec, 20)), other.extend(Rollout.zeros(spec, 20))
        >>> mix = Mix((replay, other), (0.75, 0.25))
        >>> batch = mix.sample(6)
        >>> batch.obs.shape, mix.source_of(batch.index), mix.source_of(mix.sample(6).index)
        ((6, 3), array([0, 0, 0, 0, 0, 1]), array([0, 0, 0, 0, 1, 1]))
    """

    def __init__(self, sources: Sequence[Source], fractions: Sequence[float]) -> None:
        self.sources = tuple(sources)
        for number, source in enumerate(self.sources):
            _require_source(source, number)
        self.fractions = _checked_fractions(fractions, len(self.sources))
        self.view = self.sources[0].view
        self._require_alike()
        self.shift = 8 + max(getattr(source, "shift", SERIAL_BITS - 8) for source in self.sources)
        if self.shift > MOST_BITS or len(self.sources) > 1 << 7:
            raise ConfigError(
                explain(
                    expected="at most 128 sources, which may be mixes of buffers, but not of mixes",
                    found=f"{len(self.sources)} sources",
                    where="Mix(sources)",
                    fix="mix the buffers themselves",
                )
            )
        # How many samples each has given.
        self._given = np.zeros(len(self.sources), np.int64)
        self._marks = np.arange(len(self.sources)) << self.shift

    def __len__(self) -> int:
        """How many steps all buffers hold."""
        return sum(len(source) for source in self.sources)

    def __repr__(self) -> str:
        parts = zip(self.fractions, self.sources, strict=True)
        return f"Mix({', '.join(f'{fraction:.4g} of {source!r}' for fraction, source in parts)})"

    @property
    def spec(self) -> StepSpec:
        """What a step looks like; the number of lanes is that of the first buffer."""
        return self.sources[0].spec

    @property
    def has_priorities(self) -> bool:
        """Whether one of the samplers has priorities."""
        return any(source.has_priorities for source in self.sources)

    def sample(self, count: int) -> Any:
        """Draw `count` samples: a batch as the view makes them, copies.

        Raises:
            ConfigError: `count` is less than 1.
            ReplayError: a buffer holds too little that could be drawn; says which one. It is as if nothing had been
                drawn from the others then.
        """
        count = whole_number(count, 1, "sample(count)")
        with self.undone_by_errors():
            shares = self._shares(count)
            batches = [self._draw(number, int(share)) for number, share in enumerate(shares) if share]
            self._given += shares
            batch = batches[0] if len(batches) == 1 else self._joined(batches)
            return dataclasses.replace(batch, index=batch.index | np.repeat(self._marks, shares))

    def _joined(self, batches: list[Any]) -> Any:
        try:
            return type(batches[0]).concatenate(batches)
        except (TypeError, ValueError):
            # Columns of infos may have become others since.
            self._require_alike()
            raise

    def _require_alike(self) -> None:
        """Verify that all sources have batches of the same structure.

        Raises:
            ConfigError: views differ.
            SpecError: columns do.
        """
        for number, source in enumerate(self.sources[1:], 1):
            _check_same(self.sources[0], source, number)

    def batches(self, size: int, *, prefetch: int = 2, device: Any = None) -> Batches:
        """An endless iterator over samples, assembled ahead in a thread; see `ReplayBuffer.batches`.

        What was assembled before one of the buffers was cleared is not returned.

        Raises:
            ConfigError: at once, if one of the numbers is none.
        """
        return batches_of(self, size, prefetch, device)

    def _shares(self, count: int) -> np.ndarray:
        """How many of the next `count` samples are of each source, int64 [sources]."""
        owed = self.fractions * (self._given.sum() + count) - self._given
        shares: np.ndarray = np.floor(self.fractions * count).astype(np.int64)
        for _ in range(count - int(shares.sum())):
            shares[np.argmax(owed - shares)] += 1
        return shares

    def _draw(self, number: int, count: int) -> Any:
        with _named(number):
            return self.sources[number].sample(count)

    def source_of(self, index: Any) -> Any:
        """The number of the buffer that each row is of, int64 [n], from the `index` of a batch, [n]."""
        return index >> self.shift

    def update(self, index: Any, priorities: Any) -> int:
        """Give steps new priorities, in the buffers that they are of; those of buffers without priorities are ignored.

        Args:
            index: int64 [n], from a batch of this mix; an array, or a tensor in the memory of the CPU.
            priorities: likewise, [n], finite and 0 or more.

        Returns:
            How many of the steps were not there any more; theirs are ignored as well.

        Raises:
            ConfigError: no buffer has priorities, or these are none; nothing is changed then.
        """
        with taken(self.locks):
            return sum(source.update(*part) for source, part in self._parts(index, priorities))

    def check_update(self, index: Any, priorities: Any) -> None:
        """Raise what `update` would; change nothing."""
        with taken(self.locks):
            self._parts(index, priorities)

    def _parts(self, index: Any, priorities: Any) -> list[tuple[Source, tuple[np.ndarray, np.ndarray]]]:
        """The sources with priorities that some of these steps are of, and what of this is theirs; all are looked at.

        Raises:
            ConfigError: no source has priorities, or one would not take what is its.
        """
        if not self.has_priorities:
            raise no_priorities("a Mix of buffers without")
        index, priorities = checked_priorities(index, priorities)
        checked_values(priorities)
        numbers = self.source_of(index)
        known = (numbers >= 0) & (numbers < len(self.sources))
        if not known.all():
            raise ConfigError(
                explain(
                    expected=f"the `index` of batches of this Mix, of the sources 0 to {len(self.sources) - 1}",
                    found=f"{index[~known][:5]}",
                    where="update(index, priorities)",
                    fix="pass `batch.index`",
                )
            )
        parts = []
        for number, source in enumerate(self.sources):
            rows = numbers == number
            if source.has_priorities and rows.any():
                part = index[rows] & ((1 << self.shift) - 1), priorities[rows]
                with _named(number):
                    source.check_update(*part)
                parts.append((source, part))
        return parts

    @property
    def clears(self) -> int:
        """How many times a buffer was cleared."""
        return sum(source.clears for source in self.sources)

    @property
    def locks(self) -> tuple[Lock, ...]:
        """Those of all buffers: whoever has them is alone with the mix."""
        return tuple({lock for source in self.sources for lock in source.locks})

    @contextmanager
    def undone_by_errors(self) -> Iterator[None]:
        """A block that other threads wait for; if it raises, it is as if it had drawn nothing."""
        with taken(self.locks), ExitStack() as stack:
            for source in self.sources:
                stack.enter_context(source.undone_by_errors())
            given = self._given.copy()
            try:
                yield
            except BaseException:
                self._given[:] = given
                raise

    def state(self) -> dict[str, Any]:
        """What the next batches depend on, besides the buffers: a copy."""
        with taken(self.locks):
            return {"given": self._given.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        with taken(self.locks):
            self._given[:] = state["given"]

    def check(self) -> None:
        """Verify what holds between any two calls.

        Raises:
            AssertionError: something does not.
        """
        with taken(self.locks):
            off = self.fractions * self._given.sum() - self._given
            assert (abs(off) < max(1, len(self.sources) - 1)).all(), "a source is too far from its fraction"


@contextmanager
def _named(number: int) -> Iterator[None]:
    """A block in which errors are those of a source."""
    try:
        yield
    except OutriderError as error:
        error.args = (f"source {number} of Mix: {error}", *error.args[1:])
        raise


def _require_source(source: object, number: int) -> None:
    """Refuse what cannot be mixed.

    Raises:
        ConfigError: it is neither a buffer nor a mix.
    """
    if isinstance(source, type) or not hasattr(source, "undone_by_errors"):
        raise ConfigError(
            explain(
                expected="an outrider.ReplayBuffer, or a Mix",
                found=f"{source!r:.60}",
                where=f"source {number} of Mix",
                fix="make a buffer, which takes a dataset by replay.extend(dataset.episodes())",
            )
        )


def _checked_fractions(fractions: Any, count: int) -> np.ndarray:
    """The fractions, float64 [count].

    Raises:
        ConfigError: they are none.
    """
    try:
        values = np.asarray(fractions, np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    bad = not count or values.shape != (count,) or not (values > 0).all() or not math.isclose(values.sum(), 1)
    if bad:
        raise ConfigError(
            explain(
                expected=f"a fraction above 0 for each of {count} buffers (1 or more), of the sum 1",
                found=repr(fractions),
                where="Mix(sources, fractions)",
                fix="pass for example Mix((replay, other), (0.5, 0.5))",
            )
        )
    scaled: np.ndarray = values / values.sum()
    return scaled


def _check_same(first: Source, other: Source, number: int) -> None:
    """Verify that two sources have batches of the same structure.

    Raises:
        ConfigError: their views differ.
        SpecError: their columns do.
    """
    where = f"source {number} of Mix"
    if first.view != other.view:
        fix = "make the buffers with equal views"
        raise ConfigError(
            explain(expected=f"the view of source 0, {first.view}", found=f"{other.view}", where=where, fix=fix)
        )
    for column in COLUMNS:
        expected, found = (dict(tree.items(getattr(source.spec, column), column)) for source in (first, other))
        for path in {**expected, **found}:
            if not _are_alike(column, expected.get(path), found.get(path)):
                raise SpecError(
                    explain(
                        expected=f"{expected.get(path, 'nothing')} as in source 0",
                        found=found.get(path, "nothing"),
                        where=f"{where} at '{path}'",
                        fix="make the buffers with the same columns; StepSpec says what they are",
                    )
                )


def _are_alike(column: str, one: LeafSpec | None, other: LeafSpec | None) -> bool:
    """Whether leaves can be joined: those of infos may have to be promoted."""
    if column not in ("info", "obs_info") or one is None or other is None:
        return one == other
    return one.shape == other.shape and (one.dtype.kind == "U") == (other.dtype.kind == "U")
