"""The file system in memory must do what a real one does, or nothing the explorer says can be believed."""

from __future__ import annotations

import inspect
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from satchel.workspace.store import Syscalls

from . import memory
from .memory import ROOT, Memory

PATHS = st.sampled_from(["a", "b", "d", "e", "d/a", "d/b", "d/f", "d/f/a", "e/a", "gone/a"])
CALLS = st.one_of(
    st.tuples(st.sampled_from(["open_new", "open_append"]), PATHS),
    st.tuples(st.sampled_from(["unlink", "mkdir", "rmdir", "sync_folder", "stat", "read", "read_end", "scan"]), PATHS),
    st.tuples(st.just("has_writer"), PATHS),
    st.tuples(st.sampled_from(["rename", "exchange", "link"]), PATHS, PATHS),
    st.tuples(st.just("write"), st.integers(0, 5), st.binary(max_size=12)),
    st.tuples(st.sampled_from(["sync_data", "sync", "close"]), st.integers(0, 5)),
)


class _Applied:
    """One side: makes calls on a file system, and says what each came to."""

    def __init__(self, calls: Syscalls, root: str):
        self._os, self._root = calls, root
        self._fds: list[int] = []

    def do(self, name: str, *arguments: Any) -> object:
        try:
            found = self._call(name, arguments)
        except OSError as error:
            return type(error).__name__, error.errno
        if name.startswith("open"):
            self._fds.append(found)
            return "opened"
        if name == "read":
            return found[0], found[1].st_size
        if name == "scan":
            modes = {entry: stat.S_IFMT(status.st_mode) for entry, status in found.items()}
            return sorted((entry, mode, found[entry].st_size * stat.S_ISREG(mode)) for entry, mode in modes.items())
        if name == "stat":
            return stat.S_IFMT(found.st_mode)
        return found

    def close(self) -> None:
        for fd in self._fds:
            self._os.close(fd)

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        call: Callable[..., Any] = getattr(self._os, name)
        first, *rest = arguments
        if isinstance(first, int):
            if not self._fds:
                return None
            fd = self._fds[first % len(self._fds)]
            if name == "close":
                self._fds.remove(fd)
            return call(fd, *rest)
        paths = [f"{self._root}/{path}" for path in arguments]
        limits = {"read": 100, "read_end": 4}
        return call(*paths, *([limits[name]] if name in limits else []))


def _on_disk(root: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for folder, folders, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            found[str(path.relative_to(root))] = path.read_bytes()
        if not folders and not names and folder != root:
            found[f"{os.path.relpath(folder, root)}/"] = b""
    return found


@examples(600)
@given(st.lists(CALLS, max_size=30))
def test_memory_answers_and_errs_as_the_real_file_system(calls: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Memory()
        here, there = _Applied(model, ROOT), _Applied(Syscalls(), folder)
        try:
            for call in calls:
                assert here.do(*call) == there.do(*call), call
            assert memory.files(model.nodes) == _on_disk(folder)
        finally:
            there.close()


def test_memory_stands_in_for_every_call() -> None:
    real = {name for name, _ in inspect.getmembers(Syscalls, inspect.isfunction)}
    assert real - vars(Memory).keys() == set(), "a call of the disk store would reach the real disk"


def test_versions_differ_after_a_write_and_survive_a_rename() -> None:
    system = Memory()
    fd = system.open_new(f"{ROOT}/a")
    system.write(fd, b"x")
    before = system.stat(f"{ROOT}/a")
    system.rename(f"{ROOT}/a", f"{ROOT}/b")
    assert system.stat(f"{ROOT}/b") == before
    system.write(fd, b"y")
    assert system.stat(f"{ROOT}/b").st_mtime_ns > before.st_mtime_ns


def test_every_logged_moment_stays_as_it_was() -> None:
    system = Memory()
    for name in ("a", "b"):
        fd = system.open_new(f"{ROOT}/{name}")
        system.write(fd, b"one")
        system.close(fd)
    system.unlink(f"{ROOT}/a")
    assert [sorted(memory.files(step.nodes).items()) for step in system.log[:2]] == [[("a", b"")], [("a", b"one")]]
    assert memory.files(system.nodes) == {"b": b"one"}


@pytest.mark.parametrize("folders", [(), ("x/y",)])
def test_a_planted_state_is_what_was_planted(folders: tuple[str, ...]) -> None:
    wanted = {"a/b": b"1", "a/c/d": b"", "e": b"2"}
    assert memory.files(memory.planted(wanted, folders)) == wanted | {f"{folder}/": b"" for folder in folders}
