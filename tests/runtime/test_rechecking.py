"""After a stop that was forced or an emergency: what is on record as done is looked at again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from satchel import Item, NotDone, Run, agent, effect, run
from satchel.runtime import rechecking
from satchel.workspace import pausing
from satchel.workspace.looking import look
from satchel.workspace.opening import opened
from satchel.workspace.record import NOTHING, Forced, PauseRequested, Resolved
from satchel.workspace.report import Report
from satchel.workspace.store import DiskStore


class Killed(BaseException):
    """Leaves the workspace as a kill does."""


def force(workspace: Path) -> None:
    """The last stop was forced."""
    with opened(DiskStore(workspace), "recover", Report()) as found:
        found.journal.add(PauseRequested(reason="maintenance", by="me"))
        found.journal.add(Forced())
        found.journal.flush()
        pausing.settle(found, forced=True)
        found.close("paused", "maintenance")
    assert look(DiskStore(workspace)).moment.unclean


def resolve(workspace: Path, outcome: Any, result: bytes = b"") -> None:
    with opened(DiskStore(workspace), "answer", Report()) as found:
        found.journal.add(Resolved(id="d1", outcome=outcome, by="me", result=Raw(result) if result else NOTHING))
        found.journal.flush()
        found.close()


class Post:
    """Letters that are sent, and what `verify` says of them."""

    def __init__(self, verify: Any = None, about: str = "one") -> None:
        self.about = about
        self.sent: list[str] = []
        self.asked: list[str] = []
        self.answer: Any = verify

    def agent(self, *, fails: int = 1, with_verify: bool = True) -> Any:
        def was_sent(text: str) -> str:
            self.asked.append(text)
            if isinstance(self.answer, Exception) and text == self.about:
                raise self.answer
            return "as the mailbox says"

        @effect(verify=was_sent if with_verify else None)
        async def send(text: str) -> str:
            self.sent.append(text)
            return f"receipt {len(self.sent)}"

        async def work(run: Run[Any], item: Item) -> str:
            found = [await send("one"), await send("two")]
            if run.attempt <= fails:
                raise Killed
            return ", ".join(found)

        @agent
        async def main(run: Run[Any]) -> Any:
            if not run.todo.items:
                await run.plan(None, ["send"])
            await run.todo.each(work)
            return run.todo.result("send")

        return main


def begin(workspace: Path, main: Any) -> None:
    with pytest.raises(Killed):
        run(workspace, main)


def test_effects_of_open_scopes_are_verified_and_keep_their_results(workspace: Path) -> None:
    post = Post()
    main = post.agent()
    begin(workspace, main)
    force(workspace)
    outcome = run(workspace, main, wake=True)
    assert (outcome.status, outcome.result) == ("completed", "receipt 1, receipt 2")
    assert post.asked == ["one", "two"] and post.sent == ["one", "two"]
    assert any("verified again: 2" in each.text for each in outcome.report.late)


def test_after_a_clean_stop_or_a_crash_the_record_is_enough(workspace: Path) -> None:
    post = Post()
    main = post.agent()
    begin(workspace, main)
    assert run(workspace, main).status == "completed"
    assert post.asked == []


def test_an_effect_without_verify_is_taken_from_the_record(workspace: Path) -> None:
    post = Post()
    main = post.agent(with_verify=False)
    begin(workspace, main)
    force(workspace)
    outcome = run(workspace, main, wake=True)
    assert outcome.result == "receipt 1, receipt 2" and outcome.report.late == []


def test_one_that_has_not_happened_is_asked_about_and_stays_so(workspace: Path) -> None:
    post = Post(NotDone("no such mail"))
    main = post.agent()
    begin(workspace, main)
    force(workspace)
    outcome = run(workspace, main, wake=True)
    assert outcome.status == "waiting" and post.asked == ["one"] and post.sent == ["one", "two"]
    (doubt,) = outcome.doubts
    assert doubt.cause == "it is on record as done, and verify says that it has not happened: no such mail"
    assert run(workspace, main).status == "waiting", "the question does not go away by itself"
    post.answer = ConnectionError("mailbox away")
    assert run(workspace, main).status == "waiting", "nor when nothing can be found out"
    without = post.agent(with_verify=False)
    assert run(workspace, without).status == "waiting", "nor when verify is gone"
    assert post.sent == ["one", "two"]


def test_a_question_is_taken_back_when_verify_finds_it_after_all(workspace: Path) -> None:
    post = Post(NotDone("not yet delivered"))
    main = post.agent()
    begin(workspace, main)
    force(workspace)
    assert run(workspace, main, wake=True).status == "waiting"
    post.answer = None
    outcome = run(workspace, main)
    assert (outcome.status, outcome.doubts, outcome.result) == ("completed", [], "receipt 1, receipt 2")
    assert post.sent == ["one", "two"]


@pytest.mark.parametrize("answer, sent", [("not_done", ["one", "two", "two"]), ("done", ["one", "two"])])
def test_a_person_decides(workspace: Path, answer: str, sent: list[str]) -> None:
    post = Post(NotDone("no such mail"), about="two")
    main = post.agent()
    begin(workspace, main)
    force(workspace)
    run(workspace, main, wake=True)
    post.answer = None
    resolve(workspace, answer, b'"seen"' if answer == "done" else b"")
    outcome = run(workspace, main)
    assert outcome.status == "completed" and post.sent == sent
    assert outcome.result == f"receipt 1, {'seen' if answer == 'done' else 'receipt 3'}"


def test_one_that_can_not_be_verified_is_believed_and_told(workspace: Path) -> None:
    post = Post(ConnectionError("mailbox away"))
    main = post.agent()
    begin(workspace, main)
    force(workspace)
    outcome = run(workspace, main, wake=True)
    assert outcome.result == "receipt 1, receipt 2"
    assert 'send("text":"one"): ConnectionError: mailbox away' in outcome.report.late[-1].text


def with_outputs(workspace: Path) -> Any:
    async def work(run: Run[Any], item: Item) -> None:
        await run.output(item.text, f"made for {item.text}")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a.txt", "b.txt", "c.txt"])
        await run.todo.each(work)
        if run.attempt == 1:
            raise ValueError("stopped")

    assert run(workspace, main).status == "failed"
    (workspace / "outputs/a.txt").write_text("changed")
    (workspace / "outputs/b.txt").unlink()
    return main


def test_outputs_that_differ_or_are_missing_are_named(workspace: Path) -> None:
    with_outputs(workspace)
    store = DiskStore(workspace)
    assert rechecking.outputs(store, look(store).moment) == [
        "outputs/a.txt is not what the run had made: 7 bytes, 14 were made",
        "outputs/b.txt is missing; the run had made it (14 bytes)",
    ]
    made = look(store).moment.outputs["outputs/c.txt"]
    assert made.sha256 == hashlib.sha256(b"made for c.txt").hexdigest()


def test_outputs_are_looked_at_after_an_unclean_stop_only(workspace: Path) -> None:
    main = with_outputs(workspace)
    force(workspace)
    texts = [each.text for each in run(workspace, main, wake=True).report.remarks]
    assert any(text.startswith("outputs/a.txt is not what") for text in texts)
    assert any(text.startswith("outputs/b.txt is missing") for text in texts)
