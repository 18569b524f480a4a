"""Pauses: what pause.yaml requests, how a stop is written into it, and whether a stopped run may resume.

That includes a pause that is taken back before the run has stopped, and what is said of one that is over.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from ..base import SIGNAL, Damaged, InvalidFile, Mode, Refused, SatchelError, UsageError
from ..formats import PauseFile, pause_file
from ..inbound import RejectedFile, inbox, rejection
from ..inspect import lease
from ..journal import Failure, Paused, PauseRequested, Resumed, now
from ..secrets import as_recorded
from ..state import ROOT, Moment, Pause, checkpoint
from ..store import LARGE_LIMIT, FileChanged, FileContent, Store, Version
from ..views import PATIENCE, folder_of, read_back, remove, replace, until_settled

if TYPE_CHECKING:
    from .workspace import Workspace


class PauseWish(Struct, frozen=True):
    """What pause.yaml and the journal say about a pause, before a start. Both empty: there is none."""

    recorded: Pause | None = None
    file: PauseFile | None = None
    by: str = ""  # the person who has saved the file
    version: Version | None = None  # of the file

    @property
    def in_force(self) -> bool:
        """The journal says that the run has stopped for it."""
        return self.recorded is not None and bool(self.recorded.paused_at)

    @property
    def is_missing(self) -> bool:
        """The file of a pause in force was removed. That is no instruction."""
        return self.in_force and self.file is None

    @property
    def needs_file(self) -> bool:
        """It was removed, and a person has to write instructions into it."""
        return self.is_missing and self.recorded is not None and self.recorded.resume == "await_instructions"

    @property
    def is_overruling(self) -> bool:
        """A person has written that the run shall resume."""
        return self.file is not None and self.file.status == "resume"

    @property
    def mode(self) -> Mode:
        return (self.file.lasting_mode if self.file else None) or (self.recorded.mode if self.recorded else "drain")

    @property
    def until(self) -> str:
        """When it ends by itself: UTC, ISO 8601. Empty: it does not."""
        return (self.file.until if self.file else "") or (self.recorded.until if self.recorded else "")

    @property
    def is_lifted(self) -> bool:
        """Whether the pause has ended without a person's command."""
        if self.is_overruling:
            return True
        if self.file == PauseFile():  # emptied, and an empty file is a request to stop
            return False
        reason = (self.file.reason if self.file else "") or (self.recorded.reason if self.recorded else "")
        is_over = bool(self.until) and datetime.fromisoformat(self.until) <= datetime.now(UTC)
        return self.mode == "drain" and (reason == SIGNAL or is_over)

    def is_short(self, limit: float) -> bool:
        """Whether it is expected to last fewer seconds than this: then the process stays."""
        if not self.until:
            return False
        paused_at = self.recorded.paused_at if self.recorded else ""
        begin = datetime.fromisoformat(paused_at) if paused_at else datetime.now(UTC)
        return (datetime.fromisoformat(self.until) - begin).total_seconds() < limit


def wish(store: Store, moment: Moment, patience: float = PATIENCE) -> PauseWish | None:
    """None if no pause is requested. InvalidFile if pause.yaml can't be understood: then the run stays paused.
    Unsettled if it is still being saved after `patience` seconds."""
    pause = moment.pause
    if pause is not None and _is_as_it_was_left(store, pause):
        return PauseWish(pause, _as_written(pause), version=pause.file)
    there = store.version(pause_file.PATH) is not None
    content = until_settled(store, pause_file.PATH, patience) if there else None
    if content is None:
        return PauseWish(moment.pause) if moment.pause else None
    trace = store.trace(pause_file.PATH)
    try:
        file = pause_file.parse(content.data, datetime.fromisoformat(trace.at) if trace.at else None)
    except InvalidFile as error:
        error.remedy = (
            "the run stays paused until you fix the file; to continue, write `status: resume` or remove the file"
        )
        if moment.pause is not None and moment.pause.paused_at:
            error.remedy = "the run stays paused; fix the file"
            if moment.pause.resume != "await_instructions":
                error.remedy += ", or remove it and type `satchel resume`"
        elif moment.status == "completed":
            error.remedy = "the run has completed and starts no new work; fix the file, or remove it"
        raise
    if moment.pause is None and file.is_of(moment.lifted):
        return None  # a crash came between the resume and the removal
    return PauseWish(moment.pause, file, trace.by, content.version)


