"""What an agent gives wrong is said of the argument, before anything is written. The run goes on if the agent does."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from satchel import Item, Run, agent, effect, run, step
from satchel.workspace.base.errors import NotSerializable, UsageError

HALF = "a\ud800b"
"""No text: half of a surrogate pair."""

Work = Callable[[Run[Any]], Any]


def records(workspace: Path) -> list[str]:
    lines = [line for path in sorted(workspace.glob("journal/*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line)["type"] for line in lines]


def refused(workspace: Path, call: Work, kind: type[Exception], match: str) -> None:
    """`call` raises in a scope, and the run completes with nothing of it on record."""

    async def work(run: Run[Any]) -> None:
        before = records(workspace)
        with pytest.raises(kind, match=match) as raised:
            found = call(run)
            if isinstance(found, Awaitable):
                await found
        assert str(raised.value).encode(), "it can be shown"
        assert records(workspace) == before

    @agent
    async def main(run: Run[Any]) -> None:
        await run.plan(None, ["an item"])
        await run.scope("work", work, run)

    run(workspace, main).raise_for_status()


@effect(idempotent=True)
async def send(what: str) -> str:
    return what


@step
async def ask_model(prompt: str) -> str:
    return prompt


async def nothing() -> None: ...


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda run: send.named(HALF)("x"), "the name in send.named()"),
        (lambda run: run.output(HALF, "x"), "the name of an output"),
        (lambda run: run.output("x", HALF), "the text of the output 'x'"),
        (lambda run: run.output(5, "x"), "the name of an output can't be 5"),
        (lambda run: run.refer(HALF), "the reference in run.refer()"),
        (lambda run: run.ask(HALF), "the question in run.ask()"),
        (lambda run: run.ask("Which?", ["a", HALF]), "a choice"),
        (lambda run: run.ask(5), "takes a question: got 5"),
        (lambda run: run.pause(HALF), "the reason in run.pause()"),
        (lambda run: run.messages.add(HALF, "x"), "the role of a message"),
        (lambda run: run.messages.add(5, "x"), "the role of a message can't be 5"),
        (lambda run: run.todo.add(HALF), "the text of an item"),
        (lambda run: run.todo.add(5), "the text of an item can't be 5"),
        (lambda run: run.todo.note("an item", HALF), "a remark"),
        (lambda run: run.todo.cancel(HALF), "no item"),
        (lambda run: run.plan(HALF, ["x"]), "the title in run.plan()"),
        (lambda run: run.plan(None, ["x", HALF]), r"items\[1\] of run.plan()"),
        (lambda run: run.plan(None, [5]), r"items\[0\] of run.plan\(\) can't be 5"),
        (lambda run: run.prompt(HALF), "not a path inside the workspace"),
        (lambda run: run.uninterrupted(HALF).__aenter__(), "the name in run.uninterrupted()"),
        (lambda run: Item(run._session, "1").skip(HALF), "the reason in item.skip()"),
        (lambda run: step(name=HALF)(nothing), "the name of a step"),
    ],
)
def test_what_is_no_text_is_a_bare_error_of_a_library(workspace: Path, call: Work, match: str) -> None:
    refused(workspace, call, UsageError, match.replace("()", r"\(\)") if "\\" not in match else match)


def test_the_name_of_a_scope_that_is_no_text_is_a_bare_error_of_a_library(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        with pytest.raises(UsageError, match="the name of a scope can't be"):
            await run.scope(HALF, nothing)
        await run.scope("good", nothing)

    run(workspace, main).raise_for_status()


@pytest.mark.parametrize("name, match", [("inbox-t1", "tasks in the inbox"), ("on_cancel", "on_cancel")])
def test_a_named_scope_is_taken_for_one_of_satchel(workspace: Path, name: str, match: str) -> None:
    @agent
    async def main(run: Run[Any]) -> None:
        with pytest.raises(UsageError, match=match):
            await run.scope(name, nothing)

    run(workspace, main).raise_for_status()


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda run: ask_model(HALF), r"ask_model\.prompt"),
        (lambda run: send(HALF), r"send\.what"),
        (lambda run: run.ask("Which?", context={"a": [HALF]}), r"context\.a\[0\]"),
        (lambda run: run.ask("Which?", default=HALF, expires=9), "default"),
        (lambda run: run.ask("Which?", schema={"const": HALF}), r"schema\.const"),
        (lambda run: run.messages.add("user", [HALF]), r"the message\[0\]"),
    ],
)
def test_a_value_that_can_not_be_kept_does_not_name_its_place(workspace: Path, call: Work, match: str) -> None:
    refused(workspace, call, NotSerializable, match)


@pytest.mark.parametrize("content", [5, [1, 2], None, {"a": 1}, 1.5, True], ids=repr)
def test_an_output_that_is_no_text_is_written_as_something_else(workspace: Path, content: Any) -> None:
    refused(workspace, lambda run: run.output("x", content), TypeError, "an output is text or bytes, not .*: outputs/x")
    assert not (workspace / "outputs").exists()


@pytest.mark.parametrize(
    "content", ["text", b"text", bytearray(b"text"), memoryview(b"text")], ids=lambda each: type(each).__name__
)
def test_text_and_every_kind_of_bytes_are_outputs(workspace: Path, content: Any) -> None:
    async def write(run: Run[Any]) -> None:
        await run.output("x", content)

    @agent
    async def main(run: Run[Any]) -> None:
        await run.scope("write", write, run)

    run(workspace, main).raise_for_status()
    assert (workspace / "outputs/x").read_bytes() == b"text"


LAST = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))


@pytest.mark.parametrize("wait", [1e12, 1e308, 10**400, timedelta.max, LAST], ids=lambda wait: f"{wait!r:.20}")
@pytest.mark.parametrize(
    "call, match",
    [
        (lambda run, wait: run.sleep(wait), r"run\.sleep\(\) got a time that is too far away: got "),
        (lambda run, wait: run.ask("?", expires=wait, default="x"), "`expires` is too far away: got "),
    ],
    ids=["sleep", "expires"],
)
def test_a_wait_beyond_the_calendar_is_a_bare_error_of_a_library(
    workspace: Path, call: Callable[[Run[Any], Any], Any], match: str, wait: Any
) -> None:
    refused(workspace, lambda run: call(run, wait), UsageError, match)


@pytest.mark.parametrize("wait", [float("nan"), float("inf"), float("-inf"), "5", True, None], ids=repr)
def test_a_wait_that_is_no_time_is_a_bare_error_of_a_library(workspace: Path, wait: Any) -> None:
    refused(workspace, lambda run: run.sleep(wait), UsageError, r"run\.sleep\(\) takes seconds, a timedelta or a datet")


@pytest.mark.parametrize("wait", [-1, -1e12, 0, timedelta.min, datetime(1, 1, 1, tzinfo=UTC)], ids=repr)
def test_a_wait_for_a_time_that_is_over_is_an_error(workspace: Path, wait: Any) -> None:
    """As an agent computes it, from a time and now: after a restart the time may be over."""

    @agent
    async def main(run: Run[Any]) -> str:
        await run.sleep(wait)
        return "over"

    assert run(workspace, main).raise_for_status().result == "over"
