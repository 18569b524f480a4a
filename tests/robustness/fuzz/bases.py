"""The workspaces that the fuzzer changes: together they hold every kind of record and every kind of file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from linked import linked
from msgspec import Raw
from waits import NOBODY_SAVES

from satchel.workspace.inspect.report import Report
from satchel.workspace.journal import (
    AgentBegun,
    AgentEnded,
    AnswersGrown,
    AnyRecord,
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalRevoked,
    Back,
    Closed,
    Configured,
    Doubt,
    Edited,
    Failure,
    Input,
    Line,
    Message,
    Migrated,
    Opened,
    Output,
    PartialPromoted,
    Paused,
    PauseRequested,
    PlanChanged,
    Pruned,
    Resolved,
    ResourceChanged,
    Resumed,
    Rewound,
    ScopeBegun,
    ScopeCommitted,
    ScopeFailed,
    Spent,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepRetry,
    StepStarted,
    TaskDone,
    TaskTaken,
    Uncalled,
)
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.plan import Plan, Splice
from satchel.workspace.state import AgentMoment, earlier_moment
from satchel.workspace.store import DiskStore
from satchel.workspace.views import guarded_files, partial_files, schema_files
from satchel.workspace.views.partial_files import PartialHead

Files = dict[str, bytes]
"""A folder, by path."""

RUN = "fuzz-1"
AGENT = "import pathlib\npathlib.Path(__file__).parent.parent.joinpath('executed').touch()\n"
DEFINITION = """\
# What a person says of this run.
format: 1
run_id: fuzz-1
agent: agent.py:main
settings:
  model: small   # a comment
  limit: 3
  files: [a.txt, "b c.txt"]
drain: {timeout: 2m, then: force}
idle_below: 10m
restart_every: 24h
group: customer-a
priority: 10
on_drift: report
on_reference: refuse
prompts: pinned
budget: {steps: 100, tokens: 1000, usd: 1.5, time: 2h}
checkpoints: {every: 10m}
keep: {history: [10000, 30d], checkpoints: [5, 24h], recovered: all, inbox: 9}
references: [a.txt]
windows:
  - {cron: "0 22 * * *", duration: 8h, timezone: Europe/Vienna, notify_before: 10m}
schedule:
  - {cron: "*/5 * * * *", name: often, timezone: UTC}
redirect_to: ../outside
"""
TODO = "# Plan\n\nSome prose.\n\n- [ ] read\n- [ ] mail\n- [ ] ask\n  - [ ] part\n  - [ ] other\n"
RESULT_SCHEMA = schema_files.result_schema({"type": "object", "properties": {"found": {"type": "integer"}}})
DATA_SCHEMA = b'{"type": "object", "properties": {"n": {"type": "integer"}, "word": {"pattern": "^[a-z]*$"}}}\n'
LEASE = b"""\
{"format": 1, "run_id": "fuzz-1", "host": "elsewhere", "pid": 4242, "process_started": "99", "epoch": 2,
 "since": "2026-11-01T00:00:00.000Z", "url": "/runs/fuzz", "ttl": 0.0, "beat": 0,
 "supervisor": {"pid": 4241, "process_started": "98"}}
"""
RUNNING = b"""\
{"format": 1, "run_id": "fuzz-1", "epoch": 2, "at": "2026-11-01T00:00:09.000Z", "calls": [
 {"scope": "2", "no": 9, "step": "talk", "args": "0000000000000000", "n": 1, "call": "('a')",
  "since": "2026-11-01T00:00:00.000Z"},
 {"agent": "helper", "scope": "1", "no": 3, "step": "look", "args": "1111111111111111", "n": 0, "call": "('b')",
  "since": "2026-11-01T00:00:00.000Z", "failures": 1}]}
