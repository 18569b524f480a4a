"""Read a workspace without changing it, and without running anything of it.

Used by `status`, `log`, `check` and the first and third step of every opening.

The checkpoint of a stop names the files that it fully covers, with their versions in the bucket. While a listing shows
these, code that only shows the status need not fetch the files.

Without a journal the moment is made from workspace.yaml, todo.md and state.json, if their stamps agree. What only the
journal knew is lost: results of steps and scopes, and which effects have happened. So a person is asked about an item
that had begun, and an effect that may have happened is in doubt.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec
from msgspec import Raw, Struct, field

from .. import journal
from ..base import (
    DEFINITION,
    Conflicting,
    Damaged,
    InvalidFile,
    NewerFormat,
    SatchelError,
    Stamp,
    UsageError,
    decode,
    stamp,
)
from ..formats import Definition, definition, jsontext
from ..journal import Closed, Kept, Opened, Saved, Tail, blobs, segment_path
from ..plan import Plan
from ..state import (
    EVERY,
    ROOT,
    AgentMoment,
    Listed,
    MessagesAt,
    Moment,
    Newest,
    Past,
    Status,
    Usage,
    checkpoint,
    folder_of_agent,
)
from ..store import LARGE_LIMIT, DiskStore, Entry, Store, Version, read_if_there
from ..views import conversation, is_step_file, projection
from . import lease, transfer_file
from .transfer_file import define

if TYPE_CHECKING:
    from concurrent.futures import Future


_LOOKS = 8

_LONG = 1 << 20
"""Bytes of a log that an opening should not read."""

_REMEDY = "copy the folder journal/ from the place where this workspace came from"
_TOLD = 5
_STATUSES: list[Status] = [each for each in get_args(Status) if each != "draining"]  # pause.yaml says the rest


class Signature(NamedTuple):
    """What a moment was made from. While it is the same, so is the moment, because these files only grow, or are
    created."""

    definition: Version | None
    files: tuple[Entry, ...]


class Look(Struct):
    """A workspace as it is now."""

    definition: Definition
    moment: Moment  # the newest: checkpoint plus tail
    tail: Tail
    checkpoint: str  # its file; empty: none
    complaints: list[str]  # problems that do not stop an opening
    signature: Signature
    is_rebuilt: bool = False  # the journal is missing, and the readable files had to do
    mistake: SatchelError | None = None  # a mistake in workspace.yaml, while a process runs with the earlier values
    definition_version: Version | None = None  # the version of workspace.yaml that was read, if it is known
    listed: Listed = field(default_factory=dict)  # files that show the moment as long as they have these versions

    def check_has_agent(self, url: str) -> None:
        """UsageError for a workspace that programs hold: nothing runs there that could start or stop."""
        if self.definition.kind:
            raise held(url, self.definition.kind)


def held(url: str, kind: str) -> UsageError:
    """The error about a workspace that programs hold."""
    return UsageError(
        f"has no agent: programs hold it as {kind!r}",
        path=url,
        why="`satchel.hold` has made it",
        remedy="a pause.yaml in its folder keeps programs from it; `satchel status`, `log` and `show` read it",
    )


def signature(store: Store) -> Signature:
    files = (entry for folder in (journal.FOLDER, journal.CHECKPOINTS) for entry in store.list(folder))
    return Signature(store.version(DEFINITION), tuple(files))


def look(store: Store, *, described: Definition | None = None) -> Look:
    """The newest moment. InvalidFile, NewerFormat or Damaged if the workspace can't be opened. `described` replaces the
    content of workspace.yaml."""
    if store.abilities.remote:
        listing = _begin(store.refresh)  # takes longest, so its request comes first
        _have_definition(store)
        checkpoint.prepare()
        listing.result()  # it has shown the names of the others
        having = _begin(partial(checkpoint.have_end, store)) if checkpoint.is_large(store) else None
        store.fetch(_needed(store))
        if having is not None:
            having.result()
    else:
        store.refresh()
    return _look_until_still(store, described)


def _look_until_still(store: Store, described: Definition | None, *, knows_enough: bool = False) -> Look:
    """By the lists that the store has, and by new ones if they seem to be older than what was read."""
    for _ in range(_LOOKS):
        before = signature(store)
        try:
            seen = _look(store, before, described, knows_enough=knows_enough)
        except (Damaged, FileNotFoundError):
            store.refresh()
            if signature(store) == before:
                raise
            continue  # its owner has continued meanwhile: the checkpoint and its journal were not from the same moment
        if not seen.is_rebuilt:
            return seen
        store.refresh()  # a listing that was made while another process began the run may lack its first files
        if signature(store) == before:
            return seen
    return _look(store, signature(store), described)


def look_beside(store: Store) -> Look:
    """Like `look`, for a command that may run while a process runs the workspace. That process does not stop for a
    mistake in workspace.yaml, so the command does not either: the earlier content counts, and `mistake` says what is
    wrong now."""
    try:
        return look(store)
    except (InvalidFile, NewerFormat, Damaged) as error:
        return _in_spite(store, error, look)


def glance(store: Store, besides: Iterable[str] = (), *, with_journal: bool = False) -> Look:
    """Like `look_beside`, for code that only shows the status: by the listing that the store has. In a bucket, files
    that are unchanged since the last stop are not read, so `tail` has none of their lines. On a disk, a journal that
    ends with the record of the newest checkpoint is not read, unless `with_journal`, which finds damage in it.
    `besides` are other files that will be read; they are fetched together."""
    try:
        return _glance(store, besides=besides, with_journal=with_journal)
    except (InvalidFile, NewerFormat, Damaged) as error:
        return _in_spite(store, error, _glance)


def _in_spite(store: Store, error: SatchelError, look: Callable[..., Look]) -> Look:
    """The look in spite of a mistake in workspace.yaml, if a process runs the workspace."""
    if (holder := lease.holder(store)) is None:
        raise error
    seen = look(store, described=Definition(holder.run_id, ""))
    if seen.moment.definition is None:
        raise error
    seen.definition, seen.mistake = definition.restore(holder.run_id, seen.moment.definition), error
    return seen


def _glance(
    store: Store, *, described: Definition | None = None, besides: Iterable[str] = (), with_journal: bool = False
) -> Look:
    if isinstance(store, DiskStore):  # it has no lists, or those of this look
        return _look_until_still(store, described, knows_enough=not with_journal)
    if not store.abilities.remote:
        return look(store, described=described)
    store.fetch([*read_by_glance(store), *besides])
    with suppress(Damaged, FileNotFoundError):
        seen = _look(store, signature(store), described, knows_enough=True)
        if not seen.is_rebuilt:
            return seen
    return look(store, described=described)  # the listing may be older than what was read, or lack the first files


def _begin(job: Callable[[], None]) -> Future[None]:
    """In a daemon thread."""
    from concurrent.futures import Future  # slow, and a look at a disk needs none

    future: Future[None] = Future()

    def work() -> None:
        try:
            job()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=work, name="satchel-look", daemon=True).start()
    return future


def _have_definition(store: Store) -> None:
    """Fetch it, if it exists. Its reader reports errors."""
    with suppress(SatchelError, OSError):
        store.read(DEFINITION, limit=definition.LIMIT)


def _needed(store: Store) -> list[str]:
    """The files that every look reads, according to the names."""
    newest = checkpoint.paths(store)[-1:]
    covered = checkpoint.position_of(newest[0]) if newest else 0
    return [*checkpoint.worth_fetching(store), *journal.expected(store, after=covered), DEFINITION, lease.PATH]


def read_by_glance(store: Store) -> list[str]:
    """The files that `glance` will read, according to the names. If the checkpoint covers a segment's own first record,
    it probably covers the whole segment, and workspace.yaml too."""
    newest = checkpoint.paths(store)[-1:]
    covered = checkpoint.position_of(newest[0]) if newest else 0
    behind = [path for path in journal.expected(store, after=covered) if journal.first_of(path) > covered]
    return [*checkpoint.worth_fetching(store), *behind, *([] if newest else [DEFINITION]), lease.PATH]


def _look(store: Store, before: Signature, described: Definition | None, *, knows_enough: bool = False) -> Look:
    """`knows_enough`: the checkpoint's word about unchanged files is enough."""
    described = described or (None if knows_enough else define(store))
    newest = checkpoint.newest(store)
    found, _, complaints, loaded, listed = newest
    described = described or unchanged_definition(store, newest) or define(store)
    defined_at = before.definition if store.version(DEFINITION) == before.definition else None
    moment = found or Moment(run_id=described.run_id)
    if moment.run_id != described.run_id:
        raise another_run(moment.run_id, described.run_id)
    has_journal = bool(journal.segments(store))
    is_fork = not has_journal and _is_new_fork(found)
    if not has_journal and not is_fork and (rebuilt := _rebuilt(store, described, found)) is not None:
        complaints.append(f"the journal is missing; the run continues from the files as of record {rebuilt.seq}")
        tail = Tail([], rebuilt.seq + 1)
        return Look(described, rebuilt, tail, "", complaints, before, is_rebuilt=True)
    if found is None and journal.first_kept(store) > 1:
        raise Damaged(
            "no checkpoint can be used",
            path=journal.CHECKPOINTS,
            why="; ".join(complaints) or "there is none",
            remedy="restore checkpoints/ from a backup: the records before it are pruned",
        )
    known = unchanged_tail(store, newest) if knows_enough else None
    if is_fork:
        known = Tail([], moment.seq + 1, moment.crc)
    tail = known or journal.read(store, after=moment.seq, before=moment.before)
    moment.apply(tail.lines)
    if not all(isinstance(line.record, Closed | Saved) for line in tail.lines):
        listed = {}  # these files may or may not show what the run has done since
    if tail.torn:
        complaints.append(f"the journal had a torn tail, as a crash leaves it: {tail.torn}; Satchel cuts it off")
    if tail.spoilt:
        complaints.append(
            f"record {tail.spoilt} of the journal is damaged; the checkpoint {loaded} covers it, so the run continues. "
            "To get the full history back, restore journal/ from a backup"
        )
    return Look(described, moment, tail, loaded, complaints, before, definition_version=defined_at, listed=listed)


