"""Vector environments: one file for each place where environments can run, one class that users see.

Nothing is imported here: a worker unpickles its bells before it loads NumPy.
"""
