"""The runs below a folder or URL, by name: their folder, relative to the root. And what clients are told of a run: its
names as a resource and a task, its status, its questions, and what to do next. The schemas that clients get are made of
these."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec
from msgspec import Meta, Struct, field

from ....workspace.base import DEFINITION, SatchelError, UsageError, arguments, myself, urls, visible
from ....workspace.history import CallDetail
from ....workspace.inspect import transfer_file
from ....workspace.state import Moment
from ... import api
from ...api import (
    ACTIVE,
    OVER,
    Handle,
    LogRow,
    OpenQuestion,
    RunStatus,
    State,
    before_a_start,
    is_readable,
    is_run,
    leads_below,
)
from ...present import (
    answered,
    choice_meaning,
    covered,
    describe_record,
    detail_json,
    diagnose,
    diagnosis_json,
    done_of,
    failure_text,
    not_called,
    one_line,
    run_id_of,
)

_NAMED = 20  # runs that an error names


class Runs:
    """Each method looks again: nothing is kept, so a server can be killed at any moment. Methods block."""

    def __init__(self, root: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None):
        typed = urls.checked(arguments.place("root", root))
        self.is_remote = urls.is_remote(typed)  # each look is a request over a network
        self.root = typed.rstrip("/") if self.is_remote else os.path.realpath(typed)
        api.open_all(typed, storage_options=storage_options)  # says now what is wrong with the root
        self._is_run = is_run(self.root)

    def all(self) -> dict[str, Handle]:
        """A handle on each run, by name, in the order of the names."""
        found = {self.name(each): each for each in api.open_all(self.root)}
        return {name: found[name] for name in sorted(found)}

    def statuses(self) -> dict[str, RunStatus]:
        """The brief status of each run, by name, in the order of the names. Includes places that a run has left."""
        found = {self._name_at(each.folder): each for each in api.ls(self.root)}
        return {name: found[name] for name in sorted(found)}

    def find(self, name: str) -> Handle:
        """The run of this name, or with this run_id if only one has it. UsageError names those that there are."""
        if (found := self.at(name)) is not None:
            return found
        statuses = self.statuses()
        same = [known for known, each in statuses.items() if each.definition and each.definition.run_id == name]
        if len(same) == 1 and (found := self.at(same[0])) is not None:
            return found
        known = [*statuses]
        more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
        there = f"there are: {', '.join(known[:_NAMED])}{more}" if known else "there is none"
        raise UsageError(
            f"there is no run {name!r}",
            why=there,
            remedy="name one of them" if known else f"`satchel new` makes one below {self.root}",
        )

    def _run_above(self, name: str) -> str | None:
        """The run in whose folder this name leads. What lies there are its files, perhaps copied from strangers."""
        if self._is_run:
            return self.root
        names = name.split("/")
        places = (f"{self.root}/{'/'.join(names[:number])}" for number in range(1, len(names)))
        return next(filter(is_run, places), None)

    def at(self, name: str) -> Handle | None:
        """The run of this name, found without a look at the others; None if there is none."""
        places = [self.root] if name == self._own_name else []
        if leads_below(name, is_remote=self.is_remote) and self._run_above(name) is None:
            places.append(f"{self.root}/{name}")
        return next((handle for place in places if (handle := self._opened(place)) is not None), None)

    def _opened(self, place: str) -> Handle | None:
        """None if no run is there, or was there before it moved."""
        if not self.is_remote and (os.path.realpath(place) != place or not os.path.isdir(place)):
            return None
        handle = api.open(place)
        try:
            is_run = any(handle.store.version(name) is not None for name in (DEFINITION, transfer_file.MOVED))
        except SatchelError:
            return handle  # its methods say what is wrong
        return handle if is_run else None

    @property
    def _own_name(self) -> str:
        """The name of the root, for the case that it is a workspace itself."""
        return self.root.rpartition("/")[2]

    def name(self, handle: Handle) -> str:
        """The name of a run of this root."""
        return self._name_at(handle.url)

    def _name_at(self, place: str) -> str:
        return place.removeprefix(self.root).strip("/") or self._own_name


_LONGEST = 40  # characters of a client's name


class Asking(NamedTuple):
    """One call. `client` is what the client calls itself."""

    runs: Runs
    allowed: frozenset[str]
    client: str

    @property
    def by(self) -> str:
        """Who acts, for the record: the person of this process, and the client."""
        client = visible(" ".join(self.client.split()))[:_LONGEST]
        return f"{myself()} over MCP ({client})" if client else f"{myself()} over MCP"

    def status(self, handle: Handle) -> RunSummary:
        """The status of a run, read now."""
        return status(self.runs.name(handle), handle.status(), self.allowed)


# What clients are told

Json = Any


class AskedQuestion(Struct):
    """A question to a person, of the agent (a1) or about an effect whose outcome is unknown (d1)."""

    id: str
    text: str
    choices: list[str] = field(default_factory=list)
    answer_schema: Annotated[
        Json, Meta(description="The JSON Schema of the answer, if it is no text, or of the arguments.")
    ] = None
    arguments: Annotated[Json, Meta(description="Of the call. It may be approved with other ones.")] = None
    tool: Annotated[str, Meta(description="The name of the call. An approval may stand for its later calls.")] = ""
    context: Json = None
    asked_at: str = ""
    call: Annotated[str, Meta(description="The name of the call that asks or is in doubt, for the tool `call`.")] = ""
    covers: Annotated[str, Meta(description="What an approval with `standing` would cover; empty: it can't stand.")] = (
        ""
    )
    meanings: Annotated[dict[str, str], Meta(description="What a choice means, where it does not say so itself.")] = (
        field(default_factory=dict)
    )


class Approved(Struct):
    """An approval in force for each later call of a tool by an agent, given with the answer to `question`."""

    question: str
    tool: str
    agent: Annotated[str, Meta(description="Empty for the run's own agent.")]
    by: str
    at: str
    uses: int
    covers: Annotated[str, Meta(description="The calls that it approves, and until when.")] = ""


class Items(Struct):
    """Of the plan: finished, and all."""

    done: int
    all: int


class RunSummary(Struct):
    """Where a run is, and what to do next."""

    run: str
    state: State
    next: Annotated[str, Meta(description="What to do next, in words.")]
    run_id: str = ""
    task_id: Annotated[str | None, Meta(description="The id of the run as a task; null before its first start.")] = None
    reason: Annotated[str, Meta(description="Why it has stopped.")] = ""
    items: Items | None = None
    item: Annotated[str, Meta(description="The item that has begun, or the next one.")] = ""
    running: Annotated[list[str], Meta(description="The calls that have run for some time, in words.")] = field(
        default_factory=list
    )
    questions: list[AskedQuestion] = field(default_factory=list)
    approved: list[Approved] = field(default_factory=list)
    error: Annotated[str, Meta(description="The error of the agent, or what is wrong with the workspace.")] = ""
    diagnosis: Annotated[
        Json,
        Meta(
            description="Of a run that does not go on by itself: what is wrong, where, the call, what was tried, to do."
        ),
    ] = None
    result: Annotated[Json, Meta(description="What the agent of a completed run has returned.")] = None
    result_omitted: Annotated[bool, Meta(description="The result is too long to be given here.")] = False
    outputs: Annotated[list[str], Meta(description="The URIs of the files that the run has made.")] = field(
        default_factory=list
    )
    outputs_omitted: int = 0
    inbox: Annotated[int, Meta(description="Files in the inbox that no agent has taken.")] = 0
    steps: int = 0
    tokens: int = 0
    usd: float = 0.0
    until: Annotated[str, Meta(description="When a sleep or a pause ends (UTC).")] = ""
    last_activity: Annotated[str, Meta(description="Of the last record (UTC).")] = ""
    notes: Annotated[list[str], Meta(description="What else people should know.")] = field(default_factory=list)


class RunLine(Struct):
    """A run in a list. status tells more."""

    run: str
    state: State
    needs_person: Annotated[bool, Meta(description="It asks, or rests until a person acts.")] = False
    run_id: str = ""
    task_id: str | None = None
    items: Items | None = None
    questions: Annotated[list[str], Meta(description="The ids of the open questions.")] = field(default_factory=list)
    last_activity: str = ""
    problem: str = ""


class ShownRecord(Struct):
    """A record of the journal. Long texts in it are shortened."""

    seq: int
    at: str
    type: str
    who: str
    words: Annotated[str, Meta(description="The record as a line of the log.")]
    record: Json


class ShownCall(Struct):
    """One call of a step or an effect."""

    run: str
    call: Annotated[Json, Meta(description="As `satchel show RUN ^3/2 --json` has it.")]
    result_omitted: Annotated[bool, Meta(description="The result is too large to be told here.")] = False


SCHEME = "satchel://"

_RESULT = 64 << 10  # bytes
_TEXT = 400  # characters of a text in a record
_ERROR = 4_000  # characters of an error
_REPEATED = 200  # characters of a text that a client has given, in an error
_LIST = 50  # elements of a list in a record
_OUTPUTS = 100
_DIGEST = 32  # hex digits
_OF_THE_LINE = frozenset(("seq", "at", "type", "crc", "prev", "commit", "opening"))


def uri(run: str, path: str) -> str:
    """The resource of a file: `satchel://RUN/PATH`."""
    return f"{SCHEME}{quote(run, safe='')}/{quote(path)}"


def of_uri(text: str) -> tuple[str, str] | None:
    """The run and the path of a resource; None if it is none."""
    run, slash, path = text.removeprefix(SCHEME).partition("/")
    return (unquote(run), unquote(path)) if text.startswith(SCHEME) and run and slash and path else None


def is_resource(text: str) -> bool:
    """Whether a file of this URI could be read."""
    place = of_uri(text)
    return place is not None and is_readable(place[1])


def task_id(run: str, moment: Moment | None) -> str | None:
    """The same as long as the run is in this place. It names the run, and its end can't be guessed: it comes from the
    random number that the run drew when it first began. None before that."""
    if moment is None or moment.is_new:
        return None
    secret = f"satchel task {moment.run_nonce or moment.run_id}"
    return f"{quote(run, safe='')}.{hashlib.sha256(secret.encode()).hexdigest()[:_DIGEST]}"


def is_task_id(text: str) -> bool:
    """Whether a run could have this id."""
    end = text.rpartition(".")[2]
    return len(end) == _DIGEST and not end.strip("0123456789abcdef")


def run_of_task(task: str) -> str:
    """The run that a task id names. Whether it is that run's id, only `task_id` tells."""
    return unquote(task.rpartition(".")[0])


