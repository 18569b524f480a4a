"""An opened workspace, as its owner has it: recorded state, collected records, and the files that follow.

Checkpoints are due so that openings stay short and a return costs little (`Due`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import MappingProxyType

from msgspec import Struct

from ..formats import Checkpoints, Definition
from ..inbound import ApprovalFiles, Noticed, archive, detection, inbox
from ..inspect import Report, ReportDocument, listed_at_stop
from ..journal import Closed, EndStatus, Failure, Journal, Kept, Occasion, Own, Saved
from ..secrets import redactor_of
from ..state import FILES, MESSAGES, Moment, RowLog, WrittenCheckpoint, checkpoint, folder_of_agent
from ..store import Store, Version
from ..views import (
    CheckpointFolders,
    CheckpointIndex,
    Files,
    HeldDocument,
    MessageFile,
    MessagesDocument,
    NewCheckpoint,
    Projector,
    ViewGuard,
    behind,
    conversation,
)
from .acquire import Owned
from .follower import Follower
from .retention import Pruner

REREAD_BYTES, FETCHED_BYTES = 1 << 20, 256 << 10
"""How much of the journal an opening may read because no checkpoint covers it: on a disk, and elsewhere."""

_RARELY = 16
"""So many times as much, if a person wants checkpoints only at milestones."""

_SHARE = 20


class Workspace:
    """One process has it, and uses it from one thread."""

    def __init__(
        self, store: Store, definition: Definition, moment: Moment, report: Report, *, in_thread: bool = False
    ):
        self.store, self.moment, self.report, self.in_thread = store, moment, report, in_thread
        self.definition, self.redactor = definition, redactor_of(definition)
        self.behind = behind(store, in_thread=in_thread)
        self.pruner = Pruner(store, self.behind)
        self.projector = Projector(behind=self.behind)
        self.guard = ViewGuard(store, behind=self.behind)
        self.journal: Journal
        self.owned: Owned
        self.files: dict[str, Files] = {}  # by agent
        self.messages: dict[str, MessageFile] = {}  # by the key of the log
        self.desk = ApprovalFiles(store, moment, report, lambda: self.redactor)
        self.pause_file = moment.pause.file if moment.pause else ""  # its version, see pausing.py
        self.follower: Follower | None = None  # lets a copy follow
        self.checkpointed = ""  # the last checkpoint that was written
        self.has_edits = False  # this opening has recorded people's edits
        self.was_finished = False  # it was cancelled, or had completed and nothing is left to do
        self._folders = CheckpointFolders(store, self.behind)
        self.index = CheckpointIndex(store, moment, self.behind)
        self._report_file = ReportDocument(report, store, self.behind)
        self.due = Due(store.abilities.remote)
        self.definition_version: Version | None = None  # the version of the file that `definition` comes from
        self.reaches_out = False  # see `opened`
        self.home = store.url  # where the run lives

    def define(self, definition: Definition, version: Version | None) -> None:
        """A person has saved workspace.yaml. Refused for a value that is too short to be redacted."""
        self.redactor = self.journal.redactor = self.report.redactor = redactor_of(definition)
        self.definition, self.definition_version = definition, version

    def write_to(self, journal: Journal) -> None:
        """From now on the files wait for this journal."""
        self.journal, self.projector.check = journal, journal.check
        self.projector.is_ahead = lambda: journal.has_waiting
        journal.redactor = self.redactor
        self.behind.group = lambda: journal.under_way

    def checkpoint_if_due(self, *, item: Callable[[], str] | None = None) -> None:
        """According to workspace.yaml and the growth of the journal; `item` names the one that was just committed."""
        wanted = self.definition.checkpoints
        if (why := self.due.why(wanted, self.journal.bytes_added, item_ended=item is not None)) is not None:
            self._look_what_may_go()
            self.pruner.record(self.journal)
            self.checkpoint(why, item() if item else "")

    def _look_what_may_go(self) -> None:
        fence, growing = self.owned.fence, self.journal.growing
        own = Own(fence.seq, growing) if fence is not None else None
        self.pruner.look(self.moment, self.definition.keep, own, self.journal.collectable)

    def record_what_goes(self) -> None:
        """Before the records of a stop. What then is removed, `pruner.remove` does once they are durable."""
        self._look_what_may_go()
        self.behind.wait()
        self.pruner.record(self.journal)

    def checkpoint(self, why: Occasion, name: str = "") -> str:
        """Write a checkpoint of everything on record, and record that. Returns its path. `name` is for people."""
        self.journal.flush()
        self.pruner.remove(self.journal)
        written = self._checkpoint(why, name)
        self.journal.add(Saved(file=written.path, why=why, bytes=written.size, sha256=written.sha256))
        if why == "milestone":
            self.projector.mark(self._folders)
        if why != "stop":
            self.projector.want(self.index)
        return written.path

    async def checkpoint_start(self) -> None:
        """The first one, to which a run can return before its first stop. If threads write the files, the loop goes on
        meanwhile."""
        if not self.in_thread:
            self.checkpoint("start")
            return
        import asyncio  # only a run has a loop
        from concurrent.futures import Future

        began, written = self.due.clock(), Future[WrittenCheckpoint]()
        at = {path: messages.at for path, messages in self.messages.items()}
        made = checkpoint.draft(self.store, self.moment, at, "start")
        self.index.add(made.path, "start")

        def put() -> None:
            try:
                written.set_result(checkpoint.put(self.store, made, self.definition.keep))
            except BaseException as error:
                written.set_exception(error)

        written.set_running_or_notify_cancel()  # who waits may be cancelled, and the checkpoint is written all the same
        self.behind.do(made.path, put)  # a stop waits for what is behind
        found = await asyncio.wrap_future(written)
        self.due.saved(found.size, self.journal.bytes_added, began)
        self.checkpointed = found.path
        self.journal.add(Saved(file=found.path, why="start", bytes=found.size, sha256=found.sha256))
        self.projector.want(self.index)

    def _checkpoint(self, why: Occasion, name: str = "") -> WrittenCheckpoint:
        began = self.due.clock()
        for files in self.files.values():
            files.write_rows()
        for messages in self.messages.values():
            messages.sync()
        at = {path: messages.at for path, messages in self.messages.items()}
        shown = self.guard.versions if self.projector.is_done else {}
        listed = listed_at_stop(self.store, self.moment, self.definition, self.definition_version, shown)
        written = checkpoint.write(self.store, self.moment, at, name or why, self.definition.keep, listed)
        self.due.saved(written.size, self.journal.bytes_added, began)
        self.checkpointed = written.path
        self.index.add(written.path, why)
        if why == "stop":
            self.index.write()
        if why in ("milestone", "stop"):
            self._folders.add(self.moment, NewCheckpoint(written.path, why, name, tuple(self.journal.recent)))
        return written

    def join(self, path: str, noticed: Noticed | None = None) -> None:
        """From now on keep the files of the agent `path` near the moment."""
        if path not in self.messages:
            self.messages[path] = MessageFile(self.store, folder_of_agent(path) + MESSAGES, self.guard)
        shown = noticed.shown.get(path, {}) if noticed else {}
        self.messages[path].recall = lambda: self.conversation(path)
        agent = self.moment.agents[path]
        self.files[path] = Files(self.guard, self.moment, agent, self.messages[path], shown)
        for key, file, log in agent.row_logs:
            if log is not agent:
                self.join_log(path, key, file, log)

    def join_log(self, path: str, key: str, file: str, log: RowLog) -> None:
        """From now on keep the file of a log of this agent near the moment."""
        rows = self.messages.setdefault(key, MessageFile(self.store, file, self.guard))
        rows.recall = lambda: self.conversation(key)
        self.files[path].logs[key] = MessagesDocument(rows, log)

    def join_files(self, noticed: Noticed) -> None:
        """From now on keep files/ near the moment. It has the versions that were noticed."""
        held = self.files[""].held = HeldDocument(self.guard, self.store, self.moment.root)
        held.are_shown({path.removeprefix(FILES): version for path, version in noticed.files.items()})
        self.show_saved(noticed)

    def show_saved(self, noticed: Noticed) -> None:
        """What people have saved in files/ is recorded, and lies there already."""
        if (held := self.files[""].held) is not None:
            saved = (edit.record.file.removeprefix(FILES) for edit in noticed.edits if edit.data is not None)
            held.are_shown({path: self.moment.root.files[path].version for path in saved})
            for path, data in ((each.path, each.data) for each in noticed.overruled if each.path.startswith(FILES)):
                name = path.removeprefix(FILES)
                if name not in self.moment.root.files:  # in place of a folder: it goes
                    held.are_shown({name: 0})
                elif data is None:  # a folder that was moved
                    self.guard.lose(path)
                    held.forget(name)

    def record_edits(self, noticed: Noticed) -> None:
        """From here on people's edits count. Durable when this returns, and kept by a return to a checkpoint."""
        self.add_edits(noticed)
        self.journal.flush()
        self.desk.write_questions()
        if noticed.edits:
            self.checkpoint("edit")

    def add_edits(self, noticed: Noticed) -> None:
        """Record people's edits in the next group."""
        detection.record_edits(self.store, self.moment, self.journal, self.report, noticed, self.desk.free_id)
        self.take_conversations(noticed)

    def take_conversations(self, noticed: Noticed) -> None:
        """Let the conversations whose files were others be what was found, with the edits since. The files follow."""
        for key, _, log in self.moment.row_logs:
            if (found := noticed.conversations.get(key)) is None:
                continue
            edits = [line for line in log.new_messages if conversation.is_edited((line,))]
            if found.is_there and not edits:
                continue
            rows = conversation.follow(conversation.decode(found.data), edits)
            self._become(key, conversation.encode(rows))

    def _become(self, path: str, whole: bytes) -> None:
        """`whole` is the conversation with all that is new: the next write puts it in place of the file."""
        log, file = next(place.log for place in self.moment.row_logs if place.key == path), self.messages[path]
        file.become(whole)
        log.new_messages, log.messages_at, log.left_out = [], file.at, 0

    def restore_messages(self, key: str) -> None:
        """The file of a log is gone: the next write restores all of it."""
        self._become(key, self.conversation(key))

    def conversation(self, key: str) -> bytes:
        """All recorded rows of a log, from the journal, as its file should be."""
        self.journal.flush()
        return conversation.encode(conversation.recorded(self.store, self.moment)[key][-1])

    def mark_all(self) -> None:
        """Let every file show this moment."""
        for files in self.files.values():
            files.mark_all(self.projector)

    def show_all(self) -> None:
        """Let every file show this moment before this returns. In a bucket, folders of checkpoints don't delay that."""
        if self.store.abilities.remote:
            self.projector.drop(self._folders)
        self.mark_all()
        self.projector.write_all()

    def save_report(self) -> None:
        """At once. Where that is a request, with the readable files."""
        if self.store.abilities.remote:
            self.projector.want(self._report_file)
        else:
            self._report_file.write()

    def close(
        self,
        status: EndStatus | None = None,
        reason: str = "",
        error: Failure | None = None,
        until: str = "",
        offered: inbox.Offered = MappingProxyType({}),
        result: Kept | None = None,
    ) -> None:
        """Stop normally: record it, write a checkpoint, and let every file show this moment. At a settled pause the
        checkpoint exists, and only the released resources come after it. A completed agent was `offered` these files of
        the inbox, and has returned `result`."""
        self.behind.wait()  # errors here come before the stop is recorded as clean
        archive.put_away(self.store, self.moment)
        is_settled = self.moment.pause is not None and bool(self.moment.pause.paused_at)
        if not is_settled:
            self.record_what_goes()
        untaken = inbox.untaken(self.store, self.moment, offered)
        point = self.checkpointed if is_settled else checkpoint.path_of(self.moment, "stop", self.journal.next_seq)
        returned = result or Kept()
        self.journal.add(
            Closed(
                status=status,
                reason=reason,
                error=error,
                until=until,
                pause_file=self.pause_file,
                untaken=untaken,
                checkpoint=point,
                result=returned.result,
                blob=returned.blob,
            )
        )
        self.journal.flush()
        self.pruner.remove(self.journal)
        self.desk.write_questions()
        for found in self.desk.refused():
            self.report.add_late("wanted", found.text)
        if not is_settled:
            self.projector.drop(self.index)  # it is written with the checkpoint
        self.show_all()
        if not is_settled:
            self._checkpoint("stop")
        self.guard.clear()
        self.journal.roll_up()
        self.behind.wait()
        self.owned.end(self.store)


