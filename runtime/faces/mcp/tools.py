"""The tools: those that only read, those that change a run as a person could on the command line, each after what it
takes and gives; and the table of their names, descriptions and schemas, with what a call of one returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import mcp_types as types
import msgspec
from msgspec import UNSET, Meta, Struct

from ....workspace.base import LeaseHeld, SatchelError, UsageError
from ....workspace.formats import decoder
from ....workspace.inbound import inbox
from ...api import ACTIVE, BY_NEED, ORDERS, Handle, RunQuery, SeenRun, State, is_pausing, new_place
from ...supervision import Background
from . import descriptions
from .descriptions import AskedQuestion, Asking, Json, RunLine, RunSummary, ShownCall, ShownRecord

_LISTED = 500

Name = Annotated[str, Meta(description="The run, as list_runs names it.", min_length=1)]
Reason = Annotated[str, Meta(description="Why, for the people who look at the run.", max_length=500)]


class ListArguments(Struct, forbid_unknown_fields=True):
    search: Annotated[
        str, Meta(description="Only runs with each of these words in their name, run_id, agent, group or current item.")
    ] = ""
    state: Annotated[State | None, Meta(description="Only runs in this state.")] = None
    wanted: Annotated[bool, Meta(description="Only runs that need a person.")] = False
    agent: Annotated[str, Meta(description="Only runs of this agent, as workspace.yaml names it, or `bot*`.")] = ""
    since: Annotated[str, Meta(description="Only runs with a record since a time, or of the last 2h.")] = ""
    sort: Annotated[str, Meta(description=f"{', '.join(ORDERS)}; -ORDER is the other way round.", min_length=1)] = (
        BY_NEED
    )


class RunList(Struct):
    runs: list[RunLine]
    omitted: Annotated[int, Meta(description="So many more runs match: search for less.")] = 0


def list_runs(asking: Asking, wanted: ListArguments) -> RunList:
    query = RunQuery(
        text=wanted.search,
        states=(wanted.state,) if wanted.state else (),
        wanted=wanted.wanted,
        agent=wanted.agent,
        since=wanted.since,
        sort=wanted.sort,
    )
    found = query.of(SeenRun(name, each) for name, each in asking.runs.statuses().items())
    lines = [descriptions.line(each.name, each.status) for each in found[:_LISTED]]
    return RunList(lines, max(0, len(found) - _LISTED))


class OneRun(Struct, forbid_unknown_fields=True):
    run: Name


def status(asking: Asking, wanted: OneRun) -> RunSummary:
    return asking.status(asking.runs.find(wanted.run))


class LogArguments(Struct, forbid_unknown_fields=True):
    run: Name
    last: Annotated[int, Meta(description="Only so many, the newest.", ge=1, le=500)] = 50
    item: Annotated[str | None, Meta(description="Only those of an item, such as ^3.")] = None
    type: Annotated[str | None, Meta(description="Only those of a type: step.completed, or step.* for several.")] = None
    agent: Annotated[str | None, Meta(description="Only those of a sub-agent, by its path.")] = None
    step: Annotated[str | None, Meta(description="Only those of the steps of this name.")] = None
    since: Annotated[str | None, Meta(description="Only those since a time, or of the last 2h.")] = None
    audit: Annotated[bool, Meta(description="Only checkpoints, openings and what people did.")] = False


class Log(Struct):
    records: list[ShownRecord]


def log(asking: Asking, wanted: LogArguments) -> Log:
    rows = asking.runs.find(wanted.run).history.log(
        last=wanted.last,
        item=wanted.item,
        type=wanted.type,
        agent=wanted.agent,
        step=wanted.step,
        since=wanted.since,
        audit=wanted.audit,
    )
    return Log([*map(descriptions.record, rows)])


class ShowArguments(Struct, forbid_unknown_fields=True):
    run: Name
    at: Annotated[
        int | str, Meta(description="The number of a record, `latest`, an item (^3: before it began), or a checkpoint.")
    ] = "latest"


class AgentFiles(Struct):
    """One agent of the run: the text of its todo.md, and the data of its state.json."""

    path: Annotated[str, Meta(description="Empty for the run's own agent.")]
    status: str
    plan: str
    data: Json
    open: Annotated[list[str], Meta(description="The items that have begun and not ended.")]


class ShownMoment(Struct):
    """The whole run right after a record."""

    run: str
    seq: int
    newest: int
    status: str
    record: ShownRecord | None
    agents: list[AgentFiles]
    problem: str = ""


def show(asking: Asking, wanted: ShowArguments) -> ShownMoment:
    handle = asking.runs.find(wanted.run)
    shown = handle.history.show(wanted.at)
    agents = [AgentFiles(each.path, each.status, each.plan, each.data, each.open) for each in shown.agents]
    row = descriptions.record(shown.record) if shown.record else None
    return ShownMoment(asking.runs.name(handle), shown.seq, shown.newest, shown.status, row, agents, shown.problem)


class CallArguments(Struct, forbid_unknown_fields=True):
    run: Name
    call: Annotated[
        int | str,
        Meta(description="A record that is about it (42), or its item and its number (^3/2; _agent/2 in no item)."),
    ]


def call(asking: Asking, wanted: CallArguments) -> ShownCall:
    handle = asking.runs.find(wanted.run)
    return descriptions.call(asking.runs.name(handle), handle.history.call(wanted.call))


_HELD = 6
_REFUSED = (2, _HELD, 8)
"""Exit codes of a start that has not touched the run. The second: another process has it."""

_PATIENCE = 60.0
_LOOK = 0.05
_REMOTE_LOOK = 1.0


class StartArguments(Struct, forbid_unknown_fields=True):
    run: Name
    input: Annotated[
        dict[str, Any] | None, Meta(description="The arguments of the agent, by parameter. Only for the first start.")
    ] = None


def start(asking: Asking, wanted: StartArguments) -> RunSummary:
    handle = asking.runs.find(wanted.run)
    if wanted.input is None and (found := asking.status(handle)).state in ACTIVE:
        return found  # so that a client which has lost the first reply can ask again
    begin(handle, input=wanted.input)
    return asking.status(handle)


def resume(asking: Asking, wanted: OneRun) -> RunSummary:
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


class AnswerArguments(Struct, forbid_unknown_fields=True):
    run: Name
    decision: Annotated[
        Any, Meta(description="One of the choices, a text, or the JSON value that answer_schema describes.")
    ] = UNSET
    arguments: Annotated[
        dict[str, Any] | None,
        Meta(description="Other arguments to approve, by name. Those that are left out stay as they were asked."),
    ] = None
    standing: Annotated[
        bool, Meta(description="Approve each later call of the question's tool, too. Only if your user has said so.")
    ] = False
    revoke: Annotated[
        bool,
        Meta(description="No answer: end the standing approval, one of `approved` in status, that `question` names."),
    ] = False
    question: Annotated[str, Meta(description="The id of the question, such as a1. Not needed if one is open.")] = ""
    note: Annotated[str, Meta(description="A remark for the record.", max_length=2000)] = ""
    result: Annotated[Any, Meta(description="Only for an effect in doubt that has happened: its result.")] = None


class AnswerOutcome(Struct):
    """The outcome of an answer, or of a revocation."""

    question: str
    is_recorded: Annotated[
        bool,
        Meta(
            description="It is on record. Otherwise the process that runs it takes an answer at its next stop, and a "
            "revocation before its next call."
        ),
    ]
    was_before: Annotated[bool, Meta(description="The same was said earlier.")]
    open_questions: list[AskedQuestion]
    next: str


def answer(asking: Asking, wanted: AnswerArguments) -> AnswerOutcome:
    handle = asking.runs.find(wanted.run)
    if wanted.revoke:
        if wanted != AnswerArguments(wanted.run, revoke=True, question=wanted.question):
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
    questions = [*map(descriptions.question, done.questions)]
    found = asking.status(handle)
    return AnswerOutcome(done.id, done.is_recorded, done.was_before, questions, found.next)


class SendArguments(Struct, forbid_unknown_fields=True):
    run: Name
    content: Annotated[Any, Meta(description="A text is a task in words, everything else is a task as data.")]
    message: Annotated[bool, Meta(description="A message to the agent, not a task. It must be a text.")] = False


class SentFile(Struct):
    file: str
    kind: str


class SentFiles(Struct):
    sent: list[SentFile]
    next: str


def send(asking: Asking, wanted: SendArguments) -> SentFiles:
    handle = asking.runs.find(wanted.run)
    if inbox.is_firing(wanted.content):
        raise UsageError("a time of a schedule can't be sent", remedy="only `satchel serve` makes them; send a task")
    sent = handle.send(wanted.content, message=wanted.message)
    return SentFiles([SentFile(each.file, each.kind) for each in sent], asking.status(handle).next)


class PauseArguments(Struct, forbid_unknown_fields=True):
    run: Name
    reason: Reason = "asked over MCP"
    until: Annotated[str | None, Meta(description="When it may continue by itself: 22:30, or 45m from now.")] = None


class StopOutcome(Struct):
    """The outcome of asking a run to stop. `requested`: it stops at its next safe point."""

    run: str
    status: str
    said: str


def pause(asking: Asking, wanted: PauseArguments) -> StopOutcome:
    handle = asking.runs.find(wanted.run)
    found = handle.pause(reason=wanted.reason, until=wanted.until, by=asking.by)
    return StopOutcome(asking.runs.name(handle), found.status, found.said)


class EndArguments(Struct, forbid_unknown_fields=True):
    run: Name
    reason: Reason = "asked over MCP"


def cancel(asking: Asking, wanted: EndArguments) -> StopOutcome:
    handle = asking.runs.find(wanted.run)
    found = handle.cancel(reason=wanted.reason, by=asking.by)
    return StopOutcome(asking.runs.name(handle), found.status, found.said)


class Killed(Struct):
    """The outcome of the emergency stop: stopped, idle, elsewhere, draining or failed."""

    run: str
    how: str
    said: str


def stop(asking: Asking, wanted: EndArguments) -> Killed:
    handle = asking.runs.find(wanted.run)
    found = handle.stop(reason=wanted.reason, by=asking.by)
    return Killed(asking.runs.name(handle), found.how, found.said)


class ForkArguments(Struct, forbid_unknown_fields=True):
    run: Name
    to: Annotated[str, Meta(description="The name of the new run: a folder that is empty or missing.", min_length=1)]
    at: Annotated[int | str | None, Meta(description="From which moment: as for show. Left out: from now.")] = None


class ForkOutcome(Struct):
    """The new run. It has not started."""

    run: str
    run_id: str
    seq: Annotated[int, Meta(description="The record of the other run that it begins at.")]
    files: int
    effects: Annotated[list[str], Meta(description="What the other run has done since; an equal call is not repeated.")]
    next: str


def fork(asking: Asking, wanted: ForkArguments) -> ForkOutcome:
    handle = asking.runs.find(wanted.run)
    found = handle.history.fork(new_place(asking.runs.root, wanted.to, again=True), at=wanted.at, by=asking.by)
    new = asking.runs.find(wanted.to)
    return ForkOutcome(
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
        ListArguments,
        RunList,
        list_runs,
    ),
    Tool(
        "status",
        "Status of a run",
        "Where a run is: what is done, what it asks, what went wrong, its result and "
        "outputs, and what to do next. Call it again every few seconds while a run is running.",
        OneRun,
        RunSummary,
        status,
    ),
    Tool(
        "log",
        "What happened",
        "The records of a run, oldest first: steps, items, questions, answers, pauses, edits.",
        LogArguments,
        Log,
        log,
    ),
    Tool(
        "show",
        "A run at a moment",
        "The plan and the data of each agent of a run, now or right after any record.",
        ShowArguments,
        ShownMoment,
        show,
    ),
    Tool(
        "call",
        "One call of a step",
        "One call of a step or an effect of a run, whole: arguments, result, error with its lines of code, attempts, "
        "prompts, cost, who has answered. The log and a failed run name calls.",
        CallArguments,
        ShownCall,
        call,
    ),
)

ACTING = (
    Tool(
        "start",
        "Start a run",
        "Start a run in the background, or continue one after a crash. Returns at once; status "
        "tells how it goes on. A run that is running stays as it is, and one that is paused needs resume.",
        StartArguments,
        RunSummary,
        start,
    ),
    Tool(
        "answer",
        "Answer a question",
        "Answer an open question of a run, or revoke a standing approval. A recorded answer can't be changed. Answer "
        "only what your user has decided; the question may be there so that a person decides.",
        AnswerArguments,
        AnswerOutcome,
        answer,
        is_destructive=True,
    ),
    Tool(
        "send",
        "Send work",
        "Put a task, or a message to the agent, into the inbox of a run.",
        SendArguments,
        SentFiles,
        send,
        is_idempotent=False,
    ),
    Tool(
        "pause",
        "Pause a run",
        "Stop a run at its next safe point. Running work finishes, and resume continues.",
        PauseArguments,
        StopOutcome,
        pause,
    ),
    Tool(
        "resume",
        "Resume a run",
        "Continue a run that is paused, waits, sleeps, was interrupted or has failed, in the "
        "background. Returns at once.",
        OneRun,
        RunSummary,
        resume,
    ),
    Tool(
        "cancel",
        "Cancel a run",
        "End a run for good at its next safe point. Its files stay.",
        EndArguments,
        StopOutcome,
        cancel,
        is_destructive=True,
    ),
    Tool(
        "stop",
        "Emergency stop",
        "Kill what runs a run, at once, in the middle of its work. What it was doing to the "
        "world may then be in doubt. Use pause unless there is danger.",
        EndArguments,
        Killed,
        stop,
        is_destructive=True,
    ),
    Tool(
        "fork",
        "Fork a run",
        "Make a new run from an earlier moment of a run, which is only read. start begins it.",
        ForkArguments,
        ForkOutcome,
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
    text = descriptions.headline(result) if isinstance(result, RunSummary) else data.decode()
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=msgspec.json.decode(data))


def failed(text: str, given: Any = None) -> types.CallToolResult:
    """`given`: by the client."""
    return types.CallToolResult(content=[types.TextContent(text=descriptions.error(text, given))], is_error=True)
