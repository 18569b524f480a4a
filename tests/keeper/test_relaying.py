"""The keeper itself, in the process of the test, asked by clients as SDKs ask it."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai
import pytest

from satchel.runtime.keeper import addresses, answer_files, held_answers, proxy
from satchel.runtime.keeper.addresses import CALL, ModelCall, ModelStep, Opening
from satchel.workspace.store import open_store

from .keeping import make
from .provider import Provider

SECRET = b"s" * 32


class Place:
    """A run at a keeper, as its process sees it."""

    def __init__(self, folder: Path, base: str, provider: Provider):
        self.folder, self.provider, self._base = folder, provider, base
        self.epoch = 0
        self.client = httpx2.AsyncClient(timeout=120)
        self.start()

    def start(self) -> None:
        """Another start of the run, which has an address of its own."""
        named = addresses.environment(self._base, SECRET, str(self.folder), {"openai": "", "anthropic": ""})
        self.address, self.openai = named[addresses.KEEPER], named["OPENAI_BASE_URL"]

    async def tell(self, what: str, body: Any) -> Any:
        answer = await self.client.post(f"{self.address}/-/{what}", content=msgspec.json.encode(body))
        answer.raise_for_status()
        return answer.json() if answer.content else None

    async def open(self, epoch: int, anew_since: int = 0) -> list[Any]:
        self.start()
        self.epoch = epoch
        found: list[Any] = await self.tell("open", Opening("demo-1", epoch, anew_since))
        return found

    @asynccontextmanager
    async def next_keeper(self, folder: Path | None = None) -> AsyncIterator[Place]:
        """The same run at another keeper, and perhaps in another folder."""
        listener = socket.create_server(("127.0.0.1", 0))
        async with proxy.Keeper(SECRET, addresses.real(self.provider.environment)).serving(listener):
            other = Place(folder or self.folder, f"http://127.0.0.1:{listener.getsockname()[1]}", self.provider)
            async with other.client:
                yield other

    def step(self, name: str = "a", *, is_alone: bool = True) -> ModelStep:
        return ModelStep(name, self.epoch, 0.0, 1e12, is_alone)

    def headers(self, step: str | None, **more: Any) -> dict[str, str]:
        if step is None:
            return {}
        return {
            CALL: msgspec.json.encode(ModelCall("demo-1", more.pop("epoch", self.epoch), step, step, **more)).decode()
        }

    def body(self, prompt: str, *, stream: bool = True) -> dict[str, Any]:
        return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": prompt}]}

    def request(self, prompt: str, step: str | None = "a", *, stream: bool = True, **more: Any) -> httpx2.Request:
        return self.client.build_request(
            "POST",
            f"{self.openai}/chat/completions",
            json=self.body(prompt, stream=stream),
            headers=self.headers(step, **more),
        )

    async def ask(self, prompt: str, step: str | None = "a", **more: Any) -> bytes:
        answer = await self.client.send(self.request(prompt, step, **more))
        answer.raise_for_status()
        return answer.content

    async def begin(self, prompt: str, step: str | None = "a", **more: Any) -> httpx2.Response:
        """Ask, and read only the beginning of the answer."""
        return await self.client.send(self.request(prompt, step, **more), stream=True)

    async def until(self, is_so: Callable[[], object]) -> None:
        while not is_so():  # noqa: ASYNC110  # files and threads do not tell
            await asyncio.sleep(0.01)


@asynccontextmanager
async def keeping(folder: Path, provider: Provider, extra: str = "") -> AsyncIterator[Place]:
    make(folder, "", extra)
    listener = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    keeper = proxy.Keeper(SECRET, addresses.real(provider.environment))
    async with keeper.serving(listener):
        place = Place(folder, base, provider)
        async with place.client:
            yield place


def play(tmp_path: Path, provider: Provider, story: Callable[[Place], Any], extra: str = "") -> None:
    async def tell() -> None:
        async with asyncio.timeout(60), keeping(tmp_path / "demo", provider, extra) as place:
            await place.open(1)
            await story(place)

    with provider.running():
        asyncio.run(tell())


def files(place: Place) -> list[str]:
    return sorted(each.suffix for each in place.folder.glob(".satchel/answers/*"))


def test_an_answer_differs_from_the_providers_own(tmp_path: Path) -> None:
    """Byte for byte, streamed or not, to the first that asks and to the next opening."""

    async def story(place: Place) -> None:
        for number, stream in enumerate((True, False)):
            got = await place.ask(f"p{number}", f"s{number}", stream=stream)
            await place.open(place.epoch + 1)
            assert await place.ask(f"p{number}", f"s{number}", stream=stream) == got
            direct = await place.client.post(
                f"{place.provider.environment['OPENAI_BASE_URL']}/chat/completions",
                json=place.body(f"p{number}", stream=stream),
            )
            assert got.replace(b"/1/", b"/2/") == direct.content

    play(tmp_path, Provider(5), story)


def test_a_compressed_answer_is_unpacked(tmp_path: Path) -> None:
    provider = Provider(30)
    provider.gzips = True

    async def story(place: Place) -> None:
        async with place.client.stream(
            "POST", place.request("p").url, json=place.body("p"), headers=place.headers("a")
        ) as answer:
            raw = b"".join([part async for part in answer.aiter_raw()])
        assert answer.headers["content-encoding"] == "gzip" and b"p/1/29" in gzip.decompress(raw)
        (paid,) = await place.tell("paid", place.step())
        assert paid["model"] == "m" and paid["tokens"] == 130

    play(tmp_path, provider, story)


def test_a_retry_after_a_bad_answer_gets_it_again(tmp_path: Path) -> None:
    """One that was given whole is not given again in this opening. The next one gets both, in their order."""

    async def story(place: Place) -> None:
        first, second = await place.ask("p"), await place.ask("p")
        assert b"p/1/" in first and b"p/2/" in second
        await place.open(2)
        assert [await place.ask("p"), await place.ask("p")] == [first, second] and place.provider.written == 10
        assert b"p/3/" in await place.ask("p")

    play(tmp_path, Provider(5), story)


def test_equal_requests_at_once_share_an_answer(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        found = await asyncio.gather(*(place.ask("p") for _ in range(5)))
        assert len({*found}) == 5
        await place.open(2)
        again = await asyncio.gather(*(place.ask("p") for _ in range(5)))
        assert {*again} == {*found} and len(place.provider.asked) == 5

    play(tmp_path, Provider(5), story)


def test_a_step_gets_the_answer_of_another(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.ask("p", "a")
        await place.open(2)
        assert b"p/2/" in await place.ask("p", "b") and b"p/1/" in await place.ask("p", "a")

    play(tmp_path, Provider(5), story)


def test_a_client_that_waits_no_longer_ends_the_answer(tmp_path: Path) -> None:
    """Its next try gets it, from the first byte."""
    provider = Provider(20, holds_at=10)

    async def story(place: Place) -> None:
        answer = await place.begin("p")
        async for part in answer.aiter_raw():
            assert b"p/1/0" in part
            break
        await answer.aclose()
        again = asyncio.create_task(place.ask("p"))
        await place.until(provider.held.is_set)
        provider.go.set()
        assert b"p/1/0 " in await again and b"p/1/19 " in await again and provider.asked == ["p"] and not provider.cut

    play(tmp_path, provider, story)


def test_the_retries_of_an_sdk_are_calls(tmp_path: Path) -> None:
    """Its time limit is shorter than the model thinks."""
    provider = Provider(20, holds_at=10)

    async def story(place: Place) -> None:
        headers = place.headers("a")
        client = openai.AsyncOpenAI(
            base_url=place.openai, api_key="none", timeout=0.3, max_retries=50, default_headers=headers
        )
        async with client:
            messages: Any = [{"role": "user", "content": "p"}]
            asked = asyncio.create_task(client.chat.completions.create(model="m", messages=messages))
            await place.until(provider.held.is_set)
            await asyncio.sleep(1.0)
            provider.go.set()
            answer = await asked
        assert answer.choices[0].message.content == provider.answer("p") and provider.asked == ["p"]

    play(tmp_path, provider, story)


@pytest.mark.parametrize("status", [400, 429, 500, 529])
def test_an_error_is_kept(tmp_path: Path, status: int) -> None:
    """The SDK sees it as it was, with the time after which it may ask again."""
    provider = Provider(5)
    provider.fails = [status]

    async def story(place: Place) -> None:
        answer = await place.client.send(place.request("p"))
        assert answer.status_code == status and answer.headers["retry-after-ms"] == "10"
        assert answer.json()["error"]["type"] == "overloaded"
        assert b"p/1/" in await place.ask("p")
        await place.until(lambda: files(place) == [".answer"])
        assert len(await place.tell("paid", place.step())) == 1

    play(tmp_path, provider, story)


def test_an_error_in_the_middle_of_a_stream_is_kept(tmp_path: Path) -> None:
    provider = Provider(5)
    provider.breaks_at = 3

    async def story(place: Place) -> None:
        with pytest.raises(httpx2.RemoteProtocolError):
            await place.ask("p")
        assert b"p/2/4" in await place.ask("p")
        await place.open(2)
        assert b"p/2/4" in await place.ask("p")

    play(tmp_path, provider, story)


def test_a_recorded_step_leaves_an_answer(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.ask("p")
        await place.until(lambda: files(place) == [".answer"])
        await place.tell("forget", place.step())
        await place.until(lambda: not files(place))
        await place.open(2)
        assert b"p/2/" in await place.ask("p")

    play(tmp_path, Provider(5), story)


def test_a_cancelled_step_pays_on(tmp_path: Path) -> None:
    provider = Provider(20, holds_at=10)

    async def story(place: Place) -> None:
        answer = await place.begin("p")
        await place.until(provider.held.is_set)
        await place.tell("forget", place.step())
        with pytest.raises(httpx2.RemoteProtocolError):
            await answer.aread()
        await place.until(lambda: provider.cut == 1)
        await place.until(lambda: not files(place))

    play(tmp_path, provider, story)


def test_who_went_back_gets_an_earlier_answer(tmp_path: Path) -> None:
    """`rewind`, `redo` and an edit remove the files."""

    async def story(place: Place) -> None:
        await place.ask("p")
        await place.until(lambda: files(place) == [".answer"])
        for each in place.folder.glob(".satchel/answers/*"):
            each.unlink()
        assert await place.open(3) == []
        assert b"p/2/" in await place.ask("p")

    play(tmp_path, Provider(5), story)


def test_who_goes_back_gets_an_answer_from_memory(tmp_path: Path) -> None:
    """Of one that has no file, as of a step with sealed results."""

    async def story(place: Place) -> None:
        await place.ask("p", private=True)
        assert await place.open(2, anew_since=2) == []
        assert b"p/2/" in await place.ask("p", private=True)
        assert [each["step"] for each in await place.open(3, anew_since=2)] == ["a"]

    play(tmp_path, Provider(5), story)


def test_a_file_of_before_a_return_is_loaded(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        await place.ask("p")
        await place.until(lambda: files(place) == [".answer"])
        async with place.next_keeper() as other:
            assert await other.open(3, anew_since=2) == []
            assert b"p/2/" in await other.ask("p")

    play(tmp_path, Provider(5), story)


def test_an_answer_that_grows_is_not_told(tmp_path: Path) -> None:
    """Once an opening after the one that has asked for it waits for it."""
    provider = Provider(20, holds_at=10)

    async def story(place: Place) -> None:
        async def opened(epoch: int) -> bool:
            (found,) = await place.open(epoch)
            return bool(found["grown"])

        first = await place.begin("p")
        await place.until(provider.held.is_set)
        await first.aclose()
        assert not await opened(2), "it is new, as after each crash of who asks for something else each time"
        second = await place.begin("p")
        await second.aclose()
        assert await opened(3) and await opened(4), "a start that dies before it asks is not blamed"
        provider.go.set()
        assert b"p/1/19" in await place.ask("p")
        assert await opened(5) and not await opened(6), "it has ended"

    play(tmp_path, provider, story)


def test_who_asks_for_something_else_each_time_comes_further(tmp_path: Path) -> None:
    provider = Provider(20, holds_at=10)

    async def story(place: Place) -> None:
        for epoch in range(2, 6):
            answer = await place.begin(f"it is {epoch}")
            await answer.aclose()
            assert not [each for each in await place.open(epoch) if each["grown"]]

    play(tmp_path, provider, story)


def test_a_start_that_died_at_once_costs_an_answer(tmp_path: Path) -> None:
    """The keeper has not heard of it; what has a file counts."""
    provider = Provider(20, holds_at=10)

    async def story(place: Place) -> None:
        answer = await place.begin("p")
        await place.until(provider.held.is_set)
        await place.until(lambda: files(place) == [".part"])
        await answer.aclose()
        assert [each["step"] for each in await place.open(5)] == ["a"]
        provider.go.set()
        assert b"p/1/19" in await place.ask("p")

    play(tmp_path, provider, story)


def test_a_process_that_has_lost_the_run_is_served(tmp_path: Path) -> None:
    """Whether its request names a step or not; nor may it remove what the next one needs."""

    async def story(place: Place) -> None:
        old = place.openai, place.address
        await place.ask("p")
        await place.open(2)
        new, (place.openai, place.address) = (place.openai, place.address), old
        for step in ("a", None):
            answer = await place.client.send(place.request("p", step, epoch=1))
            assert answer.status_code == 403 and "another process has the run" in answer.text
        for what, body in (("forget", ModelStep("a", 1, 0.0, 1e12, True)), ("close", Opening("demo-1", 1))):
            with pytest.raises(httpx2.HTTPStatusError):
                await place.tell(what, body)
        place.openai, place.address = new
        assert b"p/1/" in await place.ask("p")

    play(tmp_path, Provider(5), story)


def test_an_answer_of_another_run_is_given(tmp_path: Path) -> None:
    """A fork has a copy of the files, and a number of its own."""

    async def story(place: Place) -> None:
        await place.ask("p")
        await place.until(lambda: files(place) == [".answer"])
        found = await place.tell("open", Opening("fork-1", 2))
        assert found == []
        answer = await place.client.post(
            f"{place.openai}/chat/completions",
            json=place.body("p"),
            headers={CALL: msgspec.json.encode(ModelCall("fork-1", 2, "a", "a")).decode()},
        )
        assert b"p/2/" in answer.content

    play(tmp_path, Provider(5), story)


def test_a_request_without_a_step_is_forgotten(tmp_path: Path) -> None:
    """Of an SDK that does not use httpx: it belongs to the one step that ran."""

    async def story(place: Place) -> None:
        got = await place.ask("p", None)
        assert [each["step"] for each in await place.open(2)] == [""]
        assert await place.ask("p", None) == got and place.provider.asked == ["p"]
        assert len(await place.tell("paid", place.step())) == 1
        await place.tell("forget", place.step())
        assert await place.open(3) == []

    play(tmp_path, Provider(5), story)


def test_a_sealed_result_is_written(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        got = await place.ask("p", private=True)
        await place.tell("private", Opening("demo-1", 1))
        hidden = await place.ask("q", None)
        await place.ask("r", "b")
        await place.until(lambda: files(place) == [".answer"])
        (path,) = place.folder.glob(".satchel/answers/*")
        assert b"r/1/" in path.read_bytes()
        await place.open(2)  # from memory
        assert await place.ask("p", private=True) == got and await place.ask("q", None) == hidden

    play(tmp_path, Provider(5), story)


def test_a_secret_is_written(tmp_path: Path) -> None:
    """`redact:` would change the answer, so it stays in memory."""

    async def story(place: Place) -> None:
        got = await place.ask("p hush-1")
        await place.ask("q", "b")
        await place.until(lambda: files(place) == [".answer"])
        assert not [each for each in place.folder.rglob("*") if each.is_file() and b"hush-1" in each.read_bytes()]
        await place.open(2)
        assert await place.ask("p hush-1") == got

    play(tmp_path, Provider(5), story, "redact:\n  patterns: ['hush-[0-9]']\n")


def test_a_request_of_20_megabytes_is_refused(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        big = "p" * (20 << 20)
        assert b"/1/4 " in await place.ask(big) and len(place.provider.asked[0]) == 20 << 20

    play(tmp_path, Provider(5), story)


def background(place: Place, prompt: str) -> httpx2.Request:
    body = {"model": "m", "stream": True, "background": True, "input": prompt}
    url = f"{place.openai}/responses"
    return place.client.build_request("POST", url, json=body, headers=place.headers("a"))


@pytest.mark.parametrize("forgets", [False, True])
def test_a_torn_answer_in_background_mode_is_asked_for_again(tmp_path: Path, forgets: bool) -> None:
    """Its file ends in the middle of an event. A provider that does not know it any more is asked again."""
    provider = Provider(20)

    async def story(place: Place) -> None:
        whole = (await place.client.send(background(place, "p"))).content
        await place.until(lambda: files(place) == [".answer"])
        (path,) = place.folder.glob(".satchel/answers/*")
        data = path.read_bytes()
        path.unlink()
        head, _, body = data.partition(b"\n")
        dead = msgspec.json.encode(msgspec.json.decode(head) | {"process": 1 << 22})
        path.with_suffix(".part").write_bytes(dead + b"\n" + body[: body.index(b"/7 ")])
        provider.forgets = forgets
        async with place.next_keeper() as other:
            assert [each["step"] for each in await other.open(2)] == ["a"]
            answer = await other.client.send(background(other, "p"))
            assert provider.fetched == ["resp_1"] and provider.asked == ["p"] * (1 + forgets)
            assert (b"p/2/19" if forgets else whole) in answer.content and answer.content.count(b"/19 ") == 2
            await place.until(lambda: files(place) == [".answer"])
            (paid,) = await other.tell("paid", other.step())
            assert paid["tokens"] == 120

    play(tmp_path, provider, story)


@asynccontextmanager
async def sdk(place: Place, **how: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    headers = place.headers("a")
    async with openai.AsyncOpenAI(base_url=place.openai, api_key="none", default_headers=headers, **how) as client:
        yield client


async def streamed(place: Place) -> list[Any]:
    """The events of an answer in background mode."""
    async with sdk(place) as client:
        stream = await client.responses.create(
            model="m", input="p", background=True, stream=True, include=["message.output_text.logprobs"]
        )
        return [event async for event in stream]


def test_a_connection_that_breaks_ends_an_answer_in_background_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an event, and again in the rest, which can't be had at once. Nor does one count that ends as if
    the answer were whole."""
    monkeypatch.setattr(proxy, "_WAITS", (0.01, 0.01, 0.01, 0.01))
    provider = Provider(20)
    provider.tears, provider.ends_early, provider.refuses = [4, 7, 7, 12], [15], [429, 503]

    async def story(place: Place) -> None:
        events = await streamed(place)
        assert [each.sequence_number for each in events] == [*range(22)] and events[-1].type == "response.completed"
        assert "".join(each.delta for each in events[1:-1]) == provider.answer("p")
        assert provider.asked == ["p"] and not provider.refuses and not provider.ends_early
        rests = ["starting_after=3"] * 3 + [f"starting_after={at}" for at in (6, 6, 11, 14)]
        assert [each.rpartition("&")[2] for each in provider.fetched_with] == rests
        assert all("include[]=message.output_text.logprobs&stream=true" in each for each in provider.fetched_with)
        await place.until(lambda: files(place) == [".answer"])
        (paid,) = await place.tell("paid", place.step())
        assert paid["tokens"] == 120
        await place.open(2)
        assert await streamed(place) == events and provider.asked == ["p"]

    play(tmp_path, provider, story)


