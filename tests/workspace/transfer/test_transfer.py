"""A run lives at one place: killed at any call, a move leaves one whole workspace, and going on ends it well."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel.workspace import transfer
from satchel.workspace.base.errors import InvalidFile, LeaseHeld, NewerFormat, StorageFailed, UsageError
from satchel.workspace.inspect import define, lease, transfer_file
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore, Store, Syscalls
from satchel.workspace.transfer import TransferResult

AGENT = """
from satchel import agent, step

@step
def shout(text: str) -> str:
    return text.upper()

async def work(run, item):
    await run.output(f"{item.id}.txt", await shout(item.text))

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Demo", ["say a", "say b"])
    await run.todo.each(work)
"""
DO = {"move": transfer.move, "copy": transfer.copy}
CALLS = (
    "read",
    "tail",
    "version",
    "list",
    "folders",
    "replace",
    "create",
    "append",
    "rename",
    "settle",
    "remove",
    "tidy",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has completed. Its schemas are left out: they are many, and every opening writes them."""
    folder = tmp_path_factory.mktemp("made") / "w"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: moved-1\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(AGENT)
    assert satchel.run(folder).status == "completed"
    shutil.rmtree(folder / ".satchel/schemas")
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    (folder / "notes.txt").write_text("mine\n")
    return folder.rename(folder.with_name("kept"))  # so that its copies are not taken for a second run


@pytest.fixture
def source(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "a")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    return tmp_path / "b"


