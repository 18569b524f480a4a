"""Find the equal lines of two texts."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence

Pair = tuple[int, int]


def align(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[Pair]:
    """Places of equal keys, rising on both sides. The first of several equal keys is paired with the first, and so on.

    difflib would take minutes for a long text full of equal lines.
    """
    places = {key: place for place, key in enumerate(_counted(other))}
    return increasing([(place, places[key]) for place, key in enumerate(_counted(one)) if key in places])


def increasing(pairs: Sequence[Pair]) -> list[Pair]:
    """The longest selection of pairs that rises on both sides; on the first they already rise."""
    lasts: list[int] = []
    ends: list[int] = []
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(lasts, place)
        lasts[length : length + 1] = [place]
        ends[length : length + 1] = [index]
        before.append(ends[length - 1] if length else -1)
    chosen: list[Pair] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def _counted(keys: Sequence[Hashable]) -> list[tuple[Hashable, int]]:
    """Each key with the number of equal ones up to it."""
    seen: Counter[Hashable] = Counter()
    found = []
    for key in keys:
        seen[key] += 1
        found.append((key, seen[key]))
    return found
