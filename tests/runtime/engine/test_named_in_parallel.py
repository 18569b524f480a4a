"""Named scopes of several tasks at once: each a transaction, as items in parallel are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, NotDone, Run, agent, effect, run, step
from satchel.workspace import journal
from satchel.workspace.base.errors import AgentError
from satchel.workspace.journal import ScopeCommitted, ScopeFailed, StepCompleted
from satchel.workspace.store import DiskStore

State = dict[str, Any]


class Together:
    """A place where all wait until so many have come."""

    def __init__(self, count: int):
        self._missing, self._all = count, asyncio.Event()

    async def meet(self) -> None:
        self._missing -= 1
        if self._missing <= 0:
            self._all.set()
        await self._all.wait()


def data_of(workspace: Path) -> Any:
    return json.loads((workspace / "state.json").read_text())["data"]


def records(workspace: Path, kind: Any) -> list[Any]:
    lines = journal.read(DiskStore(workspace), after=0).lines
    return [line.record for line in lines if isinstance(line.record, kind)]


def begun(run: Run[State], name: str, work: Callable[..., Any], *args: Any) -> asyncio.Task[Any]:
    async def call() -> Any:
        return await run.scope(name, work, *args)

    return asyncio.create_task(call())


async def in_tasks(run: Run[State], work: Callable[..., Any], names: str) -> list[Any]:
    return await asyncio.gather(*(run.scope(name, work, run, name) for name in names))


async def beside_its_own(run: Run[State], work: Callable[..., Any], names: str) -> list[Any]:
    """The agent's own task runs the first one. The others begin when that has begun."""
    others = [begun(run, name, work, run, name) for name in names[1:]]
    return [await run.scope(names[0], work, run, names[0]), *await asyncio.gather(*others)]


WAYS = pytest.mark.parametrize("way", [in_tasks, beside_its_own])
Way = Callable[[Run[State], Callable[..., Any], str], Awaitable[list[Any]]]


@WAYS
def test_a_change_is_lost_or_seen_before_its_commit(workspace: Path, way: Way) -> None:
    together, seen = Together(3), []

    async def work(run: Run[State], name: str) -> str:
        run.state["by"][name] = 1
        run.state["said"].append(name)
        await together.meet()
        seen.append([*run.state["by"]])
        run.state["by"][name] += 1
        return name * 2

    async def fill(run: Run[State]) -> None:
        run.state.update(by={}, said=[])

    @agent
    async def main(run: Run[State]) -> Any:
        await run.scope("fill", fill, run)
        found = await way(run, work, "abc")
        return [found, run.state["by"]]

    outcome = run(workspace, main)
    assert outcome.error is None
    assert outcome.result == [["aa", "bb", "cc"], {"a": 2, "b": 2, "c": 2}]
    assert {"a", "b", "c"} == {keys[0] for keys in seen if len(keys) == 1}
    assert sorted(data_of(workspace)["said"]) == ["a", "b", "c"]
    assert not records(workspace, ScopeFailed)


@WAYS
def test_one_of_two_equal_changes_is_lost(workspace: Path, way: Way) -> None:
    together, names = Together(8), "abcdefgh"

    @step
    async def wait(name: str) -> None:
        await together.meet()

    async def work(run: Run[State], name: str) -> None:
        before = run.state.get("n", 0)
        await wait(name)
        run.state["n"] = before + 1

    @agent
    async def main(run: Run[State]) -> int:
        await way(run, work, names)
        return run.state["n"]

    assert run(workspace, main).result == 8
    assert sorted(done.scope for done in records(workspace, StepCompleted)) == [f"_{name}" for name in names]
    assert not records(workspace, ScopeFailed), "a contradiction is no failure"


