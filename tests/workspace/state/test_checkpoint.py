"""Checkpoints and moments: that a run read from any checkpoint and continued is the run that was never interrupted."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast
from unittest import mock

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from linked import linked, parsed
from msgspec import Raw
from msgspec.structs import replace
from properties import examples

from satchel.schemas import problems
from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged, DoesNotFit, InvalidFile, NewerFormat, SatchelError
from satchel.workspace.formats.definition import Keep, Rule
from satchel.workspace.inbound import rewind_record
from satchel.workspace.inspect.load import look
from satchel.workspace.journal import (
    NOTHING,
    AgentBegun,
    AgentEnded,
    AnswersGrown,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRevoked,
    Closed,
    Configured,
    Doubt,
    Edited,
    Failure,
    FileWritten,
    Forced,
    Input,
    Line,
    Message,
    Migrated,
    OfCall,
    Opened,
    Output,
    PartialPromoted,
    Paused,
    PauseRequested,
    PlanChanged,
    Resolved,
    ResourceChanged,
    Resumed,
    SavedFile,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    Spent,
    StepCompleted,
    StepEdit,
    StepFailed,
    StepProgress,
    StepRetry,
    StepStarted,
    TaskDone,
    TaskTaken,
    Uncalled,
)
from satchel.workspace.plan import Plan, Splice
from satchel.workspace.state import checkpoint, encoding
from satchel.workspace.state import json_patch as patch
from satchel.workspace.state.agent_state import ROOT, AgentMoment
from satchel.workspace.state.checkpoint import MessagesAt
from satchel.workspace.state.encoding import ApartScope
from satchel.workspace.state.question_state import verdicts
from satchel.workspace.state.run_state import Moment
from satchel.workspace.state.scope_state import Past, RowLog, Scope
from satchel.workspace.store import DiskStore, Entry, FileContent, Store
from satchel.workspace.store.contract import BUCKET

RUN = "run-1"
AT = "2026-11-01T00:00:00.000Z"
FAILURE = Failure("E", "ü", ("agent.py:1 in f",))


class History:
    """A run that takes one legal action after another, as the runtime would record them, in groups. Every action is one
    agent's of a tree that grows."""

    def __init__(self, choose: random.Random):
        self.choose = choose
        self.moment = Moment(run_id=RUN)
        self.groups: list[list[Line]] = []
        self.epoch = 0
        self.calls = 0
        self.agent = self.moment.root
        self.open()

    def group(self, *records: AnyRecord) -> None:
        first = self.moment.seq + 1
        opening = f"{self.epoch:016x}"
        lines = [
            Line(first + n, first, self.at(), self.epoch, found, opening="" if n else opening)
            for n, found in enumerate(records)
        ]
        # What is applied at a re-opening comes from the file, so that is what is compared with.
        lines = parsed(linked(lines, self.moment.crc).data)
        self.moment.apply(read_again(lines))
        self.groups.append(lines)

    def at(self) -> str:
        return f"2026-11-01T00:{self.moment.seq // 60 % 60:02d}:{self.moment.seq % 60:02d}.000Z"

    def act(self) -> None:
        actions = [
            self.step,
            self.step,
            self.begin,
            self.begin,
            self.commit,
            self.commit,
            self.effect,
            self.effect,
            self.effect,
            self.fail,
            self.fail_scope,
            self.plan,
            self.promote,
            self.progress,
            self.ask,
            self.answer,
            self.reopen,
            self.change,
            self.spawn,
            self.end_agent,
            self.edit_state,
            self.edit_plan,
            self.edit_step,
            self.edit_step,
            self.edit_definition,
            self.pause,
            self.ask_for_approval,
            self.approve,
            self.take_task,
            self.spend,
            self.configure,
            self.rewind,
            self.append,
            self.put,
        ]
        others = [*self.moment.agents.values()][1:]
        self.agent = self.choose.choice(others) if others and self.choose.random() < 0.5 else self.moment.root
        self.choose.choice(actions)()

    def of(self) -> dict[str, Any]:
        return {"agent": self.agent.path}

    def scope(self) -> str:
        _, *begun = self.agent.scopes
        return self.choose.choice(begun) if begun and self.choose.random() < 0.8 else ROOT

    def call(self, scope: str | None = None) -> dict[str, Any]:
        self.calls += 1
        prompts = {"brief": "0" * 12} if self.choose.random() < 0.2 else {}
        return self.of() | {
            "scope": self.scope() if scope is None else scope,
            "no": self.calls,
            "step": self.choose.choice(["read", "send"]),
            "args": f"{self.choose.randrange(4):016x}",
            "n": self.calls,
            "call": self.choose.choice(["", "('ü')"]),
            "prompts": prompts,
        }

    # The run

    def open(self) -> None:
        self.epoch += 1
        why = self.choose.choice(["run", "recover", "merge", "pause", "answer"])
        why = "replay" if why == "run" and self.epoch % 4 == 0 else why
        found = "new" if not self.moment.seq else "clean" if self.moment.clean else "crash"
        definition = None if self.moment.definition else {"run_id": RUN, "agent": "agent.py:main", "settings": {"n": 1}}
        backup = journal.RestoredFrom("s3://backup", "/runs/r", 3, AT, f"{self.epoch:032x}", self.epoch % 2 == 0)
        self.group(
            Opened(
                format=journal.FORMAT,
                run_id=RUN,
                satchel="0",
                python="3",
                host="h",
                pid=1,
                url="s3://b/r",
                why=why,
                found=found,  # type: ignore[arg-type]
                definition=definition,
                boot="b" if why in ("run", "replay") else "",
                crashed=found == "crash",
                run_nonce=self.choose.choice(["", "0" * 32]),
                forked=self.choose.choice([None, journal.Lineage("s3://b/q", "run-0", 7)]),
                restored=backup if self.epoch % 3 == 0 else None,
            )
        )

    def reopen(self) -> None:
        if self.choose.random() < 0.7:
            status = self.choose.choice([None, "completed", "failed", "waiting", "paused", "sleeping", "cancelled"])
            error = FAILURE if status in ("failed", "paused") else None
            until = AT if status == "sleeping" else ""
            untaken = {"inbox/a.md": "0" * 64} if status == "completed" else {}
            reason = "because" if status else ""
            result = Raw(b'{"a":1}') if status == "completed" else NOTHING
            left = self.moment.root.scopes.items() if status == "completed" else ()
            self.group(
                *(
                    Uncalled(scope=key, calls=tuple(call for call, done in scope.done.items() if done.effect))
                    for key, scope in left
                ),
                Closed(status=status, reason=reason, error=error, until=until, untaken=untaken, result=result),  # type: ignore[arg-type]
            )
        self.open()

    def rewind(self) -> None:
        """Back to any earlier record, or to a new run."""
        then = Moment(run_id=RUN)
        lines = [line for group in self.groups for line in group]
        then.apply(read_again(lines[: self.choose.randrange(len(lines))]))
        forgets = self.choose.random() < 0.3
        if self.moment.root.adopted and not then.root.has_plan:
            return  # refused
        found = rewind_record.plan(self.moment, then, "ann", forgets=forgets)
        self.group(msgspec.structs.replace(found.record, agents=found.agents))

    def spawn(self) -> None:
        """A new agent below this one, or one that is there again."""
        path = f"{self.agent.path}/{self.choose.choice(['reader', 'writer'])}".removeprefix("/")
        if path.count("/") < 3:
            args = f"{self.choose.randrange(2):016x}"
            self.group(AgentBegun(agent=path, scope=self.scope(), args=args, call=self.choose.choice(["", "('ü')"])))

    def end_agent(self) -> None:
        if self.agent.path:
            ends = [{"result": Raw(b'{"a": 1}')}, {"blob": "0" * 64 + "-1"}, {}, {"error": FAILURE}]
            self.group(AgentEnded(**self.of(), **self.choose.choice(ends)))

    # Scopes

    def begin(self) -> None:
        number = self.agent.highest_id + 1
        ended = [key for key in self.agent.past if key not in self.agent.results]  # to be done again
        key = self.choose.choice([str(number), f"_scope {number}", f"setup-{number}", *ended * 3])
        if not self.agent.has_plan and not key.startswith("_"):
            return  # items are of a plan
        if key not in self.agent.scopes and key not in self.agent.results:
            self.group(ScopeBegun(**self.of(), scope=key, title=f"Item {number} / ü"))

    def fail_scope(self) -> None:
        if (key := self.scope()) != ROOT:
            self.group(ScopeFailed(**self.of(), scope=key, error=FAILURE))

    def commit(self) -> None:
        key = self.scope()
        doubts = [doubt for doubt in self.moment.doubts.values() if doubt.why != "unclaimed"]
        if key == ROOT or any((doubt.agent, doubt.scope) == (self.agent.path, key) for doubt in doubts):
            return
        messages = [
            Message(**self.of(), scope=key, role="user", content=Raw(b'"hi"')) for _ in range(self.choose.randrange(3))
        ]
        splices = self.agent.plan.copy().add([f"after {key}"]) if self.choose.random() < 0.3 else ()
        effects = [call for call, journal in self.agent.scopes[key].done.items() if journal.effect]
        self.group(
            *messages,
            ScopeCommitted(
                **self.of(),
                scope=key,
                patch=self.changes(),
                plan=tuple(splices),
                result=Raw(b"[1]"),
                outputs={f"{key}.md": Output("0" * 64, 3)} if self.choose.random() < 0.3 else {},
                cancelled=self.choose.choice([None, "not needed"]),
                uncalled=tuple(effects[:1]) if self.choose.random() < 0.3 else (),
            ),
        )

    def change(self) -> None:
        self.group(ScopeCommitted(**self.of(), scope=ROOT, patch=self.changes()))

    def changes(self) -> journal.Patch:
        if not self.agent.has_data:
            return [{"op": "add", "path": "", "value": {"log": [], "a/b": {"~": 1}}}]
        new = msgspec.json.decode(msgspec.json.encode(self.agent.data))
        new["log"] = (new["log"] + [self.calls])[-5:]
        new["a/b"] = self.choose.choice([{"~": True}, {"~": 1}, None, {"~": 1.0, "x": [{}]}])
        return patch.diff(self.agent.data, new)

    def plan(self) -> None:
        splices = self.agent.plan.copy().write("Plan ü", [f"do {self.calls}", "do\u2028it"])
        by = self.choose.choice(["agent", "person"])
        planned = f"{self.calls:016x}" if by == "agent" else ""
        self.group(PlanChanged(**self.of(), plan=tuple(splices), by=by, why="planned", planned=planned))

    # Calls

    def step(self) -> None:
        result, blob = self.choose.choice([(Raw(b'{"a": 1}'), ""), (NOTHING, "0" * 64 + "-1"), (Raw(b"null"), "")])
        model = self.choose.choice(["", "smaller"])
        self.group(StepCompleted(**self.call(), result=result, blob=blob, ms=self.calls, model=model))

    def effect(self) -> None:
        call = self.call()
        self.group(StepStarted(**call, idempotency_key="k", arguments=self.choose.choice([NOTHING, Raw(b'{"a": 1}')])))
        ending = self.choose.randrange(5)
        if ending <= 1:
            self.group(StepCompleted(**call, effect=True, result=Raw(b"1"), how="verified"))
        elif ending == 2:
            self.group(StepFailed(**call, effect=True, not_done=True, error=Failure("E", "x")))
        elif ending == 3:
            self.group(Doubt(**call, id=f"d{self.moment.doubts_asked + 1}", why="unknown_outcome", cause="a crash"))

    def ask(self) -> None:
        key = self.scope()
        others = tuple(self.agent.scopes[key].started) + tuple(self.agent.scopes[key].done)[:1]
        self.group(
            Doubt(**self.call(key), id=f"d{self.moment.doubts_asked + 1}", why="unclaimed", others=others, cause="")
        )

    def answer(self) -> None:
        if self.moment.doubts:
            id = self.choose.choice([*self.moment.doubts])
            doubt = self.moment.doubts[id]
            known = verdicts(doubt, self.moment.agents[doubt.agent].scopes[doubt.scope].numbers)
            outcome, other = self.choose.choice([*known.values()])
            result = self.choose.choice([NOTHING, Raw(b'"r"')]) if outcome == "done" else NOTHING
            self.group(Resolved(id=id, outcome=outcome, other=other, by="ann", result=result))
            if other is not None and self.choose.random() < 0.9:
                call = {name: getattr(doubt, name) for name in OfCall.__struct_fields__}
                self.group(StepCompleted(**call, effect=True, result=Raw(b"1"), how="resolved"))

    def fail(self) -> None:
        error = Failure("E", "x", types=("builtins:ValueError",), args=Raw(b"[1]"), attributes=Raw(b'{"a": 1}'))
        call, is_final = self.call(), self.choose.random() < 0.5
        if not is_final:
            self.group(StepRetry(**call, error=error, attempt=1, wait=0.1))
        self.group(StepFailed(**call, error=error, attempt=2, final=is_final))

    def promote(self) -> None:
        call = self.call()
        for attempt in range(1, self.choose.randrange(1, 4)):
            self.group(
                PartialPromoted(
                    **call,
                    attempt=attempt,
                    file="recovered/x.md",
                    characters=3,
                    damaged=False,
                    cut_off_at=AT,
                    cut_off_by="crash",
                )
            )
        if self.choose.random() < 0.3:
            self.group(StepCompleted(**call, result=Raw(b'"done"')))

    def progress(self) -> None:
        call = self.call()
        self.group(StepProgress(**call, value=Raw(b"[1,2]")))
        if self.choose.random() < 0.3:
            self.group(StepCompleted(**call, result=Raw(b"1")))

    # Stopping, asking, and what arrives from outside

    def pause(self) -> None:
        mode = self.choose.choice(["drain", "emergency", "cancel"])
        until = self.choose.choice(["", AT])
        self.group(PauseRequested(reason="cost", by="ann", mode=mode, resume="restart_step", until=until))  # type: ignore[arg-type]
        if self.choose.random() < 0.3:
            self.group(Forced(under_way=("send()",), waited=120.0))
        if self.choose.random() < 0.7:
            self.group(Paused(forced=self.moment.unclean, error=self.choose.choice([None, FAILURE])))
        if self.choose.random() < 0.5:
            restart = self.choose.random() < 0.2
            self.group(Resumed(by="ann", instructions="go", seconds=3.5, restart=restart, says=("code",)))

    def ask_for_approval(self) -> None:
        scope = self.scope()
        earlier = [id for id, asked in self.moment.approvals.items() if asked.scope == scope]
        self.group(
            ApprovalAsked(
                **self.call(scope),
                id=f"a{self.moment.approvals_asked + 1}",
                question="Grant ü?",
                choices=self.choose.choice([(), ("approve", "deny")]),
                expires=self.choose.choice(["", AT]),
                answer_schema=self.choose.choice([None, {"type": "string"}]),
                context=Raw(b'{"user": "ada"}'),
                default=self.choose.choice([NOTHING, Raw(b'"deny"')]),
                arguments=Raw(b'{"sum":80}') if self.calls % 2 else NOTHING,
                tool="send",
                withdraws=tuple(earlier) if self.choose.random() < 0.3 else (),
            )
        )

    def approve(self) -> None:
        if self.moment.approvals:
            asked = self.moment.approvals[self.choose.choice([*self.moment.approvals])]
            under = self.moment.stands_for(asked.agent, asked.tool)
            yes = Raw(b'"approve"')
            if under is not None:
                self.group(ApprovalAnswered(id=asked.id, decision=yes, by="ann", how="standing", under=under))
                begun = self.call(asked.scope) | {"agent": asked.agent, "step": asked.tool}
                if self.choose.random() < 0.5:
                    self.group(StepStarted(**begun, idempotency_key="k"))
            elif self.calls % 3:
                self.group(ApprovalAnswered(id=asked.id, decision=yes, by="ann", standing=True))
            else:
                changed = Raw(b'{"sum":50}') if len(asked.arguments) else NOTHING
                self.group(ApprovalAnswered(id=asked.id, decision=yes, arguments=changed, by="ann", how="command"))
        used = [id for id, each in self.moment.standing.items() if each.told or each.begun]
        if used and self.calls % 2:
            self.group(ApprovalRevoked(id=used[0], by="bob"))

    def take_task(self) -> None:
        if self.moment.tasks and self.choose.random() < 0.5:
            self.group(TaskDone(id=next(iter(self.moment.tasks)), moved_to=self.choose.choice(["", "other"])))
        else:
            self.calls += 1
            contents: list[dict[str, Any]] = [{"content": Raw(b'"text"')}, {"blob": "1" * 64 + "-1"}]
            contents += [{"kind": "schedule", "schedule": "1", "due": AT, "unopened": self.calls % 2 == 0}]
            content = self.choose.choice(contents)
            self.group(
                TaskTaken(
                    **self.of(),
                    id=f"t{self.calls}",
                    scope=self.scope(),
                    file=f"inbox/{self.calls}.md",
                    sha256="0" * 64,
                    **content,
                )
            )

    def spend(self) -> None:
        outside = {"scope": self.scope(), "n": self.choose.randrange(3)} if self.choose.random() < 0.5 else {}
        self.group(Spent(**self.of(), tokens=self.choose.randrange(9), usd=self.choose.choice([0.0, 0.31]), **outside))
        self.group(AnswersGrown(answers=self.choose.randrange(3)))
        self.group(ResourceChanged(name="db", tier="application", event="opened", outcome="failed", why="no", ms=3))

    def configure(self) -> None:
        if self.moment.root.input is None:
            self.group(Input(arguments=Raw(b'{"topic":"x"}')))
        self.group(Configured(config={"python": "3", "prompts": {"brief": "0" * 12}, "n": self.calls}))
        if self.agent.has_data:
            self.group(Migrated(**self.of(), to=self.agent.data_version + 1, patch=self.changes()))

    # What a person does to the files

    def edited(self, file: str, **changes: Any) -> None:
        sha = f"{self.choose.randrange(9):064x}"
        base = self.choose.choice([None, self.moment.seq])
        self.group(Edited(**self.of(), file=f"{self.agent.folder}{file}", by="ann", sha=sha, base=base, **changes))

    def edit_state(self) -> None:
        if self.agent.has_data:
            self.edited("state.json", patch=self.changes(), saved=AT, says=("data.log",))

    def edit_plan(self) -> None:
        plan = self.agent.plan.copy()
        splices = plan.add([f"a person's {self.calls}"])
        outline = plan.outline() if self.choose.random() < 0.5 else []
        known = {*self.agent.scopes, *self.agent.results} - {ROOT}
        some = [key for key in sorted(known) if self.choose.random() < 0.3]
        redone = tuple(key for key in some if self.choose.random() < 0.6)
        dropped = tuple(key for key in some if key not in redone)
        self.edited("todo.md", plan=tuple(splices), outline=outline, redone=redone, dropped=dropped)

    def edit_step(self) -> None:
        """Of a call that has an outcome, or an effect in doubt: do it again, or take this for its result."""
        scope = self.scope()
        recorded = self.agent.scopes[scope]
        effects = [key for key, call in recorded.done.items() if call.effect]
        calls = [*recorded.done, *recorded.started, *effects * 3]
        if calls:
            wish: dict[str, Any] = self.choose.choice(
                [{"redo": True}, {"result": Raw(b'"mine"')}, {"blob": "1" * 64 + "-1"}]
            )
            key = self.choose.choice(calls)
            self.edited(f"steps/{len(calls)}.json", step=StepEdit(scope=scope, key=key, **wish))

    def append(self) -> None:
        log, key = self.choose.choice(["", "calls", "other"]), self.choose.choice(["", f"turn-{self.calls}"])
        row = Message(**self.of(), scope=ROOT, role="" if log else "user", content=Raw(b'{"n":1}'), log=log)
        self.group(row, ScopeCommitted(**self.of(), scope=ROOT, key=key))

    def put(self) -> None:
        path, text = self.choose.choice(["a.txt", "b/c.txt"]), f"{self.calls}"
        self.group(FileWritten(path=path, content=SavedFile(sha256="0" * 64, bytes=len(text), text=text)))

    def edit_definition(self) -> None:
        patch: journal.Patch = [{"op": "replace", "path": "/settings/n", "value": self.calls}]
        self.group(Edited(file="workspace.yaml", by="ann", sha="0" * 64, patch=patch))


