"""A plan in a form that can be compared with another version: the lines in each item, and in none."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from ..splice import BOM, body
from ..task import below, read_id
from .match import Version

TOP = -1
"""The holder of what is in no item."""


class Entry(NamedTuple):
    """A line that is not blank. Blank lines belong to the entry below them.

    An item's line is known by its number only, so its mark, id and words may differ between versions. Any other line is
    known by its words, without the indentation of the item it is in.
    """

    number: int
    """Of the item whose line it is; or TOP."""
    words: str
    holder: int
    """The number of the innermost item it is in; or TOP. For an item's own line that is its parent."""
    at: int
    blanks: int
    """How many blank lines are above it."""

    @property
    def is_item(self) -> bool:
        return self.number != TOP

    @property
    def is_inside(self) -> bool:
        """Whether it is an item or in one."""
        return self.is_item or self.holder != TOP


class Sheet:
    """Items in `without` are left out, each with its own text."""

    def __init__(self, version: Version, without: Collection[int] = ()):
        self.version, self.lines = version, version.plan.lines
        self.rows = dict(zip(version.numbers, version.plan.outline(), strict=True))
        self.entries = [each for each in self._read() if (each.number if each.is_item else each.holder) not in without]
        """In the order of the text."""
        self.items = {each.number: each for each in self.entries if each.is_item}
        """By number."""

    def _read(self) -> Iterator[Entry]:
        starts = {row.line: number for number, row in self.rows.items()}
        inside, above = TOP, -1
        for at, line in enumerate(self.lines):
            words = body(line).removeprefix(BOM)
            if not words.strip(" \t"):
                continue
            while inside != TOP and at >= self.rows[inside].end:
                inside = self.parent(inside)
            if at in starts:
                inside = starts[at]
                yield Entry(inside, "", self.parent(inside), at, at - above - 1)
            else:
                yield Entry(TOP, words.removeprefix(self.indentation(inside)), inside, at, at - above - 1)
            above = at

    def content(self, there: Collection[int] | None = None) -> dict[int, list[Entry]]:
        """The entries by the innermost item that they are in, of those that are `there` if that is given."""
        found: dict[int, list[Entry]] = {}
        for each in self.entries:
            holder = each.holder
            if there is not None and holder != TOP and holder not in there:
                holder = self.parent(holder, there)
            found.setdefault(holder, []).append(each)
        return found

    def parent(self, number: int, there: Collection[int] | None = None) -> int:
        """The innermost item around one, of those that are `there` if that is given; or TOP."""
        return next((above for above in self.around(number) if there is None or above in there), TOP)

    def around(self, number: int) -> Iterator[int]:
        """The items around one, innermost first."""
        above = self.version.parent(number)
        while above is not None:
            yield above
            above = self.version.parent(above)

    def head(self, number: int) -> str:
        """The part before an item's mark."""
        row = self.rows[number]
        return self.lines[row.line][: row.column].removeprefix(BOM)

    def indentation(self, number: int) -> str:
        """What a line needs to be inside an item."""
        return "" if number == TOP else below(self.head(number)[:-1])

    def mark(self, number: int) -> str:
        row = self.rows[number]
        return self.lines[row.line][row.column]

    def rest(self, number: int) -> str:
        """The part after an item's mark, without the line's ending."""
        row = self.rows[number]
        return body(self.lines[row.line])[row.column + 1 :]

    def words(self, number: int) -> str:
        """Like `rest`, without the id and blanks at the end."""
        row, rest = self.rows[number], self.rest(number).rstrip()
        word = read_id(self.lines[row.line], row.column)
        return rest if word is None else rest[: -len(word) - 1].rstrip()

    def text(self, number: int) -> str:
        """All of an item's words, for a message."""
        return self.version.tasks[number].text
