"""Checkpoints: a moment written down whole, so that opening a workspace reads the tail of the journal, not its history.

One JSON object on one line; `sha256`, last, is of everything before it. A checkpoint may only be written of a position
that is durable in the journal.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from .agentmoment import ROOT, AgentMoment, Answer, Kept, Past, Scope
from .errors import InvalidFile, NewerFormat
from .moment import Moment, Pause, Status, TaskFile, Usage
from .names import slug
from .questions import Answered
from .record import (
    ApprovalAsked,
    Doubt,
    Epoch,
    Failure,
    Key,
    Output,
    PartialPromoted,
    StepCompleted,
    StepStarted,
    TaskTaken,
)
from .store import Store
from .todo import Plan

FOLDER = "checkpoints"
FORMAT = 1
KEPT = 5
READ_LIMIT = 1 << 30
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
    when: list[tuple[Key, str]] = []
    again: list[tuple[Key, int]] = []
    numbers: list[tuple[Key, int]] = []  # of the calls that are in none of the above
    last_number: int = 0
    failures: int = 0
    spent: dict[str, int] = {}


class _Past(Struct, omit_defaults=True):
    title: str
    last_number: int
    done: list[StepCompleted]
    settled: list[Key] = []
    when: list[tuple[Key, str]] = []
    again: list[tuple[Key, int]] = []


class _Plan(Struct):
    text: str
    outline: list[list[int]]
    highest_id: int
    adopted: str = ""


class _Spawned(Struct, kw_only=True, omit_defaults=True):
    """What is known of a sub-agent as a call."""

    scope: str
    args: str
    call: str = ""
    result: Kept | None = None
    error: Failure | None = None


class _Agent(Struct, kw_only=True):
    """One agent of the tree; the root's key is the empty string."""

    spawned: _Spawned | msgspec.UnsetType = msgspec.UNSET
    data: Any = msgspec.UNSET
    data_version: int = 1
    plan: _Plan | None
    open: dict[str, _Scope]
    past: dict[str, _Past]
    results: dict[str, Kept]
    outputs: dict[str, Output]
    edits: dict[str, str]
    messages: MessagesAt
    forgotten: list[str] = []


class _Position(Struct):
    seq: Annotated[int, Meta(ge=0, lt=10**12)]
    epoch: Epoch


class _File(Struct, kw_only=True):
    format: int
    run_id: str
    at: _Position
    status: Status
    reason: str
    until: str
    error: Failure | None
    clean: bool
    definition: dict[str, Any] | None
    attempt: int
    usage: Usage
    agents: dict[str, _Agent]
    doubts: dict[str, Doubt]
    doubts_asked: int
    approvals: dict[str, ApprovalAsked]
    approvals_asked: int
    asked_at: dict[str, str]
    answered: dict[str, Answered]
    pause: Pause | None
    unclean: bool
    lifted: str
    instructions: str
    tasks: dict[str, TaskTaken]
    tasks_taken: int
    tasks_done: dict[str, TaskFile]
    config: dict[str, Any]
    url: str = ""
    host: str = ""
    opened_at: str
    last_at: str


class _Format(Struct):
    format: int


_Call = TypeVar("_Call", StepCompleted, StepStarted)

_decoder = msgspec.json.Decoder(_File)


def path_of(moment: Moment) -> str:
    """`checkpoints/SEQ-ITEM.json`, ITEM being what was at work, for people."""
    at_work = [slug(f"{key}-{scope.title}") for key, scope in moment.root.scopes.items() if key != ROOT]
    item = at_work[0] if at_work else moment.status
    return f"{FOLDER}/{moment.seq:012d}-{item or 'at'}.json"


