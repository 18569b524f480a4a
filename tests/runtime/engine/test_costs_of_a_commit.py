"""What an item and its commit cost, in what can be counted."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import markdown_it  # noqa: F401 - as a plan is first parsed; it is no part of what a plan holds
import pytest

from satchel import Item, Run, agent, run, step
from satchel.runtime.agent import fingerprint
from satchel.runtime.engine import context
from satchel.runtime.engine.scope import ScopeRun
from satchel.runtime.live import data
from satchel.workspace.base.errors import AgentError, NotSerializable
from satchel.workspace.plan import markdown
from satchel.workspace.state import json_patch
from satchel.workspace.store import DiskStore, Syscalls


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the state as a whole was looked at, and the bytes of JSON that were read to find what has changed."""
    found: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            found[name] += 1
            found.update(f"buffer {id(each)}" for each in args if isinstance(each, bytearray))
            return function(*args)

        return call

    class Reader:
        def __init__(self, decoder: Any):
            self._decoder = decoder

        def decode(self, text: bytes) -> Any:
            found["read"] += len(text)
            return self._decoder.decode(text)

    for name in ("unchecked", "fingerprint"):
        monkeypatch.setattr(data, name, counted(name, getattr(data, name)))
    for name in ("_any", "_value", "_list", "_object"):
        monkeypatch.setattr(json_patch, name, Reader(getattr(json_patch, name)))
    return found


@pytest.mark.parametrize("kind", ["items", "scopes"])
def test_a_commit_costs_reading_the_whole_state(workspace: Path, kind: str, looks: Counter[str]) -> None:
    """An item costs one encoding of the state, a scope also two fingerprints, always in the same memory; what they have
    added is all that is read."""
    at: list[Counter[str]] = []

    async def add(run: Run[Any], item: Item | None = None) -> None:
        at.append(looks.copy())
        run.state["seen"].append({"n": len(run.state["seen"]), "text": "y" * 180})

    @agent
    async def main(run: Run[Any]) -> None:
        async def fill() -> None:
            run.state["seen"] = [{"n": number, "text": "x" * 180} for number in range(1000)]

        await run.scope("fill", fill)
        if kind == "items":
            await run.plan(None, [f"item {number}" for number in range(10)])
            await run.todo.each(add)
        for number in range(10 if kind == "scopes" else 0):
            await run.scope(f"scope {number}", add, run)
        assert len(run.state["seen"]) == 1010

    assert run(workspace, main).status == "completed"
    cost = {name: at[9][name] - at[2][name] for name in looks}
    assert cost["read"] < 7 * 1000
    assert cost["unchecked"] == 7
    assert cost["fingerprint"] == (0 if kind == "items" else 14)
    assert sum(name.startswith("buffer") for name in looks) <= 2


def test_a_fingerprint_keeps_the_end_of_a_longer_one() -> None:
    buffer, other = bytearray(), bytearray()
    for size in (1000, 10, 100_000, 0):
        assert fingerprint({"a": "x" * size}, buffer) and fingerprint({"a": "x" * size}, other)
        assert buffer == other and size < len(buffer) < size + 20
        other = bytearray()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("other", [1, 2**70], ids=["64 bits", "more"])
def test_a_number_that_json_does_not_have_is_kept_as_null(workspace: Path, value: float, other: int) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        async def add(what: float | None) -> None:
            run.state.setdefault("seen", []).append({"x": what, "n": other})

        await run.scope("nothing", add, None)
        await run.scope("no number", add, value)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable) and "run.state.seen[1].x" in str(outcome.error)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("also", [False, True], ids=["alone", "with another change"])
def test_a_number_that_json_does_not_have_is_taken_for_the_null_before_it(
    workspace: Path, value: float, also: bool
) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        async def set_mean(mean: float | None, n: int) -> None:
            run.state |= {"mean": mean, "n": n}

        await run.scope("nothing", set_mean, None, 1)
        await run.scope("still nothing", set_mean, None, 2)  # whose own change has no null
        await run.scope("no number", set_mean, value, 2 + also)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable) and "run.state.mean" in str(outcome.error)


