"""A task of the inbox again in a fork, after it was done: the run and its other forks never take it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make, contents

import satchel
from satchel import InboxTask, Run, agent, effect, step
from satchel.runtime.api import Handle

from .test_forking import data, is_sound

SETTINGS = "settings: {factor: 1, mails: true, asks: []}\n"


def adding(calls: list[str], *, parallel: int = 1) -> Any:
    """Adds up the numbers that arrive, and mails each sum from a sub-agent and by itself."""

    @step
    async def times(number: int, factor: int) -> int:
        calls.append(f"times {number}")
        return number * factor

    @effect
    async def mail(text: str) -> str:
        calls.append(f"mail {text}")
        return f"mailed {text}"

    @agent
    async def secretary(run: Run[Any], text: str) -> str:
        return await mail(text)

    async def work(run: Run[Any], task: InboxTask) -> None:
        if task.name in run.settings["asks"]:
            await run.ask(f"Take {task.name}?", choices=["yes", "no"], wait_for=0)
        number = await times(task.data["number"], run.settings["factor"])
        run.state["sum"] = run.state.get("sum", 0) + number
        if run.settings["mails"]:
            run.state["mailed"] = await mail(f"{number}")
            await run.spawn(secretary, f"secretary-{task.id}", f"copy {number}")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.inbox.each(work, parallel=parallel)

    return main


def added(make: Make, calls: list[str], settings: str = SETTINGS, **options: Any) -> tuple[Handle, Any]:
    """A run that has done what it can of three tasks, and its agent."""
    folder = make(extra=settings)
    (folder / "inbox").mkdir()
    for number in (1, 2, 3):
        (folder / f"inbox/{number}.yaml").write_text(f"number: {number}\n")
    handle, main = satchel.open(folder), adding(calls, **options)
    handle.run(main)
    calls.clear()
    return handle, main


def test_a_task_that_is_done_can_not_be_replayed(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = added(make, calls, SETTINGS.replace("true", "false"))
    before = contents(Path(handle.url))
    found = handle.history.replay("_inbox-t2", tmp_path / "again", agent=main, settings={"factor": 10})
    assert calls == ["times 2"] and contents(Path(handle.url)) == before
    assert (found.end, found.status, found.item, found.title) == ("done", "paused", "_inbox-t2", "2.yaml")
    assert [(each.path, each.old, each.new) for each in found.data or ()] == [("/sum", 3, 21)]
    fork = satchel.open(found.to)
    assert data(fork) == {"sum": 21} and is_sound(fork)
    assert handle.history.replay("_inbox-t2", tmp_path / "same", agent=main).is_same
    calls.clear()
    assert fork.resume(main).status == "completed" and calls == [], "no other task comes along"
    assert handle.resume(main).status == "completed" and calls == []


def test_a_replayed_task_does_its_effects_again(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = added(make, calls)
    same = handle.history.replay("_inbox-t2", tmp_path / "same", agent=main)
    assert calls == ["times 2"] and same.is_same and [pair.kept for pair in same.calls] == [False, True, True]
    assert data(satchel.open(same.to)) == {"sum": 3, "mailed": "mailed 2"}
    calls.clear()
    other = handle.history.replay("_inbox-t2", tmp_path / "other", agent=main, settings={"factor": 10})
    assert calls == ["times 2"] and other.end == "effect" and 'mail("text":"20")' in other.reason
    fork = satchel.open(other.to)
    assert fork.run(main).status == "paused"
    asked = fork.resume(main)  # the mail differs from the one that was sent
    assert asked.status == "waiting" and not any(call.startswith("mail") for call in calls)
    (question,) = fork.questions()
    assert 'mail("text":"2")' in str(question)


@pytest.mark.parametrize("effects", [False, True])
def test_another_fork_takes_a_task_again_that_is_done(make: Make, tmp_path: Path, effects: bool) -> None:
    calls: list[str] = []
    handle, main = added(make, calls)
    begun = next(work.begun for work in handle.history.steps().work if work.scope == "_inbox-t2")
    fork = satchel.open(handle.history.fork(tmp_path / "fork", at=begun - 1, effects=effects).to)
    handle.history.rewind(to=begun - 1, forget=effects)
    for each in (fork, handle):
        assert each.resume(main).status == "completed" and calls == [], each.url
        assert data(each)["sum"] == 1


def test_a_task_that_a_return_has_undone_can_not_be_replayed(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = added(make, calls)
    handle.history.rewind(to="_inbox-t1")
    found = handle.history.replay("_inbox-t2", tmp_path / "again", agent=main)
    assert calls == ["times 2"] and found.is_same


def test_a_task_that_is_open_comes_before_the_replayed_one(make: Make, tmp_path: Path) -> None:
    calls: list[str] = []
    handle, main = added(make, calls, SETTINGS.replace("[]", "[1.yaml]"), parallel=3)
    assert handle.status().moment.status == "waiting"
    for parallel in (1, 3):
        calls.clear()
        found = handle.history.replay(
            "_inbox-t3", tmp_path / f"with-{parallel}", agent=adding(calls, parallel=parallel)
        )
        assert (found.end, calls) == ("done", ["times 3"]), found.reason
    calls.clear()
    waits = handle.history.replay("_inbox-t1", tmp_path / "open", agent=main)
    assert waits.end == "waiting" and calls == []
