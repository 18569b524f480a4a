"""Take a workspace: only where its run is at home, and for one writer.

A copied folder makes two of a run, and if both continued, both would act. So `judge` decides whether a run may be
opened at a place where it was not opened last. It only reads: the last opening in the journal, what `satchel move` and
`copy` have left, and the old place if it can be seen from here. After an adoption a person may end the run at the other
place (`end_other`). Nothing else does: adopting a backup must not stop the original.

`owned` takes it: by the lock of a disk; elsewhere by a fence in the journal and heartbeats. A process that has a
workspace without a lock writes its lease again and again: its heartbeats. They only decide when another process *tries*
to take the workspace: after it has seen no heartbeat for the whole time-to-live by its own clock. The journal's fences
decide who has it. An owner that could not write in time begins no effect until it could again, and has seen that no
other process has it.
"""

from __future__ import annotations

import math
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from .. import journal
from ..base import DEFINITION, LeaseHeld, Refused, SatchelError, StorageFailed, UsageError, taken_over, urls, version
from ..inspect import PATH, Lease, Look, Signature, Tombstone, lease, look, read_definition, signature, transfer_file
from ..journal import (
    Journal,
    Line,
    RestoredFrom,
    SegmentObjects,
    Tail,
    check_newest,
    fence,
    new_opening,
    now,
    segment_path,
)
from ..state import Moment
from ..store import FileChanged, RemoteStore, Store, check_conditional_puts, open_store

TTL_VARIABLE = "SATCHEL_LEASE_TTL"
_TTL = 30.0
_BEATS = 4  # in each time-to-live
_MARGIN = 0.9  # of it; a waiting process waits for the whole
_LOOKS = 8
_LAST_TRIES = 3  # to free the workspace
_PATIENCE = 2.0  # seconds for a heartbeat that is being written at the end

_HOPS = 8  # tombstones that are followed
_VISIBLE = ("s3://",)
"""Where else than on this machine's disk the old place is read. A stranger may have written the journal: it must not
make this machine connect to any address that it names."""


class Adoption(NamedTuple):
    """The run may be opened."""

    says: str  # for the opening report; empty if it was not opened elsewhere before
    home: str = ""  # the place that the journal continues to name, if it is not this one
    restored: RestoredFrom | None = None  # it comes from a backup, and was not opened since


class _Old(NamedTuple):
    """What the old place is like."""

    kind: Literal["left", "moved here", "holds it", "unseen"]
    state: str = ""  # details of the holder, if there are any
    url: str = ""
    by: str = ""  # of a run that was moved here: who did it
    at: str = ""


def judge(
    store: Store, moment: Moment, old_url: str, old_host: str, *, adopt: bool = False, reaches_out: bool = True
) -> Adoption:
    """Whether the run in `store` may be opened there. It was last opened at `old_url` by a process on `old_host`; both
    are empty if unknown. UsageError if a person has to confirm it, by `adopt`.

    It may if the old place no longer has it, or can't be seen and the run was closed normally, unless it is a copy by
    `satchel copy`. The same path on another machine is the same place: containers get a new host name at each start.
    Unless it `reaches_out`, only this machine's disk is read, and the next run has to look elsewhere.
    """
    urls.check_text(store.url)
    note = transfer_file.read(store)
    note = note if note is not None and note.to == store.url and note.run_id == moment.run_id else None
    if note is not None and note.lost is not None and note.began != moment.restored:
        says = f"it was restored from its backup {note.source}, by {note.by} at {note.began}"
        lost = note.lost
        return Adoption(says, "", RestoredFrom(note.source, lost.source, lost.seq, lost.at, note.began, lost.certain))
    if not old_url or _is_same(store.url, old_url):
        return Adoption("")
    if note is not None and note.kind == "move" and note.source == old_url:
        return Adoption(_moved(old_url, note.by, note.began))
    copied = ""
    if note is not None and note.kind == "copy":
        copied = f"; {note.by} copied it from {note.source} at {note.began}"
    elif (exported := transfer_file.read_export(store)) is not None and exported.run_id == moment.run_id:
        copied = f"; it was exported from {exported.url}"
    if adopt:
        return Adoption(f"it was opened at {old_url} before; this place adopts it, as --adopt says{copied}")
    old = _look_at(store, moment, old_url, old_host, _VISIBLE if reaches_out else ())
    match old.kind:
        case "moved here":
            return Adoption(_moved(old_url, old.by, old.at))
        case "left":
            return Adoption(f"it was opened at {old_url} before, and is no longer there; this place adopts it")
    if moment.clean and not copied and old.kind == "unseen":
        was = f"it was opened at {old_url}{_on(old_host)} before, and was closed there"
        if not reaches_out and old_url.startswith(_VISIBLE):
            return Adoption(f"{was}; `satchel resume` checks whether it is still there", old_url)
        return Adoption(f"{was}; this place adopts it")
    raise _asked(store, moment, old, old_url, old_host, is_copy=bool(copied))


