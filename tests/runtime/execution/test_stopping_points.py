"""Where a run stops when it is asked to: at every safe point, and at no other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from waits import PATIENCE

from satchel import Item, Partial, Retry, Run, agent, effect, run, run_async, step
from satchel.runtime.engine import session
from satchel.runtime.live.stopping import Drain
from satchel.workspace import journal
from satchel.workspace.formats import yamltext
from satchel.workspace.journal import Forced, Line, StepCompleted
from satchel.workspace.journal.segment_log import AppendedSegments
from satchel.workspace.store import open_store

Ask = Callable[[], Awaitable[None]]


@pytest.fixture
def ask(workspace: Path) -> Ask:
    """Drops an empty pause.yaml, and returns when the run has understood."""

    async def drop() -> None:
        (workspace / "pause.yaml").touch()
        await understood(workspace)

    return drop


async def understood(workspace: Path) -> None:
    while "draining" not in (workspace / "pause.yaml").read_text():  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.01)


def noting(calls: list[str]) -> Any:
    @step
    async def note(what: str) -> str:
        calls.append(what)
        return what

    return note


def todo(workspace: Path) -> str:
    return (workspace / "todo.md").read_text()


def records(workspace: Path, kind: type) -> list[Any]:
    lines = journal.read(open_store(str(workspace)), after=0).lines
    return [line.record for line in lines if isinstance(line.record, kind)]


def pause(workspace: Path) -> Any:
    return yamltext.load((workspace / "pause.yaml").read_text(), "pause.yaml").value


def check_goes_on(workspace: Path, main: Any) -> None:
    assert run(workspace, main).status == "paused", "nobody has said that it is to go on"
    assert run(workspace, main, wake=True).status == "completed"
    assert not (workspace / "pause.yaml").exists()


# Safe points


def test_the_next_step_begins_although_the_run_is_to_stop(workspace: Path, calls: list[str], ask: Ask) -> None:
    note = noting(calls)

    @step
    async def asking() -> None:
        calls.append("asking")
        await ask()

    async def work(run: Run[Any], item: Item) -> None:
        run.state["begun"] = True
        await asking()
        await note("after")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    assert run(workspace, main).status == "paused"
    assert calls == ["asking"] and "- [/] one ^1" in todo(workspace)
    assert json.loads((workspace / "state.json").read_text())["data"] == {}, "what did not commit shows"
    assert pause(workspace)["position"] == {"item": "1-one", "steps_done": 1, "waiting_for": []}
    check_goes_on(workspace, main)
    assert calls == ["asking", "after"]


def test_an_item_that_came_to_its_end_is_thrown_away(workspace: Path, calls: list[str], ask: Ask) -> None:
    @step
    async def asking(text: str) -> None:
        calls.append(text)
        if len(calls) == 1:
            await ask()

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = True
        await asking(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    assert run(workspace, main).status == "paused"
    assert calls == ["one"] and "- [x] one ^1\n- [ ] two" in todo(workspace)
    check_goes_on(workspace, main)
    assert calls == ["one", "two"]


def test_an_item_is_thrown_away_while_the_end_of_its_step_is_being_written(
    workspace: Path, calls: list[str], ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the loop of a program another thread writes the journal: that takes longer than an agent gets to go on."""
    looked = threading.Event()
    look, write = Drain._look, AppendedSegments.write

    def looks(drain: Drain) -> None:
        look(drain)
        if calls:
            looked.set()

    def writes(segments: AppendedSegments, lines: Sequence[Line], data: bytes) -> None:
        if any(isinstance(line.record, StepCompleted) for line in lines):
            assert looked.wait(PATIENCE), "nobody looked whether the run can stop"
        write(segments, lines, data)

    monkeypatch.setattr(Drain, "_look", looks)
    monkeypatch.setattr(AppendedSegments, "write", writes)

    @step
    async def asking() -> None:
        await ask()
        calls.append("asked")

    async def work(run: Run[Any], item: Item) -> None:
        await asking()
        run.state[item.text] = True

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    assert asyncio.run(run_async(workspace, main)).status == "paused"
    assert "- [x] one ^1\n- [ ] two" in todo(workspace)
    assert json.loads((workspace / "state.json").read_text())["data"] == {"one": True}


@pytest.mark.parametrize("where", ["agent", "item", "sub-agent"])
def test_waiting_for_something_outside_is_waited_for(workspace: Path, calls: list[str], ask: Ask, where: str) -> None:
    """An agent that waits for nothing of ours is cancelled there: it is between two steps."""
    note = noting(calls)

    async def wait(run: Run[Any], item: Any = None) -> None:
        await note("before")
        if not calls.count("woken"):
            calls.append("woken")
            asyncio.get_running_loop().create_task(ask())
            await asyncio.sleep(3600)
        await note("after")

    @agent
    async def child(run: Run[Any]) -> None:
        await wait(run)

    @agent
    async def main(run: Run[Any]) -> None:
        if where == "agent":
            await wait(run)
        elif where == "item":
            if not run.todo.items:
                await run.plan(None, ["one"])
            await run.todo.each(wait)
        else:
            await run.spawn(child, "child")

    assert run(workspace, main).status == "paused"
    assert calls == ["before", "woken"]
    check_goes_on(workspace, main)
    assert calls == ["before", "woken", "after"]


