"""A run at another place: moved or copied there; its backup, a copy that follows it; and going on from one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from msgspec import Struct, field

from ...workspace import transfer
from ...workspace.base import DEFINITION, SatchelError, UsageError, arguments, myself, urls, visible
from ...workspace.inspect import BackupNote, below, define, lease, transfer_file
from ...workspace.lifecycle import LOOK, Follower, Replica, backup_place, place_for
from ...workspace.store import DiskStore, Store, make_place, open_store
from ...workspace.transfer import Tell, TransferResult
from ..status import Place, in_a_thread, target, use_options
from .stops import stop_one

_AT_ONCE = 16
_FIND = 5.0
"""Seconds between two searches for new workspaces."""

_IDLE = 2.0
"""Seconds between two looks at a workspace that no process has."""


def carry(
    place: Place,
    do: Callable[..., TransferResult],
    to: str | os.PathLike[str],
    *,
    by: str | None,
    progress: Tell | None,
    storage_options: Mapping[str, Any] | None,
) -> TransferResult:
    """Bring it to `to` by `transfer.copy`, `move` or `restore`."""
    by = arguments.text("by", by or myself())
    arguments.function("progress", progress)
    with transfer.destination(target(to, storage_options), place.store) as there:
        return do(place.store, there, by=by, tell=progress or (lambda *_: None))


class RunBackup:
    """The backup of one run. Made by `Handle.backup`."""

    def __init__(self, place: Place):
        self._place = place

    def __repr__(self) -> str:
        return f"<RunBackup of {visible(self._place.url)}>"

    @in_a_thread
    def replicate(
        self,
        to: str | os.PathLike[str] | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> BackupNote:
        """Bring the backup of a run on a disk up to date: a copy at `to`, or where `backup:` of workspace.yaml says. It
        is made if there is none. `{run_id}` and `{name}` in `to` are replaced.

        The run may be active. Every later start lets the copy follow. `progress` is called with the number of files of
        a first copy that are done, and the total. LeaseHeld if the run was restored from the backup to another place.
        """
        arguments.function("progress", progress)
        store = _on_disk(self._place.store)
        where = _where(store, None if to is None else arguments.target("to", to))
        use_options(where, storage_options)
        if not urls.is_remote(where):
            make_place(where)
        replica = Replica(store, open_store(where), define(store).run_id)
        replica.begin(tell=progress or (lambda done, total: None))
        replica.complete(is_last=True)
        follower = Follower(store, where, replica.run_id)
        follower.say("ended", replica.left_out, seq=replica.seq)
        return follower.note

    replicate_async = replicate.without_blocking

    @in_a_thread
    def restore(
        self,
        to: str | os.PathLike[str],
        *,
        again: bool = False,
        nothing_after: bool = False,
        by: str | None = None,
        progress: Tell | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> TransferResult:
        """Go on from this backup at `to`, a folder or URL that is empty or missing, because the machine of the run is
        lost. From here on the lost owner is fenced off: if it comes back, it stops.

        The run at `to` asks a person before each effect that has no record here, since the lost owner may have done it
        after the last record of the backup. `nothing_after`: it has certainly not. `again`: also if the run was
        restored to another place before, which is lost as well. `progress` and `storage_options` as in `move`.
        """
        do = partial(transfer.restore, again=again, certain=nothing_after)
        return carry(self._place, do, to, by=by, progress=progress, storage_options=storage_options)

    restore_async = restore.without_blocking


def _on_disk(store: Store) -> DiskStore:
    if not isinstance(store, DiskStore):
        raise UsageError(
            "has no backup",
            path=store.url,
            why="a backup follows a run on a disk, and this one lies in a storage of its own",
            remedy="let the storage keep versions, or copy it with `satchel copy`",
        )
    transfer_file.refuse_backup(store)
    return store


def _where(store: Store, typed: str | None) -> str:
    definition = define(store)
    urls.check_text(store.url)
    if typed and not urls.is_remote(typed):
        typed = os.path.abspath(urls.local(typed))
    place = backup_place(typed, store, definition.run_id) if typed else place_for(store, definition)
    if not place:
        raise UsageError(
            "has no place for a backup",
            path=store.url,
            remedy=f"name one: `satchel replicate {store.url} s3://bucket/backups/{{run_id}}`, or write `backup:` into "
            f"{DEFINITION}",
        )
    urls.check_text(place)
    return place


# All below a root


class BackupEvent(Struct, frozen=True):
    """A backup has come into another state. `kind` is that of its note; `text` is for people."""

    kind: str
    folder: str
    to: str
    seq: int
    text: str


class _Followed(Struct, eq=False):
    folder: str
    follower: Follower
    due: float = 0.0  # by time.monotonic
    told: str = ""
    step: Future[float | None] | None = None
    is_over: bool = False


class Replication(Struct, eq=False):
    """All workspaces below `root`, or the one that is there, each followed by its copy below `to`."""

    root: str
    to: str | None
    tell: Callable[[BackupEvent], None]
    once: bool = False
    over: threading.Event = field(default_factory=threading.Event)
    _found: dict[str, _Followed] = field(default_factory=dict)
    _found_at: float = -_FIND

    def run(self) -> list[BackupNote]:
        """Until `over` is set; with `once` until each copy is up to date, as far as that is possible. Returns the last
        note of each."""
        with ThreadPoolExecutor(_AT_ONCE, "satchel-replicate") as threads:
            while not self.over.is_set():
                self._find()
                if not self._found and (self.once or self.to is None):
                    break  # with a place for all, workspaces may still come
                for each in self._found.values():
                    self._look(each, threads)
                if self.once and all(each.is_over for each in self._found.values()):
                    break
                self.over.wait(LOOK / 2)
            if not self.once:
                self._finish(threads)
        return [each.follower.note for each in self._found.values()]

    def _look(self, each: _Followed, threads: ThreadPoolExecutor) -> None:
        if each.step is not None and each.step.done():
            wait, each.step = each.step.result(), None
            self._say(each)
            if wait is None or self.once:
                each.is_over = True
            is_idle = wait is not None and lease.holder(each.follower.store) is None
            each.due = time.monotonic() + max(wait or 0.0, _IDLE if is_idle else 0.0)
        if each.step is None and not each.is_over and time.monotonic() >= each.due:
            each.step = threads.submit(each.follower.step, is_last=self.once)

    def _finish(self, threads: ThreadPoolExecutor) -> None:
        """Send what is left."""
        for each in self._found.values():
            if each.step is not None:
                each.step.result()
            if not each.is_over:
                each.step = threads.submit(each.follower.step, is_last=True)
        for each in self._found.values():
            if not each.is_over and each.step is not None:
                each.step.result()
                self._say(each)

    def _find(self) -> None:
        if time.monotonic() - self._found_at < _FIND or (self.once and self._found):
            return
        self._found_at = time.monotonic()
        for folder in below(self.root):
            if folder not in self._found:
                with nullcontext() if folder == self.root else suppress(SatchelError):  # `ls` says what is wrong
                    self._found[folder] = _Followed(folder, self._follower(folder))
        for folder in [folder for folder in self._found if not os.path.isdir(folder)]:
            del self._found[folder]

    def _follower(self, folder: str) -> Follower:
        store = _on_disk(open_store(folder))
        inside = os.path.relpath(folder, self.root).replace(os.sep, "/")
        definition = define(store)
        typed = self.to
        if typed is not None and inside != "." and "{" not in typed:
            typed = f"{typed.rstrip('/')}/{inside}"
        where = place_for(store, definition) if definition.backup or typed is None else ""
        where = where or _where(store, typed)
        follower = Follower(store, where, definition.run_id)
        follower.on_lost = lambda error: _stop(store, folder)
        return follower

    def _say(self, each: _Followed) -> None:
        note = each.follower.note
        if note.state == each.told:
            return
        each.told = note.state
        text = f"record {note.seq:,} is at {note.to}" if note.state in ("following", "ended") else ""
        text = "; ".join(filter(None, (text, note.why)))
        self.tell(BackupEvent(note.state, each.folder, note.to, note.seq, text))


def _stop(store: Store, folder: str) -> None:
    """The run goes on elsewhere. A process that runs it here may not look at the backup itself."""
    if lease.holder(store) is not None:
        stop_one(Place(store, folder), "it was restored from its backup", None)
