"""Which records end the row of an item's crashes, and for which scopes a crash counts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from satchel.workspace.journal import (
    AgentBegun,
    AgentEnded,
    AnswersGrown,
    AnyRecord,
    ApprovalAsked,
    Edited,
    Failure,
    Line,
    Opened,
    PartialPromoted,
    PauseRequested,
    Resumed,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    Spent,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepRetry,
    StepStarted,
)
from satchel.workspace.plan import Splice
from satchel.workspace.state import Moment

AT = "2026-11-01T00:00:00.000Z"
OPENED = Opened(format=1, run_id="r", satchel="0", python="3", host="h", pid=1, why="run", found="clean", boot="b")
CRASHED = replace(OPENED, found="crash", crashed=True)
BEGUN = ScopeBegun(scope="1", title="One", plan=(Splice(0, 0, "- [/] One ^1\n"),))
BROKEN = Failure("E", "x")


def of_call(step: str = "read", agent: str = "", scope: str = "1") -> dict[str, Any]:
    return {"agent": agent, "scope": scope, "no": 1, "step": step, "args": "a", "n": 0}


def promoted(characters: int) -> PartialPromoted:
    cut = {"attempt": 1, "file": "f", "damaged": False, "cut_off_at": AT, "cut_off_by": "a crash"}
    return PartialPromoted(**of_call(), characters=characters, **cut)


STARTED = StepStarted(**of_call(), idempotency_key="k")
RETRIED = StepRetry(**of_call(), error=BROKEN, attempt=1, wait=1.0)
FAILED = StepFailed(**of_call(), error=BROKEN, final=True)
PROGRESS = StepProgress(**of_call(), value=Raw(b"1"))
DONE = StepCompleted(**of_call(), result=Raw(b"1"))
ASKED = ApprovalAsked(**of_call("ask"), id="a1", question="?")


def moment(*records: AnyRecord) -> Moment:
    found = Moment(run_id="r")
    found.apply(Line(seq, seq, AT, 1, record) for seq, record in enumerate(records, 1))
    return found


def counted(*records: AnyRecord, agent: str = "", scope: str = "1") -> int:
    return moment(OPENED, BEGUN, *records).agents[agent].scopes[scope].crashes


@pytest.mark.parametrize(
    ("record", "again"),
    [(STARTED, STARTED), (RETRIED, RETRIED), (FAILED, FAILED), (PROGRESS, PROGRESS), (promoted(5), promoted(5))],
    ids=lambda record: type(record).__name__,
)
def test_what_every_attempt_tells_hides_that_none_comes_further(record: AnyRecord, again: AnyRecord) -> None:
    assert counted(CRASHED, CRASHED, record) == 0, "it is new"
    assert counted(record, CRASHED, again, CRASHED, again, CRASHED) == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [(STARTED, DONE), (RETRIED, DONE), (PROGRESS, replace(PROGRESS, value=Raw(b"2"))), (promoted(5), promoted(6))],
    ids=lambda record: type(record).__name__,
)
def test_what_came_further_is_not_seen(before: AnyRecord, after: AnyRecord) -> None:
    assert counted(before, CRASHED, CRASHED, after, CRASHED) == 1


def test_what_is_no_progress_counts_as_one() -> None:
    told = (ScopeFailed(scope="1", error=BROKEN), BEGUN, Spent(tokens=1, scope="1", n=None))
    for record in told:
        assert counted(CRASHED, record, CRASHED, OPENED, CRASHED) == 3, record


def test_a_later_item_of_the_plan_lets_the_agent_itself_be_stuck() -> None:
    assert counted(CRASHED, CRASHED, ScopeBegun(scope="2", title="Two"), scope="") == 2
    committed = (ScopeBegun(scope="2", title="Two"), ScopeCommitted(scope="2"))
    assert counted(CRASHED, CRASHED, *committed, scope="") == 0
    assert counted(CRASHED, CRASHED, *committed) == 2, "the first item has come no further"


def test_an_item_is_stuck_while_its_sub_agent_comes_further() -> None:
    child = (AgentBegun(agent="c", scope="1", args="a"), ScopeBegun(agent="c", scope="9", title="Nine"))
    assert counted(*child, CRASHED, CRASHED, CRASHED) == 3
    assert counted(*child, CRASHED, CRASHED, agent="c", scope="9") == 2
    for record in (
        StepCompleted(**of_call(agent="c", scope="")),
        StepCompleted(**of_call(agent="c", scope="9")),
        ScopeCommitted(agent="c", scope="9"),
        AgentEnded(agent="c", result=Raw(b"1")),
    ):
        assert counted(*child, CRASHED, CRASHED, record) == 0, record
    again = (AgentEnded(agent="c", error=BROKEN), AgentBegun(agent="c", scope="1", args="a"))
    assert counted(*child, CRASHED, CRASHED, *again) == 2


def test_what_waits_is_blamed_for_the_crashes_of_others() -> None:
    assert counted(ASKED, CRASHED) == 0
    assert counted(StepProgress(**of_call("sleep"), value=Raw(b'"2026"')), CRASHED) == 0


def test_a_person_who_changes_something_is_not_heard() -> None:
    edit = Edited(file="state.json", by="ada", sha="s", patch=[{"op": "add", "path": "", "value": {"a": 1}}])
    assert counted(CRASHED, CRASHED, CRASHED, edit) == 0


def test_an_answer_of_a_model_that_grows_at_the_keeper_is_nothing_new() -> None:
    assert counted(CRASHED, CRASHED, AnswersGrown(answers=1), CRASHED) == 1
    assert counted(CRASHED, CRASHED, AnswersGrown(answers=1), scope="") == 0


@pytest.mark.parametrize(("before", "after"), [(4, 2), (3, 2), (2, 2), (0, 0)])
def test_a_resume_gives_other_than_one_more_attempt(before: int, after: int) -> None:
    crashes = [CRASHED] * before
    assert counted(*crashes, PauseRequested(reason="stuck", by="satchel"), Resumed(by="ada")) == after
