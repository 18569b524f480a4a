"""Takes into a running run what people save into its files.

`LiveEdits` says when: an edit waits until no scope of the agents is open. If it concerns running work, or if several
agents run, they are stopped between two steps and entered again. An agent that runs several scopes at once takes an
edit like one more commit: only the scopes that it concerns are stopped and begin again.

`EditRecorder` judges an edit with the rules of an opening, and records it or refuses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from ...workspace.base import DEFINITION, Refused, SatchelError
from ...workspace.formats import Definition, parse
from ...workspace.inbound import CheckData, Noticed, inbox, notice, rejection
from ...workspace.inspect import another_run
from ...workspace.journal import PauseRequested
from ...workspace.lifecycle import Workspace
from ...workspace.secrets import redactor_of
from ...workspace.store import FileContent, Version
from ..engine import AgentContext, Context, ParallelScopes, Session
from ..live import FOLDERS, SETTLE, Notice, PauseSource, SavedFiles, Suspension, notices
from .start import Start

_LAST_LOOKS = 8.0
"""Seconds that the end of a run waits for a file that is being saved."""

_LAST_OPEN_LOOKS = 60.0
"""Seconds that it waits for a file that a program has open for writing."""


class LiveEdits:
    """For one opening, on its loop."""

    def __init__(self, context: Context, check_data: CheckData | None):
        self._context = context
        self._saved = SavedFiles(context.workspace, context.notice)
        self._recorder = EditRecorder(
            context.workspace, self._saved, check_data, context.notice, context.stopping.pause
        )
        self._waits = False  # for a moment in which no scope is open
        self._taken: list[Noticed] = []  # since the agent was entered
        self._decided: dict[str, Version] = {}  # what it waits with

    async def watch(self, start: Start) -> None:
        """Watch the folder until cancelled: pause.yaml, then edits, then what waits for answers and tasks."""
        context, loop = self._context, asyncio.get_running_loop()
        folder = context.folder
        folder.sources[:0] = [PauseSource(context.workspace, context.stopping, context.notice).look, self.look]

        def hint() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(folder.hint)

        try:
            async with start.held_aside(context.store.watch(FOLDERS, hint)):
                await folder.rounds()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Without this watch people could not stop the run any more, so it stops now."""
        why = f"{type(error).__name__}: {error}"
        failed = error if isinstance(error, SatchelError) else SatchelError("can't inspect the files", why=why)
        self._context.stopping.failed = failed
        self._context.stopping.suspend(Suspension("paused", "the files can't be inspected"))

    def look(self) -> bool:
        """Look at the files, and take what is saved, now or at a safe moment. Returns whether one is being saved."""
        if self._is_ready():
            self.obey()
        elif self._waits and not self._saved.stages:  # what was saved is gone again, or says nothing new
            self._wait_no_more()
        return "changing" in self._saved.stages.values()

    def _is_ready(self) -> bool:
        """Look at the files. Whether something is saved that the run could take."""
        return self._saved.look() and self._context.stopping.suspension is None

    def obey(self, *, at_boundary: bool = False) -> None:
        """Take saved edits if this is a safe moment; else arrange for one. What waits for the end of a scope is looked
        at again only then."""
        held = self._saved.read()
        versions = {path: content.version for path, content in held.items()}
        is_due = at_boundary or (self._is_quiet and not any(parallel.awaited for parallel in self._parallel))
        if not held or (self._waits and versions == self._decided and not is_due):
            return
        self._decided = versions
        noticed = self._recorder.judge(held)
        if noticed is None:
            return
        if self._recorder.turn_away(noticed, held) and not held:
            self._wait_no_more()
            return
        if self._is_quiet or held.keys() == {DEFINITION} or self._is_for_parallel_scopes(noticed):
            self._waits = self._hold(noticed)
            if not self._waits:
                self._take(noticed, held)
        elif len(self._context.agents.running) > 1 or self._is_about_what_is_open(noticed):
            self._context.stopping.suspend(Suspension("edited", "a file was edited"))
        else:
            self._waits = True

    def _take(self, noticed: Noticed, held: Mapping[str, FileContent]) -> None:
        self._taken.append(noticed)
        agents = self._context.agents.running.values()
        self._recorder.take(noticed, held, [agent for agent in agents if self._is_quiet or _parallel(agent)])

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
        await self._context.folder.refresh(at_once=True)
        began = time.monotonic()
        while True:
            if self._is_ready():
                self.obey()
            stages = self._saved.stages.values()
            patience = _LAST_OPEN_LOOKS if "open" in stages else _LAST_LOOKS
            is_over = not stages or self._context.stopping.suspension is not None
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
        await self._context.folder.refresh(at_once=True)
        return frozenset((*self._saved.untaken(), *inbox.new_tasks(self._context.store, self._context.moment)))

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

    def _is_for_parallel_scopes(self, noticed: Noticed) -> bool:
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


