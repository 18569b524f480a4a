"""Runs in the process of the test below a keeper in a thread: the step of each request, its costs, its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import satchel
from satchel.runtime.engine import model_calls
from satchel.runtime.keeper import addresses
from satchel.workspace.views import record_words

from .in_process import ASK, SECRET, below, kept, of_kind, until
from .keeping import HEAD, STREAMED, make
from .provider import Provider


def test_a_failed_step_gets_its_bad_answer_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has paid for counts with each attempt, and once."""
    source = (
        HEAD
        + ASK
        + """
@step(retry=Retry(3, first=0.001))
def ask(prompt: str) -> str:
    with OpenAI() as client:
        text = say(prompt, client)
    if "/3/" not in text:
        raise ValueError(text)
    return text

@agent
async def main(run: Run):
    return await ask("hello")
"""
    )
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        outcome = here.run(folder)
        assert outcome.status == "completed" and outcome.result == here.provider.answer("hello", 3), outcome.error
        spent = of_kind(folder, "spent")
        assert [each["tokens"] for each in spent] == [105] * 3 and len({each["answer"] for each in spent}) == 3
        assert not [*folder.glob(".satchel/answers/*")]


def test_a_step_that_stopped_between_two_turns_pays_for_the_first_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool was used in between. The next start gets the first turn from the keeper and asks for the second only."""
    source = (
        HEAD
        + ASK
        + """
import pathlib

@step
def ask(prompt: str) -> str:
    with OpenAI() as client:
        first = say(prompt, client)
        if not pathlib.Path(SEEN).exists():
            pathlib.Path(SEEN).touch()
            os._exit(9)
        return say(f"tool said {len(first)}", client)

@agent
async def main(run: Run):
    return await ask("hello")
"""
    ).replace("SEEN", repr(str(tmp_path / "seen")))
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        here.crash(folder)
        outcome = here.run(folder)
        assert outcome.status == "completed", outcome.error
        first, second = here.provider.asked
        assert first == "hello" and second.startswith("tool said")
        assert [each["tokens"] for each in of_kind(folder, "spent")] == [105, 105]


def test_a_cost_that_the_step_tells_counts_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        HEAD
        + ASK
        + """
@step
def ask(prompt: str, run: Run) -> str:
    with OpenAI() as client:
        text = say(prompt, client)
    run.spend(tokens=7)
    return text

@agent
async def main(run: Run):
    return await ask("hello")
"""
    )
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        assert here.run(folder).status == "completed"
    assert [each["tokens"] for each in of_kind(folder, "spent")] == [7]


POLLING = (
    HEAD
    + """
import pathlib, time

@step
def begin(prompt: str) -> str:
    from openai import OpenAI
    with OpenAI() as client:
        return client.responses.create(model="gpt-4o-mini", input=prompt, background=True).id

@step(retry=Retry(2, first=0.001))
def poll(id: str) -> str:
    from openai import OpenAI
    with OpenAI() as client:
        while (answer := client.responses.retrieve(id)).status != "completed":
            time.sleep(0.01)
    if not pathlib.Path(SEEN).exists():
        pathlib.Path(SEEN).touch()
        raise ValueError
    return answer.output_text

@step
def both(prompt: str) -> str:
    from openai import OpenAI
    with OpenAI() as client:
        id = client.responses.create(model="gpt-4o-mini", input=prompt, background=True).id
        if not pathlib.Path(SEEN).exists():
            pathlib.Path(SEEN).touch()
            os._exit(9)
        while (answer := client.responses.retrieve(id)).status != "completed":
            time.sleep(0.01)
        return client.responses.retrieve(id).output_text

@agent
async def main(run: Run):
    return WHAT
