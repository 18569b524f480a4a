"""What a run has said. What happened in it, record by record: all of it, the part that a filter lets through, or the
audit, which tells what people and processes did to it; and its current result. And what its processes have printed, by
pages and line by line: `.satchel/run.log`, after what it had before it was started again. Of a run at a URL that is the
log of this machine, or the one that was uploaded.

A place in what was printed is an offset in both files together. It is another one once the log was started again, which
happens rarely.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

from ...schemas import nearest
from ...workspace import journal
from ...workspace.base import Damaged, SatchelError, UsageError, arguments, lines, moment_before, time_text
from ...workspace.inspect import define, lease, look_beside
from ...workspace.journal import (
    AnyRecord,
    ApprovalAnswered,
    ApprovalRevoked,
    Before,
    Closed,
    Edited,
    Failure,
    Forced,
    Kept,
    Line,
    Opened,
    Output,
    Paused,
    PauseLate,
    PauseRequested,
    PlanChanged,
    Pruned,
    Resolved,
    Resumed,
    Rewound,
    Saved,
    blobs,
)
from ...workspace.plan import Progress
from ...workspace.secrets import Redactor, redactor_of
from ...workspace.state import OVER, Status
from ...workspace.store import DiskStore, Entry, Store, Version
from ..supervision import child
from .place import Place, at_once

OWN = "."
"""Names the run's own agent."""

RECORD_TYPES = tuple(kind.__struct_config__.tag for kind in AnyRecord.__args__)
"""The types of records: `step.completed`, `edited`, ..."""

PAGE = 400
"""Lines on one page."""

PAGE_BYTES = 128 << 10
"""Bytes of one page. A longer line is cut there."""

READ_LIMIT = 1 << 30

_AUDITED = (
    Opened,
    Closed,
    Saved,
    Edited,
    ApprovalAnswered,
    ApprovalRevoked,
    Resolved,
    PauseRequested,
    PauseLate,
    Forced,
    Paused,
    Resumed,
    Rewound,
    Pruned,
)

_SHOWN = 10

_LOOK = 0.1
"""Seconds between two looks of a follower on a disk."""

_PROCESS_LOOK = 0.2

_LOOKS = 8

_SHARE = 4
"""A look is followed by a rest that is so many times as long."""

_KNOWN = 4096
"""Bytes before a place by which it is found again once the log was started again."""

_QUIET = 5
"""Looks without a new line after which the log of a run that is over has its last one: a process prints after it has
closed the run."""


def is_audited(record: AnyRecord) -> bool:
    """Whether a record is a save of a checkpoint, an opening or a closing, or the deed of a person."""
    return isinstance(record, _AUDITED) or (isinstance(record, PlanChanged) and record.by == "person")


class Who:
    """Who did what a record tells. Give it every record, in their order."""

    def __init__(self) -> None:
        self._process = ""  # that has the workspace

    def did(self, line: Line) -> str:
        """A person, as the record names one; else the process and the user who has started it. Empty if the record of
        its opening was not read."""
        record = line.record
        if isinstance(record, Opened):
            self._process = f"{record.by or record.host}, process {record.pid}"
            return self._process
        if isinstance(record, PlanChanged):
            return record.person or f"the {record.by}"
        said: str | None = getattr(record, "by", None)
        return self._process if said is None else said or "a person"


