"""What single records do to a moment, where a slip would cost a promise."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged
from satchel.workspace.inbound import open_questions
from satchel.workspace.journal import (
    AnyRecord,
    Closed,
    Doubt,
    Edited,
    Failure,
    Line,
    Message,
    Opened,
    PartialPromoted,
    PlanChanged,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    StepCompleted,
    StepEdit,
    StepFailed,
    StepStarted,
)
from satchel.workspace.plan import Splice
from satchel.workspace.state.agent_state import ROOT
from satchel.workspace.state.run_state import Moment

AT = "2026-11-01T00:00:00.000Z"
OPENED = Opened(format=1, run_id="r", satchel="0", python="3", host="h", pid=1, why="run", found="new")


def moment(*groups: AnyRecord | tuple[AnyRecord, ...]) -> Moment:
    found = Moment(run_id="r")
    for group in groups:
        first = found.seq + 1
        records = group if isinstance(group, tuple) else (group,)
        found.apply(Line(first + n, first, AT, 1, each) for n, each in enumerate(records))
    return found


def call(scope: str = "1", step: str = "send", args: str = "a", n: int = 0, no: int = 1) -> dict[str, Any]:
    return {"scope": scope, "no": no, "step": step, "args": args, "n": n}


BEGUN = ScopeBegun(scope="1", title="One", plan=(Splice(0, 0, "- [/] One ^1\n"),))
BEGUN_AGAIN = ScopeBegun(scope="1", title="One")
STARTED = StepStarted(**call(), idempotency_key="k")
HI = Message(scope="1", role="user", content=Raw(b'"hi"'))
KEY = ("send", "a", 0)


def test_an_effect_that_began_stays_in_doubt_until_something_says_how_it_ended() -> None:
    assert KEY in moment(BEGUN, STARTED, Closed(), OPENED).root.scopes["1"].started
    failed = StepFailed(**call(), error=Failure("E", "x"), effect=True)
    assert KEY in moment(BEGUN, STARTED, failed).root.scopes["1"].started, "a failure is not a denial"
    denied = StepFailed(**call(), error=Failure("E", "x"), effect=True, not_done=True)
    assert KEY not in moment(BEGUN, STARTED, denied).root.scopes["1"].started
    done = moment(BEGUN, STARTED, StepCompleted(**call(), effect=True, result=Raw(b"1"))).root.scopes["1"]
    assert KEY in done.done and KEY not in done.started


def test_an_answer_that_it_was_done_is_the_result_and_one_that_it_was_not_frees_the_call() -> None:
    doubt = Doubt(**call(), id="d1", why="unknown_outcome")
    done = moment(BEGUN, STARTED, doubt, Resolved(id="d1", outcome="done", by="ann", result=Raw(b"7")))
    assert done.root.scopes["1"].done[KEY].result == Raw(b"7") and not done.root.scopes["1"].started and not done.doubts
    free = moment(BEGUN, STARTED, doubt, Resolved(id="d1", outcome="not_done", by="ann"))
    assert not free.root.scopes["1"].done and not free.root.scopes["1"].started and not free.doubts


def test_an_answer_is_to_one_question_only() -> None:
    doubt = Doubt(**call(), id="d1", why="unknown_outcome")
    answered = Resolved(id="d1", outcome="done", by="ann")
    with pytest.raises(Damaged, match="resolved"):
        moment(BEGUN, STARTED, doubt, answered, answered)


def test_the_answer_to_an_unclaimed_effect_counts_for_one_call_of_it() -> None:
    doubt = Doubt(**call(args="b", no=2), id="d1", why="unclaimed", others=(KEY,))
    found = moment(BEGUN, STARTED, doubt, Resolved(id="d1", outcome="not_done", by="ann"))
    scope = found.root.scopes["1"]
    answer = scope.answers["send", "b", 0]
    assert (answer.outcome, answer.other) == ("not_done", KEY) and KEY in scope.started and not scope.settled
    found.apply([Line(5, 5, AT, 1, StepStarted(**call(args="c", no=3), idempotency_key="k"))])
    assert scope.answers and KEY in scope.started, "another call has taken it"
    found.apply([Line(6, 6, AT, 1, StepStarted(**call(args="b", no=2), idempotency_key="k"))])
    assert not scope.answers and KEY not in scope.started and scope.settled == {KEY, ("send", "b", 0)}


def test_messages_count_only_with_the_commit_of_their_group() -> None:
    assert moment(BEGUN, (HI, HI, ScopeCommitted(scope="1"))).root.messages == 2
    assert moment(BEGUN, HI).root.messages == 0
    assert moment(BEGUN, HI, OPENED, (HI, ScopeCommitted(scope="1"))).root.messages == 1


def test_messages_of_a_commit_that_was_given_up_do_not_come_back_with_the_next() -> None:
    """A commit too large for a record: its messages were added before it failed, and the scope was run again."""
    found = moment(BEGUN, (HI,), (HI, ScopeCommitted(scope="1")))
    assert found.root.messages == len(found.root.new_messages) == 1


def test_a_scope_begun_twice_keeps_what_it_has() -> None:
    found = moment(BEGUN, StepCompleted(**call(), result=Raw(b"1")), ScopeBegun(scope="1", title="Renamed"))
    assert KEY in found.root.scopes["1"].done and found.root.scopes["1"].title == "One"


def test_the_root_scope_keeps_its_steps_when_it_records_state() -> None:
    patch = [{"op": "add", "path": "", "value": {}}]
    found = moment(StepCompleted(**call(ROOT), result=Raw(b"1")), ScopeCommitted(scope=ROOT, patch=patch))  # type: ignore[arg-type]
    assert KEY in found.root.scopes[ROOT].done and found.root.results == {} and found.root.data == {}


def test_only_a_run_is_an_attempt() -> None:
    from msgspec.structs import replace

    found = moment(OPENED, Closed(status="waiting", reason="asked"), replace(OPENED, why="answer"), Closed())
    assert (found.attempt, found.status, found.reason, found.clean) == (1, "waiting", "asked", True)
    assert moment(OPENED, replace(OPENED, why="recover")).clean is False


@pytest.mark.parametrize(
    "bad",
    [
        StepCompleted(**call("9")),
        STARTED,
        HI,
        ScopeCommitted(scope="9"),
        Resolved(id="d9", outcome="done", by="x"),
        Doubt(**call("9"), id="d1", why="unreached"),
        PlanChanged(plan=((5, 1, "x"),), by="agent"),  # type: ignore[arg-type]
        PlanChanged(plan=((-1, 0, "x"),), by="agent"),
        PlanChanged(plan=((0, 10**12, "x"),), by="agent"),  # type: ignore[arg-type]
        ScopeBegun(scope="1", title="", plan=((10**12, 0, "x"),)),  # type: ignore[arg-type]
        ScopeCommitted(scope=ROOT, patch=[{"op": "replace", "path": "/a/b", "value": 1}]),
        ScopeCommitted(scope=ROOT, patch=[{"op": "add"}]),
        PartialPromoted(**call("9"), attempt=1, file="x", characters=1, damaged=False, cut_off_at="", cut_off_by=""),
        Opened(format=1, run_id="other", satchel="0", python="3", host="h", pid=1, why="run", found="new"),
    ],
    ids=lambda bad: type(bad).__name__,
)
def test_a_record_that_does_not_fit_is_damage_that_names_it(bad: AnyRecord) -> None:
    with pytest.raises(Damaged, match=r"record 2 \(") as damaged:
        moment(OPENED, bad)
    assert damaged.value.remedy and bad.__struct_config__.tag in str(damaged.value)  # type: ignore[operator]


def edited(**changes: Any) -> Edited:
    return Edited(file="todo.md", by="ann", sha="0" * 64, **changes)


UNCLAIMED = Doubt(**call(args="b", no=2), id="d1", why="unclaimed", others=(KEY,))
SENT = StepCompleted(**call(), effect=True, result=Raw(b"1"))


@pytest.mark.parametrize("edit", [edited(dropped=("1",)), edited(redone=("1",))])
def test_no_question_outlives_a_scope_that_a_person_has_ended(edit: Edited) -> None:
    """Its answer would have nothing to fit, and the journal could not be read any more."""
    assert moment(BEGUN, SENT, UNCLAIMED).doubts
    ended = moment(BEGUN, SENT, UNCLAIMED, edit)
    assert not ended.doubts and "1" not in ended.root.scopes and KEY in ended.root.past["1"].done


@pytest.mark.parametrize("edit", [edited(dropped=("1",)), edited(redone=("1",))])
def test_an_effect_in_doubt_outlives_what_a_person_does_to_its_item(edit: Edited) -> None:
    asked = Doubt(**call(), id="d1", why="unknown_outcome")
    found = moment(BEGUN, STARTED, StepCompleted(**call(step="read"), result=Raw(b"1")), asked, edit)
    assert KEY in found.root.scopes["1"].started and "d1" in found.doubts


def test_an_answer_that_no_call_has_taken_yet_outlives_that_its_item_is_done_again() -> None:
    answer = Resolved(id="d1", outcome="done", by="ann")
    found = moment(BEGUN, SENT, UNCLAIMED, answer, edited(redone=("1",)), BEGUN_AGAIN)
    scope = found.root.scopes["1"]
    assert scope.answers["send", "b", 0].result == Raw(b"1") and KEY in scope.done


def test_an_effect_that_a_person_wants_done_again_is_not_remembered_as_done() -> None:
    again = edited(step=StepEdit(scope="1", key=KEY, redo=True))
    found = moment(BEGUN, SENT, ScopeCommitted(scope="1"), edited(redone=("1",)), BEGUN_AGAIN)
    assert KEY in found.root.scopes["1"].done, "an effect is kept when its item is done again"
    found = moment(
        BEGUN,
        SENT,
        ScopeCommitted(scope="1"),
        edited(redone=("1",)),
        BEGUN_AGAIN,
        again,
        edited(redone=("1",)),
        BEGUN_AGAIN,
    )
    scope = found.root.scopes["1"]
    assert KEY not in scope.done and scope.again == {KEY: 1}


def test_a_question_can_be_put_when_its_scope_is_gone() -> None:
    """No runtime of ours leaves one behind; a stranger's journal may, and `status` must not stumble."""
    found = moment(BEGUN, STARTED, Doubt(**call(), id="d1", why="unknown_outcome"), ScopeCommitted(scope="1"))
    assert all("send" in question.text for question in open_questions(found))


def test_lines_of_the_format_come_back_as_the_records_they_were() -> None:
    for seq, each in enumerate((OPENED, BEGUN, STARTED, HI), start=1):
        assert journal.parse(journal.encode(Line(seq, seq, AT, 1, each))[:-1]).record == each


@pytest.mark.parametrize("data", [[1], "text", 1, None])
def test_a_patch_makes_the_data_something_that_no_agent_can_have(data: object) -> None:
    begun = ScopeCommitted(scope=ROOT, patch=[{"op": "add", "path": "", "value": {"a": 1}}])
    spoilt = ScopeCommitted(scope=ROOT, patch=[{"op": "replace", "path": "", "value": data}])
    with pytest.raises(Damaged, match="would not be an object"):
        moment(begun, spoilt)
