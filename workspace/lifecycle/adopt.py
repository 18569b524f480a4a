"""Decide whether a run may be opened at a place where it was not opened last. A copied folder makes two of a run, and
if both continued, both would act.

Only reads: the last opening in the journal, what `satchel move` and `copy` have left, and the old place if it can be
seen from here.

After an adoption a person may end the run at the other place (`end_other`). Nothing else does: adopting a backup must
not stop the original.
"""

from __future__ import annotations

import os
import shlex
import socket
from typing import Literal, NamedTuple

from ..base import DEFINITION, SatchelError, UsageError, urls, version
from ..inspect import Tombstone, lease, look, read_definition, transfer_file
from ..journal import RestoredFrom, now
from ..state import Moment
from ..store import Store, open_store
from . import acquire

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
    with acquire.owned(old, look(old), take_over=True) as mine:
        mine.check_nobody_came(old)
        old.replace(transfer_file.MOVED, transfer_file.encode_tombstone(stone))
    return old.url
