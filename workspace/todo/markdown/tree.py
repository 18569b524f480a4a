"""Which tasks are left: counts that are updated when marks change, so that a change costs only the depth of the
tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..task import FINISHED, Mark, Row


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

    def __init__(self, rows: Sequence[Row], marks: list[Mark], own: Collection[int] = ()):
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
