"""An agent is killed while a model answers it: the answer is neither lost nor paid again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import warm
from supervision.supervised import is_alive

import satchel
from satchel.results import ServeEvent
from satchel.runtime.keeper import addresses
from satchel.runtime.supervision import NO_KEEPER

from .keeping import HEAD, STREAMED, WHOLE, environ_of, make, started
from .provider import Provider

ANTHROPIC = (
    HEAD
    + """
@step
async def ask(prompt: str, out: Partial) -> str:
    from anthropic import AsyncAnthropic
    async with AsyncAnthropic() as client:
        messages = [{"role": "user", "content": prompt}]
        async with client.messages.stream(model="claude-sonnet-4-0", max_tokens=999, messages=messages) as stream:
            async for text in stream.text_stream:
                await out.write(text)
    return out.text

@agent
async def main(run: Run):
    return await ask("hello")
"""
)

RESPONSES = (
    HEAD
    + """
@step
async def ask(prompt: str, out: Partial) -> str:
    from openai import AsyncOpenAI
    async with AsyncOpenAI() as client:
        stream = await client.responses.create(model="gpt-4o-mini", input=prompt, stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                await out.write(event.delta)
    return out.text

@agent
async def main(run: Run):
    return await ask("hello")
"""
)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(STREAMED, id="chat"),
        # A step that begins again takes no text of its last attempt. That is no correction by a person.
        pytest.param(
            STREAMED.replace("@step\n", '@step(on_partial="restart")\n'), id="begins again", marks=pytest.mark.slow
        ),
        pytest.param(ANTHROPIC, id="anthropic", marks=pytest.mark.slow),
        pytest.param(RESPONSES, id="responses", marks=pytest.mark.slow),
    ],
)
def test_a_killed_agent_asks_again_for_a_streamed_answer(tmp_path: Path, source: str) -> None:
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", source)
        with started(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            kept.wait(lambda: list(folder.glob("partials/*/*.md")))
            kept.kill()
            provider.go.set()
            kept.ended()
            assert kept.result == provider.answer("hello")
            assert provider.asked == ["hello"] and provider.written == 20
            (spent,) = kept.records("spent")
            assert (spent["tokens"], spent["output"]) == (120, 20) and spent["model"] and spent["usd"] > 0
            assert not kept.answers


@pytest.mark.slow
def test_a_killed_agent_asks_again_for_an_answer_that_is_not_streamed(tmp_path: Path) -> None:
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", WHOLE)
        with started(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            kept.kill()
            kept.wait(lambda: len(kept.records("opened")) == 2)  # the next start waits for the answer, too
            provider.go.set()
            kept.ended()
            assert kept.result == provider.answer("hello") and provider.asked == ["hello"]
            assert [each["tokens"] for each in kept.records("spent")] == [120]


@pytest.mark.slow
def test_an_answer_that_ends_between_two_starts_is_lost(tmp_path: Path) -> None:
    """Its file is whole then, and nobody reads it."""
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", STREAMED)
        with started(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            kept.process.send_signal(signal.SIGSTOP)  # it does not start the next one
            kept.kill()
            kept.wait(lambda: [each.suffix for each in kept.answers] == [".part"])
            provider.go.set()
            kept.wait(lambda: [each.suffix for each in kept.answers] == [".answer"])
            kept.process.send_signal(signal.SIGCONT)
            kept.ended()
            assert kept.result == provider.answer("hello") and provider.asked == ["hello"]


@pytest.mark.slow
@pytest.mark.parametrize("source", [STREAMED, WHOLE], ids=["streamed", "whole"])
def test_agent_and_supervisor_are_killed_and_the_answer_is_paid_again(tmp_path: Path, source: str) -> None:
    """The keeper lives on. The next one reads from its file what it writes, and knows of what has not begun."""
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", source)
        with started(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            kept.wait(lambda: [each.suffix for each in kept.answers] == [".part" if source == STREAMED else ".asked"])
            keeper = kept.keeper
            kept.process.send_signal(signal.SIGSTOP)
            kept.kill()
            kept.process.kill()
        with started(folder, provider) as again:
            again.wait(lambda: len(again.records("opened")) == 2)
            provider.go.set()
            again.ended()
            assert again.result == provider.answer("hello") and provider.asked == ["hello"]
            assert [each["tokens"] for each in again.records("spent")] == [120]
            again.wait_for(lambda: not is_alive(keeper))  # it has nothing left to read


@pytest.mark.slow
def test_all_three_are_killed_and_the_text_is_lost(tmp_path: Path) -> None:
    """What had arrived at the keeper is what the next attempt continues, and it asks once."""
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", STREAMED)
        begun = "".join(provider.words("hello", 1)[:10])
        with started(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            kept.wait(lambda: kept.answers and b"/9 " in kept.answers[0].read_bytes())
            kept.wait(lambda: list(folder.glob("partials/*/*.md")))
            keeper = kept.keeper
            kept.process.send_signal(signal.SIGSTOP)
            kept.kill()
            os.kill(keeper, signal.SIGKILL)
            kept.process.kill()
        provider.go.set()
        with started(folder, provider) as again:
            again.ended()
            assert again.result.startswith(begun) and provider.asked == ["hello", f"hello{begun}"]
            assert not again.answers


BACKGROUND = RESPONSES.replace("stream=True", "stream=True, background=True")

POLLING = (
    HEAD
    + """
import asyncio

@step
async def ask(prompt: str) -> str:
    from openai import AsyncOpenAI
    async with AsyncOpenAI() as client:
        answer = await client.responses.create(model="gpt-4o-mini", input=prompt, background=True)
        while answer.status == "in_progress":
            await asyncio.sleep(0.01)
            answer = await client.responses.retrieve(answer.id)
    return answer.output_text

@agent
async def main(run: Run):
    return await ask("hello")
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("source", [BACKGROUND, POLLING], ids=["streamed", "polled"])
def test_all_three_are_killed_and_an_answer_in_background_mode_is_paid_again(tmp_path: Path, source: str) -> None:
    """OpenAI writes it to its end, and it is fetched by its id."""
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", source)
        with started(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            what = b"/9 " if source == BACKGROUND else b"resp_1"
            kept.wait(lambda: kept.answers and what in kept.answers[0].read_bytes())
            keeper = kept.keeper
            kept.process.send_signal(signal.SIGSTOP)
            kept.kill()
            os.kill(keeper, signal.SIGKILL)
            kept.process.kill()
        provider.go.set()
        with started(folder, provider) as again:
            again.ended()
            assert again.result == provider.answer("hello") and provider.asked == ["hello"]
            assert {*provider.fetched} == {"resp_1"} and provider.written == 20 and not again.answers
            assert [each["tokens"] for each in again.records("spent")] == [120]


@pytest.mark.slow
def test_a_keeper_that_dies_ends_the_run(tmp_path: Path) -> None:
    """The agent's SDK sees a broken connection, tries again, and waits for the next keeper."""
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", WHOLE)
        with started(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            os.kill(kept.keeper, signal.SIGKILL)
            provider.go.set()
            assert "the keeper" in kept.ended()
            assert kept.result == provider.answer("hello", 2) and provider.asked == ["hello", "hello"]
            assert len(kept.records("opened")) == 1


@pytest.mark.slow
def test_a_stranger_asks_the_keeper(tmp_path: Path) -> None:
    """Without the address of the run no request leaves, whatever the path says."""
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", STREAMED)
        with started(folder, provider) as kept:
            kept.wait(provider.held.is_set)
            address = environ_of(kept.agent)["OPENAI_BASE_URL"]
            host, token, rest = address.split("/", 4)[2:]
            place, start, signature = token.split(".")
            for wrong in ("", "x", f"{place}.{start}.{'0' * 40}", f"{place}.{signature}", f".{signature}"):
                url = f"http://{host}/{wrong}/{rest}/chat/completions"
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(urllib.request.Request(url, b"{}"))
                assert refused.value.code == 404
                refused.value.close()
            provider.go.set()
            kept.ended()
            assert provider.asked == ["hello"]


@pytest.mark.slow
def test_a_key_is_in_a_file(tmp_path: Path) -> None:
    """Nor is the address of the run, or what it is signed with."""
    with Provider(tokens=20, holds_at=10).running() as provider:
        folder = make(tmp_path / "demo", STREAMED)
        with started(folder, provider, "--detach", HOME=str(tmp_path)) as kept:
            kept.wait_for(provider.held.is_set)
            signature = environ_of(kept.agent)["OPENAI_BASE_URL"].split(".")[-1].split("/")[0]
            kept.wait_for(lambda: kept.answers)
            texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
            provider.go.set()
            kept.wait_for(lambda: (folder / "state.json").exists() and kept.status == "completed")
            texts += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
            assert any(b"hello/1/9" in text for text in texts)
            for secret in (provider.environment["OPENAI_API_KEY"], signature):
                assert not [text for text in texts if secret.encode() in text]


def test_a_run_that_asks_for_no_keeper_gets_one(tmp_path: Path) -> None:
    with Provider(tokens=5).running() as provider:
        folder = make(tmp_path / "demo", WHOLE, "")
        with started(folder, provider) as kept:
            kept.ended()
            assert kept.result == provider.answer("hello")
            assert not kept.records("spent") and not (folder / ".satchel" / "answers").exists()


@pytest.mark.slow
def test_the_option_is_overlooked(tmp_path: Path) -> None:
    with Provider(tokens=5).running() as provider:
        folder = make(tmp_path / "demo", WHOLE, "")
        with started(folder, provider, "--keeper") as kept:
            kept.ended()
            assert kept.result == provider.answer("hello") and len(kept.records("spent")) == 1


@pytest.mark.slow
def test_a_run_that_shares_a_process_is_not_told_that_it_has_no_keeper(tmp_path: Path) -> None:
    """Whether its workspace.yaml asks for one, or the option. It asks the provider itself."""
    with Provider(tokens=5).running() as provider:
        for words, folders in (([], ["one"]), (["--keeper"], ["one", "two"])):
            root = tmp_path / f"root{len(words)}"
            make(root / "one", WHOLE)
            make(root / "two", WHOLE, "")
            served = warm.run(
                [sys.executable, "-m", "satchel", "serve", "--once", "--isolate", "none", *words, root],
                env={**os.environ, **provider.environment},
                capture_output=True,
                text=True,
            )
            assert served.returncode == 0, served.stderr
            told = [line for line in served.stderr.splitlines() if line.startswith("warned")]
            assert ["so it has no keeper" in line for line in told] == [True] * len(folders), served.stderr
            assert all(name in " ".join(told) for name in folders)
        assert provider.asked == ["hello"] * 4 and not any("satchel-call" in each for each in provider.headers)


@pytest.mark.slow
def test_a_program_whose_run_shares_a_process_is_not_told_that_it_has_no_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(addresses.KEEPER, raising=False)
    with Provider(tokens=5).running() as provider:
        for name, value in provider.environment.items():
            monkeypatch.setenv(name, value)
        told: list[str] = []
        for name, extra in (("one", "keeper: true\n"), ("two", "")):
            run = satchel.open(make(tmp_path / name, WHOLE, extra))
            assert run.supervise(should_stop=lambda: False, isolate="none", tell=told.append).status == "completed"
        assert [NO_KEEPER in text and "isolate: process" in text for text in told] == [True], told


def test_a_pool_is_not_told_that_its_runs_have_no_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(addresses.KEEPER, raising=False)
    told: list[ServeEvent] = []

    async def story() -> None:
        async with satchel.Pool(tmp_path, tell=told.append) as pool:
            await pool.wait()

    with Provider(tokens=5).running() as provider:
        for name, value in provider.environment.items():
            monkeypatch.setenv(name, value)
        make(tmp_path / "one", WHOLE)
        make(tmp_path / "two", WHOLE, "")
        asyncio.run(story())
    warned = [(Path(each.folder).name, NO_KEEPER in each.text) for each in told if each.kind == "warned"]
    assert warned == [("one", True)] and len([each for each in told if each.kind == "completed"]) == 2, told