"""
PAUSE = b"status: requested\nreason: lunch\nby: ann\nmode: drain\nexpected_until: 2036-11-01T00:00:00Z\n"
MOVED = b"format: 1\nrun_id: fuzz-1\nto: /elsewhere/fuzz\nat: 2026-11-01T00:00:00.000Z\nby: ann@laptop\nsatchel: '1'\n"
AT = "2026-11-01T00:00:00.000Z"


def call(scope: str, no: int, step: str, agent: str = "") -> dict[str, Any]:
    return {"agent": agent, "scope": scope, "no": no, "step": step, "args": "0" * 16, "n": 0, "call": "('a')"}


def plan(*rows: tuple[int, int, str]) -> tuple[Splice, ...]:
    return tuple(Splice(*row) for row in rows)


OPENED = Opened(
    format=1,
    run_id=RUN,
    satchel="1",
    python="3.12",
    host="elsewhere",
    pid=4242,
    url="/runs/fuzz",
    why="run",
    found="new",
    definition={"settings": {}, "agent": "agent.py:main"},
    by="ann@elsewhere",
)
ERROR = Failure("ValueError", "it is wrong", ("agent.py:3 in work",))
CUT: dict[str, Any] = {"attempt": 1, "characters": 4, "damaged": False, "cut_off_at": AT, "cut_off_by": "a crash"}
BEGINNING: list[AnyRecord] = [
    OPENED,
    Input(arguments=Raw(b'{"topic":"a","depth":[1,null]}')),
    Configured(config={"satchel": "1", "python": "3.12", "agent_sha256": "ab", "on_cancel": False}),
    ResourceChanged(name="db", tier="infrastructure", event="opened", ms=1200),
    ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {"n": 1, "word": "a", "list": [1, [2]]}}]),
    PlanChanged(plan=plan((0, 0, TODO)), by="agent", why="run.plan"),
    ScopeBegun(scope="1", title="read", plan=plan((4, 1, "- [/] read ^1\n"))),
    StepCompleted(
        **call("1", 1, "read"), result=Raw(b'{"text":"a","size":[1,2.5,null]}'), ms=2000, schema=RESULT_SCHEMA.name
    ),
    Spent(tokens=10, usd=0.25, scope="1", n=0),
    Message(scope="1", role="user", content=Raw(b'{"text":"hello"}')),
    ScopeCommitted(
        scope="1",
        patch=[{"op": "replace", "path": "/n", "value": 2}],
        plan=plan((4, 1, "- [x] read ^1\n")),
        result=Raw(b'"done"'),
        outputs={"a.txt": Output("00" * 32, 3, "1-2", "0" * 32)},
    ),
    AgentBegun(agent="helper", scope="", args="1" * 16, call="('b')"),
    PlanChanged(agent="helper", plan=plan((0, 0, "- [ ] look\n")), by="agent"),
    ScopeCommitted(agent="helper", scope="", patch=[{"op": "add", "path": "", "value": {"k": "v"}}]),
    ScopeBegun(agent="helper", scope="1", title="look", plan=plan((0, 1, "- [/] look ^1\n"))),
    StepRetry(**call("1", 1, "dig", "helper"), error=ERROR, attempt=1, wait=2.5),
    StepProgress(**call("1", 1, "dig", "helper"), value=Raw(b'{"done":3}')),
    ScopeBegun(scope="2", title="mail", plan=plan((5, 1, "- [/] mail ^2\n"))),
    StepStarted(**call("2", 1, "send"), idempotency_key="k1", arguments=Raw(b'{"to":"a"}')),
    StepCompleted(**call("2", 1, "send"), effect=True, result=Raw(b'"sent"')),
    StepStarted(**call("2", 2, "post"), idempotency_key="k2", schema=RESULT_SCHEMA.name),
    StepFailed(**call("2", 3, "fetch"), error=ERROR, attempt=2, schema=RESULT_SCHEMA.name),
    PartialPromoted(**call("2", 4, "think"), **CUT, file="recovered/2-mail/04-think-1.md"),
    ScopeFailed(scope="2", error=ERROR),
    TaskTaken(id="t1", scope="", file="inbox/first.md", sha256="00" * 32, content=Raw(b'"do"')),
    TaskTaken(id="t2", scope="", file="inbox/x.yaml", sha256="11" * 32, kind="schedule", schedule="often", due=AT),
    TaskDone(id="t2"),
    TaskTaken(id="t3", scope="", file="inbox/y.md", sha256="22" * 32, handed_to="/nowhere/y.md"),
    TaskDone(id="t3", moved_to="/nowhere/y.md"),
    Edited(
        file="state.json",
        by="ann@laptop",
        sha="33" * 32,
        base=6,
        own_work=("2",),
        says=("data.n is now 3",),
        patch=[{"op": "replace", "path": "/n", "value": 3}],
    ),
    PauseRequested(reason="lunch", by="ann", until="2026-11-01T01:00:00.000Z"),
    Paused(),
    Resumed(by="ann", seconds=12.5, checkpoint_age=3.0, says=("the settings have changed",)),
    Migrated(to=2, patch=[{"op": "add", "path": "/more", "value": True}]),
]
ASKED: list[AnyRecord] = [
    Doubt(**call("2", 2, "post"), id="d1", why="unknown_outcome", cause="a crash"),
    ApprovalAsked(
        **call("2", 5, "ask"),
        id="a1",
        question="Grant rights?",
        choices=("approve", "deny"),
        context=Raw(b'{"who":"bob"}'),
        expires="2036-11-01T00:00:00.000Z",
        default=Raw(b'"deny"'),
    ),
    ApprovalAsked(**call("2", 6, "ask"), id="a2", question="How many?", answer_schema={"type": "integer"}),
    ApprovalAsked(**call("2", 7, "ask"), id="a3", question="Which?"),
    ApprovalAsked(
        **call("2", 8, "ask"), id="a4", question="Pay?", choices=("approve", "deny"), arguments=Raw(b'{"sum":80}')
    ),
    ApprovalAsked(
        **call("2", 9, "ask"), id="a5", question="Pay?", choices=("approve", "deny"), arguments=Raw(b'{"sum":90}')
    ),
    ApprovalAnswered(id="a5", decision=Raw(b'"approve"'), arguments=Raw(b'{"sum":50}'), by="ann"),
    ApprovalAsked(
        **call("", 0, "checkpoint"),
        id="a6",
        question="state.json is from a checkpoint. What shall the run do?",
        choices=("go-back", "data", "keep"),
        back=Back(checkpoint="000000000004-start", to=4, files=("state.json",), data=Raw(b'{"":{"n":1,"word":"a"}}')),
    ),
    ApprovalAsked(**call("2", 10, "ask"), id="a8", question="Pay?", choices=("approve", "deny"), tool="pay"),
    ApprovalAnswered(id="a8", decision=Raw(b'"approve"'), by="ann", standing=True),
    ApprovalAsked(**call("2", 11, "ask"), id="a9", question="Pay?", choices=("approve", "deny"), tool="pay"),
    ApprovalAnswered(id="a9", decision=Raw(b'"approve"'), by="ann", how="standing", under="a8"),
    ApprovalRevoked(id="a8", by="bob"),
    ApprovalAnswered(id="a3", decision=Raw(b'"this"'), by="ann", note="why not"),
    Pruned(by="ann", up_to=3, base="checkpoints/000000000004-start.json", files={"journal": 1}, bytes=99),
    Closed(status="waiting", reason="a person is asked"),
]
REWOUND: list[AnyRecord] = [
    Rewound(
        to=13,
        by="ann",
        forgets=True,
        says=("todo.md: item 2 ('mail') will be done again",),
        agents=earlier_moment.pack(
            {
                "": AgentMoment(
                    data={"n": 1, "word": "a", "list": []},
                    has_data=True,
                    plan=Plan(TODO),
                    has_plan=True,
                    left={"2": "mail"},
                ),
                "helper": AgentMoment(path="helper", plan=Plan("- [ ] look\n"), has_plan=True),
            }
        ),
    ),
    Closed(),
]
ENDED: list[AnyRecord] = [
    Doubt(**call("2", 2, "post"), id="d1", why="unknown_outcome"),
    Resolved(id="d1", outcome="done", by="ann", note="seen", result=Raw(b'"by hand"')),
    AgentEnded(agent="helper", result=Raw(b'{"found":1}')),
    ScopeCommitted(scope="2", plan=plan((5, 1, "- [x] mail ^2\n"))),
    ScopeBegun(scope="_late", title="late"),
    ScopeCommitted(scope="_late", cancelled="not needed"),
    AnswersGrown(answers=1),
    Uncalled(scope="", calls=(("gone", "1" * 16, 0),)),
    Closed(status="completed", reason=""),
]
SLEEPING: list[AnyRecord] = [Closed(status="sleeping", reason="until noon", until="2036-11-01T12:00:00.000Z")]
FAILED: list[AnyRecord] = [Closed(status="failed", reason="it broke", error=ERROR)]
PAUSED: list[AnyRecord] = [PauseRequested(reason="lunch", by="ann"), Paused(forced=True), Closed(status="paused")]
HEAD = PartialHead(run_id=RUN, scope="2", no=9, step="talk", args="2" * 16, n=0, attempt=1, at=AT, call="('c')")
COMMON: Files = {
    "workspace.yaml": DEFINITION.encode(),
    "agent.py": AGENT.encode(),
    "a.txt": b"a",
    ".satchel/schemas/data.json": DATA_SCHEMA,
    schema_files.result_path(RESULT_SCHEMA.name): RESULT_SCHEMA.data,
    "outputs/a.txt": b"abc",
    "inbox/first.md": b"do",
    "inbox/20261101T000000.000000Z-abc123.md": b"Look at this.\n",
    "inbox/second.yaml": b"to: bob\ncount: 3\n",
    "inbox/third.yaml": b"kind: message\ntext: hello\n",
}


def _copied_back(files: Files) -> Files:
    """What a person finds in the newest folder of a checkpoint, over the files of a run."""
    folders = [path.rpartition("/")[0] for path in files if re.fullmatch(r"checkpoints/[^/]+/why\.md", path)]
    return {name: files[f"{max(folders)}/{name}"] for name in ("state.json", "todo.md")}


def build() -> list[Files]:
    """All of them, the same at every call but for the times and the process of the openings in them."""
    asked = _opened_once(COMMON | _journal([*BEGINNING, *ASKED]))
    stream = partial_files.encode_partial(HEAD, "Once upon a time")
    crashed = COMMON | _journal(BEGINNING) | {"partials/2-mail/09-talk.md": stream, ".satchel/lease.json": LEASE}
    crashed[".satchel/running.json"] = RUNNING
    recovered = _opened_once(crashed)
    gone = ("journal/", "checkpoints/")
    return [
        asked,
        crashed,
        recovered,
        _opened_once(COMMON | _journal([*BEGINNING, *ENDED])) | _copied_back(asked),
        _opened_once(COMMON | _journal([*BEGINNING, *REWOUND])),
        _opened_once(COMMON | _journal([*BEGINNING, *SLEEPING])) | {"pause.yaml": PAUSE},
        _opened_once(COMMON | _journal([*BEGINNING, *FAILED])) | {".satchel/lease.json": LEASE},
        _opened_once(COMMON | _journal([*BEGINNING, *PAUSED])),
        {path: data for path, data in asked.items() if not path.startswith(gone)},
        COMMON | {"todo.md": TODO.encode()},
        COMMON | {"moved.yaml": MOVED},
    ]


def _journal(records: list[AnyRecord]) -> Files:
    """Two segments, so that there is a boundary between two. A message is of one group with the commit behind it."""
    lines = []
    for seq, each in enumerate(records, 1):
        commit = seq - (seq > 1 and isinstance(records[seq - 2], Message))
        lines.append(Line(seq, commit, f"2026-11-01T00:00:{seq:02d}.000Z", 1, each))
    half = len(lines) // 2
    first = linked(lines[:half])
    second = linked(lines[half:], first.lines[-1].crc)
    return {f"journal/{part.lines[0].seq:012d}.jsonl": part.data for part in (first, second)}


def _opened_once(files: Files) -> Files:
    """With all that an opening writes: checkpoints and readable files."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        lay_out(folder, files)
        with unhurried(), opened(DiskStore(folder), "recover", Report(), adopt=True) as workspace:
            workspace.close()
        found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {
        path: data for path, data in sorted(found.items()) if not path.startswith(".satchel/schemas/") or path in files
    }


@contextmanager
def unhurried() -> Iterator[None]:
    """In the body nobody is in the middle of saving a file."""
    waits, guarded_files.WAITS = guarded_files.WAITS, NOBODY_SAVES
    try:
        yield
    finally:
        guarded_files.WAITS = waits


def lay_out(folder: Path, files: Files) -> None:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
