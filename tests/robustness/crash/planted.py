"""Looks for a planted fault, and hears what the explorer says of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from .explorer import Explorer, Found
from .test_explorer import SEED
from .workloads import WORKLOADS

Fault = AbstractContextManager[Any]

TRIES = 6
"""Seeds. Which crashes one exploration comes to depends on every call of the product: a change far away moves them, and
may let it miss a fault, or meet another sign of it first."""


def found_and_told(plant: Callable[[], Fault], workload: str, told: str, *, shuffled: bool = True) -> str:
    """The explorer's words, which match `told`. Fails if no seed leads to them."""
    others = []
    for seed in range(SEED, SEED + TRIES):
        explorer = Explorer(WORKLOADS[workload], seed, per_call=3, shuffled=shuffled)
        try:
            with plant():
                explorer.explore()
        except Found as found:
            text = str(found)
            if re.search(told, text):
                print(f"{explorer.tally}\n{text}")
                assert f"workload {workload!r}, seed {seed}" in text
                return text
            others.append(text)
        else:
            others.append(f"workload {workload!r}, seed {seed}: nothing was found")
    pytest.fail(f"no seed leads to {told!r}, but:\n" + "\n\n".join(others))
