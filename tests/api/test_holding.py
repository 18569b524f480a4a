"""`satchel.hold`: a program appends rows and puts files, without an agent."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import warm
from servers import Server
from waits import HANGS, PATIENCE

import satchel
from satchel.errors import AgentError, Conflicting, LeaseHeld, NotSerializable, Refused, StorageFailed, UsageError
from satchel.results import FileEntry, Held, Row
from satchel.workspace.store import DiskStore
from satchel.workspace.views import HeldDocument

SAID = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": {"parts": [1, None, "ü"]}}]


def conversation(folder: Path, **options: Any) -> Held:
    return satchel.hold(folder / "talk", kind="conversation", **options)


def values(rows: Any) -> list[Any]:
    return [row.value for row in rows]


def add(folder: Path, text: str) -> None:
    """To workspace.yaml."""
    path = folder / "talk/workspace.yaml"
    path.write_text(path.read_text() + text)


def until(found: Callable[[], Any]) -> Any:
    """What it returns once that is true."""
    end = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return value


def test_what_is_appended_is_there_in_the_next_process_in_its_order(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        assert held.rows() == [] and held.rows("calls") == [] and held.list() == []
        first = held.append(SAID)
        second = held.append([{"tool": "search"}], log="calls")
        third = held.append([{"role": "user", "content": "more"}])
        assert first < second < third
        assert values(held.rows()) == [*SAID, {"role": "user", "content": "more"}]
        assert [row.seq for row in held.rows()][1:] == [first, third]
        assert values(held.rows(after=first)) == values(held.rows(last=1)) == [{"role": "user", "content": "more"}]
    with conversation(tmp_path, create=False) as held:
        assert values(held.rows()) == [*SAID, {"role": "user", "content": "more"}]
        assert values(held.rows("calls")) == [{"tool": "search"}]
    lines = (tmp_path / "talk/logs/calls.jsonl").read_text().splitlines()
    assert [json.loads(line)["content"] for line in lines] == [{"tool": "search"}]


def test_a_repeated_append_does_nothing_also_in_the_next_process(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        there = held.append([{"n": 1}, {"n": 2}], log="calls", key="turn-1")
        assert held.append([{"n": 3}], log="calls", key="turn-1") == there
        assert held.append(SAID, key="turn-1") > there, "each log has its own keys"
    with conversation(tmp_path) as held:
        assert held.append([{"n": 1}, {"n": 2}], log="calls", key="turn-1") == there
        assert values(held.rows("calls")) == [{"n": 1}, {"n": 2}]
        assert held.append([], log="calls") == there and held.append([], log="other") == 0


def test_a_file_has_versions_and_is_changed_only_by_those_who_know_the_last(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        first = held.put("notes/today.md", "one\n", if_version=0)
        second = held.put("notes/today.md", "one\ntwo\n", if_version=first)
        for attempt in (
            lambda: held.put("notes/today.md", "x", if_version=first),
            lambda: held.put("b", "x", if_version=7),
        ):
            with pytest.raises(Conflicting, match="has not version"):
                attempt()
        with pytest.raises(Conflicting):
            held.remove("notes/today.md", if_version=first)
        found = held.get("notes/today.md")
        assert found is not None and (found.version, found.text, found.bytes) == (second, "one\ntwo\n", 8)
        held.put("picture.png", picture := random.Random(1).randbytes(200_000))
        assert [(each.path, each.bytes) for each in held.list()] == [("notes/today.md", 8), ("picture.png", 200_000)]
        assert [each.path for each in held.list("notes/")] == ["notes/today.md"]
    with conversation(tmp_path) as held:
        assert (tmp_path / "talk/files/notes/today.md").read_text() == "one\ntwo\n"
        assert (tmp_path / "talk/files/picture.png").read_bytes() == picture
        again = held.get("picture.png")
        assert again is not None and again.data == picture
        assert held.remove("picture.png") and not held.remove("picture.png") and held.get("picture.png") is None
    assert not (tmp_path / "talk/files/picture.png").exists()


def test_readers_take_no_lock(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        at = held.append(SAID)
        held.append([{"n": 1}], log="calls")
        held.put("a.txt", "one")
        run = satchel.open(tmp_path / "talk")
        assert values(run.rows()) == SAID and run.rows(after=at) == [] and values(run.rows("calls")) == [{"n": 1}]
        (entry,) = run.held_files()
        found = run.held_file("a.txt")
        assert isinstance(entry, FileEntry) and found is not None and found.text == "one"
        assert run.held_contents("a") == [found] and run.held_contents("b") == []
        assert run.held_file("b.txt") is None and run.rows("none") == []
        assert run.status().state == "held" and run.status().holder is not None
    status = run.status()
    assert status.state == "held" and status.holder is None and not status.needs_person and status.next == ""
    assert run.check().ok


@pytest.mark.usefixtures("holder_stays")
def test_another_process_is_refused_until_it_is_released(tmp_path: Path) -> None:
    held, other = conversation(tmp_path, idle=30), conversation(tmp_path)
    held.append(SAID)
    with pytest.raises(LeaseHeld, match="this program has it open"):
        other.append(SAID)
    waits = conversation(tmp_path, wait=PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(waits.rows)
        held.close()
        assert values(found.result(PATIENCE)) == SAID
    waits.close()
    with pytest.raises(UsageError, match="is closed"):
        held.rows()


def test_an_idle_workspace_is_released_and_taken_again(tmp_path: Path) -> None:
    with conversation(tmp_path, idle=0.1) as held:
        held.append(SAID)
        other = until(lambda: _taken(tmp_path))
        other.append([{"role": "user", "content": "from elsewhere"}])
        other.close()
        assert values(held.rows())[2:] == [{"role": "user", "content": "from elsewhere"}]


def _taken(folder: Path) -> Held | None:
    other = conversation(folder)
    try:
        other.rows()
    except LeaseHeld:
        return None
    return other


def test_a_released_workspace_is_left_to_others_at_once_and_taken_again(tmp_path: Path) -> None:
    held = conversation(tmp_path, idle=60)
    held.release()
    held.append(SAID)
    held.release()
    with conversation(tmp_path) as other:
        other.append(SAID)
    assert len(held.rows()) == 4
    held.close()
    held.release()
    with pytest.raises(UsageError, match="closed"):
        held.rows()


def test_nothing_comes_between_the_calls_of_an_exclusive_block(tmp_path: Path) -> None:
    """Not even its release, which is due after each call."""
    held = conversation(tmp_path, idle=0)

    def count(_: int) -> None:
        with held.exclusive():
            number = int(file.text) if (file := held.get("count")) else 0
            held.put("count", str(number + 1))

    with ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(count, range(20))]) == 20
    with held.exclusive(), pytest.raises(LeaseHeld):
        held.append(SAID)
        with conversation(tmp_path):
            pass
    with pytest.raises(KeyError), held.exclusive():
        raise KeyError
    file = held.get("count")
    assert file is not None and file.text == "20"
    held.close()


def test_the_times_of_an_exclusive_block_do_not_count(tmp_path: Path) -> None:
    held = conversation(tmp_path, idle=HANGS)
    with held.exclusive(idle=0):
        held.append(SAID)
    with conversation(tmp_path, wait=PATIENCE):  # it was left at once
        pass
    with pytest.raises(UsageError, match="wait"), held.exclusive(wait=-1):
        pass
    held.close()


def test_threads_and_tasks_append_one_after_the_other(tmp_path: Path) -> None:
    with conversation(tmp_path) as held, ThreadPoolExecutor(8) as pool:
        places = [*pool.map(lambda n: held.append([{"n": n}, {"n": n}], log="calls"), range(60))]
        found = [value["n"] for value in values(held.rows("calls"))]
        assert found[::2] == found[1::2] and sorted(found[::2]) == [*range(60)] and len({*places}) == 60


def test_a_cancelled_append_leaves_memory_and_disk_agreeing(tmp_path: Path) -> None:
    asyncio.run(_cancelled(tmp_path))


async def _cancelled(tmp_path: Path) -> None:
    async with conversation(tmp_path) as held:
        for number in range(20):
            task = asyncio.create_task(held.aappend([{"n": number}], log="calls"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        last = await held.aappend([{"n": "last"}], log="calls")
        here = values(await held.arows("calls"))
        await held.aput("a", b"1")
        assert [each.path for each in await held.alist()] == ["a"] and (await held.aget("a")).data == b"1"  # type: ignore[union-attr]
        assert await held.aremove("a")
    # What was cancelled may still have been written then: after the last one, as every thread has its turn.
    there = satchel.open(tmp_path / "talk").rows("calls")
    assert values(there)[: len(here)] == here and all(row.seq > last for row in there[len(here) :])
    assert len({json.dumps(value) for value in values(there)}) == len(there)


@pytest.mark.parametrize(
    ("made", "error", "told"),
    [
        (lambda held: held.append({"role": "user", "content": ""}), UsageError, "rows can't be of the type dict"),
        (lambda held: held.append([{"role": "user"}]), UsageError, "row 1 has the keys 'role'"),
        (lambda held: held.append([{"role": 1, "content": ""}]), UsageError, "the role of row 1"),
        (lambda held: held.append([{"a": 1}, {"a": math.nan}], log="calls"), NotSerializable, "row 2"),
        (lambda held: held.append([{"a": "\ud800"}], log="calls"), NotSerializable, "row 1"),
        (lambda held: held.append([{"a": object()}], log="calls"), NotSerializable, "row 1"),
        (lambda held: held.append(["a"], log="calls"), UsageError, "row 1 can't be of the type str"),
        (lambda held: held.append([{}], log="../calls"), UsageError, "log can't be"),
        (lambda held: held.append([{}], log="calls", key=3), UsageError, "key"),
        (lambda held: held.append([{}], log="calls", key=""), UsageError, "key can't be empty"),
        (lambda held: held.rows(after=-1), UsageError, "after"),
        (lambda held: held.put("../a", "x"), UsageError, r"\.\./a"),
        (lambda held: held.put("a", 3), UsageError, "data can't be of the type int"),
        (lambda held: held.put("a", "x", if_version=-1), UsageError, "if_version"),
        (lambda held: held.get(3), UsageError, "path"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_written(
    tmp_path: Path, made: Callable[[Held], Any], error: type[Exception], told: str
) -> None:
    with conversation(tmp_path) as held:
        at = held.append([{"n": 0}], log="calls")
        with pytest.raises(error, match=told):
            made(held)
        assert held.append([{"n": 1}], log="calls") == at + 2
        assert values(held.rows("calls")) == [{"n": 0}, {"n": 1}] and held.rows() == [] and held.list() == []


def test_a_workspace_of_another_kind_or_of_an_agent_is_refused(tmp_path: Path, make: Callable[..., Path]) -> None:
    with conversation(tmp_path) as held:
        held.append(SAID)
    with pytest.raises(Refused, match="is held as 'conversation'"), satchel.hold(tmp_path / "talk", kind="thread"):
        pass
    agent = make()
    with pytest.raises(Refused, match="is the run of an agent"), satchel.hold(agent, kind="thread"):
        pass
    with (
        pytest.raises(UsageError, match="there is no workspace"),
        satchel.hold(tmp_path / "none", kind="thread", create=False),
    ):
        pass
    with pytest.raises(UsageError, match="kind can't be"):
        satchel.hold(tmp_path / "none", kind="Two words")


def test_nothing_starts_or_stops_it(tmp_path: Path, cli: Any) -> None:
    with conversation(tmp_path) as held:
        held.append(SAID)
        run = satchel.open(tmp_path / "talk")
        for act in (run.run, run.resume, run.pause, run.cancel, run.stop, lambda: run.send("a task")):
            with pytest.raises(UsageError, match="has no agent: programs hold it as 'conversation'"):
                act()
        (left,) = satchel.stop_all(satchel.open_all(tmp_path))
        assert left.how == "idle" and os.getpid()
        assert cli("serve", "--once", tmp_path).exit_code == 0
        held.append(SAID)
    assert len([row for row in run.history.log() if row.record["type"] == "opened"]) == 1


def test_a_person_keeps_programs_away_with_a_pause_yaml(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        held.append(SAID)
        (tmp_path / "talk/pause.yaml").write_text("reason: I am reading it\n")

        def refused() -> bool:
            try:
                held.append(SAID)
            except Refused as error:
                return "I am reading it" in str(error)
            return False

        until(refused)
        there = len(satchel.open(tmp_path / "talk").rows())
        (tmp_path / "talk/pause.yaml").unlink()
        held.append(SAID)
        assert len(held.rows()) == there + 2


# Edits by hand


def saved(path: Path, text: str) -> None:
    """As an editor saves it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + "~")
    new.write_text(text)
    new.replace(path)


