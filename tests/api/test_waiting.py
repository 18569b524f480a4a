"""Where an event loop is running, what waits refuses and names what to call there. A process does not kill itself."""

from __future__ import annotations

import asyncio
import inspect
import os
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make, contents

import satchel
from satchel import Handle
from satchel.results import RunBackup, RunFiles, RunHistory
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect import lease
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore

PARTS = {"": Handle, "history.": RunHistory, "files.": RunFiles, "backup.": RunBackup}
WAITING = sorted(
    part + name.removesuffix("_async") for part, kind in PARTS.items() for name in dir(kind) if name.endswith("_async")
)

PATIENT = """
import asyncio
from satchel import agent, step

@step
async def wait(number: int) -> int:
    await asyncio.sleep(0.01)
    return number

@agent
async def main(run):
    for number in range(100_000):
        await wait(number)
"""


class Began:
    """A `Watch` that waits for the first step."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def step_begun(self, agent: str, name: str) -> None:
        self.begun.set()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def in_a_loop(call: Any) -> str:
    """What a call says that is refused in a loop."""

    async def main() -> str:
        with pytest.raises(UsageError, match="can't be called where an event loop is running") as raised:
            call()
        return str(raised.value)

    return asyncio.run(main())


@pytest.mark.parametrize("name", WAITING)
def test_a_loop_stands_still(make: Make, name: str) -> None:
    handle = satchel.open(folder := make())
    before = contents(folder)
    method, given, named = attrgetter(name)(handle), list[str](), dict[str, Any]()
    for each in inspect.signature(method).parameters.values():
        if each.name == "wait":
            named["wait"] = True
        elif each.default is each.empty and each.kind is each.KEYWORD_ONLY:
            named[each.name] = "^1"
        elif each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD:
            given.append("^1")
    assert f"`await {name.rpartition('.')[2]}_async(...)` there" in in_a_loop(lambda: method(*given, **named))
    assert contents(folder) == before


def test_what_has_no_version_for_a_loop_names_none(make: Make) -> None:
    handle = satchel.open(folder := make())
    before = contents(folder)
    assert "run_async" in in_a_loop(handle.supervise)
    assert "asyncio.to_thread" in in_a_loop(lambda: satchel.stop_all([handle]))
    assert "satchel serve" in in_a_loop(lambda: satchel.serve(folder))
    assert "`await run_async(...)`" in in_a_loop(lambda: satchel.run(folder))
    assert contents(folder) == before


def test_what_does_not_wait_is_refused_in_a_loop(make: Make) -> None:
    handle = satchel.open(make())

    async def main() -> str:
        handle.status()
        handle.send("a task")
        handle.pause()
        assert handle.questions() == []
        assert (await handle.check_async()).problems == []
        return handle.cancel().status

    assert asyncio.run(main()) == "cancelled"


@pytest.mark.parametrize("is_all", [False, True])
def test_an_emergency_stop_kills_the_process_that_asks_for_it(make: Make, is_all: bool) -> None:
    """It runs the run itself. What others run is stopped all the same."""
    mine, other = satchel.open(make(PATIENT)), satchel.open(make(name="other"))

    async def main() -> tuple[str, list[str]]:
        watch = Began()
        running = asyncio.create_task(mine.run_async(watch=watch))
        await watch.begun.wait()
        if is_all:
            stopped = await asyncio.to_thread(satchel.stop_all, [other, mine], reason="wrong")
        else:
            stopped = [await mine.stop_async(reason="wrong")]
        return (await running).status, [each.how for each in stopped]

    status, how = asyncio.run(main())
    assert (status, how) == ("paused", ["idle", "draining"] if is_all else ["draining"])
    assert mine.status().state == "paused" and mine.result.reason == "wrong"
    assert is_all == ("mode: emergency" in (Path(other.url) / "pause.yaml").read_text() if is_all else False)


def test_an_emergency_stop_kills_the_process_that_supervises(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make()
    monkeypatch.setattr(lease, "_supervisor", None)
    lease.supervised_by(os.getpid())
    with opened(DiskStore(folder), "run", Report()):
        assert satchel.open(folder).stop().how == "draining"


def test_the_old_name_of_a_run_that_was_moved_is_no_workspace_to_a_stop(make: Make, tmp_path: Path) -> None:
    handle = satchel.open(make())
    handle.run()
    result = handle.move(tmp_path / "new")
    with pytest.raises(UsageError, match="is at another place now") as raised:
        handle.stop()
    assert result.to in str(raised.value)
