"""An async generator as a step: what it yields is a streamed answer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import warm

from satchel import Partial, Retry, Run, UsageError, agent, effect, run, step
from satchel.testing import call

CHILD = """
import asyncio, sys
from collections.abc import AsyncIterator
from satchel import Partial, Run, agent, run, step

@step
async def count(out: Partial, last: int) -> AsyncIterator[str]:
    print("HAS", len(out.text), flush=True)
    for number in range(len(out.text) // 10, last):
        yield f"{number:09d} "[len(out.text) % 10:]
        print("YIELDED", len(out.text), flush=True)
        await asyncio.sleep(0.001)

@agent
async def main(run: Run) -> str:
    return await count(300)

print("RESULT", run(sys.argv[1], main).result == "".join(f"{number:09d} " for number in range(300)))
"""


@pytest.mark.sampled(every=3, rest="soak")
@pytest.mark.parametrize("parts", [1, 40, 200])
def test_a_generator_killed_in_the_middle_continues_without_gap_or_doubling(workspace: Path, parts: int) -> None:
    command = [sys.executable, "-c", CHILD, str(workspace)]
    child = warm.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "HAS 0\n"
    for _ in range(parts):
        assert child.stdout.readline().startswith("YIELDED")
    os.kill(child.pid, signal.SIGKILL)
    child.stdout.read()
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    files = [*(workspace / "partials").rglob("*.md")]  # none yet, if its writer had no turn
    kept = sum(len(file.read_text().split("---\n", 2)[2]) for file in files)
    done = warm.run(command, capture_output=True, text=True, check=True)
    assert f"HAS {kept}\n" in done.stdout and "RESULT True\n" in done.stdout
    assert not list((workspace / "partials").rglob("*.md"))


def test_the_text_of_a_generator_is_its_result_and_is_not_made_again(workspace: Path, calls: list[str]) -> None:
    @step
    async def tell(name: str) -> AsyncIterator[str]:
        calls.append(name)
        for word in ("Dear ", name):
            yield word

    @agent
    async def main(run: Run) -> str:
        told = await tell("Ada")
        if run.attempt == 1:
            raise ValueError
        return told

    assert run(workspace, main).status == "failed"
    assert run(workspace, main).result == "Dear Ada"
    assert calls == ["Ada"]


def test_a_generator_without_a_partial_begins_again(workspace: Path, calls: list[str]) -> None:
    @step(retry=Retry(attempts=2, first=0))
    async def tell() -> AsyncGenerator[str, None]:
        calls.append("tell")
        yield "word "
        if len(calls) == 1:
            raise ConnectionError("the line is dead")
        yield "end"

    @agent
    async def main(run: Run) -> str:
        return await tell()

    assert run(workspace, main).result == "word end"
    assert (workspace / "recovered/_agent/01-tell-1.md").exists()


def test_a_generator_that_fails_is_closed_and_continued_by_its_retry(workspace: Path, calls: list[str]) -> None:
    @step(retry=Retry(attempts=2, first=0))
    async def tell(out: Partial) -> AsyncIterator[str]:
        recovered = out.recovered
        try:
            yield "more "
            if recovered is None:
                raise ConnectionError("the line is dead")
        finally:
            calls.append("closed")

    @agent
    async def main(run: Run) -> str:
        return await tell()

    assert run(workspace, main).result == "more more "
    assert calls == ["closed"] * 2


def test_a_generator_is_called_in_a_test_like_other_steps() -> None:
    @step
    async def tell(out: Partial, name: str) -> AsyncIterator[str]:
        await out.write("Dear ")
        yield name

    assert asyncio.run(call(tell, "Ada")) == "Dear Ada"


def test_only_text_can_be_yielded(workspace: Path) -> None:
    @step
    async def tell() -> AsyncIterator[Any]:
        yield 1

    @agent
    async def main(run: Run) -> str:
        return await tell()

    assert "a partial is text, not int" in str(run(workspace, main).error)

    with pytest.raises(UsageError, match=r"does not yield text.* Yield `str`"):

        @step
        async def numbers() -> AsyncIterator[int]:
            yield 1

    with pytest.raises(UsageError, match=r"can't be streamed.* Stream in a step"):

        @effect
        async def send() -> AsyncIterator[str]:
            yield ""
