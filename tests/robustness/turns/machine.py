"""The turns: of the runtime, of a crash, and of a person who edits any file of any agent in between."""

from __future__ import annotations

import json
import random
import re
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count, pairwise
from typing import Any, Literal
from unittest import mock

from crash import legal, memory
from crash.legal import Crash
from crash.memory import ROOT, Memory
from crash.steady import new_process, steady
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from satchel import run
from satchel.runtime.api import Handle
from satchel.workspace.base.errors import Conflicting, InvalidFile, Refused, UsageError
from satchel.workspace.inbound import Side
from satchel.workspace.inbound.findings import version_of
from satchel.workspace.inspect.load import look as look_at
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import Doubt
from satchel.workspace.lifecycle import workspace as opened_workspace
from satchel.workspace.lifecycle.opening import Why, opened
from satchel.workspace.store import DiskStore
from satchel.workspace.views.projector import Projector

from . import person
from .model import GONE, Lost, Model, Opened, Saved, agent_of, kept_aside
from .tree import PLANS, SPAWNING, Process, answer, folder_of, make, records, was_done

_DEFINITION = b"format: 1\nrun_id: journey\nagent: agent.py:main\n"
_TURNS_TO_THE_END = 60

CRASHES = st.none() | st.tuples(st.integers(0, 999), st.sampled_from(["kill", "torn", "power"]))
"""None; or after how many thousandths of its calls the process dies, and how."""
PICKS = st.integers(0, 11)
"""Of the files, items or keys that there are, modulo their number."""


