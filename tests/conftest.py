"""Settings of the whole test run; the leak fixture itself is in `helpers.leaks`."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from outrider.vector import choice

pytest_plugins = ["helpers.leaks", "helpers.patience"]

# pytest enables faulthandler in its own process; workers take it from here, so that a crash there has a traceback.
os.environ["PYTHONFAULTHANDLER"] = "1"

# Whatever a shell starts in the background ignores SIGINT, and so does all that it starts: no Ctrl-C could be tested.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: how long one example takes says more about the machine's load than about the code.
settings.register_profile("outrider", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outrider")


@pytest.fixture(scope="session", autouse=True)
def _auto_is_inline() -> Iterator[None]:
    """Where a test chooses no backend nothing is measured: on a busy machine a step may seem to take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "processors", lambda: 1)
        yield
