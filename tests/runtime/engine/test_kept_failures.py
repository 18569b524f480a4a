"""What a call has raised for good is its outcome: an agent that handled it finds the same after a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waits import HANGS, PATIENCE

from satchel import Item, NotDone, Retry, Run, agent, effect, run, run_async, step

Flaky = Callable[[], None]


@pytest.fixture
def fails(calls: list[str]) -> Callable[..., None]:
    """Notes a call, and raises at the first of that name."""

    def fail(name: str, error: BaseException | None = None, times: int = 1) -> None:
        calls.append(name)
        if calls.count(name) <= times:
            raise error or ConnectionError("no route")

    return fail


def records(workspace: Path, kind: str) -> list[dict[str, Any]]:
    lines = [line for path in sorted((workspace / "journal").iterdir()) for line in path.read_text().splitlines()]
    return [record for line in lines if (record := json.loads(line))["type"] == kind]


@pytest.mark.parametrize("is_effect", [False, True], ids=["step", "effect"])
@pytest.mark.parametrize("where", ["item", "scope", "agent", "sub-agent"])
def test_the_model_is_asked_something_else_after_a_crash(
    workspace: Path, calls: list[str], crash: Any, fails: Any, where: str, is_effect: bool
) -> None:
    def tool() -> str:
        fails("tool", NotDone("no route") if is_effect else None)
        return "it works"

    tool_call: Any = effect(tool) if is_effect else step(tool)

    @effect
    def tell(text: str) -> str:
        calls.append(f"tell {text}")
        return text

    async def work(top: Run[Any]) -> str:
        try:
            found = await tool_call()
        except (ConnectionError, NotDone) as error:
            found = f"{type(error).__name__}: {error}"
        told: str = await tell(found)
        if top.attempt == 1:
            raise crash
        return told

    async def item(run: Run[Any], item: Item) -> None:
        assert "no route" in await work(run)

    @agent
    async def child(run: Run[Any]) -> str:
        return await work(run)

    @agent
    async def main(run: Run[Any]) -> Any:
        match where:
            case "item":
                await run.plan(None, ["a"])
                await run.todo.each(item)
            case "scope":
                return await run.scope("s", work, run)
            case "sub-agent":
                return await run.spawn(child, "c")
            case "agent":
                return await work(run)

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert (outcome.status, outcome.doubts) == ("completed", [])
    kind = "NotDone" if is_effect else "ConnectionError"
    assert calls == ["tool", f"tell {kind}: no route"]


def test_a_failure_that_ended_its_scope_ends_it_again(workspace: Path, calls: list[str], fails: Any) -> None:
    @step
    def tool(name: str) -> str:
        fails(name)
        return name

    async def work(run: Run[Any], item: Item) -> None:
        try:
            await tool("handled")
        except ConnectionError:
            await tool("fatal")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        await run.todo.each(work)

    assert run(workspace, main).status == "completed"
    assert calls == ["handled", "fatal", "fatal"], "only what was handled is raised again"


@pytest.mark.parametrize("raised", ["from", "while", "in a group"])
def test_a_failure_is_kept_that_ended_its_scope_by_way_of_another(
    workspace: Path, calls: list[str], fails: Any, raised: str
) -> None:
    @step
    def tool() -> str:
        fails("tool")
        return "it works"

    async def work() -> str:
        try:
            return await tool()
        except ConnectionError as error:
            if raised == "from":
                raise LookupError("no tool") from error
            if raised == "while":
                raise LookupError("no tool")  # noqa: B904
            raise ExceptionGroup("tools", [error]) from None

    @agent
    async def main(run: Run[Any]) -> str:
        return await run.scope("s", work)

    assert run(workspace, main).status == "failed"
    assert run(workspace, main).result == "it works"
    assert calls == ["tool"] * 2


def test_an_agent_that_failed_is_failed_for_ever(workspace: Path, calls: list[str], fails: Any) -> None:
    @step
    def tool() -> str:
        fails("tool")
        return "it works"

    @agent
    async def main(run: Run[Any]) -> str:
        return await tool()

    assert run(workspace, main).status == "failed"
    assert run(workspace, main).result == "it works"


@pytest.mark.parametrize("where", ["item", "agent"])
def test_a_failure_from_before_a_kill_counts_among_the_three(
    workspace: Path, calls: list[str], crash: Any, fails: Any, where: str
) -> None:
    """Its scope was still waiting for what was beside it."""

    @step
    async def tool() -> str:
        fails("tool", TypeError("a mistake, which is never tried again"))
        return "it works"

    @step
    async def other() -> None:
        await asyncio.sleep(0)

    async def both(top: Run[Any]) -> None:
        found = asyncio.gather(tool(), other())
        if top.attempt == 1:
            await asyncio.wait([found])
            found.exception()
            await other()  # so that all before it is durable
            raise crash
        await found

    async def work(run: Run[Any], item: Item) -> None:
        await both(run)

    @agent
    async def main(run: Run[Any]) -> None:
        if where == "agent":
            await both(run)
        else:
            await run.plan(None, ["a"])
            await run.todo.each(work)

    with pytest.raises(crash):
        run(workspace, main)
    assert [record["final"] for record in records(workspace, "step.failed")] == [True]
    outcome = run(workspace, main)
    assert outcome.error is None and calls == ["tool"] * 2
    assert [record["uncounted"] for record in records(workspace, "scope.failed")] == [True]


def test_a_retried_step_does_not_call_again_what_has_failed_in_it(
    workspace: Path, calls: list[str], fails: Any
) -> None:
    @step
    async def inner() -> str:
        fails("inner", times=2)
        return "it works"

    @step(retry=Retry(attempts=3, first=0.001))
    async def outer() -> str:
        return await inner()

    @agent
    async def main(run: Run[Any]) -> str:
        return await outer()

    assert run(workspace, main).result == "it works"


def test_a_step_that_failed_because_of_another_is_replayed_with_it(
    workspace: Path, calls: list[str], fails: Any
) -> None:
    @step
    async def inner() -> str:
        fails("inner")
        return "it works"

    @step
    async def outer() -> str:
        try:
            return await inner()
        except ConnectionError as error:
            raise LookupError("no tool") from error

    @agent
    async def main(run: Run[Any]) -> str:
        return await outer()

    assert run(workspace, main).status == "failed"
    assert run(workspace, main).result == "it works"


def test_a_failure_before_its_last_retry_is_raised_again(workspace: Path, calls: list[str], fails: Any) -> None:
    @step(retry=Retry(attempts=2, first=0.001))
    def tool() -> str:
        fails("tool", times=3)
        return "it works"

    @agent
    async def main(run: Run[Any]) -> str:
        for _ in range(2):
            try:
                return await tool()
            except ConnectionError:
                await asyncio.sleep(0)
        return "never"

    assert run(workspace, main).result == "it works"
    assert [record.get("final", False) for record in records(workspace, "step.failed")] == [False, True, False]


def test_a_timeout_that_the_agent_handled_does_not_come_again(workspace: Path, calls: list[str], crash: Any) -> None:
    @step
    async def slow(name: str) -> str:
        calls.append(name)
        await asyncio.sleep(0 if len(calls) > 2 else 5)
        return name

    @step
    def tell(text: str) -> str:
        calls.append(text)
        return text

    async def work(run: Run[Any]) -> str:
        try:
            async with asyncio.timeout(0.1):
                found = await slow("a")
        except TimeoutError:
            found = "too slow"
        await tell(found)
        if run.attempt == 1:
            raise crash
        return found

    @agent
    async def main(run: Run[Any]) -> str:
        return await run.scope("s", work, run)

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == "too slow"
    assert calls == ["a", "too slow"]
    failed, *_ = records(workspace, "step.failed")
    assert failed["cancelled"] and 80 <= failed["ms"] < 2000


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("way", ["timeout", "around", "wait_for", "cancel", "group"])
def test_a_timeout_that_ended_its_scope_is_waited_for(workspace: Path, calls: list[str], way: str) -> None:
    @step
    async def slow() -> str:
        calls.append("slow")
        await asyncio.sleep(5 if len(calls) == 1 else 0)
        return "it works"

    @step
    async def broken() -> None:
        await asyncio.sleep(0.1)
        if len(calls) == 1:
            raise LookupError("broken")

    async def work() -> str:
        match way:
            case "timeout":
                async with asyncio.timeout(0.1):
                    return await slow()
            case "wait_for":
                return await asyncio.wait_for(slow(), 0.1)
            case "cancel":
                task = asyncio.create_task(slow())
                if not (await asyncio.wait([task], timeout=0.1))[0]:
                    task.cancel()
                    raise LookupError("too slow")
                return await task
            case "group":
                async with asyncio.TaskGroup() as group:
                    task = group.create_task(slow())
                    group.create_task(broken())
                return await task
        return await slow()

    @agent
    async def main(run: Run[Any]) -> str:
        if way == "around":
            async with asyncio.timeout(0.1 if run.attempt == 1 else 5):
                return await run.scope("s", work)
        return await run.scope("s", work)

    assert run(workspace, main).status == "failed"
    (ended,) = records(workspace, "scope.failed")
    cancelled = [record["step"] for record in records(workspace, "step.failed") if record.get("cancelled")]
    dropped = [name for name, *_ in ended.get("calls", ())]
    assert set(cancelled) <= set(dropped), "it does not wait to be cancelled again"
    assert cancelled or way == "cancel", "there it has ended before that"
    outcome = run(workspace, main)
    assert outcome.result == "it works", outcome.error


def test_a_scope_that_timed_out_waits_for_that_at_every_try(workspace: Path, calls: list[str]) -> None:
    @step
    async def slow() -> str:
        calls.append("slow")
        await asyncio.sleep(5 if len(calls) < 3 else 0)
        return "it works"

    @agent
    async def main(run: Run[Any]) -> str:
        for _ in range(3):
            try:
                async with asyncio.timeout(0.1):
                    return await run.scope("s", slow)
            except TimeoutError:
                continue
        return "never"

    assert run(workspace, main).result == "it works"


def test_a_stop_waits_for_a_timeout_that_is_to_come_again(workspace: Path, calls: list[str], crash: Any) -> None:
    @step
    async def slow() -> None:
        await asyncio.sleep(HANGS)

    async def work(run: Run[Any]) -> None:
        task = asyncio.create_task(slow())
        await asyncio.sleep(0.2)
        if run.attempt == 1:
            task.cancel()
            await asyncio.wait([task])
            await other()
            raise crash
        await run.pause()

    @step
    async def other() -> None: ...

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("s", work, run)

    with pytest.raises(crash):
        run(workspace, main)
    assert asyncio.run(asyncio.wait_for(run_async(workspace, main), PATIENCE)).status == "paused"


def test_a_person_cannot_have_a_failed_call_done_again(workspace: Path, calls: list[str], fails: Any) -> None:
    @step
    def tool() -> str:
        fails("tool")
        return "it works"

    async def work(run: Run[Any], item: Item) -> str:
        try:
            found: str = await tool()
        except ConnectionError:
            found = "no tool"
        await run.pause()
        return found

    @agent
    async def main(run: Run[Any]) -> Any:
        await run.plan(None, ["a"])
        await run.todo.each(work)
        return run.todo.result("1")

    assert run(workspace, main).status == "paused"
    file = workspace / "steps/1-a/01-tool.json"
    shown = json.loads(file.read_text())
    assert (shown["status"], shown["error"]) == ("failed", {"kind": "ConnectionError", "message": "no route"})
    file.write_text(file.read_text().replace('"result": null', '"result": null,\n  "redo": true'))
    outcome = run(workspace, main, wake=True)
    assert (outcome.result, calls) == ("it works", ["tool"] * 2), outcome.error


def test_a_person_cannot_give_a_failed_call_a_result(workspace: Path, calls: list[str], fails: Any) -> None:
    @step
    def tool() -> str:
        fails("tool")
        return "it works"

    async def work(run: Run[Any], item: Item) -> str:
        try:
            return await tool()
        except ConnectionError:
            await run.pause()
            return "no tool"

    @agent
    async def main(run: Run[Any]) -> Any:
        await run.plan(None, ["a"])
        await run.todo.each(work)
        return run.todo.result("1")

    assert run(workspace, main).status == "paused"
    file = workspace / "steps/1-a/01-tool.json"
    file.write_text(file.read_text().replace('"result": null', '"result": "by hand"'))
    assert run(workspace, main, wake=True).result == "by hand" and calls == ["tool"]


async def _raised_outside(tools: list[Any]) -> None:
    results = await asyncio.gather(*[tool() for tool in tools], return_exceptions=True)
    if failed := [each for each in results if isinstance(each, Exception)]:
        raise RuntimeError(f"{len(failed)} tools have failed")


async def _stumbled_over(tools: list[Any]) -> None:
    found: Any = None
    with suppress(ConnectionError):
        found = await tools[0]()
    found.upper()


async def _missed_what_was_late(tools: list[Any]) -> None:
    found: Any = None
    with suppress(TimeoutError):
        found = await asyncio.wait_for(tools[1](), 0.05)
    await tools[2]()
    found.upper()


@pytest.mark.parametrize("work", [_raised_outside, _stumbled_over, _missed_what_was_late])
@pytest.mark.parametrize("where", ["scope", "agent"])
def test_an_own_error_after_a_failure_comes_at_every_start(
    workspace: Path, calls: list[str], fails: Any, work: Any, where: str
) -> None:
    @step
    def tool() -> str:
        fails("tool")
        return "it works"

    @step
    async def slow() -> str:
        calls.append("tool")
        await asyncio.sleep(10 if len(calls) == 1 else 0)
        return "it works"

    @step
    def note() -> None:
        pass

    tools = [tool, slow, note] if work is _missed_what_was_late else [tool]

    @agent
    async def main(run: Run[Any]) -> None:
        await (run.scope("s", work, tools) if where == "scope" else work(tools))

    assert run(workspace, main).status == "failed"
    assert run(workspace, main).status == "completed"
    assert calls == ["tool"] * 2


@pytest.mark.parametrize("after", ["effect", "sub-agent"])
def test_an_own_error_forgets_a_failure_that_was_told_outside(
    workspace: Path, calls: list[str], fails: Any, after: str
) -> None:
    @step
    def tool() -> str:
        fails("tool")
        return "it works"

    @effect
    def tell(text: str) -> None:
        calls.append(text)

    @agent
    async def child(run: Run[Any], text: str) -> None:
        await tell(text)

    async def work(run: Run[Any]) -> None:
        try:
            found = await tool()
        except ConnectionError as error:
            found = str(error)
        await (tell(found) if after == "effect" else run.spawn(child, "c", found))
        if run.attempt == 1:
            raise LookupError("a mistake")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("s", work, run)

    assert run(workspace, main).status == "failed"
    outcome = run(workspace, main)
    assert (outcome.status, outcome.doubts, calls) == ("completed", [], ["tool", "no route"])


@pytest.mark.parametrize("retried", [False, True])
def test_an_own_error_of_a_step_comes_at_every_try(
    workspace: Path, calls: list[str], fails: Any, retried: bool
) -> None:
    @step
    def tool() -> str:
        fails("tool")
        return "it works"

    @step(retry=Retry(first=0.001) if retried else None)
    async def outer() -> str:
        with suppress(ConnectionError):
            return await tool()
        raise RuntimeError("no result")

    async def work(run: Run[Any], item: Item) -> None:
        await outer()

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        await run.todo.each(work)

    assert run(workspace, main).status == "completed"
    assert calls == ["tool"] * 2
