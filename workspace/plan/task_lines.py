"""The lines of a plan and the tasks in them: a text as lines, and the one kind of change to it, which replaces whole
lines by others; the fields of the line of a task, `  - [m] text ^id`; and all tasks by place, line and id, kept current
while marks and ids in the lines change.

Which tasks are left is counted in a tree: a changed mark costs only the depth of the tree.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from ..base import ID, UsageError

BOM = "\ufeff"
BREAK = re.compile(r"\r\n|\r|\n")
"""What ends a line in Markdown. `str.splitlines` would also split at form feeds, \\x85, \\u2028 and others."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

Mark = Literal["open", "begun", "done", "cancelled"]

MARKS: dict[str, Mark] = {" ": "open", "/": "begun", "x": "done", "X": "done", "-": "cancelled"}
CHARACTERS: dict[Mark, str] = {"open": " ", "begun": "/", "done": "x", "cancelled": "-"}
FINISHED: frozenset[Mark] = frozenset(("done", "cancelled"))

_CHECKBOX = re.compile(r"\[([ xX/-])\](?=[ \t\r\n]|\Z)")
_HEAD = re.compile(r"(?P<lead>.*?)(?P<marker>[-+*]|[0-9]{1,9}[.)])(?P<gap>[ \t]+)", re.DOTALL)
_MILESTONE = re.compile(r"(?:[-+*][ \t]+)?milestone:[ \t]*true", re.IGNORECASE)
_MISTYPED = re.compile(
    r"(?:[-+*][ \t]+)?milestones?[ \t]*[:=]?[ \t]*[\"']?(?:tru\w*|yes|y|on|1|x|false|no|n|off|0)?[\"']?[.,;]?",
    re.IGNORECASE,
)
"""What a person may mistake for such a line. Any other word after it is text."""

_revisions = count()

_NUMBER_LENGTH = 15
"""An id with more digits is a word: numbers after it would soon exceed the length of an id."""


class Splice(NamedTuple):
    """Replace `removed` lines from `line` (0-based) on by `text`, which is zero or more whole lines.

    It names lines, not tasks, so that a version that parses Markdown differently can replay it. Each of several splices
    counts lines as the earlier ones left them.
    """

    line: int
    removed: int
    text: str


def split(text: str) -> list[str]:
    """The lines of `text`, each with its ending; only the last may have none. Joined they are `text` again."""
    return _LINE.findall(text)


def body(line: str) -> str:
    """`line` without its ending."""
    return line.rstrip("\r\n")  # a line holds no other \r or \n


def ending(line: str) -> str:
    """ "\\r\\n", "\\r" or "\\n", or "" for a last line that has none."""
    return line[len(body(line)) :]


def ending_at(lines: list[str], at: int) -> str:
    """The ending for lines inserted at `at`: that of the line above.

    Another one could join: a "\\n" after a line that ends in "\\r" makes one ending of two.
    """
    above = next((found for line in reversed(lines[max(0, at - 2) : at]) if (found := ending(line))), "")
    return above or (ending(lines[0]) if lines else "") or "\n"


def insertion(lines: list[str], at: int, bodies: list[str]) -> Splice:
    """The splice that puts `bodies` before line `at`. A last line without an ending is given one."""
    end = ending_at(lines, at)
    text = "".join(line + end for line in bodies)
    if at > 0 and not ending(lines[at - 1]):
        return Splice(at - 1, 1, lines[at - 1] + end + text)
    return Splice(at, 0, text)


def apply(lines: list[str], change: Splice) -> None:
    """Change `lines` in place. UsageError, with nothing changed, if it names lines that do not exist."""
    line, removed, text = change
    if line < 0 or removed < 0 or line + removed > len(lines):
        raise UsageError(
            f"a change of lines {line + 1} to {line + removed} does not fit a plan of {len(lines)} lines",
            remedy="apply it to the text it was made for",
        )
    new = split(text)
    lines[line : line + removed] = new
    if any(_fused(lines, seam) for seam in (line, line + len(new))):
        lines[:] = split("".join(lines))


def _fused(lines: list[str], seam: int) -> bool:
    """Whether the lines on both sides of `seam` are one line once they are joined."""
    if not 0 < seam < len(lines):
        return False
    above = lines[seam - 1]
    return not ending(above) or (above[-1] == "\r" and lines[seam][0] == "\n")


