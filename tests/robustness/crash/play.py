"""Does by hand what the runtime does to an opened workspace, and tells the witness what a caller would rely on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from msgspec import Raw

from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import (
    Doubt,
    Line,
    Message,
    Output,
    PlanChanged,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepStarted,
    blobs,
)
from satchel.workspace.lifecycle.opening import Why, opened
from satchel.workspace.lifecycle.workspace import Workspace
from satchel.workspace.plan import Plan
from satchel.workspace.state.agent_state import ROOT
from satchel.workspace.store import DiskStore
from satchel.workspace.views import partial_files as partial_file
from satchel.workspace.views.partial_files import PartialHead

from .memory import ROOT as FOLDER
from .memory import Memory
from .witness import Fact, Streamed

ITEMS = ("Read the mail", "Write the report", "Send it")


class Play:
    """One opening of a workspace, and things to do in it. What it does twice, it does in the same way."""

    def __init__(self, system: Memory, workspace: Workspace):
        self.system, self.workspace = system, workspace
        self.moment, self.store, self.journal = workspace.moment, workspace.store, workspace.journal
        self.journal.on_durable = self._durable
        self._committed: list[tuple[int, list[Fact]]] = []  # what is told when the record is durable

    # The plan

    def start(self) -> None:
        """What an agent does first: its initial state, and a plan if nobody has written one."""
        if not self.moment.root.has_data:
            patch: list[dict[str, object]] = [{"op": "add", "path": "", "value": {"items": {}}}]
            self.journal.add(ScopeCommitted(scope=ROOT, patch=patch))
            self.journal.flush()
        if not self.moment.root.has_plan:
            self._replan(lambda plan: plan.write("Work", ITEMS))
            for text in ITEMS:
                self._told("plan", text)

    def add_item(self, text: str) -> None:
        if not any(task.text == text for task in self.moment.root.plan.tasks):
            self._replan(lambda plan: plan.add([text]))
            self._told("plan", text)

    def _replan(self, edit: Callable[[Plan], list[Any]]) -> None:
        self.journal.add(PlanChanged(plan=tuple(edit(self._plan())), by="agent"))
        self.journal.flush()
        self.project("todo")

    def _plan(self) -> Plan:
        return Plan(self.moment.root.plan.text)

    def begin(self) -> str | None:
        """The scope of the next item; None if all are done."""
        plan = self._plan()
        task = plan.next_to_do()
        if task is None:
            return None
        splices = plan.begin(task, self.moment.root.highest_id)
        scope = plan.tasks[task.index].id
        assert scope is not None
        if scope not in self.moment.root.scopes or splices:
            self.journal.add(ScopeBegun(scope=scope, title=task.text, plan=tuple(splices)))
        return scope

    # Steps

    def step(self, scope: str, name: str, size: int = 20) -> None:
        """A step that returns its name, that often. It is not done again if its result is there."""
        if self._done(scope, name) is None:
            value = _value(name, size)
            result = json.dumps(value).encode()
            kept = blobs.keep(self.store, result, self.journal.epoch)
            self.journal.add(StepCompleted(**self._call(scope, name), result=kept.result, blob=kept.blob))
            self.journal.flush()
            self.project("steps")
            self._told("step", (scope, name), value)

    def together(self, scope: str, *names: str) -> None:
        """Several steps that share a group: more than a sector, so a power failure can take the first of them alone."""
        missing = [name for name in names if self._done(scope, name) is None]
        for name in missing:
            result = Raw(json.dumps(_value(name, 60)).encode())
            self.journal.add(StepCompleted(**self._call(scope, name), result=result))
            self.journal.add(StepProgress(**self._call(scope, f"{name}-on"), value=Raw(b"1")))
        self.journal.flush()
        self.project("steps")
        for name in names:
            self._told("step", (scope, name), _value(name, 60))

    def effect(self, scope: str, name: str, ends: Literal["returns", "raises", "never"] = "returns") -> None:
        """Acts on the world outside; a doubt about an earlier attempt is put to a person, who says it is done."""
        if self._done(scope, name) is not None:
            return
        call = self._call(scope, name)
        if (name, call["args"], 0) in self.moment.root.scopes[scope].started:
            self._ask(scope, name)
            return
        self.journal.add(StepStarted(**call, idempotency_key=f"key-{scope}-{name}"))
        self.journal.flush()
        self._told("outside", (scope, name))
        if ends == "raises":
            self.journal.add(StepFailed(**call, error=_failure(), effect=True))
            self.journal.flush()
        elif ends == "returns":
            self.journal.add(StepCompleted(**call, result=Raw(b'"sent"'), effect=True))
            self.journal.flush()
            self._told("step", (scope, name), "sent")
        self.project("steps")

    def _ask(self, scope: str, name: str) -> None:
        question = next((each.id for each in self.moment.doubts.values() if each.step == name), None)
        if question is None:
            question = f"d{self.moment.doubts_asked + 1}"
            self.journal.add(Doubt(**self._call(scope, name), id=question, why="unknown_outcome"))
            self.journal.flush()
            self.project("state")
        self.journal.add(Resolved(id=question, outcome="done", by="a person", result=Raw(b'"sent"')))
        self.journal.flush()
        self._told("resolved", question)
        self.project("state", "steps")

    def stream(self, scope: str, name: str, pieces: int, ends: Literal["returns", "never"] = "returns") -> None:
        """A streamed step; every third piece is synced. Goes on from what was recovered."""
        if self._done(scope, name) is not None:
            return
        call = self._call(scope, name)
        self.journal.flush()  # of a scope that nobody knows, a partial can't be promoted
        recorded = self.moment.root.scopes[scope]
        promoted = recorded.promoted.get((name, call["args"], 0), [])
        attempt = promoted[-1].attempt + 1 if promoted else 1
        path = partial_file.partial_path("", scope, recorded.title, call["no"], name)
        head = PartialHead(run_id=self.moment.run_id, attempt=attempt, at="2026", **call)
        text = ""
        for number in range(pieces):
            text += f"{name} {attempt}.{number} é\n" * 40
            self.system.acknowledge(Streamed(scope, name, attempt, text, False))
            sync: Literal["no", "data"] = "data" if number % 3 == 2 else "no"
            self.store.replace(path, partial_file.encode_partial(head, text), sync=sync)
            self.system.acknowledge(Streamed(scope, name, attempt, text, True))
        if ends == "returns":
            self.journal.add(StepCompleted(**call, result=Raw(json.dumps(text[:20]).encode())))
            self.journal.flush()
            self.store.remove(path)
            self.project("steps")

    def _done(self, scope: str, name: str) -> StepCompleted | None:
        recorded = self.moment.root.scopes.get(scope)
        return recorded.done.get((name, _args(name), 0)) if recorded else None

    def _call(self, scope: str, name: str) -> dict[str, Any]:
        recorded = self.moment.root.scopes.get(scope)
        key = (name, _args(name), 0)
        last = max(recorded.last_number if recorded else 0, self._numbered.get(scope, 0))
        no = recorded.numbers.get(key) if recorded else None
        if no is None:
            no = self._numbered[scope] = last + 1
        return {"scope": scope, "no": no, "step": name, "args": key[1], "n": 0, "call": f"({name})"}

    _numbered: dict[str, int] = {}  # noqa: RUF012  # set anew by `playing`

    # Commits

    def output(self, name: str, text: str) -> dict[str, Output]:
        data = text.encode()
        self.store.replace(f"outputs/{name}", data)
        return {name: Output(hashlib.sha256(data).hexdigest(), len(data))}

    def commit(
        self,
        scope: str,
        *,
        outputs: dict[str, Output] | None = None,
        talk: bool = False,
        size: int = 20,
        travels: bool = False,
    ) -> None:
        """State, tick, result, messages and outputs as one; durable at once, or with what comes next."""
        plan = self._plan()
        task = plan.task(scope)
        assert task is not None
        for content in (f"question {scope}", f"answer {scope}") if talk else ():
            self.journal.add(Message(scope=scope, role="user", content=Raw(json.dumps(content).encode())))
        value = _value(f"result of {scope}", size)
        kept = blobs.keep(self.store, json.dumps(value).encode(), self.journal.epoch)
        self.journal.add(
            ScopeCommitted(
                scope=scope,
                patch=[{"op": "add", "path": f"/items/{scope}", "value": value[:20]}],
                plan=tuple(plan.tick(task)),
                result=kept.result,
                blob=kept.blob,
                outputs=outputs or {},
            )
        )
        facts = [Fact("result", scope, value), Fact("data", scope, value[:20]), Fact("tick", task.text)]
        facts += [Fact("output", f"outputs/{name}") for name in outputs or {}]
        if talk:
            facts += [Fact("message", f"question {scope}", 1), Fact("message", f"answer {scope}", 1)]
        self._committed.append((self.journal.next_seq - 1, facts))
        if not travels:
            self.journal.flush()
        self.project("messages", "state", "steps", "todo")
        self.workspace.checkpoint_if_due()

    def _durable(self, lines: Sequence[Line]) -> None:
        while self._committed and self._committed[0][0] <= lines[-1].seq:
            for fact in self._committed.pop(0)[1]:
                self.system.acknowledge(fact)

    def project(self, *names: str) -> None:
        for name in names:
            self.workspace.projector.mark(getattr(self.workspace.files[""], name))

    def _told(self, kind: Any, key: Any, value: Any = None) -> None:
        self.system.acknowledge(Fact(kind, key, value))


@contextmanager
def playing(system: Memory, why: Why = "run", report: Report | None = None) -> Iterator[Play]:
    with opened(DiskStore(FOLDER, system), why, report or Report()) as workspace:
        play = Play(system, workspace)
        play._numbered = {}
        yield play


def _value(name: str, size: int) -> str:
    return (f"{name} " * (size // len(name) + 1))[: max(size, 1)]


def _args(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def _failure() -> Any:
    from satchel.workspace.journal import Failure

    return Failure("TimeoutError", "after delivery, perhaps")
