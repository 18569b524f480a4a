"""A run of three agents, one below the other, and what people do to its files while it is stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_validator

from satchel import NotDone, Run, agent, effect, step
from satchel.runtime.execution.run_object import Item
from satchel.runtime.execution.running import Outcome, run
from satchel.workspace import journal
from satchel.workspace.inbound import Noticed, notice
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Edited
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.state.agent_state import AgentMoment
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import DiskStore
from satchel.workspace.views import projection

DEFINITION = "format: 1\nrun_id: {}\nagent: agent.py:main\n"


class State(BaseModel):
    words: list[str] = []
    n: int = 0
    notes: dict[str, str] = {}

    @field_validator("n")
    @classmethod
    def not_thirteen(cls, value: int) -> int:
        if value == 13:
            raise ValueError("13 brings bad luck")
        return value


@dataclass
class World:
    """What really happened, and what is to go wrong."""

    calls: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)  # of effects
    fails: set[str] = field(default_factory=set)  # items at whose end the agent fails
    hangs: set[str] = field(default_factory=set)  # arguments of effects of which nobody learns how they ended
    suffix: str = "!"  # an argument of the second step
    sent: set[str] = field(default_factory=set)  # what `verify` knows

    def fresh(self) -> list[str]:
        """The calls since the last look."""
        found, self.calls = self.calls, []
        return found


world = World()


@step
def read(text: str) -> str:
    world.calls.append(f"read {text}")
    return text.upper()


@step
def join(text: str, suffix: str) -> str:
    world.calls.append(f"join {text}")
    return text + suffix


@effect
def send(text: str, *, key: str) -> str:
    world.calls.append(f"send {text}")
    world.keys.append(key)
    if text in world.hangs:
        raise TimeoutError("no answer")
    return f"sent {text}"


def was_posted(text: str) -> str:
    world.calls.append(f"verify {text}")
    if text not in world.sent:
        raise NotDone()
    return "posted before"


@effect(verify=was_posted)
def post(text: str) -> str:
    world.calls.append(f"post {text}")
    world.sent.add(text)
    return "posted"


async def work(run: Run[State], item: Item) -> None:
    text = await join(await read(item.text), world.suffix)
    await (post if item.text.startswith("post") else send)(text)
    if item.text in world.fails:
        raise TypeError(f"failed at {item.text}")
    run.messages.add("user", text)
    run.state.words.append(text)
    run.state.n += 1


async def plan(run: Run[State], *items: str) -> None:
    if not run.todo.items:
        await run.plan(None, items)


@agent(state=State)
async def carol(run: Run[State]) -> str:
    await plan(run, "carol 1", "carol 2")
    await run.todo.each(work)
    return "carol"


async def ask(run: Run[State], item: Item) -> None:
    name = item.text.removeprefix("ask ")
    if name == item.text:
        return await work(run, item)
    run.state.notes[name] = await run.spawn({"bob": bob, "carol": carol}[name], name)
    return None


@agent(state=State)
async def bob(run: Run[State]) -> str:
    await plan(run, "bob 1", "ask carol")
    await run.todo.each(ask)
    return "bob"


@agent(state=State)
async def main(run: Run[State]) -> str:
    await plan(run, "one", "two", "ask bob", "three")
    await run.todo.each(ask)
    return "done"


class Place:
    def __init__(self, folder: Path, run_id: str = "run-1"):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "workspace.yaml").write_text(DEFINITION.format(run_id))
        self.store = DiskStore(folder)
        self.agent = main

    # What the runtime does

    def run(self, *fails: str, suffix: str = "!") -> Outcome:
        """From one stop to the next, a failure at one of `fails` say."""
        world.fails, world.suffix = set(fails), suffix
        return run(self.folder, self.agent)

    def recover(self) -> list[str]:
        """Open and close it; what is said about it."""
        report = Report()
        with opened(DiskStore(self.folder), "recover", report) as workspace:
            workspace.close()
        return [remark.text for remark in report.remarks]

    def look(self) -> Noticed:
        seen = look(self.store)
        return notice(self.store, seen.moment, seen.definition, is_rebuilt=seen.is_rebuilt)

    @property
    def moment(self) -> Moment:
        return look(self.store).moment

    @property
    def root(self) -> AgentMoment:
        return self.moment.root

    @property
    def edited(self) -> list[Edited]:
        lines = journal.read(self.store, after=0).lines
        return [line.record for line in lines if isinstance(line.record, Edited)]

    # What people do

    def get(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def text(self, path: str = "todo.md") -> str:
        return (self.folder / path).read_text()

    def put(self, path: str, data: bytes | str) -> None:
        """At once, since the tests of this folder wait for nobody who is in the middle of saving (conftest.py)."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        saving = self.folder.parent / f"{self.folder.name}.saving"
        saving.write_bytes(data.encode() if isinstance(data, str) else data)
        saving.replace(self.folder / path)

    def edit(self, path: str, *changes: tuple[str, str]) -> None:
        """Replace text that is there once, and leave the stamp as it is."""
        text = self.text(path)
        for old, new in changes:
            assert text.count(old) == 1, (old, text)
            text = text.replace(old, new)
        self.put(path, text)

    def set_data(self, change: Callable[[Any], Any], path: str = "state.json") -> None:
        whole = json.loads(self.get(path))
        changed = change(whole["data"])
        whole["data"] = whole["data"] if changed is None else changed
        self.put(path, json.dumps(whole, indent=4))

    def without_stamp(self, path: str) -> bytes:
        if path.endswith(".md"):
            return self.get(path)[: self.get(path).rindex(b"\n<!-- satchel")]
        facts = json.loads(self.get(path))
        del facts["at"]
        return json.dumps(facts, indent=2).encode()

    # What there is to see

    def hash(self) -> str:
        """Of every file's name, content and time."""
        found = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            found.update(f"{path.relative_to(self.folder)} {path.stat().st_mtime_ns}\0".encode())
            found.update(path.read_bytes() if path.is_file() else b"")
        return found.hexdigest()

    def there(self, pattern: str) -> list[str]:
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.glob(pattern))

    def is_at_the_moment(self) -> bool:
        """Whether all readable files show the newest moment, and nothing else does."""
        moment = self.moment
        wanted: dict[str, bytes] = {}
        shown: set[str] = set()
        for one in moment.agents.values():
            wanted[f"{one.folder}state.json"] = projection.state_file(moment, one)
            if one.has_plan:
                wanted[f"{one.folder}todo.md"] = projection.todo_file(moment, one)
            shown |= {file.path for file in projection.step_files(one)}
        steps = {*self.there("steps/*/*"), *self.there("agents/**/steps/*/*")}
        return all(self.get(path) == data for path, data in wanted.items()) and steps == shown

    def substance(self) -> dict[str, Any]:
        """What a moment is about, positions and times aside."""
        return {
            path: (
                one.data,
                one.plan.text,
                {key: sorted(scope.done) for key, scope in one.scopes.items()},
                {key: sorted(past.done) for key, past in one.past.items()},
                sorted(one.results),
            )
            for path, one in self.moment.agents.items()
        }
