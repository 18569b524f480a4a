"""Named scopes that have another name at the next start: no effect is done twice without a word, and no question comes
about one that another scope is about to call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import satchel
from satchel import NotDone, Run, agent, effect, run
from satchel.runtime.execution.running import Outcome
from satchel.testing import assert_survives

Scopes = tuple[str, ...]


class Mails:
    """Scopes that each send an equal mail. The process dies in, or right after, the effect of `dies_in`."""

    def __init__(self, workspace: Path, crash: type[BaseException]):
        self.workspace, self.crash = workspace, crash
        self.sent: list[str] = []
        self.dies_in, self.in_doubt, self.at_once = "", False, False
        self.here = ""
        self.options: dict[str, Any] = {}
        self.named = ""

    def __call__(self, *names: str) -> Outcome:
        @effect(**self.options)
        async def send(to: str) -> str:
            self.sent.append(self.here)
            if self.in_doubt and self.here == self.dies_in:
                raise self.crash
            return f"receipt {len(self.sent)}"

        async def work(name: str) -> str:
            self.here = name
            found = await (send.named(self.named)("ada") if self.named else send("ada"))
            if name == self.dies_in:
                raise self.crash
            return found

        @agent
        async def main(run: Run[Any]) -> list[str]:
            if self.at_once:
                return await asyncio.gather(*(run.scope(name, work, name) for name in names))
            return [await run.scope(name, work, name) for name in names]

        return run(self.workspace, main)

    def die(self, *names: str) -> None:
        self.dies_in = names[-1]
        with pytest.raises(self.crash):
            self(*names)
        self.dies_in = ""

    def answer(self, decision: str, **result: Any) -> None:
        (question,) = self.questions
        self.handle.answer(decision, question.id, by="tester", **result)

    @property
    def handle(self) -> satchel.Handle:
        return satchel.open(str(self.workspace))

    @property
    def questions(self) -> list[Any]:
        return list(self.handle.questions())


@pytest.fixture
def mails(workspace: Path, crash: type[BaseException]) -> Mails:
    return Mails(workspace, crash)


@pytest.mark.parametrize(
    "decision, result, sent", [("done", "receipt 1", 1), ("redo", "receipt 2", 2), ("new", "receipt 2", 2)]
)
def test_an_effect_is_done_again_in_a_scope_with_another_name(
    mails: Mails, decision: str, result: str, sent: int
) -> None:
    mails.die("weekly")
    for _ in range(2):  # asked once
        assert mails("report").status == "waiting"
    assert len(mails.sent) == 1
    (question,) = mails.questions
    assert 'send("to":"ada") of \'report\' would begin' in question.text
    assert 'has called send("to":"ada"), which returned "receipt 1". That was in \'weekly\'' in question.text
    mails.answer(decision)
    outcome = mails("report")
    assert (outcome.status, outcome.result, len(mails.sent)) == ("completed", [result], sent)
    assert ("not called again" in " ".join(outcome.noticed)) is (decision == "new"), "its place is taken"


@pytest.mark.parametrize("decision, result, sent", [("done", "seen", 1), ("redo", "receipt 2", 2)])
def test_an_effect_in_doubt_is_done_again_in_a_scope_with_another_name(
    mails: Mails, decision: str, result: str, sent: int
) -> None:
    mails.in_doubt = True
    mails.die("weekly")
    assert mails("report").status == "waiting"
    (question,) = mails.questions
    assert 'send("to":"ada"), and its outcome is unknown' in question.text
    mails.answer(decision, **({"result": "seen"} if decision == "done" else {}))
    outcome = mails("report")
    assert (outcome.status, outcome.result, len(mails.sent)) == ("completed", [result], sent)


@pytest.mark.parametrize("has_happened", [True, False])
def test_verify_is_not_asked_about_an_effect_in_doubt_of_the_earlier_name(mails: Mails, has_happened: bool) -> None:
    keys = list[str]()

    async def was_sent(to: str, *, key: str) -> str:
        keys.append(key)
        if not has_happened:
            raise NotDone
        return "verified"

    mails.options, mails.in_doubt = {"verify": was_sent}, True
    mails.die("weekly")
    outcome = mails("report")
    assert len(keys) == 1
    if not has_happened:
        assert (outcome.status, outcome.result, len(mails.sent)) == ("completed", ["receipt 2"], 2)
        return
    assert outcome.status == "waiting"
    mails.answer("done")
    outcome = mails("report")
    assert (outcome.status, outcome.result, len(mails.sent), len(keys)) == ("completed", ["verified"], 1, 1)


def test_one_recorded_effect_has_the_place_of_two(mails: Mails) -> None:
    """Two scopes have other names: each question is about another one of the earlier two."""
    mails.at_once = True
    mails.die("a", "b")
    for name in ("a", "b"):
        assert mails("c", "d").status == "waiting"
        assert f"That was in {name!r}" in mails.questions[0].text
        mails.answer("done")
    outcome = mails("c", "d")
    assert (outcome.status, sorted(outcome.result), len(mails.sent)) == ("completed", ["receipt 1", "receipt 2"], 2)


def test_an_answer_about_a_name_that_has_changed_again_lets_the_effect_be_done(mails: Mails) -> None:
    mails.die("a")
    assert mails("b").status == "waiting"
    mails.answer("done")
    assert mails("c").status == "waiting" and len(mails.sent) == 1
    assert [question.id for question in mails.questions] == ["d2"]
    mails.answer("done")
    outcome = mails("c")
    assert (outcome.status, outcome.result, len(mails.sent)) == ("completed", ["receipt 1"], 1)


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("in_doubt", [False, True])
def test_a_return_to_the_earlier_code_does_it_again_or_leaves_a_question(
    mails: Mails, in_doubt: bool, is_answered: bool
) -> None:
    mails.in_doubt = in_doubt
    mails.die("a")
    mails("b")
    if is_answered:
        mails.answer("done", result="seen")
        mails.in_doubt = False
        mails.die("b")
    outcome = mails("a")
    if in_doubt and not is_answered:
        assert outcome.status == "waiting"
        assert "Has it happened?" in mails.questions[-1].text
        mails.handle.answer("done", mails.questions[-1].id, by="tester", result="seen")
        outcome = mails("a")
    assert (outcome.status, len(mails.sent), mails.questions) == ("completed", 1, [])


def test_an_effect_that_has_a_name_of_its_own_is_done_again(mails: Mails) -> None:
    mails.named = "weekly"
    mails.die("a")
    assert mails("b").status == "waiting" and len(mails.sent) == 1


def test_a_person_is_asked_about_a_scope_that_has_ended(mails: Mails) -> None:
    mails.die("a", "b")
    mails("c")
    (question,) = mails.questions
    assert "That was in 'b'" in question.text
    mails.answer("new")
    assert mails("c").status == "completed"


def looped(way: str, names: list[str]) -> Any:
    """An agent whose named scopes each send the same mails."""

    @effect(idempotent=True)
    async def send(to: str) -> str:
        return "sent"

    async def work(name: str) -> str:
        await send("ada")
        return await send("bob")

    async def lane(run: Run[Any], names: list[str]) -> None:
        for name in names:
            await run.scope(name, work, name)

    async def one(run: Run[Any], name: str, room: asyncio.Semaphore) -> None:
        async with room:
            await run.scope(name, work, name)

    @agent
    async def main(run: Run[Any]) -> str:
        if way == "in order":
            await lane(run, names)
        elif way == "in lanes":
            await asyncio.gather(*(lane(run, names[n::3]) for n in range(3)))
        else:
            room = asyncio.Semaphore(2)
            await asyncio.gather(*(one(run, name, room) for name in names))
        return "done"

    return main


@pytest.mark.parametrize("way", ["in order", "in lanes", "two at once"])
def test_unchanged_code_is_asked_about_its_own_scopes(way: str) -> None:
    assert_survives(looped(way, [f"mail {n}" for n in range(6)]))
