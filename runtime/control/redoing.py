"""Do an item again from its beginning."""

from __future__ import annotations

from msgspec import Struct

from ...workspace.base import UsageError, myself
from ...workspace.inspect import Remark, Report, look
from ...workspace.journal.records import Edited
from ...workspace.lifecycle import Workspace, opened
from ...workspace.state import AgentMoment, LaterEffect, Moment, going_back
from ...workspace.todo import Task
from ...workspace.views import TODO, folder_of
from . import takeover
from .place import Place
from .waiting import Steps


class Redoing(Struct, frozen=True):
    """The item `item` of `agent`, `title`, will be done again. `effects`: those that it has done or begun; they stay on
    record, or are `forgotten` and done again. `report` is that of the opening."""

    url: str
    run_id: str
    agent: str
    item: str
    title: str
    effects: tuple[LaterEffect, ...]
    forgotten: bool
    report: tuple[Remark, ...] = ()


def redo(place: Place, item: str, by: str | None, *, effects: bool, dry_run: bool) -> Steps[Redoing]:
    """See `Handle.redo`."""
    seen = look(place.store).moment
    if dry_run:
        return _result(place, seen, item, effects, Report())
    _find(place, seen, item)
    yield from takeover.wait(place)
    report = Report()
    found: list[Redoing] = []

    def begin(workspace: Workspace) -> None:
        moment = workspace.moment
        found.append(_result(place, moment, item, effects, report))
        agent, task = _find(place, moment, item)
        plan = agent.plan.copy()
        splices = plan.reopen(plan.at(task.index))
        says = (f"item {task.id} ({task.text!r}) will be done again",)
        workspace.journal.add(
            Edited(
                agent=agent.path, file=agent.folder + TODO, by=by or myself(), sha="", base=moment.seq,
                plan=tuple(splices), redone=(task.id or "",), effects=effects, says=says,
            )
        )  # fmt: skip

    with opened(place.store, "redo", report, take_over=True, add_more=begin) as workspace:
        workspace.close()
    return _result(place, look(place.store).moment, item, effects, report, found[0].effects)


def _result(
    place: Place, moment: Moment, item: str, forgotten: bool, report: Report,
    effects: tuple[LaterEffect, ...] | None = None,
) -> Redoing:  # fmt: skip
    agent, task = _find(place, moment, item)
    if effects is None:
        known = going_back.effects_since({agent.path: agent}, {})
        effects = tuple(each for each in known if each.scope == task.id)
    return Redoing(
        place.url, moment.run_id, agent.path, task.id or "", task.text, effects, forgotten, (*report.remarks,)
    )  # fmt: skip


def _find(place: Place, moment: Moment, item: str) -> tuple[AgentMoment, Task]:
    """The item by its id, `^3` or `3`, or the name of its folder; of a sub-agent after its path. UsageError if it has
    not begun."""
    if moment.status == "cancelled":
        raise UsageError(
            "a cancelled run does nothing again", path=place.url, why="a cancellation is final",
            remedy=f"start a new run: `{place.command('fork')} DST`",
        )  # fmt: skip
    path, _, name = item.strip().rstrip("/").rpartition("/")
    agent = moment.agents.get(path)
    for task in agent.plan.tasks if agent is not None else ():
        if task.id and task.is_leaf and name in (task.id, f"^{task.id}", folder_of(task.id, task.text)):
            assert agent is not None
            return agent, task
    begun = [f"^{task.id}" for task in moment.root.plan.tasks if task.id and task.is_leaf]
    raise UsageError(
        f"no item {item!r} has begun", path=place.url,
        remedy=f"name one of {', '.join(begun[:9])}" if begun else "no item of the plan has begun",
    )  # fmt: skip
