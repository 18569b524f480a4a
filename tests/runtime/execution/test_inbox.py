"""`run.inbox`: what arrives from outside is neither lost nor done twice."""

from __future__ import annotations

import asyncio
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from satchel import InboxTask, Run, agent, run, step
from satchel.runtime.supervision.known_run import StartVerdict, judge
from satchel.workspace.base.errors import AgentError
from satchel.workspace.inbound import inbox
from satchel.workspace.inspect.load import look as look_at
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore
from satchel.workspace.views import guarded_files

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def drop(workspace: Path, name: str, text: str | bytes) -> Path:
    path = workspace / "inbox" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    saving = workspace.parent / f"{workspace.name}.saving"  # at once, since nobody is in the middle of saving
    saving.write_bytes(text.encode() if isinstance(text, str) else text)
    return saving.replace(path)


def judged(workspace: Path) -> StartVerdict:
    """Whether `serve` would start it."""
    return judge(DiskStore(workspace), NOW)


def records(workspace: Path, kind: str) -> list[dict[str, object]]:
    segments = sorted((workspace / "journal").iterdir())
    rows = [json.loads(row) for path in segments for row in path.read_text().splitlines()]
    return [row for row in rows if row["type"] == kind]


def left(workspace: Path) -> list[str]:
    """What lies in the inbox, folders apart."""
    return sorted(path.name for path in (workspace / "inbox").iterdir() if path.is_file())


def done(workspace: Path) -> list[str]:
    return sorted(path.name for path in (workspace / "inbox/done").iterdir())


def cut(workspace: Path, rows: list[bytes]) -> None:
    """Leave only these records in the journal, and nothing that shows later ones."""
    (segment,) = (workspace / "journal").iterdir()
    segment.write_bytes(b"".join(rows))
    for name in ("state.json", "todo.md"):
        (workspace / name).unlink(missing_ok=True)
    for path in (workspace / "steps").rglob("*.json"):
        path.unlink()


@agent
async def noting(run: Run) -> None:
    async def work(run: Run, task: InboxTask) -> None:
        run.state.setdefault("seen", []).append([task.id, task.name, task.kind, task.text, task.data])

    await run.inbox.each(work)


def seen(workspace: Path) -> list[list[object]]:
    found: list[list[object]] = json.loads((workspace / "state.json").read_text())["data"].get("seen", [])
    return found


def test_a_file_is_not_what_the_agent_gets(workspace: Path) -> None:
    drop(workspace, "b.md", "Call Ada\n")
    drop(workspace, "a.yaml", "customer: 7\nat: 22:30\n")
    drop(workspace, "c.yaml", "kind: task\ncustomer: 8\n")
    outcome = run(workspace, noting)
    assert outcome.status == "completed", outcome.error
    assert seen(workspace) == [
        ["t1", "a.yaml", "task", "", {"customer": 7, "at": "22:30"}],
        ["t2", "b.md", "task", "Call Ada\n", None],
        ["t3", "c.yaml", "task", "", {"customer": 8}],
    ]
    assert (left(workspace), done(workspace)) == ([], ["a.yaml", "b.md", "c.yaml"])
    assert [record["id"] for record in records(workspace, "task.done")] == ["t1", "t2", "t3"]


def test_a_task_is_lost_or_done_twice_when_a_run_is_entered_again(workspace: Path) -> None:
    drop(workspace, "a.md", "first")
    assert run(workspace, noting).entered
    drop(workspace, "a.md", "first")  # the same again is another task
    assert run(workspace, noting).entered
    assert [row[0] for row in seen(workspace)] == ["t1", "t2"]
    assert not run(workspace, noting).entered  # nothing is waiting
    assert done(workspace) == ["a.md"]
    drop(workspace, "a.md", "second")
    run(workspace, noting)
    assert done(workspace) == ["a.md", "a.t3.md"]


def test_work_is_ignored_if_the_first_start_has_found_an_empty_inbox(workspace: Path) -> None:
    assert run(workspace, noting).status == "completed"
    assert not run(workspace, noting).entered
    drop(workspace, "a.md", "first")
    assert judged(workspace).starts
    assert run(workspace, noting).entered and [row[1] for row in seen(workspace)] == ["a.md"]
    assert not judged(workspace).starts


