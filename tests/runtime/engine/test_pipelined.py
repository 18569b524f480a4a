"""`@agent(durability="pipelined")`: steps return at once, and nothing that can be seen goes ahead of their records."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waits import PATIENCE

from satchel import Item, Partial, Run, agent, effect, run, run_async, step
from satchel.runtime.cli.summary import Quiet
from satchel.runtime.engine import context
from satchel.workspace.base.errors import UsageError
from satchel.workspace.store import DiskStore, Syscalls


@step
async def pure(number: int) -> str:
    return f"value {number}"


def on_disk(workspace: Path) -> list[int]:
    """The numbers of the pure steps that the journal on the disk holds."""
    text = "".join(path.read_text() for path in sorted(workspace.glob("journal/*.jsonl")))
    records = [json.loads(line) for line in text.splitlines()]
    return [
        int(record["result"].split()[1])
        for record in records
        if record["type"] == "step.completed" and record["step"] == "pure"
    ]


def answers_on_disk(workspace: Path) -> list[str]:
    text = "".join(path.read_text() for path in sorted(workspace.glob("journal/*.jsonl")))
    return [record["step"] for record in map(json.loads, text.splitlines()) if record["type"] == "step.completed"]


def streams(workspace: Path) -> list[Path]:
    return list(workspace.glob("partials/*/*"))


def wait_until_on_disk(workspace: Path, numbers: list[int]) -> None:
    until = time.monotonic() + PATIENCE
    while on_disk(workspace) != numbers:
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.fixture
def never_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written because it is time, only because something must not go ahead."""

    class Stopped:
        @staticmethod
        def monotonic() -> float:
            return -1000.0

    monkeypatch.setattr(context, "time", Stopped)
    monkeypatch.setattr(context, "ALONE_AFTER", 1e9)


def pipelined(function: Callable[[Run[Any]], Any]) -> Any:
    @agent(durability="pipelined")
    async def main(run: Run[Any]) -> Any:
        return await run.scope("work", function, run)

    return main


@pytest.mark.usefixtures("never_in_time")
def test_a_step_does_not_wait_and_its_result_is_as_it_would_be_read(workspace: Path) -> None:
    @step
    async def pair() -> Any:
        return 1, 2

    async def work(run: Run[Any]) -> Any:
        for number in range(5):
            await pure(number)
        assert on_disk(workspace) == []
        return await pair()

    outcome = run(workspace, pipelined(work))
    assert outcome.result == [1, 2], outcome.error
    assert on_disk(workspace) == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("never_in_time")
@pytest.mark.parametrize("what", ["effect", "output", "commit", "progress", "question", "spawn", "stream", "sleep"])
def test_what_can_be_seen_waits_for_all_steps_before_it(workspace: Path, what: str) -> None:
    seen: list[list[int]] = []

    def look() -> None:
        seen.append(on_disk(workspace))

    @effect
    async def send() -> None:
        look()

    @effect
    async def lost() -> None:
        raise TimeoutError

    @step
    async def long(run: Run[Any]) -> None:
        await run.progress("half")
        look()

    @step
    async def stream(out: Partial) -> str:
        look()  # its file is there from the beginning
        await out.write("word")
        return out.text

    @agent
    async def child(run: Run[Any]) -> None:
        look()

    class Watching(Syscalls):
        def rename(self, source: str, target: str) -> None:
            if "/outputs/" in target:
                look()
            super().rename(source, target)

    async def work(run: Run[Any], item: Item) -> None:
        for number in range(5):
            await pure(number)
        assert on_disk(workspace) == []
        match what:
            case "effect":
                await send()
            case "commit":
                pass  # it is told when it is durable
            case "output":
                await run.output("a.txt", "a")
            case "progress":
                await long()  # type: ignore[call-arg]
            case "question":
                try:
                    await lost()
                finally:
                    look()
            case "spawn":
                await run.spawn(child, "child")
            case "stream":
                await stream()  # type: ignore[call-arg]
            case "sleep":
                await run.sleep(3600)

    @agent(durability="pipelined")
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["one"])
        await run.todo.each(work)

    class Told(Quiet):
        def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
            look()

    outcome = run(DiskStore(workspace, Watching()), main, watch=Told())
    assert outcome.status == {"question": "waiting", "sleep": "sleeping"}.get(what, "completed"), outcome.error
    if what == "sleep":
        look()
    assert seen[0] == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("never_in_time")
