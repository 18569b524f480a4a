"""One plan with the items and the text of two, checked with the parser."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import NamedTuple

from ..plan import Plan
from .align import align
from .conflict import PlanConflict, Questions
from .match import Version, Versions
from .sheet import Sheet
from .weave import weave


class Joined(NamedTuple):
    """A plan with the structure of both sides. Marks and ids are as in either side."""

    plan: Plan
    versions: Versions
    numbers: list[int]
    """Those of its items."""


def join(versions: Versions, put_back: Collection[int], questions: Questions) -> Joined:
    """`put_back` are items that theirs lacks and that stay anyway."""
    base, ours, theirs = versions
    if not put_back and ours.plan.text == base.plan.text:
        return Joined(theirs.plan.copy(), versions, theirs.numbers)
    sheets = Sheet(base, put_back), Sheet(ours), Sheet(theirs)
    if (numbers := _reworded(*sheets)) != theirs.numbers:
        theirs = Version.of(theirs.plan, numbers)
        versions = Versions(base, ours, theirs)
        sheets = Sheet(base, put_back), Sheet(ours), Sheet(theirs)
    woven = weave(*sheets, questions)
    joined = Joined(Plan(woven.text), versions, woven.numbers)
    whole = ours
    if not questions.open:
        if (wrong := _misread(joined)) is None:
            return joined
        whole = theirs if questions.ask(wrong) == "theirs" else ours
    return Joined(whole.plan.copy(), versions, whole.numbers)


def _reworded(base: Sheet, ours: Sheet, theirs: Sheet) -> list[int]:
    """The numbers of theirs, with those of new items in places where as many others were.

    They are the same items in other words, if ours has only changed marks and ids there. It matters for items that the
    run has begun meanwhile: their ids are not in the file yet.
    """
    numbers = list(theirs.numbers)
    start, its_start = 0, 0
    for end, its_end in [*align(base.keys, theirs.keys), (len(base), len(theirs))]:
        gone = [number for entry in range(start, end) if (number := base.number(entry)) is not None]
        gone = [number for number in gone if number not in theirs.where]
        new = [theirs.rows_at[entry] for entry in range(its_start, its_end) if theirs.rows_at[entry] >= 0]
        new = [row for row in new if numbers[row] not in base.where and numbers[row] not in ours.where]
        if len(gone) == len(new) and all(_says_the_same(number, base, ours) for number in gone):
            for row, number in zip(new, gone, strict=True):
                old, mine, its = base.version.tasks[number], ours.version.tasks[number], theirs.plan.at(row)
                if (old.id, old.mark, its.id) == (None, "open", None) and mine.id is not None:
                    numbers[row] = number
        start, its_start = end + 1, its_end + 1
    return numbers


def _says_the_same(number: int, base: Sheet, ours: Sheet) -> bool:
    return number in ours.where and ours.words(ours.where[number]) == base.words(base.where[number])


def _misread(joined: Joined) -> PlanConflict | None:
    """The first item that a parser doesn't find at its intended place."""
    plan, versions, numbers = joined
    there = set(numbers)
    for place, number in enumerate(numbers):
        texts = _texts(number, versions)
        task = plan.at(place) if place < len(plan) else None
        parent = None if task is None or task.parent is None else numbers[task.parent]
        if task is None or task.text not in texts or parent != _parent(number, versions, there):
            its = versions.theirs.tasks.get(number)
            return PlanConflict(its.line + 1 if its else 0, texts[0], "text")
    return PlanConflict(0, plan.at(len(numbers)).text, "text") if len(plan) > len(numbers) else None


def _texts(number: int, versions: Versions) -> list[str]:
    """The possible texts of an item: that of theirs if it changed it, or that of ours."""
    was, mine, its = (version.tasks[number].text if number in version.tasks else None for version in versions)
    if mine is not None and its is not None and was in (mine, its):
        return [its if mine == was else mine]
    return [text for text in (its, mine) if text is not None]


def _parent(number: int, versions: Versions, there: Container[int]) -> int | None:
    """The intended parent of an item: that of theirs if it changed it, else that of ours."""
    base, ours, theirs = versions
    if number not in theirs.tasks:
        return _above(number, ours, there)
    its = _above(number, theirs, there)
    if number not in ours.tasks or number not in base.tasks or its != _above(number, base, there):
        return its
    return _above(number, ours, there)


def _above(number: int, version: Version, there: Container[int]) -> int | None:
    """The nearest item above one that is also in the joined plan."""
    above = version.parent(number)
    while above is not None and above not in there:
        above = version.parent(above)
    return above
