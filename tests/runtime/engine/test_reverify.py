"""After a pause, and the more so after a stop by force: what is on record as done is looked at again."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from waits import PATIENCE

import satchel
from satchel import Item, NotDone, Run, agent, effect, run, step
from satchel.runtime.live import reverify
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import NOTHING, Forced, PauseRequested, Resolved
from satchel.workspace.lifecycle import pausing
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore, FileContent


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


def rest(workspace: Path) -> None:
    """The last stop was a clean pause."""
    with opened(DiskStore(workspace), "recover", Report()) as found:
        found.journal.add(PauseRequested(reason="maintenance", by="me"))
        found.journal.flush()
        pausing.settle(found)
        found.close("paused", "maintenance")
    moment = look(DiskStore(workspace)).moment
    assert moment.status == "paused" and not moment.unclean


class Post:
    """Letters that are sent, and what `verify` says of them."""

    def __init__(self, verify: Any = None, about: str = "one") -> None:
        self.about = about
        self.sent: list[str] = []
        self.asked: list[str] = []
        self.answer: Any = verify

    def agent(self, *, fails: int = 1, with_verify: bool = True, until: Sequence[str] = ("one", "two")) -> Any:
        """It is killed in its first attempts, after the letters `until` then."""

        def was_sent(text: str) -> str:
            self.asked.append(text)
            if isinstance(self.answer, Exception) and text == self.about:
                raise self.answer
            return "as the mailbox says"

        verify = self.answer if callable(self.answer) else was_sent

        @effect(verify=verify if with_verify else None)
        async def send(text: str) -> str:
            self.sent.append(text)
            return f"receipt {len(self.sent)}"

        @step
        async def note(attempt: int) -> int:
            return attempt

        async def work(run: Run[Any], item: Item) -> str:
            await note(run.attempt)  # something new at each attempt: an item that crashes without is stuck
            found = [await send(text) for text in (until if run.attempt <= fails else ("one", "two"))]
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


def test_after_a_crash_the_record_is_doubted(workspace: Path) -> None:
    post = Post()
    main = post.agent()
    begin(workspace, main)
    assert run(workspace, main).status == "completed"
    assert post.asked == []


def test_after_a_clean_pause_the_record_is_believed(workspace: Path) -> None:
    post = Post()
    main = post.agent()
    begin(workspace, main)
    rest(workspace)
    outcome = run(workspace, main, wake=True)
    assert (outcome.status, outcome.result) == ("completed", "receipt 1, receipt 2")
    assert post.asked == ["one", "two"] and post.sent == ["one", "two"]
    assert any("verified again: 2" in each.text for each in outcome.report.late)


def test_what_has_not_happened_is_believed_after_a_clean_pause(workspace: Path) -> None:
    post = Post(NotDone("the mailbox was restored from a backup"), about="two")
    main = post.agent()
    begin(workspace, main)
    rest(workspace)
    outcome = run(workspace, main, wake=True)
    assert outcome.status == "waiting" and [doubt.step for doubt in outcome.doubts] == ["send"]
    assert "the mailbox was restored" in outcome.doubts[0].cause and post.sent == ["one", "two"]


def test_a_crash_after_the_pause_spares_the_verification(workspace: Path) -> None:
    """Every pause: also if the first process after it dies before it comes so far. An orderly stop ends that."""
    post = Post()
    main = post.agent(fails=2)
    begin(workspace, main)
    rest(workspace)
    with pytest.raises(Killed):
        run(workspace, main, wake=True)
    assert post.asked == ["one", "two"]
    third = post.agent(fails=3)
    with pytest.raises(Killed):
        run(workspace, third)
    assert post.asked == ["one", "two"] * 2
    with opened(DiskStore(workspace), "run", Report()) as found:
        found.close("failed")
    assert run(workspace, third).status == "completed" and post.asked == ["one", "two"] * 2


def test_an_effect_done_since_the_pause_is_verified(workspace: Path) -> None:
    post = Post()
    main = post.agent(until=["one"])
    begin(workspace, main)
    rest(workspace)
    with pytest.raises(Killed):
        run(workspace, post.agent(fails=2), wake=True)
    assert run(workspace, post.agent(fails=2)).status == "completed"
    assert post.asked == ["one", "one"] and post.sent == ["one", "two"]


def write_definition(workspace: Path, more: str) -> None:
    path = workspace / "workspace.yaml"
    path.write_text(path.read_text() + more)


def test_never_means_sometimes(workspace: Path) -> None:
    post = Post(NotDone("no such mail"))
    main = post.agent(fails=2)
    write_definition(workspace, "recheck: never\n")
    begin(workspace, main)
    rest(workspace)
    with pytest.raises(Killed):
        run(workspace, main, wake=True)
    assert run(workspace, main).status == "completed" and post.asked == []


def test_never_means_after_a_stop_by_force_too(workspace: Path) -> None:
    post = Post()
    main = post.agent()
    write_definition(workspace, "recheck: never\n")
    begin(workspace, main)
    force(workspace)
    assert run(workspace, main, wake=True).status == "completed" and post.asked == ["one", "two"]


@pytest.mark.parametrize("kind", ["in a thread", "in the loop"])
def test_a_verification_that_hangs_holds_the_run_up(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nor the end of the item, or of the process."""
    monkeypatch.setattr(reverify, "EACH", 0.05)
    released, held = threading.Event(), []

    async def forever(text: str) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    def blocking(text: str) -> str:
        held.append(not released.wait(PATIENCE))
        raise AssertionError

    post = Post(blocking if kind == "in a thread" else forever)
    main = post.agent()
    begin(workspace, main)
    rest(workspace)
    outcome = run(workspace, main, wake=True)
    assert outcome.status == "completed" and post.sent == ["one", "two"] and not held
    released.set()
    told = [each.text for each in outcome.report.late]
    assert len(told) == 2 and all("counts as done" in each and "no answer within" in each for each in told)