def _is_new_fork(found: Moment | None) -> bool:
    """A fork begins with a checkpoint. Its first opening begins its journal."""
    return found is not None and found.forked is not None and found.forked.seq == found.seq


def another_run(found: str, expected: str) -> Damaged:
    """The error of a folder whose files belong to the run `found`, and whose workspace.yaml says `expected`."""
    return Damaged(
        f"the files belong to the run {found!r}",
        path=DEFINITION,
        why=f"run_id is {expected!r}",
        remedy=f"put `run_id: {found}` back, or start from a folder without journal/ and checkpoints/",
    )


def refuse_lost_definition(store: Store) -> None:
    """Damaged if there is a record without a workspace.yaml: a new one would be of another workspace, and without the
    settings, such as what is redacted."""
    newest = checkpoint.newest(store).moment
    lines = [] if newest is not None or not journal.segments(store) else journal.read(store, after=0).lines
    said = [(newest.run_id, newest.definition)] if newest is not None else []
    said += [(line.record.run_id, line.record.definition) for line in lines if isinstance(line.record, Opened)]
    for run_id, recorded in said[:1]:
        settings = recorded or {}
        others = [f"`{key}:`" for key in settings if key != "kind" and settings[key]]
        raise Damaged(
            "is missing",
            path=DEFINITION,
            why=f"the journal is that of {run_id!r}",
            remedy=f"write it again with `format: 1`, `run_id: {run_id}` and `kind: {settings.get('kind', '')}`"
            + (f", and with what it said about {', '.join(others)}" if others else ""),
        )