def test_a_container_replaced_while_it_ran_alone_is_joined(workspace: Path) -> None:
    """It is not known any more whether it was replaced: then it counts as that, and the scope is entered again."""
    entered, go_on = list[str](), asyncio.Event()

    async def first(run: Run[State]) -> None:
        entered.append("first")
        run.state["seen"] = {**run.state.get("seen", {}), "first": 1}
        await go_on.wait()

    async def second(run: Run[State]) -> None:
        run.state.setdefault("seen", {})["second"] = 2

    @agent
    async def main(run: Run[State]) -> Any:
        async def later() -> None:
            await asyncio.sleep(0.01)
            await run.scope("second", second, run)
            go_on.set()

        task = asyncio.create_task(later())
        await run.scope("first", first, run)
        await task
        return run.state["seen"]

    assert run(workspace, main).result == {"first": 1, "second": 2}
    assert entered == ["first", "first"]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_change_of_the_plan_is_lost_when_others_begin(workspace: Path, is_first: bool) -> None:
    """What has changed the plan before others begin ends before them: its tasks are known in its plan only."""
    seen = list[str]()

    async def first(run: Run[State]) -> None:
        await asyncio.sleep(0 if is_first else 0.02)
        await run.todo.add("new")
        added = run.todo.items[-1]
        await asyncio.sleep(0.02)
        await run.todo.note(added, "still here")
        await run.todo.note("old", "begun")
        seen.append("first")

    async def second(run: Run[State]) -> None:
        seen.append(" ".join(item.text for item in run.todo))
        await run.todo.add("other")

    @agent
    async def main(run: Run[State]) -> None:
        await run.plan("Work", ["old"])

        async def later() -> None:
            await asyncio.sleep(0.01)
            await run.scope("second", second, run)

        task = asyncio.create_task(later())
        await run.scope("first", first, run)
        await task
        for text in ("old", "new", "other"):
            await run.todo.cancel(text)

    assert run(workspace, main).error is None
    assert seen == (["first", "old new"] if is_first else ["old", "first"])
    text = (workspace / "todo.md").read_text()
    assert [text.count(said) for said in ("still here", "begun", "[-] old", "[-] new", "[-] other")] == [1] * 5


@WAYS
def test_a_finished_scope_or_step_runs_again_after_a_crash(
    workspace: Path, crash: type[BaseException], calls: list[str], way: Way
) -> None:
    sent = list[str]()
    together = Together(2)

    def find(name: str) -> str:
        if name not in sent:
            raise NotDone
        return name

    @step
    async def read(name: str) -> str:
        calls.append(f"read {name}")
        return name

    @effect(verify=find)
    async def send(name: str) -> str:
        sent.append(name)
        if name == "b" and calls.count("b") == 1:
            raise crash
        return name

    async def work(run: Run[State], name: str) -> str:
        calls.append(name)
        if name != "c":
            await read(name)
            await together.meet()
            await asyncio.sleep(0.02 if name == "b" else 0)
            await send(name)
        run.state[name] = run.attempt
        return name

    @agent
    async def main(run: Run[State]) -> Any:
        return await way(run, work, "abc")

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == ["a", "b", "c"]
    assert sorted(sent) == ["a", "b"] and calls.count("read a") == calls.count("read b") == 1
    assert len(records(workspace, ScopeCommitted)) == 4, "the first state, and each scope once"
    assert run(workspace, main).result == ["a", "b", "c"]


def test_two_scopes_of_one_name_run_at_once(workspace: Path) -> None:
    async def work(run: Run[State], name: str) -> None:
        await asyncio.sleep(0.01)

    @agent
    async def main(run: Run[State]) -> None:
        await in_tasks(run, work, "aa")

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "'a' would begin while it runs" in str(outcome.error)


def test_other_code_works_beside_them(workspace: Path) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def inner() -> None: ...

    async def work(run: Run[State]) -> None:
        with pytest.raises(AgentError, match="inside 'b'"):
            await run.scope("inner", inner)
        at_work.set()
        await go_on.wait()

    @agent
    async def main(run: Run[State]) -> None:
        task = begun(run, "b", work, run)
        await at_work.wait()
        with pytest.raises(AgentError, match="while several scopes ran"):
            await run.todo.each(inner)
        with pytest.raises(AgentError, match="while several scopes ran"):
            _ = run.state
        with pytest.raises(AgentError, match="while several scopes ran"):
            await run.todo.add("more")
        assert await run.scope("c", lambda: 3) == 3
        go_on.set()
        await task
        assert run.state == {}

    assert run(workspace, main).error is None


