"""Merge what one item holds, or the top level: its lines and the items right below it, in order."""

from __future__ import annotations

from typing import NamedTuple

from .align import align
from .conflict import PlanConflict, Why
from .items import Items
from .sheet import Entry, Sheet


class Put(NamedTuple):
    """An entry of ours or of theirs in the result, and the number of blank lines above it."""

    sheet: Sheet
    entry: Entry
    blanks: int


def merge_content(items: Items, base: list[Entry], ours: list[Entry], theirs: list[Entry]) -> list[Put]:
    """Theirs is the frame: its order and its blank lines stay. Where both added at the same place, ours comes second.

    A conflict that is resolved may take items out of `items`.
    """
    return _Merging(items, base, ours, theirs).run()


class _Merging:
    """Entries are known by their places in the three lists."""

    def __init__(self, items: Items, base: list[Entry], ours: list[Entry], theirs: list[Entry]):
        self.items, self.base, self.ours, self.theirs = items, base, ours, theirs
        self.to_ours, self.to_theirs = dict(_aligned(base, ours)), dict(_aligned(base, theirs))
        self.from_ours = {mine: before for before, mine in self.to_ours.items()}
        self.from_theirs = {its: before for before, its in self.to_theirs.items()}
        self.here = {each.number: its for its, each in enumerate(theirs) if each.is_item}
        self.added: set[int] = set()
        """What of ours is to be put into theirs."""
        self.dropped: set[int] = set()
        """What of theirs is to be left out."""
        self.shared: dict[int, int] = {}
        """What is in both and stays where theirs has it: from ours to theirs."""

    def run(self) -> list[Put]:
        self._compare_items()
        self._compare_prose()
        places, found = self._places(), list[Put]()
        to_ours = {its: mine for mine, its in self.shared.items()}
        for its in range(len(self.theirs) + 1):
            found += [Put(self.items.ours, self.ours[mine], self.ours[mine].blanks) for mine in places.get(its, ())]
            if its < len(self.theirs) and its not in self.dropped:
                found.append(Put(self.items.theirs, self.theirs[its], self._blanks(its, to_ours.get(its))))
        return found

    def _compare_items(self) -> None:
        there, by_ours = self.items.there, self.items.by_ours
        self.dropped |= {its for number, its in self.here.items() if number not in there or number in by_ours}
        for mine, each in enumerate(self.ours):
            if each.number in by_ours:
                self.added.add(mine)
            elif each.number in there and (its := self.here.get(each.number)) is not None:
                if its in self.from_theirs and mine not in self.from_ours:  # moved by ours only
                    self.added.add(mine)
                    self.dropped.add(its)
                else:
                    self.shared[mine] = its

    def _compare_prose(self) -> None:
        for its, before in self.from_theirs.items():
            if not self.theirs[its].is_item:
                if before in self.to_ours:
                    self.shared[self.to_ours[before]] = its
                else:
                    self.dropped.add(its)
        start, my_start, its_start = 0, 0, 0
        all_three = [
            (before, mine, self.to_theirs[before]) for before, mine in self.to_ours.items() if before in self.to_theirs
        ]
        for end, my_end, its_end in [*all_three, (len(self.base), len(self.ours), len(self.theirs))]:
            self._compare_gap(range(start, end), range(my_start, my_end), range(its_start, its_end))
            start, my_start, its_start = end + 1, my_end + 1, its_end + 1

    def _compare_gap(self, before: range, mine: range, its: range) -> None:
        """Compare what is between two entries that all three have."""
        new = [entry for entry in mine if not self.ours[entry].is_item and entry not in self.from_ours]
        its_new = [entry for entry in its if not self.theirs[entry].is_item and entry not in self.from_theirs]
        same = _aligned([self.ours[entry] for entry in new], [self.theirs[entry] for entry in its_new])
        self.shared |= {new[one]: its_new[other] for one, other in same}
        self.added |= {entry for entry in new if entry not in self.shared}
        both = {its_new[other] for _, other in same}
        its_added = [entry for entry in its_new if entry not in both]
        its_added += [entry for entry in its if self._is_new_item(self.theirs[entry])]
        added = [entry for entry in mine if entry in self.added]
        lost = [self.base[entry] for entry in before if self._is_lost(entry)]
        if not (lost and added and its_added):
            return
        first = self.theirs[min(its_added)]
        changed = [*lost, *(self.ours[entry] for entry in added), *(self.theirs[entry] for entry in its_added)]
        said = self.items.theirs.text(first.number) if first.is_item else first.words.strip()
        why: Why = "text" if any(each.is_item for each in changed) else "prose"
        if self.items.questions.ask(PlanConflict(first.at + 1, said, why)) == "ours":
            self.dropped |= set(its_added)
            self.items.there -= {self.theirs[entry].number for entry in its_added}
        else:
            self.added -= set(added)
            for entry in added:
                self._leave_out(entry, self.ours[entry])

    def _leave_out(self, mine: int, each: Entry) -> None:
        if each.is_item:
            self.items.leave_out(each.number)
            if (its := self.here.get(each.number)) is not None:
                self.dropped.discard(its)
                self.shared[mine] = its

    def _is_lost(self, before: int) -> bool:
        """Whether neither side still has it. A note that has gone with its item is not counted."""
        each = self.base[before]
        if each.is_item:
            return each.number not in self.items.ours.items and each.number not in self.items.theirs.items
        has_gone = each.is_inside and each.holder not in self.items.there
        return not has_gone and before not in self.to_ours and before not in self.to_theirs

    def _is_new_item(self, each: Entry) -> bool:
        return each.is_item and each.number not in self.items.base.items and each.number not in self.items.ours.items

    def _places(self) -> dict[int, list[int]]:
        """Additions in order, by the entry of theirs before which they come: below the same entry as in ours, and
        below what theirs put there, or in place of what is left out."""
        staying = {mine: its for mine, its in self.shared.items() if its not in self.dropped}
        new = set(range(len(self.theirs))) - set(self.shared.values()) - self.dropped
        found: dict[int, list[int]] = {}
        place = 0
        for mine, each in enumerate(self.ours):
            if mine in staying:
                place = staying[mine] + 1
            elif mine in self.added:
                while place in new and not self._is_other_part(each, place):
                    place += 1
                found.setdefault(place, []).append(mine)
        return found

    def _is_other_part(self, each: Entry, its: int) -> bool:
        """Whether an addition stays above an entry of theirs: a note right below the words of its item, an item in the
        list above it. Below a paragraph or a heading it would belong to something else."""
        if each.is_item:
            return its > 0 and self.theirs[its - 1].is_inside and not self.theirs[its].is_inside
        return each.is_inside and self.theirs[its].is_item

    def _blanks(self, its: int, mine: int | None) -> int:
        """How many blank lines come above it."""
        before = self.from_theirs.get(its)
        if mine is None or before is None or self.theirs[its].blanks != self.base[before].blanks:
            return self.theirs[its].blanks
        return self.ours[mine].blanks


def _aligned(one: list[Entry], other: list[Entry]) -> list[tuple[int, int]]:
    return align([each[:2] for each in one], [each[:2] for each in other])
