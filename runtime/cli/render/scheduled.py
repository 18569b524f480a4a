"""The lines of `status` about `schedule:`: the last and next times, and clocks that must be wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...control import Standing
from .words import since

_UNOPENED = "done by a start whose agent did not open its inbox"


def as_words(standing: Standing) -> Iterator[str]:
    for each in standing.schedule:
        settled = f", {_UNOPENED}" if each.last and each.last.unopened else ""
        said = f"last {since(each.last.due)}{settled}; " if each.last else ""
        yield f"{each.name}: {said}next {since(each.next) if each.next else 'never'}"
    if standing.ahead:
        yield standing.ahead


def as_json(standing: Standing) -> list[dict[str, Any]]:
    return [
        {
            "name": each.name,
            "next": each.next or None,
            "last": each.last.due if each.last else None,
            "unopened": each.last.unopened if each.last else None,
        }
        for each in standing.schedule
    ]
