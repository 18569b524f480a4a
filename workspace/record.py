"""One line of the journal: what kinds of record there are, what each says, and how a line is written and read.

A line is one JSON object: `seq`, `commit` (the first seq of the group it was written with), `at`, `epoch`, then `type`
and that type's fields, and last `crc`, the CRC-32 of the line without it.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from .errors import NewerFormat
from .todo import Splice

NOTHING = Raw(b"")
"""A result that is not in the record itself."""

Patch = list[dict[str, object]]
"""A JSON Patch (RFC 6902) with the operations add, remove and replace."""

Epoch = Annotated[int, Meta(ge=0, lt=10**8)]
"""A digit fewer than a stamp has room for: the next opening counts on."""

Key = tuple[str, str, int]
"""What tells a call from the others of its scope: step name, hash of the arguments, equal calls before it."""


class Record(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type", gc=False):
    """What happened, and to which agent of the tree: `agent` is its path, `researcher/reader`, empty for the root.

    Where there is one, `scope` is an item's id, `_NAME` for a named scope, or empty for the agent itself.
    """

    agent: str = ""


FORMAT = 1
"""Of the journal. It stands in every `opened` record, with which every segment of another version begins."""


class Opened(Record, frozen=True, kw_only=True, tag="opened"):
    """A process took the lease. `found` is how the one before it had ended."""

    format: int

    run_id: str
    satchel: str
    python: str
    host: str
    pid: int
    why: Literal["run", "recover", "resolve", "merge"]
    found: Literal["new", "clean", "crash", "files"]  # files: the journal was gone, and the readable files had to do
    definition: dict[str, object] | None = None  # what workspace.yaml says, at the first opening; later see `edited`


class Failure(Struct, frozen=True, omit_defaults=True):
    """An exception, as text."""

    kind: str
    message: str
    where: tuple[str, ...] = ()  # the lines of the agent's own code it came through, outermost first


EndStatus = Literal["completed", "failed", "waiting", "paused", "sleeping"]


class Closed(Record, frozen=True, kw_only=True, tag="closed"):
    """The process stopped in an orderly way. `status` is absent if it left the run as it was."""

    status: EndStatus | None = None
    reason: str = ""
    error: Failure | None = None
    until: str = ""  # when a sleeping run is to wake: UTC, ISO 8601


class OfCall(Record, frozen=True, kw_only=True):
    """A record about one call. `no` is its number in the scope, `call` a preview of its arguments for people."""

    scope: str
    no: int
    step: str
    args: str  # blake2b-64 of the canonical JSON of the arguments, in hex
    n: int
    call: str = ""
    prompts: dict[str, str] = {}  # the files of prompts/ that went into it, each with the start of its SHA-256

    @property
    def key(self) -> Key:
        return self.step, self.args, self.n


class StepStarted(OfCall, frozen=True, kw_only=True, tag="step.started"):
    """An effect is about to begin. Without an outcome after it, it is in doubt."""

    idempotency_key: str
    arguments: Raw = NOTHING  # left out when they are long


class StepCompleted(OfCall, frozen=True, kw_only=True, tag="step.completed"):
    """A call has returned; its result is `result`, or the blob named `blob`."""

    effect: bool = False
    result: Raw = NOTHING
    blob: str = ""
    ms: int = 0
    how: Literal["returned", "verified", "resolved", "accepted", "edited"] = "returned"
    model: str = ""  # the fallback that answered, if the first model did not


class StepFailed(OfCall, frozen=True, kw_only=True, tag="step.failed"):
    """A call has raised. `not_done` says that an effect has certainly not happened."""

    error: Failure
    attempt: int = 1
    effect: bool = False
    not_done: bool = False


class StepProgress(OfCall, frozen=True, kw_only=True, tag="step.progress"):
    """How far an unfinished call has come (`run.progress`)."""

    value: Raw


class ScopeBegun(Record, frozen=True, kw_only=True, tag="scope.begun"):
    scope: str
    title: str
    plan: tuple[Splice, ...] = ()


class ScopeFailed(Record, frozen=True, kw_only=True, tag="scope.failed"):
    """A scope's function has raised; the scope stays open."""

    scope: str
    error: Failure


class Output(Struct, frozen=True):
    sha256: str
    bytes: int


class ScopeCommitted(Record, frozen=True, kw_only=True, tag="scope.committed"):
    """One atomic commit: state, plan, result, outputs and the messages before it in the same group."""

    scope: str
    patch: Patch = []
    plan: tuple[Splice, ...] = ()
    result: Raw = NOTHING
    blob: str = ""
    outputs: dict[str, Output] = {}
    cancelled: str | None = None


class PlanChanged(Record, frozen=True, kw_only=True, tag="plan.changed"):
    """The plan is another one. `outline` is where the tasks are afterwards, if that was worth keeping."""

    plan: tuple[Splice, ...]
    outline: list[list[int]] = []
    by: Literal["agent", "person", "runtime"]
    why: str = ""


