"""`Handle`: what programs can do with a run from outside. Each method imports what it needs when it is called, so that
reading does not load what only a run needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...workspace.base import arguments, myself
from ..status import Steps, at_once, finish, finish_async
from .going_back import GoBack
from .hand_edits import EditByHand

if TYPE_CHECKING:
    from ...workspace.base import Mode, Resume
    from ...workspace.inbound.edits import Side
    from ...workspace.lifecycle import Cut
    from ...workspace.transfer import Journey, Tell
    from ..agent import Agent
    from ..launch import Ended, Supervised
    from ..live import Watch
    from ..supervision.child import Background
    from ..supervision.emergency import Stopped
    from .answers import Answering
    from .mail import Sent
    from .repair import Files, Merging, Pruned, Recovered
    from .stops import Stopping, Withdrawn


class Handle(GoBack, EditByHand):
    """A workspace, from outside. Works whether or not a process runs it.

    Made by `satchel.open`. Holds no lock and no connection, so you need not close it. Each method reads the files
    again, so it is always current. Every method raises a SatchelError that says what to do: UsageError for wrong
    arguments, InvalidFile, NewerFormat or Damaged for a workspace that can't be used, LeaseHeld if another process has
    it, StorageFailed if the storage fails. Methods that end in `_async` do the same without blocking the event loop.
    Not guaranteed: that two calls from several threads see the same moment.
    """

    # Running it

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
    ) -> Ended:
        """Run the agent in this process until it completes, fails or needs a person, as `satchel.run` does.

        A stopped run continues where it was. A run that is paused, waits or sleeps stays as it is. `agent` replaces the
        one that workspace.yaml names. `args` are its arguments besides the run, or `input` names them by parameter: the
        first start records them, later ones need none, and others are refused. `watch` is called with what happens.
        `drain_timeout`: seconds that a stop waits for running work. `take_over`: in a bucket, don't wait for the
        process that had it. `adopt`: continue although this may be a copy of a run that lives elsewhere. Errors of the
        agent are in the result. In a running event loop call `run_async`.
        """
        from ..launch import runner

        wish = runner.Wish(agent, watch, False, accept_drift, drain_timeout, False, take_over, adopt, input)
        return runner.run(self, wish, args)

    async def run_async(
        self,
        agent: Agent | None = None,
        *args: Any,
        input: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        take_over: bool = False,
        adopt: bool = False,
    ) -> Ended:
        """`run` in a running event loop. If the task is cancelled, the run is paused, with everything written."""
        from ..launch import runner

        wish = runner.Wish(agent, watch, False, accept_drift, drain_timeout, False, take_over, adopt, input)
        return await runner.run_async(self, wish, args)

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
    ) -> Ended:
        """`run`, which also ends a pause, whatever its reason, and a sleep. UsageError if the run was never started.
        `from_checkpoint`: first return to the last known-good checkpoint; later effects and answers are kept."""
        from ..launch import runner

        wish = runner.Wish(agent, watch, True, accept_drift, drain_timeout, from_checkpoint, take_over, adopt)
        return runner.run(self, wish)

    async def resume_async(
        self,
        agent: Agent | None = None,
        *,
        watch: Watch | None = None,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        from_checkpoint: bool = False,
        take_over: bool = False,
        adopt: bool = False,
    ) -> Ended:
        """`resume` in a running event loop."""
        from ..launch import runner

        wish = runner.Wish(agent, watch, True, accept_drift, drain_timeout, from_checkpoint, take_over, adopt)
        return await runner.run_async(self, wish)

    def supervise(
        self,
        *,
        resume: bool = False,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        from_checkpoint: bool = False,
        take_over: bool = False,
        adopt: bool = False,
        input: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
        tell: Callable[[str], None] | None = None,
    ) -> Supervised:
        """Run the agent in another process, as `satchel run` does, and supervise it from this one: restart it after a
        crash, and kill it if it does not stop in time. Returns when the run has stopped.

        Call it in the main thread; SIGINT and SIGTERM are passed on. The process prints what `satchel run` prints;
        `options` are such as "--quiet" and "--json". `tell` is called with events of the process. `resume`: as `resume`
        does; the other arguments are those of `run` and `resume`.
        """
        from ..launch import detached

        arguments.no_loop("supervise", "call `await run_async(...)` there, or `await detach_async(...)`")
        start = detached.Start(resume, accept_drift, drain_timeout, from_checkpoint, take_over, adopt, options, input)
        return detached.supervise(self, start, tell)

    def detach(
        self,
        *,
        resume: bool = False,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        from_checkpoint: bool = False,
        take_over: bool = False,
        adopt: bool = False,
        input: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
    ) -> Background:
        """Run the agent in the background, with a supervisor that outlives this process. Returns when the run is
        active, with the number of the process and its log, which gets its output. If it ended at once, `exit_code`
        says how, and `said` the end of its output."""
        from ..launch import detached

        arguments.no_loop("detach")
        start = detached.Start(resume, accept_drift, drain_timeout, from_checkpoint, take_over, adopt, options, input)
        return detached.detach(self, start)

    async def detach_async(
        self,
        *,
        resume: bool = False,
        accept_drift: bool = False,
        drain_timeout: float | None = None,
        from_checkpoint: bool = False,
        take_over: bool = False,
        adopt: bool = False,
        input: Mapping[str, Any] | None = None,
        options: Sequence[str] = (),
    ) -> Background:
        """`detach`, without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(
            self.detach,
            resume=resume,
            accept_drift=accept_drift,
            drain_timeout=drain_timeout,
            from_checkpoint=from_checkpoint,
            take_over=take_over,
            adopt=adopt,
            input=input,
            options=options,
        )

    # Stopping it

    def pause(
        self,
        *,
        reason: str = "manual",
        until: str | datetime | timedelta | None = None,
        resume: Resume = "continue",
        by: str | None = None,
        wait: bool = False,
    ) -> Stopping:
        """Pause the run at its next safe point, between two steps. Running work finishes.

        `until`: when it may continue by itself: a time, a length of time, or a text such as `22:30` or `45m`. `resume`:
        how it resumes: "continue", "restart_step" or "await_instructions". `by` is `user@host` if it is None. Returns
        at once, with the status "requested" if a process runs it. With `wait` it returns when the run has stopped, or
        after the time in which it would have been killed.
        """
        asked = self._request(reason, by, wait, until=until, resume=resume)
        return finish("pause", asked) if wait else at_once(asked)

    async def pause_async(
        self,
        *,
        reason: str = "manual",
        until: str | datetime | timedelta | None = None,
        resume: Resume = "continue",
        by: str | None = None,
        wait: bool = False,
    ) -> Stopping:
        """`pause`, without blocking the event loop."""
        return await finish_async(self._request(reason, by, wait, until=until, resume=resume))

    def cancel(self, *, reason: str = "cancelled", by: str | None = None, wait: bool = False) -> Stopping:
        """End the run for good at its next safe point. The agent's `on_cancel`, if it has one, undoes what must not
        stay half done; if no process runs it, the next `run` does that. All files of the run stay."""
        asked = self._request(reason, by, wait, mode="cancel")
        return finish("cancel", asked) if wait else at_once(asked)

    async def cancel_async(self, *, reason: str = "cancelled", by: str | None = None, wait: bool = False) -> Stopping:
        """`cancel`, without blocking the event loop."""
        return await finish_async(self._request(reason, by, wait, mode="cancel"))

    def withdraw(self) -> Withdrawn:
        """Withdraw the request to pause a run that has not stopped yet: the process that runs it continues.

        Writes `status: resume` into pause.yaml, as a person would, and waits until the run has noticed it. If some code
        was stopped already, that is at the safe point. UsageError if there is no pause to withdraw; Refused if the run
        is being cancelled or killed, was stopped by a signal, or waits for instructions. Not guaranteed: that it has
        not stopped before; then the status says so, and `resume` continues it.
        """
        from . import stops

        return finish("withdraw", stops.withdraw(self))

    async def withdraw_async(self) -> Withdrawn:
        """`withdraw`, without blocking the event loop."""
        from . import stops

        return await finish_async(stops.withdraw(self))

    def wait(self) -> Stopping:
        """Wait until no process runs it, after `pause` or `cancel`. The status stays "requested" if it has not stopped
        in the time in which it would have been killed."""
        from . import stops

        return finish("wait", stops.stopped(self))

    async def wait_async(self) -> Stopping:
        """`wait`, without blocking the event loop."""
        from . import stops

        return await finish_async(stops.stopped(self))

    def stop(self, *, reason: str = "emergency", by: str | None = None) -> Stopped:
        """The emergency stop: kill what runs it, in the middle of a step, with all processes that it started. Only a
        person can start it again. `resume` continues and verifies more than usual, since running work may be in doubt.

        A pause.yaml is durable before the first process is killed. `how` of the result: "stopped"; "idle", nothing was
        running; "elsewhere", a process on another machine runs it, and obeys within one poll; "failed", `said` says
        why. A storage failure is in the result, too. `stop_all` stops several at once.
        """
        from .stops import stop_one

        arguments.no_loop("stop")
        return stop_one(self, reason, by)

    async def stop_async(self, *, reason: str = "emergency", by: str | None = None) -> Stopped:
        """`stop`, without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.stop, reason=reason, by=by)

    def _request(
        self,
        reason: str,
        by: str | None,
        wait: bool,
        *,
        mode: Mode = "drain",
        resume: Resume = "continue",
        until: str | datetime | timedelta | None = None,
    ) -> Steps[Stopping]:
        from ...workspace.journal.records import PauseRequested
        from . import stops

        end = stops.until_text(until)
        wanted = PauseRequested(reason=reason, by=by or myself(), mode=mode, resume=resume, until=end)
        return stops.ask(self, wanted, wait=wait)

    # Repairing it

    def recover(
        self, *, truncate_at: int | Cut | None = None, take_over: bool = False, adopt: bool = False
    ) -> Recovered:
        """Bring all files to the same moment and rescue unfinished output, without running the agent. `run` does this
        by itself; use `recover` to look at the files first.

        `truncate_at`: remove all records of a damaged journal after this one; the result of `plan_cut`, or the record's
        number. The removed part is kept in `cut-off/`. In a bucket this waits to see whether the process that had the
        workspace is alive, unless `take_over` is given. `adopt` as in `run`.
        """
        return finish("recover", self._recover(truncate_at, take_over, adopt))

    def end_other(self, *, by: str | None = None) -> str:
        """End the run at the other place that still has it, before this copy is adopted. There `moved.yaml` remains, as
        after a move: nothing starts there any more, and all files stay. In a bucket, a process that runs it there stops
        before its next effect. `by` is recorded; this process's `user@host` if it is None. Returns the URL of that
        place. LeaseHeld if a process runs it on a disk; UsageError if that place can't be reached from here."""
        return finish("end_other", self._end_other(by))

    async def end_other_async(self, *, by: str | None = None) -> str:
        """`end_other`, without blocking the event loop."""
        return await finish_async(self._end_other(by))

    def _end_other(self, by: str | None) -> Steps[str]:
        from ...workspace.lifecycle import end_other

        who = myself() if by is None else arguments.text("by", by)
        yield from ()  # it waits for nothing
        return end_other(self.store_of_a_run(), by=who)

    async def recover_async(
        self, *, truncate_at: int | Cut | None = None, take_over: bool = False, adopt: bool = False
    ) -> Recovered:
        """`recover`, without blocking the event loop."""
        return await finish_async(self._recover(truncate_at, take_over, adopt))

    def _recover(self, truncate_at: int | Cut | None, take_over: bool, adopt: bool) -> Steps[Recovered]:
        from . import repair

        return repair.recover(self, truncate_at, take_over=take_over, adopt=adopt)

    def prune(
        self, *, dry_run: bool = False, by: str | None = None, take_over: bool = False, adopt: bool = False
    ) -> Pruned:
        """Remove what `keep:` in workspace.yaml no longer keeps; an active run does this by itself. Effects, questions,
        answers, edits and the conversation stay, and what the run needs.

        `dry_run`: only say what would go, also of an active run. Else LeaseHeld if a process has it. `by` is
        `user@host` if it is None. `take_over` and `adopt` as in `run`.
        """
        return finish("prune", self._prune(dry_run, by, take_over, adopt))

    async def prune_async(
        self, *, dry_run: bool = False, by: str | None = None, take_over: bool = False, adopt: bool = False
    ) -> Pruned:
        """`prune`, without blocking the event loop."""
        return await finish_async(self._prune(dry_run, by, take_over, adopt))

    def _prune(self, dry_run: bool, by: str | None, take_over: bool, adopt: bool) -> Steps[Pruned]:
        from . import repair

        return repair.prune(self, by or myself(), dry_run=dry_run, take_over=take_over, adopt=adopt)

    def merge(self, use: Side | None = None, *, files: Files = ()) -> Merging:
        """The conflicts between edited files and the run. With `use`, resolve them.

        `use`: "ours", the run's version; "theirs", the file's; "edited", the file exactly as it is now. The other
        version is kept as NAME.rejected.EXT. `files`: only these, or this one, by their paths in the workspace or on
        the disk. Without `use` nothing changes. UsageError for a file without a conflict, and for another `use`.
        """
        from . import repair

        return finish("merge", repair.merge(self, use, files))

    async def merge_async(self, use: Side | None = None, *, files: Files = ()) -> Merging:
        """`merge`, without blocking the event loop."""
        from . import repair

        return await finish_async(repair.merge(self, use, files))

    # Moving it

    def move(
        self,
        to: str | os.PathLike[str],
        *,
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Journey:
        """Move the run to `to`, a folder or URL that is empty or missing. moved.yaml stays here and names the new
        place; open the run there.

        Every file is compared by its hash before anything is removed, and never are both places a workspace. After an
        interruption the same call continues. `progress` is called with a phase ("copying", ...), the amount done and
        the total: bytes, or files in the phase "clearing". `storage_options` are for the storage of `to`. LeaseHeld
        while a process runs it, UsageError if `to` is not empty.
        """
        from .transport import carry

        arguments.no_loop("move")
        return carry(self, "move", to, by=by, progress=progress, storage_options=storage_options)

    async def move_async(
        self,
        to: str | os.PathLike[str],
        *,
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Journey:
        """`move`, without blocking the event loop. `progress` is called in a thread. A cancellation does not stop it;
        it continues in its thread."""
        import asyncio

        return await asyncio.to_thread(self.move, to, by=by, progress=progress, storage_options=storage_options)

    def copy(
        self,
        to: str | os.PathLike[str],
        *,
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Journey:
        """Make a second copy of the run at `to`; see `move`. Two active copies would both act, so the first `run` of
        the copy needs `adopt` while the original exists."""
        from .transport import carry

        arguments.no_loop("copy")
        return carry(self, "copy", to, by=by, progress=progress, storage_options=storage_options)

    async def copy_async(
        self,
        to: str | os.PathLike[str],
        *,
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Journey:
        """`copy`, without blocking the event loop; see `move_async`."""
        import asyncio

        return await asyncio.to_thread(self.copy, to, by=by, progress=progress, storage_options=storage_options)

    # Tasks and answers

    def send(self, *contents: Any, message: bool = False, key: str = "") -> list[Sent]:
        """Put tasks into the run's inbox, each durably: a text is a task, a path (`pathlib.Path`) is a file to send,
        everything else is JSON data. `message`: each is a message to the agent, not a task.

        `key` is for a sender that tries again: one content that is sent several times with the same key is one task,
        also when it is done. KeyReused if the content is another one. A key is remembered as long as the task's file is
        in `inbox/` or its folders (`keep: inbox:`).

        Nothing is sent if one of them can't be a task (InvalidFile, UsageError), or if the run was cancelled. Returns
        what was sent, in order. Not guaranteed: that an agent takes it.
        """
        from . import mail

        return mail.send(self, contents, as_message=message, key=arguments.text("key", key))

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
    ) -> Answering:
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
        return finish("answer", self._answer(decision, question, arguments, standing, result, by, note, typed))

    async def answer_async(
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
    ) -> Answering:
        """`answer`, without blocking the event loop."""
        return await finish_async(self._answer(decision, question, arguments, standing, result, by, note, typed))

    def _answer(
        self,
        decision: Any,
        question: str,
        arguments: Mapping[str, Any] | None,
        standing: bool,
        result: Any,
        by: str | None,
        note: str,
        typed: bool,
    ) -> Steps[Answering]:
        from . import answers

        saying = answers.Saying(question, decision, result, by or myself(), note, typed, arguments, standing)
        return answers.answer(self, saying)

    def revoke(self, question: str = "", *, by: str | None = None) -> Answering:
        """Revoke a standing approval, given with the answer to `question`, which may be left out if only one counts.
        Calls that it has approved and that have not begun are asked about again. If a process runs the workspace, it
        reads this before the next call of the tool begins. UsageError if there is no such approval."""
        from . import answers

        return finish("revoke", answers.revoke(self, question, by or myself()))

    async def revoke_async(self, question: str = "", *, by: str | None = None) -> Answering:
        """`revoke`, without blocking the event loop."""
        from . import answers

        return await finish_async(answers.revoke(self, question, by or myself()))
