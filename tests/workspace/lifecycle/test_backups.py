"""A backup follows a run on a disk, can be opened at any time, and fences off an owner that comes back."""

from __future__ import annotations

import asyncio
import builtins
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from waits import PATIENCE

import satchel
from satchel import UsageError
from satchel.errors import InvalidFile, LeaseHeld, StorageFailed
from satchel.runtime.api import Replication
from satchel.runtime.api.transport import BackupEvent
from satchel.runtime.live.watch import BackupNews
from satchel.runtime.present import backup_lines
from satchel.workspace import journal
from satchel.workspace.base import DEFINITION
from satchel.workspace.formats import definition
from satchel.workspace.inspect import look, transfer_file
from satchel.workspace.journal import segments
from satchel.workspace.lifecycle import Follower, Replica, Workspace, backup_place
from satchel.workspace.store import DiskStore, open_store
from satchel.workspace.transfer import restore, transfer

AGENT = """
import os
from satchel import Key, agent, effect, step

HERE = os.path.dirname(__file__)

@step
def shout(text: str) -> str:
    return text.upper()

@effect
def send(text: str) -> str:
    with open(os.environ["SENT"], "a") as file:
        file.write(text + "\\n")
    return f"sent {text}"

async def work(run, item):
    await send(await shout(item.text))
    if os.environ.get("DIES_AT") == item.text:
        raise Killed

class Killed(BaseException):
    pass

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Letters", ["a", "b", "c", "d"])
    await run.todo.each(work)
"""

ELSEWHERE = r"restored from its backup to .*new"
OF_A_PLACE = re.compile(r"\.satchel/(schemas|lock|backup)|__py")


class Place:
    """A run on a disk, its backup, and what its effect has done."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.run, self.copy, self.new = folder, folder / "run", folder / "copy", folder / "new"
        for each in (self.run, self.copy, self.new):
            each.mkdir()
        self.sent_file = folder / "sent"
        self._patch = monkeypatch
        monkeypatch.setenv("SENT", str(self.sent_file))
        self.write(AGENT)

    def write(self, agent: str, more: str = "") -> None:
        (self.run / DEFINITION).write_text(f"format: 1\nrun_id: letters-1\nagent: agent.py:main\n{more}")
        (self.run / "agent.py").write_text(agent)

    @property
    def sent(self) -> list[str]:
        return self.sent_file.read_text().split() if self.sent_file.exists() else []

    def replica(self, folder: Path | None = None, to: Any = None) -> Replica:
        return Replica(DiskStore(folder or self.run), to or DiskStore(self.copy), "letters-1")

    def dies_at(self, item: str) -> None:
        """The process ends in the middle of an item, after its effect."""
        self._patch.setenv("DIES_AT", item)
        with pytest.raises(BaseException) as raised:
            satchel.run(self.run)
        assert type(raised.value).__name__ == "Killed"
        self._patch.delenv("DIES_AT")

    def follow(self) -> None:
        replica = self.replica()
        replica.begin()
        replica.complete(is_last=True)

    def lose(self, seen: str = "b", done: str = "c") -> None:
        """The backup has the run until an item, and the machine is lost after another one."""
        self.dies_at(seen)
        self.follow()
        self.dies_at(done)

    def restore(self, **how: Any) -> None:
        restore(DiskStore(self.copy), DiskStore(self.new), by="me", **how)

    def answer(self, decision: str, **more: Any) -> None:
        handle = satchel.open(self.new)
        handle.answer(decision, handle.questions()[0].id, **more)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_copy_can_t_be_opened_while_it_follows(place: Place) -> None:
    """After each piece of the journal the copy shows the moment that the run had there."""
    place.dies_at("c")
    whole = journal.read(DiskStore(place.run), after=0).lines
    lines = (place.run / "journal/000000000001.jsonl").read_bytes().splitlines(keepends=True)
    part = place.folder / "part"
    shutil.copytree(place.run, part)
    shutil.rmtree(part / "journal")
    (part / "journal").mkdir()
    grows = part / "journal/000000000001.jsonl"
    grows.write_bytes(b"".join(lines[:3]))
    for path in ("todo.md", "state.json"):
        (part / path).unlink(missing_ok=True)
    shutil.rmtree(part / "checkpoints", ignore_errors=True)
    replica = place.replica(part)
    replica.begin()
    for number in range(4, len(lines) + 1):
        grows.write_bytes(b"".join(lines[:number]) + b'{"seq":')  # the next one is being written
        assert replica.follow() == 1
        seen = look(DiskStore(place.copy))
        assert (seen.moment.seq, seen.moment.crc) == (number, whole[number - 1].crc)
    assert len(segments(replica.to)) == len(lines) - 2
    grows.write_bytes(b"".join(lines))
    replica.complete(is_last=True)
    assert len(segments(replica.to)) == 2  # the segment, and its last piece
    assert look(DiskStore(place.copy)).moment.crc == whole[-1].crc


def test_the_copy_has_other_files_than_the_run(place: Place) -> None:
    assert satchel.run(place.run).status == "completed"
    place.follow()
    there = {path.relative_to(place.copy) for path in place.copy.rglob("*") if path.is_file()}
    here = {path.relative_to(place.run) for path in place.run.rglob("*") if path.is_file()}
    assert {str(path) for path in there - here} == {"backup.json"} | {
        f"journal/{first:012d}.jsonl" for first in segments(DiskStore(place.copy))[1:]
    }
    assert {
        str(path) for path in here - there if not re.match(r"\.satchel/(schemas|lock|backup)|__py", str(path))
    } == set()


def test_records_are_torn_from_their_group(place: Place) -> None:
    """A piece can begin with a line that leaves things out: it repeats the lines from one on that says everything."""
    place.dies_at("d")
    segment = place.run / "journal/000000000001.jsonl"
    lines = segment.read_bytes().splitlines(keepends=True)
    replica = place.replica()
    segment.write_bytes(b"".join(lines[:5]))
    for path in ("todo.md", "state.json"):
        (place.run / path).unlink(missing_ok=True)
    shutil.rmtree(place.run / "checkpoints", ignore_errors=True)
    replica.begin()
    segment.write_bytes(b"".join(lines))
    replica.follow()
    assert (place.copy / "journal/000000000006.jsonl").read_bytes() == b"".join(lines)


class Losing(DiskStore):
    """A place whose answers are lost from time to time, after the request or before it."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.fails: Callable[[str], str] = lambda path: ""

    def create(self, path: str, data: bytes) -> str:
        match self.fails(path):
            case "before":
                raise StorageFailed("lost", path=path)
            case "after":
                super().create(path, data)
                raise StorageFailed("lost", path=path)
        return super().create(path, data)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("is_same", [True, False])
