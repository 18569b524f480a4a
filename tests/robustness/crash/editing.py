"""Workloads in which people have edited the files of a run of several agents, and the next process opens it.

Each begins with the files as people have left them; crashed at every call is what an opening makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from turns import person
from turns.tree import Acted, Committed, Process, answer, make, was_done

from satchel import run
from satchel.workspace.base.errors import Conflicting, InvalidFile, Refused
from satchel.workspace.inbound import Side
from satchel.workspace.inspect.report import Report
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore

from . import memory
from .checker import Violation
from .edited import Judge, Tree, Wanted
from .memory import ROOT, Memory
from .pipelined import never_in_time
from .steady import new_process
from .witness import Witness

DEEP = "agents/left/agents/deep/"
DEFINITION = b"format: 1\nrun_id: tree\nagent: agent.py:main\n"
Durability = Literal["strict", "pipelined"]
Edit = Callable[[dict[str, bytes]], None]


@dataclass
class Base:
    """A run that has stopped in an orderly way."""

    files: dict[str, bytes]
    world: list[Acted]
    committed: list[Committed] = field(default_factory=list)


@lru_cache
def _run_until(breaks_at: int | None) -> Base:
    """The tree of agents, until the code breaks in an item that is all but done."""
    new_process()
    system = Memory(memory.planted({"workspace.yaml": DEFINITION}))
    process = Process(system, [], breaks_at)
    run(DiskStore(ROOT, system), make(process), watch=process)
    heard = [each.call.fact for each in system.log]
    files = {path: data for path, data in memory.files(system.nodes).items() if not path.endswith("/")}
    return Base(files, process.world, [fact for fact in heard if isinstance(fact, Committed)])


class Editing:
    """One workload: `edit` is done to the files of a run that broke at an item, or was completed."""

    def __init__(self, edit: Edit, wanted: Wanted, breaks_at: int | None = 5, side: Side | None = None):
        self._edit, self._wanted, self._breaks_at, self._side = edit, wanted, breaks_at, side

    @property
    def base(self) -> Base:
        return _run_until(self._breaks_at)

    def files(self) -> dict[str, bytes]:
        files = dict(self.base.files)
        self._edit(files)
        return files

    def judge(self) -> Judge:
        return Judge(self.base.files, self.files(), self._wanted)

    def live(self, system: Memory) -> None:
        """What the opening says to the edits, and the first steps after it."""
        try:
            with opened(DiskStore(ROOT, system), "recover", Report()) as workspace:
                workspace.close()
        except (Refused, InvalidFile):
            with opened(DiskStore(ROOT, system), "recover", Report()) as workspace:
                workspace.close()
        except Conflicting:
            assert self._side
            with opened(DiskStore(ROOT, system), "merge", Report(), choices={"": self._side}) as workspace:
                workspace.close()

    def finish(self, system: Memory, witness: Witness) -> None:
        acted = [fact for fact in witness.others if isinstance(fact, Acted)]
        finish(system, [*self.base.world, *acted], self._side)


class Obeying(Editing):
    """Goes on to the end, so that what a power failure brings back has been obeyed long ago."""

    def live(self, system: Memory) -> None:
        finish(system, self.base.world, self._side)


class Working(Editing):
    """No edit: the whole tree at work from its first start, two agents at once."""

    def __init__(self, durability: Durability):
        self._durability: Durability = durability
        self._time = never_in_time if durability == "pipelined" else nullcontext

    def files(self) -> dict[str, bytes]:
        return {"workspace.yaml": DEFINITION}

    def judge(self) -> Judge:
        return Judge(self.files(), self.files(), _nothing)

    def live(self, system: Memory) -> None:
        with self._time():
            finish(system, [], durability=self._durability)

    def finish(self, system: Memory, witness: Witness) -> None:
        with self._time():
            finish(system, [fact for fact in witness.others if isinstance(fact, Acted)], durability=self._durability)


def finish(system: Memory, world: list[Acted], side: Side | None = None, durability: Durability = "strict") -> None:
    """Run the agents to their end, a person answering truthfully. Violation if an effect is doubled or left out."""
    store = DiskStore(ROOT, system)
    for _ in range(12):
        process = Process(system, world)
        try:
            outcome = run(store, make(process, durability), watch=process)
        except (Refused, InvalidFile):
            continue
        except Conflicting:
            with opened(store, "merge", Report(), choices={"": side or "theirs"}) as workspace:
                workspace.close()
            continue
        if outcome.status == "completed":
            break
        if outcome.status != "waiting":
            raise Violation(f"the run ended as {outcome.status}: {outcome.error!r}")
        tree = memory.files(system.nodes)
        with opened(store, "answer", Report()) as workspace:
            for doubt in outcome.doubts:
                answer(workspace, doubt.id, is_done=was_done(doubt, tree, process.world))
            workspace.close()
    else:
        raise Violation("the run does not come to its end")
    acted = [each[:3] for each in Process(system, world).world]
    if len(acted) != len(set(acted)):
        raise Violation(f"an effect was done twice: {sorted(acted)}")
    tree = memory.files(system.nodes)
    for path, data in tree.items():
        if path.rpartition("/")[2] == "todo.md" and not path.startswith("checkpoints/"):
            left = [row.name for row in person.rows(data.decode()) if row.mark in " /"]
            if left:
                raise Violation(f"the run is completed, and {path} has not done {left}", path)


# What people do


def _plan(path: str, *changes: Callable[[str], str]) -> Edit:
    def edit(files: dict[str, bytes]) -> None:
        text, stamp = person.split(files[path])
        for change in changes:
            text = change(text)
        files[path] = text.encode() + stamp

    return edit


def _marked(name: str, mark: str) -> Callable[[str], str]:
    return lambda text: person.marked(text, next(row for row in person.rows(text) if row.name == name), mark)


def _data(path: str, **values: object) -> Edit:
    """Sets keys of the data, and appends a note to the log."""

    def edit(files: dict[str, bytes]) -> None:
        def change(state: dict[str, dict[str, object]]) -> None:
            state["data"] |= values
            log = state["data"].setdefault("log", [])
            assert isinstance(log, list)
            log.append("note")

        files[path] = person.changed_json(files[path], change)

    return edit


def _step(end: str, **values: object) -> Edit:
    def edit(files: dict[str, bytes]) -> None:
        path = next(path for path in sorted(files) if path.endswith(end))
        files[path] = person.changed_json(files[path], lambda step: step.update(values))

    return edit


def _all(*edits: Edit) -> Edit:
    def edit(files: dict[str, bytes]) -> None:
        for each in edits:
            each(files)

    return edit


def _unstamped(path: str) -> Edit:
    def edit(files: dict[str, bytes]) -> None:
        files[path] = person.split(files[path])[0].encode() + b"\n"

    return edit


def _written(path: str, data: bytes) -> Edit:
    return lambda files: files.update({path: data})


def _twice(path: str, text: str) -> Edit:
    """An item with its id once more."""

    def edit(files: dict[str, bytes]) -> None:
        line = next(line for line in files[path].decode().splitlines() if text in line)
        files[path] = f"{line}\n{files[path].decode()}".encode()

    return edit


def _gone(*starts: str) -> Edit:
    def edit(files: dict[str, bytes]) -> None:
        for path in [path for path in files if path.startswith(starts)]:
            del files[path]

    return edit


def _shows(path: str, *texts: str) -> Wanted:
    """After an opening, what a person has written is there, once."""

    def wanted(tree: Tree) -> None:
        for text in texts:
            if tree[path].decode().count(text) != 1:
                raise Violation(f"{path} holds {text!r} {tree[path].decode().count(text)} times", path)

    return wanted


def _both(*each: Wanted) -> Wanted:
    def wanted(tree: Tree) -> None:
        for one in each:
            one(tree)

    return wanted


def _log_has(path: str, count: int) -> Wanted:
    def wanted(tree: Tree) -> None:
        if json.loads(tree[path])["data"]["log"].count("note") != count:
            raise Violation(f"{path}: what a person has appended is there {json.loads(tree[path])['data']}", path)

    return wanted


def _nothing(tree: Tree) -> None: ...


_ADDED: Callable[[str], str] = lambda text: person.inserted(text, 0, "- [ ] Extra, says a person")  # noqa: E731
_PROSE: Callable[[str], str] = lambda text: person.inserted(text, 0, "Words of a person.  ")  # noqa: E731

EDITINGS: dict[str, Editing] = {
    "merges-root": Editing(
        _all(_plan("todo.md", _marked("Pack", " "), _ADDED, _PROSE), _data("state.json", mine=1)),
        _both(_shows("todo.md", "Extra, says a person", "Words of a person.  \n"), _log_has("state.json", 1)),
    ),
    "merges-child": Editing(
        _all(
            _plan("agents/left/todo.md", _marked("Read", " "), _PROSE),
            _data("agents/left/state.json", mine=1),
            _data("agents/right/state.json", mine=2),
        ),
        _both(
            _shows("agents/left/todo.md", "Words of a person.  \n"),
            _log_has("agents/left/state.json", 1),
            _log_has("agents/right/state.json", 1),
        ),
    ),
    "merges-upwards": Editing(
        _plan(f"{DEEP}todo.md", _marked("Dig", " "), _ADDED), _shows(f"{DEEP}todo.md", "Extra, says a person"), None
    ),
    "obeys-once": Obeying(
        _all(
            _plan("agents/left/todo.md", _marked("Read", " "), _ADDED),
            _data("agents/left/state.json", mine=1),
            _plan("agents/right/todo.md", _marked("Cook", " ")),
        ),
        _log_has("agents/left/state.json", 1),
    ),
    "merges-steps": Editing(
        _all(_step("-look.json", result="looked at by a person"), _step("-weigh.json", redo=True)), _nothing
    ),
    "rejects": Editing(
        _all(_written("state.json", b'{"data": {"half": '), _twice("agents/left/todo.md", "^1")), _nothing
    ),
    "rejects-and-merges": Editing(
        _all(_plan("todo.md", _ADDED), _written("agents/left/state.json", b'{"data": 5')), _nothing
    ),
    "asks": Editing(
        _all(_plan("todo.md", _marked("Pack", " "), _ADDED), _unstamped("todo.md")), _nothing, side="theirs"
    ),
    "asks-of-a-child": Editing(
        _all(_plan("agents/left/todo.md", _marked("Read", " "), _ADDED), _unstamped("agents/left/todo.md")),
        _nothing,
        side="ours",
    ),
    "restores": Editing(
        _all(
            _gone("state.json", "agents/left/todo.md", "steps/", "agents/right/messages.jsonl"),
            _written("todo.md", b""),
            _written("agents/left/state.json", bytes(50)),
        ),
        _nothing,
    ),
    "rebuilds": Editing(_gone("journal/", "checkpoints/"), _nothing, None),
    "tree": Working("strict"),
    "tree-pipelined": Working("pipelined"),
}
