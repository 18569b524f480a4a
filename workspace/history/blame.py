"""Which record set each value of a run's data, wrote and marked each item of its plan, and said each message.

Pure: it follows the patches and splices of the records. What set a value is a commit, an edit, a migration, or a return
to an earlier record. A value that a patch puts somewhere is that record's, unless the same value was there before: then
it keeps its origin, also when the patch replaces a whole parent or moves a key. Elements of a list keep theirs when
others are added or removed before them. After a return to an earlier record a value has the origin that it had there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from ..base import DEFINITION, Damaged, UsageError
from ..base import lines as text_lines
from ..journal import (
    AgentBegun,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    Doubt,
    Edited,
    FileWritten,
    Key,
    Line,
    Message,
    Migrated,
    OfCall,
    Patch,
    PlanChanged,
    Resolved,
    Rewound,
    SavedFile,
    ScopeBegun,
    ScopeCommitted,
    StepCompleted,
    StepStarted,
)
from ..plan import Mark, Plan, Splice, task_lines
from ..state import FILES, AgentMoment, Moment, earlier_moment, json_patch
from ..store import Store
from ..views import MessageRow
from .moments import conversations

_ITEM = re.compile(
    r"(?P<head>\s*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[)(?P<mark>[ xX/-])(?P<text>\].*?)(?P<id>[ \t]+\^\S+)?\s*"
)
"""The line of an item. Only to compare it with another one: which lines are items, the plan says."""

MISFITS = (LookupError, ValueError, TypeError, AttributeError, RecursionError, UsageError)
"""What a record raises that does not fit the earlier ones. A stranger may have written the journal."""

Place = tuple[str, str]
"""An agent and a scope."""


class Hand(Struct, frozen=True):
    """A person's part in a scope: record `seq` is an answer, a word about an effect in doubt, or an edited result."""

    seq: int
    by: str
    did: Literal["answered", "resolved", "edited"]


