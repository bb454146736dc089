"""The worker's side of `Processes`: waits for requests, runs its group of environments, answers."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import cloudpickle
import numpy as np

from outrider.errors import EnvironmentFailure
from outrider.seeding import seed_globals
from outrider.vector.bells import Fence
from outrider.vector.bootstrap import WorkerStart
from outrider.vector.driver import describe
from outrider.vector.group import IDLE, EnvGroup, build, quietly
from outrider.vector.inline import run as run_group
from outrider.vector.placement import move_apart
from outrider.vector.plan import EnvFactory
from outrider.vector.store import HEADER_WORDS, Frame, Store, headers

__all__ = ["Channel", "Job", "Server", "host", "pack", "run", "unpack"]

ISSUED, ASKED, OP, ROW, WANT, PARENT_DOZES = range(6)
"""Words of a header that the parent writes: numbers of requests and messages so far, the request itself (OP is 0 where
each lane has its own in the mailbox), and whether it has to be woken; of `FirstFinishers`, by how many arrivals."""

FINISHED, MAIL, ENDED, DOZES, LANE, OPERATION, SINCE = range(8, 15)
"""Words that the worker writes, in a cache line of their own: requests, messages and ended lanes so far, whether it has
to be woken, and what it is doing and, where calls are timed, since when (nanoseconds), for the case that it dies or
hangs."""

TURNS = 30
"""How often to offer the processor to others before blocking; longer loses on a busy machine."""

GRACE = 5.0
"""Seconds that environments have to finish their step and close after the parent has gone."""


@dataclass(frozen=True)
class Job:
    """What a worker is to do.

    Attributes:
        factories: of its environments.
        info_keys: of `Envs`.
        timed: whether calls of environments are timed.
        rest: what the worker's own kind of server needs to know.
        frame: how the memory is divided; None: the parent says so when it knows what all environments are like.
    """

    factories: Sequence[EnvFactory]
    info_keys: tuple[str, ...]
    timed: bool
    rest: Any
    frame: Frame | None = None


def run(start: WorkerStart) -> None:
    """Build the environments, describe them, and serve requests until told to close."""
    host(start, lambda channel, group, spin: Server(channel, group, spin=spin).serve())


def host(start: WorkerStart, serve: Callable[[Channel, EnvGroup, Any], None]) -> None:
    """Build the environments, describe them, call `serve`, and close them whatever happens.

    The payload is a `Job`.
    """
    header = headers(start.mapping)[start.index * HEADER_WORDS : (start.index + 1) * HEADER_WORDS]
    note = header[LANE : SINCE + 1]
    channel = Channel(start, header)
    job: Job = cloudpickle.loads(start.payload)
    try:
        envs = build(job.factories, start.first, note)
    except EnvironmentFailure as error:
        channel.send("failure", error)
        return
    try:
        description = describe(envs, start.first)
        channel.send("description", description)
        # Where another worker failed, this one is told to close instead.
        frame = channel.receive() if job.frame is None else job.frame
        group = (
            None
            if not isinstance(frame, Frame)
            else EnvGroup(envs, start.first, Store(start.mapping, frame), job.info_keys, note, timed=job.timed)
        )
    except Exception as error:  # noqa: BLE001 - whatever a space's comparison raises belongs to the parent
        channel.send("failure", error)
        group = None
    if group is None:
        for env in envs:
            quietly(env.close)
        channel.over.set()
        return
    try:
        serve(channel, group, job.rest)
    finally:
        group.close()
        channel.over.set()


class Channel:
    """A worker's end of the conversation with its parent. It outlives the parent by `GRACE` seconds at most."""

    def __init__(self, start: WorkerStart, header: memoryview) -> None:
        self.header = header
        self.index = start.index
        self.first = start.first
        self.fence = Fence()
        self._connection = start.connection
        self._inbox, self._outbox = start.inbox, start.outbox
        self._answered = 0
        self.orphaned = False
        self.over = threading.Event()
        threading.Thread(target=self._watch_parent, name="outrider-parent-watch", daemon=True).start()

    def _watch_parent(self) -> None:
        parent: Any = multiprocessing.parent_process()
        # Siblings that were forked later hold the other end of the sentinel: a pidfd does not wait for them.
        signs = [parent.sentinel]
        with contextlib.suppress(AttributeError, OSError):
            signs.append(os.pidfd_open(parent.pid))
        connection.wait(signs)
        self.orphaned = True
        self._inbox.ring()
        self.over.wait(GRACE)
        os._exit(1)

    def send(self, kind: str, content: Any) -> None:
        """Send a message and let the parent know, if there is one."""
        data = pack(kind, content)
        try:
            self._connection.send_bytes(data)
        except OSError:
            # It has gone, or has closed its end; nobody needs to read of that.
            self.orphaned = True
            return
        self.header[MAIL] += 1
        self._outbox.ring()

    def receive(self) -> Any:
        """Wait for the next message; None when the parent has gone or has closed its end."""
        while not self.has_message():
            if self.orphaned:
                return None
            self.block()
        return self.read()

    def has_message(self) -> bool:
        """Whether the parent has sent one that was not read."""
        return self.header[ASKED] != self._answered

    def read(self) -> Any:
        """Read the message that was announced."""
        self._answered += 1
        try:
            return cloudpickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            self.orphaned = True
            return None

    def block(self, timeout: float | None = None) -> None:
        """Wait until the parent rings, or for `timeout` seconds."""
        self._inbox.wait(timeout)

    def finish(self, number: int, ended: int) -> None:
        """Say that request `number` is done, and that `ended` more lanes have ended."""
        header = self.header
        header[ENDED] += ended
        self.fence()
        header[FINISHED] = number
        self.fence()
        if header[PARENT_DOZES]:
            self.wake_parent()

    def wake_parent(self) -> None:
        """Wake the parent, which sleeps or is about to."""
        self._outbox.ring()