def test_an_answer_is_lost(place: Place, when: str, is_same: bool) -> None:
    place.dies_at("a")
    to = Losing(place.copy)
    replica = place.replica(to=to)
    replica.begin()
    place.dies_at("b")
    to.fails = lambda path: when if path.startswith("journal/") else ""
    with pytest.raises(StorageFailed):
        replica.follow()
    to.fails = lambda path: ""
    place.dies_at("c")
    if not is_same:
        replica = place.replica(to=to)
        replica.begin()
    replica.follow()
    replica.complete()
    assert look(to).moment.crc == look(DiskStore(place.run)).moment.crc


def test_two_processes_follow_one_run(place: Place) -> None:
    one, other = place.replica(), place.replica()
    one.begin()
    place.dies_at("a")
    one.follow()
    other.begin()
    place.dies_at("b")
    one.follow()
    place.dies_at("c")
    other.complete(is_last=True)
    one.complete(is_last=True)
    assert look(DiskStore(place.copy)).moment.crc == look(DiskStore(place.run)).moment.crc


def seqs(folder: Path) -> list[int]:
    return [line.seq for line in journal.read(DiskStore(folder), after=0).lines]


class Growing:
    """A run whose journal grows by some lines at a time."""

    def __init__(self, place: Place):
        place.dies_at("d")
        self.segment = place.run / "journal/000000000001.jsonl"
        self.lines = self.segment.read_bytes().splitlines(keepends=True)
        for path in ("todo.md", "state.json"):
            (place.run / path).unlink(missing_ok=True)
        shutil.rmtree(place.run / "checkpoints", ignore_errors=True)
        self.at = 0
        self.grow(3)

    def grow(self, number: int) -> None:
        self.at = min(len(self.lines), self.at + number)
        self.segment.write_bytes(b"".join(self.lines[: self.at]))

    @staticmethod
    def arrives_late(replica: Replica, name: str, before: Callable[[], None]) -> None:
        """Something happens just before the next call of this method."""
        real = getattr(replica, name)

        def call(*args: Any) -> Any:
            setattr(replica, name, real)
            before()
            return real(*args)

        setattr(replica, name, call)


def test_a_faster_process_that_follows_is_taken_for_another_owner(place: Place) -> None:
    run, one, other = Growing(place), place.replica(), place.replica()
    one.begin()
    other.begin()

    def is_faster() -> None:
        run.grow(2)
        other.follow()

    run.grow(2)
    run.arrives_late(one, "_send", is_faster)
    one.follow()
    assert (one.seq, other.seq) == (7, 7)


