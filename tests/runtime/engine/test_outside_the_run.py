"""Effects that are called while a run is going, from where nothing knows of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from satchel import Run, agent, effect, run, run_async
from satchel.workspace.base.errors import AgentError


def sending(calls: list[str]) -> Any:
    @effect
    def send(text: str) -> str:
        calls.append(text)
        return "sent"

    return send


async def in_executor(function: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function)


async def in_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(function())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    await asyncio.to_thread(thread.join)
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("where", [in_executor, in_thread])
def test_an_effect_in_a_bare_thread_is_done_and_not_recorded(
    workspace: Path, calls: list[str], where: Any, named: bool
) -> None:
    send = sending(calls)

    @agent
    async def main(run: Run[Any]) -> None:
        await where(lambda: (send.named("it") if named else send)("hello"))

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and calls == []
    assert "send.plain(...)" in str(outcome.error) and "outside the run" in str(outcome.error)


def test_an_effect_can_not_be_called_outside_the_run_on_purpose(workspace: Path, calls: list[str]) -> None:
    send = sending(calls)

    @agent
    async def main(run: Run[Any]) -> Any:
        return await in_executor(lambda: send.plain("hello"))

    assert run(workspace, main).result == "sent" and calls == ["hello"]


def test_an_effect_of_the_program_beside_the_run_is_done_as_if_it_were_recorded(
    workspace: Path, calls: list[str]
) -> None:
    send = sending(calls)
    going, asked = asyncio.Event(), asyncio.Event()

    @agent
    async def main(run: Run[Any]) -> None:
        going.set()
        await asked.wait()

    async def program() -> None:
        task = asyncio.ensure_future(run_async(workspace, main))
        await going.wait()
        with pytest.raises(AgentError):
            await send("in the handler")
        asked.set()
        assert (await task).status == "completed"

    asyncio.run(program())
    assert calls == []


def test_an_effect_is_refused_before_and_after_a_run(workspace: Path, calls: list[str]) -> None:
    send = sending(calls)

    @agent
    async def main(run: Run[Any]) -> None:
        raise ValueError

    assert send("before") == "sent"
    assert run(workspace, main).status == "failed"
    assert send.named("it")("after") == "sent"
    assert calls == ["before", "after"]
