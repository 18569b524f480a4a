"""A commit's record travels with the next group, or alone after a moment: an item costs half, and nothing that can be
seen outside goes ahead of it."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waits import PATIENCE

from satchel import Item, Run, agent, effect, run, step
from satchel.runtime.cli.summary import Quiet
from satchel.runtime.engine import context
from satchel.workspace.base.errors import StorageFailed
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore, Syscalls

NEVER = 1e9


class Disk(Syscalls):
    """Counts the syncs of the journal, and fails them when it is told to."""

    def __init__(self) -> None:
        self.syncs = 0
        self.broken = False

    def sync_data(self, fd: int) -> None:
        self.syncs += 1
        if self.broken:
            raise OSError(errno.EIO, "broken")
        super().sync_data(fd)


def items(*names: str) -> Callable[[Callable[[Run[Any], Item], Any]], Any]:
    def make(work: Callable[[Run[Any], Item], Any]) -> Any:
        @agent
        async def main(run: Run[Any]) -> list[str]:
            if not run.todo.items:
                await run.plan(None, names)
            await run.todo.each(work)
            return list(run.state.get("seen", []))

        return main

    return make


def committed(workspace: Path) -> int:
    """Items whose commit another process can read."""
    lines = [line for path in sorted((workspace / "journal").iterdir()) for line in path.read_bytes().splitlines()]
    return sum(json.loads(line)["type"] == "scope.committed" and bool(json.loads(line)["scope"]) for line in lines)


@step
async def ask(text: str) -> str:
    return text.upper()


@effect
async def send(text: str) -> str:
    return text


@pytest.mark.parametrize(("kind", "before", "after"), [("step", 2, 1), ("effect", 3, 2)])
def test_an_item_costs_a_sync_for_its_commit(
    workspace: Path, kind: str, before: int, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "ALONE_AFTER", NEVER)
    disk, syncs, count = Disk(), [], 40

    @items(*(f"item {number}" for number in range(count)))
    async def main(run: Run[Any], item: Item) -> None:
        syncs.append(disk.syncs)
        await (ask if kind == "step" else send)(item.text)

    assert run(DiskStore(workspace, disk), main).status == "completed"
    assert (syncs[-1] - syncs[0]) / (count - 1) == after < before


def test_an_item_without_a_step_is_forgotten_by_the_next(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only deferring the flush did that: the next difference was taken from a state that was not the last one."""
    monkeypatch.setattr(context, "ALONE_AFTER", NEVER)

    @items("a", "b", "c", "d")
    async def main(run: Run[Any], item: Item) -> None:
        run.state.setdefault("seen", []).append(item.text)
        if item.text == "c" and len(run.state["seen"]) == 3 and not failed:
            failed.append(item.text)
            raise ConnectionError("once")

    failed: list[str] = []
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))
    assert run(workspace, main).result == ["a", "b", "c", "d"] and failed == ["c"]
    assert json.loads((workspace / "state.json").read_text())["data"] == {"seen": ["a", "b", "c", "d"]}
    assert look(DiskStore(workspace)).moment.root.data == {"seen": ["a", "b", "c", "d"]}


