"""See `outrider.undisturbed`."""

from outrider.undisturbed import undisturbed

__all__ = ["undisturbed"]
