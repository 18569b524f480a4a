"""Open a workspace, enter its agent (once, or again after an edit), and bring it to its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import DEFINITION, DRIFTED, SIGNAL, AgentError, SatchelError, StorageFailed, myself
from ...workspace.formats import pause_file as pausefile
from ...workspace.inbound import Point, inbox, rewind_record
from ...workspace.inspect import Look, Report, lease
from ...workspace.journal import EndStatus, Failure, PauseLate, PauseRequested
from ...workspace.lifecycle import Workspace, opening, pausing
from ...workspace.secrets import scrub
from ...workspace.state import CANCEL, OVER, ROOT, Pause
from ...workspace.views import guarded_files
from ..agent import Agent, Code, code, describe, file_of, load, of_storage, result_codec, runs_going, said
from ..engine import Context, Returned, Session, check_not_stuck, entry, model_calls, returned
from ..live import Announcer, BackupNews, Doubts, StopRequests
from . import preflight
from .live_edits import started
from .preflight import Go, StateCheck, check_recorded
from .resources import OpenResources, ReferenceContents, check_references
from .run_inbox import Offer
from .run_object import Run
from .start import After, Outcome, Start, call_arguments, completed, left, record_arguments, to_its_end

_LISTED = 3


class DrainSettings:
    """For one opening. `drain_timeout`, in seconds, replaces the one of workspace.yaml, and allows no extension. `say`
    is called with a kind and a line for people."""

    def __init__(
        self, workspace: Workspace, stopping: StopRequests, say: Callable[[str, str], None], drain_timeout: float | None
    ):
        self._workspace, self._stopping, self._say = workspace, stopping, say
        self._told = drain_timeout
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, pause: Pause) -> None:
        """A pause was requested: report it, and set its time limit. Once, until it has ended."""
        if self._timer is None:
            under_way = self._stopping.drain.under_way
            after = f", after {_listed(under_way)}" if under_way else ""
            self._say("stopping", f"{pause.reason}, by {pause.by}{after}")
            self._wait()

    def end(self) -> None:
        """The next pause gets its own time limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _seconds(self) -> float:
        return self._workspace.definition.drain_timeout if self._told is None else self._told

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._time_is_up)

    def _time_is_up(self) -> None:
        still = _listed(self._stopping.drain.under_way) or "the agent"
        if self._workspace.definition.drain_then == "force" or self._told is not None:
            self._say("forced", f"{still} took too long to stop; Satchel interrupts it")
            self._stopping.force()
        else:
            self._say("stopping", f"{still} is still running; waiting {self._seconds:.0f} s more")
            self._wait()


def _listed(under_way: tuple[str, ...]) -> str:
    """The first items of the running work."""
    more = len(under_way) - _LISTED
    return ", ".join(under_way[:_LISTED]) + (f" and {more} more" if more > 0 else "")


_GIVE_UP = 5.0
"""Seconds that a cancelled agent has to end before Satchel stops waiting for it."""


class AgentEnd(Struct):
    """How the agent stopped."""

    context: Context
    status: EndStatus | Literal["edited"] = "completed"
    reason: str = ""
    until: str = ""
    returned: Returned | None = None
    error: BaseException | None = None
    skipped: int = 0  # items that were finished before
    late: frozenset[str] = frozenset()  # tasks and edits after the last looks