def line(run: str, status: RunStatus) -> RunLine:
    """A run in a list."""
    return RunLine(
        run,
        status.state,
        needs_person=status.needs_person,
        run_id=run_id_of(status),
        task_id=task_id(run, status.moment),
        items=items(status),
        questions=[each.id for each in status.questions],
        last_activity=status.at,
        problem=str(status.problem or ""),
    )


def status(run: str, status: RunStatus, allowed: frozenset[str]) -> RunSummary:
    """All that a client needs to know of a run."""
    found = RunSummary(run, status.state, next_of(run, status, allowed))
    found.run_id = run_id_of(status)
    found.items, found.last_activity, found.inbox = items(status), status.at, status.waiting
    found.notes = [*map(str, status.complaints)]
    found.running = [each.words for each in status.running[:_LIST]]
    found.questions = [*map(question, status.questions)]
    found.approved = [
        Approved(id, each.tool, each.agent, each.by, each.at, each.uses, covered(each.tool, each.agent))
        for id, each in status.approved.items()
    ]
    if status.problem is not None:
        found.error = str(status.problem)
    found.diagnosis = diagnosis_json(diagnose(status))
    if (moment := status.moment) is None:
        return found
    found.task_id = task_id(run, moment)
    found.reason = answered(status) or moment.reason
    found.until = moment.until or (moment.pause.until if moment.pause else "")
    if moment.error and status.state == "failed":
        found.error = failure_text(moment.error)
    found.error = found.error or not_called(status)
    if status.at_work and status.state not in OVER:
        found.item = status.at_work.text
    found.steps, found.tokens, found.usd = moment.usage.steps, moment.usage.tokens, moment.usage.usd
    outputs = sorted(moment.outputs)
    found.outputs = [uri(run, path) for path in outputs[:_OUTPUTS]]
    found.outputs_omitted = max(0, len(outputs) - _OUTPUTS)
    if len(msgspec.json.encode(status.result)) <= _RESULT:
        found.result = status.result
    else:
        found.result_omitted = True
    return found


