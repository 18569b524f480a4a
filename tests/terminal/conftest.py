"""The terminal view in this process, over real workspaces: keys go in, and the lines of the screen come out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from cli.conftest import make

pytest.importorskip("textual", reason="`satchel watch` needs textual")

from textual.pilot import Pilot
from waits import PATIENCE

from satchel.runtime.api import Overview
from satchel.runtime.faces.watch import feed
from satchel.runtime.faces.watch.list_screen import WatchApp

__all__ = ["make"]

ASKING = """
from satchel import agent

async def work(run, item):
    answer = await run.ask(f"May I {item.text}?", ["yes", "no"], context={"limit": 250}, wait_for=0)
    run.state[item.id] = answer.decision

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Letters", ["write to Ada", "write to Grace"])
    await run.todo.each(work)
"""

WAITING = """
import asyncio
from pathlib import Path
from satchel import agent, step, Partial

@step
async def think(text: str, out: Partial) -> str:
    await out.write("It was a dark and stormy night. ")
    while not Path(GO).exists():
        await asyncio.sleep(0.01)
    return out.text

async def work(run, item):
    await think(item.text)
    run.messages.add("assistant", f"done with {item.text}")

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Story", ["first chapter", "second chapter"])
    await run.todo.each(work)
"""
"""Streams, and waits in the middle of a step until the file GO is there."""


@pytest.fixture(autouse=True)
def it_looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a run, and soon again at what could not be read: a test waits for what it shows then."""
    monkeypatch.setattr(feed, "_AGAIN", (0.02,))
    monkeypatch.setattr(feed, "_LOOK", feed._SOON)


class Screen:
    """What a person sees, and the keys."""

    def __init__(self, pilot: Pilot[None], app: WatchApp):
        self.pilot, self.app = pilot, app

    @property
    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        await self.pilot.press(*("space" if each == " " else each for each in text))

    async def until(self, *texts: str, gone: str = "") -> str:
        """The screen once it shows all of these, folded or not, and no longer what is to be `gone`."""

        def is_there() -> bool:
            folded = self.text
            seen = f"{folded}\0{folded.replace(chr(10), ' ')}"
            return all(text in seen for text in texts) and not (gone and gone in seen)

        await self.when(is_there, texts)
        return self.text

    async def when(self, holds: Callable[[], bool], what: object = "") -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline, f"not shown: {what}\n{self.text}"
            await self.pilot.pause(0.05)


Watch = Callable[..., AbstractAsyncContextManager[Screen]]


@asynccontextmanager
async def watching(root: Path | str, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Screen]:
    app = WatchApp(Overview(root))
    async with app.run_test(size=size) as pilot:
        yield Screen(pilot, app)


def play(test: Callable[[], object]) -> None:
    """Run an async test."""
    asyncio.run(test())  # type: ignore[arg-type]
