"""Which items of two versions stay, and which of the two says where."""

from __future__ import annotations

from .conflict import PlanConflict, Questions
from .sheet import Sheet


class Items:
    """The items of the result, by number."""

    def __init__(self, base: Sheet, ours: Sheet, theirs: Sheet, questions: Questions):
        self.base, self.ours, self.theirs, self.questions = base, ours, theirs, questions
        self.there = {number for number in theirs.items if not self._is_removed(number)}
        """All of them."""
        self.by_ours = {number for number in ours.items if self._is_added(number) or self._is_moved(number)}
        """Those that only ours has, or that only ours has put into another item."""
        self.there |= self.by_ours
        self._bring_parents()

    @property
    def count(self) -> int:
        """Falls whenever an item is left out."""
        return len(self.there) + len(self.by_ours)

    def leave_out(self, number: int) -> None:
        """Don't add it. An item that ours has moved stays at its place in theirs."""
        self.by_ours.discard(number)
        if number not in self.theirs.items:
            self.there.discard(number)

    def _is_added(self, number: int) -> bool:
        """Whether only ours has it: it is new; or ours has other words than theirs removed, and is to keep them."""
        if number in self.theirs.items:
            return False
        if number not in self.base.items:
            return True
        said = self.ours.text(number)
        return said != self.base.text(number) and self.questions.ask(PlanConflict(0, said, "text")) == "ours"

    def _is_moved(self, number: int) -> bool:
        if number not in self.theirs.items or number not in self.base.items:
            return False
        if self.ours.parent(number) == self.base.parent(number):
            return False
        return self.theirs.parent(number, self.there) == self.base.parent(number, self.there)

    def _is_removed(self, number: int) -> bool:
        """Whether ours has removed it, and theirs has not changed it or is not to keep it."""
        if number not in self.base.items or number in self.ours.items:
            return False
        its, was = self.theirs.version.tasks[number], self.base.version.tasks[number]
        if its.text != was.text:
            return self.questions.ask(PlanConflict(its.line + 1, its.text, "text")) == "ours"
        if its.mark != was.mark:
            return self.questions.ask(PlanConflict(its.line + 1, its.text, "mark", None, its.mark)) == "ours"
        return True

    def _bring_parents(self) -> None:
        """An addition needs the items that it is in."""
        for number in self.ours.items:
            missing = {above for above in self.ours.around(number) if above not in self.there}
            if number not in self.by_ours or not missing:
                continue
            if self.questions.ask(PlanConflict(0, self.ours.text(number), "text")) == "ours":
                self.by_ours |= missing
                self.there |= missing
            else:
                self.leave_out(number)
