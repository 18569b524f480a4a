"""The past of a run, to look at: the whole run as it was at any record; what two moments differ in, of one run or of
two; what the items of a run have done; which record set a value of state.json, an item of todo.md, or a message; and
what has been said in a conversation, a page at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ...schemas import nearest
from ...workspace import journal
from ...workspace.base import SatchelError, UsageError, arguments, counted
from ...workspace.history import (
    LATEST,
    BlamedItem,
    BlamedValue,
    Call,
    CallChange,
    CallDetail,
    CostReport,
    DataChange,
    FileChange,
    MessageChange,
    Origin,
    PlanChange,
    RunningSpan,
    RunTiming,
    StepHistory,
    Story,
    call_detail,
    calls_of,
    compared,
    conversations,
    cost_report,
    data_origins,
    line_origins,
    message_changes,
    message_origins,
    moment_at,
    named_so,
    plain,
    plan_origins,
    records_of,
    run_timing,
    seq_of,
    step_history,
    story,
)
from ...workspace.inspect import define, lease
from ...workspace.journal import Kept, Line
from ...workspace.secrets import Redactor, redactor_of
from ...workspace.state import (
    FILES,
    ROOT,
    AgentMoment,
    LogPlace,
    Moment,
    Status,
    Usage,
    folder_of_agent,
    json_patch,
    log_key,
)
from ...workspace.views import MessageRow as Said
from ...workspace.views import (
    SaidRow,
    folder_of,
    has_text,
    page_after,
    page_before,
    place_after,
    row_at,
    search,
    status_of,
    unwritten,
)
from ...workspace.views import conversation as message_file
from ..status import LogRow, Place, running, value_of

_FILE = re.compile(
    r"(?P<agents>(?:agents/[^/]+/)*)(?P<file>state\.json|todo\.md|messages\.jsonl|files)(?:/(?P<rest>.*))?", re.DOTALL
)

_NAMED = 5


class ShownAgent(Struct, frozen=True):
    """One agent of the tree at a record.

    `path` is "" for the root; `data` that of its state.json, as JSON values; `plan` the text of its todo.md; `open` the
    folders of the items and named scopes that had begun and not committed; `messages` its conversation, each with
    `seq`, `at`, `role` and `content`. None if that is no longer known. `logs`: how many rows each of its other logs
    has. `files`: the files in files/, each with its version.
    """

    path: str
    status: Status
    data: Any
    plan: str
    open: list[str]
    messages: list[dict[str, Any]] | None = None
    logs: dict[str, int] = {}
    files: dict[str, int] = {}


class ShowResult(Struct, frozen=True):
    """A run at record `seq`, right after it.

    `record` is that record, `before` and `after` its neighbours; None if there is none, or if retention has removed it.
    `agents` has the whole tree, parents first. `newest` is the newest record that can be read, and `problem` says why
    later ones can't be.
    """

    url: str
    run_id: str
    seq: int
    newest: int
    record: LogRow | None
    before: LogRow | None
    after: LogRow | None
    agents: list[ShownAgent]
    moment: Moment
    problem: str = ""

    @property
    def status(self) -> Status:
        return self.moment.status


def show(place: Place, at: int | str) -> ShowResult:
    """The run at the position `at`."""
    found = records_of(place.store)
    seq = seq_of(place.store, at, found)
    moment = moment_at(place.store, seq, found)
    near = {line.seq: line for line in found.lines if abs(line.seq - seq) <= 1}
    row, before, after = (_row(near.get(each)) for each in (seq, seq - 1, seq + 1))
    said = conversations(place.store, moment)
    agents = [_shown(moment, agent, said.get(agent.path)) for agent in moment.agents.values()]
    problem = str(found.problem) if found.problem else ""
    newest = max(seq, found.last)
    return ShowResult(place.url, moment.run_id, seq, newest, row, before, after, agents, moment, problem)


def _row(line: Line | None) -> LogRow | None:
    return LogRow(journal.full(line), line) if line is not None else None


def _shown(moment: Moment, agent: AgentMoment, said: list[Said] | None) -> ShownAgent:
    opened = [folder_of(key, scope.title) for key, scope in agent.scopes.items() if key != ROOT]
    messages = None if said is None else [{"seq": each.seq, "at": each.at, **plain(each)} for each in said]
    logs = {name: log.messages for name, log in agent.logs.items()}
    files = {path: file.version for path, file in sorted(agent.files.items())}
    return ShownAgent(agent.path, status_of(moment, agent), agent.data, agent.plan.text, opened, messages, logs, files)


# Compared


class Side(Struct, frozen=True):
    """One of two compared moments: a run right after record `seq`. `result` is what its agent has returned, as a JSON
    value; of its `items`, so many are `done`; `usage` is what the run has used until then, a fork what its original
    had, too. Retention has removed the records before `since`: the calls of items that had ended by then are missing.
    """

    url: str
    run_id: str
    seq: int
    at: str
    status: Status
    result: Any
    since: int
    done: int
    items: int
    usage: Usage


class Difference(Struct, frozen=True):
    """What differs from `old` to `new`: values of state.json, plans, outcomes of steps and effects, messages, and files
    that a program has put."""

    old: Side
    new: Side
    data: list[DataChange]
    plans: list[PlanChange]
    calls: list[CallChange]
    messages: list[MessageChange] = []
    files: list[FileChange] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs. Numbers of records and times don't count."""
        sides = [(side.status, side.result) for side in (self.old, self.new)]
        return not (self.data or self.plans or self.calls or self.messages or self.files) and sides[0] == sides[1]