@pytest.mark.parametrize(
    ("refuses", "wait_ms"),
    [([400], 10), ([503] * 3, 10), ([429], 3_600_000)],
    ids=["too old to be streamed", "nobody is there", "it asks for an hour"],
)
def test_an_answer_whose_rest_is_not_to_be_had_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: list[int], wait_ms: int
) -> None:
    """The SDK sees a connection that broke, as without a keeper. To ask again is a new call."""
    monkeypatch.setattr(proxy, "_WAITS", (0.01, 0.01))
    provider = Provider(20)
    provider.tears, provider.refuses, provider.wait_ms = [4], [*refuses], wait_ms

    async def story(place: Place) -> None:
        with pytest.raises(openai.APIConnectionError):
            await streamed(place)
        assert not provider.refuses and len(provider.fetched) == len(refuses)
        events = await streamed(place)
        assert [each.sequence_number for each in events] == [*range(22)] and provider.asked == ["p", "p"]
        await place.until(lambda: files(place) == [".answer"])

    play(tmp_path, provider, story)


def test_a_slow_reader_makes_the_keeper_hold_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its bound an answer is relayed as fast as it is read."""
    monkeypatch.setattr(held_answers, "HELD", 1 << 20)
    monkeypatch.setattr(answer_files, "LONGEST", 1 << 20)
    provider = Provider(3000)
    provider.padding = 16 << 10
    held = []
    add = held_answers.Memory.add

    def noting(memory: held_answers.Memory, answer: held_answers.ModelAnswer, chunk: bytes) -> bool:
        found = add(memory, answer, chunk)
        held.append(len(answer.data))
        return found

    monkeypatch.setattr(held_answers.Memory, "add", noting)

    async def story(place: Place) -> None:
        answer = await place.begin("p")
        await asyncio.sleep(1.0)  # it does not read
        before = provider.written
        got = 0
        async for part in answer.aiter_raw():
            got += len(part)
        assert before < 3000 and got > 3000 * (16 << 10) and max(held) < 2 << 20
        assert not await place.tell("kept", place.step()) and not files(place)

    play(tmp_path, provider, story)


def test_a_client_that_is_slow_at_times_gets_bytes_twice_or_not_at_all(tmp_path: Path) -> None:
    """What arrives is passed on at once, except while it has not read what came before."""
    provider = Provider(300, holds_at=200)
    provider.padding = 16 << 10

    async def story(place: Place) -> None:
        answer = await place.begin("p")
        await place.until(provider.held.is_set)  # more than the connection holds
        got = []
        async for part in answer.aiter_raw():
            got.append(part)
            if b"/199 " in b"".join(got[-9:]):
                provider.go.set()
            if len(got) % 20 == 0:
                await asyncio.sleep(0.02)
        await place.open(2)
        assert b"".join(got) == await place.ask("p") and place.provider.asked == ["p"]

    play(tmp_path, provider, story)


def test_many_answers_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in a file are read from there again."""
    monkeypatch.setattr(held_answers, "HELD", 100 << 10)
    provider = Provider(10)
    provider.padding = 2 << 10

    async def story(place: Place) -> None:
        got = []
        for number in range(20):
            got.append(await place.ask(f"p{number}", f"s{number}"))
            await place.until(lambda number=number: len(files(place)) == number + 1 and ".part" not in files(place))
        await place.open(2)
        assert [await place.ask(f"p{number}", f"s{number}") for number in range(20)] == got
        assert len(provider.asked) == 20

    play(tmp_path, provider, story)