class EditRecorder:
    """Judges what was saved, and records or refuses it."""

    def __init__(
        self,
        workspace: Workspace,
        saved: SavedFiles,
        check_data: CheckData | None = None,
        notice: Notice = lambda kind, text: None,
        pause: Callable[[PauseRequested], object] = lambda request: None,
    ):
        """`check_data` checks against the agent's own state type. `pause` is called for a conflict that a person has to
        decide about."""
        self._workspace, self._saved, self._check_data = workspace, saved, check_data
        self._notice, self._pause = notice, pause

    def judge(self, held: Mapping[str, FileContent], moved_on: Collection[str] = ()) -> Noticed | None:
        """What the edits say, merged with the recorded state. None if workspace.yaml is refused. `moved_on`: as in
        `notice`."""
        workspace, definition = self._workspace, self._workspace.definition
        workspace.journal.flush()
        if DEFINITION in held:
            try:
                definition = self._checked(held[DEFINITION].data)
            except SatchelError as error:
                self._saved.has_read(held[DEFINITION].version)
                self._notice("refused", f"{error}; the run continues with the last valid version")
                return None
        noticed = notice(
            workspace.store, workspace.moment, definition, check_data=self._check_data, held=held, moved_on=moved_on
        )
        noticed.refusals[:] = [refusal for refusal in noticed.refusals if refusal.path in held]
        return noticed

    def _checked(self, data: bytes) -> Definition:
        definition = parse(data)
        if definition.run_id != self._workspace.moment.run_id:
            raise another_run(self._workspace.moment.run_id, definition.run_id)
        if definition.kind != (kind := self._workspace.definition.kind):
            raise Refused(f"says another `kind` than {kind!r}", path=DEFINITION, remedy="leave it as it was")
        notices.check(self._workspace.store, definition)
        redactor_of(definition)
        return definition

    def take(self, noticed: Noticed, held: Mapping[str, FileContent], agents: Iterable[AgentContext] = ()) -> None:
        """Record the edits, tell these `agents`, put questions about conflicts, and update the files."""
        workspace, store, moment = self._workspace, self._workspace.store, self._workspace.moment
        asked = {question.path for question in noticed.questions}
        reported = len(workspace.report.remarks)
        for finding in noticed.findings:
            if finding.path in held:
                workspace.report.add("done", str(finding))
        for said in rejection.set_aside(store, noticed):
            workspace.report.add("done", said)
        workspace.record_edits(noticed)
        workspace.save_report()
        for remark in workspace.report.remarks[reported:]:
            self._notice("edited", remark.text)
        if DEFINITION in held:
            self._saved.has_read(held[DEFINITION].version)
            workspace.define(parse(held[DEFINITION].data), held[DEFINITION].version)
        for path, content in held.items():
            if path not in asked and path != DEFINITION:
                self._saved.let_go(path, content.version)
        workspace.show_saved(noticed)
        for agent in agents:
            agent.refresh()
        for question in noticed.questions:
            rejection.put_question(store, moment, question)
            if question.path in held:
                reason = f"conflict: {question.path} conflicts with the run; `satchel merge` resolves it"
                self._pause(PauseRequested(by="an edit", reason=reason))
        workspace.mark_all()

    def turn_away(self, noticed: Noticed, held: dict[str, FileContent]) -> bool:
        """Keep refused edits, and write the files again. This disturbs no running code, so it need not wait. Returns
        whether there was anything to do."""
        refusals, noticed.refusals = noticed.refusals, []
        for refusal in refusals:
            version = held.pop(refusal.path).version
            if refusal.data is None:
                self._saved.leave(refusal.path, version, refusal.error)
                continue
            kept = rejection.reject(self._workspace.store, refusal)
            self._notice("refused", f"{rejection.said(refusal.error)}; your version is kept as {kept}")
            self._saved.let_go(refusal.path, version)
        if refusals:
            self._workspace.take_conversations(noticed)
            self._workspace.mark_all()
        return bool(refusals)


def _parallel(agent: AgentContext | None) -> ParallelScopes | None:
    return agent.parallel if isinstance(agent, Session) else None


def started(context: Context, check_data: CheckData, start: Start) -> tuple[LiveEdits, asyncio.Task[Any]]:
    """Started watching."""
    edits = LiveEdits(context, check_data)
    return edits, asyncio.create_task(edits.watch(start), name="satchel-folder")