"""
)


@pytest.mark.parametrize("what", ["await both('hello')", "await poll(await begin('hello'))"])
def test_an_answer_that_is_polled_costs_nothing_or_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Its POST tells no tokens. The process dies between that and the polls, or its step is over by then."""
    source = POLLING.replace("SEEN", repr(str(tmp_path / "seen"))).replace("WHAT", what)
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        if "both" in what:
            here.crash(folder)
        here.provider.refuses = [503]
        outcome = here.run(folder)
        assert outcome.result == here.provider.answer("hello"), outcome.error
        assert here.provider.asked == ["hello"] and {*here.provider.fetched} == {"resp_1"}
        assert [each["tokens"] for each in of_kind(folder, "spent")] == [105]
        assert not [*folder.glob(".satchel/answers/*")]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_call_leaves_although_the_budget_is_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """In the middle of a step, which then runs again when there is money."""
    source = (
        HEAD
        + """
@step
ASYNC ask() -> int:
    from openai import AsyncOpenAI, OpenAI
    WITH CLIENT() as client:
        for number in range(9):
            messages = [{"role": "user", "content": str(number)}]
            AWAIT client.chat.completions.create(model="m", messages=messages)
    return 9

@agent
async def main(run: Run):
    return await ask()
"""
    ).replace("ASYNC", kind)
    asynchronous = kind != "def"
    source = source.replace("WITH", "async with" if asynchronous else "with")
    source = source.replace("CLIENT", "AsyncOpenAI" if asynchronous else "OpenAI")
    source = source.replace("AWAIT ", "await " if asynchronous else "")
    folder = make(tmp_path / "demo", source, "keeper: true\nbudget: {tokens: 300}\n")
    with below(Provider(5), monkeypatch) as here:
        outcome = here.run(folder)
        reason = of_kind(folder, "pause.requested")[0]["reason"]
        assert outcome.status == "paused" and "budget of 300 tokens is used up (315)" in reason
        assert here.provider.asked == ["0", "1", "2"]
        yaml = folder / "workspace.yaml"
        yaml.write_text(yaml.read_text().replace("300", "3000"))
        assert satchel.open(folder).resume().status == "completed"
        assert here.provider.asked == [str(number) for number in range(9)]


def test_a_model_step_that_goes_past_the_keeper_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with below(Provider(5), monkeypatch) as here:
        source = STREAMED.replace("AsyncOpenAI()", f"AsyncOpenAI(base_url='http://127.0.0.1:{here.provider.port}/v1')")
        source = source.replace("@step", "@step(retry=Retry.model())")
        outcome = here.run(make(tmp_path / "demo", source))
        assert outcome.status == "completed"
        (told,) = outcome.noticed
        assert "the keeper saw no request of ask" in told and "base_url" in told


def test_a_streamed_step_that_asks_no_model_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from satchel import Partial, Run, agent, step

@step
async def write(out: Partial) -> str:
    await out.write("by hand")
    return out.text

@agent
async def main(run: Run):
    return await write()
"""
    with below(Provider(5), monkeypatch) as here:
        outcome = here.run(make(tmp_path / "demo", source))
        assert outcome.status == "completed" and not outcome.noticed


@pytest.mark.parametrize("source", [STREAMED], ids=["yaml"])
def test_a_run_without_the_keeper_that_it_asks_for_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """As one that shares a process."""
    monkeypatch.delenv(addresses.KEEPER, raising=False)
    with Provider(5).running() as provider:
        for name, value in provider.environment.items():
            monkeypatch.setenv(name, value)
        outcome = satchel.run(make(tmp_path / "demo", source))
    assert outcome.status == "completed" and "this process has none" in outcome.noticed[0]


def test_a_keeper_that_has_ended_lets_the_run_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.keeper.client._PATIENCE", 0.2)
    folder = make(tmp_path / "demo", STREAMED)
    variables = addresses.environment("http://127.0.0.1:9", SECRET, str(folder), {"openai": ""})
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(satchel.errors.StorageFailed, match="start `satchel keeper` again"):
        satchel.run(folder)


def test_parallel_steps_exchange_their_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal requests of several steps at once, in threads and on the loop."""
    source = (
        HEAD
        + ASK
        + """
import asyncio

@step
def ask(number: int) -> str:
    with OpenAI() as client:
        return say("hello", client)

@agent
async def main(run: Run):
    return await asyncio.gather(*(ask(number) for number in range(6)))
"""
    )
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        outcome = here.run(folder)
        assert sorted(outcome.result) == sorted(here.provider.answer("hello", n) for n in range(1, 7))
        assert len(of_kind(folder, "spent")) == 6


def test_a_cancelled_step_lets_its_model_write_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        STREAMED.replace('return await ask("hello")', "")
        + """
    import asyncio
    try:
        async with asyncio.timeout(1):
            await ask("hello")
    except TimeoutError:
        return "late"
"""
    )
    provider = Provider(20, holds_at=10)
    with below(provider, monkeypatch) as here:
        assert here.run(make(tmp_path / "demo", source)).result == "late"
        while not provider.cut:
            pass
        assert provider.written == 10


