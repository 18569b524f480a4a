"""The file of the calls that run: its content, and that nothing else depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from satchel.workspace.inspect import transfer_file
from satchel.workspace.store import DiskStore
from satchel.workspace.views import AtOnce, running_file
from satchel.workspace.views.running_file import ListedCall, RunningCalls, RunningDocument

AT = "2025-11-21T09:30:00.123Z"
ONE = ListedCall(scope="3", no=1, step="read", args="0" * 16, n=0, call='("a.txt")', since=AT)
ALL = RunningCalls(run_id="a", epoch=2, at=AT, calls=[ONE])
WRITTEN = running_file.encode(ALL)


def _read(folder: Path, data: bytes) -> RunningCalls | None:
    (folder / ".satchel").mkdir()
    (folder / running_file.PATH).write_bytes(data)
    return running_file.read(DiskStore(folder))


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[" * 100_000, b"\xff", WRITTEN[:-9], WRITTEN.replace(b": 1,", b": 2,", 1)],
    ids=["empty", "other", "deep", "no text", "torn", "newer"],
)
def test_what_is_not_valid_says_something(data: bytes, tmp_path: Path) -> None:
    assert _read(tmp_path, data) is None


def test_what_a_later_version_adds_is_an_error(tmp_path: Path) -> None:
    written = WRITTEN.replace(b'"epoch"', b'"later": [1], "epoch"')
    assert _read(tmp_path, written) == ALL


def test_nothing_to_say_is_written_or_stays(tmp_path: Path) -> None:
    store, said = DiskStore(tmp_path), [ALL]
    document = RunningDocument(store, AtOnce(), lambda: said[0] if said else None)
    document.write()
    assert running_file.read(store) == ALL
    said.clear()
    document.write()
    assert running_file.read(store) == ALL, "the end of a call writes nothing"
    assert document.end()
    document.write()
    assert running_file.read(store) is None and not (tmp_path / running_file.PATH).exists()
    assert not document.end(), "it is removed twice"
    (tmp_path / running_file.PATH).write_bytes(WRITTEN)
    assert not RunningDocument(store, AtOnce(), lambda: None).end(), "the opening removes what a crash has left"


def test_it_moves_with_the_run() -> None:
    assert not transfer_file.goes_along(running_file.PATH) and transfer_file.is_passing(running_file.PATH)
