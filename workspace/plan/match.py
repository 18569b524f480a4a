"""What is the same in several versions of a plan, items and lines, and what has changed from one to the next.

Items are matched by id, and by text where there is none; then each has one number in all versions. Lines are matched
as entries of a sheet, which can be compared one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from .plan import Plan
from .task_lines import BOM, Task, TaskRow, body, read_id


def match(old: Plan, new: Plan, known: Mapping[int, int] | None = None) -> dict[int, int]:
    """For the index of each task of `new` that is in `old` too, its index there.

    Ids count first, then what is `known` already, then texts; two tasks with different ids are never the same. Tasks
    with the same text are matched in order if both sides have as many of them; else those with the same parent and the
    same mark come first.
    """
    found: dict[int, int] = {}
    taken: set[int] = set()

    def pair(mine: int, its: int) -> None:
        if mine not in found and its not in taken:
            found[mine] = its
            taken.add(its)

    ids: dict[str, int] = {}
    for task in old.tasks:
        if task.id is not None:
            ids.setdefault(task.id.lower(), task.index)
    for task in new.tasks:
        if task.id is not None and task.id.lower() in ids:
            pair(task.index, ids[task.id.lower()])
    for mine, its in (known or {}).items():
        pair(mine, its)
    same: dict[str, tuple[list[Task], list[Task]]] = {}
    for task in old.tasks:
        if task.index not in taken:
            same.setdefault(task.text, ([], []))[0].append(task)
    for task in new.tasks:
        if task.index not in found and task.text in same:
            same[task.text][1].append(task)
    for before, now in same.values():
        for one, other in _pairs(before, now, old.tasks, new.tasks):
            pair(other.index, one.index)
    return found


def _pairs(
    before: Sequence[Task], now: Sequence[Task], old: Sequence[Task], new: Sequence[Task]
) -> Iterator[tuple[Task, Task]]:
    """Pairs of tasks that all have the same text."""
    if len(before) == len(now) and all(
        one.id is None or other.id is None for one, other in zip(before, now, strict=True)
    ):
        yield from zip(before, now, strict=True)
        return
    used: set[int] = set()
    its_used: set[int] = set()
    for key in _KEYS if now else ():
        for with_id, its_with_id in ((False, False), (False, True), (True, False)):
            places: dict[Hashable, deque[Task]] = {}
            for one in before:
                if one.index not in used and (one.id is not None) == with_id:
                    places.setdefault(key(one, old), deque()).append(one)
            for other in now:
                if other.index in its_used or (other.id is not None) != its_with_id:
                    continue
                if found := places.get(key(other, new)):
                    one = found.popleft()
                    used.add(one.index)
                    its_used.add(other.index)
                    yield one, other


def _parent(task: Task, tasks: Sequence[Task]) -> str | None:
    return None if task.parent is None else tasks[task.parent].text


_KEYS: tuple[Callable[[Task, Sequence[Task]], Hashable], ...] = (
    lambda task, tasks: (_parent(task, tasks), task.mark),
    _parent,
    lambda task, tasks: task.mark,
    lambda task, tasks: None,
)
"""What two tasks with the same text may also have in common, most significant first."""


class Version(NamedTuple):
    """A plan with a number for each task, which is the same for the same item in the other versions."""

    plan: Plan
    numbers: list[int]
    tasks: dict[int, Task]
    """By number."""

    @classmethod
    def of(cls, plan: Plan, numbers: list[int]) -> Version:
        return cls(plan, numbers, dict(zip(numbers, plan.tasks, strict=True)))

    def parent(self, number: int) -> int | None:
        above = self.tasks[number].parent
        return None if above is None else self.numbers[above]


class Versions(NamedTuple):
    """The base of a file, the run's version, and the person's version."""

    base: Version
    ours: Version
    theirs: Version


def versions(base: Plan, ours: Plan, theirs: Plan) -> Versions:
    """Identify the items of three plans. Theirs is matched with ours through the base, because it was made from
    that."""
    to_ours, to_theirs = match(ours, base), match(theirs, base)
    known = {to_theirs[index]: to_ours[index] for index in to_theirs if index in to_ours}
    found = match(ours, theirs, known)
    fresh = len(ours)
    numbers = [found.get(index, fresh + index) for index in range(len(theirs))]
    fresh += len(theirs)
    before = [to_ours.get(index, fresh + index) for index in range(len(base))]
    used = set(before)
    for index, its in to_theirs.items():
        if index not in to_ours and numbers[its] not in used:
            before[index] = numbers[its]
            used.add(numbers[its])
    return Versions(Version.of(base, before), Version.of(ours, list(range(len(ours)))), Version.of(theirs, numbers))


Tie = tuple[int, int]


def align(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[Tie]:
    """Places of equal keys, rising on both sides.

    Keys that occur once on each side are matched first (patience diff): difflib alone would take minutes for a long
    text full of equal lines.
    """
    single, its_single = _once(one), _once(other)
    ties = increasing([(place, its_single[key]) for key, place in single.items() if key in its_single])
    pairs: list[Tie] = []
    start, its_start = 0, 0
    for end, its_end in [*ties, (len(one), len(other))]:
        pairs += _between(one, other, (start, end), (its_start, its_end))
        pairs.append((end, its_end))
        start, its_start = end + 1, its_end + 1
    return pairs[:-1]


def _once(keys: Sequence[Hashable]) -> dict[Hashable, int]:
    counts = Counter(keys)
    return {key: place for place, key in enumerate(keys) if counts[key] == 1}


def _between(one: Sequence[Hashable], other: Sequence[Hashable], mine: Tie, its: Tie) -> Iterator[Tie]:
    (start, end), (its_start, its_end) = mine, its
    while start < end and its_start < its_end and one[start] == other[its_start]:
        yield start, its_start
        start, its_start = start + 1, its_start + 1
    tail: list[Tie] = []
    while start < end and its_start < its_end and one[end - 1] == other[its_end - 1]:
        end, its_end = end - 1, its_end - 1
        tail.append((end, its_end))
    if start < end and its_start < its_end:
        matcher = SequenceMatcher(None, one[start:end], other[its_start:its_end], autojunk=False)
        for block in matcher.get_matching_blocks():
            yield from ((start + block.a + step, its_start + block.b + step) for step in range(block.size))
    yield from reversed(tail)


def increasing(pairs: Sequence[Tie]) -> list[Tie]:
    """The longest selection of pairs that rises on both sides; on the first they already rise."""
    lasts: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(lasts, place)
        if length == len(lasts):
            lasts.append(place)
            ends.append(index)
        else:
            lasts[length], ends[length] = place, index
        before.append(ends[length - 1] if length else -1)
    chosen: list[Tie] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def embed(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[Tie]:
    """Like `align`, but if one side contains all of the other, in order, it finds all of it."""
    if (found := _subsequence(other, one)) is not None:
        return [(place, index) for index, place in enumerate(found)]
    if (found := _subsequence(one, other)) is not None:
        return list(enumerate(found))
    return align(one, other)


def _subsequence(part: Sequence[Hashable], whole: Sequence[Hashable]) -> list[int] | None:
    """The places of the keys of `part` in `whole`, in order; None unless all of them are there."""
    places: list[int] = []
    at = 0
    for key in part:
        while at < len(whole) and whole[at] != key:
            at += 1
        if at == len(whole):
            return None
        places.append(at)
        at += 1
    return places


class Sheet:
    """The lines of a plan that are not blank, in order: its *entries*. Blank lines belong to the entry below them.

    An item's line is compared by its number only, so mark, id and words may differ; any other line is compared as it
    is. Items in `without` are left out, each with its own text.
    """

    def __init__(self, version: Version, without: Collection[int] = ()):
        self.version, self.plan, self.numbers = version, version.plan, version.numbers
        self.lines = self.plan.lines
        self.rows = [TaskRow(*row) for row in self.plan.outline()]
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


_COMPARED = 1000
"""Pairs of texts that are compared at most: that takes a quarter of a second if they are long."""

_LETTERS = 120
_ALIKE = 0.6


class Pair(NamedTuple):
    """One item before and after."""

    before: Task
    after: Task


class Move(NamedTuple):
    """An item that has another parent, or none, than before."""

    item: Task
    source: Task | None
    target: Task | None


class Changes(Struct, frozen=True):
    """Items are the same by id, or by text if one of the two has none, or are alike if both have none. Each list is in
    the order of the text.

    An item that was only begun is in none of them. Parents are listed next to their leaves if their marks changed too.
    """

    ticked: tuple[Pair, ...]
    """Now done; were open or begun."""
    unticked: tuple[Pair, ...]
    """Were done; now open or begun."""
    restarted: tuple[Pair, ...]
    """Were begun; now open."""
    cancelled: tuple[Pair, ...]
    revived: tuple[Pair, ...]
    """Were cancelled; now anything else."""
    removed: tuple[Task, ...]
    added: tuple[Task, ...]
    reworded: tuple[Pair, ...]
    dropped: tuple[Task, ...]
    """Were part of the remaining work, and are not now: by their own marks, or a parent's."""
    nested: tuple[Move, ...]
    """Have another parent, or are at the top level now. Not those whose parent was removed."""
    waiting: tuple[Task, ...]
    """Are now to be done after items below them, and were not before."""
    bare: tuple[Task, ...]
    """Had children and no work of their own, and are unfinished leaves now."""
    moved: bool
    """Whether other items have another order. Added or removed items don't count."""
    prose: bool
    """Whether anything except the items was changed; blank lines and indentation don't count."""

    def __bool__(self) -> bool:
        return any(astuple(self))


