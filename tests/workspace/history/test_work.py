"""What each item has done, from hand-written records: finished and open items, and what people change about them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from fuzz.bases import ERROR, OPENED, call, plan
from msgspec import Raw

from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged, UsageError
from satchel.workspace.history import compared, data_changes, moment_at, step_history
from satchel.workspace.journal import (
    AgentBegun,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    Closed,
    Doubt,
    Edited,
    PlanChanged,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    StepCompleted,
    StepEdit,
    StepFailed,
    StepRetry,
    StepStarted,
)
from satchel.workspace.state import checkpoint

from .test_moments import lay_out

START: list[AnyRecord] = [
    OPENED,
    ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {"n": 1}}]),
    PlanChanged(plan=plan((0, 0, "- [ ] one\n- [ ] two\n")), by="agent"),
]
BEGUN = ScopeBegun(scope="1", title="one", plan=plan((0, 1, "- [/] one ^1\n")))
DONE = ScopeCommitted(scope="1", plan=plan((0, 1, "- [x] one ^1\n")), outputs={}, patch=[])
REDONE = Edited(file="todo.md", by="ann", sha="", redone=("1",), plan=plan((0, 1, "- [ ] one ^1\n")))
AGAIN = ScopeBegun(scope="1", title="one", plan=plan((0, 1, "- [/] one ^1\n")))


def step(no: int, result: str, name: str = "read", **more: Any) -> StepCompleted:
    return StepCompleted(**(call("1", no, name) | more), result=Raw(result.encode()))


def told(folder: Path, *records: AnyRecord, seq: int | None = None) -> list[Any]:
    found = step_history(lay_out(folder, [*START, *records]), seq)
    return [
        (work.names[0], work.state, [(each.step, each.state, each.result) for each in work.calls])
        for work in found.work
    ]


def test_the_steps_of_a_finished_item_are_forgotten(tmp_path: Path) -> None:
    records = [BEGUN, step(1, "7", ms=20, model="small", prompts={"a.md": "ab12"}), DONE, Closed(status="completed")]
    store = lay_out(tmp_path / "w", [*START, *records])
    (work,) = step_history(store).work
    (found,) = work.calls
    assert (work.state, work.begun, work.ended, work.ms, work.names) == ("committed", 4, 6, 20, ("^1", "1-one"))
    assert (found.seq, found.ms, found.model, found.prompts, found.result) == (5, 20, "small", {"a.md": "ab12"}, 7)
    assert not moment_at(store, 6).root.scopes.get("1")
    assert told(tmp_path / "v", *records, seq=5) == [("^1", "open", [("read", "completed", 7)])]
    assert told(tmp_path / "u", *records, seq=4) == [("^1", "open", [])]


def test_failures_and_retries_of_a_call_are_forgotten(tmp_path: Path) -> None:
    retry = StepRetry(**call("1", 1, "read"), error=ERROR, attempt=1, wait=2.5)
    failed = StepFailed(**call("1", 1, "read"), error=ERROR, attempt=2)
    final = StepFailed(**call("1", 2, "mail"), error=ERROR, effect=True, final=True)
    found = step_history(lay_out(tmp_path, [*START, BEGUN, retry, failed, ScopeFailed(scope="1", error=ERROR), final]))
    (work,) = found.work
    read, mail = work.calls
    assert (work.failures, read.state, [(each.attempt, each.wait) for each in read.troubles]) == (
        1,
        "failed",
        [(1, 2.5), (2, None)],
    )
    assert (mail.state, mail.error) == ("failed", "ValueError: it is wrong")


def test_effects_and_questions_have_no_state(tmp_path: Path) -> None:
    started = StepStarted(**call("1", 1, "post"), idempotency_key="k")
    doubt = Doubt(**call("1", 1, "post"), id="d1", why="unknown_outcome")
    asked = ApprovalAsked(**call("1", 2, "ask"), id="a1", question="May I?")
    answers = [
        Resolved(id="d1", outcome="done", by="ann", result=Raw(b'"by hand"')),
        ApprovalAnswered(id="a1", decision=Raw(b'"yes"'), by="ann"),
    ]
    records = [BEGUN, started, doubt, asked, *answers, DONE]
    states = {5: ("begun",), 6: ("in_doubt",), 7: ("in_doubt", "asked"), 9: ("completed", "completed")}
    store = lay_out(tmp_path, [*START, *records])
    for seq, expected in states.items():
        (work,) = step_history(store, seq).work
        assert tuple(each.state for each in work.calls) == expected
    (work,) = step_history(store).work
    assert [(each.how, each.seq) for each in work.calls] == [("resolved", 8), ("answered", 9)]


def test_an_item_that_is_done_again_keeps_its_old_steps(tmp_path: Path) -> None:
    sent = step(2, '"sent"', "send", effect=True)
    first = [BEGUN, step(1, "1"), sent, DONE, REDONE]
    again = [AGAIN, step(1, "2"), DONE]
    old, new = ("read", "completed", 1), ("read", "completed", 2)
    effect = ("send", "completed", "sent")
    assert told(tmp_path / "a", *first) == [("^1", "undone", [old, effect])]
    assert told(tmp_path / "b", *first, *again) == [("^1", "undone", [old, effect]), ("^1", "committed", [new, effect])]
    store = lay_out(tmp_path / "c", [*START, *first, *again])

    def differs(one: int, other: int) -> list[tuple[str, str]]:
        return [
            (each.kind, (each.new or each.old).step)
            for each in compared(step_history(store, one), step_history(store, other)).calls
        ]

    assert differs(7, 8) == [("removed", "read")], "an effect stays done"
    assert differs(7, 11) == [("changed", "read")]
    assert differs(10, 11) == differs(11, 11) == []


def test_a_dropped_item_stays_open(tmp_path: Path) -> None:
    dropped = Edited(file="todo.md", by="ann", sha="", dropped=("1",), plan=plan((0, 1, "")))
    assert told(tmp_path / "a", BEGUN, step(1, "1"), dropped) == [("^1", "dropped", [("read", "completed", 1)])]
    skipped = ScopeCommitted(scope="1", cancelled="no use")
    assert told(tmp_path / "b", BEGUN, skipped) == [("^1", "skipped", [])]


def test_an_edited_result_is_not_the_result(tmp_path: Path) -> None:
    key = ("read", "0" * 16, 0)
    edited = Edited(
        file="steps/1-one/01-read.json", by="ann", sha="", step=StepEdit(scope="1", key=key, result=Raw(b"5"))
    )
    (work,) = step_history(lay_out(tmp_path, [*START, BEGUN, step(1, "1"), edited, DONE])).work
    assert [(each.result, each.how, each.seq) for each in work.calls] == [(5, "edited", 6)]


def test_own_calls_of_an_agent_and_of_a_sub_agent_are_missing(tmp_path: Path) -> None:
    own = StepCompleted(**call("", 1, "read"), result=Raw(b"1"))
    begun = [AgentBegun(agent="sub", scope="", args="0"), ScopeBegun(agent="sub", scope="_x", title="x")]
    inner = StepCompleted(**call("_x", 1, "dig", "sub"), result=Raw(b"2"))
    found = step_history(lay_out(tmp_path, [*START, own, *begun, inner])).work
    assert [(each.agent, each.scope, len(each.calls)) for each in found] == [("", "", 1), ("sub", "_x", 1)]
    assert found[1].names == ("sub/_x",)


def test_what_retention_has_removed_is_not_told(tmp_path: Path) -> None:
    records = [
        *START,
        BEGUN,
        step(1, "1"),
        step(2, '"sent"', "mail", effect=True),
        DONE,
        ScopeBegun(scope="2", title="two"),
        StepCompleted(**call("2", 1, "read"), result=Raw(b"3")),
        Closed(),
    ]
    store = lay_out(tmp_path, records, segment=4)
    for seq in (3, 9):
        checkpoint.write(store, moment_at(store, seq), {})
    store.remove(journal.segment_path(1))
    store.remove(journal.segment_path(5))
    found = step_history(store)
    assert found.since == 9 and [(each.names[0], each.state, each.begun) for each in found.work] == [
        ("^1", "pruned", 0),
        ("^2", "open", 0),
    ]
    (sent,) = found.work[0].calls
    assert (found.work[0].title, sent.step, sent.effect, sent.result) == ("one", "mail", True, "sent") and sent.at
    whole = step_history(lay_out(tmp_path / "whole", records))
    assert not compared(whole, found).calls and not compared(found, whole).calls
    assert step_history(store, 3).work == [] and step_history(store, 3).moment.seq == 3, (
        "a checkpoint counts for itself"
    )
    with pytest.raises(UsageError, match="record 5 is gone: the journal is kept from record 9 on"):
        step_history(store, 5)


def test_damage_hides_earlier_work(tmp_path: Path) -> None:
    store = lay_out(tmp_path, [*START, BEGUN, step(1, "1"), DONE, Closed()], segment=5)
    path = journal.segment_path(6)
    _, *rows = store.read(path).data.splitlines(keepends=True)
    store.replace(path, b"".join([b"broken\n", *rows]))
    found = step_history(store)
    assert found.moment.seq == 5 and isinstance(found.problem, Damaged)
    with pytest.raises(Damaged):
        step_history(store, 6)


def test_a_difference_of_values_is_not_told_at_its_place() -> None:
    old = {"same": 1, "gone": None, "deep": {"a/b": [1, 2, 3]}, "kind": 1, "list": [{"n": 1}, {"n": 2}, {"n": 3}]}
    new = {"same": 1, "deep": {"a/b": [1, 3]}, "kind": 1.0, "list": [{"n": 1}, {"n": 9}, {"n": 3}], "new": {}}
    assert [*data_changes(old, new)] == [
        ("/gone", "removed", None, None),
        ("/deep/a~1b/1", "removed", 2, None),
        ("/kind", "changed", 1, 1.0),
        ("/list/1/n", "changed", 2, 9),
        ("/new", "added", None, {}),
    ]
    assert [*data_changes([1], [1, 2])] == [("/1", "added", None, 2)]
    assert [*data_changes({}, [])] == [("", "changed", {}, [])] and not [*data_changes(old, old)]


def test_agents_data_and_plans_are_not_compared(tmp_path: Path) -> None:
    data = ScopeCommitted(agent="sub", scope="", patch=[{"op": "add", "path": "", "value": {"k": 1}}])
    planned = PlanChanged(agent="sub", plan=plan((0, 0, "- [ ] dig\n")), by="agent")
    store = lay_out(tmp_path, [*START, AgentBegun(agent="sub", scope="", args="0"), data, planned])
    found = compared(step_history(store, 3), step_history(store))
    assert [(each.agent, each.path, each.kind, each.new) for each in found.data] == [("sub", "", "added", {"k": 1})]
    assert [(each.agent, each.lines[1:]) for each in found.plans] == [("sub", ("+- [ ] dig",))]
    back = compared(step_history(store), step_history(store, 3))
    assert [(each.kind, each.old) for each in back.data] == [("removed", {"k": 1})]


def test_the_collector_walks_through_ten_thousand_calls_again_and_again(tmp_path: Path) -> None:
    """It took nearly half of the time of a comparison. A call refers to nothing that refers back to it."""
    store = lay_out(tmp_path, [*START, BEGUN, step(1, "1"), DONE])
    (change,) = compared(step_history(store, 4), step_history(store)).calls
    assert not gc.is_tracked(change) and change.new is not None and not gc.is_tracked(change.new)
