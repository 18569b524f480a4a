"""Scopes: state, plan, outputs and messages change together or not at all."""

from __future__ import annotations

import asyncio
import copy
import json
import tempfile
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from pydantic import BaseModel
from waits import PATIENCE

from satchel import Item, Run, agent, run, step
from satchel.workspace.base.errors import AgentError, NotSerializable, Refused, UsageError
from satchel.workspace.inspect.load import look
from satchel.workspace.store import DiskStore

DEFINITION = "format: 1\nrun_id: test-1\nagent: agent.py:main\n"


class Crash(BaseException):
    """Leaves the workspace as a kill does."""


def state_of(workspace: Path) -> Any:
    return json.loads((workspace / "state.json").read_text())["data"]


class Model(BaseModel):
    names: dict[str, int] = {}


@dataclass
class Plain:
    names: dict[str, int] = field(default_factory=dict)


class Typed(TypedDict, total=False):
    names: dict[str, int]


@pytest.mark.parametrize("kind", [Model, Plain, Typed, dict, dict[str, Any]])
def test_state_is_kept_with_the_commit_and_undone_with_a_failure(workspace: Path, kind: Any) -> None:
    def names(state: Any) -> dict[str, int]:
        found: dict[str, int] = state.setdefault("names", {}) if isinstance(state, dict) else state.names
        return found

    async def work(run: Run[Any], item: Item) -> None:
        names(run.state)[item.text] = run.attempt
        if item.text == "b" and run.attempt == 1:
            raise LookupError("in the middle")

    @agent(state=kind)
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["a", "b"])
        await run.todo.each(work)

    assert run(workspace, main).status == "failed"
    assert state_of(workspace) == {"names": {"a": 1}}
    assert run(workspace, main).status == "completed"
    assert state_of(workspace) == {"names": {"a": 1, "b": 2}}
    assert (workspace / "todo.md").read_text().startswith("- [x] a ^1\n- [x] b ^2\n")


def test_state_changed_outside_a_scope_is_an_error_that_says_where(workspace: Path) -> None:
    @agent(state=Plain)
    async def main(run: Run[Plain]) -> None:
        run.state.names["x"] = 1

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError)
    assert "run.state.names.x was changed outside a scope" in str(outcome.error)


def test_state_that_is_not_json_fails_the_item_and_is_undone(workspace: Path) -> None:
    async def work(run: Run[Any]) -> None:
        run.state["when"] = object()

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("work", work, run)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, NotSerializable) and "run.state.when" in str(outcome.error)
    assert state_of(workspace) == {}


def test_a_state_type_without_defaults_is_explained(workspace: Path) -> None:
    class Needy(BaseModel):
        name: str

    @agent(state=Needy)
    async def main(run: Run[Any]) -> None: ...

    outcome = run(workspace, main)
    assert isinstance(outcome.error, UsageError) and "default" in str(outcome.error)


def test_state_that_no_longer_fits_its_type_is_explained(workspace: Path) -> None:
    async def work(run: Run[Any]) -> None:
        run.state["names"] = [1]

    @agent
    async def first(run: Run[Any]) -> None:
        await run.scope("work", work, run)
        raise ValueError

    @agent(state=Model)
    async def second(run: Run[Any]) -> None: ...

    run(workspace, first)
    with pytest.raises(Refused, match="does not fit the agent's state type"):
        run(workspace, second)
    assert state_of(workspace) == {"names": [1]}


def test_a_state_that_is_no_object_is_kept(workspace: Path) -> None:
    """Its checkpoints would be refused as damaged."""

    @agent(state=list[str])
    async def main(run: Run[Any]) -> None: ...

    outcome = run(workspace, main)
    assert isinstance(outcome.error, UsageError) and "the state is not an object" in str(outcome.error)
    assert not look(DiskStore(workspace)).moment.root.has_data


def test_a_state_that_becomes_a_list_is_committed(workspace: Path) -> None:
    async def work(run: Run[Any]) -> None:
        run.state = [1]

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("work", work, run)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, UsageError) and "run.state is not an object" in str(outcome.error)
    assert state_of(workspace) == {}