def diff(place: Place, old: int | str | Place, new: int | str) -> Difference:
    """From the position `old` of this run to `new`, or from this run, as it is now, to the run `old`."""
    if isinstance(old, Place):
        return _difference((place, LATEST), (old, new))
    return _difference((place, old), (place, new))


def _difference(old: tuple[Place, int | str], new: tuple[Place, int | str]) -> Difference:
    stories = {place: story(place.store) for place in dict.fromkeys((old[0], new[0]))}
    was, now = (
        step_history(place.store, seq_of(place.store, at, stories[place].records), stories[place])
        for place, at in (old, new)
    )
    changes = compared(was, now)
    said = [conversations(place.store, found.moment) for place, found in ((old[0], was), (new[0], now))]
    sides = _side(old[0], was), _side(new[0], now)
    return Difference(*sides, changes.data, changes.plans, changes.calls, [*message_changes(*said)], changes.files)


def _side(place: Place, found: StepHistory) -> Side:
    moment = found.moment
    try:
        result = value_of(place.store, moment.root.result)
    except SatchelError:
        result = None  # its blob is gone
    done, items = moment.root.plan.progress
    return Side(
        place.url,
        moment.run_id,
        moment.seq,
        moment.last_at,
        moment.status,
        result,
        found.since,
        done,
        items,
        replace(moment.usage),
    )


def steps(place: Place, item: str | None, at: int | str | None) -> StepHistory:
    """The work of all items up to a position, or of one item."""
    item = item if item is None else arguments.text("item", item)
    _, found = _worked(place, at)
    if item is None:
        return found
    work = named_so(item, found.work, found.since, found.problem)
    return StepHistory(found.moment, work, found.since, found.problem)


def _worked(place: Place, at: int | str | None) -> tuple[Story, StepHistory]:
    """The records, and the work up to a position in them."""
    told = story(place.store)
    return told, step_history(place.store, None if at is None else seq_of(place.store, at, told.records), told)


def call(place: Place, named: str | int) -> CallDetail:
    """One call with all that its records tell. The result is whole, also if it is in a file of its own."""
    told, work = _worked(place, None)
    found = call_detail(work, told, named)
    if found.call.state != "completed":
        return found
    try:
        result = value_of(place.store, Kept(found.call.recorded, found.call.result_in.rpartition("/")[2]))
    except SatchelError:  # its file is gone: `check` names it
        return found
    return replace(found, result=result)


def timing(place: Place, item: str | None, at: int | str | None) -> RunTiming:
    """The time of all calls up to a position, or of those of one item."""
    item = item if item is None else arguments.text("item", item)
    told, work = _worked(place, at)
    found = run_timing(work, told, datetime.now(UTC), [*_running(place, work)] if at is None else ())
    return found if item is None else found.of(item)


def _running(place: Place, work: StepHistory) -> Iterator[RunningSpan]:
    with suppress(SatchelError, OverflowError):  # a lease that can't be read
        for each in running(place.store, work.moment, lease.holder(place.store)):
            call = Call(no=each.no, step=each.step, call=each.call, state="begun")
            yield RunningSpan(each.agent, each.scope, call, each.since)


def costs(place: Place, at: int | str | None) -> CostReport:
    """All costs up to a position."""
    told, work = _worked(place, at)
    return cost_report(work, told)


T = TypeVar("T")


class Blamed(Struct, frozen=True):
    """A value and the record that set it (`origin`).

    `path` is a JSON pointer into `data` of a state.json ("/summaries/a.txt"; "" if the data is empty). In a todo.md it
    is "/^3" for the text of an item, or "/line 7" if it has no id, and "/^3/mark" for its mark if another record set
    that. In a messages.jsonl it is "/57", the `seq` of the message, and `value` has `role` and `content`.
    In a file of files/ it is "/line 7", or "" for all of one that is long or no text.
    `brought_back_by`: the record of the return to an earlier record that has brought the value back, or 0.
    """

    path: str
    value: Any
    origin: Origin
    brought_back_by: int = 0


