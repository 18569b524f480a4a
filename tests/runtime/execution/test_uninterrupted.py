"""`async with run.uninterrupted(...)`: a stop waits for the end of the block."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import warm
from waits import PATIENCE

from satchel import Run, agent, effect, run, step
from satchel.workspace.base.errors import AgentError
from satchel.workspace.formats import yamltext
from satchel.workspace.inbound import Reply, find_question
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import NOTHING
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore


def stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def noting(calls: list[str]) -> Any:
    @step
    async def note(what: str) -> str:
        await asyncio.sleep(0)
        calls.append(what)
        await asyncio.sleep(0)
        return what

    return note


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("place", ["item", "scope", "agent"])
def test_a_block_comes_to_its_end_and_then_the_run_stops(
    workspace: Path, calls: list[str], number: int, place: str
) -> None:
    note = noting(calls)

    async def transfer(run: Run[Any], item: Any = None) -> None:
        async with run.uninterrupted("transfer"):
            await note("take")
            if run.attempt == 1:
                os.kill(os.getpid(), number)
            await asyncio.sleep(0.01)
            await note("give")
        await note("after")

    @agent
    async def main(run: Run[Any]) -> None:
        if place == "item":
            if not run.todo.items:
                await run.plan(None, ["one"])
            await run.todo.each(transfer)
        elif place == "scope":
            await run.scope("transfer", transfer, run)
        else:
            await transfer(run)

    assert run(workspace, main).status == "paused"
    assert calls == ["take", "give"]
    found = json.loads((workspace / "state.json").read_text())
    assert (found["status"], found["reason"]) == ("paused", "signal")
    assert run(workspace, main).status == "completed"
    assert calls == ["take", "give", "after"]


def test_an_effect_in_a_block_is_not_in_doubt_after_a_signal(workspace: Path, calls: list[str]) -> None:
    @effect
    async def send() -> str:
        stop()
        await asyncio.sleep(0.01)
        calls.append("sent")
        return "receipt"

    @agent
    async def main(run: Run[Any]) -> str:
        async with run.uninterrupted("mail"):
            return await send()

    assert run(workspace, main).status == "paused"
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result, calls) == ("completed", "receipt", ["sent"])


def test_without_a_signal_a_block_changes_nothing(workspace: Path, calls: list[str]) -> None:
    note = noting(calls)

    @agent
    async def main(run: Run[Any]) -> str:
        async with run.uninterrupted("outer"), run.uninterrupted("inner"):
            await note("in")
        with pytest.raises(ValueError):
            async with run.uninterrupted("raises"):
                raise ValueError
        return str(await note("out"))

    assert run(workspace, main).result == "out"
    assert calls == ["in", "out"]


def test_the_end_of_an_inner_block_is_not_that_of_the_outer_one(workspace: Path, calls: list[str]) -> None:
    note = noting(calls)

    @agent
    async def main(run: Run[Any]) -> None:
        async with run.uninterrupted("outer"):
            async with run.uninterrupted("inner"):
                stop()
                await note("inner")
            await asyncio.sleep(0.01)
            await note("outer")
        await note("after")

    assert run(workspace, main).status == "paused"
    assert calls == ["inner", "outer"]


@pytest.mark.parametrize("how", ["gather", "group"])
def test_steps_beside_a_block_stop_and_the_run_waits_for_all_blocks(
    workspace: Path, calls: list[str], how: str
) -> None:
    note = noting(calls)
    both_begun, came = asyncio.Barrier(3), asyncio.Event()

    async def block(run: Run[Any], name: str, turns: int) -> None:
        async with run.uninterrupted(name):
            await both_begun.wait()
            await came.wait()
            for number in range(turns):
                await note(f"{name}{number}")
                await asyncio.sleep(0)  # between two calls it is at work, too
        await note(f"after {name}")

    async def beside() -> None:
        await note("beside")
        await both_begun.wait()
        stop()
        came.set()
        await note("too late")

    @agent
    async def main(run: Run[Any]) -> None:
        if run.attempt > 1:
            return
        tasks = block(run, "a", 2), block(run, "b", 30), beside()
        if how == "gather":
            await asyncio.gather(*tasks)
        else:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(task)

    assert run(workspace, main).status == "paused"
    assert [call for call in calls if call.startswith("b") and call != "beside"] == [f"b{n}" for n in range(30)]
    assert [call for call in calls if call.startswith("a")] == ["a0", "a1"]
    assert "too late" not in calls
    assert run(workspace, main).status == "completed"


@effect
async def lost() -> None:
    raise TimeoutError


def test_a_task_that_outlives_its_block_is_not_held(workspace: Path, calls: list[str]) -> None:
    note = noting(calls)

    async def long() -> None:
        for number in range(100):
            await note(str(number))

    @agent
    async def main(run: Run[Any]) -> None:
        async with run.uninterrupted("starts it"):
            task = asyncio.ensure_future(long())
            await note("begun")
        await asyncio.wait([asyncio.ensure_future(lost())])
        await asyncio.wait([task])

    assert run(workspace, main).status == "waiting"
    assert len(calls) < 20


def test_a_question_beside_a_block_waits_for_its_end(workspace: Path, calls: list[str]) -> None:
    note = noting(calls)
    begun = asyncio.Event()

    async def block(run: Run[Any]) -> None:
        async with run.uninterrupted("transfer"):
            begun.set()
            for number in range(10):
                await note(str(number))
        await note("after")

    async def beside() -> None:
        await begun.wait()
        await lost()

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(block(run), beside())

    assert run(workspace, main).status == "waiting"
    assert calls == [str(number) for number in range(10)]


def test_a_block_of_a_sub_agent_holds_the_run(workspace: Path, calls: list[str]) -> None:
    note = noting(calls)

    @agent
    async def child(run: Run[Any]) -> None:
        async with run.uninterrupted("transfer"):
            await note("take")
            if run.attempt == 1:
                stop()
            await asyncio.sleep(0.01)
            await note("give")
        await note("after")

    @agent
    async def beside(run: Run[Any]) -> None:
        for number in range(1000):
            await note(f"beside {number}")

    @agent
    async def main(run: Run[Any]) -> None:
        if run.attempt == 1:
            await asyncio.gather(run.spawn(child, "child"), run.spawn(beside, "beside"))
        await run.spawn(child, "child")

    assert run(workspace, main).status == "paused"
    assert [call for call in calls if not call.startswith("beside")] == ["take", "give"]
    assert len(calls) < 100
    assert run(workspace, main).status == "completed"
    assert [call for call in calls if not call.startswith("beside")] == ["take", "give", "after"]


def test_a_block_of_a_sub_agent_comes_to_its_end_when_its_caller_fails(workspace: Path, calls: list[str]) -> None:
    note = noting(calls)
    begun = asyncio.Event()

    @agent
    async def child(run: Run[Any]) -> None:
        async with run.uninterrupted("transfer"):
            begun.set()
            await note("take")
            await asyncio.sleep(0.01)
            await note("give")
        await note("after")

    async def fail() -> None:
        await begun.wait()
        raise RuntimeError

    @agent
    async def main(run: Run[Any]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.spawn(child, "child"))
            group.create_task(fail())

    assert run(workspace, main).status == "failed"
    assert calls == ["take", "give"]


def test_the_run_of_another_agent_is_refused(workspace: Path) -> None:
    runs: list[Run[Any]] = []

    @agent
    async def child(run: Run[Any]) -> None:
        async with runs[0].uninterrupted("mine"):
            pass

    @agent
    async def main(run: Run[Any]) -> None:
        runs.append(run)
        await run.spawn(child, "child")

    assert isinstance(run(workspace, main).error, AgentError)


_HANGS = """
import asyncio
from satchel import agent

