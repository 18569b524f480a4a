"""What changes while a browser looks: server-sent events with the new content of parts of a page.

A run that several browsers look at is read once for all of them, and not at all when the last one has left. Each
browser gets a part only if its content has changed. The data of an event is HTML with a `<hx-partial>` for each part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ....workspace.base import SatchelError, StorageFailed, lines
from ...api import Latest, SeenRun, Shot
from . import contents, listing, reading
from .site import RunRequest, Site

STREAMS = 100
"""Streams at a time. One more gets 503: each has its own copy of what it shows."""

BEAT = 15.0
"""Seconds after which a stream says that it is alive, if nothing has happened."""

_BEAT = ": still here\n\n"
"""A comment, which a browser ignores. Sending it shows whether the browser is still there."""

_SOON = 0.3
"""Seconds between two looks at how much of the first listing is read."""

_AGAIN = 3.0
"""Seconds until the next attempt to read a run that can't be read."""

_PRINTED = 1.0
"""Seconds between two looks at what a process prints, which no record tells."""

_REST = 0.5
"""Seconds that a page below that of a run stays as it is, however fast it changes: each browser has its own."""

PARTS = ("head", "wanted", "now", "approved", "plan", "timeline", "facts")
"""The parts of run.html: run/NAME.html is inside the element with the id `part-NAME`."""


class Tab(NamedTuple):
    """A page below that of a run that is kept current: what run/NAME.html needs besides the name and the status, and
    the seconds after which it is looked at although no record has come."""

    facts: Callable[[RunRequest], dict[str, Any]]
    every: float


TABS = {"messages": Tab(contents.message_facts, BEAT), "process": Tab(reading.process_facts, _PRINTED)}


def routes(site: Site) -> list[BaseRoute]:
    """The streams of the list and of each run."""
    watching, streams = Watching(site), set[Stream]()

    async def of_list(request: Request) -> Response:
        listing.ListQuery.of(request.query_params.multi_items())  # a wrong one is refused before the answer begins
        return _stream(site, streams, lambda: _list_events(site, request))

    async def of_run(request: Request) -> Response:
        run = await run_in_threadpool(site.find, request.path_params["name"])  # not one of the few for live pages
        return _stream(site, streams, lambda: _run_events(site, watching, run, request))

    async def of_tab(request: Request) -> Response:
        tab = request.path_params["tab"]
        if tab not in TABS:
            raise HTTPException(404)
        run = await run_in_threadpool(site.find, request.path_params["name"])
        return _stream(site, streams, lambda: _tab_events(site, watching, run, request, tab))

    return [
        Route("/-/events", of_list),
        Route("/run/{name:path}/-/events", of_run),
        Route("/run/{name:path}/-/events/{tab}", of_tab),
    ]


class Watching:
    """The runs that browsers look at, each read by one task."""

    def __init__(self, site: Site):
        self._site = site
        self._runs: dict[str, _Watched] = {}

    async def shots(self, run: SeenRun, beat: float = BEAT) -> AsyncGenerator[Shot | SatchelError | None, None]:
        """The run now and after each change; an error if it can't be read at all. None: it is as it was, and `beat`
        seconds have passed."""
        watched = self._runs.get(run.url)
        if watched is None:
            watched = self._runs[run.url] = _Watched(self._site, run)
        watched.viewers += 1
        seen: Shot | SatchelError | None = None
        try:
            while True:
                changed = watched.changed
                if watched.newest is not seen:
                    seen = watched.newest
                    yield seen
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), beat)
                except TimeoutError:
                    yield None
        finally:
            watched.viewers -= 1
            if not watched.viewers:
                watched.end()
                self._runs.pop(run.url, None)


class _Watched:
    """A run that is read as long as browsers look at it, in a thread of its own."""

    def __init__(self, site: Site, run: SeenRun):
        self.viewers = 0
        self._thread = ThreadPoolExecutor(1, "satchel-page-look")
        self.newest: Shot | SatchelError | None = None
        self.changed = asyncio.Event()  # another one after each change
        self.task = asyncio.create_task(self._read(site, run))

    def end(self) -> None:
        """The thread ends, too: at once, or after the look that it is at."""
        self.task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(self, site: Site, run: SeenRun) -> None:
        latest: Latest | None = None
        loop = asyncio.get_running_loop()
        while True:
            try:
                if latest is None:
                    latest = Latest(await loop.run_in_executor(self._thread, site.handle, run))
                self._tell(await loop.run_in_executor(self._thread, latest.look))
                await asyncio.sleep(latest.rest)
            except Exception as error:  # one that no reader has foreseen must not end the stream in silence either
                ours = error if isinstance(error, SatchelError) else StorageFailed("can't be read", why=str(error))
                if str(ours) != str(self.newest):
                    self._tell(ours)
                await asyncio.sleep(_AGAIN)

    def _tell(self, found: Shot | SatchelError) -> None:
        if found is not self.newest:
            self.newest = found
            self.changed.set()
            self.changed = asyncio.Event()