def test_the_keeper_of_the_next_start_loads_what_is_whole(tmp_path: Path) -> None:
    provider = Provider(5)

    async def story(place: Place) -> None:
        got = await place.ask("p")
        await place.until(lambda: files(place) == [".answer"])
        async with place.next_keeper() as other:
            assert [each["step"] for each in await other.open(2)] == ["a"]
            assert await other.ask("p") == got and provider.asked == ["p"]
            (paid,) = await other.tell("paid", other.step())
            assert paid["tokens"] == 105 and not paid.get("unused")

    play(tmp_path, provider, story)


@pytest.mark.parametrize(
    "junk", [b"", b"{}", b"{}\n", b"not json\nabc", b'{"v":2}\nabc', b"\xff\xfe\n", b'{"run_id":1}\n'], ids=repr
)
def test_a_torn_file_stops_the_start(tmp_path: Path, junk: bytes) -> None:
    async def story(place: Place) -> None:
        folder = place.folder / ".satchel" / "answers"
        folder.mkdir(parents=True)
        for name in ("a-b-1.part", "a-b-2.answer", "x.txt"):
            (folder / name).write_bytes(junk)
        assert await place.open(2) == []
        assert b"p/1/" in await place.ask("p")

    play(tmp_path, Provider(5), story)


def test_a_copy_waits_for_what_is_read_for_its_origin(tmp_path: Path) -> None:
    """The keeper of the origin lives, and writes to the folder there."""
    provider = Provider(20, holds_at=10)

    async def story(place: Place) -> None:
        answer = await place.begin("p")
        await place.until(lambda: files(place) == [".part"])
        (path,) = place.folder.glob(".satchel/answers/*.part")
        await place.until(lambda: b"/9 " in path.read_bytes())
        shutil.copytree(place.folder, tmp_path / "copy")
        async with place.next_keeper(tmp_path / "copy") as other:
            (found,) = await other.open(2)
            assert found["torn"] and "/9 " in found["text"]
        async with place.next_keeper() as other:
            (found,) = await other.open(2)
            assert not found["torn"]
        await answer.aclose()

    play(tmp_path, provider, story)


