"""Blame: each value of the data is blamed on the record that set it. The oracle keeps the origin next to every value
while it makes up a history, and knows nothing of replaying one."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
from msgspec import Raw

from satchel.workspace.base.errors import Damaged
from satchel.workspace.history import blame
from satchel.workspace.inbound import json_edits
from satchel.workspace.journal import (
    AgentBegun,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    Edited,
    Line,
    Migrated,
    Rewound,
    ScopeBegun,
    ScopeCommitted,
    StepCompleted,
)
from satchel.workspace.state import AgentMoment, Moment, earlier_moment, json_patch

AT = "2026-11-01T00:00:00.000Z"
KEYS = ("a", "b", "c/d", "e~f", "", "g")
SCALARS = (0, 1, 1.0, True, False, None, "", "x", "1", -0.0, 0.0)


class Said(NamedTuple):
    """What blame must say of a value."""

    seq: int
    back: int = 0
    kind: str = "commit"
    by: str = ""
    prompts: tuple[str, ...] = ()


class Leaf:
    """A value without parts, with what must be said of it. Objects and lists with parts are dicts and lists of such."""

    def __init__(self, value: Any, said: Said):
        self.value, self.said = value, said
        self.emptied: Any = {} if isinstance(value, dict) else []  # what it was, if something was removed from it


Tree = Any


def plain(tree: Tree) -> Any:
    if isinstance(tree, Leaf):
        return deepcopy(tree.value)
    if isinstance(tree, dict):
        return {key: plain(each) for key, each in tree.items()}
    return [plain(each) for each in tree]


def leaves(tree: Tree, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Leaf]:
    if isinstance(tree, Leaf):
        return {path: tree}
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return {where: leaf for part, each in parts for where, leaf in leaves(each, (*path, part)).items()}


def same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


def planted(value: Any, old: Tree, said: Said) -> Tree:
    """A value that comes in the place of `old`: what is equal there, at the same path, keeps what was said."""
    known = {} if old is None else leaves(old)

    def grow(value: Any, path: tuple[Any, ...]) -> Tree:
        if isinstance(value, dict | list) and value:
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            grown = {part: grow(each, (*path, part)) for part, each in parts}
            return grown if isinstance(value, dict) else [*grown.values()]
        was = known.get(path)
        if was is not None and same(was.value, value) and _kinds(old, path) == _kinds_of(path, root):
            return Leaf(value, was.said)
        return Leaf(value, said)

    root = value
    return grow(value, ())


def _kinds(tree: Tree, path: tuple[Any, ...]) -> list[type]:
    """Whether each part of a path is a key or an index: `{"0": 1}` is not `[1]`."""
    found = []
    for part in path:
        found.append(type(tree))
        tree = tree[part]
    return found


def _kinds_of(path: tuple[Any, ...], value: Any) -> list[type]:
    found = []
    for part in path:
        found.append(type(value))
        value = value[part]
    return found


class History:
    """A made-up history: its records, and the tree of each agent at every record."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.lines: list[Line] = []
        self.agents: dict[str, Tree] = {}  # None: it has begun, and has no data yet
        self.then: dict[int, dict[str, Tree]] = {}
        self.scopes = 0
        self.gone: dict[tuple[int, str], tuple[Tree, Tree]] = {}  # keys removed by this record; they may come back

    @property
    def next(self) -> int:
        return len(self.lines) + 1

    def add(self, *records: AnyRecord) -> None:
        """One group."""
        first = self.next
        for record in records:
            self.lines.append(Line(self.next, first, AT, 1, record))

    def note(self) -> None:
        """After the last record of a change. A run never returns into the middle of a group."""
        before = self.then.get(max(self.then, default=0), {})
        new = self.lines[max(self.then, default=0) :]
        self.then |= {line.seq - 1: before for line in new[1:] if line.commit == line.seq}
        self.then[self.next - 1] = deepcopy(self.agents)

    def make(self, length: int) -> None:
        self.begin("")
        for _ in range(length):
            dice = self.random.random()
            path = self.random.choice([path for path, tree in self.agents.items() if tree is not None])
            if dice < 0.08 and self.agents.get("helper") is None:
                self.begin("helper")
            elif dice < 0.15 and self.next > 3:
                self.go_back()
            elif dice < 0.35:
                self.merge(path)
            elif dice < 0.4:
                self.change(path, "migration")
            elif dice < 0.5:
                self.change(path, "edit")
            else:
                self.change(path, "commit")
            self.note()

    def begin(self, path: str) -> None:
        value = {"n": 1, "list": [1, 1, {"x": []}], "map": {"k": {}}}
        begun = [AgentBegun(agent=path, scope="", args="")] if path else []
        self.add(*begun, ScopeCommitted(agent=path, scope="", patch=[{"op": "add", "path": "", "value": value}]))
        self.agents[path] = planted(value, None, Said(self.next - 1))
        self.note()

    def change(self, path: str, kind: str) -> None:
        """Some changes in one patch."""
        prompts: tuple[str, ...] = ()
        self.scopes += 1
        scope, by = str(self.scopes), f"p{self.scopes}"
        if kind == "commit":
            self.add(ScopeBegun(agent=path, scope=scope, title="t"))
            versions = [self.random.choice("uvw") for _ in range(self.random.randrange(3))]
            for number, version in enumerate(versions):
                call: dict[str, Any] = {"agent": path, "scope": scope, "no": number, "step": "s", "n": number}
                self.add(StepCompleted(**call, args="0" * 16, result=Raw(b"1"), prompts={"brief": version}))
            prompts = tuple(dict.fromkeys(versions))
        seq = self.next
        said = Said(seq, 0, kind, by if kind == "edit" else "", prompts)
        self.agents[path], patch = self.changed(self.agents[path], said)
        if kind == "commit":
            self.add(ScopeCommitted(agent=path, scope=scope, patch=patch))
        elif kind == "edit":
            self.add(Edited(agent=path, file="state.json", by=by, sha="0", patch=patch))
        else:
            self.add(Migrated(agent=path, to=seq, patch=patch))

    def changed(self, tree: Tree, said: Said) -> tuple[Tree, list[dict[str, object]]]:
        root, patch = [tree], []
        self.gone = {}
        for _ in range(self.random.randrange(1, 5)):
            patch += self.one_change(root, said)
        return root[0], patch

    def one_change(self, root: list[Tree], said: Said) -> list[dict[str, object]]:
        """Change the tree in `root` somewhere, and say how as operations."""
        place, key, path = root, 0, ""  # the tree is `place[key]`
        while not isinstance(here := place[key], Leaf) and self.random.random() < 0.7:
            inner = self.random.choice([*here] if isinstance(here, dict) else range(len(here)))
            place, key, path = here, inner, f"{path}/{json_patch.escape(str(inner))}"
        here = place[key]
        holder = here.value if isinstance(here, Leaf) else here
        what = self.random.choice(["replace", "replace", "almost", "into", "remove", "move"])
        if what == "into" and isinstance(holder, dict | list):
            value = self.value()
            if isinstance(holder, dict):
                name = self.random.choice(KEYS)
                tree = here if isinstance(here, dict) else here.emptied
                was = tree[name] if name in tree else self.gone.pop((id(tree), name), (None, None))[1]
                tree[name] = planted(value, was, said)
                place[key] = tree
                return [{"op": "add", "path": f"{path}/{json_patch.escape(name)}", "value": value}]
            tree = here if isinstance(here, list) else here.emptied
            at = self.random.randrange(len(tree) + 1)
            tree.insert(at, planted(value, None, said))
            place[key] = tree
            last = "-" if at == len(tree) - 1 and self.random.random() < 0.5 else at
            return [{"op": "add", "path": f"{path}/{last}", "value": value}]
        if what in ("remove", "move") and place is not root:
            up, _, _ = path.rpartition("/")
            if what == "move" and isinstance(place, dict):  # to the end of its object
                value = plain(here)
                del place[key]
                place[key] = here
                return [{"op": "remove", "path": path}, {"op": "add", "path": path, "value": value}]
            if isinstance(place, dict):
                self.gone[id(place), key] = place, here
            del place[key]
            if not place:
                leaf = Leaf(type(place)(), said)
                leaf.emptied = place
                self.empty(root, up, leaf)
            return [{"op": "remove", "path": path}]
        value = plain(here) if what == "almost" else self.value()
        if what == "almost" and isinstance(value, dict) and value:
            value[self.random.choice([*value])] = self.value()
        elif what == "almost" and isinstance(value, list):
            value.append(self.value())
        if place is root and not isinstance(value, dict):
            value = {"k": value}
        place[key] = planted(value, here, said)
        return [{"op": "replace", "path": path, "value": value}]

    def empty(self, root: list[Tree], path: str, leaf: Leaf) -> None:
        place: Tree = root
        key: Any = 0
        for part in json_patch.split(path):
            place, key = place[key], part if isinstance(place[key], dict) else int(part)
        place[key] = leaf

    def value(self) -> Any:
        dice = self.random.random()
        if dice < 0.6:
            return self.random.choice(SCALARS)
        if dice < 0.7:
            return self.random.choice([[], {}])
        size = self.random.randrange(1, 4)
        if dice < 0.85:
            return [self.value() for _ in range(size)]
        return {self.random.choice(KEYS): self.value() for _ in range(size)}

    def merge(self, path: str) -> None:
        """A person has edited an older version, and it is merged. The objects of the data are compared, key by key."""
        known = [trees[path] for trees in self.then.values() if trees.get(path) is not None]
        base = plain(self.random.choice(known[-4:]))
        theirs = deepcopy(base)
        theirs[self.random.choice(KEYS)] = self.random.choice(SCALARS)
        if isinstance(theirs.get("map"), dict):
            theirs["map"][self.random.choice(KEYS)] = self.random.choice(SCALARS)
        ours = plain(self.agents[path])
        merged = json_edits.merge(base, ours, theirs)
        if merged.conflicts:
            return
        patch = json_patch.diff(ours, merged.value)
        if not patch:
            return
        by = f"p{self.next}"
        self.agents[path] = planted(merged.value, self.agents[path], Said(self.next, 0, "edit", by))
        self.add(Edited(agent=path, file="state.json", by=by, sha="0", patch=patch))

    def go_back(self) -> None:
        to, seq = self.random.choice([*self.then]), self.next
        moments = {}
        for path, now in self.agents.items():
            then = self.then[to].get(path)
            moments[path] = AgentMoment(path=path)
            self.agents[path] = deepcopy(then)
            if then is None:
                continue
            moments[path].data, moments[path].has_data = plain(then), True
            was = {} if now is None else leaves(now)
            for where, leaf in leaves(self.agents[path]).items():
                before = was.get(where)
                if before is None or not same(before.value, leaf.value) or before.said != leaf.said:
                    leaf.said = leaf.said._replace(back=seq)
        self.add(Rewound(to=to, by="ann", agents=earlier_moment.pack(moments)))