def listed_at_stop(
    store: Store, moment: Moment, described: Definition, version: Version | None, written: Mapping[str, Version | None]
) -> Listed:
    """Call it when all records of the `moment` are in the journal. `described` is the content of workspace.yaml in
    `version`; `written` are the readable files that show the moment."""
    long = {place.path: written.get(place.path) for place in moment.row_logs if place.log.messages_at.bytes > _LONG}
    if not store.abilities.remote:  # reading costs nothing, but for a long log
        return {path: known for path, known in long.items() if known and store.version(path) == known}
    if not store.abilities.conditional_replace:
        return {}  # two saves in one tick of a clock may look the same
    found = long | {path: known for path, known in written.items() if is_step_file(f"/{path}")}
    if segments := journal.segments(store):
        newest = segment_path(segments[-1])
        found |= {newest: store.version(newest) or ""}
    if version and moment.definition == described.recorded:
        found |= {DEFINITION: version}
    return {path: known for path, known in found.items() if known and store.version(path) == known}


def is_unchanged(store: Store, listed: Listed, path: str) -> bool:
    """Whether a file still has the version that a checkpoint names."""
    known = listed.get(path)
    return known is not None and store.version(path) == known


def unchanged_tail(store: Store, newest: Newest) -> Tail | None:
    """The tail of a journal without records after the checkpoint; None if there may be some."""
    segments = journal.segments(store)
    if newest.moment is None or not segments:
        return None
    path, crc = segment_path(segments[-1]), newest.moment.crc
    if not is_unchanged(store, newest.listed, path) and (store.abilities.remote or not _ends_with(store, path, crc)):
        return None
    return Tail([], newest.moment.seq + 1, crc, path)


