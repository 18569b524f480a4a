"""A folder that this user may not read is named by whatever looks for runs: one may be in it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from satchel.results import ServeEvent
from satchel.runtime.supervision.run_server import Server

from .conftest import Cli, Make, data_of


@pytest.fixture
def private(make: Make, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of another user, next to a workspace of this one."""
    make(name="runs/mine")
    folder = make(name="runs/private")
    scandir, lstat = os.scandir, os.lstat

    def refuse(path: Any) -> None:
        if str(path).startswith(str(folder)) and not isinstance(path, int):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "scandir", lambda path=".": (refuse(path), scandir(path))[1])
    monkeypatch.setattr(
        os,
        "lstat",
        lambda path, **options: (
            (refuse(f"{path}/."), lstat(path, **options))[1] if str(path) != str(folder) else lstat(path, **options)
        ),
    )
    return folder


def test_serve_skips_it_without_a_word(private: Path) -> None:
    events: list[ServeEvent] = []
    Server(str(private.parent), 0, events.append).turn()
    assert {(event.kind, event.folder) for event in events} == {("storage", str(private))}
    assert all("Permission denied" in event.text for event in events)


def test_ls_leaves_it_out(cli: Cli, private: Path) -> None:
    listed = data_of(cli("ls", "--json", private.parent))
    assert [(Path(each["folder"]).name, each["state"]) for each in listed] == [("mine", "new"), ("private", "damaged")]


def test_an_emergency_stop_of_all_takes_it_for_stopped(cli: Cli, private: Path) -> None:
    stopped = cli("stop", "--all", private.parent, "--json")
    assert stopped.exit_code == 1
    assert [each["how"] for each in data_of(stopped)] == ["new", "failed"]
