"""`answer` and `questions` from Python: a value is the answer as it is, and only `typed` reads a text."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import ASKING, Make, contents

import satchel
from satchel.runtime.api import Handle, answers
from satchel.runtime.status import place
from satchel.workspace.base.errors import UsageError
from satchel.workspace.inspect import lease
from satchel.workspace.store import DiskStore

GRANTING = """
from satchel import agent

async def work(run, item):
    schema = {"type": ["integer", "string"], "maximum": 300} if "much" in item.text else None
    choices = ["approve", "deny"] if schema is None else None
    answer = await run.ask(item.text, choices, schema=schema, context={"user": "ada"}, wait_for=0)
    run.state[item.text] = answer.decision

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["Grant?", "How much?"])
    await run.todo.each(work)
"""


@pytest.fixture
def granting(make: Make) -> Handle:
    handle = satchel.open(make(GRANTING))
    ended = handle.run()
    assert ended.status == "waiting" and [each.id for each in ended.questions] == ["a1"]
    return handle


def data(handle: Handle) -> Any:
    return json.loads((Path(handle.url) / "state.json").read_text())["data"]


@pytest.mark.parametrize(("value", "typed", "kept"), [(250, False, 250), ("250", False, "250"), ("250", True, 250)])
def test_an_answer_is_not_what_was_said(granting: Handle, value: Any, typed: bool, kept: Any) -> None:
    (asked,) = granting.questions()
    assert (asked.id, asked.text, asked.choices) == ("a1", "Grant?", ("approve", "deny"))
    assert asked.command == f"satchel answer {granting.url} a1" and asked.reply is None
    done = granting.answer("deny", by="Ada", note="not now")
    assert done.is_recorded and not done.was_before and done.questions == [] and done.answer
    assert (done.id, done.file, done.answer.by, done.answer.note) == ("a1", "approvals/a1.yaml", "Ada", "not now")
    assert granting.answer("deny", "a1").was_before
    with pytest.raises(UsageError, match="a1 is already answered: deny, by Ada"):
        granting.answer("approve", "a1")
    assert granting.resume().status == "waiting"
    asyncio.run(granting.answer_async(value, typed=typed))
    assert granting.answer(value, "a2", typed=typed).was_before
    assert granting.resume().status == "completed"
    assert data(granting) == {"Grant?": "deny", "How much?": kept}


def test_a_program_has_to_read_the_file_of_a_question(granting: Handle, make: Make) -> None:
    (asked,) = granting.questions()
    assert (asked.context, asked.schema) == ({"user": "ada"}, None)
    assert (asked.call, asked.arguments) == ("", None)
    granting.answer("approve")
    (asked,) = granting.resume().questions
    assert (asked.context, asked.schema) == ({"user": "ada"}, {"type": ["integer", "string"], "maximum": 300})

    (doubt,) = satchel.open(make(ASKING, name="doubt")).run().questions
    assert (doubt.context, doubt.schema) == (None, None)
    assert (doubt.call, doubt.arguments) == ('send("text":"mail the report")', {"text": "mail the report"})


def test_long_arguments_of_an_effect_in_doubt_are_an_error(make: Make) -> None:
    (doubt,) = satchel.open(make(ASKING.replace("mail the report", "x" * 70_000))).run().questions
    assert doubt.call.startswith("send(") and doubt.arguments is None


@pytest.mark.parametrize(
    ("decision", "question", "said"),
    [
        ("aprove", "", "Did you mean approve?"),
        (True, "a1", "is not a valid answer to a1"),
        ("approve", "a7", "there is no open question 'a7': open: a1"),
        ("", "", "expected one of: approve, deny"),
    ],
)
def test_a_wrong_answer_changes_something(granting: Handle, decision: Any, question: str, said: str) -> None:
    before = contents(Path(granting.url))
    with pytest.raises(UsageError) as raised:
        granting.answer(decision, question)
    assert said in str(raised.value) and contents(Path(granting.url)) == before


def test_what_a_person_has_typed_into_the_file_is_not_told(granting: Handle) -> None:
    path = Path(granting.url) / "approvals/a1.yaml"
    text = path.read_text()
    path.write_text(text.replace("\ndecision:", "\ndecision: deny"))
    (asked,) = granting.questions()
    assert asked.reply and asked.reply.decision == "deny" and asked.mistake is None
    path.write_text(text.replace("\ndecision:", "\ndecision: dney"))
    (asked,) = granting.questions()
    assert asked.reply is None and "Did you mean deny?" in str(asked.mistake)


def test_the_process_that_runs_it_is_not_waited_for(granting: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lets go of the workspace after two looks, and has not taken the answer."""
    path, waits = Path(granting.url) / "approvals/a1.yaml", list[float]()
    with ExitStack() as holding:
        holding.enter_context(lease.held(DiskStore(granting.url)))

        def wait(seconds: float) -> None:
            assert "\ndecision: deny\nby: Ada\n" in path.read_text()
            waits.append(seconds)
            if len(waits) == 2:
                holding.close()

        monkeypatch.setattr(place, "sleep", wait)
        monkeypatch.setattr(lease, "_DYING", 0.0)
        done = granting.answer("deny", by="Ada")
    assert done.is_recorded and waits == [0.1] * 2 and not done.waits_for


