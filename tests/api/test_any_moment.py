"""The state at any record of random histories, compared with a replay of the journal that shares no code with Satchel.

A history has items that change the state and fail at random, sub-agents, edits of a person, returns to earlier records,
and many openings.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make
from properties import seed

import satchel
from satchel import Item, Run, agent, step
from satchel.runtime.api import Handle

HISTORIES, POSITIONS = 3, 20
TURNS = 7

Told = dict[str, tuple[Any, str]]
"""By the path of an agent: its data, and the text of its plan."""


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Every record from the first one, straight from the files."""
    return [
        json.loads(row) for path in sorted((folder / "journal").iterdir()) for row in path.read_bytes().splitlines()
    ]


def replayed(rows: list[dict[str, Any]], seq: int) -> Told:
    """The tree right after record `seq`."""
    told: Told = {"": (None, "")}
    for row in rows[:seq]:
        path = row.get("agent", "")
        if row["type"] == "rewound":
            for each, was in row["agents"].items():
                told[each] = was.get("data"), was.get("plan", {}).get("text", "")
            continue
        if row["type"] == "agent.begun":
            told.setdefault(path, (None, ""))
        if row.get("file") == "workspace.yaml" or not {"patch", "plan"} & row.keys():
            continue
        data, plan = told[path]
        for change in row.get("patch", []):
            data = changed(data, change)
        for line, removed, text in row.get("plan", []):
            lines = plan.splitlines(keepends=True)
            plan = "".join([*lines[:line], text, *lines[line + removed :]])
        told[path] = data, plan
    return told


def changed(data: Any, change: dict[str, Any]) -> Any:
    """A copy of `data` with one operation of a JSON patch."""
    if not change["path"]:
        return change["value"]
    data = json.loads(json.dumps(data))
    *above, last = [part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")[1:]]
    target = data
    for part in above:
        target = target[int(part)] if isinstance(target, list) else target[part]
    if isinstance(target, list):
        place = len(target) if last == "-" else int(last)
        end = place if change["op"] == "add" else place + 1
        target[place:end] = [] if change["op"] == "remove" else [change["value"]]
    elif change["op"] == "remove":
        del target[last]
    else:
        target[last] = change["value"]
    return data


def wandering(chance: random.Random) -> Any:
    """An agent whose items do something random, and fail now and then."""

    @step
    async def roll(text: str) -> int:
        return chance.randrange(1000)

    async def work(run: Run[Any], item: Item) -> None:
        number = await roll(item.text)
        change(run.state, number)
        if chance.random() < 0.2:
            raise RuntimeError("it fails")
        if chance.random() < 0.3:
            await run.todo.add(f"more {number}", after=item)

    @agent
    async def child(run: Run[Any]) -> int:
        if not run.todo.items:
            await run.plan(None, ["dig", "dive"])
        await run.todo.each(work)
        return len(run.state)

    async def spawning(run: Run[Any], item: Item) -> None:
        await work(run, item)
        if item.text.startswith("ask"):
            run.state["asked"] = await run.spawn(child, item.text.replace(" ", "-"))

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan("Wander", ["go", "ask one", "rest", "ask two", "end"])
        await run.todo.each(spawning)

    def change(state: Any, number: int) -> None:
        key = f"k/{number % 4}~"
        match number % 5:
            case 0:
                state[key] = {"deep": [number, {"n": number}], "null": None}
            case 1:
                state.pop(key, None)
            case 2:
                state["list"] = [*state.get("list", []), number]
            case 3:
                state["list"] = state.get("list", [])[1:]
            case _:
                state[key] = number / 7

    return main


def edit(folder: Path, chance: random.Random) -> None:
    """What a person does between two starts."""
    files = [
        path for name in ("state.json", "todo.md") for path in folder.rglob(name) if "checkpoints" not in path.parts
    ]
    path = chance.choice(files)
    text = path.read_text()
    if path.name == "state.json":
        said = json.loads(text)
        if isinstance(said.get("data"), dict):
            said["data"][chance.choice(["person", "list", "k/1~"])] = chance.choice([[1, 2], {"by": "hand"}, 7])
            path.write_text(json.dumps(said, indent=2))
        return
    lines = text.splitlines(keepends=True)
    done = [at for at, line in enumerate(lines) if line.startswith("- [x]")]
    if done and chance.random() < 0.5:
        at = chance.choice(done)
        lines[at] = lines[at].replace("[x]", "[ ]", 1)
    else:
        first = next((at for at, line in enumerate(lines) if line.startswith("- [")), 0)
        lines.insert(first, f"- [ ] by hand {chance.randrange(100)}\n")
    path.write_text("".join(lines))


def live(handle: Handle, chance: random.Random) -> None:
    """The history of one run, with several openings."""
    main = wandering(chance)
    handle.run(main)
    for _ in range(TURNS):
        match chance.randrange(3):
            case 0:
                handle.history.rewind(to=chance.randrange(1, handle.history.show().seq))
            case _:
                edit(Path(handle.url), chance)
        if handle.resume(main).status not in ("completed", "failed", "paused"):
            handle.merge("theirs")


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, HISTORIES))]
)
def test_a_moment_is_not_what_the_records_add_up_to(make: Make, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("satchel.runtime.engine.session._WAITS", (0.0,))
    chance = random.Random(seed() + number)
    folder = make()
    handle = satchel.open(folder)
    live(handle, chance)
    rows, newest = rows_of(folder), handle.history.show().newest
    positions = [chance.randrange(1, newest + 1) for _ in range(POSITIONS)]
    for seq in positions:
        shown = {each.path: (each.data, each.plan) for each in handle.history.show(seq).agents}
        assert shown == replayed(rows, seq), f"record {seq} of {newest}"
    for old, new in zip(positions[::4], positions[1::4], strict=True):
        found, (was, now) = handle.history.diff(old, new), (replayed(rows, seq) for seq in (old, new))
        paths = {change.agent for change in (*found.data, *found.plans)}
        every = {*was, *now}
        assert paths == {path for path in every if was.get(path, (None, "")) != now.get(path, (None, ""))}
