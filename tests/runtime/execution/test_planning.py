"""`run.plan` writes a plan once: a start after a crash, or after a person's edit, doubles no work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Run, agent, effect, run
from satchel.workspace.base.errors import AgentError, UsageError


def test_a_plan_without_the_guard_does_no_effect_twice(workspace: Path, crash: Any, calls: list[str]) -> None:
    @effect
    def send(to: str) -> None:
        calls.append(to)

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "eve" and run.attempt == 1:
            raise crash
        await send(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan("Letters", ["ada", "eve"])
        await run.todo.each(work)

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).status == "completed"
    assert run(workspace, main).status == "completed"
    assert calls == ["ada", "eve"]
    assert (workspace / "todo.md").read_text().count("ada") == 1


@pytest.mark.parametrize(
    "edit",
    [lambda text: text.replace("- [ ] b\n", ""), lambda text: text.replace("- [ ] b\n", "- [ ] another\n")],
    ids=["removed", "reworded"],
)
def test_an_equal_plan_does_nothing_whatever_a_person_made_of_it(workspace: Path, edit: Callable[[str], str]) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        await run.pause()

    @agent
    async def main(run: Run[Any]) -> list[str]:
        await run.plan(None, ["a", "b"])
        if run.attempt == 1:
            await run.todo.each(work)
        return [item.text for item in run.todo]

    assert run(workspace, main).status == "paused"
    file = workspace / "todo.md"
    assert "- [/] a ^1\n- [ ] b\n" in file.read_text()
    file.write_text(edit(file.read_text()))
    outcome = run(workspace, main, wake=True)
    assert outcome.error is None and "b" not in (outcome.result or [])


def test_another_plan_while_one_exists_is_refused_and_names_the_guard(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, [f"item of attempt {run.attempt}"])

    assert run(workspace, main).status == "completed"
    error = run(workspace, main).error
    assert isinstance(error, AgentError)
    assert "if not run.todo.items:" in str(error) and "run.todo.add" in str(error)
    assert "attempt 2" not in (workspace / "todo.md").read_text()


def test_a_persons_plan_is_not_added_to_by_the_agents(workspace: Path) -> None:
    (workspace / "todo.md").write_text("- [ ] mine\n")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["the agent's"])

    error = run(workspace, main).error
    assert isinstance(error, AgentError) and "if not run.todo.items:" in str(error)


def test_prose_in_todo_md_is_no_plan_yet(workspace: Path) -> None:
    (workspace / "todo.md").write_text("# What it is about\n\nSome words.\n")

    @agent
    async def main(run: Run[Any]) -> list[str]:
        await run.plan(None, ["a"])
        return [item.text for item in run.todo]

    assert run(workspace, main).result == ["a"]


def test_a_plan_that_a_scope_writes_is_known_again_only_once_it_has_committed(workspace: Path, crash: Any) -> None:
    async def think(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        await run.plan(None, ["a"])
        if run.attempt == 1:
            raise crash

    @agent
    async def main(run: Run[Any]) -> list[str]:
        await run.scope("think", think, run)
        await run.plan(None, ["a"])
        return [item.text for item in run.todo]

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == ["a"]
    assert run(workspace, main).result == ["a"]


def test_a_text_as_the_items_of_a_plan(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan("T", "abc")

    error = run(workspace, main).error
    assert isinstance(error, UsageError) and "takes a list of items" in str(error)
    assert not (workspace / "todo.md").exists()