def contents(folder: Path) -> dict[str, bytes]:
    """What is to be the same at both places."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = (name for name in files if transfer_file.goes_along(name) and name != "moved.yaml")
    return {name: files[name].read_bytes() for name in names}


def remains(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {".satchel/lock"}


def lives(folder: Path) -> bool:
    try:
        define(DiskStore(folder))
    except UsageError as error:
        assert error.remedy, "whoever opens it is told what to type"
        return False
    return True


def go(kind: str, source: Store | Path, to: Store | Path) -> TransferResult:
    first, second = (DiskStore(place, Hasty()) if isinstance(place, Path) else place for place in (source, to))
    return DO[kind](first, second, by="me@here")


class Killed(BaseException):
    """As a kill: nothing catches it, and what comes after it does not happen."""


class Fuse:
    def __init__(self, after: int):
        self.left = after

    def tick(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed


class Hasty(Syscalls):
    """Makes nothing durable: a kill needs no fsync, and hundreds of them take long."""

    def sync(self, fd: int) -> None: ...

    def sync_folder(self, path: str) -> None: ...


class Dying(DiskStore):
    """Is killed before the call at which the fuse burns out, and does nothing after it."""

    def __init__(self, root: Path, fuse: Fuse):
        super().__init__(root, Hasty())
        self.fuse = fuse

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in CALLS:
            return found

        @functools.wraps(found)
        def call(*words: Any, **options: Any) -> Any:
            self.fuse.tick()
            return found(*words, **options)

        return call


def killed_at(number: int, kind: str, source: Path, target: Path) -> bool:
    fuse = Fuse(number)
    try:
        go(kind, Dying(source, fuse), Dying(target, fuse))
    except Killed:
        return True
    return False


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "every", [11, pytest.param(3, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("kind", ["move", "copy"])
def test_a_kill_leaves_two_that_live_or_none_that_is_whole(kind: str, every: int, made: Path, tmp_path: Path) -> None:
    whole = contents(made)
    number, states = 0, set()
    while True:
        source, target = tmp_path / f"{number}a", tmp_path / f"{number}b"
        shutil.copytree(made, source)
        target.mkdir()
        if not killed_at(number, kind, source, target):
            break
        here, there = lives(source), lives(target)
        states.add((here, there))
        if there:
            assert contents(target) == whole, f"killed at call {number}: it lives there and is not whole"
        else:
            assert contents(source) == whole, f"killed at call {number}: it lives nowhere else and is not whole"
        if kind == "move":
            assert not (here and there), f"killed at call {number}: both live"
            assert here or transfer_file.read_tombstone(DiskStore(source)), (
                f"killed at call {number}: nobody says where it is"
            )
        there_before = sum(there_now == whole.get(name) for name, there_now in contents(target).items())
        result = go(kind, source, target)
        assert contents(target) == whole and lives(target)
        assert result.was_done or result.files == 0 or result.copied <= len(whole) - there_before + 1
        if kind == "move":
            assert remains(source) == {"moved.yaml"}, f"killed at call {number}"
        else:
            assert contents(source) == whole
        shutil.rmtree(source)
        shutil.rmtree(target)
        number += every
    assert number > 100
    moved, copied = {(True, False), (False, False), (False, True)}, {(True, False), (True, True)}
    assert states <= (moved if kind == "move" else copied)
    assert every > 1 or len(states) == len(moved if kind == "move" else copied)


class Full(Syscalls):
    """A disk that is full from a certain write on."""

    def __init__(self, room: int):
        self.room = room

    def write(self, fd: int, data: bytes) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, data)


@pytest.mark.parametrize("room", [0, 1, 5, 9])
def test_a_full_disk_ends_it_with_a_remedy_and_harms_nothing(room: int, source: Path, target: Path) -> None:
    before = contents(source)
    with pytest.raises(StorageFailed, match="No space left") as raised:
        go("move", DiskStore(source), DiskStore(target, Full(room)))
    assert raised.value.remedy
    assert contents(source) == before and lives(source) and not lives(target)
    assert go("move", source, target).resumed == (room > 0)
    assert contents(target) == before and not lives(source)


class Lying(DiskStore):
    """Stores something else than what it is given, for one file."""

    def replace(self, path: str, data: bytes, **options: Any) -> str:
        return super().replace(path, data[:-1] if path == "notes.txt" else data, **options)


@pytest.mark.parametrize("kind", ["move", "copy"])
def test_what_did_not_arrive_is_taken_for_whole(kind: str, source: Path, target: Path) -> None:
    before = contents(source)
    with pytest.raises(StorageFailed, match=r"differs at .* from the file here"):
        go(kind, DiskStore(source), Lying(target))
    assert contents(source) == before and lives(source) and not lives(target)
    assert go(kind, source, target).copied < len(before)
    assert contents(target) == before


def test_a_moved_run_can_be_opened_where_it_was(source: Path, target: Path) -> None:
    result = go("move", source, target)
    assert result.is_clean and not result.notes and not result.left
    with pytest.raises(UsageError, match=f"is at another place now: me@here moved it to {target}"):
        look(DiskStore(source))
    with pytest.raises(UsageError, match="is at another place"), opened(DiskStore(source), "recover", Report()):
        pass
    with pytest.raises(UsageError, match="is at another place"):
        go("copy", source, target.parent / "c")
    with pytest.raises(UsageError, match="is at another place"):
        go("move", source, target.parent / "c")
    assert go("move", source, target).was_done
    assert satchel.run(target).status == "completed"


def test_a_run_can_not_come_back(source: Path, target: Path) -> None:
    before = contents(source)
    go("move", source, target)
    go("move", target, source)
    assert contents(source) == before and lives(source) and not lives(target)
    go("move", source, target)
    assert contents(target) == before and remains(source) == {"moved.yaml"}


def test_a_return_that_is_killed_says_both_are_elsewhere(source: Path, target: Path) -> None:
    before = contents(source)
    number = 0
    go("move", source, target)
    while killed_at(number, "move", target, source):
        assert not (lives(source) and lives(target))
        go("move", target, source)
        assert contents(source) == before and remains(target) == {"moved.yaml"}
        go("move", source, target)
        number += 37
    assert number


def test_what_was_saved_meanwhile_is_removed(source: Path, target: Path) -> None:
    """Between the tombstone and the last removal, by an editor that has had the file open, say."""

    class Edited(DiskStore):
        def remove(self, path: str, *, if_version: str | None = None) -> None:
            if path == "workspace.yaml":
                (source / "todo.md").write_text("- [ ] a late thought\n")
                (source / "late.txt").write_text("new\n")
            super().remove(path, if_version=if_version)

    result = go("move", Edited(source), DiskStore(target))
    assert sorted(result.left) == ["late.txt", "todo.md"]
    assert remains(source) == {"late.txt", "moved.yaml", "todo.md"}
    assert (source / "todo.md").read_text() == "- [ ] a late thought\n" and not lives(source)


def test_what_changes_under_the_copy_goes_in_two_versions(source: Path, target: Path) -> None:
    class Busy(DiskStore):
        changes = 2

        def read(self, path: str, **options: Any) -> Any:
            found = super().read(path, **options)
            if path == "notes.txt" and self.changes:
                self.changes -= 1
                (source / path).write_text(f"mine {self.changes}\n")
                (source / f"new{self.changes}.txt").write_text("x")
                (source / "new1.txt").unlink(missing_ok=self.changes == 0)
            return found

    go("copy", Busy(source), DiskStore(target))
    assert contents(target) == contents(source) and "new0.txt" in contents(target)


def test_a_file_that_changes_all_the_time_is_copied_for_ever(source: Path, target: Path) -> None:
    class Restless(DiskStore):
        number = 0

        def read(self, path: str, **options: Any) -> Any:
            found = super().read(path, **options)
            if path == "notes.txt":
                self.number += 1
                (source / path).write_text("x" * self.number)
            return found

    with pytest.raises(UsageError, match=r"keep changing: notes\.txt"):
        go("move", Restless(source), DiskStore(target))
    assert lives(source) and not lives(target)


def test_a_half_copy_keeps_what_the_source_has_no_more(source: Path, target: Path) -> None:
    assert killed_at(150, "move", source, target)
    assert (target / "notes.txt").exists()
    (source / "notes.txt").unlink()
    (source / "agent.py").write_text(AGENT + "# changed\n")
    before = contents(source)
    assert go("move", source, target).resumed
    assert contents(target) == before


@pytest.mark.usefixtures("holder_stays")
def test_two_processes_have_it(source: Path, target: Path) -> None:
    with lease.held(DiskStore(source)):
        for kind in DO:
            with pytest.raises(LeaseHeld):
                go(kind, source, target)
    with DiskStore(target).lock(), pytest.raises(LeaseHeld):
        go("move", source, target)
    assert lives(source) and not lives(target)


def strange(folder: Path) -> None:
    (folder / "x").write_text("mine")


def another(folder: Path) -> None:
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: other-1\nagent: agent.py:main\n")


def half_of_another(folder: Path) -> None:
    half = transfer_file.Manifest(run_id="other-1", kind="copy", source="/else", to=str(folder), began="", by="")
    DiskStore(folder).create(transfer_file.PATH, transfer_file.encode(half))


def left_by_another(folder: Path) -> None:
    stone = transfer_file.Tombstone(run_id="other-1", to="/else", at="2026-01-01T00:00:00Z", by="x", satchel="0")
    (folder / "moved.yaml").write_bytes(transfer_file.encode_tombstone(stone))


@pytest.mark.parametrize(
    "holding", [strange, another, half_of_another, left_by_another], ids=lambda each: each.__name__
)
def test_what_a_destination_holds_is_overwritten(holding: Callable[[Path], None], source: Path, target: Path) -> None:
    holding(target)
    there = remains(target)
    for kind in DO:
        with pytest.raises(UsageError) as raised:
            go(kind, source, target)
        assert raised.value.remedy and remains(target) == there and lives(source)


def test_a_copy_is_made_into_a_copy_of_another_place(source: Path, target: Path, made: Path) -> None:
    go("copy", source, target)
    assert go("copy", source, target).was_done
    with pytest.raises(UsageError, match="this run already"):
        go("copy", made, target)
    with pytest.raises(UsageError, match="this run already"):
        go("move", source, target)


def test_one_place_is_both_ends(source: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(source)
    for typed in (source, link, source / "inside", link / "inside", tmp_path):
        with pytest.raises(UsageError), transfer.destination(str(typed), DiskStore(source)) as to:
            go("move", DiskStore(source), to)
    assert lives(source) and not (source / "inside").exists()


def test_a_refusal_leaves_folders_behind(source: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), transfer.destination(str(tmp_path / "x/y/z"), DiskStore(source)):
        raise RuntimeError
    assert not (tmp_path / "x").exists()
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UsageError, match="is a file"),
        transfer.destination(str(tmp_path / "file/y"), DiskStore(source)),
    ):
        pass


def link(folder: Path) -> None:
    (folder / "outputs/link").symlink_to("/etc/hostname")


def linked_folder(folder: Path) -> None:
    (folder / "secrets").symlink_to("/etc")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def hidden_name(folder: Path) -> None:
    (folder / "what?.txt").write_text("x")


def not_utf8(folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")


@pytest.mark.parametrize("planted", [link, linked_folder, pipe, hidden_name, not_utf8], ids=lambda each: each.__name__)
def test_what_a_store_does_not_show_is_silently_lost(
    planted: Callable[[Path], None], source: Path, target: Path
) -> None:
    planted(source)
    for kind in DO:
        with pytest.raises(UsageError, match="can't be transferred") as raised:
            go(kind, source, target)
        assert raised.value.remedy and lives(source) and remains(target) == set()


def test_what_belongs_to_a_machine_goes_along(source: Path, target: Path) -> None:
    staying = {".satchel/lease.json", ".satchel/tmp/1-2", ".satchel/run.log", "__pycache__/agent.pyc"}
    for name in staying:
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("{}")
    go("move", source, target)
    assert not remains(target) & staying
    assert remains(source) == {"moved.yaml"}


def test_a_secret_is_readable_by_all_after_a_move(source: Path, target: Path) -> None:
    (source / ".env").write_text("TOKEN=x")
    (source / ".env").chmod(0o600)
    (source / "tool.sh").write_text("#!/bin/sh\n")
    (source / "tool.sh").chmod(0o755)
    os.utime(source / "notes.txt", (1_700_000_000, 1_700_000_000))
    go("move", source, target)
    modes = [(target / name).stat().st_mode & 0o777 for name in (".env", "tool.sh")]
    assert modes == [0o600, 0o755] and (target / "notes.txt").stat().st_mtime == 1_700_000_000


def test_a_crashed_run_changes_on_its_way(source: Path, target: Path) -> None:
    with opened(DiskStore(source), "recover", Report()):
        pass  # left without closing it
    before = contents(source)
    result = go("move", source, target)
    assert not result.is_clean and "did not close it" in result.notes[0] and contents(target) == before
    assert satchel.run(target).status == "completed"


def test_a_damaged_run_can_not_be_carried_to_where_it_is_mended(source: Path, target: Path) -> None:
    segment = next((source / "journal").iterdir())
    segment.write_bytes(b"{}\n" + segment.read_bytes())
    for old in (source / "checkpoints").glob("*.json"):
        old.unlink()
    before = contents(source)
    result = go("copy", source, target)
    assert not result.is_clean and "can't be opened as it is" in result.notes[0] and contents(target) == before


def test_a_newer_or_unreadable_definition_is_guessed_at(source: Path, target: Path) -> None:
    (source / "workspace.yaml").write_text("format: 99\nrun_id: moved-1\nagent: agent.py:main\n")
    with pytest.raises(NewerFormat):
        go("move", source, target)
    (source / "workspace.yaml").write_text("a: b: c\n")
    with pytest.raises(InvalidFile):
        go("move", source, target)
    (source / "workspace.yaml").unlink()
    with pytest.raises(UsageError, match="is not a workspace"):
        go("move", source, target)
    assert remains(target) == set()


def test_a_save_that_was_displaced_is_lost(source: Path, target: Path) -> None:
    """What a person saved at the moment of a crash lies in `.satchel/displaced`, and only the place where it was made
    can tell it from the run's own."""
    folder = source / ".satchel/displaced"
    folder.mkdir()
    state = (source / "state.json").read_text()
    saved = state.replace('"run_id"', '"x-mine": 1, "run_id"')
    (folder / "1-1-1-1-1-state.json").write_text(saved)
    go("move", source, target)
    assert (target / "state.json").read_text() == saved and remains(source) == {"moved.yaml"}


def test_a_file_called_moved_yaml_of_a_person_stops_a_run(source: Path, target: Path) -> None:
    for text in ("furniture: all of it\n", "a: b: c\n", ""):
        (source / "moved.yaml").write_text(text)
        assert lives(source)
    left_by_another(source)
    assert lives(source), "the tombstone of another run says nothing about this one"
    (source / "moved.yaml").write_text("furniture: all of it\n")
    go("copy", source, target)
    assert (target / "moved.yaml").read_text() == "furniture: all of it\n"


def test_the_hash_of_all_is_not_that_of_sha256sum(source: Path, target: Path) -> None:
    import hashlib

    lines = sorted((name, hashlib.sha256(data).hexdigest()) for name, data in contents(source).items())
    expected = hashlib.sha256("".join(f"{sha}  {name}\n" for name, sha in lines).encode()).hexdigest()
    assert go("move", source, target).sha256 == expected
    stone = transfer_file.read_tombstone(DiskStore(source))
    assert stone and stone.sha256 == expected and stone.to == str(target)


@pytest.fixture
def host() -> Iterator[str]:
    yield socket.gethostname()
