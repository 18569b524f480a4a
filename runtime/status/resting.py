"""Runs that rest, as lists of runs show them without reading their records: the row of one in the index that `serve`
keeps, and its status from there. `serve` makes a row with the rules of a status, so both are the same."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...workspace.base import SatchelError
from ...workspace.inspect import Look, define
from ...workspace.journal import checkpoint_position
from ...workspace.plan import Progress
from ...workspace.state import STATES, Usage
from ...workspace.store import ListedDisk, Store
from ..supervision import DueIndex, RestingRow, RootSignature, proof_of
from .run_status import RestingStatus, RunStatus, asked, ends_by_itself, stand

_SHOWN = frozenset(("url", "state", "definition", "moment", "at", "plan"))
_OTHERS = tuple(name for name in RunStatus.__struct_fields__ if name not in _SHOWN)
"""What a run has only if something waits for it or is wrong with it. Such a run gets no row."""

_ID = re.compile(r"[a-z0-9]{1,20}")


def resting_row(store: Store, seen: Look) -> RestingRow | None:
    """What lists show of a run, if it rests and nothing has to be said of it that is not in a row."""
    status, moment = stand(store, seen=seen), seen.moment
    phase = STATES[status.state].phase
    is_plain = phase in ("stopped", "over") and status.state == moment.status and not moment.is_new
    if not is_plain or moment.url != store.url or any(getattr(status, name) for name in _OTHERS):
        return None
    checkpoint = checkpoint_position(seen.checkpoint) or 0
    ids, proof = asked(status), proof_of(store.url, checkpoint)
    if not proof or not all(map(_ID.fullmatch, ids)):
        return None
    plan = progress_of(status)
    return RestingRow(status.at, checkpoint, proof, plan, (*ids,), ends_by_itself(status))


class RestingRows:
    """The rows of a root, for one look at all its runs."""

    def __init__(self, root: str):
        self._runs = DueIndex(root).rows()

    def __contains__(self, place: str) -> bool:
        return place in self._runs

    def status(
        self, place: str, folder: str, signature: RootSignature, read: Callable[[], RunStatus]
    ) -> RestingStatus | None:
        """The status of a run with this signature. None: only its files tell it. `read` reads them."""
        run = self._runs.get(place)
        if run is None or ((run.signature,),) != signature or run.row is None or run.figures is None:
            return None
        if proof_of(place, run.row.checkpoint) != run.row.proof:
            return None
        try:
            definition = define(ListedDisk(place))
        except (SatchelError, OSError):
            return None
        if definition.kind or definition.run_id != run.run_id:
            return None
        status = RestingStatus(place, run.figures.state, definition, at=run.row.at, folder=folder)
        status.row, status.figures, status.read = run.row, run.figures, read
        return status


def usage_of(status: RunStatus) -> Usage:
    """What the run has used. Of one from the index: steps, tokens and dollars."""
    if isinstance(status, RestingStatus):
        figures = status.figures
        return Usage(steps=figures.steps, tokens=figures.tokens, usd=figures.usd)
    return status.moment.usage if status.moment else Usage()


def progress_of(status: RunStatus) -> Progress | None:
    """How far its plan is. None without items."""
    if isinstance(status, RestingStatus):
        return Progress(*status.row.plan) if status.row.plan else None
    return status.plan.progress if status.plan and len(status.plan) else None
