"""Going back to the last known-good checkpoint, after a stop that was not clean."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Outcome, Run, agent, effect, migration, run, step
from satchel.runtime.live import PauseSource
from satchel.workspace import journal
from satchel.workspace.base.errors import Refused
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Closed, Opened, PauseRequested, Rewound, Saved
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore


def spoilt(workspace: Path, calls: list[str]) -> Any:
    """A run of three items, two of them done: the first before a checkpoint, the second since. It hangs in the third,
    and is forced to stop there."""

    @step
    async def read(text: str) -> str:
        calls.append(f"read {text}")
        return text

    @effect
    async def send(text: str) -> str:
        calls.append(f"send {text}")
        return f"sent {text}"

    @step
    async def hang() -> None:
        if calls.count("hang") == 0:
            calls.append("hang")
            (workspace / "pause.yaml").write_text("reason: a look\n")
            await asyncio.Event().wait()

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "b" and "hang" not in calls:
            await run.checkpoint()
        run.state[item.text] = await send(await read(item.text))
        if item.text == "c":
            await hang()

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a", "b", "c"])
        await run.todo.each(work)

    return main


def outcome(workspace: Path, main: Any, **options: Any) -> Outcome:
    return run(workspace, main, drain_timeout=0.1, **options)


def said(found: Outcome) -> str:
    return "\n".join(remark.text for remark in found.report.remarks)


def test_effects_are_done_twice_or_work_since_is_kept(workspace: Path, calls: list[str]) -> None:
    main = spoilt(workspace, calls)
    assert outcome(workspace, main).status == "paused"
    assert calls == ["read a", "send a", "read b", "send b", "read c", "send c", "hang"]
    calls[:] = ["hang"]
    found = outcome(workspace, main, wake=True, from_checkpoint=True)
    assert found.status == "completed", found.error
    assert calls == ["hang", "read b", "read c"], "what was done since, and no effect, was to be done again"
    assert "went back to checkpoints/" in said(found) and "item 2 ('b') will be done again" in said(found)
    data = json.loads((workspace / "state.json").read_text())["data"]
    assert data == {name: f"sent {name}" for name in "abc"}


def test_after_an_unclean_stop_nobody_says_what_one_can_go_back_to(workspace: Path, calls: list[str]) -> None:
    main = spoilt(workspace, calls)
    outcome(workspace, main)
    found = outcome(workspace, main, wake=True)
    assert found.status == "completed" and "the last known-good checkpoint is at record" in said(found)
    assert calls.count("read b") == 1, "it was only offered"


def records(workspace: Path, kind: type[Any]) -> list[Any]:
    return [line.record for line in journal.read(DiskStore(workspace), after=0).lines if isinstance(line.record, kind)]


@pytest.fixture(autouse=True)
def spared(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch of the run would kill the process of this test in an emergency."""
    real, file = PauseSource.look, workspace / "pause.yaml"

    def look(self: PauseSource) -> bool:
        return not (file.exists() and "mode: emergency" in file.read_text()) and real(self)

    monkeypatch.setattr(PauseSource, "look", look)


def kill(workspace: Path) -> None:
    """An emergency stop, but for the kill itself."""
    (workspace / "pause.yaml").write_text("mode: emergency\nreason: wrong recipients\n")


class Killed(BaseException):
    """Leaves the workspace as a kill does."""


def counting(workspace: Path, *, stop_at: str, calls: list[str], migrations: Any = (), **options: Any) -> Any:
    """Adds up its items in its state, and lets a sub-agent do the same. The first attempt is killed in one of them."""

    @effect
    async def send(text: str) -> str:
        calls.append(f"send {text}")
        return text

    async def work(run: Run[Any], item: Item) -> None:
        run.state["sum"] = run.state.get("sum", 0) + int(item.text)
        await send(f"{run.agent}{item.text}")
        if run.attempt == 1 and item.text == stop_at:
            kill(workspace)
            raise Killed

    @agent(**options)
    async def child(run: Run[Any]) -> int:
        if not run.todo.items:
            await run.plan(None, ["10", "20", "30"])
        await run.todo.each(work)
        return int(run.state["sum"])

    @agent(migrations=migrations)
    async def main(run: Run[Any]) -> int:
        if not run.todo.items:
            await run.plan(None, ["1", "2"])
        await run.todo.each(work)
        return int(run.state["sum"] + await run.spawn(child, "child"))

    return main


@pytest.mark.parametrize("stop_at", ["2", "10", "30"])
def test_before_the_first_stop_there_is_nothing_to_go_back_to(workspace: Path, calls: list[str], stop_at: str) -> None:
    main = counting(workspace, stop_at=stop_at, calls=calls)
    with pytest.raises(Killed):
        outcome(workspace, main)
    assert outcome(workspace, main).status == "paused"
    found = outcome(workspace, main, wake=True, from_checkpoint=True)
    assert (found.status, found.result) == ("completed", 63), "each item is added up once, the sub-agent's too"
    assert calls == [f"send {text}" for text in ("1", "2", "child10", "child20", "child30")], "no effect is done twice"
    (start, *_), (back,) = records(workspace, Saved), records(workspace, Rewound)
    assert start.why == "start" and (start.file, start.bytes > 0) == (back.file, True)
    assert f"went back to {start.file}" in said(found)