def test_an_agent_that_never_looks_into_its_inbox_is_entered_in_circles(workspace: Path) -> None:
    calls: list[str] = []

    @agent
    async def deaf(run: Run) -> None:
        calls.append("called")
        if calls == ["called"]:
            drop(workspace, "b.md", "while it was running")

    def starts() -> bool:
        is_due = judged(workspace).starts
        assert run(workspace, deaf).entered == is_due
        return is_due

    drop(workspace, "a.md", "before the first start")
    assert [starts(), starts()] == [True, False] and len(calls) == 2, "the second time for b.md"
    path = drop(workspace, "c.md", "one more")
    inbox.send(DiskStore(workspace), inbox.message("no work of its own"), "yaml")
    assert [starts(), starts()] == [True, False]
    path.write_text("another task under an old name")
    assert [starts(), starts()] == [True, False]
    (workspace / "inbox/link.md").symlink_to("/etc/hostname")
    assert [starts(), starts()] == [True, False]
    assert len(left(workspace)) == 5 and len(calls) == 5


def test_a_task_that_arrives_after_the_last_look_counts_as_seen(workspace: Path) -> None:
    drop(workspace, "a.md", "first")
    entered: list[int] = []

    @agent
    async def late(run: Run) -> None:
        entered.append(run.attempt)
        await run.inbox.each(lambda run, task: None)
        if len(entered) == 1:
            drop(workspace, "b.md", "after the last look")

    assert run(workspace, late).status == "completed" and left(workspace) == []
    assert entered == [1, 2] and not judged(workspace).starts


