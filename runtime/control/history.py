"""What happened in a run, record by record, and its current result."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ...schemas import nearest
from ...workspace import journal
from ...workspace.base import Damaged, SatchelError, UsageError, arguments
from ...workspace.inspect import define, look_beside
from ...workspace.journal import records
from ...workspace.journal.records import BadLine, Failure, Line, Output
from ...workspace.state import Kept, Status, blobs
from ...workspace.store import Store
from ...workspace.todo import Progress
from . import auditing
from .place import Place

READ_LIMIT = 1 << 30
RECORD_TYPES = tuple(kind.__struct_config__.tag for kind in records.AnyRecord.__args__)
"""The types of records: `step.completed`, `edited`, ..."""


class Row(NamedTuple):
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
            raise Damaged("can't be read", path=f"journal, record {self.line.seq}", why=str(error),
                          remedy="take the journal from a backup") from None  # fmt: skip
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
        place.url, moment.run_id, moment.status, moment.reason, root.data, moment.outputs, root.plan.progress, failure,
        value_of(place.store, root.input) or {}, value_of(place.store, root.result),
    )  # fmt: skip


def value_of(store: Store, kept: Kept | None) -> Any:
    """A recorded value as JSON. Damaged if it can't be read."""
    return None if kept is None else msgspec.json.decode(blobs.fetch(store, kept))


def log(place: Place, last: int | None, item: str | None, type: str | None, audit: bool) -> Iterator[Row]:
    """All readable records that match, oldest first; then raise the error, if there is one."""
    last = arguments.count("last", last, least=0)
    item = item if item is None else arguments.text("item", item)
    if type is not None and type not in RECORD_TYPES:
        close = nearest(type, RECORD_TYPES) if isinstance(type, str) else None
        raise UsageError(
            f"there are no records of type {type!r}",
            remedy=f"did you mean {close!r}?" if close else f"there are {', '.join(RECORD_TYPES)}",
        )
    return _log(place, last, item, type, audit)


def _log(place: Place, last: int | None, item: str | None, type: str | None, audit: bool) -> Iterator[Row]:
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
    chosen: Iterable[Row] = (row for row in rows.read() if _is_wanted(row.line, item, type))
    if audit:
        chosen = (row for row in chosen if auditing.is_audited(row.line.record))
    yield from chosen if last is None else deque(chosen, maxlen=last)
    if rows.is_broken:
        # Says whether a crash explains it, and raises if not.
        found = journal.read(store, after=journal.first_kept(store) - 1)
        if found.torn:
            place.tell(f"note: {found.torn}, as after a crash; the next start cuts it off")
    if problem:
        raise problem


class _Rows:
    """All readable records. `is_broken` is set afterwards if some were not readable."""

    def __init__(self, store: Store):
        self.is_broken = False
        self._store = store

    def read(self) -> Iterator[Row]:
        who = auditing.Who()
        for line in journal.kept_lines(self._store):
            yield Row(records.whole(records.encode(line)[:-1], line), line, who.did(line))
        expected, crc = journal.first_kept(self._store), ""
        for path in map(journal.segment_path, journal.segments(self._store)):
            try:
                data = self._store.read(path, limit=READ_LIMIT).data
            except SatchelError:
                self.is_broken = True
                continue
            reader = records.LineReader()
            for row in data.split(b"\n"):
                if not row:
                    continue
                try:
                    line = reader.parse(row)
                except (BadLine, SatchelError):
                    self.is_broken = True
                    continue
                self.is_broken |= line.seq != expected or line.prev != (crc or line.prev)
                expected, crc = line.seq + 1, line.crc
                yield Row(records.whole(row, line), line, who.did(line))
            self.is_broken |= not data.endswith(b"\n")


def _is_wanted(line: Line, item: str | None, type: str | None) -> bool:
    if type is not None and line.record.__struct_config__.tag != type:
        return False
    return item is None or getattr(line.record, "scope", None) == item.removeprefix("^")
