"""The lease: one holder, told by name to the others, and never in anybody's way when it is broken."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waits import PATIENCE

from satchel.workspace.base.errors import LeaseHeld
from satchel.workspace.inspect import lease
from satchel.workspace.store import DiskStore

spawning = multiprocessing.get_context("fork")


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    return DiskStore(tmp_path)


def take(folder: str, held: Any, leave: Any) -> None:
    store = DiskStore(folder)
    with lease.held(store):
        store.replace(lease.PATH, lease.encode(lease.mine(store, "r", 3)))
        held.set()
        leave.wait(PATIENCE)


def test_who_comes_second_is_told_who_was_first(store: DiskStore) -> None:
    held, leave = spawning.Event(), spawning.Event()
    first = spawning.Process(target=take, args=(store.url, held, leave))
    first.start()
    assert held.wait(PATIENCE)
    with pytest.raises(LeaseHeld, match=f"process {first.pid} on {socket.gethostname()}") as refused, lease.held(store):
        pass
    assert refused.value.remedy
    assert lease.holder(store) is not None
    first.kill()
    first.join(PATIENCE)
    assert lease.holder(store) is None, "a process that was killed holds nothing, whatever the file says"
    with lease.held(store):
        pass


@pytest.mark.parametrize("whose", [{"process_started": "0"}, {"is_brief": True}, None])
def test_a_lock_that_is_about_to_be_free_refuses_the_next(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch, whose: dict[str, Any] | None
) -> None:
    """Its process is a zombie already, but a thread of it, or what it was just starting, has not closed the lock yet;
    it is a command that answers a question; or it has just taken the lock, or is about to let go."""
    with store.lock():
        pass
    if whose is not None:
        planted(store, **whose)
    dying = os.open(f"{store.url}/.satchel/lock", os.O_RDWR)
    fcntl.flock(dying, fcntl.LOCK_EX)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            os.close(dying)

    monkeypatch.setattr(lease.time, "sleep", sleep)
    with lease.held(store):
        assert len(waited) == 3


def test_a_lock_that_outlives_its_process_is_waited_for_without_end(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(store, process_started="0")
    monkeypatch.setattr(lease, "_DYING", 0.0)
    with store.lock(), pytest.raises(LeaseHeld, match="started still holds the lock") as refused, lease.held(store):
        pass
    assert "fuser" in str(refused.value.remedy)


def test_a_lease_comes_back_as_it_was_written(store: DiskStore) -> None:
    mine = lease.mine(store, "r", 7)
    assert lease.parse(lease.encode(mine)) == mine and mine.pid == os.getpid() and mine.url == store.url


def planted(store: DiskStore, **changes: Any) -> None:
    facts = msgspec.to_builtins(lease.mine(store, "r", 1)) | changes
    store.replace(lease.PATH, msgspec.json.encode(facts))


def test_a_later_process_with_the_same_pid_is_not_the_holder(store: DiskStore) -> None:
    planted(store, process_started="1")
    assert lease.holder(store) is None


def test_of_another_machine_nothing_is_known_but_what_it_says(store: DiskStore) -> None:
    planted(store, host="elsewhere", pid=1)
    assert lease.holder(store) is not None


@pytest.mark.parametrize("pid", [0, -1, 10**9, 10**18, 2**31, 2**63])
def test_a_pid_that_is_none_is_no_error(store: DiskStore, pid: int) -> None:
    planted(store, pid=pid, process_started="")
    assert lease.holder(store) is None


@given(st.binary(max_size=50))
def test_bytes_that_are_no_lease_are_none(data: bytes) -> None:
    assert lease.parse(data) is None


@pytest.mark.parametrize(
    "data",
    [b"[" * 100_000, b'{"pid": "\xff"}', b'{"x":' * 50_000, b"null", b'"\\ud800"'],
    ids=lambda data: repr(data[:9]),
)
def test_a_broken_lease_informs_nobody_and_stops_nobody(data: bytes) -> None:
    assert lease.parse(data) is None


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_what_is_no_file_is_no_lease(store: DiskStore, tmp_path: Path, kind: str) -> None:
    (tmp_path / ".satchel").mkdir()
    path = tmp_path / lease.PATH
    {"folder": path.mkdir, "link": lambda: path.symlink_to("/etc/passwd"), "fifo": lambda: os.mkfifo(path)}[kind]()
    assert lease.read(store) is None and lease.holder(store) is None