def encode(moment: Moment, messages: dict[str, MessagesAt]) -> bytes:
    """`messages` by the agents' paths; an agent that is not in it has none."""
    file = _File(
        format=FORMAT, run_id=moment.run_id, at=_Position(moment.seq, moment.epoch), status=moment.status,
        reason=moment.reason, until=moment.until, error=moment.error, clean=moment.clean, definition=moment.definition,
        attempt=moment.attempt, usage=moment.usage, doubts=moment.doubts, doubts_asked=moment.doubts_asked,
        approvals=moment.approvals, approvals_asked=moment.approvals_asked,
        asked_at=moment.asked_at, answered=moment.answered, pause=moment.pause,
        unclean=moment.unclean, lifted=moment.lifted, instructions=moment.instructions, tasks=moment.tasks,
        tasks_taken=moment.tasks_taken, tasks_done=moment.tasks_done, config=moment.config,
        url=moment.url, host=moment.host, opened_at=moment.opened_at, last_at=moment.last_at,
        agents={path: _agent(agent, messages.get(path, MessagesAt())) for path, agent in moment.agents.items()},
    )  # fmt: skip
    body = msgspec.json.encode(file)[:-1]
    return b'%s%s%s"}\n' % (body, _SHA, hashlib.sha256(body).hexdigest().encode())


def parse(data: bytes) -> tuple[Moment, dict[str, MessagesAt]]:
    """ValueError if the bytes are not a whole checkpoint; NewerFormat if a newer Satchel wrote it."""
    at = len(data) - _TAIL - data.endswith(b"\n")
    if data[at:].rstrip(b"\n") != b'%s%s"}' % (_SHA, hashlib.sha256(memoryview(data)[:at]).hexdigest().encode()):
        raise ValueError("its hash does not match")
    try:
        file = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        _check_format(data)
        raise ValueError(str(error)) from error
    _refuse_newer(file.format)
    if "" not in file.agents or any(ROOT not in agent.open for agent in file.agents.values()):
        raise ValueError("it says nothing of the run's own agent, or of an agent's own calls")
    moment = Moment(
        run_id=file.run_id, seq=file.at.seq, epoch=file.at.epoch, attempt=file.attempt, status=file.status,
        reason=file.reason, until=file.until, error=file.error, clean=file.clean, definition=file.definition,
        agents={path: _agent_moment(path, agent) for path, agent in file.agents.items()},
        doubts=file.doubts, doubts_asked=file.doubts_asked, usage=file.usage, approvals=file.approvals,
        approvals_asked=file.approvals_asked, asked_at=file.asked_at, answered=file.answered, pause=file.pause,
        unclean=file.unclean, tasks=file.tasks, tasks_taken=file.tasks_taken, tasks_done=file.tasks_done,
        config=file.config, lifted=file.lifted, instructions=file.instructions, url=file.url, host=file.host,
        opened_at=file.opened_at,
        last_at=file.last_at,
    )  # fmt: skip
    return moment, {path: agent.messages for path, agent in file.agents.items()}


def _check_format(data: bytes) -> None:
    with suppress(msgspec.MsgspecError, RecursionError):
        _refuse_newer(msgspec.json.decode(data, type=_Format).format)


def _refuse_newer(format: int) -> None:
    if format > FORMAT:
        raise NewerFormat(f"a checkpoint of format {format}", remedy=f"upgrade Satchel: this one knows format {FORMAT}")


def newest(store: Store, up_to: int = 10**12) -> tuple[Moment | None, dict[str, MessagesAt], list[str]]:
    """The newest good checkpoint, of record `up_to` or before, and what was wrong with those that are newer."""
    complaints: list[str] = []
    for path in reversed(paths(store)):
        if position_of(path) > up_to:
            continue
        try:
            return *parse(store.read(path, limit=READ_LIMIT).data), complaints
        except FileNotFoundError:
            continue  # its owner has dropped it meanwhile
        except (ValueError, InvalidFile) as error:
            complaints.append(f"{path} can't be used: {error}")
    return None, {}, complaints


def paths(store: Store) -> list[str]:
    """All checkpoints, oldest first."""
    return sorted(entry.path for entry in store.list(FOLDER) if _NAME.fullmatch(entry.path))


def position_of(path: str) -> int:
    """The record that a checkpoint stands at, by its name."""
    match = _NAME.fullmatch(path)
    assert match, path
    return int(match[1])


