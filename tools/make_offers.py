"""Make the state of the sample `offers` again: a run that was stopped in the middle of its work.

`python tools/make_offers.py` runs the sample's agent until its comparison is half written and the buyer has been asked,
stops it, and puts its state into sample_workspaces/offers. The first argument names another folder. Run it after a
change of formats; tests/samples/test_offers.py says when.

The run says that it was on Ada's laptop, so that the sample contains no name and no path of the real machine.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from satchel import run_async
from satchel.runtime.agent.declaration import load
from satchel.workspace.store import DiskStore

SAMPLE = Path(__file__).parents[1] / "sample_workspaces" / "offers"
HOME, HOST = "/home/ada/runs/offers", "laptop"
REASON = "Ask Fabrikam whether they deliver in two weeks"
WORDS = 15

CODE = ("*.py", "README.md", "workspace.yaml", "prompts")
LEFT_OUT = (".satchel/schemas", ".satchel/lock")  # copies of schemas/, and a file without a content


class OnALaptop(DiskStore):
    @property
    def url(self) -> str:
        return HOME


def make(destination: Path = SAMPLE) -> None:
    """Replace the state of the run in `destination`. The code comes from the sample."""
    socket.gethostname = lambda: HOST
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory() as place:
        for turn in range(_TURNS):
            workspace = Path(place, str(turn), "offers")
            workspace.mkdir(parents=True)
            _copy_code(SAMPLE, workspace)
            if asyncio.run(_stopped_in_time(workspace)):
                break
        else:
            raise SystemExit(f"in {_TURNS} runs the machine did nothing when it was time to stop. Try again")
        for name in LEFT_OUT:
            path = workspace / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if destination.exists():
            for path in destination.iterdir():
                if not _is_code(path):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(workspace, destination, dirs_exist_ok=True)


_TURNS = 5


async def _stopped_in_time(workspace: Path) -> bool:
    """Run it, and stop it. False if its comparison was whole before the stop."""
    agent = load(DiskStore(workspace), "agent.py:offers")
    running = asyncio.create_task(run_async(OnALaptop(workspace), agent))
    await asyncio.to_thread(_stop_in_time, workspace, running)
    outcome = await running
    if outcome.status not in ("paused", "waiting"):
        raise SystemExit(f"the run was to be stopped, and it is {outcome.status}: {outcome.error}")
    return outcome.status == "paused"


def _stop_in_time(workspace: Path, running: asyncio.Task[Any]) -> None:
    while not running.done() and not _is_time(workspace):
        time.sleep(0.01)  # files give no notice
    (workspace / "pause.yaml").write_text(f"reason: {REASON}\nby: ada@{HOST}\n")


def _is_time(workspace: Path) -> bool:
    """The buyer has been asked, and so many words of the comparison are there."""
    partials = [*workspace.glob("partials/*/*.md")]
    asked = (workspace / "approvals" / "a1.yaml").exists()
    return asked and any(len(path.read_text().split("---\n")[-1].split()) >= WORDS for path in partials)


def _is_code(path: Path) -> bool:
    return any(path.match(pattern) for pattern in CODE)


def _copy_code(source: Path, destination: Path) -> None:
    for path in source.iterdir():
        if path.is_dir() and _is_code(path):
            shutil.copytree(path, destination / path.name)
        elif _is_code(path):
            shutil.copy(path, destination)


if __name__ == "__main__":
    make(*map(Path, sys.argv[1:]))
