"""Whether a commit may follow commits that were made since its scope began.

Stricter than the merge of a person's edit (json_merge.py): two scopes that each add 1 to a counter set it to the same
value, and one of the two must not be lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Any

from .json_merge import ABSENT
from .json_patch import same, split


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
