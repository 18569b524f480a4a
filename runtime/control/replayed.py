"""What a replayed item has done differently, and what it has cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ...workspace.base import SatchelError
from ...workspace.history import DataChange, data_changes, moment_at
from ...workspace.inspect import Remark, look
from ...workspace.journal.records import Failure, Output, ScopeCommitted, Spent
from ...workspace.state import ABSENT, OVER, Kept, Status, json_patch
from ..execution import Outcome
from ..live import ReplayTarget
from .history import value_of
from .item_calls import CallPair, Time, pairs
from .place import Place
from .questions import OpenQuestion, questions_of

End = Literal["done", "effect", "missed", "failed", "paused", "waiting", "sleeping"]


class Turn(Struct, frozen=True):
    """One of the two times that the item was done. `state` as of `Work` then, empty if it has not begun; `result` as a
    JSON value, None for one that is no longer kept; `ms` of its steps; `tokens` and `usd` as the agent has reported
    them."""

    state: str
    result: Any
    calls: int
    ms: int
    tokens: int
    usd: float
    outputs: dict[str, Output]


class Replayed(Struct, frozen=True):
    """A replay of `item`, called `title`, in the run `run_id` at `to`, from record `seq` of the run at `url`.

    `settings`, redacted, and `prompts`, with their versions, are those that were set. `end`: "done"; "effect", it
    has come to an effect that is not on record; "missed", the agent did not come to the item; or the status of the
    run. `reason` says more. `data`: the values of state.json in which the commits differ; None if one has not
    committed. `questions` and `failure` are of the new run, `report` is that of its opening.
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
        sides = [
            (turn.state, turn.result, {name: each.sha256 for name, each in turn.outputs.items()})
            for turn in (self.first, self.second)
        ]
        return sides[0] == sides[1] and self.data == [] and all(pair.is_same for pair in self.calls)


class _Side(NamedTuple):
    """One time, with the values that its commit has changed, each with that before."""

    turn: Turn
    changes: list[DataChange] | None


def compared(
    old: tuple[Place, Time],
    new: tuple[Place, Time | None],
    only: ReplayTarget,
    outcome: Outcome,
    *,
    settings: dict[str, Any],
    prompts: dict[str, str],
    seq: int,
) -> Replayed:
    """The result. `only` and `outcome` are those of the run that has done it again."""
    place, there, work = old[0], new[0], old[1].work
    moment = look(there.store).moment
    first, second = _side(*old), _side(*new)
    end = only.end or ("missed" if outcome.status in OVER else outcome.status)
    return Replayed(
        place.url,
        there.url,
        moment.run_id,
        work.names[0],
        work.title,
        seq,
        settings,
        prompts,
        end,  # type: ignore[arg-type]
        moment.status,
        only.reason or moment.reason,
        first.turn,
        second.turn,
        [*pairs(old[1], new[1], only.called, is_finished=second.changes is not None)],
        None if first.changes is None or second.changes is None else [*_differing(first.changes, second.changes)],
        questions_of(moment, there),
        moment.error if moment.status == "failed" else None,
        (*outcome.report.remarks,),
    )


def _side(place: Place, time: Time | None) -> _Side:
    if time is None:
        return _Side(Turn("", None, 0, 0, 0, 0.0, {}), None)
    work = time.work
    lines = [line for line in time.lines if work.begun <= line.seq <= time.last]
    spent = [
        each.record
        for each in lines
        if isinstance(each.record, Spent) and time.has(each.record.agent, each.record.scope, each.seq)
    ]
    commit = lines[-1].record if lines else None
    turn = Turn(
        work.state,
        None,
        sum(len(each.calls) for each in time.parts),
        sum(each.ms for each in time.parts),
        sum(each.tokens for each in spent),
        round(sum(each.usd for each in spent), 9),
        {},
    )
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
