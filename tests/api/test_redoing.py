"""One item is done again, and its effects only if a person wants it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from cli.conftest import Cli, Make

import satchel
from satchel import Item, Run, Task, agent, step
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect.load import look

from .test_rewinding import Calls, data, finished, is_sound, made


def test_another_item_is_done_again_or_an_effect(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    calls.clear()
    found = asyncio.run(handle.history.redo_async("^3"))
    assert (found.item, found.title, [each.call for each in found.effects]) == ("3", "b", ['send("text":"B")'])
    assert is_sound(handle) and data(handle) == before, "the state stays as it is"
    assert handle.resume(main).status == "completed" and calls == ["read b"] and data(handle) == before
    assert is_sound(handle)


def test_effects_have_the_keys_of_the_first(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    keys = {call.split()[2] for call in calls if call.startswith("send")}
    for name in ("3-b", "3", "child/^1"):
        calls.clear()
        assert handle.history.redo(name, effects=True, dry_run=True).effects and calls == []
        assert handle.history.redo(name, effects=True).forgotten
        assert handle.resume(main).status == "completed" and data(handle) == before
        (key,) = (call.split()[2] for call in calls if call.startswith("send"))
        assert key not in keys
        keys.add(key)
    handle.history.rewind(to="^3")
    calls.clear()
    assert handle.resume(main).status == "completed" and made(calls, "send") == [] and is_sound(handle)


def test_an_open_item_keeps_its_steps(make: Make) -> None:
    calls: Calls = []
    handle = satchel.open(make())
    main, before = finished(handle, calls)
    (seq,) = (
        row.line.seq for row in handle.history.log(type="step.completed", item="3") if row.record["step"] == "read"
    )
    handle.history.rewind(to=seq)
    handle.history.redo("^3")
    calls.clear()
    assert handle.resume(main).status == "completed" and calls == ["read b", "read c", "read x"]
    assert data(handle) == before


def test_an_item_is_redone_that_has_not_begun(make: Make, cli: Cli) -> None:
    folder = make()
    handle = satchel.open(folder)
    finished(handle, [])
    newest = look(handle.store).moment.seq
    for item in ("^9", "b", "other/^1", ""):
        with pytest.raises(UsageError, match="has begun"):
            handle.history.redo(item)
    assert look(handle.store).moment.seq == newest
    refused = cli("redo", str(folder), "^3", "--effects", "--json")
    assert refused.exit_code == 2 and "1 effect would be done again" in refused.stdout
    planned = cli("redo", str(folder), "^3", "--effects", "--dry-run")
    assert planned.exit_code == 0 and "item 3 ('b') would be done again" in planned.stdout
    assert look(handle.store).moment.seq == newest and "next" not in planned.stderr
    done = cli("redo", str(folder), "^3", "--effects", "--yes", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["forgotten"]
    assert "item 4 ('c') will be done again" in cli("redo", str(folder), "^4").output


def nested(calls: Calls, says: list[str]) -> Any:
    """Items of three agents below one another, in an item, in a named scope and in a task of the inbox."""

    @step
    async def think(who: str) -> str:
        calls.append(f"{who} {says[-1]}")
        return says[-1]

    async def deepest(run: Run[Any], item: Item) -> None:
        run.state["said"] = await think("leaf")

    @agent
    async def leaf(run: Run[Any]) -> str:
        if not run.todo.items:
            await run.plan(None, ["Think"])
        await run.todo.each(deepest)
        return str(run.state["said"])

    async def ask(run: Run[Any]) -> None:
        run.state["asked"] = await run.spawn(leaf, "leaf")

    @agent
    async def branch(run: Run[Any]) -> str:
        await run.scope("ask", ask, run)
        return str(run.state["asked"])

    async def work(run: Run[Any], item: Item) -> None:
        await think(item.text)
        if item.text == "Spawn":
            run.state["result"] = await run.spawn(branch, "branch")

    async def handle(run: Run[Any], task: Task) -> None:
        run.state["task"] = await run.spawn(leaf, "of-task")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan("Plan", ["Spawn", "Other"])
        await run.todo.each(work)
        await run.inbox.each(handle)

    return main


def test_an_item_of_a_sub_agent_is_not_reached_from_a_finished_item(make: Make, cli: Cli) -> None:
    calls: Calls = []
    says = ["first"]
    folder = make()
    handle = satchel.open(folder)
    handle.send("task")
    main = nested(calls, says)
    assert handle.run(main).status == "completed" and data(handle)["result"] == "first"
    for name in ("branch/leaf/^1", "branch/leaf/1-think"):
        calls.clear()
        says.append(f"again {name}")
        planned = handle.history.redo(name, dry_run=True)
        assert planned.says == (
            "ask will run again, because branch/leaf was spawned in it",
            "item 1 ('Spawn') will run again, because branch was spawned in it",
        )
        assert handle.history.redo(name).says == planned.says and is_sound(handle)
        assert handle.run(main).status == "completed" and is_sound(handle)
        assert calls == [f"Spawn {says[-1]}", f"leaf {says[-1]}"] and data(handle)["result"] == says[-1]
    assert "item 1 ('Spawn') will run again" in cli("redo", str(folder), "branch/leaf/^1").output


def test_a_redo_of_an_item_that_no_agent_reaches_is_accepted(make: Make) -> None:
    handle = satchel.open(make())
    handle.send("task")
    main = nested([], ["first"])
    assert handle.run(main).status == "completed" and data(handle)["task"] == "first"
    before = look(handle.store).moment.seq
    with pytest.raises(UsageError, match="the task of the inbox that spawned it is done"):
        handle.history.redo("of-task/^1")
    assert look(handle.store).moment.seq == before
