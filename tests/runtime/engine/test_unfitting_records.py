"""A call whose record does not fit is an error at that call. It never leaves a journal that can't be opened."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from satchel import InboxTask, Item, Run, agent, run, step
from satchel.workspace.base.errors import AgentError, DoesNotFit, SatchelError
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import ScopeFailed, StepProgress, TaskDone
from satchel.workspace.store import DiskStore


def drop(workspace: Path, *names: str) -> None:
    (workspace / "inbox").mkdir(exist_ok=True)
    for name in names:
        (workspace / "inbox" / name).write_text(name)


@pytest.mark.parametrize("when", ["the step", "its scope"])
def test_progress_saved_by_a_task_that_was_left_behind_ruins_the_journal(workspace: Path, when: str) -> None:
    left: list[asyncio.Task[None]] = []
    raised: list[BaseException | None] = []

    @agent
    async def main(run: Run) -> None:
        over = asyncio.Event()

        @step
        async def long(run: Run) -> None:
            async def late() -> None:
                await over.wait()
                await run.progress(1)

            left.append(asyncio.create_task(late()))

        async def work(run: Run, item: Item) -> None:
            await long()
            if when == "the step":
                over.set()
                await asyncio.wait(left)

        await run.plan(None, ["One"])
        await run.todo.each(work)
        over.set()
        await asyncio.wait(left)
        raised.append(left[0].exception())

    outcome = run(workspace, main)
    assert outcome.status == "completed", outcome.error
    assert isinstance(raised[0], AgentError) and "after long" in str(raised[0])
    assert look(DiskStore(workspace)).moment.status == "completed", "the journal can be read"


@pytest.mark.parametrize(
    "unfitting",
    [
        StepProgress(scope="gone", no=1, step="s", args="", n=0, value=b"1"),
        TaskDone(id="t9"),  # type: ignore[arg-type]
        ScopeFailed(scope="gone", error=None),
    ],  # type: ignore[arg-type]
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_does_not_fit_is_written_before_anybody_notices(workspace: Path, unfitting: Any) -> None:
    """Whatever call makes one: it is that call that fails, and the run goes on as if it had not been made."""
    raised: list[Exception] = []

    @agent
    async def main(run: Run) -> str:
        journal, seq = run._session.journal, run._session.context.moment.seq
        with pytest.raises(DoesNotFit, match="does not fit the records before it") as caught:
            journal.add(unfitting)
        raised.append(caught.value)
        assert run._session.context.moment.seq == seq == journal.next_seq - 1
        return "done"

    from msgspec import Raw
    from msgspec.structs import replace

    from satchel.workspace.journal import Failure

    if isinstance(unfitting, StepProgress):
        unfitting = replace(unfitting, value=Raw(b"1"))
    if isinstance(unfitting, ScopeFailed):
        unfitting = replace(unfitting, error=Failure("E", "x"))
    outcome = run(workspace, main)
    assert outcome.result == "done" and raised and look(DiskStore(workspace)).moment.status == "completed"


def test_two_workers_on_one_inbox_are_given_the_same_task(workspace: Path) -> None:
    drop(workspace, "a.md", "b.md", "c.md", "d.md", "e.md")
    given: list[tuple[str, str]] = []

    @agent
    async def main(run: Run) -> None:
        async def worker(name: str) -> None:
            async for task in run.inbox:
                given.append((name, task.name))
                await asyncio.sleep(0)

        await asyncio.gather(worker("one"), worker("two"))

    outcome = run(workspace, main)
    assert outcome.status == "completed", outcome.error
    assert sorted(task for _, task in given) == ["a.md", "b.md", "c.md", "d.md", "e.md"]
    assert {name for name, _ in given} == {"one", "two"}
    assert sorted(os.listdir(workspace / "inbox/done")) == ["a.md", "b.md", "c.md", "d.md", "e.md"]


def test_a_loop_over_the_inbox_that_was_left_keeps_its_task_from_the_next(workspace: Path) -> None:
    drop(workspace, "a.md", "b.md")
    given: list[str] = []

    @agent
    async def main(run: Run) -> None:
        async for task in run.inbox:
            given.append(task.name)
            break
        async for task in run.inbox:
            given.append(task.name)

    assert run(workspace, main).status == "completed" and given == ["a.md", "a.md", "b.md"]


def test_a_file_that_can_not_be_put_away_after_the_commit_makes_the_scope_a_failed_one(
    workspace: Path, tmp_path: Path
) -> None:
    """`inbox/done` points outside the workspace. The task is done, and stays so."""
    drop(workspace, "a.md")
    done: list[str] = []

    @agent
    async def main(run: Run) -> None:
        async def work(run: Run, task: InboxTask) -> None:
            done.append(task.name)
            (workspace / "inbox/done").symlink_to(tmp_path)

        await run.inbox.each(work)

    with pytest.raises(SatchelError, match="inbox/done"):
        run(workspace, main)
    seen = look(DiskStore(workspace)).moment
    assert seen.tasks == {} and [*seen.tasks_done] == ["t1"]
    with pytest.raises(SatchelError, match="inbox/done"):
        run(workspace, main)
    (workspace / "inbox/done").unlink()
    assert run(workspace, main).status == "completed" and done == ["a.md"]
    assert os.listdir(workspace / "inbox/done") == ["a.md"]