def between(old: list[str], new: list[str]) -> list[Splice]:
    """The change from `old` to `new`, both as `split` makes them: one splice for all differences, or none."""
    shortest = min(len(old), len(new))
    start = 0
    while start < shortest and old[start] == new[start]:
        start += 1
    end = 0
    while end < shortest - start and old[-1 - end] == new[-1 - end]:
        end += 1
    removed = len(old) - end - start
    text = "".join(new[start : len(new) - end])
    return [Splice(start, removed, text)] if removed or text else []


class Task(Struct, frozen=True):
    """A task-list item as it was when it was read. Later edits of the plan don't change it.

    `index` counts tasks, `line` counts lines, both from 0 in the order of the text; `parent` and `children` are
    indexes. `text` is the item's first paragraph on one line, without checkbox and id, and without a line of it that
    only makes the item a milestone. `is_work`: it is a leaf, or had work of its own before it got children.
    """

    index: int
    line: int
    id: str | None
    mark: Mark
    text: str
    parent: int | None
    children: tuple[int, ...]
    is_work: bool
    revision: int
    """Which reading of which text it comes from: without an id, an index has no meaning in another one."""

    def __eq__(self, other: object) -> bool:
        """The same place and text, whichever reading they come from."""
        return isinstance(other, Task) and astuple(self)[:-1] == astuple(other)[:-1]

    def __ne__(self, other: object) -> bool:  # a Struct's own would compare all fields
        return not self == other

    def __hash__(self) -> int:
        return hash(astuple(self)[:-1])

    @property
    def known_by(self) -> str:
        """Its id; as long as it has none, its text."""
        return self.text if self.id is None else self.id

    @property
    def is_leaf(self) -> bool:
        """No tasks below it."""
        return not self.children

    @property
    def is_finished(self) -> bool:
        """Done or cancelled by its own mark; an item above it may settle it too."""
        return self.mark in FINISHED


class TaskRow(NamedTuple):
    """The place of a task: everything that needs a Markdown parser.

    `column` is that of the mark's character. `parent` is an index or -1. `last` is the last line of the first
    paragraph. `end` is the line after the item's last one that is not blank, sub-items included.
    """

    line: int
    column: int
    parent: int
    last: int
    end: int


class TaskHead(NamedTuple):
    """The part before a checkbox: `lead` is outside the item, `marker` is its bullet or number."""

    lead: str
    marker: str
    gap: str


def has_checkbox(line: str, column: int) -> bool:
    """Whether a checkbox whose mark is at `column` opens a list item there. Doesn't know of code fences and such."""
    return column > 0 and _ends_with_checkbox(line[: column + 3], column - 1)  # a list's lines begin alike


@functools.lru_cache(maxsize=1024)
def _ends_with_checkbox(line: str, at: int) -> bool:
    return bool(_CHECKBOX.match(line, at)) and bool(_HEAD.fullmatch(line, 0, at))


def head_of(line: str, column: int) -> TaskHead:
    """Take apart the part before a checkbox that `has_checkbox` has found."""
    found = _HEAD.fullmatch(line, 0, column - 1)
    assert found is not None, line
    return TaskHead(*found.groups())


def below(lead: str) -> str:
    """What a following line needs in place of `lead` to be inside the same quotes and items."""
    return "".join(c if c in "> \t" else " " for c in lead if c != BOM)


def read_id(line: str, column: int) -> str | None:
    return _cut_id(line[column + 2 :])[1] if "^" in line else None


def read_text(lines: Sequence[str], row: TaskRow) -> str:
    """The text of the item. Only what Markdown removes is removed, and one backslash of a last ` \\^word`."""
    first = lines[row.line]
    text = _unescape(_cut_id(body(first)[row.column + 2 :])[0].strip())
    if row.last == row.line:
        return text
    depth = first.count(">", 0, row.column)
    rest = (unquoted(body(line), depth).strip() for line in lines[row.line + 1 : row.last + 1])
    return " ".join(part for part in (text, *rest) if part and not _MILESTONE.fullmatch(part))


def is_milestone(lines: Sequence[str], row: TaskRow, end: int) -> bool:
    """Whether a line of the item before `end` is `milestone: true`, and nothing else. It may be in a list of its
    own."""
    depth = lines[row.line].count(">", 0, row.column)
    below = lines[row.line + 1 : end]
    return any(_MILESTONE.fullmatch(unquoted(body(line), depth).strip()) for line in below)