class Due(Struct):
    """What has come since the last checkpoint, for one opening.

    A checkpoint is due when the journal since the last one is larger than it, in a bucket half of it. So the cost is
    proportional. Checkpoints by time or by item take at most a twentieth of the time.
    """

    is_remote: bool
    size: int = 0  # of the last checkpoint, in bytes
    behind: int = 0  # bytes of the journal after it, from before this opening
    age: float = 0.0  # the age of these records in seconds
    clock: Callable[[], float] = time.monotonic
    _written: int = 0  # what the journal's writer had written at the last one
    _at: float = 0.0
    _rests_until: float = 0.0

    def __post_init__(self) -> None:
        self._at = self.clock() - self.age

    def why(self, wanted: Checkpoints, written: int, *, item_ended: bool = False) -> Occasion | None:
        """Why one is due after `written` bytes of this opening; None if it is not."""
        since = self.behind + written - self._written
        if since >= self._limit * (_RARELY if wanted.every == "milestone" else 1):
            return "growth"
        if isinstance(wanted.every, str) and not (wanted.every == "item" and item_ended):
            return None
        now = self.clock()
        if not since or now < self._rests_until:
            return None
        if isinstance(wanted.every, str):
            return "item"
        return "time" if now - self._at >= wanted.every else None

    @property
    def _limit(self) -> int:
        return max(FETCHED_BYTES, self.size // 2) if self.is_remote else max(REREAD_BYTES, self.size)

    def saved(self, size: int, written: int, began: float) -> None:
        """One was written, beginning at the clock's time `began`."""
        self.size, self.behind, self._written = size, 0, written
        self._at = self.clock()
        self._rests_until = self._at + _SHARE * (self._at - began)