class Turns(RuleBasedStateMachine):
    """`rejected`, `conflicted`: how the last opening ended, if not well. `parallel`: so many items of each agent run at
    once."""

    parallel = 1

    def __init__(self) -> None:
        super().__init__()
        self.tree: dict[str, bytes] = {"workspace.yaml": _DEFINITION}
        self.model = Model()
        self.copies: dict[str, list[bytes]] = {}
        self.written: set[bytes] = set()  # by a person
        self.conflicted: list[str] = []
        self.ticked: set[tuple[str, str]] = set()  # by a person
        self.is_sound = True
        self._made = count(1)
        self._patches = ExitStack()
        self._patches.enter_context(steady())

    @initialize(is_slow=st.booleans())
    def on_a_disk(self, is_slow: bool) -> None:
        """On a slow one the readable files lag far behind."""
        clock: Callable[[], float] = count().__next__ if is_slow else lambda: 0.0
        self._patches.enter_context(mock.patch.object(opened_workspace, "Projector", partial(Projector, clock=clock)))

    def teardown(self) -> None:
        try:
            if self.is_sound:
                self._finish()
        finally:
            self._patches.close()

    # The runtime's turns

    @rule(crash=CRASHES, breaks_at=st.none() | st.integers(1, 6))
    def the_runtime_goes_on(self, crash: tuple[int, str] | None, breaks_at: int | None) -> None:
        self._run(crash, breaks_at)

    @rule(crash=CRASHES)
    def somebody_recovers(self, crash: tuple[int, str] | None) -> None:
        self._open("recover", crash)

    @precondition(lambda self: self.conflicted)
    @rule(crash=CRASHES, side=st.sampled_from(["ours", "theirs", "edited"]))
    def a_person_settles_a_conflict(self, crash: tuple[int, str] | None, side: Side) -> None:
        self._settle(crash, side)

    @precondition(lambda self: self._doubts())
    @rule(crash=CRASHES, pick=PICKS, wants_it_again=st.booleans())
    def a_person_answers(self, crash: tuple[int, str] | None, pick: int, wants_it_again: bool) -> None:
        self._answer(crash, pick, wants_it_again)

    @precondition(lambda self: self._can_go_back())
    @rule(crash=CRASHES, to=st.integers(0, 999))
    def somebody_goes_back(self, crash: tuple[int, str] | None, to: int) -> None:
        seq = 1 + to * (len(list(records(self.tree))) - 1) // 1000
        self._return(crash, lambda handle: handle.history.rewind(to=seq))

    @precondition(lambda self: self._can_go_back())
    @rule(crash=CRASHES, file=PICKS, item=PICKS)
    def somebody_redoes_an_item(self, crash: tuple[int, str] | None, file: int, item: int) -> None:
        path = _pick(self._files("todo.md"), file)
        if named := re.findall(r" (\^\w+)$", person.split(self.tree[path])[0], re.MULTILINE):
            name = f"{agent_of(path)}/{_pick(named, item)}".lstrip("/")
            self._return(crash, lambda handle: handle.history.redo(name))

    # A person's turns

    @precondition(lambda self: self._files("todo.md"))
    @rule(
        file=PICKS,
        item=PICKS,
        to=PICKS,
        how=st.sampled_from(
            ["tick", "untick", "cancel", "add", "add below", "remove", "reword", "move", "prose", "heading", "untick"]
        ),
        keeps_stamp=st.sampled_from([True, True, True, False]),
    )
    def a_person_edits_a_plan(self, file: int, item: int, to: int, how: str, keeps_stamp: bool) -> None:
        path = _pick(self._files("todo.md"), file)
        self._edit_plan(path, item, to, how)
        if not keeps_stamp:
            self._lose_the_stamp(path)

    @precondition(lambda self: self._files("state.json"))
    @rule(file=PICKS, key=PICKS, how=st.sampled_from(["add", "change", "remove", "note"]))
    def a_person_edits_data(self, file: int, key: int, how: str) -> None:
        self._edit_data(_pick(self._files("state.json"), file), key, how)

    @precondition(lambda self: self._steps())
    @rule(file=PICKS, redo=st.booleans())
    def a_person_edits_a_step(self, file: int, redo: bool) -> None:
        path = _pick(self._steps(), file)
        saved = self._begin(path)
        found = json.loads(self.tree[path])
        where = found.get("agent", ""), found["scope"], found["step"]
        if found["kind"] == "effect":
            self.model.given.add(where)
            self.model.allowed[where] += redo
        if redo:
            saved.wishes["redo", ""] = True
            self._save(path, person.changed_json(self.tree[path], lambda step: step.update(redo=True)))
        else:
            value = saved.wishes["result", ""] = f"edited {next(self._made)}"
            self._save(path, person.changed_json(self.tree[path], lambda step: step.update(result=value)))
        if len(saved.wishes) > 1:  # both: refused
            saved.is_exact = False

    @precondition(lambda self: self.copies)
    @rule(
        file=PICKS, copy=PICKS, item=PICKS, to=PICKS, how=st.sampled_from(["tick", "untick", "add", "remove", "none"])
    )
    def a_person_brings_an_old_copy_back(self, file: int, copy: int, item: int, to: int, how: str) -> None:
        path = _pick(sorted(self.copies), file)
        self.model.forget(path)
        self.tree[path] = _pick(self.copies[path], copy)
        if how == "none" or not self._is_whole(path):
            return
        if path.endswith("todo.md"):
            self._edit_plan(path, item, to, how)
        else:
            self._edit_data(path, item, "change" if how == "tick" else "remove" if how == "untick" else "note")

    @precondition(lambda self: self._files("todo.md"))
    @rule(
        file=PICKS,
        cut=st.integers(0, 99),
        how=st.sampled_from(["delete", "empty", "zeros", "cut", "no stamp", "no stamp", "invalid", "twice", "status"]),
    )
    def a_person_spoils_a_file(self, file: int, cut: int, how: str) -> None:
        path = _pick(self._files("state.json") + self._files("todo.md"), file)
        data, is_plan = self.tree[path], path.endswith("todo.md")
        if how == "no stamp":
            return self._lose_the_stamp(path)
        self.model.forget(path)
        if how == "delete":
            del self.tree[path]
            return
        self.model.saved[path] = Saved(b"", is_spoiled=True)
        if is_plan:
            self.model.prose[agent_of(path)] = []
        named = [line for line in data.decode().splitlines() if "] " in line and " ^" in line] if is_plan else []
        if how == "twice" and named:
            self._save(path, person.inserted(data.decode(), 0, _pick(named, cut)).encode())
        elif how == "status" and not is_plan:
            self._save(path, person.changed_json(data, lambda state: state.update(status="completed?")))
        elif how == "invalid" and not is_plan:
            self._save(path, data.replace(b'"data"', b'"data', 1))
        else:
            self._save(path, {"empty": b"", "zeros": b"\0" * 40}.get(how, data[: len(data) * cut // 100]))

    # How they are done

    def _lose_the_stamp(self, path: str) -> None:
        data, saved = self.tree[path], self._begin(path)
        if not saved.is_exact:
            self.model.forget_values(path)
        saved.is_unstamped, saved.is_exact = True, False
        if path.endswith("todo.md"):
            self.ticked |= {(agent_of(path), row.name) for row in person.rows(data.decode()) if row.mark == "x"}
            if not saved.wishes:
                self.model.prose[agent_of(path)] = []  # it may be older than they are
            self._save(path, person.split(data)[0].encode() + b"\n")
        else:
            self._save(path, person.changed_json(data, lambda state: state.pop("at", None)))

    def _files(self, name: str) -> list[str]:
        return sorted(path for path in self.tree if _is_readable(path, name) and self._is_whole(path))

    def _is_whole(self, path: str) -> bool:
        """A person edits only what can be read."""
        try:
            if path.endswith(".json"):
                return isinstance(json.loads(self.tree[path])["data"], dict)
            text = person.split(self.tree[path])[0]
            names = [row.name for row in person.rows(text)]
            return len(names) == len(set(names)) > 0 and "\0" not in text and "<!--" not in text
        except (ValueError, KeyError, TypeError):
            return False

    def _steps(self) -> list[str]:
        found = []
        for path in sorted(self.tree):
            if "steps/" in path and path.endswith(".json") and ".rejected" not in path and ".satchel" not in path:
                found.append(path)
        return found

    def _begin(self, path: str) -> Saved:
        """What a person goes on from who opens this file in an editor."""
        model, data = self.model, self.tree[path]
        if path in model.saved:
            return model.saved[path]
        taken = model.taken.get(path)
        saved = Saved(data)
        if taken is not None and taken.data == data:  # a crash has kept it from being written anew
            saved = Saved(data, dict(taken.wishes), is_unstamped=taken.is_unstamped)
            model.saved[path] = saved
            known = model.known
            model.forget(path)
            assert known is model.known
        else:
            newest = self.tree["state.json"] if "/steps/" in f"/{path}" and "state.json" in self.tree else data
            saved.is_exact = _stamped_at(newest) == len(list(records(self.tree)))
        model.saved[path] = saved
        return saved

    def _known(self, path: str, what: str) -> Any:
        return self.model.known.get(agent_of(path), {}).get(what, {})

    def _save(self, path: str, data: bytes) -> None:
        saved = self.model.saved[path]
        self.tree[path] = saved.data = data
        self.written.add(data)
        if saved.is_tried:
            # What was taken by a process that then died is edited again in the file as it was before: what is taken
            # back is not noticed, and what is appended is appended twice. Known, and not promised.
            saved.is_exact = False
            for wish, value in saved.tried.items():
                if saved.wishes.get(wish) != value or wish[0] == "note":
                    saved.unsure.add(wish)
            for wish in saved.unsure:
                self.model.give_up(path, wish)
        taken = self.model.taken.get(path)
        if data in self.copies.get(path, ()) or (taken is not None and data == taken.data):
            # As the runtime has written it; or to the byte what was merged before.
            self.model.forget(path)
            self.model.saved[path] = Saved(data, is_unstamped=saved.is_unstamped, is_spoiled=True)

    def _edit_plan(self, path: str, item: int, to: int, how: str) -> None:
        text, stamp = person.split(self.tree[path])
        rows, number = person.rows(text), next(self._made)
        lines = len(text.splitlines())
        saved = self._begin(path)
        wishes = saved.wishes
        marks = {"tick": (" /-", "x"), "untick": ("x", " "), "cancel": (" /x", "-")}
        if how in marks:
            rows = [row for row in rows if row.mark in marks[how][0]]
            if not rows:
                return
            row, mark = _pick(rows, item), marks[how][1]
            text = person.marked(text, row, mark)
            wishes["mark", row.name] = mark
            self.ticked |= {(agent_of(path), row.name)} if how == "tick" else set()
        elif how == "add":
            text = person.inserted(text, _pick(rows, to).line if to % 2 else lines, f"- [ ] N{number} is new")
            wishes["item", f"N{number}"] = f"N{number} is new"
        elif how == "add below":
            row = _pick(rows, item)
            if row.depth or (agent_of(path), row.name) in SPAWNING:
                return
            text = person.inserted(text, row.line + 1, f"  - [ ] N{number} is new")
            wishes["item", f"N{number}"] = f"N{number} is new"
            wishes.pop(("mark", row.name), None)
        elif how == "remove":
            flat = [row for row in rows if row.name not in _parents(rows)]
            if len(flat) < 2:
                return
            row = _pick(flat, item)
            text = person.removed(text, row)
            for wish in [wish for wish in wishes if wish[1] == row.name]:
                del wishes[wish]
            wishes["item", row.name] = GONE
        elif how == "reword":
            row = _pick(rows, item)
            if not row.has_id:
                return  # may be taken for another one, if others come or go beside it
            text = person.reworded(text, row, f"as {number} says")
            wishes["item", row.name] = f"{row.name} as {number} says"
        elif how == "move":
            flat = [row for row in rows if row.name not in _parents(rows) and not row.depth]
            if not flat or _parents(rows):
                return
            row = _pick(flat, item)
            text = person.moved(text, row, _pick(rows, to).line)
            wishes.pop(("under", row.name), None)
        elif how == "prose":
            line = f"Words {number}, as they are:  *é* "
            text = person.inserted(text, 0, line)
            text = person.inserted(text, 1, "")
            wishes["prose", line] = True
        elif how == "heading":
            flat = [row for row in rows if row.name not in _parents(rows) and not row.depth]
            if not flat or _parents(rows):
                return
            row = _pick(flat, item)
            line = text.splitlines()[row.line]
            text = person.removed(text, row).rstrip("\n") + f"\n\n## Part {number}\n\n{line}\n"
            for wish in [wish for wish in wishes if wish[0] == "under" and wish[1] == row.name]:
                del wishes[wish]
            wishes["under", row.name] = f"## Part {number}"
        self._save(path, text.encode() + stamp)

    def _edit_data(self, path: str, key: int, how: str) -> None:
        data = json.loads(self.tree[path])["data"]
        keys, number = sorted(data.keys() - {"log"}), next(self._made)
        if how in ("change", "remove") and not keys:
            return
        saved = self._begin(path)
        name = f"p{number}" if how == "add" else _pick(keys, key) if keys else ""

        def change(state: dict[str, Any]) -> None:
            if how == "note":
                state["data"].setdefault("log", []).append(f"note {number}")
                saved.wishes["note", f"note {number}"] = True
            elif how == "remove":
                del state["data"][name]
                saved.wishes["data", name] = GONE
            else:
                state["data"][name] = saved.wishes["data", name] = f"said {number}"

        self._save(path, person.changed_json(self.tree[path], change))

    # Processes, and how they end

    def _run(self, crash: tuple[int, str] | None, breaks_at: int | None = None) -> str:
        status = []

        def live(system: Memory, process: Process) -> None:
            process.breaks_in = breaks_at or -1
            agent = make(process, parallel=self.parallel)
            outcome = run(DiskStore(ROOT, system), agent, watch=_Watch(self, system, process))
            status.append(outcome.status)
            if outcome.status == "failed" and not (breaks_at and process.breaks_in <= 0):
                told = "".join(traceback.format_exception(outcome.error))
                raise Lost(f"the run has failed: {told}")
            if not any(isinstance(each.call.fact, Opened) for each in system.log):
                self._told_of_opening(system)  # it was finished before

        self._turn(live, crash)
        return status[0] if status else "refused"

    def _open(
        self,
        why: Why,
        crash: tuple[int, str] | None,
        choices: dict[str, Side] | None = None,
        then: Callable[[opened_workspace.Workspace], None] | None = None,
    ) -> None:
        def live(system: Memory, process: Process) -> None:
            with opened(DiskStore(ROOT, system), why, Report(), choices=choices) as workspace:
                if not any(".theirs." in path for path in memory.files(system.nodes)):  # else something is still asked
                    self._told_of_opening(system)
                if then:
                    then(workspace)
                workspace.close()

        self._turn(live, crash)

    def _can_go_back(self) -> bool:
        """Not with edits that no process has taken: whether these are taken first and then undone, nobody can tell."""
        return bool(self.model.known and self._files("todo.md")) and not (self.model.saved or self.conflicted)

    def _return(self, crash: tuple[int, str] | None, go: Callable[[Handle], object]) -> None:
        """Whatever counts after it, the conversation stays and no effect acts again."""

        def live(system: Memory, process: Process) -> None:
            with suppress(UsageError):  # there is nothing that it could go back to, or do again
                go(Handle(DiskStore(ROOT, system), ROOT))
                self._told_of_opening(system)

        for agent in self.model.known:
            self.model.forget_agent(f"{folder_of(agent)}todo.md")
        self.model.taken.clear()
        self._turn(live, crash)

    def _settle(self, crash: tuple[int, str] | None, side: Side) -> None:
        choices = {path: self._chosen(path, side) for path in self.conflicted}
        for path, chosen in choices.items():
            if path not in self.model.saved:
                continue
            saved = self.model.saved[path]
            saved.is_settled = True
            if chosen == "edited":
                saved.is_exact = not saved.is_spoiled
            elif chosen == "ours":
                saved.is_exact = False
            if chosen == "ours":
                self.model.forget(path)
                self.model.saved[path] = saved
                saved.wishes.clear()
            else:
                self.model.forget_agent(path)
        self._open("merge", crash, choices)

    def _chosen(self, path: str, side: Side) -> Side:
        """What a person wants is the run's version if theirs was taken and came back, see `_turned_away`. And if theirs
        has no items: they can choose that, but then the run rightly fails, and this machine wants to go on."""
        if path not in self.model.saved:
            return "ours"
        data = self.tree.get(path, b"")
        if not data.strip(b"\0 \n"):  # then the version counts that was asked about
            data = self.tree.get(version_of(path, "theirs"), b"")
        is_plan = path.endswith("todo.md")
        return "ours" if is_plan and not person.rows(data.decode(errors="replace")) else side

    def _answer(self, crash: tuple[int, str] | None, pick: int, wants_it_again: bool) -> None:
        doubts = self._doubts()
        doubt = _pick(list(doubts.values()), pick)
        where = doubt.agent, doubt.scope, doubt.step
        has_acted = was_done(doubt, self.tree, self.model.world)
        if doubt.why == "unclaimed" and has_acted and wants_it_again:
            self.model.allowed[where] += 1
            has_acted = False
        self._open("answer", crash, then=lambda workspace: answer(workspace, doubt.id, is_done=has_acted))

    def _doubts(self) -> dict[str, Doubt]:
        return look_at(DiskStore(ROOT, Memory(_planted(self.tree)))).moment.doubts

    def _turn(self, live: Callable[[Memory, Process], None], crash: tuple[int, str] | None) -> None:
        self.is_sound = False
        new_process()
        system = Memory(_planted(self.tree))
        process = Process(system, self.model.world)
        error: Exception | None = None
        try:
            live(system, process)
        except (Refused, InvalidFile, Conflicting) as refused:
            error = refused
        at = len(system.log) if crash is None else len(system.log) * crash[0] // 1000
        is_crash = crash is not None and at < len(system.log)
        for each in system.log[: at + 1]:
            if each.call.name == "acknowledge":
                self.model.hear(each.call.fact)
                if isinstance(each.call.fact, Opened):
                    for path, data in each.call.fact.files.items():
                        self.copies.setdefault(path, []).append(data)
        if crash is not None and is_crash:
            self.tree = _left_by(system, at, crash[1])
        else:
            self.tree = _without_folders(memory.files(system.nodes))
        self.conflicted = []
        if error is not None and not is_crash:
            self._turned_away(error)
        self.model.left(self.tree)
        for saved in self.model.saved.values():
            if is_crash:
                saved.tried |= saved.wishes
                saved.is_tried = True
                saved.is_exact = saved.is_exact and not saved.is_settled
        self.is_sound = True

    def _turned_away(self, error: Exception) -> None:
        """Every file that was refused is kept, and restored; every one that is asked about is as it was."""
        assert isinstance(error, Refused | InvalidFile | Conflicting)
        if isinstance(error, Conflicting):
            kept = {path.replace(".theirs.", "."): data for path, data in self.tree.items() if ".theirs." in path}
            asked = {path.removeprefix("conflicts/"): data for path, data in kept.items()}
            self.conflicted = [*asked]  # also if the file itself is gone, blank or older by now
            saved = self.model.saved.get(str(error.path))
            if error.path not in asked or (saved and saved.data not in (*asked.values(), self.tree.get(error.path))):
                raise Lost(f"a conflict without versions to compare: {error}")
        else:
            assert error.path is not None
            saved = self.model.saved.get(error.path)
            kept = kept_aside(error.path, self.tree)
            if saved and self.tree.get(error.path) != saved.data and saved.data not in kept:
                raise Lost(f"{error.path} was refused and is not kept: {error}")
            if self.tree.get(error.path) in kept:
                raise Lost(f"{error.path} was refused and is not restored: {error}")
            # One that was taken may come back after a crash: here each turn has copies of the files, and of a copy it
            # can't be told whether it is the version that was taken.
            if error.path not in self.model.saved and self.written.isdisjoint(kept):
                raise Lost(f"{error.path} was refused, and nobody has edited it: {error}")

    def _told_of_opening(self, system: Memory) -> None:
        tree = _without_folders(memory.files(system.nodes))
        shown = self.model.opened(tree)
        copies = {path: data for path, data in tree.items() if _is_readable(path)}
        system.acknowledge(Opened(shown, copies))

    def _finish(self) -> None:
        """Whatever has happened: somebody who answers all questions brings the run to its end."""
        side: Literal["theirs", "ours"] = "theirs"
        for _ in range(_TURNS_TO_THE_END):
            if self.conflicted:
                self._settle(None, side)
                side = "ours" if side == "theirs" else "theirs"
            elif self._doubts():
                self._answer(None, 0, False)
            elif self._run(None) == "completed":
                break
        else:
            raise Lost("the run does not come to its end")
        self._nothing_is_left()

    def _nothing_is_left(self) -> None:
        for agent in PLANS:
            path = f"{folder_of(agent)}todo.md"
            above = [(spawner, name) for (spawner, name), children in SPAWNING.items() if agent in children]
            if path not in self.tree or (above and not self._is_entered(*above[0])):
                continue
            rows = person.rows(self.tree[path].decode())
            left = [row for row in rows if row.mark in " /" and not row.depth]  # below a ticked one it is skipped
            if left:
                raise Lost(f"the run is completed, and {path} has {left}")

    def _is_entered(self, agent: str, name: str) -> bool:
        """Whether the runtime has ticked the item that a sub-agent is spawned in."""
        rows = person.rows(self.tree[f"{folder_of(agent)}todo.md"].decode())
        is_ticked = any((row.name, row.mark) == (name, "x") for row in rows)
        above = [key for key, children in SPAWNING.items() if agent in children]
        return is_ticked and (agent, name) not in self.ticked and all(self._is_entered(*each) for each in above)


class _Watch:
    """Tells the process what the runtime tells its watch; and looks at the files when it has opened them."""

    def __init__(self, turns: Turns, system: Memory, process: Process):
        self._turns, self._system, self._process = turns, system, process

    def opened(self, report: Report) -> None:
        self._turns._told_of_opening(self._system)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


def _pick(found: list[Any], number: int) -> Any:
    return found[number % len(found)]


def _planted(tree: dict[str, bytes]) -> memory.Nodes:
    return memory.planted(tree)


def _without_folders(tree: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in tree.items() if not path.endswith("/")}


def _left_by(system: Memory, at: int, how: str) -> dict[str, bytes]:
    crash = Crash(at)
    if how == "power":
        rng = random.Random(at)
        crash = Crash(at, 0, rng.choice([*legal.power_failures(system.log[at].nodes, rng, 4)]))
    elif how == "torn":
        crash = [*legal.kills(system.log, at)][-1]
    return _without_folders(memory.files(legal.state_after(system.log, crash)))


def _is_readable(path: str, *names: str) -> bool:
    """A plan or the data of an agent."""
    folder, _, name = path.rpartition("/")
    return name in (names or ("todo.md", "state.json")) and not folder.startswith(
        (".satchel", "conflicts", "checkpoints")
    )


def _parents(rows: list[person.Row]) -> set[str]:
    return {above.name for above, below in pairwise(rows) if below.depth > above.depth}


def _stamped_at(data: bytes) -> int | None:
    match = re.search(rb'"seq": (\d+)|<!-- satchel (\d+)\.', data)
    return int(match[1] or match[2]) if match else None
