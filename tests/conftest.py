"""Settings of the whole test run; the leak fixture itself is in `helpers.leaks`."""

import os

from hypothesis import settings

pytest_plugins = ["helpers.leaks"]

# pytest enables faulthandler in its own process; workers take it from here, so that a crash there has a traceback.
os.environ["PYTHONFAULTHANDLER"] = "1"

# No deadline: how long one example takes says more about the machine's load than about the code.
settings.register_profile("outrider", deadline=None, print_blob=True)
settings.load_profile("outrider")