def test_an_item_that_is_tried_again_runs_beside_a_named_scope(workspace: Path) -> None:
    failed, go_on = asyncio.Event(), asyncio.Event()

    async def work(run: Run[State], item: Item) -> None:
        failed.set()
        raise ConnectionError("not now")

    async def named(run: Run[State]) -> None:
        await go_on.wait()

    async def call(run: Run[State]) -> None:
        await failed.wait()
        await run.scope("named", named, run)

    @agent
    async def main(run: Run[State]) -> None:
        await run.plan("Work", ["a"])
        task = asyncio.create_task(call(run))
        try:
            await run.todo.each(work)
        finally:
            go_on.set()
            await task

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "'a' would begin while several scopes ran" in str(outcome.error)


@WAYS
def test_one_that_fails_takes_the_others_along(workspace: Path, way: Way) -> None:
    """If the agent goes on, they go on."""
    together = Together(2)

    async def work(run: Run[State], name: str) -> None:
        run.state[name] = True
        await together.meet()
        if name == "a":
            raise LookupError("not there")
        await asyncio.sleep(0.02)

    @agent
    async def main(run: Run[State]) -> Any:
        with pytest.raises(LookupError):
            await way(run, work, "ab")
        await asyncio.sleep(0.05)
        return dict(run.state)

    assert run(workspace, main).result == {"b": True}
    assert [failed.scope for failed in records(workspace, ScopeFailed)] == ["_a"]


@WAYS
def test_a_scope_goes_on_after_its_agent_has_failed(workspace: Path, calls: list[str], way: Way) -> None:
    together = Together(2)

    @step
    async def note(what: str) -> None:
        calls.append(what)
        await together.meet()

    async def work(run: Run[State], name: str) -> None:
        await note(name)
        if name == "a":
            raise LookupError("not there")
        await asyncio.sleep(60)
        await note("never")

    @agent
    async def main(run: Run[State]) -> None:
        if run.attempt == 1:
            await way(run, work, "ab")

    outcome = run(workspace, main)
    assert isinstance(outcome.error, LookupError) and sorted(calls) == ["a", "b"]
    assert run(workspace, main).error is None


def test_the_agent_ends_before_a_scope_that_it_does_not_await(workspace: Path) -> None:
    async def work(run: Run[State]) -> None:
        await asyncio.sleep(0.02)
        run.state["done"] = True

    @agent
    async def main(run: Run[State]) -> None:
        begun(run, "work", work, run)
        await asyncio.sleep(0)

    assert run(workspace, main).error is None
    assert data_of(workspace) == {"done": True}


@WAYS
def test_a_pause_loses_what_one_of_them_has_done(workspace: Path, calls: list[str], way: Way) -> None:
    @step
    async def note(what: str) -> str:
        calls.append(what)
        return what

    async def work(run: Run[State], name: str) -> str:
        await note(name)
        if name == "c":
            await run.pause()
        await asyncio.sleep(0.02)
        run.state[name] = await note(f"{name} again")
        return name

    @agent
    async def main(run: Run[State]) -> Any:
        return await way(run, work, "abc")

    assert run(workspace, main).status == "paused"
    assert run(workspace, main, wake=True).result == ["a", "b", "c"]
    assert sorted(calls) == ["a", "a again", "b", "b again", "c", "c again"]


def test_scopes_of_two_agents_disturb_each_other(workspace: Path) -> None:
    together = Together(4)

    async def work(run: Run[State], name: str) -> None:
        run.state[name] = 1
        await together.meet()

    @agent
    async def helper(run: Run[State]) -> Any:
        await in_tasks(run, work, "ab")
        return dict(run.state)

    @agent
    async def main(run: Run[State]) -> Any:
        return await asyncio.gather(run.spawn(helper, "one"), run.spawn(helper, "two"))

    assert run(workspace, main).result == [{"a": 1, "b": 1}] * 2


@pytest.mark.parametrize("several", [False, True])
def test_a_scope_of_the_agents_own_task_copies_the_state(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    """Its copies cost as much as the state is large. One that runs alone needs none."""
    from satchel.runtime.engine import session

    copies = list[object]()
    copy = session.ScopeCopy
    monkeypatch.setattr(session, "ScopeCopy", lambda *args: copies.append(args) or copy(*args))

    async def work(run: Run[State], name: str) -> None:
        run.state[name] = await asyncio.sleep(0.01, 1)

    @agent
    async def main(run: Run[State]) -> None:
        await run.scope("a", work, run, "a")
        if several:
            await in_tasks(run, work, "bc")
        await run.scope("d", work, run, "d")

    assert run(workspace, main).error is None
    assert len(copies) == 2 * several