class Filter(Struct):
    """What a record must be. It notes the names in all records, for the error about a name that none of them has."""

    types: frozenset[str] | None
    names: dict[str, str]  # of an `item`, an `agent` and a `step`
    since: str  # UTC, in the form of a record's time
    audit: bool
    _seen: dict[str, set[str]] = field(default_factory=dict)

    def takes(self, line: Line) -> bool:
        record = line.record
        named = [self._is_of(name, wanted, record) for name, wanted in self.names.items()]
        return (
            all(named)
            and (self.types is None or record.__struct_config__.tag in self.types)
            and line.at >= self.since
            and (not self.audit or is_audited(record))
        )

    def check(self) -> None:
        """After all records: UsageError for a name that none of them has, if they have others."""
        for name, wanted in self.names.items():
            seen = self._seen.get(name)
            if seen and wanted not in seen:
                close = nearest(wanted, sorted(seen))
                known = ", ".join(sorted(seen)[:_SHOWN]) + (", ..." if len(seen) > _SHOWN else "")
                remedy = f"did you mean {close!r}?" if close else f"the records name {known}"
                raise UsageError(f"no record is of the {name} {wanted!r}", remedy=remedy)

    def _is_of(self, name: str, wanted: str, record: AnyRecord) -> bool:
        found = _NAMED[name](record)
        if not found:
            return False
        self._seen.setdefault(name, set()).add(found)
        return found == wanted or (name == "agent" and found.startswith(f"{wanted}/"))


def _agent_of(record: Any) -> str | None:
    agent: str | None = getattr(record, "agent", None)
    return OWN if agent == "" else agent


def _step_of(record: Any) -> str | None:
    step = getattr(record, "step", None)
    return step if isinstance(step, str) else step and step.key[0]  # an edit names the call


_NAMED = {"item": lambda record: getattr(record, "scope", None), "agent": _agent_of, "step": _step_of}
"""What a record says of each."""


def filter_of(
    item: str | None,
    type: str | None,
    agent: str | None,
    step: str | None,
    since: str | timedelta | datetime | None,
    audit: bool,
) -> Filter:
    """UsageError for a value that can't be one."""
    named = {"item": item, "agent": agent, "step": step}
    names = {name: arguments.text(name, value) for name, value in named.items() if value is not None}
    if "item" in names:
        names["item"] = names["item"].removeprefix("^")
    types = None if type is None else _types(type)
    return Filter(types, names, "" if since is None else time_text(_since(since)), audit)


def _types(pattern: str) -> frozenset[str]:
    found = frozenset(each for each in RECORD_TYPES if isinstance(pattern, str) and fnmatchcase(each, pattern))
    if not found:
        close = nearest(pattern, RECORD_TYPES) if isinstance(pattern, str) else None
        raise UsageError(
            f"there are no records of type {pattern!r}",
            remedy=f"did you mean {close!r}?" if close else f"there are {', '.join(RECORD_TYPES)}",
        )
    return found


def _since(since: str | timedelta | datetime) -> datetime:
    """So long ago, or a time: of a time of day the last one."""
    now = datetime.now(UTC)
    if isinstance(since, timedelta):
        return now - since
    if isinstance(since, datetime):
        return arguments.aware("log(since=)", since, "the records have times in UTC")
    return moment_before(arguments.text("since", since), now)


class LogRow(NamedTuple):
    """A record: its line of the journal with all keys, its content (`seq`, `at` in UTC, `epoch`, `record`), and `who`
    did it: the person that the record names, else the process and the user who has started it."""

    data: bytes
    line: Line
    who: str = ""

    @property
    def record(self) -> dict[str, Any]:
        """All that the line says, as JSON values by the names of the file: `row.record["type"]`. In `line.record` what
        agents and people have said is unread (msgspec.Raw)."""
        try:
            found: dict[str, Any] = msgspec.json.decode(self.data)
        except (msgspec.MsgspecError, RecursionError) as error:  # in a result, which nothing had read yet
            raise Damaged(
                "can't be read",
                path=f"journal, record {self.line.seq}",
                why=str(error),
                remedy="take the journal from a backup",
            ) from None
        return found


class Result(Struct, frozen=True):
    """The recorded result of a run, active or stopped.

    `status` and, if it has stopped, the `reason`; `state`, the data of state.json, as JSON values; `outputs` by path,
    each with size and hash; `items` of the plan, finished and total; `failure`, the agent's error if it has failed;
    `input`, the arguments that the agent began with, by parameter; `returned`, what it has returned, both as JSON
    values. `run` of a completed run returns that value in its annotated type.
    """

    url: str
    run_id: str
    status: Status
    reason: str
    state: Any
    outputs: dict[str, Output]
    items: Progress
    failure: Failure | None
    input: dict[str, Any]
    returned: Any


