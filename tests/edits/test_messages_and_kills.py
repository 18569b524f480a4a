"""Real processes, a real SIGKILL, and a person who corrects the conversation of the run while it goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm
from properties import ROUNDS
from waits import PATIENCE

NAME = "messages.jsonl"
ITEMS = 30
AGENT = f"""
import asyncio
from satchel import Item, Run, agent

async def talk(run: Run, item: Item) -> None:
    run.messages.add("user", item.text)
    await asyncio.sleep(0.02)
    run.messages.add("assistant", f"re {{item.text}}")

@agent
async def main(run: Run) -> None:
    if not run.todo.items:
        await run.plan(None, [f"item {{number}}" for number in range({ITEMS})])
    await run.todo.each(talk)
"""


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("part", range(2 * ROUNDS))
def test_every_correction_outlives_the_kills(tmp_path: Path, part: int) -> None:
    seed = int(os.environ.get("SATCHEL_SEED") or 1) + part
    print(f"seed {seed}")
    rng, folder = random.Random(seed), tmp_path / "w"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: talk\nagent: agent.py:main\n")
    (folder / "agent.py").write_text(AGENT)
    said = {f"{again}item {number}" for number in range(ITEMS) for again in ("", "re ")}
    for turn in range(4):
        process = warm.Popen(  # without a supervisor: its child would live for a moment after it
            [sys.executable, "-m", "satchel", "run", str(folder), "--quiet", "--in-process"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _until(process, lambda least=4 * (turn + 1): len(_lines(folder)) >= least)
            lines = _lines(folder)
            place = rng.randrange(1, len(lines) - 2)
            how, text = rng.choice(["change", "remove", "insert"]), f"correction {turn}"
            if "seq" not in lines[place] or "correction" in str(lines[place]["content"]):
                how = "insert"
            if how == "insert":
                lines.insert(place, {"role": "system", "content": text})
            else:
                said.discard(str(lines[place]["content"]))
                lines[place : place + 1] = [lines[place] | {"content": text}] if how == "change" else []
            said |= {text} if how != "remove" else set()
            (folder / "new").write_text("".join(json.dumps(line) + "\n" for line in lines))
            (folder / "new").rename(folder / NAME)
            size = _journal(folder) + rng.randrange(6000)
            _until(process, lambda least=size: _journal(folder) >= least)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    done = warm.run([sys.executable, "-m", "satchel", "run", str(folder), "--quiet"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [str(line["content"]) for line in _lines(folder)]
    assert sorted(found) == sorted(said), done.stderr
    numbers = [int(text.rpartition(" ")[2]) for text in found if "correction" not in text]
    assert numbers == sorted(numbers) and not [*folder.glob("*rejected*")]


def _lines(folder: Path) -> list[dict[str, object]]:
    try:
        rows = (folder / NAME).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [json.loads(row) for row in rows[:-1]]


def _journal(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("journal/*.jsonl"))


def _until(process: subprocess.Popen[bytes], is_so: object) -> None:
    """Or until the process has ended."""
    give_up = time.monotonic() + PATIENCE
    while process.poll() is None and not is_so():  # type: ignore[operator]
        assert time.monotonic() < give_up
        time.sleep(0.005)
