"""`SatchelMiddleware` makes a deep agent a durable part of a run, and `ainvoke` lets people answer its interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
from langchain.agents.middleware import ModelResponse
from langchain_core.messages import ToolMessage, message_to_dict, messages_from_dict
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from satchel import Effect, Run, Step, clean, step
from satchel.adapters import ask_about, identity
from satchel.errors import AgentError, UsageError

from .backend import SatchelBackend

_PLAIN = {"delete", "edit_file", "glob", "grep", "ls", "read_file", "task", "write_file", "write_todos"}
"""Tools that are called again at each start: what they do is on record itself, or belongs to the state of the graph."""

_UNSEEN = frozenset({"artifact", "id", "response_metadata", "usage_metadata"})
"""Fields of a message that no model sees."""

TODOS = "/todo.md"


class SatchelMiddleware(PatchToolCallsMiddleware):
    """Makes each request to a model, and each call of a tool, a step of the run.

    A tool whose function is a step or an effect stays that, and one with `metadata={"satchel": False}` is a plain call.
    `todos` is the backend that shows the list of `write_todos` as `/todo.md`. Outside a run nothing else happens.
    """

    name = "PatchToolCallsMiddleware"  # in its place deepagents gives it to the general-purpose subagent, too

    def __init__(self, *, todos: SatchelBackend | None = None):
        super().__init__()
        self._todos = todos

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        _check_async()
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        if (run := Run.current()) is None:
            return await handler(request)

        async def perform(model: str, asked: Any) -> Any:
            response = await handler(request)
            if tokens := sum(
                (getattr(each, "usage_metadata", None) or {}).get("total_tokens", 0) for each in response.result
            ):
                run.spend(tokens=tokens)
            return _json([[message_to_dict(each) for each in response.result], response.structured_response])

        model, schema = request.model, getattr(request.response_format, "schema", request.response_format)
        asked = {
            "system": request.system_message and request.system_message.content,
            "messages": request.messages,
            "tools": [each if isinstance(each, dict) else convert_to_openai_tool(each) for each in request.tools],
            "tool_choice": request.tool_choice,
            "settings": request.model_settings,
            "output": schema if schema is None or isinstance(schema, dict) else TypeAdapter(schema).json_schema(),
        }
        name = str(getattr(model, "model_name", "") or getattr(model, "model", "") or type(model).__qualname__)
        content = clean(identity(asked, "langchain_core.messages", _UNSEEN))
        messages, structured = await step(name="request")(perform)(name, content)
        if structured is not None and not isinstance(schema, dict):
            structured = TypeAdapter(schema).validate_python(structured)
        return ModelResponse(messages_from_dict(messages), structured)

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        _check_async()
        if self._todos is None or request.tool_call["name"] != "write_todos":
            return handler(request)
        if refused := _newer(request, self._todos.download_files([TODOS])[0].content):
            return refused
        if isinstance(result := handler(request), Command):
            self._todos.write(TODOS, _list(request.tool_call["args"]["todos"]))
        return result

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        call, tool = request.tool_call, request.tool
        if self._todos is not None and call["name"] == "write_todos":
            if refused := _newer(request, (await self._todos.adownload_files([TODOS]))[0].content):
                return refused
            if isinstance(result := await handler(request), Command):
                await self._todos.awrite(TODOS, _list(call["args"]["todos"]))
            return result
        is_own = any(isinstance(getattr(tool, name, None), Step | Effect) for name in ("coroutine", "func"))
        is_plain = call["name"] in _PLAIN or (getattr(tool, "metadata", None) or {}).get("satchel") is False
        if Run.current() is None or is_own or is_plain:
            return await handler(request)

        bubble: GraphBubbleUp | None = None

        async def perform(**arguments: Any) -> Any:
            nonlocal bubble
            try:
                result = await handler(request)
            except GraphBubbleUp as raised:
                bubble = raised
                return None
            if not isinstance(result, ToolMessage):
                why = "after a crash its result comes from the record, which holds text and JSON"
                remedy = 'give it metadata={"satchel": False}: it is called again at each start'
                raise AgentError(f"the tool {call['name']} returns a {type(result).__name__}", why=why, remedy=remedy)
            return _json(message_to_dict(result))

        if (kept := await step(name=call["name"])(perform)(**clean(call["args"]))) is None:  # it has called `interrupt`
            if bubble is not None:
                raise bubble
            return await handler(request)
        return messages_from_dict([kept])[0].model_copy(update={"tool_call_id": call["id"]})


def _check_async() -> None:
    if Run.current():
        raise UsageError("a deep agent was called by `invoke` in a run", remedy="use `await ainvoke(agent, ...)`")


def _json(value: Any) -> Any:
    return clean(to_jsonable_python(value, fallback=str))


def _list(todos: Any) -> str:
    marks = {"completed": "x", "in_progress": "/"}
    return "".join(f"- [{marks.get(each['status'], ' ')}] {' '.join(each['content'].split())}\n" for each in todos)


def _newer(request: Any, content: bytes | None) -> ToolMessage | None:
    """What the model is told if a person has changed the list, and it has not seen that."""
    text, before = (content or b"").decode(errors="replace"), request.state.get("todos")
    seen = (str(each.content) for each in request.state["messages"] if each.type == "tool")
    if not before or not text or text == _list(before) or any(text in each for each in seen):
        return None
    told = f"A person has changed the list in {TODOS}. It is now:\n{text}\nWrite it again from this."
    return ToolMessage(told, name="write_todos", tool_call_id=request.tool_call["id"], status="error")


# Interrupts

_begun: WeakKeyDictionary[Run[Any], set[Any]] = WeakKeyDictionary()


async def ainvoke(agent: Any, input: Any, config: Any = None, *, wait_for: float = 10.0, **options: Any) -> Any:
    """`agent.ainvoke(input, config)`. In a run people answer its interrupts in approvals/, and the result has none.

    The run is what survives a crash, so the agent has no saver or an `InMemorySaver`, which interrupts need. Each start
    goes the same way again through recorded answers. `wait_for` is how many seconds the process stays for an answer.
    """
    if (run := Run.current()) is None:
        return await agent.ainvoke(input, config, **options)
    if (saver := agent.checkpointer or None) is not None and not isinstance(saver, InMemorySaver):
        why = "both would keep the conversation, and a start after a crash would add the prompt again"
        raise UsageError(f"the agent has a {type(saver).__name__} in a run", why=why, remedy="give it an InMemorySaver")
    config = {**(config or {})}
    config["configurable"] = {"thread_id": run.id, **config.get("configurable", {})}
    thread, begun = config["configurable"]["thread_id"], _begun.setdefault(run, set())
    if saver is not None and thread not in begun:  # left over from an earlier start in this process
        await saver.adelete_thread(thread)
    begun.add(thread)
    result = await agent.ainvoke(input, config, **options)
    while interrupts := result.get("__interrupt__"):
        answers = await asyncio.gather(*(_answer(run, each.value, wait_for) for each in interrupts))
        resume = {each.id: answer for each, answer in zip(interrupts, answers, strict=True)}
        result = await agent.ainvoke(Command(resume=resume), config, **options)
    return result


async def _answer(run: Run[Any], value: Any, wait_for: float) -> Any:
    if isinstance(value, Mapping) and "action_requests" in value:
        allowed = {each["action_name"]: each["allowed_decisions"] for each in value["review_configs"]}
        asked = (_decide(run, each, allowed[each["name"]], wait_for) for each in value["action_requests"])
        return {"decisions": await asyncio.gather(*asked)}
    return (await run.ask("The agent asks.", context=_json(value), wait_for=wait_for)).decision


async def _decide(run: Run[Any], action: Any, allowed: Any, wait_for: float) -> Any:
    """The decision about one call of a tool: `approve`, maybe with other arguments, or `reject` with the note."""
    name, given, refusals = action["name"], action["args"], [each for each in ("reject", "respond") if each in allowed]
    if allowed == ["respond"]:
        asked = await run.ask(f"What does {name} return?", context={"arguments": clean(given)}, wait_for=wait_for)
        return {"type": "respond", "message": asked.decision}
    said = await ask_about(
        f"May the agent call {name}?",
        given,
        tool=name,
        can_change="edit" in allowed and bool(refusals) and clean(given) is given,
        can_deny=bool(refusals),
        wait_for=wait_for,
    )
    if said.refusal:
        return {"type": refusals[0], "message": said.refusal}
    if said.changed:
        return {"type": "edit", "edited_action": {"name": name, "args": said.arguments}}
    return {"type": "approve"}
