"""What people save in a bucket is there whole or not at all."""

from __future__ import annotations

import time

import pytest
from servers import Server

from satchel.workspace.store import open_store
from satchel.workspace.views.guarded_files import until_settled


def test_an_object_is_not_looked_at_again_to_see_whether_it_is_being_saved(
    seaweedfs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cost every opening after a pause a third of a second, and say nothing."""
    store = open_store(seaweedfs.place(), seaweedfs.storage_options())
    store.replace("pause.yaml", b"reason: a look\n")

    def sleep(seconds: float) -> None:
        raise AssertionError(f"waits for {seconds} s")

    monkeypatch.setattr(time, "sleep", sleep)
    assert (found := until_settled(store, "pause.yaml")) and found.data == b"reason: a look\n"
    assert until_settled(store, "todo.md") is None