def test_a_named_scope_is_answered_with_its_recorded_result(workspace: Path, calls: list[str]) -> None:
    async def prepare(run: Run[Any], number: int) -> Model:
        calls.append("prepare")
        run.state["prepared"] = number
        return Model(names={"n": number})

    @agent
    async def main(run: Run[Any]) -> Model:
        found: Model = await run.scope("prepare", prepare, run, 7)
        if run.attempt == 1:
            raise ValueError
        return found

    run(workspace, main)
    assert run(workspace, main).result == Model(names={"n": 7})
    assert calls == ["prepare"]


def test_a_scope_inside_a_scope_is_refused(workspace: Path) -> None:
    async def inner(run: Run[Any]) -> None: ...

    async def outer(run: Run[Any]) -> None:
        await run.scope("inner", inner, run)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("outer", outer, run)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "'inner' would begin inside 'outer'" in str(outcome.error)


def test_skipping_cancels_and_the_result_is_kept(workspace: Path) -> None:
    async def work(run: Run[Any], item: Item) -> str:
        if item.text == "b":
            item.skip("not needed")
        return item.text.upper()

    @agent
    async def main(run: Run[Any]) -> list[Any]:
        await run.plan("Work", ["a", "b"])
        await run.todo.each(work)
        return [run.todo.result(item) for item in run.todo]

    assert run(workspace, main).result == ["A", "B"]
    assert "- [x] a ^1\n- [-] b ^2\n" in (workspace / "todo.md").read_text()
    assert "not needed" in (workspace / "journal/000000000001.jsonl").read_text()


def test_leaves_are_done_and_parents_follow(workspace: Path) -> None:
    (workspace / "todo.md").write_text("# Mine\n\n- [ ] big\n  - [ ] one\n  - [ ] two\n- [x] before\n\nSome prose.\n")
    seen: list[str] = []

    async def work(run: Run[Any], item: Item) -> None:
        seen.append(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.todo.each(work)

    outcome = run(workspace, main)
    assert outcome.status == "completed" and seen == ["one", "two"]
    assert (
        (workspace / "todo.md")
        .read_text()
        .startswith("# Mine\n\n- [x] big\n  - [x] one ^1\n  - [x] two ^2\n- [x] before\n\nSome prose.\n")
    )


@pytest.mark.parametrize("text", ["# Only prose\n", "* a list\n* without boxes\n"])
def test_a_plan_without_items_is_not_a_finished_plan(workspace: Path, text: str) -> None:
    (workspace / "todo.md").write_text(text)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.todo.each(lambda run, item: None)

    outcome = run(workspace, main)
    assert outcome.status == "failed" and "todo.md has no items" in str(outcome.error)


def test_a_sub_agents_plan_without_items_is_taken_for_the_runs(workspace: Path) -> None:
    @agent
    async def child(run: Run[Any]) -> None:
        await run.todo.each(lambda run, item: None)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.spawn(child, "bob")

    outcome = run(workspace, main)
    assert outcome.status == "failed" and str(outcome.error).startswith("agents/bob/todo.md has no items")


def test_items_added_inside_an_item_come_with_its_commit(workspace: Path, crash: Any) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "first":
            await run.todo.add("second", after=item.id)
            await run.todo.note(item.id, "found one more")
            if run.attempt == 1:
                raise crash

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["first", "third"])
        await run.todo.each(work)

    with pytest.raises(crash):
        run(workspace, main)
    assert "second" not in "".join(path.read_text() for path in (workspace / "journal").iterdir())
    assert run(workspace, main).status == "completed"
    text = (workspace / "todo.md").read_text()
    assert text.count("second") == 1 and text.index("first") < text.index("second") < text.index("third")


def test_remaining_is_the_rest_of_the_plan(workspace: Path) -> None:
    rest: list[str] = []

    async def work(run: Run[Any], item: Item) -> None:
        rest.append(run.todo.remaining())

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan("Work", ["a", "b"])
        await run.todo.cancel("b")
        await run.todo.add("c")
        await run.todo.each(work)

    run(workspace, main)
    assert "a" in rest[0] and "c" in rest[0] and "[-]" not in rest[0]
    assert "- [ ] c" not in rest[1] and "[/] c" in rest[1]


