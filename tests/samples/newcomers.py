"""Makes runs of the sample `onboarding`, starts them in processes of their own, and looks at what they have done."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import warm
from waits import PATIENCE

from satchel.runtime.launch.templates import typed_settings, with_settings
from satchel.workspace.inspect import lease
from satchel.workspace.store import DiskStore

from .folder import journal

ONBOARDING = Path(__file__).parents[2] / "sample_workspaces" / "onboarding"

_DYING = """
import json, os, signal, sys, satchel
from satchel.workspace.store import DiskStore, Syscalls

class Dying(Syscalls):
    is_begun = False

    def write(self, fd, data):
        kinds = set()
        if data.startswith(b'{"seq"'):  # lines of the journal
            kinds = {line["type"] for line in map(json.loads, data.splitlines()) if line.get("step") == sys.argv[2]}
        if sys.argv[3] == "done" and "step.completed" in kinds:
            os.kill(os.getpid(), signal.SIGKILL)
        super().write(fd, data)
        self.is_begun = sys.argv[3] == "begun" and "step.started" in kinds

    def sync_data(self, fd):
        super().sync_data(fd)
        if self.is_begun:
            os.kill(os.getpid(), signal.SIGKILL)

satchel.run(DiskStore(sys.argv[1], Dying()), wake=True)
"""


def make(folder: Path, port: int, box: Path, *settings: str) -> Path:
    """A new run in `folder`; `settings` as `satchel new --set` takes them."""
    shutil.copytree(ONBOARDING, folder, ignore=shutil.ignore_patterns("__pycache__"))
    chosen = ["wait_for=0", f"mail.port={port}", f"mail.mailbox={box}", *settings]
    change(folder, *chosen)
    return folder


def change(folder: Path, *settings: str) -> None:
    file = folder / "workspace.yaml"
    file.write_text(with_settings(file.read_text(), typed_settings(settings)))


def satchel(*words: object) -> subprocess.CompletedProcess[str]:
    """The command line, to its end."""
    return warm.run(
        [sys.executable, "-m", "satchel", *map(str, words)], capture_output=True, text=True, timeout=PATIENCE
    )


def run_until_it_dies(folder: Path, effect: str, moment: str) -> None:
    """Go on, and send SIGKILL when the intent of an effect is on record (`begun`), or when it is done and that is not
    (`done`)."""
    process = warm.run(
        [sys.executable, "-c", _DYING, folder, effect, moment], capture_output=True, text=True, timeout=PATIENCE
    )
    assert process.returncode == -signal.SIGKILL, f"it has not come to that: {process.stdout}{process.stderr}"


def type_answer(folder: Path, decision: str, by: str = "Grace", note: str = "", id: str = "a1") -> None:
    """As a person does it in an editor: three lines are filled in, all else stays."""
    file = folder / "approvals" / f"{id}.yaml"
    text = file.read_text()
    for key, value in {"decision": decision, "by": by, "note": note}.items():
        text, count = re.subn(rf"(?m)^{key}:.*$", f"{key}: {value}", text)
        assert count == 1, text
    file.write_text(text)


def processes(folder: Path) -> list[int]:
    """Of those that have had the workspace, the living."""
    pids = {record["pid"] for record in journal(folder) if record["type"] == "opened"}
    held = lease.read(DiskStore(folder))
    pids |= {held.supervisor.pid} if held and held.supervisor else set()
    return [pid for pid in pids if lease.process_started(pid)]


def rows(folder: Path, table: str) -> list[tuple[Any, ...]]:
    """The directory's rows, without the keys."""
    with closing(sqlite3.connect(folder / "directory.db")) as database:
        return [row[:-1] for row in database.execute(f"select * from {table}")]


def held_back(folder: Path) -> list[str]:
    """The resources that were opened and not released, of all starts that have come to an end."""
    left: list[str] = []
    held: list[str] = []
    for record in journal(folder):
        if record["type"] == "opened":
            held = []  # of a process that was killed
        elif record["type"] == "resource" and record["event"] == "opened":
            held.append(record["name"])
        elif record["type"] == "resource":
            held.remove(record["name"])  # a ValueError: released, and never opened
        elif record["type"] == "closed":
            left += held
            held = []
    return left