class Blame(Struct, frozen=True):
    """The values at and below a path of `file`, in its order. `problem` says why records after `newest` can't be
    read."""

    file: str
    values: list[Blamed]
    newest: int
    problem: str = ""


def blame(place: Place, path: str) -> Blame:
    """All values at and below `path`."""
    path = arguments.text("path", path)
    found = _FILE.fullmatch(path)
    if found is None:
        raise UsageError(
            f"{path!r} names no file whose values are blamed",
            remedy="name state.json, todo.md or messages.jsonl, or those of a sub-agent, and then what is in it: "
            "state.json/KEY, agents/NAME/todo.md/^3, messages.jsonl/SEQ; or a file that a program has put: files/PATH",
        )
    told = story(place.store)
    agent = "/".join(found["agents"].split("/")[1::2])
    file, rest = folder_of_agent(agent) + found["file"], found["rest"] or ""
    if found["file"] == "files":
        values = [*_of_file(told, rest)]
    elif found["file"] == message_file.NAME:
        values = [*_of_messages(place, told, agent, file, rest)]
    else:
        of_file = _of_plan if found["file"] == "todo.md" else _of_data
        values = [*of_file(told, agent, file, rest)]
    newest = told.lines[-1].seq if told.lines else told.start.seq
    return Blame(file, values, newest, str(told.problem or ""))


def _of_data(told: Story, agent: str, file: str, rest: str) -> Iterator[Blamed]:
    trees = data_origins(told.start, told.lines)
    tree = _of_agent(trees, agent, file, told)
    if tree is None:
        return
    parts = json_patch.split(f"/{rest}") if rest else []
    if parts[:1] == ["data"] and tree.below("data") is None:
        del parts[0]  # as it is in the file
    at = "".join(f"/{json_patch.escape(part)}" for part in parts)
    for leaf, node in _below(tree, parts, file).leaves(at):
        yield Blamed(leaf, node.value, node.cell.origin, node.cell.back)


def _below(tree: BlamedValue, parts: list[str], file: str) -> BlamedValue:
    at = file
    for part in parts:
        inner = tree.below(part)
        if inner is None:
            parts_of = () if tree.is_leaf else tree.value if type(tree.value) is dict else range(len(tree.value))
            names = [json_patch.escape(str(each)) for each in parts_of]
            raise _missing(f"{at}/{json_patch.escape(part)}", at, part, names)
        at, tree = f"{at}/{json_patch.escape(part)}", inner
    return tree


def _of_plan(told: Story, agent: str, file: str, rest: str) -> Iterator[Blamed]:
    items = _of_agent(plan_origins(told.start, told.lines), agent, file, told) or []
    values = [each for item in items for each in _of_item(item)]
    wanted = rest.lower() if rest.lower().startswith(("^", "line ")) else f"^{rest.lower()}"
    chosen = [each for each in values if not rest or f"{each.path}/".lower().startswith(f"/{wanted}/")]
    if not chosen:  # the record of its text has set the mark, too
        marks = [Blamed(f"{_path(each)}/mark", each.mark, each.marked) for each in items]
        chosen = [each for each in marks if each.path.lower() == f"/{wanted}"]
    if rest and not chosen:
        raise _missing(f"{file}/{rest}", file, rest, (f"^{item.id}" for item in items if item.id))
    yield from chosen


def _of_messages(place: Place, told: Story, agent: str, file: str, rest: str) -> Iterator[Blamed]:
    now = told.begin()
    now.apply(told.lines)
    said = _of_agent(message_origins(place.store, told.start, now, told.lines), agent, file, told) or []
    chosen = [each for each in said if rest in ("", str(each.row.seq))]
    if rest and not chosen:
        raise _missing(f"{file}/{rest}", file, rest, (str(each.row.seq) for each in reversed(said)))
    yield from (Blamed(f"/{each.row.seq}", plain(each.row), each.origin) for each in chosen)


def _of_file(told: Story, path: str) -> Iterator[Blamed]:
    found = line_origins(told.start, told.lines, path)
    if found is None:
        now = told.begin()
        now.apply(told.lines)
        if (file := now.root.files.get(path)) is None:
            raise _missing(FILES + path, FILES.rstrip("/"), path, now.root.files)
        yield Blamed("", counted(file.content.bytes, "byte"), Origin(seq=file.version, at=file.at, kind="put"))
        return
    for number, each in enumerate(found, 1):
        yield Blamed(f"/line {number}", each.text, each.origin)