def call(run: str, found: CallDetail) -> ShownCall:
    """The records only by their numbers: `log` has them."""
    said = detail_json(found) | {"records": [line.seq for line in found.records]}
    is_large = len(msgspec.json.encode(said.get("result"))) > _RESULT
    if is_large:
        del said["result"]
    return ShownCall(run, said, is_large)


def question(asked: OpenQuestion) -> AskedQuestion:
    found = asked.question
    return AskedQuestion(
        found.id,
        found.text,
        [*found.choices],
        answer_schema=found.schema,
        arguments=found.arguments if found.may_change else None,
        tool=found.tool,
        context=found.facts.get("context"),
        asked_at=found.asked_at,
        call=asked.named,
        covers=covered(found.tool, found.asked.agent) if found.tool else "",
        meanings={each: said for each in found.choices if (said := choice_meaning(found, each))},
    )


def record(row: LogRow) -> ShownRecord:
    """A record for a reader who has no use for long texts."""
    told = {key: value for key, value in row.record.items() if key not in _OF_THE_LINE}
    words = one_line(describe_record(row.line.record).line, _TEXT)
    return ShownRecord(row.line.seq, row.line.at, row.record["type"], row.who, words, shortened(told))


def shortened(value: Any) -> Any:
    """A JSON value with shorter texts and lists."""
    match value:
        case str() if len(value) > _TEXT:
            return f"{value[:_TEXT]}… ({len(value):,} characters)"
        case list():
            more = [f"… ({len(value):,} elements)"] if len(value) > _LIST else []
            return [*map(shortened, value[:_LIST]), *more]
        case dict():
            return {shortened(key): shortened(each) for key, each in value.items()}
    return value


