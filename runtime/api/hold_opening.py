"""A workspace that a program holds, from taking it to releasing it: what it appends and puts, and what people save
meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ...workspace.base import Conflicting, Refused, SatchelError
from ...workspace.formats import pause_file
from ...workspace.inbound import Side, saved_files
from ...workspace.inspect import Look, Report, lease, look
from ...workspace.journal import FileWritten, Message, ScopeCommitted, blobs
from ...workspace.lifecycle import opening
from ...workspace.state import FILES, ROOT, RowLog, log_key
from ...workspace.store import Store
from ...workspace.views import MessageRow, conversation
from ..execution import EditRecorder
from ..live import SavedFiles

_LOOK = 0.5
"""Seconds between two looks at what people have saved; in a bucket, where a look is a request:"""
_REMOTE_LOOK = 10.0

_OURS: Mapping[str, Side] = {"": "ours"}
"""A conflict in a state.json or todo.md stops no program: the person's version is kept next to the file."""

_SHARE = 20
"""Looks take at most the twentieth part of the time, however many files there are."""


class HoldOpening:
    """The workspace, from taking it to releasing it."""

    def __init__(self, store: Store, kind: str, poke: Callable[[], None], *, take_over: bool, adopt: bool):
        """`poke` is called when `due` has changed: the time from which `catch_up` has something to do."""
        self.store, self.due, self._poke = store, float("inf"), poke
        self._stack = ExitStack()
        seen = _checked(look(store), kind, store.url)
        _refuse_paused(store)
        self.workspace = self._stack.enter_context(
            opening.opened(
                store, "hold", Report(), seen=seen, choices=_OURS, take_over=take_over, adopt=adopt, backs_up=True
            )
        )
        try:
            self.moment = self.workspace.moment
            self._saved = SavedFiles(self.workspace, lambda kind, text: None)
            self._recorder = EditRecorder(self.workspace, self._saved)
            self._looked, self._rest = time.monotonic(), _REMOTE_LOOK if store.abilities.remote else _LOOK
            self.workspace.projector.wake = self._wake
            self.workspace.projector.catch_up()
        except BaseException:
            self.leave()
            raise

    def _wake(self, delay: float) -> None:
        self.due = time.monotonic() + delay
        self._poke()

    @property
    def has_failed(self) -> bool:
        try:
            self.workspace.journal.check()
        except SatchelError:
            return True
        return False

    def close(self) -> None:
        """Bring every readable file up to date, and release it."""
        with self._stack:
            self.workspace.projector.wake = None
            self.workspace.close()

    def leave(self) -> None:
        """Release it as it is."""
        self._stack.close()

    # Writing

    def append(self, log: str, rows: Sequence[Message], key: str) -> int:
        root, journal = self.moment.root, self.workspace.journal
        known = self._log(log)
        if known is not None and key in known.appended:
            return known.appended[key]
        self.workspace.redactor.check_name(key)
        if not rows:
            newest = next(self.newest_first(log), None)
            return newest.seq if newest is not None else 0
        try:
            for row in rows:
                journal.add(row)
            journal.add(ScopeCommitted(scope=ROOT, key=key))
        except SatchelError:
            journal.flush()  # alone they count for nothing
            raise
        journal.flush()
        last = journal.next_seq - 2
        files, file_key = self.workspace.files[""], log_key("", log)
        if log and file_key not in files.logs:
            place = next(place for place in root.row_logs if place.key == file_key)
            self.workspace.join_log("", *place)
        self._show(files.logs[file_key] if log else files.messages)
        return last

    def check_version(self, path: str, expected: int | None) -> None:
        """Conflicting unless the file has this version."""
        file = self.moment.root.files.get(path)
        version = file.version if file is not None else 0
        if expected is not None and version != expected:
            was = f"version {version} of it is there, by record {version}" if version else "it is not there"
            raise Conflicting(
                f"has not version {expected}",
                path=FILES + path,
                why=was,
                remedy="get the file again, and make the change in what it says now",
            )

    def _check_place(self, path: str) -> None:
        """Conflicting if a folder can't show this file next to the others."""
        files, parts = self.moment.root.files, path.split("/")
        if path in files:
            return
        above = ("/".join(parts[:length]) for length in range(1, len(parts)))
        other = next((each for each in above if each in files), None)
        other = other or next((each for each in files if each.startswith(f"{path}/")), None)
        if other is not None:
            raise Conflicting(
                "would be a file and a folder",
                path=FILES + path,
                why=f"there is the file {FILES}{other}",
                remedy="use another path, or remove that file first",
            )

    def put(self, path: str, data: bytes) -> int:
        journal = self.workspace.journal
        self._check_place(path)
        data = self.workspace.redactor.file(FILES + path, data)
        saved = blobs.keep_file(self.store, data, journal.generation)
        version = journal.add(FileWritten(path=path, content=saved))
        self._written()
        return version

    def remove(self, path: str) -> bool:
        if path not in self.moment.root.files:
            return False
        self.workspace.journal.add(FileWritten(path=path))
        self._written()
        return True

    def _written(self) -> None:
        self.workspace.journal.flush()
        held = self.workspace.files[""].held
        assert held is not None
        self._show(held)

    def _show(self, *documents: Any) -> None:
        self.workspace.projector.mark(*documents, self.workspace.files[""].state)

    # Reading

    def newest_first(self, log: str) -> Iterator[MessageRow]:
        """The rows of a log."""
        known = self._log(log)
        if known is not None:
            yield from reversed(conversation.follow((), known.new_messages))
            yield from self.workspace.messages[log_key("", log)].newest_first()

    def _log(self, name: str) -> RowLog | None:
        root = self.moment.root
        return root.logs.get(name) if name else root

    def is_edited(self, log: str) -> bool:
        """Whether a person has changed it: then its rows may not be in the order of their numbers."""
        return not log and conversation.NAME in self.moment.root.edits

    # Keeping up with people

    def keep_up(self) -> None:
        """After a call: a checkpoint, if one is due."""
        self.workspace.checkpoint_if_due()

    def catch_up(self) -> None:
        self.due = float("inf")
        self.workspace.projector.catch_up()

    def take_edits(self, paths: Sequence[str]) -> None:
        """Record what people have saved, if it is time to look, or if one of `paths` has changed."""
        guard, store, now = self.workspace.guard, self.store, time.monotonic()
        if now - self._looked < self._rest:
            left = [] if store.abilities.remote else [path for path in paths if guard.is_left(path)]
            left = [path for path in left if path not in store.folders(path.rpartition("/")[0])]
            if not left:
                return
            guard.versions |= {path: guard.versions.get(path) for path in left}  # one may be a new file of a person
        else:
            self._looked = now
            if store.abilities.remote:
                store.refresh()
            _refuse_paused(store)
            for path in saved_files(store):
                guard.versions.setdefault(path, None)
        self._saved.look()
        self._rest = max(self._rest, _SHARE * (time.monotonic() - now))
        held = self._saved.read()
        if not held:
            return
        shown, files = self.workspace.files[""].held, self.moment.root.files
        assert shown is not None
        moved_on = [
            path
            for path in held
            if path.startswith(FILES)
            and (known := files.get(name := path.removeprefix(FILES))) is not None
            and (shown.shown.get(name) != known.version or guard.is_put_back(path))
        ]
        noticed = self._recorder.judge(held, moved_on)
        if noticed is not None:
            self._recorder.turn_away(noticed, held)
            self._recorder.take(noticed, held)


def _checked(seen: Look, kind: str, url: str) -> Look:
    """The look, if it is a workspace of this kind."""
    found = seen.definition.kind
    if found != kind:
        what = f"is held as {found!r}, not as {kind!r}" if found else f"is the run of an agent, and can't be a {kind!r}"
        raise Refused(what, path=url, remedy="use another folder" + (", or the kind that it has" if found else ""))
    return seen


def _refuse_paused(store: Store) -> None:
    """Refused if a person has paused it."""
    if store.version(pause_file.PATH) is None:
        return
    file = lease.read_pause(store)
    if file is not None and not file.lets_go_on:
        raise Refused(
            "a person has paused this workspace",
            path=pause_file.PATH,
            why=file.reason or None,
            remedy="remove the file, and programs go on",
        )
