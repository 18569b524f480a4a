"""End a run at the place that still has it, after a copy of it was adopted elsewhere. Only when a person says so:
adopting a backup must not stop the original."""

from __future__ import annotations

from ..base import UsageError, version
from ..inspect import Tombstone, look, transfer_file
from ..journal.records import now
from ..store import Store, open_store
from . import acquire, adopt


def end_other(store: Store, *, by: str) -> str:
    """Leave at the other place what `satchel move` leaves: nothing starts there any more, and its files stay. Returns
    its URL.

    In a bucket a fence stops a process that runs it there, before its next effect. LeaseHeld if one runs it on a disk.
    UsageError if the run is nowhere else, or that place can't be reached from here.
    """
    moment = look(store).moment
    other = adopt.other(store, moment)
    if other is None or not other.url:
        raise UsageError(
            "the run can't be ended elsewhere",
            path=store.url,
            why=other.says if other else "no other place is known that has it",
            remedy="stop it at that place: `satchel cancel` there ends it" if other else "",
        )
    old = open_store(other.url)
    stone = Tombstone(run_id=moment.run_id, to=store.url, at=now(), by=by, satchel=version())
    with acquire.owned(old, look(old), take_over=True) as mine:
        mine.check_nobody_came(old)
        old.replace(transfer_file.MOVED, transfer_file.encode_tombstone(stone))
    return old.url
