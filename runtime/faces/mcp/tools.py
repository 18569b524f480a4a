"""The tools: those that only read, those that change a run as a person could on the command line, and the table of
their names, descriptions and schemas, with what a call of one returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import mcp_types as types
import msgspec
from msgspec import UNSET, Struct

from ....workspace.base import LeaseHeld, SatchelError, UsageError
from ....workspace.formats import decoder
from ....workspace.inbound.inbox import inbox
from ...api import ACTIVE, Handle, by_need, is_pausing
from ...supervision.child import Background
from . import describing, shapes
from .run_names import Asking

_LISTED = 500


def list_runs(asking: Asking, wanted: shapes.ListArguments) -> shapes.RunList:
    statuses = sorted(asking.runs.statuses().items(), key=lambda each: by_need(each[1]))
    found = [describing.line(name, each) for name, each in statuses]
    text = wanted.search.casefold()
    found = [
        each
        for each in found
        if (text in each.run.casefold() or text in each.run_id.casefold()) and wanted.state in (None, each.state)
    ]
    return shapes.RunList(found[:_LISTED], max(0, len(found) - _LISTED))


def status(asking: Asking, wanted: shapes.OneRun) -> shapes.RunSummary:
    return asking.status(asking.runs.find(wanted.run))


def log(asking: Asking, wanted: shapes.LogArguments) -> shapes.Log:
    rows = asking.runs.find(wanted.run).history.log(
        last=wanted.last,
        item=wanted.item,
        type=wanted.type,
        agent=wanted.agent,
        step=wanted.step,
        since=wanted.since,
        audit=wanted.audit,
    )
    return shapes.Log([*map(describing.record, rows)])


def show(asking: Asking, wanted: shapes.ShowArguments) -> shapes.ShownMoment:
    handle = asking.runs.find(wanted.run)
    shown = handle.history.show(wanted.at)
    agents = [shapes.AgentFiles(each.path, each.status, each.plan, each.data, each.open) for each in shown.agents]
    row = describing.record(shown.record) if shown.record else None
    return shapes.ShownMoment(
        asking.runs.name(handle), shown.seq, shown.newest, shown.status, row, agents, shown.problem
    )


_HELD = 6
_REFUSED = (2, _HELD, 8)
"""Exit codes of a start that has not touched the run. The second: another process has it."""

_PATIENCE = 60.0
_LOOK = 0.05
_REMOTE_LOOK = 1.0


def start(asking: Asking, wanted: shapes.StartArguments) -> shapes.RunSummary:
    handle = asking.runs.find(wanted.run)
    if wanted.input is None and (found := asking.status(handle)).state in ACTIVE:
        return found  # so that a client which has lost the first reply can ask again
    begin(handle, input=wanted.input)
    return asking.status(handle)


def resume(asking: Asking, wanted: shapes.OneRun) -> shapes.RunSummary:
    handle = asking.runs.find(wanted.run)
    if not is_pausing(handle) or handle.withdraw().status not in ("withdrawn", "requested"):
        begin(handle, resume=True)
    return asking.status(handle)


def begin(handle: Handle, *, resume: bool = False, input: dict[str, object] | None = None) -> None:
    """Start it in the background, and return when its opening is on record. So a server that is killed afterwards finds
    the run again."""
    before = handle.status(brief=True).moment
    found = handle.detach(resume=resume, input=input)
    until = time.monotonic() + _PATIENCE
    while found.exit_code is None and time.monotonic() < until:
        moment = handle.status(brief=True).moment
        if moment is None and before is not None:
            return  # it broke a file of its own run, or a person did: its status says which
        if moment is not None and not moment.is_new and (before is None or moment.epoch > before.epoch):
            return
        time.sleep(_REMOTE_LOOK if handle.store.abilities.remote else _LOOK)
        handle.store.refresh()
    moment = handle.status(brief=True).moment
    if found.exit_code in _REFUSED or moment is None or moment.is_new:
        raise _refusal(found)


def _refusal(found: Background) -> SatchelError:
    """What the process has said that did not start."""
    said, kind = found.said, LeaseHeld if found.exit_code == _HELD else UsageError
    text = "\n".join(line.strip().removeprefix("satchel: ") for line in said.strip().splitlines())
    return kind(text or "it did not start", remedy=None if text else f"its output is in {found.log}")


def answer(asking: Asking, wanted: shapes.AnswerArguments) -> shapes.AnswerOutcome:
    handle = asking.runs.find(wanted.run)
    if wanted.revoke:
        if wanted != shapes.AnswerArguments(wanted.run, revoke=True, question=wanted.question):
            raise UsageError("revoke goes with run and question only")
        done = handle.revoke(wanted.question, by=asking.by)
    elif wanted.decision is UNSET:
        raise UsageError("the arguments of answer are not valid", why="it has neither a decision nor revoke")
    else:
        done = handle.answer(
            wanted.decision,
            wanted.question,
            arguments=wanted.arguments,
            standing=wanted.standing,
            result=wanted.result,
            by=asking.by,
            note=wanted.note,
        )
    questions = [*map(describing.question, done.questions)]
    found = asking.status(handle)
    return shapes.AnswerOutcome(done.id, done.is_recorded, done.was_before, questions, found.next)


def send(asking: Asking, wanted: shapes.SendArguments) -> shapes.SentFiles:
    handle = asking.runs.find(wanted.run)
    if inbox.is_firing(wanted.content):
        raise UsageError("a time of a schedule can't be sent", remedy="only `satchel serve` makes them; send a task")
    sent = handle.send(wanted.content, message=wanted.message)
    return shapes.SentFiles([shapes.SentFile(each.file, each.kind) for each in sent], asking.status(handle).next)


def pause(asking: Asking, wanted: shapes.PauseArguments) -> shapes.StopOutcome:
    handle = asking.runs.find(wanted.run)
    found = handle.pause(reason=wanted.reason, until=wanted.until, by=asking.by)
    return shapes.StopOutcome(asking.runs.name(handle), found.status, found.said)


def cancel(asking: Asking, wanted: shapes.EndArguments) -> shapes.StopOutcome:
    handle = asking.runs.find(wanted.run)
    found = handle.cancel(reason=wanted.reason, by=asking.by)
    return shapes.StopOutcome(asking.runs.name(handle), found.status, found.said)


def stop(asking: Asking, wanted: shapes.EndArguments) -> shapes.Killed:
    handle = asking.runs.find(wanted.run)
    found = handle.stop(reason=wanted.reason, by=asking.by)
    return shapes.Killed(asking.runs.name(handle), found.how, found.said)


def fork(asking: Asking, wanted: shapes.ForkArguments) -> shapes.ForkOutcome:
    handle = asking.runs.find(wanted.run)
    found = handle.history.fork(asking.runs.place_of(wanted.to), at=wanted.at, by=asking.by)
    new = asking.runs.find(wanted.to)
    return shapes.ForkOutcome(
        asking.runs.name(new),
        found.run_id,
        found.seq,
        found.files,
        [each.call for each in found.effects],
        asking.status(new).next,
    )


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
        list_runs,
    ),
    Tool(
        "status",
        "Status of a run",
        "Where a run is: what is done, what it asks, what went wrong, its result and "
        "outputs, and what to do next. Call it again every few seconds while a run is running.",
        shapes.OneRun,
        shapes.RunSummary,
        status,
    ),
    Tool(
        "log",
        "What happened",
        "The records of a run, oldest first: steps, items, questions, answers, pauses, edits.",
        shapes.LogArguments,
        shapes.Log,
        log,
    ),
    Tool(
        "show",
        "A run at a moment",
        "The plan and the data of each agent of a run, now or right after any record.",
        shapes.ShowArguments,
        shapes.ShownMoment,
        show,
    ),
)

ACTING = (
    Tool(
        "start",
        "Start a run",
        "Start a run in the background, or continue one after a crash. Returns at once; status "
        "tells how it goes on. A run that is running stays as it is, and one that is paused needs resume.",
        shapes.StartArguments,
        shapes.RunSummary,
        start,
    ),
    Tool(
        "answer",
        "Answer a question",
        "Answer an open question of a run, or revoke a standing approval. A recorded answer can't be changed. Answer "
        "only what your user has decided; the question may be there so that a person decides.",
        shapes.AnswerArguments,
        shapes.AnswerOutcome,
        answer,
        is_destructive=True,
    ),
    Tool(
        "send",
        "Send work",
        "Put a task, or a message to the agent, into the inbox of a run.",
        shapes.SendArguments,
        shapes.SentFiles,
        send,
        is_idempotent=False,
    ),
    Tool(
        "pause",
        "Pause a run",
        "Stop a run at its next safe point. Running work finishes, and resume continues.",
        shapes.PauseArguments,
        shapes.StopOutcome,
        pause,
    ),
    Tool(
        "resume",
        "Resume a run",
        "Continue a run that is paused, waits, sleeps, was interrupted or has failed, in the "
        "background. Returns at once.",
        shapes.OneRun,
        shapes.RunSummary,
        resume,
    ),
    Tool(
        "cancel",
        "Cancel a run",
        "End a run for good at its next safe point. Its files stay.",
        shapes.EndArguments,
        shapes.StopOutcome,
        cancel,
        is_destructive=True,
    ),
    Tool(
        "stop",
        "Emergency stop",
        "Kill what runs a run, at once, in the middle of its work. What it was doing to the "
        "world may then be in doubt. Use pause unless there is danger.",
        shapes.EndArguments,
        shapes.Killed,
        stop,
        is_destructive=True,
    ),
    Tool(
        "fork",
        "Fork a run",
        "Make a new run from an earlier moment of a run, which is only read. start begins it.",
        shapes.ForkArguments,
        shapes.ForkOutcome,
        fork,
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
    text = describing.headline(result) if isinstance(result, shapes.RunSummary) else data.decode()
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=msgspec.json.decode(data))


def failed(text: str, given: Any = None) -> types.CallToolResult:
    """`given`: by the client."""
    return types.CallToolResult(content=[types.TextContent(text=describing.error(text, given))], is_error=True)
