"""Return to the last known-good checkpoint by adding records, never by deleting.

Items and scopes that were finished or begun since are done again, and the data is that of the checkpoint. Effects and
people's answers are never forgotten: an equal call still returns its recorded result. Conversation and outputs stay.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

from msgspec.structs import replace

from .. import journal
from ..base import InvalidFile, NewerFormat
from ..journal.records import AnyRecord, Edited, Key, Migrated, Rewound
from ..state import ROOT, AgentMoment, Moment, Scope, checkpoint, json_patch
from ..store import Store
from ..todo import between
from ..views import STATE, TODO

_TOLD = 8


class Point(NamedTuple):
    """A checkpoint to return to."""

    moment: Moment
    path: str
    at: str  # when it was written, as far as the storage tells


def last_good(store: Store, moment: Moment) -> Point | None:
    """The newest checkpoint of an earlier record that was not written at, or after, a stop that was not clean."""
    for path in reversed(checkpoint.paths(store)):
        try:
            found, _ = checkpoint.load(store, path)
        except (FileNotFoundError, ValueError, InvalidFile, NewerFormat):
            continue
        if found.seq < moment.seq and not found.unclean and found.run_id == moment.run_id:
            return Point(found, path, store.trace(path).at)
    return None


def records(store: Store, moment: Moment, point: Point, by: str) -> list[AnyRecord]:
    """The records for the return, agent by agent. An agent that had not begun then begins with its first data."""
    seq = point.moment.seq
    found: list[AnyRecord] = [Rewound(to=seq, file=point.path, by=by)]
    begun: dict[str, AgentMoment] = {}
    for agent in moment.agents.values():
        was = point.moment.agents.get(agent.path, AgentMoment(path=agent.path))
        found += _of_plan(agent, was, seq, by)
        if agent.has_data and not was.has_data:
            begun = begun or _begun(store, point)
            was = begun[agent.path]
        change = json_patch.diff(agent.data, was.data, ordered=True) if agent.has_data else []
        if was.data_version != agent.data_version:  # from there they are migrated again
            found.append(Migrated(agent=agent.path, to=was.data_version, patch=change))
        elif change:
            found.append(
                Edited(
                    agent=agent.path, file=agent.folder + STATE, by=by, sha="", base=seq, patch=change,
                    says=(f"the data is that of record {seq}",),
                )
            )  # fmt: skip
    return found


def _begun(store: Store, point: Point) -> dict[str, AgentMoment]:
    """The agents that have got their data since, each with its first data."""
    then, _ = checkpoint.load(store, point.path)
    found = {path: agent for path, agent in point.moment.agents.items() if agent.has_data}
    for line in journal.read(store, after=then.seq, before=then.before).lines:
        then.apply([line])
        agent = then.agents[line.record.agent]
        if agent.has_data and agent.path not in found:
            found[agent.path] = replace(agent, data=deepcopy(agent.data))
    return found


def _ended(scope: Scope) -> set[Key]:
    """The calls with an outcome."""
    return {*scope.done, *scope.failed}


def _of_plan(agent: AgentMoment, was: AgentMoment, seq: int, by: str) -> Iterator[Edited]:
    after = agent.plan.copy()
    redone, says = [], []
    for task in agent.plan.tasks:
        before = was.plan.task(task.id) if task.id else None
        now = after.task(task.id) if task.id else None
        is_new = task.is_leaf and task.is_finished and not (before is not None and before.is_finished)
        if is_new and task.id and now is not None:
            after.reopen(now)
            redone.append(task.id)
            says.append(f"item {task.id} ({task.text!r}) will be done again")
    for key in agent.results:
        if key.startswith("_") and key not in was.results:
            redone.append(key)
            says.append(f"{key[1:]} will run again")
    for key, scope in agent.scopes.items():
        known = was.scopes.get(key)
        if key != ROOT and _ended(scope) - (_ended(known) if known else set()):
            redone.append(key)
            says.append(f"{scope.title!r} starts again from its beginning")
    if redone:
        more = [f"and {len(says) - _TOLD} more"] if len(says) > _TOLD else []
        yield Edited(
            agent=agent.path, file=agent.folder + TODO, by=by, sha="", base=seq, redone=tuple(redone),
            plan=tuple(between(list(agent.plan.lines), list(after.lines))), says=(*says[:_TOLD], *more),
        )  # fmt: skip
