"""Remove what the rules of `keep:` in workspace.yaml no longer keep."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...workspace import journal
from ...workspace.base import LeaseHeld
from ...workspace.inspect import Report, lease, look_beside
from ...workspace.journal import Own
from ...workspace.lifecycle import opened
from ...workspace.retention import Facts, Plan, by_rule, carry_out, plan
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
        seen = look_beside(store)
        found = plan(store, Facts.of(seen.moment), seen.definition.keep, None, _ALL, all=True)
        return _told(place, seen.moment.run_id, [found] if found else [], dry_run=True)
    if (held := lease.holder(store)) is not None and not take_over:
        raise LeaseHeld(
            "another process is running this workspace", path=store.url, why=takeover.described(store, held),
            remedy="a running run prunes by itself; --dry-run (`dry_run=True`) shows what may go",
        )  # fmt: skip
    if not take_over:
        yield from takeover.wait(place)
    if look_beside(store).moment.is_new:
        return _told(place, look_beside(store).moment.run_id, [], dry_run=False)
    done: list[Plan] = []
    with opened(store, "prune", Report(), take_over=True, adopt=adopt) as workspace:
        writer, fence = workspace.journal, workspace.owned.fence
        own = Own(fence.seq, writer.growing) if fence is not None else None
        keep, facts = workspace.definition.keep, Facts.of(workspace.moment)
        while found := plan(store, facts, keep, own, writer.collectable, all=True):
            writer.add(by_rule(found, by))
            writer.flush()
            carry_out(store, found)
            done.append(found)
            if not found.old:
                break
        workspace.close()
    return _told(place, workspace.moment.run_id, done, dry_run=False)


def _told(place: Place, run_id: str, done: Sequence[Plan], *, dry_run: bool) -> Pruned:
    files: dict[str, int] = {}
    for each in done:
        for folder, number in each.counts.items():
            files[folder] = files.get(folder, 0) + number
    kept_from = max([journal.first_kept(place.store), *(each.up_to + 1 for each in done)])
    paths = [path for each in done for path in each.paths]
    return Pruned(place.url, run_id, dry_run, kept_from, files, sum(each.bytes for each in done), paths)
