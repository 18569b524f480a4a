"""What programs can read about a run from outside. Nothing here changes the workspace or runs code."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ...workspace.base import SatchelError, arguments
from ..status import Place, in_a_thread, in_steps

if TYPE_CHECKING:
    from ...workspace.history import StepHistory
    from ...workspace.inspect import ExportResult
    from ...workspace.lifecycle import Truncation
    from ...workspace.transfer import Tell
    from ..history import Blame, Difference, ShowResult
    from ..limits import NoticeCheck
    from ..status import CheckResult, Event, LogRow, OpenQuestion, Result, RunFile, RunStatus, Steps, StorageCheck


class ReadonlyHandle(Place):
    """The part of a `Handle` that only reads."""

    def status(self, *, brief: bool = False) -> RunStatus:
        """Where the run is: what is done, what runs, what it needs from a person, what to do next.

        Only reads, and raises nothing: errors of the workspace are in `problem` of the result. `brief`: without the
        parts that need more files: edits, streams, the last report, budget and schedule.
        """
        from ..status import run_status

        with suppress(SatchelError):  # the status says that the storage does not answer
            self.look_now()
        return run_status.status(self, brief=brief)

    @in_steps
    def check(self, *, progress: Callable[[int, int], None] | None = None) -> Steps[CheckResult]:
        """Check every file against its schema and the record, and say what the next opening would do. Changes nothing,
        and runs no code. Errors are in the result; UsageError if there is no workspace.

        `progress` is called with the number of records read, and the total.
        """
        from ..status import check

        return check.check(self, progress)

    check_async = check.without_blocking

    def try_storage(self) -> StorageCheck:
        """What the storage guarantees, also where no workspace is yet. It writes a small file and removes it. On a disk
        it tries a lock; in a bucket it tries conditional writes. UsageError or StorageFailed if the storage can't be
        written, or does not do what it declares."""
        from ..status import check

        return check.try_storage(self.store)

    def try_notices(self) -> list[NoticeCheck]:
        """Send a test notice to each address of `notify:` in workspace.yaml. Returns the results, in order, after 10
        seconds at most. InvalidFile if a webhook can't work as it is written."""
        from ..status import check

        return check.try_notices(self.store)

    def log(
        self,
        *,
        last: int | None = None,
        item: str | None = None,
        type: str | None = None,
        agent: str | None = None,
        step: str | None = None,
        since: str | timedelta | datetime | None = None,
        audit: bool = False,
        follow: bool = False,
    ) -> Iterator[LogRow]:
        """The records of the journal, oldest first.

        `last`: only so many, the newest; `item`: only those of an item (`3`, `^3`) or a named scope (`_NAME`); `type`:
        only those of a type (`step.completed`), or of several (`step.*`); `agent`: only those of a sub-agent and its
        own sub-agents, by its path (`left/deep`), or of the run's own agent (`.`); `step`: only those of the steps and
        effects of this name; `since`: only those since a time (`22:30`, `2026-11-22 22:30`, an aware datetime), or of
        the last `2h` (a timedelta); `audit`: only saved checkpoints, openings, and what people did. For a damaged
        journal it yields all readable records first, and then raises Damaged or InvalidFile. The torn end that a crash
        leaves is no error. UsageError, after the last record, for an item, an agent or a step that no record names.

        `follow`: then it waits, and also yields what becomes durable from now on, until the run is completed or
        cancelled. In an event loop use `events(follow=True)`.
        """
        from ..status import log

        wanted = log.filter_of(item, type, agent, step, since, audit)
        return log.log(self, last, wanted, follows=follow)

    def show(self, at: int | str = "latest") -> ShowResult:
        """The whole run as it was right after a record: state, plan and open items of every agent of the tree.

        `at` names the record: its number; `latest`; an item (`^3`, `3-title`, `AGENT/^3`), for the record right before
        that item began, the last time if it was done again; or a checkpoint by the name of its file or folder. Works
        while a process runs the run, and in spite of damage that comes after the record. UsageError for a record that
        does not exist, naming the newest, or that retention has removed, naming the first that is kept; Damaged.
        """
        from ..history import past

        return past.show(self, at)

    def diff(self, old: int | str | Place, new: int | str = "latest") -> Difference:
        """What differs from one record of the run to another, named as for `show`: values of the state, plans, and
        steps and effects that have another outcome or only one outcome.

        `old` may also be the handle of another run: then this run as it is now is compared with that one at `new`, and
        steps with those of the same item or scope that have the same name and arguments. Errors are those of `show`.
        """
        from ..history import comparison

        return comparison.diff(self, old, new)

    def steps(self, item: str | None = None, *, at: int | str | None = None) -> StepHistory:
        """What the items have done, finished or open: steps and effects with results, times, models, prompts and failed
        attempts; in the order in which the items began.

        `item`: only this one (`3`, `^3`, `3-title`, `_name`, `AGENT/^3`); `at`: as it was at this record, named as for
        `show`. Of items that had ended before the first kept record (`since` of the result), only effects are known,
        and their state is "pruned". For a damaged journal, what could be read, and `problem` says why there is no more.
        UsageError if the item has not begun.
        """
        from ..history import comparison

        return comparison.steps(self, item, at)

    def prompt(self, name: str, version: str) -> str:
        """The text of a prompt in a version that the run has used, as the record of a step names it, with its
        placeholders. UsageError if it is not kept, Damaged if it was changed."""
        from ...workspace.state import prompt_text

        self.store.refresh()
        return prompt_text(self.store, arguments.text("name", name), arguments.text("version", version))

    def files(self) -> list[RunFile]:
        """The files of the run that people read, by path: plan, state, conversation, questions, inbox, outputs, steps,
        recovered text, checkpoints, and those of its sub-agents. Not the agent's code, and nothing of `.satchel/` and
        `journal/`."""
        from ..status import run_files

        return run_files.files(self)

    def read(self, path: str, *, limit: int = 1 << 20) -> bytes:
        """The content of one of `files()`, redacted as `redact:` in workspace.yaml says. UsageError for any other path,
        and for a file of more than `limit` bytes."""
        from ..status import run_files

        return run_files.read(self, path, arguments.count("limit", limit, least=1) or 1)

    def events(self, *, after: int = 0, follow: bool = False) -> AsyncGenerator[Event, None]:
        """What has happened in the run, as typed events (`satchel.events`), oldest first.

        `after`: only what came after the event with this `seq`. `follow`: then also what happens from now on, in
        whichever process, through pauses, crashes and restarts, until the run is completed or cancelled; and the text
        of streamed steps (`Tokens`, which is not durable). A follower only reads, several times a second on a disk and
        every 1.5 s in a bucket. Errors are those of `log`.
        """
        from ..status import follower

        position: int = arguments.count("after", after, least=0) or 0
        return follower.follow(self, position, follows=follow)

    def blame(self, path: str = "state.json") -> Blame:
        """Which record set each value at and below a path: an item's commit, with the prompts of its calls and the
        people who have answered in it, an edit, a migration.

        `path`: `state.json` or `todo.md`, of a sub-agent `agents/NAME/state.json`, and then what is in it:
        `state.json/summaries/a.txt` (a `/` in a key is `~1`, a `~` is `~0`), `todo.md/^3`. A value keeps its origin
        while it stays the same, wherever a list moves it. After a return to an earlier record it has the origin that it
        had there, and `brought_back_by`. UsageError for what is not there, naming the nearest.
        """
        from ..history import comparison

        return comparison.blame(self, path)

    @in_a_thread
    def export(self, to: str | os.PathLike[str], *, progress: Tell | None = None) -> ExportResult:
        """Write a zip file for other people to read: the readable files, the journal and the checkpoints, as of one
        record, also while a process runs it.

        Without what belongs to a process, and redacted as `redact:` in workspace.yaml says, also what was recorded
        before. export.json in it, and the result, say of which record it is, what was redacted and what was left out.
        The first `run` of an unpacked export needs `adopt` while the original exists. `progress` is called with
        "copying", the bytes done and the total. UsageError if `to` exists or is inside the workspace.
        """
        from . import transport

        return transport.export(self, to, progress)

    export_async = export.without_blocking

    @property
    def result(self) -> Result:
        """What is on record now: state, outputs, items, and what the agent was given and has returned."""
        from ..status import log

        return log.result(self)

    def questions(self) -> list[OpenQuestion]:
        """The open questions, in the order they were asked."""
        from ...workspace.inspect import look_beside
        from ..status import questions_of

        return questions_of(look_beside(self.store).moment, self)

    def plan_cut(self, truncate_at: int) -> Truncation:
        """What would be forgotten if the journal were cut after a record: `records`, and `effects` that would be done
        again. Changes nothing. Damaged if the part before is not sound; Refused in a bucket."""
        from ...workspace.lifecycle import truncate

        return truncate.plan(self.store, truncate_at)

    def holder(self) -> str:
        """In a bucket: the process that would lose the run in a take-over, in words; empty if none has it. If it is
        alive, it stops before its next effect. UsageError on a disk, where a lock tells."""
        from ..status import holder_to_replace

        return holder_to_replace(self)