def result(place: Place) -> Result:
    """What is on record now."""
    moment = look_beside(place.store).moment
    failure = moment.error if moment.status == "failed" else None
    root = moment.root
    return Result(
        place.url,
        moment.run_id,
        moment.status,
        moment.reason,
        root.data,
        moment.outputs,
        root.plan.progress,
        failure,
        value_of(place.store, root.input) or {},
        value_of(place.store, root.result),
    )


def value_of(store: Store, kept: Kept | None) -> Any:
    """A recorded value as JSON. Damaged if it can't be read."""
    return None if kept is None else msgspec.json.decode(blobs.fetch(store, kept))


def log(place: Place, last: int | None, wanted: Filter, *, follows: bool) -> Iterator[LogRow]:
    """All readable records that match, oldest first; then raise the error, if there is one. With `follows` then also
    those to come, until the run is over for good."""
    if follows:
        arguments.no_loop("log", "use `events(follow=True)` there")
    return _log(place, arguments.count("last", last, least=0), wanted, follows)


def _log(place: Place, last: int | None, wanted: Filter, follows: bool) -> Iterator[LogRow]:
    store = place.store
    problem: SatchelError | None = None
    store.refresh()
    try:
        define(store)
    except UsageError:
        raise
    except SatchelError as error:
        problem = error  # the journal can be read without it
    rows = _Rows(store)
    chosen = (row for row in rows.read() if wanted.takes(row.line))
    yield from chosen if last is None else deque(chosen, maxlen=last)
    if follows and not problem:
        if rows.is_broken:
            journal.read(store, after=journal.first_kept(store) - 1)  # a process may be writing the end
        yield from (row for row in _following(place, rows) if wanted.takes(row.line))
        return
    if rows.is_broken:
        # Says whether a crash explains it, and raises if not.
        found = journal.read(store, after=journal.first_kept(store) - 1)
        if found.torn:
            place.tell(f"note: {found.torn}, as after a crash; the next start cuts it off")
    if problem:
        raise problem
    wanted.check()


def _following(place: Place, rows: _Rows) -> Iterator[LogRow]:
    """The records after those, as they become durable, until the run is completed or cancelled."""
    sizes: dict[int, int] = {}
    while not rows.is_over:
        began = time.monotonic()
        now = journal.sizes(place.store)
        if now != sizes:
            sizes = now
            before = rows.last.before if rows.last else Before()
            for line in journal.read(place.store, after=rows.seq, before=before).lines:
                yield rows.row(journal.full(line), line)
        if not rows.is_over:
            at_once(place.look_again(max(_LOOK, _SHARE * (time.monotonic() - began))))


class _Rows:
    """All readable records. `is_broken` is set afterwards if some were not readable."""

    def __init__(self, store: Store):
        self.is_broken = self.is_over = False
        self.seq, self.crc = 0, ""  # of the last one; an empty crc is not known
        self.last: Line | None = None
        self._store, self._who = store, Who()

    def read(self) -> Iterator[LogRow]:
        """A process that runs the workspace may merge or prune segments meanwhile: then the rest is listed again."""
        for _ in range(_LOOKS):
            try:
                yield from self._read()
                return
            except FileNotFoundError:
                self._store.refresh()
        self.is_broken = True

    def _read(self) -> Iterator[LogRow]:
        """Those after record `seq`. FileNotFoundError if a segment is gone."""
        known, kept = self.seq, journal.first_kept(self._store) - 1
        for line in journal.kept_lines(self._store):
            if line.seq > known:
                yield self.row(journal.encode(line)[:-1], line)
        if kept > known:
            known, self.seq, self.crc = kept, kept, ""
        for data, read in journal.once(self._segments(), first=known + 1):
            if read is None:
                self.is_broken = True
                continue
            self.is_broken |= read.seq != self.seq + 1 or read.prev != (self.crc or read.prev)
            yield self.row(data, read)

    def _segments(self) -> Iterator[bytes]:
        for path in map(journal.segment_path, journal.segments(self._store)):
            try:
                data = self._store.read(path, limit=READ_LIMIT).data
            except SatchelError:
                self.is_broken = True
                continue
            self.is_broken |= not data.endswith(b"\n")
            yield data

    def row(self, data: bytes, line: Line) -> LogRow:
        """The next one."""
        self.seq, self.crc, self.last = line.seq, line.crc, line
        match line.record:
            case Closed(status=str(status)):
                self.is_over = status in OVER
            case Opened(why="run"):
                self.is_over = False
        return LogRow(journal.whole(data, line), line, self._who.did(line))


