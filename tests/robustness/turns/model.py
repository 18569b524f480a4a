"""What must be true of a workspace over which people, processes and crashes have taken turns: plain dicts and lists.

`known` is what somebody relies on: what the files showed when a process had opened them, and what it has acknowledged
since. `saved` is what a person has written and no opening has taken yet, with what is wished for by it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from . import person
from .tree import PLANS, SPAWNING, Acted, Committed, folder_of, records

Tree = Mapping[str, bytes]
GONE = "(gone)"
# A person may have cut off the last line's end: then nothing that the stamp is about has changed.
_SIGNED = re.compile(rb"(.*)\n<!-- satchel (\d+)\.\d+\.[0-9a-f]{8} -->\n?", re.DOTALL)


@dataclass
class Saved:
    """A file as a person has left it. Wishes are by kind and name: `mark`, `item`, `under`, `prose`; `data`, `note`;
    `result`, `redo`."""

    data: bytes
    wishes: dict[tuple[str, str], Any] = field(default_factory=dict)
    is_exact: bool = False  # made from what the run has now, so that it must be taken as it is
    is_unstamped: bool = False
    is_spoiled: bool = False  # cut short, say: nothing is wished for by it
    is_settled: bool = False  # a person was asked and has said who is right
    is_tried: bool = False
    unsure: set[tuple[str, str]] = field(default_factory=set)  # those of them that were taken back
    tried: dict[tuple[str, str], Any] = field(default_factory=dict)  # wishes at an opening that has died


class Lost(AssertionError):
    """A promise was broken."""


class Opened(NamedTuple):
    """A process has opened the workspace."""

    shown: dict[str, dict[str, Any]]
    files: dict[str, bytes]


class Model:
    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.saved: dict[str, Saved] = {}
        self.taken: dict[str, Saved] = {}
        self.prose: dict[str, list[str]] = {path: [] for path in PLANS}
        self.world: list[Acted] = []
        self.allowed: Counter[tuple[str, str, str]] = Counter()  # how often more than once a person wants an effect
        self.given: set[tuple[str, str, str]] = set()  # effects whose result a person has written

    # What a person does

    def forget(self, path: str) -> None:
        """A person has thrown away what they had written; an opening may have taken it before, or not."""
        if path in self.saved:
            for wish in [*self.saved[path].wishes]:
                self.give_up(path, wish)
            del self.saved[path]

    def forget_values(self, path: str) -> None:
        """An old file without a stamp is taken at its word, but for what it lacks."""
        known = self.known.get(agent_of(path), {"marks": {}, "data": {}})
        if path.endswith("state.json"):
            known["data"] = {}
        else:
            known["marks"] = {name: mark for name, mark in known["marks"].items() if mark == "x"}

    def give_up(self, path: str, wish: tuple[str, str]) -> None:
        """Whether it is granted, nobody can tell."""
        saved = self.saved[path]
        saved.wishes.pop(wish, None)
        known = self.known.get(agent_of(path), {"marks": {}, "data": {}})
        known["marks"].pop(wish[1], None)
        known["data"].pop("log" if wish[0] == "note" else wish[1], None)
        for (above, name), children in SPAWNING.items():  # entered again, perhaps
            if any(f"{agent_of(path)}/".startswith(f"{child}/") for child in children) and above in self.known:
                self.known[above]["marks"].pop(name, None)

    def forget_agent(self, path: str) -> None:
        agent = agent_of(path)
        self.known.get(agent, {}).update(marks={}, data={})
        self.prose[agent] = []

    # What a process has said before it ended

    def hear(self, fact: object) -> None:
        if isinstance(fact, Acted):
            self.world.append(fact)
            where = fact.agent, fact.scope, fact.effect
            count = sum(each[:3] == where for each in self.world)
            if count > 1 + self.allowed[where]:
                raise Lost(f"{where} was done {count} times, and asked for {1 + self.allowed[where]} times")
        elif isinstance(fact, Committed):
            for effect in ("send", "book"):
                where = fact.agent, fact.scope, effect
                if where not in self.given and not any(each[:3] == where for each in self.world):
                    raise Lost(f"{where} was skipped without anybody knowing")
            known = self.known.setdefault(fact.agent, {"marks": {}, "data": {}, "messages": []})
            if fact.name:
                known["marks"][fact.name] = "x"
            known["data"][f"did-{fact.name}"] = fact.data
            known["data"]["log"] = [*known["data"].get("log", []), fact.name]
            known["messages"].append(fact.message)
        elif isinstance(fact, Opened):
            self.known = {
                agent: {key: _copied(value) for key, value in each.items()} for agent, each in fact.shown.items()
            }
            for path, saved in self.saved.items():
                if path.endswith("todo.md"):
                    self.prose[agent_of(path)] += [name for kind, name in saved.wishes if kind == "prose"]
            self.taken |= self.saved
            self.saved.clear()

    # What an opening has made of it

    def opened(self, tree: Tree) -> dict[str, Any]:
        """All that is promised of the files when a process has opened them. Returns what they show."""
        seq = len(list(records(tree)))
        shown = {agent: _shown(agent, tree, seq) for agent in PLANS if f"{folder_of(agent)}state.json" in tree}
        for agent, known in self.known.items():
            if agent not in shown:
                raise Lost(f"the files of {agent or 'the root'} are gone")
            self._plan(agent, known["marks"], shown[agent])
            self._data(agent, known["data"], shown[agent]["data"])
            missing = Counter(known["messages"]) - Counter(shown[agent]["messages"])
            if missing:
                raise Lost(f"messages of {agent or 'the root'} are lost: {missing}")
        for path, saved in self.saved.items():
            is_asked = saved.is_unstamped and not (saved.is_settled or saved.is_tried) and self._loses(path, saved)
            if is_asked and tree[path] != saved.data:
                raise Lost(f"{path} had no stamp, and what it lacked was not asked about")
            if saved.is_exact:
                self._as_written(path, saved, shown, tree)
        return shown

    def _loses(self, path: str, saved: Saved) -> bool:
        """Whether it lacks something that there is, or unticks it."""
        known = self.known.get(agent_of(path), {"marks": {}, "data": {}})
        loose = nested(person.rows(saved.data.decode())) if path.endswith("todo.md") else set()
        for (kind, name), value in saved.wishes.items():
            if kind == "mark" and value == " " and known["marks"].get(name) == "x" and name not in loose:
                return True
            if value == GONE and name in known["marks" if kind == "item" else "data"]:
                return True
        return False

    def _plan(self, agent: str, marks: dict[str, str], shown: dict[str, Any]) -> None:
        path = f"{folder_of(agent)}todo.md"
        wishes = self.saved[path].wishes if path in self.saved else {}
        now: dict[str, str] = shown["marks"]
        adopted = {}  # what a file without a stamp has finished is taken
        if path in self.saved and self.saved[path].is_unstamped:
            rows = person.rows(self.saved[path].data.decode())
            adopted = {row.name: row.mark for row in rows if row.mark in "x-"}
        for name in marks.keys() | {name for kind, name in wishes if kind == "item"}:
            wished = wishes.get(("item", name))
            if wished == GONE:
                if name in now:
                    raise Lost(f"{path}: a person has removed {name}, and it is there")
                continue
            if name not in now:
                raise Lost(f"{path}: {name} is gone")
            is_loose = name in shown["loose"] or (agent, name) in SPAWNING
            if wished is not None and shown["texts"][name] != wished and name not in shown["loose"]:
                raise Lost(f"{path}: {name} reads {shown['texts'][name]!r}, and a person has made it {wished!r}")
            wanted = wishes.get(("mark", name))
            if wanted is not None:
                is_begun_anew = (wanted, now[name]) == (" ", "/")
                if now[name] != wanted and not is_loose and not is_begun_anew:
                    raise Lost(f"{path}: {name} is [{now[name]}], and a person has made it [{wanted}]")
            elif marks.get(name) in ("x", "-") and now[name] not in (marks[name], adopted.get(name)):
                if not (is_loose and (name in shown["loose"] or self._has_wishes_below(agent, name))):
                    raise Lost(f"{path}: {name} was [{marks[name]}] and is [{now[name]}]")
            elif marks.get(name) in (" ", "/") and now[name] == "-" and not is_loose:
                raise Lost(f"{path}: {name} was dropped by nobody")
        for kind, name in wishes:
            if kind == "prose" and name not in shown["lines"]:
                raise Lost(f"{path}: the words {name!r} are gone")
            if (
                kind == "under"
                and self.saved[path].is_exact
                and not _is_under(shown["lines"], name, wishes[kind, name])
            ):
                raise Lost(f"{path}: {name} is not under {wishes[kind, name]!r}")
        for line in self.prose[agent]:
            if line not in shown["lines"]:
                raise Lost(f"{path}: the words {line!r} are gone")

    def _has_wishes_below(self, agent: str, name: str) -> bool:
        below = SPAWNING[agent, name]
        return any(agent_of(path).startswith(child) for path in self.saved for child in below)

    def _data(self, agent: str, data: dict[str, Any], now: dict[str, Any]) -> None:
        path = f"{folder_of(agent)}state.json"
        wishes = self.saved[path].wishes if path in self.saved else {}
        marks = self.known[agent]["marks"]
        for key, value in data.items():
            if key == "log":
                missing = Counter(value) - Counter(now.get("log", []))
                if missing:
                    raise Lost(f"{path}: the log has lost {missing}")
                continue
            stays = ("data", key) not in wishes and marks.get(key.removeprefix("did-"), "x") in ("x", "-")
            if stays and now.get(key, GONE) != value:
                raise Lost(f"{path}: {key} was {value!r} and is {now.get(key, GONE)!r}")
        for (kind, name), value in wishes.items():
            if kind == "data" and now.get(name, GONE) != value:
                raise Lost(f"{path}: {name} is {now.get(name, GONE)!r}, and a person has made it {value!r}")
        notes = Counter(each for each in data.get("log", []) if each.startswith("note"))
        notes |= Counter(name for kind, name in wishes if kind == "note")
        for note, times in notes.items():
            if now.get("log", []).count(note) != times:
                raise Lost(f"{path}: {note!r} is in the log {now.get('log', []).count(note)} times")

    def _as_written(self, path: str, saved: Saved, shown: dict[str, Any], tree: Tree) -> None:
        agent = agent_of(path)
        if path.endswith("todo.md"):
            text, _ = person.split(saved.data)
            wanted, found = (
                _normal(text, shown[agent], agent),
                _normal("\n".join(shown[agent]["lines"]), shown[agent], agent),
            )
            if wanted != found:
                raise Lost(f"{path} was written as {wanted}, and was made {found}")
        elif path.endswith("state.json"):
            wanted_data = json.loads(saved.data)["data"]
            if shown[agent]["data"] != wanted_data:
                raise Lost(f"{path} was written with {wanted_data}, and shows {shown[agent]['data']}")
        elif path in tree:
            wished = saved.wishes
            if ("redo", "") in wished:
                raise Lost(f"{path} is to be done again, and is still there")
            if ("result", "") in wished and json.loads(tree[path])["result"] != wished["result", ""]:
                raise Lost(f"{path}: the result that a person has written is not taken")

    # What is left of what a person has written, when a process could not open or has died

    def left(self, tree: Tree) -> None:
        """What a person has saved is there, or is kept aside; else it must show at the next opening."""
        for path, saved in [*self.saved.items()]:
            if tree.get(path) != saved.data and saved.data in kept_aside(path, tree):
                self.forget(path)


def kept_aside(path: str, tree: Tree) -> list[bytes]:
    stem, _, extension = path.rpartition(".")
    pattern = re.compile(re.escape(stem) + r"\.rejected(-\d+)?\." + extension)
    return [data for each, data in tree.items() if pattern.fullmatch(each)]


def agent_of(path: str) -> str:
    return "/".join(re.findall(r"agents/([^/]+)/", path))


def _shown(agent: str, tree: Tree, seq: int) -> dict[str, Any]:
    """What the files of one agent show. They must all show the same moment."""
    folder = folder_of(agent)
    state = json.loads(tree[f"{folder}state.json"])
    if state["at"]["seq"] != seq:
        raise Lost(f"{folder}state.json stands at record {state['at']['seq']}, the journal at {seq}")
    found: dict[str, Any] = {
        "data": state["data"] or {},
        "marks": {},
        "texts": {},
        "lines": [],
        "loose": set(),
        "messages": [],
    }
    if f"{folder}todo.md" in tree:
        match = _SIGNED.fullmatch(tree[f"{folder}todo.md"])
        if not match or int(match[2]) != seq:
            raise Lost(f"{folder}todo.md does not stand at record {seq}: {tree[f'{folder}todo.md']!r}")
        rows = person.rows(match[1].decode())
        if len({row.text for row in rows}) < len(rows):
            raise Lost(f"{folder}todo.md has an item twice: {match[1].decode()}")
        found |= {"marks": {row.name: row.mark for row in rows}, "texts": {row.name: row.text for row in rows}}
        found["lines"] = match[1].decode().split("\n")
        found["loose"] = nested(rows) | _twins(rows)
    for path, data in tree.items():
        if re.fullmatch(rf"{folder}steps/[^/]+/\d+-\w+\.json", path):
            json.loads(data)
    found["messages"] = [json.loads(line)["content"] for line in tree.get(f"{folder}messages.jsonl", b"").splitlines()]
    return found


def nested(rows: list[person.Row]) -> set[str]:
    """Items below or above others: what is marked there may have a meaning for both."""
    found = set()
    for above, below in pairwise(rows):
        if below.depth > above.depth:
            found |= {above.name, below.name}
        elif below.depth and above.name in found:
            found.add(below.name)
    return found


def _twins(rows: list[person.Row]) -> set[str]:
    """Items of one name: one was reworded where nothing told that it was the same."""
    names = [row.name for row in rows]
    return {name for name in names if names.count(name) > 1}


def _is_under(lines: list[str], name: str, heading: str) -> bool:
    at = next((number for number, line in enumerate(lines) if f"] {name}" in line), len(lines))
    above = [line for line in lines[:at] if line.startswith("#")]
    return bool(above) and above[-1] == heading


def _normal(text: str, shown: dict[str, Any], agent: str) -> list[str]:
    """The lines without what the runtime may add: ids, and the marks of items that depend on others."""
    found = []
    for line in person.plain(text):
        for row in person.rows(line):
            if row.name in shown["loose"] or (agent, row.name) in SPAWNING:
                line = line.replace(f"[{row.mark}]", "[?]", 1)
        found.append(line)
    return found


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | list | set) else value