def test_a_slower_process_that_follows_hides_records(place: Place) -> None:
    """It puts a piece at a name that another one has freed, and the piece ends behind the next one."""
    run, one, other = Growing(place), place.replica(), place.replica()
    one.begin()
    other.begin()
    for _ in range(3):
        run.grow(2)
        one.follow()
    one.complete(is_last=True)
    run.grow(2)
    other.follow()
    other.complete()
    assert seqs(place.copy) == [*range(1, 12)]
    run.grow(1)
    one.complete()
    assert seqs(place.copy) == [*range(1, 13)]


def test_files_of_open_items_follow_when_nothing_is_committed(place: Place) -> None:
    """They come and go with each item, and in a bucket each costs two requests."""
    Growing(place)
    replica = place.replica()
    replica.begin()
    of_items = ("steps/9-x/01-write.json", "agents/a/agents/b/steps/9-x/01-write.json")
    for path in (*of_items, "outputs/steps/01-write.json"):
        (place.run / path).parent.mkdir(parents=True)
        (place.run / path).write_text("{}")
    replica.shows = True
    replica.complete()
    assert [(place.copy / path).exists() for path in (*of_items, "outputs/steps/01-write.json")] == [False, False, True]
    replica.complete()
    assert all((place.copy / path).exists() for path in of_items)


def test_what_was_sent_during_a_look_at_the_files_is_removed_after_it(place: Place) -> None:
    """A large result, for example, that a record already refers to."""
    place.write(AGENT.replace("text.upper()", "text.upper() * 70_000"))
    place.dies_at("b")
    replica = place.replica()
    replica.begin()
    Growing.arrives_late(replica, "follow", lambda: place.dies_at("c"))
    replica.complete()
    blobs = sorted(path.name for path in (place.run / ".satchel/blobs").iterdir())
    assert blobs == sorted(path.name for path in (place.copy / ".satchel/blobs").iterdir())


def test_a_lost_owner_that_has_no_new_records_overwrites_files_of_the_restored_run(place: Place) -> None:
    place.dies_at("b")
    replica = place.replica()
    replica.begin()
    place.restore()
    place.run.joinpath("notes.md").write_text("of the lost machine")
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        replica.complete()
    assert not (place.copy / "notes.md").exists()


def test_a_workspace_below_the_run_shows_more_than_its_journal(place: Place) -> None:
    """The copy may end anywhere, and the workspace grows while it is sent: it must not show what its journal lacks."""
    place.dies_at("b")
    order = list[str]()
    with satchel.hold(str(place.run / "memory"), kind="notes") as held:

        def adds() -> None:
            held.append([{"role": "user", "content": "x"}])
            number = f"{len(held.rows())}"
            held.put(f"{number}.md", number * 70_000)  # too large for a record
            (place.run / "memory/shown.txt").write_text(number)  # what shows it may be written later

        adds()
        replica = place.replica()
        replica.begin()
        adds()
        real = replica.to.replace

        def replace(path: str, data: bytes, **how: Any) -> Any:
            order.append(path)
            return real(path, data, **how)

        replica.to.replace = replace  # type: ignore[method-assign]
        Growing.arrives_late(replica, "follow", adds)
        replica.complete()
    order = [path for path in order if path.startswith("memory/")]
    kinds = ["blobs" if "/blobs/" in path else "journal" if "/journal/" in path else "shown" for path in order]
    assert [*dict.fromkeys(kinds)] == ["blobs", "journal", "shown"] == sorted({*kinds})
    copied = place.folder / "copied"
    shutil.copytree(place.copy / "memory", copied)
    with satchel.hold(str(copied), kind="notes", adopt=True) as held:
        assert [len(held.rows()), *(each.path for each in held.list())] == [3, "1.md", "2.md", "3.md"]


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "grown"])
def test_a_slower_process_that_follows_takes_rows_of_a_held_workspace_away(place: Place, is_new: bool) -> None:
    place.dies_at("b")
    one, other = place.replica(), place.replica()
    one.begin()
    other.begin()
    with satchel.hold(str(place.run / "memory"), kind="notes") as held:

        def is_faster() -> None:
            held.append([{"n": 3}], log="rows")
            other.complete()

        held.append([{"n": 1}], log="rows")
        if not is_new:
            one.complete()
            held.append([{"n": 2}], log="rows")
        for name in ("create", "replace"):
            late(one.to, name, "memory/journal/000000000001.jsonl", is_faster)
        one.complete()
        journals = [each / "memory/journal/000000000001.jsonl" for each in (place.run, place.copy)]
        assert journals[0].read_bytes() == journals[1].read_bytes()