def changes(before: Plan, after: Plan) -> Changes:
    """What turned `before` into `after`."""
    known = match(before, after)
    old, new = before.tasks, after.tasks
    known |= _reworded(known, old, new)
    pairs = [Pair(old[known[task.index]], task) for task in new if task.index in known]
    lists: dict[str, list[Pair]] = {}
    for pair in pairs:
        lists.setdefault(_kind(pair), []).append(pair)
    kept = set(known.values())
    nested = tuple(_nested(pairs, before, after, known))
    elsewhere = {move.item.index for move in nested}
    places = [pair.before.index for pair in pairs if pair.after.index not in elsewhere]
    return Changes(
        ticked=tuple(lists.get("ticked", ())),
        unticked=tuple(lists.get("unticked", ())),
        restarted=tuple(lists.get("restarted", ())),
        cancelled=tuple(lists.get("cancelled", ())),
        revived=tuple(lists.get("revived", ())),
        removed=tuple(task for task in old if task.index not in kept),
        added=tuple(task for task in new if task.index not in known),
        reworded=tuple(pair for pair in pairs if pair.before.text != pair.after.text),
        dropped=_dropped(pairs, before, after),
        nested=nested,
        waiting=tuple(
            pair.after
            for pair in pairs
            if pair.after.is_work and after.has_rest(pair.after) and not before.has_rest(pair.before)
        ),
        bare=tuple(
            pair.after
            for pair in pairs
            if not pair.before.is_work and pair.after.is_leaf and not pair.after.is_finished
        ),
        moved=places != sorted(places),
        prose=list(_prose(before)) != list(_prose(after)),
    )