def _of_item(item: BlamedItem) -> Iterator[Blamed]:
    path = _path(item)
    yield Blamed(path, item.text, item.wrote)
    if item.marked != item.wrote:
        yield Blamed(f"{path}/mark", item.mark, item.marked)


def _path(item: BlamedItem) -> str:
    return f"/^{item.id}" if item.id else f"/line {item.line + 1}"


def _of_agent(known: dict[str, T], agent: str, file: str, told: Story) -> T | None:
    """None if it has nothing yet."""
    if agent in known or not agent:
        return known.get(agent)
    raise _missing(file, "", file, (folder_of_agent(each) + file.rpartition("/")[2] for each in known))


def _missing(path: str, at: str, part: str, known: Iterable[str]) -> UsageError:
    names = [*known]
    close = nearest(part, names)
    above = f"{at}/" if at else ""
    if close is not None:
        remedy = f"did you mean {above + close!r}?"
    elif names:
        more = ", ..." if len(names) > _NAMED else ""
        remedy = f"there are {', '.join(names[:_NAMED])}{more}"
    else:
        remedy = f"{at!r} has no parts"
    return UsageError(f"there is no {path!r}", remedy=remedy)


# Conversations

PAGE = 50
"""Messages on one page."""


class ConversationMessage(Struct, frozen=True):
    """A message of a conversation, or a row of another log, which has no role: as it is in the file now, also as a
    person has changed it, and redacted as `redact:` says.

    `place` is its offset in the file; -1: it is on record and not in the file yet. `call` is the record of the call
    that has made it, if one of its scope has returned what it says; else 0. `problem`: why the line can't be read.
    """

    seq: int
    at: str
    role: str
    content: Any
    place: int
    call: int = 0
    problem: str = ""


class Conversation(Struct, frozen=True):
    """Messages, oldest first, from the place `begin` in the file to `end`; it has `bytes`. Of a search the place
    `begin` is how far back it has read: there may be more before it."""

    messages: list[ConversationMessage]
    begin: int
    end: int
    bytes: int


def logs_of(moment: Moment) -> Iterator[tuple[str, str, LogPlace]]:
    """The conversations and logs that have something, each with its agent and its name; the conversation has none."""
    for place in moment.row_logs:
        if place.log.messages:
            agent, _, log = place.key.partition(":")
            yield agent, log, place


def messages_of(
    place: Place,
    moment: Moment,
    agent: str = "",
    log: str = "",
    *,
    before: int | None = None,
    after: int | None = None,
    until: int | None = None,
    text: str = "",
    calls: bool = False,
) -> Conversation:
    """A page of the conversation of `agent`, or of its log `log`: the last messages before a place in its file (None:
    its end), the first ones after a place, the last ones until a record, or the last ones before a place that have
    `text` in them. Reads the page, never all of it; a search reads at most 32 MiB. `calls`: with the call that has made
    each message. UsageError if there is no such log."""
    store, at = place.store, _place_of(moment, agent, log)
    if until is not None:
        before = place_after(store, at.path, until)
    if text:
        found = search(store, at.path, text, before, PAGE)
    elif after is not None:
        found = page_after(store, at.path, after, PAGE)
    else:
        found = page_before(store, at.path, before, PAGE)
    rows = found.rows
    if before is None and after is None and not text:
        rows = [*rows, *unwritten(at.log, max((row.seq for row in rows), default=0))][-PAGE:]
    made_by = calls_of(store, agent, rows) if calls and not log else {}
    redactor = redactor_of(define(store))
    messages = [_message(row, made_by.get(row.seq, 0), redactor) for row in rows]
    if text:  # a secret is not found either
        messages = [each for each in messages if has_text(each.role, each.content, text)]
    return Conversation(messages, found.begin, found.end, found.bytes)


def message_at(place: Place, moment: Moment, agent: str, log: str, at: int) -> ConversationMessage:
    """The message at a place in the file. UsageError if there is none."""
    row = row_at(place.store, _place_of(moment, agent, log).path, at)
    return _message(row, 0, redactor_of(define(place.store)))


def _message(row: SaidRow, call: int, redactor: Redactor) -> ConversationMessage:
    return ConversationMessage(
        row.seq, row.at, row.role, redactor.value(row.content), row.begin, call=call, problem=row.problem
    )


def _place_of(moment: Moment, agent: str, log: str) -> LogPlace:
    found = next((place for place in moment.row_logs if place.key == log_key(agent, log)), None)
    if found is None:
        raise UsageError(f"there is no conversation {agent or log!r}", remedy="open the conversation of the run")
    return found
