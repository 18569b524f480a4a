"""Sub-agents: a tree of agents over one journal, each with a folder of its own."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import warm
from properties import seed
from waits import PATIENCE

import satchel
from satchel import Item, Run, agent, effect, run, step
from satchel.workspace.base.errors import AgentError, UsageError

Lines = list[str]


def state(workspace: Path, path: str = "") -> dict[str, Any]:
    return dict(json.loads((folder_of(workspace, path) / "state.json").read_text()))


def folder_of(workspace: Path, path: str) -> Path:
    return workspace.joinpath(*(part for name in path.split("/") if name for part in ("agents", name)))


def journal(workspace: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(workspace.glob("journal/*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def of_type(workspace: Path, kind: str) -> list[dict[str, Any]]:
    return [record for record in journal(workspace) if record["type"] == kind]


@step
async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def do_item(run: Run[Any], item: Item) -> str:
    run.state[item.text] = await double(len(item.text))
    run.messages.add("agent", f"{run.agent} did {item.text}")
    await run.output("made.txt", run.agent)
    return item.text


@agent
async def leaf(run: Run[Any], *items: str) -> list[str]:
    if not run.todo.items:
        await run.plan(None, list(items))
    await run.todo.each(do_item)
    return [run.todo.result(item) for item in run.todo.items]


@agent
async def middle(run: Run[Any], depth: int) -> Any:
    if depth == 0:
        return await run.spawn(leaf, "leaf", "one", "two")
    return await run.spawn(middle, f"level-{depth}", depth - 1)


def test_each_agent_of_a_deep_tree_has_its_own_folder_and_all_share_one_journal(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> Any:
        run_path = run.agent
        assert run_path == ""
        return await run.spawn(middle, "top", 3)

    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", ["one", "two"]), outcome.error
    path = "top/level-3/level-2/level-1/leaf"
    folder = folder_of(workspace, path)
    assert state(workspace, path)["data"] == {"one": 6, "two": 6}
    assert (folder / "todo.md").read_text().startswith("- [x] one ^1\n- [x] two ^2\n")
    assert (folder / "outputs/made.txt").read_text() == path
    messages = [json.loads(line)["content"] for line in (folder / "messages.jsonl").read_text().splitlines()]
    assert messages == [f"{path} did one", f"{path} did two"]
    assert len(list(workspace.rglob("journal"))) == 1
    assert {record.get("agent") for record in of_type(workspace, "scope.committed")} >= {path}
    assert not (workspace / "messages.jsonl").exists() or not (workspace / "messages.jsonl").read_text()


def test_a_parent_lists_its_children_and_every_schema_is_there(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(run.spawn(middle, "a", 0), run.spawn(leaf, "b", "one"))

    assert run(workspace, main).status == "completed"
    assert state(workspace)["agents"] == {"a": "completed", "b": "completed"}
    assert state(workspace, "a")["agents"] == {"leaf": "completed"}
    files = [workspace / "state.json", *workspace.glob("agents/**/state.json"), *workspace.glob("**/steps/*/*.json")]
    assert len(files) >= 4
    for file in files:
        schema = (file.parent / json.loads(file.read_text())["$schema"]).resolve()
        assert schema.is_file(), (file, schema)
        for target in _references(json.loads(schema.read_text())):
            if not target.startswith("#"):
                assert (schema.parent / target.partition("#")[0]).resolve().is_file(), (schema, target)


def _references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for each in value for found in _references(each)]
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for each in value.values() for found in _references(each)]
    return []


@pytest.mark.parametrize("how", ["gather", "group"])
def test_several_are_at_work_at_once(workspace: Path, how: str) -> None:
    """Each waits for the other, so one after the other would never end."""
    here = {"a": asyncio.Event(), "b": asyncio.Event()}

    @agent
    async def waiting(run: Run[Any], other: str) -> str:
        here[run.agent].set()
        await asyncio.wait_for(here[other].wait(), PATIENCE)
        return str(await double(len(run.agent)))

    async def work(run: Run[Any]) -> list[str]:
        if how == "gather":
            return list(await asyncio.gather(run.spawn(waiting, "a", "b"), run.spawn(waiting, "b", "a")))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run.spawn(waiting, one, two)) for one, two in ("ab", "ba")]
        return [task.result() for task in tasks]

    @agent
    async def main(run: Run[Any]) -> Any:
        return await run.scope("both", work, run)

    assert run(workspace, main).result == ["2", "2"]


def test_one_that_has_returned_is_answered_and_one_with_new_arguments_is_entered_again(
    workspace: Path, calls: Lines, crash: Any
) -> None:
    @step
    async def look(topic: str) -> str:
        calls.append(f"look {topic}")
        return topic.upper()

    @agent
    async def reader(run: Run[Any], topic: str, *, deep: bool = False) -> str:
        calls.append(f"enter {topic}")
        await look("same")
        return await look(topic)

    @agent
    async def main(run: Run[Any]) -> str:
        topic = "a" if run.attempt < 3 else "b"
        found: str = await run.spawn(reader, "reader", topic, deep=False)
        if run.attempt < 3:
            raise crash
        return found

    for _ in range(2):
        with pytest.raises(crash):
            run(workspace, main)
    outcome = run(workspace, main)
    assert (outcome.result, outcome.answered) == ("B", 1)
    assert calls == ["enter a", "look same", "look a", "enter b", "look b"]
    assert len(of_type(workspace, "agent.begun")) == 2


def test_arguments_are_equal_however_they_are_spelled(workspace: Path, calls: Lines) -> None:
    @agent
    async def reader(run: Run[Any], topic: str, times: int = 1) -> int:
        calls.append(topic)
        return times

    @agent
    async def main(run: Run[Any]) -> list[int]:
        return [await run.spawn(reader, "r", "a"), await run.spawn(reader, "r", topic="a", times=1)]

    assert run(workspace, main).result == [1, 1]
    assert calls == ["a"]


def test_a_result_comes_back_as_its_type_and_a_long_one_too(workspace: Path) -> None:
    @agent
    async def reader(run: Run[Any], size: int) -> tuple[str, int]:
        return "x" * size, size

    @agent
    async def main(run: Run[Any]) -> bool:
        for _ in range(2):
            assert await run.spawn(reader, "r", 100_000) == ("x" * 100_000, 100_000)
        return True

    outcome = run(workspace, main)
    assert outcome.result is True, outcome.error


def test_its_exception_is_raised_in_the_parent_and_on_record(workspace: Path, calls: Lines) -> None:
    class Refused(Exception):
        pass

    @agent
    async def reader(run: Run[Any]) -> int:
        calls.append("reader")
        number = await double(4)
        if run.attempt == 1:
            raise Refused("no such page")
        return number

    @agent
    async def main(run: Run[Any]) -> Any:
        try:
            return await run.spawn(reader, "reader")
        except Refused as error:
            calls.append(str(error))
            raise

    outcome = run(workspace, main)
    assert outcome.status == "failed" and isinstance(outcome.error, Refused)
    (ended,) = of_type(workspace, "agent.ended")
    assert ended["agent"] == "reader"
    assert (ended["error"]["kind"], ended["error"]["message"]) == ("Refused", "no such page")
    assert "in reader" in ended["error"]["where"][-1]
    assert state(workspace, "reader")["reason"] == "Refused: no such page"
    assert run(workspace, main).result == 8
    assert calls == ["reader", "no such page", "reader"]
    assert len(of_type(workspace, "step.completed")) == 1, "its finished step was answered"


def test_a_doubt_in_a_grandchild_names_it_and_can_be_resolved(workspace: Path, calls: Lines, crash: Any) -> None:
    @effect
    async def send(text: str, *, key: str) -> str:
        calls.append(key)
        if len(calls) == 1:
            raise crash
        return f"sent {text}"

    @agent
    async def mailer(run: Run[Any]) -> str:
        return await run.scope("mail", send, "hello")

    @agent
    async def team(run: Run[Any]) -> Any:
        return await run.spawn(mailer, "mailer")

    @agent
    async def main(run: Run[Any]) -> Any:
        return await run.spawn(team, "team")

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert [(doubt.agent, doubt.step) for doubt in outcome.doubts] == [("team/mailer", "send")]
    assert state(workspace, "team/mailer")["waiting_for"] == ["d1"]
    (asked,) = satchel.open(workspace).status().questions
    assert "of the agent team/mailer" in asked.text
    satchel.open(workspace).answer("redo", "d1")
    assert run(workspace, main).result == "sent hello"
    assert len(calls) == 2 and calls[0] == calls[1]


def test_equal_effects_of_two_agents_have_keys_of_their_own(workspace: Path, calls: Lines) -> None:
    @effect
    async def send(*, key: str) -> None:
        calls.append(key)

    @agent
    async def mailer(run: Run[Any]) -> None:
        await send()

    @agent
    async def main(run: Run[Any]) -> None:
        await send()
        await asyncio.gather(run.spawn(mailer, "a"), run.spawn(mailer, "b"))

    assert run(workspace, main).status == "completed"
    assert len(set(calls)) == 3


@pytest.mark.parametrize("how", ["not spawned again", "fails before it"])
def test_a_doubt_of_an_agent_that_does_not_come_to_it_again_holds_the_commit(
    workspace: Path, calls: Lines, crash: Any, how: str
) -> None:
    @effect
    async def send() -> None:
        calls.append("send")
        raise crash

    @agent
    async def inner(run: Run[Any]) -> None:
        if run.attempt > 1:
            raise ValueError
        await send()

    @agent
    async def outer(run: Run[Any]) -> None:
        await run.spawn(inner, "inner")

    async def work(run: Run[Any], item: Item) -> None:
        if run.attempt > 1 and how == "not spawned again":
            return
        with suppress(ValueError):
            await run.spawn(outer, "outer")

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["mail"])
        await run.todo.each(work)

    with pytest.raises(crash):
        run(workspace, main)
    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert [(doubt.agent, doubt.why) for doubt in outcome.doubts] == [("outer/inner", "unreached")]
    assert "- [/] mail" in (workspace / "todo.md").read_text()
    satchel.open(workspace).answer("done", "d1")
    assert run(workspace, main).status == "completed"
    assert calls == ["send"]


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "a b", "é", "x" * 41, ".hidden", 3, None])
def test_a_name_that_cannot_be_a_folder_is_refused(workspace: Path, name: Any) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.spawn(leaf, name)

    error = run(workspace, main).error
    assert isinstance(error, UsageError)
    assert repr(name) in str(error) and "lower-case" in str(error)
    assert not (workspace / "agents").exists()


def test_a_function_that_is_no_agent_is_refused(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await run.spawn(do_item, "name")  # type: ignore[arg-type]

    assert "Decorate the function with @agent" in str(run(workspace, main).error)


def test_wrong_arguments_are_told_before_anything_is_recorded(workspace: Path) -> None:
    @agent
    async def one(run: Run[Any], topic: str) -> None: ...

    @agent
    async def main(run: Run[Any]) -> None:
        await run.spawn(one, "reader")

    error = run(workspace, main).error
    assert isinstance(error, TypeError) and "the agent reader" in str(error) and "topic" in str(error)
    assert not of_type(workspace, "agent.begun")


def test_the_same_name_twice_at_once_is_refused(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(run.spawn(leaf, "one", "a"), run.spawn(leaf, "one", "b"))

    error = run(workspace, main).error
    assert isinstance(error, AgentError) and "'one' is already running" in str(error)


@pytest.mark.parametrize("what", ["scope", "plan", "spawn", "sleep", "output", "message", "each"])
def test_the_run_of_one_agent_is_refused_in_another(workspace: Path, what: str) -> None:
    runs: list[Run[Any]] = []

    async def use(run: Run[Any]) -> None:
        match what:
            case "scope":
                await run.scope("mine", double, 1)
            case "plan":
                await run.plan(None, ["a"])
            case "spawn":
                await run.spawn(leaf, "leaf", "a")
            case "sleep":
                await run.sleep(0)
            case "output":
                await run.output("a.txt", "a")
            case "message":
                run.messages.add("user", "a")
            case "each":
                await run.todo.each(do_item)

    @agent
    async def child(run: Run[Any]) -> None:
        await use(runs[0])

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["a"])
        runs.append(run)
        await run.spawn(child, "child")

    outcome = run(workspace, main)
    assert isinstance(outcome.error, AgentError), outcome
    assert not (workspace / "outputs").exists() and not (workspace / "agents/leaf").exists()


def test_one_cannot_be_spawned_by_a_step(workspace: Path) -> None:
    @step
    async def cheat(run: Run[Any]) -> None:
        await run.spawn(leaf, "leaf", "a")

    @agent
    async def main(run: Run[Any]) -> None:
        await cheat()

    assert "inside <step cheat>" in str(run(workspace, main).error)


@pytest.mark.parametrize("how", ["gather", "group"])
def test_when_the_parent_fails_effects_of_its_children_come_to_their_end(
    workspace: Path, calls: Lines, how: str
) -> None:
    """They are recorded and not in doubt, and nothing more is begun."""
    begun, failed = asyncio.Event(), asyncio.Event()

    @effect
    async def send() -> str:
        begun.set()
        if len(calls) == 0:
            await failed.wait()
            for _ in range(20):
                await asyncio.sleep(0)
        calls.append("sent")
        return "receipt"

    @agent
    async def mailer(run: Run[Any]) -> str:
        receipt = await send()
        await double(1)
        calls.append("went on")
        return receipt

    @agent
    async def above(run: Run[Any]) -> str:
        return str(await run.spawn(mailer, "mailer"))

    async def fail(attempt: int) -> None:
        if attempt == 1:
            await begun.wait()
            asyncio.get_running_loop().call_soon(failed.set)
            raise RuntimeError("the parent fails")

    async def work(run: Run[Any]) -> Any:
        if how == "gather":
            return (await asyncio.gather(run.spawn(above, "above"), fail(run.attempt)))[0]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run.spawn(above, "above"))
            group.create_task(fail(run.attempt))
        return task.result()

    @agent
    async def main(run: Run[Any]) -> Any:
        return await run.scope("work", work, run)

    outcome = run(workspace, main)
    assert outcome.status == "failed" and outcome.doubts == []
    assert "the parent fails" in of_type(workspace, "closed")[-1]["error"]["message"]
    assert calls == ["sent"]
    assert [record["step"] for record in of_type(workspace, "step.completed")] == ["send"]
    assert of_type(workspace, "agent.ended") == [], "they have not failed, and are gone on with"
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", "receipt")
    assert calls == ["sent", "went on"] and not of_type(workspace, "doubt")


@pytest.mark.parametrize("how", ["gather", "group"])
def test_a_child_that_waits_for_what_never_comes_does_not_hold_a_parent_that_fails(workspace: Path, how: str) -> None:
    waiting = asyncio.Event()

    @agent
    async def waits(run: Run[Any]) -> None:
        await double(1)
        waiting.set()
        await asyncio.Event().wait()

    @agent
    async def above(run: Run[Any]) -> None:
        await run.spawn(waits, "waits")

    async def fail() -> None:
        await waiting.wait()
        raise RuntimeError("the parent fails")

    @agent
    async def main(run: Run[Any]) -> None:
        if how == "gather":
            await asyncio.gather(run.spawn(above, "above"), fail())
        async with asyncio.TaskGroup() as group:
            group.create_task(run.spawn(above, "above"))
            group.create_task(fail())

    async def in_time() -> Any:
        from satchel import run_async

        return await asyncio.wait_for(run_async(workspace, main), PATIENCE)

    assert asyncio.run(in_time()).status == "failed"


def test_a_spawn_that_is_given_up_lets_an_effect_end_and_is_gone_on_with(workspace: Path, calls: Lines) -> None:
    @effect
    async def send() -> str:
        calls.append("send")
        await asyncio.sleep(0.1)
        return "receipt"

    @agent
    async def mailer(run: Run[Any]) -> str:
        return await send()

    @agent
    async def main(run: Run[Any]) -> str:
        try:
            async with asyncio.timeout(0.01):
                await run.spawn(mailer, "mailer")
        except TimeoutError:
            calls.append("timeout")
        return str(await run.spawn(mailer, "mailer"))

    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", "receipt"), outcome
    assert calls == ["send", "timeout"]


def test_a_doubt_in_one_lets_the_others_finish_what_they_are_at_and_no_more(workspace: Path, calls: Lines) -> None:
    asked = asyncio.Event()

    @effect
    async def lost() -> None:
        raise TimeoutError

    @effect
    async def send() -> str:
        await asked.wait()
        calls.append("sent")
        return "receipt"

    @agent
    async def loses(run: Run[Any]) -> None:
        try:
            await lost()
        finally:
            asked.set()

    @agent
    async def mailer(run: Run[Any]) -> None:
        await send()
        await double(1)
        calls.append("went on")

    @agent
    async def main(run: Run[Any]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.spawn(mailer, "mailer"))
            group.create_task(run.spawn(loses, "loses"))

    outcome = run(workspace, main)
    assert outcome.status == "waiting"
    assert [(doubt.agent, doubt.step) for doubt in outcome.doubts] == [("loses", "lost")]
    assert calls == ["sent"]


def test_steps_of_many_agents_share_syncs(workspace: Path) -> None:
    @step
    async def double(number: int) -> int:  # it waits for nothing, so no two are under way at once
        return 2 * number

    @agent
    async def one(run: Run[Any], number: int) -> int:
        return await double(number)

    @agent
    async def main(run: Run[Any]) -> list[int]:
        return list(await asyncio.gather(*(run.spawn(one, f"a{number}", number) for number in range(40))))

    assert run(workspace, main).result == [2 * number for number in range(40)]
    groups = {record.get("commit", record["seq"]) for record in of_type(workspace, "step.completed")}
    assert len(groups) <= 10


def test_an_item_that_fails_in_a_child_leaves_the_childs_state_as_it_was(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @agent
    async def child(run: Run[Any]) -> None:
        async def work() -> None:
            run.state["half"] = True
            raise ValueError("in the middle")

        await run.scope("work", work)

    @agent
    async def main(run: Run[Any]) -> None:
        try:
            await run.spawn(child, "child")
        except ValueError:
            return

    assert run(workspace, main).status == "completed"
    assert state(workspace, "child")["data"] == {}
    assert state(workspace)["agents"] == {"child": "failed"}


_STREAMS = '''
import asyncio, os, pathlib, signal
from satchel import Partial, agent, step

WORDS = 400
DIE_AFTER = int(os.environ.get("DIE_AFTER", "0"))

def on_disk():
    """Characters that the files of the streams hold."""
    files = pathlib.Path(__file__).parent.glob("agents/*/partials/*/*.md")
    return [len(file.read_text().split("\\n---\\n", 1)[1]) for file in files]

@step
async def write(name: str, out: Partial) -> str:
    if out.recovered:
        print("recovered", name, len(out.recovered.split()), flush=True)
    for number in range(len(out.text.split()), WORDS):
        await out.write(f"{name}{number} ")
        await asyncio.sleep(0.002)
        if DIE_AFTER and len(there := on_disk()) == 2 and min(there) >= DIE_AFTER:
            os.kill(os.getpid(), signal.SIGKILL)
    return out.text

@agent
async def writer(run, name):
    return await write(name)

@agent
async def main(run):
    found = await asyncio.gather(run.spawn(writer, "left", "l"), run.spawn(writer, "right", "r"))
    assert found == ["".join(f"{name}{n} " for n in range(WORDS)) for name in "lr"], found
    return "both"
'''


def test_streams_of_two_agents_at_once_survive_a_kill(workspace: Path) -> None:
    (workspace / "agent.py").write_text(_STREAMS)
    script = "import sys, satchel; o = satchel.run(sys.argv[1]); print(o.status, o.result, o.error, o.recovered)"
    die_after = random.Random(seed()).randrange(1, 900)
    print(f"dies when both files hold {die_after} characters")
    environment = {**os.environ, "DIE_AFTER": str(die_after)}
    command = [sys.executable, "-c", script, str(workspace)]
    killed = warm.run(command, env=environment, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert {path.parents[2].name for path in workspace.glob("agents/*/partials/*/*.md")} == {"left", "right"}
    environment.pop("DIE_AFTER")
    done = warm.run(command, env=environment, timeout=60, check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {line[1] for line in lines if line[0] == "recovered"} == {"l", "r"}, done.stdout
    assert lines[-1][:2] == ["completed", "both"], done.stdout
    assert int(lines[-1][3]) >= 2 * die_after, "what the files held was continued"
    assert {path.parents[2].name for path in workspace.glob("agents/*/recovered/*/*.md")} == {"left", "right"}