async def _list_events(site: Site, request: Request) -> AsyncGenerator[str, None]:
    """The rows of the list, when a run has changed."""
    sent: object = None
    waited = 0.0
    while True:
        found = await asyncio.to_thread(listing.list_facts, site, request)
        seen = found["seen"]
        now = (seen.number, seen.unread, str(seen.problem)) if seen else site.progress
        if now != sent:
            sent, waited = now, 0.0
            yield _event([("runs", await asyncio.to_thread(site.render, "runs.html", request=request, **found))])
        rest = site.overview.every if seen and not seen.unread else _SOON
        await asyncio.sleep(rest)
        waited += rest
        if waited >= BEAT:
            waited = 0.0
            yield _BEAT


async def _run_events(site: Site, watching: Watching, run: SeenRun, request: Request) -> AsyncGenerator[str, None]:
    """The parts of a run's page that have changed."""
    sent: dict[str, str] = {}
    number = -1
    async with aclosing(watching.shots(run)) as shots:
        async for shot in shots:
            if shot is None:
                yield _BEAT
            elif isinstance(shot, SatchelError):
                said = {"request": request, "name": site.name_of(run), "error": shot}
                html = await asyncio.to_thread(site.render, "run/gone.html", **said)
                yield _event([("head", html)], prefix="part-")
                sent.clear()  # the browser gets all parts again once the run can be read
                number = -1
            else:
                only_text = number == shot.number and shot.problem is None
                number = shot.number if shot.problem is None else -1
                found = await asyncio.to_thread(_parts, site, run, request, shot, ("now",) if only_text else PARTS)
                changed = [(name, html) for name, html in found if sent.get(name) != html]
                if changed:
                    sent.update(changed)
                    yield _event(changed, prefix="part-")


def _parts(site: Site, run: SeenRun, request: Request, shot: Shot, names: Iterable[str]) -> list[tuple[str, str]]:
    """The content of parts of run.html. In a thread."""
    told = reading.of_shot(shot)
    name = site.name_of(run)
    return [(part, site.render(f"run/{part}.html", request=request, name=name, run=run, **told)) for part in names]


async def _tab_events(
    site: Site, watching: Watching, run: SeenRun, request: Request, tab: str
) -> AsyncGenerator[str, None]:
    """The content of a page below that of a run, and the state above it, when they have changed."""
    said: dict[str, Any] = {"request": request, "name": site.name_of(run), "status": None}
    asked = RunRequest(site, request, run, await asyncio.to_thread(site.handle, run))
    sent: dict[str, str] = {}
    quiet = time.monotonic()

    def parts() -> list[tuple[str, str]]:
        found = said | TABS[tab].facts(asked)
        return [(part, site.render(f"run/{part}.html", **found)) for part in ("title", tab)]

    async with aclosing(watching.shots(run, TABS[tab].every)) as shots:
        async for shot in shots:
            if isinstance(shot, Shot):
                said["status"] = shot.status
            elif shot is None and not sent:
                continue  # it is still being read
            try:
                if isinstance(shot, SatchelError):
                    raise shot
                found = await asyncio.to_thread(parts)
            except SatchelError as error:
                found = [(tab, await asyncio.to_thread(site.render, "run/unreadable.html", error=error))]
            changed = [(name, html) for name, html in found if sent.get(name) != html]
            if changed:
                sent.update(changed)
                quiet = time.monotonic()
                yield _event(changed, prefix="part-")
                await asyncio.sleep(_REST)
            elif time.monotonic() - quiet >= BEAT:
                quiet = time.monotonic()
                yield _BEAT


def _event(parts: Iterable[tuple[str, str]], prefix: str = "") -> str:
    """One event. The parts have the ids `prefix` and their name."""
    html = "".join(
        f'<hx-partial hx-target="#{prefix}{name}" hx-swap="innerMorph">{text}</hx-partial>' for name, text in parts
    )
    return "".join(f"data: {line}\n" for line in lines(html)) + "\n"


class Stream(StreamingResponse):
    """A stream of events that is among the open ones until it ends."""

    def __init__(self, events: AsyncGenerator[str, None], streams: set[Stream]):
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._streams = streams
        streams.add(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.discard(self)


def _stream(site: Site, streams: set[Stream], events: Callable[[], AsyncGenerator[str, None]]) -> Response:
    if len(streams) >= STREAMS:
        return PlainTextResponse("Too many pages are open", 503, {"retry-after": "10"})
    return Stream(_until_it_stops(site, events()), streams)


async def _until_it_stops(site: Site, events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The events. They end when the server stops, which would otherwise wait for them, and then cut them off."""
    stops = asyncio.ensure_future(site.stopping.wait())
    coming: asyncio.Future[str] | None = None
    try:
        while not stops.done():
            coming = asyncio.ensure_future(anext(events))
            await asyncio.wait((coming, stops), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                try:
                    event = coming.result()
                except StopAsyncIteration:
                    return
                yield event
    finally:
        left = [each for each in (coming, stops) if each is not None]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await events.aclose()
