"""A run of items in parallel for which everything goes wrong, and the rules that hold anyway.

`main(FOLDER, SEED)` is the process of the run. It is killed and started again, while a `Person` edits the files. What
an item does follows from the seed and its name, so that `check` can do the same items one after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from waits import NOBODY_SAVES

from satchel import InboxTask, Item, NotDone, Run, agent, effect, run, step
from satchel import open as opened
from satchel.runtime.engine import session
from satchel.workspace import journal
from satchel.workspace.base import Conflicting
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import Edited, ScopeCommitted, StepStarted
from satchel.workspace.state import json_patch
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import DiskStore
from satchel.workspace.views import guarded_files

ITEMS = 12
_KINDS = ("drop", "drop", "two", "remove", "reword", "add", "add", "revive", "revive", "data", "task")
_ROOT = ""

State = dict[str, Any]


def name_of(title: str) -> str:
    """People reword items; the first word stays. For a task, its file without the ending."""
    return title.split()[0].removesuffix(".md")


class Program:
    """What an item does."""

    def __init__(self, seed: int, name: str):
        self.name, self.rng = name, random.Random(f"{seed} {name}")
        rng = self.rng
        self.calls = [rng.choice(("step", "effect", "effect", "sleep")) for _ in range(rng.randrange(6))]
        self.pauses = [rng.choice((0.0, 0.002, 0.02, 0.1)) for _ in self.calls]
        self.changes = rng.sample(("n", "said", "by", "last", "deep", "moved"), rng.randrange(1, 4))
        self.failures = rng.choice((0, 0, 0, 1, 2))
        self.is_child = name.startswith("child")
        self.plan = "" if self.is_child else rng.choice(("", "", "add", "twice", "cancel", "note", "under", "itself"))

    def change(self, data: State) -> None:
        """Each value that it writes depends only on the same value as it was, and is another one."""
        for what in self.changes:
            if what == "n":
                data["n"] = data.get("n", 0) + 1
            elif what == "said":
                data["said"].append(self.name)
            elif what == "by":
                data["by"][self.name] = {"times": data["by"].get(self.name, {}).get("times", 0) + 1}
            elif what == "last":  # a new container in place of the old one
                data["last"] = {} if data["last"] else {self.name: True}
            elif what == "deep":
                data["deep"]["by"][self.name] = True
            else:
                data["deep"] = {"by": dict(data["deep"]["by"]), "moved": data["deep"].get("moved", 0) + 1}
        data["said"].append("x")
        data["said"].pop()
        data["done"].append(self.name)


def effects_of(folder: Path) -> list[str]:
    """What has really happened."""
    log = folder.parent / "effects.log"
    return log.read_text().splitlines() if log.exists() else []


def begin(data: State) -> None:
    data.update(n=0, said=[], by={}, last={}, deep={"by": {}}, done=[])


def agent_of(folder: Path, seed: int) -> Any:
    outside = folder.parent
    log = os.open(outside / "effects.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def find(name: str, number: int) -> str:
        if f"{name} {number}" not in effects_of(folder):
            raise NotDone
        return name

    @effect(verify=find)
    async def act(name: str, number: int) -> str:
        await asyncio.sleep(0.002)
        os.write(log, f"{name} {number}\n".encode())
        await asyncio.sleep(0.002)
        return name

    @step
    async def read(name: str, number: int) -> str:
        await asyncio.sleep(0.003)
        return name

    async def change_plan(run: Run[State], item: Item, program: Program) -> None:
        items = run.todo.items
        others = [task for task in items if task.mark in ("open", "begun") and task.id != item.id and not task.children]
        near = program.rng.choice(others) if others else None
        match program.plan:
            case "add":
                await run.todo.add(f"child-of-{program.name}", after=near)
            case "twice":
                await run.todo.add(f"child-of-{program.name} twice")
                await run.todo.add(f"child-of-{program.name} twice")
                mine = [task for task in run.todo.items if task.text == f"child-of-{program.name} twice"]
                await run.todo.cancel(mine[-1])
            case "cancel" if near:
                await run.todo.cancel(near)
            case "note" if near:
                await run.todo.note(near, "a note of an item")
            case "under" if near:
                await run.todo.add(f"child-under-{program.name}", under=near)
            case "itself":
                await run.todo.add(f"child-in-{program.name}", under=item.id)

    async def work(run: Run[State], item: Item | InboxTask) -> str:
        program = Program(seed, name_of(item.text if isinstance(item, Item) else item.name))
        for number, (call, pause) in enumerate(zip(program.calls, program.pauses, strict=True)):
            await asyncio.sleep(pause)
            if call == "sleep":
                await run.sleep(0.01)
            else:
                await (act if call == "effect" else read)(program.name, number)
        failed = outside / f"failed-{program.name}"
        times = len(failed.read_text()) if failed.exists() else 0
        if times < program.failures:
            failed.write_text("x" * (times + 1))
            raise ConnectionError("for now")
        if isinstance(item, Item):
            await change_plan(run, item, program)
        program.change(run.state)
        return program.name

    async def first(run: Run[State]) -> None:
        begin(run.state)

    @agent
    async def main(run: Run[State]) -> None:
        await run.scope("begin", first, run)
        if not run.todo.items:
            await run.plan("Work", [f"i{number} of many" for number in range(ITEMS)])
        await run.todo.each(work, parallel=3)
        await run.inbox.each(work, parallel=3)

    return main


def main(folder: str, seed: str) -> None:
    guarded_files.WAITS = NOBODY_SAVES
    session._WAITS = (0.001,)  # type: ignore[assignment]
    try:
        outcome = run(Path(folder), agent_of(Path(folder), int(seed)), wake=True)
    except Conflicting as error:
        print(error)
        sys.exit(3)
    print(outcome.status, repr(outcome.error))
    if outcome.status == "paused":
        print((Path(folder) / "pause.yaml").read_text())
    sys.exit({"completed": 0, "paused": 3, "waiting": 4}.get(outcome.status, 1))


class Person:
    """Saves at random moments what a person might: each file as a whole, under its name."""

    def __init__(self, folder: Path, rng: random.Random):
        self.folder, self.rng, self.saves = folder, rng, 0

    def act(self) -> None:
        self.saves += 1
        kind = self.rng.choice(_KINDS)
        try:
            if kind == "data":
                whole = json.loads((self.folder / "state.json").read_text())
                if not whole["data"]:
                    return
                whole["data"][f"mine-{self.saves}"] = self.saves
                self._save("state.json", json.dumps(whole, indent=2))
            elif kind == "task":
                self._save(f"inbox/t{self.saves}.md", f"a task {self.saves}\n")
            else:
                text = (self.folder / "todo.md").read_text()
                self._save("todo.md", "".join(self._changed(text.splitlines(keepends=True), kind)))
        except FileNotFoundError:
            return

    def answer(self) -> None:
        """An item was dropped, and a kill has left one of its effects in doubt."""
        for id, doubt in look(DiskStore(self.folder)).moment.doubts.items():
            name, number = json.loads("{" + doubt.call[1:-1] + "}").values()
            is_done = f"{name} {number}" in effects_of(self.folder)
            opened(str(self.folder)).answer("done" if is_done else "redo", id, result=name if is_done else None)

    def _changed(self, lines: list[str], kind: str) -> Iterator[str]:
        rng = self.rng
        left = [number for number, line in enumerate(lines) if line.lstrip().startswith(("- [ ]", "- [/]"))]
        dropped = [number for number, line in enumerate(lines) if line.startswith("- [-]")]
        picked = set(rng.sample(left, min(len(left), 2 if kind == "two" else 1)))
        for number, line in enumerate(lines):
            if kind == "revive" and number in dropped[-1:]:
                yield line.replace("- [-]", "- [ ]", 1)
            elif number not in picked or kind == "revive":
                yield line
            elif kind in ("drop", "two"):
                yield line.replace("- [ ]", "- [-]", 1).replace("- [/]", "- [-]", 1)
            elif kind == "remove":
                continue
            elif kind == "reword":
                head, mark, rest = line.partition("] ")
                name, _, _ = rest.partition(" ")
                id = f" ^{rest.rpartition(' ^')[2].strip()}" if " ^" in rest else ""
                yield f"{head}{mark}{name.strip()} reworded {self.saves}{id}\n"
            else:
                yield f"- [ ] mine-{self.saves} of a person\n{line}" if line.startswith("-") else line

    def _save(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(text)
        new.replace(path)


def check(folder: Path, seed: int) -> str:
    """AssertionError if a rule was broken. Says what there was to check."""
    moment = Moment(run_id="lanes-1")
    model: State = {}
    found = Counter[str]()
    started: dict[str, set[str]] = {}  # effects, by the words in their log: the items that have begun it
    for line in journal.read(DiskStore(folder), after=0).lines:
        record = line.record
        where = f"seed {seed}, record {line.seq}"
        root = moment.agents.get(_ROOT)
        scope = getattr(record, "scope", "")
        is_item = scope[:1] not in ("", "_")
        if isinstance(record, StepStarted):
            assert root is not None
            assert not is_item or root.plan.is_to_do(scope), f"{where}: an effect of the dropped item ^{scope}"
            name, number = json.loads(bytes(record.arguments)).values()
            started.setdefault(f"{name} {number}", set()).add(scope)
            found["effects"] += 1
        if isinstance(record, ScopeCommitted) and scope:
            assert root is not None
            if scope == "_begin":
                begin(model)
            elif record.cancelled is None:
                title = root.scopes[scope].title
                Program(seed, name_of(title)).change(model)
                assert not is_item or root.plan.is_to_do(scope), f"{where}: the dropped item ^{scope} has committed"
                found["commits"] += 1
            else:
                assert not record.patch, f"{where}: an item that was dropped has changed the state"
                found["told"] += 1
        if isinstance(record, Edited):
            model = json_patch.apply(model, record.patch) if record.patch else model
            found["dropped"] += len(record.dropped)
            found["edits"] += 1
        moment.apply([line])
        if _ROOT in moment.agents and (data := moment.agents[_ROOT].data) is not None and model:
            assert json_patch.same(data, model), f"{where}: {data} is not {model}"
    root = moment.agents[_ROOT]
    assert moment.status == "completed" and root.scopes.keys() == {_ROOT}, (moment.status, root.scopes)
    assert root.plan.progress.settled == root.plan.progress.leaves
    twice = Counter(effects_of(folder)) - Counter({name: len(scopes) for name, scopes in started.items()})
    assert not twice, f"seed {seed}: more often than items have begun it: {twice}"
    return f"seed {seed}: {dict(found)}"