class Entering:
    """One opening of a workspace, from the agent's call to the close."""

    def __init__(self, start: Start, context: Context, agent: Agent, code: Code | None):
        self._start, self._context, self._agent, self._code = start, context, agent, code
        self._pool = OpenResources(context.workspace, context.stopping, agent.resources)
        self._offer = Offer({})
        self._patience = DrainSettings(context.workspace, context.stopping, self._say, start.drain_timeout)
        self._loop = asyncio.get_running_loop()
        self._was_cancelled = False  # the task that this runs in
        self._contents = ReferenceContents(context)
        context.on_refer = self._find_soon
        context.make_run = lambda session: Run(session, self._pool, self._offer)
        context.stopping.on_pause, context.stopping.on_withdrawal = self._pausing, self._patience.end

    def _find_soon(self, reference: str) -> None:
        self._loop.call_soon_threadsafe(self._contents.find, reference)  # a thread of a step may have named it

    async def run(self) -> AgentEnd:
        await self._start.aside(lambda: model_calls.connect(self._context))
        runs_going.add(self)
        is_over = False
        try:
            ended = await self._run()
            is_over = ended.status in OVER
            return ended
        finally:
            runs_going.discard(self)
            await self._start.aside(lambda: model_calls.disconnect(self._context, is_over=is_over))

    async def _run(self) -> AgentEnd:
        context = self._context
        skipped = context.moment.root.plan.progress.settled
        checks = StateCheck(self._start, context.moment, self._running)
        self._edits, watching = started(context, checks, self._start)
        context.at_boundary = self._edits.at_boundary
        context.stopping.interruption.heard = lambda: self._loop.call_soon_threadsafe(self._obey)
        try:
            ended = await self._come_to_a_stop()
            await model_calls.settled(context)
            is_forced = context.stopping.drain.forced or self._was_cancelled
            await self._contents.end(waits=ended.status != "completed" and not is_forced)
            context.pace.end()
            context.running.stop()
            await self._settle(ended)
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait([watching])
            context.stopping.interruption.heard = None
            context.pace.end()
            context.running.stop()
            await self._contents.end(waits=False)
            context.limits.stop()
            context.threads.shutdown(wait=False, cancel_futures=True)
            await self._pool.release()
        ended.skipped = skipped
        await self._close(ended)
        if self._was_cancelled:
            raise asyncio.CancelledError  # the code that cancelled this task waits for that
        if ended.status == "completed":
            with suppress(SatchelError):  # it has completed, whatever the storage does now
                ended.late = await self._edits.after_close()
        return ended

    def _running(self, path: str) -> Agent | None:
        found = self._context.agents.running.get(path)
        return found.agent if isinstance(found, Session) else None

    async def _come_to_a_stop(self) -> AgentEnd:
        context, agent = self._context, self._agent
        if not self._is_to_be_cancelled:
            ended = await self._enter(agent)
            while await self._goes_on(ended):
                ended = await self._enter(agent)
            if not self._is_to_be_cancelled or ended.status != "paused":
                return ended
        if agent.on_cancel is None:
            return AgentEnd(context, "cancelled", self._reason)
        ended = await self._enter(replace(agent, function=agent.on_cancel), CANCEL)
        return AgentEnd(context, "cancelled", self._reason) if ended.status == "completed" else ended

    async def _goes_on(self, ended: AgentEnd) -> bool:
        """Whether to enter the agent again at once, because a file was edited. Never while a pause is in force, because
        nothing would stop the agent any more."""
        context, edits = self._context, self._edits
        if ended.status in ("edited", "completed"):
            has_work = await edits.at_end() if ended.status == "completed" else edits.at_rest()
            self._patience.end()  # the agent has come to its end already
            if context.stopping.failed:  # in what went on meanwhile
                raise context.stopping.failed
            if (suspension := context.stopping.suspension) is None or suspension.status != "paused":
                return has_work
            ended.status, ended.reason = "paused", suspension.reason  # what was saved conflicts with the run
        return False

    @property
    def _is_to_be_cancelled(self) -> bool:
        pause = self._context.moment.pause
        return pause is not None and pause.mode == "cancel"

    @property
    def _reason(self) -> str:
        pause = self._context.moment.pause
        return pause.reason if pause else ""

    async def _enter(self, agent: Agent, root: str = ROOT) -> AgentEnd:
        """Call the agent, and wait until none of its code runs. `root` is the scope of its own calls."""
        context = self._context
        session = Session(context, agent, root=root)
        await self._start.aside(session.publish_schemas)
        self._offer = Offer(inbox.offered(context.store, context.moment))
        begun = asyncio.Event()
        called = self._call(session, begun, has_input=root == ROOT)
        main = asyncio.create_task(called, name=session.recorded.path or "agent")
        context.begin(session, main)
        begun.set()
        context.pace.begin()  # after the agent, which does not wait for it
        self._clear_lifted()
        context.limits.start()
        self._obey()
        try:
            await self._rest(main)
            await context.agents.stop_all()
        finally:
            self._patience.end()
        return self._judge(main)

    def _clear_lifted(self) -> None:
        try:
            pausing.clear_lifted(self._context.workspace)
        except SatchelError as error:
            self._context.stopping.failed = error

    async def _call(self, session: Session, begun: asyncio.Event, *, has_input: bool) -> Returned:
        """Call the agent with all that it needs, once it has `begun`: an eager task runs before its maker continues."""
        await begun.wait()
        context = self._context
        if has_input:
            check_not_stuck(context, session.recorded.scopes[ROOT])
        accepts = self._start.accept_drift
        referred = await check_references(context.workspace, context.stopping, accepts=accepts)
        preflight.record_config(context.workspace, self._agent, self._code, referred)
        self._contents.find_unknown()
        if context.rehearsal is None:
            await self._pool.open(context.make_run(session))
        function = session.agent.function
        codec = result_codec(function, "the agent")
        args, kwargs = call_arguments(context.store, context.moment, function) if has_input else ((), {})
        try:
            result = await entry.call(session, args, kwargs)
        except SystemExit as error:
            if not self._start.shares_loop:
                raise
            raise AgentError(  # else asyncio would end the loop, and all that others do there
                f"the agent ended the process (sys.exit({error.code!r}))",
                why="it shares the process with others",
                remedy="let it raise an exception or return",
            ) from error
        return returned(context.workspace, result, "the result of the agent", codec)

    async def _rest(self, main: asyncio.Task[Returned]) -> None:
        """Return when the agent has ended, or when waiting for it is over."""
        context = self._context
        while not main.done():
            try:
                await asyncio.wait([main], timeout=_GIVE_UP if context.stopping.drain.forced else None)
            except asyncio.CancelledError:
                if main.done():
                    break  # it has ended the loop
                self._was_cancelled = True
                context.stopping.pause(PauseRequested(reason=SIGNAL, by="its own program"))
                context.stopping.force()
            else:
                if context.stopping.drain.forced and not main.done():
                    break

    def _obey(self) -> None:
        """Do what signals ask for. On the loop."""
        try:
            if self._context.stopping.interruption.count:
                self._context.stopping.obey_signals()
        except SatchelError as error:
            self._context.stopping.failed = error

    def _pausing(self) -> None:
        """A pause was requested: report it, and set its time limit."""
        context = self._context
        pause = context.moment.pause
        if context.stopping.failed or pause is None:
            return
        try:
            context.workspace.behind.do(pausefile.PATH, partial(pausing.announce, context.store, pause))
        except SatchelError as error:
            context.stopping.failed = error
        self._patience.begin(pause)

    def _say(self, kind: str, text: str) -> None:
        if self._context.watch:
            self._context.watch.noticed(kind, text)

    def _judge(self, main: asyncio.Task[Returned]) -> AgentEnd:
        """Find out how the agent's function ended. Raises its exception if nothing may be written any more, or if no
        code here handles it. An agent that has caught a `Suspended` is still suspended."""
        context = self._context
        raised = None if not main.done() else asyncio.CancelledError() if main.cancelled() else main.exception()
        if raised is not None:
            scrub(raised, context.redactor)
        if (failed := of_storage(raised)) is not None:
            raise failed
        if context.stopping.failed:
            raise context.stopping.failed
        if raised is None and main.done():
            return AgentEnd(context, returned=main.result())
        if (suspension := context.stopping.suspension) is not None:
            return AgentEnd(context, suspension.status, suspension.reason, suspension.until)
        if isinstance(raised, asyncio.CancelledError):
            return AgentEnd(context, "failed", "CancelledError", error=raised)
        if isinstance(raised, Exception):
            if context.store.version(DEFINITION) is None:  # that may be why it has failed
                raise StorageFailed(
                    "is no longer here",
                    path=DEFINITION,
                    why="the workspace was renamed, moved or removed while it was running",
                    remedy="start it at its new place",
                ) from raised
            return AgentEnd(context, "failed", said(raised), error=raised)
        assert raised is not None
        raise raised

    def _failure(self, ended: AgentEnd) -> Failure | None:
        context = self._context
        if ended.status in ("waiting", "paused", "sleeping") and context.stopping.suspension:
            return context.stopping.suspension.error
        return describe(ended.error, context.store.url) if ended.error else None

    async def _settle(self, ended: AgentEnd) -> None:
        """For a pause: write everything that a resume needs and read it back, before anything is released."""
        context = self._context
        context.journal.check()  # an agent may have caught it; files that depend on lost records are not moved
        pause = context.moment.pause
        if ended.status in ("paused", "failed") and pause is not None and not pause.paused_at:
            forced, failure = context.stopping.drain.forced, self._failure(ended)
            await self._aside(lambda: pausing.settle(context.workspace, forced=forced, error=failure))
            context.journal.give_back()  # for what comes of the resources

    async def _aside(self, work: Callable[[], None]) -> None:
        """Write what belongs to a stop. The agent's function has ended; only code that it has not awaited may still
        run."""
        journal = self._context.journal
        if not self._start.shares_loop:
            work()
            return

        def taken() -> None:
            journal.take()
            work()

        await to_its_end(self._loop.create_task(journal.lend()))
        await self._start.aside(taken)

    async def _close(self, ended: AgentEnd) -> None:
        context = self._context
        report = context.workspace.report
        for text in (*context.doubts.rechecks.told(), *self._pool.unreleased):
            report.add_late("found", text)
        if report.late:
            context.workspace.save_report()
        assert ended.status != "edited"
        offered = self._offer.files if ended.status == "completed" else {}
        if not self._offer.is_open:
            inbox.settle_fired(context.store, context.moment, context.journal, offered)
        context.workspace.behind.wait()  # pause.yaml may still be written
        pause_file = context.store.version(pausefile.PATH)
        if ended.status == "completed":
            self._tell_of_a_late_stop()
        result = ended.returned.kept if ended.returned and ended.status == "completed" else None
        said = (ended.status, ended.reason, self._failure(ended), ended.until, offered, result)

        def close() -> None:
            if ended.status in OVER:
                model_calls.record_unused(context)
            context.workspace.close(*said)

        await self._aside(close)
        if ended.status in OVER:
            # What was saved since is for the next start.
            guarded_files.remove(context.store, pausefile.PATH, pause_file)
        context.announcer.ended(ended.status)

    def _tell_of_a_late_stop(self) -> None:
        """Record a stop that came too late, because the agent's code blocked the loop."""
        context = self._context
        store = context.store
        file = lease.read_pause(store) if store.version(pausefile.PATH) is not None else None
        if file is None or file.lets_go_on or file.is_of(context.moment.lifted):
            return
        request = lease.pause_request(file, store.trace(pausefile.PATH).by)
        context.journal.add(PauseLate(reason=request.reason, by=request.by, mode=request.mode))
        self._say("too late", f"{pausing.said(request)}: the run completed before it could stop")


