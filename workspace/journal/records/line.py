"""How a record is written as a line and read again."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from ...base import NewerFormat, decoder, time_text
from .base import check_json, check_time
from .calls import PartialPromoted, StepCompleted, StepFailed, StepProgress, StepStarted
from .edits import Edited, Rewound
from .pauses import Forced, Paused, PauseLate, PauseRequested, Resumed
from .process import FORMAT, Closed, Configured, Fenced, Opened, Resource, Saved, Spent
from .questions import ApprovalAnswered, ApprovalAsked, Doubt, Resolved
from .work import (
    AgentBegun,
    AgentEnded,
    Message,
    Migrated,
    PlanChanged,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    TaskDone,
    TaskTaken,
)

Epoch = Annotated[int, Meta(ge=0, lt=10**8)]
"""One digit less than a stamp allows, because the next opening adds one."""

AnyRecord = (
    Opened | Closed | StepStarted | StepCompleted | StepFailed | StepProgress | ScopeBegun | ScopeFailed
    | ScopeCommitted | PlanChanged | Message | Doubt | Resolved | PartialPromoted | AgentBegun | AgentEnded | Edited
    | PauseRequested | PauseLate | Forced | Paused | Resumed | ApprovalAsked | ApprovalAnswered | TaskTaken | TaskDone
    | Spent | Resource | Configured | Migrated | Fenced | Saved | Rewound
)  # fmt: skip


NO_CRC = "00000000"
"""The `prev` of the first record."""


class Line(Struct, frozen=True, gc=False):
    """A record and its place. `prev` ties it to its history: two runs that were copied from one and continued have
    equal numbers and epochs, but never equal checksums."""

    seq: int
    commit: int
    at: str
    epoch: int
    record: AnyRecord
    prev: str = NO_CRC  # the crc of the record before it
    opening: str = ""  # the nonce of the opening that wrote it: in the first record of a group
    crc: str = ""  # its own: set by `written` and `parse`


class BadLine(ValueError):
    """These bytes are not a completely written line."""


class _Envelope(Struct, frozen=True):
    seq: Annotated[int, Meta(ge=0)]
    commit: int
    at: str
    epoch: Epoch
    prev: Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]
    type: str
    opening: str = ""


_envelope = decoder(_Envelope)
_record = decoder(AnyRecord)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyRecord.__args__)

_CRC = b',"crc":"'
_TAIL = len(_CRC) + 8 + len(b'"}')
_DIGITS_FROM = 8 + len(b'"}')


def now() -> str:
    """UTC, ISO 8601, milliseconds."""
    return time_text(datetime.now(UTC))


def encode(line: Line) -> bytes:
    """The line with its newline. ValueError for what could not be read back."""
    return written(line).data


class Written(NamedTuple):
    """A line's bytes, with the newline, and the line as a reader gets it."""

    data: bytes
    line: Line


def written(line: Line) -> Written:
    """Like `encode`. The line that is applied is the one read back, because no opening will ever see another."""
    at, prev = line.at.encode(), line.prev.encode()
    head = b'{"seq":%d,"commit":%d,"at":"%s","epoch":%d,"prev":"%s",' % (line.seq, line.commit, at, line.epoch, prev)
    if line.opening:
        head += b'"opening":"%s",' % line.opening.encode()
    record = msgspec.json.encode(line.record).replace(b"\n", b" ")  # only between the values of a result given by hand
    try:
        read = _record.decode(record)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{line.record!r} can't be a record: {error}") from error
    body = head + record[1:-1]
    crc = b"%08x" % zlib.crc32(b"}", zlib.crc32(body))
    as_read = Line(line.seq, line.commit, line.at, line.epoch, read, line.prev, line.opening, crc.decode())
    return Written(b'%s,"crc":"%s"}\n' % (body, crc), as_read)


def crc_of(row: bytes) -> str:
    """The checksum at the end of a whole line without its newline. It is not compared with the line."""
    return row[-_DIGITS_FROM:-2].decode("ascii", "replace")


def is_whole(row: bytes) -> bool:
    """Whether the checksum of a line without its newline is right. Does not parse it."""
    body, tail = row[:-_TAIL], row[-_TAIL:]
    return tail == b'%s%08x"}' % (_CRC, zlib.crc32(b"}", zlib.crc32(body)))


def parse(data: bytes) -> Line:
    """The line in `data`, which has no newline. BadLine if it was not completely written, NewerFormat if its type is
    new."""
    body, tail = data[:-_TAIL], data[-_TAIL:]
    if not (tail.startswith(_CRC) and tail.endswith(b'"}')):
        raise BadLine("it does not end as a record does")
    if tail[len(_CRC) : -2] != b"%08x" % zlib.crc32(b"}", zlib.crc32(body)):
        raise BadLine("its checksum does not match")
    try:
        envelope = _envelope.decode(data)
        if envelope.type not in _KNOWN:
            raise NewerFormat(
                f"a journal record of the unknown type {envelope.type!r}",
                why=f"record {envelope.seq} was written by a newer Satchel",
                remedy="upgrade Satchel; nothing was touched",
            )
        record = _record.decode(data)
        if isinstance(record, Opened) and record.format > FORMAT:
            raise NewerFormat(
                f"the journal has format {record.format} from record {envelope.seq} on",
                remedy=f"upgrade Satchel: this one knows format {FORMAT}; nothing was touched",
            )
        check_time(envelope.at)
        _check(record)
        return Line(
            envelope.seq, envelope.commit, envelope.at, envelope.epoch, record, envelope.prev, envelope.opening,
            crc_of(data),
        )  # fmt: skip
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadLine(str(error)) from error


def parse_if_whole(data: bytes) -> Line | None:
    """The same, but None if it was not completely written."""
    try:
        return parse(data)
    except BadLine:
        return None


def _check(record: AnyRecord) -> None:
    """ValueError for errors that the types do not exclude and every reader would meet. Not for the results of steps:
    there may be tens of thousands, and only the run reads them."""
    match record:
        case Closed() | PauseRequested() if record.until:
            check_time(record.until)
        case TaskTaken():
            check_json(record.content)
            if record.kind == "schedule":
                check_time(record.due)
        case ApprovalAsked():
            check_json(record.context)
            check_json(record.default)
        case ApprovalAnswered():
            check_json(record.decision)
        case Resolved():
            check_json(record.result)
