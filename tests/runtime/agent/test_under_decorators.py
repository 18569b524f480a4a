"""Steps and effects under decorators of other libraries: they look like their functions, without what Satchel fills
in, and what the libraries make of them works in a run."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import pickle
import typing
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

from satchel import Key, Partial, Run, Step, agent, effect, run, step


@step
async def think(out: Partial, text: str, times: int = 2) -> str:
    """Think about a text.

    Args:
        text: What to think about.
        times: How often.
    """
    await out.write(text * times)
    return out.text


@step
async def look(run: Run, text: str, times: int = 2) -> str:
    """Look at a text.

    Args:
        text: What to look at.
        times: How often.
    """
    assert run.attempt
    return text * times


@effect
async def send(key: Key, text: Annotated[str, pydantic.Field(max_length=20)], times: int = 2) -> str:
    """Send a text.

    Args:
        text: What to send.
        times: How often.
    """
    assert key
    return text * times


@effect
def post(text: str, times: int = 2, *, key: str) -> str:
    """Post a text.

    Args:
        text: What to post.
        times: How often.
    """
    assert key
    return text * times


@step
async def later(out: Partial, text: Later) -> str:
    await out.write(text)
    return out.text


class Box:
    def __init__(self, at: str):
        self.at = at

    async def plain(self, text: str) -> str:
        return text

    @effect
    async def put(self, key: Key, text: str) -> str:
        return f"{self.at} {text}"

    @step
    @classmethod
    async def name(cls, run: Run, text: str) -> str:
        return text


Later = str
ALL: tuple[Step, ...] = (think, look, send, post)
each = pytest.mark.parametrize("one", ALL, ids=str)


@each
def test_its_signature_and_its_types_are_those_of_a_call(one: Step) -> None:
    assert typing.get_type_hints(one) == {"text": str, "times": int, "return": str}
    assert [*inspect.signature(one).parameters] == ["text", "times"]
    assert inspect.signature(one).parameters["times"].annotation is int
    assert inspect.iscoroutinefunction(one)
    assert inspect.getdoc(one) == inspect.getdoc(inspect.unwrap(one))
    assert inspect.getsource(one).startswith("@")


def test_metadata_of_types_stays() -> None:
    kind = typing.get_type_hints(send, include_extras=True)["text"]
    assert kind.__metadata__[0].metadata[0].max_length == 20


def test_names_may_be_defined_after_the_step() -> None:
    space: dict[str, Any] = {"__name__": "early"}
    exec(  # noqa: S102
        "from __future__ import annotations\nfrom satchel import Partial, step\n"
        "@step\nasync def early(out: Partial, text: Word) -> str: ...",
        space,
    )
    assert [*inspect.signature(space["early"]).parameters] == ["text"]
    assert space["early"].__annotations__ == {"text": "Word", "return": str}
    space["Word"] = str
    assert typing.get_type_hints(space["early"]) == {"text": str, "return": str}
    assert typing.get_type_hints(later) == {"text": str, "return": str}


@each
def test_its_types_are_lost_once_somebody_has_asked_generic_for_its_own(one: Step) -> None:
    before = repr(one.__annotations__)
    _ = typing.Generic.__annotations__  # type: ignore[attr-defined]
    assert "'text'" in before and repr(one.__annotations__) == before
    assert typing.get_type_hints(type(one)) == {}


def test_methods_look_like_bound_methods() -> None:
    assert [*inspect.signature(Box("").put).parameters] == ["text"]
    assert [*inspect.signature(Box.name).parameters] == ["text"]
    assert [*inspect.signature(Box.put).parameters] == ["self", "text"]
    assert typing.get_type_hints(Box("").put) == {"text": str, "return": str}


@each
def test_it_is_copied_and_pickled_by_name(one: Step) -> None:
    assert copy.copy(one) is copy.deepcopy(one) is one
    assert pickle.loads(pickle.dumps(one)) is one  # noqa: S301


def test_a_method_is_pickled_with_its_object() -> None:
    put = pickle.loads(pickle.dumps(Box("here").put))  # noqa: S301
    assert isinstance(put, Step)
    assert asyncio.run(put.plain("", "text")) == "here text"  # type: ignore[attr-defined]
    assert isinstance(pickle.loads(pickle.dumps(Box.name)), Step)  # noqa: S301
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(step(name="put")(Box("here").plain))


@each
def test_it_is_wrapped(one: Step) -> None:
    @functools.wraps(one)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await one(*args, **kwargs)

    assert str(inspect.signature(wrapper)) == str(inspect.signature(one))
    assert typing.get_type_hints(wrapper) == typing.get_type_hints(one)
    assert wrapper.__qualname__ == one.__qualname__


def test_a_class_of_steps_is_still_a_class() -> None:
    assert isinstance(send, Step)
    assert list(inspect.signature(Step).parameters)[:1] == ["function"]
    with pytest.raises(AttributeError, match="nothing"):
        send.nothing  # noqa: B018


Tool = Callable[..., Awaitable[Any]]


def validated(one: Step) -> Tool:
    checked = pydantic.validate_call(one)
    with pytest.raises(pydantic.ValidationError):
        asyncio.run(checked("a", times="many"))
    return checked


def of_openai(one: Step) -> Tool:
    from agents import function_tool
    from agents.tool_context import ToolContext

    tool = function_tool(one, failure_error_function=None)
    properties = tool.params_json_schema["properties"]
    assert set(properties) == {"text", "times"}
    assert properties["times"]["description"] == "How often."

    async def call(text: str) -> Any:
        given = json.dumps({"text": text})
        context = ToolContext(context=None, tool_name=tool.name, tool_call_id="1", tool_arguments=given)
        return await tool.on_invoke_tool(context, given)

    return call


def of_langchain(one: Step) -> Tool:
    from langchain_core.tools import tool as langchain_tool

    tool = langchain_tool(one)
    assert set(tool.args) == {"text", "times"}
    return lambda text: tool.ainvoke({"text": text})


def of_pydantic_ai(one: Step) -> Tool:
    from pydantic_ai import Tool as Made

    tool = Made(one, takes_ctx=False)
    assert set(tool.function_schema.json_schema["properties"]) == {"text", "times"}
    return lambda text: tool.function_schema.call({"text": text}, None)  # type: ignore[arg-type]


@pytest.mark.sampled(every=5)
@each
@pytest.mark.parametrize("made", [validated, of_openai, of_langchain, of_pydantic_ai])
def test_a_tool_that_is_made_of_it_is_recorded(made: Callable[[Step], Tool], one: Step, workspace: Path) -> None:
    tool = made(one)

    @agent
    async def main(run: Run) -> Any:
        result = await tool("ab")
        if run.attempt == 1:
            raise ValueError
        return result

    assert run(workspace, main).status == "failed"
    outcome = run(workspace, main)
    assert (outcome.result, outcome.error) == ("abab", None)
    records = [json.loads(line) for line in (workspace / "journal/000000000001.jsonl").read_text().splitlines()]
    assert [each["step"] for each in records if each["type"] == "step.completed"] == [one.name]


@pytest.mark.filterwarnings("ignore:Function 'post' has decorators other than @tool:UserWarning")
def test_smolagents_reads_a_sync_effect() -> None:
    from smolagents import tool

    made = tool(post)
    assert made.inputs["text"] == {"type": "string", "description": "What to post."}
    assert set(made.inputs) == {"text", "times"}


def test_fastapi_fills_in_a_step_as_a_dependency() -> None:
    @step
    async def found(text: str) -> str:
        return text * 2

    app = FastAPI()

    @app.get("/")
    async def root(twice: str = Depends(found)) -> str:
        return twice

    assert TestClient(app).get("/?text=ab").json() == "abab"
    app.get("/send", dependencies=[Depends(send)])(lambda: None)
    parameters = app.openapi()["paths"]["/send"]["get"]["parameters"]
    assert [each["name"] for each in parameters] == ["text", "times"]


def test_fastapi_has_no_way_to_a_step_that_is_not_async() -> None:
    """Outside a run its call returns the result, and FastAPI awaits that. docs/adapters.md says what to do."""

    @step
    def found(text: str) -> str:
        return text * 2

    app = FastAPI()
    app.get("/awaited")(given_by(found))
    app.get("/itself")(given_by(found.__wrapped__))
    with pytest.raises(TypeError, match="can't be used in 'await' expression"):
        TestClient(app).get("/awaited?text=ab")
    assert TestClient(app).get("/itself?text=ab").json() == "abab"


def given_by(dependency: Any) -> Any:
    def root(twice: str = Depends(dependency)) -> str:
        return twice

    return root