async def execute(start: Start, seen: Look, go: Go) -> After:
    """An error of the agent is in the outcome. Outdated if another process has paused or ended the run since."""
    store, report = start.store, Report()

    def begin(opened: Workspace) -> None:
        record_arguments(opened, go.arguments)
        if go.wanted is not None and not opened.was_finished and not go.found.is_refused:
            pausing.add_end(opened, go.wanted, myself() if start.wake else "", go.found.says)

    entering = opening.opened(
        store,
        "replay" if start.only else "run",
        report,
        seen=seen,
        check_data=StateCheck(start, seen.moment),
        take_over=True,
        adopt=start.adopt,
        add_more=begin,
        reaches_out=True,
        in_thread=start.shares_loop,
        is_decided=True,
        backs_up=start.backs_up,
    )
    async with start.held_aside(entering) as opened:
        if opened.moment.asks_whether_back:
            return await _waits_for_an_answer(start, opened, go)
        if opened.was_finished:
            return _nothing_to_do(start, opened, go)
        if go.found.is_refused:
            opened.close("paused", DRIFTED)
            preflight.refuse(go.found.drift)
        announcer = Announcer(opened, start.watch, is_silent=start.only is not None or start.rehearsal is not None)
        news = BackupNews(opened, partial(announcer.tell, "backup"))
        await start.aside(lambda: _prepare(opened, go))
        if start.watch:
            start.watch.opened(report)
        with ExitStack() as stack:
            stack.callback(news.end)
            try:
                root = await start.aside(lambda: _agent(start, seen, go, opened, stack))
            except SatchelError as error:
                pausing.clear_lifted(opened)
                report.add("wanted", f"the agent was not called: {error}")
                opened.save_report()
                opened.close()
                raise
            except Exception as error:
                scrub(error, opened.redactor)
                pausing.clear_lifted(opened)
                opened.close("failed", "the agent's code can't be imported", describe(error, store.url))
                announcer.ended("failed")
                await announcer.finish(start.rest)
                return After(Outcome("failed", report, error=error), opened.moment)
            ended = await _entered(start, opened, go, root, announcer).run()
    await announcer.finish(start.rest)
    return After(_outcome(opened, ended), opened.moment)