def write(store: Store, moment: Moment, messages: dict[str, MessagesAt]) -> tuple[str, int]:
    """Write a checkpoint of `moment`, durably, and drop the oldest. Returns its path and its size in bytes."""
    data = encode(moment, messages)
    written = path_of(moment)
    store.replace(written, data)
    for path in paths(store)[:-KEPT]:
        store.remove(path)
    return written, len(data)


def _agent(agent: AgentMoment, messages: MessagesAt) -> _Agent:
    plan = agent.plan
    spawned: _Spawned | msgspec.UnsetType = msgspec.UNSET
    if agent.path:
        spawned = _Spawned(
            scope=agent.spawned_in, args=agent.args, call=agent.call, result=agent.result, error=agent.error
        )  # fmt: skip
    return _Agent(
        spawned=spawned,
        data=agent.data if agent.has_data else msgspec.UNSET,
        data_version=agent.data_version,
        plan=_Plan(plan.text, plan.outline(), agent.highest_id, agent.adopted) if agent.has_plan else None,
        open={key: _scope(scope) for key, scope in agent.scopes.items()},
        past={
            key: _Past(past.title, past.last_number, list(past.done.values()), sorted(past.settled),
                       list(past.when.items()), list(past.again.items()))
            for key, past in agent.past.items()
        },
        results=agent.results,
        outputs=agent.outputs,
        edits=agent.edits,
        messages=messages,
        forgotten=agent.forgotten,
    )  # fmt: skip


def _agent_moment(path: str, file: _Agent) -> AgentMoment:
    has_data, plan = file.data is not msgspec.UNSET, file.plan
    agent = AgentMoment(
        path=path, data=file.data if has_data else None, has_data=has_data,
        data_version=file.data_version,
        plan=Plan.restore(plan.text, plan.outline) if plan else Plan(), has_plan=bool(plan),
        highest_id=plan.highest_id if plan else 0, adopted=plan.adopted if plan else "",
        scopes={key: _open(scope) for key, scope in file.open.items()},
        past={
            key: Past(past.title, past.last_number, {record.key: record for record in past.done},
                      set(past.settled), dict(past.when), dict(past.again))
            for key, past in file.past.items()
        },
        results=file.results, outputs=file.outputs, edits=file.edits, messages=file.messages.count,
        forgotten=file.forgotten,
    )  # fmt: skip
    if file.spawned is not msgspec.UNSET:
        agent.spawned_in, agent.args, agent.call = file.spawned.scope, file.spawned.args, file.spawned.call
        agent.result, agent.error = file.spawned.result, file.spawned.error
    return agent


def _scope(scope: Scope) -> _Scope:
    return _Scope(
        title=scope.title,
        done=list(scope.done.values()),
        started=list(scope.started.values()),
        promoted=[record for records in scope.promoted.values() for record in records],
        progress=list(scope.progress.items()),
        settled=sorted(scope.settled),
        answers=scope.answers,
        when=list(scope.when.items()),
        again=list(scope.again.items()),
        numbers=[(key, no) for key, no in scope.numbers.items() if not scope.knows(key)],
        last_number=scope.last_number,
        failures=scope.failures,
        spent=scope.spent,
    )


def _open(file: _Scope) -> Scope:
    numbers = dict(file.numbers)
    scope = Scope(
        title=file.title,
        done=_by_key(file.done, numbers),
        started=_by_key(file.started, numbers),
        progress=dict(file.progress),
        settled=set(file.settled),
        answers=file.answers,
        when=dict(file.when),
        again=dict(file.again),
        numbers=numbers,
        last_number=file.last_number,
        failures=file.failures,
        spent=file.spent,
    )
    for promoted in file.promoted:
        scope.promoted.setdefault(promoted.key, []).append(promoted)
        numbers.setdefault(promoted.key, promoted.no)
    return scope


def _by_key(records: list[_Call], numbers: dict[Key, int]) -> dict[Key, _Call]:
    """`numbers` are told theirs. There may be tens of thousands, and an opening waits."""
    found: dict[Key, _Call] = {}
    for record in records:
        key = record.step, record.args, record.n
        found[key], numbers[key] = record, record.no
    return found
