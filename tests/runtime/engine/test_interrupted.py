"""A message that arrives while an answer is streamed: the step may end early, and the message is taken once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from waits import PATIENCE

import satchel
from satchel import Partial, Run, agent, run, step
from satchel.runtime.engine import context
from satchel.testing import MemoryPartial, call
from satchel.workspace.inbound import Arrivals


def send(workspace: Path, text: str, **options: Any) -> None:
    satchel.open(workspace).send(text, **options)


def completed(workspace: Path) -> list[dict[str, Any]]:
    segments = sorted((workspace / "journal").iterdir())
    rows = [json.loads(row) for path in segments for row in path.read_text().splitlines()]
    return [row for row in rows if row["type"] == "step.completed" and row["step"] != "inbox.take"]


def chatting(workspace: Path, calls: list[str], **crashes: type[BaseException]) -> Any:
    """Its first answer never ends, except by a message that arrives behind its second word."""

    @step
    async def answer(to: str, out: Partial) -> dict[str, Any]:
        calls.append(to)
        if to != "begin":
            await out.write(f"about {to}")
            return {"text": out.text, "whole": True}
        if not out.recovered:
            await out.write("one two ")
            assert not out.interrupted
            send(workspace, "stop", message=True)
        async with asyncio.timeout(PATIENCE):
            while not out.interrupted:  # noqa: ASYNC110 -- it is this that is tested
                await asyncio.sleep(0.01)
        crash_at("in the answer")
        return {"text": out.text, "whole": False}

    def crash_at(place: str) -> None:
        if place in crashes:
            raise crashes.pop(place)

    async def talk(run: Run[Any]) -> list[Any]:
        first = await answer("begin")
        crash_at("after the answer")
        (message,) = await run.inbox.take("message")
        crash_at("after the message")
        return [first, await answer(message.text)]

    @agent
    async def main(run: Run[Any]) -> list[Any]:
        found: list[Any] = await run.scope("talk", talk, run)
        crash_at("after the commit")
        return [*found, len(run.inbox)]

    return main


ENDED = [{"text": "one two ", "whole": False}, {"text": "about stop", "whole": True}, 0]


def test_an_answer_is_not_interrupted_by_a_message(workspace: Path, calls: list[str]) -> None:
    assert run(workspace, chatting(workspace, calls)).result == ENDED
    assert [row.get("how") for row in completed(workspace)] == ["interrupted", None]
    assert len(list((workspace / "inbox/done").iterdir())) == 1
    assert not (workspace / "partials").exists()


@pytest.mark.parametrize("place", ["in the answer", "after the answer", "after the message", "after the commit"])
def test_after_a_crash_the_answer_or_the_message_is_another(
    workspace: Path, calls: list[str], crash: type[BaseException], place: str
) -> None:
    main = chatting(workspace, calls, **{place: crash})
    with pytest.raises(crash):
        run(workspace, main)
    assert run(workspace, main).result == ENDED
    assert calls == ["begin", *(["begin"] if place == "in the answer" else []), "stop"]
    assert [row.get("how") for row in completed(workspace)] == ["interrupted", None]
    assert len(list((workspace / "inbox/done").iterdir())) == 1


def test_a_task_or_a_message_that_was_taken_interrupts(workspace: Path) -> None:
    send(workspace, "a task")
    satchel.open(workspace).send({"also": "a task"})
    send(workspace, "hear this", message=True)

    @step
    async def tell(out: Partial) -> bool:
        return out.interrupted

    async def talk(run: Run[Any]) -> list[Any]:
        return [await tell(), [each.text for each in await run.inbox.take("message")], await tell()]

    @agent
    async def main(run: Run[Any]) -> list[Any]:
        return await run.scope("talk", talk, run)

    assert run(workspace, main).result == [True, ["hear this"], False]
    assert [row.get("how") for row in completed(workspace)] == ["interrupted", None]


def test_a_sub_agent_is_interrupted_by_a_message_that_it_can_not_take(workspace: Path) -> None:
    send(workspace, "for the run", message=True)

    @step
    async def tell(out: Partial) -> bool:
        return out.interrupted

    @agent
    async def helper(run: Run[Any]) -> bool:
        return await tell()

    @agent
    async def main(run: Run[Any]) -> list[bool]:
        return [await run.spawn(helper, "helper"), await tell()]

    assert run(workspace, main).result == [False, True]


def test_asking_after_every_token_looks_after_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[bool] = []

    class Waiting(Arrivals):
        def __init__(self) -> None: ...

        def has_message(self) -> bool:
            looks.append(now[0] == 1.5)
            return looks[-1]

    now = [1.0]
    monkeypatch.setattr(context.time, "monotonic", lambda: now[0])
    listener = context.Listening(Waiting())
    assert not any(listener.hears() for _ in range(1000)) and len(looks) == 1
    now[0] = 1.5
    assert listener.hears() and listener.hears()
    now[0] = 1.51
    assert not listener.hears(), "it was taken a moment ago, so it is not there any more"


def test_a_test_can_not_interrupt_a_step() -> None:
    @step
    async def count(out: Partial) -> str:
        while not out.interrupted:
            await out.write("word ")
        return out.text

    assert asyncio.run(call(count, out=MemoryPartial(interrupted_after=2))) == "word word "
