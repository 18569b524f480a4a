"""A machine is lost: its processes are killed and its folder is gone, at a random moment. Its backup is restored, and a
person answers truthfully, by what the world outside shows."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import warm
from waits import PATIENCE

import satchel
from satchel.workspace.inspect import transfer_file
from satchel.workspace.journal import Doubt
from satchel.workspace.store import DiskStore

ITEMS = 12
AGENT = f"""
import asyncio, os, time
from satchel import agent, effect, step

WORLD = os.environ["WORLD"]

def happens(where, text):
    with open(os.path.join(WORLD, where), "a") as file:
        file.write(text + "\\n")

@step
async def look_up(number: int) -> str:
    happens("steps", f"{{time.time()}} {{number}}")
    await asyncio.sleep(0.03)
    return f"letter {{number}}"

@effect
async def send(text: str) -> str:
    happens("outbox", text)
    await asyncio.sleep(0.02)
    return "sent " + text

async def work(run, item):
    number = int(item.text)
    await send(await look_up(number))
    await send(await look_up(100 + number))

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Letters", [str(number) for number in range({ITEMS})])
    await run.todo.each(work)
"""


class Loss(NamedTuple):
    """What one lost machine has cost."""

    repeated: int  # steps
    age: float  # of the oldest of them when the machine was lost, in seconds
    questions: int
    was_certain: int  # effects that had happened and were asked about


def lose(folder: Path, place: str, seed: int, environment: dict[str, str]) -> Loss:
    """Run until a random moment, lose the machine, restore and finish. AssertionError if an effect happened twice."""
    chance, run, world, again = random.Random(seed), folder / "run", folder / "world", folder / "again"
    for each in (run, world):
        each.mkdir(parents=True)
    (run / "workspace.yaml").write_text(f"format: 1\nrun_id: lost-{seed}\nagent: agent.py:main\nbackup: {place}\n")
    (run / "agent.py").write_text(AGENT)
    (world / "outbox").touch()
    (world / "steps").touch()
    os.environ["WORLD"] = str(world)
    code = f"import satchel\nprint(satchel.run({str(run)!r}))"
    process = warm.Popen([sys.executable, "-c", code], env={**os.environ, **environment, "WORLD": str(world)})
    _wait_for_backup(run)
    until = chance.randrange(2 * ITEMS - 4)
    while process.poll() is None and len((world / "outbox").read_text().splitlines()) < until:
        time.sleep(0.005)
    time.sleep(chance.random() * 0.1)
    if chance.random() < 0.5:
        process.send_signal(signal.SIGKILL)
    at = time.time()
    shutil.rmtree(run, ignore_errors=True)  # the process may be writing there
    process.kill()
    process.wait()
    shutil.rmtree(run, ignore_errors=True)
    satchel.open(place).backup.restore(again)
    questions, was_certain = _finish(again, world / "outbox", chance)
    sent = Counter((world / "outbox").read_text().splitlines())
    assert len(sent) == 2 * ITEMS, f"seed {seed}: effects are missing: {sent}"
    assert set(sent.values()) == {1}, f"seed {seed}: an effect happened twice: {sent}"
    seen: dict[str, float] = {}
    ages = []
    for line in (world / "steps").read_text().splitlines():
        when, number = line.split()
        if number in seen:
            ages.append(at - seen[number])
        seen.setdefault(number, float(when))
    return Loss(len(ages), max(ages, default=0.0), questions, was_certain)


def _wait_for_backup(run: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        note = transfer_file.read_note(DiskStore(run))
        if note is not None and note.state == "following":
            return
        time.sleep(0.01)
    raise AssertionError("no backup follows")


def _finish(folder: Path, outbox: Path, chance: random.Random) -> tuple[int, int]:
    """Run to the end. Its effects come one after the other, so if one has not happened, none after it
    has. Returns how many questions were asked, and of how many the answer was that it has happened."""
    asked = happened = 0
    while (outcome := satchel.run(folder)).status == "waiting":
        handle = satchel.open(folder)
        for each in handle.questions():
            doubt = each.question.asked
            assert isinstance(doubt, Doubt)
            text = doubt.call.partition('"text":"')[2].rstrip('")')
            is_there = text in outbox.read_text().splitlines()
            asked += 1
            happened += is_there
            if is_there:
                handle.answer("done", each.question.id, result=f"sent {text}")
            else:
                handle.answer("redo" if chance.random() < 0.2 else "nothing-was-done", each.question.id)
    assert outcome.status == "completed", outcome
    return asked, happened