class Origin(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The record that set a value.

    `kind`: "commit" of an item or named scope (`title`), or of the agent itself (`scope` is empty); "edit" of a file,
    `by` whom; "migration" to `version` of the state type; "earlier": in record `seq` or one before it, which is no
    longer kept; of an item of the plan also "begun", and "plan", a change by an agent, the runtime or a person (`by`);
    of a file in files/ "put" by a program.
    `prompts`: the versions of each file of prompts/ that the calls of the scope have used. `people`: who
    has answered its questions or edited its results.
    """

    seq: int
    at: str = ""
    kind: Literal["commit", "edit", "migration", "begun", "plan", "put", "earlier"] = "earlier"
    agent: str = ""
    scope: str = ""
    title: str = ""
    by: str = ""
    version: int = 0
    prompts: dict[str, tuple[str, ...]] = {}
    people: tuple[Hand, ...] = ()


class Cell(NamedTuple):
    """Where a value comes from; `back`: the record of the return that has brought it back, or 0."""

    origin: Origin
    back: int = 0


class BlamedValue:
    """A value with its cell. An object or list with something in it has none of its own that counts."""

    __slots__ = ("cell", "value")

    def __init__(self, value: Any, cell: Cell):
        self.value, self.cell = value, cell

    @property
    def is_leaf(self) -> bool:
        return not (type(self.value) in (dict, list) and self.value)

    def copy(self) -> BlamedValue:
        if type(self.value) is dict:
            return BlamedValue({key: each.copy() for key, each in self.value.items()}, self.cell)
        if type(self.value) is list:
            return BlamedValue([each.copy() for each in self.value], self.cell)
        return BlamedValue(self.value, self.cell)

    def below(self, part: str) -> BlamedValue | None:
        """What is at a key or an index; None if there is nothing."""
        if type(self.value) is dict:
            return self.value.get(part)
        if type(self.value) is list and part.isdecimal() and part.isascii() and int(part) < len(self.value):
            found: BlamedValue = self.value[int(part)]
            return found
        return None

    def leaves(self, path: str = "") -> Iterator[tuple[str, BlamedValue]]:
        """Every value below that has no parts, by its JSON pointer."""
        if self.is_leaf:
            yield path, self
            return
        parts = self.value.items() if type(self.value) is dict else enumerate(self.value)
        for part, each in parts:
            yield from each.leaves(f"{path}/{json_patch.escape(str(part))}")


def data_origins(start: Moment, lines: Sequence[Line]) -> dict[str, BlamedValue]:
    """The data of each agent that has some, after `lines`, which follow from `start`. What `start` has is of its record
    or an earlier one. Damaged if a record does not fit the earlier ones."""
    blaming = _Blaming(start, lines)
    for line in lines:
        try:
            blaming.add(line)
        except MISFITS as error:
            raise misfit(line, error) from error
    return blaming.trees


def misfit(line: Line, error: Exception) -> Damaged:
    return Damaged(
        f"record {line.seq} does not fit the records before it",
        path="journal",
        why=f"{type(error).__name__}: {error}",
        remedy="`satchel check` says what is wrong with it",
    )


class _Blaming:
    def __init__(self, start: Moment, lines: Sequence[Line]):
        self.scopes = Scopes(start)
        known = Cell(Origin(seq=start.seq))
        self.trees = {path: _made(agent.data, None, known) for path, agent in start.agents.items() if agent.has_data}
        self._then: dict[int, dict[str, BlamedValue]] = {}  # the data at each record that was returned to
        self._targets = {line.record.to for line in lines if isinstance(line.record, Rewound)}
        self._note(start.seq)

    def add(self, line: Line) -> None:
        record = line.record
        returned = self.scopes.add(line)
        for path, agent in returned.items():
            self._restore(path, agent, line)
        if isinstance(record, ScopeCommitted | Migrated | Edited) and record.patch and _is_of_data(record):
            tree = self.trees.get(record.agent)
            self.trees[record.agent] = _patched(tree, record.patch, Cell(self.scopes.origin(line)))
        self._note(line.seq)

    def _restore(self, path: str, agent: AgentMoment, line: Line) -> None:
        assert isinstance(line.record, Rewound)
        before = self.trees.pop(path, None)
        if agent.has_data:
            then = self._then.get(line.record.to, {}).get(path)
            cell = Cell(Origin(seq=line.record.to), line.seq)  # of what the return has changed, if `then` is not kept
            self.trees[path] = _restored(_made(agent.data, before, cell), then, before, line.seq)

    def _note(self, seq: int) -> None:
        if seq in self._targets:
            self._then[seq] = {path: tree.copy() for path, tree in self.trees.items()}


def _is_of_data(record: AnyRecord) -> bool:
    """Not of workspace.yaml, whose edits are patches, too."""
    return not (isinstance(record, Edited) and record.file == DEFINITION)


class Scopes:
    """What went into the scopes of a run: their titles, the prompts of their calls, and the hands of people."""

    def __init__(self, start: Moment):
        self._agents = {*start.agents}
        self._titles: dict[Place, str] = {}
        self._prompts: dict[Place, dict[Key, OfCall]] = {}
        self._hands: dict[Place, list[Hand]] = {}
        self._asked: dict[str, Place] = {}
        self._know(start.agents)
        questions: list[ApprovalAsked | Doubt] = [*start.approvals.values(), *start.doubts.values()]
        for asked in questions:
            self._asked[asked.id] = asked.agent, asked.scope

    def _know(self, agents: Mapping[str, AgentMoment]) -> None:
        """What the open scopes of these agents have done."""
        for path, agent in agents.items():
            for key, scope in agent.scopes.items():
                self._titles[path, key] = scope.title
                self._prompts[path, key] = {**scope.started, **scope.done}

    def add(self, line: Line) -> Mapping[str, AgentMoment]:
        """Returns the agents that a return to an earlier record has changed; of another record none."""
        record = line.record
        if isinstance(record, Rewound):
            agents = earlier_moment.unpacked(record.agents, self._agents)
            for place in [place for place in self._prompts if place[0] in agents]:
                del self._prompts[place]
            for (path, _), hands in self._hands.items():
                if path in agents:
                    hands[:] = [hand for hand in hands if hand.did != "edited"]
            self._know(agents)
            return agents
        if isinstance(record, OfCall):
            place = record.agent, record.scope
            if record.prompts:
                self._prompts.setdefault(place, {})[record.key] = record
            if isinstance(record, ApprovalAsked | Doubt):
                self._asked[record.id] = place
        elif isinstance(record, AgentBegun):
            self._agents.add(record.agent)
        elif isinstance(record, ScopeBegun):
            self._titles[record.agent, record.scope] = record.title
        elif isinstance(record, ApprovalAnswered | Resolved) and record.id in self._asked:
            did: Literal["answered", "resolved"] = "answered" if isinstance(record, ApprovalAnswered) else "resolved"
            self._hands.setdefault(self._asked[record.id], []).append(Hand(line.seq, record.by, did))
        elif isinstance(record, Edited):
            self._edited(line, record)
        return {}

    def _edited(self, line: Line, record: Edited) -> None:
        for key in record.redone:  # its steps run again, and its effects and answers stay
            place = record.agent, key
            self._forget(place)
            self._hands[place] = [hand for hand in self._hands.get(place, []) if hand.did != "edited"]
        if record.step is not None:
            place = record.agent, record.step.scope
            self._prompts.get(place, {}).pop(record.step.key, None)
            if not record.step.redo:
                self._hands.setdefault(place, []).append(Hand(line.seq, record.by, "edited"))

    def _forget(self, place: Place) -> None:
        calls = self._prompts.get(place, {})
        self._prompts[place] = {key: call for key, call in calls.items() if _is_effect(call)}

    def origin(self, line: Line) -> Origin:
        """The origin of what this record sets."""
        record = line.record
        if isinstance(record, ScopeCommitted):
            place = record.agent, record.scope
            prompts: dict[str, tuple[str, ...]] = {}
            for call in self._prompts.get(place, {}).values():
                for name, version in call.prompts.items():
                    known = prompts.get(name, ())
                    prompts[name] = known if version in known else (*known, version)
            return Origin(
                seq=line.seq,
                at=line.at,
                kind="commit",
                agent=record.agent,
                scope=record.scope,
                title=self._titles.get(place, ""),
                prompts=prompts,
                people=tuple(self._hands.get(place, ())),
            )
        if isinstance(record, Migrated):
            return Origin(seq=line.seq, at=line.at, kind="migration", agent=record.agent, version=record.to)
        if isinstance(record, ScopeBegun):
            return Origin(
                seq=line.seq, at=line.at, kind="begun", agent=record.agent, scope=record.scope, title=record.title
            )
        if isinstance(record, PlanChanged):
            by = record.person or ("a person" if record.by == "person" else record.by)
            return Origin(seq=line.seq, at=line.at, kind="plan", agent=record.agent, by=by)
        by = getattr(record, "by", "") or "a person"
        return Origin(seq=line.seq, at=line.at, kind="edit", agent=record.agent, by=by)


def _is_effect(call: OfCall) -> bool:
    return isinstance(call, StepStarted) or (isinstance(call, StepCompleted) and call.effect)


def _made(value: Any, was: BlamedValue | None, cell: Cell) -> BlamedValue:
    """The value as it is put where `was` is. The equal values below keep their cells."""
    if type(value) is dict and value:
        known = was.value if was is not None and type(was.value) is dict else {}
        return BlamedValue({key: _made(each, known.get(key), cell) for key, each in value.items()}, cell)
    if type(value) is list and value:
        before = was.value if was is not None and type(was.value) is list else []
        rest = len(value) - len(before)
        return BlamedValue([_made(*pair, cell) for pair in zip(value, [*before, *[None] * rest], strict=False)], cell)
    if was is not None and _is_same_leaf(was, value):
        cell = was.cell
    return BlamedValue(type(value)() if type(value) in (dict, list) else value, cell)


def _patched(tree: BlamedValue | None, patch: Patch, cell: Cell) -> BlamedValue:
    """`tree` with the patch, changed in place. An object or list that becomes empty is a value, and this record's."""
    root = BlamedValue([tree] if tree is not None else [], cell)  # so that the whole has a place, too
    removed: dict[
        tuple[int, str], tuple[BlamedValue, BlamedValue]
    ] = {}  # members of objects, which may be added again in this patch
    for change in patch:
        *parents, last = json_patch.split(str(change["path"])) or ["0"]
        target = root
        for part in (["0", *parents]) if change["path"] else []:
            found = target.below(part)
            if found is None:
                raise LookupError(change["path"])
            target = found
        operation, inside = change["op"], target.value
        if operation == "remove":
            if type(inside) is dict:
                removed[id(target), last] = target, inside.pop(last)
            else:
                del inside[int(last)]
            if not inside:
                target.cell = cell
        elif type(inside) is dict:
            was = inside[last] if last in inside else removed.pop((id(target), last), (target, None))[1]
            inside[last] = _made(change["value"], was, cell)
        elif target is root:
            root.value = [_made(change["value"], inside[0] if inside else None, cell)]
        elif operation == "add":
            inside.insert(len(inside) if last == "-" else int(last), _made(change["value"], None, cell))
        else:
            inside[int(last)] = _made(change["value"], inside[int(last)], cell)
    result: BlamedValue = root.value[0]
    return result


def _restored(now: BlamedValue, then: BlamedValue | None, before: BlamedValue | None, back: int) -> BlamedValue:
    """What was the same `then` has its origin from there; and was brought back, unless it is as it was `before`."""
    if now.is_leaf:
        if then is None or not _is_same_leaf(then, now.value):
            return now
        is_as_before = before is not None and _is_same_leaf(before, now.value) and before.cell == then.cell
        now.cell = then.cell if is_as_before else Cell(then.cell.origin, back)
        return now
    parts = now.value.items() if type(now.value) is dict else ((str(at), each) for at, each in enumerate(now.value))
    found = {part: _restored(each, _part(then, now, part), _part(before, now, part), back) for part, each in parts}
    return BlamedValue(found if type(now.value) is dict else [*found.values()], now.cell)


def _part(other: BlamedValue | None, like: BlamedValue, part: str) -> BlamedValue | None:
    return other.below(part) if other is not None and type(other.value) is type(like.value) else None


def _is_same_leaf(node: BlamedValue, value: Any) -> bool:
    return node.is_leaf and json_patch.same(node.value, value)


class SaidBy(NamedTuple):
    """A message, and the record that has said it, or changed it last."""

    row: MessageRow
    origin: Origin


def message_origins(store: Store, start: Moment, now: Moment, lines: Sequence[Line]) -> dict[str, list[SaidBy]]:
    """The messages of each agent after `lines`, which lead from `start` to `now`. Damaged if a record does not fit the
    earlier ones."""
    scopes = Scopes(start)
    origins: dict[tuple[str, int], Origin] = {}
    waiting: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        record = line.record
        try:
            scopes.add(line)
        except MISFITS as error:
            raise misfit(line, error) from error
        if isinstance(record, Message):
            waiting.setdefault((record.agent, record.scope), []).append(line)
        elif isinstance(record, ScopeCommitted):
            for each in waiting.pop((record.agent, record.scope), ()):
                origins[record.agent, each.seq] = scopes.origin(line)
        elif isinstance(record, Edited):
            for edit in record.messages:
                origins[record.agent, edit.seq or line.seq] = scopes.origin(line)
    return {
        path: [SaidBy(row, origins.get((path, row.seq), Origin(seq=row.seq, at=row.at))) for row in rows]
        for path, rows in conversations(store, now).items()
    }


class BlamedLine(NamedTuple):
    """A line of a file in files/, and the record that has put it there."""

    text: str
    origin: Origin


def line_origins(start: Moment, lines: Sequence[Line], path: str) -> list[BlamedLine] | None:
    """The lines of a file in files/ after `lines`, which follow from `start`. None if it is not there, or is no short
    text: then only its whole versions are known."""
    from difflib import SequenceMatcher  # slow, and for this only

    known = start.root.files.get(path)
    found = None if known is None else _lines_of(known.content, Origin(seq=known.version, at=known.at))
    for line in lines:
        match line.record:
            case FileWritten(path=written, content=content) if written == path:
                origin = Origin(seq=line.seq, at=line.at, kind="put")
            case Edited(file=file, written=content, by=by) if file == FILES + path and content is not None:
                origin = Origin(seq=line.seq, at=line.at, kind="edit", by=by)
            case _:
                continue
        was = found or []
        found = None if content is None else _lines_of(content, origin)
        if found is not None:
            texts = [each.text for each in was], [each.text for each in found]
            for at, now, size in SequenceMatcher(None, *texts, autojunk=False).get_matching_blocks():
                found[now : now + size] = was[at : at + size]
    return found


def _lines_of(content: SavedFile, origin: Origin) -> list[BlamedLine] | None:
    if content.blob:
        return None
    return [BlamedLine(text, origin) for text in text_lines(content.text.removesuffix("\n"))]


class BlamedItem(Struct, frozen=True):
    """An item with the record that `wrote` its text, and the one that `marked` it as it is now. `line` counts from
    0."""

    line: int
    id: str | None
    mark: Mark
    text: str
    wrote: Origin
    marked: Origin


class _Cell(NamedTuple):
    """The origins of one line."""

    wrote: Origin
    marked: Origin


class _Sheet:
    """The lines of a plan, each with its origins."""

    def __init__(self, lines: Sequence[str], origin: Origin):
        self._lines, self._cells = [*lines], [_Cell(origin, origin) for _ in lines]

    def apply(self, change: Splice, origin: Origin) -> None:
        """An equal line, or one with another mark or id only, keeps what is the same."""
        at, end = change.line, change.line + change.removed
        old, cells, texts = self._lines[at:end], self._cells[at:end], task_lines.split(change.text)
        due = len(self._lines) - len(old) + len(texts)
        everything = [*self._lines]
        task_lines.apply(self._lines, change)
        if len(self._lines) != due:  # two lines have become one where they meet
            at, end, old, cells, texts = 0, len(everything), everything, self._cells, self._lines
        self._cells[at:end] = _carried(old, cells, texts, origin)

    def copy(self) -> _Sheet:
        found = copy(self)
        found._lines, found._cells = [*self._lines], [*self._cells]
        return found

    def become(self, texts: Sequence[str], then: _Sheet | None, origin: Origin) -> None:
        """All at once, by a return to an earlier record. `then`: the sheet at that record: its origins count again."""
        now = _matched(self._lines, self._cells, texts, origin)
        was: Sequence[_Cell | None] = now
        if then is not None:
            is_same = then._lines == [*texts]  # lines without an id may be equal
            was = then._cells if is_same else _matched(then._lines, then._cells, texts, origin)
        self._cells = [one or other or _Cell(origin, origin) for one, other in zip(was, now, strict=True)]
        self._lines = [*texts]

    def items(self) -> list[BlamedItem]:
        tasks = Plan("".join(self._lines)).tasks
        return [BlamedItem(each.line, each.id, each.mark, each.text, *self._cells[each.line]) for each in tasks]


def plan_origins(start: Moment, lines: Sequence[Line]) -> dict[str, list[BlamedItem]]:
    """The items of each agent's plan after `lines`, which follow from `start`. Damaged as of `data_origins`."""
    scopes, known = Scopes(start), Origin(seq=start.seq)
    sheets = {path: _Sheet(agent.plan.lines, known) for path, agent in start.agents.items()}
    targets = {line.record.to for line in lines if isinstance(line.record, Rewound)}
    then = {start.seq: {path: sheet.copy() for path, sheet in sheets.items()}}  # at each record that was returned to
    for line in lines:
        try:
            _follow(sheets, scopes, line, known, then)
        except MISFITS as error:
            raise misfit(line, error) from error
        if line.seq in targets:
            then[line.seq] = {path: sheet.copy() for path, sheet in sheets.items()}
    return {path: sheet.items() for path, sheet in sheets.items()}


def _follow(
    sheets: dict[str, _Sheet], scopes: Scopes, line: Line, known: Origin, then: dict[int, dict[str, _Sheet]]
) -> None:
    returned = scopes.add(line)
    record = line.record
    if isinstance(record, Rewound):
        for path, agent in returned.items():
            was = then.get(record.to, {}).get(path)
            sheets.setdefault(path, _Sheet((), known)).become(agent.plan.lines, was, scopes.origin(line))
    if isinstance(record, ScopeBegun | ScopeCommitted | PlanChanged | Edited) and record.plan:
        origin = scopes.origin(line)
        for change in record.plan:
            sheets.setdefault(record.agent, _Sheet((), known)).apply(change, origin)


def _carried(old: Sequence[str], cells: Sequence[_Cell], texts: Sequence[str], origin: Origin) -> list[_Cell]:
    return [cell or _Cell(origin, origin) for cell in _matched(old, cells, texts, origin)]


def _matched(old: Sequence[str], cells: Sequence[_Cell], texts: Sequence[str], origin: Origin) -> list[_Cell | None]:
    """The cells of equal lines, and of those that differ in the mark or the id."""
    same = dict(zip(reversed(old), reversed(cells), strict=True))
    alike = {_words(text): (_mark(text), cell) for text, cell in zip(reversed(old), reversed(cells), strict=True)}
    found = []
    for text in texts:
        cell = same.get(text)
        if cell is None and (was := alike.get(_words(text))) is not None:
            mark, cell = was
            cell = cell if mark == _mark(text) else _Cell(cell.wrote, origin)
        found.append(cell)
    return found


def _words(line: str) -> str:
    """An item without its mark and id."""
    item = _ITEM.fullmatch(line)
    return f"{item['head']}{item['text']}" if item else line


def _mark(line: str) -> str:
    item = _ITEM.fullmatch(line)
    return item["mark"].lower() if item else ""
