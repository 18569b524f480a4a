"""`run.state` is another object after a failure or an edit, and the same value after a crash, order of keys and all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Run, agent, run, step
from satchel.workspace.base.errors import AgentError, NotSerializable


@dataclass
class State:
    seen: list[str] = field(default_factory=list)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))


@pytest.mark.parametrize("held", ["the whole", "a part"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_state_that_the_agent_holds_loses_what_is_put_into_it_after_a_failure(
    workspace: Path, held: str, times: int
) -> None:
    """All items would be ticked, and the changes of the later ones lost without a word."""
    failed: list[str] = []

    @agent(state=State)
    async def main(run: Run[State]) -> None:
        whole, part = run.state, run.state.seen

        async def work(run: Run[State], item: Item) -> None:
            (whole.seen if held == "the whole" else part).append(item.text)
            if item.text == "b" and len(failed) < times:
                failed.append(item.text)
                raise ConnectionError("once")

        await run.plan(None, ["a", "b", "c"])
        await run.todo.each(work)

    outcome = run(workspace, main)
    assert outcome.status == "failed" and isinstance(outcome.error, AgentError), outcome
    assert "run.state.seen" in str(outcome.error) and "is no longer the state" in str(outcome.error)
    assert "[x] a" in (workspace / "todo.md").read_text() and "[x] b" not in (workspace / "todo.md").read_text()


def test_a_state_that_an_edit_has_replaced_loses_what_is_put_into_it(workspace: Path) -> None:
    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        held = run.state

        async def work(run: Run[Any], item: Item) -> None:
            if item.text == "b":
                held["b"] = 1

        await run.plan(None, ["a", "b"])
        run._session.refresh()  # as after an edit
        await run.todo.each(work)

    outcome = run(workspace, main)
    assert outcome.status == "failed" and "run.state.b was changed in an object that is" in str(outcome.error)


@pytest.mark.parametrize("big", [1, 2**70], ids=["64 bits", "more"])
def test_a_number_that_json_does_not_have_is_put_for_null_into_such_an_object_unnoticed(
    workspace: Path, big: int
) -> None:
    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        async def begin() -> None:
            run.state |= {"mean": None, "big": big}

        async def work(run: Run[Any], item: Item) -> None:
            held["mean"] = float("nan")

        await run.scope("begin", begin)
        held = run.state
        await run.plan(None, ["a"])
        run._session.refresh()  # as after an edit
        await run.todo.each(work)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable) and "run.state.mean can't be kept" in str(outcome.error)


def test_a_state_that_is_read_where_it_is_changed_is_refused_after_a_failure(workspace: Path) -> None:
    failed: list[str] = []

    @agent(state=State)
    async def main(run: Run[State]) -> list[str]:
        held = run.state

        async def work(run: Run[State], item: Item) -> None:
            run.state.seen.append(item.text)
            if item.text == "b" and not failed:
                failed.append(item.text)
                raise ConnectionError("once")

        await run.plan(None, ["a", "b", "c"])
        await run.todo.each(work)
        assert held.seen == ["a", "b"], "it may be looked at"
        return run.state.seen

    assert run(workspace, main).result == ["a", "b", "c"]


def test_a_dict_used_as_a_queue_gives_another_element_after_a_crash(workspace: Path, crash: Any) -> None:
    """The patch of a commit gives back the order of the keys, too."""
    crashed: list[bool] = []

    @step
    async def arrive() -> None:
        await asyncio.sleep(0)

    @agent
    async def main(run: Run[dict[str, Any]]) -> list[str]:
        async def fill() -> None:
            run.state.update(x=1, y={"a": 1, "b": 2}, z=3)

        async def turn() -> None:
            run.state["x"] = run.state.pop("x")
            run.state["y"]["a"] = run.state["y"].pop("a")

        async def take() -> str:
            await arrive()
            first = next(iter(run.state))
            if not crashed:
                crashed.append(True)
                assert (first, [*run.state["y"]]) == ("y", ["b", "a"])
                raise crash
            return first + "".join(run.state["y"])

        await run.scope("fill", fill)
        await run.scope("turn", turn)
        return [await run.scope("take", take), *run.state]

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == ["yba", "y", "z", "x"]
