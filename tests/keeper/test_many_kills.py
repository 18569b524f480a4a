"""The bars of the keeper, against a provider that counts what it is asked for: answers of many tokens, a third of them
not streamed, half of the agents prompting with what was recovered. `SATCHEL_TOKENS` makes the answers of the soaks
shorter than 2,000 tokens, one every 20 ms."""

from __future__ import annotations

import glob
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from supervision.supervised import is_alive
from waits import HANGS

import satchel

from .keeping import WHOLE, Kept, keeper_of, make
from .provider import Provider

TOKENS = int(os.environ.get("SATCHEL_TOKENS") or 2000)
PAUSE = 0.02  # seconds between two tokens

ASKING = """
import asyncio
import os
from openai import AsyncOpenAI
from satchel import Partial, Run, agent, step

@step
async def stream(prompt: str, out: Partial) -> str:
    if prompt.endswith("with what was recovered"):
        prompt += out.recovered or ""
    async with AsyncOpenAI(timeout=900) as client:
        messages = [{"role": "user", "content": prompt}]
        chunks = await client.chat.completions.create(model="m", messages=messages, stream=True)
        text = ""
        async for chunk in chunks:
            if chunk.choices:
                part = chunk.choices[0].delta.content or ""
                text += part
                await out.write(part)
    return text

@step
async def whole(prompt: str) -> str:
    async with AsyncOpenAI(timeout=900) as client:
        messages = [{"role": "user", "content": prompt}]
        answer = await client.chat.completions.create(model="m", messages=messages)
    return answer.choices[0].message.content

async def ask(number: int) -> str:
    if number % 3 == 0:
        return await whole(f"{number} whole")
    return await stream(f"{number} with what was recovered" if number % 2 else f"{number}")

@step
def is_enough(batch: int) -> bool:
    return os.path.exists("enough")

@agent
async def main(run: Run):
    found = []
    while not await is_enough(len(found)):
        found += await asyncio.gather(*(ask(len(found) + number) for number in range(9)))
    return found
"""
"""Asks on until the test has killed it often enough, however fast the machine is."""

RETRYING = """
import asyncio
from contextlib import contextmanager
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from satchel import Retry, Run, agent, step

@contextmanager
def telling(sdk: str):
    try:
        yield
    except Exception as error:
        with open("errors.txt", "a") as file:
            file.write(f"{sdk} {type(error).__module__.partition('.')[0]} {type(error).__name__}\\n")
        raise

@step(retry=Retry(100, first=0.01, longest=0.1))
async def openai_stream(prompt: str) -> str:
    text = ""
    with telling("openai"):
        async with AsyncOpenAI(timeout=900) as client:
            messages = [{"role": "user", "content": prompt}]
            chunks = await client.chat.completions.create(model="m", messages=messages, stream=True)
            async for chunk in chunks:
                if chunk.choices:
                    text += chunk.choices[0].delta.content or ""
    return text

@step(retry=Retry(100, first=0.01, longest=0.1))
async def openai_whole(prompt: str) -> str:
    with telling("openai"):
        async with AsyncOpenAI(timeout=900) as client:
            messages = [{"role": "user", "content": prompt}]
            answer = await client.chat.completions.create(model="m", messages=messages)
    return answer.choices[0].message.content

@step(retry=Retry(100, first=0.01, longest=0.1))
async def anthropic_stream(prompt: str) -> str:
    with telling("anthropic"):
        async with AsyncAnthropic(timeout=900) as client:
            messages = [{"role": "user", "content": prompt}]
            async with client.messages.stream(model="m", max_tokens=9999, messages=messages) as stream:
                return "".join([text async for text in stream.text_stream])

@step(retry=Retry(100, first=0.01, longest=0.1))
async def anthropic_whole(prompt: str) -> str:
    with telling("anthropic"):
        async with AsyncAnthropic(timeout=900) as client:
            messages = [{"role": "user", "content": prompt}]
            answer = await client.messages.create(model="m", max_tokens=9999, messages=messages)
    return answer.content[0].text

@agent
async def main(run: Run):
    return await asyncio.gather(
        openai_stream("0"), openai_whole("1"), anthropic_stream("2"), anthropic_whole("3")
    )
"""
"""As they come: each SDK tries again by itself what has not begun, and the step what has."""

# The policy is for kills that come every second; all else is what `satchel run --keeper` does.
SUPERVISING = """
import sys
from satchel.runtime.supervision import KeeperProcess, Order, supervise
from satchel.runtime.supervision.supervisor import Policy
from satchel.workspace.store import open_store
folder = sys.argv[1]
words = ["run", "--quiet", "--", folder]
say = lambda line: print("said:", line, flush=True)
keeper = KeeperProcess(say)
policy = Policy(first_delay=0.05, longest_delay=0.1, most_early=1 << 30)
over = supervise(open_store(folder), Order(words, words, keeper=keeper, is_kept=True), say, policy)
keeper.close()
print("over:", over.why, flush=True)
sys.exit(over.code)
"""


@contextmanager
def supervised(folder: Path, provider: Provider) -> Iterator[Kept]:
    with open(folder.with_suffix(".said"), "a") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISING, str(folder)],
            cwd=folder,
            env={**os.environ, **provider.environment},
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    kept = Kept(folder, provider, process)
    try:
        yield kept
    finally:
        process.kill()
        process.wait()
        with suppress(AssertionError, ProcessLookupError):
            os.kill(kept.agent, signal.SIGKILL)


def prompt(number: int) -> str:
    if number % 3 == 0:
        return f"{number} whole"
    return f"{number} with what was recovered" if number % 2 else f"{number}"


