"""The tools: their names, descriptions and schemas, and what a call of one returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import mcp_types as types
import msgspec
from msgspec import Struct

from ...workspace.base import SatchelError, UsageError
from ...workspace.formats import decoder
from . import acting, describing, looking, shapes
from .asking import Asking

LIMIT = 1 << 20
"""Bytes of a result."""


class Tool(NamedTuple):
    """A tool. `call` blocks. `is_destructive`: what it does can't be taken back."""

    name: str
    title: str
    about: str
    takes: type[Struct]
    gives: type[Struct]
    call: Callable[[Asking, Any], Struct]
    is_destructive: bool = False
    is_idempotent: bool = True


READING = (
    Tool(
        "list_runs",
        "List the runs",
        "All runs with their states, plan progress and open questions.",
        shapes.ListArguments,
        shapes.RunList,
        looking.list_runs,
    ),
    Tool(
        "status",
        "Status of a run",
        "Where a run is: what is done, what it asks, what went wrong, its result and "
        "outputs, and what to do next. Call it again every few seconds while a run is running.",
        shapes.OneRun,
        shapes.RunStatus,
        looking.status,
    ),
    Tool(
        "log",
        "What happened",
        "The records of a run, oldest first: steps, items, questions, answers, pauses, edits.",
        shapes.LogArguments,
        shapes.Log,
        looking.log,
    ),
    Tool(
        "show",
        "A run at a moment",
        "The plan and the data of each agent of a run, now or right after any record.",
        shapes.ShowArguments,
        shapes.Moment,
        looking.show,
    ),
)

ACTING = (
    Tool(
        "start",
        "Start a run",
        "Start a run in the background, or continue one after a crash. Returns at once; status "
        "tells how it goes on. A run that is running stays as it is, and one that is paused needs resume.",
        shapes.StartArguments,
        shapes.RunStatus,
        acting.start,
    ),
    Tool(
        "answer",
        "Answer a question",
        "Answer an open question of a run. A recorded answer can't be changed. Answer "
        "only what your user has decided; the question may be there so that a person decides.",
        shapes.AnswerArguments,
        shapes.Answered,
        acting.answer,
        is_destructive=True,
    ),
    Tool(
        "send",
        "Send work",
        "Put a task, or a message to the agent, into the inbox of a run.",
        shapes.SendArguments,
        shapes.SentFiles,
        acting.send,
        is_idempotent=False,
    ),
    Tool(
        "pause",
        "Pause a run",
        "Stop a run at its next safe point. Running work finishes, and resume continues.",
        shapes.PauseArguments,
        shapes.Stopping,
        acting.pause,
    ),
    Tool(
        "resume",
        "Resume a run",
        "Continue a run that is paused, waits, sleeps, was interrupted or has failed, in the "
        "background. Returns at once.",
        shapes.OneRun,
        shapes.RunStatus,
        acting.resume,
    ),
    Tool(
        "cancel",
        "Cancel a run",
        "End a run for good at its next safe point. Its files stay.",
        shapes.EndArguments,
        shapes.Stopping,
        acting.cancel,
        is_destructive=True,
    ),
    Tool(
        "stop",
        "Emergency stop",
        "Kill what runs a run, at once, in the middle of its work. What it was doing to the "
        "world may then be in doubt. Use pause unless there is danger.",
        shapes.EndArguments,
        shapes.Killed,
        acting.stop,
        is_destructive=True,
    ),
    Tool(
        "fork",
        "Fork a run",
        "Make a new run from an earlier moment of a run, which is only read. start begins it.",
        shapes.ForkArguments,
        shapes.Forked,
        acting.fork,
        is_idempotent=False,
    ),
)


_TAKEN = {each.name: decoder(each.takes) for each in (*READING, *ACTING)}


def listed(tools: Iterable[Tool]) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_described(each) for each in tools])


def _described(tool: Tool) -> types.Tool:
    is_reading = tool in READING
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.about,
        input_schema=_schema(tool.takes),
        output_schema=_schema(tool.gives),
        annotations=types.ToolAnnotations(
            read_only_hint=is_reading,
            destructive_hint=tool.is_destructive,
            idempotent_hint=tool.is_idempotent,
            open_world_hint=False,
        ),
    )


def _schema(struct: type[Struct]) -> dict[str, Any]:
    """With the object itself on top, as clients want it."""
    (top,), parts = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    name = top["$ref"].rpartition("/")[2]
    inner = {key: value for key, value in parts.items() if key != name}
    return {**parts[name], **({"$defs": inner} if inner else {})}


def called(tool: Tool, asking: Asking, arguments: dict[str, Any] | None) -> types.CallToolResult:
    """The result of a call. An error of Satchel is a result that says so: the model can correct its call."""
    try:
        result = tool.call(asking, _taken(tool, arguments or {}))
        return told(result)
    except SatchelError as error:
        return failed(str(error), arguments)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return failed(f"{where}{error.strerror or error}", arguments)


def _taken(tool: Tool, arguments: dict[str, Any]) -> Struct:
    try:
        taken: Struct = _TAKEN[tool.name].decode(msgspec.json.encode(arguments))
        return taken
    except UnicodeEncodeError as error:
        why = f"a text has half a character: {error.object[error.start]!r}"
        raise UsageError(f"the arguments of {tool.name} are not valid", why=why) from None
    except (msgspec.ValidationError, RecursionError) as error:
        raise UsageError(f"the arguments of {tool.name} are not valid", why=str(error)) from None


def told(result: Struct) -> types.CallToolResult:
    """A result as structured content, with a text for clients that show only texts."""
    data = msgspec.json.encode(result)
    if len(data) > LIMIT:
        raise UsageError(
            f"the result has {len(data):,} bytes, and at most {LIMIT:,} are given",
            remedy="ask for less, or read the files of the run as resources",
        )
    text = describing.headline(result) if isinstance(result, shapes.RunStatus) else data.decode()
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=msgspec.json.decode(data))


def failed(text: str, given: Any = None) -> types.CallToolResult:
    """`given`: by the client."""
    return types.CallToolResult(content=[types.TextContent(text=describing.error(text, given))], is_error=True)
