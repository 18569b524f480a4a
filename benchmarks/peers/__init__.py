"""Satchel next to its peers, paired in one run. `make bench` writes docs/benchmarks.md; that page explains it."""