_NOT_KEPT = {
    Scope: {"messages", "retries"},
    ApartScope: {"messages", "retries", "later"},
    AgentMoment: {"new_messages", "messages_at", "left_out"},
    RowLog: {"new_messages", "messages_at", "left_out"},
}
"""Messages whose scope has not committed with them count for nothing, a call waits for its retry in one process only,
and `new_messages` is only what a file still lacks. Of everything else, each field of each struct is compared."""

_IN_ANY_ORDER = {"numbers"}


def shown(value: Any) -> Any:
    """All that a moment says, as plain values that can be compared: with the order of what is in order, and the types
    of numbers."""
    match value:
        case Plan():
            return value.text, value.outline()
        case msgspec.Struct():
            left_out = _NOT_KEPT.get(type(value), set())
            return {
                name: dict(field) if name in _IN_ANY_ORDER else shown(field)
                for name in value.__struct_fields__
                if name not in left_out
                for field in [getattr(value, name)]
            }
        case dict():
            return [(key, shown(each)) for key, each in value.items()]
        case list() | tuple():
            return [shown(each) for each in value]
        case set():
            return sorted(value)
    return type(value), value


def read_again(lines: Iterable[Line]) -> list[Line]:
    """Values of a patch become part of the moment, so lines are applied once."""
    return [replace(line, record=journal.parse(journal.encode(line)[:-1]).record) for line in lines]