def _ends_with(store: Store, path: str, crc: str) -> bool:
    """Whether the last record of a segment has this checksum."""
    end = b'"crc":"%s"}\n' % crc.encode()
    with suppress(FileNotFoundError):
        return store.tail(path, len(end)) == end
    return False


def unchanged_definition(store: Store, newest: Newest) -> Definition | None:
    """The content of workspace.yaml, if it is what the checkpoint says. UsageError if the run has moved away."""
    moment = newest.moment
    if moment is None or moment.definition is None or not is_unchanged(store, newest.listed, DEFINITION):
        return None
    transfer_file.refuse_moved(store, moment.run_id)
    return definition.restore(moment.run_id, moment.definition)


# Without a journal


def begun(moment: Moment) -> Conflicting | None:
    """The question about a begun item whose work is no longer known."""
    found = [
        (agent, task)
        for agent in moment.agents.values()
        for task in agent.plan.tasks
        if task.mark == "begun" and task.is_work and task.id not in agent.scopes
    ]
    if not found:
        return None
    agent, task = found[0]
    others = [f"{task.text!r} in {agent.folder}{projection.TODO}" for agent, task in found[1:_TOLD]]
    others += ["and more"] if len(found) > _TOLD else []
    return Conflicting(
        f"item {task.id or ''} ({task.text!r}) was begun, and the journal that recorded its progress is missing",
        path=f"{agent.folder}{projection.TODO}",
        why="its effects may happen a second time" + (f"; so had {', '.join(others)}" if others else ""),
        remedy="mark it `[ ]` to do it from its beginning, `[x]` if it is done, or `[-]` to drop it; then run again",
    )


