"""A plan in a form that can be compared line by line with another version."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator

from ..splice import BOM, body
from ..task import Row, read_id
from .match import Version


class Sheet:
    """The lines of a plan that are not blank, in order: its *entries*. Blank lines belong to the entry below them.

    An item's line is compared by its number only, so mark, id and words may differ; any other line is compared as it
    is. Items in `without` are left out, each with its own text.
    """

    def __init__(self, version: Version, without: Collection[int] = ()):
        self.version, self.plan, self.numbers = version, version.plan, version.numbers
        self.lines = self.plan.lines
        self.rows = [Row(*row) for row in self.plan.outline()]
        self.at: list[int] = []
        """The line of each entry."""
        self.blanks: list[int] = []
        """How many blank lines are above it."""
        self.rows_at: list[int] = []
        """The item whose line it is, by index; or -1."""
        self.holders: list[int] = []
        """The innermost item it is in, by index; or -1. For an item's own line that is its parent."""
        self.keys: list[int | str] = []
        self.where: dict[int, int] = {}
        """The entry of each item, by number."""
        self._read(without)

    def _read(self, without: Collection[int]) -> None:
        inside, following = -1, 0
        above = -1
        for line, text in enumerate(self.lines):
            words = body(text)
            if not words.strip(f" \t{BOM}"):
                continue
            while inside >= 0 and line >= self.rows[inside].end:
                inside = self.rows[inside].parent
            row, holder = -1, inside
            if following < len(self.rows) and self.rows[following].line == line:
                row = inside = following
                following += 1
                holder = self.rows[row].parent
            own = row if row >= 0 else holder
            if own < 0 or self.numbers[own] not in without:
                if row >= 0:
                    self.where.setdefault(self.numbers[row], len(self.at))
                self.keys.append(self.numbers[row] if row >= 0 else words.removeprefix(BOM))
                self.blanks.append(line - above - 1)
                self.at.append(line)
                self.rows_at.append(row)
                self.holders.append(holder)
            above = line

    def __len__(self) -> int:
        return len(self.at)

    def number(self, entry: int) -> int | None:
        """The number of the item whose line it is."""
        row = self.rows_at[entry]
        return None if row < 0 else self.numbers[row]

    def is_inside(self, entry: int) -> bool:
        """Whether it is an item or belongs to one."""
        return self.rows_at[entry] >= 0 or self.holders[entry] >= 0

    def is_continuation(self, entry: int) -> bool:
        """Whether it is part of an item's own words, below their first line."""
        return self.rows_at[entry] < 0 <= self.holders[entry] and self.at[entry] <= self.rows[self.holders[entry]].last

    def entry_from(self, line: int) -> int:
        """The first entry at or below a line."""
        return bisect_left(self.at, line)

    def below_notes(self, entry: int) -> int:
        """The first entry that is not part of an item's own words or the text right below them."""
        row = self.rows_at[entry]
        place = self.entry_from(self.rows[row].last + 1)
        while place < len(self) and self.rows_at[place] < 0 and self.holders[place] == row:
            place += 1
        return place

    def around(self, entry: int) -> Iterator[int]:
        """The items that contain it, by index, innermost first."""
        row = self.holders[entry]
        while row >= 0:
            yield row
            row = self.rows[row].parent

    def head(self, entry: int) -> str:
        """The part before an item's mark."""
        row = self.rows[self.rows_at[entry]]
        return self.lines[row.line][: row.column]

    def rest(self, entry: int) -> str:
        """The part after an item's mark, without the line's ending."""
        row = self.rows[self.rows_at[entry]]
        return body(self.lines[row.line])[row.column + 1 :]

    def words(self, entry: int) -> str:
        """Like `rest`, without the id and blanks at the end."""
        row = self.rows[self.rows_at[entry]]
        rest = self.rest(entry).rstrip()
        word = read_id(self.lines[row.line], row.column)
        return rest if word is None else rest[: -len(word) - 1].rstrip()

    def said(self, entry: int) -> str:
        """Its text, for a message."""
        row = self.rows_at[entry]
        return self.plan.at(row).text if row >= 0 else body(self.lines[self.at[entry]]).strip()
