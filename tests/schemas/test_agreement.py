"""What the workspace writes is what the schemas say: one differing from the other would refuse Satchel's own files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from linked import linked
from msgspec import Raw

from satchel.schemas import Problem, dotted, names, problems, schema, validate, validator
from satchel.schemas.validate import accepting
from satchel.workspace import journal
from satchel.workspace.formats import yamltext
from satchel.workspace.inspect import lease, transfer_file
from satchel.workspace.journal import Line, SavedFile
from satchel.workspace.plan import Splice
from satchel.workspace.state import checkpoint, earlier_moment
from satchel.workspace.state.agent_state import AgentMoment
from satchel.workspace.state.run_state import Moment
from satchel.workspace.store import DiskStore
from satchel.workspace.views import conversation, partial_files, projection, running_file

AT = "2025-11-21T09:30:00.123Z"
CALL: dict[str, Any] = {"scope": "3", "no": 1, "step": "send", "args": "0" * 16, "n": 0}
CUT: dict[str, Any] = {"attempt": 1, "characters": 3, "damaged": False, "cut_off_at": AT, "cut_off_by": "crash"}
DOUBT = journal.Doubt(**CALL, id="d1", why="unclaimed", others=(("send", "1" * 16, 0),), cause="x")
STARTED = journal.StepStarted(**CALL, call="send(...)", idempotency_key="k", arguments=Raw(b'["a"]'))
COMPLETED = journal.StepCompleted(**CALL, result=Raw(b'{"a":1}'), ms=3, effect=True, how="verified")
OPENED = journal.Opened(
    format=1,
    run_id="digest-7f3a",
    satchel="0.1.0",
    python="3.11.7",
    host="h",
    pid=1,
    url="s3://b/r",
    why="merge",
    found="files",
    checkpoint="checkpoints/000000000007-stop.json",
    definition={"format": 1, "run_id": "digest-7f3a", "agent": "agent.py:main"},
    run_nonce="0" * 32,
    by="alice@h",
    arrived="it was moved here",
    took_over="process 1 on h",
    restored=journal.RestoredFrom("s3://b/backup", "/w", 42, AT, AT, True),
    cut_off="cut-off/x-after-3",
)
BLOB = "0" * 64 + "-3"
FAILURE = journal.Failure("ValueError", "no", ("agent.py:3",))
RAISED = journal.Failure(
    "ValueError",
    "no",
    types=("builtins:ValueError", "builtins:Exception"),
    args=Raw(b'["no"]'),
    attributes=Raw(b'{"a":1}'),
    members=Raw(b'[{"kind":"E","message":""}]'),
)
FAILED = journal.StepFailed(**CALL, error=RAISED, final=True, calls=(("read", "1" * 16, 0),))

RECORDS: list[journal.AnyRecord] = [
    journal.Opened(format=1, run_id="a", satchel="0.1.0", python="3.11.7", host="h", pid=1, why="run", found="new"),
    journal.Fenced(),
    journal.FileWritten(path="a/b.txt", content=SavedFile(sha256="0" * 64, bytes=3, text="one")),
    journal.FileWritten(path="a.png", content=SavedFile(sha256="0" * 64, bytes=99999, blob=f"{'0' * 64}-7")),
    journal.FileWritten(path="a/b.txt"),
    journal.Message(scope="", content=Raw(b'{"n":1}'), log="calls"),
    journal.Closed(),
    OPENED,
    journal.Closed(status="failed", reason="x", error=FAILURE),
    journal.Closed(status="sleeping", reason="x", until=AT),
    journal.Closed(status="completed", untaken={"inbox/a.md": "0" * 64}, checkpoint="checkpoints/000000000007.json"),
    journal.Saved(file="checkpoints/000000000007-start.json", why="start", bytes=9, sha256="0" * 64),
    journal.Rewound(
        to=7,
        by="alice",
        agents=earlier_moment.pack({"": AgentMoment()}),
        file="checkpoints/000000000007-start.json",
        forgets=True,
        says=("todo.md: item 2 will be done again",),
    ),
    journal.Pruned(by="alice", up_to=7, base="checkpoints/000000000007-start.json", files={"journal": 1}, bytes=9),
    STARTED,
    journal.StepStarted(**CALL, idempotency_key="k"),
    COMPLETED,
    journal.StepCompleted(**CALL, result=Raw(b"null")),
    journal.StepCompleted(**CALL, agent="a/b", result=Raw(b"1"), prompts={"brief": "0" * 12}, model="smaller"),
    journal.StepCompleted(**CALL, result=Raw(b"1"), how="edited"),
    journal.StepCompleted(**CALL, blob=BLOB),
    journal.StepFailed(**CALL, error=FAILURE, attempt=2, effect=True, not_done=True),
    journal.StepFailed(**CALL, error=journal.Failure("E", "")),
    FAILED,
    journal.StepFailed(**CALL, error=FAILURE, final=True, cancelled=True, ms=5000),
    journal.StepRetry(**CALL, error=FAILURE, attempt=1, wait=0.5),
    journal.StepProgress(**CALL, value=Raw(b"3")),
    journal.ScopeBegun(scope="3", title="A"),
    journal.ScopeFailed(scope="3", error=FAILURE),
    journal.ScopeFailed(scope="", error=FAILURE, calls=(("send", "0" * 16, 0),), uncounted=True),
    journal.ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {}}]),
    journal.ScopeCommitted(scope="3", result=Raw(b"1"), outputs={"a.md": journal.Output("0" * 64, 3)}, cancelled="x"),
    journal.ScopeCommitted(scope="3", outputs={"a.md": journal.Output("0" * 64, 3, "1-2", "0" * 32)}),
    journal.Uncalled(scope="3", calls=(("send", "1" * 16, 0),)),
    journal.Uncalled(agent="a", scope=""),
    journal.PlanChanged(plan=(), by="agent", planned="0" * 16),
    journal.PlanChanged(agent="a", plan=(Splice(0, 0, "- [ ] a\n"),), outline=[[0, 3, -1, 0, 1]], by="person", why="x"),
    journal.PlanChanged(plan=(), by="person", person="alice@h"),
    journal.Message(scope="3", role="user", content=Raw(b'"hi"')),
    DOUBT,
    journal.Resolved(id="d1", outcome="done", by="alice", result=Raw(b"1")),
    journal.Resolved(id="d1", outcome="not_done", by="alice", other=("send", "1" * 16, 0)),
    journal.Resolved(id="d1", outcome="new", by="alice"),
    journal.PartialPromoted(**CALL, **CUT, file="recovered/3/01-send-1.md"),
    journal.Input(arguments=Raw(b'{"topic":"x"}')),
    journal.Input(blob=BLOB),
    journal.Closed(status="completed", result=Raw(b"[1]")),
    journal.Closed(status="completed", blob=BLOB),
    journal.AgentBegun(agent="a/b", scope="", args="0" * 16),
    journal.AgentBegun(agent="a", scope="3", args="0" * 16, call="('x')"),
    journal.AgentEnded(agent="a/b"),
    journal.AgentEnded(agent="a/b", result=Raw(b"1")),
    journal.AgentEnded(agent="a/b", blob=BLOB),
    journal.AgentEnded(agent="a/b", error=FAILURE),
    journal.PauseRequested(reason="x", by="alice"),
    journal.PauseRequested(reason="x", by="alice", mode="emergency", resume="restart_step", until=AT),
    journal.PauseLate(reason="x", by="alice"),
    journal.PauseLate(reason="x", by="alice", mode="cancel"),
    journal.Forced(),
    journal.Forced(under_way=("send('a')",), waited=120.5),
    journal.Paused(),
    journal.Paused(forced=True, error=FAILURE),
    journal.Resumed(by="alice"),
    journal.Resumed(by="alice", instructions="x", seconds=3.5, checkpoint_age=4.5, restart=True, says=("python",)),
    journal.ApprovalAsked(**CALL, id="a1", question="x?"),
    journal.ApprovalAsked(
        **CALL,
        agent="a",
        id="a2",
        question="x?",
        choices=("approve", "deny"),
        answer_schema={"type": "string"},
        context=Raw(b'{"user":"ada"}'),
        expires=AT,
        default=Raw(b'"deny"'),
        withdraws=("a1",),
    ),
    journal.ApprovalAsked(
        **CALL,
        id="a3",
        question="x?",
        back=journal.Back(checkpoint="000000000007-stop", to=7, files=("state.json",), data=Raw(b'{"":{}}')),
    ),
    journal.ApprovalAsked(
        **CALL, id="a4", question="x?", back=journal.Back(checkpoint="000000000007", to=7, files=(), blob=BLOB)
    ),
    journal.ApprovalAsked(**CALL, id="a3", question="x?", arguments=Raw(b'{"amount":80}'), tool="pay"),
    journal.ApprovalAnswered(id="a3", decision=Raw(b'"approve"'), arguments=Raw(b'{"amount":50}'), by="alice"),
    journal.ApprovalAnswered(id="a3", decision=Raw(b'"approve"'), by="alice", standing=True),
    journal.ApprovalAnswered(id="a4", decision=Raw(b'"approve"'), by="alice", how="standing", under="a3"),
    journal.ApprovalRevoked(id="a3", by="alice"),
    journal.ApprovalAnswered(id="a1", decision=Raw(b'"deny"'), by="alice"),
    journal.ApprovalAnswered(id="a1", decision=Raw(b"3"), by="alice", note="x", how="expired"),
    journal.TaskTaken(id="t", scope="", file="inbox/t.md", sha256="0" * 64, content=Raw(b'"x"')),
    journal.TaskTaken(agent="a", id="t", scope="3", file="inbox/t.md", sha256="0" * 64, blob=BLOB),
    journal.TaskTaken(id="t", scope="", file="inbox/s.yaml", sha256="0" * 64, kind="schedule", schedule="1", due=AT),
    journal.TaskTaken(
        id="t", scope="", file="inbox/s.yaml", sha256="0" * 64, kind="schedule", schedule="1", due=AT, unopened=True
    ),
    journal.TaskDone(id="t"),
    journal.TaskDone(id="t", moved_to="../other"),
    journal.Spent(),
    journal.Spent(agent="a", tokens=3, usd=0.5),
    journal.Spent(tokens=3, output=2, model="gpt-5", scope="1", no=1),
    journal.AnswersGrown(answers=2),
    journal.ResourceChanged(name="db", tier="process", event="opened"),
    journal.ResourceChanged(name="db", tier="process", event="released", outcome="timed_out", why="x", ms=5),
    journal.Configured(config={"python": "3.11.7", "prompts": {}}),
    journal.Migrated(agent="a", to=2, patch=[{"op": "add", "path": "/a", "value": 1}]),
    journal.Edited(file="workspace.yaml", by="alice", sha=""),
    journal.Edited(
        agent="a",
        file="agents/a/todo.md",
        by="alice",
        sha="0" * 64,
        saved=AT,
        base=5,
        outline=[[0, 3, -1, 0, 1]],
        plan=(Splice(0, 0, "- [ ] a\n"),),
        own_work=("1",),
        redone=("1", "_notes"),
        dropped=("2",),
        says=("one is to be done again",),
    ),
    journal.Edited(file="state.json", by="alice", sha="0" * 64, patch=[{"op": "remove", "path": "/a"}]),
    journal.Edited(
        file="steps/3/01-send.json",
        by="alice",
        sha="0" * 64,
        step=journal.StepEdit(scope="3", key=("send", "0" * 16, 0), redo=True),
    ),
    journal.Edited(
        file="steps/3/01-send.json",
        by="alice",
        sha="0" * 64,
        step=journal.StepEdit(scope="3", key=("send", "0" * 16, 0), result=Raw(b"1")),
    ),
]


def head_of(data: bytes) -> Any:
    """The front matter, read as what it says it is: YAML."""
    return yamltext.load(data.decode().split("---\n")[1], "partial").value


@pytest.mark.parametrize("written", RECORDS, ids=lambda written: type(written).__name__)
def test_a_record_is_written_that_its_schema_refuses(written: journal.AnyRecord) -> None:
    line = json.loads(journal.encode(Line(7, 6, AT, 2, written, "9c1f03ab", "9c1f03ab9c1f03ab")))
    assert problems("record", line) == []


def test_a_kind_of_record_has_no_example_or_no_schema() -> None:
    kinds = {type(written).__struct_config__.tag for written in RECORDS}
    assert kinds == {kind.__struct_config__.tag for kind in journal.AnyRecord.__args__}, "add an example to RECORDS"
    assert kinds <= set(schema("record")["discriminator"]["mapping"])


def moment() -> Moment:
    """The root and a sub-agent of a sub-agent, each with an effect under way; one has failed, the run sleeps."""
    found = Moment(run_id="digest-7f3a")
    written: tuple[journal.AnyRecord, ...] = (
        OPENED,
        journal.Input(arguments=Raw(b'{"topic":"x"}')),
        journal.ScopeBegun(scope="3", title="Send it"),
        STARTED,
        COMPLETED,
        journal.StepStarted(**CALL | {"n": 1}, idempotency_key="k"),
        journal.AgentBegun(agent="a", scope="3", args="0" * 16, call="('x')"),
        journal.AgentBegun(agent="a/b", scope="", args="0" * 16),
        journal.PlanChanged(agent="a/b", plan=(Splice(0, 0, "- [ ] a\n"),), by="agent"),
        journal.ScopeBegun(agent="a/b", scope="3", title="Send it", plan=(Splice(0, 1, "- [/] a ^3\n"),)),
        journal.StepCompleted(**CALL, agent="a/b", result=Raw(b"1"), effect=True),
        journal.Doubt(**CALL | {"n": 1}, agent="a/b", id="d1", why="unclaimed", others=(("send", "0" * 16, 0),)),
        journal.ScopeFailed(agent="a/b", scope="3", error=FAILURE),
        journal.StepFailed(**CALL | {"n": 2}, agent="a/b", error=RAISED, final=True),
        journal.AgentEnded(agent="a/b", error=FAILURE),
        journal.AgentBegun(agent="c", scope="", args="0" * 16),
        journal.ScopeBegun(agent="c", scope="_x", title="x"),
        journal.StepCompleted(**CALL | {"scope": "_x"}, agent="c", result=Raw(b"1"), effect=True),
        journal.ScopeCommitted(agent="c", scope="_x", outputs={"a.md": journal.Output("0" * 64, 3)}),
        journal.AgentEnded(agent="c", result=Raw(b"1")),
        journal.Edited(file="state.json", by="alice", sha="0" * 64, patch=[{"op": "add", "path": "", "value": {}}]),
        journal.Closed(status="sleeping", reason="x", until=AT),
    )
    found.apply(linked(Line(seq, seq, AT, 1, item) for seq, item in enumerate(written, 1)).lines)
    assert set(found.agents) == {"", "a", "a/b", "c"} and found.agents["c"].past and found.root.edits
    return found


@pytest.mark.parametrize("agent", ["", "a", "a/b", "c"])
def test_a_state_file_is_written_that_its_schema_refuses(agent: str) -> None:
    found = moment()
    assert problems("state", json.loads(projection.state_file(found, found.agents[agent]))) == []


@pytest.mark.parametrize(
    "of",
    [
        STARTED,
        COMPLETED,
        FAILED,
        *(journal.StepCompleted(**CALL, **more) for more in ({"blob": BLOB}, {"agent": "a/b"})),
    ],
)
def test_a_step_file_is_written_that_its_schema_refuses(of: journal.OfCall) -> None:
    written = json.loads(projection.step_file(moment(), of))
    assert problems("step", written) == [] == problems("step", written | {"redo": True})
    assert problems("step", written | {"redo": "yes"})


def test_a_checkpoint_is_written_that_its_schema_refuses() -> None:
    for found in (Moment(run_id="a"), moment()):
        for listed in ({}, {"workspace.yaml": '"0"'}):
            assert problems("checkpoint", json.loads(checkpoint.encode(found, {}, listed))) == []


def test_the_schema_of_a_checkpoint_tells_of_fields_that_are_gone() -> None:
    parts = schema("checkpoint")["$defs"]
    for part, kind in (("moment", Moment), ("agent", AgentMoment), ("messages", checkpoint.MessagesAt)):
        assert parts[part]["properties"].keys() <= {*kind.__struct_fields__}


def test_a_lease_is_written_that_its_schema_refuses() -> None:
    made = lease.Lease(run_id="a", host="h", pid=1, process_started="12", epoch=1, since=AT, url="/w")
    assert problems("lease", json.loads(lease.encode(made))) == []


RUNNING = running_file.RunningCalls(
    run_id="a",
    epoch=2,
    at=AT,
    calls=[
        running_file.ListedCall(**CALL, call='("a.txt")', since=AT),
        running_file.ListedCall(**CALL, agent="a/b", call="()", since=AT, failures=2),
    ],
)


def test_running_calls_are_written_that_their_schema_refuses(tmp_path: Path) -> None:
    store, written = DiskStore(tmp_path), running_file.encode(RUNNING)
    store.create(running_file.PATH, written)
    assert problems("running", json.loads(written)) == [] and running_file.read(store) == RUNNING


def test_a_tombstone_is_written_that_its_schema_refuses() -> None:
    stone = transfer_file.Tombstone(
        run_id="a", to="s3://b/a: #x", at=AT, by="me@here", satchel="0.1.0", sha256="0" * 64
    )
    written = transfer_file.encode_tombstone(stone)
    assert problems("moved", yamltext.load(written.decode(), transfer_file.MOVED).value) == []
    assert transfer_file.parse_tombstone(written) == stone


def test_a_front_matter_is_written_that_its_schema_refuses() -> None:
    head = partial_files.PartialHead(run_id="a", agent="a/b", **CALL, attempt=1, at=AT, call='x: "y" # z')
    assert problems("partial", head_of(partial_files.encode_partial(head, "abc"))) == []
    recovered = partial_files.RecoveredHead(run_id="a", agent="a/b", **CALL, **CUT, crc="0" * 8)
    assert problems("recovered", head_of(partial_files.encode_recovered(recovered, "abc"))) == []


@pytest.mark.parametrize("content", [b'"hi"', b'[{"type":"text"}]', b"null"])
def test_a_line_of_messages_jsonl_is_written_that_its_schema_refuses(content: bytes) -> None:
    said = journal.Message(scope="3", role="user", content=Raw(content))
    assert (
        problems("message", json.loads(conversation.encode(conversation.follow((), [Line(7, 6, AT, 2, said)])))) == []
    )


# What accepts a file quickly, and jsonschema, which is asked about the rest

PAUSE = {
    "status": "paused",
    "reason": "x",
    "by": "a",
    "mode": "drain",
    "resume": "continue",
    "paused_at": AT,
    "forced": False,
    "requested_at": AT,
    "checkpoint": {"seq": 3, "file": "checkpoints/3.json", "sha256": "0", "verified": True},
    "position": {"item": None, "steps_done": 1, "waiting_for": ["d1"]},
    "config": {"python": "3.11"},
    "references": ["a"],
    "x-mine": 1,
}
WORKSPACE = {
    "format": 1,
    "run_id": "a",
    "agent": "agent.py:main",
    "settings": {"a": 1},
    "on_drift": "refuse",
    "on_reference": "refuse",
    "restart_every": "24h",
    "group": "openai/gpt-5",
    "priority": -5,
    "x-mine": [],
    "prompts": "pinned",
    "budget": {"steps": 3, "usd": 0.5},
    "checkpoints": {"every": "10m"},
    "keep": {"history": "all", "checkpoints": [5, "24h"], "inbox": 9},
    "drain": {"timeout": "2m", "then": "extend"},
}
APPROVAL = {
    "format": 1,
    "run_id": "a",
    "id": "a1",
    "question": "x?",
    "asked_at": AT,
    "choices": ["approve", "deny"],
    "expires": AT,
    "asked_arguments": {"amount": 80},
    "tool": "pay",
    "standing": False,
    "revoked_by": "alice",
    "decision": "deny",
    "arguments": {"amount": 50},
    "note": "x",
}

OTHERS: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    1.5,
    2.0,
    10**30,
    "",
    "x",
    "x\n",
    "/a~2",
    AT,
    AT + "\n",
    "0" * 16,
    "0" * 16 + "\n",
    "0" * 64,
    [],
    [1],
    ["x", "0" * 16, 0],
    {},
    {"x": 1},
    {"kind": "E", "message": "", "members": [{"kind": 1}]},
    [{"op": "add", "path": "/a"}],
    [{"op": "remove", "path": "/a"}],
    [{"op": "add", "path": "/a/~2", "value": 1}],
]
"""What a mutant has in the place of a part."""


def samples() -> Iterator[tuple[str, Any]]:
    """Of every schema, valid."""
    for written in RECORDS:
        yield "record", json.loads(journal.encode(Line(7, 6, AT, 2, written, "9c1f03ab", "9c1f03ab9c1f03ab")))
    found = moment()
    for agent in found.agents.values():
        yield "state", json.loads(projection.state_file(found, agent))
    for of in (STARTED, COMPLETED, FAILED):
        yield "step", json.loads(projection.step_file(found, of))
    yield "checkpoint", json.loads(checkpoint.encode(found, {}))
    made = lease.Lease(run_id="a", host="h", pid=1, process_started="12", epoch=1, since=AT, url="/w")
    yield "lease", json.loads(lease.encode(made))
    yield "running", json.loads(running_file.encode(RUNNING))
    stone = transfer_file.Tombstone(run_id="a", to="s3://b/a", at=AT, by="me@here", satchel="0.1.0", sha256="0" * 64)
    yield "moved", yamltext.load(transfer_file.encode_tombstone(stone).decode(), transfer_file.MOVED).value
    head = partial_files.PartialHead(run_id="a", agent="a/b", **CALL, attempt=1, at=AT, call="x")
    yield "partial", head_of(partial_files.encode_partial(head, "abc"))
    recovered = partial_files.RecoveredHead(run_id="a", agent="a/b", **CALL, **CUT, crc="0" * 8)
    yield "recovered", head_of(partial_files.encode_recovered(recovered, "abc"))
    said = journal.Message(scope="3", role="user", content=Raw(b"1"))
    yield "message", json.loads(conversation.encode(conversation.follow((), [Line(7, 6, AT, 2, said)])))
    yield from (("pause", PAUSE), ("pause", None), ("workspace", WORKSPACE), ("approval", APPROVAL), ("data", {"a": 1}))


def mutants(value: Any) -> Iterator[Any]:
    """`value` with one thing changed anywhere: another one in its place, a key that is gone, or one more."""
    yield from OTHERS
    parts = [*value.items()] if isinstance(value, dict) else [*enumerate(value)] if isinstance(value, list) else []
    for key, part in parts:
        for other in mutants(part):
            changed = value.copy()
            changed[key] = other
            yield changed
        changed = value.copy()
        del changed[key]
        yield changed
    if isinstance(value, dict):
        yield value | {"else": 1}
        yield value | {"x-else": 1}
    elif isinstance(value, list):
        yield value + value


def says(name: str, value: Any) -> list[Problem]:
    return validator.check(validate._validator(name), value, dotted)


def test_jsonschema_is_asked_about_what_is_plainly_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes thirty times as long, and its import as long as a small command."""
    assert {name for name, _ in samples()} == {*names()}
    monkeypatch.setattr(validate, "_validator", None)
    for name, value in samples():
        assert problems(name, value) == []


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_accepted_quickly_is_refused_by_jsonschema(every: int) -> None:
    """Mutants of all kinds of file; of records, every family."""
    accepted = refused = 0
    for name, value in samples():
        accepts = validate._accepts(name)
        for mutant in itertools.islice(mutants(value), 0, None, every):
            if accepts(mutant):
                accepted += 1
                assert says(name, mutant) == [], mutant
            else:
                refused += 1
    assert accepted > 7_000 / every and refused > 10_000 / every, (accepted, refused)


def test_a_value_too_deep_to_look_at_is_accepted() -> None:
    deep: dict[str, Any] = {"kind": 1, "message": ""}
    for _ in range(300):
        deep = {"kind": "E", "message": "", "members": [deep]}
    line = json.loads(journal.encode(Line(7, 6, AT, 2, journal.Paused(), "9c1f03ab"))) | {"error": deep}
    assert not validate._accepts("record")(line)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"not": {"type": "string"}}, 1),
        ({"properties": {"a": {"format": "date"}}}, {"a": "x"}),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 1.0),
        ({"if": {"type": "integer"}, "else": {"minimum": 5}}, 1.0),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": False}, {"a": 1.0}),
    ],
)
def test_a_keyword_that_is_not_known_is_passed_over(schema: dict[str, Any], value: Any) -> None:
    assert not accepting("x", lambda name: schema)(value)
