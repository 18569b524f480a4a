"""Which tasks are left: counts that are updated when marks change, so that a change costs only the depth of the
tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..task import FINISHED, Mark, Row


class Tree:
    """Parents, children and marks of tasks by index.

    A leaf is *settled* when it, or any task above it, is done or cancelled: dropping a parent drops what is below.
    """

    __slots__ = ("_cursor", "_done", "_pending", "_unsettled", "children", "dropped", "leaves", "marks", "parents")

    def __init__(self, rows: Sequence[Row], marks: list[Mark]):
        self.marks = marks
        self.parents = [row.parent for row in rows]
        self._pending = [0] * len(rows)  # per task: unsettled leaves below it, as if its own mark were open
        self._done = [0] * len(rows)  # per task: tasks below it whose own mark is done
        self._unsettled = self.leaves = 0
        self.dropped = 0  # settled leaves of which the nearest mark that settles them is cancelled
        self._cursor = 0  # no leaf before it is unsettled
        below: dict[int, list[int]] = {}
        for index in range(len(rows) - 1, -1, -1):  # children come after their parents
            if index not in below:
                self.leaves += 1
            pending, done, parent = self.pending(index, index not in below), self._done[index], self.parents[index]
            if marks[index] == "cancelled":
                self.dropped += self._pending[index] if index in below else 1
            if parent < 0:
                self._unsettled += pending
            else:
                below.setdefault(parent, []).append(index)
                self._pending[parent] += pending
                self._done[parent] += done + (marks[index] == "done")
        self.children = {parent: tuple(reversed(indexes)) for parent, indexes in below.items()}

    @property
    def settled(self) -> int:
        return self.leaves - self._unsettled

    def pending(self, index: int, is_leaf: bool) -> int:
        """Unsettled leaves at or below a task, whatever is above it."""
        if self.marks[index] in FINISHED:
            return 0
        return 1 if is_leaf else self._pending[index]

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
        is_leaf = index not in self.children
        was, was_done = self.pending(index, is_leaf), self.marks[index] == "done"
        if self.marks[index] in FINISHED:
            self._cursor = min(self._cursor, index)
        of_it = 1 if is_leaf else self._pending[index]
        self.dropped += of_it * ((mark == "cancelled") - (self.marks[index] == "cancelled"))
        self.marks[index] = mark
        more, more_done = self.pending(index, is_leaf) - was, (mark == "done") - was_done
        for parent in self.above(index):
            self._done[parent] += more_done
            self._pending[parent] += more
            self.dropped += more if self.marks[parent] == "cancelled" else 0
            if self.marks[parent] in FINISHED:
                more = 0
        self._unsettled += more

    def outcome(self, index: int) -> Mark | None:
        """The mark of a parent according to the tasks below it: None while one of their leaves is unsettled."""
        if self._pending[index]:
            return None
        return "done" if self._done[index] else "cancelled"

    def unsettled(self) -> Iterator[int]:
        """The remaining leaves, in order. Finding the first is O(1), amortised, while leaves get settled."""
        index, first = self._cursor, True
        while index < len(self.marks):
            if index not in self.children and not self.is_settled(index):
                if first:
                    self._cursor, first = index, False
                yield index
            index += 1
        if first:
            self._cursor = index

    def is_settled(self, index: int) -> bool:
        """Whether a leaf needs no more work."""
        return self.marks[index] in FINISHED or any(self.marks[parent] in FINISHED for parent in self.above(index))