def _rebuilt(store: Store, described: Definition, known: Moment | None) -> Moment | None:
    """The moment that the readable files show. None if there are none: a run that has not begun. Damaged if they show
    different moments, and for a workspace that programs hold: only the record knows its keys and versions. `known` is
    the content of the newest checkpoint, if there is one."""
    run_id = described.run_id
    root = _read_agent(store, run_id, "")
    if root is None:
        if known is None:
            return None
        raise Damaged(
            "the journal is missing",
            path="journal",
            why=f"the newest checkpoint is at record {known.seq}, and there is no state.json to continue from",
            remedy=_REMEDY,
        )
    at, state, agent = root
    if known is not None and known.seq > at.seq:
        raise Damaged(
            "the journal is missing",
            path="journal",
            remedy=_REMEDY,
            why=f"the newest checkpoint is at record {known.seq}, and the readable files at {at.seq}",
        )
    if known is not None and known.seq == at.seq and known.clean:
        return known  # it is the newest, so nothing is lost
    if described.kind:
        raise Damaged(
            "the journal is missing",
            path="journal",
            why="only it knows which rows and files a program has written, and under which keys",
            remedy=f"{_REMEDY}; or hold another folder, and let the program append there what logs/, "
            "messages.jsonl and files/ of this one show",
        )
    agents = {"": agent, **{child.path: child for child in _below(store, run_id, "", at, state)}}
    for path, before in known.agents.items() if known is not None else ():
        if path in agents:
            _remember(agents[path], before)
    if store.version(lease.PATH) is not None:
        for each in agents.values():
            _forget_what_came_next(each)
    status, attempt = state.get("status"), state.get("attempt")
    reason, until = (found if isinstance(found := state.get(name), str) else "" for name in ("reason", "until"))
    nonce, is_lost = _nonce(state, known)
    moment = Moment(
        run_id=run_id,
        run_nonce=nonce,
        lost_nonce=is_lost,
        seq=at.seq,
        epoch=at.epoch,
        agents=agents,
        reason=reason,
        status=next((each for each in _STATUSES if each == status), "paused"),
        attempt=attempt if isinstance(attempt, int) else 1,
        usage=_usage(state.get("usage")),
        until=until,
        forked=known.forked if known is not None else None,
        is_replay=known is not None and known.is_replay,
    )
    for each in agents.values():
        each.messages_at = _messages(store, each)
        each.messages = each.messages_at.count
    return moment


def _remember(agent: AgentMoment, before: AgentMoment) -> None:
    """Keep the effects that an older checkpoint knows."""
    agent.past, agent.results, agent.outputs = before.past, before.results, before.outputs
    agent.highest_id = max(agent.highest_id, before.highest_id)
    agent.forgotten = list(dict.fromkeys([*agent.forgotten, *before.forgotten]))
    for key, scope in before.scopes.items():  # it has continued since, so these are not all
        effects = {call: step for call, step in scope.done.items() if step.effect}
        if effects and key != ROOT:
            agent.past[key] = Past(
                title=scope.title,
                last_number=scope.last_number,
                done=effects,
                settled=scope.settled,
                when=scope.when,
                again=scope.again,
            )


def _forget_what_came_next(agent: AgentMoment) -> None:
    """The last process has not ended normally, and the files may be older than its work: an item that they show as open
    may have begun."""
    task = agent.plan.next_to_do()
    if task is None or task.mark != "begun":
        agent.forgotten.append(task.id if task and task.id else str(agent.highest_id + 1))


def _read_agent(store: Store, run_id: str, path: str) -> tuple[Stamp, dict[str, Any], AgentMoment] | None:
    folder = folder_of_agent(path)
    name = folder + projection.STATE
    if (found := read_if_there(store, name)) is None:
        return None
    at = stamp.read_json(found.data).stamp
    if at is None and not path:
        return None  # a person's own; the opening says so
    state = jsontext.load(decode(found.data, name), name)
    if not isinstance(state, dict) or "data" not in state or at is None or state.get("run_id") != run_id:
        raise _not_enough(name, "it has no stamp, no data, or belongs to another run")
    agent = AgentMoment(path=path, data=state["data"], has_data=state["data"] is not None)
    if type(version := state.get("data_version")) is int and version > 1:  # else they would be migrated again
        agent.data_version = version
    if not path:
        agent.input = _kept(state, "input")
        agent.result = (_kept(state, "result") or Kept()) if state.get("status") == "completed" else None
    at_work = {_key_of(name) for name in names} if isinstance(names := state.get("open"), list) else set()
    has_begun = bool(at_work) or bool(isinstance(usage := state.get("usage"), dict) and usage.get("items"))
    own_work = {id for id in ids if isinstance(id, str)} if isinstance(ids := state.get("own_work"), list) else set()
    _read_plan(store, run_id, agent, at, own_work, must_be_there=has_begun)
    # An item with an id has begun once, or may have. A person decides about the open ones.
    agent.forgotten = [ROOT, *(task.id for task in agent.plan.tasks if task.id and task.id not in at_work)]
    if path and not agent.has_plan:
        agent.forgotten.append(EVERY)  # it is unknown whether it ever had one
    if path and state.get("status") == "completed":
        agent.result = Kept()  # its arguments are unknown, so no call gets its result
    return at, state, agent