def test_a_held_workspace_that_another_process_has_sent_is_called_contended(place: Place) -> None:
    """To a storage of fsspec that creates a file only once."""
    stores = [open_store(f"memory://{place.folder.name}") for _ in range(2)]
    for each in stores:
        each._fs.exclusive = {"mode": "create"}  # type: ignore[attr-defined]
    place.dies_at("b")
    one, other = (place.replica(to=each) for each in stores)
    one.begin()
    other.begin()
    with satchel.hold(str(place.run / "memory"), kind="notes") as held:
        held.append([{"n": 1}], log="rows")
    other.complete()
    one.complete()
    path = "memory/journal/000000000001.jsonl"
    assert stores[0].read(path).data == (place.run / path).read_bytes()


@pytest.mark.parametrize("when", ["version", "replace"])
def test_a_lost_owner_takes_rows_of_a_held_workspace_away(place: Place, when: str) -> None:
    place.dies_at("b")
    replica = place.replica()
    replica.begin()
    with satchel.hold(str(place.run / "memory"), kind="notes") as held:
        held.append([{"n": 1}], log="rows")
        replica.complete()
        held.append([{"n": "of the lost machine"}], log="rows")
    path = "memory/journal/000000000001.jsonl"

    def new_owner() -> None:
        place.restore()
        (place.copy / path).write_bytes(b"of the new owner")

    late(replica.to, when, path, new_owner)
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        replica.complete()
    assert (place.copy / path).read_bytes() == b"of the new owner"


def late(store: Any, name: str, of: str, before: Callable[[], None]) -> None:
    """Something happens just before this method is called for the path for the first time."""
    real = getattr(store, name)

    def call(path: str, *more: Any, **how: Any) -> Any:
        if path == of:
            setattr(store, name, real)
            before()
        return real(path, *more, **how)

    setattr(store, name, call)


def test_what_no_copy_can_have_is_left_out_in_silence(place: Place) -> None:
    place.write(AGENT, following(place))
    with satchel.hold(str(place.run / "threads/user:1"), kind="notes") as held:
        held.put("a.md", "mine")
    os.symlink("a", place.run / "link")
    assert satchel.run(place.run).status == "completed"
    note = note_of(place.run)
    why = "left out of it: link, threads/user:1 (a link, or a name that is not valid on every system)"
    assert (note.state, note.why) == ("ended", why)
    assert note.why in backup_lines(satchel.open(place.run).status())
    os.remove(place.run / "link")
    shutil.rmtree(place.run / "threads")
    told = list[BackupEvent]()
    Replication(str(place.run), None, told.append, once=True).run()
    assert [each.text for each in told] == [f"record {note.seq} is at {place.copy}"]


def test_what_a_link_leads_to_is_removed_from_the_copy(place: Place) -> None:
    place.dies_at("a")
    (place.run / "data").mkdir()
    (place.run / "data/a.csv").write_text("1,2")
    replica = place.replica()
    replica.begin()
    (place.run / "data").rename(place.folder / "data")
    os.symlink(place.folder / "data", place.run / "data")
    replica.complete()
    assert "data" in replica.left_out and (place.copy / "data/a.csv").exists()


def test_a_journal_behind_a_link_has_half_a_backup(place: Place) -> None:
    place.dies_at("a")
    (place.run / "journal").rename(place.folder / "journal")
    os.symlink(place.folder / "journal", place.run / "journal")
    with pytest.raises(UsageError, match="journal: is a link"):
        place.replica().begin()


def test_a_lost_owner_looks_at_its_files_before_it_looks_at_the_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at many files on a slow disk takes longer than the first effect waits."""
    place.lose()
    place.restore()
    monkeypatch.setattr(DiskStore, "files", None)
    monkeypatch.setattr(os, "walk", None)
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        place.replica().begin()


def test_a_large_file_shows_more_than_the_journal(place: Place) -> None:
    """It would be taken for an edit of a person."""
    run, replica = Growing(place), place.replica()
    replica.begin()
    large = place.run / "large.txt"

    def grows() -> None:
        run.grow(2)
        large.write_text(f"{run.at} " + "x" * (1 << 20))

    grows()
    run.arrives_late(replica, "_send_held", grows)
    replica.complete()
    assert (place.copy / "large.txt").read_text()[:2] == "7 "
    assert look(DiskStore(place.copy)).moment.seq == 7


def test_a_first_copy_is_cut_off_and_a_file_is_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that was taken meanwhile would be taken again."""
    place.dies_at("a")
    (place.run / "notes.txt").write_text("mine")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Replica, "_remove_gone", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        place.replica().begin()
    assert (place.copy / "notes.txt").exists()
    (place.run / "notes.txt").unlink()
    place.follow()
    assert not (place.copy / "notes.txt").exists()


