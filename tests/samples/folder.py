"""Makes runs of the sample `digest`, starts them in processes of their own, and kills those."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import warm
from waits import PATIENCE

DIGEST = Path(__file__).parents[2] / "sample_workspaces" / "digest"

_CHILD = """
import json, sys, satchel
outcome = satchel.run(sys.argv[1])
print(json.dumps({"status": outcome.status, "error": str(outcome.error), "recovered": outcome.recovered}))
"""
_DYING_CHILD = """
import os, signal, sys, satchel

class Watch:
    item = 0

    def item_begun(self, agent, text, finished, of):
        self.item = finished + 1

    def streamed(self, agent, name, characters):
        if self.item == int(sys.argv[2]) and characters >= int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)

    def __getattr__(self, name):  # all else there is to be told
        return lambda *facts: None

satchel.run(sys.argv[1], watch=Watch())
"""


def make(folder: Path, **settings: Any) -> Path:
    """A new run in `folder`, with some of the sample's settings changed as a person changes them."""
    shutil.copytree(DIGEST, folder, ignore=shutil.ignore_patterns("__pycache__"))
    change(folder, **settings)
    return folder


def change(folder: Path, **settings: Any) -> None:
    file = folder / "workspace.yaml"
    text = file.read_text()
    for name, value in settings.items():
        text, count = re.subn(rf"(?m)^  {name}: .*$", lambda _, n=name, v=value: f"  {n}: {json.dumps(v)}", text)
        assert count == 1, name
    file.write_text(text)


def start(
    folder: Path, environment: Mapping[str, str] | None = None, child: str = _CHILD, *words: str
) -> subprocess.Popen[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return warm.Popen(
        [sys.executable, "-c", child, folder, *words],
        env={**plain, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
    )


def run_to_end(folder: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    with start(folder, environment) as process:
        said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    outcome: dict[str, Any] = json.loads(said)
    return outcome


def run_and_kill(folder: Path, is_time: Callable[[], bool], environment: Mapping[str, str] | None = None) -> None:
    """Start the run, and send SIGKILL as soon as the files say that it is time."""
    with start(folder, environment) as process:
        wait_until(lambda: is_time() or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"


def run_until_it_dies(folder: Path, item: int, characters: int) -> None:
    """Run, and send SIGKILL at the moment when so much of an item's summary has been written to its `Partial`."""
    with start(folder, None, _DYING_CHILD, str(item), str(characters)) as process:
        process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL


def wait_until(is_so: Callable[[], bool]) -> None:
    """Files give no notice of what becomes of them, so this looks again and again."""
    until = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < until, "it has never come to that"
        time.sleep(0.005)


def partial_of(folder: Path, item: int) -> str:
    """What partials/ holds of an item's summary; nothing if it isn't being written."""
    for path in folder.glob(f"partials/{item}-*/*.md"):
        try:
            return path.read_text().split("\n---\n", 1)[1]
        except FileNotFoundError:
            break  # it has just become a result
    return ""


def summaries(folder: Path) -> dict[str, str]:
    data = json.loads((folder / "state.json").read_text())["data"]
    return {name: summary["text"] for name, summary in data["summaries"].items()}


def brief(folder: Path) -> str:
    return (folder / "outputs" / "brief.md").read_text()


def journal(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.glob("journal/*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def calls_done_twice(folder: Path) -> list[Any]:
    done = Counter(
        (record["scope"], record["step"], record["args"], record["n"])
        for record in journal(folder)
        if record["type"] == "step.completed"
    )
    return [call for call, count in done.items() if count > 1]
