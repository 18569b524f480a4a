"""A held workspace in bad company: people who save at the wrong moment, interrupts, odd names, forks and removals."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from servers import Server
from waits import PATIENCE

import satchel
from api.test_holding import SAID, add, conversation, saved, until, values
from satchel.errors import Conflicting, Damaged, LeaseHeld, SatchelError, UsageError
from satchel.results import Held
from satchel.runtime.api import held_workspace, hold_opening
from satchel.workspace.journal import Journal, ScopeCommitted
from satchel.workspace.lifecycle import Workspace
from satchel.workspace.store import Syscalls
from satchel.workspace.views.projector import Projector


def text(held: Held, path: str) -> str | None:
    found = held.get(path)
    return found.text if found is not None else None


def opened(held: Held) -> Any:
    assert held._opening is not None
    return held._opening


# Saves at the wrong moment


def test_a_save_into_an_older_version_is_kept_beside_it_though_the_newer_was_to_be_written(tmp_path: Path) -> None:
    file = tmp_path / "talk/files/a.txt"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        until(file.exists)
        with held._lock:
            opened(held).workspace.projector._due = float("inf")
            held.put("a.txt", "two\n")
            saved(file, "theirs\n")
            opened(held).workspace.projector._due = 0.0
            opened(held).catch_up()  # finds the person's
        until(file.with_name("a.rejected.txt").exists if text(held, "a.txt") else None)
        assert text(held, "a.txt") == "two\n"
    assert file.read_text() == "two\n" and file.with_name("a.rejected.txt").read_text() == "theirs\n"


def test_what_an_editor_saves_into_a_file_that_was_replaced_is_kept_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "talk/files/a.txt"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        until(file.exists)
        with file.open("r+") as editor:
            held.put("a.txt", "two\n")
            until(lambda: file.read_text() == "two\n")
            editor.write("theirs, of one\n")
        kept = file.with_name("a.rejected.txt")
        until(lambda: text(held, "a.txt") and kept.exists())
        assert text(held, "a.txt") == "two\n" and kept.read_text() == "theirs, of one\n"
    assert file.read_text() == "two\n"


def test_what_an_editor_saved_into_a_replaced_file_is_found_by_the_next_opening(tmp_path: Path) -> None:
    file = tmp_path / "talk/files/a.txt"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        until(file.exists)
        editor = file.open("r+")
        held.put("a.txt", "two\n")
        until(lambda: file.read_text() == "two\n")
        held._drop()  # as a crash
    editor.write("theirs, of one\n")
    editor.close()
    with conversation(tmp_path) as held:
        assert text(held, "a.txt") == "two\n"
    assert file.with_name("a.rejected.txt").read_text() == "theirs, of one\n"


def test_what_a_crash_has_left_empty_is_no_version(tmp_path: Path) -> None:
    """SeaweedFS keeps an empty object of a write whose sender was killed."""
    file = tmp_path / "talk/files/a.txt"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        until(file.exists)
        held._drop()  # as a crash
    file.write_bytes(b"")
    with conversation(tmp_path) as held:
        assert text(held, "a.txt") == "one\n"
    assert file.read_text() == "one\n"


def test_what_a_crash_leaves_empty_in_a_bucket_while_the_next_program_has_it_is_no_version(
    moto: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in moto.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(hold_opening, "_REMOTE_LOOK", 0.1)
    url = moto.place()
    bucket, _, key = url.removeprefix("s3://").partition("/")
    file = {"Bucket": bucket, "Key": f"{key}/talk/files/a.txt".lstrip("/")}
    client = moto.client

    def shown() -> bytes | None:
        with suppress(client.exceptions.NoSuchKey):
            return client.get_object(**file)["Body"].read()  # type: ignore[no-any-return]
        return None

    with satchel.hold(f"{url}/talk", kind="conversation") as held:
        held.put("a.txt", "one\n")
        until(lambda: shown() == b"one\n")
        client.put_object(**file, Body=b"")
        until(lambda: text(held, "a.txt") == "one\n" and shown() == b"one\n")
    assert shown() == b"one\n"


def test_a_person_goes_back_to_an_older_version(tmp_path: Path) -> None:
    file = tmp_path / "talk/files/a.txt"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        held.put("a.txt", "two\n")
        until(lambda: file.exists() and file.read_text() == "two\n")
        saved(file, "one\n")
        until(lambda: text(held, "a.txt") == "one\n")
        held.put("a.txt", "three\n")
    time.sleep(1.1)  # the times of files are compared to the second
    saved(file, "two\n")
    with conversation(tmp_path) as held:
        assert text(held, "a.txt") == "two\n"


def test_a_new_file_of_a_person_is_no_version_of_a_put_that_it_did_not_know(tmp_path: Path) -> None:
    file = tmp_path / "talk/files/a.txt"
    with conversation(tmp_path) as held:
        held.append(SAID)
        with held._lock:
            opened(held).workspace.projector._due = float("inf")
            held.put("a.txt", "of the program\n")
            saved(file, "theirs\n")
            opened(held).workspace.projector._due = 0.0
        kept = file.with_name("a.rejected.txt")
        until(lambda: text(held, "a.txt") and kept.exists())
        assert text(held, "a.txt") == "of the program\n" and kept.read_text() == "theirs\n"
    assert file.read_text() == "of the program\n"


def test_a_file_that_a_person_removes_and_makes_anew_is_its_next_version(tmp_path: Path) -> None:
    file = tmp_path / "talk/files/a.txt"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        until(file.exists)
        with held._lock:
            opened(held).workspace.projector._due = float("inf")
            file.unlink()
            held.get("a.txt")
            saved(file, "theirs\n")
            opened(held).workspace.projector._due = 0.0
        until(lambda: text(held, "a.txt") == "theirs\n")


def test_a_file_that_a_person_has_made_is_there_for_a_put(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        until(lambda: held.rows() == [] and time.monotonic() - opened(held)._looked > 0.3)
        saved(tmp_path / "talk/files/a.txt", "theirs\n")
        until(lambda: held.get("a.txt"))
        with pytest.raises(Conflicting):
            held.put("a.txt", "x", if_version=0)
        assert text(held, "a.txt") == "theirs\n"


def test_a_file_with_a_secret_that_a_person_saves_is_kept_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", secret := "a-secret-that-nobody-guesses")
    files = tmp_path / "talk/files"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
    add(tmp_path, "redact: {env: [TOKEN]}\n")
    saved(files / "a.txt", f"it is {secret}\n")
    with conversation(tmp_path) as held:
        assert text(held, "a.txt") == "one\n"
        saved(files / "large.txt", f"it is {secret}\n" * 5000)
        until(lambda: held.list() and (files / "large.rejected.txt").exists())
        assert [each.path for each in held.list()] == ["a.txt"]
    with conversation(tmp_path) as held:
        assert [each.path for each in held.list()] == ["a.txt"]
    assert (files / "a.rejected.txt").read_text() == "it is [redacted:TOKEN]\n"
    left = [path for path in (tmp_path / "talk").rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert [path for path in left if path != files / "large.txt"] == []


def test_a_folder_or_a_link_in_place_of_a_file_stays_and_the_program_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "talk/files"
    with conversation(tmp_path) as held:
        for name in ("a.txt", "b.txt", "c.txt"):
            held.put(name, "one\n")
        until((folder / "c.txt").exists)
        (folder / "a.txt").unlink()
        (folder / "a.txt").mkdir()
        (folder / "b.txt").unlink()
        (folder / "b.txt").symlink_to(tmp_path / "elsewhere.txt")
        (folder / "loop").symlink_to(folder)
        time.sleep(0.6)
        held.put("c.txt", "two\n")
        for name in ("a.txt", "b.txt"):
            assert text(held, name) == "one\n"
            held.put(name, "two\n")
    with conversation(tmp_path) as held:
        assert [text(held, name) for name in ("a.txt", "b.txt", "c.txt")] == ["two\n"] * 3
        held.put("d.txt", "new")
    assert (folder / "d.txt").read_text() == "new"


@pytest.mark.parametrize("at_rest", [True, False])
def test_a_file_in_place_of_a_folder_is_kept_beside_it(tmp_path: Path, at_rest: bool) -> None:
    folder = tmp_path / "talk/files"
    held = conversation(tmp_path, idle=PATIENCE)
    for path in ("sub/a.txt", "sub/below/b.txt"):
        held.put(path, "one\n")
    until((folder / "sub/below/b.txt").exists)
    if at_rest:
        held.close()
    shutil.rmtree(folder / "sub")
    (folder / "sub").write_text("of a person")
    held = conversation(tmp_path) if at_rest else held
    until(lambda: held.list() and (folder / "sub.rejected").exists() and (folder / "sub/below/b.txt").exists())
    held.put("sub/a.txt", "two\n")
    held.close()
    with conversation(tmp_path) as held:
        assert [each.path for each in held.list()] == ["sub/a.txt", "sub/below/b.txt"]
        assert text(held, "sub/a.txt") == (folder / "sub/a.txt").read_text() == "two\n"
    assert (folder / "sub.rejected").read_text() == "of a person"
    assert "only a program removes" in (folder / "sub.rejected.txt").read_text()


@pytest.mark.parametrize("at_rest", [True, False])
def test_a_folder_in_place_of_a_file_is_kept_beside_it(tmp_path: Path, at_rest: bool) -> None:
    path = tmp_path / "talk/files/a.txt"
    held = conversation(tmp_path, idle=PATIENCE)
    held.put("a.txt", "one\n")
    until(path.exists)
    if at_rest:
        held.close()
    path.unlink()
    path.mkdir()
    (path / "new.txt").write_text("of a person")
    held = conversation(tmp_path) if at_rest else held
    held.put("a.txt", "two\n")
    until(lambda: held.list() and path.is_file())
    held.close()
    with conversation(tmp_path) as held:
        assert [each.path for each in held.list()] == ["a.txt"] and text(held, "a.txt") == path.read_text() == "two\n"
    assert (tmp_path / "talk/files/a.rejected.txt/new.txt").read_text() == "of a person"


def test_a_link_in_place_of_a_folder_leads_no_program_outside(tmp_path: Path) -> None:
    folder, outside = tmp_path / "talk/files/sub", tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("of another program")
    with conversation(tmp_path, idle=PATIENCE) as held:
        held.put("sub/a.txt", "one\n")
        until((folder / "a.txt").exists)
        shutil.rmtree(folder)
        folder.symlink_to(outside)
        with pytest.raises(UsageError, match="outside the workspace"):
            held.put("sub/a.txt", "two\n")
        folder.unlink()
        held.put("sub/a.txt", "three\n")
        until((folder / "a.txt").exists)
    assert (outside / "a.txt").read_text() == "of another program"
    with conversation(tmp_path) as held:
        assert text(held, "sub/a.txt") == "three\n"


def test_what_editors_and_sync_tools_write_is_no_file_of_a_program(tmp_path: Path) -> None:
    names = [".a.txt.swp", "a.txt~", "#a.txt#", ".#a.txt", ".DS_Store", "~$a.docx", ".git/config", "sub/.b.txt.swp"]
    names.append("a.sync-conflict-20261123-065320-K3XJ2QB.txt")
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        held.put(".profile", "put by the program")
    for name in [*names, "taken.txt"]:
        (tmp_path / "talk/files" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "talk/files" / name).write_text("x")
    saved(tmp_path / "talk/files/.profile", "corrected")
    with conversation(tmp_path) as held:
        assert [each.path for each in held.list()] == [".profile", "a.txt", "taken.txt"]
        assert text(held, ".profile") == "corrected"
    assert all((tmp_path / "talk/files" / name).exists() for name in names)


# What is lost


def test_a_lost_workspace_yaml_is_not_made_anew(tmp_path: Path) -> None:
    definition = tmp_path / "talk/workspace.yaml"
    with conversation(tmp_path) as held:
        held.append(SAID)
    add(tmp_path, "redact:\n  patterns: ['sk-[a-z]+']\n")
    with conversation(tmp_path) as held:
        held.append(SAID)
    was = definition.read_bytes()
    definition.unlink()
    for create in (True, False):
        with pytest.raises(Damaged, match="is missing") as raised, conversation(tmp_path, create=create):
            pass
    assert "`kind: conversation`" in str(raised.value) and "`redact:`" in str(raised.value)
    assert not definition.exists()
    definition.write_bytes(was)
    with conversation(tmp_path) as held:
        assert values(held.rows()) == SAID * 2


def test_without_its_record_nothing_is_emptied_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    log = tmp_path / "talk/logs/calls.jsonl"
    with conversation(tmp_path) as held:
        at = held.append([{"n": 1}], log="calls", key="one")
        held.append(SAID)
    shutil.rmtree(tmp_path / "talk/journal")
    for _ in range(2):
        with conversation(tmp_path) as held:  # the checkpoint of the stop is whole
            assert held.append([{"n": 1}], log="calls", key="one") == at and values(held.rows()) == SAID
    shutil.rmtree(tmp_path / "talk/journal")
    shutil.rmtree(tmp_path / "talk/checkpoints")
    was = log.read_bytes()
    for _ in range(2):
        with pytest.raises(Damaged, match="the journal is missing"), conversation(tmp_path):
            pass
    assert log.read_bytes() == was and not (tmp_path / "talk/journal").exists()


def test_what_a_person_writes_into_other_files_stops_no_program(tmp_path: Path) -> None:
    state, plan = tmp_path / "talk/state.json", tmp_path / "talk/todo.md"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
    for text_of_plan in ("- [ ] do\n", "- [ ] do more\n", "no plan"):
        saved(state, state.read_text().replace('"held"', '"failed"'))
        saved(plan, text_of_plan)
        with conversation(tmp_path) as held:
            assert text(held, "a.txt") == "one\n"
            held.append(SAID)
    saved(state, "no JSON")
    (tmp_path / "talk/messages.jsonl").write_text("no JSON\n")
    with conversation(tmp_path) as held:
        assert values(held.rows()) == SAID * 3
    assert (tmp_path / "talk/messages.rejected.jsonl").read_text() == "no JSON\n"


def test_the_kind_is_no_persons_to_change(tmp_path: Path) -> None:
    definition = tmp_path / "talk/workspace.yaml"
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        was = definition.read_text()
        definition.write_text(was.replace("kind: conversation", "kind: thread"))
        time.sleep(0.8)
        held.put("a.txt", "two\n")
        definition.write_text(was.replace("kind: conversation", "agent: agent.py:main"))
        time.sleep(0.8)
        held.put("a.txt", "three\n")
        definition.write_text(was)
    with conversation(tmp_path) as held:
        assert text(held, "a.txt") == "three\n"
    assert (tmp_path / "talk/files/a.txt").read_text() == "three\n"


# Interrupts


def test_an_interrupted_append_does_not_count_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Journal.add

    def interrupted(self: Journal, record: Any) -> int:
        if isinstance(record, ScopeCommitted):
            raise KeyboardInterrupt
        return add(self, record)

    with conversation(tmp_path) as held:
        held.append([{"n": 1}], log="calls")
        with monkeypatch.context() as impatient:
            impatient.setattr(Journal, "add", interrupted)
            with pytest.raises(KeyboardInterrupt):
                held.append([{"n": 2}, {"n": 3}], log="calls")
        held.append([{"n": 4}], log="calls")
        assert values(held.rows("calls")) == [{"n": 1}, {"n": 4}]
    assert values(satchel.open(tmp_path / "talk").rows("calls")) == [{"n": 1}, {"n": 4}]


def test_an_opening_that_is_interrupted_releases_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with conversation(tmp_path) as held:
        held.append(SAID)

    def interrupted(self: Projector) -> None:
        raise KeyboardInterrupt

    other = conversation(tmp_path)
    with monkeypatch.context() as impatient:
        impatient.setattr(Projector, "catch_up", interrupted)
        with pytest.raises(KeyboardInterrupt) as told:
            other.rows()
    with conversation(tmp_path) as held:
        assert values(held.rows()) == SAID
    assert told


def test_a_failed_thread_leaves_no_workspace_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    held = conversation(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", exhausted)
        with pytest.raises(RuntimeError):
            held.append(SAID)
    with conversation(tmp_path) as other:
        assert other.rows() == []
    held.close()


def test_an_error_in_the_thread_releases_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> None:
        raise OSError(5, "Input/output error")

    held = conversation(tmp_path, idle=0.1)
    held.append(SAID)
    monkeypatch.setattr(Workspace, "close", broken)
    until(lambda: held._opening is None)
    monkeypatch.undo()
    with conversation(tmp_path) as other:
        assert values(other.rows()) == SAID
    held.close()


def test_it_is_held_for_as_long_as_it_says(tmp_path: Path) -> None:
    with conversation(tmp_path, idle=1e12) as held:
        for number in range(30):
            held.put("a.txt", str(number))
        file = tmp_path / "talk/files/a.txt"
        until(lambda: file.exists() and file.read_text() == "29")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.usefixtures("holder_stays")
def test_a_forked_process_does_not_have_it_too(tmp_path: Path) -> None:
    with conversation(tmp_path, idle=60) as held:
        held.append([{"n": 1}], log="calls")
        child = os.fork()
        if not child:
            code = 1
            try:
                held.append([{"n": 2}], log="calls")
            except LeaseHeld:
                held.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        held.append([{"n": 3}], log="calls")
        with pytest.raises(LeaseHeld), conversation(tmp_path):
            pass
        assert values(held.rows("calls")) == [{"n": 1}, {"n": 3}]
    with conversation(tmp_path) as held:
        assert values(held.rows("calls")) == [{"n": 1}, {"n": 3}]


# Names


def test_no_file_can_be_put_where_the_folder_could_not_show_it(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        held.put("a/b.txt", "one")
        for path in ("a", "a/b.txt/c", "x" * 300, "x/" * 2000 + "x", "a\0b"):
            with pytest.raises(SatchelError):
                held.put(path, "x")
        for path in ("ä ö.txt", "-rf", "a.rejected.txt", "workspace.yaml", ".hidden", "%2F", "a~", "x\ny", "\\"):
            with suppress(UsageError):
                held.put(path, path)
        there = {each.path for each in held.list()}
    with conversation(tmp_path) as held:
        assert {each.path for each in held.list()} == there and "a.rejected.txt" in there
        for each in there:
            assert (tmp_path / "talk/files" / each).exists()
        held.remove("a/b.txt")
        held.put("a", "a file now")
    assert (tmp_path / "talk/files/a").read_text() == "a file now"


# Removal


def test_what_a_new_workspace_in_the_place_of_a_removed_one_has_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made as soon as the old one is no workspace any more."""
    with conversation(tmp_path) as held:
        held.put("a.txt", "old")
    clear, old = held_workspace._clear, list[Any]()

    def again() -> None:
        try:
            with conversation(tmp_path, wait=PATIENCE) as new:
                old.append(new.get("a.txt"))
                new.put("b.txt", "new")
        except SatchelError as error:  # its folder went away under it
            old.append(error)

    other = threading.Thread(target=again)

    def meanwhile(*arguments: Any) -> None:
        monkeypatch.setattr(held_workspace, "_clear", clear)
        other.start()
        other.join(1.0)
        clear(*arguments)

    monkeypatch.setattr(held_workspace, "_clear", meanwhile)
    assert satchel.remove(tmp_path / "talk")
    other.join()
    with conversation(tmp_path) as held:
        assert [each.path for each in held.list()] == (["b.txt"] if old == [None] else [])


