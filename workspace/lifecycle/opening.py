"""Open a workspace for writing: take the lease, repair, find edits, salvage, and bring the files up to date.

docs/architecture.md lists the steps of an opening; these are steps 1 to 8. Findings, actions and requests to people go
into the report. Afterwards the owner holds a `Workspace`. Nothing of the agent runs here.
"""

from __future__ import annotations

import os
import platform
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Literal, NamedTuple

from .. import journal
from ..base import SatchelError, myself, version
from ..formats import pause_file
from ..inbound import CheckData, Noticed, Side, archive, describe_saving, inbox, notice, path_of, rejection
from ..inspect import Look, Report, begun, is_unchanged, lease, look, transfer_file
from ..journal import FORMAT, Opened, now
from ..secrets import redactor_of, scrubbed
from ..state import Listed, Moment, checkpoint
from ..store import TEMPORARY, Store
from ..views import PARTIALS, RECOVERED, STEPS, MessageFile, conversation, guarded_files, running_file, schema_files
from . import recovery
from .acquire import Adoption, Owned, judge, owned
from .follower import following
from .recovery import Leftover
from .workspace import Due, Workspace

Found = Literal["new", "clean", "crash", "files"]
Why = Literal[
    "run", "hold", "recover", "merge", "pause", "forced", "answer", "rewind", "redo", "edit", "prune", "fork", "replay"
]

_OF_AGENTS = ("run", "pause", "forced", "answer", "rewind", "redo", "replay")


AddMore = Callable[[Workspace], None]


class Outdated(Exception):
    """Another process has paused, resumed or ended the run since it was looked at: look again."""


@contextmanager
def opened(
    store: Store,
    why: Why,
    report: Report,
    *,
    seen: Look | None = None,
    choices: Mapping[str, Side] | None = None,
    check_data: CheckData | None = None,
    take_over: bool = False,
    adopt: bool = False,
    add_more: AddMore | None = None,
    reaches_out: bool = False,
    cut_off: str = "",
    by: str = "",
    in_thread: bool = False,
    is_decided: bool = False,
    backs_up: bool = False,
) -> Iterator[Workspace]:
    """Open for the body. The body calls `close`; without it the end is like a crash, and is repaired like one.

    `seen` is a recent look at it, if there is one. `take_over`: see `owned`; `adopt`: see acquire.py. `add_more` adds
    records to those of the opening. `reaches_out`: a run will continue, so its tasks may be handed on to the place in
    workspace.yaml. Without it nothing is written outside the workspace and no other storage is contacted, whatever a
    stranger's files say. `cut_off`: the folder with the end of the journal that was cut off just before. `by`: who
    opens it, if that is not the user of this process. `in_thread`: the loop of the body has other work, so threads
    write the journal and the readable files. `is_decided`: what the body does was decided from `seen`; Outdated, with
    nothing recorded, if another process has paused, resumed or ended the run since. `backs_up`: its copy follows, if
    its files name a place for one.

    People's edits are merged, recorded and reported. Refused or InvalidFile for one that can't be accepted, Conflicting
    for one that a person has to decide about, by `choices`; see inbound/detection.py for these and `check_data`. To
    `merge`, unresolved conflicts stay as they are, and the next opening asks again.
    """
    seen = seen or look(store)  # refuse before anything is touched
    if why in _OF_AGENTS:
        seen.check_has_agent(store.url)
    decided = _standing(seen.moment)
    report.redactor = redactor_of(seen.definition)
    transfer_file.refuse_backup(store)
    adopted = judge(store, seen.moment, seen.moment.url, seen.moment.host, adopt=adopt, reaches_out=reaches_out)
    with (
        scrubbed(report.redactor),
        following(store, seen.definition if backs_up else None, adopt=adopt) as follower,
        owned(store, seen, take_over=take_over) as mine,
    ):
        seen = mine.seen
        if is_decided and _standing(seen.moment) != decided:
            raise Outdated
        report.found(seen)
        if adopted.says:
            report.add("found", adopted.says)
        _clear_leftovers(store, seen.moment, why)
        noticed = _notice(store, mine, choices, check_data)
        journal.mend(store, seen.tail)
        if why == "hold":  # a program goes on: its versions are written again, and people's are kept
            noticed.overruled += [refusal for refusal in noticed.refusals if refusal.data is not None]
            noticed.refusals = [refusal for refusal in noticed.refusals if refusal.data is None]
        _turn_away(store, seen, noticed, report, settling=why == "merge")
        leftovers = list(recovery.leftovers(store, seen.moment))
        workspace = _taken(store, mine, report, noticed, in_thread=in_thread)
        workspace.reaches_out, workspace.home = reaches_out, adopted.home or store.url
        if follower is not None:
            workspace.follower, follower.on_lost = follower, workspace.journal.give_up
            follower.begin()
        try:
            if workspace.was_finished and why in ("run", "replay", "pause", "forced"):
                why = "recover"  # nothing is left that could run or be paused
            how = _Came(why, adopted, cut_off, by)
            _record_opening(workspace, how, seen, noticed, None if leftovers else add_more)
            _settle_tasks(workspace)
            _salvage(workspace, why, leftovers, add_more if leftovers else None)
            _take_answers(workspace)
            _project(workspace, noticed, is_born=why == "fork")
            yield workspace
        finally:
            workspace.behind.close()
            workspace.journal.end()


