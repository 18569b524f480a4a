"""How a record is written as a line and read again.

A line is one JSON object: `seq`, `prev` (the crc of the record before it) or, if it is not the first of its group,
`commit` (the seq of that one), `at`, `epoch`, `opening` (the nonce of the opening that wrote it), then `type` and that
type's fields, and last `crc`. `at`, `epoch` and `opening` are left out where they are those of the line before, but for
the first line of a segment. `crc` is the CRC-32 of the line without it; of a line without `prev` it begins with the
`crc` of the line before. So every line depends on all before it.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from ..base import NewerFormat
from ..formats import decoder
from .people import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRevoked,
    Doubt,
    Edited,
    Forced,
    Paused,
    PauseLate,
    PauseRequested,
    Resolved,
    Resumed,
    Rewound,
)
from .records import (
    FORMAT,
    NOTHING,
    AgentBegun,
    AgentEnded,
    AnswersGrown,
    Closed,
    Configured,
    Fenced,
    FileWritten,
    Input,
    Message,
    Migrated,
    Opened,
    PartialPromoted,
    PlanChanged,
    Pruned,
    ResourceChanged,
    Saved,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    Spent,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepRetry,
    StepStarted,
    TaskDone,
    TaskTaken,
    Uncalled,
)

Epoch = Annotated[int, Meta(ge=0, lt=10**8)]
"""One digit less than a stamp allows, because the next opening adds one."""

AnyRecord = (
    Opened
    | Closed
    | StepStarted
    | StepCompleted
    | StepFailed
    | StepRetry
    | StepProgress
    | ScopeBegun
    | ScopeFailed
    | ScopeCommitted
    | Uncalled
    | PlanChanged
    | Message
    | FileWritten
    | Doubt
    | Resolved
    | PartialPromoted
    | AgentBegun
    | AgentEnded
    | Edited
    | PauseRequested
    | PauseLate
    | Forced
    | Paused
    | Resumed
    | ApprovalAsked
    | ApprovalAnswered
    | ApprovalRevoked
    | TaskTaken
    | TaskDone
    | Spent
    | AnswersGrown
    | ResourceChanged
    | Configured
    | Input
    | Migrated
    | Fenced
    | Saved
    | Rewound
    | Pruned
)


NO_CRC = "00000000"
"""The `prev` of the first record."""

NO_TIME = "1970-01-01T00:00:00.000Z"
"""The time of a line without one, if the line that has it is broken."""

_CRC = b',"crc":"'

_STARTS_GROUP = re.compile(rb'\{"seq":[0-9]+,"prev":"')

_HEAD = re.compile(
    rb'\{"seq":([0-9]{1,18}),(?:"prev":"([0-9a-f]{8})",)?(?:"commit":([0-9]{1,18}),)?(?:"at":"([^"\\]*)",)?'
    rb'(?:"epoch":([0-9]{1,8}),)?(?:"opening":"([^"\\]*)",)?(?="type":")'
)

_TAIL = len(_CRC) + 8 + len(b'"}')

_DIGITS_FROM = 8 + len(b'"}')


class Before(NamedTuple):
    """What a line may leave out, because the line before it has it. Empty: not known."""

    crc: str = ""
    at: str = ""
    epoch: int = -1
    opening: str = ""


FIRST = Before()
"""Before the first line of a segment, which leaves nothing out."""


class Line(Struct, frozen=True, gc=False):
    """A record and its place, with all that its bytes leave out. `prev` ties it to its history: two runs that were
    copied from one and continued have equal numbers and epochs, but never equal checksums."""

    seq: int
    commit: int  # the first record of its group
    at: str
    epoch: int
    record: AnyRecord
    prev: str = NO_CRC  # the crc of the record before it
    opening: str = ""  # the nonce of the opening that wrote it
    crc: str = ""  # its own: set by `written` and `parse`

    @property
    def before(self) -> Before:
        """For the line that comes next."""
        return Before(self.crc, self.at, self.epoch, self.opening)


class BadLine(ValueError):
    """These bytes are not a completely written line."""


class _Envelope(Struct, frozen=True):
    seq: Annotated[int, Meta(ge=0)]
    type: str
    prev: Annotated[str, Meta(pattern="^[0-9a-f]{8}$")] = ""
    commit: int | None = None
    at: str = ""
    epoch: Epoch | None = None
    opening: str = ""


_envelope = decoder(_Envelope)
_record = decoder(AnyRecord)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyRecord.__args__)


def now() -> str:
    """UTC, ISO 8601, milliseconds."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1_000_000:03d}Z"


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def encode(line: Line) -> bytes:
    """The line with its newline. ValueError for what could not be read back."""
    return written(line).data


