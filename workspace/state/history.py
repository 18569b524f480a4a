"""Earlier moments of a run, made again from a checkpoint and the journal: the moment that a file was written from."""

from __future__ import annotations

from typing import Any

from .. import journal
from ..base import DEFINITION, Damaged, InvalidFile
from ..journal.records import Edited, ScopeCommitted
from ..store import Store
from . import checkpoint, json_patch
from .run_state import Moment


class History:
    """The moments of one run up to `now`. Each is read at most once."""

    def __init__(self, store: Store, now: Moment):
        self._store, self._now = store, now
        self._known: dict[int, Moment | None] = {now.seq: now}

    def at(self, seq: int) -> Moment | None:
        """The moment of record `seq`; None if its sources are gone. Do not change it."""
        if seq not in self._known:
            self._known[seq] = self._make(seq) if seq < self._now.seq else None
        return self._known[seq]

    def first_data(self, path: str, after: Moment) -> Any:
        """The data that an agent began with, after a moment at which it had none. Empty if that is no longer known."""
        try:
            lines = journal.read(self._store, after=after.seq, before=after.before).lines
        except (Damaged, InvalidFile):
            return {}
        for record in [line.record for line in lines if isinstance(line.record, ScopeCommitted | Edited)]:
            is_of_data = isinstance(record, ScopeCommitted) or record.file != DEFINITION
            if is_of_data and record.agent == path and record.patch:
                return json_patch.apply(None, record.patch)
        return {}

    def _make(self, seq: int) -> Moment | None:
        moment = checkpoint.newest(self._store, up_to=seq)[0] or Moment(run_id=self._now.run_id)
        try:
            tail = journal.read(self._store, after=moment.seq, before=moment.before)
            moment.apply(line for line in tail.lines if line.seq <= seq)
        except (Damaged, InvalidFile):  # or retention has removed it
            return None
        return moment if moment.seq == seq and moment.run_id == self._now.run_id else None
