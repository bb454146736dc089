"""Settings of the whole test run; the leak fixture itself is in `helpers.leaks`."""

import os
import signal

from hypothesis import settings

pytest_plugins = ["helpers.leaks"]

# pytest enables faulthandler in its own process; workers take it from here, so that a crash there has a traceback.
os.environ["PYTHONFAULTHANDLER"] = "1"

# Whatever a shell starts in the background ignores SIGINT, and so does all that it starts: no Ctrl-C could be tested.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: how long one example takes says more about the machine's load than about the code.
settings.register_profile("outrider", deadline=None, print_blob=True)
settings.load_profile("outrider")
