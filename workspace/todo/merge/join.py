"""One plan with the items and the text of two, checked with the parser."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ..plan import Plan
from .align import align
from .conflict import PlanConflict, Questions
from .match import Version, Versions
from .sheet import TOP, Sheet
from .weave import Woven, weave


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
    joined = Joined(Plan(woven.text), versions, list(woven.holders))
    whole = ours
    if not questions.open:
        if (wrong := _misread(joined.plan, woven, versions)) is None:
            return joined
        whole = theirs if questions.ask(wrong) == "theirs" else ours
    return Joined(whole.plan.copy(), versions, whole.numbers)


def _reworded(base: Sheet, ours: Sheet, theirs: Sheet) -> list[int]:
    """The numbers of theirs, with those of new items in places where as many others were.

    They are the same items in other words, if ours has only changed marks and ids there. It matters for items that the
    run has begun meanwhile: their ids are not in the file yet.
    """
    new_numbers: dict[int, int] = {}
    start, its_start = 0, 0
    keys, its_keys = ([each[:2] for each in sheet.entries] for sheet in (base, theirs))
    for end, its_end in [*align(keys, its_keys), (len(keys), len(its_keys))]:
        gone = [each.number for each in base.entries[start:end] if each.is_item and each.number not in theirs.items]
        new = [each.number for each in theirs.entries[its_start:its_end] if each.is_item]
        new = [number for number in new if number not in base.items and number not in ours.items]
        if len(gone) == len(new) and all(each in ours.items and ours.words(each) == base.words(each) for each in gone):
            for its, number in zip(new, gone, strict=True):
                old, mine, fresh = base.version.tasks[number], ours.version.tasks[number], theirs.version.tasks[its]
                if (old.id, old.mark, fresh.id) == (None, "open", None) and mine.id is not None:
                    new_numbers[its] = number
        start, its_start = end + 1, its_end + 1
    return [new_numbers.get(number, number) for number in theirs.version.numbers]


def _misread(plan: Plan, woven: Woven, versions: Versions) -> PlanConflict | None:
    """The first item that a parser doesn't find at its intended place."""
    numbers = list(woven.holders)
    for place, (number, holder) in enumerate(woven.holders.items()):
        texts = _texts(number, versions)
        task = plan.at(place) if place < len(plan) else None
        parent = TOP if task is None or task.parent is None else numbers[task.parent]
        if task is None or task.text not in texts or parent != holder:
            its = versions.theirs.tasks.get(number)
            return PlanConflict(its.line + 1 if its else 0, texts[0], "text")
    if len(plan) > len(numbers):
        return PlanConflict(0, plan.at(len(numbers)).text, "text")
    return None if woven.is_complete else PlanConflict(0, "", "text")


def _texts(number: int, versions: Versions) -> list[str]:
    """The possible texts of an item: that of theirs if it changed it, or that of ours."""
    was, mine, its = (version.tasks[number].text if number in version.tasks else None for version in versions)
    if mine is not None and its is not None and was in (mine, its):
        return [its if mine == was else mine]
    return [text for text in (its, mine) if text is not None]
