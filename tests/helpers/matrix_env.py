"""The environment of the fault matrix, in a module that workers import quickly."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from helpers.envs import CounterEnv


class MatrixEnv(CounterEnv):
    """Fails in one operation: in its first construction or close, or its second reset, step or call."""

    released = threading.Event()
    """Set in the same process, it ends what hangs."""

    def __init__(self, operation: str, fault: str, note: Path):
        super().__init__()
        self.operation, self.fault, self.note = operation, fault, note
        self.calls: dict[str, int] = {}
        self.fail_in("construct", 1)

    def fail_in(self, operation: str, call: int = 2) -> None:
        self.calls[operation] = self.calls.get(operation, 0) + 1
        if operation == self.operation and self.calls[operation] == call:
            self._fail()

    def _fail(self) -> None:
        match self.fault:
            case "raise" | "raise twice":
                raise RuntimeError("told to fail")
            case "exit":
                raise SystemExit(3)
            case "MemoryError":
                raise MemoryError("told to fail")
            case "memory limit":
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                limit = pages * resource.getpagesize() + (64 << 20)
                resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
                np.zeros(1 << 32, np.uint8)
            case "quit":
                os._exit(3)
            case "kill with child":
                child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
                self.note.write_text(str(child.pid))
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "hang":
                MatrixEnv.released.wait()

    def reset(self, *, seed=None, options=None):
        self.fail_in("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.fail_in("step")
        return super().step(action)

    def probe(self):
        self.fail_in("call")

    def close(self):
        if self.operation and self.fault == "raise twice":
            raise RuntimeError("told to fail again")
        self.fail_in("close", 1)
