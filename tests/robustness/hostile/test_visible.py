"""What a stranger has written into a workspace does not steer the terminal of whoever looks at it, nor that of whoever
prints the JSON."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from linked import linked
from msgspec import Raw

from satchel.runtime.api import stops
from satchel.runtime.cli.group import group
from satchel.runtime.status import check
from satchel.workspace.inspect import lease
from satchel.workspace.inspect.report import Remark
from satchel.workspace.journal import (
    AgentBegun,
    AgentEnded,
    AnyRecord,
    ApprovalAsked,
    Closed,
    Doubt,
    Failure,
    Line,
    Opened,
    Output,
    PauseRequested,
    PlanChanged,
    ScopeBegun,
    ScopeCommitted,
    StepStarted,
    TaskTaken,
)
from satchel.workspace.plan import Splice

NAME = "\x9b1m\u202e\u2069\u200f"  # files may be called so
EVIL = f"\x1b[2J\x1b[31m\x07\r{NAME}"
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
AT = "2026-11-01T00:00:00.000Z"
CALL: dict[str, Any] = {"scope": "1", "no": 1, "step": f"s{EVIL}", "args": "0" * 16, "n": 0, "call": f"({EVIL})"}
ERROR = Failure(f"E{EVIL}", EVIL, (f"a.py:1{EVIL}",))
RECORDS: list[AnyRecord] = [
    Opened(
        format=1,
        run_id="run-1",
        satchel=EVIL,
        python=EVIL,
        host=f"h{EVIL}",
        pid=1,
        why="run",
        found="new",
        checkpoint=EVIL,
        by=EVIL,
        arrived=EVIL,
        took_over=EVIL,
        cut_off=EVIL,
    ),
    ScopeCommitted(
        scope="", patch=[{"op": "add", "path": "", "value": {EVIL: EVIL}}], outputs={f"x{NAME}": Output("0" * 64, 1)}
    ),
    PlanChanged(plan=(Splice(0, 0, "- [ ] a \u202e ^1\n"),), by="person", person=EVIL, why=EVIL),
    AgentBegun(agent=f"h{NAME}", scope="", args="0" * 16, call=EVIL),
    AgentEnded(agent=f"h{NAME}", error=ERROR),
    ScopeBegun(scope="1", title=f"t{EVIL}"),
    StepStarted(**CALL, idempotency_key=EVIL),
    TaskTaken(id="t1", scope="1", file=f"inbox/{NAME}.md", sha256="0" * 64, content=Raw(b'"x"')),
    ApprovalAsked(
        **CALL | {"no": 2}, id="a1", question=EVIL, choices=(EVIL, "b"), context=Raw(msgspec.json.encode(EVIL))
    ),
    Doubt(**CALL, id="d1", why="unknown_outcome", cause=EVIL),
    PauseRequested(reason=EVIL, by=EVIL),
    Closed(status="failed", reason=EVIL, error=ERROR),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(check, "_LOOKS", 1)
    monkeypatch.setattr(stops, "_MARGIN", 0.3 - stops.FORCE_AFTER)  # no process will notice it
    monkeypatch.setattr(click, "style", lambda text, **_: str(text))  # what is left of escapes is the files'
    folder = tmp_path / "w"
    for name in ("journal", ".satchel", "inbox", "recovered/1"):
        (folder / name).mkdir(parents=True)
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: run-1\nagent: agent.py:main\ndrain: {timeout: 0s}\n")
    lines = linked(Line(seq, seq, AT, 1, each) for seq, each in enumerate(RECORDS, 1)).data
    (folder / "journal/000000000001.jsonl").write_bytes(lines)
    (folder / ".satchel/report.json").write_bytes(
        msgspec.json.encode({"format": 1, "at": EVIL, "remarks": [Remark("found", EVIL)]})
    )
    held = lease.Lease(
        run_id="run-1", host=f"h{EVIL}", pid=1, process_started=EVIL, epoch=2, since=EVIL, url=str(folder)
    )
    (folder / lease.PATH).write_bytes(lease.encode(held))
    return folder


COMMANDS = [
    "status",
    "check",
    "log",
    "blame",
    "ls",
    "merge",
    "answer",
    "answer d1 redo",
    "recover",
    "pause",
    "cancel --yes",
    "stop",
    "send x",
    "resume --in-process",
]
JSON = ["status", "check", "log", "blame", "ls", "merge", "recover", "pause", "cancel", "stop", "send x"]


@pytest.mark.parametrize("words", [*COMMANDS, *(f"{each} --json" for each in JSON)])
def test_a_stranger_s_text_steers_the_terminal(folder: Path, words: str) -> None:
    name, *rest = words.split()
    done = CliRunner().invoke(group, [name, str(folder), *rest], color=True)
    found = STEERS.search(done.output)
    assert found is None, repr(done.output[max(0, found.start() - 300) : found.end() + 40])
    if "--json" in rest and done.stdout:
        for part in done.stdout.splitlines() if name == "log" else [done.stdout]:
            json.loads(part)


@pytest.mark.parametrize("raw", [f'"at":"2026{EVIL}"', f'"x":"{EVIL}"', '"x":\r\r1'])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_line_of_the_log_steers_the_terminal(folder: Path, raw: str, as_json: list[str]) -> None:
    at = raw if raw.startswith('"at"') else f'"at":"{AT}",{raw}'
    text = f'{{"seq":13,"prev":"00000000",{at},"epoch":1,"type":"closed"'
    head = text.replace("\x07\r", "\\u0007").replace("\x1b", "\\u001b").encode()
    with open(folder / "journal/000000000001.jsonl", "ab") as file:
        file.write(b'%s,"crc":"%08x"}\n' % (head, zlib.crc32(head + b"}")))
    done = CliRunner().invoke(group, ["log", str(folder), *as_json], color=True)
    assert STEERS.search(done.output) is None
    for row in done.stdout.splitlines() if as_json else ():
        json.loads(row)