def grown(seed: int, actions: int) -> History:
    history = History(random.Random(seed))
    for _ in range(actions):
        history.act()
    return history


@examples(60)
@given(st.integers(0, 2**32), st.integers(0, 25), st.data())
def test_a_moment_read_from_any_checkpoint_and_continued_is_the_uninterrupted_one(
    seed: int, actions: int, data: st.DataObject
) -> None:
    history = grown(seed, actions)
    cut = data.draw(st.integers(0, len(history.groups)))
    early = Moment(run_id=RUN)
    for group in history.groups[:cut]:
        early.apply(read_again(group))
    messages = {
        place.key: MessagesAt(place.log.messages, number, "00000000") for number, place in enumerate(early.row_logs)
    }
    read, at = checkpoint.parse(checkpoint.encode(early, messages))
    assert shown(read) == shown(early) and at == messages
    for group in history.groups[cut:]:
        read.apply(read_again(group))
    assert shown(read) == shown(history.moment)


@given(st.integers(0, 2**32))
def test_the_same_records_give_the_same_moment_however_they_are_cut_into_calls(seed: int) -> None:
    history = grown(seed, 15)
    at_once = Moment(run_id=RUN)
    at_once.apply(read_again(line for group in history.groups for line in group))
    assert shown(at_once) == shown(history.moment)
    for path, agent in at_once.agents.items():
        assert agent.new_messages == history.moment.agents[path].new_messages


