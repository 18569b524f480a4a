"""Obeys what people write into the files of an active run.

`PauseWatch` obeys pause.yaml at once: the run drains, or is killed. A pause that a person withdraws before any code was
stopped for it is over at once; else the run stops, and its process resumes it.

`EditWatch` applies edits at a safe point: an edit waits until no scope of the agents is open. If it concerns running
work, or if several agents run, they are stopped between two steps and entered again. An agent that runs several scopes
at once takes an edit like one more commit: only the scopes that it concerns are stopped and begin again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...workspace.base import DEFINITION, InvalidFile, SatchelError
from ...workspace.formats import PauseFile, parse, pause_file
from ...workspace.inbound.edits import CheckData, Noticed, notice, rejection
from ...workspace.inbound.inbox import inbox
from ...workspace.inspect import another_run, lease
from ...workspace.journal.records import PauseRequested
from ...workspace.lifecycle import PauseWish, Workspace, pausing
from ...workspace.secrets import redactor_of
from ...workspace.state import folder_of_agent
from ...workspace.store import FileContent, Version
from ...workspace.views import STATE, TODO, Settling, Stage, conversation
from ..engine import AgentContext, Context, ParallelScopes, Session
from ..limits import limits
from ..live import StopRequests, Suspension
from .start import Start

SETTLE = 0.05
"""Seconds between two looks at a file that is being saved."""


class PauseWatch:
    """For one run, on its loop. `notice` gets a kind and a line for people."""

    def __init__(self, workspace: Workspace, stopping: StopRequests, notice: Callable[[str, str], None]):
        self._workspace, self._stopping, self._notice = workspace, stopping, notice
        self._store, self._moment = workspace.store, workspace.moment
        self._settling = Settling(self._store)
        self._obeyed = ""  # `requested_at` of the pause that this file has requested
        self._seen: Version | None = None
        self.is_changing = False  # it is not completely saved yet

    async def look(self) -> None:
        """See what has come, once it is completely saved; an emergency at once."""
        self.is_changing = False
        there = self._store.version(pause_file.PATH)
        if there in (None, self._seen):
            return
        self._settling.stage(pause_file.PATH, there)
        await asyncio.sleep(SETTLE)
        stage = self._settling.stage(pause_file.PATH, there)
        try:
            content = self._store.read(pause_file.PATH, limit=pause_file.LIMIT)
            file = pause_file.parse(content.data)
            if not content.version == there == self._store.version(pause_file.PATH):
                stage = "changing"
        except FileNotFoundError:
            return
        except InvalidFile as error:
            if stage == "settled":
                self._notice("pause.yaml", f"{error}; the run is paused all the same")
            file = lease.read_pause(self._store) or PauseFile()
        if stage != "settled" and not (file.mode == "emergency" and file.status != "resume"):
            self.is_changing = stage == "changing"
            return
        self._seen = there
        self._obey(file, there)

    def _obey(self, file: PauseFile, version: Version | None) -> None:
        known = self._moment.pause
        if known is None and file.is_of(self._moment.lifted):
            return  # it is over, and is about to be removed
        if file.mode == "emergency" and file.status != "resume":
            os.kill(os.getpid(), signal.SIGKILL)  # what is not durable by now does not count
        by = self._store.trace(pause_file.PATH).by
        if file.status == "resume":
            self._withdraw(PauseWish(known, file, by, version))
        elif known is None or file.mode == "cancel" != known.mode:
            self._stopping.pause(lease.pause_request(file, by))
            self._obeyed = self._moment.pause.requested_at if known is None and self._moment.pause else ""

    def _withdraw(self, wanted: PauseWish) -> None:
        """A pause that Satchel itself has requested stays: the start that follows it checks its reason again."""
        pause = wanted.recorded
        if pause is not None and not (
            pause.mode == "drain" and pause.requested_at == self._obeyed and self._stopping.can_withdraw
        ):
            return
        try:
            pausing.withdraw(self._workspace, wanted)
        except SatchelError as error:
            self._stopping.fail(error)
            return
        if pause is not None:
            self._stopping.withdraw()
        self._notice("resumed", "the pause is withdrawn")


_RESCAN = 0.5
"""Seconds between two looks, if the system reports no change before."""

_REMOTE_RESCAN = 4.0
"""The same where every look is a request that costs money."""

_SHARE = 20
_LAST_LOOKS = 8.0
"""Seconds that the end of a run waits for a file that is being saved."""

_LAST_OPEN_LOOKS = 60.0
"""The same for one that a program has open for writing."""


class EditWatch:
    """Watches the files of one run, on its loop."""

    def __init__(self, context: Context, check_data: CheckData | None, start: Start):
        self._context, self._check_data, self._start = context, check_data, start
        self._store, self._guard = context.store, context.workspace.guard
        self._is_remote, self._refresh_due = self._store.abilities.remote, 0.0
        self._hint = asyncio.Event()
        self._settling = Settling(self._store)
        self._stages: dict[str, Stage] = {}  # of changed files
        self.pause = PauseWatch(context.workspace, context.stopping, context.notice)
        self._definition = self._store.version(DEFINITION)
        self._told: set[tuple[str, Version]] = set()
        self._left: dict[str, Version] = {}  # what can't be taken, and is left where it is
        self._waits = False  # for a moment in which no scope is open
        self._taken: list[Noticed] = []  # since the agent was entered
        self._decided: dict[str, Version] = {}  # what it waits with

    async def watch(self) -> None:
        """Look at intervals, and whenever the system reports a change, until cancelled."""
        loop = asyncio.get_running_loop()

        def hint() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._hint.set)

        try:
            async with self._start.held_aside(self._store.watch(("", "approvals", "inbox"), hint)):
                while True:
                    await self.pause.look()
                    began = time.monotonic()
                    if self._changed():
                        self.obey()
                    elif self._waits and not self._stages:  # what was saved is gone again, or says nothing new
                        self._wait_no_more()
                    took = time.monotonic() - began
                    await asyncio.sleep(min(_SHARE * took, _RESCAN))
                    moving = self.pause.is_changing or "changing" in self._stages.values()
                    with suppress(TimeoutError):  # not wait_for, which loses a cancellation that comes with a hint
                        async with asyncio.timeout(SETTLE if moving else _RESCAN):
                            await self._hint.wait()
                    self._hint.clear()
                    await self._refresh()  # not at once: there was an opening just now
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Without this watch people could not stop the run any more, so it stops now."""
        why = f"{type(error).__name__}: {error}"
        failed = error if isinstance(error, SatchelError) else SatchelError("can't inspect the files", why=why)
        self._context.stopping.failed = failed
        self._context.stopping.suspend(Suspension("paused", "the files can't be inspected"))

    async def _refresh(self, *, at_once: bool = False) -> None:
        """In a bucket, make one listing every few seconds, while the run continues."""
        if self._is_remote and (at_once or time.monotonic() >= self._refresh_due):
            await asyncio.to_thread(self._store.refresh)
            self._refresh_due = time.monotonic() + _REMOTE_RESCAN

    # The files that the run writes, too

    def _changed(self) -> bool:
        """Whether there is an edit that is completely saved."""
        context, found = self._context, {}
        for path in self._guard.look():
            version = self._store.version(path)
            if version is None:
                self._restore(path)
            elif self._left.get(path) != version:
                found[path] = version
        if (version := self._store.version(DEFINITION)) not in (None, self._definition):
            found[DEFINITION] = version
        self._find_new_plans(found)
        self._stages = {path: self._settling.stage(path, version) for path, version in found.items()}
        for path, version in found.items():
            if (path, version) not in self._told and self._stages[path] == "settled":
                self._told.add((path, version))
                self._context.notice("edited", f"{path} was saved; the run reads it at the next safe point")
        return context.stopping.suspension is None and "settled" in self._stages.values()

    def _find_new_plans(self, found: dict[str, Version] | dict[str, Version | None]) -> None:
        """A person's plan for an agent without one."""
        for agent in self._context.moment.agents.values():
            path = agent.folder + TODO
            if not agent.has_plan and path not in found and (version := self._store.version(path)) is not None:
                found[path] = version

    def _restore(self, path: str) -> None:
        """A file was removed. That is no instruction."""
        self._guard.lose(path)
        context = self._context
        for agent, files in context.workspace.files.items():
            folder = folder_of_agent(agent)
            if path == folder + STATE:
                context.projector.want(files.state)
            elif path == folder + TODO:
                context.projector.want(files.todo)
            elif path == folder + conversation.NAME:
                context.workspace.restore_messages(agent)
                context.projector.want(files.messages)
            elif path.startswith(f"{folder}steps/"):
                files.steps.forget(path)
                context.projector.want(files.steps)

    def obey(self, *, at_boundary: bool = False) -> None:
        """Take saved edits if this is a safe moment; else arrange for one. What waits for the end of a scope is looked
        at again only then."""
        held = self._held()
        versions = {path: content.version for path, content in held.items()}
        is_due = at_boundary or (self._is_quiet and not any(parallel.awaited for parallel in self._parallel))
        if not held or (self._waits and versions == self._decided and not is_due):
            return
        self._decided = versions
        noticed = self._notice(held)
        if noticed is None:
            return
        if self._turn_away(noticed, held) and not held:
            self._wait_no_more()
            return
        if self._is_quiet or held.keys() == {DEFINITION} or self._is_for_lanes(noticed):
            if self._hold(noticed):
                self._waits = True
            else:
                self._take(noticed, held)
        elif len(self._context.agents.running) > 1 or self._is_about_what_is_open(noticed):
            self._context.stopping.suspend(Suspension("edited", "a file was edited"))
        else:
            self._waits = True

    def at_boundary(self) -> None:
        """A scope has ended: take an edit that waits for that."""
        if self._waits and self._may_take and self._context.stopping.suspension is None:
            try:
                self.obey(at_boundary=True)
            except Exception as error:  # not for the agent: a commit can't be undone
                self._fail(error)

    async def at_end(self) -> bool:
        """The agent has ended: take what was saved meanwhile. Returns whether an edit leaves something to do, also one
        that was taken after the agent's last look at its plan."""
        if (suspension := self._context.stopping.suspension) is not None and suspension.status == "edited":
            self._context.stopping.suspension = None  # it has ended anyway
        await self._refresh(at_once=True)
        began = time.monotonic()
        while True:
            if self._changed():
                self.obey()
            patience = _LAST_OPEN_LOOKS if "open" in self._stages.values() else _LAST_LOOKS
            is_over = not self._stages or self._context.stopping.suspension is not None
            if is_over or time.monotonic() - began >= patience:
                break
            await asyncio.sleep(SETTLE)
        taken, self._taken = self._taken, []
        return any(map(self._leaves_work, taken))

    def _leaves_work(self, noticed: Noticed) -> bool:
        agents, records = self._context.moment.agents, [edit.record for edit in noticed.edits]
        replanned = {*noticed.plans, *(edit.record.agent for edit in noticed.edits if edit.after is not None)}
        plans = (agents[path].plan.progress for path in replanned)
        return (
            any(settled < leaves for settled, leaves in plans)
            or any(each.step is not None and each.step.scope in agents[each.agent].scopes for each in records)
            or any(
                key.startswith("_") and key not in agents[each.agent].results for each in records for key in each.redone
            )
        )

    async def after_close(self) -> frozenset[str]:
        """What has come since the last looks of a completed run: saved files, with their versions, and new tasks. The
        next opening takes them."""
        await self._refresh(at_once=True)
        found: dict[str, Version | None] = {path: self._store.version(path) for path in self._guard.look()}
        self._find_new_plans(found)
        saved = {f"{path} {version}" for path, version in found.items() if version not in (None, self._left.get(path))}
        tasks = inbox.new_tasks(self._store, self._context.moment)
        return frozenset((*saved, *tasks, *(("a displaced file",) if self._guard.has_left else ())))

    def at_rest(self) -> bool:
        """The agents were stopped for an edit: take it. Returns True."""
        self.obey()
        self._taken.clear()
        return True

    @property
    def _is_quiet(self) -> bool:
        """Whether no agent has an open scope with unrecorded changes, except scopes with copies of their own."""
        return all(getattr(agent, "scope", None) is None for agent in self._context.agents.running.values())

    @property
    def _may_take(self) -> bool:
        return self._is_quiet or bool(self._context.agents.parallel)

    def _is_for_lanes(self, noticed: Noticed) -> bool:
        """Whether only agents are concerned that run several scopes at once, or that don't run."""
        paths = {edit.record.agent for edit in noticed.edits} | {*noticed.plans}
        running = self._context.agents.running
        return not noticed.questions and all(path not in running or _parallel(running[path]) for path in paths)

    def _hold(self, noticed: Noticed) -> bool:
        """Let the running scopes end that the edit is about, and begin nothing of it. Returns whether any runs."""
        about: dict[str, set[str]] = {}
        for edit in noticed.edits:
            about.setdefault(edit.record.agent, set()).update(edit.about)
        for path, agent in self._context.agents.running.items():
            if parallel := _parallel(agent):
                parallel.hold(about.get(path, ()))
        return any(parallel.awaited for parallel in self._parallel)

    def _wait_no_more(self) -> None:
        """No edit waits that could be taken."""
        self._waits = False
        for parallel in self._parallel:
            parallel.look_again()

    @property
    def _parallel(self) -> list[ParallelScopes]:
        return [parallel for agent in self._context.agents.running.values() if (parallel := _parallel(agent))]

    def _is_about_what_is_open(self, noticed: Noticed) -> bool:
        if noticed.questions:
            return True
        agents = self._context.moment.agents
        return any(
            edit.record.step is not None or any(key in agents[edit.record.agent].scopes for key in edit.stops)
            for edit in noticed.edits
        )

    def _held(self) -> dict[str, FileContent]:
        held: dict[str, FileContent] = {}
        for path in self._stages:
            version = self._store.version(path)
            try:
                if (content := self._settling.read(path)) is not None:
                    held[path] = content
            except FileNotFoundError:
                continue
            except InvalidFile as error:  # no file at all, or far too large
                if version is not None:
                    self._leave(path, version, error)
        return held

    def _leave(self, path: str, version: Version, error: SatchelError) -> None:
        """A file that can't even be kept aside stays where it is, and the run continues without it."""
        self._left[path] = version
        self._context.notice("refused", f"{rejection.said(error)}; Satchel did not change it")

    def _notice(self, held: dict[str, FileContent]) -> Noticed | None:
        context = self._context
        context.journal.flush()  # they are merged with the recorded state
        definition = context.workspace.definition
        if DEFINITION in held:
            try:
                definition = parse(held[DEFINITION].data)
                if definition.run_id != context.moment.run_id:
                    raise another_run(context.moment.run_id, definition.run_id)
                limits.check(self._store, definition)
                redactor_of(definition)
            except SatchelError as error:
                self._definition = held[DEFINITION].version
                self._context.notice("refused", f"{error}; the run continues with the last valid version")
                return None
        noticed = notice(self._store, context.moment, definition, check_data=self._check_data, held=held)
        noticed.refusals[:] = [refusal for refusal in noticed.refusals if refusal.path in held]
        return noticed

    def _take(self, noticed: Noticed, held: dict[str, FileContent]) -> None:
        """Record the edits, keep refused ones, and update the files."""
        context = self._context
        workspace = context.workspace
        self._waits = False
        asked = {question.path for question in noticed.questions}
        reported = len(workspace.report.remarks)
        self._taken.append(noticed)
        for finding in noticed.findings:
            if finding.path in held:
                workspace.report.add("done", str(finding))
        for said in rejection.set_aside(self._store, noticed):
            workspace.report.add("done", said)
        workspace.record_edits(noticed)
        workspace.save_report()
        for remark in workspace.report.remarks[reported:]:
            self._context.notice("edited", remark.text)
        if DEFINITION in held:
            self._definition = held[DEFINITION].version
            workspace.define(parse(held[DEFINITION].data), held[DEFINITION].version)
        for path, content in held.items():
            if path not in asked and path != DEFINITION:
                self._let_go(path, content.version)
        for agent in context.agents.running.values():
            if self._is_quiet or _parallel(agent):
                agent.refresh()
        for question in noticed.questions:
            rejection.put_question(self._store, context.moment, question)
            if question.path in held:
                context.stopping.pause(
                    PauseRequested(
                        by="an edit",
                        reason=f"conflict: {question.path} conflicts with the run; `satchel merge` resolves it",
                    )
                )
        workspace.mark_all()

    def _turn_away(self, noticed: Noticed, held: dict[str, FileContent]) -> bool:
        """Keep refused edits, and write the files again. This disturbs no running code, so it need not wait. Returns
        whether there was anything to do."""
        refusals, noticed.refusals = noticed.refusals, []
        for refusal in refusals:
            version = held.pop(refusal.path).version
            if refusal.data is None:
                self._leave(refusal.path, version, refusal.error)
                continue
            kept = rejection.reject(self._store, refusal)
            self._context.notice("refused", f"{rejection.said(refusal.error)}; your version is kept as {kept}")
            self._let_go(refusal.path, version)
        if refusals:
            self._context.workspace.take_conversations(noticed)
            self._context.workspace.mark_all()
        return bool(refusals)

    def _let_go(self, path: str, version: Version) -> None:
        """From here on the run may write the file again."""
        self._guard.take(path, version)
        self._stages.pop(path, None)
        for files in self._context.workspace.files.values():
            files.steps.forget(path)


def _parallel(agent: AgentContext | None) -> ParallelScopes | None:
    return agent.parallel if isinstance(agent, Session) else None


def started(context: Context, check_data: CheckData, start: Start) -> tuple[EditWatch, asyncio.Task[Any]]:
    """A started watch. `check_data` checks against the agent's own state type."""
    edits = EditWatch(context, check_data, start)
    return edits, asyncio.create_task(edits.watch(), name="satchel-edits")