def pointer(path: tuple[Any, ...]) -> str:
    return "".join(f"/{json_patch.escape(str(part))}" for part in path)


def said_by(node: blame.BlamedValue) -> Said:
    origin, back = node.cell
    return Said(origin.seq, back, origin.kind, origin.by, origin.prompts.get("brief", ()))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("first", range(0, 500, 100))
def test_a_value_is_blamed_on_another_record(first: int) -> None:
    for seed in range(first, first + 100):
        history = History(seed)
        history.make(16)
        found = blame.data_origins(Moment(run_id="r"), history.lines)
        assert found.keys() == {path for path, tree in history.agents.items() if tree is not None}, seed
        for path in found:
            tree = leaves(history.agents[path])
            expected = {pointer(where): (repr(leaf.value), leaf.said) for where, leaf in tree.items()}
            told = {where: (repr(node.value), said_by(node)) for where, node in found[path].leaves()}
            assert told == expected, f"seed {seed}, agent {path!r}"


@pytest.mark.parametrize("first", range(0, 100, 50))
def test_blame_from_a_later_start_says_something_else(first: int) -> None:
    """Records that are gone: what they have set is of the first kept state, or of an earlier record."""
    for seed in range(first, first + 50):
        history = History(seed)
        history.make(12)
        at = random.Random(seed).randrange(1, len(history.lines))
        while at not in history.then:
            at -= 1
        if any(isinstance(line.record, Rewound) and line.record.to < at for line in history.lines[at:]):
            continue
        start = Moment(run_id="r", seq=at)
        for path, tree in history.then[at].items():
            start.agents[path] = AgentMoment(path=path)
            if tree is not None:
                start.agents[path].data, start.agents[path].has_data = plain(tree), True
        whole, found = (
            blame.data_origins(moment, history.lines[moment.seq :]) for moment in (Moment(run_id="r"), start)
        )
        for path in found:
            known = dict(whole[path].leaves())
            assert dict(found[path].leaves()).keys() == known.keys()
            for where, node in found[path].leaves():
                expected, said = said_by(known[where]), said_by(node)
                if expected.seq > at:
                    assert said._replace(prompts=expected.prompts) == expected, f"seed {seed} {path} {where}"
                else:
                    assert (said.kind, said.seq <= at) == ("earlier", True), f"seed {seed} {path} {where}"


