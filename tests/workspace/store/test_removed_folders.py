"""A person may remove a folder while a process works in the workspace: the next write makes it again. Or exchange the
whole folder: the process must not go on in the one that was moved away."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from satchel.errors import LeaseHeld, StorageFailed
from satchel.workspace.store import DiskStore, Store, Syscalls, open_store

_WRITES: dict[str, Callable[[Store, str], object]] = {
    "replace": lambda store, path: store.replace(path, b"new"),
    "replace, name not durable": lambda store, path: store.replace(path, b"new", sync="no"),
    "exchange": lambda store, path: store.exchange(path, b"new", if_version=None),
    "create": lambda store, path: store.create(path, b"new"),
    "append": lambda store, path: store.append(path, b"new"),
    "append durably": lambda store, path: store.append(path, b"new", durable=True),
    "rename": lambda store, path: (store.replace("from", b"new"), store.rename("from", path)),
    "create_log": lambda store, path: store.create_log(path, b"new").close(),
}


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
def test_another_thread_removes_the_folder_that_is_being_written_into(
    write: Callable[[Store, str], object], tmp_path: Path
) -> None:
    """The last other file of the folder goes while the new one is on its way."""

    class Meanwhile(Syscalls):
        def open_new(self, path: str) -> int:
            return self._removed(super().open_new(path))

        def rename(self, source: str, target: str) -> None:
            self._removed(0)
            super().rename(source, target)

        def link(self, source: str, target: str) -> None:
            self._removed(0)
            super().link(source, target)

        def _removed(self, result: int) -> int:
            store.remove("outer/inner/first")
            return result

    DiskStore(tmp_path).replace("outer/inner/first", b"old")
    store = DiskStore(tmp_path, Meanwhile())

    write(store, "outer/inner/second")

    assert (tmp_path / "outer/inner/second").read_bytes() == b"new"
    store.remove("outer/inner/second")
    assert not (tmp_path / "outer").exists()


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES)
@pytest.mark.parametrize("removed", ["outer", "outer/inner", ".satchel/tmp"])
def test_a_write_after_its_folder_was_removed(
    write: Callable[[Store, str], object], removed: str, tmp_path: Path
) -> None:
    store = open_store(str(tmp_path))
    store.replace("outer/inner/first", b"old")
    shutil.rmtree(tmp_path / removed)

    write(store, "outer/inner/second")

    assert (tmp_path / "outer/inner/second").read_bytes() == b"new"


def test_a_log_grows_in_a_folder_that_was_moved_away(tmp_path: Path) -> None:
    """`mv run old; cp -r old run` gives a second process a folder that is nobody's, at the path of the first."""
    run, old = tmp_path / "run", tmp_path / "old"
    run.mkdir()
    log = DiskStore(run).create_log("journal/1", b"one\n")
    run.rename(old)
    with pytest.raises(StorageFailed):
        log.append(b"two\n")
    shutil.copytree(old, run)
    with pytest.raises(LeaseHeld, match="exchanged"):
        log.append(b"three\n")
    log.close()
