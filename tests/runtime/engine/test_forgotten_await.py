"""A call that is made and never awaited does nothing, and must not pass for one that was done."""

from __future__ import annotations

import asyncio
import collections.abc
import inspect
import typing
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from waits import PATIENCE

from satchel import Run, agent, effect, run, step
from satchel.runtime.agent.calls import Step
from satchel.workspace.base.errors import AgentError


@step
async def read(path: str) -> str:
    return path


@step
def parse(text: str) -> str:
    return text


@effect
async def send(text: str) -> str:
    return text


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(
    "make", [lambda: read("a"), lambda: parse("a"), lambda: send("a"), lambda: send.named("x")("a")]
)
@pytest.mark.parametrize("where", ["item", "scope", "agent", "sub-agent"])
def test_a_forgotten_await_ends_as_done(workspace: Path, make: Any, where: str) -> None:
    async def work(*_: Any) -> None:
        assert inspect.iscoroutine(make()), "so that Python sees it, too"

    @agent
    async def child(run: Run[Any]) -> None:
        await work()

    @agent
    async def main(run: Run[Any]) -> None:
        match where:
            case "item":
                await run.plan(None, ["a"])
                await run.todo.each(work)
            case "scope":
                await run.scope("s", work)
            case "sub-agent":
                await run.spawn(child, "c")
            case "agent":
                await work()

    outcome = run(workspace, main)
    assert outcome.status == "failed" and isinstance(outcome.error, AgentError)
    assert "() was called and never awaited before the end of" in str(outcome.error)
    line = make.__code__.co_firstlineno
    assert f"test_forgotten_await.py:{line} in <lambda>" in str(outcome.error)
    if where == "item":
        assert "- [/] a" in (workspace / "todo.md").read_text()


@pytest.mark.parametrize("is_async", [True, False])
def test_a_step_that_forgets_a_call_of_another_is_kept(workspace: Path, is_async: bool) -> None:
    async def outer_async() -> str:
        read("a")  # type: ignore[unused-coroutine]
        return "done"

    def outer_sync() -> str:
        read("a")  # type: ignore[unused-coroutine]
        return "done"

    outer = step(outer_async if is_async else outer_sync)

    @agent
    async def main(run: Run[Any]) -> None:
        await outer()

    for _ in range(2):
        outcome = run(workspace, main)
        assert isinstance(outcome.error, AgentError) and "read() was called and never awaited" in str(outcome.error)


def test_an_effect_that_forgets_a_call_is_in_doubt(workspace: Path, calls: list[str]) -> None:
    @effect
    async def post(text: str) -> str:
        calls.append(text)
        read("a")  # type: ignore[unused-coroutine]
        return text

    @agent
    async def main(run: Run[Any]) -> None:
        await post("hello")

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and not outcome.doubts
    run(workspace, main)
    assert calls == ["hello"]


def test_a_call_that_a_task_has_not_begun_with_is_taken_for_forgotten(workspace: Path, calls: list[str]) -> None:
    @step
    async def note(text: str) -> None:
        calls.append(text)

    tasks: list[Any] = []

    async def work() -> None:
        tasks.append(asyncio.create_task(note("task")))
        tasks.append(asyncio.create_task(asyncio.wait_for(note("waited for"), PATIENCE)))
        tasks.append(asyncio.gather(note("gathered")))

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("s", work)

    outcome = run(workspace, main)
    assert outcome.error is None
    assert sorted(calls) == ["gathered", "task", "waited for"]


def test_a_call_that_was_cancelled_before_it_began_is_taken_for_forgotten(workspace: Path, calls: list[str]) -> None:
    @step
    async def note(text: str) -> None:
        calls.append(text)

    async def work() -> None:
        task = asyncio.create_task(note("task"))
        task.cancel()
        await asyncio.wait([task])

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("s", work)

    assert run(workspace, main).error is None and calls == []


def test_a_type_checker_does_not_see_a_forgotten_await() -> None:
    returned = typing.get_type_hints(Step.__call__)["return"]
    assert typing.get_origin(returned) is collections.abc.Coroutine


async def limited(places: asyncio.Semaphore, call: Any) -> Any:
    async with places:
        return await call


async def after(seconds: float, call: Any) -> Any:
    await asyncio.sleep(seconds)
    return await call


async def _a_group_fails() -> None:
    places = asyncio.Semaphore(1)
    with suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            for name in ("broken", "b", "c"):
                group.create_task(limited(places, flaky(name)))


async def _time_is_up() -> None:
    places = asyncio.Semaphore(1)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.02):
            await asyncio.gather(*[limited(places, flaky(name)) for name in ("slow", "b", "c")])


async def _another_is_faster() -> None:
    tasks = [asyncio.create_task(after(seconds, flaky("a"))) for seconds in (0, 10)]
    _, slower = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in slower:
        task.cancel()


async def _cancelled_at_once() -> None:
    asyncio.create_task(asyncio.wait_for(flaky("a"), PATIENCE)).cancel()


