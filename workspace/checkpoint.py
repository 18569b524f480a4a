"""Checkpoints: a moment written down whole, so that opening a workspace reads the tail of the journal, not its history.

One JSON object on one line; `sha256`, last, is of everything before it. A checkpoint may only be written of a position
that is durable in the journal. The moment's own structs say what is in it (packing.py): each field of them is kept.
"""

from __future__ import annotations

import hashlib
import math
import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .agentmoment import ROOT
from .definition import Checkpoints
from .errors import InvalidFile, NewerFormat
from .moment import Moment
from .names import slug
from .packing import Shape, shape_of
from .record import Count, check_json, check_time
from .scopemoment import Scope
from .store import Store
from .todo import Plan, Row

FOLDER = "checkpoints"
FORMAT = 1
KEPT = 5
READ_LIMIT = 1 << 30
_NAME = re.compile(r"checkpoints/([0-9]{12})(-[a-z0-9_-]+)?\.json")
_AFTER_FORCE = "_unclean.json"  # no name that is made of a person's words has a `_`
_SHA = b',"sha256":"'
_TAIL = len(_SHA) + 64 + len(b'"}')


class MessagesAt(Struct, frozen=True):
    """How far messages.jsonl had been written: lines, bytes, and the CRC-32 of those bytes."""

    count: Count = 0
    bytes: Count = 0
    crc: str = "00000000"


class Written(NamedTuple):
    path: str
    size: int  # bytes
    sha256: str


class _PlanText(Struct):
    """A plan, with the outcome of parsing it."""

    text: str
    outline: list[Row]


class _Format(Struct):
    format: int


@cache
def _moment() -> Shape:
    plan = Shape(
        _PlanText, lambda plan: _PlanText(plan.text, plan.outline()), lambda file: Plan.restore(file.text, file.outline)
    )
    return shape_of(Moment, {Plan: plan})


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    parts = [("format", int), ("moment", _moment().kind), ("messages", dict[str, MessagesAt])]
    return msgspec.json.Decoder(msgspec.defstruct("_File", parts))


def path_of(moment: Moment, name: str = "", seq: int | None = None) -> str:
    """`checkpoints/SEQ-NAME.json`; `seq` if the moment is about to be there. NAME is for people: the item that is open,
    else `name`. Its end tells one that was written after a stop by force, when nothing had been checked yet."""
    open_items = [slug(f"{key}-{scope.title}") for key, scope in moment.root.scopes.items() if key != ROOT]
    words = (open_items[0] if open_items else slug(name)) or moment.status
    return f"{FOLDER}/{moment.seq if seq is None else seq:012d}-{words}{_AFTER_FORCE if moment.unclean else '.json'}"


def encode(moment: Moment, messages: dict[str, MessagesAt]) -> bytes:
    """`messages` by the agents' paths; an agent that is not in it has none."""
    pack = _moment().pack
    assert pack is not None
    agents = {path: replace(agent, scopes=_lean(agent.scopes)) for path, agent in moment.agents.items()}
    at = {path: messages.get(path, MessagesAt()) for path in agents}
    body = msgspec.json.encode({"format": FORMAT, "moment": pack(replace(moment, agents=agents)), "messages": at})[:-1]
    return b'%s%s%s"}\n' % (body, _SHA, hashlib.sha256(body).hexdigest().encode())


def parse(data: bytes) -> tuple[Moment, dict[str, MessagesAt]]:
    """ValueError if the bytes are not a whole checkpoint or contradict each other; NewerFormat if a newer Satchel wrote
    them."""
    at = len(data) - _TAIL - data.endswith(b"\n")
    if data[at:].rstrip(b"\n") != b'%s%s"}' % (_SHA, hashlib.sha256(memoryview(data)[:at]).hexdigest().encode()):
        raise ValueError("its hash does not match")
    try:
        file = _decoder().decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        _check_format(data)
        raise ValueError(str(error)) from error
    _refuse_newer(file.format)
    unpack = _moment().unpack
    assert unpack is not None
    moment: Moment = unpack(file.moment)
    _check(moment, file.messages)
    for agent in moment.agents.values():
        for scope in agent.scopes.values():
            _fill(scope)
    return moment, file.messages