@pytest.mark.parametrize("wait", ["sleep", "retry", "item"])
def test_a_wait_of_its_own_is_sat_out(
    workspace: Path, calls: list[str], ask: Ask, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_WAITS", (30.0, 30.0))

    @step(retry=Retry(attempts=3, first=30.0, longest=60.0) if wait == "retry" else None)
    async def fails() -> None:
        calls.append("try")
        if calls.count("try") == 1:
            asyncio.get_running_loop().create_task(ask())
            raise ConnectionError

    async def work(run: Run[Any], item: Item) -> None:
        if wait == "sleep":
            if "try" not in calls:
                calls.append("try")
                asyncio.get_running_loop().create_task(ask())
            await run.sleep(9)
        else:
            await fails()

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    assert run(workspace, main).status == "paused"
    assert calls == ["try"]
    assert run(workspace, main).status == "paused"


def test_a_long_step_does_not_stop_where_it_saves_its_progress(workspace: Path, calls: list[str], ask: Ask) -> None:
    @step
    async def long(run: Run[Any]) -> int:
        for number in range(run.saved_progress or 0, 5):
            calls.append(str(number))
            if number == 2 and run.attempt == 1:
                await ask()
            await run.progress(number + 1)
        return 5

    @agent
    async def main(run: Run[Any]) -> None:
        assert await long() == 5

    assert run(workspace, main).status == "paused"
    assert calls == ["0", "1", "2"]
    check_goes_on(workspace, main)
    assert calls == ["0", "1", "2", "3", "4"]


def test_of_steps_side_by_side_one_is_cut_off(workspace: Path, calls: list[str], ask: Ask) -> None:
    asked = asyncio.Event()

    @step
    async def asking() -> None:
        await ask()
        asked.set()
        calls.append("asking")

    @step
    async def slow(number: int) -> int:
        await asked.wait()
        await asyncio.sleep(0.1)
        calls.append(f"slow {number}")
        return number

    @step
    def in_thread() -> str:
        while not asked.is_set():
            signal.pthread_sigmask(signal.SIG_BLOCK, [])
        calls.append("thread")
        return "thread"

    async def work(run: Run[Any], item: Item) -> None:
        if run.attempt == 1:
            await asyncio.gather(asking(), slow(1), slow(2), in_thread())
        else:
            assert await asyncio.gather(slow(1), slow(2), in_thread()) == [1, 2, "thread"]

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    assert run(workspace, main).status in ("paused", "completed")
    assert sorted(calls) == ["asking", "slow 1", "slow 2", "thread"]
    assert run(workspace, main, wake=True).status == "completed"
    assert sorted(calls) == ["asking", "slow 1", "slow 2", "thread"], "something was done again"


def test_an_item_commits_although_its_steps_were_told_to_stop(workspace: Path, calls: list[str], ask: Ask) -> None:
    """`return_exceptions=True` makes results of what a stop raises."""
    note = noting(calls)

    @step
    async def asking() -> None:
        await ask()

    async def work(run: Run[Any], item: Item) -> None:
        if run.attempt == 1:
            await asking()
        found = await asyncio.gather(note("a"), note("b"), return_exceptions=True)
        run.state["found"] = [str(each) for each in found]

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    assert run(workspace, main).status == "paused"
    assert "- [/] one" in todo(workspace)
    check_goes_on(workspace, main)
    assert json.loads((workspace / "state.json").read_text())["data"] == {"found": ["a", "b"]}


# Where it must not stop


def test_a_stop_cuts_off_a_model_in_the_middle_of_its_answer(workspace: Path, calls: list[str], ask: Ask) -> None:
    @step
    async def think(out: Partial) -> str:
        for number in range(40):
            if number == 10:
                await ask()
            await out.write(f"word{number} ")
            await asyncio.sleep(0)
        return out.text

    async def work(run: Run[Any], item: Item) -> None:
        run.state["text"] = await think()

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    assert run(workspace, main).status == "paused"
    assert json.loads((workspace / "state.json").read_text())["data"]["text"].split()[-1] == "word39"
    assert not list(workspace.glob("partials/*/*")) and "- [x] one" in todo(workspace)


def sending(calls: list[str], before: Ask | None = None, after: Callable[[], None] | None = None) -> Any:
    @effect
    async def send(text: str) -> str:
        if before and not calls:
            await before()
            await asyncio.sleep(0.05)
        calls.append(text)
        if after and len(calls) == 1:
            after()
        return text

    return send


@pytest.mark.parametrize("moment", ["in the middle of it", "between it and its record"])
def test_an_effect_is_left_in_doubt_by_a_stop(workspace: Path, calls: list[str], ask: Ask, moment: str) -> None:
    send = (
        sending(calls, before=ask)
        if moment == "in the middle of it"
        else sending(calls, after=lambda: os.kill(os.getpid(), signal.SIGTERM))
    )

    async def work(run: Run[Any], item: Item) -> None:
        await send("mail")
        await send("another")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    outcome = run(workspace, main)
    assert (outcome.status, outcome.doubts, calls) == ("paused", [], ["mail"])
    assert [record.step for record in records(workspace, StepCompleted)] == ["send"]
    assert run(workspace, main, wake=True).status == "completed"
    assert calls == ["mail", "another"]


def test_a_block_that_is_not_to_be_interrupted_is(workspace: Path, calls: list[str], ask: Ask) -> None:
    note = noting(calls)

    async def work(run: Run[Any], item: Item) -> None:
        async with run.uninterrupted("transfer"):
            await note("take")
            if run.attempt == 1:
                await ask()
            await asyncio.sleep(0.05)
            await note("give")
        await note("after")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    assert run(workspace, main).status == "paused"
    assert calls == ["take", "give"]
    check_goes_on(workspace, main)
    assert calls == ["take", "give", "after"]


# When it takes too long


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_step_that_never_ends_keeps_the_run_for_ever(workspace: Path, calls: list[str], ask: Ask, kind: str) -> None:
    with (workspace / "workspace.yaml").open("a") as file:
        file.write("drain: {timeout: 0.2}\n")
    release = asyncio.Event()

    @step
    async def hang() -> None:
        await ask()
        await asyncio.Event().wait()

    @step
    def hang_in_thread() -> None:
        asyncio.run(ask())  # type: ignore[arg-type]
        while not release.is_set():
            signal.pthread_sigmask(signal.SIG_BLOCK, [])

    @agent
    async def main(run: Run[Any]) -> None:
        if run.attempt == 1:
            await (hang() if kind == "async" else hang_in_thread())

    try:
        assert run(workspace, main).status == "paused"
    finally:
        release.set()
    (forced,) = records(workspace, Forced)
    assert len(forced.under_way) == 1 and forced.under_way[0].startswith("hang") and 0.15 < forced.waited < 30
    assert pause(workspace)["forced"] is True
    check_goes_on(workspace, main)


def test_extend_cuts_off_what_comes_to_its_end(workspace: Path, calls: list[str], ask: Ask) -> None:
    with (workspace / "workspace.yaml").open("a") as file:
        file.write("drain: {timeout: 0.05, then: extend}\n")

    @step
    async def slow() -> None:
        await ask()
        await asyncio.sleep(0.3)
        calls.append("done")

    @step
    async def other() -> None:
        calls.append("other")

    @agent
    async def main(run: Run[Any]) -> None:
        await slow()
        await other()

    assert run(workspace, main).status == "paused"
    assert calls == ["done"] and not records(workspace, Forced) and pause(workspace)["forced"] is False


def test_a_second_signal_waits_for_what_is_under_way(workspace: Path, calls: list[str], ask: Ask) -> None:
    @step
    async def hang() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        await understood(workspace)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    @agent
    async def main(run: Run[Any]) -> None:
        if run.attempt == 1:
            await hang()

    assert run(workspace, main).status == "paused"
    assert pause(workspace)["reason"] == "signal" and pause(workspace)["forced"] is True
    assert run(workspace, main).status == "completed", "a deploy has to go on by itself"


# Behind the end


@pytest.mark.parametrize("mode", ["drain", "emergency"])
def test_a_run_that_has_completed_is_made_a_paused_one(workspace: Path, calls: list[str], mode: str) -> None:
    """What stops every run of a folder finds finished ones, too. An emergency is ended by nobody but a person."""
    note = noting(calls)

    async def work(run: Run[Any], item: Item) -> None:
        await note(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        await run.todo.each(work)

    assert run(workspace, main).status == "completed"
    (workspace / "pause.yaml").write_text(f"mode: {mode}\n")
    assert run(workspace, main).status == "completed"
    assert json.loads((workspace / "state.json").read_text())["status"] == "completed"
    assert (workspace / "pause.yaml").exists() == (mode == "emergency")

    (workspace / "pause.yaml").write_text(f"mode: {mode}\n")
    (workspace / "todo.md").write_text(todo(workspace).replace("- [x] one ^1\n", "- [x] one ^1\n- [ ] two\n"))
    assert run(workspace, main).status == "paused", "there is something to do again"
    check_goes_on(workspace, main)
    assert calls == ["one", "two"]