@step
async def flaky(name: str) -> str:
    if name == "broken":
        raise ConnectionError("no route")
    await asyncio.sleep(10 if name == "slow" else 0)
    return name


@pytest.mark.parametrize("work", [_a_group_fails, _time_is_up, _another_is_faster, _cancelled_at_once])
@pytest.mark.parametrize("where", ["scope", "agent", "step"])
def test_a_call_whose_task_was_cancelled_before_it_awaited_it_is_taken_for_forgotten(
    workspace: Path, work: Any, where: str
) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        match where:
            case "scope":
                await run.scope("s", work)
            case "step":
                await step(work)()
            case "agent":
                await work()

    assert run(workspace, main).error is None


def test_calls_that_wait_for_a_place_are_taken_for_forgotten(workspace: Path, calls: list[str]) -> None:
    @step
    async def note(name: str) -> None:
        calls.append(name)
        await flaky(name)

    async def work() -> None:
        places = asyncio.Semaphore(1)
        with suppress(ConnectionError):
            await asyncio.gather(*[limited(places, note(name)) for name in ("broken", "b", "c", "d")])

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("s", work)

    assert run(workspace, main).error is None
    assert calls == ["broken", "b", "c", "d"]


async def _in_a_variable() -> None:
    unused = flaky("a")  # noqa: F841
    await flaky("b")


async def _in_a_list() -> None:
    calls = [flaky(name) for name in "ab"]
    await flaky(f"{len(calls)}")


async def _in_a_coroutine_that_is_forgotten() -> None:
    after(0, flaky("a"))  # type: ignore[unused-coroutine]
    await flaky("b")


async def _in_a_task_that_nobody_awaits() -> None:
    tasks.append(asyncio.create_task(after(10, flaky("a"))))
    await flaky("b")


tasks: list[Any] = []


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "work", [_in_a_variable, _in_a_list, _in_a_coroutine_that_is_forgotten, _in_a_task_that_nobody_awaits]
)
@pytest.mark.filterwarnings("ignore:coroutine 'after' was never awaited")
def test_a_forgotten_call_that_something_held_ends_as_done(workspace: Path, work: Any) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("s", work)

    assert "flaky() was called and never awaited" in str(run(workspace, main).error)


def nothing(*_: Any) -> None: ...


_OF_THE_RUN: dict[str, Any] = {
    "run.ask": lambda run: run.ask("Pay?", ["approve", "deny"]),
    "run.output": lambda run: run.output("a.md", "text"),
    "run.scope": lambda run: run.scope("inner", nothing),
    "run.plan": lambda run: run.plan("T", ["a"]),
    "run.sleep": lambda run: run.sleep(1),
    "run.checkpoint": lambda run: run.checkpoint(),
    "run.pause": lambda run: run.pause("a look"),
    "run.todo.each": lambda run: run.todo.each(nothing),
    "run.todo.add": lambda run: run.todo.add("b"),
    "run.inbox.take": lambda run: run.inbox.take(),
    "run.inbox.each": lambda run: run.inbox.each(nothing),
    "run.resources.enter": lambda run: run.resources.enter(nothing, name="db"),
}


@pytest.mark.parametrize("name", _OF_THE_RUN)
def test_a_forgotten_await_of_the_run_ends_as_done(workspace: Path, name: str) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        assert inspect.iscoroutine(_OF_THE_RUN[name](run))

    outcome = run(workspace, main)
    assert outcome.status == "failed" and isinstance(outcome.error, AgentError)
    assert str(outcome.error).startswith(f"{name}() was called and never awaited before the end of the agent")
    assert not (workspace / "approvals").exists() and not (workspace / "outputs").exists()


@pytest.mark.parametrize("where", ["item", "agent"])
def test_silence_is_taken_for_an_approval(workspace: Path, calls: list[str], where: str) -> None:
    @effect
    async def pay() -> None:
        calls.append("paid")

    async def work(run: Run[Any], *_: Any) -> None:
        if run.ask("Pay?", ["approve", "deny"]):  # type: ignore[truthy-bool]
            await pay()

    @agent
    async def main(run: Run[Any]) -> None:
        if where == "agent":
            await work(run)
        else:
            await run.plan(None, ["a"])
            await run.todo.each(work)

    outcome = run(workspace, main)
    assert outcome.status == "failed" and calls == []
    assert str(outcome.error).startswith("run.ask() was called and never awaited before the effect pay")


def test_a_call_that_is_awaited_after_an_effect_is_taken_for_forgotten(workspace: Path, calls: list[str]) -> None:
    @effect
    async def pay() -> None:
        calls.append("paid")

    @agent
    async def main(run: Run[Any]) -> str:
        later, task = read("a"), asyncio.create_task(run.sleep(0))
        await pay()
        await task
        return await later

    outcome = run(workspace, main)
    assert outcome.status == "completed" and outcome.result == "a" and calls == ["paid"]
