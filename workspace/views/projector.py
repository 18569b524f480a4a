"""Keep the readable files near the moment, at no more than 5% of the time.

All files that are written only for reading or salvage share one budget: a file is written when the time since the last
such write is at least 20 times what that took, the one that has waited longest first. So files follow closely on a fast
disk and slowly on a slow one, without a setting. At a stop everything is written. Where writing is a request, the run
continues meanwhile; the time still counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from .. import journal
from ..journal import blobs
from ..state import FILES, AgentMoment, Moment, RowLog
from ..store import Store
from . import projection
from .conversation import MessageFile
from .guarded_files import AtOnce, Behind, ViewGuard

SHARE = 20
_UNDER_WAY = float("inf")
"""When the next write is due while one of the projector's own has not ended."""
_LOOK_AGAIN = 0.02
"""Seconds until the next check whether a write has ended, or its records are being written."""


class Document(Protocol):
    """One or a few files that belong together."""

    def write(self) -> bool | None:
        """Bring the files, or one of them, up to the moment, except one that a person has saved since. True if others
        wait."""


class Projector:
    """Decides what is written when. Used from one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, behind: Behind | None = None):
        self.wake: Callable[[float], None] | None = None
        """Called with a delay in seconds after which `catch_up` has something to do."""
        self.is_ahead: Callable[[], bool] = lambda: False
        """Whether the moment says something that is not on its way to the storage yet. Then nothing is written."""
        self.check: Callable[[], None] = lambda: None  # raises the error of a journal that was given up
        self._clock = clock
        self._behind = behind or AtOnce()
        self._behind.on_idle = self._landed
        self._began = 0.0  # of the current write
        self._due = 0.0
        self._dirty: dict[Document, None] = {}  # longest dirty first
        self._awaited = False

    def mark(self, *documents: Document) -> None:
        """They have changed: write them now if the budget allows and all records that they show are being written, else
        later."""
        for document in documents:
            self._dirty.setdefault(document)
        self.look()

    def look(self) -> None:
        """Write what is due. Call it whenever `is_ahead` has become false."""
        while self._dirty and not self.is_ahead() and self._clock() >= self._due:
            self._write_neediest()
        self._ask_to_be_woken()

    def want(self, document: Document) -> None:
        """`document` is about to change: write it later."""
        self._dirty.setdefault(document)
        self._ask_to_be_woken()

    def catch_up(self) -> None:
        """Write what is due, after `wake`."""
        self._awaited = False
        if self._behind.is_idle:
            self.look()
        else:
            self._ask_to_be_woken()

    def drop(self, document: Document) -> None:
        """`document` is no longer needed."""
        self._dirty.pop(document, None)

    @property
    def is_done(self) -> bool:
        """Whether every file shows the moment."""
        return not self._dirty and self._behind.is_idle

    def write_all(self) -> None:
        """When this returns, every file shows the moment, and all of it is durable. Raises the error of a journal that
        another thread has given up: then the moment is in no storage."""
        if self.is_ahead():
            self.check()
            raise AssertionError("records wait to be written")
        while self._dirty:
            self._write_neediest()
        self._behind.wait()

    def _ask_to_be_woken(self) -> None:
        if self._dirty and self.wake and not self._awaited:
            self._awaited = True
            is_known = self._behind.is_idle and self._due != _UNDER_WAY and not self.is_ahead()
            self.wake(max(0.0, self._due - self._clock()) if is_known else _LOOK_AGAIN)

    def _write_neediest(self) -> None:
        document = next(iter(self._dirty))
        del self._dirty[document]
        if self._due != _UNDER_WAY:
            self._began = self._clock()
        self._due = _UNDER_WAY
        try:
            if document.write():
                self._dirty[document] = None
        finally:
            if self._behind.is_idle:
                self._landed()

    def _landed(self) -> None:
        """A write has ended. In any thread, also for writes of others."""
        if self._due == _UNDER_WAY:
            ended = self._clock()
            self._due = ended + SHARE * (ended - self._began)


class ViewDocument:
    """One file, with what `made` returns at each write; none while that is None."""

    def __init__(self, files: ViewGuard, path: str, made: Callable[[], bytes | None]):
        self._files, self._path, self._made = files, path, made

    def write(self) -> None:
        if (data := self._made()) is not None:
            self._files.replace(self._path, data)


class StepsDocument:
    """steps/ as a whole: writes new results of the open scopes, one file at a time, the newest first; removes files
    that are no longer needed."""

    def __init__(self, files: ViewGuard, moment: Moment, agent: AgentMoment, shown: dict[str, journal.OfCall]):
        self._files, self._moment, self._agent = files, moment, agent
        self._shown = shown

    def forget(self, path: str) -> None:
        """A person has removed or changed this file, so write it again."""
        self._shown.pop(path, None)

    def write(self) -> bool:
        wanted = {file.path: file.record for file in projection.step_files(self._agent, self._files.steps_shown)}
        for path in sorted(self._shown.keys() - wanted.keys()):
            del self._shown[path]
            self._files.remove(path)
        behind = [path for path, step in wanted.items() if self._shown.get(path) is not step]
        for path in behind[:1]:
            step = self._shown[path] = wanted[path]
            self._files.replace(path, projection.step_file(self._moment, step))
        return len(behind) > 1


class MessagesDocument:
    """The file of a log."""

    def __init__(self, file: MessageFile, log: RowLog):
        self.file, self._log = file, log

    def write(self) -> None:
        lines, self._log.new_messages = self._log.new_messages, []
        self.file.write(lines)
        self._log.messages_at, self._log.left_out = self.file.at, self.file.left_out


class HeldDocument:
    """files/ as a whole: writes one changed file at a time, and removes those that are gone."""

    def __init__(self, files: ViewGuard, store: Store, agent: AgentMoment):
        self._files, self._store, self._agent = files, store, agent
        self.shown: dict[str, int] = {}
        """The versions that the files have, by path; of one that a person has saved since, the version it had before.
        0: an older one than is known."""
        self._asked: dict[str, int] = {}  # the versions that they have or are about to have, unless a person saves them
        self._behind: list[str] = []

    def are_shown(self, versions: Mapping[str, int]) -> None:
        self.shown |= versions
        self._asked |= versions

    def forget(self, path: str) -> None:
        """What a person has saved or removed is settled: write the file again if that is not what is recorded."""
        self._asked.pop(path, None)

    def write(self) -> bool:
        wanted = self._agent.files
        for path in sorted(self._asked.keys() - wanted.keys()):
            self.forget(path)
            self.shown.pop(path, None)
            self._files.remove(FILES + path)
        self._behind = self._behind or self._found_behind()
        if self._behind and (file := wanted.get(path := self._behind.pop())) is not None:
            self._asked[path] = file.version
            data = blobs.fetch_file(self._store, file.content)
            self._files.replace(FILES + path, data, partial(self.shown.__setitem__, path, file.version))
        return bool(self._behind or self._found_behind())

    def _found_behind(self) -> list[str]:
        """The last is written first."""
        return [path for path, file in self._agent.files.items() if self._asked.get(path) != file.version][::-1]


class Files:
    """The documents of one agent."""

    def __init__(
        self,
        guard: ViewGuard,
        moment: Moment,
        agent: AgentMoment,
        messages: MessageFile,
        shown: dict[str, journal.OfCall],
    ):
        self.state = ViewDocument(
            guard, f"{agent.folder}{projection.STATE}", partial(projection.state_file, moment, agent)
        )
        self.todo = ViewDocument(
            guard,
            f"{agent.folder}{projection.TODO}",
            lambda: projection.todo_file(moment, agent) if agent.has_plan else None,
        )
        self.steps = StepsDocument(guard, moment, agent, shown)
        self.messages = MessagesDocument(messages, agent)
        self.logs: dict[str, MessagesDocument] = {}  # by key
        self.held: HeldDocument | None = None

    def mark_all(self, projector: Projector) -> None:
        more: list[Document] = [*self.logs.values(), *([self.held] if self.held is not None else [])]
        projector.mark(self.messages, *more, self.steps, self.todo, self.state)

    def write_rows(self) -> None:
        """Bring the conversation and the logs up to the moment."""
        for document in (self.messages, *self.logs.values()):
            document.write()
