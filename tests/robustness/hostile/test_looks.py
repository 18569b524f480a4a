"""Data of strangers that are well formed, and that no run leaves: the commands that look say so, and end."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from fuzz.play import complaints
from linked import last_crc, linked

from satchel.schemas import validator
from satchel.workspace import journal
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import AnyRecord, Line, Opened, PlanChanged, ScopeBegun, ScopeCommitted
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.plan import Splice
from satchel.workspace.store import DiskStore

COMMANDS = [("status",), ("check",), ("log", "--json"), ("blame",), ("blame", "todo.md"), ("recover",)]
AT = "2026-11-01T00:00:00.000Z"
DIGITS = "9" * 6000
BAD_TIMES = [
    "",
    "x",
    "2026-11-01",
    "2026-11-01T00:00:00",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2026-02-30T00:00:00Z",
]
RECORDS: list[AnyRecord] = [
    Opened(format=1, run_id="run-1", satchel="0", python="3", host="h", pid=1, why="run", found="new"),
    ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {"word": "a" * 60 + "!", "list": [[1]] * 9}}]),
    PlanChanged(plan=(Splice(0, 0, "- [/] a ^1\n"),), by="agent"),
    ScopeBegun(scope="1", title="a"),
]
BEGUN = linked(Line(seq, seq, AT, 1, each) for seq, each in enumerate(RECORDS, 1)).data
HEAD = f'{{"seq":5,"prev":"{last_crc(BEGUN)}","commit":5,"at":"{AT}","epoch":1,'
CALL = '"scope":"1","no":1,"step":"s","args":"0000000000000000","n":0'
LINES = {
    **{f"at {at}": f'"at":"{at}","type":"closed"' for at in BAD_TIMES},
    **{f"until {at}": f'"type":"closed","status":"sleeping","until":"{at}"' for at in BAD_TIMES[1:]},
    **{f"pause {at}": f'"type":"pause.requested","reason":"r","by":"b","until":"{at}"' for at in BAD_TIMES[1:]},
    **{
        f"due {at}": '"type":"task.taken","id":"t1","scope":"","file":"x","sha256":"","kind":"schedule",'
        f'"schedule":"s","due":"{at}"'
        for at in BAD_TIMES
    },
    **{
        f"expires {at}": f'"type":"approval.asked",{CALL},"id":"a1","question":"q","expires":"{at}","default":1'
        for at in BAD_TIMES
    },
    **{
        f"result {value[:9]}": f'"type":"step.completed",{CALL},"result":{value}'
        for value in ("1e999", DIGITS, "-1e999", f"[{DIGITS}]")
    },
    **{
        f"context {value[:9]}": f'"type":"approval.asked",{CALL},"id":"a1","question":"q","context":{value}'
        for value in ("1e999", DIGITS)
    },
    "decision": f'"type":"approval.asked",{CALL},"id":"a1","question":"q","default":1e999,"expires":"{AT}"',
    "child": '"type":"agent.begun","agent":"a/b","scope":"","args":""',
}


def thirds(names: Iterable[Any]) -> list[Any]:
    """The fast tests try every third, and the slow ones the others."""
    return [pytest.param(each, marks=[pytest.mark.slow] * (at % 3 > 0)) for at, each in enumerate(names)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator, "LIMIT", 0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "w"
    (folder / "journal").mkdir(parents=True)
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: run-1\nagent: agent.py:main\nbudget: {tokens: 9}\n")
    write(folder, BEGUN)
    return folder


def write(folder: Path, data: bytes) -> None:
    with open(folder / "journal/000000000001.jsonl", "ab") as file:
        file.write(data)


def look_at(folder: Path) -> None:
    """With all of them; none may end in anything but words."""
    for words in COMMANDS:
        assert not [*complaints(words, folder)], words


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", thirds(LINES))
def test_a_record_with_what_no_run_writes_ends_a_look(folder: Path, name: str) -> None:
    """Once as the last, which a crash may have torn, and once with another behind it."""
    for after in (False, True):
        body = f"{HEAD}{LINES[name]}"
        head = (body if '"at"' not in LINES[name] else body.replace(f'"at":"{AT}",', "", 1)).encode()
        line = b'%s,"crc":"%08x"}\n' % (head, zlib.crc32(head + b"}"))
        write(folder, line)
        if after:
            write(folder, journal.encode(Line(6, 6, AT, 1, ScopeBegun(scope="2", title="b"), last_crc(line))))
        look_at(folder)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "change",
    [
        {"fired": {"s": [{"due": "x", "at": AT}]}},
        {"opened_at": "0001-01-01T00:00:00+23:59"},
        {"last_at": "9999-12-31T23:59:59-23:59"},
        {"pause": {"reason": "r", "by": "b", "requested_at": "2026-11-01", "until": "x"}},
        {"status": "sleeping", "until": "2026-02-30T00:00:00Z"},
        {"agents": {"a/b": {"path": "a/b", "plan": {"text": "", "outline": []}, "scopes": {"": {}}}}},
        {
            "approvals": {
                "a1": {
                    "type": "approval.asked",
                    "id": "a1",
                    "question": "q",
                    "scope": "",
                    "no": 1,
                    "step": "s",
                    "args": "0",
                    "n": 0,
                    "context": "1e999",
                }
            }
        },
        {"usage": {"seconds": "1e999"}},
        {"tasks": {"t1": {"type": "task.taken", "id": "t1", "scope": "", "file": "", "sha256": "", "content": DIGITS}}},
        {"extra": "1e999"},
        {"usage": {"tokens": 10**400}},
        {
            "agents": {
                "": {
                    "path": "",
                    "plan": {"text": "", "outline": []},
                    "scopes": {"": {"promoted": [[["s", "0", 0], []]]}},
                }
            }
        },
    ],
)
def test_a_checkpoint_with_what_no_run_writes_ends_a_look(folder: Path, change: dict[str, Any]) -> None:
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    (path,) = (folder / "checkpoints").glob("*.json")
    facts = json.loads(path.read_bytes())
    del facts["sha256"]
    for key, value in change.items():
        facts["moment"][key] = (facts["moment"].get(key) or {}) | value if isinstance(value, dict) else value
    body = json.dumps(facts).replace('"1e999"', "1e999").replace(f'"{DIGITS}"', DIGITS).encode()[:-1]
    path.write_bytes(b'%s,"sha256":"%s"}\n' % (body, hashlib.sha256(body).hexdigest().encode()))
    look_at(folder)


def chain(keyword: str) -> dict[str, Any]:
    """A schema that means little, and asks for it 2 to the power of 60 times."""
    doubled = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    return {"$ref": "#/$defs/d0", "$defs": doubled | {"d60": {"type": "object"}}}


SLOW = "^(a+)+$"
SCHEMAS: list[Any] = [
    {"$ref": "http://["},
    {"$id": "http://[", "type": "object"},
    {"$ref": "#/no"},
    {"allOf": [{"$ref": "#"}]},
    {"properties": {"word": {"pattern": SLOW}}},
    {"properties": {"word": {"pattern": "("}}},
    {"additionalProperties": {"pattern": SLOW}},
    {"patternProperties": {SLOW: False}},
    {"patternProperties": {SLOW: {}}, "additionalProperties": False},
    {"properties": {"word": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": SLOW}}},
    {"propertyNames": {"pattern": SLOW}},
    {"properties": {"list": {"uniqueItems": True}}},
    chain("allOf"),
    chain("anyOf"),
    {"properties": {"n": {"multipleOf": 1e-320}}},
    {"oneOf": [{}], "discriminator": {"propertyName": "word", "mapping": 5}},
    {"$schema": "http://[", "type": "object"},
    {"type": "no"},
    {"$dynamicRef": "#x"},
    {"unevaluatedProperties": {"pattern": SLOW}},
]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("number", thirds(range(len(SCHEMAS))))
def test_a_schema_of_a_stranger_hangs_or_ends_a_look(folder: Path, number: int) -> None:
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    (folder / ".satchel/schemas/data.json").write_text(json.dumps(SCHEMAS[number]))
    state = json.loads((folder / "state.json").read_text())
    state["data"] |= {"n": 10**30, "a" * 60 + "!": "a" * 60 + "!"}
    (folder / "state.json").write_text(json.dumps(state))
    for words in (("check",), ("recover",)):
        assert not [*complaints(words, folder)]


def test_a_schema_of_a_stranger_s_question_hangs_whoever_looks(folder: Path) -> None:
    body = (
        f'{HEAD}"type":"approval.asked",{CALL},"id":"a1","question":"q","answer_schema":{{"pattern":"{SLOW}"}}'
    ).encode()
    write(folder, b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body + b"}")))
    with opened(DiskStore(folder), "recover", Report()) as workspace:
        workspace.close()
    assert "a1" in look(DiskStore(folder)).moment.approvals
    path = folder / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("decision:", f"decision: {'a' * 60}!"))
    look_at(folder)
