"""A position in a run's history, as a person names it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...schemas import nearest
from .. import journal
from ..base import Damaged, UsageError
from ..journal.records import Edited, Line, Rewound, ScopeBegun, ScopeCommitted
from ..state import ROOT, checkpoint
from ..store import Store
from ..views import folder_of
from .moments import Records, is_unopened_fork, no_records, records_of

LATEST = "latest"

_SEQ = re.compile(r"[0-9]{1,12}\Z")
_CHECKPOINT = re.compile(r"[0-9]{12}-[a-z0-9_-]+\Z")
_NAMED = 3


def seq_of(store: Store, named: str | int, records: Records | None = None) -> int:
    """The record that `named` means. The position is always the moment right after that record.

    42                          record 42; whether it exists, `moment_at` says
    latest                      the newest record
    ^3, 3-title, _name          the record right before this item or named scope began, for the last time if it was done
                                again; of a sub-agent `AGENT/^3`. The folders of steps/ have these names
    000000000042-3-title.json   the record of this checkpoint; also its folder, with or without `checkpoints/` before it

    UsageError for what is none of these, for an item that has not begun and for a checkpoint that does not exist, with
    those there are; Damaged if the records are lost. Reads the journal only for `latest` and for items, if `records`
    does not have it.
    """
    text = str(named).strip()
    if _SEQ.match(text):
        return int(text)
    name = text.rstrip("/").rpartition("/")[2].removesuffix(".json")
    if _CHECKPOINT.match(name) or text.endswith(".json"):
        return _of_checkpoint(store, name)
    records = records or records_of(store)
    if text == LATEST and not records.last and is_unopened_fork(store):
        return journal.first_kept(store) - 1
    if not records.last and records.problem is None and (kept := checkpoint.paths(store)):
        newest = checkpoint.position_of(kept[-1])
        raise Damaged(
            "has no records",
            path="journal",
            why=f"the newest checkpoint is at record {newest}",
            remedy="copy the folder journal/ from the place where this workspace came from",
        )
    if text == LATEST:
        if not records.last:
            raise records.problem or no_records(store)
        return records.last
    return _before_item(records, text)


def _of_checkpoint(store: Store, name: str) -> int:
    store.refresh()
    known = {path.rpartition("/")[2].removesuffix(".json"): path for path in checkpoint.paths(store)}
    if name in known:
        return checkpoint.position_of(known[name])
    there = ", ".join([*known][-_NAMED:])
    raise UsageError(
        f"there is no checkpoint {name}",
        path=store.url,
        why=f"the newest are {there}" if there else "the run has no checkpoints",
    )


class _Begun(NamedTuple):
    """The last time that a scope began."""

    agent: str
    scope: str
    title: str
    seq: int

    @property
    def names(self) -> tuple[str, ...]:
        return names_of(self.agent, self.scope, self.title)


def names_of(agent: str, scope: str, title: str) -> tuple[str, ...]:
    """How a person may name an item or a named scope: `^3` and `3-title`, `_name`; of a sub-agent `AGENT/^3`."""
    above = f"{agent}/" if agent else ""
    short = scope if scope.startswith("_") else f"^{scope}"
    return tuple(dict.fromkeys((above + short, above + folder_of(scope, title))))


def no_such_item(named: str, begun: Iterable[str], first: int, else_name: str = "") -> UsageError:
    """The error that no item of this name has begun. `begun`: the names of those that have; `first`: the first record
    that is kept; `else_name`: what a person could name instead of an item."""
    names = [*begun]
    close = nearest(named, names)
    if close:
        remedy = f"did you mean {close!r}?"
    elif names:
        remedy = f"name an item that has begun, such as `{names[0]}`{else_name}"
    else:
        remedy = f"none has begun yet{else_name.replace(',', '; name', 1)}"
    why = f"the journal is kept from record {first:,} on" if first > 1 else None
    return UsageError(f"no item {named!r} has begun", why=why, remedy=remedy)


def _before_item(records: Records, text: str) -> int:
    begun = _begun(records.lines)
    for each in begun:
        if text in each.names:
            return each.seq - 1
    if records.problem is not None:
        raise records.problem
    names = (name for each in begun for name in each.names)
    raise no_such_item(text, names, records.first, f", a record by its number, a checkpoint, or `{LATEST}`")


def _begun(lines: Sequence[Line]) -> list[_Begun]:
    """Each scope that has begun. It may be recorded again while it is open: that is not a beginning."""
    found: dict[tuple[str, str], _Begun] = {}
    are_open: set[tuple[str, str]] = set()
    for line in lines:
        match line.record:
            case ScopeBegun(agent=agent, scope=scope, title=title) if (agent, scope) not in are_open:
                found[agent, scope] = _Begun(agent, scope, title, line.seq)
                are_open.add((agent, scope))
            case ScopeCommitted(agent=agent, scope=scope):
                are_open.discard((agent, scope))
            case Rewound():
                are_open.clear()
            case Edited(agent=agent, redone=redone, dropped=dropped) if redone or dropped:
                are_open -= {(agent, scope) for scope in (*redone, *dropped)}
    return [each for each in found.values() if each.scope != ROOT]
