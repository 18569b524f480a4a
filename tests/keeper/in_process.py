"""Runs in the process of the test, below a keeper in a thread."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import warm
from supervision.supervised import journal
from waits import PATIENCE

import satchel
from satchel.runtime.keeper import addresses, proxy

from .provider import Provider

SECRET = b"s" * 32


@contextmanager
def keeping(provider: Provider) -> Iterator[str]:
    """A keeper in a thread. Returns its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with proxy.Keeper(SECRET, addresses.real(provider.environment)).serving(listener):
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


class Below:
    """Runs below the keeper of a provider."""

    def __init__(self, base: str, provider: Provider, environ: pytest.MonkeyPatch):
        self._base, self.provider, self._environ = base, provider, environ

    def run(self, place: Path | str) -> satchel.Outcome:
        self._lead(place)
        return satchel.run(place)

    def crash(self, place: Path | str) -> None:
        """Run it in a process of its own, which its agent ends."""
        self._lead(place)
        done = warm.run([sys.executable, "-m", "satchel", "run", "--in-process", str(place)])
        assert done.returncode == 9

    @contextmanager
    def another(self) -> Iterator[Below]:
        """Below another keeper."""
        with keeping(self.provider) as base:
            yield Below(base, self.provider, self._environ)

    def _lead(self, place: Path | str) -> None:
        for name, value in self.provider.environment.items():
            self._environ.setenv(name, value)
        providers = addresses.real(self.provider.environment)
        for name, value in addresses.environment(self._base, SECRET, str(place), providers).items():
            self._environ.setenv(name, value)


@contextmanager
def below(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Below]:
    with provider.running(), keeping(provider) as base:
        yield Below(base, provider, monkeypatch)


def of_kind(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [each for each in journal(folder) if each["type"] == kind]


def until(is_so: Callable[[], object]) -> None:
    """The keeper writes a moment after the agent has the answer, and tells nobody."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def kept(folder: Path) -> list[Path]:
    return [*folder.glob(".satchel/answers/*.answer")]


ASK = """
from openai import OpenAI

def say(prompt: str, client: OpenAI, **more) -> str:
    messages = [{"role": "user", "content": prompt}]
    return client.chat.completions.create(model="gpt-4o-mini", messages=messages, **more).choices[0].message.content
"""