def _reworded(known: Mapping[int, int], old: Sequence[Task], new: Sequence[Task]) -> dict[int, int]:
    """Items that have no id yet, and of which a person has changed the text: those that are most alike, wherever they
    are. They are only told; an item without an id is the same for the run only by its text."""
    kept = set(known.values())
    gone = [task for task in old if task.id is None and task.index not in kept]
    come = [task for task in new if task.id is None and task.index not in known]
    if not gone or not come or len(gone) * len(come) > _COMPARED:
        return {}
    from difflib import SequenceMatcher

    alike = (
        (SequenceMatcher(None, one.text[:_LETTERS], other.text[:_LETTERS], autojunk=False).ratio(), one, other)
        for other in come
        for one in gone
    )
    found: dict[int, int] = {}
    for _, one, other in sorted((each for each in alike if each[0] >= _ALIKE), key=lambda each: -each[0]):
        if other.index not in found and one.index not in found.values():
            found[other.index] = one.index
    return found


def _dropped(pairs: list[Pair], before: Plan, after: Plan) -> tuple[Task, ...]:
    left = {task.index for task in after.to_do()}
    stay = {pair.before.index for pair in pairs if pair.after.index in left}
    return tuple(task for task in before.to_do() if task.index not in stay)


def _kind(pair: Pair) -> str:
    match pair.before.mark, pair.after.mark:
        case one, other if one == other:
            return ""
        case _, "cancelled":
            return "cancelled"
        case "cancelled", _:
            return "revived"
        case _, "done":
            return "ticked"
        case "done", _:
            return "unticked"
        case "begun", "open":
            return "restarted"
        case _:
            return ""


def _nested(pairs: list[Pair], before: Plan, after: Plan, known: Mapping[int, int]) -> Iterator[Move]:
    kept = set(known.values())
    for was, now in pairs:
        above = None if now.parent is None else known.get(now.parent, -1)
        if above == was.parent or (now.parent is None and was.parent not in kept):
            continue
        source = None if was.parent is None or was.parent not in kept else before.at(was.parent)
        yield Move(now, source, None if now.parent is None else after.at(now.parent))


def _prose(plan: Plan) -> Iterator[str]:
    lines, position = plan.lines, 0
    for at, _, _, last, _ in [*plan.outline(), [len(lines)] * 5]:
        for line in lines[position:at]:
            if words := body(line).removeprefix(BOM).strip():
                yield words
        position = last + 1