@pytest.mark.parametrize("where", ["in a step", "between steps", "in the inbox"])
def test_a_commit_waits_for_ever_for_company(workspace: Path, where: str) -> None:
    def is_shown() -> bool:
        todo = workspace / "todo.md"
        return committed(workspace) == 1 and todo.exists() and "- [x] a" in todo.read_text()

    async def shows() -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_shown():  # noqa: ASYNC110  # nobody tells of a file
                await asyncio.sleep(0.002)

    @step
    async def long() -> None:
        await shows()

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "b":
            await (long() if where == "in a step" else shows())

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"] if where == "in the inbox" else ["a", "b"])
        await run.todo.each(work)
        if where == "in the inbox":
            assert len(run.inbox) == 0
            await shows()

    outcome = run(workspace, main)
    assert outcome.status == "completed", outcome.error


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_agent_that_blocks_the_loop_keeps_all_its_items_from_the_storage(
    workspace: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets no timer run. A kill cost every item since the start, and no file showed one of them."""
    monkeypatch.setattr(context, "ALONE_AFTER", 0.0)  # every item takes longer than that
    found: list[int] = []

    def work(run: Run[Any], item: Item) -> None:
        found.append(committed(workspace))

    async def waits_for_nothing(run: Run[Any], item: Item) -> None:
        work(run, item)

    assert run(workspace, items("a", "b", "c")(work if kind == "def" else waits_for_nothing)).status == "completed"
    assert found == [0, 1, 2]


def test_something_is_shown_of_a_commit_that_could_not_be_written(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor checkpointed, nor closed: only a new opening goes on."""
    monkeypatch.setattr(context, "ALONE_AFTER", NEVER)
    disk, told = Disk(), list[str]()

    class Told(Quiet):
        def item_ended(self, agent: str, text: str, finished: int, of: int) -> None:
            told.append(text)

    def files() -> dict[str, bytes]:
        return {
            str(path.relative_to(workspace)): path.read_bytes()
            for folder in (".", "checkpoints", "steps/2-b")
            for path in (workspace / folder).glob("*.*")
            if path.is_file()
        }

    before: list[dict[str, bytes]] = []

    @items("a", "b", "c")
    async def main(run: Run[Any], item: Item) -> None:
        run.state.setdefault("seen", []).append(item.text)
        if item.text == "b":
            assert committed(workspace) == 0 and told == [], "the first one is on its way"
            await send("now")
            assert committed(workspace) == 1 and told == ["a"], "an effect waits for all before it"
        if item.text == "c" and not before:
            before.append(files())
            disk.broken = True
            await ask("too late")

    with pytest.raises(StorageFailed):
        run(DiskStore(workspace, disk), main, watch=Told())
    assert told == ["a"] and files() == before[0]
    disk.broken = False
    assert run(DiskStore(workspace, disk), main).result == ["a", "b", "c"]


@pytest.mark.parametrize("nth", range(1, 5))
def test_a_process_that_dies_with_a_commit_on_its_way_repeats_an_effect(
    workspace: Path, nth: int, crash: Any, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "ALONE_AFTER", NEVER)

    @effect
    async def post(text: str) -> str:
        calls.append(text)
        return text

    entered: list[str] = []

    @items("a", "b", "c", "d")
    async def main(run: Run[Any], item: Item) -> None:
        run.state.setdefault("seen", []).append(item.text)
        entered.append(item.text)
        if len(entered) == nth:
            raise crash
        await post(item.text)

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == ["a", "b", "c", "d"]
    assert calls == ["a", "b", "c", "d"]


@pytest.mark.parametrize("times", [1, 2])
def test_an_agent_that_swallows_a_failed_write_shows_a_task_as_done(workspace: Path, times: int) -> None:
    """Its end is not on the storage, and its file was put away before anybody noticed: at the close, or with the next
    task."""
    disk = Disk()
    (workspace / "inbox").mkdir()
    for name in ("one", "two"):
        (workspace / "inbox" / f"{name}.md").write_text(name)

    @agent
    async def main(run: Run[Any]) -> None:
        for _ in range(times):
            with suppress(StorageFailed):
                async for _ in run.inbox:
                    disk.broken = True

    with pytest.raises(StorageFailed):
        run(DiskStore(workspace, disk), main)
    assert len([*(workspace / "inbox").glob("*.md")]) == 2


def test_an_output_is_written_by_a_process_that_could_not_renew_its_lease(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was left to record, so the journal did not tell it either."""

    class Late:
        is_in_time = False

        def check(self) -> None:
            raise StorageFailed("the heartbeat can't be written", path=".satchel/lease.json")

    @items("a")
    async def main(run: Run[Any], item: Item) -> None:
        monkeypatch.setattr(run._session.context.workspace.owned, "heartbeat", Late())
        await run.output("a.txt", "mine")

    with pytest.raises(StorageFailed, match="heartbeat"):
        run(workspace, main)
    assert not (workspace / "outputs" / "a.txt").exists()