def _spoilt(found: AnyRecord, choose: random.Random) -> AnyRecord:
    """A record whose last part does not fit, whatever went before it."""
    if isinstance(found, ScopeCommitted | Edited | Migrated) and choose.random() < 0.5:
        return replace(found, patch=[*found.patch, {"op": "remove", "path": "/log/999"}])
    if isinstance(found, ScopeBegun | ScopeCommitted | PlanChanged | Edited):
        return replace(found, plan=(*found.plan, Splice(10**6, 1, "")))
    return found


@examples(30)
@given(st.integers(0, 2**32))
def test_a_record_that_does_not_fit_is_applied_in_part(seed: int) -> None:
    """Records of another history of the same run, and some with an end that fits nowhere."""
    history, choose = grown(seed, 25), random.Random(seed)
    others = [line.record for group in grown(seed + 1, 40).groups for line in group]
    moment, refused = history.moment, 0
    for found in choose.sample(others, min(40, len(others))):
        before, new_messages = shown(moment), {path: [*agent.new_messages] for path, agent in moment.agents.items()}
        try:
            moment.add(Line(moment.seq + 1, moment.seq + 1, history.at(), history.epoch, _spoilt(found, choose)))
        except DoesNotFit:
            refused += 1
            assert shown(moment) == before
            assert {path: agent.new_messages for path, agent in moment.agents.items()} == new_messages
    event(f"{refused // 10 * 10} or more refused")


