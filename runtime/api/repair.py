"""Put a run right without running its agent: repair what a crash has left, cut a damaged journal, remove what the rules
of `keep:` no longer keep, and resolve conflicts between files and the run.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from ...workspace import journal
from ...workspace.base import LeaseHeld, SatchelError, UsageError, counted
from ...workspace.history import steadily
from ...workspace.inbound import FileConflict, Noticed, Side, notice, with_choices
from ...workspace.inspect import Look, Remark, Report, lease, look, look_beside
from ...workspace.journal import Own
from ...workspace.lifecycle import Truncation, opened, recovery, retention
from ...workspace.state import Status
from ...workspace.store import Store
from ...workspace.views import running_file, schema_files
from ..status import OpenQuestion, Place, Steps, describe_holder, holder_to_replace, questions_of, wait_until_free

_NAMED = 10
"""How many effects or tasks are named."""

_ALL = 10**12

_LOOKS = 5


class RecoveryResult(Struct, frozen=True):
    """A repaired workspace: `status` of the run, and whether it `has_begun`; `questions` that are open; `report`: what
    was found and done."""

    url: str
    run_id: str
    status: Status
    has_begun: bool
    questions: list[OpenQuestion]
    report: tuple[Remark, ...]


def recover(place: Place, cut: Truncation | int | None, *, take_over: bool, adopt: bool) -> Steps[RecoveryResult]:
    """Bring all files to the same moment, if `cut` is given after the end of a damaged journal was removed: everything
    after that record."""
    if take_over:
        holder_to_replace(place)
    else:
        yield from wait_until_free(place)
    report = Report()
    kept = ""
    if cut is not None:
        kept = _cut_off(
            place, cut if isinstance(cut, Truncation) else recovery.plan_cut(place.store, cut), report, adopt
        )
    _repair(place, report, adopt, kept)
    moment = look(place.store).moment
    return RecoveryResult(
        place.url, moment.run_id, moment.status, bool(moment.seq), questions_of(moment, place), (*report.remarks,)
    )


def forgotten(cut: Truncation) -> str:
    """What a cut forgets, in words; may be empty."""
    says = []
    if cut.effects:
        says.append(f"these effects are forgotten and will be done again: {_some(cut.effects)}")
    if cut.lost:
        says.append(f"these tasks are forgotten and can't come back, because their files are gone: {_some(cut.lost)}")
    return "; ".join(says)


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more])


def _cut_off(place: Place, cut: Truncation, report: Report, adopt: bool) -> str:
    """Returns the folder that keeps what was cut off."""
    kept = recovery.cut_off(place.store, cut, adopt=adopt)
    report.add("done", f"{cut.says}; the files from before this change are in {kept}/")
    if cut.tasks:
        report.add("done", f"{counted(len(cut.tasks), 'task')} that the run took later came back into inbox/")
    if said := forgotten(cut):
        report.add("found", said)
    return kept


def _repair(place: Place, report: Report, adopt: bool, cut_off: str) -> None:
    if look(place.store).moment.is_new:
        report.add("found", f"the run has not started: there is nothing to recover. Next: {place.command('run')}")
        return
    with opened(place.store, "recover", report, take_over=True, adopt=adopt, cut_off=cut_off) as workspace:
        workspace.close()
    if len(report.remarks) == 1:
        report.add("done", "nothing: no file needed a repair")


class PruneResult(Struct, frozen=True):
    """What was removed, or with `dry_run` would be: `files` by folder, their number and `bytes` in all, and their
    `paths`. `kept_from`: the first record of the journal that stays."""

    url: str
    run_id: str
    dry_run: bool
    kept_from: int
    files: dict[str, int]
    bytes: int
    paths: Sequence[str]


def prune(place: Place, by: str, *, dry_run: bool, take_over: bool, adopt: bool) -> Steps[PruneResult]:
    """A dry run changes nothing, and may be made of a running run. Otherwise LeaseHeld if a process has it."""
    store = place.store
    if dry_run:
        return _planned(place)
    if (held := lease.holder(store)) is not None and not take_over:
        raise LeaseHeld(
            "another process is running this workspace",
            path=store.url,
            why=describe_holder(store, held),
            remedy="a running run prunes by itself; --dry-run (`dry_run=True`) shows what may go",
        )
    if not take_over:
        yield from wait_until_free(place)
    planned = _planned(place)
    if not planned.paths and not _has_leftovers(store):
        return replace(planned, dry_run=False)
    seq = look_beside(store).moment.seq
    done: list[retention.PrunePlan] = []
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
        done.append(retention.PrunePlan(files=retention.replaced(store, keep, retention.PrunePlan(), workspace.moment)))
        workspace.close()
    return _told(place, workspace.moment.run_id, done, dry_run=False)


def _has_leftovers(store: Store) -> bool:
    """Whether a crash has left what an opening removes."""
    return store.version(running_file.PATH) is not None or bool(schema_files.torn_results(store))


def _planned(place: Place) -> PruneResult:
    """What would go now. A process that runs it may prune it meanwhile."""
    return steadily(place.store, lambda: _plan_of(place))


def _plan_of(place: Place) -> PruneResult:
    store, seen = place.store, look_beside(place.store)
    keep, moment = seen.definition.keep, seen.moment
    found = None if moment.is_new else retention.plan(store, retention.Facts.of(moment), keep, None, _ALL, all=True)
    done = [found, retention.PrunePlan(files=retention.replaced(store, keep, found, moment))] if found else []
    return _told(place, moment.run_id, done, dry_run=True)


def _told(place: Place, run_id: str, done: Sequence[retention.PrunePlan], *, dry_run: bool) -> PruneResult:
    files = sum((Counter(each.counts) for each in done), Counter[str]())
    kept_from = max([journal.first_kept(place.store), *(each.up_to + 1 for each in done)])
    paths = [path for each in done for path in each.paths]
    size = sum(each.bytes for each in done)
    return PruneResult(place.url, run_id, dry_run, kept_from, dict(sorted(files.items())), size, paths)


Files = str | os.PathLike[str] | Collection[str | os.PathLike[str]]
"""One file, or several: by their paths in the workspace or on the disk."""


class MergeResult(Struct, frozen=True):
    """The result of merging edited files.

    `conflicts`: files that conflict with the run, each with `path`, the `places`, both versions, `ours` (the run's) and
    `theirs` (the file's), in bytes, and, before one is chosen, what each of the `choices` would do. `merged`: what the
    next opening takes from files, in words. `refused`: why a file can't be taken at all. `settled`: the paths of
    conflicts that this call has resolved, and `report` what it did.
    """

    conflicts: tuple[FileConflict, ...]
    merged: tuple[str, ...]
    refused: tuple[SatchelError, ...]
    settled: tuple[str, ...] = ()
    report: tuple[Remark, ...] = ()

    @property
    def open(self) -> list[FileConflict]:
        """The unresolved conflicts."""
        return [each for each in self.conflicts if each.path not in self.settled]


def merge(place: Place, side: Side | None, files: Files) -> Steps[MergeResult]:
    """Resolve conflicts: all, or those of `files`. Without a `side` nothing changes."""
    if side is not None and side not in get_args(Side):
        raise UsageError(f"{side!r} is not a side", path=place.url, remedy="write ours, theirs or edited")
    given = [files] if isinstance(files, str | bytes | os.PathLike) or not isinstance(files, Collection) else files
    paths = [_path(place, each) for each in given]
    seen, noticed = yield from _notice(place)
    asked = [question.path for question in noticed.questions]
    if unknown := [path for path in paths if path not in asked]:
        raise UsageError(
            f"there is no conflict in {unknown[0]}",
            path=place.url,
            remedy=f"conflicts: {', '.join(asked)}" if asked else "there is no conflict: `satchel resume` continues",
        )
    settled: tuple[str, ...] = ()
    report = Report()
    if side is not None and asked:
        settled = tuple(dict.fromkeys(paths or asked))
        yield from wait_until_free(place)
        choices = dict.fromkeys(settled, side)
        with opened(place.store, "merge", report, choices=choices, take_over=True) as workspace:
            workspace.close()
    merged = tuple(f"{each.record.file}: {say}" for each in noticed.edits for say in each.record.says)
    refused = tuple(each.error for each in noticed.refusals)
    conflicts = noticed.questions
    if not settled:
        conflicts = [*with_choices(conflicts, seen.moment, lambda each: _look_again(place.store, seen, {"": each}))]
    return MergeResult((*conflicts,), merged, refused, settled, (*report.remarks,))


def _path(place: Place, file: Any) -> str:
    """The path of a file in the workspace."""
    if not isinstance(file, str | os.PathLike):
        raise UsageError(f"{file!r} is not the path of a file", path=place.url, remedy="give it as text, or a Path")
    return os.fspath(file).removeprefix(f"{place.url}/")


def _notice(place: Place) -> Steps[tuple[Look, Noticed]]:
    store = place.store
    for _ in range(_LOOKS):
        seen = look(store)
        noticed = _look_again(store, seen, {})
        if not noticed.refusals or lease.holder(store) is None:
            break
        yield from place.look_again(0.1)  # its files may have changed since the journal was read
    return seen, noticed


def _look_again(store: Store, seen: Look, choices: dict[str, Side]) -> Noticed:
    return notice(store, seen.moment, seen.definition, choices, is_rebuilt=seen.is_rebuilt)
