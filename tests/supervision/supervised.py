"""Runs under supervision in processes of their own, and agents that say what becomes of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import warm
from waits import PATIENCE

from satchel.workspace.inspect import lease
from satchel.workspace.store import DiskStore

WAITING = """
import asyncio, os, pathlib
from satchel import agent

@agent
async def main(run):
    pathlib.Path(os.environ.get("SEEN", "seen")).open("a").write(f"{os.getpid()}\\n")
    await asyncio.sleep(1000)
"""

BLOCKING = WAITING.replace("await asyncio.sleep(1000)", "import time; time.sleep(1000)")

BUSY = """
import asyncio, os, pathlib
from satchel import agent, step

@step
async def long():
    pathlib.Path(os.environ.get("SEEN", "seen")).open("a").write(f"{os.getpid()}\\n")
    await asyncio.sleep(1000)

@agent
async def main(run):
    await long()
"""
"""In a step that a stop waits for; the loop lives."""

PARENT = WAITING.replace(
    "await asyncio.sleep(1000)",
    "import subprocess; [subprocess.Popen(['sleep', '1000']) for _ in range(2)]; await asyncio.sleep(1000)",
)

DYING = """
import os, signal
from satchel import agent

@agent
async def main(run):
    os.kill(os.getpid(), signal.SIGKILL)
"""

# The fast policy is for the tests' patience; all else is what `satchel run` does.
_PROGRAM = """
import json, sys
from satchel.runtime.supervision.supervisor import Order, Policy, supervise
from satchel.workspace.store import open_store
folder, timeout, policy = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
words = ["run", "--quiet", "--", folder]
over = supervise(open_store(folder), Order(words, words, timeout), lambda line: print("said:", line, flush=True),
                 Policy(**policy))
print("over:", over.why, flush=True)
sys.exit(over.code)
"""


def make(folder: Path, source: str, extra: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {folder.name}-1\nagent: agent.py:main\n{extra}")
    (folder / "agent.py").write_text(source)
    return folder


def supervise(
    folder: Path, drain_timeout: float | None = None, *, is_cold: bool = False, **policy: float
) -> subprocess.Popen[str]:
    policy = {"first_delay": 0.05, "longest_delay": 0.1, **policy}
    arguments = [str(folder), json.dumps(drain_timeout), json.dumps(policy)]
    return _popen([sys.executable, "-c", _PROGRAM, *arguments], folder, is_cold)


def satchel(folder: Path, *words: object, is_cold: bool = False) -> subprocess.Popen[str]:
    """The command line, in `folder`, which agents write to."""
    return _popen([sys.executable, "-m", "satchel", *map(str, words)], folder, is_cold)


def _popen(command: list[str], folder: Path, is_cold: bool) -> subprocess.Popen[str]:
    return (subprocess.Popen if is_cold else warm.Popen)(
        command,
        cwd=folder,
        env=os.environ | {"SEEN": str(folder / "seen")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def seen(folder: Path) -> list[int]:
    """The processes in which the agent's step has begun."""
    with suppress(FileNotFoundError):
        return [int(line) for line in (folder / "seen").read_text().split()]
    return []


def wait_until(is_so: Callable[[], Any], of: subprocess.Popen[str] | None = None) -> None:
    """Processes and files give no notice here, so this looks again and again."""
    until = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > until or (of is not None and of.poll() is not None and not is_so()):
            raise AssertionError(f"it has never come to that: {'it has ended' if of and of.poll() is not None else ''}")
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    return bool(lease.process_started(pid))


def lease_of(folder: Path) -> lease.Lease:
    held = lease.read(DiskStore(folder))
    assert held is not None
    return held


def session(leader: int) -> set[int]:
    """The living processes of a session."""
    found = set()
    for name in os.listdir("/proc"):
        with suppress(OSError, ValueError):
            if os.getsid(int(name)) == leader and is_alive(int(name)):
                found.add(int(name))
    return found


def clean_up(folders: list[Path], processes: list[subprocess.Popen[str]]) -> None:
    """Kill what a test has started, and only that: the sessions of the processes that have run an agent here."""
    for process in processes:
        process.kill()
    for folder in folders:
        for pid in seen(folder):
            for member in session(pid):
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=PATIENCE)


def journal(folder: Path) -> list[dict[str, Any]]:
    rows = [row for path in sorted(folder.glob("journal/*.jsonl")) for row in path.read_text().splitlines()]
    return [json.loads(row) for row in rows]