@agent
async def main(run):
    async with run.uninterrupted("transfer"):
        print("in", flush=True)
        await asyncio.Event().wait()
"""


def test_a_second_signal_does_not_wait_any_longer(workspace: Path) -> None:
    (workspace / "agent.py").write_text(_HANGS)
    command = [sys.executable, "-c", "import sys, satchel; satchel.run(sys.argv[1])", str(workspace)]
    with warm.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "in\n"
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    paused = yamltext.load((workspace / "pause.yaml").read_text(), "pause.yaml").value
    assert (paused["status"], paused["forced"]) == ("paused", True)
    assert json.loads((workspace / "state.json").read_text())["status"] == "paused"


def answer(workspace: Path, id: str, decision: str) -> None:
    with opened(DiskStore(workspace), "answer", Report()) as found:
        question = find_question(found.moment, id)
        assert question is not None
        found.desk.record(found.journal, question, Reply(decision, "tester", "", NOTHING), "command")
        found.close()


@pytest.mark.parametrize("how", ["gather", "swallowed", "cancelled"])
def test_a_scope_in_a_block_commits_over_an_effect_in_doubt(workspace: Path, calls: list[str], how: str) -> None:
    @effect
    async def send() -> None:
        calls.append("sent")
        if how == "cancelled":
            await asyncio.Event().wait()
        raise TimeoutError

    async def work(run: Run[Any]) -> str:
        if how == "cancelled":
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await send()
        elif how == "gather":
            await asyncio.gather(send(), return_exceptions=True)
        else:
            with suppress(BaseException):
                await send()
        return "committed"

    @agent
    async def main(run: Run[Any]) -> str:
        async with run.uninterrupted("block"):
            return await run.scope("send", work, run)

    outcome = run(workspace, main)
    assert (outcome.status, [doubt.id for doubt in outcome.doubts]) == ("waiting", ["d1"])
    assert '"scope.committed","scope":"_send"' not in (workspace / "journal/000000000001.jsonl").read_text()
    answer(workspace, "d1", "done")
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result, calls) == ("completed", "committed", ["sent"])


@pytest.mark.parametrize("spawned", [False, True])
def test_a_question_in_a_block_is_dropped_by_a_commit(workspace: Path, spawned: bool) -> None:
    async def ask(run: Run[Any]) -> Any:
        return (await run.ask("Really?", ["yes", "no"], wait_for=0)).decision

    @agent
    async def child(run: Run[Any]) -> Any:
        return await ask(run)

    async def work(run: Run[Any]) -> Any:
        asked = run.spawn(child, "child") if spawned else ask(run)
        (found,) = await asyncio.gather(asked, return_exceptions=True)
        return found if isinstance(found, str) else "unanswered"

    @agent
    async def main(run: Run[Any]) -> Any:
        async with run.uninterrupted("block"):
            return await run.scope("ask", work, run)

    assert run(workspace, main).status == "waiting"
    answer(workspace, "a1", "no")
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", "no")


def test_a_question_of_another_agent_interrupts_a_block_that_commits(workspace: Path) -> None:
    committed = asyncio.Event()

    async def work(run: Run[Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not run._session.context.stopping.suspension:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    @agent
    async def block(run: Run[Any]) -> None:
        async with run.uninterrupted("block"):
            await run.scope("work", work, run)
            committed.set()

    @agent
    async def asks(run: Run[Any]) -> None:
        await run.ask("Really?", ["yes", "no"], wait_for=0)

    @agent
    async def main(run: Run[Any]) -> None:
        await asyncio.gather(run.spawn(block, "block"), run.spawn(asks, "asks"))

    assert run(workspace, main).status == "waiting"
    assert committed.is_set()
