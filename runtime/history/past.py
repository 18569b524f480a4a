"""The past of a run, to look at: the whole run as it was at any record; what two moments differ in, of one run or of
two; what the items of a run have done; and which record set a value of state.json, an item of todo.md, or a message.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from msgspec import Struct

from ...schemas import nearest
from ...workspace.base import SatchelError, UsageError, arguments
from ...workspace.history import (
    LATEST,
    BlamedItem,
    BlamedValue,
    CallChange,
    DataChange,
    MessageChange,
    Origin,
    PlanChange,
    StepHistory,
    Story,
    compared,
    conversations,
    data_origins,
    message_changes,
    message_origins,
    moment_at,
    no_such_item,
    plain,
    plan_origins,
    records_of,
    seq_of,
    step_history,
    story,
)
from ...workspace.inspect import look_beside
from ...workspace.journal import records
from ...workspace.journal.records import Line
from ...workspace.state import ROOT, AgentMoment, Moment, Status, folder_of_agent, json_patch
from ...workspace.views import MessageRow as Said
from ...workspace.views import conversation as message_file
from ...workspace.views import folder_of, status_of
from ..status import LogRow, Place, value_of

_FILE = re.compile(
    r"(?P<agents>(?:agents/[^/]+/)*)(?P<file>state\.json|todo\.md|messages\.jsonl)(?:/(?P<rest>.*))?", re.DOTALL
)

_NAMED = 5


class ShownAgent(Struct, frozen=True):
    """One agent of the tree at a record.

    `path` is "" for the root; `data` that of its state.json, as JSON values; `plan` the text of its todo.md; `open` the
    folders of the items and named scopes that had begun and not committed; `messages` its conversation, each with
    `seq`, `at`, `role` and `content`. None if that is no longer known.
    """

    path: str
    status: Status
    data: Any
    plan: str
    open: list[str]
    messages: list[dict[str, Any]] | None = None


class ConversationMessage(Struct, frozen=True):
    """A message of the conversation of `agent`, as it is now: also as a person has changed it."""

    agent: str
    seq: int
    at: str
    role: str
    content: Any


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


def conversation(place: Place) -> list[ConversationMessage]:
    """The conversations of all agents as they are now, in one. An agent's own order stays: what a person has inserted
    counts as said with what comes before it."""
    moment = look_beside(place.store).moment
    found = conversations(place.store, moment)
    return [*heapq.merge(*(_timed(path, rows) for path, rows in found.items()), key=lambda said: said.at)]


def _timed(path: str, rows: list[Said]) -> Iterator[ConversationMessage]:
    at = ""
    for row in rows:
        at = max(at, row.at)
        yield ConversationMessage(path, row.seq, at, **plain(row))


def _row(line: Line | None) -> LogRow | None:
    return LogRow(records.full(line), line) if line is not None else None


def _shown(moment: Moment, agent: AgentMoment, said: list[Said] | None) -> ShownAgent:
    opened = [folder_of(key, scope.title) for key, scope in agent.scopes.items() if key != ROOT]
    messages = None if said is None else [{"seq": each.seq, "at": each.at, **plain(each)} for each in said]
    return ShownAgent(agent.path, status_of(moment, agent), agent.data, agent.plan.text, opened, messages)


# Compared


class Side(Struct, frozen=True):
    """One of two compared moments: a run right after record `seq`. `result` is what its agent has returned, as a JSON
    value. Retention has removed the records before `since`: the calls of items that had ended by then are missing."""

    url: str
    run_id: str
    seq: int
    at: str
    status: Status
    result: Any
    since: int


class Difference(Struct, frozen=True):
    """What differs from `old` to `new`: values of state.json, plans, outcomes of steps and effects, messages."""

    old: Side
    new: Side
    data: list[DataChange]
    plans: list[PlanChange]
    calls: list[CallChange]
    messages: list[MessageChange] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs. Numbers of records and times don't count."""
        sides = [(side.status, side.result) for side in (self.old, self.new)]
        return not (self.data or self.plans or self.calls or self.messages) and sides[0] == sides[1]


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
    return Difference(*sides, changes.data, changes.plans, changes.calls, [*message_changes(*said)])


def _side(place: Place, found: StepHistory) -> Side:
    moment = found.moment
    try:
        result = value_of(place.store, moment.root.result)
    except SatchelError:
        result = None  # its blob is gone
    return Side(place.url, moment.run_id, moment.seq, moment.last_at, moment.status, result, found.since)


def steps(place: Place, item: str | None, at: int | str | None) -> StepHistory:
    """The work of all items up to a position, or of one item."""
    item = item if item is None else arguments.text("item", item)
    told = story(place.store)
    seq = None if at is None else seq_of(place.store, at, told.records)
    found = step_history(place.store, seq, told)
    if item is None:
        return found
    wanted = f"^{item}" if item.isdecimal() else item.rstrip("/")
    work = [each for each in found.work if wanted in each.names]
    if not work:
        if found.problem:
            raise found.problem
        raise no_such_item(wanted, (name for each in found.work for name in each.names), found.since)
    return StepHistory(found.moment, work, found.since, found.problem)


T = TypeVar("T")


class Blamed(Struct, frozen=True):
    """A value and the record that set it (`origin`).

    `path` is a JSON pointer into `data` of a state.json ("/summaries/a.txt"; "" if the data is empty). In a todo.md it
    is "/^3" for the text of an item, or "/line 7" if it has no id, and "/^3/mark" for its mark if another record set
    that. In a messages.jsonl it is "/57", the `seq` of the message, and `value` has `role` and `content`.
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
            "state.json/KEY, agents/NAME/todo.md/^3, messages.jsonl/SEQ",
        )
    told = story(place.store)
    agent = "/".join(found["agents"].split("/")[1::2])
    file, rest = folder_of_agent(agent) + found["file"], found["rest"] or ""
    if found["file"] == message_file.NAME:
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