class Message(Record, frozen=True, kw_only=True, tag="message"):
    """One turn of the conversation. Counts only once its scope has committed."""

    scope: str
    role: str
    content: Raw


class Doubt(OfCall, frozen=True, kw_only=True, tag="doubt"):
    """A question only a person can settle: has this effect happened?

    `unknown_outcome`: it began and nothing says how it ended. `unclaimed`: this call would begin, but `others`, calls
    of the same effect that an earlier attempt has recorded, were not made again. `unreached`: it began in an earlier
    attempt and its scope is about to commit without having called it.
    """

    id: str
    why: Literal["unknown_outcome", "unclaimed", "unreached"]
    others: tuple[Key, ...] = ()
    cause: str = ""


class Resolved(Record, frozen=True, kw_only=True, tag="resolved"):
    """The answer: it has happened, with this result; or it has not, and may be done."""

    id: str
    outcome: Literal["done", "not_done"]
    by: str
    result: Raw = NOTHING
    blob: str = ""


class PartialPromoted(OfCall, frozen=True, kw_only=True, tag="partial.promoted"):
    """What a crash or an error left of a streamed answer was put into `file`, for attempt `attempt` + 1 to see."""

    attempt: int
    file: str
    characters: int
    damaged: bool
    cut_off_at: str
    cut_off_by: str


class AgentBegun(Record, frozen=True, kw_only=True, tag="agent.begun"):
    """`agent` was spawned by the one above it, in that one's scope `scope`."""

    scope: str
    args: str  # as in OfCall
    call: str = ""


class AgentEnded(Record, frozen=True, kw_only=True, tag="agent.ended"):
    """`agent` has returned, or raised."""

    result: Raw = NOTHING
    blob: str = ""
    error: Failure | None = None


class StepEdit(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a person wants of one recorded call: done again, or taken to have returned something else."""

    scope: str
    key: Key
    redo: bool = False
    result: Raw = NOTHING
    blob: str = ""


class Edited(Record, frozen=True, kw_only=True, tag="edited"):
    """A person has changed a readable file, and it counts from here on.

    `base` is the record at which the file stood when it was edited, absent if it didn't say. `sha` is that of the file
    as it was found, so that the same bytes, come back after a power failure, are not taken for another edit.
    """

    file: str
    by: str
    sha: str
    saved: str = ""
    base: int | None = None
    patch: Patch = []  # of the agent's data, or of what workspace.yaml says
    plan: tuple[Splice, ...] = ()
    outline: list[list[int]] = []
    redone: tuple[str, ...] = ()  # scopes to be done again: their steps anew, their effects kept
    dropped: tuple[str, ...] = ()  # scopes that had begun and won't be entered any more
    step: StepEdit | None = None
    says: tuple[str, ...] = ()  # the same in words


AnyRecord = (
    Opened | Closed | StepStarted | StepCompleted | StepFailed | StepProgress | ScopeBegun | ScopeFailed
    | ScopeCommitted | PlanChanged | Message | Doubt | Resolved | PartialPromoted | AgentBegun | AgentEnded | Edited
)  # fmt: skip


class Line(Struct, frozen=True, gc=False):
    """A record and its place."""

    seq: int
    commit: int
    at: str
    epoch: int
    record: AnyRecord


class BadLine(ValueError):
    """These bytes are not a line that was written whole."""


class _Envelope(Struct, frozen=True):
    seq: Annotated[int, Meta(ge=0)]
    commit: int
    at: str
    epoch: Epoch
    type: str


_envelope = msgspec.json.Decoder(_Envelope)
_record = msgspec.json.Decoder(AnyRecord)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in AnyRecord.__args__)

_CRC = b',"crc":"'
_TAIL = len(_CRC) + 8 + len(b'"}')


def now() -> str:
    """UTC, ISO 8601, milliseconds."""
    return time_text(datetime.now(UTC))


def time_text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def encode(line: Line) -> bytes:
    """The line with its newline. What could not be read back is not written: a ValueError says why."""
    head = b'{"seq":%d,"commit":%d,"at":"%s","epoch":%d,' % (line.seq, line.commit, line.at.encode(), line.epoch)
    record = msgspec.json.encode(line.record).replace(b"\n", b" ")  # only between the values of a result given by hand
    try:
        _record.decode(record)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{line.record!r} can't be a record: {error}") from error
    body = head + record[1:-1]
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(b"}", zlib.crc32(body)))


def parse(data: bytes) -> Line:
    """The line in `data`, which has no newline. BadLine if it was not written whole, NewerFormat if its type is new."""
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
        return Line(envelope.seq, envelope.commit, envelope.at, envelope.epoch, record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(str(error)) from error
