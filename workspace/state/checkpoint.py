"""Checkpoints: a whole moment in a file, so that an opening reads only the tail of the journal.

One JSON object on one line; `sha256`, last, is of everything before it. Write a checkpoint only of a position that is
durable in the journal. The structs of the moment define its content (encoding.py): each of their fields is kept.

Checkpoints lie where people find them, and rules say which are kept. From one and the journal after it any later
moment is made again (`PastMoments`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .. import journal
from ..base import DEFINITION, Damaged, InvalidFile, NewerFormat, SatchelError, slug
from ..formats import Keep, decoder
from ..journal import CHECKPOINTS, Edited, ScopeCommitted, check_json, check_time, checkpoint_position, first_kept
from ..store import LARGE_LIMIT, Store, Version
from . import encoding, json_patch
from .agent_state import ROOT, AgentMoment
from .earlier_moment import check_agent
from .encoding import Fetched, Front, Results, Shape, shape_of
from .run_state import Moment
from .scope_state import MessagesAt, Scope

FORMAT = 1
_SHA = b',"sha256":"'
_TAIL = len(_SHA) + 64 + len(b'"}')
_LARGE = 256 << 10
_END = 64 << 10
"""Bytes of a large checkpoint without its results. A larger one is fetched whole."""

AFTER_FORCE = "_unclean.json"  # no name made from a person's words has a `_`
_PARTS, _APART = 4, 1000
"""Checkpoints with which the journal can begin are a quarter of the kept history apart, at least so many records."""

Listed = Mapping[str, Version]
"""Files of a bucket with their versions at the time of the checkpoint. While a listing shows the same version, the file
contains nothing that the checkpoint does not know."""


class WrittenCheckpoint(NamedTuple):
    path: str
    size: int  # bytes
    sha256: str


class CheckpointDraft(NamedTuple):
    """A checkpoint that is not written yet."""

    path: str
    data: bytes


def write(
    store: Store,
    moment: Moment,
    messages: dict[str, MessagesAt],
    name: str = "",
    keep: Keep | None = None,
    listed: Listed = MappingProxyType({}),
) -> WrittenCheckpoint:
    """Write a checkpoint of `moment`, durably, and remove those that nothing keeps. `name`: see `path_of`."""
    return put(store, draft(store, moment, messages, name, listed), keep)


def draft(
    store: Store, moment: Moment, messages: dict[str, MessagesAt], name: str = "", listed: Listed = MappingProxyType({})
) -> CheckpointDraft:
    """The first half of `write`: from here on the moment may change."""
    return CheckpointDraft(path_of(moment, name), encode(moment, messages, listed, is_apart=_is_apart(store)))


def put(store: Store, made: CheckpointDraft, keep: Keep | None = None) -> WrittenCheckpoint:
    """The second half, which waits for the storage."""
    store.replace(made.path, made.data)
    for each in superfluous(store, keep or Keep()):
        store.remove(each)
    return WrittenCheckpoint(made.path, len(made.data), hashlib.sha256(made.data).hexdigest())


def path_of(moment: Moment, name: str = "", seq: int | None = None) -> str:
    """`checkpoints/SEQ-NAME.json`; `seq` if the moment is about to be there. NAME is for people: the open item, else
    `name`. Its end shows a checkpoint after a forced stop, before anything was checked."""
    open_items = [slug(f"{key}-{scope.title}") for key, scope in moment.root.scopes.items() if key != ROOT]
    words = (open_items[0] if open_items else slug(name)) or moment.status
    end = AFTER_FORCE if moment.unclean else ".json"
    return f"{CHECKPOINTS}/{moment.seq if seq is None else seq:012d}-{words}{end}"


def encode(
    moment: Moment, messages: dict[str, MessagesAt], listed: Listed = MappingProxyType({}), *, is_apart: bool = False
) -> bytes:
    """`messages` by the keys of the logs; one that is not in it is empty. `is_apart`: results of large scopes go
    where they can be fetched separately."""
    pack = _moment().pack
    assert pack is not None
    agents = {path: replace(agent, scopes=_lean(agent.scopes)) for path, agent in moment.agents.items()}
    results = _taken_apart(agents) if is_apart else []
    at = {place.key: messages.get(place.key, MessagesAt()) for place in moment.row_logs}
    rest = _rest()(moment=pack(replace(moment, agents=agents)), messages=at, listed=dict(listed))
    body = encoding.encoded(Front(FORMAT, results), msgspec.json.encode(rest)[1:-1])
    return b'%s%s%s"}\n' % (body, _SHA, hashlib.sha256(body).hexdigest().encode())


def _taken_apart(agents: dict[str, AgentMoment]) -> list[Results]:
    """The results that are put apart, out of the scopes of these copies."""
    found = []
    for path, agent in agents.items():
        for key, scope in agent.scopes.items():
            agent.scopes[key], results = encoding.taken_apart(path, key, scope)
            found += [results] if results else []
    return found


def _lean(scopes: dict[str, Scope]) -> dict[str, Scope]:
    """Without the numbers of calls whose records have them, as in `fill`: there may be tens of thousands."""
    return {
        key: replace(scope, numbers={call: no for call, no in scope.numbers.items() if not scope.knows(call)})
        for key, scope in scopes.items()
    }


def _is_apart(store: Store) -> bool:
    """Whether a file that is fetched later is certainly the same file."""
    return store.abilities.remote and store.abilities.conditional_replace


@cache
def _moment() -> Shape:
    return shape_of(Moment)


def _parts() -> list[Any]:
    """The fields after the front: all that an opening needs."""
    listed: Any = ("listed", dict[str, str], msgspec.field(default_factory=dict))
    return [("moment", _moment().kind), ("messages", dict[str, MessagesAt]), listed]


@cache
def _rest() -> type[Struct]:
    return msgspec.defstruct("_Rest", _parts(), omit_defaults=True)


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    return decoder(msgspec.defstruct("_File", _parts(), bases=(Front,), kw_only=True))


class _Format(Struct):
    format: int


_format = decoder(_Format)


def parse(data: bytes) -> tuple[Moment, dict[str, MessagesAt]]:
    """ValueError if the bytes are not a whole checkpoint or contradict each other; NewerFormat if a newer Satchel wrote
    them."""
    moment, messages, _ = _parse(data)
    return moment, messages


def _parse(data: bytes) -> tuple[Moment, dict[str, MessagesAt], Listed]:
    _check_hash(data)
    file = _decoded(data)
    for each in file.results:
        scope = _scope(file.moment.agents, each.agent, each.scope)
        scope.done = [*each.done, *scope.done]
    moment = _unpacked(file)
    for agent in moment.agents.values():
        for scope in agent.scopes.values():
            encoding.fill(scope)
    return moment, file.messages, file.listed


def _check_hash(data: bytes) -> None:
    at = len(data) - _TAIL - data.endswith(b"\n")
    if data[at:].rstrip(b"\n") != b'%s%s"}' % (_SHA, hashlib.sha256(memoryview(data)[:at]).hexdigest().encode()):
        raise ValueError("its hash does not match")


def _scope(agents: Mapping[str, Any], agent: str, scope: str) -> Any:
    try:
        return agents[agent].scopes[scope]
    except KeyError:
        raise ValueError(f"it has results of the unknown scope {scope!r}") from None


def _decoded(data: bytes) -> Any:
    try:
        file = _decoder().decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        _check_format(data)
        raise ValueError(str(error)) from error
    _refuse_newer(file.format)
    return file


def _check_format(data: bytes) -> None:
    with suppress(msgspec.MsgspecError, RecursionError):
        _refuse_newer(_format.decode(data).format)


def _refuse_newer(format: int) -> None:
    if format > FORMAT:
        raise NewerFormat(f"a checkpoint of format {format}", remedy=f"upgrade Satchel: this one knows format {FORMAT}")


def _unpacked(file: Any) -> Moment:
    unpack = _moment().unpack
    assert unpack is not None
    moment: Moment = unpack(file.moment)
    _check(moment, file.messages)
    for place in moment.row_logs:
        place.log.messages_at = file.messages[place.key]
    return moment


def _check(moment: Moment, messages: dict[str, MessagesAt]) -> None:
    """ValueError for what no run leaves behind, even with a right hash. Otherwise a run would fail over it later."""
    if "" not in moment.agents:
        raise ValueError("the run's own agent is missing in it")
    above: set[str] = set()
    for path, agent in moment.agents.items():
        if path and path.rpartition("/")[0] not in above:
            raise ValueError(f"the agent {path!r} has no parent agent")
        above.add(path)
        if any(place.key not in messages for place in agent.row_logs):
            raise ValueError(f"its data for the agent {path!r} is not complete")
        check_agent(path, agent)
    for id, question in chain(moment.doubts.items(), moment.approvals.items()):
        if question.agent not in above:
            raise ValueError(f"question {id} belongs to an agent that is missing in it")
    times = [moment.opened_at, moment.last_at, moment.lifted, moment.until, moment.resumed_at]
    times += [moment.pause.requested_at, moment.pause.until, moment.pause.paused_at] if moment.pause else []
    times += [due for fired in moment.fired.values() for each in fired for due in (each.due, each.at)]
    for time in filter(None, times):
        check_time(time)
    raws = [task.content for task in moment.tasks.values()] + [each.decision for each in moment.answered.values()]
    raws += [raw for asked in moment.approvals.values() for raw in (asked.context, asked.default)]
    raws += [asked.back.data for asked in moment.approvals.values() if asked.back is not None]
    for raw in raws:
        check_json(raw)
    if moment.status == "sleeping" and not moment.until:
        raise ValueError("it does not say until when the run sleeps")


class Newest(NamedTuple):
    """The newest good checkpoint, and the errors of newer ones."""

    moment: Moment | None
    messages: dict[str, MessagesAt]
    complaints: list[str]
    path: str = ""
    listed: Listed = MappingProxyType({})


def newest(store: Store, up_to: int = 10**12) -> Newest:
    """The newest good one of record `up_to` or before."""
    complaints: list[str] = []
    for path in reversed(paths(store)):
        if position_of(path) > up_to:
            continue
        try:
            moment, messages, listed = _begun(store, path) or _load(store, path)
            return Newest(moment, messages, complaints, path, listed)
        except FileNotFoundError:
            continue  # its owner has dropped it meanwhile
        except (ValueError, InvalidFile) as error:
            complaints.append(f"{path} can't be used: {error}")
    return Newest(None, {}, complaints)


def load(store: Store, path: str) -> tuple[Moment, dict[str, MessagesAt]]:
    """The checkpoint `path`. ValueError or InvalidFile if it is damaged, NewerFormat as in `parse`."""
    moment, messages, _ = _load(store, path)
    return moment, messages


def _load(store: Store, path: str) -> tuple[Moment, dict[str, MessagesAt], Listed]:
    moment, messages, listed = _parse(store.read(path, limit=LARGE_LIMIT).data)
    _check_position(moment, path)
    return moment, messages, listed


def _begun(store: Store, path: str) -> tuple[Moment, dict[str, MessagesAt], Listed] | None:
    """`_load` where reading is a request, without the separate results, which are fetched when needed. None if there
    are none."""
    size = _large(store, path)
    if not size:
        return None
    end = store.tail(path, _END)
    found = encoding.behind_results(end, size, _TAIL + end.endswith(b"\n"))
    if found is None:
        return None
    rest, head = found
    file = _decoded(b'{"format":%d,%s}' % (FORMAT, rest))
    moment, fetched = _unpacked(file), Fetched(store, path, _check_hash)
    _check_position(moment, path)
    apart = {(agent, key): count for agent, key, count in head.scopes}
    for agent in moment.agents.values():
        for key, scope in agent.scopes.items():
            if count := apart.get((agent.path, key)):
                agent.scopes[key] = encoding.put_off(scope, count, partial(fetched.of, agent.path, key))
            else:
                encoding.fill(scope)
    return moment, file.messages, file.listed


def _check_position(moment: Moment, path: str) -> None:
    if moment.seq != position_of(path):
        raise ValueError(f"it is of record {moment.seq}, but its name says another number")


def _large(store: Store, path: str) -> int:
    """The size of a file that is too large to fetch whole; else 0."""
    if not _is_apart(store):
        return 0
    size = next((entry.size for entry in store.list(CHECKPOINTS) if entry.path == path), 0)
    return size if size > _LARGE else 0


def worth_fetching(store: Store) -> list[str]:
    """The newest checkpoint, if it is fetched whole."""
    return [path for path in paths(store)[-1:] if not _large(store, path)]


def is_large(store: Store) -> bool:
    """Whether only the end of the newest checkpoint is fetched."""
    return any(_large(store, path) for path in paths(store)[-1:])


def prepare() -> None:
    """Make what reads a checkpoint, for which the first reader would have to wait."""
    _decoder()


def have_end(store: Store) -> None:
    """Fetch the end of the newest checkpoint in advance. Its reader reports errors."""
    for path in paths(store)[-1:]:
        with suppress(SatchelError, OSError):
            store.tail(path, _END)


def paths(store: Store) -> list[str]:
    """All checkpoints, oldest first."""
    return sorted(entry.path for entry in store.list(CHECKPOINTS) if checkpoint_position(entry.path) is not None)


def position_of(path: str) -> int:
    """The record of a checkpoint, by its name."""
    found = checkpoint_position(path)
    assert found is not None, path
    return found


def age_of(store: Store, path: str) -> float:
    """The age of a file in seconds; nearly infinite where the storage does not tell."""
    at = store.trace(path).at
    return (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds() if at else math.inf


def is_good(path: str) -> bool:
    """Whether it was not written after a forced stop and before any check."""
    return not path.endswith(AFTER_FORCE)


def superfluous(
    store: Store, keep: Keep, *, gone: Collection[str] = (), coming: Collection[str] = (), first: int = 0
) -> list[str]:
    """The checkpoints that nothing keeps. The newest always stays. So does the newest before a forced stop, because a
    person may want to return to it, and some with which the journal can begin when older records go.

    As it will be when these are `gone`, others are `coming`, and `first` is the first record that is kept."""
    known = [*(path for path in paths(store) if path not in gone), *coming]
    needed = {*ruled(store, keep, known), *_beginnings(store, known, keep, first or first_kept(store))}
    return [path for path in known if path not in needed]


def ruled(store: Store, keep: Keep, known: Sequence[str]) -> list[str]:
    """The checkpoints among `known` that `keep.checkpoints` keeps, with the newest, and the newest before a forced
    stop; oldest first."""
    rule = keep.checkpoints
    good = [path for path in known if is_good(path)]
    first = max(0, len(known) - max(1, rule.number))
    while rule.age and first and age_of(store, known[first - 1]) <= rule.age:
        first -= 1
    return sorted({*known[first:], *good[-1:]})


def _beginnings(store: Store, known: Sequence[str], keep: Keep, first: int) -> Iterator[str]:
    """The one with which the journal begins, and later ones, a quarter of the kept history apart. `first`: the first
    record that is kept."""
    rule = keep.history
    apart = max(rule.number // _PARTS, _APART)
    due, age = (first - 1 if first > 1 else apart), math.inf
    for path in known:
        if rule.keeps_all and first == 1:
            return  # it begins with its first record
        if position_of(path) < due or not is_good(path):
            continue
        own_age = age_of(store, path) if rule.age else 0.0
        if own_age <= age:
            yield path
            due, age = position_of(path) + apart, own_age - rule.age / _PARTS


class PastMoments:
    """The moments of one run up to `now`. Each is read at most once."""

    def __init__(self, store: Store, now: Moment):
        self._store, self._now = store, now
        self._known: dict[int, Moment | None] = {now.seq: now}

    def at(self, seq: int) -> Moment | None:
        """The moment of record `seq`; None if its sources are gone. Do not change it."""
        if seq not in self._known:
            self._known[seq] = self._make(seq) if seq < self._now.seq else None
        return self._known[seq]

    def first_data(self, path: str, after: Moment) -> Any:
        """The data that an agent began with, after a moment at which it had none. Empty if that is no longer known."""
        try:
            lines = journal.read(self._store, after=after.seq, before=after.before).lines
        except (Damaged, InvalidFile):
            return {}
        for record in [line.record for line in lines if isinstance(line.record, ScopeCommitted | Edited)]:
            is_of_data = isinstance(record, ScopeCommitted) or record.file != DEFINITION
            if is_of_data and record.agent == path and record.patch:
                return json_patch.apply(None, record.patch)
        return {}

    def _make(self, seq: int) -> Moment | None:
        moment = newest(self._store, up_to=seq)[0] or Moment(run_id=self._now.run_id)
        try:
            tail = journal.read(self._store, after=moment.seq, before=moment.before)
            moment.apply(line for line in tail.lines if line.seq <= seq)
        except (Damaged, InvalidFile):  # or retention has removed it
            return None
        return moment if moment.seq == seq and moment.run_id == self._now.run_id else None
