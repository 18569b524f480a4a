"""The server of docs/own-agent.md under real uvicorn: SIGTERM in the middle of two runs loses nothing."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers import free_ports
from waits import PATIENCE

import satchel

PAGE = (Path(__file__).parents[2] / "docs/own-agent.md").read_text()
FILES = dict(re.findall(r"^```\w+ +([\w./-]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
(COMMAND,) = re.findall(r"`uvicorn (app:app [^`]*)`", PAGE)


class Model:
    """The page's model behind HTTP. Keeps back the middle of a run, until `go`."""

    def __init__(self, answer: Any):
        self.asked: queue.Queue[int] = queue.Queue()  # tools that had been called before each request
        self.go = threading.Event()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                found = answer(httpx.Request("POST", "http://model", content=body))
                called = sum(each["role"] == "tool" for each in json.loads(body)["messages"])
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                model.asked.put(called)
                if called == 2:
                    assert model.go.wait(PATIENCE)
                self.wfile.write(found.content)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    async def requests(self, count: int) -> list[int]:
        """The next `count`, once they have come."""
        return [await asyncio.to_thread(self.asked.get, True, PATIENCE) for _ in range(count)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the page's files."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.replace("BEAT = 15 ", "BEAT = 0.2 "))
    return tmp_path


@contextmanager
def serving_model(place: Path) -> Iterator[Model]:
    """The page's agent asks it as a real one, over HTTP."""
    path = place / "chat/model.py"
    model = Model(runpy.run_path(str(path))["answer"])
    path.write_text("from openai import AsyncOpenAI\n\nclient = AsyncOpenAI(max_retries=0)\n")
    thread = threading.Thread(target=model.server.serve_forever)
    thread.start()
    try:
        yield model
    finally:
        model.go.set()
        model.server.shutdown()
        thread.join(PATIENCE)
        model.server.server_close()


class Web:
    """uvicorn, in a process of its own."""

    def __init__(self, place: Path, model: Model):
        (port,) = free_ports(1)
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": f"http://127.0.0.1:{model.server.server_port}",
            "OPENAI_API_KEY": "none",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *COMMAND.split(), "--port", str(port)],
            cwd=place,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)

    async def says(self, text: str) -> None:
        """Wait until it has logged this."""
        assert self.process.stderr
        while not (self.log and text in self.log[-1]):
            line = await asyncio.to_thread(self.process.stderr.readline)
            assert line, "".join(self.log)
            self.log.append(line)

    async def ends(self) -> str:
        """SIGTERM has been sent: wait for a clean end. Returns the log."""
        await self.says("Application shutdown complete")
        _, rest = await asyncio.to_thread(self.process.communicate, None, PATIENCE)
        assert self.process.returncode == -signal.SIGTERM, rest  # uvicorn raises it again at its end
        return "".join(self.log) + rest


@asynccontextmanager
async def serving(place: Path, model: Model) -> AsyncIterator[Web]:
    web = Web(place, model)
    try:
        await web.says("Uvicorn running on")
        yield web
    finally:
        await web.client.aclose()
        if web.process.poll() is None:
            web.process.kill()
            web.process.wait(PATIENCE)
        assert web.process.stderr
        web.process.stderr.close()


class Browser:
    """Follows one run as an EventSource does: across connections, with the id of the last event."""

    def __init__(self, name: str):
        self.name, self.last = name, 0
        self.events: list[dict[str, Any]] = []

    async def follows(self, web: Web) -> AsyncIterator[str]:
        """The types of the events, and "beat", until the stream ends or is cut."""
        headers = {"Last-Event-ID": str(self.last)}
        with suppress(httpx.RemoteProtocolError):
            async with web.client.stream("GET", f"/runs/{self.name}/events", headers=headers) as response:
                assert response.status_code == 200
                async for line in response.aiter_lines():
                    if line.startswith("id: "):
                        self.last = int(line[4:])
                    elif line.startswith("data: "):
                        self.events.append(json.loads(line[6:]))
                        yield self.events[-1]["type"]
                    elif line.startswith(":"):
                        yield "beat"

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


async def until(stream: AsyncIterator[str], kind: str) -> None:
    async for found in stream:
        if found == kind:
            return
    raise AssertionError(f"the stream has ended before {kind}")


async def until_asked_to_pause(folder: Path) -> None:
    async for event in satchel.open(folder).events(follow=True):
        if isinstance(event, satchel.events.PauseRequested):
            return


@pytest.mark.slow
def test_a_sigterm_loses_something_of_two_runs(place: Path) -> None:
    with serving_model(place) as model:
        asyncio.run(asyncio.wait_for(play(place, model), 4 * PATIENCE))


@pytest.mark.slow
def test_a_kill_loses_a_request_that_was_answered(place: Path) -> None:
    with serving_model(place) as model:
        model.go.set()
        asyncio.run(asyncio.wait_for(kill(place, model), 4 * PATIENCE))


async def kill(place: Path, model: Model) -> None:
    async with serving(place, model) as web:
        names = [(await web.client.post("/runs")).raise_for_status().json() for _ in range(3)]
        web.process.kill()
    async with serving(place, model) as web:
        for name in names:
            await until(Browser(name).follows(web), "Asked")


async def play(place: Path, model: Model) -> None:
    async with serving(place, model) as web:
        browsers = [Browser((await web.client.post("/runs")).json()) for _ in range(2)]
        folders = [place / "runs" / each.name for each in browsers]
        assert sorted(await model.requests(4)) == [0, 0, 2, 2]
        streams = [each.follows(web) for each in browsers]
        for stream in streams:
            await until(stream, "StepFailed")
            await until(stream, "beat")
        web.process.send_signal(signal.SIGTERM)
        for stream in streams:
            assert [kind async for kind in stream if kind == "RunStopped"] == [], "it is cut while the run works"
        await asyncio.gather(*map(until_asked_to_pause, folders))
        assert web.process.poll() is None, "it waits for the steps"
        model.go.set()
        await web.ends()
    for folder in folders:
        assert satchel.open(folder).status().state == "paused"

    async with serving(place, model) as web:
        for each in browsers:
            stream = each.follows(web)
            await until(stream, "Asked")
            (await web.client.post(f"/runs/{each.name}/answers", json="approve")).raise_for_status()
            assert [kind async for kind in stream][-1] == "RunStopped"
        web.process.send_signal(signal.SIGTERM)
        assert "ERROR" not in await web.ends()
    assert sorted(await model.requests(2)) == [3, 3] and model.asked.empty(), "a step was repeated"
    for folder, browser in zip(folders, browsers, strict=True):
        result = satchel.open(folder).result
        assert result.status == "completed"
        assert result.returned == "error: no station in Oslo; sun; a flight to Rome is booked "
        recorded = [event.seq async for event in satchel.open(folder).events()]
        assert [event["seq"] for event in browser.events if event["type"] != "Tokens"] == recorded
        done = [event["step"] for event in browser.of("StepCompleted")]
        assert sorted(done) == ["book", "think", "think", "think", "weather"], done
