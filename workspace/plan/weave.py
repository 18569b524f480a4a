"""Put the run's additions into a person's file, leave its removals out, and name what both have changed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct

from ...schemas import short
from .match import Sheet, Tie, align, embed, increasing
from .task_lines import BOM, Mark, below, body, ending

Side = Literal["ours", "theirs"]

Why = Literal["mark", "text", "prose", "untick_without_base", "removal_without_base", "everything_removed"]


class PlanConflict(Struct, frozen=True):
    """`line` counts from 1 in theirs; 0 for what is not there. `text` is that of the item or of the line.

    `ours` and `theirs` are the marks, if these conflict. `str()` is one line for people.
    """

    line: int
    text: str
    why: Why
    ours: Mark | None = None
    theirs: Mark | None = None

    def __str__(self) -> str:
        where = f"line {self.line}, {short(self.text)}" if self.line else short(self.text)
        match self.why:
            case "mark":
                the_run = f"has changed it to {self.ours}" if self.ours else "has removed it"
                return f"{where}: the run {the_run}, the file says {self.theirs}"
            case "text":
                return f"{where}: the run and the file have both changed this item or its place"
            case "prose":
                return f"{where}: the run and the file have both changed these lines, in different ways"
            case "untick_without_base":
                return (
                    f"{where}: it is {self.ours}, the file says {self.theirs}. "
                    "Satchel can't tell whether to do it again or whether the file is old"
                )
            case "removal_without_base":
                return f"{where}: the file lacks this item. Satchel can't tell whether a person dropped or forgot it"
            case "everything_removed":
                return "the file has no items left; a plan without items is not a finished plan"


class ConflictCollector:
    """Collects conflicts, or resolves them."""

    def __init__(self, prefer: Side | None):
        self.prefer = prefer
        self.open: list[PlanConflict] = []

    def ask(self, conflict: PlanConflict) -> Side:
        """The side to use. Without a preference that is ours, and the result is not used."""
        if self.prefer is None:
            self.open.append(conflict)
        return self.prefer or "ours"


class Woven(NamedTuple):
    """`numbers` are those of the items, in the order of the text."""

    text: str
    numbers: list[int]


def weave(base: Sheet, ours: Sheet, theirs: Sheet, questions: ConflictCollector) -> Woven:
    """Join the lines of two versions. Marks and ids stay as either side has them.

    Theirs is the frame: its order, its blank lines and its endings stay. Where both added at the same place, ours comes
    second, but within the item to which it was added, wherever that is now.
    """
    return _Weaving(base, ours, theirs, questions).run()


class _Weaving:
    """Entries of ours and theirs are numbered as in their sheets."""

    def __init__(self, base: Sheet, ours: Sheet, theirs: Sheet, questions: ConflictCollector):
        self.base, self.ours, self.theirs, self.questions = base, ours, theirs, questions
        self.to_theirs = dict(align(base.keys, theirs.keys))
        self.to_ours = dict(self._aligned())
        self.from_ours = {entry: before for before, entry in self.to_ours.items()}
        self.from_theirs = {entry: before for before, entry in self.to_theirs.items()}
        self.added: set[int] = set()
        """What of ours is to be put into theirs."""
        self.dropped: set[int] = set()
        """What of theirs is to be left out."""
        self.shared: dict[int, int] = {}
        """What is in both and stays where theirs has it: from theirs to ours."""

    def run(self) -> Woven:
        self._compare_items()
        self._compare_prose()
        self._bring_parents()
        return self._write(self._places())

    def _aligned(self) -> Iterator[Tie]:
        """The base with ours: first what theirs has kept, so that ours is read in the same way before and after a
        merge."""
        base, ours = self.base.keys, self.ours.keys
        kept = sorted(self.to_theirs)
        pairs = [(kept[place], entry) for place, entry in align([base[entry] for entry in kept], ours)]
        start, my_start = 0, 0
        for end, my_end in [*pairs, (len(base), len(ours))]:
            between = align(base[start:end], ours[my_start:my_end])
            yield from ((start + one, my_start + other) for one, other in between)
            if end < len(base):
                yield end, my_end
            start, my_start = end + 1, my_end + 1

    # What is to come and go

    def _compare_items(self) -> None:
        base, ours, theirs = self.base, self.ours, self.theirs
        for number, mine in ours.where.items():
            its = theirs.where.get(number)
            if its is None:
                if number not in base.where or self._is_reworded(number, mine):
                    self.added.add(mine)
            elif its in self.from_theirs and mine not in self.from_ours:  # moved by ours only
                self.added.add(mine)
                self.dropped.add(its)
            else:
                self.shared[its] = mine
        for number, its in theirs.where.items():
            if number in base.where and number not in ours.where and not self._is_kept(number):
                self.dropped.add(its)

    def _is_reworded(self, number: int, mine: int) -> bool:
        """Whether an item that theirs removed is put back, since ours has other words than were removed."""
        said = self.ours.said(mine)
        if said == self.base.version.tasks[number].text:
            return False
        return self.questions.ask(PlanConflict(0, said, "text")) == "ours"

    def _is_kept(self, number: int) -> bool:
        """Whether an item that ours removed stays, since theirs changed it."""
        its, was = self.theirs.version.tasks[number], self.base.version.tasks[number]
        if its.text != was.text:
            return self.questions.ask(PlanConflict(its.line + 1, its.text, "text")) == "theirs"
        if its.mark != was.mark:
            return self.questions.ask(PlanConflict(its.line + 1, its.text, "mark", None, its.mark)) == "theirs"
        return False

    def _compare_prose(self) -> None:
        for before, mine in self.to_ours.items():
            if before in self.to_theirs and self.ours.number(mine) is None:
                self.shared[self.to_theirs[before]] = mine
        for its, before in self.from_theirs.items():
            if before not in self.to_ours and self.theirs.number(its) is None:
                self.dropped.add(its)
        for gap in self._gaps():
            self._compare_gap(*gap)

    def _gaps(self) -> Iterator[tuple[range, range, range]]:
        """What is between the entries that all three have."""
        start, my_start, its_start = 0, 0, 0
        all_three = sorted(before for before in self.to_ours if before in self.to_theirs)
        ends = [(before, self.to_ours[before], self.to_theirs[before]) for before in all_three]
        for end, my_end, its_end in [*ends, (len(self.base), len(self.ours), len(self.theirs))]:
            yield range(start, end), range(my_start, my_end), range(its_start, its_end)
            start, my_start, its_start = end + 1, my_end + 1, its_end + 1

    def _compare_gap(self, before: range, mine: range, its: range) -> None:
        ours, theirs = self.ours, self.theirs
        new = [entry for entry in mine if ours.number(entry) is None and entry not in self.from_ours]
        its_new = [entry for entry in its if theirs.number(entry) is None and entry not in self.from_theirs]
        found = embed([ours.keys[entry] for entry in new], [theirs.keys[entry] for entry in its_new])
        self.shared |= {its_new[other]: new[one] for one, other in found}
        same, its_same = {new[one] for one, _ in found}, {its_new[other] for _, other in found}
        new = [entry for entry in new if entry not in same]
        its_new = [entry for entry in its_new if entry not in its_same]
        self.added |= set(new)
        lost = [entry for entry in before if self._is_lost(entry)]
        my_items = [entry for entry in mine if entry in self.added and ours.number(entry) is not None]
        its_items = [entry for entry in its if self._is_new_item(entry)]
        if not lost or not (new or my_items) or not (its_new or its_items):
            return
        words = bool(my_items or its_items or any(self.base.number(entry) is not None for entry in lost))
        first = min(its_new + its_items)
        conflict = PlanConflict(theirs.at[first] + 1, theirs.said(first), "text" if words else "prose")
        if self.questions.ask(conflict) == "ours":
            self.dropped |= {*its_new, *its_items}
        else:
            for entry in (*new, *my_items):
                self._leave_out(entry)

    def _leave_out(self, mine: int) -> None:
        """Don't add it. An item that ours has moved stays at its place in theirs."""
        self.added.discard(mine)
        number = self.ours.number(mine)
        if number is not None and (its := self.theirs.where.get(number)) is not None:
            self.dropped.discard(its)
            self.shared[its] = mine

    def _is_lost(self, before: int) -> bool:
        """Whether neither side still has it."""
        number = self.base.number(before)
        if number is None:
            return before not in self.to_ours and before not in self.to_theirs
        return number not in self.ours.where and number not in self.theirs.where

    def _is_new_item(self, its: int) -> bool:
        number = self.theirs.number(its)
        return number is not None and number not in self.base.where and number not in self.ours.where

    def _bring_parents(self) -> None:
        """An addition follows the item to which it was added. A note of a removed item is removed too."""
        ours = self.ours
        for entry in sorted(self.added):
            missing = [row for row in ours.around(entry) if not self._is_there(row)]
            if missing and ours.rows_at[entry] >= 0:
                side = self.questions.ask(PlanConflict(0, ours.said(entry), "text"))
                if side == "ours":
                    self.added |= {ours.where[ours.numbers[row]] for row in missing}
                else:
                    self._leave_out(entry)
        for entry in sorted(self.added):
            if ours.rows_at[entry] < 0 and any(not self._is_there(row) for row in ours.around(entry)):
                self.added.discard(entry)

    def _is_there(self, row: int) -> bool:
        number = self.ours.numbers[row]
        its = self.theirs.where.get(number)
        return self.ours.where[number] in self.added or (its is not None and its not in self.dropped)

    # Where

    def _places(self) -> dict[int, list[int]]:
        """Additions in order, by the entry of theirs before which they come."""
        staying = sorted((mine, its) for its, mine in self.shared.items() if its not in self.dropped)
        fixed = increasing(staying)
        places: dict[int, int] = {}
        known: dict[tuple[Tie, bool], int] = {}
        before: dict[int, list[int]] = {}
        for entry in sorted(self.added):
            next_one = bisect_left(fixed, (entry, -1))
            above = fixed[next_one - 1][1] if next_one else -1
            following = fixed[next_one][1] if next_one < len(fixed) else len(self.theirs)
            is_item = self.ours.rows_at[entry] >= 0
            last = bisect_left(staying, (entry, -1)) - 1
            if is_item and last >= 0 and staying[last][1] != above:  # it follows something that was moved
                above = staying[last][1]
                following = above + 1
            key = ((above, following), is_item)
            if key not in known:
                known[key] = self._between(above, following, is_item)
            places[entry] = place = self._within(entry, known[key], places)
            before.setdefault(place, []).append(entry)
        return before

    def _between(self, above: int, following: int, is_item: bool) -> int:
        """The place of ours between two entries: below what theirs put there, or in place of what is left out.

        Items stay in the list above them: below a paragraph or a heading they would belong to something else.
        """
        between = range(above + 1, following)
        gone = next((entry for entry in between if entry in self.dropped), None)
        if gone is not None:
            return gone
        if is_item and above >= 0 and self.theirs.is_inside(above):
            return next((entry for entry in between if not self.theirs.is_inside(entry)), following)
        return following

    def _within(self, entry: int, place: int, places: dict[int, int]) -> int:
        """`place`, or the nearest one inside the item that ours has the addition in and inside no other."""
        ours, theirs = self.ours, self.theirs
        around = [ours.numbers[row] for row in ours.around(entry)]
        if around:
            if (holder := ours.where[around[0]]) in places:
                return places[holder]
            its = theirs.where[around[0]]
            row = theirs.rows[theirs.rows_at[its]]
            end = theirs.entry_from(row.end)
            if not its < place <= end:
                place = end if ours.rows_at[entry] >= 0 else theirs.below_notes(its)
        if place < len(theirs):
            strange = [row for row in theirs.around(place) if theirs.numbers[row] not in around]
            if strange:
                place = theirs.entry_from(theirs.rows[strange[-1]].end)
        if place < len(theirs) and theirs.rows_at[place] < 0 and not ours.is_continuation(entry):
            for holder in theirs.around(place):
                return max(place, theirs.entry_from(theirs.rows[holder].last + 1))
        return place

    # The text

    def _write(self, before: dict[int, list[int]]) -> Woven:
        ours, theirs = self.ours, self.theirs
        out = _Output(theirs)
        numbers: list[int] = []
        for its in range(len(theirs) + 1):
            for entry in before.get(its, ()):
                self._put(entry, out)
                if (number := ours.number(entry)) is not None:
                    numbers.append(number)
            if its == len(theirs) or its in self.dropped:
                continue
            number = theirs.number(its)
            if number is None:
                line = body(theirs.lines[theirs.at[its]])
            else:
                numbers.append(number)
                line = self._task_line(number, its, moved=False)
            out.copy(its, self._blanks(its), line)
        return Woven(out.end(), numbers)

    def _put(self, entry: int, out: _Output) -> None:
        """An addition; or an item that ours has moved, with its ending from theirs."""
        ours, theirs = self.ours, self.theirs
        line, end = body(ours.lines[ours.at[entry]]), ""
        if (number := ours.number(entry)) is not None:
            line = self._task_line(number, entry, moved=True)
            end = ending(theirs.lines[theirs.at[theirs.where[number]]]) if number in theirs.where else ""
        out.add(ours.blanks[entry], self._fitted(entry, line), end)

    def _blanks(self, its: int) -> int:
        """How many blank lines come above it."""
        mine, before = self.shared.get(its), self.from_theirs.get(its)
        if mine is None or before is None or self.theirs.blanks[its] != self.base.blanks[before]:
            return self.theirs.blanks[its]
        return self.ours.blanks[mine]

    def _task_line(self, number: int, entry: int, *, moved: bool) -> str:
        """The line of an item, with mark and id of one side. `entry` is that of ours if ours has moved it."""
        ours, theirs = self.ours, self.theirs
        mine, its, before = (sheet.where.get(number) for sheet in (ours, theirs, self.base))
        if mine is None or its is None:
            sheet = ours if moved else theirs
            return body(sheet.lines[sheet.at[entry]])
        row = theirs.rows[theirs.rows_at[its]]
        mark = theirs.lines[row.line][row.column]
        by_ours = self._is_worded_by_ours(mine, its, before)
        return self._head(number) + mark + (ours.rest(mine) if by_ours else theirs.rest(its))

    def _head(self, number: int) -> str:
        """The part before the mark of an item: the side that moved it has also given it its depth."""
        mine, its, before = (sheet.where.get(number) for sheet in (self.ours, self.theirs, self.base))
        if its is None or (mine is not None and its in self.dropped):
            return "" if mine is None else self.ours.head(mine)
        head = self.theirs.head(its)
        if mine is not None and before is not None and head == self.base.head(before):
            return self.ours.head(mine)
        return head

    def _is_worded_by_ours(self, mine: int, its: int, before: int | None) -> bool:
        was = None if before is None else (self.base.words(before), self.base.said(before))
        now, its_now = (self.ours.words(mine), self.ours.said(mine)), (self.theirs.words(its), self.theirs.said(its))
        if now in (its_now, was):
            return False
        if its_now == was:
            return True
        return self.questions.ask(PlanConflict(self.theirs.at[its] + 1, its_now[1], "text")) == "ours"

    def _fitted(self, entry: int, line: str) -> str:
        """A line of ours, with the current depth of the item to which it was added."""
        ours, theirs = self.ours, self.theirs
        for row in ours.around(entry):
            number = ours.numbers[row]
            if number in theirs.where and theirs.where[number] not in self.dropped:
                old, new = below(ours.head(ours.where[number])[:-1]), below(self._head(number)[:-1])
                return new + line[len(old) :] if old != new and line.startswith(old) else line
        return line