class Written(NamedTuple):
    """A line's bytes, with the newline, and the line as a reader gets it."""

    data: bytes
    line: Line


def written(line: Line, before: Line | None = None) -> Written:
    """Like `encode`. The line that is applied is the one read back, because no opening will ever see another.

    `before`: the line before it in the same segment. Equal times, epochs and openings are left out, and inside a group
    the checksum of that line."""
    is_later = before is not None and line.commit != line.seq
    head = b'{"seq":%d,' % line.seq
    if not is_later:
        head += b'"prev":"%s",' % line.prev.encode()
    if line.commit != line.seq:
        head += b'"commit":%d,' % line.commit
    if before is None or line.at != before.at:
        head += b'"at":"%s",' % line.at.encode()
    if before is None or line.epoch != before.epoch:
        head += b'"epoch":%d,' % line.epoch
    if line.opening and (before is None or line.opening != before.opening):
        head += b'"opening":"%s",' % line.opening.encode()
    record = msgspec.json.encode(line.record).replace(b"\n", b" ")  # only between the values of a result given by hand
    try:
        read = _record.decode(record)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{line.record!r} can't be a record: {error}") from error
    body = head + record[1:-1]
    crc = _checksum(body, int(line.prev, 16) if is_later else 0)
    opening = line.opening or (before.opening if before else "")
    as_read = Line(line.seq, line.commit, line.at, line.epoch, read, line.prev, opening, crc.decode())
    return Written(b'%s,"crc":"%s"}\n' % (body, crc), as_read)


def _checksum(body: bytes, start: int) -> bytes:
    return b"%08x" % zlib.crc32(b"}", zlib.crc32(body, start))


def crc_of(row: bytes) -> str:
    """The checksum at the end of a whole line without its newline. It is not compared with the line."""
    return row[-_DIGITS_FROM:-2].decode("ascii", "replace")


def is_whole(row: bytes, before: str) -> bool:
    """Whether the checksum of a line without its newline is right. `before`: that of the line before it. Does not parse
    it."""
    return _is_whole(row, before, begins=_STARTS_GROUP.match(row) is not None)


def _is_whole(row: bytes, before: str, *, begins: bool) -> bool:
    """`begins`: it is the first line of its group."""
    start = 0
    if not begins:
        try:
            start = int(before, 16)
        except ValueError:
            return False  # the line before it is not known
    return row[-_TAIL:] == b'%s%s"}' % (_CRC, _checksum(row[:-_TAIL], start))


class LinePlace(NamedTuple):
    """The place of a line in the journal."""

    seq: int
    group: int  # the first record of its group
    prev: str  # the crc of the record before it


def place_of(row: bytes, before: str) -> LinePlace | None:
    """The place of a line; None if it was not completely written. Does not read its record."""
    if not is_whole(row, before):
        return None
    try:
        said = _envelope.decode(row)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return LinePlace(said.seq, said.seq if said.commit is None else said.commit, said.prev or before)


def parse(data: bytes, before: Before | Line = FIRST) -> Line:
    """The line in `data`, which has no newline. `before`: the line before it, or what it may leave out. BadLine if it
    was not completely written or does not follow that line, NewerFormat if its type is new."""
    head = _HEAD.match(data)
    if not (is_whole(data, before.crc) if head is None else _is_whole(data, before.crc, begins=head[2] is not None)):
        is_cut = not (data[-_TAIL:].startswith(_CRC) and data.endswith(b'"}'))
        raise BadLine("it does not end as a record does" if is_cut else "its checksum does not match")
    try:
        seq, prev, commit, said_at, said_epoch, opening = _said(data) if head is None else head.groups()
        seq, commit = int(seq), int(commit or seq)
        record = _read(data, seq)
        if not prev and commit == seq:
            raise BadLine("it does not say what it follows")
        at = said_at.decode() if said_at else before.at
        if at != before.at or not at:
            check_time(at)
        epoch = int(said_epoch) if said_epoch else before.epoch
        if epoch < 0:
            raise BadLine("it does not say its epoch")
        if type(record) is not StepCompleted:  # as most are
            _check(record)
        return Line(
            seq,
            commit,
            at,
            epoch,
            record,
            prev.decode() if prev else before.crc,
            opening.decode() if opening else before.opening,
            crc_of(data),
        )
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadLine(str(error)) from error