class Other(NamedTuple):
    """A place that has the run besides this one."""

    says: str
    url: str  # empty if it can't be reached from here


def other(store: Store, moment: Moment, *, reaches_out: bool = True) -> Other | None:
    """What a person has to confirm by `adopt`; None if there is nothing to confirm. `reaches_out` as in `judge`."""
    try:
        judge(store, moment, moment.url, moment.host, reaches_out=reaches_out)
    except UsageError as asked:
        old = _look_at(store, moment, moment.url, moment.host, _VISIBLE if reaches_out else ())
        return Other(f"{asked.what}: {asked.why}", old.url)
    return None


def end_other(store: Store, *, by: str) -> str:
    """Leave at the other place what `satchel move` leaves: nothing starts there any more, and its files stay. Returns
    its URL.

    In a bucket a fence stops a process that runs it there, before its next effect. LeaseHeld if one runs it on a disk.
    UsageError if the run is nowhere else, or that place can't be reached from here.
    """
    moment = look(store).moment
    elsewhere = other(store, moment)
    if elsewhere is None or not elsewhere.url:
        raise UsageError(
            "the run can't be ended elsewhere",
            path=store.url,
            why=elsewhere.says if elsewhere else "no other place is known that has it",
            remedy="stop it at that place: `satchel cancel` there ends it" if elsewhere else "",
        )
    old = open_store(elsewhere.url)
    stone = Tombstone(run_id=moment.run_id, to=store.url, at=now(), by=by, satchel=version())
    with owned(old, look(old), take_over=True) as mine:
        mine.check_nobody_came(old)
        old.replace(transfer_file.MOVED, transfer_file.encode_tombstone(stone))
    return old.url


def _asked(store: Store, moment: Moment, old: _Old, old_url: str, old_host: str, *, is_copy: bool) -> UsageError:
    if old.kind == "unseen":
        known = f"{old_url}{_on(old_host)} can't be reached from here"
    else:
        known = f"{old.url} still has it{old.state}"
    how = "is a copy, made by `satchel copy` or `satchel export`" if is_copy else "was opened elsewhere before"
    unclean = "" if moment.clean else ", and its last process did not close it"
    ends = "" if old.kind == "unseen" else ", with `--end-other` (`end_other()`) to end it there"
    if moment.kind:
        return UsageError(
            f"{moment.run_id} {how}{unclean}",
            path=store.url,
            why=f"{known}; programs would write to two copies",
            remedy="to go on only here, call `satchel.hold(..., adopt=True)` once",
        )
    here, there = shlex.quote(store.url), shlex.quote(old.url or old_url)
    return UsageError(
        f"the run {moment.run_id} {how}{unclean}",
        path=store.url,
        why=f"{known}; if both copies continue, both act",
        remedy=f"to continue only here, type `satchel resume --adopt {here}` (`resume(adopt=True)` in Python){ends}. "
        f"To bring the run from there instead, remove this copy and type `satchel move {there} {here}`. To have two "
        f"runs, type `satchel fork {here} DST`",
    )


