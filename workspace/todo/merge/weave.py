"""The lines of a person's file, with the run's additions put in and its removals left out."""

from __future__ import annotations

from typing import NamedTuple

from ..splice import BOM, body, ending
from ..task import below
from .conflict import PlanConflict, Questions
from .content import Put, merge_content
from .items import Items
from .sheet import TOP, Sheet


class Woven(NamedTuple):
    """`holders` are the items in the order of the text, by number, each with the item that it is in."""

    text: str
    holders: dict[int, int]
    is_complete: bool
    """Whether all items are in it: none is lost with the one that it was in, and none is in itself."""


def weave(base: Sheet, ours: Sheet, theirs: Sheet, questions: Questions) -> Woven:
    """Join the lines of two versions, item by item. Marks and ids stay as either side has them.

    Theirs is the frame: its order, its blank lines and its endings stay. Where both added at the same place, ours comes
    second.
    """
    items = Items(base, ours, theirs, questions)
    before, content = -1, dict[int, list[Put]]()
    while before != items.count and not (content and questions.open):  # a resolved conflict may take items out
        before, content = items.count, _content(items)
    return _Weaving(items, content).run()


def _content(items: Items) -> dict[int, list[Put]]:
    base, theirs = items.base.content(items.there), items.theirs.content(items.there)
    ours, holders = items.ours.content(), [TOP, *items.there]
    return {
        each: merge_content(items, base.get(each, []), ours.get(each, []), theirs.get(each, [])) for each in holders
    }


class _Weaving:
    def __init__(self, items: Items, content: dict[int, list[Put]]):
        self.items, self.content = items, content
        self.ours, self.theirs = items.ours, items.theirs
        self.lines: list[str] = []
        self.holders: dict[int, int] = {}
        self.style = (ending(self.theirs.lines[0]) if self.theirs.lines else "") or "\n"

    def run(self) -> Woven:
        self._write(TOP, "")
        theirs = self.theirs
        if rest := theirs.lines[theirs.entries[-1].at + 1 if theirs.entries else 0 :]:
            self._put(rest[:-1], rest[-1])
        text = "".join(line.removeprefix(BOM) for line in self.lines)
        bom = BOM * "".join(theirs.lines[:1]).startswith(BOM)
        return Woven(bom + text, self.holders, self.holders.keys() == self.items.there)

    def _write(self, holder: int, indentation: str) -> None:
        """Write what an item holds. Its lines are as deep as it is now."""
        for sheet, entry, blanks in self.content[holder]:
            line = sheet.lines[entry.at]
            head = ""
            if entry.is_item:
                self.holders[entry.number] = holder
                head = self._head(sheet, entry.number, indentation)
                words = head + self._rest(sheet, entry.number)
            else:
                words = _fitted(body(line), sheet.indentation(entry.holder), indentation)
            if sheet is self.theirs:
                end = ending(line)
                own = sheet.lines[entry.at - entry.blanks : entry.at][:blanks]
                own = (*own, *[end or self.style] * (blanks - len(own)))
            else:
                end = (ending(self.lines[-1]) if self.lines else "") or self.style
                own = (end,) * blanks
            self._put(own, words + end)
            if entry.is_item:
                self._write(entry.number, below(head[:-1]))

    def _put(self, blanks: tuple[str, ...], line: str) -> None:
        if self.lines and not ending(self.lines[-1]):
            self.lines[-1] += self.style
        self.lines += [*blanks, line]

    def _head(self, sheet: Sheet, number: int, indentation: str) -> str:
        """The part before the mark of an item, from the side that has changed it."""
        base, ours = self.items.base, self.ours
        is_same = sheet is self.theirs and number in ours.items and number in base.items
        if is_same and ours.parent(number) == sheet.parent(number) and sheet.head(number) == base.head(number):
            sheet = ours
        return _fitted(sheet.head(number), sheet.indentation(sheet.parent(number)), indentation)

    def _rest(self, sheet: Sheet, number: int) -> str:
        """The mark of an item and what follows it, with mark and id of one side."""
        if number not in self.ours.items or number not in self.theirs.items:
            return sheet.mark(number) + sheet.rest(number)
        return self.theirs.mark(number) + (self.ours if self._is_worded_by_ours(number) else self.theirs).rest(number)

    def _is_worded_by_ours(self, number: int) -> bool:
        sheets = self.items.base, self.ours, self.theirs
        was, mine, its = (
            (sheet.words(number), sheet.text(number)) if number in sheet.items else None for sheet in sheets
        )
        if mine in (its, was):
            return False
        if its == was:
            return True
        task = self.theirs.version.tasks[number]
        return self.items.questions.ask(PlanConflict(task.line + 1, task.text, "text")) == "ours"


def _fitted(line: str, old: str, new: str) -> str:
    return new + line[len(old) :] if line.startswith(old) else line
