"""The one watch over the folder of an active run: when to look at what people and programs put into it.

Each part that takes something from the folder is a source: pause.yaml (`PauseSource`), the answers in approvals/
(`AnswerSource`), the files that the run writes, too (`SavedFiles`). A round looks at all of them. The system hints at
changes, and a round comes at least twice a second; in a bucket there is a new listing every few seconds. A file that is
still being saved is looked at again soon. Code that waits for an answer or for a task is told of each round, and has no
clock of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from ...workspace.base import DEFINITION, InvalidFile, SatchelError
from ...workspace.formats import PauseFile, pause_file
from ...workspace.inbound import rejection
from ...workspace.inspect import lease
from ...workspace.lifecycle import PauseWish, Workspace, pausing
from ...workspace.state import FILES, folder_of_agent
from ...workspace.store import FileContent, Store, Version
from ...workspace.views import STATE, TODO, Settling, Stage
from .stopping import StopRequests

FOLDERS = ("", "approvals", "inbox")
"""Where the system is asked for hints."""

SETTLE = 0.05
"""Seconds between two looks at a file that is being saved."""

_RESCAN = 0.5
"""Seconds between two rounds, if the system reports no change before."""

_REMOTE_RESCAN = 4.0
"""Seconds between two listings of a bucket: each is a request that costs money."""

_SHARE = 20
"""A round takes at most one part in so many of the time."""

Notice = Callable[[str, str], None]
"""Gets a kind and a line for people."""


class FolderWatch:
    """For one opening, on its loop."""

    def __init__(self, store: Store):
        self._store, self._refresh_due = store, 0.0
        self._hint = asyncio.Event()
        self._told: list[Callable[[], None]] = []
        self.sources: list[Callable[[], bool]] = []
        """Each looks once, and returns whether something of it is still being saved."""

    @contextmanager
    def telling(self, told: Callable[[], None]) -> Iterator[None]:
        """While the body runs, call `told` after each round."""
        self._told.append(told)
        try:
            yield
        finally:
            self._told.remove(told)

    def hint(self) -> None:
        """Something may have changed: the next round comes now. On the loop."""
        self._hint.set()

    async def rounds(self) -> None:
        """Look until cancelled. Raises what a source raises."""
        await asyncio.sleep(SETTLE)  # the opening has just looked, and removes pause.yaml when the agent is entered
        while True:
            began = time.monotonic()
            is_moving = sum(look() for look in self.sources) > 0  # each looks
            for told in [*self._told]:
                told()
            if self._told:
                await asyncio.sleep(0)  # they look now, which is part of this round
            await asyncio.sleep(min(_SHARE * (time.monotonic() - began), _RESCAN))
            with suppress(TimeoutError):  # not wait_for, which loses a cancellation that comes with a hint
                async with asyncio.timeout(SETTLE if is_moving else _RESCAN):
                    await self._hint.wait()
            self._hint.clear()
            await self.refresh()  # not before the first round: there was an opening just now

    async def refresh(self, *, at_once: bool = False) -> None:
        """In a bucket, make one listing every few seconds, while the run continues."""
        if self._store.abilities.remote and (at_once or time.monotonic() >= self._refresh_due):
            await asyncio.to_thread(self._store.refresh)
            self._refresh_due = time.monotonic() + _REMOTE_RESCAN


class PauseSource:
    """Obeys pause.yaml at once: the run drains, or is killed. A pause that a person withdraws before any code was
    stopped for it is over at once; else the run stops, and its process resumes it."""

    def __init__(self, workspace: Workspace, stopping: StopRequests, notice: Notice):
        self._workspace, self._stopping, self._notice = workspace, stopping, notice
        self._store, self._moment = workspace.store, workspace.moment
        self._settling = Settling(self._store)
        self._obeyed = ""  # `requested_at` of the pause that this file has requested
        self._met: Version | None = None  # by the last look
        self._seen: Version | None = None
        self._is_over = False  # the pause of that version: its file goes as soon as no program has it open

    def look(self) -> bool:
        """Obey what has come, once it is completely saved; an emergency at the second look, since `satchel stop` kills
        right after its save, and tells what it has killed. Returns whether to look again soon."""
        there, met = self._store.version(pause_file.PATH), self._met
        if there is None:
            return False
        if there == self._seen:
            if self._is_over and not self._store.abilities.remote:
                pausing.remove_version(self._workspace, there)
            return False
        self._met = there
        stage = self._settling.stage(pause_file.PATH, there)
        try:
            content = self._store.read(pause_file.PATH, limit=pause_file.LIMIT)
            file = pause_file.parse(content.data)
            if not content.version == there == self._store.version(pause_file.PATH):
                stage = "changing"
        except FileNotFoundError:
            return False
        except InvalidFile as error:
            if stage == "settled":
                self._notice("pause.yaml", f"{error}; the run is paused all the same")
            file = lease.read_pause(self._store) or PauseFile()
        is_emergency = _kills(file)
        if met == there if is_emergency else stage == "settled":
            self._seen = there
            self._obey(file, there)
            return False
        return is_emergency or stage == "changing"

    def _obey(self, file: PauseFile, version: Version | None) -> None:
        known = self._moment.pause
        self._is_over = known is None and file.is_of(self._moment.lifted)
        if self._is_over:
            return  # it is about to be removed
        if _kills(file):
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
        self._is_over = True
        if pause is not None:
            self._stopping.withdraw()
        self._notice("resumed", "the pause is withdrawn")


def _kills(file: PauseFile) -> bool:
    return file.mode == "emergency" and not file.lets_go_on


class AnswerSource:
    """The answers in approvals/, while the agent waits for one."""

    def __init__(self, workspace: Workspace, noticed: list[str]):
        """`noticed` gets a line for each answer that was taken or refused."""
        self._workspace, self._noticed, self._waiting = workspace, noticed, 0

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """A call of the agent waits while the body runs."""
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    def look(self) -> bool:
        """Look if a call waits. Returns whether a file is being saved."""
        return bool(self._waiting) and self.take()

    def take(self) -> bool:
        """Record the answers that people have typed, and write into the other files why they can't be taken. Returns
        whether a file is being saved: a later look takes it."""
        workspace = self._workspace
        found = workspace.desk.look(workspace.journal, may_wait=False)
        self._noticed += [each.text for each in found]
        if found:
            for files in workspace.files.values():
                workspace.projector.want(files.state)
        return workspace.desk.is_changing


class SavedFiles:
    """What people have saved into the files that the run writes, too, and into workspace.yaml: what is whole by now,
    and its content. A file that was removed is written again: that is no instruction."""

    def __init__(self, workspace: Workspace, notice: Notice):
        self._workspace, self._notice = workspace, notice
        self._store, self._guard = workspace.store, workspace.guard
        self._settling = Settling(self._store)
        self.stages: Mapping[str, Stage] = {}  # of changed files
        self._definition = self._store.version(DEFINITION)  # the one that was read last
        self._told: set[tuple[str, Version]] = set()
        self._left: dict[str, Version] = {}  # what can't be taken, and stays where it is

    def look(self) -> bool:
        """Whether something is completely saved."""
        found = {}
        for path in self._guard.look():
            version = self._store.version(path)
            if version is None:
                self._restore(path)
            elif self._left.get(path) != version:
                found[path] = version
        if (version := self._store.version(DEFINITION)) not in (None, self._definition):
            found[DEFINITION] = version
        found |= self._new_plans(found)
        self.stages = {path: self._settling.stage(path, version) for path, version in found.items()}
        for path, version in found.items():
            if (path, version) not in self._told and self.stages[path] == "settled":
                self._told.add((path, version))
                self._notice("edited", f"{path} was saved; the run reads it at the next safe point")
        return "settled" in self.stages.values()

    def _new_plans(self, found: Collection[str]) -> dict[str, Version]:
        """A person's plan for an agent without one."""
        paths = [agent.folder + TODO for agent in self._workspace.moment.agents.values() if not agent.has_plan]
        versions = {path: self._store.version(path) for path in paths if path not in found}
        return {path: version for path, version in versions.items() if version not in (None, self._left.get(path))}

    def _restore(self, path: str) -> None:
        self._guard.lose(path)
        projector = self._workspace.projector
        for agent, files in self._workspace.files.items():
            for place in self._workspace.moment.agents[agent].row_logs:
                if path == place.path:
                    self._workspace.restore_messages(place.key)
                    projector.want(files.logs.get(place.key, files.messages))
            folder = folder_of_agent(agent)
            if path == folder + STATE:
                projector.want(files.state)
            elif path == folder + TODO:
                projector.want(files.todo)
            elif path.startswith(folder + FILES) and files.held is not None:
                files.held.forget(path.removeprefix(folder + FILES))
                projector.want(files.held)
            elif path.startswith(f"{folder}steps/"):
                files.steps.forget(path)
                projector.want(files.steps)

    def read(self) -> dict[str, FileContent]:
        """The content of what is completely saved now."""
        held: dict[str, FileContent] = {}
        for path in self.stages:
            version = self._store.version(path)
            try:
                if (content := self._settling.read(path)) is not None:
                    held[path] = content
            except FileNotFoundError:
                continue
            except InvalidFile as error:  # no file at all, or far too large
                if version is not None:
                    self.leave(path, version, error)
        return held

    def leave(self, path: str, version: Version, error: SatchelError) -> None:
        """A file that can't even be kept aside stays where it is, and the run continues without it."""
        self._left[path] = version
        self._notice("refused", f"{rejection.said(error)}; Satchel did not change it")

    def has_read(self, version: Version) -> None:
        """That workspace.yaml was taken or refused."""
        self._definition = version

    def let_go(self, path: str, version: Version) -> None:
        """From here on the run may write the file again."""
        self._guard.take(path, version)
        self.stages = {other: stage for other, stage in self.stages.items() if other != path}
        for files in self._workspace.files.values():
            files.steps.forget(path)
            if files.held is not None:
                files.held.forget(path.removeprefix(FILES))

    def untaken(self) -> set[str]:
        """What was saved since the last look, with its versions, for the next opening."""
        found = {path: self._store.version(path) for path in self._guard.look()}
        found |= self._new_plans(found)
        saved = {f"{path} {version}" for path, version in found.items() if version not in (None, self._left.get(path))}
        return saved | ({"a displaced file"} if self._guard.has_left else set())