def ask(store: Store, request: PauseRequested, moment: Moment) -> None:
    """Write the request into pause.yaml, durably. An existing file keeps what a person has written, unless it belongs
    to the last pause and a crash has left it. The end of a pause in force is removed. InvalidFile if the existing file
    can't be understood: it is not changed. A cancellation counts more than what is requested after it."""
    with suppress(FileNotFoundError):
        there = _understood(store)
        if there.mode == "cancel" != request.mode and not there.is_of(moment.lifted):
            return
    facts: dict[str, Any] = {"status": "requested", "reason": request.reason, "by": request.by, "mode": request.mode}
    facts |= {"resume": request.resume} if request.resume != "continue" else {}
    in_force = moment.pause is not None and bool(moment.pause.paused_at)
    facts |= {"expected_until": request.until or None} if request.until or in_force else {}
    if (version := _left_over(store, moment.lifted)) is not None:
        with suppress(FileChanged):
            store.replace(pause_file.PATH, pause_file.new(facts), if_version=version)
            return
    _fill(store, facts)


def _understood(store: Store) -> PauseFile:
    try:
        return pause_file.parse(store.read(pause_file.PATH, limit=pause_file.LIMIT).data)
    except InvalidFile as error:
        error.remedy = "Satchel did not change the file: fix it or remove it, and try again"
        raise


def announce(store: Store, pause: Pause) -> None:
    """Write into pause.yaml that the run is stopping."""
    _fill(store, {"status": "draining", **_wish_facts(pause)}, pause)


def settle(workspace: Workspace, *, forced: bool = False, error: Failure | None = None) -> None:
    """The run has stopped: record it, write files, checkpoint and pause.yaml, and read back what a resume needs.
    Damaged if the bytes differ from what was written; then nothing is released, as after a crash."""
    store, moment = workspace.store, workspace.moment
    if workspace.reaches_out:
        inbox.redirect(store, moment, workspace.journal, workspace.definition, workspace.report)
    workspace.record_what_goes()
    workspace.journal.add(Paused(forced=forced, error=error))
    workspace.journal.flush()
    workspace.show_all()
    seq = moment.seq
    path = workspace.checkpoint("stop")
    data = read_back(store, path, limit=LARGE_LIMIT).data
    written, _ = checkpoint.parse(data)
    if written.seq != seq:
        raise Damaged(f"is at record {written.seq}, not at record {seq}", path=path)
    restore(store, moment, {"seq": seq, "file": path, "sha256": hashlib.sha256(data).hexdigest(), "verified": True})
    data, version = read_back(store, pause_file.PATH)
    written_file = pause_file.parse(data)
    assert moment.pause is not None
    if written_file.requested_at != moment.pause.requested_at:
        raise Damaged("does not contain what was written to it", path=pause_file.PATH, remedy="check the disk")
    is_plain = written_file == _as_written(moment.pause) and store.abilities.conditional_replace
    workspace.pause_file = version if is_plain else ""  # else a person has written into it, or versions tell too little


def _is_as_it_was_left(store: Store, pause: Pause) -> bool:
    """Whether the file of a pause in force is unchanged. Then no program is saving it, and in a bucket it need not be
    fetched. On a disk two saves in one tick of the clock may have the same version."""
    if not pause.file or store.version(pause_file.PATH) != pause.file:
        return False
    if store.abilities.remote:
        return True
    try:
        return pause_file.parse(store.read(pause_file.PATH, limit=pause_file.LIMIT).data) == _as_written(pause)
    except (FileNotFoundError, InvalidFile):
        return False


def _as_written(pause: Pause) -> PauseFile:
    """The content of the file of a pause in force without edits."""
    return PauseFile(
        status="paused",
        reason=pause.reason,
        by=pause.by,
        mode=pause.mode,
        resume=pause.resume,
        until=pause.until,
        requested_at=pause.requested_at,
    )


def restore(store: Store, moment: Moment, point: dict[str, Any] | None = None) -> None:
    """Write the known facts of the pause in force into pause.yaml."""
    pause = moment.pause
    assert pause is not None
    facts: dict[str, Any] = {"status": "paused", **_wish_facts(pause), "paused_at": pause.paused_at}
    facts |= {"checkpoint": point} if point else {}
    facts |= {"position": position(moment), "forced": pause.forced}
    facts |= {"config": moment.config} if moment.config else {}
    references = (moment.definition or {}).get("references")
    facts |= {"references": references} if references else {}
    _fill(store, facts, pause)