def test_a_process_that_does_not_take_it_is_waited_for_for_ever(
    granting: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_PATIENCE", -1.0)
    monkeypatch.setattr(lease, "_DYING", 0.0)
    with lease.held(DiskStore(granting.url)):
        done = granting.answer("deny", by="Ada")
        assert not done.is_recorded and done.answer is None and done.waits_for
        assert [each.id for each in done.questions] == ["a1"]
        with pytest.raises(UsageError, match="a1 is answered in its file: it says deny"):
            granting.answer("approve")
    granting.resume()
    (answered,) = granting.history.log(type="approval.answered")
    assert answered.record.get("how") == "command", "that a process ran is no reason to call it typed into the file"


@pytest.mark.parametrize(("result", "typed"), [({"a": [1]}, False), ('{"a": [1]}', True), ("{x", True)])
def test_a_result_is_not_what_the_effect_returns(make: Make, result: Any, typed: bool) -> None:
    handle = satchel.open(make(ASKING.replace(" -> str", "")))
    assert handle.run().status == "waiting"
    with pytest.raises(UsageError, match="needs an effect that has happened"):
        handle.answer("redo", result=result)
    assert handle.answer("done", "d1", result=result, typed=typed).is_recorded
    assert handle.resume().status == "completed"
    assert data(handle)["answer"] == ("{x" if result == "{x" else {"a": [1]})


def test_an_answer_that_the_file_has_brought_was_given_before(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has the run when the answer is given, and has ended a moment later: the next opening finds the file."""
    handle = satchel.open(make(GRANTING))
    handle.run()
    record = answers._record
    calls: list[object] = []

    def held_once(*arguments: Any) -> satchel.results.AnswerResult:
        calls.append(arguments)
        if len(calls) == 1:
            raise satchel.errors.LeaseHeld("another process has it")
        return record(*arguments)

    monkeypatch.setattr(answers, "_record", held_once)
    done = handle.answer("approve", "a1", by="ada")
    assert len(calls) == 2 and done.is_recorded and not done.was_before
    assert handle.answer("approve", "a1").was_before


FORGED = {
    "the question": ('question: "Grant?"', 'question: "Grant 5?"'),
    "the context": ("user: ada", "user: bob"),
    "the choices": ("deny]", "never]"),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", FORGED)
def test_an_answered_file_shows_what_nobody_asked(granting: Handle, what: str, when: str) -> None:
    file, change = Path(granting.url, "approvals/a1.yaml"), FORGED[what]
    if when == "after":
        granting.answer("approve", by="Ada", note="once")
    forged = file.read_text().replace(*change)
    assert forged.count(change[1]) == 1
    file.write_text(forged)
    if when == "before":
        granting.answer("approve", by="Ada", note="once")
    else:
        granting.recover()
    shown = file.read_text()
    assert change[0] in shown and change[1] not in shown
    for line in ("decision: approve", "by: Ada", "note: once", "status: answered"):
        assert f"\n{line}\n" in shown
    kept = Path(granting.url, "approvals/a1.rejected.yaml").read_text()
    assert change[1] in kept
    assert "as it was asked" in Path(granting.url, "approvals/a1.rejected.txt").read_text()
    granting.recover()
    assert file.read_text() == shown and len([*file.parent.glob("a1.*")]) == 3


def test_a_note_in_an_answered_file_is_thrown_away(granting: Handle) -> None:
    granting.answer("approve", by="Ada")
    file = Path(granting.url, "approvals/a1.yaml")
    file.write_text(f"# ask me why\n{file.read_text()}")
    granting.recover()
    assert "# ask me why" in file.read_text() and len([*file.parent.glob("a1.*")]) == 1