async def _waits_for_an_answer(start: Start, opened: Workspace, go: Go) -> After:
    """The agent is not entered before a person has said whether the run shall go back."""
    if start.watch:
        start.watch.opened(opened.report)
    if go.wanted is not None:
        pausing.clear(opened, go.wanted)
    announcer = Announcer(opened, start.watch)
    await start.aside(lambda: opened.close("waiting", "files of a checkpoint were copied over those of the run"))
    announcer.ended("waiting")
    await announcer.finish(start.rest)
    return left(opened.moment, opened.report, is_waiting=True)


def _nothing_to_do(start: Start, opened: Workspace, go: Go) -> After:
    """The run had completed, and no later edit gives it work."""
    report, complaints = opened.report, go.found.complaints
    if go.wanted is not None:
        pausing.lift(opened, go.wanted)
    preflight.ask_about(report, complaints)
    if start.watch and (report.has("edited") or complaints):
        start.watch.opened(report)
    pausing.clear_lifted(opened)  # a power failure may have brought it back
    opened.close()
    return completed(start, opened, report)


def _prepare(opened: Workspace, go: Go) -> None:
    """Before the agent is loaded: the pause is over, and the run returns to a checkpoint if that is requested."""
    if go.wanted is not None:
        pausing.clear(opened, go.wanted)
    if go.point is not None:
        _go_back(opened, go.point)
    elif opened.has_edits and not go.is_unclean:
        opened.checkpoint("edit")  # going back must not undo what a person has changed
    go.found.tell(opened, is_offered=go.point is None)