def test_a_look_at_the_files_after_an_emergency_makes_what_came_last_known_good(
    workspace: Path, calls: list[str]
) -> None:
    main = counting(workspace, stop_at="2", calls=calls)
    with pytest.raises(Killed):
        outcome(workspace, main)
    with opened(DiskStore(workspace), "recover", Report()) as found:
        found.close()
    assert outcome(workspace, main).status == "paused" and outcome(workspace, main).status == "paused"
    assert len(records(workspace, PauseRequested)) == 1
    assert outcome(workspace, main, wake=True, from_checkpoint=True).result == 63
    assert records(workspace, Rewound)[0].file.endswith("-start.json")


def test_going_back_over_a_migration_leaves_data_of_no_version(workspace: Path, calls: list[str]) -> None:
    with pytest.raises(Killed):
        outcome(workspace, counting(workspace, stop_at="20", calls=calls))
    assert outcome(workspace, counting(workspace, stop_at="20", calls=calls)).status == "paused"

    @migration(2)
    def renamed(data: dict[str, Any]) -> dict[str, Any]:
        return {"sum": data.get("sum", 0), "migrated": True}

    main = counting(workspace, stop_at="none", calls=calls, migrations=(renamed,))
    kill(workspace)
    assert outcome(workspace, main).status == "paused"
    found = outcome(workspace, main, wake=True, from_checkpoint=True)
    assert (found.status, found.result) == ("completed", 63), found.error
    assert json.loads((workspace / "state.json").read_text())["data"] == {"sum": 3, "migrated": True}


def test_what_a_person_has_changed_is_undone(workspace: Path, calls: list[str]) -> None:
    @agent
    async def main(run: Run[Any]) -> Any:
        if run.attempt == 1:
            raise ValueError("a mistake in the state")
        if run.attempt == 2:
            run._session.journal.flush()  # what is on its way has arrived
            kill(workspace)
            raise Killed
        return run.state

    assert outcome(workspace, main).status == "failed"
    state = workspace / "state.json"
    state.write_text(state.read_text().replace('"data": {}', '"data": {"by": "ann"}'))
    with pytest.raises(Killed):
        outcome(workspace, main)
    assert outcome(workspace, main).status == "paused"
    found = outcome(workspace, main, wake=True, from_checkpoint=True)
    assert (found.status, found.result) == ("completed", {"by": "ann"})
    assert [saved.why for saved in records(workspace, Saved)] == ["start", "edit", "stop"]  # that of the emergency


def test_the_log_does_not_tell_which_checkpoint_was_loaded(workspace: Path, calls: list[str]) -> None:
    main = spoilt(workspace, calls)
    outcome(workspace, main)
    files = {f"checkpoints/{path.name}" for path in (workspace / "checkpoints").glob("*.json")}
    assert {saved.file for saved in records(workspace, Saved)} == files
    (closed,) = records(workspace, Closed)
    assert closed.checkpoint == max(files) and closed.checkpoint.endswith("-3-c_unclean.json")
    outcome(workspace, main, wake=True)
    first, second = records(workspace, Opened)
    assert (first.checkpoint, second.checkpoint) == ("", closed.checkpoint)
    last = records(workspace, Closed)[-1]
    assert last.checkpoint.endswith("-stop.json") and (workspace / last.checkpoint).exists()
    assert outcome(workspace, main).status == "completed"


@pytest.mark.parametrize(
    ("every", "why"), [("item", ["start", "item", "item", "item"]), ("growth", ["start"]), ("10m", ["start"])]
)
def test_checkpoints_come_when_nobody_wants_them(workspace: Path, every: str, why: list[str]) -> None:
    """Here a write takes so little that a twentieth of the time is soon over."""
    definition = workspace / "workspace.yaml"
    definition.write_text(definition.read_text() + f"checkpoints: {{every: {every}}}\nkeep: {{checkpoints: 9}}\n")

    async def work(run: Run[Any], item: Item) -> None:
        workspace_of(run).due._rests_until = 0.0

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a", "b", "c"])
        await run.todo.each(work)

    assert outcome(workspace, main).status == "completed"
    assert [saved.why for saved in records(workspace, Saved)] == why


def workspace_of(run: Run[Any]) -> Any:
    return run._session.context.workspace


@pytest.mark.parametrize("every", ["growth", "milestone"])
def test_a_milestone_of_the_plan_is_passed_without_a_checkpoint(workspace: Path, every: str) -> None:
    definition = workspace / "workspace.yaml"
    definition.write_text(definition.read_text() + f"checkpoints: {{every: {every}}}\nkeep: {{checkpoints: 9}}\n")
    (workspace / "todo.md").write_text(
        "- [ ] first\n  milestone: true\n- [ ] second milestone: true\n- [ ] third\n\n  Hm\n\n  - Milestone: true\n"
    )
    texts = []

    async def work(run: Run[Any], item: Item) -> None:
        texts.append(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.todo.each(work)

    assert outcome(workspace, main).status == "completed"
    assert texts == ["first", "second milestone: true", "third"]
    assert [saved.file[24:] for saved in records(workspace, Saved)] == ["-start.json", "-1-first.json", "-3-third.json"]


def test_a_run_without_an_earlier_checkpoint_is_begun_anew(workspace: Path, calls: list[str]) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        calls.append("main")

    with pytest.raises(Refused, match="there is no earlier valid checkpoint"):
        run(workspace, main, from_checkpoint=True)
    assert calls == [] and not (workspace / "journal").exists()
