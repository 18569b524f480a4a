"""Checkpoints: a whole moment in a file, so that an opening reads only the tail of the journal.

One JSON object on one line; `sha256`, last, is of everything before it. Write a checkpoint only of a position that is
durable in the journal. The structs of the moment define its content (packing.py): each of their fields is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..base import InvalidFile, NewerFormat, SatchelError, slug
from ..formats import Keep, decoder
from ..journal import CHECKPOINTS
from ..journal.records import check_json, check_time
from ..store import Store, Version
from . import detached_results
from .agent_state import ROOT, AgentMoment, MessagesAt
from .detached_results import Fetched, Front, Results
from .going_back import PLANS, check_agent
from .packing import Shape, shape_of
from .retained import AFTER_FORCE
from .retained import age_of as age_of
from .retained import is_good as is_good
from .retained import paths as paths
from .retained import position_of as position_of
from .retained import ruled as ruled
from .retained import superfluous as superfluous
from .run_state import Moment
from .scope_state import Scope

FORMAT = 1
READ_LIMIT = 1 << 30
_SHA = b',"sha256":"'
_LARGE = 256 << 10
_END = 64 << 10
"""Bytes of a large checkpoint without its results. A larger one is fetched whole."""

_TAIL = len(_SHA) + 64 + len(b'"}')


class Written(NamedTuple):
    path: str
    size: int  # bytes
    sha256: str


class _Format(Struct):
    format: int


_format = decoder(_Format)


@cache
def _moment() -> Shape:
    return shape_of(Moment, PLANS)


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


def path_of(moment: Moment, name: str = "", seq: int | None = None) -> str:
    """`checkpoints/SEQ-NAME.json`; `seq` if the moment is about to be there. NAME is for people: the open item, else
    `name`. Its end shows a checkpoint after a forced stop, before anything was checked."""
    open_items = [slug(f"{key}-{scope.title}") for key, scope in moment.root.scopes.items() if key != ROOT]
    words = (open_items[0] if open_items else slug(name)) or moment.status
    end = AFTER_FORCE if moment.unclean else ".json"
    return f"{CHECKPOINTS}/{moment.seq if seq is None else seq:012d}-{words}{end}"


Listed = Mapping[str, Version]
"""Files of a bucket with their versions at the time of the checkpoint. While a listing shows the same version, the file
contains nothing that the checkpoint does not know."""


def encode(
    moment: Moment, messages: dict[str, MessagesAt], listed: Listed = MappingProxyType({}), *, is_apart: bool = False
) -> bytes:
    """`messages` by the agents' paths; an agent that is not in it has none. `is_apart`: results of large scopes go
    where they can be fetched separately."""
    pack = _moment().pack
    assert pack is not None
    agents = {path: replace(agent, scopes=_lean(agent.scopes)) for path, agent in moment.agents.items()}
    results = _taken_apart(agents) if is_apart else []
    at = {path: messages.get(path, MessagesAt()) for path in agents}
    rest = _rest()(moment=pack(replace(moment, agents=agents)), messages=at, listed=dict(listed))
    body = detached_results.encoded(Front(FORMAT, results), msgspec.json.encode(rest)[1:-1])
    return b'%s%s%s"}\n' % (body, _SHA, hashlib.sha256(body).hexdigest().encode())


def _taken_apart(agents: dict[str, AgentMoment]) -> list[Results]:
    """The results that are put apart, out of the scopes of these copies."""
    found = []
    for path, agent in agents.items():
        for key, scope in agent.scopes.items():
            agent.scopes[key], results = detached_results.taken_apart(path, key, scope)
            found += [results] if results else []
    return found


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
            detached_results.fill(scope)
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


def _unpacked(file: Any) -> Moment:
    unpack = _moment().unpack
    assert unpack is not None
    moment: Moment = unpack(file.moment)
    _check(moment, file.messages)
    for path, agent in moment.agents.items():
        agent.messages_at = file.messages[path]
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
        if path not in messages:
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


def _lean(scopes: dict[str, Scope]) -> dict[str, Scope]:
    """Without the numbers of calls whose records have them, as in `apart.fill`: there may be tens of thousands."""
    return {
        key: replace(scope, numbers={call: no for call, no in scope.numbers.items() if not scope.knows(call)})
        for key, scope in scopes.items()
    }


def _check_format(data: bytes) -> None:
    with suppress(msgspec.MsgspecError, RecursionError):
        _refuse_newer(_format.decode(data).format)


def _refuse_newer(format: int) -> None:
    if format > FORMAT:
        raise NewerFormat(f"a checkpoint of format {format}", remedy=f"upgrade Satchel: this one knows format {FORMAT}")


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
    moment, messages, listed = _parse(store.read(path, limit=READ_LIMIT).data)
    _check_position(moment, path)
    return moment, messages, listed


def _begun(store: Store, path: str) -> tuple[Moment, dict[str, MessagesAt], Listed] | None:
    """The same where reading is a request, without the separate results, which are fetched when needed. None if there
    are none."""
    size = _large(store, path)
    if not size:
        return None
    end = store.tail(path, _END)
    found = detached_results.behind_results(end, size, _TAIL + end.endswith(b"\n"))
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
                agent.scopes[key] = detached_results.put_off(scope, count, partial(fetched.of, agent.path, key))
            else:
                detached_results.fill(scope)
    return moment, file.messages, file.listed


def _is_apart(store: Store) -> bool:
    """Whether a file that is fetched later is certainly the same file."""
    return store.abilities.remote and store.abilities.conditional_replace


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


def _check_position(moment: Moment, path: str) -> None:
    if moment.seq != position_of(path):
        raise ValueError(f"it is of record {moment.seq}, but its name says another number")


def write(
    store: Store,
    moment: Moment,
    messages: dict[str, MessagesAt],
    name: str = "",
    keep: Keep | None = None,
    listed: Listed = MappingProxyType({}),
) -> Written:
    """Write a checkpoint of `moment`, durably, and remove those that nothing keeps. `name`: see `path_of`."""
    return put(store, draft(store, moment, messages, name, listed), keep)


class Draft(NamedTuple):
    """A checkpoint that is not written yet."""

    path: str
    data: bytes


def draft(
    store: Store, moment: Moment, messages: dict[str, MessagesAt], name: str = "", listed: Listed = MappingProxyType({})
) -> Draft:
    """The first half of `write`: from here on the moment may change."""
    return Draft(path_of(moment, name), encode(moment, messages, listed, is_apart=_is_apart(store)))


def put(store: Store, made: Draft, keep: Keep | None = None) -> Written:
    """The second half, which waits for the storage."""
    store.replace(made.path, made.data)
    for each in superfluous(store, keep or Keep()):
        store.remove(each)
    return Written(made.path, len(made.data), hashlib.sha256(made.data).hexdigest())
