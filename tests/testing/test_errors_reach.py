"""`assert_errors_reach` finds an effect whose errors something catches before Satchel sees them. With the real OpenAI
Agents SDK, which turns what a tool raises into text for the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from satchel import Run, effect, step
from satchel.testing import assert_errors_reach

if TYPE_CHECKING:
    from agents import FunctionTool

# The SDK is imported by the tests that need it: it takes seconds, in each worker that collects this module.

Failing = Callable[..., Awaitable[Any]]


def check(use: Callable[[Failing], Awaitable[Any]], error: Exception | None = None) -> None:
    asyncio.run(assert_errors_reach(use, error=error))


async def invoke(tool: FunctionTool, text: str) -> Any:
    from agents.tool_context import ToolContext

    given = json.dumps({"text": text})
    context = ToolContext(context=None, tool_name=tool.name, tool_call_id="1", tool_arguments=given)
    return await tool.on_invoke_tool(context, given)


def test_an_effect_around_a_tool_that_catches_errors_is_found() -> None:
    from agents import function_tool

    async def use(act: Failing) -> None:
        @function_tool
        async def send(text: str) -> str:
            result: str = await act(text)
            return result

        @effect
        async def outside(text: str) -> str:
            result: str = await invoke(send, text)
            return result

        assert "error" in await outside("hello")

    with pytest.raises(AssertionError, match=r"<effect outside> is on record as done, with .*An error occurred"):
        check(use)
    with pytest.raises(AssertionError, match=r"<effect outside> is on record as done"):
        check(use, TimeoutError("slow"))


def test_an_effect_inside_of_that_tool_is_right() -> None:
    from agents import function_tool

    said = []

    async def use(act: Failing) -> None:
        @effect
        async def send(text: str) -> str:
            result: str = await act(text)
            return result

        said.append(await invoke(function_tool(send), "hello"))

    check(use)
    assert "An error occurred" in said[0]  # the model gets a text, and the record the error


def test_an_error_after_which_a_person_must_be_asked_reaches_the_effect() -> None:
    from agents import function_tool

    async def use(act: Failing) -> None:
        @effect
        async def send(text: str) -> str:
            result: str = await act(text)
            return result

        await invoke(function_tool(send), "hello")
        raise AssertionError

    check(use, TimeoutError("slow"))


def test_the_innermost_step_counts_also_in_a_scope_of_its_own() -> None:
    catches = False

    async def use(act: Failing) -> None:
        @step
        async def inner() -> str:
            if not catches:
                await act()
            return await caught(act)

        @step
        async def outer() -> str:
            return await caught(inner)

        async def work() -> str:
            return await outer()

        run = Run.current()
        assert run
        await run.scope("work", work)

    check(use)  # a step may answer with the failure of another one
    catches = True
    with pytest.raises(AssertionError, match=r"<step inner> is on record as done, with the result \"it failed\""):
        check(use)


async def caught(act: Failing) -> str:
    try:
        await act()
    except Exception:
        return "it failed"
    return "done"


def test_what_is_not_tried_is_told() -> None:
    async def nothing(act: Failing) -> None: ...

    async def broken(act: Failing) -> None:
        raise LookupError("no such tool")

    async def bare(act: Failing) -> None:
        await act()

    with pytest.raises(AssertionError, match="has not called"):
        check(nothing)
    with pytest.raises(AssertionError, match="has not called") as found:
        check(broken)
    assert isinstance(found.value.__cause__, LookupError)
    with pytest.raises(AssertionError, match="outside every step"):
        check(bare)