@given(st.integers(0, 2**32))
def test_a_checkpoint_is_the_same_bytes_when_it_is_written_again(seed: int) -> None:
    data = checkpoint.encode(grown(seed, 25).moment, {})
    assert checkpoint.encode(*checkpoint.parse(data)) == data


def test_no_field_of_a_moment_is_forgotten_by_a_checkpoint() -> None:
    """Nor by the histories: each field says something in one of them, or that it is kept would go unseen."""
    blank = {type(each): each for each in (Moment(run_id=""), AgentMoment(), Scope(), Past("", 0))}
    silent = {(kind, name) for kind in blank for name in kind.__struct_fields__ if name not in _NOT_KEPT.get(kind, ())}
    for seed in range(100):
        moment = grown(seed, 60).moment
        # No record says so: it is what a lost journal leaves to assume.
        moment.root.forgotten, moment.lost_nonce = [ROOT, "1"][: seed % 3], bool(seed % 2)
        messages = {place.key: MessagesAt(place.log.messages) for place in moment.row_logs}
        read, _ = checkpoint.parse(checkpoint.encode(moment, messages))
        assert shown(read) == shown(moment)
        agents = [*moment.agents.values()]
        scopes = [scope for agent in agents for scope in agent.scopes.values()]
        past = [past for agent in agents for past in agent.past.values()]
        for each in (moment, *agents, *scopes, *past):
            silent -= {
                (kind, name)
                for kind, name in silent
                if kind is type(each) and shown(getattr(each, name)) != shown(getattr(blank[kind], name))
            }
    assert not silent


SAMPLE = grown(1, 40).moment
DATA = checkpoint.encode(SAMPLE, {})


def test_a_checkpoint_with_any_byte_changed_is_refused() -> None:
    for at in range(len(DATA) - 1):
        for byte in {DATA[at] ^ 1, 0}:
            with pytest.raises(ValueError):
                checkpoint.parse(DATA[:at] + bytes([byte]) + DATA[at + 1 :])


def test_a_checkpoint_cut_anywhere_is_refused() -> None:
    for at in range(len(DATA) - 1):
        with pytest.raises(ValueError):
            checkpoint.parse(DATA[:at])


def test_a_checkpoint_is_json_with_its_hash_last() -> None:
    facts = json.loads(DATA)
    assert [*facts] == ["format", "moment", "messages", "sha256"]
    assert facts["sha256"] == hashlib.sha256(DATA[: DATA.rindex(b',"sha256"')]).hexdigest()


