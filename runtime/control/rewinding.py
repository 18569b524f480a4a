"""Return a run to an earlier record, by adding a record."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import UsageError, myself
from ...workspace.history import Records, check_kept, moment_at, records_of, seq_of
from ...workspace.inspect import Remark, Report, look
from ...workspace.journal.records import Edited, Key, StepCompleted
from ...workspace.lifecycle import Return, Workspace, opened, rewind
from ...workspace.state import LaterEffect, Moment, Status, checkpoint, going_back
from . import takeover
from .place import Place
from .questions import OpenQuestion, questions_of
from .waiting import Steps


class Rewinding(Struct, frozen=True):
    """A return to record `to`.

    `says`: what is done again, in words. `effects`: those that were done, or began, since that record; they stay on
    record, or are `forgotten` and done again. One in doubt stays in doubt. `is_done`: false for a dry run. The others
    are as of now: `status` of the run, `questions` that are open, and the `report` of the opening.
    """

    url: str
    run_id: str
    to: int
    says: tuple[str, ...]
    effects: tuple[LaterEffect, ...]
    forgotten: bool
    is_done: bool
    status: Status
    questions: list[OpenQuestion]
    report: tuple[Remark, ...] = ()


def go_back(
    place: Place, to: str | int, by: str | None, *, forget: bool, reuse: bool, dry_run: bool
) -> Steps[Rewinding]:
    """See `Handle.rewind`."""
    store = place.store
    records = records_of(store)
    seq = seq_of(store, to, records)
    seen = look(store).moment
    _check(place, seen, seq)
    then = moment_at(store, seq, records)
    file = next((path for path in checkpoint.paths(store) if checkpoint.position_of(path) == seq), "")
    by = by or myself()
    reused = later_steps(records, seq) if reuse else None
    if dry_run:
        planned = rewind.plan(seen, then, by, file=file, forgets=forget, reused=reused)
        return _result(place, seen, planned, forget, None)
    yield from takeover.wait(place)
    report = Report()
    done: list[Return] = []

    def begin(workspace: Workspace) -> None:
        _check(place, workspace.moment, seq)
        check_kept(store, seq, records)  # another process may have pruned since `then` was read
        done.append(rewind.plan(workspace.moment, then, by, file=file, forgets=forget, reused=reused))
        done[0].add(store, workspace.journal)

    with opened(store, "rewind", report, take_over=True, add_more=begin) as workspace:
        workspace.close()
    return _result(place, look(store).moment, done[0], forget, report)


def later_steps(records: Records, seq: int) -> going_back.Reused:
    """The newest result of each step after record `seq`, as people have edited it."""
    found: dict[tuple[str, str], dict[Key, StepCompleted]] = {}
    for line in records.lines:
        record = line.record
        if isinstance(record, StepCompleted) and not record.effect and line.seq > seq:
            found.setdefault((record.agent, record.scope), {})[record.key] = record
        elif isinstance(record, Edited) and (edit := record.step) is not None:
            steps = found.get((record.agent, edit.scope), {})
            if (was := steps.pop(edit.key, None)) is not None and not edit.redo:
                steps[edit.key] = replace(was, result=edit.result, blob=edit.blob, how="edited")
    return found


def _check(place: Place, moment: Moment, seq: int) -> None:
    if moment.status == "cancelled":
        raise UsageError(
            "a cancelled run does not go back",
            path=place.url,
            why="a cancellation is final",
            remedy=f"start a new run from an earlier record: `{place.command('fork')} DST --at {seq}`",
        )
    if seq >= moment.seq:
        raise UsageError(
            f"record {seq:,} is not earlier than the run",
            path=place.url,
            why=f"the newest is record {moment.seq:,}",
            remedy=f"`{place.command('log')}` shows all records",
        )


def _result(place: Place, moment: Moment, found: Return, forgotten: bool, report: Report | None) -> Rewinding:
    return Rewinding(
        place.url,
        moment.run_id,
        found.record.to,
        found.record.says,
        found.effects,
        forgotten,
        report is not None,
        moment.status,
        questions_of(moment, place),
        (*report.remarks,) if report is not None else (),
    )
