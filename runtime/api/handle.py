"""`Handle`: what programs can do with a run from outside, and with `history` and `files` what they can do with its past
and its files. Each method imports what it needs when it is called, so that reading does not load what only a run needs.
A method that waits is written once; a decorator of `status/place.py` says how it waits, and makes its twin for an event
loop."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...workspace.base import SatchelError, arguments, myself
from ..status import Place, in_a_thread, in_both_ways, in_steps
from .handle_history import RunHistory

if TYPE_CHECKING:
    from ...workspace.base import Mode, Resume
    from ...workspace.inbound import Side
    from ...workspace.lifecycle import Truncation
    from ...workspace.transfer import Tell, TransferResult
    from ..agent import Agent
    from ..launch import RunResult, SupervisionResult
    from ..live import NoticeCheck, Watch
    from ..status import CheckResult, Event, Execution, OpenQuestion, Result, RunStatus, Steps, StorageCheck
    from ..supervision import Background, Isolate, StopResult
    from .answers import AnswerResult
    from .handle_files import RunFiles, SendResult
    from .held_workspace import FileEntry, HeldFile, Row
    from .repair import Files, MergeResult, PruneResult, RecoveryResult
    from .stops import PauseResult, WithdrawResult
    from .transport import RunBackup


class Handle(Place):
    """A workspace, from outside. Works whether or not a process runs it. What has to do with the past of the run is in
    `history`, and what has to do with its files in `files`.

    Made by `satchel.open`. Holds no lock and no connection, so you need not close it. Each method reads the files
    again, so it is always current. Every method raises a SatchelError that says what to do: UsageError for wrong
    arguments, InvalidFile, NewerFormat or Damaged for a workspace that can't be used, LeaseHeld if another process has
    it, StorageFailed if the storage fails. Methods that end in `_async` do the same without blocking the event loop.
    Not guaranteed: that two calls from several threads see the same moment.
    """

    @property
    def history(self) -> RunHistory:
        """What the run has done: `log`, `process_log`, `process_log_page`, `show`, `diff`, `steps`, `call`, `timing`,
        `costs`, `blame`, `prompt`; and the ways back, `rewind`, `redo`, `fork`, `replay` and `rehearse`."""
        return RunHistory(self)

    @property
    def files(self) -> RunFiles:
        """The files of the run: `list`, `read`, `draft`, `edit`, `cut_messages`, `raise_budget`, `export`."""
        from .handle_files import RunFiles

        return RunFiles(self)

    @property
    def backup(self) -> RunBackup:
        """The backup of the run: `replicate` lets it follow, and from the backup `restore` goes on."""
        from .transport import RunBackup

        return RunBackup(self)

    # Looking at it

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

    def events(self, *, after: int = 0, follow: bool = False) -> AsyncGenerator[Event, None]:
        """What has happened in the run, as typed events (`satchel.events`), oldest first.

        `after`: only what came after the event with this `seq`. `follow`: then also what happens from now on, in
        whichever process, through pauses, crashes and restarts, until the run is completed or cancelled; and the text
        of streamed steps (`Tokens`, which is not durable). A follower only reads, several times a second on a disk and
        every 1.5 s in a bucket. Errors are those of `history.log`.
        """
        from ..status import events

        position: int = arguments.count("after", after, least=0) or 0
        return events.follow(self, position, follows=follow)

    @property
    def result(self) -> Result:
        """What is on record now: state, outputs, items, and what the agent was given and has returned."""
        from ..status import log

        return log.result(self)

    def rows(self, log: str = "messages", after: int = 0, last: int | None = None) -> Sequence[Row]:
        """The rows of a log, oldest first, as `satchel.results.Held.rows` returns them, for a reader: it takes no lock.
        Of the run of an agent the log `messages` is its conversation."""
        from .held_workspace import rows_of

        self.look_now()
        return rows_of(self.store, log, after, last)

    def held_files(self, prefix: str = "") -> Sequence[FileEntry]:
        """The files in files/ that programs have put, as `Held.list` returns them, for a reader."""
        from .held_workspace import entries_of

        self.look_now()
        return entries_of(self.store, prefix)

    def held_file(self, path: str) -> HeldFile | None:
        """One of them with its content, as `Held.get` returns it, for a reader."""
        from .held_workspace import file_of

        self.look_now()
        return file_of(self.store, path)

    def held_contents(self, prefix: str = "") -> Sequence[HeldFile]:
        """The files in files/ whose paths begin with `prefix`, with their content, all of one moment, for a reader."""
        from .held_workspace import files_of

        self.look_now()
        return files_of(self.store, prefix)

    def questions(self) -> list[OpenQuestion]:
        """The open questions, in the order they were asked."""
        from ...workspace.inspect import look_beside
        from ..status import questions_of

        return questions_of(look_beside(self.store).moment, self)

    def plan_cut(self, truncate_at: int) -> Truncation:
        """What would be forgotten if the journal were cut after a record: `records`, and `effects` that would be done
        again. Changes nothing. Damaged if the part before is not sound; Refused in a bucket."""
        from ...workspace.lifecycle import recovery

        return recovery.plan_cut(self.store, truncate_at)

    def holder(self) -> str:
        """In a bucket: the process that would lose the run in a take-over, in words; empty if none has it. If it is
        alive, it stops before its next effect. UsageError on a disk, where a lock tells."""
        from ..status import holder_to_replace

        return holder_to_replace(self)

    # Running it

    @in_both_ways
    def run(
        self,
        agent: Agent | None = None,
        *args: Any,
        input: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        take_over: bool = False,
        adopt: bool = False,
    ) -> Execution[RunResult]:
        """Run the agent in this process until it completes, fails or needs a person, as `satchel.run` does.

        A stopped run continues where it was. A run that is paused, waits or sleeps stays as it is. `agent` replaces the
        one that workspace.yaml names. `args` are its arguments besides the run, or `input` names them by parameter: the
        first start records them, later ones need none, and others are refused. `watch` is called with what happens.
        `drain_timeout`: seconds that a stop waits for running work. `take_over`: in a bucket, don't wait for the
        process that had it. `adopt`: continue although this may be a copy of a run that lives elsewhere. Errors of the
        agent are in the result. In a running event loop call `run_async`.
        """
        from ..execution import RunOptions
        from ..launch import LocalRun

        options = RunOptions(
            agent=agent,
            args=args,
            input=input,
            watch=watch,
            accept_drift=accept_drift,
            drain_timeout=drain_timeout,
            take_over=take_over,
            adopt=adopt,
        )
        return LocalRun(self, options)

    run_async = run.without_blocking

    @in_both_ways
    def resume(
        self,
        agent: Agent | None = None,
        *,
        watch: Watch | None = None,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        from_checkpoint: bool = False,
        take_over: bool = False,
        adopt: bool = False,
    ) -> Execution[RunResult]:
        """`run`, which also ends a pause, whatever its reason, and a sleep. UsageError if the run was never started.
        `from_checkpoint`: first return to the last known-good checkpoint; later effects and answers are kept."""
        from ..execution import RunOptions
        from ..launch import LocalRun

        options = RunOptions(
            agent=agent,
            watch=watch,
            wake=True,
            accept_drift=accept_drift,
            drain_timeout=drain_timeout,
            from_checkpoint=from_checkpoint,
            take_over=take_over,
            adopt=adopt,
        )
        return LocalRun(self, options)

    resume_async = resume.without_blocking

    def supervise(
        self,
        *,
        resume: bool = False,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        from_checkpoint: bool = False,
        take_over: bool = False,
        adopt: bool = False,
        keeper: bool = False,
        input: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        tell: Callable[[str], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        isolate: Isolate | None = None,
    ) -> SupervisionResult:
        """Run the agent in another process, as `satchel run` does, and supervise it from this one: restart it after a
        crash, and kill it if it does not stop in time. Returns when the run has stopped.

        Call it in the main thread; SIGINT and SIGTERM are passed on. The process prints what `satchel run` prints;
        `options` are such as "--quiet" and "--json". `tell` is called with events of the process. `keeper`: hold its
        model calls, as `keeper: true` of workspace.yaml does. `resume`: as `resume` does; the other arguments are those
        of `run` and `resume`.

        With `should_stop`, call it in any thread, for one of several runs: it is asked some times a second, and once it
        says so the run stops at its next safe point. Signals are left to the program. The process writes to the log of
        the run, `.satchel/run.log`, which for a run in a bucket is uploaded at the end. `isolate`: as for `serve`;
        runs share a process with others that this program supervises, if no argument but `drain_timeout` says how to
        start.
        """
        from ..launch import background

        arguments.no_loop("supervise", "call `await run_async(...)` there, or `await detach_async(...)`")
        wanted = background.StartOptions(
            resume=resume,
            accept_drift=accept_drift,
            drain_timeout=drain_timeout,
            from_checkpoint=from_checkpoint,
            take_over=take_over,
            adopt=adopt,
            keeper=keeper,
            shown=options,
            input=input,
        )
        return background.supervise(self, wanted, tell, should_stop, isolate)

    @in_a_thread
    def detach(
        self,
        *,
        resume: bool = False,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        from_checkpoint: bool = False,
        take_over: bool = False,
        adopt: bool = False,
        keeper: bool = False,
        input: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
    ) -> Background:
        """Run the agent in the background, with a supervisor that outlives this process. Returns when the run is
        active, with the number of the process and its log, which gets its output. If it ended at once, `exit_code`
        says how, and `said` the end of its output."""
        from ..launch import background

        wanted = background.StartOptions(
            resume=resume,
            accept_drift=accept_drift,
            drain_timeout=drain_timeout,
            from_checkpoint=from_checkpoint,
            take_over=take_over,
            adopt=adopt,
            keeper=keeper,
            shown=options,
            input=input,
        )
        return background.detach(self, wanted)

    detach_async = detach.without_blocking

    # Stopping it

    @in_steps
    def pause(
        self,
        *,
        reason: str = "manual",
        until: str | datetime | timedelta | None = None,
        resume: Resume = "continue",
        by: str | None = None,
        wait: bool = False,
    ) -> Steps[PauseResult]:
        """Pause the run at its next safe point, between two steps. Running work finishes.

        `until`: when it may continue by itself: a time, a length of time, or a text such as `22:30` or `45m`. `resume`:
        how it resumes: "continue", "restart_step" or "await_instructions". `by` is `user@host` if it is None. Returns
        at once, with the status "requested" if a process runs it. With `wait` it returns when the run has stopped, or
        after the time in which it would have been killed.
        """
        return self._request(reason, by, wait, until=until, resume=resume)

    pause_async = pause.without_blocking

    @in_steps
    def cancel(self, *, reason: str = "cancelled", by: str | None = None, wait: bool = False) -> Steps[PauseResult]:
        """End the run for good at its next safe point. The agent's `on_cancel`, if it has one, undoes what must not
        stay half done; if no process runs it, the next `run` does that. All files of the run stay."""
        return self._request(reason, by, wait, mode="cancel")

    cancel_async = cancel.without_blocking

    @in_steps
    def withdraw(self) -> Steps[WithdrawResult]:
        """Withdraw the request to pause a run that has not stopped yet: the process that runs it continues.

        Writes `status: resume` into pause.yaml, as a person would, and waits until the run has noticed it. If some code
        was stopped already, that is at the safe point. UsageError if there is no pause to withdraw; Refused if the run
        is being cancelled or killed, was stopped by a signal, or waits for instructions. Not guaranteed: that it has
        not stopped before; then the status says so, and `resume` continues it.
        """
        from . import stops

        return stops.withdraw(self)

    withdraw_async = withdraw.without_blocking

    @in_steps
    def wait(self) -> Steps[PauseResult]:
        """Wait until no process runs it, after `pause` or `cancel`. The status stays "requested" if it has not stopped
        in the time in which it would have been killed."""
        from . import stops

        return stops.stopped(self)

    wait_async = wait.without_blocking

    @in_a_thread
    def stop(self, *, reason: str = "emergency", by: str | None = None) -> StopResult:
        """The emergency stop: kill what runs it, in the middle of a step, with all processes that it started. Only a
        person can start it again. `resume` continues and verifies more than usual, since running work may be in doubt.

        A pause.yaml is durable before the first process is killed. `how` of the result: "stopped"; "idle", nothing was
        running; "elsewhere", a process on another machine runs it, and obeys within one poll; "failed", `said` says
        why. A storage failure is in the result, too. `stop_all` stops several at once.
        """
        from .stops import stop_one

        return stop_one(self, reason, by)

    stop_async = stop.without_blocking

    def _request(
        self,
        reason: str,
        by: str | None,
        wait: bool,
        *,
        mode: Mode = "drain",
        resume: Resume = "continue",
        until: str | datetime | timedelta | None = None,
    ) -> Steps[PauseResult]:
        from ...workspace.journal import PauseRequested
        from . import stops

        end = stops.until_text(until)
        wanted = PauseRequested(reason=reason, by=by or myself(), mode=mode, resume=resume, until=end)
        return stops.ask(self, wanted, wait=wait)

    # Repairing it

    @in_steps
    def recover(
        self, *, truncate_at: int | Truncation | None = None, take_over: bool = False, adopt: bool = False
    ) -> Steps[RecoveryResult]:
        """Bring all files to the same moment and rescue unfinished output, without running the agent. `run` does this
        by itself; use `recover` to look at the files first.

        `truncate_at`: remove all records of a damaged journal after this one; the result of `plan_cut`, or the record's
        number. The removed part is kept in `cut-off/`. In a bucket this waits to see whether the process that had the
        workspace is alive, unless `take_over` is given. `adopt` as in `run`.
        """
        from . import repair

        return repair.recover(self, truncate_at, take_over=take_over, adopt=adopt)

    recover_async = recover.without_blocking

    @in_steps
    def end_other(self, *, by: str | None = None) -> Steps[str]:
        """End the run at the other place that still has it, before this copy is adopted. There `moved.yaml` remains, as
        after a move: nothing starts there any more, and all files stay. In a bucket, a process that runs it there stops
        before its next effect. `by` is recorded; this process's `user@host` if it is None. Returns the URL of that
        place. LeaseHeld if a process runs it on a disk; UsageError if that place can't be reached from here."""
        from ...workspace.lifecycle import end_other

        who = myself() if by is None else arguments.text("by", by)
        yield from ()  # it waits for nothing
        return end_other(self.store_of_a_run(), by=who)

    end_other_async = end_other.without_blocking

    @in_steps
    def prune(
        self, *, dry_run: bool = False, by: str | None = None, take_over: bool = False, adopt: bool = False
    ) -> Steps[PruneResult]:
        """Remove what `keep:` in workspace.yaml no longer keeps; an active run does this by itself. Effects, questions,
        answers, edits and the conversation stay, and what the run needs.

        `dry_run`: only say what would go, also of an active run. Else LeaseHeld if a process has it. `by` is
        `user@host` if it is None. `take_over` and `adopt` as in `run`.
        """
        from . import repair

        return repair.prune(self, by or myself(), dry_run=dry_run, take_over=take_over, adopt=adopt)

    prune_async = prune.without_blocking

    @in_steps
    def merge(self, use: Side | None = None, *, files: Files = ()) -> Steps[MergeResult]:
        """The conflicts between edited files and the run. With `use`, resolve them.

        `use`: "ours", the run's version; "theirs", the file's; "edited", the file exactly as it is now. The other
        version is kept as NAME.rejected.EXT. `files`: only these, or this one, by their paths in the workspace or on
        the disk. Without `use` nothing changes. UsageError for a file without a conflict, and for another `use`.
        """
        from . import repair

        return repair.merge(self, use, files)

    merge_async = merge.without_blocking

    # Moving it

    @in_a_thread
    def move(
        self,
        to: str | os.PathLike[str],
        *,
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> TransferResult:
        """Move the run to `to`, a folder or URL that is empty or missing. moved.yaml stays here and names the new
        place; open the run there.

        Every file is compared by its hash before anything is removed, and never are both places a workspace. After an
        interruption the same call continues. `progress` is called with a phase ("copying", ...), the amount done and
        the total: bytes, or files in the phase "clearing". `storage_options` are for the storage of `to`. LeaseHeld
        while a process runs it, UsageError if `to` is not empty.
        """
        from ...workspace import transfer
        from .transport import carry

        return carry(self, transfer.move, to, by=by, progress=progress, storage_options=storage_options)

    move_async = move.without_blocking

    @in_a_thread
    def copy(
        self,
        to: str | os.PathLike[str],
        *,
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> TransferResult:
        """Make a second copy of the run at `to`; see `move`. Two active copies would both act, so the first `run` of
        the copy needs `adopt` while the original exists."""
        from ...workspace import transfer
        from .transport import carry

        return carry(self, transfer.copy, to, by=by, progress=progress, storage_options=storage_options)

    copy_async = copy.without_blocking

    # Tasks and answers

    def send(self, *contents: Any, message: bool = False, key: str = "") -> list[SendResult]:
        """Put tasks into the run's inbox, each durably: a text is a task, a path (`pathlib.Path`) is a file to send,
        everything else is JSON data. `message`: each is a message to the agent, not a task.

        `key` is for a sender that tries again: one content that is sent several times with the same key is one task,
        also when it is done. KeyReused if the content is another one. A key is remembered as long as the task's file is
        in `inbox/` or its folders (`keep: inbox:`).

        Nothing is sent if one of them can't be a task (InvalidFile, UsageError), or if the run was cancelled. Returns
        what was sent, in order. Not guaranteed: that an agent takes it.
        """
        from .handle_files import send

        return send(self, contents, as_message=message, key=arguments.text("key", key))

    @in_steps
    def answer(
        self,
        decision: Any,
        question: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        standing: bool = False,
        result: Any = None,
        by: str | None = None,
        note: str = "",
        typed: bool = False,
    ) -> Steps[AnswerResult]:
        """Answer a question of the agent (`a1`), or say whether an effect in doubt has happened (`d1`: "done" or
        "redo").

        `decision` is one of the choices, a text, or the JSON value that the question's schema describes. `question` may
        be left out if only one is open. `arguments`: other ones to approve, by name, if the agent has asked with some;
        those that are left out stay. `standing`: approve each later call of the question's tool, too. `result`: the
        result of an effect that has happened. `by` is `user@host` if it is None. `typed`: decision, arguments and
        result are texts from a command line: YAML, if a schema needs a value. UsageError if it is not a valid answer,
        or another answer is on record. Runs nothing of the agent; `resume` continues. If a process runs the workspace,
        this waits some seconds until it has taken the answer.
        """
        from . import answers

        options = answers.AnswerOptions(
            question=question,
            decision=decision,
            arguments=arguments,
            standing=standing,
            result=result,
            by=by or myself(),
            note=note,
            is_typed=typed,
        )
        return answers.answer(self, options)

    answer_async = answer.without_blocking

    @in_steps
    def revoke(self, question: str = "", *, by: str | None = None) -> Steps[AnswerResult]:
        """Revoke a standing approval, given with the answer to `question`, which may be left out if only one counts.
        Calls that it has approved and that have not begun are asked about again. If a process runs the workspace, it
        reads this before the next call of the tool begins. UsageError if there is no such approval."""
        from . import answers

        return answers.revoke(self, question, by or myself())

    revoke_async = revoke.without_blocking