def signed(facts: Any) -> bytes:
    body = (facts if isinstance(facts, bytes) else json.dumps(facts).encode())[:-1]
    return b'%s,"sha256":"%s"}\n' % (body, hashlib.sha256(body).hexdigest().encode())


def facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DATA)
    del found["sha256"]
    return found


def changed(**changes: Any) -> dict[str, Any]:
    """The sample with other fields in its moment."""
    found = facts()
    return found | {"moment": found["moment"] | changes}


def with_agents(**agents: dict[str, Any]) -> dict[str, Any]:
    """The sample with these agents only, each like the root but for what is given."""
    root = facts()["moment"]["agents"][""]
    found = changed(agents={path: root | {"path": path} | agent for path, agent in agents.items()})
    return found | {"messages": {path: {} for path in agents}}


def test_a_newer_checkpoint_is_not_a_broken_one() -> None:
    with pytest.raises(NewerFormat, match=r"(?i)upgrade"):
        checkpoint.parse(signed(facts() | {"format": 2, "moment": "something else altogether"}))


DEEP = b"[" * 100_000 + b"]" * 100_000
DATA_OF_ROOT = {"has_data": True, "data": {}}

SENSELESS: dict[str, Any] = {
    "nothing": {},
    "no agents": changed(agents={}),
    "no root": with_agents(other={}),
    "no calls of its own": with_agents(**{"": {"scopes": {}}}),
    "data are a list": with_agents(**{"": {"has_data": True, "data": [1]}}),
    "data of a sub-agent are a number": with_agents(**{"": DATA_OF_ROOT, "a": {"has_data": True, "data": 1}}),
    "an agent without the one above": with_agents(**{"": DATA_OF_ROOT, "a/b": DATA_OF_ROOT}),
    "an agent before the one above": with_agents(**{"": DATA_OF_ROOT, "a/b": DATA_OF_ROOT, "a": DATA_OF_ROOT}),
    "an agent that says it is another": with_agents(**{"": DATA_OF_ROOT, "a": DATA_OF_ROOT | {"path": "b"}}),
    "an agent without messages": with_agents(**{"": DATA_OF_ROOT}) | {"messages": {}},
    "messages before the first byte": facts() | {"messages": {"": {"bytes": -1}}},
    "before the first record": changed(seq=-1),
    "before the first epoch": changed(epoch=-1),
    "epoch that no stamp holds": changed(epoch=10**12),
    "seq that no name holds": changed(seq=10**13),
    "unknown status": changed(status="asleep"),
    "format in words": facts() | {"format": "1"},
    "no run": changed(run_id=5),
    "opened at no time": changed(opened_at="yesterday"),
    "opened at a time somewhere": changed(opened_at="2026-11-01T00:00:00"),
    "sleeps without end": changed(status="sleeping", until=""),
    "a question of nobody": changed(
        doubts={
            "d1": {
                "type": "doubt",
                "agent": "gone",
                "scope": "",
                "no": 1,
                "step": "s",
                "args": "0" * 16,
                "n": 0,
                "id": "d1",
                "why": "unreached",
            }
        }
    ),
    "deep": json.dumps(facts()).encode()[:-1] + b',"x":' + DEEP + b"}",
    "no text": json.dumps(facts()).encode().replace(b"run-1", b"run-\xff"),
    "a list": b"[1]",
    "null": b"null",
}


@pytest.mark.parametrize("what", SENSELESS)
def test_a_signed_checkpoint_that_says_nothing_sensible_is_refused(what: str) -> None:
    with pytest.raises(ValueError):
        checkpoint.parse(signed(SENSELESS[what]))


def test_the_checkpoints_that_the_senseless_ones_are_made_from_are_refused() -> None:
    checkpoint.parse(signed(facts()))
    read, _ = checkpoint.parse(signed(with_agents(**{"": DATA_OF_ROOT, "a": DATA_OF_ROOT, "a/b": DATA_OF_ROOT})))
    assert [*read.agents] == ["", "a", "a/b"]


def test_an_id_of_many_digits_does_not_make_checkpoints_impossible() -> None:
    moment = Moment(run_id=RUN)
    key = "9" * 40
    moment.apply([Line(1, 1, AT, 1, ScopeBegun(scope=key, title="a"))])
    splices = moment.root.plan.copy().write(None, ["a"])
    moment.apply([Line(2, 2, AT, 1, PlanChanged(plan=tuple(splices), by="agent"))])
    read, _ = checkpoint.parse(checkpoint.encode(moment, {}))
    assert shown(read) == shown(moment)
    plan = read.root.plan
    task = plan.next_to_do()
    assert task is not None
    plan.begin(task, read.root.highest_id)
    assert plan.tasks[0].id == "1"  # and not one too long to be an id


# The files


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    (tmp_path / "workspace.yaml").write_text(f"format: 1\nrun_id: {RUN}\nagent: agent.py:main\n")
    return DiskStore(tmp_path)


def moment_at(seq: int) -> Moment:
    moment = Moment(run_id=RUN)
    moment.seq, moment.epoch = seq, 1
    return moment


def test_only_the_newest_checkpoints_are_kept_and_nothing_else_is_removed(store: DiskStore) -> None:
    store.replace("checkpoints/notes.txt", b"mine")
    for seq in range(1, 10):
        checkpoint.write(store, moment_at(seq), {})
    assert [path[12:24] for path in checkpoint.paths(store)] == [f"{seq:012d}" for seq in range(5, 10)]
    assert store.read("checkpoints/notes.txt").data == b"mine"
    assert checkpoint.newest(store)[0].seq == 9  # type: ignore[union-attr]


