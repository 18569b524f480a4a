"""The two sides of the hammer, each a process of its own: a run of a long plan, and an editor that never rests.

`main("run", FOLDER)` runs the agent; `main("edit", FOLDER, SEED, COUNT)` makes the edits and notes each, once it is
saved, in saved.log next to the folder. They know nothing of each other but the files, as with any editor.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from satchel import Item, Run, agent, effect, run, step

INTRO = "# A long plan\t \n\nWords *before* the items, with a trailing space. \n\n<!-- a remark -->\n\n"
OUTRO = "\n## After them\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n```\n- [ ] not an item\n```\n"


def plan(count: int) -> str:
    """As the person has written it. Each item has an id, so that its text may be corrected."""
    items = "".join(f"- [ ] Task {number} ^t{number}\n" for number in range(1, count + 1))
    return INTRO + items + OUTRO


# The run


def main_of(folder: Path) -> Any:
    """Takes about as long as the editor, and is done once there is nothing more to do and no more to come."""
    log = os.open(folder.parent / "done.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    rng = random.Random(0)

    def is_over() -> bool:
        return (folder.parent / "saved.all").exists()

    async def act_on(what: str) -> str:
        os.write(log, f"{what}\n".encode())
        await asyncio.sleep(0.001)
        return what

    @step
    async def look(id: str) -> str:
        return await act_on(f"step {id}")

    @effect
    async def do(id: str) -> str:
        return await act_on(f"effect {id}")

    async def work(run: Run[dict[str, Any]], item: Item) -> str:
        await look(item.id)
        await asyncio.sleep(0.0 if is_over() else rng.uniform(0, 0.1))  # where it may be stopped
        await do(item.id)
        run.state[item.id] = True
        return item.id

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        await run.todo.each(work)
        while not is_over():
            await asyncio.sleep(0.01)
            await run.todo.each(work)

    return main


# The editor

Change = Callable[[str], str]


class Editor:
    """Reads a file, changes what it has read, sometimes after a while, and saves it. It locks nothing."""

    def __init__(self, folder: Path, seed: int, count: int):
        self.folder, self.rng, self.count = folder, random.Random(seed), count
        self.unworded = re.findall(r" \^(t\d+)$", (folder / "todo.md").read_text(), flags=re.MULTILINE)
        self.saves = [truncated, in_pieces, renamed, with_backup, in_place]

    def work(self) -> None:
        log = os.open(self.folder.parent / "saved.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number in range(self.count):
            kind, word = self.edit(number)
            os.write(log, f"{kind} {word}\n".encode())
            if self.rng.random() < 0.04:
                time.sleep(self.rng.uniform(0.4, 0.9))  # time for the run to take what there is
            else:
                time.sleep(self.rng.choice((0.0, 0.0, 0.005, 0.02)))
        (self.folder.parent / "saved.all").touch()

    def edit(self, number: int) -> tuple[str, str]:
        rng = self.rng
        kind = rng.choice(("remark", "item", "note", "reword", "data", "data", "append", "shell"))
        if kind == "reword" and not self.unworded:
            kind = "remark"
        word = f"E{number}E"
        if kind == "data":
            self.save("state.json", lambda text: with_data(text, word, number))
        elif kind == "reword":
            id = self.unworded.pop(rng.randrange(len(self.unworded)))
            self.save("todo.md", lambda text: reworded(text, id, f"Task {word}"))
            word += f" {id}"
        elif kind == "shell":
            with open(self.folder / "todo.md", "a") as file:
                file.write(f"- [ ] Extra {word}\n" if number % 2 else f"### Remark {word} of a person  \n")
            kind = "item" if number % 2 else "remark"
        elif kind == "append":
            self.save("todo.md", lambda text: f"{text}- [ ] Extra {word}\n")
            kind = "item"
        else:
            line = {
                "remark": f"### Remark {word} of a person  \n",
                "item": f"- [ ] Extra {word}\n",
                "note": f"  - a note, {word}\n",
            }[kind]
            self.save("todo.md", lambda text: self.inserted(text, line, after_item=kind != "remark"))
        return kind, word

    def inserted(self, text: str, line: str, *, after_item: bool) -> str:
        lines = text.splitlines(keepends=True)
        first = INTRO.count("\n")
        places = [
            number
            for number, each in enumerate(lines)
            if number > first and (each.startswith("- [") or not after_item) and "|" not in each
        ]
        fence = next((number for number, each in enumerate(lines) if each.startswith("```")), len(lines))
        table = next((number for number, each in enumerate(lines) if each.startswith("| a")), fence) - 2
        place = self.rng.choice([each for each in places if each < table])
        return "".join([*lines[: place + 1], line, *lines[place + 1 :]])

    def save(self, name: str, change: Change) -> None:
        save = self.rng.choice(self.saves)
        pause = self.rng.uniform(0.02, 0.3) if self.rng.random() < 0.1 else 0.0
        save(self.folder / name, change, pause, self.rng)


def with_data(text: str, key: str, value: int) -> str:
    state = json.loads(text)
    state["data"] = {**(state["data"] or {}), key: value}
    return json.dumps(state, indent=2) + "\n"


def reworded(text: str, id: str, words: str) -> str:
    changed, times = re.subn(rf"^(- \[.\]) .* \^{id}$", rf"\1 {words} ^{id}", text, flags=re.MULTILINE)
    assert times == 1, (id, text)
    return changed


Save = Callable[[Path, Change, float, random.Random], None]


def _read_and_change(path: Path, change: Change, pause: float) -> bytes:
    data = change(path.read_bytes().decode()).encode()
    time.sleep(pause)
    return data


def truncated(path: Path, change: Change, pause: float, rng: random.Random) -> None:
    path.write_bytes(_read_and_change(path, change, pause))


def in_pieces(path: Path, change: Change, pause: float, rng: random.Random) -> None:
    data = _read_and_change(path, change, pause)
    with path.open("wb", buffering=0) as file:
        size = len(data) // rng.randrange(2, 6) + 1
        for start in range(0, len(data), size):
            file.write(data[start : start + size])
            time.sleep(rng.choice((0.0, 0.001, 0.01)))


def renamed(path: Path, change: Change, pause: float, rng: random.Random) -> None:
    data = _read_and_change(path, change, pause)
    new = path.with_name(f".{path.name}.swp")
    new.write_bytes(data)
    new.replace(path)


def with_backup(path: Path, change: Change, pause: float, rng: random.Random) -> None:
    """As vim does: the old file gets another name, and a new one is written."""
    data = _read_and_change(path, change, pause)
    backup = path.with_name(f"{path.name}~")
    path.rename(backup)
    time.sleep(rng.choice((0.0, 0.0, 0.002)))
    path.write_bytes(data)
    backup.unlink()


def in_place(path: Path, change: Change, pause: float, rng: random.Random) -> None:
    with path.open("r+b", buffering=0) as file:
        data = change(file.read().decode()).encode()
        time.sleep(pause)
        file.seek(0)
        file.write(data)
        file.truncate()


def main(what: str, place: str, *numbers: str) -> None:
    folder = Path(place)
    if what == "edit":
        seed, count = map(int, numbers)
        Editor(folder, seed, count).work()
        return
    outcome = run(folder, main_of(folder))
    print(outcome.status, outcome.error, *outcome.noticed[-3:], sep="\n")
    sys.exit(0 if outcome.status == "completed" else 1)
