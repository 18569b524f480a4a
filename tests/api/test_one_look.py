"""How often a start looks at the workspace, and at the readable files: no more often than it has to."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from cli.conftest import Make

import satchel
from satchel import Run, agent, step
from satchel.runtime.launch.runner import stream
from satchel.workspace.base import UsageError
from satchel.workspace.inbound import json_edits
from satchel.workspace.inspect import load


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Looks at the journal, and at the files that people edit."""
    found: Counter[str] = Counter()

    def counted(module: Any, name: str, what: str) -> None:
        real = getattr(module, name)

        def count(*args: Any, **options: Any) -> Any:
            found[what] += 1
            return real(*args, **options)

        monkeypatch.setattr(module, name, count)

    counted(load, "_look", "journal")
    counted(json_edits, "look_at_state", "files")
    return found


@step
async def add(one: int, other: int) -> int:
    return one + other


def ending(how: str) -> satchel.Agent[Any, Any]:
    @agent
    async def ends(run: Run[Any]) -> int:
        if how == "paused":
            await run.pause("a look")
        if how == "waiting":
            await run.ask("Go on?", ["yes", "no"], wait_for=0)
        return await add(1, 2)

    return ends


def test_a_start_of_a_completed_run_looks_more_than_once(make: Make, looks: Counter[str]) -> None:
    handle = satchel.open(make())
    assert handle.run(ending("completed")).status == "completed"
    looks.clear()
    again = handle.run(ending("completed"))
    assert (again.status, again.result, again.entered, again.steps) == ("completed", 3, False, 0)
    assert looks == {"journal": 1, "files": 1}


@pytest.mark.parametrize("how", ["paused", "waiting"])
def test_a_start_of_a_run_that_rests_looks_more_than_once(how: str, make: Make, looks: Counter[str]) -> None:
    handle = satchel.open(make())
    assert handle.run(ending(how)).status == how
    looks.clear()
    again = handle.run(ending(how))
    assert (again.status, again.entered, len(again.questions)) == (how, False, how == "waiting")
    assert looks == {"journal": 1, "files": 1}


def test_a_run_looks_again_to_say_how_it_ended(make: Make, looks: Counter[str]) -> None:
    handle = satchel.open(make())
    ended = handle.run(ending("completed"))
    assert (ended.steps, ended.run_id, ended.result) == (1, "demo-1a2b", 3)
    assert looks == {"journal": 1, "files": 1}


def test_a_stream_of_a_completed_run_looks_more_than_once(make: Make, looks: Counter[str]) -> None:
    folder = make()
    satchel.open(folder).run(ending("completed"))
    looks.clear()

    async def events() -> list[str]:
        return [type(event).__name__ async for event in stream(folder, ending("completed"))]

    assert asyncio.run(events()) == ["RunEnded"]
    assert looks == {"journal": 1, "files": 1}


def test_a_definition_that_is_being_saved_is_read_before_it_is_whole(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look comes after the wait for people who save, also for the handle's own questions."""
    folder = make()
    whole = (folder / "workspace.yaml").read_bytes()
    (folder / "workspace.yaml").write_bytes(whole[:20])

    def is_saved(*_: Any) -> list[str]:
        saving, found = ["workspace.yaml"], (folder / "workspace.yaml").read_bytes() != whole
        (folder / "workspace.yaml").write_bytes(whole)
        return saving if found else []

    monkeypatch.setattr("satchel.workspace.inbound.detection.being_saved", is_saved)
    with pytest.raises(UsageError, match="nothing to resume yet"):
        satchel.open(folder).resume(ending("completed"))
    assert satchel.open(folder).run(ending("completed")).status == "completed"