def test_such_a_number_outside_a_scope_passes_for_null(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        async def set_mean() -> None:
            run.state["mean"] = None

        await run.scope("nothing", set_mean)
        run.state["mean"] = float("nan")

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable) and "run.state.mean" in str(outcome.error)


def test_what_is_changed_while_an_item_waits_to_be_tried_again_is_its_own(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt follows the commit before it; the agent's tasks run before the second."""
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))

    @agent
    async def main(run: Run[Any]) -> None:
        async def meddle() -> None:
            await has_failed.wait()
            with suppress(AgentError):
                run.state["by"] = "another"

        async def work(run: Run[Any], item: Item) -> None:
            if item.text == "b" and not has_failed.is_set():
                has_failed.set()
                raise ConnectionError("once")

        has_failed = asyncio.Event()
        task = asyncio.create_task(meddle())
        await run.plan(None, ["a", "b"])
        await run.todo.each(work)
        await task

    outcome = run(workspace, main)
    assert "run.state.by was changed outside a scope" in str(outcome.error)


def test_a_large_plan_is_parsed_and_held_several_times(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 items took 6.8 s and 286 MB: the runtime parsed the Markdown that it had just made."""
    parsed: list[int] = []
    peaks: list[int] = []

    def parse(lines: list[str]) -> Any:
        parsed.append(len(lines))
        return markdown.parse(lines)

    monkeypatch.setattr("satchel.workspace.plan.plan.parse", parse)
    count = 4000

    @agent
    async def main(run: Run[Any]) -> None:
        texts = [f"item {number}" for number in range(count)]
        tracemalloc.start()
        try:
            await run.plan(None, texts)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert len(run.todo.items) == count and run.todo.items[-1].text == texts[-1]
        await run.todo.cancel(f"item {count - 1}")

    assert run(workspace, main).status == "completed"
    assert max(parsed, default=0) <= 1
    assert peaks[0] / count < 720


class Disk(Syscalls):
    """Counts the syncs of the journal."""

    def __init__(self) -> None:
        self.syncs = 0

    def sync_data(self, fd: int) -> None:
        self.syncs += 1
        super().sync_data(fd)


@step
async def answer(text: str) -> str:
    return "x" * 198


def test_an_item_of_one_step_takes_two_syncs_or_more_bytes(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commit, and the beginning of the next, travel with the next step. The plan takes one for itself."""
    monkeypatch.setattr(context, "ALONE_AFTER", 1e9)
    found: list[int] = []

    async def work(run: Run[Any], item: Item) -> None:
        await answer(item.text)

    for count in (0, 100):
        disk, folder = Disk(), workspace / str(count)
        folder.mkdir()
        (folder / "workspace.yaml").write_text((workspace / "workspace.yaml").read_text())

        @agent
        async def main(run: Run[Any], count: int = count) -> None:
            if count:
                await run.plan(None, [f"item {number}" for number in range(count)])
                await run.todo.each(work)

        assert run(DiskStore(folder, disk), main).status == "completed"
        found.append(disk.syncs)
    assert found[1] - found[0] <= 101
    rows = b"".join(path.read_bytes() for path in (workspace / "100" / "journal").iterdir()).splitlines(keepends=True)
    of_items = [row for row in rows if b'"type":"scope.' in row or b'"type":"step.' in row]
    assert sum(map(len, of_items)) / 100 < 660


def test_an_agent_that_never_waits_keeps_every_scope_that_has_ended(workspace: Path) -> None:
    """The loop does not turn between its items, so nothing that waits for a turn may hold one."""
    alive: list[int] = []

    @step
    async def answer(text: str) -> str:
        return text

    async def work(run: Run[Any], item: Item) -> None:
        await answer(item.text)
        if item.id in ("2", "12"):
            alive.append(sum(type(each) is ScopeRun for each in gc.get_objects()))

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, [f"item {number}" for number in range(12)])
        await run.todo.each(work)

    assert run(workspace, main).status == "completed"
    assert len(alive) == 2 and alive[0] >= alive[1], alive  # some of the first may still wait for the collector
