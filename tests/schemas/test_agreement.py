"""What the workspace writes is what the schemas say: one differing from the other would refuse Satchel's own files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from linked import linked
from msgspec import Raw

from satchel.schemas import problems, schema
from satchel.workspace import checkpoint, lease, messagefile, partial, projection, record, tombstone, yamltext
from satchel.workspace.agentmoment import AgentMoment
from satchel.workspace.moment import Moment
from satchel.workspace.record import Line
from satchel.workspace.todo import Splice

AT = "2025-11-21T09:30:00.123Z"
CALL: dict[str, Any] = {"scope": "3", "no": 1, "step": "send", "args": "0" * 16, "n": 0}
CUT: dict[str, Any] = {
    "attempt": 1,
    "characters": 3,
    "damaged": False,
    "cut_off_at": AT,
    "cut_off_by": "crash",
}
DOUBT = record.Doubt(**CALL, id="d1", why="unclaimed", others=(("send", "1" * 16, 0),), cause="x")
STARTED = record.StepStarted(**CALL, call="send(...)", idempotency_key="k", arguments=Raw(b'["a"]'))
COMPLETED = record.StepCompleted(**CALL, result=Raw(b'{"a":1}'), ms=3, effect=True, how="verified")
OPENED = record.Opened(
    format=1, run_id="digest-7f3a", satchel="0.1.0", python="3.11.7", host="h", pid=1, url="s3://b/r",
    why="merge", found="files", checkpoint="checkpoints/000000000007-stop.json",
    definition={"format": 1, "run_id": "digest-7f3a", "agent": "agent.py:main"}, run_nonce="0" * 32,
)  # fmt: skip
BLOB = "0" * 64 + "-3"
FAILURE = record.Failure("ValueError", "no", ("agent.py:3",))
RAISED = record.Failure(
    "ValueError", "no", types=("builtins:ValueError", "builtins:Exception"), args=Raw(b'["no"]'),
    attributes=Raw(b'{"a":1}'), members=Raw(b'[{"kind":"E","message":""}]'),
)  # fmt: skip
FAILED = record.StepFailed(**CALL, error=RAISED, final=True, calls=(("read", "1" * 16, 0),))

RECORDS: list[record.AnyRecord] = [
    record.Opened(format=1, run_id="a", satchel="0.1.0", python="3.11.7", host="h", pid=1, why="run", found="new"),
    record.Fenced(),
    record.Closed(),
    OPENED,
    record.Closed(status="failed", reason="x", error=FAILURE),
    record.Closed(status="sleeping", reason="x", until=AT),
    record.Closed(status="completed", untaken={"inbox/a.md": "0" * 64}, checkpoint="checkpoints/000000000007.json"),
    record.Saved(file="checkpoints/000000000007-start.json", why="start", bytes=9, sha256="0" * 64),
    record.Rewound(to=7, file="checkpoints/000000000007-start.json", by="alice"),
    STARTED,
    record.StepStarted(**CALL, idempotency_key="k"),
    COMPLETED,
    record.StepCompleted(**CALL, result=Raw(b"null")),
    record.StepCompleted(**CALL, agent="a/b", result=Raw(b"1"), prompts={"brief": "0" * 12}, model="smaller"),
    record.StepCompleted(**CALL, result=Raw(b"1"), how="edited"),
    record.StepCompleted(**CALL, blob=BLOB),
    record.StepFailed(**CALL, error=FAILURE, attempt=2, effect=True, not_done=True),
    record.StepFailed(**CALL, error=record.Failure("E", "")),
    FAILED,
    record.StepFailed(**CALL, error=FAILURE, final=True, cancelled=True, ms=5000),
    record.StepProgress(**CALL, value=Raw(b"3")),
    record.ScopeBegun(scope="3", title="A"),
    record.ScopeFailed(scope="3", error=FAILURE),
    record.ScopeFailed(scope="", error=FAILURE, calls=(("send", "0" * 16, 0),), uncounted=True),
    record.ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {}}]),
    record.ScopeCommitted(scope="3", result=Raw(b"1"), outputs={"a.md": record.Output("0" * 64, 3)}, cancelled="x"),
    record.PlanChanged(plan=(), by="agent", planned="0" * 16),
    record.PlanChanged(agent="a", plan=(Splice(0, 0, "- [ ] a\n"),), outline=[[0, 3, -1, 0, 1]], by="person", why="x"),
    record.Message(scope="3", role="user", content=Raw(b'"hi"')),
    DOUBT,
    record.Resolved(id="d1", outcome="done", by="alice", result=Raw(b"1")),
    record.Resolved(id="d1", outcome="not_done", by="alice", other=("send", "1" * 16, 0)),
    record.Resolved(id="d1", outcome="new", by="alice"),
    record.PartialPromoted(**CALL, **CUT, file="recovered/3/01-send-1.md"),
    record.AgentBegun(agent="a/b", scope="", args="0" * 16),
    record.AgentBegun(agent="a", scope="3", args="0" * 16, call="('x')"),
    record.AgentEnded(agent="a/b"),
    record.AgentEnded(agent="a/b", result=Raw(b"1")),
    record.AgentEnded(agent="a/b", blob=BLOB),
    record.AgentEnded(agent="a/b", error=FAILURE),
    record.PauseRequested(reason="x", by="alice"),
    record.PauseRequested(reason="x", by="alice", mode="emergency", resume="restart_step", until=AT),
    record.PauseLate(reason="x", by="alice"),
    record.PauseLate(reason="x", by="alice", mode="cancel"),
    record.Forced(),
    record.Forced(under_way=("send('a')",), waited=120.5),
    record.Paused(),
    record.Paused(forced=True, error=FAILURE),
    record.Resumed(by="alice"),
    record.Resumed(by="alice", instructions="x", seconds=3.5, checkpoint_age=4.5, restart=True, says=("python",)),
    record.ApprovalAsked(**CALL, id="a1", question="x?"),
    record.ApprovalAsked(
        **CALL, agent="a", id="a2", question="x?", choices=("approve", "deny"), answer_schema={"type": "string"},
        context=Raw(b'{"user":"ada"}'), expires=AT, default=Raw(b'"deny"'), withdraws=("a1",),
    ),
    record.ApprovalAnswered(id="a1", decision=Raw(b'"deny"'), by="alice"),
    record.ApprovalAnswered(id="a1", decision=Raw(b"3"), by="alice", note="x", how="expired"),
    record.TaskTaken(id="t", scope="", file="inbox/t.md", sha256="0" * 64, content=Raw(b'"x"')),
    record.TaskTaken(agent="a", id="t", scope="3", file="inbox/t.md", sha256="0" * 64, blob=BLOB),
    record.TaskTaken(id="t", scope="", file="inbox/s.yaml", sha256="0" * 64, kind="schedule", schedule="1", due=AT),
    record.TaskTaken(
        id="t", scope="", file="inbox/s.yaml", sha256="0" * 64, kind="schedule", schedule="1", due=AT, unopened=True,
    ),
    record.TaskDone(id="t"),
    record.TaskDone(id="t", moved_to="../other"),
    record.Spent(),
    record.Spent(agent="a", tokens=3, usd=0.5),
    record.Resource(name="db", tier="process", event="opened"),
    record.Resource(name="db", tier="process", event="released", outcome="timed_out", why="x", ms=5),
    record.Configured(config={"python": "3.11.7", "prompts": {}}),
    record.Migrated(agent="a", to=2, patch=[{"op": "add", "path": "/a", "value": 1}]),
    record.Edited(file="workspace.yaml", by="alice", sha=""),
    record.Edited(
        agent="a", file="agents/a/todo.md", by="alice", sha="0" * 64, saved=AT, base=5, outline=[[0, 3, -1, 0, 1]],
        plan=(Splice(0, 0, "- [ ] a\n"),), redone=("1", "_notes"), dropped=("2",), says=("one is to be done again",),
    ),
    record.Edited(file="state.json", by="alice", sha="0" * 64, patch=[{"op": "remove", "path": "/a"}]),
    record.Edited(
        file="steps/3/01-send.json", by="alice", sha="0" * 64,
        step=record.StepEdit(scope="3", key=("send", "0" * 16, 0), redo=True),
    ),
    record.Edited(
        file="steps/3/01-send.json", by="alice", sha="0" * 64,
        step=record.StepEdit(scope="3", key=("send", "0" * 16, 0), result=Raw(b"1")),
    ),
]  # fmt: skip


def head_of(data: bytes) -> Any:
    """The front matter, read as what it says it is: YAML."""
    return yamltext.load(data.decode().split("---\n")[1], "partial").value


@pytest.mark.parametrize("written", RECORDS, ids=lambda written: type(written).__name__)
def test_a_record_is_written_that_its_schema_refuses(written: record.AnyRecord) -> None:
    line = json.loads(record.encode(Line(7, 6, AT, 2, written, "9c1f03ab", "9c1f03ab9c1f03ab")))
    assert problems("record", line) == []


def test_a_kind_of_record_has_no_schema() -> None:
    kinds = {type(written).__struct_config__.tag for written in RECORDS}
    assert kinds == {kind.__struct_config__.tag for kind in record.AnyRecord.__args__}
    assert kinds <= set(schema("record")["discriminator"]["mapping"])


def moment() -> Moment:
    """The root and a sub-agent of a sub-agent, each with an effect under way; one has failed, the run sleeps."""
    found = Moment(run_id="digest-7f3a")
    written: tuple[record.AnyRecord, ...] = (
        OPENED,
        record.ScopeBegun(scope="3", title="Send it"),
        STARTED,
        COMPLETED,
        record.StepStarted(**CALL | {"n": 1}, idempotency_key="k"),
        record.AgentBegun(agent="a", scope="3", args="0" * 16, call="('x')"),
        record.AgentBegun(agent="a/b", scope="", args="0" * 16),
        record.PlanChanged(agent="a/b", plan=(Splice(0, 0, "- [ ] a\n"),), by="agent"),
        record.ScopeBegun(agent="a/b", scope="3", title="Send it", plan=(Splice(0, 1, "- [/] a ^3\n"),)),
        record.StepCompleted(**CALL, agent="a/b", result=Raw(b"1"), effect=True),
        record.Doubt(**CALL | {"n": 1}, agent="a/b", id="d1", why="unclaimed", others=(("send", "0" * 16, 0),)),
        record.ScopeFailed(agent="a/b", scope="3", error=FAILURE),
        record.StepFailed(**CALL | {"n": 2}, agent="a/b", error=RAISED, final=True),
        record.AgentEnded(agent="a/b", error=FAILURE),
        record.AgentBegun(agent="c", scope="", args="0" * 16),
        record.ScopeBegun(agent="c", scope="_x", title="x"),
        record.StepCompleted(**CALL | {"scope": "_x"}, agent="c", result=Raw(b"1"), effect=True),
        record.ScopeCommitted(agent="c", scope="_x", outputs={"a.md": record.Output("0" * 64, 3)}),
        record.AgentEnded(agent="c", result=Raw(b"1")),
        record.Edited(file="state.json", by="alice", sha="0" * 64, patch=[{"op": "add", "path": "", "value": {}}]),
        record.Closed(status="sleeping", reason="x", until=AT),
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
        *(record.StepCompleted(**CALL, **more) for more in ({"blob": BLOB}, {"agent": "a/b"})),
    ],
)
def test_a_step_file_is_written_that_its_schema_refuses(of: record.OfCall) -> None:
    written = json.loads(projection.step_file(moment(), of))
    assert problems("step", written) == [] == problems("step", written | {"redo": True})
    assert problems("step", written | {"redo": "yes"})


def test_a_checkpoint_is_written_that_its_schema_refuses() -> None:
    for found in (Moment(run_id="a"), moment()):
        assert problems("checkpoint", json.loads(checkpoint.encode(found, {}))) == []


def test_the_schema_of_a_checkpoint_tells_of_fields_that_are_gone() -> None:
    parts = schema("checkpoint")["$defs"]
    for part, kind in (("moment", Moment), ("agent", AgentMoment), ("messages", checkpoint.MessagesAt)):
        assert parts[part]["properties"].keys() <= {*kind.__struct_fields__}


def test_a_lease_is_written_that_its_schema_refuses() -> None:
    made = lease.Lease(run_id="a", host="h", pid=1, process_started="12", epoch=1, since=AT, url="/w")
    assert problems("lease", json.loads(lease.encode(made))) == []


def test_a_tombstone_is_written_that_its_schema_refuses() -> None:
    stone = tombstone.Tombstone(run_id="a", to="s3://b/a: #x", at=AT, by="me@here", satchel="0.1.0", sha256="0" * 64)
    written = tombstone.encode(stone)
    assert problems("moved", yamltext.load(written.decode(), tombstone.PATH).value) == []
    assert tombstone.parse(written) == stone


def test_a_front_matter_is_written_that_its_schema_refuses() -> None:
    head = partial.PartialHead(run_id="a", agent="a/b", **CALL, attempt=1, at=AT, call='x: "y" # z')
    assert problems("partial", head_of(partial.encode_partial(head, "abc"))) == []
    recovered = partial.RecoveredHead(run_id="a", agent="a/b", **CALL, **CUT, crc="0" * 8)
    assert problems("recovered", head_of(partial.encode_recovered(recovered, "abc"))) == []


@pytest.mark.parametrize("content", [b'"hi"', b'[{"type":"text"}]', b"null"])
def test_a_line_of_messages_jsonl_is_written_that_its_schema_refuses(content: bytes) -> None:
    said = record.Message(scope="3", role="user", content=Raw(content))
    assert problems("message", json.loads(messagefile.encode([Line(7, 6, AT, 2, said)]))) == []