def _standing(moment: Moment) -> tuple[str, str]:
    """What a start decides by, and another process may change while this one waits for the lease."""
    return moment.status, moment.pause.requested_at if moment.pause is not None else ""


def _notice(store: Store, mine: Owned, choices: Mapping[str, Side] | None, check_data: CheckData | None) -> Noticed:
    """Find people's edits, without taking them yet."""
    seen = mine.seen
    if not seen.is_rebuilt:
        rejection.put_back_displaced(store, seen.moment)
    noticed = notice(
        store, seen.moment, seen.definition, choices, check_data, is_rebuilt=seen.is_rebuilt, listed=seen.listed
    )
    if noticed.refusals or noticed.questions:
        mine.check_nobody_came(store)  # a conflict with the journal may come from people's edits
    return noticed


def _turn_away(store: Store, seen: Look, noticed: Noticed, report: Report, *, settling: bool) -> None:
    """Keep refused edits, and raise if the run must not be opened over them."""
    try:
        if seen.is_rebuilt and (asked := begun(seen.moment)):
            raise asked
        rejection.turn_away(store, seen.moment, noticed, settling=settling)
    except SatchelError as error:
        paths = {each.path for each in noticed.refusals} | {each.path for each in noticed.questions}
        about = error.path if error.path in paths and error.path else ""
        report.add("wanted", rejection.said(error), about, (about and store.version(about)) or "")
        report.save(store)
        raise
    for said in rejection.set_aside(store, noticed):
        report.add("done", said)


def _taken(store: Store, mine: Owned, report: Report, noticed: Noticed, *, in_thread: bool) -> Workspace:
    """The workspace of this owner, before anything is recorded."""
    seen = mine.seen
    if seen.is_rebuilt:  # after a crash the next opening must find the record before the new journal
        at = {place.key: place.log.messages_at for place in seen.moment.row_logs}
        seen.checkpoint = checkpoint.write(store, seen.moment, at).path
    archive.put_away(store, seen.moment)
    workspace = Workspace(store, seen.definition, seen.moment, report, in_thread=in_thread)
    workspace.owned = mine
    workspace.due, workspace.has_edits = _due(store, seen), bool(noticed.edits)
    workspace.definition_version = seen.definition_version
    _take_messages(workspace, noticed, seen.listed)
    workspace.write_to(mine.journal(store, in_thread=in_thread))
    moment = seen.moment
    workspace.was_finished = moment.status == "cancelled" or (
        moment.is_finished and not noticed.reopens and not inbox.has_work(store, moment)
    )
    return workspace