class ProcessLine(Struct, frozen=True):
    """A line that a process has printed, redacted as `redact:` says. `start`: not printed, but the mark that a process
    starts, with its time in UTC; else empty. An agent may print what looks like one."""

    text: str
    start: str = ""


class ProcessLog(Struct, frozen=True):
    """Lines from the place `begin` to `end` of a log that has `bytes`. `path`: its file, or its URL; empty if there is
    none."""

    lines: list[ProcessLine]
    begin: int
    end: int
    bytes: int
    path: str = ""


def process_page(place: Place, *, before: int | None = None, after: int | None = None, most: int = PAGE) -> ProcessLog:
    """The last lines before a place, or the first ones from a place on; without one the last of all. Costs what is on
    the page, whatever the log has."""
    store = place.store
    store.refresh()
    redactor, text = redactor_of(define(store)), _Printed(store)
    if after is not None:
        begin = min(after, text.bytes)
        return _shown(text, redactor, _after(text, begin, most), begin)
    return _before(text, redactor, text.bytes if before is None else before, most)


def process_lines(place: Place, last: int | None = None, *, follows: bool = False) -> Iterator[ProcessLine]:
    """All lines, or the last ones. With `follows` then also those to come, until the run is completed or cancelled, but
    those that are gone from the disk before they were read."""
    if follows:
        arguments.no_loop("process_log", "use `process_log_page()` there")
    return _lines(place, arguments.count("last", last, least=0), follows)


def _lines(place: Place, last: int | None, follows: bool) -> Iterator[ProcessLine]:
    store = place.store
    store.refresh()
    redactor, text = redactor_of(define(store)), _Printed(store)
    at = 0 if last is None else _back(text, last)
    end = None if follows else text.bytes  # what comes meanwhile is for those who follow
    read = text.read(max(0, at - _KNOWN), min(at, _KNOWN))  # the last of what is before the place
    sizes, is_over, quiet = dict[int, int](), False, 0
    while True:
        found = _after(text, at, PAGE, waits=follows)
        if follows and text.was_restarted:
            text, at = _moved(place, text, at, read)
            continue
        quiet = 0 if found else quiet + 1
        shown = _shown(text, redactor, found, at)
        yield from shown.lines
        at, read = shown.end, (read + b"".join(found))[-_KNOWN:]
        if end is not None and at >= end:
            return
        if found and at < text.bytes:
            continue
        if end is None:
            now = journal.sizes(store)
            if now != sizes:
                sizes, is_over = now, bool(now) and look_beside(store).moment.status in OVER
            if is_over and quiet > _QUIET and lease.holder(store) is None:
                yield from _shown(text, redactor, _after(text, at, PAGE), at).lines
                return
            at_once(place.look_again(_PROCESS_LOOK))
        text, at = _moved(place, text, at, read)


def _before(text: _Printed, redactor: Redactor, place: int, most: int) -> ProcessLog:
    end = min(place, text.bytes)
    begin = max(0, end - PAGE_BYTES)
    found = text.read(begin, end - begin).splitlines(keepends=True)
    if begin and len(found) > 1:
        del found[0]  # it may be a part of a line
    found = found[-most:]
    return _shown(text, redactor, found, end - sum(map(len, found)))