def test_a_file_that_a_person_saves_is_its_next_version(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        first = held.put("a.txt", "mine\n")
        until((tmp_path / "talk/files/a.txt").exists)
        saved(tmp_path / "talk/files/a.txt", "theirs\n")
        found = until(lambda: (now := held.get("a.txt")) is not None and now.version > first and now)
        assert found.text == "theirs\n"
        with pytest.raises(Conflicting):
            held.put("a.txt", "mine again\n", if_version=first)
        saved(tmp_path / "talk/files/new/b.txt", "of a person")
        until(lambda: held.get("new/b.txt"))
        held.remove("new/b.txt")
    saved(tmp_path / "talk/files/a.txt", "at rest\n")
    (tmp_path / "talk/files/gone.txt").write_text("dropped there")
    with conversation(tmp_path) as held:
        texts = {each.path: held.get(each.path).text for each in held.list()}  # type: ignore[union-attr]
        assert texts == {"a.txt": "at rest\n", "gone.txt": "dropped there"}
    blame = satchel.open(tmp_path / "talk").history.blame("files/a.txt")
    assert [(each.path, each.value, each.origin.kind) for each in blame.values] == [("/line 1", "at rest", "edit")]


def test_a_save_over_an_older_version_is_kept_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with conversation(tmp_path) as held:
        held.put("a.txt", "one\n")
        until((tmp_path / "talk/files/a.txt").exists)
        with monkeypatch.context() as slow:
            slow.setattr(HeldDocument, "write", lambda document: True)  # the disk can't follow
            held.put("a.txt", "two\n")
            saved(tmp_path / "talk/files/a.txt", "theirs\n")
            kept = tmp_path / "talk/files/a.rejected.txt"
            until(lambda: held.get("a.txt") and kept.exists())
        assert held.get("a.txt").text == "two\n" and kept.read_text() == "theirs\n"  # type: ignore[union-attr]
    assert (tmp_path / "talk/files/a.txt").read_text() == "two\n"
    assert "another version" in (tmp_path / "talk/files/a.rejected.reasons.txt").read_text()
    with conversation(tmp_path) as held:
        assert [each.path for each in held.list()] == ["a.txt"]


def test_a_conversation_is_corrected_and_a_log_is_not(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        at = held.append(SAID)
        held.append([{"n": 1}], log="calls")
    talk, calls = tmp_path / "talk/messages.jsonl", tmp_path / "talk/logs/calls.jsonl"
    saved(talk, talk.read_text().replace('"hi"', '"hello"'))
    saved(calls, calls.read_text().replace('"n":1', '"n":2'))
    with conversation(tmp_path) as held:
        assert values(held.rows()) == [{"role": "user", "content": "hello"}, SAID[1]]
        assert values(held.rows("calls")) == [{"n": 1}]
        assert held.rows(after=at) == [] and len(held.rows(last=1)) == 1
    assert '"n":1' in calls.read_text() and '"n":2' in calls.with_name("calls.rejected.jsonl").read_text()


def test_a_removed_file_or_log_is_written_again(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        held.append([{"n": 1}], log="calls")
        held.put("a.txt", "one")
    (tmp_path / "talk/logs/calls.jsonl").unlink()
    (tmp_path / "talk/files/a.txt").unlink()
    with conversation(tmp_path) as held:
        assert values(held.rows("calls")) == [{"n": 1}] and len(held.list()) == 1
    assert (tmp_path / "talk/logs/calls.jsonl").exists() and (tmp_path / "talk/files/a.txt").read_text() == "one"


# Going on


def test_a_copy_is_asked_about_and_a_moved_one_goes_on(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        held.append(SAID)
        held.put("a.txt", "one")
    satchel.open(tmp_path / "talk").copy(tmp_path / "copy")
    with pytest.raises(UsageError, match="adopt=True"), satchel.hold(tmp_path / "copy", kind="conversation"):
        pass
    with satchel.hold(tmp_path / "copy", kind="conversation", adopt=True) as held:
        held.append([{"n": 1}], log="calls")
    satchel.open(tmp_path / "talk").move(tmp_path / "elsewhere")
    with satchel.hold(tmp_path / "elsewhere", kind="conversation") as held:
        assert values(held.rows()) == SAID and [each.path for each in held.list()] == ["a.txt"]
        assert held.rows("calls") == []


def test_a_fork_of_an_earlier_moment_has_its_rows_and_files(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        held.append([{"n": 1}], log="calls", key="one")
        then = held.put("a.txt", "one")
        held.append([{"n": 2}], log="calls")
        held.put("a.txt", "two")
        held.put("b.txt", "b")
    run = satchel.open(tmp_path / "talk")
    run.history.fork(tmp_path / "fork", at=then)
    with satchel.hold(tmp_path / "fork", kind="conversation") as held:
        assert values(held.rows("calls")) == [{"n": 1}] and [each.path for each in held.list()] == ["a.txt"]
        assert held.get("a.txt").text == "one"  # type: ignore[union-attr]
        assert held.append([{"n": 1}], log="calls", key="one") == held.rows("calls")[-1].seq
    files = run.history.diff(then, "latest").files
    assert [(each.path, each.kind) for each in files] == [("a.txt", "changed"), ("b.txt", "added")]
    (shown,) = run.history.show(then).agents
    assert shown.logs == {"calls": 1} and [*shown.files] == ["a.txt"]


def test_rows_outlive_the_records_that_are_pruned(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        for number in range(30):
            held.append([{"n": number}, {"n": number}], log="calls", key=str(number))
            held.append([{"role": "user", "content": number}])
            held.put(f"{number % 3}.txt", f"{number}")
    add(tmp_path, "keep: {history: 5, checkpoints: 1}\n")
    with conversation(tmp_path) as held:
        held.append([{"n": 30}], log="calls")
    satchel.open(tmp_path / "talk").prune()
    for path in ("logs/calls.jsonl", "messages.jsonl"):
        (tmp_path / "talk" / path).unlink()
    with conversation(tmp_path) as held:
        assert len(held.rows("calls")) == 61 and len(held.rows()) == 30
        assert held.append([{"n": 0}], log="calls", key="7") < held.rows("calls")[-1].seq
        assert held.get("2.txt").text == "29"  # type: ignore[union-attr]


def test_a_long_log_is_not_read_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with conversation(tmp_path) as held:
        for _ in range(4):
            held.append([{"role": "user", "content": "x" * 1000} for _ in range(500)])
        held.append([{"role": "user", "content": "last"}])
    sizes = []
    read = DiskStore.read

    def counted(self: DiskStore, path: str, **options: Any) -> Any:
        found = read(self, path, **options)
        sizes.append((path, len(found.data)))
        return found

    monkeypatch.setattr(DiskStore, "read", counted)
    with conversation(tmp_path) as held:
        assert values(held.rows(last=1)) == [{"role": "user", "content": "last"}]
        held.append([{"role": "user", "content": "more"}])
        assert len(held.rows(last=3)) == 3
    assert all(size < 200_000 for path, size in sizes if path != "journal/000000000001.jsonl"), sizes


def test_secrets_are_redacted_in_rows_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", secret := "a-secret-that-nobody-guesses")
    with conversation(tmp_path) as held:
        held.rows()
    add(tmp_path, "redact: {env: [TOKEN]}\n")
    with conversation(tmp_path) as held:
        held.append([{"role": "user", "content": f"it is {secret}"}])
        held.append([{"t": secret}], log="calls")
        held.put("a.txt", f"it is {secret}\n")
        held.put("b.txt", f"it is {secret}\n" * 5000)
        with pytest.raises(AgentError):
            held.put(f"{secret}.txt", "x")
        with pytest.raises(AgentError):
            held.append([{"t": 1}], log="calls", key=secret)
        assert len(held.rows("calls")) == 1
    found = [path for path in (tmp_path / "talk").rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert found == []


def test_what_it_holds_is_readable_and_that_of_an_agent_is_not(tmp_path: Path, make: Callable[..., Path]) -> None:
    with conversation(tmp_path) as held:
        held.append([{"n": 1}], log="calls")
        held.put("a/b.txt", "one")
    files = satchel.open(tmp_path / "talk").files
    assert {"files/a/b.txt", "logs/calls.jsonl"} <= {each.path for each in files.list()}
    assert files.read("files/a/b.txt") == b"one"
    agent = make()
    (agent / "files").mkdir()
    (agent / "files/secret.txt").write_text("mine")
    files = satchel.open(agent).files
    assert not [each for each in files.list() if each.path.startswith("files/")]
    with pytest.raises(UsageError, match="no readable file"):
        files.read("files/secret.txt")


@pytest.mark.usefixtures("holder_stays")
def test_it_is_removed_unless_a_process_has_it(tmp_path: Path, make: Callable[..., Path]) -> None:
    held = conversation(tmp_path)
    held.append(SAID)
    held.put("a/b/c.txt", "one")
    with pytest.raises(LeaseHeld):
        satchel.remove(tmp_path / "talk")
    held.close()
    assert satchel.remove(tmp_path / "talk") and not (tmp_path / "talk").exists()
    assert not satchel.remove(tmp_path / "talk")
    agent = make()
    with pytest.raises(Refused, match="is the run of an agent"):
        satchel.remove(agent)
    assert (agent / "agent.py").exists()


def test_after_an_error_of_the_storage_the_next_call_opens_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with conversation(tmp_path) as held:
        held.append([{"n": 1}], log="calls")
        with monkeypatch.context() as broken:
            broken.setattr("satchel.workspace.store.syscalls.Syscalls.sync_data", _full)
            with pytest.raises(StorageFailed):
                held.append([{"n": 2}], log="calls")
        held.append([{"n": 3}], log="calls")
        found = [value["n"] for value in values(held.rows("calls"))]
        assert found in ([1, 3], [1, 2, 3]), "what was not acknowledged may be there or not"
    assert values(satchel.open(tmp_path / "talk").rows("calls")) == [{"n": each} for each in found]


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


ENDS = """
import sys, satchel
held = satchel.hold(sys.argv[1], kind="conversation", idle=60)
for number in range(20):
    held.append([{"n": number}], log="calls")
    held.put(f"{number}.txt", str(number))
"""


def test_a_program_that_ends_without_closing_leaves_its_files_out(tmp_path: Path) -> None:
    warm.run([sys.executable, "-c", ENDS, str(tmp_path / "talk")], check=True)
    assert len([*(tmp_path / "talk/files").iterdir()]) == 20
    assert len((tmp_path / "talk/logs/calls.jsonl").read_text().splitlines()) == 20
    assert not (tmp_path / "talk/.satchel/lease.json").exists()


def test_a_save_over_a_version_that_a_killed_program_had_not_replaced_yet_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os, sys, satchel\n"
        "from satchel.workspace.views import HeldDocument\n"
        "held = satchel.hold(sys.argv[1], kind='conversation')\n"
        "held.put('a.txt', 'one'); held.close()\n"
        "held = satchel.hold(sys.argv[1], kind='conversation')\n"
        "HeldDocument.write = lambda document: None\n"
        "held.put('a.txt', 'two'); os.kill(os.getpid(), 9)\n"
    )
    warm.run([sys.executable, "-c", program, str(tmp_path / "talk")])
    file = tmp_path / "talk/files/a.txt"
    assert file.read_text() == "one"
    time.sleep(1.1)  # times are known to the second
    saved(file, "one, corrected")
    with conversation(tmp_path) as held:
        assert held.get("a.txt").text == "two"  # type: ignore[union-attr]
    assert file.read_text() == "two" and file.with_name("a.rejected.txt").read_text() == "one, corrected"


KILLED = """
import sys, satchel
held = satchel.hold(sys.argv[1], kind="conversation")
for number in range(max(0, len(held.rows("calls")) // 2 - 1), 10**6):
    held.append([{"n": number}, {"n": number}], log="calls", key=str(number))
    version = held.put("a.txt", str(number))
    print(number, flush=True)
"""


@pytest.mark.sampled(every=3, rest="soak")
@pytest.mark.parametrize("seed", range(6))
def test_kill_9_loses_tears_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    _killed(str(tmp_path / "talk"), dict(os.environ), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_kill_9_in_a_bucket(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SATCHEL_LEASE_TTL", "1")
    _killed(f"{seaweedfs.place()}/talk", dict(os.environ), seed)


def _killed(url: str, environment: dict[str, str], seed: int) -> None:
    chance, acknowledged = random.Random(seed), -1
    for _ in range(3):
        with warm.Popen(
            [sys.executable, "-c", KILLED, url], env=environment, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None
            timer = threading.Timer(PATIENCE, program.kill)
            timer.start()
            told = [int(program.stdout.readline()) for _ in range(chance.randint(1, 12))]
            time.sleep(chance.random() * 0.002)
            program.send_signal(signal.SIGKILL)
            told += map(int, program.stdout.read().split())
            timer.cancel()
        acknowledged = max(acknowledged, *told)
        with satchel.hold(url, kind="conversation", wait=PATIENCE) as held:
            found = [value["n"] for value in values(held.rows("calls"))]
            done = len(found) // 2
            assert found == [each for each in range(done) for _ in range(2)], "none torn or doubled"
            assert acknowledged < done <= acknowledged + 2, "nothing acknowledged is lost"
            file = held.get("a.txt")
            assert file is not None and int(file.text) in (done - 1, done - 2)


def test_a_row_is_of_its_type(tmp_path: Path) -> None:
    with conversation(tmp_path) as held:
        held.append(SAID)
        (first, _) = held.rows()
        assert isinstance(first, Row) and first.at.endswith("Z")
        assert "conversation" in repr(held)
    assert "closed" in repr(held)
