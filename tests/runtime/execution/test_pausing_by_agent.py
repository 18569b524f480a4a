"""`run.pause()`: the agent stops itself, once, and gets what a person has written for it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Run, agent, run, step
from satchel.workspace import journal
from satchel.workspace.base.errors import Refused
from satchel.workspace.formats import yamltext
from satchel.workspace.journal import PauseRequested, StepCompleted
from satchel.workspace.store import open_store


def noting(calls: list[str]) -> Any:
    @step
    async def note(what: str) -> str:
        calls.append(what)
        return what

    return note


def pause_file(workspace: Path) -> dict[str, Any]:
    return dict(yamltext.load((workspace / "pause.yaml").read_text(), "pause.yaml").value)


def test_it_goes_on_behind_the_call_or_stops_there_again(workspace: Path, calls: list[str]) -> None:
    note = noting(calls)

    async def work(run: Run[Any], item: Item) -> None:
        run.state[item.text] = True
        await note(f"before {item.text}")
        await run.pause("a look at it")
        await note(f"after {item.text}")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    assert run(workspace, main).status == "paused"
    assert calls == ["before one"]
    said = pause_file(workspace)
    assert (said["status"], said["reason"], said["by"]) == ("paused", "a look at it", "the agent")
    assert said["position"] == {"item": "1-one", "steps_done": 2, "waiting_for": []}
    assert run(workspace, main).status == "paused", "only a person lifts it"
    assert run(workspace, main, wake=True).status == "paused", "the other item asks for itself"
    assert calls == ["before one", "after one", "before two"]
    assert run(workspace, main, wake=True).status == "completed"
    assert calls == ["before one", "after one", "before two", "after two"]


@pytest.mark.parametrize("where", ["agent", "scope", "sub-agent", "step"])
def test_it_stops_the_whole_run_from_anywhere(workspace: Path, calls: list[str], where: str) -> None:
    note = noting(calls)

    async def pausing(run: Run[Any]) -> None:
        await run.pause()
        await note("after")

    @step
    async def long(run: Run[Any]) -> None:
        await pausing(run)

    @agent
    async def child(run: Run[Any]) -> None:
        await pausing(run)

    @agent
    async def main(run: Run[Any]) -> None:
        if where == "agent":
            await pausing(run)
        elif where == "scope":
            await run.scope("inner", pausing, run)
        elif where == "step":
            await long()
        else:
            await run.spawn(child, "child")
        await note("end")

    assert run(workspace, main).status == "paused"
    assert calls == [] and pause_file(workspace)["reason"] == "manual"
    assert run(workspace, main, wake=True).status == "completed"
    assert calls == ["after", "end"]


def test_it_cuts_a_block_that_must_not_be_interrupted(workspace: Path, calls: list[str]) -> None:
    note = noting(calls)

    @agent
    async def main(run: Run[Any]) -> None:
        async with run.uninterrupted("transfer"):
            await note("take")
            await run.pause()
            await note("give")
        await note("after")

    assert run(workspace, main).status == "paused"
    assert calls == ["take", "give"]
    assert run(workspace, main, wake=True).status == "completed"
    assert calls == ["take", "give", "after"]


def test_a_crash_leaves_the_wish_without_the_call_or_the_call_without_the_wish(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.pause("think")

    assert run(workspace, main).status == "paused"
    lines = journal.read(open_store(str(workspace)), after=0).lines
    groups = {
        type(line.record): line.commit for line in lines if isinstance(line.record, StepCompleted | PauseRequested)
    }
    assert groups.keys() == {StepCompleted, PauseRequested} and len(set(groups.values())) == 1, groups


def test_instructions_are_lost_on_their_way_to_the_agent(workspace: Path, crash: type[BaseException]) -> None:
    heard: list[str] = []

    @agent
    async def main(run: Run[Any]) -> None:
        heard.append(run.instructions)
        await run.pause("which way?", resume="await_instructions")
        if len(heard) == 2:
            raise crash

    assert run(workspace, main).status == "paused"
    assert pause_file(workspace)["resume"] == "await_instructions"
    with pytest.raises(Refused, match="waits for instructions"):
        run(workspace, main, wake=True)
    with (workspace / "pause.yaml").open("a") as file:
        file.write("instructions: take the left one\n")
    with pytest.raises(crash):
        run(workspace, main, wake=True)
    assert run(workspace, main).status == "completed"
    assert heard == ["", "take the left one", "take the left one"]


def test_a_length_of_time_that_a_person_writes_into_the_file_never_ends(workspace: Path, calls: list[str]) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.pause()
        calls.append("on")

    assert run(workspace, main).status == "paused"
    file = workspace / "pause.yaml"
    file.write_text(file.read_text() + "expected_until: 45m\n")
    long_ago = time.time() - 46 * 60
    os.utime(file, (long_ago, long_ago))
    assert run(workspace, main).status == "completed" and calls == ["on"]


@pytest.mark.parametrize("wrong", [{"reason": " "}, {"reason": None}, {"resume": "later"}])
def test_a_wish_that_nobody_would_understand_is_written(workspace: Path, wrong: dict[str, Any]) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.pause(**wrong)

    outcome = run(workspace, main)
    assert outcome.status == "failed" and "run.pause()" in str(outcome.error)
    assert not (workspace / "pause.yaml").exists()
