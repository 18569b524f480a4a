"""What a fork, or a return, must still know of effects: of tasks of the inbox, agents, lost journals and keys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make

import satchel
from satchel import InboxTask, Item, Key, NotDone, Run, agent, effect, step
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import ScopeBegun

from .test_forking import forked
from .test_rewinding import Calls, Stopped, data, is_sound


def test_a_fork_does_a_finished_task_of_the_inbox_again(make: Make) -> None:
    """Nothing is known of the effects of a finished task."""
    calls: Calls = []

    @effect
    async def send(text: str) -> str:
        calls.append(text)
        return "sent"

    async def work(run: Run[Any], task: InboxTask) -> None:
        await send("begun")
        await send("ended")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.inbox.each(work)

    handle = satchel.open(make())
    handle.send("a task")
    assert handle.run(main).status == "completed" and calls == ["begun", "ended"]
    for row in [row for row in handle.history.log() if row.record.get("scope") == "_inbox-t1"]:
        calls.clear()
        fork = forked(handle, f"fork{row.line.seq}", at=row.line.seq)
        assert fork.resume(main).status == "completed" and calls == [], row.record


def test_a_task_of_a_fork_has_the_effects_of_a_task_of_the_source(make: Make) -> None:
    calls: Calls = []
    dies = False

    @effect
    async def note() -> str:
        calls.append("note")
        return "noted"

    async def work(run: Run[Any], task: InboxTask) -> None:
        await note()
        if dies:
            raise Stopped

    @agent
    async def main(run: Run[Any]) -> None:
        await run.inbox.each(work)

    handle = satchel.open(make())
    handle.send("one")
    assert handle.run(main).status == "completed"
    seq, dies = look(handle.store).moment.seq, True
    handle.send("two")
    with pytest.raises(Stopped):
        handle.run(main)
    calls.clear()
    dies, fork = False, forked(handle, at=seq)
    fork.send("three")
    assert fork.run(main).status == "completed" and calls == ["note"]


def test_the_agent_above_one_with_effects_is_lost(make: Make) -> None:
    calls: Calls = []

    @effect
    async def send(text: str) -> str:
        calls.append(text)
        return "sent"

    @agent
    async def inner(run: Run[Any]) -> str:
        return await send("x")

    @agent
    async def middle(run: Run[Any]) -> str:
        return await run.spawn(inner, "inner")

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = True

    @agent
    async def main(run: Run[Any]) -> str:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)
        return await run.spawn(middle, "middle")

    handle = satchel.open(make())
    assert handle.run(main).status == "completed" and calls == ["x"]
    fork = forked(handle, at="^1")
    assert is_sound(fork) and fork.resume(main).status == "completed" and calls == ["x"]


def test_an_effect_of_a_lost_journal_is_done_under_the_key_of_the_fork(make: Make) -> None:
    calls: Calls = []
    fails = True

    @effect(idempotent=True)
    async def pay(text: str) -> str:
        calls.append(text)
        return "paid"

    @agent
    async def main(run: Run[Any]) -> None:
        await pay("one")
        if fails:
            raise ValueError

    folder = make()
    handle = satchel.open(folder)
    assert handle.run(main).status == "failed" and calls == ["one"]
    shutil.rmtree(folder / "journal")
    shutil.rmtree(folder / "checkpoints")
    fails = False
    handle.recover()
    fork = forked(handle)
    assert fork.resume(main).status == "waiting" and calls == ["one"]
    (question,) = fork.questions()
    fork.answer("done", question.id, result="paid")
    assert fork.resume(main).status == "completed" and calls == ["one"]


@pytest.mark.parametrize("how", ["fork", "returns"])
def test_a_done_effect_is_verified_with_another_key(make: Make, how: str) -> None:
    """It would tell a person that the effect has not happened."""
    world: dict[str, str] = {}
    dies = True

    def known(text: str, *, key: Key) -> str:
        if key not in world:
            raise NotDone("unknown key")
        return world[key]

    @effect(verify=known)
    async def pay(text: str, *, key: Key) -> str:
        world[key] = f"paid {text}"
        return world[key]

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = await pay(item.text)
        if dies:
            raise Stopped

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    handle = satchel.open(make())
    with pytest.raises(Stopped):
        handle.run(main)
    end = look(handle.store).moment.seq
    if how == "fork":
        handle = forked(handle)
    else:
        handle.history.rewind(to="^1", forget=True)
        handle.history.rewind(to=end)
    dies = False
    handle.pause()
    ended = handle.resume(main)
    assert ended.status == "completed" and not handle.questions() and len(world) == 1


def test_a_second_return_forgets_the_effects_of_an_open_task(make: Make) -> None:
    calls: Calls = []
    dies = True

    @effect
    async def send(text: str) -> str:
        calls.append(text)
        return "sent"

    async def work(run: Run[Any], task: InboxTask) -> None:
        await send(task.text)
        if dies:
            raise Stopped

    @agent
    async def main(run: Run[Any]) -> None:
        await run.inbox.each(work)

    handle = satchel.open(make())
    handle.send("a task")
    with pytest.raises(Stopped):
        handle.run(main)
    (begun,) = (row.line.seq for row in handle.history.log() if isinstance(row.line.record, ScopeBegun))
    handle.history.rewind(to=begun - 1)
    handle.history.rewind(to=begun - 2)
    dies = False
    assert handle.resume(main).status == "completed" and len(calls) == 1 and is_sound(handle)


def test_the_file_of_a_result_shows_a_reused_one(make: Make) -> None:
    """Then a correction in it would count for a call that the agent does not make any more."""
    version, dies = 1, False

    @step
    async def think(text: str) -> str:
        return text.upper()

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = await think(f"{item.text}{version}")
        if dies:
            raise Stopped

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a", "b"])
        await run.todo.each(work)

    handle = satchel.open(make())
    assert handle.run(main).status == "completed"
    version, dies = 2, True
    fork = forked(handle, at="^2", reuse=True)
    with pytest.raises(Stopped):
        fork.resume(main)
    fork.recover()
    files = {path: json.loads(path.read_text()) for path in Path(fork.url).glob("steps/2-b/*.json")}
    assert [file["result"] for _, file in sorted(files.items())] == ["B1", "B2"]
    (newest,) = (path for path, file in files.items() if file["result"] == "B2")
    newest.write_text(newest.read_text().replace('"B2"', '"CORRECTED"'))
    dies = False
    assert fork.resume(main).status == "completed" and data(fork)["b"] == "CORRECTED"
