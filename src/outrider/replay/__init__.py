"""Replay: the newest steps of every lane, each observation stored once, and samples of them.

Four parts that know nothing of each other's kind: the ring of rows (`ring`), which records are written to (`incoming`),
a view that says what a sample looks like (`views`, `transitions`, ...), a sampler that says which steps are drawn
(`samplers`, `prioritized`, `epochs`, `recent`), and the storage that makes the arrays (`storage`). `buffer` puts them
together to a `ReplayBuffer`, and `mix` several buffers to a `Mix`.
"""
