"""The worker's side of `Processes`: waits for requests, runs its group of environments, answers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import threading
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

import cloudpickle
import numpy as np

from outrider.errors import EnvironmentFailure
from outrider.vector.bells import Waiter
from outrider.vector.bootstrap import WorkerStart
from outrider.vector.driver import describe
from outrider.vector.group import CONSTRUCT, IDLE, EnvGroup, build
from outrider.vector.inline import run as run_group
from outrider.vector.store import HEADER_WORDS, Frame, Store, headers

__all__ = ["ASKED", "ENDED", "FINISHED", "ISSUED", "LANE", "MAIL", "OP", "ROW", "WANT", "Channel", "run"]

ISSUED, ASKED, OP, ROW, WANT = range(5)
"""Words of a header that the parent writes: numbers of requests and messages so far, and the request itself."""

FINISHED, MAIL, ENDED, LANE, OPERATION = range(8, 13)
"""Words that the worker writes, in a cache line of their own: requests and messages so far, lanes that ended, and what
it is doing, for the case that it dies."""

TURNS = 30
"""How often to offer the processor to others before blocking; longer loses on a busy machine."""

GRACE = 5.0
"""Seconds that environments have to close after the parent has gone."""


def run(start: WorkerStart) -> None:
    """Build the environments, describe them, and serve requests until told to close."""
    header = headers(start.mapping)[start.index * HEADER_WORDS : (start.index + 1) * HEADER_WORDS]
    channel = Channel(start, header)
    factories, info_keys, spin = cloudpickle.loads(start.payload)
    header[LANE], header[OPERATION] = start.first, CONSTRUCT
    try:
        envs = build(factories, start.first)
    except EnvironmentFailure as error:
        channel.send("failure", error)
        return
    try:
        try:
            description = describe(envs, start.first)
        except Exception as error:  # noqa: BLE001 - whatever a space's comparison raises belongs to the parent
            channel.send("failure", error)
            return
        channel.send("description", description)
        frame: Frame | None = channel.receive()
        if frame is None:
            return
        group = EnvGroup(envs, start.first, Store(start.mapping, frame), info_keys, header[LANE : LANE + 2])
        _Server(channel, group, spin=spin).serve()
    finally:
        for env in envs:
            _close(env)


def _close(env: Any) -> None:
    """Close an environment that the group has not closed; what it raises has nobody left to hear it."""
    try:
        env.close()
    except Exception:  # noqa: BLE001, S110 - the process ends here
        pass


class Channel:
    """A worker's end of the conversation with its parent. It outlives the parent by `GRACE` seconds at most."""

    def __init__(self, start: WorkerStart, header: memoryview) -> None:
        # A handler and not SIG_IGN, which children of environments would inherit. The parent decides about Ctrl-C.
        signal.signal(signal.SIGINT, lambda *_: None)
        self.header = header
        self.first = start.first
        self._connection = start.connection
        self._inbox, self._outbox = start.inbox, start.outbox
        self._waiter = Waiter([start.inbox])
        self._answered = 0
        self.orphaned = False
        self.over = threading.Event()
        threading.Thread(target=self._watch_parent, name="outrider-parent-watch", daemon=True).start()

    def _watch_parent(self) -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        connection.wait([parent.sentinel])
        self.orphaned = True
        self._inbox.ring()
        self.over.wait(GRACE)
        os._exit(1)

    def send(self, kind: str, content: Any) -> None:
        """Send a message and let the parent know."""
        self._connection.send_bytes(dumps((kind, content)))
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

    def block(self) -> None:
        """Wait until the parent rings."""
        self._waiter.wait()
        self._inbox.silence()

    def finish(self, number: int, ended: int) -> None:
        """Say that request `number` is done."""
        self.header[ENDED] = ended
        self.header[FINISHED] = number
        self._outbox.ring()


class _Server:
    """Serves steps, resets, calls and the close of one group."""

    def __init__(self, channel: Channel, group: EnvGroup, *, spin: bool) -> None:
        self._channel = channel
        self._group = group
        self._turns = TURNS if spin else 0
        store = group.store
        mine = slice(group.first, group.first + len(group.envs))
        self._lanes = range(mine.start, mine.stop)
        self._ops, self._rows = store.mailbox.arrays["op"][mine], store.mailbox.arrays["row"][mine]
        self._ended = store.mailbox.arrays["ended"][mine]
        self._handlers: dict[str, Callable[..., None]] = {"resets": self._arrange, "call": self._call}

    def serve(self) -> None:
        """Answer until told to close or orphaned."""
        channel, header, served = self._channel, self._channel.header, 0
        while not channel.orphaned:
            if channel.has_message():
                kind, *content = channel.read() or ("close",)
                if kind == "close":
                    channel.send("closed", self._group.close())
                    break
                self._handlers[kind](*content)
            elif header[ISSUED] != served:
                served = header[ISSUED]
                self._work(served)
            else:
                self._pause(served)
        self._group.close()
        channel.over.set()

    def _pause(self, served: int) -> None:
        header = self._channel.header
        header[OPERATION] = IDLE
        for _ in range(self._turns):
            os.sched_yield()
            if header[ISSUED] != served:
                return
        self._channel.block()

    def _work(self, number: int) -> None:
        header, group = self._channel.header, self._group
        op, want = header[OP], header[WANT]
        try:
            if op:
                ended = run_group(group, self._lanes, range(header[ROW], header[ROW] + len(self._lanes)), op, want)
            else:
                chosen = np.flatnonzero(self._ops)
                ended = run_group(group, chosen + group.first, self._rows[chosen], self._ops[chosen], want)
                self._ops[:] = 0
        except EnvironmentFailure as error:
            self._channel.send("failure", error)
            return
        self._ended[: len(ended)] = ended
        if want:
            infos, final_infos = group.take_infos()
            if infos or final_infos:
                self._channel.send("infos", (infos, final_infos))
        self._channel.finish(number, len(ended))

    def _arrange(self, arguments: dict[int, tuple[int | None, dict[str, Any] | None]]) -> None:
        seeds = [seed for seed, _ in arguments.values() if seed is not None]
        if seeds:
            # Environments that draw from a global generator must at least differ from worker to worker.
            random.seed(seeds[0])
            np.random.seed(seeds[0] % 2**32)  # noqa: NPY002 - the global generator is what is being seeded
        self._group.arrange_resets(arguments)

    def _call(self, requests: list[tuple[int, str, str, tuple[Any, ...]]]) -> None:
        try:
            results = [self._group.call(*request) for request in requests]
        except EnvironmentFailure as error:
            self._channel.send("refused", error)
        else:
            self._channel.send("results", results)


def dumps(message: Any) -> bytes:
    """Pickle a message; of an error or an info that cannot be pickled, what can be said of it."""
    try:
        return cloudpickle.dumps(message)
    except Exception:  # noqa: BLE001 - a user's __reduce__ may raise anything
        kind, content = message
        return cloudpickle.dumps((kind, _readable(content)))


def _readable(content: Any) -> Any:
    if isinstance(content, EnvironmentFailure):
        copy = EnvironmentFailure(str(content), lane=content.lane, operation=content.operation, pid=content.pid)
        copy.__cause__ = None
        return copy
    if isinstance(content, dict):
        return {key: _readable(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return type(content)(_readable(value) for value in content)
    try:
        pickle.dumps(content)
    except Exception:  # noqa: BLE001 - see above
        return repr(content)
    return content
