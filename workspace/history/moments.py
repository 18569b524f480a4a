"""The state of a run at any of its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import journal
from ..base import Damaged, SatchelError, UsageError
from ..journal import checkpoint_position, first_kept
from ..journal.records import Line, Opened, Pruned
from ..state import Moment, checkpoint
from ..store import Store
from .reading import Records, gone, is_whole, kept_from, read, records_of, steadily


def moment_at(store: Store, seq: int, records: Records | None = None) -> Moment:
    """The whole run right after record `seq`: state, plan and open scopes of every agent of the tree.

    It is made from the newest checkpoint at or before the record, and the records since. Changes nothing, and needs no
    lock, so a process may run the workspace meanwhile. Results of finished steps and scopes are only in the records
    (`records_of`). Damage that comes after the record does not matter. Reads the journal only if `records` does not
    have what is needed of it.

    UsageError if there is no workspace or no such record yet, naming the newest, or if retention has removed what the
    state would be made from, naming the first record that is kept. Damaged if that is broken.
    """
    return steadily(store, lambda: _moment_at(store, seq, records))


def _moment_at(store: Store, seq: int, known: Records | None = None) -> Moment:
    if seq < 1:
        raise UsageError(f"there is no record {seq}", remedy="the first is 1")
    kept = kept_from(store)
    found, _, complaints, *_ = checkpoint.newest(store, up_to=seq)
    if found is not None and found.seq == seq:
        return found
    if seq < kept:
        raise gone(seq, kept)
    if found is None and not is_whole(store):
        raise Damaged(f"the state at record {seq:,} can't be made", why="; ".join(complaints))
    records = known.after(found) if known is not None else None
    if records is None:
        records = read(store, found.seq, found.before) if found else read(store, 0)
    last = records.last or (found.seq if found else 0)
    if last < seq:
        raise records.problem or not_yet(seq, last)
    moment = found or Moment(run_id=_run_id(records))
    moment.apply(line for line in records.lines if line.seq <= seq)
    return moment


def check_kept(store: Store, seq: int, records: Records | None = None) -> None:
    """Gone if the journal has given up the state at record `seq`. Its files may still be there, but the process that
    removes them may do so at any time, even if it has lost the workspace meanwhile. `records`: what was read of the
    journal before; only what came after it is read."""
    lines: list[Line] = []
    if records is not None and records.lines:
        newest = records.lines[-1]
        lines += [*records.lines, *journal.read(store, after=newest.seq, before=newest.before).lines]
    else:
        lines += records_of(store).lines
    pruned = (line.record for line in lines if isinstance(line.record, Pruned))
    kept = max([first_kept(store) - 1, *(checkpoint_position(record.base) or 0 for record in pruned)])
    if seq < kept:
        raise gone(seq, kept)


class Story(NamedTuple):
    """The oldest state that the records can be replayed from, and all records since, as far as they can be read."""

    start: Moment
    lines: Sequence[Line]
    problem: SatchelError | None  # why there are no later ones; a torn end is no problem
    records: Records  # all that are kept, also those before the start
    begin: Callable[[], Moment]  # makes another `start`, for a replay that moves it on


def story(store: Store) -> Story:
    """What the run has gone through. It begins with an empty moment, or with the first state that retention has kept.
    Errors as of `moment_at`, except for records that are damaged: then `problem` says so."""
    return steadily(store, lambda: _story(store))


def _story(store: Store) -> Story:
    if is_whole(store):
        records = read(store, 0)
        run_id = _run_id(records)
        return Story(Moment(run_id=run_id), records.lines, records.problem, records, lambda: Moment(run_id=run_id))
    kept = kept_from(store)
    start, records = _moment_at(store, kept), read(store)
    if records.last <= kept and records.problem is not None:  # damage that the state does not need
        records = read(store, start.seq, start.before)
    lines = [line for line in records.lines if line.seq > start.seq]
    return Story(start, lines, records.problem, records, lambda: moment_at(store, kept))


def not_yet(seq: int, last: int) -> UsageError:
    """The error that there is no record `seq` yet. `last`: the newest."""
    newest = f"the newest is record {last:,}" if last else "the run has not begun"
    return UsageError(f"there is no record {seq:,} yet", why=newest)


def _run_id(records: Records) -> str:
    """Of the journal itself: workspace.yaml may have a mistake now. In a bucket a fence may come before it."""
    opened = (line.record for line in records.lines if isinstance(line.record, Opened))
    return next((record.run_id for record in opened), "")
