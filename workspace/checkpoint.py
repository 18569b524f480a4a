"""Checkpoints: a moment written down whole, so that opening a workspace reads the tail of the journal, not its history.

One JSON object on one line; `sha256`, last, is of everything before it. A checkpoint may only be written of a position
that is durable in the journal.
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from .errors import InvalidFile, NewerFormat
from .moment import ROOT, Answer, Kept, Moment, Scope, Status, Usage
from .names import slug
from .record import Doubt, Epoch, Failure, Key, Output, PartialPromoted, StepCompleted, StepStarted
from .store import Store
from .todo import Plan

FOLDER = "checkpoints"
FORMAT = 1
KEPT = 5
_READ_LIMIT = 1 << 30
_NAME = re.compile(r"checkpoints/([0-9]{12})(-[a-z0-9-]+)?\.json")
_SHA = b',"sha256":"'
_TAIL = len(_SHA) + 64 + len(b'"}')


class MessagesAt(Struct, frozen=True):
    """How far messages.jsonl had been written: lines, bytes, and the CRC-32 of those bytes."""

    count: int = 0
    bytes: int = 0
    crc: str = "00000000"


class _Scope(Struct, omit_defaults=True):
    title: str = ""
    done: list[StepCompleted] = []
    started: list[StepStarted] = []
    promoted: list[PartialPromoted] = []
    progress: list[tuple[Key, Raw]] = []
    settled: list[Key] = []
    answers: dict[str, Answer] = {}
    numbers: list[tuple[Key, int]] = []  # of the calls that are in none of the above
    last_number: int = 0


class _Plan(Struct):
    text: str
    outline: list[list[int]]
    highest_id: int
    adopted: str = ""


class _Agent(Struct, kw_only=True):
    """One agent of the tree; the root's key is the empty string."""

    data: Any = msgspec.UNSET
    plan: _Plan | None
    open: dict[str, _Scope]
    results: dict[str, Kept]
    outputs: dict[str, Output]
    messages: MessagesAt


class _Position(Struct):
    seq: Annotated[int, Meta(ge=0, lt=10**12)]
    epoch: Epoch


class _File(Struct, kw_only=True):
    format: int = FORMAT
    run_id: str
    at: _Position
    status: Status
    reason: str
    error: Failure | None
    clean: bool
    attempt: int
    usage: Usage
    agents: dict[str, _Agent]
    doubts: dict[str, Doubt]
    doubts_asked: int


class _Format(Struct):
    format: int


_decoder = msgspec.json.Decoder(_File)


def path_of(moment: Moment) -> str:
    """`checkpoints/SEQ-ITEM.json`, ITEM being what was at work, for people."""
    at_work = [slug(f"{key}-{scope.title}") for key, scope in moment.scopes.items() if key != ROOT]
    item = at_work[0] if at_work else moment.status
    return f"{FOLDER}/{moment.seq:012d}-{item or 'at'}.json"


def encode(moment: Moment, messages: MessagesAt) -> bytes:
    plan = moment.plan
    agent = _Agent(
        data=moment.data if moment.has_data else msgspec.UNSET,
        plan=_Plan(plan.text, plan.outline(), moment.highest_id, moment.adopted) if moment.has_plan else None,
        open={key: _scope(scope) for key, scope in moment.scopes.items()},
        results=moment.results,
        outputs=moment.outputs,
        messages=messages,
    )
    file = _File(
        run_id=moment.run_id, at=_Position(moment.seq, moment.epoch), status=moment.status, reason=moment.reason,
        error=moment.error, clean=moment.clean, attempt=moment.attempt, usage=moment.usage, agents={"": agent},
        doubts=moment.doubts, doubts_asked=moment.doubts_asked,
    )  # fmt: skip
    body = msgspec.json.encode(file)[:-1]
    return b'%s%s%s"}\n' % (body, _SHA, hashlib.sha256(body).hexdigest().encode())


def parse(data: bytes) -> tuple[Moment, MessagesAt]:
    """ValueError if the bytes are not a whole checkpoint; NewerFormat if a newer Satchel wrote it."""
    body, tail = data.rstrip(b"\n")[:-_TAIL], data.rstrip(b"\n")[-_TAIL:]
    if tail != b'%s%s"}' % (_SHA, hashlib.sha256(body).hexdigest().encode()):
        raise ValueError("its hash does not match")
    try:
        if (found := msgspec.json.decode(data, type=_Format).format) > FORMAT:
            raise NewerFormat(
                f"a checkpoint of format {found}", remedy=f"upgrade Satchel: this one knows format {FORMAT}"
            )
        file = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error
    agent = file.agents.get("")
    if agent is None or ROOT not in agent.open:
        raise ValueError("it says nothing of the run's own agent")
    has_data = agent.data is not msgspec.UNSET
    plan = agent.plan
    moment = Moment(
        run_id=file.run_id, seq=file.at.seq, epoch=file.at.epoch, attempt=file.attempt, status=file.status,
        reason=file.reason, error=file.error, clean=file.clean, data=agent.data if has_data else None,
        has_data=has_data, plan=Plan.restore(plan.text, plan.outline) if plan else Plan(), has_plan=bool(plan),
        highest_id=plan.highest_id if plan else 0, adopted=plan.adopted if plan else "",
        results=agent.results, outputs=agent.outputs,
        scopes={key: _open(scope) for key, scope in agent.open.items()}, doubts=file.doubts,
        doubts_asked=file.doubts_asked, usage=file.usage, messages=agent.messages.count,
    )  # fmt: skip
    return moment, agent.messages


def newest(store: Store) -> tuple[Moment | None, MessagesAt, list[str]]:
    """The newest good checkpoint, and what was wrong with those that are newer."""
    complaints: list[str] = []
    for path in reversed(paths(store)):
        try:
            return *parse(store.read(path, limit=_READ_LIMIT).data), complaints
        except FileNotFoundError:
            continue  # its owner has dropped it meanwhile
        except (ValueError, InvalidFile) as error:
            complaints.append(f"{path} can't be used: {error}")
    return None, MessagesAt(), complaints


def paths(store: Store) -> list[str]:
    """All checkpoints, oldest first."""
    return sorted(entry.path for entry in store.list(FOLDER) if _NAME.fullmatch(entry.path))


def write(store: Store, moment: Moment, messages: MessagesAt) -> int:
    """Write a checkpoint of `moment`, durably, and drop the oldest. Returns its size in bytes."""
    data = encode(moment, messages)
    store.replace(path_of(moment), data)
    for path in paths(store)[:-KEPT]:
        store.remove(path)
    return len(data)


def _scope(scope: Scope) -> _Scope:
    return _Scope(
        title=scope.title,
        done=list(scope.done.values()),
        started=list(scope.started.values()),
        promoted=[record for records in scope.promoted.values() for record in records],
        progress=list(scope.progress.items()),
        settled=sorted(scope.settled),
        answers=scope.answers,
        numbers=[(key, no) for key, no in scope.numbers.items() if not scope.knows(key)],
        last_number=scope.last_number,
    )


def _open(file: _Scope) -> Scope:
    scope = Scope(
        title=file.title,
        done={record.key: record for record in file.done},
        started={record.key: record for record in file.started},
        progress=dict(file.progress),
        settled=set(file.settled),
        answers=file.answers,
        numbers=dict(file.numbers),
        last_number=file.last_number,
    )
    for promoted in file.promoted:
        scope.promoted.setdefault(promoted.key, []).append(promoted)
    for records in (file.done, file.started, file.promoted):
        for record in records:
            scope.numbers[record.key] = record.no
    return scope
