"""A system that has nothing of what only Linux has."""

import os
import types

from outrider.vector import bells


def go_without(monkeypatch):
    """Take memfd, eventfd, pidfd and poll away."""
    for name in ("memfd_create", "eventfd", "pidfd_open"):
        monkeypatch.delattr(os, name)
    # connection.wait needs the module itself.
    monkeypatch.setattr(bells, "select", types.SimpleNamespace())
