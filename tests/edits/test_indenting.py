"""An item put below another one, out of it, or below a third: the one above keeps its own work, and it is told."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from servers import Server

import satchel
from satchel import Item, Run, agent, run, step
from satchel.workspace.store import open_store

from .folder import Place, world
from .folder import main as agent_main
from .running import Gate, going

gate = Gate()


def fresh(*names: str) -> Gate:
    """The gate of the agents from here on."""
    global gate
    gate = Gate(*names)
    return gate


@step
def slowly(name: str) -> str:
    gate.pass_through(name)
    return name.upper()


@step
def quickly(name: str) -> str:
    gate.calls.append(name)
    return name


async def work(run: Run, item: Item) -> None:
    await slowly(f"{item.text} begins")
    await quickly(f"{item.text} ends")


@agent
async def helper(run: Run) -> None:
    if not run.todo.items:
        await run.plan(None, ["a", "b", "c", "d"])
    await run.todo.each(work)


in_order = helper


@agent
async def in_lanes(run: Run) -> None:
    if not run.todo.items:
        await run.plan(None, ["a", "b", "c", "d"])
    await run.todo.each(work, parallel=2)


@agent
async def above(run: Run) -> None:
    await run.spawn(helper, "helper")


def said(place: Place) -> tuple[str, ...]:
    (edit,) = place.look().edits
    return edit.record.says


def waits(text: str) -> tuple[str]:
    return (f"{text!r} will be done after the items below it",)


def done(names: list[str]) -> list[str]:
    return [name.removesuffix(" ends") for name in names if name.endswith(" ends")]


def indent(place: Place, item: str, path: str = "todo.md") -> None:
    place.edit(path, (f"- [ ] {item}", f"  - [ ] {item}"))


@pytest.fixture
def planned(place: Place) -> Place:
    """Stopped in its second item; `three` and `ask bob` are open."""
    place.put("todo.md", "- [ ] amy\n- [ ] bob\n- [ ] cyd\n- [ ] dee\n- [ ] eve\n")
    assert place.run("bob").status == "failed"
    world.fresh()
    return place


def items(calls: list[str]) -> list[str]:
    return [call.removeprefix("read ") for call in calls if call.startswith("read ")]


def test_an_item_that_gets_one_below_it_is_ticked_without_being_done(planned: Place) -> None:
    indent(planned, "dee")
    assert said(planned) == ("'dee' is now under 'cyd'", *waits("cyd"))
    outcome = planned.run()
    assert outcome.status == "completed" and items(world.fresh()) == ["dee", "cyd", "eve"]
    assert any("todo.md: 'dee' is now under 'cyd'" in remark.text for remark in outcome.report.remarks)
    assert "- [x] cyd ^3\n  - [x] dee ^4\n- [x] eve ^5\n" in planned.text() and planned.is_at_the_moment()


def test_an_item_that_is_moved_out_or_to_another_one_is_told(planned: Place) -> None:
    indent(planned, "dee")
    planned.recover()
    planned.edit("todo.md", ("  - [ ] dee\n", ""), ("- [ ] eve", "- [ ] eve\n  - [ ] dee"))
    assert said(planned) == ("'dee' is now under 'eve', and no longer under 'cyd'", *waits("eve"))
    planned.recover()
    planned.edit("todo.md", ("  - [ ] dee", "- [ ] dee"))
    assert said(planned) == ("'dee' is no longer under 'eve'",)
    assert planned.run().status == "completed" and items(world.fresh()) == ["cyd", "eve", "dee"]


def test_a_heading_that_loses_its_items_is_done_unannounced(place: Place) -> None:
    place.put("todo.md", "- [ ] amy\n- [ ] head\n  - [ ] cyd\n")
    assert place.run("amy").status == "failed" and world.fresh()
    place.edit("todo.md", ("  - [ ] cyd", "- [ ] cyd"))
    assert said(place) == (
        "'cyd' is no longer under 'head'",
        "'head' has no items below it any more, so it will be done itself",
    )
    assert place.run().status == "completed" and items(world.fresh()) == ["head", "cyd"]


def test_an_item_that_had_begun_does_its_steps_again_after_those_below_it(planned: Place) -> None:
    planned.edit("todo.md", ("- [ ] cyd", "  - [ ] cyd"))  # bob had begun: its steps and its effect are done
    assert said(planned) == ("'cyd' is now under 'bob'", *waits("bob"))
    assert planned.run("cyd").status == "failed" and world.fresh()
    assert "- [/] bob ^2\n  - [/] cyd ^3\n" in planned.text()
    assert planned.run().status == "completed" and items(world.fresh()) == ["dee", "eve"]


def test_an_unticked_item_does_the_items_below_it_again(planned: Place) -> None:
    indent(planned, "dee")
    assert planned.run().status == "completed" and world.fresh()
    planned.edit("todo.md", ("[x] cyd", "[ ] cyd"))
    assert planned.run().status == "completed" and items(world.fresh()) == ["cyd"]


def test_its_own_work_is_lost_with_the_journal(planned: Place) -> None:
    indent(planned, "dee")
    planned.recover()
    assert planned.run("dee").status == "failed" and world.fresh()
    for path in [*planned.there("journal/*"), *planned.there("checkpoints/*")]:
        where = planned.folder / path
        shutil.rmtree(where) if where.is_dir() else where.unlink()
    planned.edit("todo.md", ("[/] dee", "[ ] dee"))
    planned.run()
    assert "cyd" in items(world.fresh())


def test_a_return_to_before_it_was_done_forgets_its_own_work(planned: Place) -> None:
    indent(planned, "dee")
    planned.recover()
    at = planned.moment.seq
    assert planned.run().status == "completed" and world.fresh()
    satchel.open(planned.folder).history.rewind(to=at)
    assert planned.root.plan.own_work == {"3"}
    assert planned.run().status == "completed" and items(world.fresh()) == ["dee", "cyd", "eve"]


# While it runs


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("main", [in_order, in_lanes, above], ids=["in order", "in lanes", "a sub-agent"])
def test_an_item_that_gets_one_below_it_while_another_runs_is_ticked(place: Place, main: Any) -> None:
    path = "agents/helper/todo.md" if main is above else "todo.md"
    first = ("a begins", "b begins") if main is in_lanes else ("a begins",)
    with going(place, main, gate := fresh(*first)) as running:
        for name in first:
            running.reach(name)
        place.edit(path, ("- [ ] c\n- [ ] d", "- [ ] c\n  - [ ] d"))
        running.until_told("was saved")
        gate.open()
        assert "'d' is now under 'c'" in running.until_taken(path).says
    assert done(gate.calls).index("d") < done(gate.calls).index("c") and len(gate.calls) == 8


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("main", [in_order, in_lanes, above], ids=["in order", "in lanes", "a sub-agent"])
def test_an_item_at_work_goes_on_before_the_one_put_below_it(place: Place, main: Any) -> None:
    path = "agents/helper/todo.md" if main is above else "todo.md"
    first = ("a begins", "b begins") if main is in_lanes else ("a begins",)
    with going(place, main, gate := fresh(*first)) as running:
        for name in first:
            running.reach(name)
        begun = "[/] b ^2" if main is in_lanes else "[ ] b"
        place.edit(path, (f"- [/] a ^1\n- {begun}", f"- [/] a ^1\n  - {begun}"))
        running.until_told("was saved")
        gate.open()
        running.until_taken(path)
    calls = [name for name in gate.calls if name[0] in "ab"]
    assert sorted(calls[:2]) == ["a begins", "b begins"] and calls[2:] == ["b ends", "a ends"], "no step is done twice"


def test_a_bucket_ticks_an_item_that_gets_one_below_it(seaweedfs: Server) -> None:
    store = open_store(seaweedfs.place(), seaweedfs.storage_options())
    store.create("workspace.yaml", b"format: 1\nrun_id: run-1\nagent: agent.py:main\n")
    store.create("todo.md", b"- [ ] amy\n- [ ] cyd\n- [ ] dee\n")
    world.fails = {"amy"}
    assert run(store, agent_main).status == "failed" and world.fresh()
    world.fails = set()
    store.refresh()
    store.replace("todo.md", store.read("todo.md").data.replace(b"- [ ] dee", b"  - [ ] dee"))
    assert run(open_store(store.url, seaweedfs.storage_options()), agent_main).status == "completed"
    assert items(world.fresh()) == ["dee", "cyd"]
