"""`fork`: a new run that begins with an earlier moment of another one.

It has a run_id and a nonce of its own, so its effects have other keys. Its journal begins after the record of that
moment, with a checkpoint as its base. The order is that of `copy`: `.satchel/moving.json` first, workspace.yaml last.
So a half-made fork is no workspace, and one with a workspace.yaml is complete: what is missing of its readable files,
its first opening writes. The source is only read, also while a process runs it.
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from .. import journal
from ..base import DEFINITION, OF_A_RUN, SCHEMAS, Damaged, SatchelError, UsageError, decode, fresh_run_id
from ..formats import definition, yamltext
from ..history import check_kept
from ..inbound import INBOX
from ..inspect import Manifest, Report, goes_along, look, transfer_file
from ..journal import Lineage, Output, blobs, now
from ..lifecycle import opened
from ..state import AgentMoment, LaterEffect, Moment, RecordedAnswer, after, checkpoint, earlier_moment, prompts
from ..store import DiskStore, RemoteStore, Store, link, read_if_there, walk
from ..views import TODO, MessageRow, conversation, schema_files
from . import copy_files, transfer
from .copy_files import READ_LIMIT, Tell, each_of, keep_attributes, settle
from .transfer import claim, definition_of, held

_NOT_COPIED = OF_A_RUN | {DEFINITION, TODO, INBOX, "cut-off", transfer_file.MOVED}


class ForkResult(Struct, frozen=True):
    """A new run at `to`, with this `run_id`, from record `seq` of `source`.

    `effects`: those that the source has done, or begun, since that record. The fork knows them, or with `forgotten` it
    does them again. `left_out`: outputs of that moment that no longer exist as they were. `files` were copied.
    `was_done`: by an earlier call, which was killed before it could tell the rest.
    """

    run_id: str
    source: str
    to: str
    seq: int
    effects: tuple[LaterEffect, ...]
    forgotten: bool
    files: int
    left_out: tuple[str, ...]
    was_done: bool = False


def fork(
    source: Store,
    to: Store,
    then: Moment,
    latest: Moment,
    *,
    by: str,
    run_id: str = "",
    forgets: bool = False,
    reused: earlier_moment.Reused | None = None,
    edit: Callable[[str], str] = str,
    texts: Mapping[str, bytes] | None = None,
    is_replay: bool = False,
    is_newest: bool = False,
    tell: Tell = lambda *_: None,
) -> ForkResult:
    """Start a new run at `to` from the moment `then` of the run in `source`. `latest` is its newest moment; see
    `earlier_moment.joined` for `forgets` and `reused`. `edit` changes workspace.yaml; `texts` are of other prompts, by
    name, which the new run uses also if it is held to its prompts. `is_replay`: only `resume` continues it.
    `is_newest`: no moment was named, so an interrupted fork may continue from a later one.

    UsageError if the destination holds anything else or can't hold a file, or the new run_id is that of the source.
    """
    transfer.refuse_overlap(source, to.url)
    text = decode(definition_of(source).data, DEFINITION)
    if run_id == then.run_id:
        raise UsageError(f"{run_id!r} is the run_id of the source", path=to.url, remedy="a fork is another run")
    text = edit(text)
    definition.parse(yamltext.set_value(text, ("run_id",), run_id or then.run_id))
    copy_files.refuse_faults(source, to, stays=partial(_is_of_the_run, then=then))
    with held(to):
        options = (*["--effects"] * forgets, *["--reuse"] * (reused is not None))
        mine = Manifest(
            run_id=run_id or fresh_run_id(then.run_id),
            kind="fork",
            source=source.url,
            to=to.url,
            began=now(),
            by=by,
            at=0 if is_newest else then.seq,
            options=options,
            replays=is_replay,
        )
        mine, is_continued = _continued(mine, to, names_itself=not run_id)
        # To a replay that is typed again, other settings may have been given.
        was_done = is_continued and not is_replay and to.version(DEFINITION) is not None
        files, left_out = 0, tuple[str, ...]()
        if not was_done:
            _refuse_whole(source, to, then.run_id)
            claim(to, mine, tell)
            for entry in walk(to):  # of an earlier attempt
                if goes_along(entry.path):
                    to.remove(entry.path)
            moment, left_out = _moment(source, to, then, latest, mine.run_id, forgets, reused)
            moment.is_replay = is_replay
            moment.config = prompts.released(moment.config, texts or {})
            files = _fill(source, to, then, latest, moment, tell)
            for name, data in (texts or {}).items():
                to.replace(prompts.path_of(name), data)
            check_kept(source, then.seq)  # else blobs may have been removed before they could be copied
            to.create(DEFINITION, yamltext.set_value(text, ("run_id",), mine.run_id).encode())
    with opened(to, "fork", Report(), take_over=True, by=by) as workspace:
        workspace.close()
    to.remove(transfer_file.PATH)  # until then, the same call finds the fork complete
    began = workspace.moment.forked
    assert began is not None
    effects = () if was_done else (*earlier_moment.effects_since(latest.agents, then.agents),)
    return ForkResult(mine.run_id, source.url, to.url, began.seq, effects, forgets, files, left_out, was_done)


def _continued(mine: Manifest, to: Store, *, names_itself: bool) -> tuple[Manifest, bool]:
    """Whether an earlier call has begun this fork. Then it keeps its run_id."""
    to.refresh()
    there = transfer_file.read(to)
    renamed = replace(mine, run_id=there.run_id) if there is not None and names_itself else mine
    is_continued = there is not None and there.is_same_journey(renamed)
    return renamed if is_continued else mine, is_continued


def _refuse_whole(source: Store, to: Store, run_id: str) -> None:
    """UsageError for a fork of this run that was opened since it was made. `claim` refuses all else."""
    if to.version(DEFINITION) is None:
        return
    try:
        moment = look(to).moment
    except SatchelError:
        return
    if moment.forked is not None and (moment.forked.url, moment.forked.run_id) == (source.url, run_id):
        raise UsageError(
            f"holds the run {moment.run_id}, a complete fork of this one from record {moment.forked.seq:,}",
            path=to.url,
            remedy=f"`{shlex.join(['satchel', 'status', to.url])}` shows it; for another fork, name another place",
        )


def _moment(
    source: Store,
    to: Store,
    then: Moment,
    latest: Moment,
    run_id: str,
    forgets: bool,
    reused: earlier_moment.Reused | None,
) -> tuple[Moment, tuple[str, ...]]:
    """The first moment of the new run. Its outputs are at the destination when this returns."""
    joined = earlier_moment.joined(latest.agents, then.agents, forgets=forgets, reused=reused)
    agents, left_out = dict[str, AgentMoment](), list[str]()
    known = {path for path, agent in joined.items() if path in then.agents or _knows_effects(agent)}
    for path, agent in joined.items():
        if path not in known and not any(each.startswith(f"{path}/") for each in known):
            continue  # it begins later
        was = then.agents.get(path)
        outputs = {}
        for name, output in was.outputs.items() if was is not None else ():
            if _bring_output(source, to, f"{agent.folder}outputs/{name}", output):
                outputs[name] = replace(output, version="")
            else:
                left_out.append(f"{agent.folder}outputs/{name}")
        was = was or AgentMoment()
        rows = {"messages": was.messages, "appended": was.appended, "logs": was.logs}
        agents[path] = replace(agent, outputs=outputs, edits={}, **rows)
    status = after("forked", then.status)
    moment = replace(
        then,
        run_id=run_id,
        run_nonce=secrets.token_hex(16),
        lost_nonce=False,
        ran="",
        agents=agents,
        url="",
        host="",
        forked=Lineage(source.url, then.run_id, then.seq),
        clean=True,
        unclean=False,
        pause=None,
        status=status,
        reason="forked" if status == "paused" else then.reason,
        lifted="",
        resumed_at="",
        instructions="",
        approvals={id: asked for id, asked in then.approvals.items() if id in latest.approvals and asked.back is None},
        doubts={id: asked for id, asked in then.doubts.items() if id in latest.doubts},
        doubts_asked=latest.doubts_asked,
        approvals_asked=latest.approvals_asked,
        answered={id: _without_standing(each, then.last_at) for id, each in latest.answered.items()},
        standing={},
        taken_back=[],
        tasks={id: task for id, task in then.tasks.items() if id in latest.tasks},  # of others no effect is known
        tasks_taken=latest.tasks_taken,
        fired=latest.fired,
    )
    for id, standing in then.standing.items():
        left = standing.not_begun if id not in latest.standing else latest.standing[id].not_begun
        moment.take_back([asked for each, asked in standing.not_begun.items() if each in left], then.last_at)
        moment.overtake(standing, "the fork")
    for path, agent in moment.agents.items():
        moment.forget_ended(path, agent.scopes)
    return moment, (*left_out,)


def _without_standing(answer: RecordedAnswer, at: str) -> RecordedAnswer:
    """An approval that stands for later calls does so in the other run only."""
    return replace(answer, revoked=f"the fork, {at}") if answer.standing and not answer.revoked else answer


def _knows_effects(agent: AgentMoment) -> bool:
    return bool(agent.past) or any(scope.done or scope.started for scope in agent.scopes.values())


def _bring_output(source: Store, to: Store, path: str, output: Output) -> bool:
    """False if it has changed since."""
    found = read_if_there(source, path, limit=READ_LIMIT)
    if found is None or hashlib.sha256(found.data).hexdigest() != output.sha256:
        return False
    to.replace(path, found.data)
    return True


def _fill(source: Store, to: Store, then: Moment, latest: Moment, moment: Moment, tell: Tell) -> int:
    """Everything but workspace.yaml. Returns the number of files that were copied."""
    said = _conversations(source, then, moment)
    for place in moment.row_logs:
        if (rows := said.get(place.key)) is not None:
            to.replace(place.path, conversation.encode(rows))
    at = {path: conversation.position(conversation.encode(rows)) for path, rows in said.items()}
    data = checkpoint.encode(moment, at)
    scopes = (scope for agent in moment.agents.values() for scope in agent.scopes.values())
    needed = {promoted.file for scope in scopes for each in scope.promoted.values() for promoted in each}
    needed |= {entry.path for entry in source.list(blobs.BLOBS) if entry.path.rpartition("/")[2].encode() in data}
    needed |= {entry.path for entry in source.list(prompts.KEPT)}  # the fork may be held to them
    needed |= {entry.path for entry in source.list(schema_files.FOLDER)}
    needed |= {
        f"{SCHEMAS}/{agent.folder}data.json"
        for path, agent in then.agents.items()
        if path in latest.agents and latest.agents[path].data_version == agent.data_version
    }
    entries = [entry for entry in walk(source) if entry.path in needed or not _is_of_the_run(entry.path, then)]
    total, done = sum(entry.size for entry in entries), 0
    try:
        for entry, _ in each_of(lambda entry: _bring(source, to, entry.path), entries, source, to):
            done += entry.size
            tell("copying", done, total)
    except Damaged:
        check_kept(source, then.seq)  # says why: a process has pruned it meanwhile
        raise
    settle(to, [entry.path for entry in entries])
    checkpoint.write(to, moment, at, "fork")
    kept = [line for path, rows in said.items() for line in conversation.lines_of(path, rows)]
    kept.sort(key=lambda line: line.seq)
    to.replace(journal.kept_path(moment.seq), journal.encode_kept(kept))  # other records up to there are not here
    return len(entries)


def _is_of_the_run(path: str, then: Moment) -> bool:
    """Whether a file is not definition, code or a document. agents/ may also hold code."""
    if not goes_along(path) or ".rejected." in PurePosixPath(path).name:
        return True
    first, *others = path.split("/")
    if then.kind and first in ("files", "logs"):
        return True
    return first in _NOT_COPIED or (first == "agents" and not _NOT_COPIED.isdisjoint(others))


def _bring(source: Store, to: Store, path: str) -> None:
    """A blob never changes, so on one disk both runs can have the same file, and a bucket's server can copy it."""
    is_blob = path.startswith(f"{blobs.BLOBS}/")
    if is_blob and isinstance(source, DiskStore) and isinstance(to, DiskStore) and link(source, to, path):
        return
    if is_blob and isinstance(source, RemoteStore) and isinstance(to, RemoteStore) and to.bring(source, path):
        return
    try:
        data = source.read(path, limit=READ_LIMIT).data
    except FileNotFoundError:
        if is_blob:
            raise Damaged("was removed while it was copied", path=path, remedy="fork again") from None
        return  # a person has removed it meanwhile
    to.replace(path, data, sync="data")
    keep_attributes(source, to, path)


def _conversations(source: Store, then: Moment, moment: Moment) -> dict[str, list[MessageRow]]:
    """The messages up to that moment. The file may not have the newest ones yet, or may have others since an edit."""
    recorded: dict[str, list[list[MessageRow]]] = {}
    found = {}
    known = {place.key: place for place in then.row_logs}
    for key, path, log in moment.row_logs:
        if not log.messages:
            continue
        there = conversation.read(source, path)
        data = conversation.of_file(known[key].log, there.data if there else b"")
        if data is None:
            recorded = recorded or conversation.recorded(source, then)
            data = conversation.encode(conversation.checked(known[key], recorded[key][-1]))
        found[key] = conversation.decode(data)
    return found