def _said(row: bytes) -> tuple[Any, ...]:
    """The groups of `_HEAD` for a line that it does not match, since a newer version may have added a key. The pattern
    is there because it takes half the time of this decoder."""
    said = _envelope.decode(row)
    commit, epoch = (None if each is None else b"%d" % each for each in (said.commit, said.epoch))
    return b"%d" % said.seq, said.prev.encode(), commit, said.at.encode(), epoch, said.opening.encode()


def _read(data: bytes, seq: int) -> AnyRecord:
    """The record in a line."""
    try:
        record: AnyRecord = _record.decode(data)
    except msgspec.ValidationError:
        kind = _envelope.decode(data).type
        if kind in _KNOWN:
            raise
        raise NewerFormat(
            f"a journal record of the unknown type {kind!r}",
            why=f"record {seq} was written by a newer Satchel",
            remedy="upgrade Satchel; nothing was changed",
        ) from None
    if type(record) is Opened and record.format > FORMAT:
        raise NewerFormat(
            f"the journal has format {record.format} from record {seq} on",
            remedy=f"upgrade Satchel: this one knows format {FORMAT}; nothing was changed",
        )
    return record


def as_it_says(data: bytes) -> AnyRecord | None:
    """The record in a line whose checksum is wrong, or could not be tried because the line before is damaged. Only for
    telling a person what may have happened."""
    try:
        record: AnyRecord = _record.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return record


class LineReader:
    """Reads the lines of a segment in their order. Each line completes the next."""

    def __init__(self) -> None:
        self._before: Before | Line = FIRST

    def parse(self, data: bytes) -> Line:
        """Like `parse`. After an error the next lines can still be read."""
        try:
            line = parse(data, self._before)
        except (BadLine, NewerFormat):
            known = self._before
            self._before = Before(crc_of(data), known.at or NO_TIME, max(known.epoch, 0), known.opening)
            raise
        self._before = line
        return line


def parse_each(rows: Iterable[bytes]) -> Iterator[Line | None]:
    """The lines of a segment; None for one that was not completely written. NewerFormat as in `parse`."""
    reader = LineReader()
    for row in rows:
        try:
            yield reader.parse(row)
        except BadLine:
            yield None


def whole(data: bytes, line: Line) -> bytes:
    """The bytes of `line` with all keys. The checksum in them is that of the shorter line."""
    head = b'{"seq":%d,"prev":"%s","commit":%d,' % (line.seq, line.prev.encode(), line.commit)
    head += b'"at":"%s","epoch":%d,"opening":%s,' % (line.at.encode(), line.epoch, msgspec.json.encode(line.opening))
    return _HEAD.sub(lambda _: head, data, count=1)


def full(line: Line) -> bytes:
    """The bytes of a line that was read, with all keys, as `whole` makes them from those in the journal. What a newer
    Satchel has added to a record of a known type is missing."""
    if isinstance(line.record, Rewound) and line.record.blob:
        line = replace(line, record=replace(line.record, agents=NOTHING))
    data = encode(line)[:-1]
    return whole(data[:-_DIGITS_FROM] + line.crc.encode() + data[-2:], line)


def check_time(text: str) -> None:
    """ValueError if this is no time with a zone, or has no day in UTC."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not UTC:
            at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:40]!r} is not a time") from None
    if at.tzinfo is None:
        raise ValueError(f"the time {text[:40]!r} has no zone")


def check_json(raw: Raw) -> None:
    """ValueError if these bytes look like JSON but can't be read: numbers out of range, or text that is not UTF-8."""
    if len(raw):
        try:
            msgspec.json.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(str(error)) from error


def _check(record: AnyRecord) -> None:
    """ValueError for errors that the types do not exclude and every reader would meet. Not for the results of steps:
    there may be tens of thousands, and only the run reads them."""
    match record:
        case Closed():
            check_json(record.result)
            if record.until:
                check_time(record.until)
        case PauseRequested() if record.until:
            check_time(record.until)
        case Input():
            _check_arguments(record.arguments, is_needed=not record.blob)
        case StepStarted():
            _check_arguments(record.arguments)
        case TaskTaken():
            check_json(record.content)
            if record.kind == "schedule":
                check_time(record.due)
        case ApprovalAsked():
            check_json(record.context)
            check_json(record.default)
            _check_arguments(record.arguments)
            if record.back is not None:
                check_json(record.back.data)
        case ApprovalAnswered():
            check_json(record.decision)
            _check_arguments(record.arguments)
        case Resolved():
            check_json(record.result)


def _check_arguments(arguments: Raw, *, is_needed: bool = False) -> None:
    check_json(arguments)
    if (is_needed or len(arguments)) and bytes(arguments)[:1] != b"{":
        raise ValueError("the arguments are not an object")
