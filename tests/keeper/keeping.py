"""Runs that are kept, in processes of their own, and agents that ask a model with the SDK of its provider."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import warm
from supervision.supervised import journal, lease_of, wait_until
from waits import PATIENCE

from .provider import Provider

HEAD = """
import os
from satchel import Partial, Retry, Run, agent, step
"""

STREAMED = (
    HEAD
    + """
@step
async def ask(prompt: str, out: Partial) -> str:
    from openai import AsyncOpenAI
    async with AsyncOpenAI() as client:
        prompt = f"{prompt}{out.recovered or ''}"
        messages = [{"role": "user", "content": prompt}]
        stream = await client.chat.completions.create(
            model="gpt-4o-mini", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            if chunk.choices:
                await out.write(chunk.choices[0].delta.content or "")
    return out.text

@agent
async def main(run: Run):
    return await ask("hello")
"""
)
"""Prompts with what was recovered."""

WHOLE = (
    HEAD
    + """
@step
def ask(prompt: str) -> str:
    from openai import OpenAI
    with OpenAI() as client:
        messages = [{"role": "user", "content": prompt}]
        answer = client.chat.completions.create(model="gpt-4o-mini", messages=messages)
    return answer.choices[0].message.content

@agent
async def main(run: Run):
    return await ask("hello")
"""
)


class Kept:
    """A run below a keeper. Its supervisor starts it again at once."""

    def __init__(self, folder: Path, provider: Provider, process: subprocess.Popen[str]):
        self.folder, self.provider, self.process = folder, provider, process

    @property
    def agent(self) -> int:
        """The process that runs the agent."""
        return lease_of(self.folder).pid

    @property
    def keeper(self) -> int:
        return keeper_of(self.process.pid)

    def wait(self, is_so: Any) -> None:
        try:
            wait_until(is_so, self.process)
        except AssertionError as error:
            raise AssertionError(self.said) from error

    def wait_for(self, is_so: Any) -> None:
        """Also if the process that was started has ended."""
        wait_until(is_so)

    def kill(self) -> None:
        """Kill the process of the agent."""
        os.kill(self.agent, signal.SIGKILL)

    def ended(self, code: int = 0) -> str:
        self.process.wait(PATIENCE)
        assert self.process.returncode == code, self.said
        return self.said

    @property
    def said(self) -> str:
        return _said(self.folder).read_text()

    @property
    def result(self) -> Any:
        return json.loads((self.folder / "state.json").read_text())["result"]

    @property
    def status(self) -> str:
        return str(json.loads((self.folder / "state.json").read_text())["status"])

    def records(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in journal(self.folder) if each["type"] == kind]

    @property
    def answers(self) -> list[Path]:
        return sorted(self.folder.glob(".satchel/answers/*"))


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def environ_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in lines if line)


def keeper_of(supervisor: int) -> int:
    """The keeper that a supervisor has started: it leads a session of its own, and its lease names it nowhere."""
    return next(each for each in _all_below(supervisor) if b"--socket" in _words(each) and b"keeper" in _words(each))


def _all_below(pid: int) -> Iterator[int]:
    for each in children(pid):
        yield each
        yield from _all_below(each)


def _words(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def make(folder: Path, source: str, extra: str = "keeper: true\n") -> Path:
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {folder.name}-1\nagent: agent.py:main\n{extra}")
    (folder / "agent.py").write_text(source)
    return folder


@contextmanager
def started(folder: Path, provider: Provider, *words: str, is_cold: bool = True, **more: str) -> Iterator[Kept]:
    """`satchel run`, with the provider's address. Kills what is left of it."""
    with open(_said(folder), "a") as said:
        process = (subprocess.Popen if is_cold else warm.Popen)(
            [sys.executable, "-m", "satchel", "run", *words, str(folder)],
            cwd=folder,
            env={**os.environ, **provider.environment, **more},
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    kept = Kept(folder, provider, process)
    try:
        yield kept
    finally:  # the keeper ends once there is nothing to read
        process.kill()
        process.wait(PATIENCE)
        with suppress(AssertionError, ProcessLookupError):
            os.kill(kept.agent, signal.SIGKILL)


def _said(folder: Path) -> Path:
    return folder.with_suffix(".said")
