"""The keeper: a proxy between the SDKs of agents and their providers, that reads an answer to its end also when the
process that has asked for it is dead.

A request belongs to a step (`ModelCall`). An equal one of the same step gets the answer that is there already: from its
first byte, and then what still arrives. Each answer is given once to each opening of the run, so that a retry after a
bad answer is a new call; a connection that was closed early does not count. An error of a provider is passed on and
never kept. What is kept for a step is dropped once its result is recorded.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from ...workspace.base import SatchelError
from ...workspace.inspect import lease
from ...workspace.journal import now
from ..agent import retry_after
from . import addresses, answer_files, wire
from .addresses import CALL, ModelCall, Opening, Paid, StepAnswer, is_valid, place
from .answer_files import AnswerHead
from .held_answers import EVERY, Listener, Memory, ModelAnswer, RunAnswers

_BEHIND = 64 << 10  # bytes that a client may be behind an answer that is not kept
_AT_ONCE = 32 << 10  # bytes that a client can be given without waiting for it
_REQUEST = 64 << 20  # bytes of a request
_NOTICED = 0.02  # seconds until it is noticed that a client has closed its connection
_CONNECT = 30.0  # seconds
_WAITS = (0.5, 1.0, 2.0, 4.0)  # seconds between two tries to fetch the rest of an answer, of which no event came
_LONGEST_WAIT = 300.0  # seconds that a provider may ask for until it gives the rest of an answer
_HOP = frozenset(
    f"connection expect host keep-alive proxy-authenticate proxy-authorization proxy-connection {CALL} te trailer "
    "transfer-encoding upgrade".split()
)
"""Headers that are for the next hop only, in lower case."""


class Keeper:
    """Relays requests until it is told to end."""

    def __init__(self, secret: bytes, providers: dict[str, str]):
        self._secret, self._providers = secret, providers
        self._runs: dict[str, RunAnswers] = {}
        self._memory = Memory()
        self._cancels = set[asyncio.Task[None]]()
        self._session: aiohttp.ClientSession
        self._server: web.Server | None = None
        self._me, self._host = (os.getpid(), lease.process_started(os.getpid())), socket.gethostname()

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Answer what comes while the body runs."""
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT)
        async with aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            trust_env=True,
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as self._session:
            app = web.Application(client_max_size=_REQUEST)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, keepalive_timeout=3600.0)
            await runner.setup()
            await web.SockSite(runner, listener).start()
            self._server = runner.server
            try:
                yield
            finally:
                await runner.cleanup()

    @property
    def is_at_rest(self) -> bool:
        """No answer arrives or is being written, and no process has a connection to it."""
        every = (each for run in self._runs.values() for each in run)
        busy = any(task is not None and not task.done() for each in every for task in (each.task, each.saving))
        return not busy and not self._cancels and not (self._server and self._server.connections)

    # Requests

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        token, _, rest = request.raw_path.lstrip("/").partition("/")
        if not is_valid(token, self._secret):
            return _problem(404, "the keeper knows no run by this address")
        url = place(token)
        run = self._runs.get(url)
        if run is None:
            made = await asyncio.to_thread(RunAnswers, url, self._memory)
            run = self._runs.setdefault(url, made)
        name, _, path = rest.partition("/")
        try:
            if name == "-":
                return await self._told(run, token, path, await request.read())
            if name not in self._providers:
                return _problem(404, f"the keeper knows no provider {name!r}")
            if "websocket" in request.headers.get("upgrade", "").lower():
                return _problem(501, "the keeper relays no websockets", "give the client the provider's own address")
            return await self._relay(run, token, request, f"{self._providers[name]}/{path}")
        except msgspec.DecodeError as error:
            return _problem(400, str(error))
        except SatchelError as error:
            return _problem(500, str(error))

    async def _told(self, run: RunAnswers, token: str, what: str, body: bytes) -> web.Response:
        """A message of the process that has the run."""
        if what in ("open", "close", "private", "unused"):
            opening = addresses.decode_opening(body)
            if opening.epoch < run.epoch and opening.run_id == run.run_id:
                return _lost()
            if what == "open":
                torn = await run.open(token, opening)
                kept = [StepAnswer(each.step, grown=each.has_grown) for each in run if each.is_good]
                kept += [StepAnswer(each.step, text, torn=True) for each, text in torn]
                await run.remove(each for each, _ in torn)
                return _json(kept)
            if what == "unused":
                return await _costs((each for each in run if each.heard_in != run.epoch), run.epoch)
            if what == "private":
                run.private = opening.epoch
            else:
                await run.remove([*run])
                run.starts.pop(token, None)  # what this process asks now belongs to no run
            return web.Response(status=204)
        if what not in ("kept", "paid", "forget"):
            return _problem(404, f"the keeper knows no message {what!r}")
        step = addresses.decode_step(body)
        if step.epoch < run.epoch:
            return _lost()
        mine = run.of_step(step)
        if what == "kept":
            unheard = [each for each in run if each.call is None and each.heard_in != step.epoch]
            return _json(any(each.is_good and each.given != step.epoch for each in (*mine, *unheard)))
        if what == "paid":
            return await _costs(mine, step.epoch)
        done = [each for each in run if each.call is None and 0 < each.taken < step.oldest]
        if step.given_up:
            self._give_up(mine)
        await run.remove({*mine, *done})
        return web.Response(status=204)

    async def _relay(self, run: RunAnswers, token: str, request: web.Request, target: str) -> web.StreamResponse:
        call = _call(request.headers.get(CALL))
        if call is not None and (call.run_id != run.run_id or call.epoch > run.epoch):  # this keeper has just begun
            await run.open(token, Opening(call.run_id, call.epoch))
        epoch = call.epoch if call else run.starts.get(token)
        if epoch is not None and epoch < run.epoch:
            return _lost()
        body = await request.read()
        kind = answer_files.digest(request.method.encode(), target.encode(), body)
        there = run.of(call.step if call else "", kind)
        client = Listener(-1 if epoch is None else epoch)
        answer = await _free(there, epoch) if epoch is not None else None
        if answer is not None:
            answer.client = client
            if answer.is_away:
                await run.bring(answer)
            if answer.rest is not None and answer.task is None:
                answer.task = asyncio.create_task(self._ask(run, answer, 1, request, target, body))
        if answer is None or answer.is_away:
            answer = ModelAnswer(call, kind)
            answer.asked_in = client.epoch
            there = run.of(call.step if call else "", kind)
            there.append(answer)
            if request.method != "POST" or epoch is None:  # it costs nothing, or no run has opened this address
                answer.is_poll = request.method == "GET" and epoch is not None
                run.forget(answer)
            answer.task = asyncio.create_task(self._ask(run, answer, len(there), request, target, body))
        answer.client = client
        answer.taken, answer.heard_in = time.monotonic(), epoch
        try:
            return await _hand_over(answer, client, request)
        finally:
            if answer.client is client:  # no later one has it
                answer.client = None
                answer.tell()

    # The provider

    async def _ask(
        self, run: RunAnswers, answer: ModelAnswer, n: int, request: web.Request, target: str, body: bytes
    ) -> None:
        """Ask the provider, and read its answer to the end."""
        error = ""
        if b'"background"' in body:
            answer.sent = target, _onward(request)
        try:
            if answer.rest is None or not await self._fetch_rest(run, answer, request, target, body):
                await self._fetch(run, answer, n, request, target, body)
        except Exception as raised:  # whatever it was, this is no whole answer
            error = f"{type(raised).__name__}: {raised}"
        except asyncio.CancelledError:
            error = "its step is over"
            if answer.is_kept:  # no: this keeper ends, and what has arrived stays
                raise
        finally:
            if answer.head is not None and (answer.is_kept or answer.is_poll) and not (error or answer.start):
                answer.said = answer_files.understood(answer.head, bytes(answer.data))
            answer.end(error)
        if answer.is_poll and answer.said is not None and answer.said.id and answer.said.tokens:
            run.count(answer, answer.said)
        if error or (answer.said is not None and answer.said.failed):
            run.forget(answer, reads_on=True)

    async def _fetch(
        self, run: RunAnswers, answer: ModelAnswer, n: int, request: web.Request, target: str, body: bytes
    ) -> None:
        headers = _onward(request)
        if body:
            headers["content-length"] = str(len(body))
        is_background, broken = b'"background"' in body, None
        if is_background:  # the rest of a torn answer must fit what there is
            headers["accept-encoding"] = "identity"
        answer.file = answer_files.AnswerFile(run.store, self._head(run, answer, n))
        if run.may_save(answer):
            answer.saving = asyncio.create_task(run.save(answer, answer.file))
        async with await self._request(request.method, target, headers, body) as response:
            head = answer.file.head  # it may have got another number
            answer.head = msgspec.structs.replace(
                head, status=response.status, reason=response.reason or "", headers=_back(response)
            )
            if response.status >= 300:
                run.forget(answer, reads_on=True)
            by_event = is_background and wire.is_streamed(answer.head.kind)
            try:
                await self._read(run, answer, response, by_event=by_event)
            except aiohttp.ClientError as error:
                broken = error
        answer.rest = await asyncio.to_thread(_rest, answer) if by_event else None
        if answer.rest is not None:
            with suppress(ConnectionError):  # then it ends as its connection has ended
                await self._fetch_rest(run, answer, request, target, body)
                broken = None
        if broken is not None:
            raise broken

    async def _fetch_rest(
        self, run: RunAnswers, answer: ModelAnswer, request: web.Request, target: str, body: bytes
    ) -> bool:
        """Fetch what is missing of a torn answer in background mode, with as many connections as that takes. Returns
        whether its provider still has it."""
        rest, failed, asked = answer.rest, 0, 0.0
        (place, _, query), headers = target.partition("?"), _onward(request)
        wanted = [*filter(None, [query]), *await asyncio.to_thread(wire.wanted, body), "stream=true"]
        headers.popall("content-type", None)
        headers["accept-encoding"] = "identity"
        while rest is not None and not rest.is_over:
            if answer.start or len(answer.data) != rest.end:
                raise ConnectionError("what there is of it does not end between two events")
            if failed > len(_WAITS) or asked > _LONGEST_WAIT:
                raise ConnectionError("its provider does not give the rest of it")
            await asyncio.sleep(max(asked, (0.0, *_WAITS)[failed]))
            after, asked = rest.after, 0.0
            url = f"{place}/{quote(rest.id, safe='')}?{'&'.join(wanted)}&starting_after={after}"
            try:
                async with await self._request("GET", url, headers) as response:
                    if response.status == 429 or response.status >= 500:
                        response.raise_for_status()
                    if response.status != 200:
                        return await _is_gone(answer)
                    self._take_over(run, answer)
                    await self._read(run, answer, response, by_event=True)
            except aiohttp.ClientError as error:
                asked = retry_after(error)
            rest = await asyncio.to_thread(_rest, answer) or rest
            failed = failed + 1 if rest.after == after else 0
        self._take_over(run, answer)
        return True

    def _give_up(self, answers: Iterable[ModelAnswer]) -> None:
        """Their step has ended without them: what their provider writes in background mode, read or not, costs on. Of a
        request that names no step, another part of the agent may still want the answer."""
        for each in answers:
            if each.call is not None and each.sent is not None and (id := _in_background(each)):
                task = asyncio.create_task(self._cancel(*each.sent, id))
                self._cancels.add(task)
                task.add_done_callback(self._cancels.discard)

    async def _cancel(self, target: str, headers: CIMultiDict[str], id: str) -> None:
        place, mark, query = target.partition("?")
        try:
            async with await self._request(
                "POST", f"{place}/{quote(id, safe='')}/cancel{mark}{query}", headers
            ) as said:
                said.raise_for_status()
        except aiohttp.ClientError as error:
            print(f"satchel keeper: {id}, which no step waits for, was not cancelled: {error}", file=sys.stderr)

    def _take_over(self, run: RunAnswers, answer: ModelAnswer) -> None:
        """Continue an answer from the file of a keeper that has died in one of its own."""
        torn = answer.file
        if answer.head is None and torn is not None:
            me = {"host": self._host, "process": self._me[0], "started": self._me[1]}
            answer.head = msgspec.structs.replace(torn.head, **me)
            answer.file = answer_files.AnswerFile(run.store, answer.head)
            answer.saving = asyncio.create_task(run.save(answer, answer.file, instead_of=torn))

    async def _request(
        self, method: str, target: str, headers: CIMultiDict[str], body: bytes = b""
    ) -> aiohttp.ClientResponse:
        return await self._session.request(
            method,
            URL(target, encoded=True),
            headers=headers,
            data=io.BytesIO(body) if body else None,  # large bytes would block the loop
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def _read(
        self, run: RunAnswers, answer: ModelAnswer, response: aiohttp.ClientResponse, *, by_event: bool
    ) -> None:
        """`by_event`: an event counts once it is whole. One in which the connection breaks comes again."""
        answer.tell()
        torn = b""
        async for chunk in response.content.iter_any():
            answer.first = answer.first or time.monotonic()
            if by_event:
                chunk = torn + chunk
                end = wire.end_of_events(chunk)
                chunk, torn = chunk[:end], chunk[end:]
            await self._take(run, answer, chunk)
        if torn:
            await self._take(run, answer, torn)

    async def _take(self, run: RunAnswers, answer: ModelAnswer, chunk: bytes) -> None:
        """More of an answer has arrived."""
        has_room = self._memory.add(answer, chunk)
        await answer.take(chunk)
        stays = answer.is_kept or answer.is_poll
        if not (has_room and stays and len(answer.data) <= answer_files.LONGEST):
            await _wait_for_client(run, answer)

    def _head(self, run: RunAnswers, answer: ModelAnswer, n: int) -> AnswerHead:
        call = answer.call
        return AnswerHead(
            run_id=run.run_id,
            epoch=call.epoch if call else run.epoch,
            step=answer.step,
            words=call.words if call else "",
            request=answer.request,
            n=n,
            at=now(),
            host=self._host,
            process=self._me[0],
            started=self._me[1],
            url=run.url,
        )


def _onward(request: web.Request) -> CIMultiDict[str]:
    """The headers that go to the provider. An answer in an encoding that is not known here could not be read."""
    headers = CIMultiDict((key, value) for key, value in request.headers.items() if key.lower() not in _HOP)
    headers.popall("content-length", None)
    if (asked := headers.get("accept-encoding")) is not None:
        named = [each.strip() for each in asked.split(",")]
        known = [each for each in named if each.partition(";")[0].strip().lower() in ("gzip", "deflate", "identity")]
        headers["accept-encoding"] = ", ".join(known) or "identity"
    return headers


def _back(response: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    """The headers that go to the client."""
    every = [(key.decode("latin-1"), value.decode("latin-1")) for key, value in response.raw_headers]
    return [(key, value) for key, value in every if key.lower() not in _HOP]


def _rest(answer: ModelAnswer) -> wire.InBackground | None:
    """How the rest of a torn answer is fetched. None: its provider does not write it to its end."""
    head = answer.head
    is_plain = head is not None and not head.header("content-encoding") and not answer.start
    return wire.in_background(head.kind, bytes(answer.data)) if head is not None and is_plain else None


def _in_background(answer: ModelAnswer) -> str:
    """The id of an answer that its provider still writes, as far as this is known here. Empty if it does not."""
    if (rest := _rest(answer)) is not None:
        return "" if rest.is_over else rest.id
    return answer.said.id if answer.said is not None and not answer.said.tokens else ""


async def _is_gone(answer: ModelAnswer) -> bool:
    """Its provider has the rest of it no more. Returns False, and it is asked for again, if no client has it."""
    if answer.head is not None:
        raise ConnectionError("its provider does not have the rest of it")
    assert answer.file is not None
    await asyncio.to_thread(answer.file.remove)
    answer.data.clear()
    return False


async def _wait_for_client(run: RunAnswers, answer: ModelAnswer) -> None:
    """An answer for which there is no room is relayed only, no faster than its client reads."""
    if answer.is_kept:
        run.forget(answer, reads_on=True)
    while len(answer.data) > _BEHIND:
        if answer.client is None:
            raise ConnectionAbortedError("its client has gone, and there is no room to keep it")
        read = answer.client.read - answer.start
        if read:
            del answer.data[:read]
            answer.start += read
        else:
            await answer.change()


async def _free(there: list[ModelAnswer], epoch: int) -> ModelAnswer | None:
    """An answer that this opening has not had, and that no other request of it hears."""
    for turn in range(2):
        good = [each for each in there if each.is_good and each.given != epoch]
        free = next((each for each in good if each.client is None or each.client.epoch != epoch), None)
        if free is not None or not good or turn:
            return free
        await asyncio.sleep(_NOTICED)
    return None


async def _hand_over(answer: ModelAnswer, client: Listener, request: web.Request) -> web.StreamResponse:
    """Write an answer to a client, as it arrives."""
    while answer.head is None and not answer.is_done:
        await answer.change()
    if answer.head is None:
        return _cut(request)
    head = answer.head
    response = web.StreamResponse(status=head.status, reason=head.reason, headers=CIMultiDict(head.headers))
    await response.prepare(request)

    async def pass_on(chunk: bytes) -> bool:
        transport = request.transport
        if transport is None or transport.get_write_buffer_size() or len(chunk) > _AT_ONCE:
            return False  # it is slow, and its provider is not
        with suppress(ConnectionError):
            await response.write(chunk)
            client.read += len(chunk)
        return True

    while True:
        at = client.read - answer.start
        if at < len(answer.data):
            chunk = bytes(answer.data[at:] if at else answer.data)
            await response.write(chunk)
            client.read += len(chunk)
            if not answer.is_kept:
                answer.tell()
        elif answer.is_done:
            break
        else:
            client.pass_on = pass_on
            await answer.change(hears=True)
            client.pass_on = None
    if answer.error:
        return _cut(request)
    await response.write_eof()
    answer.given = client.epoch
    return response


def _cut(request: web.Request) -> web.StreamResponse:
    """Close the connection in the middle, as the provider has done: the SDK has an error of its own for that."""
    if request.transport is not None:
        request.transport.abort()
    raise asyncio.CancelledError


async def _costs(answers: Iterable[ModelAnswer], epoch: int) -> web.Response:
    """What was paid for those that have begun, and have not failed."""
    begun = [each for each in answers if each.head and not each.error]
    return _json(await asyncio.to_thread(lambda: [_paid(each, epoch) for each in begun]))


def _paid(answer: ModelAnswer, epoch: int) -> Paid:
    assert answer.head is not None
    said = answer.said or answer_files.understood(answer.head, bytes(answer.data)) or wire.AnswerFacts()
    end = answer.ended or time.monotonic()
    return Paid(
        id=answer.head.id,
        words=answer.head.words,
        model=said.model,
        tokens=said.tokens,
        output=said.output,
        cached=said.cached,
        usd=_usd(said),
        first=round(max(0.0, answer.first - answer.asked), 3),
        took=round(end - answer.asked, 3) if answer.first else 0.0,
        unused=answer.heard_in != epoch,
    )


def _usd(said: wire.AnswerFacts) -> float:
    """The price by the table of `genai-prices`. 0 without that package, and for a model that it does not know."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return 0.0
    usage = Usage(input_tokens=said.tokens - said.output, output_tokens=said.output, cache_read_tokens=said.cached)
    with suppress(LookupError, ValueError):
        return float(calc_price(usage, model_ref=said.model).total_price) if said.model else 0.0
    return 0.0


def _call(header: str | None) -> ModelCall | None:
    try:
        return None if header is None else addresses.decode_call(header.encode("latin-1"))
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _problem(status: int, text: str, remedy: str = "") -> web.Response:
    """An error in the form of the SDKs."""
    said = f"satchel keeper: {text}" + (f"; {remedy}" if remedy else "")
    return web.json_response({"error": {"message": said, "type": "satchel_keeper"}}, status=status)


def _lost() -> web.Response:
    """Not 409, which SDKs try again."""
    return _problem(403, "another process has the run by now", "this one can do nothing for it any more")


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


async def keep(secret: bytes, providers: dict[str, str], listener: socket.socket, until: asyncio.Event) -> None:
    """Be the keeper until the event. Then read what still arrives to its end: the next start may ask for it."""
    keeper = Keeper(secret, providers)
    async with keeper.serving(listener):
        await until.wait()
        end = time.monotonic() + _AFTERWARDS
        while not keeper.is_at_rest and time.monotonic() < end:  # noqa: ASYNC110  # a connection does not tell
            await asyncio.sleep(EVERY)


_AFTERWARDS = 600.0
"""Seconds that a keeper reads on after its supervisor has ended."""
