"""The replay buffer: a ring of rows, a view of them, a sampler, put together."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from outrider.dataset.spec_json import spec_from_json
from outrider.records.episode import Episode
from outrider.records.rollout import Rollout
from outrider.records.step_spec import StepSpec
from outrider.records.steps import Steps
from outrider.replay.adding import Adder
from outrider.replay.archive import Reader, packed, write
from outrider.replay.archive import Writer as FileWriter
from outrider.replay.described import describe, revive
from outrider.replay.incoming import Writer
from outrider.replay.locks import Lock, new_lock
from outrider.replay.names import Names
from outrider.replay.parts import require_spec, started
from outrider.replay.prefetch import Batches, batches_of
from outrider.replay.ring import Ring
from outrider.replay.samplers import Draws, Sampler, Uniform
from outrider.replay.saving import describe_spec, restore_ring, write_rows
from outrider.replay.settings import whole_number
from outrider.replay.sizes import require_room
from outrider.replay.storage import Memory, Storage, storage_of
from outrider.replay.transitions import Transitions
from outrider.replay.views import Look, View, drawn
from outrider.seeding import resolve_seed
from outrider.tree import Tree

__all__ = ["ReplayBuffer"]


class ReplayBuffer:
    """The newest steps of every lane, each observation stored once, and samples of them.

    Several threads may add, sample and update at the same time: each call sees whole rows. A process that is forked
    meanwhile gets a whole copy of its own, which draws the same samples; so does one that is sent a pickle.

    Attributes:
        view: what a sample looks like.
        sampler: which steps are drawn.
        clears: how many times `clear` was called.

    Args:
        capacity: steps that it holds at most, over all lanes, each of which has an equal share.
        spec: what a step looks like; `collector.spec`, or `StepSpec.of(record)`.
        view: what a sample looks like.
        sampler: which steps are drawn.
        storage: "memory", or `Memmap(path)`.
        seed: of its own generator; None draws a fresh one.

    Raises:
        ConfigError: less than one step for each lane, more memory than the machine has, a view that is not for such
            steps, or an argument that is none of those above.

    Example:
        >>> import outrider
        >>> with outrider.make_vec("CartPole-v1", 4) as envs:
        ...     collector = outrider.Collector(envs, outrider.RandomPolicy(envs.single_action_space), seed=0)
        ...     replay = ReplayBuffer(10_000, collector.spec, view=Transitions(n_step=3), seed=0)
        ...     added = replay.extend(collector.rollout(100))
        ...     batch = replay.sample(32)
        >>> added, batch.obs.shape, batch.next_obs.shape
        (400, (32, 4), (32, 4))
    """

    def __init__(
        self,
        capacity: int,
        spec: StepSpec,
        *,
        view: View | None = None,
        sampler: Sampler | None = None,
        storage: Storage | str = "memory",
        seed: int | None = None,
    ) -> None:
        self.view = Transitions() if view is None else view
        self.sampler = Uniform() if sampler is None else sampler
        place = storage_of(storage)
        require_spec(spec)
        self._ring = Ring(spec, capacity, place)
        self._look: Look = started(self.view, self._ring, "gather", "view", "a view such as outrider.Transitions()")
        if isinstance(place, Memory):
            require_room(self._ring.nbytes_with(0))
        self._ring.allocate()
        self._names = Names(self._ring)
        self._writer, self._adder = Writer(self._ring, self._names), Adder(self._ring, self._names)
        self._draws: Draws = started(
            self.sampler, self._ring, "draw", "sampler", "a sampler such as outrider.Uniform()"
        )
        # The ring knows those who listen to it, and they know the ring: nobody should have to wait for a collection of
        # garbage to get the memory back.
        weakref.finalize(self, self._ring.listeners.clear).atexit = False
        self._rng = np.random.default_rng(resolve_seed(seed))
        self._lock = new_lock()
        self.clears = 0

    @property
    def spec(self) -> StepSpec:
        """What a step looks like; infos, as they are known by now."""
        return self._ring.spec

    def __len__(self) -> int:
        """How many steps it holds."""
        return len(self._ring)

    @property
    def capacity(self) -> int:
        """How many steps it holds at most."""
        return self._ring.capacity

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays, whether rows have been written yet or not."""
        return self._ring.nbytes + self._draws.nbytes

    @property
    def has_priorities(self) -> bool:
        """Whether the sampler has priorities, which `update` changes."""
        return self._draws.has_priorities

    @property
    def stale_updates(self) -> int:
        """How many priorities came for steps that were not there any more, in all calls of `update`."""
        return self._draws.stale_updates

    def extend(self, record: Rollout | Steps | Episode | Sequence[Episode]) -> int:
        """Add all steps of a record, copied; return how many.

        Steps of a lane that do not continue what came before them cut the episode there, also within a record.
        Rows that are not valid are left out, and so are infos that the spec has not. Those that it has take the dtype
        and the shape of their first values, and are promoted without loss from then on, as in rollouts.

        The first steps of each `env_id` give it a lane: that of its own number, if there is one and it is free.

        Args:
            record: what a collector or a dataset has. A sequence of episodes that is not `Episodes`, such as
                `dataset.episodes()`, is read and added piece by piece.

        Raises:
            SpecError: its columns are not those of the spec, or contradict each other; nothing is added then.
            ConfigError: it is no record, or has steps of more lanes than the spec; nothing is added then.
        """
        with self._lock:
            self._ring.mend()
            return self._writer.extend(record)

    def add(
        self,
        *,
        obs: Tree,
        action: Tree,
        reward: Any,
        next_obs: Tree,
        terminated: Any,
        truncated: Any,
        env_id: Any = None,
        **columns: Any,
    ) -> int:
        """Add one step of each lane, copied; return how many. For loops of your own.

        Columns are arrays, or lists of numbers that fit.

        The buffer numbers episodes and steps itself. Where `obs` of a lane that runs is not what its last step led to,
        somebody has reset it in between: the episode is cut there.

        Args:
            obs: tree [n, ...], the observations acted upon.
            action: tree [n, ...].
            reward: [n], or [n, k] where rewards are vectors.
            next_obs: tree [n, ...], the true observations behind the step: where an episode ended, its last one.
            terminated: bool [n].
            truncated: bool [n].
            env_id: distinct numbers of 0 or more, int [n]; by default there is a row for every lane, in order. They get
                lanes as those in `extend` do.
            columns: "version" (int, or int [n]), "info" and "obs_info" (dicts), "state" (tree [n, ...], that fed to the
                step, for `Sequences`; zeros if it is left out), and the extras of the spec by name.

        Raises:
            SpecError: a column is not as the spec says; nothing is added then.
            ConfigError: `env_id` names a lane twice, or there are not so many.

        Example:
            >>> from outrider import LeafSpec
            >>> replay = ReplayBuffer(100, StepSpec(obs=LeafSpec((3,), "f4"), action=LeafSpec((), "i8"), num_envs=2))
            >>> obs, flags = np.zeros((2, 3), np.float32), np.zeros(2, bool)
            >>> action, reward = np.zeros(2, int), np.ones(2)
            >>> replay.add(obs=obs, action=action, reward=reward, next_obs=obs, terminated=flags, truncated=flags)
            2
        """
        version, state = columns.pop("version", 0), columns.pop("state", None)
        given = {
            "obs": obs,
            "next_obs": next_obs,
            "terminated": terminated,
            "truncated": truncated,
            "action": action,
            "extras": columns,
            "info": columns.pop("info", {}),
            "obs_info": columns.pop("obs_info", {}),
            "reward": reward,
        }
        with self._lock:
            self._ring.mend()
            return self._adder.add(given, version, state, env_id)

    def sample(self, count: int) -> Any:
        """Draw `count` samples: what the view says, copies.

        Raises:
            ConfigError: `count` is less than 1.
            ReplayError: it holds too little that could be drawn.
        """
        count = whole_number(count, 1, "sample(count)")
        with self._lock:
            self._ring.mend()
            serials, weights = drawn(self._draws, self._look, self._ring, count, self._rng)
            return self._look.gather(serials, weights, self._rng)

    def update(self, index: Any, priorities: Any) -> int:
        """Give steps new priorities.

        Args:
            index: int64 [n], from a batch; an array, or a tensor in the memory of the CPU.
            priorities: likewise, [n], finite and 0 or more.

        Returns:
            How many of the steps were not there any more; theirs are ignored.

        Raises:
            ConfigError: the sampler has no priorities, or these are none; nothing is changed then.
        """
        with self._lock:
            self._ring.mend()
            return self._draws.update(index, priorities)

    def check_update(self, index: Any, priorities: Any) -> None:
        """Raise what `update` would; change nothing."""
        with self._lock:
            self._draws.check_update(index, priorities)

    @property
    def locks(self) -> tuple[Lock, ...]:
        """What a thread takes to be alone with the buffer, for several calls: `with replay.locks[0]:`."""
        return (self._lock,)

    @contextmanager
    def undone_by_errors(self) -> Iterator[None]:
        """A block that other threads wait for; if it raises, it is as if it had drawn nothing."""
        with self._lock:
            self._ring.mend()
            mark, generator = self._draws.mark(), self._rng.bit_generator.state
            try:
                yield
            except BaseException:
                self._draws.go_back(mark)
                self._rng.bit_generator.state = generator
                raise

    def clear(self) -> None:
        """Let go of all steps."""
        with self._lock:
            self._ring.mend()
            self._ring.clear()
            self.clears += 1

    def batches(self, size: int, *, prefetch: int = 2, device: Any = None) -> Batches:
        """An endless iterator over samples, of which the next ones are assembled ahead in a thread.

        Close it, or use it as a context manager. What was assembled before `clear` is not returned.

        Args:
            size: samples in each batch.
            prefetch: how many batches are assembled ahead, at least 1. They were drawn before the one that you have
                was used, with the priorities of that moment.
            device: None: NumPy arrays; else torch tensors there, through pinned memory where it is a GPU.

        Raises:
            ConfigError: at once, if one of the numbers is none.

        Example:
            >>> from outrider import LeafSpec
            >>> spec = StepSpec(obs=LeafSpec((3,), "f4"), action=LeafSpec((), "i8"), num_envs=2)
            >>> replay = ReplayBuffer(100, spec)
            >>> added = replay.extend(spec.zeros(20))
            >>> with replay.batches(8) as batches:
            ...     next(batches).obs.shape
            (8, 3)
        """
        return batches_of(self, size, prefetch, device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, which is replaced in one step: whoever is interrupted leaves the old one.

        What was added last is the newest thing in it; other threads wait meanwhile. The file is a zip archive of
        `.npy` files, as large as the rows that are in use.

        Raises:
            ReplayError: the file cannot be written; an older one is still there then.
        """
        with self._lock:
            self._ring.mend()
            write(path, self._fill)

    def _fill(self, file: FileWriter) -> dict[str, Any]:
        """Write all arrays to a file; return the rest."""
        settings = {"view": describe(self.view), "sampler": describe(self.sampler), "spec": describe_spec(self.spec)}
        return settings | {
            "capacity": self.capacity,
            "draws": write_rows(file, self._ring, self._draws),
            "rng": self._rng.bit_generator.state,
            "lanes": self._names.pairs,
        }

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        view: View | None = None,
        sampler: Sampler | None = None,
        storage: Storage | str = "memory",
    ) -> ReplayBuffer:
        """Make the buffer that was saved; it samples what that one would have, and episodes that ran are cut.

        Args:
            path: of the file, which is not needed afterwards.
            view: instead of the one that it was saved with; needed where that has functions.
            sampler: likewise. With another view or sampler sampling begins anew: priorities, for example, are those of
                new steps.
            storage: see `ReplayBuffer`.

        Raises:
            ReplayError: the file is missing, torn, or of something else.
        """
        with Reader(path) as file:
            meta = file.meta
            buffer = cls(
                meta["capacity"],
                spec_from_json(meta["spec"]),
                view=view or revive(meta["view"], "view"),
                sampler=sampler or revive(meta["sampler"], "sampler"),
                storage=storage,
            )
            buffer._restore(file)
        return buffer

    def _restore(self, file: Reader) -> None:
        """Be what was written, all but what the constructor has been told."""
        meta = file.meta
        restore_ring(file, self._ring)
        if (describe(self.view), describe(self.sampler)) == (meta["view"], meta["sampler"]):
            self._draws.restore(file.arrays("draws") | meta["draws"])
        else:
            self._draws.begin()
        self._rng.bit_generator.state = meta["rng"]
        self._names.give(dict(meta["lanes"] or ()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have all rows, and sample what the buffer would; episodes that run are cut in them."""
        with self._lock:
            self._ring.mend()
            data = packed(self._fill)
        return _unpacked, (type(self), data, self.spec, self.view, self.sampler, self._ring.storage)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({len(self)} of {self.capacity} steps, num_envs={self.spec.num_envs}, "
            f"view={self.view!r}, sampler={self.sampler!r}, storage={self._ring.storage!r}, nbytes={self.nbytes})"
        )

    def check(self) -> None:
        """Verify what holds between any two calls.

        Raises:
            AssertionError: something does not.
        """
        with self._lock:
            self._ring.mend()
            self._ring.check()
            self._draws.check()


def _unpacked(
    kind: type[ReplayBuffer], data: bytes, spec: StepSpec, view: View, sampler: Sampler, storage: Storage
) -> ReplayBuffer:
    """The buffer that `ReplayBuffer.__reduce__` has packed."""
    with Reader(data) as file:
        buffer = kind(file.meta["capacity"], spec, view=view, sampler=sampler, storage=storage)
        buffer._restore(file)  # noqa: SLF001 - it is one of ours
    return buffer
