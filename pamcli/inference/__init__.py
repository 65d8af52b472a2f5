"""Arrays in, arrays out: the networks as a program uses them."""

PAIRS_AT_ONCE = 3
"""Pairs of a batch that are in memory: one being loaded, one computed, one saved."""