def test_an_unknown_path_reaches_a_provider(tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        for path, status in (("/-/what", 404), ("/other/v1", 404)):
            answer = await place.client.post(f"{place.address}{path}", content=b'{"run_id":"a"}')
            assert answer.status_code in (status, 400), path
        answer = await place.client.post(f"{place.openai}/x", headers={"upgrade": "websocket"})
        assert answer.status_code == 501 and not place.provider.asked
        for what in ("open", "forget", "paid", "kept", "close", "private"):
            assert (await place.client.post(f"{place.address}/-/{what}", content=b"{")).status_code == 400

    play(tmp_path, Provider(5), story)


def test_an_address_that_no_run_has_opened_keeps_an_answer(tmp_path: Path) -> None:
    """It is relayed. The keeper could not say what it belongs to."""

    async def story(place: Place) -> None:
        place.start()
        assert b"p/1/" in await place.ask("p", None) and b"p/2/" in await place.ask("p", None)
        assert not files(place)

    play(tmp_path, Provider(5), story)


def test_an_answer_that_ends_while_the_run_is_opened_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file gets its other name between the list and the reading."""
    store = open_store(str(tmp_path))
    facts = {"epoch": 1, "n": 1, "status": 200, "process": 1, "headers": []}
    texts = dict.fromkeys(("run_id", "step", "words", "request", "at", "reason", "host", "started", "url"), "a")
    file = answer_files.AnswerFile(store, answer_files.AnswerHead(**texts, **facts))  # type: ignore[arg-type]
    file.begin()
    real = type(store).list

    def late(self: Any, folder: str) -> Any:
        found = [*real(self, folder)]
        file.finish(b"end")
        return iter(found)

    monkeypatch.setattr(type(store), "list", late)
    (found,) = answer_files.kept(store)
    assert found.is_whole and found.body == b"end"
