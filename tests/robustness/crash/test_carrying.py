"""A copy, move or fork that a crash cuts off anywhere loses nothing, and what it has told is there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from satchel.workspace.store import DiskStore, disk_store

from .carrying import Name, explore
from .checker import Violation
from .test_explorer import SEED

Fault = AbstractContextManager[Any]


@pytest.mark.parametrize("name", ["copy", "move", "fork"])
@pytest.mark.parametrize(("every", "per_call"), [(20, 1), pytest.param(3, 3, marks=pytest.mark.slow)])
def test_a_crash_takes_a_run_on_its_way_or_what_was_told(name: Name, every: int, per_call: int) -> None:
    tried = explore(name, SEED, every=every, per_call=per_call)
    print(f"{name}, seed {SEED}: {tried} crashes")
    assert tried > 30


def _folders_that_were_made_not_synced() -> Fault:
    settle = disk_store.settle_place

    def of_the_workspace_only(folder: str, calls: Any, *, levels: int = 100) -> None:
        if levels < 100:
            settle(folder, calls, levels=levels)

    return mock.patch.object(disk_store, "settle_place", of_the_workspace_only)


def _copied_names_not_synced() -> Fault:
    return mock.patch.object(DiskStore, "settle", lambda self, folder: None)


@pytest.mark.parametrize("plant", [_folders_that_were_made_not_synced, _copied_names_not_synced])
@pytest.mark.parametrize("name", ["copy", "move", "fork"])
def test_a_planted_fault_is_found(plant: Callable[[], Fault], name: Name) -> None:
    with plant(), pytest.raises(Violation, match=r"the destination lacks|is refused"):
        explore(name, 0, every=1 if name == "move" else 10, per_call=1)
