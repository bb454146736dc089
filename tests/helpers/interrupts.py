"""Ctrl-C at every place of a call."""

import sys
from collections.abc import Callable
from pathlib import Path

REPLAY = str(Path("outrider") / "replay")


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Call, and raise KeyboardInterrupt before the line number `at`, from 0, that it runs in the replay package.

    Returns whether it came to that.
    """
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if REPLAY not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines += 1
            if lines > at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
