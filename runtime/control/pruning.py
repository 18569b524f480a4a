"""Remove what the rules of `keep:` in workspace.yaml no longer keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...workspace import journal
from ...workspace.base import LeaseHeld
from ...workspace.history import steadily
from ...workspace.inspect import Report, lease, look_beside
from ...workspace.journal import Own
from ...workspace.lifecycle import opened, retention
from ...workspace.views import running_file
from . import takeover
from .place import Place
from .waiting import Steps

_ALL = 10**12


class Pruned(Struct, frozen=True):
    """What was removed, or with `dry_run` would be: `files` by folder, their number and `bytes` in all, and their
    `paths`. `kept_from`: the first record of the journal that stays."""

    url: str
    run_id: str
    dry_run: bool
    kept_from: int
    files: dict[str, int]
    bytes: int
    paths: Sequence[str]


def prune(place: Place, by: str, *, dry_run: bool, take_over: bool, adopt: bool) -> Steps[Pruned]:
    """A dry run changes nothing, and may be made of a running run. Otherwise LeaseHeld if a process has it."""
    store = place.store
    if dry_run:
        return _planned(place)
    if (held := lease.holder(store)) is not None and not take_over:
        raise LeaseHeld(
            "another process is running this workspace",
            path=store.url,
            why=takeover.described(store, held),
            remedy="a running run prunes by itself; --dry-run (`dry_run=True`) shows what may go",
        )
    if not take_over:
        yield from takeover.wait(place)
    planned = _planned(place)
    if not planned.paths and store.version(running_file.PATH) is None:  # an opening removes what a crash has left
        return replace(planned, dry_run=False)
    seq = look_beside(store).moment.seq
    done: list[retention.Plan] = []
    with opened(store, "prune", Report(), take_over=True, adopt=adopt) as workspace:
        writer, fence = workspace.journal, workspace.owned.fence
        own = Own(fence.seq, writer.growing) if fence is not None else None
        keep, facts = workspace.definition.keep, replace(retention.Facts.of(workspace.moment), seq=seq)
        while found := retention.plan(store, facts, keep, own, writer.collectable, all=True):
            writer.add(retention.by_rule(found, by))
            writer.flush()
            retention.carry_out(store, found)
            done.append(found)
            if not found.old:
                break
        workspace.pruner.rest()
        done.append(retention.Plan(files=retention.replaced(store, keep, retention.Plan(), workspace.moment)))
        workspace.close()
    return _told(place, workspace.moment.run_id, done, dry_run=False)


def _planned(place: Place) -> Pruned:
    """What would go now. A process that runs it may prune it meanwhile."""
    return steadily(place.store, lambda: _plan_of(place))


def _plan_of(place: Place) -> Pruned:
    store, seen = place.store, look_beside(place.store)
    keep, moment = seen.definition.keep, seen.moment
    found = None if moment.is_new else retention.plan(store, retention.Facts.of(moment), keep, None, _ALL, all=True)
    done = [found, retention.Plan(files=retention.replaced(store, keep, found, moment))] if found else []
    return _told(place, moment.run_id, done, dry_run=True)


def _told(place: Place, run_id: str, done: Sequence[retention.Plan], *, dry_run: bool) -> Pruned:
    files = sum((Counter(each.counts) for each in done), Counter[str]())
    kept_from = max([journal.first_kept(place.store), *(each.up_to + 1 for each in done)])
    paths = [path for each in done for path in each.paths]
    size = sum(each.bytes for each in done)
    return Pruned(place.url, run_id, dry_run, kept_from, dict(sorted(files.items())), size, paths)