class _Output:
    """The new lines, with the endings of theirs."""

    def __init__(self, theirs: Sheet):
        self.theirs = theirs
        self.lines: list[str] = []
        self.style = ending(theirs.lines[0]) if theirs.lines else ""
        self.has_bom = theirs.lines[:1] != () and theirs.lines[0].startswith(BOM)

    def add(self, blanks: int, line: str, end: str) -> None:
        """A line of ours. It has the ending of the line above, unless `end` is given."""
        end = end or (ending(self.lines[-1]) if self.lines else "") or self.style or "\n"
        self._close()
        self.lines += [end] * blanks + [line.removeprefix(BOM) + end]

    def copy(self, its: int, blanks: int, line: str) -> None:
        """An entry of theirs with its blank lines, if their number does not change."""
        theirs, at = self.theirs, self.theirs.at[its]
        self._close()
        own = list(theirs.lines[at - theirs.blanks[its] : at])
        end = ending(theirs.lines[at]) or self.style or "\n"
        own = own[:blanks] + [end] * (blanks - len(own))
        self.lines += [text.removeprefix(BOM) for text in (*own, line + ending(theirs.lines[at]))]

    def end(self) -> str:
        at = self.theirs.at[-1] + 1 if self.theirs.at else 0
        rest = list(self.theirs.lines[at:])
        if rest:
            self._close()
        return BOM * self.has_bom + "".join(self.lines + rest).removeprefix(BOM)

    def _close(self) -> None:
        if self.lines and not ending(self.lines[-1]):
            self.lines[-1] += self.style or "\n"