def position(moment: Moment) -> dict[str, Any]:
    """Where the run is, for a person."""
    found: dict[str, Any] = {"item": None, "steps_done": 0, "waiting_for": [*moment.doubts, *moment.approvals]}
    for agent in moment.agents.values():
        for key, scope in agent.scopes.items():
            if key != ROOT and found["item"] is None:
                found["item"] = f"{agent.path}/{folder_of(key, scope.title)}".removeprefix("/")
                found["steps_done"] = scope.finished
    return found


def _wish_facts(pause: Pause) -> dict[str, Any]:
    facts: dict[str, Any] = {"reason": pause.reason, "by": pause.by, "mode": pause.mode, "resume": pause.resume}
    facts |= {"requested_at": pause.requested_at, "then": None}
    return facts | ({"expected_until": pause.until} if pause.until else {})


def _fill(store: Store, facts: dict[str, Any], pause: Pause | None = None) -> None:
    """Set these facts in pause.yaml, whatever a person does to it at the same time. A file that can't be read is kept.
    What a person has typed since the `pause` was recorded stays."""
    while True:
        there: FileContent | None = None
        try:
            there = store.read(pause_file.PATH, limit=pause_file.LIMIT)
            typed = _typed(pause_file.parse(there.data), pause) if pause else {}
            data = pause_file.filled(there.data, facts | typed)
        except FileNotFoundError:
            data = pause_file.new(facts)
        except (InvalidFile, UsageError) as error:
            _keep_aside(store, there, error)
            data = pause_file.new(facts)
            if there is None:
                continue
        with suppress(FileChanged, FileExistsError):
            if there is not None:
                replace(store, pause_file.PATH, data, there.version)
            else:
                store.create(pause_file.PATH, data)
            return


def _typed(file: PauseFile, pause: Pause) -> dict[str, Any]:
    """The parts of a person's file that must not be overwritten."""
    is_announced = file.requested_at == pause.requested_at
    if not is_announced and (file.requested_at or file.status == "resume"):
        return {}  # of an earlier pause
    said: dict[str, Any] = {}
    if pause.mode != "cancel" or file.mode == "cancel":
        reason, by = as_recorded([pause.reason, pause.by], [file.reason, file.by])  # a secret is not in the record
        said = {"reason": reason, "by": by, "mode": file.mode}
    said |= {"resume": file.resume, "expected_until": file.until}
    if is_announced:
        said["status"] = "resume" if file.status == "resume" else None
    elif pause.reason == SIGNAL:  # both came at once, and the file's pause does not end with the next start
        said["reason"] = file.reason or "manual"
    return {key: value for key, value in said.items() if value}


def _keep_aside(store: Store, there: FileContent | None, error: SatchelError) -> None:
    refusal = RejectedFile(pause_file.PATH, error, there.data if there else None)
    if there is None:  # no file at all: a folder, a link
        rejection.move_aside(store, refusal, pause_file.FATE)
    else:
        rejection.reject(store, refusal, pause_file.FATE)


def stop(workspace: Workspace, wanted: PauseWish, request: PauseRequested | None = None) -> None:
    """The run has already stopped and stays so: write that into the journal and the file. `request` replaces one that
    is over."""
    request = request or requested(wanted)
    if request is not None:
        workspace.journal.add(request)
        workspace.journal.flush()
    pause = workspace.moment.pause
    assert pause is not None
    if wanted.is_missing:
        restore(workspace.store, workspace.moment)
        workspace.report.add("done", "pause.yaml was missing; it is restored, and the run stays paused")
    else:
        was_forced = wanted.recorded is not None and wanted.recorded.forced
        was_killed = pause.mode == "emergency" or (wanted.file is not None and wanted.file.mode == "emergency")
        settle(workspace, forced=was_forced or was_killed)
    condition = "`instructions:` for the agent in pause.yaml: then" if wanted.needs_file else f"paused ({said(pause)}):"
    workspace.report.add("wanted", f"{condition} `satchel resume` continues")


