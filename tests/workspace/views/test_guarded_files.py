"""Files that are replaced while a person saves them: no save is overwritten unseen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from satchel.workspace.inbound import rejection
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import DiskStore
from satchel.workspace.store.disk_store import DISPLACED
from satchel.workspace.store.syscalls import Syscalls
from satchel.workspace.views import guarded_files as guarding
from satchel.workspace.views.guarded_files import WAITS, ViewGuard

pytestmark = pytest.mark.usefixtures("somebody_saves")

NAME = "todo.md"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guard(tmp_path: Path, clock: Clock) -> ViewGuard:
    return ViewGuard(DiskStore(tmp_path), clock)


def looked(guard: ViewGuard, clock: Clock) -> list[str]:
    """Twice, so far apart that what is saved holds still."""
    list(guard.look())
    clock.now += WAITS.closed + 0.01
    return list(guard.look())


def test_a_saved_file_is_replaced(guard: ViewGuard, clock: Clock, tmp_path: Path) -> None:
    guard.replace(NAME, b"1")
    (tmp_path / NAME).write_bytes(b"mine")
    guard.replace(NAME, b"2")
    assert (tmp_path / NAME).read_bytes() == b"mine" and looked(guard, clock) == [NAME]
    guard.take(NAME, DiskStore(tmp_path).version(NAME) or "")
    guard.replace(NAME, b"3")
    assert (tmp_path / NAME).read_bytes() == b"3" and looked(guard, clock) == []


def test_what_is_saved_into_a_file_that_was_displaced_is_lost(guard: ViewGuard, clock: Clock, tmp_path: Path) -> None:
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b") as editor:
        guard.replace(NAME, b"2")
        editor.write(b"mine")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"
    guard.replace(NAME, b"3")
    assert (tmp_path / NAME).read_bytes() == b"mine", "nobody has merged it yet"


class Saving(Syscalls):
    """A person saves the file right before the run opens it to add to it, or right after it has."""

    def __init__(self, path: Path, when: str, is_in_place: bool):
        self.path, self.when, self.is_in_place = path, when, is_in_place

    def save(self) -> None:
        new = self.path if self.is_in_place else self.path.with_suffix(".new")
        new.write_bytes(b"mine")
        new.rename(self.path)
        self.when = ""

    def open_append(self, path: str) -> int:
        if self.when == "before":
            self.save()
        return super().open_append(path)

    def close(self, fd: int) -> None:
        super().close(fd)
        if self.when == "after" and self.path.exists() and self.path.read_bytes() == b"1\n2\n":
            self.save()

    def link(self, source: str, target: str) -> None:
        if self.when == "first":
            self.save()
        super().link(source, target)


@pytest.mark.parametrize("is_in_place", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_save_in_the_moment_of_an_append_counts_as_written_by_the_run(
    clock: Clock, tmp_path: Path, when: str, is_in_place: bool
) -> None:
    system = Saving(tmp_path / NAME, "", is_in_place)
    guard = ViewGuard(DiskStore(tmp_path, system), clock)
    guard.append(NAME, b"1\n")
    system.when = when
    guard.append(NAME, b"2\n")
    assert looked(guard, clock) == [NAME] and guard.is_left(NAME)
    guard.append(NAME, b"3\n")
    assert (tmp_path / NAME).read_bytes() == b"mine"


def test_a_save_right_before_the_first_append_counts_as_written_by_the_run(clock: Clock, tmp_path: Path) -> None:
    guard = ViewGuard(DiskStore(tmp_path, Saving(tmp_path / NAME, "first", True)), clock)
    guard.append(NAME, b"1\n")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells who has a file open")
def test_what_is_saved_into_a_file_that_was_removed_is_lost(guard: ViewGuard, clock: Clock, tmp_path: Path) -> None:
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b") as editor:
        guard.remove(NAME)
        editor.write(b"mine")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"


def test_a_save_before_a_removed_file_is_written_again_is_not_seen(
    guard: ViewGuard, clock: Clock, tmp_path: Path
) -> None:
    """As vim saves, before the run has written the file again."""
    guard.replace(NAME, b"1")
    (tmp_path / NAME).rename(tmp_path / f"{NAME}~")
    assert list(guard.look()) == [NAME]
    guard.lose(NAME)
    assert list(guard.look()) == [], "it is known to be away"
    (tmp_path / NAME).write_bytes(b"mine")
    assert looked(guard, clock) == [NAME]
    guard.replace(NAME, b"2")
    assert (tmp_path / NAME).read_bytes() == b"mine"


def test_what_was_put_back_is_lost_with_the_next_save(guard: ViewGuard, clock: Clock, tmp_path: Path) -> None:
    """Its editor had read the file before, so the save does not hold it."""
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b") as editor:
        guard.replace(NAME, b"2")
        editor.write(b"mine")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"
    (tmp_path / NAME).write_bytes(b"other")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"other", "which is taken first"
    guard.take(NAME, DiskStore(tmp_path).version(NAME) or "")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"
    guard.take(NAME, DiskStore(tmp_path).version(NAME) or "")
    guard.replace(NAME, b"3")
    assert looked(guard, clock) == [] and (tmp_path / NAME).read_bytes() == b"3", "once"
    guard.clear()
    assert not (tmp_path / DISPLACED).exists()


def test_what_is_half_saved_into_a_displaced_file_is_put_back(guard: ViewGuard, clock: Clock, tmp_path: Path) -> None:
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b", buffering=0) as editor:
        guard.replace(NAME, b"2")
        editor.write(b"mi")
        list(guard.look())
        clock.now += WAITS.closed / 2
        editor.write(b"ne")
        list(guard.look())
        clock.now += WAITS.closed / 2 + 0.01
        assert list(guard.look()) == [] and (tmp_path / NAME).read_bytes() == b"2"
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"


def test_an_editor_that_has_truncated_a_displaced_file_is_taken_at_its_word(
    guard: ViewGuard, clock: Clock, tmp_path: Path
) -> None:
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b", buffering=0) as editor:
        guard.replace(NAME, b"2")
        editor.truncate(0)
        assert looked(guard, clock) == [] and (tmp_path / NAME).read_bytes() == b"2"
        editor.write(b"mine")
    assert looked(guard, clock) == [NAME]


def test_a_later_save_takes_the_place_of_one_in_a_displaced_file(
    guard: ViewGuard, clock: Clock, tmp_path: Path
) -> None:
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b") as editor:
        guard.replace(NAME, b"2")
        editor.write(b"first")
    (tmp_path / NAME).write_bytes(b"second")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"second"
    guard.take(NAME, DiskStore(tmp_path).version(NAME) or "")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"first"


class Meanwhile(Syscalls):
    """Somebody saves between the look and the replacement."""

    def __init__(self, call: str, path: Path, data: bytes | None):
        self._call, self._path, self._data = call, path, data

    def _happens(self, call: str) -> None:
        if call == self._call:
            self._call = ""
            if self._data is None:
                self._path.unlink()
            else:
                new = self._path.with_name("new")
                new.write_bytes(self._data)
                new.replace(self._path)

    def exchange(self, one: str, other: str) -> bool:
        self._happens("exchange")
        return super().exchange(one, other)

    def link(self, source: str, target: str) -> None:
        self._happens("link")
        super().link(source, target)


def test_a_save_between_the_look_and_the_exchange_is_lost(clock: Clock, tmp_path: Path) -> None:
    ViewGuard(DiskStore(tmp_path), clock).replace(NAME, b"1")
    store = DiskStore(tmp_path, Meanwhile("exchange", tmp_path / NAME, b"mine"))
    guard = ViewGuard(store, clock)
    guard.versions[NAME] = store.version(NAME) or ""
    guard.replace(NAME, b"2")
    assert (tmp_path / NAME).read_bytes() == b"2"
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"


def test_a_save_while_another_one_is_put_back_is_lost(clock: Clock, tmp_path: Path) -> None:
    system = Meanwhile("", tmp_path / NAME, b"second")
    guard = ViewGuard(DiskStore(tmp_path, system), clock)
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b") as editor:
        guard.replace(NAME, b"2")
        editor.write(b"first")
    system._call = "exchange"
    looked(guard, clock)
    assert (tmp_path / NAME).read_bytes() == b"first"
    guard.take(NAME, DiskStore(tmp_path).version(NAME) or "")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"second"


def test_a_file_that_comes_while_a_removed_one_is_restored_is_an_error_or_overwritten(
    clock: Clock, tmp_path: Path
) -> None:
    guard = ViewGuard(DiskStore(tmp_path, Meanwhile("link", tmp_path / NAME, b"mine")), clock)
    guard.replace(NAME, b"1")
    assert (tmp_path / NAME).read_bytes() == b"mine" and looked(guard, clock) == [NAME]


def test_a_file_that_is_removed_at_the_exchange_stays_away(clock: Clock, tmp_path: Path) -> None:
    guard = ViewGuard(DiskStore(tmp_path, Meanwhile("exchange", tmp_path / NAME, None)), clock)
    guard.replace(NAME, b"1")
    guard.replace(NAME, b"2")
    assert looked(guard, clock) == [NAME]
    guard.lose(NAME)
    guard.replace(NAME, b"3")
    assert (tmp_path / NAME).read_bytes() == b"3" and looked(guard, clock) == []


def test_a_save_at_the_place_of_a_removed_file_is_not_seen(guard: ViewGuard, clock: Clock, tmp_path: Path) -> None:
    guard.replace(NAME, b"1")
    (tmp_path / NAME).unlink()
    assert looked(guard, clock) == [NAME]
    guard.lose(NAME)
    (tmp_path / NAME).write_bytes(b"mine")
    guard.replace(NAME, b"2")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"


def test_a_displaced_file_is_kept_for_ever_or_not_for_a_minute(guard: ViewGuard, clock: Clock, tmp_path: Path) -> None:
    for number in range(300):
        guard.replace(NAME, b"%d" % number)
    assert len(list((tmp_path / DISPLACED).iterdir())) == 299
    clock.now += 59
    list(guard.look())
    assert len(list((tmp_path / DISPLACED).iterdir())) == 299
    clock.now += 2
    list(guard.look())
    assert not (tmp_path / DISPLACED).exists()


def test_long_plans_fill_the_disk(guard: ViewGuard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "_KEPT_BYTES", 1000)
    for number in range(20):
        guard.replace(NAME, b"%100d" % number)
    assert len(list((tmp_path / DISPLACED).iterdir())) == 10


def test_an_unmerged_save_is_cleared_away_at_the_close(guard: ViewGuard, tmp_path: Path) -> None:
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b") as editor:
        guard.replace(NAME, b"2")
        guard.replace(NAME, b"3")
        editor.write(b"mine")
    guard.clear()
    assert [path.read_bytes() for path in (tmp_path / DISPLACED).iterdir()] == [b"mine"]
    rejection.put_back_displaced(DiskStore(tmp_path), Moment(run_id="r"))
    assert not (tmp_path / DISPLACED).exists()
    assert b"mine" in {path.read_bytes() for path in tmp_path.glob("todo*.md")}


def test_an_edit_that_was_merged_is_put_back_after_a_crash(guard: ViewGuard, tmp_path: Path) -> None:
    """Then it would be merged once more, and its items be there twice."""
    guard.replace(NAME, b"1")
    (tmp_path / NAME).write_bytes(b"- [ ] mine\n")
    guard.take(NAME, DiskStore(tmp_path).version(NAME) or "")
    guard.replace(NAME, b"- [ ] merged\n")
    rejection.put_back_displaced(DiskStore(tmp_path), Moment(run_id="r"))
    assert (tmp_path / NAME).read_bytes() == b"- [ ] merged\n" and not (tmp_path / DISPLACED).exists()
    assert [path.name for path in tmp_path.glob("todo*")] == [NAME]


def test_the_path_of_a_deep_agent_is_too_long_for_a_name(guard: ViewGuard, clock: Clock, tmp_path: Path) -> None:
    path = "agents/a-rather-long-name/" * 12 + NAME
    guard.replace(path, b"1")
    with (tmp_path / path).open("r+b") as editor:
        guard.replace(path, b"2")
        editor.write(b"mine")
    assert looked(guard, clock) == [path] and (tmp_path / path).read_bytes() == b"mine"


class NoExchange(Syscalls):
    def exchange(self, one: str, other: str) -> bool:
        return False


def test_a_system_without_an_exchange_loses_what_an_editor_holds_open(clock: Clock, tmp_path: Path) -> None:
    guard = ViewGuard(DiskStore(tmp_path, NoExchange()), clock)
    guard.replace(NAME, b"1")
    with (tmp_path / NAME).open("r+b") as editor:
        guard.replace(NAME, b"2")
        editor.write(b"mine")
    assert looked(guard, clock) == [NAME] and (tmp_path / NAME).read_bytes() == b"mine"


@pytest.fixture(autouse=True)
def no_leftovers() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    yield
    if before:
        assert len(os.listdir("/proc/self/fd")) <= len(before) + 1, "descriptors are left open"