def test_messages_and_outputs_come_with_the_commit(workspace: Path, crash: Any) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        run.messages.add("user", f"question {item.text}")
        assert run.messages.slice(last=1) == [{"role": "user", "content": f"question {item.text}"}]
        run.messages.add("assistant", {"text": "answer", "tokens": 3})
        await run.output(f"deep/{item.text}.txt", item.text * 3)
        if item.text == "b" and run.attempt == 1:
            raise crash

    @agent
    async def main(run: Run[Any]) -> int:
        if not run.todo.items:
            await run.plan(None, ["a", "b"])
        await run.todo.each(work)
        return len(run.messages)

    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == 4
    rows = [json.loads(line) for line in (workspace / "messages.jsonl").read_text().splitlines()]
    assert [row["content"] for row in rows][::2] == ["question a", "question b"]
    assert (workspace / "outputs/deep/b.txt").read_text() == "bbb"


@pytest.mark.parametrize("name", ["../out.txt", "/etc/x", "a/../../b", "", "a\\b", "nul\0"])
def test_an_output_cannot_be_written_outside(workspace: Path, name: str) -> None:
    async def work(run: Run[Any]) -> None:
        await run.output(name, "x")

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("work", work, run)

    assert isinstance(run(workspace, main).error, UsageError)
    assert not (workspace / "outputs").exists()


@pytest.mark.parametrize("call", ["output", "messages"])
def test_what_must_be_part_of_a_commit_is_refused_outside_a_scope(workspace: Path, call: str) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        if call == "output":
            await run.output("a.txt", "x")
        else:
            run.messages.add("user", "x")

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "outside a scope" in str(outcome.error)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
moves = st.one_of(
    st.tuples(st.just("set"), st.text(max_size=3), json_values),
    st.tuples(st.just("delete"), st.text(max_size=3), st.none()),
    st.tuples(st.just("append"), st.text(max_size=3), json_values),
)


@examples(60)
@given(st.lists(st.tuples(st.lists(moves, max_size=4), st.sampled_from(["commit", "fail", "crash"])), max_size=6))
def test_any_sequence_of_changes_commits_and_reopenings_equals_a_plain_dict(history: list[Any]) -> None:
    def change(state: dict[str, Any], how: str, key: str, value: Any) -> None:
        if how == "set":
            state[key] = copy.deepcopy(value)
        elif how == "delete":
            state.pop(key, None)
        elif isinstance(state.get(key), list):
            state[key].append(copy.deepcopy(value))

    expected: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        (workspace / "workspace.yaml").write_text(DEFINITION)
        number = 0
        while number < len(history):

            @agent
            async def main(run: Run[dict[str, Any]]) -> None:
                nonlocal number
                assert run.state == expected
                while number < len(history):
                    changes, end = history[number]
                    number += 1

                    async def work(run: Run[Any], changes: Any = changes, end: str = end) -> None:
                        for move in changes:
                            change(run.state, *move)
                        if end == "fail":
                            raise ValueError
                        if end == "crash":
                            run._session.journal.flush()  # what has committed before has arrived
                            raise Crash

                    try:
                        await run.scope(f"change {number}", work, run)
                    except ValueError:
                        continue
                    for move in changes:
                        change(expected, *move)
                    assert run.state == expected
                raise ValueError("so that it is opened once more")

            try:
                run(workspace, main)
            except Crash:
                continue
            assert state_of(workspace) == expected


def test_a_step_of_the_agent_itself_may_make_the_plan(workspace: Path, calls: list[str]) -> None:
    @step
    async def think() -> list[str]:
        calls.append("think")
        return ["a", "b"]

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "b" and run.attempt == 1:
            raise LookupError

    @agent
    async def main(run: Run[Any]) -> None:
        items = await think()
        if not run.todo.items:
            await run.plan("Thought", items)
        await run.todo.each(work)

    assert run(workspace, main).status == "failed"
    assert run(workspace, main).status == "completed"
    assert calls == ["think"]


@pytest.mark.parametrize("what", ["output", "message", "plan", "scope"])
def test_what_belongs_to_a_commit_is_refused_inside_a_step(workspace: Path, what: str) -> None:
    async def nothing() -> None: ...

    @step
    async def meddle(run: Run[Any]) -> None:
        if what == "output":
            await run.output("a.txt", "x")
        elif what == "message":
            run.messages.add("user", "x")
        elif what == "plan":
            await run.todo.add("more")
        else:
            await run.scope("inner", nothing)

    async def work(run: Run[Any], item: Item) -> None:
        await meddle()

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        await run.todo.each(work)

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "inside <step meddle>" in str(outcome.error)