def _key_of(folder: object) -> str:
    """The scope of a folder's name; see projection.folder_of."""
    name = folder if isinstance(folder, str) else ""
    return name.partition("." if "." in name else "-")[0]


def _read_plan(
    store: Store, run_id: str, agent: AgentMoment, at: Stamp, own_work: set[str], *, must_be_there: bool
) -> None:
    name = agent.folder + projection.TODO
    if (saved := read_if_there(store, name)) is None:
        if must_be_there:
            raise _not_enough(name, "it is missing, and the run has had items")
        return
    found = stamp.read_markdown(saved.data, f"{run_id}/{agent.path}")
    if found.stamp is None or found.stamp[:2] != at[:2]:
        where = f"record {found.stamp.seq}" if found.stamp else "no record"
        raise _not_enough(name, f"it is at {where}, state.json at record {at.seq}")
    agent.plan, agent.has_plan = Plan(decode(found.body, name), own_work), True
    numbers = [int(task.id) for task in agent.plan.tasks if task.id and task.id.isdecimal() and len(task.id) <= 15]
    agent.highest_id = max(numbers, default=0)


def _below(store: Store, run_id: str, path: str, at: Stamp, state: dict[str, Any]) -> Iterator[AgentMoment]:
    folders = [*store.folders(f"{folder_of_agent(path)}agents")]
    there = {folder.rpartition("/")[2] for folder in folders if store.version(f"{folder}/{projection.STATE}")}
    for name in names if isinstance(names := state.get("agents"), dict) else ():
        if name not in there:
            raise _not_enough(f"{folder_of_agent(path)}agents/{name}/{projection.STATE}", "it is missing")
    for folder in folders:
        name = folder.rpartition("/")[2]
        child = f"{path}/{name}" if path else name
        found = _read_agent(store, run_id, child)
        if found is None:
            continue  # not an agent's
        if found[0][:2] != at[:2]:
            raise _not_enough(f"{folder}/{projection.STATE}", f"it is at record {found[0].seq}, the root's at {at.seq}")
        yield found[2]
        yield from _below(store, run_id, child, at, found[1])


def _messages(store: Store, agent: AgentMoment) -> MessagesAt:
    """The conversation in the file, up to its last whole line."""
    found = read_if_there(store, agent.folder + conversation.NAME, limit=LARGE_LIMIT)
    return conversation.position(found.data[: found.data.rfind(b"\n") + 1]) if found is not None else MessagesAt()


def _nonce(state: dict[str, Any], known: Moment | None) -> tuple[str, bool]:
    """The nonce of the run, and whether an earlier one is lost. The checkpoint of a run without a nonce says so."""
    found = state.get("run_nonce")
    if isinstance(found, str) and found:
        return found, False
    return ("", True) if known is None else (known.run_nonce, known.lost_nonce)


def _kept(state: dict[str, Any], name: str) -> Kept | None:
    """The input or the result that a state.json shows, or names."""
    if isinstance(place := state.get(f"{name}_in"), str):
        return Kept(blob=place.removeprefix(f"{blobs.BLOBS}/"))
    return Kept(Raw(msgspec.json.encode(state[name]))) if name in state else None


def _usage(found: Any) -> Usage:
    numbers = found if isinstance(found, dict) else {}
    return Usage(**{name: numbers[name] for name in ("steps", "items") if isinstance(numbers.get(name), int)})


def _not_enough(path: str, why: str) -> Damaged:
    return Damaged(
        "the journal is missing, and the readable files are not enough to continue from",
        path=path,
        why=why,
        remedy=_REMEDY,
    )
