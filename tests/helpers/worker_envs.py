"""Environments for the faults of worker processes."""

import multiprocessing
import os
import signal
import threading

import numpy as np
import threadpoolctl
from gymnasium import spaces

from helpers.envs import CounterEnv, FaultyEnv


class QuitEnv(FaultyEnv):
    """Ends its process without a word, where FaultyEnv would hang."""

    def __init__(self, where="step", at=0):
        super().__init__("hang", where, at)

    def fail_in(self, where):
        if where == self.where:
            self.calls += 1
            if self.calls == self.at + 1:
                os._exit(3)


class LoggedEnv(FaultyEnv):
    """Appends its name to a file whenever it is closed."""

    def __init__(self, path, name, fault="raise", where="nowhere", at=0):
        self.path, self.name = path, name
        super().__init__(fault, where, at)

    def close(self):
        with self.path.open("a") as file:
            file.write(f"{self.name}\n")
        super().close()


class ParentEnv(CounterEnv):
    """Starts a process of its own, which outlives it, and is killed in its second step."""

    def __init__(self):
        super().__init__()
        # A forked child inherits what the worker has open.
        self.child = os.fork()
        if self.child == 0:
            signal.pause()
            os._exit(0)

    def step(self, action):
        if self.count == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class FamilyEnv(CounterEnv):
    """Lets a child process of its own count."""

    def __init__(self):
        super().__init__()
        self.connection, theirs = multiprocessing.Pipe()
        self.child = multiprocessing.Process(target=count_for, args=(theirs,))
        self.child.start()
        theirs.close()

    def step(self, action):
        result = super().step(action)
        self.connection.send(self.count)
        return (np.array([self.connection.recv()], np.float32), *result[1:])

    def close(self):
        self.connection.send(None)
        self.child.join()
        self.connection.close()


def count_for(connection):
    while (number := connection.recv()) is not None:
        connection.send(number + 100)


class PausingEnv(CounterEnv):
    """Takes its time in the operation `where`, and when told to `pause`."""

    def __init__(self, seconds, where="nowhere"):
        super().__init__()
        self.seconds, self.where = seconds, where
        self.pause("init")

    def pause(self, where=None):
        if where in (None, self.where):
            threading.Event().wait(self.seconds)

    def step(self, action):
        self.pause("step")
        return super().step(action)


class ThreadsEnv(CounterEnv):
    """Says how many threads numeric libraries would use here."""

    def threads(self):
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]


class UnpicklableError(Exception):
    """An exception that cannot be pickled, because of what it holds."""

    def __init__(self, message):
        super().__init__(message)
        self.lock = threading.Lock()


class UnreadableError(Exception):
    """An exception that can be pickled, but not unpickled."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class RaisingEnv(CounterEnv):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def step(self, action):
        raise self.error()


class LongInfoEnv(CounterEnv):
    """Has an info of so many bytes in each step."""

    def __init__(self, nbytes):
        super().__init__()
        self.nbytes = nbytes

    def step(self, action):
        *result, _ = super().step(action)
        return (*result, {"long": b"x" * self.nbytes})


class StubbornInfoEnv(CounterEnv):
    def step(self, action):
        *result, _ = super().step(action)
        return (*result, {"stubborn": Unloadable()})


class Unloadable:
    def __reduce__(self):
        return (refuse, ())


def refuse():
    raise RuntimeError("cannot be made again")


class ManyLivesEnv(CounterEnv):
    """Fails in certain steps, counted over all environments that were made with the same file.

    The observation is (a number drawn at the reset, steps since the reset), the reward the number of the step in all.
    """

    def __init__(self, path, fault="raise", steps=(), where="step", length=1000):
        super().__init__(length)
        self.observation_space = spaces.Box(0.0, np.inf, (2,), np.float64)
        self.path, self.fault, self.steps, self.where = path, fault, steps, where
        self.drawn = 0.0
        self.fail_in("init")

    def observation(self):
        return np.array([self.drawn, self.count], np.float64)

    def fail_in(self, where):
        if where != self.where:
            return 0
        with self.path.open("a") as file:
            file.write(".")
        number = self.path.stat().st_size
        if number in self.steps:
            fail(self.fault)
        return number

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.fail_in("reset")
        self.drawn = float(self.np_random.random())
        return self.observation(), {"options": str(options), "seeded": seed is not None}

    def step(self, action):
        number = self.fail_in("step")
        observation, _, *rest = super().step(action)
        return (observation, float(number), *rest)


def fail(fault):
    match fault:
        case "raise":
            raise RuntimeError("told to fail")
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "hang":
            threading.Event().wait()
