"""A thread of the process that has a run: its copy follows. Nothing waits for it, but for two things, each for a few
seconds: the first effect of an opening waits until the copy was looked at, since the run may have been restored from it
meanwhile; and the end of an opening waits for the last records, unless the place can't be reached.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from ..base import LeaseHeld, SatchelError, StorageFailed, UsageError, urls
from ..formats import Definition
from ..inspect import BackupNote, BackupState, transfer_file
from ..journal import now
from ..store import DiskStore, Store, make_place, open_store
from .replica import Replica, backup_place

LOOK = 0.25
"""Seconds between two looks at the journal."""

_REST = 0.85  # between the begins of two rounds that send something: a record is there within a second
_SHARE = 20  # the readable files follow so rarely that it takes a twentieth of the time
_RARELY = 10.0  # and without a commit after so many seconds
_SOON = 5.0
_REQUEST = 5.0  # a request is repeated for so many seconds
_AWAY = (1.0, 2.0, 5.0)  # before the next attempt to reach the place
_REFUSED = 60.0
FIRST_LOOK = 5.0
"""Seconds that the first effect of an opening waits for the look at the copy."""
_LAST = 10.0
_LAST_AWAY = 1.0


class Follower:
    """The copy of the run in `store` at `place`, kept up to date: by a thread (`begin` and `end`), or by who calls
    `step`."""

    def __init__(self, store: DiskStore, place: str, run_id: str):
        self.place, self.run_id = place, run_id
        self.looked = threading.Event()
        """The copy was seen, or can't be."""
        self.store = store
        known = transfer_file.read_note(store)
        is_of_it = known is not None and (known.run_id, known.to) == (run_id, place)
        self.note = known if known is not None and is_of_it else BackupNote(run_id=run_id, to=place, state="away")
        self.on_lost: Callable[[LeaseHeld], None] = lambda error: None
        """Called, in the thread, if the run is at another place now."""
        self.on_state: Callable[[], None] = lambda: None
        """Called, in the thread, when the backup has come into another state."""
        self.told: BackupState | None = None
        """The last state that `on_state` was called with: who sets that later looks here after it."""
        self._replica: Replica | None = None
        self._tries = 0
        self._due = self._rests_until = 0.0  # for the readable files, by time.monotonic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="satchel-backup", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Send what is left, but don't wait long for it. Does nothing without `begin`."""
        self._over.set()
        is_away = self.note.state in ("away", "refused") and self.note.since  # else it may be the first attempt
        if self._thread.ident is not None:
            self._thread.join(_LAST_AWAY if is_away else _LAST)

    def _run(self) -> None:
        while True:
            is_last = self._over.is_set()
            wait = self.step(is_last=is_last)
            self.looked.set()
            if is_last or wait is None:
                return
            self._over.wait(wait)

    def step(self, *, is_last: bool = False) -> float | None:
        """Send what is new; if it `is_last`, with all files. Returns the seconds until the next step, or None if the
        run is at another place now. Trouble is written down for people (`note`), and does not stop anything."""
        if self.note.state == "adopted":
            return None  # a person has said that the run goes on here all the same
        try:
            if self._replica is None:
                self._replica = self._reach()
            return self._round(self._replica, is_last=is_last)
        except LeaseHeld as error:
            self.say("overtaken", error)
            self.on_lost(error)
            return None
        except Exception as error:  # a bucket's library may be missing, or raise anything
            self._replica = None
            is_away = isinstance(error, StorageFailed | OSError)
            self.say("away" if is_away else "refused", error)
            self._tries += 1
            return _AWAY[min(self._tries, len(_AWAY)) - 1] if is_away else _REFUSED

    def _reach(self) -> Replica:
        if not urls.is_remote(self.place):
            make_place(self.place)
        replica = Replica(self.store, open_store(self.place, patience=_REQUEST), self.run_id)
        try:
            replica.begin()
        except LeaseHeld:
            mark = transfer_file.read_mark(replica.to)
            self.note = replace(self.note, restored=mark.restored if mark is not None else None)
            raise
        self._tries = 0
        return replica

    def _round(self, replica: Replica, *, is_last: bool) -> float:
        began = time.monotonic()
        is_due = is_last or began >= (min(self._due, self._rests_until) if replica.shows else self._due)
        if is_due:
            replica.complete(is_last=is_last)
            took = time.monotonic() - began
            self._rests_until = began + max(_SOON, _SHARE * took)
            self._due = began + max(_RARELY, _SHARE * took)
        elif not replica.follow():
            return LOOK
        self.say("ended" if is_last else "following", replica.left_out, seq=replica.seq)
        return max(LOOK, _REST - (time.monotonic() - began))

    def say(self, state: BackupState, why: Exception | str, seq: int | None = None) -> None:
        """Write it down for `status`."""
        since = self.note.since if state == self.note.state else now()
        seq = self.note.seq if seq is None else seq
        at = now() if state in ("following", "ended") else self.note.at
        said = replace(self.note, state=state, seq=seq, at=at, since=since, why=_words(why))
        is_new = replace(said, at="") != replace(self.note, at="")
        self.note = said
        if state != self.told:
            self.told = state
            self.on_state()
        if is_new:
            with suppress(SatchelError, OSError):  # it is only for people, and the folder may be gone
                self.store.replace(
                    transfer_file.BACKUP_NOTE, transfer_file.encode(said), sync="data" if state == "overtaken" else "no"
                )


def _words(why: Exception | str) -> str:
    return str(why) if isinstance(why, SatchelError | str) else f"{type(why).__name__}: {why}"


@contextmanager
def following(store: Store, definition: Definition | None, *, adopt: bool) -> Iterator[Follower | None]:
    """The follower for an opening, which begins it. None if the run has no copy, or (without a definition) it does not
    follow this opening.

    LeaseHeld if the run was restored from its copy to another place, and no person has said that it goes on here, by
    `adopt`."""
    follower = _made(store, definition, adopt=adopt)
    try:
        yield follower
    finally:
        if follower is not None:
            follower.end()


def _made(store: Store, definition: Definition | None, *, adopt: bool) -> Follower | None:
    note = transfer_file.read_note(store)
    if note is not None and note.state == "overtaken":
        if not adopt:
            raise LeaseHeld(note.why)
        note = replace(note, state="adopted", since=now())
        store.replace(transfer_file.BACKUP_NOTE, transfer_file.encode(note), sync="data")
    if definition is None or not isinstance(store, DiskStore):
        return None
    note = note if note is not None and note.run_id == definition.run_id else None
    try:
        place = _place(store, definition, note)
    except UsageError as error:
        refused = BackupNote(
            run_id=definition.run_id, to=definition.backup, state="refused", since=now(), why=str(error)
        )
        store.replace(transfer_file.BACKUP_NOTE, transfer_file.encode(refused), sync="no")
        return None
    if not place or (note is not None and note.state == "adopted" and note.to == place):
        return None
    return Follower(store, place, definition.run_id)


def place_for(store: Store, definition: Definition) -> str:
    """Where the copy of the run is, by workspace.yaml, or else by what `satchel replicate` has left. Empty: nowhere.
    UsageError for a place that can't be one."""
    note = transfer_file.read_note(store)
    return _place(store, definition, note if note is not None and note.run_id == definition.run_id else None)


def _place(store: Store, definition: Definition, note: BackupNote | None) -> str:
    if definition.backup:
        return backup_place(definition.backup, store, definition.run_id)
    return note.to if note is not None else ""