def _look_at(store: Store, moment: Moment, url: str, host: str, visible: tuple[str, ...]) -> _Old:
    seen: set[str] = set()
    while url not in seen and len(seen) < _HOPS:
        seen.add(url)
        if not urls.is_remote(url) and host not in ("", socket.gethostname()):
            return _Old("unseen")
        if urls.is_remote(url) and not url.startswith(visible):
            return _Old("unseen")
        if not urls.is_remote(url) and not os.path.isdir(urls.local(url)):
            return _Old("left")
        try:
            old = open_store(url)
            gone = transfer_file.read_tombstone(old)
            if gone is None or gone.run_id != moment.run_id:
                return _living(old, moment)
        except Exception:  # no network, no permission: it was only for a better message
            return _Old("unseen")
        if _is_same(gone.to, store.url):
            return _Old("moved here", by=gone.by, at=gone.at)
        url = gone.to
    return _Old("unseen")


def _living(old: Store, moment: Moment) -> _Old:
    if old.version(DEFINITION) is None:
        return _Old("left")
    try:
        if read_definition(old).run_id != moment.run_id:
            return _Old("left")
        there = look(old).moment
    except SatchelError:
        return _Old("holds it", ", but its state can't be read", old.url)
    if lease.holder(old) is not None and not there.clean:
        return _Old("holds it", " and a process runs it", old.url)
    if there.seq > moment.seq:
        return _Old(
            "holds it",
            f" and has continued since (it is at record {there.seq}, this copy at record {moment.seq})",
            old.url,
        )
    return _Old("holds it", "", old.url)


def _is_same(one: str, other: str) -> bool:
    one, other = one.rstrip("/"), other.rstrip("/")
    if one == other:
        return True
    try:
        return not (urls.is_remote(one) or urls.is_remote(other)) and os.path.samefile(one, other)
    except OSError:
        return False


def _moved(url: str, by: str, at: str) -> str:
    return f"it was moved here from {url}, by {by} at {at}"


def _on(host: str) -> str:
    return f" on {host}" if host else ""


class Owned(Struct):
    """A workspace that this process has."""

    seen: Look  # as it is now
    epoch: int  # of this owner
    opening: str  # its nonce
    is_new: bool = False  # no process had it before
    took_over: str = ""  # without a lock: the process that had it and did not close it, in words
    fence: Line | None = None  # what comes first in the journal from here on
    segments: SegmentObjects | None = None  # the place for groups, if files can't grow
    heartbeat: Heartbeat | None = None
    lease: Lease | None = None  # that this owner has written to a disk, and not removed

    def begin(self) -> int:
        """From here on the moment belongs to this owner. Returns the seq of its next record."""
        moment = self.seen.moment
        if self.fence is not None and moment.seq < self.fence.seq:
            moment.apply([self.fence])
        return max(self.seen.tail.next_seq, moment.seq + 1)

    def journal(self, store: Store, *, in_thread: bool = False) -> Journal:
        """The place for this owner's records; see `begin`."""
        next_seq, moment = self.begin(), self.seen.moment
        return Journal(
            store,
            epoch=self.epoch,
            next_seq=next_seq,
            apply=moment.add,
            prev=moment.crc,
            opening=self.opening,
            segments=self.segments,
            in_thread=in_thread,
        )

    def check_nobody_came(self, store: Store) -> None:
        """Call it before the first write. LeaseHeld if another process has taken the workspace after this owner's
        fence."""
        if self.fence is None:
            return
        store.refresh(journal.FOLDER)
        newest = journal.segments(store)[-1]
        if newest > self.fence.seq:
            raise taken_over(segment_path(newest), "it has written to the journal")

    def check_has_it(self, store: Store) -> None:
        """LeaseHeld if another process has taken the workspace. It asks the journal, since clocks can be wrong."""
        if self.fence is not None:
            check_newest(store, self.epoch)

    def write_lease(self, store: Store, *, is_brief: bool) -> None:
        """On a disk: for people. Elsewhere the heartbeat has written it."""
        if self.heartbeat is None:
            self.lease = lease.mine(store, self.seen.moment.run_id, self.epoch, is_brief=is_brief)
            store.replace(lease.PATH, lease.encode(self.lease), sync="data")

    def end(self, store: Store) -> None:
        """Its work is done: no other process has to wait for it."""
        if self.heartbeat is None:
            store.remove(lease.PATH)
            self.lease = None

    def leave(self, store: Store) -> None:
        """An error has ended its work before `end`. The lease stays, since the next opening has to repair the
        workspace. But the process may live on, and must not count as the holder."""
        if self.lease is not None:
            with suppress(SatchelError, OSError):  # the storage itself may have failed
                left = replace(self.lease, is_left=True, has_failed=isinstance(sys.exc_info()[1], Exception))
                store.replace(lease.PATH, lease.encode(left))


