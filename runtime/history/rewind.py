"""Return a run to an earlier record, by adding a record; or do one of its items again from its beginning."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import UsageError, myself
from ...workspace.history import Records, check_kept, moment_at, records_of, seq_of
from ...workspace.inbound.edits import reopen_parents
from ...workspace.inspect import Remark, Report, look
from ...workspace.journal.records import Edited, Key, StepCompleted
from ...workspace.lifecycle import Return, Workspace, opened, rewind_record
from ...workspace.plan import Task
from ...workspace.state import AgentMoment, LaterEffect, Moment, Status, checkpoint, earlier_moment
from ...workspace.views import TODO, folder_of
from ..status import OpenQuestion, Place, Steps, questions_of, wait_until_free


class RewindResult(Struct, frozen=True):
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
) -> Steps[RewindResult]:
    """See `RunHistory.rewind`."""
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
        planned = rewind_record.plan(seen, then, by, file=file, forgets=forget, reused=reused)
        return _result(place, seen, planned, forget, None)
    yield from wait_until_free(place)
    report = Report()
    done: list[Return] = []

    def begin(workspace: Workspace) -> None:
        _check(place, workspace.moment, seq)
        check_kept(store, seq, records)  # another process may have pruned since `then` was read
        done.append(rewind_record.plan(workspace.moment, then, by, file=file, forgets=forget, reused=reused))
        done[0].add(store, workspace.journal)

    with opened(store, "rewind", report, take_over=True, add_more=begin) as workspace:
        workspace.close()
    return _result(place, look(store).moment, done[0], forget, report)


def later_steps(records: Records, seq: int) -> earlier_moment.Reused:
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


def _result(place: Place, moment: Moment, found: Return, forgotten: bool, report: Report | None) -> RewindResult:
    return RewindResult(
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


class RedoResult(Struct, frozen=True):
    """The item `item` of `agent`, `title`, will be done again. `says`: the items and scopes above a sub-agent that are
    entered again to reach it. `effects`: those that the item has done or begun; they stay on record, or are `forgotten`
    and done again. `report` is that of the opening."""

    url: str
    run_id: str
    agent: str
    item: str
    title: str
    effects: tuple[LaterEffect, ...]
    forgotten: bool
    says: tuple[str, ...] = ()
    report: tuple[Remark, ...] = ()


def redo(place: Place, item: str, by: str | None, *, effects: bool, dry_run: bool) -> Steps[RedoResult]:
    """See `RunHistory.redo`."""
    seen = look(place.store).moment
    planned = _planned(place, seen, item, by, effects)
    if dry_run:
        return _told(place, seen, planned, Report())
    yield from wait_until_free(place)
    report = Report()
    found: list[_Plan] = []

    def begin(workspace: Workspace) -> None:
        found.append(_planned(place, workspace.moment, item, by, effects))
        for record in found[0].records:
            workspace.journal.add(record)

    with opened(place.store, "redo", report, take_over=True, add_more=begin) as workspace:
        workspace.close()
    return _told(place, workspace.moment, found[0], report)


class _Plan(NamedTuple):
    """What will be done again: the item, and those above it that lead to it."""

    task: Task
    records: list[Edited]
    effects: tuple[LaterEffect, ...]


def _planned(place: Place, moment: Moment, item: str, by: str | None, effects: bool) -> _Plan:
    agent, task = _find(place, moment, item)
    plan = agent.plan.copy()
    splices = plan.reopen(plan.at(task.index))
    record = Edited(
        agent=agent.path,
        file=agent.folder + TODO,
        by=by or myself(),
        sha="",
        base=moment.seq,
        plan=tuple(splices),
        redone=(task.id or "",),
        effects=effects,
        says=(f"item {task.id} ({task.text!r}) will be done again",),
    )
    above = reopen_parents(moment, {agent.path: plan}, [agent.path])
    for path, why in above.unreached.items():
        raise UsageError(
            f"item {task.id} of {agent.path} can't be done again",
            path=place.url,
            why=f"nothing spawns the sub-agent {path} again: {why}",
            remedy=f"return to a moment before it: `{place.command('rewind')} --to {agent.path}/^{task.id}`",
        )
    known = earlier_moment.effects_since({agent.path: agent}, {})
    done = tuple(each for each in known if each.scope == task.id)
    return _Plan(task, [record, *(edit.record for edit in above.edits)], done)


def _told(place: Place, moment: Moment, planned: _Plan, report: Report) -> RedoResult:
    own, *above = planned.records
    says = tuple(say for record in above for say in record.says)
    return RedoResult(
        place.url,
        moment.run_id,
        own.agent,
        planned.task.id or "",
        planned.task.text,
        planned.effects,
        own.effects,
        says,
        (*report.remarks,),
    )


def _find(place: Place, moment: Moment, item: str) -> tuple[AgentMoment, Task]:
    """The item by its id, `^3` or `3`, or the name of its folder; of a sub-agent after its path. UsageError if it has
    not begun."""
    if moment.status == "cancelled":
        raise UsageError(
            "a cancelled run does nothing again",
            path=place.url,
            why="a cancellation is final",
            remedy=f"start a new run: `{place.command('fork')} DST`",
        )
    path, _, name = item.strip().rstrip("/").rpartition("/")
    agent = moment.agents.get(path)
    for task in agent.plan.tasks if agent is not None else ():
        if task.id and task.is_work and name in (task.id, f"^{task.id}", folder_of(task.id, task.text)):
            assert agent is not None
            return agent, task
    begun = [f"^{task.id}" for task in moment.root.plan.tasks if task.id and task.is_work]
    raise UsageError(
        f"no item {item!r} has begun",
        path=place.url,
        remedy=f"name one of {', '.join(begun[:9])}" if begun else "no item of the plan has begun",
    )
