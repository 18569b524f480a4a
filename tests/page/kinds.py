"""Runs of all kinds that a person comes to see on the page, each as an agent of some length leaves it."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import warm
from api.test_needs import conflicting
from waits import PATIENCE

import satchel
from satchel import Item, Partial, Run, agent, step

from .conftest import make
from .hostile import Hostile
from .test_diagnosis import FAILED, SPENDING, damage

TALKING = """
import asyncio, os
from satchel import Partial, Run, agent, effect, step

CITIES = ["Lisbon", "Porto", "Faro", "Coimbra"]

@step
def search(run: Run, query, limit=5):
    return [{"title": f"{query}, part {n}", "score": 0.9 - n / 10} for n in range(limit)]

@step
async def think(run: Run, prompt, out: Partial):
    await out.write(f"# {prompt}\\n\\nThe cheapest train leaves at **7:30**. It takes two hours and 58 minutes.\\n")
    run.spend(tokens=1830, output_tokens=212, usd=0.0213, model="claude-sonnet-4-5")
    return out.text

@effect
async def book(to, seats):
    if HOW == "doubt" and not os.path.exists(BEGUN):
        open(BEGUN, "w").close()
        os._exit(9)
    return {"receipt": f"R-{to}", "seats": seats}

FOUND = '[{"title": "7:30", "euro": 72}]'

def say(run, text):
    run.messages.add("user", f"Find a train to {text}, for four people, below 90 euro.")
    run.messages.add("assistant", [
        {"type": "text", "text": f"I search for trains to **{text}**."},
        {"type": "tool_use", "id": f"t-{text}", "name": "search", "input": {"query": f"trains to {text}", "limit": 5}},
    ])
    run.messages.add("user", [{"type": "tool_result", "tool_use_id": f"t-{text}", "content": FOUND}])

async def work(run, item):
    say(run, item.text)
    await search(query=f"trains to {item.text}")
    text = await think(prompt=f"Compare the trains to {item.text}")
    run.messages.add("assistant", text)
    if HOW == "questions":
        await run.ask(
            f"May I book four seats to {item.text}?",
            tool="book", arguments={"to": item.text, "seats": 4, "euro": 72.5, "note": "by the window"},
            context={"found": "7:30, direct, 72.50 euro", "others": ["9:30, one change", "11:30, full"]}, wait_for=0,
        )
    receipt = await book(to=item.text, seats=4)
    run.state[item.text] = {"train": "7:30", "receipt": receipt["receipt"]}
    table = "| train | euro |\\n| --- | --- |\\n| 7:30 | 72.50 |\\n"
    await run.output(f"{item.text.lower()}.md", f"# {item.text}\\n\\n{table}")

@agent
async def main(run: Run):
    if not run.todo.items:
        await run.plan("Trains for the summer", CITIES)
    await run.todo.each(work, parallel=4 if HOW == "questions" else 1)
    return {"booked": len(CITIES)}
"""

TREE = """
from satchel import Run, agent, step

@step
async def read(text):
    return text.upper()

async def work(run, item):
    run.state[item.text] = await read(item.text)
    run.messages.add("assistant", f"I have read *{item.text}*.")

@agent
async def reader(run: Run, pages: int):
    if not run.todo.items:
        await run.plan("Read", [f"page {n}" for n in range(pages)])
    await run.todo.each(work)
    if pages == 5:
        await run.ask("Is page 4 legible?", ["yes", "no"], wait_for=0)
    return pages

@agent
async def chapter(run: Run, pages: int):
    return [await run.spawn(reader, f"part-{n}", pages=pages + n) for n in range(2)]

@agent
async def main(run: Run):
    for n in range(3):
        await run.spawn(chapter, f"chapter-{n}", pages=n + 2)
"""

MANY = """
from satchel import Run, agent, step

@step
def look(run: Run, number):
    run.spend(tokens=120, usd=0.0004, model="small" if number % 3 else "large")
    return number

async def work(run, item):
    for number in range(STEPS):
        await look(number=number)
    run.state[item.id] = {"seen": STEPS}

@agent
async def main(run: Run):
    if not run.todo.items:
        await run.plan("Look through the archive", [f"Box {n}" for n in range(100)])
    await run.todo.each(work)
"""


def talking(folder: Path, how: str) -> satchel.Handle:
    source = TALKING.replace("BEGUN", repr(str(folder / "begun"))).replace("HOW", repr(how))
    return make(folder, source)


def _dies(folder: Path) -> None:
    """Its process is killed while it books."""
    warm.run([sys.executable, "-m", "satchel", "run", str(folder), "--in-process", "--quiet"], timeout=PATIENCE)


def make_kinds(root: Path, steps: int = 100) -> None:
    """All that are at rest. The one of `many` has some 100 records for each of `steps`."""
    talking(root / "completed", "well").run()
    make(root / "failed", FAILED).run()
    talking(root / "in-doubt", "doubt")
    _dies(root / "in-doubt")
    satchel.open(root / "in-doubt").resume()
    conflicting(root / "conflict")
    talking(root / "waiting", "questions").run()
    make(root / "many", MANY.replace("STEPS", str(steps))).run()
    make(root / "sub-agents", TREE).run()
    make(root / "empty")
    make(root / "damaged", FAILED).run()
    damage(root / "damaged")
    make(root / "moved").move(root.parent / "elsewhere")
    make(root / "budget", SPENDING, "budget: {usd: 5, tokens: 3000}\n").run()
    Hostile(root, 5).make(0)


@contextmanager
def streaming(folder: Path, lines: int = 400) -> Iterator[satchel.Handle]:
    """A run that streams two answers of many lines while the body runs."""
    streamed, go = queue.Queue[str](), threading.Event()

    @step
    async def write(title: str, out: Partial) -> str:
        for number in range(lines):
            await out.write(f"{number}. In {title} the tide was {number % 7} cm higher than the table says.\n")
        streamed.put(title)
        await asyncio.to_thread(go.wait, PATIENCE * 60)
        return out.text

    async def work(run: Run, item: Item) -> None:
        run.messages.add("user", f"Write about {item.text}.")
        run.messages.add("assistant", await write(item.text))

    @agent
    async def main(run: Run) -> None:
        if not run.todo.items:
            await run.plan("Two reports", ["March", "April", "May"])
        await run.todo.each(work, parallel=2)

    handle = make(folder)
    thread = threading.Thread(target=handle.run, args=(main,))
    thread.start()
    try:
        for _ in range(2):
            streamed.get(timeout=PATIENCE)
        yield handle
    finally:
        go.set()
        thread.join(PATIENCE)
