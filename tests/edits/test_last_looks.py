"""What a person saves while a run comes to its end is noticed: before it says completed, and after that."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from satchel import Item, Run, agent, step
from satchel.runtime.execution.live_edits import LiveEdits
from satchel.runtime.execution.running import Outcome, run
from satchel.runtime.supervision.known_run import judge
from satchel.workspace.base.errors import Conflicting, StorageFailed
from satchel.workspace.lifecycle import opening
from satchel.workspace.store.disk_store import DISPLACED
from satchel.workspace.views import projector
from satchel.workspace.views.guarded_files import ViewGuard

from .folder import Place
from .running import PATIENCE, Told

calls: list[str] = []
"""What the agent did."""


@pytest.fixture(autouse=True)
def fresh_calls() -> None:
    calls.clear()


@step
def note(what: str) -> str:
    calls.append(what)
    return what


async def work(run: Run[dict[str, Any]], item: Item) -> None:
    run.state[item.text] = await note(item.text)


def then(at_its_end: Callable[[], object] = lambda: None) -> Any:
    """An agent that does its items and then, the first time, waits for what `at_its_end` does."""

    @step
    def end() -> str:
        at_its_end()
        return "the end"

    @agent
    async def main(run: Run[dict[str, Any]]) -> str:
        calls.append("entered")
        await run.todo.each(work)
        await run.inbox.each(lambda run, task: note(task.text.strip()))
        return await end()

    return main


def add(place: Place, path: str = "todo.md") -> None:
    """Work for the run."""
    place.edit("todo.md", ("- [x] two ^2\n", "- [x] two ^2\n- [ ] late\n"))


def until(is_so: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.fixture
def planned(place: Place) -> Place:
    place.put("todo.md", "- [ ] one ^1\n- [ ] two ^2\n")
    return place


BEFORE, AGAIN = ["entered", "one", "two"], ["entered", "late"]


def is_done(place: Place, outcome: Outcome) -> None:
    assert outcome.status == "completed" and calls == BEFORE + AGAIN and outcome.open_items == 0
    assert "- [x] late ^3\n" in place.text() and place.is_at_the_moment()


# Before


def test_an_edit_taken_after_the_last_look_at_the_plan_is_left_undone(planned: Place) -> None:
    def at_its_end() -> None:
        until(lambda: "[x] two" in planned.text())
        add(planned)
        until(lambda: planned.edited)

    is_done(planned, run(planned.folder, then(at_its_end)))


def test_a_new_item_of_a_sub_agent_that_has_ended_is_left_undone(place: Place) -> None:
    path = "agents/helper/todo.md"

    @agent
    async def helper(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["look"])
        await run.todo.each(work)

    async def ask(run: Run[Any], item: Item) -> None:
        await run.spawn(helper, "helper")

    @step
    def wait() -> None:
        until(lambda: place.there(path) and "[x] look" in place.text(path))
        place.edit(path, ("- [x] look ^1\n", "- [x] look ^1\n- [ ] late\n"))
        until(lambda: place.edited)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["ask"])
        await run.todo.each(ask)
        await wait()

    assert run(place.folder, main).status == "completed" and calls == ["look", "late"]
    assert place.is_at_the_moment()


def test_another_result_of_a_call_of_the_agent_itself_is_not_used(place: Place) -> None:
    path = "steps/_agent/01-note.json"

    @step
    def wait() -> None:
        until(lambda: place.there(path))
        place.edit(path, ('"result": "a"', '"result": "b"'))
        until(lambda: place.edited)

    @agent
    async def main(run: Run[Any]) -> str:
        said = await note("a")
        await wait()
        return said

    outcome = run(place.folder, main)
    assert (outcome.status, outcome.result, calls) == ("completed", "b", ["a"])


@pytest.mark.parametrize("change", [("# Plan\n", "# My plan\n"), ("[ ] three", "[x] three")], ids=["prose", "a tick"])
def test_an_edit_that_gives_no_work_enters_the_agent_again(planned: Place, change: tuple[str, str]) -> None:
    planned.put("todo.md", "# Plan\n\n- [ ] one ^1\n- [ ] two ^2\n- [ ] three ^3\n")

    async def first(run: Run[dict[str, Any]], item: Item) -> None:
        if item.id == "1":
            await note("saved")
            planned.edit("todo.md", change)
            await step(lambda: until(lambda: "saved" in "".join(told.lines)), name="wait")()
        await work(run, item)

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        calls.append("entered")
        await run.todo.each(first)

    told = Told()
    assert run(planned.folder, main, watch=told).status == "completed"
    assert calls.count("entered") == 1 and len(planned.edited) == 1


def test_a_save_at_the_place_of_a_removed_file_is_not_seen_before_the_file_is_due(
    planned: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where writing takes long, that is much later, and the run may have completed before."""
    monkeypatch.setattr(projector, "SHARE", 1e9)

    def at_its_end() -> None:
        text = planned.text()
        (planned.folder / "todo.md").rename(planned.folder / "todo.md~")
        time.sleep(1.2)  # it is looked for
        planned.put("todo.md", text.replace("^2\n", "^2\n- [ ] late\n"))

    is_done(planned, run(planned.folder, then(at_its_end)))


# After


def closing(monkeypatch: pytest.MonkeyPatch, when: Literal["before", "after"], save: Callable[[], object]) -> None:
    """Save at the first close: behind the last look."""
    close, saves = opening.Workspace.close, [save]

    def closed(self: opening.Workspace, *args: Any, **options: Any) -> None:
        if when == "before" and saves:
            self.mark_all()
            self.projector.write_all()
            saves.pop()()
        close(self, *args, **options)
        if saves:
            saves.pop()()

    monkeypatch.setattr(opening.Workspace, "close", closed)


