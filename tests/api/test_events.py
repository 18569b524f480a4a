"""Events: what a run in this process tells, and what any process reads from its files."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import warm
from servers import Server

import satchel
from satchel import Partial, Run, agent, events, step
from satchel.workspace.base.errors import UsageError

from .test_in_a_bucket import put

DEFINITION = "format: 1\nrun_id: test-1\nagent: agent.py:main\n"

AGENT = """
import os, signal
from satchel import Partial, Retry, agent, effect, step

@step(retry=Retry(attempts=2, first=0.01))
async def write(topic: str, out: Partial) -> str:
    if not os.path.exists("tried"):
        open("tried", "w").close()
        raise ConnectionError("503")
    for word in ("one ", "two ", "three"):
        await out.write(word)
    return out.text

@effect
async def send(text: str) -> str:
    if os.environ.get("DIES") and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "sent"

async def work(run, item):
    run.state["text"] = await write(item.text)
    await run.ask("May I?", ["yes", "no"], wait_for=0)
    await send(item.text)
    return "done"

@agent
async def main(run, topic: str = "tides"):
    if not run.todo.items:
        await run.plan(None, [topic])
    await run.todo.each(work)
    return {"topic": topic}
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "workspace.yaml").write_text(DEFINITION)
    (folder / "agent.py").write_text(AGENT)
    monkeypatch.chdir(folder)
    return folder


async def collected(found: Any, until: type[events.Event] | None = None) -> list[Any]:
    told = []
    async with aclosing(found):
        async for event in found:
            told.append(event)
            if until is not None and isinstance(event, until):
                break
    return told


def names(told: list[Any]) -> list[str]:
    return [type(event).__name__ for event in told]


def durable(told: list[Any]) -> list[Any]:
    return [event for event in told if event.is_durable]


FIRST = [
    "RunStarted",
    "PlanChanged",
    "ItemBegun",
    "StepFailed",
    "StepRetried",
    "Tokens",
    "Tokens",
    "Tokens",
    "StepCompleted",
    "Asked",
    "RunStopped",
    "RunEnded",
]


ENDING = ["StepCompleted", "ItemCommitted", "RunStopped", "RunEnded"]


def test_a_run_tells_not_what_it_does(workspace: Path) -> None:
    first = asyncio.run(collected(satchel.stream(workspace, None, "waves")))
    assert names(first) == FIRST
    told: dict[str, Any] = dict(zip(names(first), first, strict=True))
    assert told["ItemBegun"].title == "waves" and told["StepRetried"].error == "ConnectionError: 503"
    assert [(each.text, each.offset) for each in first if isinstance(each, events.Tokens)] == [
        ("one ", 0),
        ("two ", 4),
        ("three", 8),
    ]
    assert told["StepCompleted"].result == "one two three"
    assert (told["Asked"].question, told["Asked"].choices) == ("May I?", ("yes", "no"))
    assert told["RunStopped"].status == told["RunEnded"].outcome.status == "waiting"
    satchel.open(str(workspace)).answer("yes")
    second = asyncio.run(collected(satchel.stream(workspace)))
    assert names(second) == ["RunStarted", "EffectBegun", *ENDING]
    committed = next(each for each in second if isinstance(each, events.ItemCommitted))
    assert (committed.title, committed.result, committed.changes) == ("waves", "done", 1)
    assert second[-2].result == {"topic": "waves"} and second[-1].outcome.result == {"topic": "waves"}
    (last,) = asyncio.run(collected(satchel.stream(workspace)))
    assert last.outcome.result == {"topic": "waves"} and not last.outcome.entered


