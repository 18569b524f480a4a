"""Opens a workspace for writing: takes the lease, mends, notices edits, salvages, and brings the files up to date.

Steps 1 to 7 of an opening, in order; what is found, done and wanted goes into the report. After it the owner holds a
`Workspace`. Nothing of the agent is run here.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from .. import schemas
from . import checkpoint, journal, jsontext, lease, messagefile, noticing, salvage
from .definition import Definition
from .errors import SatchelError
from .journal import SEGMENT_BYTES, Journal
from .looking import Look, look, signature
from .messagefile import MessageFile
from .moment import Moment
from .noticing import Noticed
from .partial import PARTIALS, RECOVERED
from .projection import STEPS
from .projector import Files, Projector
from .record import FORMAT, Closed, Failure, Line, Opened, PlanChanged
from .report import Report
from .salvage import Leftover
from .store import Store
from .store.disk import TEMPORARY
from .todo import Plan, Splice
from .version import version

Why = Literal["run", "recover", "resolve"]


class Workspace:
    """An opened workspace. One process has it, and uses it from one thread."""

    def __init__(self, store: Store, definition: Definition, moment: Moment, report: Report):
        self.store, self.definition, self.moment, self.report = store, definition, moment, report
        self.projector = Projector()
        self.journal: Journal
        self.files: Files
        self.messages: MessageFile
        self.was_finished = False  # it had completed, and nothing of its plan is left to do
        self._checkpointed_bytes = 0  # what the journal held when the last checkpoint was written
        self._checkpoint_size = 0

    def checkpoint_if_due(self) -> None:
        """A checkpoint is written when the journal since the last one outgrows it: their cost stays in proportion."""
        since = self.journal.bytes_written - self._checkpointed_bytes
        if since >= max(SEGMENT_BYTES, self._checkpoint_size):
            self.checkpoint()

    def checkpoint(self) -> None:
        """Write a checkpoint of all that is durable."""
        self.files.messages.write()
        self.messages.sync()
        self._checkpoint_size = checkpoint.write(self.store, self.moment, self.messages.at)
        self._checkpointed_bytes = self.journal.bytes_written

    def close(
        self,
        status: Literal["completed", "failed", "waiting", "paused"] | None = None,
        reason: str = "",
        error: Failure | None = None,
    ) -> None:
        """Stop in an orderly way: record it, write a checkpoint, and let every file show this moment."""
        self.journal.add(Closed(status=status, reason=reason, error=error))
        self.journal.flush()
        self.checkpoint()
        self.files.mark_all(self.projector)
        self.projector.write_all()
        self.store.remove(lease.PATH)


@contextmanager
def opened(store: Store, why: Why, report: Report) -> Iterator[Workspace]:
    """Open for the body. The body calls `close`; leaving without it is what a crash is, and is repaired as one."""
    seen = look(store)  # refuse before anything is touched
    with lease.held(store):
        _clear_temporary(store)
        if signature(store) != seen.signature:
            seen = look(store)
        report.found(seen)
        noticed = noticing.notice(store, seen.moment)
        if noticed.refusals:
            raise _refused(noticed.refusals)
        leftovers = list(salvage.leftovers(store, seen.moment))
        journal.mend(store, seen.tail)
        workspace = Workspace(store, seen.definition, seen.moment, report)
        workspace.messages = _restore_messages(store, seen, report)
        workspace.journal = Journal(
            store, epoch=seen.moment.epoch + 1, next_seq=seen.tail.next_seq, on_durable=seen.moment.apply
        )
        progress = seen.moment.plan.progress
        workspace.was_finished = (
            seen.moment.status == "completed" and progress.settled == progress.leaves and noticed.plan is None
        )
        try:
            _record_opening(workspace, "recover" if workspace.was_finished else why, seen, noticed)
            _salvage(workspace, leftovers)
            _project(workspace, noticed)
            yield workspace
        finally:
            workspace.journal.end()


def _record_opening(workspace: Workspace, why: Why, seen: Look, noticed: Noticed) -> None:
    moment, writer = workspace.moment, workspace.journal
    store = workspace.store
    store.replace(lease.PATH, lease.encode(lease.mine(store, moment.run_id, writer.epoch)), sync="data")
    was: Literal["new", "clean", "crash"] = "new" if moment.seq == 0 else "clean" if moment.clean else "crash"
    writer.add(
        Opened(
            format=FORMAT, run_id=moment.run_id, satchel=version(), python=platform.python_version(),
            host=socket.gethostname(), pid=os.getpid(), why=why, found=was,
        )
    )  # fmt: skip
    if noticed.plan is not None:
        adopted = Plan(noticed.plan)
        splices = (Splice(0, 0, noticed.plan), *adopted.identify(moment.highest_id))
        outline = adopted.outline()
        writer.add(PlanChanged(plan=splices, outline=outline, by="person", why="written before the run began"))
        workspace.report.add("found", f"a plan of {len(adopted.tasks)} items in todo.md")
    writer.flush()


def _salvage(workspace: Workspace, leftovers: list[Leftover]) -> None:
    """Step 5. Every promotion is durable before its partial is removed."""
    by = "an error" if workspace.report.was_clean else "a crash"
    promoted = []
    for leftover in leftovers:
        record = salvage.promote(workspace.store, leftover, workspace.moment, by)
        if record:
            workspace.journal.add(record)
            workspace.report.add("done", f"{salvage.describe(leftover)}; kept as {record.file}")
        elif not leftover.stale:
            workspace.report.add("done", f"{salvage.describe(leftover)}; kept in {RECOVERED}/")
        promoted.append(leftover.path)
    workspace.journal.flush()
    for path in promoted:
        workspace.store.remove(path)


def _project(workspace: Workspace, noticed: Noticed) -> None:
    """Step 7: afterwards all files show the moment of this opening."""
    store, moment = workspace.store, workspace.moment
    for finding in noticed.findings:
        workspace.report.add("done", finding)
    for path in noticed.leftovers:
        store.remove(path)
    for folder in (STEPS, PARTIALS):
        store.tidy(folder)
    for name in schemas.names():
        _publish_schema(store, name)
    workspace.files = Files(
        store, moment, workspace.messages, noticed.versions, noticed.shown, workspace.projector.noticed
    )
    workspace.files.mark_all(workspace.projector)
    workspace.projector.write_all()
    workspace.report.save(store)


def _publish_schema(store: Store, name: str) -> None:
    """Copy a schema to where editors find it. The one of the agent's own data is the agent's to write."""
    path = f".satchel/schemas/{name}.json"
    text = jsontext.dump(schemas.schema(name)).encode()
    try:
        is_there = store.read(path).data == text or name == "data"
    except FileNotFoundError:
        is_there = False
    if not is_there:
        store.replace(path, text, sync="data")


def _restore_messages(store: Store, seen: Look, report: Report) -> MessageFile:
    moment = seen.moment
    restored = messagefile.restore(store, seen.messages_at, moment.new_messages)
    moment.new_messages = []
    if restored:
        file, complaint = restored
        if complaint:
            report.add("done", complaint)
        return file
    report.add("done", f"{messagefile.PATH} was damaged or missing; it is rebuilt from the journal")
    return messagefile.rebuild(store, _committed_messages(store, moment))


def _committed_messages(store: Store, moment: Moment) -> list[Line]:
    whole = Moment(run_id=moment.run_id)
    whole.apply(journal.read(store, after=0).lines)
    return whole.new_messages


def _clear_temporary(store: Store) -> None:
    """What a crash left half-written."""
    for entry in store.list(TEMPORARY):
        with suppress(SatchelError):
            store.remove(entry.path)


def _refused(refusals: list[SatchelError]) -> SatchelError:
    first, *others = refusals
    if others and first.remedy:
        first.remedy += f" ({len(others)} more of this kind: `satchel check` lists them)"
    return first