def test_a_return_to_a_record_that_is_gone_is_blamed_itself() -> None:
    start = Moment(run_id="r", seq=9)
    start.root.data, start.root.has_data = {"a": 1, "b": 1}, True
    then = AgentMoment(data={"a": 0, "b": 1}, has_data=True)
    lines = [Line(10, 10, AT, 1, Rewound(to=4, by="ann", agents=earlier_moment.pack({"": then})))]
    said = {path: said_by(node) for path, node in blame.data_origins(start, lines)[""].leaves()}
    assert said == {"/a": Said(4, 10, "earlier"), "/b": Said(9, 0, "earlier")}


@pytest.mark.parametrize("path", ["/x/y", "/0", "/list/9", "/list/x", "/n/1"])
def test_a_patch_that_does_not_fit_is_an_internal_error(path: str) -> None:
    for operation in ("add", "remove", "replace"):
        patches: list[list[dict[str, object]]] = [
            [{"op": "add", "path": "", "value": {"n": 1, "list": [1]}}],
            [{"op": operation, "path": path if operation != "add" else f"{path}/z/z", "value": 1}],
        ]
        records = [ScopeCommitted(scope="", patch=patch) for patch in patches]
        lines = [Line(seq, seq, AT, 1, record) for seq, record in enumerate(records, 1)]
        if (operation, path) == ("replace", "/0"):
            continue  # a key of an object may be new here
        with pytest.raises(Damaged, match="record 2 does not fit"):
            blame.data_origins(Moment(run_id="r"), lines)


def test_the_hands_of_people_are_left_out() -> None:
    call: dict[str, Any] = {"scope": "1", "no": 1, "step": "ask", "args": "0" * 16, "n": 0}
    records: list[AnyRecord] = [
        ScopeBegun(scope="1", title="grant"),
        ApprovalAsked(**call, id="a1", question="Grant?"),
        ApprovalAnswered(id="a1", decision=Raw(b'"yes"'), by="ada"),
        ScopeCommitted(scope="1", patch=[{"op": "add", "path": "", "value": {"ok": True}}]),
    ]
    lines = [Line(seq, seq, AT, 1, record) for seq, record in enumerate(records, 1)]
    ((_, node),) = blame.data_origins(Moment(run_id="r"), lines)[""].leaves()
    assert node.cell.origin.title == "grant" and node.cell.origin.people == (blame.Hand(3, "ada", "answered"),)
