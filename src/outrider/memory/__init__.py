"""Memory that rollouts are made of: sparse mappings, rows of leaves in them, and the pool that lends and recycles rows.

Nothing is imported here: a worker unpickles a mapping before it loads NumPy.
"""
