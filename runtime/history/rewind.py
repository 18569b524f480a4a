"""Go back: return a run to an earlier record, by adding a record; do one of its items again from its beginning; or
start a new run from an earlier moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...workspace import transfer
from ...workspace.base import UsageError, arguments, myself
from ...workspace.history import LATEST, Records, Work, check_kept, moment_at, records_of, seq_of
from ...workspace.inbound import Return, reopen_parents, rewind_record
from ...workspace.inspect import Remark, Report, look, look_beside
from ...workspace.journal import Edited, Key, StepCompleted
from ...workspace.lifecycle import Workspace, opened
from ...workspace.plan import Task
from ...workspace.state import ROOT, AgentMoment, LaterEffect, Moment, Status, checkpoint, earlier_moment, scope_of_task
from ...workspace.transfer import ForkResult, Tell
from ...workspace.views import TODO, folder_of
from ..status import OpenQuestion, Place, Steps, questions_of, target, wait_until_free


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
    item = arguments.text("item", item)
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
    by = arguments.text("by", by or myself())
    arguments.function("progress", progress)
    typed = target(to, storage_options)
    then, latest, records = _moments(place, at)
    if again is not None:
        latest = _with_task(latest, then, moment_at(place.store, again.ended, records), again.scope)
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