def test_the_files_tell_something_else_than_the_run(workspace: Path) -> None:
    told = durable(asyncio.run(collected(satchel.stream(workspace))))
    satchel.open(str(workspace)).answer("yes")
    told += durable(asyncio.run(collected(satchel.stream(workspace))))
    read = asyncio.run(collected(satchel.open(str(workspace)).events()))
    assert [event for event in read if not isinstance(event, events.Answered)] == told
    assert asyncio.run(collected(satchel.open(str(workspace)).events(follow=True))) == read, "it ends with the run"
    middle = read[len(read) // 2].seq
    assert asyncio.run(collected(satchel.open(str(workspace)).events(after=middle))) == [
        event for event in read if event.seq > middle
    ]
    for event in read:
        assert json.loads(msgspec.json.encode(event))["type"] == type(event).__name__


def test_a_follower_misses_what_another_process_does(workspace: Path) -> None:
    """It follows through a question, a kill and two restarts."""

    async def follow() -> list[Any]:
        reading = asyncio.create_task(collected(satchel.open(str(workspace)).events(follow=True)))
        command = [sys.executable, "-c", "import satchel; satchel.run('.', wake=True)"]
        environment = {**os.environ, "DIES": "1"}
        ended = await asyncio.to_thread(warm.run, command, cwd=workspace, env=environment, timeout=60, check=False)
        assert ended.returncode == 0
        await satchel.open(str(workspace)).answer_async("yes")
        ended = await asyncio.to_thread(warm.run, command, cwd=workspace, env=environment, timeout=60, check=False)
        assert ended.returncode == -signal.SIGKILL
        ended = await asyncio.to_thread(warm.run, command, cwd=workspace, env=environment, timeout=60, check=False)
        assert ended.returncode == 0 and not reading.done()
        await satchel.open(str(workspace)).answer_async("redo", "d1")
        ended = await asyncio.to_thread(warm.run, command, cwd=workspace, env=environment, timeout=60, check=True)
        return await asyncio.wait_for(reading, 60)

    told = asyncio.run(follow())
    starts = [event for event in told if isinstance(event, events.RunStarted)]
    assert [start.after_crash for start in starts] == [False, False, True, False]
    assert [event.status for event in told if isinstance(event, events.RunStopped)] == [
        "waiting",
        "waiting",
        "completed",
    ]
    assert [event.decision for event in told if isinstance(event, events.Answered)] == ["yes", "not_done"]
    assert durable(told) == asyncio.run(collected(satchel.open(str(workspace)).events()))
    text = ""
    for each in told:
        if isinstance(each, events.Tokens):
            assert each.offset <= len(text)
            text = text[: each.offset] + each.text
    assert "one two three".startswith(text)


SLOW = """
import asyncio
from satchel import Partial, agent, step

@step
async def write(out: Partial) -> str:
    if not out.text:
        await out.write("a beginning")
    while not __import__("os").path.exists("go"):
        await asyncio.sleep(0.01)
    return out.text

@agent
async def main(run):
    return await write()
"""


def test_a_follower_sees_text_only_once_it_is_complete(workspace: Path) -> None:
    (workspace / "agent.py").write_text(SLOW)

    async def follow() -> list[Any]:
        command = [sys.executable, "-c", "import satchel; satchel.run('.')"]
        with warm.Popen(command, cwd=workspace) as process:
            found = satchel.open(str(workspace)).events(follow=True)
            told = []
            async for event in found:
                told.append(event)
                if isinstance(event, events.Tokens):
                    assert process.poll() is None
                    (workspace / "go").touch()
            return told

    told = asyncio.run(follow())
    (tokens,) = [event for event in told if isinstance(event, events.Tokens)]
    assert (tokens.text, tokens.offset, tokens.step) == ("a beginning", 0, "write")
    assert names(told)[-2:] == ["StepCompleted", "RunStopped"] and told[-1].result == "a beginning"


def test_a_run_whose_reader_has_left_goes_on_or_is_not_closed(workspace: Path) -> None:
    (workspace / "agent.py").write_text(SLOW)
    told = asyncio.run(collected(satchel.stream(workspace), until=events.Tokens))
    assert names(told) == ["RunStarted", "Tokens"]
    status = satchel.open(str(workspace)).status()
    assert status.state == "paused" and status.moment is not None and status.moment.clean
    (workspace / "go").touch()
    again = asyncio.run(collected(satchel.stream(workspace, wake=True)))
    assert again[-1].outcome.result == "a beginning" and "Resumed" in names(again)
    (recovered,) = [event for event in again if isinstance(event, events.Tokens)]
    assert (recovered.text, recovered.offset, recovered.attempt) == ("a beginning", 0, 2)


def test_a_plain_break_leaves_the_run_open(workspace: Path) -> None:
    (workspace / "agent.py").write_text(SLOW)

    async def leave() -> None:
        async for event in satchel.stream(workspace):
            if isinstance(event, events.Tokens):
                break
        await asyncio.sleep(0)  # the generator is closed in a task of its own
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(leave())
    status = satchel.open(str(workspace)).status()
    assert status.state == "paused" and status.moment is not None and status.moment.clean


def test_a_stream_hides_an_error(workspace: Path) -> None:
    with pytest.raises(UsageError, match="there is no 'main'"):
        (workspace / "agent.py").write_text("")
        asyncio.run(collected(satchel.stream(workspace)))
    with pytest.raises(UsageError, match="has no parameter 'depth'"):
        (workspace / "agent.py").write_text(AGENT)
        asyncio.run(collected(satchel.stream(workspace, input={"depth": 1})))
    with pytest.raises(UsageError):
        asyncio.run(collected(satchel.open(str(workspace / "inbox")).events(follow=True)))
    with pytest.raises(UsageError, match="after"):
        satchel.open(str(workspace)).events(after=-1)


def test_sub_agents_are_not_told_apart(workspace: Path) -> None:
    @step
    async def look(text: str) -> str:
        return text

    @agent
    async def child(run: Run[Any], text: str) -> str:
        return await look(text)

    @agent
    async def main(run: Run[Any]) -> list[str]:
        return [*await asyncio.gather(run.spawn(child, "a", "x"), run.spawn(child, "b", "y"))]

    told = asyncio.run(collected(satchel.stream(workspace, main)))
    ends = {event.agent: event.result for event in told if isinstance(event, events.AgentEnded)}
    steps = {event.agent: event.result for event in told if isinstance(event, events.StepCompleted)}
    assert ends == steps == {"a": "x", "b": "y"}


def test_a_bucket_tells_nothing(seaweedfs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    url = f"{seaweedfs.place()}/events"
    put(seaweedfs, f"{url}/workspace.yaml", DEFINITION)

    @step
    async def write(out: Partial) -> str:
        await out.write("a beginning")
        return out.text

    @agent
    async def main(run: Run[Any]) -> str:
        return await write()

    async def both() -> tuple[list[Any], list[Any]]:
        reading = asyncio.create_task(collected(satchel.open(url).events(follow=True)))
        told = await collected(satchel.stream(url, main))
        return told, await asyncio.wait_for(reading, 60)

    told, read = asyncio.run(both())
    assert names(told) == ["RunStarted", "Tokens", "StepCompleted", "RunStopped", "RunEnded"]
    assert durable(told) == durable(read)