@contextmanager
def owned(store: Store, seen: Look, *, take_over: bool = False) -> Iterator[Owned]:
    """Have the workspace for the body. LeaseHeld if another process has it.

    `take_over`: the caller has already checked whether the holder is alive, or it does not matter.
    """
    if store.abilities.lock:
        with lease.held(store):
            if signature(store) != seen.signature:
                seen = look(store)
            transfer_file.refuse_moved(store, seen.definition.run_id)
            journal.check_joints(store)
            mine = Owned(seen, seen.moment.epoch + 1, new_opening(), seen.moment.is_new)
            try:
                yield mine
            finally:
                mine.leave(store)
        return
    if not take_over:
        for pause, _ in until_free(store):
            time.sleep(pause)
    mine = _take(store, seen)
    assert mine.heartbeat is not None and mine.segments is not None
    mine.heartbeat.begin()
    try:
        with _asked_by(store, mine):
            yield mine
    finally:
        mine.segments.close()
        mine.heartbeat.end()


@contextmanager
def _asked_by(store: Store, mine: Owned) -> Iterator[None]:
    """While the body runs, the store replaces files of another process only if this owner still has the workspace."""
    if isinstance(store, RemoteStore):
        store.check_owner = partial(mine.check_has_it, store)
    try:
        yield
    finally:
        if isinstance(store, RemoteStore):
            store.check_owner = lambda: None


def _take(store: Store, seen: Look) -> Owned:
    if seen.is_rebuilt:
        raise Refused(
            "the journal is missing",
            path=store.url,
            why="Satchel can rebuild it from the readable files only on a disk",
            remedy="copy everything to a folder, run `satchel recover` there, and move it back",
        )
    if store.abilities.exclusive_create and seen.moment.url != store.url:  # the first opening at this place
        check_conditional_puts(store)
    if seen.tail.torn:
        journal.mend(store, seen.tail)
        seen = look(store)
    again = _Again(store, seen)
    mine = fence(store, seen.moment.epoch, seen.tail, again.look)
    held = lease.mine(store, again.seen.moment.run_id, mine.line.epoch, ttl())
    segments = SegmentObjects(store, mine.path, mine.version, mine.data)
    beats = Heartbeat(store, held)
    is_new = again.seen.moment.is_new  # as of the fence: another process may have begun it since `seen`
    before = None if again.seen.moment.clean else lease.read(store)
    took_over = before.process if before is not None else ""
    return Owned(again.seen, mine.line.epoch, mine.line.opening, is_new, took_over, mine.line, segments, beats)


class _Again:
    """Looks at a workspace again after a fence was written: only at that fence, if nothing else is new."""

    def __init__(self, store: Store, seen: Look):
        self._store, self.seen = store, seen

    def look(self, mine: Line | None) -> tuple[int, Tail]:
        """The epoch and the journal. `mine` is the fence that was written; None if its place was taken."""
        if mine is not None and _is_all_there_is_new(mine, self.seen.signature, signature(self._store)):
            return self.seen.moment.epoch, Tail([mine], mine.seq + 1, mine.crc, segment_path(mine.seq))
        self.seen = look(self._store)  # the moment must also include what others have written meanwhile
        return self.seen.moment.epoch, self.seen.tail


def _is_all_there_is_new(mine: Line, before: Signature, now: Signature) -> bool:
    """Whether the rest of journal/ is unchanged. Not if a move is about to remove it, or if nothing was there that
    could have changed: then only a tombstone tells (inspect/transfer_file.py)."""
    came, went = set(now.files) - set(before.files), set(before.files) - set(now.files)
    if not before.files or any(each.path == transfer_file.LEAVING for each in now.files):
        return False
    return before.definition == now.definition and not went and {each.path for each in came} == {segment_path(mine.seq)}


