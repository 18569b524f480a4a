"""Return to an earlier record by adding a record, never by deleting. So a return can itself be undone, by another one.

Data, plan and the results of steps are those of that record; what was done since is done again. Effects and people's
answers stay on record: an equal call still returns its recorded result. Conversation and outputs stay.

A return is also what a person may answer about files of a checkpoint that were copied over those of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ..base import InvalidFile, NewerFormat, UsageError
from ..inspect import Report
from ..journal import Back, Edited, Journal, Kept, Rewound, blobs
from ..state import (
    DATA,
    GO_BACK,
    ROOT,
    AgentMoment,
    LaterEffect,
    Moment,
    PastMoments,
    Scope,
    checkpoint,
    earlier_moment,
    json_patch,
)
from ..store import Store
from ..views import STATE, TODO

_TOLD = 8


class Point(NamedTuple):
    """A checkpoint to return to."""

    moment: Moment
    path: str
    at: str  # when it was written, as far as the storage tells


class Return(Struct, frozen=True):
    """What a return does: its record, without the `agents` that it changes, and the effects that were done or began
    since that moment."""

    record: Rewound
    agents: Raw
    effects: tuple[LaterEffect, ...]

    def add(self, store: Store, writer: Journal) -> None:
        """Let it be the next record."""
        kept = blobs.keep(store, bytes(self.agents), writer.generation)
        writer.add(replace(self.record, agents=kept.result, blob=kept.blob))


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


def plan(
    now: Moment,
    then: Moment,
    by: str,
    *,
    file: str = "",
    forgets: bool = False,
    reused: earlier_moment.Reused | None = None,
) -> Return:
    """The return from `now` to `then`, an earlier moment of the same run. `forgets`: effects since then are done again.
    `reused`: results of later steps that equal calls return. UsageError for a moment before the run had read the plan
    that a person had written for it."""
    if now.root.adopted and not then.root.has_plan:
        raise UsageError(
            f"record {then.seq:,} is too early to return to",
            why=f"the run had not read your {TODO} yet",
            remedy="name a later record; `satchel log` shows when the plan changed",
        )
    agents = earlier_moment.joined(now.agents, then.agents, forgets=forgets, reused=reused)
    says = tuple(say for path, agent in agents.items() for say in _told(now.agents[path], agent, then.seq))
    record = Rewound(to=then.seq, by=by, file=file, forgets=forgets, says=says)
    return Return(
        record, earlier_moment.pack(agents, now.agents), (*earlier_moment.effects_since(now.agents, then.agents),)
    )


def _told(now: AgentMoment, after: AgentMoment, seq: int) -> Iterator[str]:
    """What the return changes, in words."""
    says = [*_of_plan(now, after)]
    yield from (f"{now.folder}{TODO}: {say}" for say in says[:_TOLD])
    if len(says) > _TOLD:
        yield f"{now.folder}{TODO}: and {len(says) - _TOLD} more"
    if (now.data, now.has_data) != (after.data, after.has_data):
        whose = f"record {seq:,}" if after.has_data else "a new agent"
        yield f"{now.folder}{STATE}: the data is that of {whose}"


def _of_plan(now: AgentMoment, after: AgentMoment) -> Iterator[str]:
    is_gone = len(after.plan) < len(now.plan) and not len(after.plan)
    if is_gone:
        yield "the plan is made again"
    for task in now.plan.tasks if not is_gone else ():
        back = after.plan.task(task.id) if task.id else None
        if task.id and task.is_work and back is None:
            yield f"item {task.id} ({task.text!r}) is no longer in the plan"
        elif task.is_work and task.is_finished and back is not None and not back.is_finished:
            yield f"item {task.id} ({task.text!r}) will be done again"
    for key in now.results:
        if key.startswith("_") and key not in after.results:
            yield f"{key[1:]} will run again"
    for key, scope in now.scopes.items():
        if key == ROOT or (key not in after.scopes and not _steps(scope)):
            continue
        kept = _steps(after.scopes.get(key, Scope()))
        if kept < _steps(scope):
            yield f"{scope.title!r} " + (f"returns to its first {kept} steps" if kept else "starts from its beginning")


def _steps(scope: Scope) -> int:
    """Calls with an outcome, but no effects."""
    return sum(not step.effect for step in scope.done.values()) + len(scope.failed)


def obey_answer(
    store: Store, moment: Moment, report: Report, journal: Journal, back: Back, decision: str, by: str
) -> None:
    """Add the records of it. They come before that of the answer: if a crash keeps only them, the question is asked
    once more, and the same answer changes nothing. UsageError if that moment can't be made any more."""
    if decision == GO_BACK:
        _go_back(store, moment, report, journal, back, by)
    elif decision == DATA:
        _take_data(store, moment, report, journal, back, by)


def _go_back(store: Store, moment: Moment, report: Report, journal: Journal, back: Back, by: str) -> None:
    journal.flush()
    was, then = moment.seq, PastMoments(store, moment).at(back.to)
    if then is None:
        raise UsageError(
            f"the run can't go back to the checkpoint {back.checkpoint} any more",
            why="the records before it are pruned",
            remedy="answer `data` or `keep`",
        )
    returned = plan(moment, then, by, file=f"checkpoints/{back.checkpoint}.json")
    returned.add(store, journal)
    for say in returned.record.says:
        report.add("edited", say)
    done = f"went back to the checkpoint {back.checkpoint}; effects and answers since then are kept"
    report.add("done", f"{done}. `satchel rewind WS --to {was}` undoes it")


def _take_data(store: Store, moment: Moment, report: Report, journal: Journal, back: Back, by: str) -> None:
    data: dict[str, Any] = msgspec.json.decode(blobs.fetch(store, Kept(back.data, back.blob)))
    for path, value in data.items():
        agent = moment.agents.get(path)
        if agent is None or not (patch := json_patch.diff(agent.data, value)):
            continue
        says = (f"the data is that of the checkpoint {back.checkpoint}",)
        file = f"{agent.folder}{STATE}"
        journal.add(Edited(agent=path, file=file, by=by, sha="", base=back.to, patch=patch, says=says))
        report.add("edited", f"{file}: {says[0]}")
