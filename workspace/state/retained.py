"""Which checkpoints there are, and which of them are kept."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime

from ..formats import Keep
from ..journal import CHECKPOINTS, checkpoint_position, first_kept
from ..store import Store

AFTER_FORCE = "_unclean.json"  # no name made from a person's words has a `_`

_PARTS, _APART = 4, 1000
"""Checkpoints with which the journal can begin are a quarter of the kept history apart, at least so many records."""


def paths(store: Store) -> list[str]:
    """All checkpoints, oldest first."""
    return sorted(entry.path for entry in store.list(CHECKPOINTS) if checkpoint_position(entry.path) is not None)


def position_of(path: str) -> int:
    """The record of a checkpoint, by its name."""
    found = checkpoint_position(path)
    assert found is not None, path
    return found


def superfluous(
    store: Store, keep: Keep, *, gone: Collection[str] = (), coming: Collection[str] = (), first: int = 0
) -> list[str]:
    """Those that nothing keeps. The newest always stays. So does the newest before a forced stop, because a person may
    want to return to it, and some with which the journal can begin when older records go.

    As it will be when these are `gone`, others are `coming`, and `first` is the first record that is kept."""
    known = [*(path for path in paths(store) if path not in gone), *coming]
    needed = {*ruled(store, keep, known), *_beginnings(store, known, keep, first or first_kept(store))}
    return [path for path in known if path not in needed]


def ruled(store: Store, keep: Keep, known: Sequence[str]) -> list[str]:
    """Those of the `known` that `keep.checkpoints` keeps, with the newest, and the newest before a forced stop; oldest
    first."""
    rule = keep.checkpoints
    good = [path for path in known if is_good(path)]
    first = max(0, len(known) - max(1, rule.number))
    while rule.age and first and age_of(store, known[first - 1]) <= rule.age:
        first -= 1
    return sorted({*known[first:], *good[-1:]})


def is_good(path: str) -> bool:
    """Whether it was not written after a forced stop and before any check."""
    return not path.endswith(AFTER_FORCE)


def _beginnings(store: Store, known: Sequence[str], keep: Keep, first: int) -> Iterator[str]:
    """The one with which the journal begins, and later ones, a quarter of the kept history apart. `first`: the first
    record that is kept."""
    rule = keep.history
    apart = max(rule.number // _PARTS, _APART)
    due, age = (first - 1 if first > 1 else apart), math.inf
    for path in known:
        if rule.keeps_all and first == 1:
            return  # it begins with its first record
        if position_of(path) < due or not is_good(path):
            continue
        own_age = age_of(store, path) if rule.age else 0.0
        if own_age <= age:
            yield path
            due, age = position_of(path) + apart, own_age - rule.age / _PARTS


def age_of(store: Store, path: str) -> float:
    """The age of a file in seconds; nearly infinite where the storage does not tell."""
    at = store.trace(path).at
    return (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds() if at else math.inf
