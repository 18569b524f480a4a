"""Hints at changes on a disk: they come, and the end of a run does not wait for the threads that give them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import watchdog.observers
from waits import PATIENCE

from satchel.workspace.store import DiskStore


@pytest.mark.parametrize("folder", ["", "inbox"])
@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_text("new"),
        lambda file: file.unlink(),
        lambda file: file.rename(file.parent / "other"),
        lambda file: (file.parents[2] / "elsewhere").rename(file),
        lambda file: (file.parent / "more").touch(),
    ],
    ids=["saved", "removed", "moved", "saved at its place", "made"],
)
def test_a_change_gives_a_hint(tmp_path: Path, folder: str, change: Callable[[Path], object]) -> None:
    root = tmp_path / "a" / "b"
    (root / "inbox").mkdir(parents=True)
    file = root / folder / "file"
    file.write_text("old")
    (file.parents[2] / "elsewhere").write_text("new")
    hinted = threading.Event()
    with DiskStore(root).watch(("", "inbox"), hinted.set):
        change(file)
        assert hinted.wait(PATIENCE)


def test_the_end_of_a_watch_does_not_wait_for_its_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch's threads may sleep for half a second after a file was moved out of the folder."""
    left, in_time = threading.Event(), []
    ended = threading.Event()

    class Sleepy(watchdog.observers.Observer):  # type: ignore[misc, valid-type]
        def stop(self) -> None:
            in_time.append(left.wait(PATIENCE))
            super().stop()
            ended.set()

    monkeypatch.setattr(watchdog.observers, "Observer", Sleepy)
    with DiskStore(tmp_path).watch(("",), lambda: None):
        pass
    left.set()
    assert ended.wait(PATIENCE) and in_time == [True]


def test_the_threads_of_a_watch_end_after_it(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    with DiskStore(tmp_path).watch(("",), lambda: None):
        threads = {*threading.enumerate()} - before
        assert threads
    threads |= {*threading.enumerate()} - before
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), thread
