"""Start a new run from an earlier moment of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...workspace import transfer
from ...workspace.base import UsageError, arguments, myself, urls
from ...workspace.history import LATEST, moment_at, seq_of
from ...workspace.inspect import look_beside
from ...workspace.state import LaterEffect, going_back
from ...workspace.transfer import Forked, Tell
from . import storage
from .place import Place
from .rewinding import later_steps


def fork(
    place: Place, to: str | os.PathLike[str], at: str | int | None, *, run_id: str, effects: bool, reuse: bool,
    by: str | None, progress: Tell | None, storage_options: Mapping[str, Any] | None,
) -> Forked:  # fmt: skip
    """See `Handle.fork`."""
    typed = arguments.place("to", to)
    by = arguments.text("by", by or myself())
    arguments.function("progress", progress)
    seq = _seq(place, at)
    then, latest = moment_at(place.store, seq), look_beside(place.store).moment
    storage.use(urls.checked(typed), storage_options)
    if urls.is_remote(typed):
        urls.check_protocol(urls.checked(typed))
    tell = progress or (lambda *_: None)
    reused = later_steps(place, seq) if reuse else None
    with transfer.destination(typed, place.store) as there:
        return transfer.fork(
            place.store, there, then, latest, by=by, run_id=run_id, forgets=effects, reused=reused, tell=tell
        )


def effects_since(place: Place, at: str | int | None) -> tuple[LaterEffect, ...]:
    """The effects that a fork with `effects` would do again."""
    then = moment_at(place.store, _seq(place, at))
    return (*going_back.effects_since(look_beside(place.store).moment.agents, then.agents),)


def _seq(place: Place, at: str | int | None) -> int:
    moment = look_beside(place.store).moment
    if moment.is_new:
        raise UsageError("the run has not begun", path=place.url, remedy=f"`{place.command('run')}` begins it")
    return moment.seq if at is None or at == LATEST else seq_of(place.store, at)