def test_an_interrupted_removal_is_finished_by_the_next_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conversation(tmp_path) as held:
        held.put("a.txt", "old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as impatient:
        impatient.setattr(held_workspace, "_clear", interrupted)
        with pytest.raises(KeyboardInterrupt):
            satchel.remove(tmp_path / "talk")
    with conversation(tmp_path) as held:
        assert held.list() == []
        held.put("b.txt", "new")
    assert not (tmp_path / "talk/files/a.txt").exists()


def test_two_programs_make_a_folder_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir = Syscalls.mkdir_shared

    def late(self: Syscalls, path: str) -> None:
        os.mkdir(path)
        mkdir(self, path)

    monkeypatch.setattr(Syscalls, "mkdir_shared", late)
    with conversation(tmp_path / "new") as held:
        held.append(SAID)


def test_a_folder_that_another_program_has_just_made_is_called_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Syscalls.stat

    def early(self: Syscalls, path: str) -> os.stat_result:
        try:
            return stat(self, path)
        finally:
            (tmp_path / "new/talk").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(Syscalls, "stat", early)
    with conversation(tmp_path / "new") as held:
        held.append(SAID)


def test_it_is_not_used_after_a_move(tmp_path: Path) -> None:
    held = conversation(tmp_path, idle=0.05)
    held.append(SAID)
    until(lambda: held._opening is None)
    satchel.open(tmp_path / "talk").move(tmp_path / "elsewhere")
    with pytest.raises(SatchelError):
        held.append(SAID)
    with satchel.hold(tmp_path / "elsewhere", kind="conversation") as other:
        assert values(other.rows()) == SAID
    held.close()


@pytest.mark.usefixtures("holder_stays")
def test_what_people_do_to_runs_leaves_a_held_workspace_usable(tmp_path: Path, cli: Any) -> None:
    commands = ("status", "check", "log", "rewind --to 3", "recover", "merge", "prune", "redo x", "cancel", "run")
    with conversation(tmp_path) as held:
        held.append(SAID)
        held.put("a.txt", "one")
        version = held.put("a.txt", "two")
        for verb, *options in map(str.split, commands):
            cli(verb, tmp_path / "talk", *options)
    for verb, *options in map(str.split, commands):
        cli(verb, tmp_path / "talk", *options)
    with conversation(tmp_path) as held:
        found = held.get("a.txt")
        assert values(held.rows()) == SAID and found is not None and (found.text, found.version) == ("two", version)
    assert satchel.open(tmp_path / "talk").status().state == "held"
    with pytest.raises(UsageError, match="has no agent"):
        satchel.open(tmp_path / "talk").history.rewind(to=3)