def error(text: str, given: Any = None) -> str:
    """The text of an error, safe to print, and not too long for the context of a model. Of each text in what a client
    has `given` it repeats only the beginning."""
    for each in _long_texts(given):
        for form in dict.fromkeys((each, repr(each)[1:-1], " ".join(each.split()))):
            text = _shorter(text, form)
    return visible(text if len(text) <= _ERROR else f"{text[:_ERROR]}…")


def _long_texts(given: Any) -> Iterator[str]:
    match given:
        case str() if len(given) > _REPEATED:
            yield given
        case Mapping():
            yield from (text for pair in given.items() for each in pair for text in _long_texts(each))
        case list() | tuple():
            yield from (text for each in given for text in _long_texts(each))


def _shorter(text: str, repeated: str) -> str:
    """`text`, with less of what it repeats. It may have cut that itself."""
    head, at = repeated[: _REPEATED + 1], 0
    while len(head) > _REPEATED and (at := text.find(head, at)) >= 0:
        differ = (number for number, pair in enumerate(zip(text[at:], repeated, strict=False)) if pair[0] != pair[1])
        same = next(differ, len(repeated))
        text = f"{text[: at + _REPEATED]}…{text[at + same :].removeprefix('…')}"
        at += _REPEATED
    return text


def headline(found: RunSummary) -> str:
    """The status in a few lines, for a reader without structured content."""
    reason = f" ({found.reason})" if found.reason else ""
    lines = [f"{found.run}: {found.state}{reason}{progress(found.items)}. {found.next}"]
    lines += [f"question {each.id}: {each.text}{_choices(each)}" for each in found.questions]
    lines += [f"approved with {each.question}, by {each.by}: each call of {each.tool}" for each in found.approved]
    if found.error:
        lines.append(f"error: {found.error}")
    if found.diagnosis:
        told = {name: found.diagnosis[name] for name in ("where", "call", "tried") if name in found.diagnosis}
        lines += [f"{name}: {', '.join(each) if isinstance(each, tuple) else each}" for name, each in told.items()]
    if found.result is not None:
        lines.append(f"result: {msgspec.json.encode(shortened(found.result)).decode()}")
    return visible("\n".join(lines))