def lengths_of(folder: Path) -> Counter[str]:
    """Of the streamed answers so far, in characters, without the heads of their files."""
    found = Counter[str]()
    for path in glob.glob(f"{folder}/partials/*/*.md"):  # pathlib's stumbles over a folder that goes meanwhile
        with suppress(FileNotFoundError):
            found[path] = len(Path(path).read_text().partition("\n---\n")[2])
    return found


def has_grown(folder: Path, before: Counter[str]) -> bool:
    """The agent waits for answers, and one has come further in its file than at any earlier kill."""
    return any(length > before[path] + 100 for path, length in lengths_of(folder).items())


def result(folder: Path) -> list[str]:
    found: list[str] = satchel.open(folder).result.returned
    return found


def check(kept: Kept, kills: int) -> None:
    """When it has ended, nothing was paid twice, and every answer is whole."""
    provider = kept.provider
    (kept.folder / "enough").touch()
    assert kept.process.wait(HANGS) == 0, kept.said
    told = result(kept.folder)
    print(f"{kills} kills, {len(provider.asked)} requests, {provider.repeated} twice, {len(told)} answers")
    wanted = [prompt(number) for number in range(len(told))]
    assert provider.repeated == 0 and sorted(provider.asked) == sorted(wanted)
    assert told == [provider.answer(each) for each in wanted]
    assert provider.written == provider.tokens * len(wanted) and provider.cut == 0


@pytest.mark.parametrize(
    ("kills", "tokens"),
    [
        pytest.param(4, 1000, marks=pytest.mark.slow),
        pytest.param(100, TOKENS, marks=[pytest.mark.slow, pytest.mark.soak]),
    ],
)
def test_a_kill_of_the_agent_costs_a_request(tmp_path: Path, kills: int, tokens: int) -> None:
    chance, before = random.Random(kills), Counter[str]()
    with Provider(tokens, PAUSE).running() as provider:
        folder = make(tmp_path / "demo", ASKING)
        with supervised(folder, provider) as kept:
            for _ in range(kills):
                kept.wait(lambda: has_grown(folder, before))  # noqa: B023
                time.sleep(chance.random() / 2)
                os.kill(pid := kept.agent, signal.SIGKILL)
                kept.wait(lambda pid=pid: not is_alive(pid))
                before |= lengths_of(folder)
                kept.wait(lambda pid=pid: kept.agent != pid)
            check(kept, kills)


@pytest.mark.parametrize(
    ("kills", "tokens"),
    [
        pytest.param(2, 1000, marks=pytest.mark.slow),
        pytest.param(30, TOKENS, marks=[pytest.mark.slow, pytest.mark.soak]),
    ],
)
def test_a_kill_of_agent_and_supervisor_costs_a_request(tmp_path: Path, kills: int, tokens: int) -> None:
    """The keeper lives on, and the next one follows what it reads."""
    with Provider(tokens, PAUSE).running() as provider:
        folder, before = make(tmp_path / "demo", ASKING), Counter[str]()
        for _ in range(kills):
            with supervised(folder, provider) as kept:
                kept.wait(lambda: has_grown(folder, before))  # noqa: B023
                kept.process.send_signal(signal.SIGSTOP)
                pid = kept.agent
                kept.kill()
                kept.process.kill()
                kept.wait_for(lambda pid=pid: not is_alive(pid))
            before |= lengths_of(folder)
        with supervised(folder, provider) as kept:
            check(kept, kills)


@pytest.mark.parametrize(
    "kills", [pytest.param(1, marks=pytest.mark.slow), pytest.param(20, marks=[pytest.mark.slow, pytest.mark.soak])]
)
def test_a_kill_of_the_keeper_ends_the_run(tmp_path: Path, kills: int) -> None:
    """Nothing outlives a keeper but its files: each request that it was reading is made once again."""
    with Provider(TOKENS, PAUSE / 10, holds_at=TOKENS // 2).running() as provider:
        folder = make(tmp_path / "demo", RETRYING)
        with supervised(folder, provider) as kept:
            for number in range(1, kills + 1):
                kept.wait_for(lambda number=number: provider.stopped == 4 * number)
                os.kill(keeper_of(kept.process.pid), signal.SIGKILL)
            kept.wait_for(lambda: provider.stopped == 4 * (kills + 1))
            provider.go.set()
            assert kept.process.wait(HANGS) == 0, kept.said
        assert Counter(provider.asked) == dict.fromkeys("0123", kills + 1)
        assert result(folder) == [provider.answer(each, kills + 1) for each in "0123"]
        assert len(kept.records("opened")) == 1
        errors = [line.split() for line in (folder / "errors.txt").read_text().splitlines()]
        print(f"{kills} kills, {len(provider.asked)} requests, {Counter(map(tuple, errors))}")
        assert {sdk for sdk, _, _ in errors} == {"openai", "anthropic"}


@pytest.mark.slow
def test_crashes_while_a_model_thinks_make_a_run_stuck(tmp_path: Path) -> None:
    """The answer is not streamed, so nothing new is on record."""
    with Provider(tokens=20, holds_at=10).running() as provider:
        source = WHOLE.replace("    with OpenAI()", "    open('asking', 'a').write('.')\n    with OpenAI()")
        folder = make(tmp_path / "demo", source)
        with supervised(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            for number in range(1, 6):
                kept.wait(lambda number=number: len((folder / "asking").read_text()) == number)
                kept.kill()
            provider.go.set()
            kept.ended()
        assert kept.result == provider.answer("hello") and provider.asked == ["hello"]
        assert [each["answers"] for each in kept.records("answers.grown")] == [1] * 4
