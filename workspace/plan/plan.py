"""The plan: a text, the tasks in it, and edits that change a few lines and say which. Likely mistakes in it are valid
Markdown, but probably not what was intended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Self

from ...schemas import Problem
from ..base import UsageError
from . import markdown, task_lines
from .markdown import NESTING, Block, Insertion, Parsed, Suspect, is_as_meant, parse
from .task_lines import (
    FINISHED,
    MARKS,
    Mark,
    Reading,
    Splice,
    Task,
    TaskRow,
    check_encodable,
    fitting,
    is_escaped,
    is_field_edit,
    is_milestone,
    mistyped_milestones,
    one_line,
    read_text,
    remaining,
    unquoted,
    with_id,
    with_mark,
)

_KNOWN = "[ ] (open), [/] (begun), [x] (done) or [-] (cancelled)"
_OF_GIT = ("<<<<<<< ", ">>>>>>> ")
_SHOWN = 40


class Progress(NamedTuple):
    """Leaves that are done, or below an item that is, and all leaves that were not dropped."""

    settled: int
    leaves: int


class _Layout(NamedTuple):
    """What a parse finds besides the tasks; lost when lines are added or removed without one."""

    blocks: list[Block]
    suspects: list[Suspect]
    plain: list[int]


class Plan:
    """`todo.md` without its stamp. Every byte that an edit doesn't name stays as it is.

    Markdown is parsed when first needed, once per text; changed marks and ids, and items added in plain lists, need no
    other parse. Edits return the splices they applied, [] if there was nothing to change. A call that raises has
    changed nothing. Not safe for use by several threads at once.

    An item without children is work; one with children is a heading for them, unless it had work of its own before it
    got them. Then it is done after them. The text does not show that, so the ids of these items are kept next to it.
    """

    __slots__ = ("_layout", "_lines", "_own", "_reading", "_text")

    def __init__(self, text: str = "", own_work: Iterable[str] = ()):
        self._lines = task_lines.split(text)
        self._text: str | None = text
        self._reading: Reading | None = None
        self._layout: _Layout | None = None
        self._own = frozenset(own_work)

    @classmethod
    def restore(cls, text: str, outline: Sequence[Sequence[int]], own_work: Iterable[str] = ()) -> Self:
        """A plan whose tasks are known from `outline()`, made of the same text. An outline that does not fit is
        ignored."""
        plan = cls(text, own_work)
        plan.take_outline(outline)
        return plan

    def take_outline(self, outline: Sequence[Sequence[int]]) -> None:
        """Take the tasks from `outline()` of a plan of the same text. An outline that does not fit is ignored."""
        rows = fitting(self._lines, outline)
        if rows is not None:
            self._reading, self._layout = self._read(rows), None

    def copy(self) -> Self:
        """A plan of the same text that changes separately, and need not be parsed again. Tasks that were read from this
        one are known there, too."""
        other = type(self)()
        other._lines, other._text, other._own = list(self._lines), self._text, self._own
        other._reading = other._read(self._now().rows, self._now().revision)
        return other

    def outline(self) -> list[TaskRow]:
        """Where the tasks are, as plain numbers: line, column of the mark, index of the parent or -1, last line of
        the first paragraph, line after the item's last one."""
        return list(self._now().rows)

    def outline_after(self, splices: Sequence[Splice]) -> list[TaskRow]:
        """The outline, if most of the text is new with these splices: recorded, it saves every later opening a parse,
        at a proportional size. Otherwise none."""
        return self.outline() if 2 * sum(len(each.text) for each in splices) >= len(self.text) else []

    def __repr__(self) -> str:
        return f"Plan({self.text!r})"

    # Looking

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = "".join(self._lines)
        return self._text

    @property
    def lines(self) -> tuple[str, ...]:
        """The text in lines, each with its ending."""
        return tuple(self._lines)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks in the order of the text."""
        return self._now().tasks

    def __len__(self) -> int:
        """The number of tasks."""
        return len(self._now().rows)

    def at(self, index: int) -> Task:
        """One task by its place, without making the others."""
        return self._now().task(range(len(self))[index])

    def task(self, id: str) -> Task | None:
        """The task with this id. If two have it, which is a problem, the first."""
        index = self._now().by_id(id)
        return None if index is None else self._now().task(index)

    def now(self, task: Task) -> Task:
        """The current form of a task that was read earlier. UsageError if it is unclear which one it is."""
        return self._now().task(self._index(task))

    def next_to_do(self, skip: Collection[str] = (), wanted: Callable[[Task], bool] | None = None) -> Task | None:
        """The first item that is ready and whose id is not in `skip`; only one that is `wanted`."""
        skipped = {word.lower() for word in skip}
        tree = self._now().tree
        ready = (task for task in self.to_do() if tree.is_ready(task.index))
        left = (task for task in ready if task.id is None or task.id.lower() not in skipped)
        return next(filter(wanted, left), None)  # any, if it is None

    def to_do(self) -> Iterator[Task]:
        """The remaining work, in order: open or begun, below nothing done or cancelled."""
        reading = self._now()
        return map(reading.task, reading.tree.unsettled())

    def is_to_do(self, id: str) -> bool:
        """Whether the item with this id is part of the remaining work."""
        index = self._now().by_id(id)
        tree = self._now().tree
        return index is not None and tree.is_work(index) and not tree.is_settled(index)

    def is_ready(self, id: str) -> bool:
        """Whether the item with this id is to do, and nothing below it is."""
        index = self._now().by_id(id)
        return index is not None and self.is_to_do(id) and self._now().tree.is_ready(index)

    def has_rest(self, task: Task) -> bool:
        """Whether there is remaining work below an unfinished task."""
        return self._now().tree.pending(self._index(task), is_work=False) > 0

    def is_milestone(self, id: str) -> bool:
        """Whether the item with this id has a line `milestone: true`; those of items below it are not its own."""
        index, rows = self._now().by_id(id), self._now().rows
        if index is None:
            return False
        below = self._now().tree.children.get(index)
        return is_milestone(self._lines, rows[index], rows[below[0]].line if below else rows[index].end)

    @property
    def own_work(self) -> frozenset[str]:
        """Ids, in lower case, of items that had work of their own before they got children. Those that are in the text
        no more may be among them."""
        return self._own

    @property
    def progress(self) -> Progress:
        tree = self._now().tree
        return Progress(tree.settled - tree.dropped, tree.leaves - tree.dropped)

    @property
    def dropped(self) -> int:
        """How much of the work was cancelled, or is below an item that was."""
        return self._now().tree.dropped

    def remaining(self) -> str:
        """The text without its finished items and what is below them: for a prompt. All other text stays."""
        return remaining(self._now())

    def problems(self) -> list[Problem]:
        """Likely mistakes, in the order of the text: ids used twice, unknown marks, checkboxes without a blank, lists
        too deep, mistyped milestones, conflicts of git."""
        reading, lines = self._now(), self._lines
        found = _ids_used_twice(reading)
        found += [(number, _conflict(number)) for number, line in enumerate(lines) if line.startswith(_OF_GIT)]
        found += [(number, _milestone(lines, number)) for number in mistyped_milestones(lines, reading.rows)]
        found += [(each.line, _slip(task_lines.body(lines[each.line]), each)) for each in self._laid_out().suspects]
        return [problem for _, problem in sorted(found, key=lambda one: one[0])]

    def without_checkbox(self) -> dict[str, int]:
        """List items without a checkbox among tasks, which are text: their lines, with their numbers. A box with a
        backslash before it is intended as text."""
        plain = {task_lines.body(self._lines[line]).strip(): line + 1 for line in self._laid_out().plain}
        return {text: line for text, line in plain.items() if not is_escaped(text)}

    # Editing

    def take_own_work(self, ids: frozenset[str]) -> None:
        """Let the items with these ids, in lower case, and no others have work of their own."""
        if ids != self._own:
            self._own = ids
            if self._reading is not None:
                self._reading = self._read(self._reading.rows, self._reading.revision)

    def begin(self, task: Task, highest: int) -> list[Splice]:
        """Mark a task begun and give it an id if it has none: a number above `highest` and all numbers in the text."""
        index = self._index(task)
        return self._edit(index, "begun", self.free_id(highest) if self._now().task(index).id is None else None)

    def name(self, task: Task, id: str) -> list[Splice]:
        """Give a task without an id the one that it had in another version of this plan."""
        return self._edit(self._index(task), None, id)

    def tick(self, task: Task) -> list[Splice]:
        """Mark a task done. A parent whose leaves are then all settled becomes done; or cancelled, if nothing below it
        is done."""
        index = self._index(task)
        return self._edit(index, "done") + self._settle_above(index)

    def cancel(self, task: Task) -> list[Splice]:
        """Mark a task, and everything unfinished below it, cancelled; parents as in `tick`."""
        index = self._index(task)
        tree = self._now().tree
        changes: list[Splice] = []
        for each in tree.subtree(index):
            if each == index or tree.marks[each] not in FINISHED:
                changes += self._edit(each, "cancelled")
        return changes + self._settle_above(index)

    def reopen(self, task: Task) -> list[Splice]:
        """Mark a task open, and its finished parents too: below those it would not be done again."""
        index = self._index(task)
        return self._edit(index, "open") + self._reopen(self._now().tree.above(index))

    def conclude(self, task: Task) -> list[Splice]:
        """Mark an unfinished parent without remaining leaves, as `tick` would with the last of them."""
        index = self._index(task)
        return [] if self._now().tree.children.get(index) is None else self._settle([index])

    def identify(self, highest: int) -> list[Splice]:
        """Give ids to the unfinished tasks without one that have the same text as another task."""
        reading = self._now()
        texts = [read_text(self._lines, row) for row in reading.rows]
        often = Counter(texts)
        changes: list[Splice] = []
        for index, text in enumerate(texts):
            if often[text] > 1 and not (task := reading.task(index)).is_finished and task.id is None:
                changes += self._edit(index, None, self.free_id(highest))
        return changes

    def note(self, task: Task, text: str) -> list[Splice]:
        """Put text below a task, in its own paragraphs. Markdown in it is escaped."""
        check_encodable(text)
        index = self._index(task)
        plain = index if index not in self._now().tree.children else None
        places = list(markdown.prose(self._now(), index, text))
        return self._insert(places, [], plain) if places else []

    def add(
        self, texts: Sequence[str], *, after: Task | None = None, under: Task | None = None, ids: Sequence[str] = ()
    ) -> list[Splice]:
        """New open items: after a task and all below it, as the last ones under a task, or after the last item at the
        top level. With `ids`, if there are some. Finished parents are reopened, or the new items would not be done.

        UsageError for an empty text, and where the Markdown around leaves no place for an item.
        """
        words = [one_line(text) for text in texts]
        if after is not None and under is not None:
            raise UsageError("`after` and `under` name two places for new items", remedy="give one of them")
        if not words:
            return []
        near, places = self._places(words, after, under)
        return self._insert(places, words, near, ids)

    def keep_work_of(self, task: Task, highest: int) -> list[Splice]:
        """Let a parent be done after the items below it. It gets an id above `highest` if it has none."""
        index = self._index(task)
        id = task.id or self.free_id(highest)
        changes = [] if task.id else self._edit(index, None, id)
        self.take_own_work(self._own | {id.lower()})
        return changes

    def write(self, title: str | None, texts: Sequence[str], ids: Sequence[str] = ()) -> list[Splice]:
        """A new list of open items at the end of the text, under a heading if there is a title. With `ids`, if there
        are some."""
        words = [one_line(text) for text in texts]
        if not words:
            raise UsageError("a plan has no items", remedy="give at least one, or write none")
        heading = one_line(title) if title and title.strip() else None
        before, (first, *rest) = list(self._lines), words
        self._insert([markdown.at_end(self._lines, [first], heading)], [first], None, ids[:1])
        if rest:  # below an item at the end of a text the parser is not needed, so 100,000 are quick
            last = len(self) - 1
            self._insert(markdown.beside(self._now(), last, rest), rest, last, ids[1:])
        return task_lines.between(before, self._lines)

    def apply(self, splices: Iterable[Splice]) -> None:
        """Replay edits. Marks and ids are taken over without parsing; anything else is parsed when next needed.

        UsageError, with nothing changed, if one names lines that do not exist.
        """
        splices = tuple(splices)
        before = list(self._lines) if len(splices) > 1 else None  # one alone changes nothing if it does not fit
        try:
            self._apply(splices)
        except UsageError:
            if before is not None:
                self._lines[:] = before
                self._text = self._reading = self._layout = None
            raise

    def _apply(self, splices: Sequence[Splice]) -> None:
        for change in splices:
            index = self._reading.at_line(change.line) if self._reading and change.removed == 1 else None
            if index is not None and self._reading is not None:
                row = self._reading.rows[index]
                if is_field_edit(self._lines[row.line], change.text, row.column):
                    self._replace(self._reading, index, change.text)
                    continue
            task_lines.apply(self._lines, change)
            self._text = self._reading = self._layout = None

    # How

    def _now(self) -> Reading:
        if self._reading is None:
            self._adopt(parse(self._lines))
        assert self._reading is not None
        return self._reading

    def _laid_out(self) -> _Layout:
        if self._layout is None:
            found = parse(self._lines)
            self._layout = _Layout(found.blocks, found.suspects, found.plain)
            if self._reading is None:
                self._reading = self._read(found.rows)
        return self._layout

    def _read(self, rows: list[TaskRow], revision: int | None = None) -> Reading:
        return Reading(self._lines, rows, revision, self._own)

    def _adopt(self, found: Parsed) -> None:
        self._reading = self._read(found.rows)
        self._layout = _Layout(found.blocks, found.suspects, found.plain)

    def _index(self, task: Task) -> int:
        """The current place of a task: unchanged if no lines were added or removed since it was read, else that of its
        id."""
        reading = self._now()
        if task.revision == reading.revision:
            return task.index
        index = reading.by_id(task.id) if task.id is not None else None
        if index is None:
            raise UsageError(
                f"the item {task.text!r} is not known in this plan",
                why="it was read before the plan changed, or from another one, and has no id",
                remedy="read it from the plan again, or begin it first",
            )
        return index

    @property
    def highest_number(self) -> int:
        """The greatest id that is a number, or 0."""
        return self._now().highest_number()

    def free_id(self, highest: int) -> str:
        """A number above `highest` and all numbers in the text."""
        return str(max(highest, self._now().highest_number()) + 1)

    def _edit(self, index: int, mark: Mark | None, id: str | None = None) -> list[Splice]:
        reading = self._now()
        row = reading.rows[index]
        old = line = self._lines[row.line]
        if mark is not None and mark != reading.tree.marks[index]:
            line = with_mark(line, row.column, mark)
        if id is not None:
            line = with_id(line, id)
        if line == old:
            return []
        self._replace(reading, index, line)
        return [Splice(row.line, 1, line)]

    def _replace(self, reading: Reading, index: int, line: str) -> None:
        reading.changed(index, line)
        self._text = None

    def _settle_above(self, index: int) -> list[Splice]:
        return self._settle(self._now().tree.above(index))

    def _settle(self, parents: Iterable[int]) -> list[Splice]:
        tree = self._now().tree
        changes: list[Splice] = []
        for parent in parents:
            outcome = tree.outcome(parent)
            if outcome is not None and tree.marks[parent] not in FINISHED:
                changes += self._edit(parent, outcome)
        return changes

    def _reopen(self, indexes: Iterable[int]) -> list[Splice]:
        tree = self._now().tree
        finished = [index for index in indexes if tree.marks[index] in FINISHED]
        return [change for index in finished for change in self._edit(index, "open")]

    def _places(
        self, words: Sequence[str], after: Task | None, under: Task | None
    ) -> tuple[int | None, Iterable[Insertion]]:
        """Places for new items, best first, and the task next to the first place."""
        reading = self._now()
        if after is not None:
            index = self._index(after)
            return index, markdown.beside(reading, index, words)
        if under is not None:
            index = self._index(under)
            if children := reading.tree.children.get(index):
                beside = markdown.beside(reading, children[-1], words)
                return children[-1], chain(beside, markdown.inside(reading, index, words))
            return index, markdown.inside(reading, index, words)
        end = [markdown.at_end(self._lines, words)]
        top = markdown.last_at_top(reading)
        return top, end if top is None else chain(markdown.beside(reading, top, words), end)

    def _insert(
        self, places: Iterable[Insertion], words: Sequence[str], near: int | None, ids: Sequence[str] = ()
    ) -> list[Splice]:
        """Insert at the first place where the tasks come out as intended and nothing else is read differently."""
        reading = self._now()
        for new in places:
            change = task_lines.insertion(self._lines, new.at, new.bodies)
            if near is not None and markdown.is_plain(reading, near, new):
                rows = markdown.grown(reading, new)
                task_lines.apply(self._lines, change)
                self._reading, self._layout = self._read(rows), None
            else:
                lines = list(self._lines)
                task_lines.apply(lines, change)
                found = parse(lines)
                if not is_as_meant(new, words, reading.rows, self._laid_out().blocks, found, lines):
                    continue
                self._lines = lines
                self._adopt(found)
            self._text = None
            around = (new.holder, *reading.tree.above(new.holder)) if words and new.holder >= 0 else ()
            return [change, *self._name(new, ids), *self._reopen(around)]
        raise UsageError(
            "there is no place in the plan for this item that leaves the text around it unchanged",
            why="a code block or a comment without its end, or lists that are nested too deeply",
            remedy="look at the end of the list, and close what is open",
        )

    def _name(self, new: Insertion, ids: Sequence[str]) -> list[Splice]:
        """Give the inserted tasks these ids."""
        changes: list[Splice] = []
        for place, id in zip(new.columns, ids, strict=False):
            index = self._now().at_line(new.at + place)
            assert index is not None
            changes += self._edit(index, None, id)
        return changes


# Likely mistakes


def _ids_used_twice(reading: Reading) -> list[tuple[int, Problem]]:
    found: list[tuple[int, Problem]] = []
    seen: dict[str, int] = {}
    for task in reading.tasks:
        if task.id is None:
            continue
        first = seen.setdefault(task.id.lower(), task.line)  # folders are named after it, also where case is ignored
        if first != task.line:
            problem = Problem(
                f"line {task.line + 1}",
                f"the id ^{task.id}, which line {first + 1} has already",
                "an id of its own",
                f"Change or remove the ^{task.id} of the new item",
            )
            found.append((task.line, problem))
    return found


def _conflict(number: int) -> Problem:
    return Problem(
        f"line {number + 1}",
        "a conflict that git has left",
        "the plan",
        "Keep the lines that are right, and remove those that begin with <<<<<<<, ======= and >>>>>>>",
    )


def _milestone(lines: Sequence[str], number: int) -> Problem:
    line = task_lines.body(lines[number])
    said = unquoted(line, line.count(">")).strip()
    return Problem(
        f"line {number + 1}",
        f'"{said}", which makes no milestone',
        '"milestone: true"',
        "Write it like this, or remove the line: else it is a part of the item's text",
    )


def _slip(line: str, suspect: Suspect) -> Problem:
    place = f"line {suspect.line + 1}"
    if suspect.column < 0:
        return Problem(
            place,
            f"more than {NESTING} nested lists and quotes",
            "fewer",
            "Move the items out: Satchel does not read them or what follows in their list",
        )
    if suspect.meant:
        shown = line.strip() if line.strip() != suspect.meant else line.rstrip()  # only its indentation is wrong
        return Problem(
            place,
            f'"{shown[:_SHOWN]}", which looks like an item but is text',
            f'"{suspect.meant[:_SHOWN]}"',
            "Write it like this or, if it is meant as text, put a backslash before the box",
        )
    box = line[suspect.column : line.index("]", suspect.column) + 1]
    if len(box) == 3 and box[1] in MARKS:
        rest = line[suspect.column + len(box) :].lstrip()[:_SHOWN]
        return Problem(
            place, f'"{box}" without a space after it', f'"{box} {rest}"', "Put one space after the checkbox"
        )
    return Problem(place, f'the mark "{box}"', _KNOWN, "Use one of these, or put a backslash before the bracket")