def _due(store: Store, seen: Look) -> Due:
    """The tail of the journal at the look counts for the next checkpoint, however many processes have died since the
    last one."""
    sizes = {entry.path: entry.size for entry in store.list(journal.CHECKPOINTS)}
    after = checkpoint.position_of(seen.checkpoint) if seen.checkpoint else 0
    behind = sum(size for first, size in journal.sizes(store).items() if first > after)
    age = 0.0
    if seen.tail.lines:
        age = (datetime.fromisoformat(now()) - datetime.fromisoformat(seen.tail.lines[0].at)).total_seconds()
    return Due(store.abilities.remote, sizes.get(seen.checkpoint, 0), behind, max(0.0, age))


class _Came(NamedTuple):
    """How this opening came about, as its record says."""

    why: Why
    arrived: Adoption
    cut_off: str
    by: str


def _record_opening(workspace: Workspace, how: _Came, seen: Look, noticed: Noticed, add_more: AddMore | None) -> None:
    moment, writer = workspace.moment, workspace.journal
    store, why = workspace.store, how.why
    has_crashed = why != "forced" and recovery.is_crash(store, workspace.owned, moment)
    runs = why in ("run", "replay")
    workspace.owned.write_lease(store, is_brief=not runs)
    was: Found = "new" if workspace.owned.is_new else "clean" if moment.clean else "crash"
    was = "files" if seen.is_rebuilt else was
    has_none = was == "new" or (moment.lost_nonce and not moment.run_nonce)
    nonce = secrets.token_hex(16) if has_none else ""
    forked = moment.forked if moment.forked and moment.forked.seq + 1 >= moment.seq else None
    writer.add(
        Opened(
            format=FORMAT,
            run_id=moment.run_id,
            run_nonce=nonce,
            satchel=version(),
            python=platform.python_version(),
            host=socket.gethostname(),
            pid=os.getpid(),
            by=how.by or myself(),
            url=workspace.home,
            why=why,
            found=was,
            definition=noticed.definition,
            checkpoint=seen.checkpoint,
            arrived=how.arrived.says,
            restored=how.arrived.restored,
            took_over=workspace.owned.took_over,
            boot=recovery.boot_id() if runs and not lease.is_shared() else "",
            crashed=has_crashed,
            cut_off=how.cut_off,
            forked=forked,
        )
    )
    workspace.add_edits(noticed)
    if add_more is not None:
        add_more(workspace)
    if why not in ("run", "replay", "pause") and not workspace.was_finished:
        _record_emergency(workspace)
    writer.flush()
    workspace.desk.write_questions()


def _record_emergency(workspace: Workspace) -> None:
    """The run was killed, and only pause.yaml says so yet. From here on the journal does, too: a checkpoint of this
    opening does not count as known-good."""
    file, moment = lease.read_pause(workspace.store), workspace.moment
    if file is not None and file.asks_for_emergency and moment.pause is None and not file.is_of(moment.lifted):
        workspace.journal.add(lease.pause_request(file, workspace.store.trace(pause_file.PATH).by))


def _settle_tasks(workspace: Workspace) -> None:
    store, moment, writer = workspace.store, workspace.moment, workspace.journal
    for done in inbox.settled(moment):
        writer.add(done)
    writer.flush()
    archive.put_away(store, moment)
    inbox.put_away_repeated(store, moment)
    if workspace.reaches_out:
        inbox.finish_redirect(store, moment, writer, workspace.definition, workspace.report)


