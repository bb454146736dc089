"""Objects of the user's Python files, named as `file.py:name`."""

from __future__ import annotations

import difflib
import hashlib
import importlib.machinery
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from outrider.errors import ConfigError

__all__ = ["LOADED", "FileObject"]

LOADED: dict[str, ModuleType] = {}
"""What was imported, by path: each file runs once in a process."""


@dataclass(frozen=True)
class FileObject:
    """An object in a file. It is small and can be pickled: a worker imports the file again.

    Attributes:
        path: absolute path of the file.
        name: of the object in the file.
    """

    path: str
    name: str

    @classmethod
    def parse(cls, text: str, where: str) -> FileObject:
        """Take `file.py:name` apart; imports nothing.

        Raises:
            ConfigError: the text is of another form, or there is no such file.
        """
        path, _, name = text.rpartition(":")
        if not path.endswith(".py") or not name.isidentifier():
            msg = f"{where}: expected file.py:name, found {text!r}"
            raise ConfigError(msg)
        file = Path(path).absolute()
        if not file.is_file():
            near = difflib.get_close_matches(file.name, [other.name for other in file.parent.glob("*.py")])
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            msg = f"{where}: there is no file {path!r}{hint}"
            raise ConfigError(msg)
        return cls(str(file), name)

    @property
    def label(self) -> str:
        """`file.py:name`, without the folder."""
        return f"{Path(self.path).name}:{self.name}"

    def load(self) -> Any:
        """Import the file, unless this process has, and return the object.

        Raises:
            ConfigError: the file cannot be imported, or has no such name.
        """
        module = LOADED.get(self.path) or _import(self.path)
        if not hasattr(module, self.name):
            names = [name for name in vars(module) if not name.startswith("_")]
            near = difflib.get_close_matches(self.name, names)
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(sorted(names)) or 'no names'}"
            msg = f"{self.label}: the file has no {self.name!r}; {hint}"
            raise ConfigError(msg)
        return getattr(module, self.name)


def _import(path: str) -> ModuleType:
    """Run a file as a module. Other files of its folder can be imported, but none of them hides an installed module."""
    file = Path(path)
    # A name of its own: a file called `random.py` must not become the module `random`.
    name = f"outrider_file_{hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:12]}_{file.stem}"
    loader = importlib.machinery.SourceFileLoader(name, path)
    module = ModuleType(name)
    module.__file__, module.__loader__ = path, loader
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        what = error.msg if isinstance(error, SyntaxError) else error
        msg = f"{file.name}: the file cannot be imported: {type(error).__name__}: {what} (at {_place(error, path)})"
        raise ConfigError(msg) from error
    LOADED[path] = module
    return module


def _place(error: BaseException, path: str) -> str:
    """The line of the file that raised, or that could not be parsed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{path}, line {lines[-1].lineno}: {lines[-1].line}" if lines else path
