"""What the workspace writes is what the schemas say: one differing from the other would refuse Satchel's own files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from satchel.schemas import problems, schema
from satchel.workspace import checkpoint, lease, partial, projection, record, yamltext
from satchel.workspace.checkpoint import MessagesAt
from satchel.workspace.moment import Moment
from satchel.workspace.record import Line

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
FAILURE = record.Failure("ValueError", "no", ("agent.py:3",))

RECORDS: list[record.AnyRecord] = [
    record.Opened(format=1, run_id="a", satchel="0.1.0", python="3.11.7", host="h", pid=1, why="run", found="new"),
    record.Closed(),
    record.Closed(status="failed", reason="x", error=FAILURE),
    STARTED,
    record.StepStarted(**CALL, idempotency_key="k"),
    COMPLETED,
    record.StepCompleted(**CALL, result=Raw(b"null")),
    record.StepCompleted(**CALL, blob="0" * 64 + "-3"),
    record.StepFailed(**CALL, error=FAILURE, attempt=2, effect=True, not_done=True),
    record.StepFailed(**CALL, error=record.Failure("E", "")),
    record.StepProgress(**CALL, value=Raw(b"3")),
    record.ScopeBegun(scope="3", title="A"),
    record.ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {}}]),
    record.ScopeCommitted(scope="3", result=Raw(b"1"), outputs={"a.md": record.Output("0" * 64, 3)}, cancelled="x"),
    record.PlanChanged(plan=(), by="agent"),
    record.Message(scope="3", role="user", content=Raw(b'"hi"')),
    DOUBT,
    record.Resolved(id="d1", outcome="done", by="alice", result=Raw(b"1")),
    record.Resolved(id="d1", outcome="not_done", by="alice"),
    record.PartialPromoted(**CALL, **CUT, file="recovered/3/01-send-1.md"),
]


def head_of(data: bytes) -> Any:
    """The front matter, read as what it says it is: YAML."""
    return yamltext.load(data.decode().split("---\n")[1], "partial").value


@pytest.mark.parametrize("written", RECORDS, ids=lambda written: type(written).__name__)
def test_a_record_is_written_that_its_schema_refuses(written: record.AnyRecord) -> None:
    line = json.loads(record.encode(Line(7, 6, AT, 2, written)))
    assert problems("record", line) == []


def test_a_kind_of_record_has_no_schema() -> None:
    kinds = {type(written).__struct_config__.tag for written in RECORDS}
    assert kinds == {kind.__struct_config__.tag for kind in record.AnyRecord.__args__}
    assert kinds <= set(schema("record")["discriminator"]["mapping"])


def moment() -> Moment:
    found = Moment(run_id="digest-7f3a")
    written: tuple[record.AnyRecord, ...] = (record.ScopeBegun(scope="3", title="Send it"), STARTED)
    found.apply([Line(seq, seq, AT, 1, item) for seq, item in enumerate(written, 1)])
    return found


def test_a_state_file_is_written_that_its_schema_refuses() -> None:
    assert problems("state", json.loads(projection.state_file(moment()))) == []


@pytest.mark.parametrize("of", [STARTED, COMPLETED, record.StepCompleted(**CALL, blob="0" * 64 + "-3")])
def test_a_step_file_is_written_that_its_schema_refuses(of: record.OfCall) -> None:
    assert problems("step", json.loads(projection.step_file(moment(), of))) == []


def test_a_checkpoint_is_written_that_its_schema_refuses() -> None:
    for found in (Moment(run_id="a"), moment()):
        assert problems("checkpoint", json.loads(checkpoint.encode(found, MessagesAt()))) == []


def test_a_lease_is_written_that_its_schema_refuses() -> None:
    made = lease.Lease(run_id="a", host="h", pid=1, process_started="12", epoch=1, since=AT, url="/w")
    assert problems("lease", json.loads(lease.encode(made))) == []


def test_a_front_matter_is_written_that_its_schema_refuses() -> None:
    head = partial.PartialHead(run_id="a", **CALL, attempt=1, at=AT, call='x: "y" # z')
    assert problems("partial", head_of(partial.encode_partial(head, "abc"))) == []
    recovered = partial.RecoveredHead(run_id="a", **CALL, **CUT, crc="0" * 8)
    assert problems("recovered", head_of(partial.encode_recovered(recovered, "abc"))) == []