def _salvage(workspace: Workspace, why: Why, leftovers: list[Leftover], add_more: AddMore | None) -> None:
    """Step 7. Every promotion is durable before its partial is removed. What `add_more` adds comes after them: it may
    say that they don't count."""
    is_forced = why == "forced" or workspace.moment.unclean
    by = "a forced stop" if is_forced else "an error" if workspace.report.was_clean else "a crash"
    promoted = []
    for leftover in leftovers:
        record = recovery.promote(workspace.store, leftover, workspace.moment, by)
        if record:
            workspace.journal.add(record)
            workspace.report.add("done", f"{recovery.describe(leftover)}; kept as {record.file}")
        elif not leftover.stale:
            workspace.report.add("done", f"{recovery.describe(leftover)}; kept in {RECOVERED}/")
        promoted.append(leftover.path)
    if add_more is not None:
        add_more(workspace)
    workspace.journal.flush()
    for path in promoted:
        workspace.store.remove(path)


def _take_answers(workspace: Workspace) -> None:
    """Record the answers in approvals/ since the last look."""
    found = workspace.desk.look(workspace.journal, may_wait=True)
    workspace.desk.write_questions()
    for each in (*found, *workspace.desk.refused()):
        if each.kind == "answered":
            workspace.report.add("edited", each.text)
        else:
            about = path_of(each.id)
            workspace.report.add("wanted", each.text, about, workspace.store.version(about) or "")


def _project(workspace: Workspace, noticed: Noticed, *, is_born: bool) -> None:
    """Step 8: afterwards all files show the moment of this opening. Where a write is a request, the projector does it
    later, so that no caller has to wait. `is_born`: a fork gets its files now, so none was missing."""
    store, moment = workspace.store, workspace.moment
    rejection.clear_questions(store, moment, noticed.questions)
    for text in () if is_born else noticed.told:
        workspace.report.add("done", text)
    for path in noticed.being_saved:
        workspace.report.add("found", describe_saving(path))
    guarded_files.remove_all(
        store, {path: noticed.versions[path] for path in noticed.leftovers if path in noticed.versions}
    )
    for agent in moment.agents.values():
        for folder in (STEPS, PARTIALS):
            store.tidy(agent.folder + folder)
    schema_files.copy_all(store)
    for question in noticed.questions:
        noticed.versions.pop(question.path, None)  # it stays as it is
    workspace.guard.versions |= noticed.versions
    for path in moment.agents:
        workspace.join(path, noticed)
    if moment.kind:
        workspace.join_files(noticed)
    workspace.mark_all()
    if not workspace.index.is_current:
        workspace.projector.want(workspace.index)
    if not store.abilities.remote:
        workspace.projector.write_all()
    workspace.save_report()


def _take_messages(workspace: Workspace, noticed: Noticed, listed: Listed) -> None:
    """Let each log be what is recorded. Its file is written once the edits of it are recorded, too."""
    store = workspace.store
    for place in workspace.moment.row_logs:
        key, path, log = place
        file = workspace.messages[key] = MessageFile(store, path, workspace.guard)
        found = noticed.conversations.get(key)
        if found is not None:
            file.become(found.data, is_there=found.is_there, version=noticed.versions.get(path))
        elif not log.new_messages and is_unchanged(store, listed, path):
            file.go_on(log.messages_at, listed[path])
        else:
            there = conversation.read(store, path)
            data = there.data if there else b""
            whole = conversation.of_file(log, data)
            if whole is None:
                known = conversation.recorded(store, workspace.moment)[key]
                whole = conversation.encode(conversation.checked(place, known[-1]))
            file.become(whole, is_there=data == whole, version=there.version if there else None)
        log.new_messages, log.messages_at = [], file.at


def _clear_leftovers(store: Store, moment: Moment, why: Why) -> None:
    """Remove what a crash has left: temporary files; what said which calls ran, and may be torn; torn schemas of
    results; and what said that a fork was on its way here, which the fork itself removes when it is done."""
    paths = [entry.path for entry in store.list(TEMPORARY)]
    paths += [running_file.PATH] if store.version(running_file.PATH) is not None else []
    paths += schema_files.torn_results(store)
    if moment.forked is not None and why != "fork":
        note = transfer_file.read(store)
        paths += [transfer_file.PATH] if note is not None and note.kind == "fork" else []
    for path in paths:
        with suppress(SatchelError):
            store.remove(path)