def _agent(start: Start, seen: Look, go: Go, opened: Workspace, stack: ExitStack) -> Agent:
    """The agent, with its own modules until the `stack` ends. Refused if its code can't read, or would lose, what the
    opening has changed since that was checked."""
    if start.agent is None:
        stack.enter_context(code.running(file_of(start.store, opened.definition.agent)))
    agent = start.agent or load(start.store, opened.definition.agent)
    if not go.found.fits or opened.has_edits or opened.moment is not seen.moment:
        check_recorded(start.store, agent, opened.moment)
    return agent


def _entered(start: Start, opened: Workspace, go: Go, root: Agent, announcer: Announcer) -> Entering:
    stopping = StopRequests(opened, start.interruption)
    doubts = Doubts(opened, stopping, go.found.rechecks, "a forced stop" if go.is_unclean else "a crash")
    context = Context(opened, stopping, doubts, announcer, start.watch, start.tap, start.only, start.rehearsal)
    if start.restarts:
        context.limits.restart_with(stopping.restart)
    if go.is_overruling:
        context.limits.overrule()
    return Entering(start, context, root, go.found.code)


def _outcome(opened: Workspace, ended: AgentEnd) -> Outcome:
    moment, tally = opened.moment, ended.context.tally
    progress = moment.root.plan.progress
    suspension = ended.context.stopping.suspension
    assert ended.status != "edited"
    return Outcome(
        ended.status,
        opened.report,
        ended.returned.value if ended.returned else None,
        ended.error,
        list(moment.doubts.values()),
        list(moment.approvals.values()),
        tally.answered,
        tally.recovered,
        ended.skipped,
        progress.leaves - progress.settled,
        tally.noticed,
        ended.until,
        late=ended.late,
        restarts=ended.status == "sleeping" and suspension is not None and suspension.restarts,
    )


def _go_back(opened: Workspace, point: Point) -> None:
    back = rewind_record.plan(opened.moment, point.moment, myself(), file=point.path)
    back.add(opened.store, opened.journal)
    for say in back.record.says:
        opened.report.add("edited", say)
    opened.journal.flush()
    opened.report.add("done", f"went back to {point.path}; effects and answers since then are kept")
    opened.mark_all()
    opened.save_report()
