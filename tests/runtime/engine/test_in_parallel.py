"""Items and tasks of the inbox several at once: each a transaction, and none of their changes is lost."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from satchel import InboxTask, Item, NotDone, Run, agent, effect, run, step
from satchel.workspace import journal
from satchel.workspace.base.errors import AgentError, UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import ScopeCommitted, ScopeFailed
from satchel.workspace.store import DiskStore


class Crash(BaseException):
    """Leaves the workspace as a kill does."""


@dataclass
class Plain:
    n: int = 0
    said: list[str] = field(default_factory=list)
    by: dict[str, Any] = field(default_factory=dict)


class Model(BaseModel):
    n: int = 0
    said: list[str] = []
    by: dict[str, Any] = {}


def make(work: Any, items: int | list[str], parallel: int = 50, state: Any = Plain, after: Any = None) -> Any:
    texts = [f"item {number}" for number in range(items)] if isinstance(items, int) else items

    @agent(state=state)
    async def main(run: Run[Any]) -> Any:
        if not run.todo.items:
            await run.plan("Work", texts)
        await run.todo.each(work, parallel=parallel)
        return after(run) if after else None

    return main


def data_of(workspace: Path) -> Any:
    return json.loads((workspace / "state.json").read_text())["data"]


def records(workspace: Path, kind: Any) -> list[Any]:
    lines = journal.read(DiskStore(workspace), after=0).lines
    return [line.record for line in lines if isinstance(line.record, kind)]


class Together:
    """A place where all wait until so many have come."""

    def __init__(self, count: int):
        self._missing, self._all = count, asyncio.Event()

    async def meet(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._all.set()
        await self._all.wait()


@pytest.mark.parametrize("state", [Plain, Model])
def test_one_of_two_equal_changes_is_lost(workspace: Path, state: Any) -> None:
    together = Together(50)

    @step
    async def wait(text: str) -> None:
        await together.meet()

    async def work(run: Run[Any], item: Item) -> None:
        before = run.state.n
        await wait(item.text)
        run.state.n = before + 1
        run.state.said.append("ok")

    assert run(workspace, make(work, 50, state=state)).error is None
    assert data_of(workspace) | {"by": None} == {"n": 50, "said": ["ok"] * 50, "by": None}
    assert not records(workspace, ScopeFailed), "a contradiction is no failure"
    assert (workspace / "todo.md").read_text().count("- [x] item") == 50


def test_a_finished_step_runs_again_after_a_contradiction(workspace: Path, calls: list[str]) -> None:
    together = Together(8)

    @step
    async def measure(text: str) -> int:
        calls.append(text)
        await together.meet()
        return len(text)

    async def work(run: Run[Plain], item: Item) -> int:
        before = run.state.n
        length = await measure(item.text)
        run.state.n = before + length
        return length

    assert run(workspace, make(work, 8)).error is None
    assert data_of(workspace)["n"] == 8 * 6 and sorted(calls) == sorted({*calls}) and len(calls) == 8


def test_the_third_attempt_has_company(workspace: Path) -> None:
    """An item that always finds its value changed by others would never end."""
    attempts: Counter[str] = Counter()
    running: set[str] = set()
    alone: list[bool] = []

    async def work(run: Run[Plain], item: Item) -> None:
        running.add(item.text)
        attempts[item.text] += 1
        before = run.state.n
        for _ in range(5):
            await asyncio.sleep(0)
            if attempts[item.text] == 3:
                alone.append(running == {item.text})
        run.state.n = before + 1
        running.discard(item.text)

    assert run(workspace, make(work, 12, parallel=6)).error is None
    assert data_of(workspace)["n"] == 12
    assert max(attempts.values()) == 3 and alone and all(alone)


def test_other_values_are_contradictions(workspace: Path) -> None:
    attempts: Counter[str] = Counter()
    together = Together(4)

    async def work(run: Run[Plain], item: Item) -> None:
        attempts[item.text] += 1
        await together.meet()
        run.state.by[item.text] = {"list": [item.text]}
        run.state.said.append(item.text)

    assert run(workspace, make(work, 4)).error is None
    found = data_of(workspace)
    assert sorted(found["said"]) == sorted(found["by"]) == [f"item {n}" for n in range(4)]
    assert attempts.total() == 4


def test_an_item_sees_what_another_has_not_committed(workspace: Path) -> None:
    changed, looked = asyncio.Event(), asyncio.Event()

    async def work(run: Run[Plain], item: Item) -> None:
        if item.text == "changes":
            run.state.n = 7
            changed.set()
            await looked.wait()
            return
        await changed.wait()
        assert run.state.n == 0
        looked.set()

    assert run(workspace, make(work, ["changes", "looks"])).error is None
    assert data_of(workspace)["n"] == 7


def test_the_plan_shows_only_one_of_those_that_have_begun(workspace: Path) -> None:
    together = Together(3)

    async def work(run: Run[Plain], item: Item) -> None:
        await together.meet()
        if item.text == "item 0":
            await run.checkpoint()
            raise Crash
        await asyncio.Event().wait()

    with pytest.raises(Crash):
        run(workspace, make(work, 5, parallel=3))
    plan = look(DiskStore(workspace)).moment.root.plan
    assert [task.mark for task in plan.tasks] == ["begun"] * 3 + ["open"] * 2


def test_items_that_a_crash_has_cut_off_are_forgotten(workspace: Path, calls: list[str]) -> None:
    together = Together(4)

    @step
    async def first(text: str) -> str:
        calls.append(text)
        return text

    async def work(run: Run[Plain], item: Item) -> None:
        run.state.said.append(await first(item.text))
        await together.meet()
        if run.attempt == 1:
            raise Crash

    with pytest.raises(Crash):
        run(workspace, make(work, 6, parallel=4))
    together = Together(0)
    assert run(workspace, make(work, 6, parallel=1)).status == "completed"
    assert sorted(data_of(workspace)["said"]) == sorted(calls) == [f"item {n}" for n in range(6)]


def test_an_effect_is_done_twice_after_a_contradiction(workspace: Path, calls: list[str]) -> None:
    together = Together(6)

    @effect
    async def send(text: str) -> str:
        calls.append(text)
        await together.meet()
        return f"sent {text}"

    async def work(run: Run[Plain], item: Item) -> None:
        before = run.state.n
        await send(item.text)
        run.state.n = before + 1

    assert run(workspace, make(work, 6)).error is None
    assert data_of(workspace)["n"] == 6 and len(calls) == 6


def test_an_unequal_effect_after_a_contradiction_is_no_doubt(workspace: Path, calls: list[str]) -> None:
    together = Together(2)

    @effect
    async def send(number: int) -> None:
        calls.append(str(number))
        await together.meet()

    async def work(run: Run[Plain], item: Item) -> None:
        run.state.n += 1
        await send(run.state.n)

    outcome = run(workspace, make(work, 2))
    assert outcome.status == "waiting" and outcome.doubts[0].why == "unclaimed"
    assert calls == ["1", "1"], "one of the two was not sent as 2 without a question"


def test_a_doubt_is_settled_while_others_run(workspace: Path, calls: list[str]) -> None:
    def was_sent(text: str) -> str:
        if text in calls:
            return text
        raise NotDone

    @effect(verify=was_sent)
    async def send(text: str) -> str:
        calls.append(text)
        if run_number == 1 and text == "item 1":
            raise Crash
        return text

    async def work(run: Run[Plain], item: Item) -> None:
        run.state.said.append(await send(item.text))

    run_number = 1
    with pytest.raises(Crash):
        run(workspace, make(work, 4, parallel=4))
    run_number = 2
    assert run(workspace, make(work, 4, parallel=4)).status == "completed"
    assert sorted(calls) == sorted(data_of(workspace)["said"]) == [f"item {n}" for n in range(4)]


def test_a_pause_begins_another_item_or_loses_one(workspace: Path, calls: list[str]) -> None:
    together = Together(3)

    @step
    async def slow(text: str) -> str:
        await together.meet()
        calls.append(text)
        return text

    async def work(run: Run[Plain], item: Item) -> None:
        if item.text == "item 2" and run.attempt == 1:
            await together.meet()
            await run.pause("enough")
        run.state.said.append(await slow(item.text))
        run.state.n += 1

    outcome = run(workspace, make(work, 9, parallel=3))
    assert outcome.status == "paused"
    assert sorted(calls) == ["item 0", "item 1"], "running steps finish, and no other begins"
    assert (workspace / "todo.md").read_text().count("[ ]") == 6
    together = Together(0)
    assert run(workspace, make(work, 9, parallel=3), wake=True).status == "completed"
    assert sorted(calls) == sorted(data_of(workspace)["said"]) == [f"item {n}" for n in range(9)]
    assert data_of(workspace)["n"] == 9


def test_a_stop_waits_for_an_item_that_waits_for_nothing_of_satchel(workspace: Path) -> None:
    waits = asyncio.Event()

    async def work(run: Run[Plain], item: Item) -> None:
        if item.text == "stops":
            await waits.wait()
            await run.pause("enough")
        waits.set()
        await asyncio.Event().wait()

    assert run(workspace, make(work, ["stops", "waits"])).status == "paused"


def test_a_failed_item_stops_the_others(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))
    failures: list[str] = []

    async def work(run: Run[Plain], item: Item) -> None:
        await asyncio.sleep(0)
        if item.text == "item 1" and len(failures) < 2:
            failures.append(item.text)
            run.state.said.append("lost")
            raise ConnectionError("once more")
        run.state.said.append(item.text)

    assert run(workspace, make(work, 4)).status == "completed"
    assert sorted(data_of(workspace)["said"]) == [f"item {n}" for n in range(4)]
    assert len(records(workspace, ScopeFailed)) == 2


def test_a_mistake_in_one_item_cuts_off_the_others(workspace: Path) -> None:
    failed = asyncio.Event()

    async def work(run: Run[Plain], item: Item) -> None:
        if item.text == "item 0":
            failed.set()
            raise TypeError("a mistake")
        await failed.wait()
        await asyncio.sleep(0)
        run.state.said.append(item.text)

    outcome = run(workspace, make(work, 5, parallel=3))
    assert outcome.status == "failed" and isinstance(outcome.error, TypeError)
    assert sorted(data_of(workspace)["said"]) == ["item 1", "item 2"], "and no other item begins"


def test_an_item_that_always_fails_is_tried_for_ever(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))

    async def work(run: Run[Plain], item: Item) -> None:
        if item.text == "item 1":
            raise ConnectionError("never")

    outcome = run(workspace, make(work, 3))
    assert outcome.status == "paused" and "stuck: 'item 1' has failed 3 times" in (workspace / "pause.yaml").read_text()


def test_a_change_of_the_plan_in_an_item_is_lost(workspace: Path) -> None:
    together = Together(3)

    async def work(run: Run[Plain], item: Item) -> None:
        if not item.text.startswith("more"):
            await run.todo.add(f"more of {item.text}", after=item.id)
            assert f"more of {item.text}" in [task.text for task in run.todo.items]
            await run.todo.note(item.id, f"noted {item.text}")
            await together.meet()
        run.state.said.append(item.text)

    assert run(workspace, make(work, 3)).status == "completed"
    text = (workspace / "todo.md").read_text()
    assert [line.split(" ^")[0] for line in text.splitlines() if "]" in line] == [
        f"- [x] {what}item {n}" for n in range(3) for what in ("", "more of ")
    ]
    assert text.count("noted item") == 3 and len(data_of(workspace)["said"]) == 6


def test_an_item_cancels_the_one_that_another_has_cancelled(workspace: Path) -> None:
    """Both have read the same plan. The second to commit is entered again and sees what is left."""
    seen: list[str] = []
    together = Together(2)

    async def work(run: Run[Plain], item: Item) -> None:
        await together.meet()
        task = next((each for each in run.todo.items if each.text == "spare" and each.mark == "open"), None)
        seen.append("none" if task is None else "spare")
        if task is not None:
            await run.todo.cancel(task)
            await run.todo.add("more")
        for _ in range(5):
            await asyncio.sleep(0)

    assert run(workspace, make(work, ["a", "b", "spare"], parallel=2)).status == "completed"
    assert "- [-] spare" in (workspace / "todo.md").read_text()


def test_messages_of_two_items_are_mixed(workspace: Path) -> None:
    together = Together(2)

    async def work(run: Run[Plain], item: Item) -> None:
        run.messages.add("user", item.text)
        await together.meet()
        run.messages.add("assistant", item.text)
        assert [each["content"] for each in run.messages.slice(last=2)] == [item.text] * 2

    assert run(workspace, make(work, ["a", "b"])).error is None
    lines = (workspace / "messages.jsonl").read_text().splitlines()
    assert [json.loads(line)["content"] for line in lines] in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


def test_a_group_of_commits_has_a_sync_each(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from satchel.workspace.store import Syscalls

    syncs = 0
    real = Syscalls.sync_data

    def counted(*args: Any) -> Any:
        nonlocal syncs
        syncs += 1
        return real(*args)

    monkeypatch.setattr(Syscalls, "sync_data", counted)

    @step
    async def answer(text: str) -> str:
        return text

    async def work(run: Run[Plain], item: Item) -> None:
        run.state.by[item.text] = await answer(item.text)

    def before(run: Run[Plain]) -> int:
        return syncs

    outcome = run(workspace, make(work, 100, parallel=25, after=before))
    assert outcome.error is None and outcome.result < 40, "100 steps and 100 commits"


def test_the_state_outside_is_lost_or_changed_unseen(workspace: Path) -> None:
    together = Together(2)
    kept: list[Any] = []

    async def work(run: Run[Plain], item: Item) -> None:
        await together.meet()
        kept[0].n += 1

    @agent(state=Plain)
    async def main(run: Run[Plain]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a", "b"])
        kept.append(run.state)
        await run.todo.each(work, parallel=2)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "run.state.n was changed outside a scope" in str(outcome.error)


def test_the_agents_own_code_works_with_an_old_state(workspace: Path) -> None:
    async def work(run: Run[Plain], item: Item) -> None:
        run.state.n += 1

    def after(run: Run[Plain]) -> int:
        return run.state.n

    assert run(workspace, make(work, 7, after=after)).result == 7


@pytest.mark.parametrize("parallel", [0, -1, True, 1.5, None])
def test_a_number_that_is_none(workspace: Path, parallel: Any) -> None:
    async def work(run: Run[Plain], item: Item) -> None: ...

    assert isinstance(run(workspace, make(work, 1, parallel=parallel)).error, UsageError)


def test_scopes_are_nested(workspace: Path) -> None:
    async def inner(run: Run[Plain], item: Item) -> None: ...

    async def work(run: Run[Plain], item: Item) -> None:
        with pytest.raises(AgentError, match="inside 'a'"):
            await run.scope("named", work, run, item)
        with pytest.raises(AgentError, match="inside 'a'"):
            await run.todo.each(inner, parallel=2)

    assert run(workspace, make(work, ["a"])).error is None


def test_the_agent_begins_a_scope_next_to_them(workspace: Path) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    async def work(run: Run[Plain], item: Item) -> None:
        begun.set()
        await end.wait()

    @agent(state=Plain)
    async def main(run: Run[Plain]) -> None:
        await run.plan(None, ["a", "b"])
        task = asyncio.create_task(run.todo.each(work, parallel=2))
        await begun.wait()
        with pytest.raises(AgentError, match="while several scopes ran"):
            await run.scope("named", lambda: None)
        with pytest.raises(AgentError, match="while several scopes ran"):
            await run.todo.each(work)
        with pytest.raises(AgentError, match="while several scopes ran"):
            _ = run.state
        with pytest.raises(AgentError, match="while several scopes ran"):
            await run.todo.note("a", "from outside")
        end.set()
        await task

    assert run(workspace, main).error is None


def test_sub_agents_of_two_items_disturb_each_other(workspace: Path) -> None:
    @agent(state=Plain)
    async def helper(run: Run[Plain], text: str) -> str:
        async def note() -> None:
            run.state.said.append(text)

        await run.scope("note", note)
        return text

    together = Together(3)

    async def work(run: Run[Plain], item: Item) -> None:
        await together.meet()
        run.state.said.append(await run.spawn(helper, item.text.replace(" ", "-"), item.text))
        run.state.n += 1

    assert run(workspace, make(work, 3)).error is None
    assert sorted(data_of(workspace)["said"]) == ["item 0", "item 1", "item 2"] and data_of(workspace)["n"] == 3


# The inbox


def test_tasks_of_the_inbox_are_lost_or_done_twice(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))
    (workspace / "inbox").mkdir()
    for number in range(20):
        (workspace / "inbox" / f"{number:02d}.md").write_text(f"task {number}\n")
    together, failed = Together(5), []

    async def work(run: Run[Plain], task: InboxTask) -> None:
        await together.meet()
        if task.name == "03.md" and not failed:
            failed.append(task.name)
            raise ConnectionError("once more")
        run.state.n += 1
        run.state.said.append(task.name)

    @agent(state=Plain)
    async def main(run: Run[Plain]) -> None:
        await run.inbox.each(work, parallel=5)

    assert run(workspace, main).error is None
    assert data_of(workspace)["n"] == 20 and sorted(data_of(workspace)["said"]) == [f"{n:02d}.md" for n in range(20)]
    assert len([*(workspace / "inbox" / "done").iterdir()]) == 20
    assert len([each for each in records(workspace, ScopeCommitted) if each.scope.startswith("_inbox-")]) == 20


def test_a_task_that_arrives_while_others_run_waits_for_them(workspace: Path) -> None:
    (workspace / "inbox").mkdir()
    (workspace / "inbox" / "1.md").write_text("first\n")
    second = asyncio.Event()

    async def work(run: Run[Plain], task: InboxTask) -> None:
        if task.name == "1.md":
            (workspace / "inbox" / "new").write_text("second\n")
            (workspace / "inbox" / "new").rename(workspace / "inbox" / "2.md")
            await second.wait()
        second.set()

    @agent(state=Plain)
    async def main(run: Run[Plain]) -> None:
        await run.inbox.each(work, parallel=2)

    assert run(workspace, main).error is None and second.is_set()