@pytest.fixture(params=["before", "after"])
def when(request: pytest.FixtureRequest) -> Literal["before", "after"]:
    return request.param  # type: ignore[no-any-return]


def test_work_that_is_saved_while_the_run_closes_is_left_undone(
    planned: Place, monkeypatch: pytest.MonkeyPatch, when: Literal["before", "after"]
) -> None:
    closing(monkeypatch, when, lambda: add(planned))
    is_done(planned, run(planned.folder, then()))


def test_a_task_that_is_dropped_while_the_run_closes_is_left_undone(
    planned: Place, monkeypatch: pytest.MonkeyPatch, when: Literal["before", "after"]
) -> None:
    closing(monkeypatch, when, lambda: planned.put("inbox/a.md", "late"))
    assert run(planned.folder, then()).status == "completed" and calls == BEFORE + AGAIN


def test_data_that_are_saved_while_the_run_closes_enter_the_agent_or_are_not_taken(
    planned: Place, monkeypatch: pytest.MonkeyPatch, when: Literal["before", "after"]
) -> None:
    closing(monkeypatch, when, lambda: planned.set_data(lambda data: data | {"mine": 1}))
    outcome = run(planned.folder, then())
    assert (outcome.status, outcome.result, calls) == ("completed", "the end", BEFORE)
    assert json.loads(planned.get("state.json"))["data"]["mine"] == 1 and planned.is_at_the_moment()


def test_what_is_refused_while_the_run_closes_is_lost_or_unsays_its_end(
    planned: Place, monkeypatch: pytest.MonkeyPatch, when: Literal["before", "after"]
) -> None:
    closing(monkeypatch, when, lambda: planned.put("state.json", "{"))
    told = Told()
    outcome = run(planned.folder, then(), watch=told)
    assert (outcome.status, outcome.result, calls) == ("completed", "the end", BEFORE)
    assert planned.text("state.rejected.json") == "{" and planned.is_at_the_moment()
    assert "state.rejected.json" in outcome.noticed[-1] and "state.rejected.json" in told.lines[-1]


def test_a_conflict_that_is_saved_while_the_run_closes_is_called_completed(
    planned: Place, monkeypatch: pytest.MonkeyPatch, when: Literal["before", "after"]
) -> None:
    closing(monkeypatch, when, lambda: planned.put("todo.md", "- [x] one ^1\n- [ ] mine\n"))
    with pytest.raises(Conflicting, match="two"):
        run(planned.folder, then())
    assert planned.get("conflicts/todo.theirs.md") == b"- [x] one ^1\n- [ ] mine\n"


def test_a_save_into_a_file_that_the_close_displaces_is_left_undone(
    planned: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear, saves = ViewGuard.clear, [1]

    def cleared(self: ViewGuard) -> None:
        """An editor saves what it had open."""
        if calls and saves:
            path = planned.there(f"{DISPLACED}/*-todo.md")[-saves.pop()]
            planned.put(path, re.sub(r"(- \[.\] two \^2\n)", r"\1- [ ] late\n", planned.text(path)))
        clear(self)

    monkeypatch.setattr(ViewGuard, "clear", cleared)
    is_done(planned, run(planned.folder, then()))
    assert not saves and not planned.there(f"{DISPLACED}/*")


def test_a_start_of_a_completed_run_overlooks_a_save_into_a_displaced_file(planned: Place) -> None:
    """Its process has ended before the save."""
    run(planned.folder, then())
    planned.put(f"{DISPLACED}/1-1-1-1-1-todo.md", planned.text().replace("two ^2\n", "two ^2\n- [ ] late\n"))
    is_done(planned, run(planned.folder, then()))


# Long after


@pytest.mark.parametrize(
    ("change", "starts"),
    [
        (("- [x] two ^2\n", "- [x] two ^2\n- [ ] late\n"), True),
        (("- [x] two ^2\n", "- [ ] two ^2\n"), True),
        (("- [x] two ^2\n", "- [x] two ^2\n\nWords.\n"), False),
        (("- [x] two ^2\n", "- [?] two ^1\n"), False),
        (None, False),
    ],
    ids=["an item", "an untick", "prose", "an id twice", "nothing"],
)
def test_serve_leaves_work_in_a_completed_run_undone(
    planned: Place, change: tuple[str, str] | None, starts: bool
) -> None:
    main = then()
    run(planned.folder, main)
    if change:
        planned.edit("todo.md", change)
    verdict = judge(planned.store, datetime.now(UTC))
    assert (verdict.starts, verdict.why) == (starts, "todo.md was edited" if starts else "")
    if starts:
        run(planned.folder, main)
        assert not judge(planned.store, datetime.now(UTC)).starts


def test_a_storage_that_fails_during_the_last_looks_pauses_the_run(
    planned: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has asked for a pause: the start says what has failed, and the next one completes the run."""
    looks = LiveEdits.at_end

    async def failing(self: LiveEdits) -> bool:
        # The look of the watch itself may be under way meanwhile.
        self._fail(StorageFailed("can't be listed", path="", why="no answer", remedy="try again"))
        return await looks(self)

    monkeypatch.setattr(LiveEdits, "at_end", failing)
    with pytest.raises(StorageFailed, match="can't be listed"):
        run(planned.folder, then())
    monkeypatch.setattr(LiveEdits, "at_end", looks)
    assert run(planned.folder, then()).status == "completed"
    assert calls.count("one") == calls.count("two") == 1