class Server:
    """Serves steps, resets, calls and the close of one group."""

    def __init__(self, channel: Channel, group: EnvGroup, *, spin: bool) -> None:
        self._channel = channel
        self._group = group
        self._turns = TURNS if spin else 0
        self._served = 0
        store = group.store
        mine = slice(group.first, group.first + len(group.envs))
        self._lanes = range(mine.start, mine.stop)
        self._ragged = bool(store.ragged)
        mailbox = store.mailbox.arrays
        self._requests, self._rows = mailbox["request"][mine], mailbox["row"][mine]
        self._ops, self._wants, self._ended = mailbox["op"][mine], mailbox["want"][mine], mailbox["ended"][mine]
        self._handlers: dict[str, Callable[..., None]] = {"resets": self._arrange, "call": self._call}

    def serve(self) -> None:
        """Answer until told to close or orphaned."""
        channel, header = self._channel, self._channel.header
        while not channel.orphaned:
            issued = header[ISSUED]
            # Read after ISSUED: what was written before a request is handled before it.
            if channel.has_message():
                kind, *content = channel.read() or ("close",)
                if kind == "close":
                    channel.send("closed", self._group.close())
                    return
                self._handlers[kind](*content)
            elif issued != self._served:
                channel.fence()
                self._work(issued)
            else:
                self._pause()

    def _pause(self) -> None:
        """Wait until there may be something to do."""
        channel, header, served = self._channel, self._channel.header, self._served
        header[OPERATION] = IDLE
        for _ in range(self._turns):
            os.sched_yield()
            if header[ISSUED] != served:
                return
        header[DOZES] = 1
        channel.fence()
        if header[ISSUED] == served and not channel.has_message():
            channel.block()
        # Where stores may be seen out of order the parent always rings: it cannot know whether this word is current.
        header[DOZES] = 0 if self._turns else 1

    def _work(self, number: int) -> None:
        header, group = self._channel.header, self._group
        op, want = header[OP], header[WANT]
        if self._turns and not number & (number - 1):
            # At requests 1, 2, 4, 8 and so on: where a worker sleeps, it may be woken elsewhere.
            move_apart(self._channel.index, os.getppid())
        try:
            if op:
                ended = run_group(group, self._lanes, range(header[ROW], header[ROW] + len(self._lanes)), op, want)
            else:
                due = (self._requests > self._served) & (self._requests <= number)
                chosen = np.flatnonzero(due)
                want = int(self._wants[chosen].max(initial=0))
                ended = run_group(group, chosen + group.first, self._rows[chosen], self._ops[chosen], want)
        except EnvironmentFailure as error:
            self._served = number
            self._channel.send("failure", error)
            return
        self._served = number
        for lane in ended:
            self._ended[lane - group.first] = True
        if want:
            self._send_infos()
        if self._ragged:
            self._send_ragged()
        self._channel.finish(number, len(ended))

    def _send_ragged(self) -> None:
        """Send what was written to ragged leaves, by row: they are no shared memory."""
        self._channel.send("ragged", self._group.store.take_ragged())

    def _send_infos(self) -> None:
        infos, final_infos = self._group.take_infos()
        if infos or final_infos:
            self._channel.send("infos", (infos, final_infos))

    def _arrange(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        seeds = [seed for seed, _ in arguments.values() if seed is not None]
        if seeds:
            # Environments that draw from a global generator must at least differ from worker to worker.
            seed_globals(seeds[0])
        self._group.arrange_resets(arguments)

    def _call(self, requests: list[tuple[int, str, str, tuple[Any, ...]]]) -> None:
        try:
            results = [self._group.call(*request) for request in requests]
        except EnvironmentFailure as error:
            self._channel.send("refused", error)
        else:
            self._channel.send("results", results)


def pack(kind: str, content: Any) -> bytes:
    """Pickle a message; of an error or an info that cannot be pickled, what can be said of it."""
    try:
        data = cloudpickle.dumps(content)
    except Exception:  # noqa: BLE001 - a user's __reduce__ may raise anything
        data = cloudpickle.dumps(_readable(content))
    return pickle.dumps((kind, data))


def unpack(message: bytes) -> tuple[str, Any, Exception | None]:
    """Return kind and content of a packed message, or None and the error if the content cannot be unpickled here."""
    kind, data = pickle.loads(message)  # noqa: S301 - it comes from a worker of our own
    try:
        return kind, cloudpickle.loads(data), None
    except Exception as error:  # noqa: BLE001 - a user's class may raise anything
        return kind, None, error


def _readable(content: Any) -> Any:
    """A copy in which everything that cannot be pickled is replaced by the name of its type."""
    if isinstance(content, EnvironmentFailure):
        return EnvironmentFailure(str(content), lane=content.lane, operation=content.operation, pid=content.pid)
    try:
        pickle.dumps(content)
    except Exception:  # noqa: BLE001 - see `pack`
        if isinstance(content, dict):
            return {_readable(key): _readable(value) for key, value in content.items()}
        if isinstance(content, (list, tuple)):
            parts = [_readable(value) for value in content]
            return parts if isinstance(content, list) else tuple(parts)
        return f"<{type(content).__name__}, which cannot be pickled>"
    return content