def test_another_question_hides_what_was_paid_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        HEAD
        + ASK
        + """
import pathlib

@step
def ask() -> str:
    is_first = not pathlib.Path(SEEN).exists()
    with OpenAI() as client:
        text = say("first" if is_first else "second", client)
    if is_first:
        pathlib.Path(SEEN).touch()
        os._exit(9)
    return text

@agent
async def main(run: Run):
    return await ask()
"""
    ).replace("SEEN", repr(str(tmp_path / "seen")))
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        here.crash(folder)
        outcome = here.run(folder)
        assert outcome.result == here.provider.answer("second")
        assert "105 tokens" in outcome.noticed[0] and "are lost" in outcome.noticed[0]
        assert [each["tokens"] for each in of_kind(folder, "spent")] == [105, 105]
        assert said_unused(folder) == [
            "105 tokens, $0.000018 for gpt-4o-mini, for an answer that ask() did not ask for again"
        ]


def said_unused(folder: Path) -> list[str]:
    """What the log says of answers that nobody has asked for again."""
    rows = [row for row in satchel.open(folder).history.log(type="spent") if row.record.get("unused")]
    return [re.sub(", first token after [^,]*", "", record_words.describe_record(row.line.record).text) for row in rows]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("again", "tells"), [("nothing()", ""), ('ask("other")', ""), ('ask("other")', "run.spend(tokens=7)")]
)
def test_a_step_that_is_called_otherwise_hides_what_was_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str, tells: str
) -> None:
    """Its answer is removed at the end of the run."""
    source = (
        HEAD
        + ASK
        + """
import pathlib

@step
def ask(prompt: str, run: Run) -> str:
    with OpenAI() as client:
        text = say(prompt, client)
    if not pathlib.Path(SEEN).exists():
        pathlib.Path(SEEN).touch()
        os._exit(9)
    TELLS
    return text

@step
def nothing() -> str:
    return "nothing"

@agent
async def main(run: Run):
    return await ask("hello") if not pathlib.Path(SEEN).exists() else await AGAIN
"""
    )
    source = (
        source.replace("SEEN", repr(str(tmp_path / "seen"))).replace("AGAIN", again).replace("TELLS", tells or "pass")
    )
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        here.crash(folder)
        outcome = here.run(folder)
        assert outcome.status == "completed", outcome.error
        spent = [each["tokens"] for each in of_kind(folder, "spent")]
        assert sum(spent) == 105 + (0 if again == "nothing()" else 7 if tells else 105)
        assert said_unused(folder) == [
            '105 tokens, $0.000018 for gpt-4o-mini, for an answer that ask("prompt":"hello") did not ask for again'
        ]
        assert any("was not called again: 105 tokens" in each for each in outcome.noticed)
        assert not kept(folder)


DIES_BEFORE_IT_TELLS = (
    HEAD
    + ASK
    + """
import pathlib
from satchel.runtime.keeper import client

@step
def ask(prompt: str) -> str:
    with OpenAI() as client:
        return say(prompt, client)

told = client.StepAtKeeper.forget

async def forget(self, **how):
    if not pathlib.Path(SEEN).exists():
        pathlib.Path(SEEN).touch()
        os._exit(9)
    await told(self, **how)

client.StepAtKeeper.forget = forget

async def work():
    return await ask("hello")

@agent
async def child(run: Run):
    return await work()

@agent
async def main(run: Run):
    return await WHAT
"""
)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("what", ["work()", "run.scope('a', work)", "run.spawn(child, 'kid')"])
def test_a_kill_before_the_keeper_knows_of_a_result_counts_its_cost_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    source = DIES_BEFORE_IT_TELLS.replace("SEEN", repr(str(tmp_path / "seen"))).replace("WHAT", what)
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        here.crash(folder)
        outcome = here.run(folder)
        assert outcome.result == here.provider.answer("hello"), outcome.error
        assert here.provider.asked == ["hello"] and [each["tokens"] for each in of_kind(folder, "spent")] == [105]
        assert not outcome.noticed and not kept(folder)


def test_what_a_step_has_paid_that_is_cancelled_last_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent returns while the keeper is still asked."""
    source = (
        HEAD
        + """
import asyncio
from satchel.runtime.keeper import client

begun = asyncio.Event()
asked = client.StepAtKeeper.paid

async def paid(self):
    await asyncio.to_thread(returned.wait)
    return await asked(self)

client.StepAtKeeper.paid = paid
import threading
returned = threading.Event()

@step
async def ask(prompt: str) -> str:
    from openai import AsyncOpenAI
    async with AsyncOpenAI() as client:
        messages = [{"role": "user", "content": prompt}]
        await client.chat.completions.create(model="gpt-4o-mini", messages=messages)
        begun.set()
        await asyncio.Event().wait()

