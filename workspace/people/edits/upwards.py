"""Reach an ended sub-agent that a person gives work to: enter the scope again that spawned it, and so on upwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...journal.records import Edited
from ...state import ROOT, Moment
from ...todo import Plan, Task, between
from ...views import TODO
from .findings import Edit


class Reached(NamedTuple):
    """What is entered again, and the sub-agents that nothing reaches any more, with the reasons."""

    edits: list[Edit]
    unreached: dict[str, str]


def reach(moment: Moment, plans: dict[str, Plan], waiting: Iterable[str]) -> Reached:
    """The way to the agents `waiting`. `plans`: those that this change leaves behind, by agent; it adds its own."""
    edits: list[Edit] = []
    unreached: dict[str, str] = {}
    reached: set[tuple[str, str]] = set()
    paths = [*waiting]
    while paths:
        path = paths.pop()
        if not path:
            continue
        agent = moment.agents[path]
        above = moment.agents[path.rpartition("/")[0]]
        key = agent.spawned_in
        if (above.path, key) in reached:
            continue
        reached.add((above.path, key))
        plan = plans.get(above.path, above.plan)
        task = plan.task(key) if key != ROOT and not key.startswith("_") else None
        needs, says = False, ""
        if key == ROOT:
            needs, says = above.result is not None, f"{above.path} runs again, because {path} was spawned by it"
        elif key.startswith("_inbox-"):
            if key not in above.scopes:
                unreached[path] = "the task of the inbox that spawned it is done"
        elif key.startswith("_"):
            needs, says = key in above.results, f"{key[1:]} will run again, because {path} was spawned in it"
        elif task is None or _is_newly_left(task, plan, above.plan):
            unreached[path] = f"its item {key} is not in the plan above"
        else:
            needs = not plan.is_to_do(key)
            says = f"item {key} ({task.text!r}) will run again, because {path} was spawned in it"
        if needs:
            after = plan.copy()
            if task is not None:
                after.reopen(task)
            plans[above.path] = after
            record = Edited(
                agent=above.path,
                file=f"{agent.folder}{TODO}",
                by="the runtime",
                sha="",
                redone=(key,),
                plan=tuple(between(list(plan.lines), list(after.lines))),
                says=(says,),
            )
            edits.append(Edit(record, after))
        paths.append(above.path)
    return Reached(edits, unreached)


def _is_newly_left(task: Task, plan: Plan, before: Plan) -> bool:
    """Whether a person has just dropped an item or a parent of it, or marked it as done."""
    if task.is_finished and (was := before.task(task.id or "")) is not None and was.mark != task.mark:
        return True
    return task.parent is not None and _is_newly_left(plan.at(task.parent), plan, before)
