"""The command line: `outrider collect`, `outrider show`. Nothing here is part of the Python interface."""