def test_all_verifications_together_take_too_long(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reverify, "EACH", 0.05)
    monkeypatch.setattr(reverify, "IN_ALL", 0.02)

    async def forever(text: str) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    post = Post(forever)
    main = post.agent()
    begin(workspace, main)
    rest(workspace)
    outcome = run(workspace, main, wake=True)
    assert outcome.status == "completed" and post.sent == ["one", "two"]
    first, second = (each.text for each in outcome.report.late)
    assert 'send("text":"one"): TimeoutError' in first
    assert "were used up: 1, the first send(" in second and '"two"' in second


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
    assert doubt.cause == "it is recorded as done, but verify says that it has not happened: no such mail"
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
    assert reverify.wrong_outputs(store, look(store).moment.outputs, reads_all=True) == [
        "outputs/a.txt is not what the run made: 7 bytes, but the run wrote 14",
        "outputs/b.txt is missing; the run made it (14 bytes)",
    ]
    made = look(store).moment.outputs["outputs/c.txt"]
    assert made.sha256 == hashlib.sha256(b"made for c.txt").hexdigest()


@pytest.mark.parametrize("stop", [rest, force])
def test_outputs_are_believed_after_a_pause(workspace: Path, stop: Any) -> None:
    main = with_outputs(workspace)
    stop(workspace)
    texts = [each.text for each in run(workspace, main, wake=True).report.remarks]
    assert any(text.startswith("outputs/a.txt is not what") for text in texts)
    assert any(text.startswith("outputs/b.txt is missing") for text in texts)


@pytest.mark.parametrize("is_paused", [False, True])
def test_outputs_are_looked_at_against_a_persons_wish(workspace: Path, is_paused: bool) -> None:
    write_definition(workspace, "recheck: never\n")
    main = with_outputs(workspace)
    if is_paused:
        rest(workspace)
    texts = [each.text for each in run(workspace, main, wake=True).report.remarks]
    assert not any(text.startswith("outputs/") for text in texts)


def test_outputs_that_differ_are_passed_over_at_a_start_without_a_pause(workspace: Path) -> None:
    main = with_outputs(workspace)
    remarks = run(workspace, main, wake=True).report.remarks
    assert [each.text for each in remarks if each.kind == "wanted"] == [
        "outputs/a.txt is not what the run made: 7 bytes, but the run wrote 14",
        "outputs/b.txt is missing; the run made it (14 bytes)",
        "restore what was not changed on purpose, or untick its item in todo.md to make it again",
    ]