def _after(text: _Printed, begin: int, most: int, *, waits: bool = False) -> list[bytes]:
    """`waits`: a line that a process may still be writing is left for later."""
    data = text.read(begin, PAGE_BYTES)
    found = data.splitlines(keepends=True)
    is_cut = bool(found) and not found[-1].endswith((b"\n", b"\r"))
    is_cut = is_cut and (len(found) > 1 or (waits and len(data) < PAGE_BYTES))
    if is_cut and (waits or begin + len(data) < text.bytes):
        del found[-1]
    return found[:most]


def _shown(text: _Printed, redactor: Redactor, found: list[bytes], begin: int) -> ProcessLog:
    data = b"".join(found)
    if not data:
        return ProcessLog([], begin, begin, text.bytes, text.path)
    told = [ProcessLine(each, child.started_at(each)) for each in lines(redactor.text(_decoded(data)))]
    return ProcessLog(told, begin, begin + len(data), text.bytes, text.path)


def _decoded(data: bytes) -> str:
    """Without the end of the last line, which would be one more."""
    return data.decode(errors="replace").removesuffix("\n").removesuffix("\r")


def _moved(place: Place, known: _Printed, at: int, read: bytes) -> tuple[_Printed, int]:
    """The log as it is now, and where the place `at` is in it, which comes after what was `read`."""
    text = _Printed(place.store)
    if text.before == known.before:
        return text, at
    if text.newest >= known.newest:  # its end was copied, and it is about to be emptied
        at_once(place.look_again(_PROCESS_LOOK))
        text = _Printed(place.store)
    own, old = at - known.bytes + known.newest, text.bytes - text.newest
    read = read[-own:] if own > 0 else b""
    found = text.read(0, old).rfind(read, 0, max(0, old - max(0, known.bytes - at))) if read else -1
    return text, found + len(read) if found >= 0 else 0


def _back(text: _Printed, count: int) -> int:
    """The place before the last `count` lines."""
    at = text.bytes
    while at and count:
        size = min(at, PAGE_BYTES)
        found = text.read(at - size, size).splitlines(keepends=True)
        if at > size and len(found) > 1:
            del found[0]
        found = found[-count:]
        at -= sum(map(len, found))
        count -= len(found)
    return at


class _Printed:
    """The bytes of a log as they are now: of the file before it, and then of its own, `newest` in number."""

    def __init__(self, store: Store):
        folder, name = os.path.split(child.LOG)
        self._store, self._old = store, f"{child.LOG}.old"
        self.before = self._version()  # of the file before it. First: what comes between is noticed later
        files = _sizes(store, folder, name)
        self.path = child.log_of(store) if not store.abilities.remote else f"{store.url}/{child.LOG}"
        if store.abilities.remote and (not files or _is_held_here(store)):
            above, own = os.path.split(child.log_of(store))
            here = DiskStore(above)
            if _sizes(here, "", own):
                self._store, self._old, self.path = here, f"{own}.old", child.log_of(store)
                self.before, files = self._version(), _sizes(here, "", own)
        self._files = files
        self.bytes = sum(each.size for each in files)
        self.newest = files[-1].size if files else 0
        self.path = self.path if files else ""

    def _version(self) -> Version | None:
        return None if self._store.abilities.remote else self._store.version(self._old)  # an uploaded log has none

    @property
    def was_restarted(self) -> bool:
        """It was started again since, so that the places are others."""
        return self._version() != self.before

    def read(self, begin: int, size: int) -> bytes:
        """A part; fewer bytes where the log has been started again meanwhile."""
        found = b""
        for path, bytes in self._files:
            if begin < bytes and size > len(found):
                with suppress(FileNotFoundError):
                    found += self._store.part(path, begin, min(bytes - begin, size - len(found)))
            begin = max(0, begin - bytes)
        return found


def _sizes(store: Store, folder: str, name: str) -> list[Entry]:
    """The file before, and the newest one, where they are."""
    path = f"{folder}/{name}" if folder else name
    there = {each.path: each for each in store.list(folder)}
    return [there[each] for each in (f"{path}.old", path) if each in there]


def _is_held_here(store: Store) -> bool:
    held = lease.holder(store)
    return held is not None and held.host == socket.gethostname()
