"""Effects that are called with other arguments at a later attempt: a person says which call is which, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Raw

from satchel import NotDone, Run, agent, effect, run
from satchel.runtime.execution.running import Outcome
from satchel.workspace.base.errors import DoesNotFit
from satchel.workspace.inbound import Reply, find_question
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import NOTHING, Resolved
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore


class Mails:
    """Mails to several people, whose texts hold the hour. The hour is another one when `hour` is set."""

    def __init__(self, workspace: Path, crash: type[BaseException]):
        self.workspace, self.crash = workspace, crash
        self.sent: list[str] = []
        self.verified: list[str] = []
        self.hour = 1
        self.dies_at = ""  # while it sends to this one
        self.fails = True
        self.to = ["ada", "bob"]
        self.at_once = False
        self.options: dict[str, Any] = {}
        self.send: Any = None

    def run(self) -> Outcome:
        @effect(**self.options)
        async def send(to: str, text: str) -> str:
            self.sent.append(f"{to} at {self.hour}")
            if to == self.dies_at:
                raise self.crash
            return f"receipt of {to}"

        async def work(run: Run[Any], item: Any) -> list[str]:
            text = f"it is {self.hour} o'clock"
            if self.at_once:
                found = await asyncio.gather(*(send(to, text) for to in self.to))
            else:
                found = [await send(to, text) for to in self.to]
            if self.fails:
                raise self.crash
            return found

        @agent
        async def main(run: Run[Any]) -> Any:
            if not run.todo.items:
                await run.plan(None, ["send"])
            await run.todo.each(work)
            return run.todo.result("send")

        return run(self.workspace, main)

    def die(self) -> None:
        with pytest.raises(self.crash):
            self.run()

    def answer(self, id: str, decision: str, result: bytes = b"") -> None:
        with opened(DiskStore(self.workspace), "answer", Report()) as found:
            question = find_question(found.moment, id)
            assert question is not None and decision in question.choices, question
            reply = Reply(decision, "tester", "", Raw(result) if result else NOTHING)
            found.desk.record(found.journal, question, reply, "command")
            found.close()


@pytest.fixture
def mails(workspace: Path, crash: type[BaseException]) -> Mails:
    return Mails(workspace, crash)


def asked(outcome: Outcome, workspace: Path) -> tuple[str, str]:
    """The one question, and its words."""
    assert outcome.status == "waiting"
    (doubt,) = outcome.doubts
    return doubt.id, yaml.safe_load((workspace / f"approvals/{doubt.id}.yaml").read_text())["question"]


def test_one_answer_settles_every_earlier_call_of_the_effect(mails: Mails, workspace: Path) -> None:
    mails.die()
    mails.hour, mails.fails = 2, False
    id, question = asked(mails.run(), workspace)
    assert "1. send(" in question and "2. send(" in question
    assert "done-1: the same as call 1, which has happened" in (workspace / f"approvals/{id}.yaml").read_text()
    mails.answer(id, "done-1")
    id, question = asked(mails.run(), workspace)
    assert "Is it the same action?" in question and '"to":"bob"' in question, "bob was sent twice without a question"
    mails.answer(id, "done")
    outcome = mails.run()
    assert (outcome.status, outcome.result) == ("completed", ["receipt of ada", "receipt of bob"])
    assert mails.sent == ["ada at 1", "bob at 1"]


def test_an_answer_is_taken_by_another_call_that_comes_first(mails: Mails, workspace: Path) -> None:
    """Ada's mail is out, and bob's is not. The answer is about ada, and then bob comes first."""
    mails.to = ["ada"]
    mails.die()
    mails.hour, mails.fails = 2, False
    id, _ = asked(mails.run(), workspace)
    mails.answer(id, "done")
    mails.to = ["bob", "ada"]
    outcome = mails.run()
    assert outcome.status == "waiting" and mails.sent == ["ada at 1"], "bob has taken the answer about ada"
    mails.answer(outcome.doubts[0].id, "new")
    outcome = mails.run()
    assert (outcome.status, outcome.result) == ("completed", ["receipt of bob", "receipt of ada"])
    assert mails.sent == ["ada at 1", "bob at 2"]


def test_of_calls_at_once_another_takes_the_answer(mails: Mails, workspace: Path) -> None:
    mails.to = ["ada"]
    mails.die()
    mails.hour, mails.fails = 2, False
    id, _ = asked(mails.run(), workspace)
    mails.answer(id, "done")
    mails.to, mails.at_once = ["bob", "ada"], True
    assert mails.run().result == ["receipt of bob", "receipt of ada"]
    assert mails.sent == ["ada at 1", "bob at 2"]


def test_an_answer_counts_for_arguments_that_nobody_has_seen(mails: Mails, workspace: Path) -> None:
    mails.to = ["ada"]
    mails.die()
    mails.hour, mails.fails = 2, False
    first, _ = asked(mails.run(), workspace)
    mails.answer(first, "done")
    mails.hour = 3
    id, question = asked(mails.run(), workspace)
    assert id != first and "is about send" in question and "send.named(...)" in question
    assert mails.sent == ["ada at 1"]


def test_a_question_that_is_not_asked_any_more_stays_open(mails: Mails, workspace: Path) -> None:
    mails.to = ["ada"]
    mails.die()
    mails.fails = False
    ids = []
    for mails.hour in (2, 3):
        id, _ = asked(mails.run(), workspace)
        ids.append(id)
    assert ids == ["d1", "d2"]
    mails.hour = 1
    assert mails.run().status == "completed"
    with opened(DiskStore(workspace), "recover", Report()) as found:
        assert not found.moment.doubts
        found.close()


def test_an_earlier_call_in_doubt_is_asked_about_before_it_is_verified(mails: Mails, workspace: Path) -> None:
    def was_sent(to: str, text: str) -> str:
        mails.verified.append(f"{to}: {text}")
        return f"receipt of {to}"

    mails.options, mails.dies_at = {"verify": was_sent}, "bob"
    mails.die()
    mails.hour, mails.fails, mails.dies_at = 2, False, ""
    id, _ = asked(mails.run(), workspace)
    assert mails.verified == ["bob: it is 1 o'clock"], "with the arguments it was called with"
    mails.answer(id, "done-1")
    id, _ = asked(mails.run(), workspace)
    mails.answer(id, "done")
    outcome = mails.run()
    assert (outcome.status, outcome.result) == ("completed", ["receipt of ada", "receipt of bob"])
    assert mails.sent == ["ada at 1", "bob at 1"]


def test_an_earlier_call_that_has_not_happened_is_asked_about(mails: Mails, workspace: Path) -> None:
    def was_sent(to: str, text: str) -> str:
        raise NotDone

    mails.options, mails.dies_at, mails.to = {"verify": was_sent}, "bob", ["bob"]
    mails.die()
    mails.hour, mails.fails, mails.dies_at = 2, False, ""
    assert mails.run().status == "completed"
    assert mails.sent == ["bob at 1", "bob at 2"]


def test_a_call_that_a_person_calls_a_new_one_settles_one_in_doubt(mails: Mails, workspace: Path) -> None:
    mails.dies_at, mails.to = "bob", ["bob"]
    mails.die()
    mails.hour, mails.fails, mails.to, mails.dies_at = 2, False, ["carol"], ""
    id, _ = asked(mails.run(), workspace)
    mails.answer(id, "new")
    outcome = mails.run()
    assert outcome.status == "waiting" and mails.sent[1:] == ["carol at 2"]
    (doubt,) = outcome.doubts
    assert doubt.why == "unreached" and '"to":"bob"' in doubt.call


def test_what_a_person_says_has_happened_is_done_with_other_arguments_unasked(mails: Mails, workspace: Path) -> None:
    mails.dies_at, mails.to = "bob", ["bob"]
    mails.die()
    mails.fails, mails.to, mails.dies_at = False, [], ""
    id, _ = asked(mails.run(), workspace)  # it was not called again: has it happened?
    mails.answer(id, "done", b'"yes"')
    mails.hour, mails.to = 2, ["bob"]
    id, _ = asked(mails.run(), workspace)
    assert mails.sent == ["bob at 1"]
    mails.answer(id, "done")
    assert mails.run().result == ["yes"]


def test_an_answer_without_the_call_it_means_is_taken(mails: Mails, workspace: Path) -> None:
    mails.die()
    mails.hour, mails.fails = 2, False
    id, _ = asked(mails.run(), workspace)
    path = workspace / f"approvals/{id}.yaml"
    path.write_text(path.read_text().replace("\ndecision:\n", "\ndecision: done\n"))
    outcome = mails.run()
    assert outcome.status == "waiting" and "not accepted" in path.read_text()


def _recorded(workspace: Path, **facts: Any) -> Callable[[], None]:
    def record() -> None:
        with opened(DiskStore(workspace), "answer", Report()) as found:
            found.journal.add(Resolved(id="d1", by="tester", **facts))
            found.journal.flush()

    return record


def test_a_record_that_names_none_of_the_earlier_calls_is_applied(mails: Mails, workspace: Path) -> None:
    mails.die()
    mails.hour = 2
    asked(mails.run(), workspace)
    with pytest.raises(DoesNotFit):
        _recorded(workspace, outcome="done")()