def test_the_backup_has_the_name_of_the_folder_and_more(place: Place) -> None:
    assert backup_place("../run-backup", DiskStore(place.run), "letters-1") == str(place.folder / "run-backup")
    for inside in (".", "copy", "../run"):
        with pytest.raises(UsageError, match="is in the workspace"):
            backup_place(inside, DiskStore(place.run), "letters-1")


def test_a_backup_is_made_of_a_backup(place: Place) -> None:
    place.dies_at("b")
    place.follow()
    with pytest.raises(UsageError, match="is a backup of the run letters-1"):
        satchel.open(place.copy).backup.replicate(place.folder / "second")
    safe = place.folder / "safe"
    for _ in range(2):
        Replication(str(place.folder), str(safe), lambda event: None, once=True).run()
    assert [*safe.iterdir()] == [safe / "run"]


def test_the_run_prunes_more_than_the_copy_has(place: Place) -> None:
    place.write(AGENT, "keep: {history: 1, checkpoints: 1}\n")
    place.dies_at("a")
    place.follow()
    assert satchel.run(place.run).status == "completed"
    for _ in range(3):
        satchel.open(place.run).send("more")
        satchel.run(place.run)
        satchel.open(place.run).prune()
    place.follow()
    assert look(DiskStore(place.copy)).moment.crc == look(DiskStore(place.run)).moment.crc