def kept(store: DiskStore) -> list[int]:
    return [checkpoint.position_of(path) for path in checkpoint.paths(store)]


def aged(store: DiskStore, hours: int) -> None:
    """Let all that were written by now be so much older."""
    for path in checkpoint.paths(store):
        full = Path(store.url, path)
        at = full.stat().st_mtime - 3600 * hours
        os.utime(full, (at, at))


def test_a_checkpoint_is_removed_that_is_young_enough(store: DiskStore) -> None:
    a_day = Keep(checkpoints=Rule(1, 86400.0))
    for seq in range(1, 10):
        aged(store, 8)
        checkpoint.write(store, moment_at(seq), {}, keep=a_day)
    assert kept(store) == [7, 8, 9], "of 0, 8 and 16 hours"
    aged(store, 1000)
    checkpoint.write(store, moment_at(10), {}, keep=a_day)
    assert kept(store) == [10]


def test_what_either_of_the_two_keeps_is_removed(store: DiskStore) -> None:
    for seq in range(1, 10):
        aged(store, 8)
        checkpoint.write(store, moment_at(seq), {}, keep=Keep(checkpoints=Rule(5, 86400.0)))
    assert kept(store) == [5, 6, 7, 8, 9]
    for seq in range(10, 20):
        checkpoint.write(store, moment_at(seq), {}, keep=Keep(checkpoints=Rule(5, 86400.0)))
    assert kept(store) == [7, 8, 9, *range(10, 20)]


@pytest.mark.parametrize("rule", [Rule(1), Rule(2), Rule(1, 60.0)])
def test_the_last_one_from_before_a_stop_by_force_is_removed(store: DiskStore, rule: Rule) -> None:
    keep = Keep(checkpoints=rule)
    for seq in (1, 2):
        checkpoint.write(store, moment_at(seq), {}, keep=keep)
        aged(store, 1)
    for seq in range(3, 9):
        unclean = moment_at(seq)
        unclean.unclean = True
        path = checkpoint.write(store, unclean, {}, keep=keep).path
        assert path.endswith("_unclean.json")
        aged(store, 1)
    assert kept(store) == [2, *range(9 - rule.number, 9)]
    found = rewind_record.last_good(store, unclean)
    assert found is not None and found.moment.seq == 2
    checkpoint.write(store, moment_at(9), {}, keep=keep)
    assert kept(store) == [*range(10 - rule.number, 10)]


def test_the_words_of_an_item_make_a_checkpoint_look_unclean() -> None:
    moment = Moment(run_id=RUN)
    moment.apply([Line(1, 1, AT, 1, ScopeBegun(scope="a_unclean", title="x_unclean"))])
    assert checkpoint.path_of(moment) == "checkpoints/000000000001-a-unclean-x-unclean.json"


@pytest.mark.parametrize("damage", [b"", b"{}", DATA[:-9], b"\0" * 500, DATA.replace(b"run-1", b"run-2")])
def test_a_broken_checkpoint_is_passed_over_and_complained_of(store: DiskStore, damage: bytes) -> None:
    for seq in (3, 4, 5):
        checkpoint.write(store, moment_at(seq), {})
    store.replace(checkpoint.paths(store)[-1], damage)
    moment, _, complaints, *_ = checkpoint.newest(store)
    assert moment is not None and moment.seq == 4
    assert len(complaints) == 1 and "000000000005" in complaints[0]
    store.replace(checkpoint.paths(store)[-2], b"x")
    assert checkpoint.newest(store)[0].seq == 3  # type: ignore[union-attr]
    store.replace(checkpoint.paths(store)[0], b"x")
    moment, at, complaints, *_ = checkpoint.newest(store)
    assert moment is None and at == {} and len(complaints) == 3


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_checkpoint_that_is_no_file_is_passed_over(store: DiskStore, tmp_path: Path, kind: str) -> None:
    checkpoint.write(store, moment_at(3), {})
    planted = tmp_path / "checkpoints/000000000009-x.json"
    planted.symlink_to("/etc/passwd") if kind == "link" else planted.mkdir()
    moment, _, complaints, *_ = checkpoint.newest(store)
    assert moment is not None and moment.seq == 3 and len(complaints) == (kind == "link")


def test_a_checkpoint_under_another_ones_name_is_passed_over(store: DiskStore) -> None:
    checkpoint.write(store, moment_at(3), {})
    store.replace("checkpoints/000000000009-x.json", store.read(checkpoint.paths(store)[0]).data)
    moment, _, complaints, *_ = checkpoint.newest(store)
    assert moment is not None and moment.seq == 3 and "it is of record 3" in complaints[0]


def test_a_newer_checkpoint_is_never_passed_over(store: DiskStore) -> None:
    checkpoint.write(store, moment_at(3), {})
    store.replace("checkpoints/000000000009-x.json", signed(facts() | {"format": 2}))
    with pytest.raises(NewerFormat):
        checkpoint.newest(store)


def test_a_checkpoint_ahead_of_the_journal_is_refused_with_advice(store: DiskStore) -> None:
    from satchel.workspace.base.errors import Damaged

    history = grown(3, 5)
    lines = [line for group in history.groups for line in group]
    store.replace("journal/000000000001.jsonl", b"".join(map(journal.encode, lines[:-1])))
    checkpoint.write(store, history.moment, {})
    with pytest.raises(Damaged, match="checkpoint is at") as refused:
        look(store)
    assert refused.value.remedy and "copy" in refused.value.remedy