def test_a_file_that_never_held_still_counts_as_seen(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lay there when the agent was called, but somebody was saving it all the time."""
    drop(workspace, "a.md", "half of it")
    with monkeypatch.context() as patched:
        patched.setattr(guarded_files, "WAITS", guarded_files.Waits(look=0.0001, closed=1000.0))
        patched.setattr("satchel.runtime.execution.run_inbox.PATIENCE", 0.01)
        assert run(workspace, noting).status == "completed" and left(workspace) == ["a.md"]
    assert run(workspace, noting).entered and left(workspace) == []


def test_a_task_that_was_passed_over_is_forgotten_by_a_repair(workspace: Path) -> None:
    """Who completes without a task is asked once; what the journal says of it outlives a lost projection."""
    drop(workspace, "a.md", "first")

    @agent
    async def breaking(run: Run) -> None:
        await run.scope("listen", run.inbox.take, "message")

    assert run(workspace, breaking).status == "completed"
    with opened(DiskStore(workspace), "recover", Report()) as repaired:
        assert repaired.was_finished
        repaired.close()
    assert not run(workspace, breaking).entered and not judged(workspace).starts


def test_what_arrives_while_the_agent_works_waits_for_the_next_start(workspace: Path) -> None:
    drop(workspace, "b.md", "first")

    @agent
    async def sending(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            run.state.setdefault("seen", []).append(task.name)
            if task.name == "b.md":
                drop(workspace, "a.md", "sorted before it")
                drop(workspace, "c.md", "and after it")

        await run.inbox.each(work)

    run(workspace, sending)
    assert seen(workspace) == ["b.md", "a.md", "c.md"]


def test_a_commit_without_its_task(workspace: Path, crash: type[BaseException]) -> None:
    """The commit and `task.done` are one group: whatever comes after it, the task is not done again."""
    drop(workspace, "a.md", "first")
    drop(workspace, "b.md", "second")
    entered: list[str] = []

    @agent
    async def crashing(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            entered.append(task.name)
            if entered == ["a.md", "b.md"]:
                raise crash
            run.state.setdefault("seen", []).append(task.name)

        await run.inbox.each(work)

    with pytest.raises(crash):
        run(workspace, crashing)
    commit, done = records(workspace, "scope.committed")[-1], records(workspace, "task.done")[-1]
    assert commit.get("commit", commit["seq"]) == done.get("commit") and commit["scope"] == "_inbox-t1"
    run(workspace, crashing)
    assert (entered, seen(workspace)) == (["a.md", "b.md", "b.md"], ["a.md", "b.md"])


def test_a_group_that_is_cut_short_does_a_task_again(workspace: Path, crash: type[BaseException]) -> None:
    drop(workspace, "a.md", "first")
    entered: list[str] = []

    @agent
    async def counting(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            entered.append(task.name)

        await run.inbox.each(work)
        if run.attempt == 1:
            raise crash

    with pytest.raises(crash):
        run(workspace, counting)
    (segment,) = (workspace / "journal").iterdir()
    rows = segment.read_bytes().splitlines(keepends=True)
    assert b"task.done" in rows[-1] and b"scope.committed" in rows[-2]
    cut(workspace, rows[:-1])
    drop(workspace, "a.md", "first")  # the power failure has undone the move, too
    (workspace / "inbox/done/a.md").unlink()
    run(workspace, counting)
    assert entered == ["a.md"] and left(workspace) == [] and len(records(workspace, "task.done")) == 1


@pytest.mark.parametrize("lost", [1, 2])
def test_a_message_of_a_group_that_is_cut_short_is_heard_again(
    workspace: Path, crash: type[BaseException], lost: int
) -> None:
    drop(workspace, "a.md", "first")
    drop(workspace, "m.yaml", inbox.message("hurry"))
    heard: list[list[str]] = []

    @agent
    async def hearing(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            heard.append([each.text for each in await run.inbox.take("message")])

        await run.inbox.each(work)
        if run.attempt == 1:
            raise crash
        await run.scope("later", work, run, None)

    with pytest.raises(crash):
        run(workspace, hearing)
    (segment,) = (workspace / "journal").iterdir()
    rows = segment.read_bytes().splitlines(keepends=True)
    assert [b"task.done" in row for row in rows[-3:]] == [False, True, True]
    cut(workspace, rows[:-lost])
    for name in ("a.md", "m.yaml"):
        (workspace / "inbox/done" / name).rename(workspace / "inbox" / name)
    assert run(workspace, hearing).status == "completed"
    assert heard == [["hurry"], []] and left(workspace) == [] and done(workspace) == ["a.md", "m.yaml"]


def test_a_file_that_comes_back_is_done_again(workspace: Path, crash: type[BaseException]) -> None:
    """After a power failure: its removal was not durable."""
    drop(workspace, "a.md", "first")
    entered: list[str] = []

    @agent
    async def crashing(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            entered.append(task.name)

        await run.inbox.each(work)
        if run.attempt == 1:
            raise crash

    with pytest.raises(crash):
        run(workspace, crashing)
    drop(workspace, "a.md", "first")
    run(workspace, crashing)
    assert entered == ["a.md"] and left(workspace) == [] and done(workspace) == ["a.md"]


def test_what_is_done_is_remembered_for_ever(workspace: Path) -> None:
    for number in range(30):
        drop(workspace, f"{number:02d}.md", "x")
    run(workspace, noting)
    moment = look_at(DiskStore(workspace)).moment
    assert (len(moment.tasks_done), moment.tasks_taken, moment.tasks) == (0, 30, {})
    assert not [key for key in moment.root.results if key.startswith("_inbox")]


def test_a_file_that_was_changed_while_it_was_at_work_is_lost(workspace: Path) -> None:
    drop(workspace, "a.md", "first")

    @agent
    async def slow(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            if task.text == "first":
                drop(workspace, "a.md", "corrected")
            run.state.setdefault("seen", []).append(task.text)

        await run.inbox.each(work)

    run(workspace, slow)
    assert seen(workspace) == ["first", "corrected"] and left(workspace) == []


def test_a_deleted_file_takes_its_task_with_it(workspace: Path, crash: type[BaseException]) -> None:
    path = drop(workspace, "a.md", "first")
    entered: list[str] = []

    @agent
    async def crashing(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            entered.append(task.text)
            if len(entered) == 1:
                path.unlink()
                raise crash

        await run.inbox.each(work)

    with pytest.raises(crash):
        run(workspace, crashing)
    assert run(workspace, crashing).status == "completed"
    assert entered == ["first", "first"]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.yaml", b"a: [1\n", "a list that is not closed"),
        ("a.yaml", b"kind: invoice\n", "task or message"),
        ("a.yaml", b"kind: message\nbody: x\n", "`text:` with `kind: message`"),
        ("a.yaml", b"# nothing\n", "only comments"),
        ("a.md", b"\xff\xfe\x00\x00", "UTF-16"),
        ("a.md", b"a\x00b", "a NUL character"),
        ("a.md", b" \n", "nothing"),
        ("a.md", b"x" * (inbox.LIMIT + 1), "at most"),
    ],
)
def test_what_can_not_be_taken_is_lost_or_stops_the_others(workspace: Path, name: str, data: bytes, why: str) -> None:
    drop(workspace, name, data)
    drop(workspace, "b.md", "good")
    outcome = run(workspace, noting)
    assert [row[1] for row in seen(workspace)] == ["b.md"]
    stem, _, extension = name.partition(".")
    assert left(workspace) == sorted([f"{stem}.rejected.{extension}", f"{stem}.rejected.txt"])
    assert (workspace / f"inbox/{stem}.rejected.{extension}").read_bytes() == data
    assert why in (workspace / f"inbox/{stem}.rejected.txt").read_text()
    assert len(outcome.noticed) == 1 and f"{stem}.rejected.{extension}" in outcome.noticed[0]
    assert not run(workspace, noting).entered


def test_a_link_is_followed_or_stops_the_others(workspace: Path) -> None:
    drop(workspace, "b.md", "good")
    (workspace / "inbox/a.md").symlink_to("/etc/hostname")
    outcome = run(workspace, noting)
    assert [row[1] for row in seen(workspace)] == ["b.md"]
    assert len(outcome.noticed) == 1 and "symbolic link" in outcome.noticed[0]


def test_what_an_editor_leaves_is_a_task(workspace: Path) -> None:
    for name in (".a.md.swp", "a.md~", "#a.md#", ".#a.md", "a.md.tmp", "a.md.part", ".~lock.a.md", "empty.md"):
        drop(workspace, name, "" if name == "empty.md" else "half")
    drop(workspace, "good.md", "good")
    run(workspace, noting)
    assert [row[1] for row in seen(workspace)] == ["good.md"]
    assert len(left(workspace)) == 8


@pytest.mark.usefixtures("somebody_saves")
def test_a_file_is_taken_while_it_is_being_saved(workspace: Path) -> None:
    path = drop(workspace, "a.md", "the first half")
    os.utime(path, (time.time() + 60,) * 2)  # however slow this machine is, it was not saved long ago

    @agent
    async def reading(run: Run) -> None:
        async def save() -> None:
            await asyncio.sleep(0.1)
            path.write_text("the first half and the second")

        saving = asyncio.create_task(save())

        async def work(run: Run, task: InboxTask) -> None:
            run.state["seen"] = [task.text]

        await run.inbox.each(work)
        await saving

    run(workspace, reading)
    assert seen(workspace) == ["the first half and the second"]


def test_a_task_that_fails_is_left_behind(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))
    drop(workspace, "a.md", "first")
    tries: list[int] = []
    broken = True

    @agent
    async def failing(run: Run) -> None:
        @step
        async def counted() -> int:
            tries.append(0)
            return len(tries)

        async def work(run: Run, task: InboxTask) -> None:
            run.state["seen"] = await counted()
            if broken:
                raise ConnectionError("nobody there")

        await run.inbox.each(work)

    outcome = run(workspace, failing)
    assert outcome.status == "paused" and (workspace / "inbox/a.md").exists()
    assert "stuck: 'a.md' has failed 3 times" in (workspace / "state.json").read_text()
    broken = False
    assert run(workspace, failing, wake=True).status == "completed"
    assert seen(workspace) == 1, "finished steps are answered"


def test_a_task_that_fails_can_not_be_dropped(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))
    drop(workspace, "a.md", "bad")
    drop(workspace, "b.md", "good")

    @agent
    async def failing(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            if task.text == "bad":
                raise ConnectionError("nobody there")
            run.state.setdefault("seen", []).append(task.text)

        await run.inbox.each(work)

    assert run(workspace, failing).status == "paused"
    assert "To drop it, move its file into inbox/cancelled/" in (workspace / "pause.yaml").read_text()
    (workspace / "inbox/a.md").unlink()
    assert run(workspace, failing, wake=True).status == "paused", "that a file is gone is no instruction"
    drop(workspace, "cancelled/a.md", "")
    drop(workspace, "a.md", "mended")
    assert run(workspace, failing, wake=True).status == "completed"
    assert seen(workspace) == ["mended", "good"] and left(workspace) == []
    assert not [*(workspace / "inbox/cancelled").iterdir()], "it is used up: an equal task that comes later is done"
    ended = {record["scope"]: record.get("cancelled") for record in records(workspace, "scope.committed")}
    assert ended["_inbox-t1"] == "inbox/cancelled/a.md", ended


# The loop


def test_a_task_of_the_loop_can_not_be_dropped(workspace: Path) -> None:
    drop(workspace, "a.md", "bad")
    drop(workspace, "b.md", "good")
    given: list[str] = []

    @agent
    async def failing(run: Run) -> None:
        async for task in run.inbox:
            if task.text == "bad":
                raise ConnectionError("nobody there")
            given.append(task.text)

    assert run(workspace, failing).status == "failed"
    drop(workspace, "cancelled/a.md", "bad")
    assert run(workspace, failing).status == "completed" and given == ["good"]
    assert done(workspace) == ["a.md", "b.md"]


def test_a_crash_in_the_loop_loses_its_task(workspace: Path, crash: type[BaseException]) -> None:
    for name in ("a.md", "b.md", "c.md"):
        drop(workspace, name, name)
    entered: list[str] = []

    @agent
    async def looping(run: Run) -> None:
        async for task in run.inbox:
            entered.append(task.id)
            await run.scope(task.id, note, run, task)
            if entered == ["t1", "t2"]:
                raise crash

    async def note(run: Run, task: InboxTask) -> None:
        run.state.setdefault("seen", []).append(task.name)

    with pytest.raises(crash):
        run(workspace, looping)
    assert run(workspace, looping).status == "completed"
    assert entered == ["t1", "t2", "t2", "t3"] and seen(workspace) == ["a.md", "b.md", "c.md"]
    assert left(workspace) == []


def test_a_loop_that_is_left_has_done_its_last_task(workspace: Path) -> None:
    drop(workspace, "a.md", "a")
    entered: list[str] = []

    @agent
    async def leaving(run: Run) -> None:
        async for task in run.inbox:
            entered.append(task.id)
            break

    assert run(workspace, leaving).status == "completed"
    assert left(workspace) == ["a.md"]
    assert run(workspace, leaving).entered and entered == ["t1", "t1"]


# In the middle of an item


def make_taker(entered: list[object], fail_at: int = 0, crash: type[BaseException] = ConnectionError) -> object:
    @step
    async def think(text: str) -> str:
        entered.append(text)
        return text.upper()

    async def work(run: Run, item: object) -> None:
        for part in ("one", "two"):
            await think(part)
            for task in await run.inbox.take():
                await think(task.text)
        if len(entered) == fail_at:
            raise crash
        run.state["seen"] = entered.copy()

    @agent
    async def taking(run: Run) -> None:
        if not run.todo.items:
            await run.plan(None, ["the item"])
        await run.todo.each(work)

    return taking


def test_a_message_disturbs_the_item_at_work_or_is_not_heard(workspace: Path, crash: type[BaseException]) -> None:
    inbox.send(DiskStore(workspace), inbox.message("hurry up"), "yaml")
    entered: list[object] = []
    with pytest.raises(crash):
        run(workspace, make_taker(entered, 3, crash))  # type: ignore[arg-type]
    assert entered == ["one", "hurry up", "two"]
    inbox.send(DiskStore(workspace), inbox.message("slow down"), "yaml")
    assert len(left(workspace)) == 2, "nothing of it was committed"
    assert run(workspace, make_taker(entered)).status == "completed"  # type: ignore[arg-type]
    # The equal calls get what they got; the new one waits for the next item, or whoever asks once more.
    assert entered == ["one", "hurry up", "two"]
    assert len(records(workspace, "task.done")) == 1 and len(left(workspace)) == 1


def test_what_is_taken_without_an_answer_on_record_is_lost(workspace: Path, crash: type[BaseException]) -> None:
    drop(workspace, "a.md", "listen")
    entered: list[object] = []
    with pytest.raises(crash):
        run(workspace, make_taker(entered, 3, crash))  # type: ignore[arg-type]
    (segment,) = (workspace / "journal").iterdir()
    rows = segment.read_bytes().splitlines(keepends=True)
    at = next(number for number, row in enumerate(rows) if b"task.taken" in row)
    assert b"inbox.take" in rows[at + 1]
    cut(workspace, rows[: at + 1])
    assert run(workspace, make_taker(entered)).status == "completed"  # type: ignore[arg-type]
    assert entered[3:] == ["listen", "two"] and len(records(workspace, "task.taken")) == 1
    assert done(workspace) == ["a.md"]


def test_a_dropped_item_takes_its_messages_with_it(workspace: Path, crash: type[BaseException]) -> None:
    inbox.send(DiskStore(workspace), inbox.message("hurry up"), "yaml")
    entered: list[object] = []
    with pytest.raises(crash):
        run(workspace, make_taker(entered, 3, crash))  # type: ignore[arg-type]
    with opened(DiskStore(workspace), "recover", Report()) as repaired:
        repaired.close()
    run_plan = (workspace / "todo.md").read_text()
    assert "[/]" in run_plan
    (workspace / "todo.md").write_text(run_plan.replace("[/]", "[-]") + "- [ ] another\n")
    assert run(workspace, make_taker(entered)).status == "completed"  # type: ignore[arg-type]
    assert entered[3:] == ["one", "hurry up", "two"] and left(workspace) == []


def test_a_task_at_work_is_given_to_a_take_in_it(workspace: Path) -> None:
    drop(workspace, "a.md", "task")
    inbox.send(DiskStore(workspace), inbox.message("word"), "yaml")
    drop(workspace, "z.md", "later")

    @agent
    async def both(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            run.state.setdefault("seen", []).append(
                [task.text, [each.text for each in await run.inbox.take("message")]]
            )

        await run.inbox.each(work)
        run_waiting.append(len(run.inbox))

    run_waiting: list[int] = []
    run(workspace, both)
    assert seen(workspace) == [["task", ["word"]], ["later", []]] and run_waiting == [0]


def test_two_takes_at_once_get_the_same(workspace: Path) -> None:
    for name in ("a.md", "b.md"):
        drop(workspace, name, name)

    @agent
    async def taking(run: Run) -> None:
        async def work() -> None:
            both = await asyncio.gather(run.inbox.take(), run.inbox.take())
            run.state["seen"] = [[task.id for task in each] for each in both]

        await run.scope("both", work)

    assert run(workspace, taking).status == "completed"
    assert seen(workspace) == [["t1", "t2"], []] and left(workspace) == []


@pytest.mark.parametrize("where", ["sub-agent", "step", "take outside", "next inside"])
def test_the_inbox_is_used_where_it_can_not_be(workspace: Path, where: str) -> None:
    drop(workspace, "a.md", "a")

    @agent
    async def sub(run: Run) -> None:
        await run.inbox.each(lambda run, task: None)

    @agent
    async def main(run: Run) -> None:
        @step
        async def looking() -> int:
            return len(run.inbox)

        async def inside() -> None:
            async for _ in run.inbox:
                pass

        if where == "sub-agent":
            await run.spawn(sub, "sub")
        elif where == "step":
            await looking()
        elif where == "take outside":
            await run.inbox.take()
        else:
            await run.scope("inside", inside)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and outcome.error.remedy
    assert left(workspace) == ["a.md"] and not records(workspace, "task.taken")


def test_a_run_whose_files_change_often_does_little_but_look(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one of several tasks at once runs, and the inbox is so full that a look takes long."""
    drop(workspace, "a.md", "write notes")
    times: list[float] = []
    look = inbox.Arrivals.look

    def slow(self: inbox.Arrivals) -> None:
        began = time.monotonic()
        time.sleep(0.02)
        look(self)
        times.append(time.monotonic() - began)

    monkeypatch.setattr(inbox.Arrivals, "look", slow)

    async def work(run: Run, task: InboxTask) -> None:
        times.clear()
        for number in range(100):
            (workspace / "notes").write_text(str(number))
            await asyncio.sleep(0.015)

    @agent
    async def main(run: Run) -> float:
        began = time.monotonic()
        await run.inbox.each(work, parallel=2)
        return sum(times) / (time.monotonic() - began)

    share = run(workspace, main).result
    assert share is not None and share < 0.35, f"{share:.0%} of the time"


def test_a_pipelined_agent_sees_a_task_before_it_is_recorded(workspace: Path) -> None:
    drop(workspace, "a.md", "x" * 70_000)  # long enough for a blob

    @agent(durability="pipelined")
    async def fast(run: Run) -> None:
        async def work() -> None:
            (task,) = await run.inbox.take()
            assert len(records(workspace, "task.taken")) == 1
            run.state["seen"] = len(task.text)

        await run.scope("one", work)

    outcome = run(workspace, fast)
    assert outcome.status == "completed", outcome.error
    assert seen(workspace) == 70_000
