"""Which record wrote each item of a plan, and which gave it its mark. Pure: it follows the splices of the records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

from msgspec import Struct

from ..journal.records import Edited, Line, PlanChanged, Rewound, ScopeBegun, ScopeCommitted
from ..state import Moment
from ..todo import Mark, Plan, Splice, splice
from .blame import MISFITS, Origin, Scopes, misfit

_ITEM = re.compile(
    r"(?P<head>\s*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[)(?P<mark>[ xX/-])(?P<text>\].*?)(?P<id>[ \t]+\^\S+)?\s*"
)
"""The line of an item. Only to compare it with another one: which lines are items, the plan says."""


class Item(Struct, frozen=True):
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
        old, cells, texts = self._lines[at:end], self._cells[at:end], splice.split(change.text)
        due = len(self._lines) - len(old) + len(texts)
        everything = [*self._lines]
        splice.apply(self._lines, change)
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

    def items(self) -> list[Item]:
        tasks = Plan("".join(self._lines)).tasks
        return [Item(each.line, each.id, each.mark, each.text, *self._cells[each.line]) for each in tasks]


def plan_origins(start: Moment, lines: Sequence[Line]) -> dict[str, list[Item]]:
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