def test_a_checkpoint_of_another_run_is_refused_with_advice(store: DiskStore) -> None:
    from satchel.workspace.base.errors import Damaged

    moment = moment_at(3)
    moment.run_id = "another"
    checkpoint.write(store, moment, {})
    with pytest.raises((Damaged, InvalidFile), match="another"):
        look(store)


def test_without_any_checkpoint_the_whole_journal_is_read(store: DiskStore) -> None:
    history = grown(5, 20)
    store.replace("journal/000000000001.jsonl", b"".join(linked(group, group[0].prev).data for group in history.groups))
    assert shown(look(store).moment) == shown(history.moment)


# Results that stand apart


class Bucket:
    """One checkpoint in a store that is asked over a network."""

    abilities = BUCKET

    def __init__(self, path: str, data: bytes):
        self.path, self.data, self.asked, self.is_dropped = path, data, list[str](), False

    def list(self, folder: str) -> Iterator[Entry]:
        return iter([Entry(self.path, len(self.data))])

    def tail(self, path: str, size: int) -> bytes:
        self.asked.append("end")
        return self.data[-size:]

    def read(self, path: str, *, limit: int) -> FileContent:
        self.asked.append("all")
        if self.is_dropped:
            raise FileNotFoundError(path)
        return FileContent(self.data, "1")


@contextmanager
def taken_apart(many: int = 1, at_hand: int = 1, end: int = 64 << 10) -> Iterator[None]:
    small = {
        (encoding, "MANY"): many,
        (encoding, "AT_HAND"): at_hand,
        (checkpoint, "_LARGE"): 1,
        (checkpoint, "_END"): end,
    }
    with ExitStack() as stack:
        for (module, name), value in small.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def newest_of(data: bytes, seq: int) -> tuple[checkpoint.Newest, Bucket]:
    bucket = Bucket(f"checkpoints/{seq:012d}-stop.json", data)
    return checkpoint.newest(cast(Store, bucket)), bucket


@given(st.integers(0, 2**32))
def test_results_that_stand_apart_are_lost_or_change_places(seed: int) -> None:
    moment = grown(seed, 25).moment
    with taken_apart():
        data = checkpoint.encode(moment, {}, is_apart=True)
        assert problems("checkpoint", json.loads(data)) == []
        assert shown(checkpoint.parse(data)[0]) == shown(moment)
        found, bucket = newest_of(data, moment.seq)
        assert found.moment is not None and (bucket.asked == ["end"] or b',"head":' not in data)
        assert checkpoint.encode(found.moment, {}, is_apart=True) == data
        assert shown(found.moment) == shown(moment)


def many_results(count: int = 40) -> Moment:
    moment = moment_at(9)
    scope = Scope(title="many")
    for number in range(count):
        done = StepCompleted(
            scope="_many", no=number + 1, step="add", args=f"{number:016x}", n=0, call="()", result=Raw(b"1")
        )
        scope.done[done.key], scope.numbers[done.key] = done, done.no
    moment.root.scopes["_many"] = scope
    return moment


def test_results_are_fetched_before_anybody_asks_for_them() -> None:
    moment = many_results()
    with taken_apart(many=20, at_hand=8):
        found, bucket = newest_of(checkpoint.encode(moment, {}, is_apart=True), 9)
        assert found.moment is not None
        scope = found.moment.root.scopes["_many"]
        assert [step.no for step in scope.newest(3)] == [40, 39, 38] and bucket.asked == ["end"]
        assert [step.no for step in scope.done.values()] == [*range(1, 41)] == [*scope.numbers.values()]
        assert scope == scope and bucket.asked == ["end", "all"], "once"


def test_results_are_fetched_only_to_count_them() -> None:
    with taken_apart(many=20, at_hand=8):
        found, bucket = newest_of(checkpoint.encode(many_results(), {}, is_apart=True), 9)
        assert found.moment is not None
        scope = found.moment.root.scopes["_many"]
        assert scope.finished == 40 and bucket.asked == ["end"]
        assert len(scope.done) == 40 == scope.finished


def test_a_checkpoint_that_its_owner_has_dropped_is_said_to_be_damaged() -> None:
    with taken_apart(many=20, at_hand=8):
        found, bucket = newest_of(checkpoint.encode(many_results(), {}, is_apart=True), 9)
        assert found.moment is not None
        bucket.is_dropped = True
        with pytest.raises(SatchelError, match=r"is gone: another process continues .*\. Look again") as raised:
            _ = found.moment.root.scopes["_many"].done
        assert not isinstance(raised.value, Damaged)


@pytest.mark.parametrize("end", [10, 300])
def test_a_checkpoint_whose_end_is_not_all_that_is_needed_is_given_up(end: int) -> None:
    moment = many_results()
    with taken_apart(many=20, at_hand=8, end=end):
        found, bucket = newest_of(checkpoint.encode(moment, {}, is_apart=True), 9)
    assert found.moment is not None and bucket.asked == ["end", "all"] and shown(found.moment) == shown(moment)


@pytest.mark.parametrize("at", range(0, 2000, 97))
def test_damage_to_results_that_stand_apart_is_not_found(at: int) -> None:
    """In the part that an opening needs at once, in the results when they are asked for."""
    with taken_apart(many=20, at_hand=8):
        data = checkpoint.encode(many_results(), {}, is_apart=True)
        at = len(data) * at // 2000
        spoilt = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        found, _ = newest_of(spoilt, 9)
        if found.moment is not None:
            with pytest.raises(Damaged, match="journal have the same results"):
                _ = found.moment.root.scopes["_many"].done
        else:
            assert found.complaints