def _choices(asked: AskedQuestion) -> str:
    return f" ({' or '.join(asked.choices)})" if asked.choices else ""


def items(status: RunStatus) -> Items | None:
    """How far the plan is; None if there is none."""
    found = status.plan.progress if status.plan and status.plan.tasks else None
    return Items(found.settled, found.leaves) if found else None


def progress(found: Items | None) -> str:
    """The same as the end of a sentence."""
    return f", {done_of(found.done, found.all, 'item')}" if found else ""


def next_of(run: str, status: RunStatus, allowed: frozenset[str]) -> str:
    """What to do next: a tool to call, or what a person has to do."""

    def call(action: str, how: str, command: str) -> str:
        return how if action in allowed else f"A person has to do it: `satchel {command}`."

    is_running = status.state in ACTIVE
    if status.wants_adoption:
        return f"It may be a copy. A person has to say that it continues here: `satchel resume {run} --adopt`."
    if status.wants_merge:
        return f"A person has to resolve a conflict: `satchel merge {run}`."
    if status.questions:
        ids = ", ".join(each.id for each in status.questions)
        then = "" if is_running else " Then it has to be resumed."
        return f"It waits for answers to {ids}. {call('answer', 'Call answer.', f'answer {run} ID')}{then}"
    if (steps := before_a_start(status)) and not is_running:
        return f"A person has to do this before it is resumed: {', '.join(steps)}."
    resume = call("resume", "Call resume.", f"resume {run}")
    start = call("start", "Call start.", f"run {run}")
    either = start if "start" in allowed and "resume" not in allowed else resume
    match status.state:
        case "new":
            return start
        case "running" | "draining":
            return "It is running. Call status again in a few seconds."
        case "interrupted" if status.is_supervised:
            return "It has crashed, and its supervisor is about to restart it. Call status again in a few seconds."
        case "interrupted" | "failed" | "waiting":
            return either
        case "paused" if status.moment and status.moment.is_new:
            return start
        case "paused" if status.moment and status.moment.pause is None:
            return either  # a fork
        case "paused":
            return resume
        case "sleeping":
            return f"It sleeps; `satchel serve` wakes it. To continue at once: {resume}"
        case "held":
            return "Nothing: it has no agent. Programs append to it. Read its messages and files."
        case "damaged":
            return f"A person has to repair it: `satchel check {run}`."
        case "moved":
            return f"It has moved to {status.moved.to}." if status.moved else "It has moved."
        case "backup":
            return "Nothing: it is a backup of a run. Look at that run instead."
        case "completed" if status.has_tasks or status.at_work:
            return f"It has completed, and there is new work. {either}"
        case "completed":
            return "Nothing: it has completed. Read its result and its outputs."
        case _:
            return "Nothing: it was cancelled."
