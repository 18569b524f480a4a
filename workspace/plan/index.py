"""The tasks in a text by place, line and id, kept current while marks and ids in it change.

Which of them are left is counted in a tree: a changed mark costs only the depth of the tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import Any

from .task_lines import FINISHED, MARKS, Mark, Task, TaskRow, has_checkbox, read_id, read_text

_revisions = count()

_NUMBER_LENGTH = 15
"""An id with more digits is a word: numbers after it would soon exceed the length of an id."""

_INTEGERS = [int] * len(TaskRow._fields)


class Reading:
    """Tasks by position, line and id. Made new whenever lines are added or removed; `lines` is the plan's own list.
    `revision` is that of a reading with the same rows. `own` are ids, in lower case, of tasks with work of their own:
    it matters for parents."""

    def __init__(
        self, lines: list[str], rows: list[TaskRow], revision: int | None = None, own: Collection[str] = frozenset()
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

    def _id(self, row: TaskRow) -> str:
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


def fitting(lines: Sequence[str], outline: Sequence[Sequence[Any]]) -> list[TaskRow] | None:
    """The rows of an outline if it fits these lines; otherwise None.

    Does not check whether a Markdown parser would agree: an outline saves that.
    """
    rows: list[TaskRow] = []
    path: list[int] = []
    above = -1
    for numbers in outline:
        if [*map(type, numbers)] != _INTEGERS:
            return None
        row = numbers if isinstance(numbers, TaskRow) else TaskRow(*numbers)
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


def remaining(reading: Reading) -> str:
    """The text without finished items and everything inside them.

    Headings, other text, notes, marks and ids stay, also headings with nothing left below them. Repeated blank lines at
    the gaps are reduced.
    """
    kept: list[str] = []
    position = 0
    for row, mark in zip(reading.rows, reading.tree.marks, strict=True):
        if mark in FINISHED and row.line >= position:
            kept += reading.lines[position : row.line]
            position = row.end
            if not kept or not kept[-1].strip():
                while position < len(reading.lines) and not reading.lines[position].strip():
                    position += 1
    return "".join(kept + reading.lines[position:])


class Tree:
    """Parents, children and marks of tasks by index.

    The *work* are the leaves, and the parents in `own`, which are done after what is below them. Work is *settled* when
    its task, or any above it, is done or cancelled: dropping a parent drops what is below.
    """

    __slots__ = (
        "_cursor",
        "_done",
        "_order",
        "_pending",
        "_unsettled",
        "children",
        "dropped",
        "leaves",
        "marks",
        "own",
        "parents",
    )

    def __init__(self, rows: Sequence[TaskRow], marks: list[Mark], own: Collection[int] = ()):
        self.marks = marks
        self.parents = [row.parent for row in rows]
        self.own = {row.parent for row in rows}.intersection(own) if own else frozenset[int]()
        self._pending = [0] * len(rows)  # per task: unsettled work below it, as if its own mark were open
        self._done = [0] * len(rows)  # per task: tasks below it whose own mark is done
        self._unsettled = 0
        self.leaves = len(self.own)  # and the leaves proper
        self.dropped = 0  # settled work of which the nearest mark that settles it is cancelled
        self._cursor = 0  # no work before it, in order, is unsettled
        below: dict[int, list[int]] = {}
        for index in range(len(rows) - 1, -1, -1):  # children come after their parents
            if index not in below:
                self.leaves += 1
            is_work = index not in below or index in self.own
            pending, done, parent = self.pending(index, is_work), self._done[index], self.parents[index]
            if marks[index] == "cancelled":
                self.dropped += self._pending[index] + is_work
            if parent < 0:
                self._unsettled += pending
            else:
                below.setdefault(parent, []).append(index)
                self._pending[parent] += pending
                self._done[parent] += done + (marks[index] == "done")
        self.children = {parent: tuple(reversed(indexes)) for parent, indexes in below.items()}
        self._order: Sequence[int] = [*self._after_what_is_below()] if self.own else range(len(rows))

    def _after_what_is_below(self) -> Iterator[int]:
        """All tasks in the order in which work is done."""
        waiting: list[int] = []
        for index in range(len(self.marks)):
            while waiting and waiting[-1] != self.parents[index]:
                yield waiting.pop()
            waiting.append(index)
        yield from reversed(waiting)

    @property
    def settled(self) -> int:
        return self.leaves - self._unsettled

    def pending(self, index: int, is_work: bool) -> int:
        """Unsettled work at or below a task, whatever is above it."""
        return 0 if self.marks[index] in FINISHED else self._pending[index] + is_work

    def is_work(self, index: int) -> bool:
        """Whether it is a leaf, or a parent with work of its own."""
        return index not in self.children or index in self.own

    def above(self, index: int) -> Iterator[int]:
        """The tasks around one, nearest first."""
        while (index := self.parents[index]) >= 0:
            yield index

    def subtree(self, index: int) -> range:
        """A task and all that are below it."""
        end = index
        while end in self.children:
            end = self.children[end][-1]
        return range(index, end + 1)

    def mark(self, index: int, mark: Mark) -> None:
        is_work = self.is_work(index)
        was, was_done = self.pending(index, is_work), self.marks[index] == "done"
        if self.marks[index] in FINISHED:
            self._cursor = 0 if self.own else min(self._cursor, index)
        of_it = self._pending[index] + is_work
        self.dropped += of_it * ((mark == "cancelled") - (self.marks[index] == "cancelled"))
        self.marks[index] = mark
        more, more_done = self.pending(index, is_work) - was, (mark == "done") - was_done
        for parent in self.above(index):
            self._done[parent] += more_done
            self._pending[parent] += more
            self.dropped += more if self.marks[parent] == "cancelled" else 0
            if self.marks[parent] in FINISHED:
                more = 0
        self._unsettled += more

    def outcome(self, index: int) -> Mark | None:
        """The mark of a parent according to the tasks below it: None while work there is unsettled, and if it has work
        of its own."""
        if self._pending[index] or index in self.own:
            return None
        return "done" if self._done[index] else "cancelled"

    def unsettled(self) -> Iterator[int]:
        """The remaining work, in order. Finding the first is O(1), amortised, while work gets settled."""
        place, first = self._cursor, True
        while place < len(self._order):
            index = self._order[place]
            if self.is_work(index) and not self.is_settled(index):
                if first:
                    self._cursor, first = place, False
                yield index
            place += 1
        if first:
            self._cursor = place

    def is_ready(self, index: int) -> bool:
        """Whether nothing below it is unsettled."""
        return not self._pending[index]

    def is_settled(self, index: int) -> bool:
        """Whether it needs no more work."""
        return self.marks[index] in FINISHED or any(self.marks[parent] in FINISHED for parent in self.above(index))