def mistyped_milestones(lines: Sequence[str], rows: Sequence[TaskRow]) -> Iterator[int]:
    """The lines below an item that look like a milestone, and are none."""
    if not any("ilestone" in line or "ILESTONE" in line for line in lines):  # most plans have none
        return
    for row, end in zip(rows, [*(row.line for row in rows[1:]), len(lines)], strict=False):
        depth = lines[row.line].count(">", 0, row.column)
        for number in range(row.line + 1, min(row.end, end)):
            said = unquoted(body(lines[number]), depth).strip()
            if _MISTYPED.fullmatch(said) and not _MILESTONE.fullmatch(said):
                yield number


def is_escaped(item: str) -> bool:
    """Whether there is a backslash before the checkbox of a list item, so that it is text."""
    head = _HEAD.match(item)
    return head is not None and item.startswith("\\[", head.end())


def with_mark(line: str, column: int, mark: Mark) -> str:
    return line[:column] + CHARACTERS[mark] + line[column + 1 :]


def with_id(line: str, word: str) -> str:
    """Append a sticky id, before trailing blanks: two of them are a line break in Markdown."""
    kept = body(line).rstrip()
    return f"{kept} ^{word}{line[len(kept) :]}"


def is_field_edit(old: str, new: str, column: int) -> bool:
    """Whether `new` differs from the task line `old` only in its mark and an appended id.

    Such an edit can't change how the text around it is read.
    """
    if old[:column] != new[:column] or not _CHECKBOX.match(new, column - 1):
        return False
    if old[column + 1 :] == new[column + 1 :]:
        return True
    word = read_id(new, column)
    return word is not None and with_id(old, word)[column + 1 :] == new[column + 1 :]


def one_line(words: str) -> str:
    """`words` in one line, or UsageError."""
    line = " ".join(part for part in lines_of(words) if part)
    if not line:
        raise UsageError("an item of the plan has no text", remedy="say in a few words what to do")
    check_encodable(line)
    return line


def check_encodable(words: str) -> None:
    """UsageError for half a surrogate pair, because no file could contain it."""
    try:
        words.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            "a text for the plan can't be written as UTF-8", why=str(error), remedy="decode it correctly first"
        ) from error


def escape(text: str) -> str:
    """Keep a text that ends in ` ^word` from being read as one with an id. `read_text` undoes it."""
    before, caret, word = text.rpartition("^")
    if caret and ID.fullmatch(word) and _ends_blank(before.rstrip("\\")):
        return f"{before}\\^{word}"
    return text


def _unescape(text: str) -> str:
    before, caret, word = text.rpartition("^")
    if caret and before[-1:] == "\\" and ID.fullmatch(word) and _ends_blank(before.rstrip("\\")):
        return f"{before[:-1]}^{word}"
    return text


def unquoted(line: str, depth: int) -> str:
    """`line` without the `>` of up to `depth` quotes; a continuation line may leave them out."""
    for _ in range(depth):
        rest = line.lstrip(" \t")
        if not rest.startswith(">"):
            break
        line = rest[1:]
    return line


def lines_of(words: str) -> list[str]:
    return [line.strip() for line in BREAK.split(words)]


def _cut_id(rest: str) -> tuple[str, str | None]:
    """The part after a checkbox without its id; and the id."""
    before, caret, word = rest.rpartition("^")
    if caret and before[-1:].isspace() and ID.fullmatch(word := word.rstrip()):
        return before, word
    return rest, None


def _ends_blank(text: str) -> bool:
    return not text or text[-1].isspace()


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
                key = new_id.lower()
                self._ids[key] = min(index, self._ids.get(key, index))
                self._highest = max(self._highest, _number(key))

    def _by_id(self) -> dict[str, int]:
        if self._ids is None:
            words = [(read_id(self.lines[row.line], row.column), index) for index, row in enumerate(self.rows)]
            self._ids = {word.lower(): index for word, index in reversed(words) if word}  # the first of equal ones wins
            self._highest = max(map(_number, self._ids), default=0)
        return self._ids


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
        if [*map(type, numbers)] != [int] * len(TaskRow._fields):
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