def ttl() -> float:
    """Seconds. The variable is for tests, which can't wait half a minute. A waiting process uses the holder's value."""
    return float(os.environ.get(TTL_VARIABLE) or _TTL)


def clock() -> float:
    """Seconds, including the time while the machine sleeps, where the system can count them."""
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)  # on this system it counts sleep, by its manual
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Heartbeat:
    """For one opened workspace."""

    def __init__(self, store: Store, lease: Lease, clock: Callable[[], float] = clock):
        self._store, self._lease, self._clock = store, lease, clock
        self._version = store.version(PATH)  # of one who had it before
        self._beaten = -math.inf
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="satchel-heartbeat", daemon=True)
        self.lost: SatchelError | None = None  # another process has it, or it is unknown

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """The workspace is free, unless another process has it. Tries again after a failed request, so that others need
        not wait for an ended process."""
        self._over.set()
        self._thread.join(_PATIENCE)
        if self._thread.is_alive() or self.lost is not None:
            return  # the storage can't be reached: others have to wait for the missing heartbeat
        for _ in range(_LAST_TRIES):
            if not self.is_in_time:
                return
            self._beat()  # a conditional write, because not every storage has conditional DELETEs
            if isinstance(self.lost, LeaseHeld):
                return
            if self.lost is None:
                with suppress(StorageFailed, FileChanged):
                    self._store.remove(PATH, if_version=self._version)
                    return
            self.lost = None

    def check(self) -> None:
        """LeaseHeld if another process has the workspace."""
        if self.lost is not None:
            raise self.lost

    @property
    def is_in_time(self) -> bool:
        """Whether no waiting process can have run out of patience."""
        return self._clock() - self._beaten < _MARGIN * self._lease.ttl

    def _beat_on(self) -> None:
        self._beat()
        while self.lost is None and not self._over.wait(self._lease.ttl / _BEATS if self.is_in_time else 0.05):
            self._beat()

    def _beat(self) -> None:
        began = self._clock()
        self._lease = replace(self._lease, beat=self._lease.beat + 1)
        try:
            try:
                data = lease.encode(self._lease)
                self._version = self._store.exchange(PATH, data, if_version=self._version).version
                self._beaten = began
            except FileChanged:
                self._look_who_has_it()
        except SatchelError as error:
            if self._over.is_set() or not self.is_in_time:
                self.lost = error
        except Exception as error:  # if the thread ended silently, its owner would wait for ever
            self.lost = StorageFailed("can't be written", path=PATH, why=f"{type(error).__name__}: {error}")

    def _look_who_has_it(self) -> None:
        """Another process has written or removed the file, or a late heartbeat of this one has arrived. Of two owners
        the later one has the workspace; one that has ended leaves no file, but its fence."""
        self._store.refresh()
        found = lease.read(self._store)
        is_mine = found is not None and replace(found, beat=self._lease.beat) == self._lease
        if found is not None and not is_mine and found.epoch >= self._lease.epoch:
            self.lost = taken_over(self._store.url, f"{found.process} since {found.since}")
            return
        self._version = self._store.version(PATH)
        try:
            check_newest(self._store, self._lease.epoch)
        except LeaseHeld as error:
            self.lost = error


def until_free(store: Store, clock: Callable[[], float] = clock) -> Iterator[tuple[float, Lease]]:
    """Seconds to wait before the next look, as long as it is unknown whether the holder is alive. Then the caller may
    try to take the workspace. LeaseHeld once a heartbeat is seen. A lock needs no wait."""
    if store.abilities.lock:
        return
    found = lease.read(store)
    if found is None or lease.has_died(found):
        return
    patience = found.ttl or _TTL
    seen, until = store.version(PATH), clock() + patience
    while (left := until - clock()) > 0:
        yield min(patience / _LOOKS, left), found
        store.refresh()
        version = store.version(PATH)
        if version is None:
            return
        if version != seen:
            raise LeaseHeld(
                "another process is running this workspace",
                path=store.url,
                why=f"{found.process} since {found.since}",
                remedy="wait until it ends, or stop it with `satchel pause --wait`",
            )