def _check(moment: Moment, messages: dict[str, MessagesAt]) -> None:
    """ValueError for what no run leaves behind, whatever its hash says: it would only be found out in the middle of
    one."""
    if "" not in moment.agents:
        raise ValueError("it says nothing of the run's own agent")
    above: set[str] = set()
    for path, agent in moment.agents.items():
        if path and path.rpartition("/")[0] not in above:
            raise ValueError(f"the agent {path!r} has none above it")
        above.add(path)
        if agent.path != path or path not in messages:
            raise ValueError(f"what it says of the agent {path!r} is another's, or not all")
        if ROOT not in agent.scopes:
            raise ValueError(f"it says nothing of the own calls of the agent {path!r}")
        if agent.has_data and not isinstance(agent.data, dict):
            raise ValueError(f"the data of the agent {path!r} are no object")
    for id, question in chain(moment.doubts.items(), moment.approvals.items()):
        if question.agent not in above:
            raise ValueError(f"question {id} is of an agent that it does not know")
    times = [moment.opened_at, moment.last_at, moment.lifted, moment.until, moment.resumed_at]
    times += [moment.pause.requested_at, moment.pause.until, moment.pause.paused_at] if moment.pause else []
    times += [due for fired in moment.fired.values() for each in fired for due in (each.due, each.at)]
    for time in filter(None, times):
        check_time(time)
    raws = [task.content for task in moment.tasks.values()] + [each.decision for each in moment.answered.values()]
    raws += [raw for asked in moment.approvals.values() for raw in (asked.context, asked.default)]
    for raw in raws:
        check_json(raw)
    if moment.status == "sleeping" and not moment.until:
        raise ValueError("it does not say until when the run sleeps")


def _lean(scopes: dict[str, Scope]) -> dict[str, Scope]:
    """Without the numbers of those calls whose records tell them: there may be tens of thousands."""
    return {
        key: replace(scope, numbers={call: no for call, no in scope.numbers.items() if not scope.knows(call)})
        for key, scope in scopes.items()
    }


def _fill(scope: Scope) -> None:
    """What `_lean` has left out."""
    for records in (scope.done, scope.started):
        scope.numbers |= {key: record.no for key, record in records.items()}
    scope.numbers |= {key: promoted[0].no for key, promoted in scope.promoted.items() if promoted}


def _check_format(data: bytes) -> None:
    with suppress(msgspec.MsgspecError, RecursionError):
        _refuse_newer(msgspec.json.decode(data, type=_Format).format)


def _refuse_newer(format: int) -> None:
    if format > FORMAT:
        raise NewerFormat(f"a checkpoint of format {format}", remedy=f"upgrade Satchel: this one knows format {FORMAT}")


class Newest(NamedTuple):
    """The newest good checkpoint, and what was wrong with those that are newer."""

    moment: Moment | None
    messages: dict[str, MessagesAt]
    complaints: list[str]
    path: str = ""


def newest(store: Store, up_to: int = 10**12) -> Newest:
    """Of record `up_to` or before."""
    complaints: list[str] = []
    for path in reversed(paths(store)):
        if position_of(path) > up_to:
            continue
        try:
            return Newest(*load(store, path), complaints, path)
        except FileNotFoundError:
            continue  # its owner has dropped it meanwhile
        except (ValueError, InvalidFile) as error:
            complaints.append(f"{path} can't be used: {error}")
    return Newest(None, {}, complaints)


def load(store: Store, path: str) -> tuple[Moment, dict[str, MessagesAt]]:
    """The checkpoint `path`. ValueError or InvalidFile if it is damaged, NewerFormat as in `parse`."""
    moment, messages = parse(store.read(path, limit=READ_LIMIT).data)
    if moment.seq != position_of(path):
        raise ValueError(f"it is of record {moment.seq}, and its name says otherwise")
    return moment, messages


def paths(store: Store) -> list[str]:
    """All checkpoints, oldest first."""
    return sorted(entry.path for entry in store.list(FOLDER) if _NAME.fullmatch(entry.path))


def position_of(path: str) -> int:
    """The record that a checkpoint stands at, by its name."""
    match = _NAME.fullmatch(path)
    assert match, path
    return int(match[1])


def write(
    store: Store, moment: Moment, messages: dict[str, MessagesAt], name: str = "", keep: Checkpoints | None = None
) -> Written:
    """Write a checkpoint of `moment`, durably, and remove those that nothing keeps. `name`: see `path_of`."""
    data = encode(moment, messages)
    path = path_of(moment, name)
    store.replace(path, data)
    _prune(store, keep or Checkpoints(keep=KEPT))
    return Written(path, len(data), hashlib.sha256(data).hexdigest())


def _prune(store: Store, keep: Checkpoints) -> None:
    """The newest stays in any case, and so does the newest from before a stop by force: a person may want to go back to
    it, however many have come since."""
    known = paths(store)
    good = [path for path in known if not path.endswith(_AFTER_FORCE)]
    for path in known[: -keep.keep]:
        if keep.keep_for and _age(store, path) <= keep.keep_for:
            break
        if path not in good[-1:]:
            store.remove(path)


def _age(store: Store, path: str) -> float:
    """In seconds; as good as endless where the storage does not tell."""
    at = store.trace(path).at
    return (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds() if at else math.inf