def test_a_streamed_answer_is_on_record_before_its_file_goes(workspace: Path, crash: Any) -> None:
    @step
    async def stream(out: Partial) -> str:
        assert out.recovered is None
        await out.write("a whole answer")
        return out.text

    async def work(run: Run[Any]) -> str:
        answer = await stream()  # type: ignore[call-arg]
        assert streams(workspace) == [] and answers_on_disk(workspace) == ["stream"]
        if run.attempt == 1:
            raise crash
        return str(answer)

    with pytest.raises(crash):
        run(workspace, pipelined(work))
    outcome = run(workspace, pipelined(work))
    assert (outcome.result, outcome.answered) == ("a whole answer", 1)


def test_records_follow_soon_without_anything_that_waits_for_them(workspace: Path) -> None:
    """An agent that only waits is written down by a timer, one that never waits by its own steps."""

    async def work(run: Run[Any]) -> int:
        await pure(0)
        await asyncio.get_running_loop().run_in_executor(None, wait_until_on_disk, workspace, [0])
        number = 1
        while len(on_disk(workspace)) < 2:
            await pure(number)
            number += 1
        return number

    async def in_time() -> Any:
        return await asyncio.wait_for(run_async(workspace, pipelined(work)), PATIENCE)

    assert asyncio.run(in_time()).status == "completed"


@pytest.mark.usefixtures("never_in_time")
def test_what_waits_to_be_written_is_bounded(workspace: Path) -> None:
    @step
    async def large(number: int) -> str:
        return "x" * 50_000

    most = 0

    async def work(run: Run[Any]) -> None:
        nonlocal most
        for number in range(100):
            await large(number)
            most = max(most, run._session.journal.waiting_bytes)

    assert run(workspace, pipelined(work)).status == "completed"
    assert 500_000 < most < 1_200_000


def test_strict_is_the_default_and_waits(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await pure(1)
        assert on_disk(workspace) == [1]

    assert run(workspace, main).status == "completed"


def test_another_durability_is_refused() -> None:
    with pytest.raises(UsageError, match="durability"):

        @agent(durability="quick")  # type: ignore[call-overload]
        async def main(run: Run[Any]) -> None: ...


def test_a_disk_that_fails_in_the_background_stops_the_run(workspace: Path) -> None:
    class Failing(Syscalls):
        fails = False

        def sync_data(self, fd: int) -> None:
            if self.fails:
                raise OSError(5, "Input/output error")
            super().sync_data(fd)

    syscalls, calls = Failing(), []

    async def work(run: Run[Any]) -> None:
        syscalls.fails = True
        for number in range(1_000_000):
            await pure(number)
            calls.append(number)

    from satchel.workspace.base.errors import StorageFailed

    with pytest.raises(StorageFailed):
        run(DiskStore(workspace, syscalls), pipelined(work))
    assert len(calls) < 1_000_000


def test_steps_of_many_tasks_and_threads_are_all_kept(workspace: Path) -> None:
    main_thread = threading.get_ident()

    @step
    def in_a_thread(number: int) -> bool:
        return threading.get_ident() != main_thread

    async def work(run: Run[Any]) -> Any:
        found = await asyncio.gather(*(pure(n) for n in range(100)), *(in_a_thread(n) for n in range(20)))
        return found[100:]

    assert run(workspace, pipelined(work)).result == [True] * 20
    assert sorted(on_disk(workspace)) == list(range(100))
