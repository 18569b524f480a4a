"""Three-way merge of JSON values: the base as it was written, the run's version, and the file of a person.

Pure. The result may share parts with the arguments, which are not changed.

A commit that follows others needs a stricter rule (`contradiction`): two scopes that each add 1 to a counter set it to
the same value, and one of the two must not be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from operator import is_
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from ...schemas import dotted, short
from .json_patch import same, split

Side = Literal["ours", "theirs"]


class Absent(Enum):
    """The type of ABSENT: an enum, so that it is one object in every process and for every type checker."""

    ABSENT = "nothing"

    def __str__(self) -> str:
        return self.value


ABSENT: Final = Absent.ABSENT
"""No value at all. null is a value."""


class Conflict(Struct, frozen=True):
    """A value that can't be merged: both sides changed it, or it is gone and there is no base that tells whether that
    was on purpose.

    `str()` is one line for people.
    """

    place: str
    base: Any
    ours: Any
    theirs: Any
    why: Literal["both_changed", "removed_without_base"]

    def __str__(self) -> str:
        if self.why == "removed_without_base":
            now = "no longer has it" if self.theirs is ABSENT else f"says {short(self.theirs)}"
            return f"{self.place}: the run has {short(self.ours)}; the file {now}, and what it was before is not known"
        was = "was not there" if self.base is ABSENT else f"was {short(self.base)}"
        made = "removed it" if self.ours is ABSENT else f"set it to {short(self.ours)}"
        now = "no longer has it" if self.theirs is ABSENT else f"says {short(self.theirs)}"
        return f"{self.place}: it {was}; the run has {made}, the file {now}"


class Merged(NamedTuple):
    """`value` has our version wherever there is a conflict."""

    value: Any
    conflicts: tuple[Conflict, ...]


def merge(base: Any, ours: Any, theirs: Any, *, place: str = "data", prefer: Side | None = None) -> Merged:
    """Join the edits in `theirs`, a file made from `base`, with what the run has changed since.

    Mappings are merged key by key, in the order of theirs. Lists that both only appended to are joined, unless ours
    already has what theirs appended: after a crash the same edit may come twice.

    Without a base (ABSENT) theirs is taken, except for what it lacks: a key, an element of a list, or all of a text,
    list or mapping that is not empty. It is unknown whether that was removed on purpose, so it is a conflict.

    `prefer` resolves all conflicts.
    """
    merging = _Merging(prefer)
    value = merging.adopt(place, ours, theirs) if base is ABSENT else merging.merge(place, base, ours, theirs)
    return Merged(value, tuple(merging.conflicts))


class _Merging:
    def __init__(self, prefer: Side | None):
        self.prefer = prefer
        self.conflicts: list[Conflict] = []

    def merge(self, place: str, base: Any, ours: Any, theirs: Any) -> Any:
        if same(ours, theirs):
            return theirs
        if same(base, theirs):
            return ours
        if same(base, ours):
            return theirs
        if type(ours) is dict and type(theirs) is dict and (type(base) is dict or base is ABSENT):
            before = {} if base is ABSENT else base
            keys = [*theirs, *(key for key in ours if key not in theirs)]
            merged = {
                key: self.merge(
                    below(place, key), before.get(key, ABSENT), ours.get(key, ABSENT), theirs.get(key, ABSENT)
                )
                for key in keys
            }
            return {key: value for key, value in merged.items() if value is not ABSENT}
        if _extends(base, ours) and _extends(base, theirs):
            more = theirs[len(base) :]
            return ours if _holds(ours[len(base) :], more) else ours + more
        return self._ask(Conflict(place, base, ours, theirs, "both_changed"))

    def adopt(self, place: str, ours: Any, theirs: Any) -> Any:
        if same(ours, theirs):
            return theirs
        if type(ours) is dict and type(theirs) is dict and (theirs or not ours):
            keys = [*theirs, *(key for key in ours if key not in theirs)]
            merged = {
                key: self.adopt(below(place, key), ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in keys
            }
            return {key: value for key, value in merged.items() if value is not ABSENT}
        if _lacks(theirs, ours):
            return self._ask(Conflict(place, ABSENT, ours, theirs, "removed_without_base"))
        return theirs

    def _ask(self, conflict: Conflict) -> Any:
        if self.prefer is None:
            self.conflicts.append(conflict)
        return conflict.theirs if self.prefer == "theirs" else conflict.ours


def below(place: str, key: str) -> str:
    """The place of a key: `data.a`, `data["a.txt"]`."""
    name = dotted((key,))
    return f"{place}{name}" if name.startswith("[") else f"{place}.{name}"


def _extends(base: Any, value: Any) -> bool:
    """Whether `value` is the list `base`, possibly with more at its end."""
    return type(base) is list and type(value) is list and same(base, value[: len(base)])


def _holds(values: list[Any], run: list[Any]) -> bool:
    """Whether `run` occurs in `values`, in one piece."""
    return any(same(values[start : start + len(run)], run) for start in range(len(values) - len(run) + 1))


def _lacks(theirs: Any, ours: Any) -> bool:
    """Whether `theirs` lacks something of `ours`. A number or a shorter text is only another value."""
    if ours is ABSENT:
        return False
    if theirs is ABSENT:
        return True
    if type(ours) is list and type(theirs) is list:
        left = iter(theirs)
        return not all(any(same(value, other) for other in left) for value in ours)
    if type(ours) in (dict, list):
        return bool(ours)
    return bool(ours) and type(ours) is str and (theirs is None or theirs in ("", [], {}))


def contradiction(places: Iterable[str], base: Any, now: Any) -> str | None:
    """The first of these places, which a patch of `base` changes, that is different in `now`, equal changes included.
    None: the patch can be applied to `now`. Two scopes may change different keys, and both may append to a list."""
    if base is now:
        return None
    return next((place for place in places if not _is_untouched(place, base, now)), None)


def _is_untouched(place: str, base: Any, now: Any) -> bool:
    *parents, last = split(place) or [""]
    for part in parents:
        if base is now or type(base) is not dict or type(now) is not dict:
            return _is_same(base, now)
        base, now = base.get(part, ABSENT), now.get(part, ABSENT)
    if type(base) is dict and type(now) is dict and place:
        return same(base.get(last, ABSENT), now.get(last, ABSENT))
    if last == "-" and type(base) is list and type(now) is list:
        return _is_same(base, now[: len(base)])
    return _is_same(base, now)


def _is_same(base: Any, now: Any) -> bool:
    """Versions of the data share their unchanged parts, so a long list is compared quickly."""
    if type(base) is list and type(now) is list and len(base) == len(now) and all(map(is_, base, now)):
        return True
    return same(base, now)
