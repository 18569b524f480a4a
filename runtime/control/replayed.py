"""What a replayed item has done differently, and what it has cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import SatchelError
from ...workspace.history import Call, DataChange, Work, Worked, data_changes, moment_at, records_of, same_outcome
from ...workspace.inspect import Remark, look
from ...workspace.journal.records import Failure, Output, ScopeCommitted, Spent
from ...workspace.state import ABSENT, Kept, Status, json_patch
from ..engine import Only
from ..execution import Outcome
from .history import value_of
from .place import Place
from .questions import OpenQuestion, questions_of

End = Literal["done", "effect", "missed", "failed", "paused", "waiting", "sleeping"]


class Turn(Struct, frozen=True):
    """One of the two times that the item was done. `state` as of `Work`, empty if it has not begun; `result` as a JSON
    value, None for one that is no longer kept; `ms` of its steps; `tokens` and `usd` as the agent has reported them."""

    state: str
    result: Any
    calls: int
    ms: int
    tokens: int
    usd: float
    outputs: dict[str, Output]


class CallPair(Struct, frozen=True):
    """The n-th call of one name in both. `kept`: an effect that only the first time has done; the fork knows it."""

    agent: str
    old: Call | None
    new: Call | None
    is_same: bool
    kept: bool


class Replayed(Struct, frozen=True):
    """A replay of `item`, called `title`, in the run `run_id` at `to`, from record `seq` of the run at `url`.

    `settings` and `prompts`, with their versions, are those that were set. `end`: "done"; "effect", it has come to an
    effect that is not on record; "missed", the agent did not come to the item; or the status of the run. `reason` says
    more. `data`: the values of state.json in which the commits differ; None if one has not committed. `questions` and
    `failure` are of the new run, `report` is that of its opening.
    """

    url: str
    to: str
    run_id: str
    item: str
    title: str
    seq: int
    settings: dict[str, Any]
    prompts: dict[str, str]
    end: End
    status: Status
    reason: str
    first: Turn
    second: Turn
    calls: list[CallPair]
    data: list[DataChange] | None
    questions: list[OpenQuestion]
    failure: Failure | None
    report: tuple[Remark, ...]

    @property
    def is_same(self) -> bool:
        """Whether both times have finished the item, and came to the same: state, result, outputs and outcomes of
        steps. Costs don't count."""
        sides = [(turn.state, turn.result, {name: each.sha256 for name, each in turn.outputs.items()})
                 for turn in (self.first, self.second)]  # fmt: skip
        return sides[0] == sides[1] and self.data == [] and all(pair.is_same for pair in self.calls)


class _Side(NamedTuple):
    """One time, with the values that its commit has changed, each with that before."""

    turn: Turn
    changes: list[DataChange] | None


def compared(
    old: tuple[Place, Worked, Work], new: tuple[Place, Worked, Work | None], only: Only, outcome: Outcome,
    *, settings: dict[str, Any], prompts: dict[str, str], seq: int,
) -> Replayed:  # fmt: skip
    """The result. `only` and `outcome` are those of the run that has done it again."""
    place, there, work = old[0], new[0], old[2]
    moment = look(there.store).moment
    first, second = _side(*old), _side(*new)
    end = only.end or ("missed" if outcome.status in ("completed", "cancelled") else outcome.status)
    return Replayed(
        place.url, there.url, moment.run_id, work.names[0], work.title, seq, settings, prompts,
        end, moment.status, only.reason or moment.reason, first.turn, second.turn,  # type: ignore[arg-type]
        [*_pairs(calls_by_step(old[1], work), calls_by_step(new[1], new[2]))],
        None if first.changes is None or second.changes is None else [*_differing(first.changes, second.changes)],
        questions_of(moment, there), moment.error if moment.status == "failed" else None, (*outcome.report.remarks,),
    )  # fmt: skip


def calls_of(found: Worked, work: Work) -> list[Call]:
    """The calls of an item, and those of the agents that it has started."""
    return [call for calls in calls_by_step(found, work).values() for call in calls]


_Step = tuple[str, str, str]
"""An agent, a scope, empty for the item itself, and the name of a step."""


def calls_by_step(found: Worked, work: Work | None) -> dict[_Step, list[Call]]:
    """The same, in the order in which they began."""
    calls: dict[_Step, list[Call]] = {}
    for each in _works(found, work):
        scope = each.scope if each.agent else ""
        for call in each.calls:
            calls.setdefault((each.agent, scope, call.step), []).append(call)
    return calls


def _works(found: Worked, work: Work | None) -> Iterator[Work]:
    if work is None:
        return
    yield work
    agents = found.moment.agents
    for each in found.work:
        is_of_it = each.agent and agents[each.agent.partition("/")[0]].spawned_in == work.scope
        if is_of_it and each.state not in ("undone", "dropped"):
            yield each


def _pairs(old: Mapping[_Step, list[Call]], new: Mapping[_Step, list[Call]]) -> Iterator[CallPair]:
    """In the order of the first time. What only one of them has done is paired with nothing."""
    for step in dict.fromkeys((*old, *new)):
        later = list(new.get(step, ()))
        known = [call for call in later if call.effect and not call.seq]  # brought along, and perhaps not called
        fresh = [call for call in later if call not in known]
        for one, other in zip_longest(old.get(step, ()), fresh):
            kept = other is None and any(call.key == one.key for call in known)
            yield CallPair(step[0], one, other, kept or _is_same(one, other), kept)


def _is_same(old: Call | None, new: Call | None) -> bool:
    return old is not None and new is not None and same_outcome(old, new)


def _side(place: Place, found: Worked, work: Work | None) -> _Side:
    if work is None:
        return _Side(Turn("", None, 0, 0, 0, 0.0, {}), None)
    works = [*_works(found, work)]
    names = {(each.agent, each.scope) for each in works}
    lines = [
        line for line in records_of(place.store).lines if work.begun <= line.seq <= (work.ended or found.moment.seq)
    ]
    spent = [line.record for line in lines if isinstance(line.record, Spent)]
    spent = [each for each in spent if (each.agent, each.scope) in names]
    turn = Turn(
        work.state, None, sum(len(each.calls) for each in works), work.ms, sum(each.tokens for each in spent),
        round(sum(each.usd for each in spent), 9), {},
    )  # fmt: skip
    commit = lines[-1].record if lines else None
    if not isinstance(commit, ScopeCommitted):
        return _Side(turn, None)
    before = moment_at(place.store, lines[-1].seq - 1).agents[commit.agent]
    data = before.data if before.has_data else {}
    changes = [DataChange("", *change) for change in data_changes(data, json_patch.apply(data, commit.patch))]
    try:
        result = value_of(place.store, Kept(commit.result, commit.blob))
    except (SatchelError, FileNotFoundError):
        result = None  # its blob is gone
    return _Side(replace(turn, result=result, outputs=commit.outputs), changes)


def _differing(old: list[DataChange], new: list[DataChange]) -> Iterator[DataChange]:
    """From what the first commit has left to what the second one has left, at each path that one of them has
    changed."""
    was, now = ({change.path: change for change in changes} for changes in (old, new))
    for path in dict.fromkeys((*was, *now)):
        known = was.get(path) or now[path]
        before = ABSENT if known.kind == "added" else known.old
        one, other = (_left(changes[path]) if path in changes else before for changes in (was, now))
        for change in data_changes(one, other, path):
            yield DataChange("", *change)


def _left(change: DataChange) -> Any:
    return ABSENT if change.kind == "removed" else change.new
