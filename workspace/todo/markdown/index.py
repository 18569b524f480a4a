"""The tasks in a text, kept current while marks and ids in it change."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import count
from typing import Any

from ..task import MARKS, Row, Task, has_checkbox, read_id, read_text
from .tree import Tree

_revisions = count()

_NUMBER_LENGTH = 15
"""An id with more digits is a word: numbers after it would soon exceed the length of an id."""


class Reading:
    """Tasks by position, line and id. Made new whenever lines are added or removed; `lines` is the plan's own list.
    `revision` is that of a reading with the same rows. `own` are ids, in lower case, of tasks with work of their own:
    it matters for parents."""

    def __init__(
        self, lines: list[str], rows: list[Row], revision: int | None = None, own: Collection[str] = frozenset()
    ):
        self.lines, self.rows = lines, rows
        self._at = [row.line for row in rows]
        working = [index for index, row in enumerate(rows) if own and self._id(row) in own]
        self.tree = Tree(rows, [MARKS[lines[row.line][row.column]] for row in rows], working)
        self.revision = next(_revisions) if revision is None else revision
        self._read: list[Task | None] = [None] * len(rows)
        self._all: tuple[Task, ...] | None = None
        self._ids: dict[str, int] | None = None  # lower case: ids become names of folders
        self._highest = 0

    @property
    def tasks(self) -> tuple[Task, ...]:
        if self._all is None:
            self._all = tuple(task or self.task(index) for index, task in enumerate(self._read))
        return self._all

    def task(self, index: int) -> Task:
        task = self._read[index]
        if task is None:
            row = self.rows[index]
            line = self.lines[row.line]
            task = self._read[index] = Task(
                index=index,
                line=row.line,
                id=read_id(line, row.column),
                mark=self.tree.marks[index],
                text=read_text(self.lines, row),
                parent=None if row.parent < 0 else row.parent,
                children=self.tree.children.get(index, ()),
                is_work=self.tree.is_work(index),
                revision=self.revision,
            )
        return task

    def _id(self, row: Row) -> str:
        return (read_id(self.lines[row.line], row.column) or "").lower()

    def at_line(self, line: int) -> int | None:
        """The index of the task whose checkbox is on `line`."""
        index = bisect_left(self._at, line)
        return index if index < len(self._at) and self._at[index] == line else None

    def by_id(self, word: str) -> int | None:
        """The index of the first task with this id; upper and lower case are equal."""
        return self._by_id().get(word.lower())

    def highest_number(self) -> int:
        """The greatest id that is a number, or 0."""
        self._by_id()
        return self._highest

    def changed(self, index: int, line: str) -> None:
        """The line of a task gets another mark or id."""
        row = self.rows[index]
        old = self.lines[row.line]
        self.lines[row.line] = line
        if (mark := MARKS[line[row.column]]) != self.tree.marks[index]:
            self.tree.mark(index, mark)
        self._read[index] = self._all = None
        if old[row.column + 1 :] == line[row.column + 1 :]:
            return
        old_id, new_id = read_id(old, row.column), read_id(line, row.column)
        if old_id != new_id:
            if old_id is not None or new_id is None:
                self._ids = None
            elif self._ids is not None:
                self._note_id(new_id, index, self._ids)

    def _by_id(self) -> dict[str, int]:
        if self._ids is None:
            words = [(read_id(self.lines[row.line], row.column), index) for index, row in enumerate(self.rows)]
            self._ids = {word.lower(): index for word, index in reversed(words) if word}  # the first of equal ones wins
            self._highest = max(map(_number, self._ids), default=0)
        return self._ids

    def _note_id(self, word: str, index: int, ids: dict[str, int]) -> None:
        key = word.lower()
        ids[key] = min(index, ids.get(key, index))
        self._highest = max(self._highest, _number(word))


def _number(word: str) -> int:
    return int(word) if word.isdigit() and len(word) <= _NUMBER_LENGTH else 0


_INTEGERS = [int] * len(Row._fields)


def fitting(lines: Sequence[str], outline: Sequence[Sequence[Any]]) -> list[Row] | None:
    """The rows of an outline if it fits these lines; otherwise None.

    Does not check whether a Markdown parser would agree: an outline saves that.
    """
    rows: list[Row] = []
    path: list[int] = []
    above = -1
    for numbers in outline:
        if [*map(type, numbers)] != _INTEGERS:
            return None
        row = numbers if isinstance(numbers, Row) else Row(*numbers)
        if not above < row.line <= row.last < row.end <= len(lines) or not has_checkbox(lines[row.line], row.column):
            return None
        while path and path[-1] != row.parent:
            path.pop()
        if (path[-1] if path else -1) != row.parent or (path and row.end > rows[row.parent].end):
            return None
        path.append(len(rows))
        rows.append(row)
        above = row.last
    return rows
