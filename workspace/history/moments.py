"""The records of a run, as far as they can be read, also while a process runs it; its state at any of them; and how a
person names one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from ...schemas import nearest
from .. import journal
from ..base import DEFINITION, Damaged, InvalidFile, NewerFormat, SatchelError, UsageError, stamp
from ..inspect import define, signature
from ..journal import (
    NO_CRC,
    Before,
    Edited,
    Line,
    Opened,
    Pruned,
    Rewound,
    ScopeBegun,
    ScopeCommitted,
    checkpoint_position,
    first_kept,
    gone,
    parse_each,
)
from ..state import ROOT, Moment, checkpoint
from ..store import LARGE_LIMIT, Store, read_if_there
from ..views import MessageRow, conversation, folder_of, projection

T = TypeVar("T")
_LOOKS = 8


class Records(Struct, frozen=True):
    """Records of a run, oldest first. Each follows from the one before it."""

    lines: Sequence[Line]
    problem: SatchelError | None = None  # why later ones can't be read; a torn end is no problem

    @property
    def first(self) -> int:
        """The oldest record; 1 if there are none."""
        return self.lines[0].seq if self.lines else 1

    @property
    def last(self) -> int:
        """The newest record; 0 if there are none."""
        return self.lines[-1].seq if self.lines else 0

    def after(self, moment: Moment | None) -> Records | None:
        """The records after a moment, or all of a run that begins with the first; None if some are missing."""
        at = moment.seq + 1 - self.first if moment is not None else 0
        if at < 0 or (moment is None and self.first > 1):
            return None
        if moment is not None and (at >= len(self.lines) or self.lines[at].prev != moment.crc):
            return None  # they may be of another history
        return Records(self.lines[at:], self.problem)


def records_of(store: Store) -> Records:
    """All records that the journal still has: from the first that retention has kept to the newest, or to the one
    before the first that is damaged. UsageError if there is no workspace, or if the run has moved away."""
    return steadily(store, lambda: read(store))


def steadily(store: Store, make: Callable[[], T]) -> T:
    """What `make` returns, from files that belong together. A process that runs the workspace may remove a checkpoint,
    or segments that it has rolled up, between two reads; then `make` is called again."""
    store.refresh()
    with suppress(InvalidFile, NewerFormat):  # a mistake in it is no reason not to look back
        define(store)
    for _ in range(_LOOKS):
        before = signature(store)
        try:
            return make()
        except (Damaged, FileNotFoundError):
            store.refresh()
            if signature(store) == before:
                raise
    return make()


def read(store: Store, after: int | None = None, before: Before | None = None) -> Records:
    """The records after record `after`, which has the content `before`; None: all that the journal still has."""
    due = _first(store) if after is None else after + 1
    if is_unopened_fork(store):
        return Records(())
    store.fetch([DEFINITION, *journal.expected(store, after=due - 1)])
    try:
        known = before or Before()
        return Records(journal.read(store, after=due - 1, before=known).lines)
    except Damaged as error:
        return Records(_readable(store, due, before.crc if before else NO_CRC if due == 1 else ""), error)


def is_unopened_fork(store: Store) -> bool:
    """Whether this is a fork without a record of its own: its first opening begins its journal."""
    newest = [*map(checkpoint.position_of, checkpoint.paths(store))][-1:]
    return not journal.segments(store) and newest == [journal.first_kept(store) - 1]


def _readable(store: Store, due: int, crc: str) -> list[Line]:
    """The records from `due` on, up to the first that is damaged or missing. `crc`: of the one before, if known."""
    lines: list[Line] = []
    for path in map(journal.segment_path, journal.segments(store)):
        with suppress(InvalidFile, NewerFormat, Damaged):
            for line in parse_each(store.read(path, limit=LARGE_LIMIT).data.split(b"\n")[:-1]):
                if line is not None and line.seq == due and (not crc or line.prev == crc):
                    lines.append(journal.filled(store, line))
                    due, crc = line.seq + 1, line.crc
    return lines


def kept_from(store: Store) -> int:
    """The first record from which on the state at every record can be made. Of earlier ones only those of checkpoints
    can still be."""
    first = _first(store)
    if first == 1:
        return 1
    return min((seq for seq in map(checkpoint.position_of, checkpoint.paths(store)) if seq >= first - 1), default=first)


def is_whole(store: Store) -> bool:
    """Whether the journal begins with record 1. It does not after a pruning, nor of a fork, which may begin right after
    record 1: then the state there is that of a checkpoint, and `kept_from` is 1, too."""
    return _first(store) == 1


def _first(store: Store) -> int:
    """The first record of the journal. One without any segment begins where the kept records end."""
    return next(iter(journal.segments(store)), journal.first_kept(store))


def moment_at(store: Store, seq: int, records: Records | None = None) -> Moment:
    """The whole run right after record `seq`: state, plan and open scopes of every agent of the tree.

    It is made from the newest checkpoint at or before the record, and the records since. Changes nothing, and needs no
    lock, so a process may run the workspace meanwhile. Results of finished steps and scopes are only in the records
    (`records_of`). Damage that comes after the record does not matter. Reads the journal only if `records` does not
    have what is needed of it.

    UsageError if there is no workspace or no such record yet, naming the newest, or if retention has removed what the
    state would be made from, naming the first record that is kept. Damaged if that is broken.
    """
    return steadily(store, lambda: _moment_at(store, seq, records))


def _moment_at(store: Store, seq: int, known: Records | None = None) -> Moment:
    if seq < 1:
        raise UsageError(f"there is no record {seq}", remedy="the first is 1")
    kept = kept_from(store)
    found, _, complaints, *_ = checkpoint.newest(store, up_to=seq)
    if found is not None and found.seq == seq:
        return found
    if seq < kept:
        raise gone(seq, kept)
    if found is None and not is_whole(store):
        raise Damaged(f"the state at record {seq:,} can't be made", why="; ".join(complaints))
    records = known.after(found) if known is not None else None
    if records is None:
        records = read(store, found.seq, found.before) if found else read(store, 0)
    last = records.last or (found.seq if found else 0)
    if last < seq:
        raise records.problem or not_yet(store, seq, last)
    moment = found or Moment(run_id=_run_id(records))
    moment.apply(line for line in records.lines if line.seq <= seq)
    return moment


def check_kept(store: Store, seq: int, records: Records | None = None) -> None:
    """Gone if the journal has given up the state at record `seq`. Its files may still be there, but the process that
    removes them may do so at any time, even if it has lost the workspace meanwhile. `records`: what was read of the
    journal before; only what came after it is read."""
    lines: list[Line] = []
    if records is not None and records.lines:
        newest = records.lines[-1]
        lines += [*records.lines, *journal.read(store, after=newest.seq, before=newest.before).lines]
    else:
        lines += records_of(store).lines
    pruned = (line.record for line in lines if isinstance(line.record, Pruned))
    kept = max([first_kept(store) - 1, *(checkpoint_position(record.base) or 0 for record in pruned)])
    if seq < kept:
        raise gone(seq, kept)


class Story(NamedTuple):
    """The oldest state that the records can be replayed from, and all records since, as far as they can be read."""

    start: Moment
    lines: Sequence[Line]
    problem: SatchelError | None  # why there are no later ones; a torn end is no problem
    records: Records  # all that are kept, also those before the start
    begin: Callable[[], Moment]  # makes another `start`, for a replay that moves it on


def story(store: Store) -> Story:
    """What the run has gone through. It begins with an empty moment, or with the first state that retention has kept.
    Errors as of `moment_at`, except for records that are damaged: then `problem` says so."""
    return steadily(store, lambda: _story(store))


def _story(store: Store) -> Story:
    if is_whole(store):
        records = read(store, 0)
        run_id = _run_id(records)
        return Story(Moment(run_id=run_id), records.lines, records.problem, records, lambda: Moment(run_id=run_id))
    kept = kept_from(store)
    start, records = _moment_at(store, kept), read(store)
    if records.last <= kept and records.problem is not None:  # damage that the state does not need
        records = read(store, start.seq, start.before)
    lines = [line for line in records.lines if line.seq > start.seq]
    return Story(start, lines, records.problem, records, lambda: moment_at(store, kept))


def not_yet(store: Store, seq: int, last: int) -> SatchelError:
    """The error that there is no record `seq` yet. `last`: the newest."""
    if not last:
        return no_records(store)
    return UsageError(f"there is no record {seq:,} yet", why=f"the newest is record {last:,}")


def no_records(store: Store) -> SatchelError:
    """The error that there are none: the run has not begun, or its journal is missing."""
    state = read_if_there(store, projection.STATE)
    shown = stamp.read_json(state.data).stamp if state else None
    if shown is None:
        return UsageError("there are no records", why="the run has not begun")
    return Damaged(
        "has no records",
        path="journal",
        why=f"state.json is of record {shown.seq}",
        remedy="copy the folder journal/ from the place where this workspace came from",
    )


def _run_id(records: Records) -> str:
    """Of the journal itself: workspace.yaml may have a mistake now. In a bucket a fence may come before it."""
    opened = (line.record for line in records.lines if isinstance(line.record, Opened))
    return next((record.run_id for record in opened), "")


Conversations = dict[str, list[MessageRow]]
"""By agent, the messages of a conversation, oldest first."""


def conversations(store: Store, moment: Moment) -> Conversations:
    """By agent, the messages at a moment, oldest first. Without those that the journal no longer has."""
    if not any(agent.messages for agent in moment.agents.values()):
        return {path: [] for path in moment.agents}
    try:
        found = conversation.recorded(store, moment)
    except SatchelError:
        return {}
    return {path: found[path][-1] for path in moment.agents if len(found[path][-1]) == moment.agents[path].messages}


def plain(row: MessageRow) -> dict[str, Any]:
    """What is said, as JSON values."""
    return {"role": row.role, "content": msgspec.json.decode(row.content)}


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


class Named(Protocol):
    """What is known of an item, under each of the names that a person may give it."""

    @property
    def names(self) -> Sequence[str]: ...


N = TypeVar("N", bound=Named)


def named_so(item: str, known: Sequence[N], first: int, problem: SatchelError | None) -> list[N]:
    """The `known` of the item that a person has named. UsageError if it has not begun; if not all records could be
    read, the `problem` with them instead. `first`: the first record that is kept."""
    wanted = f"^{item}" if item.isdecimal() else item.rstrip("/")
    found = [each for each in known if wanted in each.names]
    if not found:
        raise problem or no_such_item(wanted, (name for each in known for name in each.names), first)
    return found


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