def add_end(workspace: Workspace, wanted: PauseWish, by: str, says: tuple[str, ...] = ()) -> None:
    """The pause is over: add that to the journal's next group and the report. A cancellation is over only when it is
    done."""
    if wanted.mode == "cancel":
        if wanted.file is not None and (wanted.recorded is None or wanted.recorded.mode != "cancel"):
            workspace.journal.add(lease.pause_request(wanted.file, wanted.by))
        return
    over = _add_resumed(workspace, wanted, by or (wanted.by if wanted.is_overruling else "the end of the pause"), says)
    if over is not None and wanted.in_force:
        workspace.report.add("found", "; ".join(over.says))


def clear(workspace: Workspace, wanted: PauseWish) -> None:
    """The end of the pause is on record: remove its file if it could look like another request. Otherwise
    `clear_lifted` does it later."""
    store, file = workspace.store, wanted.file
    if wanted.mode == "cancel":
        return
    workspace.pause_file = ""
    if file is not None and not file.is_of(workspace.moment.lifted):
        with suppress(FileNotFoundError, FileChanged):
            if read_back(store, pause_file.PATH).version == wanted.version:  # else a person wants another pause
                store.remove(pause_file.PATH, if_version=wanted.version)


def clear_lifted(workspace: Workspace) -> None:
    """Remove the file of the last pause that is over, also if a crash has left it."""
    store, moment = workspace.store, workspace.moment
    if moment.pause is None and moment.lifted and store.version(pause_file.PATH) is not None:
        workspace.behind.do(pause_file.PATH, partial(_remove_lifted, store, moment.lifted))


def _remove_lifted(store: Store, lifted: str) -> None:
    """Unless there is a request for another pause since."""
    version = _left_over(store, lifted)  # just read, so it need not be read again
    if version is not None and not store.has_writer(pause_file.PATH):
        with suppress(FileChanged):
            store.remove(pause_file.PATH, if_version=version)


def _left_over(store: Store, lifted: str) -> Version | None:
    """The current file, if it belongs to the pause that is over."""
    if lifted:
        with suppress(FileNotFoundError, InvalidFile, UsageError):
            data, version = read_back(store, pause_file.PATH)
            if pause_file.parse(data).is_of(lifted):
                return version
    return None


def lift(workspace: Workspace, wanted: PauseWish) -> None:
    """Resume at the end of the run: first the record, then remove the file."""
    _add_resumed(workspace, wanted, "the end of the run")
    workspace.journal.flush()
    workspace.behind.wait()  # it may still be written
    workspace.pause_file = ""
    remove(workspace.store, pause_file.PATH, wanted.version)


def _add_resumed(workspace: Workspace, wanted: PauseWish, by: str, says: tuple[str, ...] = ()) -> FinishedPause | None:
    pause, file = wanted.recorded, wanted.file or PauseFile()
    if pause is None:
        return None
    resume = file.resume or pause.resume
    over = finished(pause, newest_checkpoint_at(workspace.store), now())
    workspace.journal.add(
        Resumed(
            by=by,
            instructions=file.instructions,
            seconds=over.seconds,
            checkpoint_age=over.checkpoint_age,
            restart=resume == "restart_step",
            says=(*over.says, *says),
        )
    )
    return over


def check_may_go_on(wanted: PauseWish) -> None:
    """Refused if the pause waits for a person's instructions and there are none."""
    file, pause = wanted.file or PauseFile(), wanted.recorded
    resume = file.resume or (pause.resume if pause else "continue")
    if resume == "await_instructions" and not file.instructions:
        raise Refused(
            "waits for instructions",
            path=pause_file.PATH,
            why="it says `resume: await_instructions`, but has no instructions",
            remedy="write `instructions: ...` into it for the agent, or set `resume: continue`",
        )


def requested(wanted: PauseWish) -> PauseRequested | None:
    """The unrecorded part of the request. It may replace a pause that is in force."""
    if wanted.file is None:
        return None
    if wanted.recorded is not None and not (wanted.in_force and wanted.file.status == "requested"):
        return None
    return lease.pause_request(wanted.file, wanted.by)


def amended(wanted: PauseWish) -> PauseRequested | None:
    """The pause in force with what a person has changed in its file: why, by whom, until when."""
    was, file = wanted.recorded, wanted.file
    if was is None or file is None or not wanted.in_force or file.status != "paused" or was.mode == "cancel":
        return None
    if file.requested_at != was.requested_at:
        return None  # it is of another pause
    reason, by = as_recorded([was.reason, was.by], [file.reason or was.reason, file.by or was.by])
    asked = PauseRequested(
        reason=reason, by=by, mode=was.mode, resume=file.resume or was.resume, until=file.until or was.until
    )
    is_same = (reason, by, asked.resume, asked.until) == (was.reason, was.by, was.resume, was.until)
    return None if is_same else asked