@agent
async def main(run: Run):
    asking = asyncio.ensure_future(ask("hello"))
    await begun.wait()
    asking.cancel()
    await asyncio.wait([asking])
    asyncio.get_running_loop().call_later(0.2, returned.set)
    return "over"
"""
    )
    folder = make(tmp_path / "demo", source)
    with below(Provider(5), monkeypatch) as here:
        outcome = here.run(folder)
        assert outcome.result == "over", outcome.error
        assert [each["tokens"] for each in of_kind(folder, "spent")] == [105] and not outcome.noticed


@pytest.mark.parametrize("program", ["body", "handed on"])
def test_an_answer_in_background_mode_that_is_still_wanted_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """The agent asks outside of steps, while one fails; and leaves an answer to another program at its end."""
    source = (
        HEAD
        + """
import asyncio

failing = asyncio.Event()

@step
async def fail() -> str:
    await failing.wait()
    raise ValueError("no")

@agent
async def main(run: Run):
    from openai import AsyncOpenAI
    async with AsyncOpenAI() as client:
        other = asyncio.ensure_future(fail())
        await asyncio.sleep(0)
        id = (await client.responses.create(model="gpt-4o-mini", input="hello", background=True)).id
        failing.set()
        await asyncio.wait([other])
        other.exception()
        while HERE and (await client.responses.retrieve(id)).status != "completed":
            await asyncio.sleep(0.01)
        return id
"""
    ).replace("HERE", str(program == "body"))
    provider = Provider(20, pause=0.01)
    with below(provider, monkeypatch) as here:
        outcome = here.run(make(tmp_path / "demo", source))
        assert outcome.result == "resp_1", outcome.error
        until(lambda: provider.is_idle)
        assert not provider.cancelled and provider.written == 20


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("ends", ["cancelled", "failed", "returned"])
def test_an_answer_in_background_mode_that_nobody_wants_is_written_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, streams: bool
) -> None:
    source = (
        HEAD
        + """
import asyncio, pathlib

@step
async def ask(prompt: str, out: Partial) -> str:
    from openai import AsyncOpenAI
    async with AsyncOpenAI() as client:
        answer = await client.responses.create(model="gpt-4o-mini", input=prompt, background=True, stream=STREAMS)
        if STREAMS:
            async for event in answer:
                if event.type == "response.output_text.delta":
                    break
        if ENDS == "cancelled":
            pathlib.Path(SEEN).touch()
            await asyncio.Event().wait()
        if ENDS == "failed":
            raise ValueError
    return "begun"

@agent
async def main(run: Run):
    asking = asyncio.ensure_future(ask("hello"))
    while ENDS == "cancelled" and not pathlib.Path(SEEN).exists():
        await asyncio.sleep(0.01)
    if ENDS == "cancelled":
        asking.cancel()
    await asyncio.wait([asking])
    return "over"
"""
    )
    source = (
        source.replace("SEEN", repr(str(tmp_path / "seen")))
        .replace("ENDS", repr(ends))
        .replace("STREAMS", str(streams))
    )
    provider = Provider(20, holds_at=10)
    with below(provider, monkeypatch) as here:
        outcome = here.run(make(tmp_path / "demo", source))
        assert outcome.result == "over", outcome.error
        if ends == "returned":  # who has its id may fetch it
            provider.go.set()
            until(lambda: provider.written == 20)
            assert not provider.cancelled
        else:
            until(lambda: provider.cancelled)
            provider.go.set()
            until(lambda: provider.is_idle)
            assert provider.cancelled == ["resp_1"] and provider.written == 10


def test_the_packages_are_missing_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from satchel.runtime.supervision import check_installed

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(satchel.UsageError, match=r"pip install 'satchel\[keeper\]'"):
        check_installed()


def test_a_proxy_is_asked_for_the_keeper() -> None:
    def excepted(**environ: str) -> str | None:
        return addresses.environment("http://127.0.0.1:9", SECRET, "/run", {}, environ).get("NO_PROXY")

    assert excepted() is None and excepted(HTTPS_PROXY="http://proxy") is None
    assert excepted(http_proxy="http://proxy") == "127.0.0.1"
    assert excepted(ALL_PROXY="socks5://proxy", no_proxy="example.com") == "example.com,127.0.0.1"


def test_the_variable_has_two_names() -> None:
    assert model_calls.KEEPER == addresses.KEEPER
