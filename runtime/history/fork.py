"""Start a new run from an earlier moment of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from ...workspace import transfer
from ...workspace.base import UsageError, arguments, myself, urls
from ...workspace.history import LATEST, Records, Work, moment_at, records_of, seq_of
from ...workspace.inspect import look_beside
from ...workspace.state import ROOT, LaterEffect, Moment, earlier_moment, scope_of_task
from ...workspace.transfer import ForkResult, Tell
from ..status import Place, use_options
from .rewind import later_steps


def fork(
    place: Place,
    to: str | os.PathLike[str],
    at: str | int | None,
    *,
    run_id: str,
    effects: bool,
    reuse: bool,
    by: str | None,
    progress: Tell | None,
    storage_options: Mapping[str, Any] | None,
    edit: Callable[[str], str] = str,
    texts: Mapping[str, bytes] | None = None,
    is_replay: bool = False,
    again: Work | None = None,
) -> ForkResult:
    """See `RunHistory.fork`; `edit`, `texts` and `is_replay` as in `transfer.fork`. `again`: a task of the inbox that
    has ended, and is done again in a replay."""
    typed = arguments.target("to", to)
    by = arguments.text("by", by or myself())
    arguments.function("progress", progress)
    then, latest, records = _moments(place, at)
    if again is not None:
        latest = _with_task(latest, then, moment_at(place.store, again.ended, records), again.scope)
    use_options(urls.checked(typed), storage_options)
    if urls.is_remote(typed):
        urls.check_protocol(urls.checked(typed))
    tell = progress or (lambda *_: None)
    reused = later_steps(records, then.seq) if reuse else None
    with transfer.destination(typed, place.store) as there:
        return transfer.fork(
            place.store,
            there,
            then,
            latest,
            by=by,
            run_id=run_id,
            forgets=effects,
            reused=reused,
            edit=edit,
            texts=texts,
            is_replay=is_replay,
            is_newest=at in (None, LATEST),
            tell=tell,
        )


def effects_since(place: Place, at: str | int | None) -> tuple[LaterEffect, ...]:
    """The effects that a fork with `effects` would do again."""
    then, latest, _ = _moments(place, at)
    return (*earlier_moment.effects_since(latest.agents, then.agents),)


def _with_task(latest: Moment, then: Moment, ended: Moment, scope: str) -> Moment:
    """`latest`, with a task of the inbox and the effects of its scope, as the run knew them when that had `ended`. It
    has forgotten both since, because it never takes a task again that is done."""
    tasks = {id: task for id, task in then.tasks.items() if scope_of_task(id) == scope}
    past = {key: done for key, done in ended.root.past.items() if key == scope}
    root = replace(latest.root, past=past | latest.root.past)
    return replace(latest, tasks=latest.tasks | tasks, agents=latest.agents | {ROOT: root})


def _moments(place: Place, at: str | int | None) -> tuple[Moment, Moment, Records]:
    """The run at the moment that a person has named, the run as it is now, and the records that both were made from."""
    moment = look_beside(place.store).moment
    if moment.is_new:
        raise UsageError("the run has not begun", path=place.url, remedy=f"`{place.command('run')}` begins it")
    records = records_of(place.store)
    seq = moment.seq if at is None or at == LATEST else seq_of(place.store, at, records)
    return moment_at(place.store, seq, records), look_beside(place.store).moment, records