def test_an_untick_leaves_an_output_as_it_was(workspace: Path) -> None:
    main = with_outputs(workspace)
    assert run(workspace, main, wake=True).status == "completed"
    text = (workspace / "todo.md").read_text().replace("- [x] a.txt", "- [ ] a.txt")
    (workspace / "todo.md").write_text(text.replace("- [x] b.txt", "- [ ] b.txt"))
    assert run(workspace, main, wake=True).status == "completed"
    assert not reverify.wrong_outputs(DiskStore(workspace), look(DiskStore(workspace)).moment.outputs, reads_all=True)
    assert (workspace / "outputs/a.rejected.txt").read_text() == "changed"


def test_what_an_unfinished_item_writes_again_is_taken_for_changed_by_others(workspace: Path) -> None:
    """A crash came between the output and the commit."""

    class Crash(BaseException):
        pass

    async def work(run: Run[Any], item: Item) -> None:
        await run.output("a.txt", f"{item.text}, attempt {run.attempt}")
        if item.text == "two" and run.attempt == 1:
            raise Crash

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one", "two"])
        await run.todo.each(work)

    with pytest.raises(Crash):
        run(workspace, main)
    store = DiskStore(workspace)
    assert reverify.wrong_outputs(store, look(store).moment.outputs) and not reverify.outputs_at_rest(
        look(store).moment
    )
    assert not any(each.kind == "wanted" for each in run(workspace, main).report.remarks)


class Reading(DiskStore):
    """Tells what was read."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.files: list[str] = []

    def read(self, path: str, **options: Any) -> FileContent:
        self.files.append(path)
        return super().read(path, **options)


def test_outputs_that_nobody_has_touched_are_read_after_a_clean_pause(workspace: Path) -> None:
    with_outputs(workspace)
    (workspace / "outputs/b.txt").write_text("made for b.txt")
    store = Reading(workspace)
    moment = look(store).moment
    store.files.clear()
    assert len(reverify.wrong_outputs(store, moment.outputs)) == 1
    assert store.files == ["outputs/b.txt"], "another version of the same size, which is a's no more"
    (workspace / "outputs/c.txt").write_text("made for d.txt")
    assert len(reverify.wrong_outputs(store, moment.outputs)) == 2
    store.files.clear()
    assert len(reverify.wrong_outputs(store, moment.outputs, reads_all=True)) == 2
    assert store.files == ["outputs/b.txt", "outputs/c.txt"], "those of another size differ anyway"


def test_outputs_that_took_too_long_are_not_told(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_outputs(workspace)
    monkeypatch.setattr(reverify, "IN_ALL", -1.0)
    store = DiskStore(workspace)
    told = reverify.wrong_outputs(store, look(store).moment.outputs, reads_all=True)
    assert told[-1] == "outputs that were not compared with their hashes, because that took too long: 1"


@pytest.mark.parametrize("ends", ["answered by a command", "answered in the file", "not answered", "slept"])
def test_an_output_changed_while_the_run_waits_is_passed_over(workspace: Path, ends: str) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "b.txt":
            await (run.sleep(30 * 86400) if ends == "slept" else run.ask("Go on?", wait_for=0))
        await run.output(item.text, f"made for {item.text}")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a.txt", "b.txt"])
        await run.todo.each(work)

    assert run(workspace, main).status == ("sleeping" if ends == "slept" else "waiting")
    (workspace / "outputs/a.txt").write_text("changed")
    if ends == "answered by a command":
        satchel.open(workspace).answer("yes")
    elif ends == "answered in the file":
        file = workspace / "approvals/a1.yaml"
        file.write_text(file.read_text().replace("decision:", "decision: yes", 1))
    remarks = run(workspace, main, wake=True).report.remarks
    assert [each.text for each in remarks if each.kind == "wanted" and "a.txt" in each.text] == [
        "outputs/a.txt is not what the run made: 7 bytes, but the run wrote 14"
    ]


def test_a_run_that_nobody_has_touched_while_it_waited_is_told_of_changes(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("make", lambda: run.output("a.txt", "made"))
        await run.ask("Go on?", wait_for=0)

    assert run(workspace, main).status == "waiting"
    satchel.open(workspace).answer("yes")
    assert not any("a.txt" in each.text for each in run(workspace, main).report.remarks)