def suffices(wanted: PauseWish, request: PauseRequested) -> bool:
    """Whether the pause in force is what is requested, or stronger. One that ends by itself, earlier, is not."""
    if not wanted.in_force or wanted.is_overruling or wanted.recorded is None:
        return False
    if wanted.mode != "drain" or request.mode != "drain":
        return wanted.mode != "drain" and request.mode in ("drain", wanted.mode)
    resume = (wanted.file.resume if wanted.file else None) or wanted.recorded.resume
    is_equal = wanted.until == request.until and request.resume in ("continue", resume)
    return is_equal and wanted.recorded.reason != SIGNAL


def may_have_to_undo(moment: Moment) -> bool:
    """Whether a run with a requested cancellation has an agent that may have something to undo, which only a run can
    tell."""
    return bool(moment.attempt and moment.config.get("on_cancel", True))


def close_cancelled(workspace: Workspace, wanted: PauseWish | None, reason: str) -> None:
    """The run ends for good, and its agent has nothing to undo. The request is on record already."""
    workspace.close("cancelled", reason)
    remove(workspace.store, pause_file.PATH, wanted.version if wanted else None)


def said(pause: Pause | PauseRequested) -> str:
    """A pause in one line: why, by whom, until when."""
    until = f", until {pause.until}" if pause.until else ""
    return f"{pause.reason}, by {pause.by}{until}"


def withdraw(workspace: Workspace, wanted: PauseWish) -> None:
    """The run has not stopped, and a person has written that it shall not: first the record, then remove the file. A
    request that is not on record yet is recorded, too, so that the log says what has come of it."""
    file, by = wanted.file, wanted.by or "a person"
    assert file is not None
    if wanted.recorded is not None or file.reason or file.by:  # else there was no request, only `status: resume`
        if wanted.recorded is None:
            workspace.journal.add(lease.pause_request(file, by))
        said = ("withdrawn before the run had stopped",)
        workspace.journal.add(Resumed(by=by, instructions=file.instructions, says=said))
        workspace.journal.flush()
    clear_lifted(workspace)  # after what is still being written into it
    remove_version(workspace, wanted.version)


def remove_version(workspace: Workspace, version: Version | None) -> None:
    """Remove the file of a pause that is over, unless a person saves it, or has done so since."""
    workspace.behind.do(pause_file.PATH, partial(_remove_version, workspace.store, version))


def _remove_version(store: Store, version: Version | None) -> None:
    with suppress(FileNotFoundError, FileChanged):
        if not store.has_writer(pause_file.PATH) and read_back(store, pause_file.PATH).version == version:
            store.remove(pause_file.PATH, if_version=version)


def newest_checkpoint_at(store: Store) -> str:
    """When the newest checkpoint was written, as far as the storage tells; else empty."""
    try:
        paths = checkpoint.paths(store)
        return store.trace(paths[-1]).at if paths else ""
    except SatchelError:
        return ""


class FinishedPause(NamedTuple):
    says: tuple[str, ...]
    seconds: float  # how long the pause was
    checkpoint_age: float  # seconds; 0 if nothing tells


def finished(pause: Pause, checkpoint_at: str, now: str) -> FinishedPause:
    """How long a pause lasted that ends `now`, and how old its checkpoint is. Times are UTC, ISO 8601; an empty one is
    not known."""
    seconds = _between(pause.paused_at or pause.requested_at, now)
    age = _between(checkpoint_at, now)
    says = [f"the pause was {_span(seconds)} long ({pause.reason}, by {pause.by})"]
    if checkpoint_at:
        says.append(f"the checkpoint is {_span(age)} old")
    if pause.until and (late := _between(pause.until, now)):
        says.append(f"it was expected to end {_span(late)} ago")
    return FinishedPause(tuple(says), seconds, age)


def _between(earlier: str, later: str) -> float:
    if not earlier or not later:
        return 0.0
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())


def _span(seconds: float) -> str:
    """In the two largest units: `2 h 5 min`."""
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(parts) or "0 s"