def test_the_plan_cannot_be_changed_beside_a_scope_at_work(workspace: Path) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def work(run: Run[Any], item: Item) -> None:
        if item.text == "a":
            await run.todo.add("more", after=item.id)
        at_work.set()
        await go_on.wait()

    @agent
    async def main(run: Run[Any]) -> None:
        if run.todo.items:
            return
        await run.plan(None, ["a"])
        task = asyncio.ensure_future(run.todo.each(work))
        await at_work.wait()
        with pytest.raises(AgentError, match="while another scope ran: the scope 'a'"):
            await run.todo.note("a", "from outside")
        go_on.set()
        await task

    assert run(workspace, main).status == "completed"
    assert run(workspace, main).status == "completed", "the journal can be read"


def test_a_scope_cancelled_twice_is_rolled_back_all_the_same(workspace: Path) -> None:
    release = threading.Event()

    @step
    def block() -> None:
        release.wait(PATIENCE)

    async def work(run: Run[Any]) -> None:
        await run.todo.add("never")
        run.state["x"] = 1
        await block()

    @agent
    async def main(run: Run[Any]) -> None:
        if run.attempt == 2:
            return
        await run.plan(None, ["a"])
        task = asyncio.ensure_future(run.scope("work", work, run))
        await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        release.set()
        assert run.state == {}
        await run.todo.add("later")
        assert [item.text for item in run.todo] == ["a", "later"]

    outcome = run(workspace, main)
    assert outcome.error is None, outcome.error
    assert run(workspace, main).error is None


def test_a_scope_whose_result_does_not_fit_its_annotation_does_not_commit(workspace: Path) -> None:
    async def work() -> int:
        return "many"  # type: ignore[return-value]

    async def mended() -> int:
        return 3

    @agent
    async def main(run: Run[Any]) -> int:
        return await run.scope("work", work if run.attempt == 1 else mended)

    assert isinstance(run(workspace, main).error, UsageError)
    assert run(workspace, main).result == 3


def test_an_item_that_cancels_itself_in_the_plan_is_not_ticked(workspace: Path) -> None:
    async def work(run: Run[Any], item: Item) -> None:
        await run.todo.cancel(item.id)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        await run.todo.each(work)

    assert run(workspace, main).status == "completed"
    assert "- [-] a ^1" in (workspace / "todo.md").read_text()


def test_another_order_of_the_states_keys_is_lost_without_a_word(workspace: Path) -> None:
    async def work(run: Run[Any]) -> None:
        run.state.update(a=1, b=2)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("work", work, run)
        run.state["a"] = run.state.pop("a")

    assert "run.state.a was changed outside a scope" in str(run(workspace, main).error)


@pytest.mark.parametrize("whole", [False, True])
def test_a_task_beside_an_item_changes_the_state_that_the_item_commits(workspace: Path, whole: bool) -> None:
    """It would be committed as the item's, and made again by nothing after a crash in it."""
    begun, changed = asyncio.Event(), asyncio.Event()

    async def beside(run: Run[dict[str, Any]]) -> None:
        await begun.wait()
        try:
            if whole:
                run.state = {"beside": True}
            else:
                run.state["beside"] = True
        finally:
            changed.set()

    async def work(run: Run[dict[str, Any]], item: Item) -> None:
        begun.set()
        await changed.wait()
        run.state["item"] = True

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan(None, ["one"])
        task = asyncio.ensure_future(beside(run))
        await run.todo.each(work)
        await task

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError) and "run.state was used while the scope ran: 'one'" in str(
        outcome.error
    )
    assert json.loads((workspace / "state.json").read_text())["data"] == {"item": True}


def test_the_state_can_not_be_used_by_what_belongs_to_a_scope_or_between_scopes(workspace: Path) -> None:
    async def work(run: Run[dict[str, Any]]) -> None:
        async def add(name: str) -> None:
            run.state[name] = True

        await asyncio.gather(add("task"), asyncio.to_thread(run.state.update, {"thread": True}))

    @agent
    async def main(run: Run[dict[str, Any]]) -> list[str]:
        await run.scope("s", work, run)
        return [name async for name in names(run)]

    async def names(run: Run[dict[str, Any]]) -> AsyncIterator[str]:
        for name in sorted(run.state):
            yield name

    assert run(workspace, main).result == ["task", "thread"]