def test_the_place_holds_something_else(place: Place) -> None:
    (place.copy / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty, and no backup"):
        place.replica().begin()


def test_the_backup_is_of_another_run(place: Place) -> None:
    place.follow()
    place.run.joinpath(DEFINITION).write_text("format: 1\nrun_id: other\nagent: agent.py:main\n")
    with pytest.raises(UsageError, match="backup of the run letters-1"):
        Replica(DiskStore(place.run), DiskStore(place.copy), "other").begin()


def test_a_place_with_unknown_braces_is_taken() -> None:
    with pytest.raises(InvalidFile, match=r"only {run_id} and {name} are replaced"):
        definition.parse('format: 1\nrun_id: a\nagent: a.py:a\nbackup: "s3://bucket/{run}"\n')
    parsed = definition.parse("format: 1\nrun_id: a\nagent: a.py:a\nbackup: s3://b/{run_id}\n")
    assert parsed.backup == "s3://b/{run_id}"


# A machine is lost


@pytest.mark.parametrize(("decision", "more"), [("done", {"result": "sent C"}), ("redo", {}), ("nothing-was-done", {})])
def test_an_effect_of_the_lost_owner_is_repeated(place: Place, decision: str, more: dict[str, Any]) -> None:
    place.lose()
    assert place.sent == ["A", "B", "C"]
    place.restore()
    assert satchel.run(place.new).status == "waiting"
    assert place.sent == ["A", "B", "C"]
    place.answer(decision, **more)
    again = satchel.run(place.new)
    if decision == "nothing-was-done":
        assert (again.status, place.sent[3:]) == ("completed", ["C", "D"])
        return
    assert again.status == "waiting"  # of d nobody knows either
    assert place.sent[3:] == (["C"] if decision == "redo" else [])
    place.answer("nothing-was-done")
    assert satchel.run(place.new).status == "completed"
    assert place.sent[-1] == "D"


def test_an_effect_that_a_person_let_repeat_is_repeated_once_more(place: Place) -> None:
    """The lost owner has obeyed, after the last record of the backup."""
    place.write(AGENT.replace("    return f", '    if os.environ.get("DIES_IN"):\n        raise Killed\n    return f'))
    os.environ["DIES_IN"] = "any"
    try:
        place.dies_at("")
    finally:
        del os.environ["DIES_IN"]
    assert satchel.run(place.run).status == "waiting"
    handle = satchel.open(place.run)
    handle.answer("redo", handle.questions()[0].id)
    place.follow()
    place.dies_at("a")
    assert place.sent == ["A", "A"]
    place.restore()
    assert satchel.run(place.new).status == "waiting"
    assert place.sent == ["A", "A"]


def test_a_person_who_knows_better_is_asked(place: Place) -> None:
    place.lose()
    place.restore(certain=True)
    assert satchel.run(place.new).status == "completed"


IDEMPOTENT = AGENT.replace("@effect", "@effect(idempotent=True)").replace(
    "await send(await shout(item.text))",
    'await send(item.text)\n    await shout(item.text)\n    await send("second " + item.text)',
)


def test_an_idempotent_effect_gets_other_arguments_unseen(place: Place) -> None:
    """Until something is done again, the lost owner made the same calls. After that it may have made other ones."""
    place.write(IDEMPOTENT)
    place.lose("a", "b")
    place.restore()
    assert satchel.run(place.new).status == "waiting"
    assert place.sent[-1] == "b"  # repeated under its key
    assert satchel.open(place.new).questions()[0].call == 'send("text":"second b")'


def test_a_run_is_restored_twice(place: Place, tmp_path: Path) -> None:
    place.lose()
    place.restore()
    (tmp_path / "other").mkdir()
    with pytest.raises(UsageError, match=r"was restored to .*new already"):
        restore(DiskStore(place.copy), DiskStore(tmp_path / "other"), by="me")
    assert restore(DiskStore(place.copy), DiskStore(place.new), by="me").was_done
    done = restore(DiskStore(place.copy), DiskStore(tmp_path / "other"), by="me", again=True)
    assert done.seq == look(DiskStore(tmp_path / "other")).moment.seq - 2  # without the two fences


def test_a_restoration_is_cut_off(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.lose()
    replaced = DiskStore.replace

    def replace(store: DiskStore, path: str, data: bytes, **options: Any) -> str:
        if store.url == str(place.new) and path.startswith("checkpoints/"):
            raise KeyboardInterrupt
        return replaced(store, path, data, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(DiskStore, "replace", replace)
        place.restore()
    with pytest.raises(UsageError, match="is not a workspace yet"):
        satchel.run(place.new)
    place.restore()
    assert satchel.run(place.new).status == "waiting"


def test_a_machine_is_lost_before_the_first_record(place: Place) -> None:
    place.follow()
    place.dies_at("a")
    place.restore()
    assert satchel.run(place.new).status == "waiting"
    assert place.sent == ["A"]


def test_a_run_is_restored_to_two_places_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.lose()
    other = place.folder / "other"
    other.mkdir()
    fence = journal.fence

    def late(*args: Any) -> Any:
        monkeypatch.undo()
        restore(DiskStore(place.copy), DiskStore(other), by="you")
        return fence(*args)

    monkeypatch.setattr(journal, "fence", late)
    with pytest.raises(UsageError, match=r"was restored to .*other already"):
        place.restore()


def test_a_place_that_is_not_free_stops_the_owner(place: Place) -> None:
    """A mistyped destination, and nothing is lost."""
    place.dies_at("a")
    replica = place.replica()
    replica.begin()
    for taken, why in ((place.run, "holds this run already"), (place.folder, "contains|is not empty")):
        with pytest.raises(UsageError, match=why):
            restore(DiskStore(place.copy), DiskStore(taken), by="me")
    place.dies_at("b")
    replica.follow()
    replica.complete()
    mark = transfer_file.read_mark(DiskStore(place.copy))
    assert mark is not None and mark.restored is None


def test_who_continues_a_restoration_has_not_said_that_nothing_was_done(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.lose()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(transfer, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        place.restore(certain=True)
    place.restore()
    assert satchel.run(place.new).status == "waiting"


def test_a_backup_that_is_not_whole_is_restored(place: Place) -> None:
    place.follow()
    mark = place.copy / "backup.json"
    mark.write_text(mark.read_text().replace('"whole": true', '"whole": false'))
    with pytest.raises(UsageError, match="not a whole backup"):
        place.restore()
    with pytest.raises(UsageError, match="is no backup"):
        restore(DiskStore(place.run), DiskStore(place.new), by="me")


def test_a_backup_is_taken_for_a_workspace(place: Place, tmp_path: Path) -> None:
    place.dies_at("b")
    place.follow()
    handle = satchel.open(place.copy)
    for act in (
        handle.run,
        handle.pause,
        handle.cancel,
        handle.recover,
        lambda: handle.send("a task"),
        lambda: handle.move(tmp_path / "moved"),
        lambda: handle.copy(tmp_path / "copied"),
    ):
        with pytest.raises(UsageError, match="is a backup of the run letters-1, and nothing runs in it"):
            act()
    status = handle.status()
    assert (status.state, status.needs_person) == ("backup", False)
    assert status.backup_of is not None and status.backup_of.source == str(place.run)
    listed = {each.folder: each.state for each in satchel.ls(tmp_path)}
    assert listed[str(place.copy)] == "backup"
    satchel.serve(place.copy, once=True)
    assert place.sent == ["A", "B"]


# An owner comes back


def test_an_owner_comes_back(place: Place) -> None:
    place.lose()
    place.restore()
    replica = place.replica()
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        replica.begin()


def test_an_owner_goes_on_after_a_fence(place: Place) -> None:
    place.dies_at("a")
    replica = place.replica()
    replica.begin()
    place.restore()
    replica.follow()  # nothing new
    place.dies_at("b")
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        replica.follow()
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        replica.complete()


def test_the_restored_run_can_t_follow_its_own_backup(place: Place) -> None:
    place.lose()
    place.restore(certain=True)
    replica = place.replica(place.new)
    replica.begin()
    assert satchel.run(place.new).status == "completed"
    replica.complete(is_last=True)
    assert look(DiskStore(place.copy)).moment.status == "completed"
    mark = transfer_file.read_mark(DiskStore(place.copy))
    assert mark is not None and (mark.source, mark.restored) == (str(place.new), None)
    with pytest.raises(LeaseHeld, match=f"restored from its backup to {place.new}"):
        place.replica().begin()


def test_a_folder_is_set_back(place: Place) -> None:
    """As by a snapshot of a virtual machine: its run would repeat what it has done."""
    place.dies_at("a")
    shutil.copytree(place.run, place.folder / "snapshot")
    place.dies_at("b")
    place.follow()
    shutil.rmtree(place.run)
    (place.folder / "snapshot").rename(place.run)
    with pytest.raises(LeaseHeld, match="records that are not here"):
        place.replica().begin()


# The runs themselves let it follow


def following(place: Place) -> str:
    return f"backup: {place.copy}\n"


def note_of(folder: Path) -> Any:
    note = transfer_file.read_note(DiskStore(folder))
    assert note is not None
    return note


def test_a_run_lets_its_backup_wait(place: Place) -> None:
    place.write(AGENT, following(place))
    assert satchel.run(place.run).status == "completed"
    seen = look(DiskStore(place.copy)).moment
    assert (seen.status, seen.crc) == ("completed", look(DiskStore(place.run)).moment.crc)
    assert note_of(place.run).state == "ended" and note_of(place.run).seq == seen.seq


def test_a_restored_run_goes_on_at_two_places(place: Place) -> None:
    place.write(AGENT, following(place))
    place.lose()
    place.restore()
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        satchel.run(place.run)
    assert place.sent == ["A", "B", "C"]
    assert note_of(place.run).state == "overtaken" and note_of(place.run).restored.to == str(place.new)
    satchel.serve(place.run, once=True)
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        satchel.open(place.run).send("a task that nobody would take")
    assert satchel.open(place.run).status().next == ""
    assert satchel.run(place.run, adopt=True).status == "completed"
    assert note_of(place.run).state == "adopted"
    notes = Replication(str(place.run), None, lambda event: None, once=True).run()
    assert [note.state for note in notes] == ["adopted"] and note_of(place.run).state == "adopted"


OVERTAKEN = AGENT.replace(
    "    await send(await shout(item.text))",
    """    import asyncio
    if item.text == "c":
        from satchel.workspace.store import DiskStore, open_store
        from satchel.workspace.transfer import restore
        restore(DiskStore(os.environ["COPY"]), DiskStore(os.environ["NEW"]), by="me")
        for number in range(100_000):
            await shout(str(number))
            await asyncio.sleep(0.01)
    await send(await shout(item.text))""",
)


def test_an_owner_does_an_effect_after_its_run_was_restored(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPY", str(place.copy))
    monkeypatch.setenv("NEW", str(place.new))
    place.write(OVERTAKEN, following(place))
    with pytest.raises(LeaseHeld, match=ELSEWHERE):
        satchel.run(place.run)
    assert place.sent == ["A", "B"]


def test_an_owner_learns_it_while_it_closes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    mark_all = Workspace.mark_all

    def late(workspace: Workspace) -> None:
        if workspace.moment.status == "completed":
            workspace.journal.give_up(LeaseHeld("it goes on elsewhere"))
        mark_all(workspace)

    monkeypatch.setattr(Workspace, "mark_all", late)
    with pytest.raises(LeaseHeld, match="goes on elsewhere"):
        satchel.run(place.run)


def test_a_place_that_is_away_stops_a_run(place: Place) -> None:
    (place.folder / "file").write_text("no folder")
    place.write(AGENT, f"backup: {place.folder}/file/copy\n")
    assert satchel.run(place.run).status == "completed"
    note = note_of(place.run)
    assert note.state in ("away", "refused") and note.why
    status = satchel.open(place.run).status()
    assert status.backup == note


def test_the_first_copy_is_under_way_when_the_run_ends(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of the place yet, so the end waits for it as for one that can be reached."""
    begin, end, is_ending = Replica.begin, Follower.end, threading.Event()

    def slowly(replica: Replica, **told: Any) -> None:
        is_ending.wait(PATIENCE)
        time.sleep(0.1)
        begin(replica, **told)

    def ending(follower: Follower) -> None:
        is_ending.set()
        end(follower)

    monkeypatch.setattr(Replica, "begin", slowly)
    monkeypatch.setattr(Follower, "end", ending)
    monkeypatch.setattr("satchel.runtime.live.stopping.FIRST_LOOK", 0.0)
    monkeypatch.setattr("satchel.workspace.lifecycle.follower._LAST", PATIENCE)
    monkeypatch.setattr("satchel.workspace.lifecycle.follower._LAST_AWAY", 0.0)
    place.write(AGENT, following(place))
    assert satchel.run(place.run).status == "completed"
    assert note_of(place.run).state == "ended"


def test_a_rehearsal_writes_into_the_backup(place: Place) -> None:
    place.write(AGENT, following(place))
    place.dies_at("b")
    before = {path: path.read_bytes() for path in place.copy.rglob("*") if path.is_file()}
    satchel.open(place.run).history.rehearse()
    assert {path: path.read_bytes() for path in place.copy.rglob("*") if path.is_file()} == before
    assert os.path.isdir(place.copy)


AWAY = AGENT.replace(
    "    await send(await shout(item.text))",
    """    import asyncio, shutil
    if item.text == "b":
        while not run_has_said("does not follow"):
            await asyncio.sleep(0.01)
        os.remove(os.environ["COPY"])
    if item.text == "c":
        while not run_has_said("follows again"):
            await asyncio.sleep(0.01)
    await send(await shout(item.text))""",
)


class Watch:
    def __init__(self, said: list[str]):
        self._said = said

    def noticed(self, kind: str, text: str) -> None:
        if kind == "backup":
            self._said.append(text)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_place_goes_away_unseen(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes back, too."""
    said = list[str]()
    monkeypatch.setattr("satchel.workspace.lifecycle.follower._REFUSED", 0.1)
    monkeypatch.setattr(builtins, "run_has_said", lambda text: any(text in each for each in said), raising=False)
    monkeypatch.setenv("COPY", str(place.copy))
    place.copy.rmdir()
    place.copy.write_text("no folder")
    place.write(AWAY, following(place))
    assert satchel.run(place.run, watch=Watch(said)).status == "completed"
    assert [each.rpartition(" ")[2] for each in said][1:] == ["again"] and "The run goes on" in said[0]
    records = [row.record for row in satchel.open(place.run).history.log()]
    told = [(each["event"], each.get("outcome")) for each in records if each.get("name", "").startswith("backup")]
    assert told == [("released", "failed"), ("opened", None)]
    assert note_of(place.run).state == "ended" and look(DiskStore(place.copy)).moment.status == "completed"


def test_a_run_is_told_nothing_of_trouble_that_is_written_down_when_it_begins_to_listen(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, listens, said = threading.Event(), threading.Event(), list[str]()
    listen, replace = BackupNews.__init__, DiskStore.replace

    def replace_late(store: DiskStore, path: str, data: bytes, **how: Any) -> str:
        if path == transfer_file.BACKUP_NOTE:
            writes.set()
            assert listens.wait(PATIENCE)
        return replace(store, path, data, **how)

    def listen_late(news: BackupNews, *args: Any) -> None:
        assert writes.wait(PATIENCE)
        listen(news, *args)
        listens.set()

    monkeypatch.setattr(DiskStore, "replace", replace_late)
    monkeypatch.setattr(BackupNews, "__init__", listen_late)
    (place.folder / "file").write_text("no folder")
    place.write(AGENT, f"backup: {place.folder}/file/copy\n")
    assert satchel.run(place.run, watch=Watch(said)).status == "completed"
    assert ["does not follow" in each for each in said] == [True]


def test_a_run_is_told_of_a_state_that_its_backup_no_longer_has(place: Place) -> None:
    told = list[str]()

    async def work() -> None:
        follower = Follower(DiskStore(place.run), str(place.copy), "letters-1")
        follower.say("away", "no network")
        news = BackupNews(Mock(follower=follower, moment=Mock(clean=True)), told.append)
        follower.say("following", "")
        await asyncio.sleep(0)
        news.end()

    asyncio.run(work())
    assert told == []


def test_a_late_owner_removes_what_its_successor_has_sent(place: Place) -> None:
    """It has nothing new to send, so it has not met the fence."""
    place.dies_at("a")
    late = place.replica()
    late.begin()
    late.complete()
    place.restore(certain=True)
    assert satchel.run(place.new).status == "completed"
    successor = place.replica(place.new)
    successor.begin()
    successor.complete(is_last=True)
    sent = {str(place.copy / path) for path in (*late._sent, *late._left)}
    theirs = {str(path) for path in place.copy.rglob("*") if path.is_file()} - sent
    (place.run / "agent.py").write_text("# changed")
    with pytest.raises(LeaseHeld):
        late.complete(is_last=True)
    late._merge_pieces()
    late._remove_gone({*late._sent, *late._left}, {DEFINITION})
    assert theirs <= {str(path) for path in place.copy.rglob("*")}
