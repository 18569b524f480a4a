"""Small workspaces, and the command line in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import warm
from click.testing import CliRunner, Result
from waits import PATIENCE

from satchel.runtime.cli.group import group

Make = Callable[..., Path]
Cli = Callable[..., Result]

PLAIN = """
from satchel import agent, step

@step
def shout(text: str) -> str:
    return text.upper()

async def work(run, item):
    await run.output(f"{item.id}.txt", await shout(item.text))

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Demo", ["say a", "say b"])
    await run.todo.each(work)
    return {"said": 2}
"""

ASKING = """
from satchel import agent, effect

@effect
def send(text: str) -> str:
    raise TimeoutError("no answer")

async def work(run, item):
    run.state["answer"] = await send(item.text)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["mail the report"])
    await run.todo.each(work)
"""

SLOW = """
import asyncio
from satchel import agent, step, Partial

@step
async def quick(text: str) -> str:
    return text

@step
async def think(text: str, out: Partial) -> str:
    for number in range(len((out.recovered or "").split()), 60):
        await out.write(f"word{number} ")
        if number == 30 and "SLOW" in text:
            await asyncio.sleep(60)
    return out.text

async def work(run, item):
    await quick(item.text)
    await think(item.text)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["first", "second SLOW"])
    await run.todo.each(work)
"""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a workspace of an agent's source."""

    def make(source: str = PLAIN, name: str = "demo", extra: str = "") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "workspace.yaml").write_text(
            f"format: 1\nrun_id: {Path(name).name}-1a2b\nagent: agent.py:main\n{extra}"
        )
        (folder / "agent.py").write_text(source)
        return folder

    return make


@pytest.fixture
def cli() -> Cli:
    """The command line in this process, and a run, too."""

    def call(*words: object, env: dict[str, str] | None = None) -> Result:
        if words[:1] in (("run",), ("resume",)):
            words = (words[0], "--in-process", *words[1:])
        result = CliRunner().invoke(group, [str(word) for word in words], env=env)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        return result

    return call


def data_of(result: Result) -> Any:
    return json.loads(result.stdout)


def satchel(*words: object, is_cold: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "satchel", *map(str, words)]
    run = subprocess.run if is_cold else warm.run
    return run(command, capture_output=True, timeout=60, **{"text": True, **options})


@pytest.fixture
def started() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts `satchel run` of a SLOW workspace, all of it in one process unless it is to be supervised, and returns
    when it is in the middle of its second answer."""
    processes: list[subprocess.Popen[str]] = []

    def start(folder: Path, *options: str, supervised: bool = False) -> subprocess.Popen[str]:
        options = options if supervised else ("--in-process", *options)
        process = warm.Popen(
            [sys.executable, "-m", "satchel", "run", *options, str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        deadline = time.monotonic() + PATIENCE
        while not any(b"word9 " in path.read_bytes() for path in folder.glob("partials/2-*/*.md")):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.02)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, to see that nothing has changed."""
    paths = (Path(above, name) for above, _, names in os.walk(folder) for name in names)
    return {str(path): path.read_bytes() for path in paths if "__pycache__" not in str(path)}
