"""Find the equal lines of two texts."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

Pair = tuple[int, int]


def align(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[Pair]:
    """Places of equal keys, rising on both sides.

    Keys that occur once on each side are matched first (patience diff): difflib alone would take minutes for a long
    text full of equal lines.
    """
    single, its_single = _once(one), _once(other)
    ties = increasing([(place, its_single[key]) for key, place in single.items() if key in its_single])
    pairs: list[Pair] = []
    start, its_start = 0, 0
    for end, its_end in [*ties, (len(one), len(other))]:
        pairs += _between(one, other, (start, end), (its_start, its_end))
        pairs.append((end, its_end))
        start, its_start = end + 1, its_end + 1
    return pairs[:-1]


def increasing(pairs: Sequence[Pair]) -> list[Pair]:
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
    chosen: list[Pair] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


def embed(one: Sequence[Hashable], other: Sequence[Hashable]) -> list[Pair]:
    """Like `align`, but if one side contains all of the other, in order, it finds all of it."""
    if (found := _subsequence(other, one)) is not None:
        return [(place, index) for index, place in enumerate(found)]
    if (found := _subsequence(one, other)) is not None:
        return list(enumerate(found))
    return align(one, other)


def _once(keys: Sequence[Hashable]) -> dict[Hashable, int]:
    counts = Counter(keys)
    return {key: place for place, key in enumerate(keys) if counts[key] == 1}


def _between(one: Sequence[Hashable], other: Sequence[Hashable], mine: Pair, its: Pair) -> Iterator[Pair]:
    (start, end), (its_start, its_end) = mine, its
    while start < end and its_start < its_end and one[start] == other[its_start]:
        yield start, its_start
        start, its_start = start + 1, its_start + 1
    tail: list[Pair] = []
    while start < end and its_start < its_end and one[end - 1] == other[its_end - 1]:
        end, its_end = end - 1, its_end - 1
        tail.append((end, its_end))
    if start < end and its_start < its_end:
        matcher = SequenceMatcher(None, one[start:end], other[its_start:its_end], autojunk=False)
        for block in matcher.get_matching_blocks():
            yield from ((start + block.a + step, its_start + block.b + step) for step in range(block.size))
    yield from reversed(tail)


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
