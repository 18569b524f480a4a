"""Workspaces made by an attacker: opened, they end in a clear refusal or in order, and touch nothing outside."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import warm
from linked import last_crc, linked
from msgspec import Raw
from waits import PATIENCE

from satchel.workspace import journal
from satchel.workspace.base.errors import SatchelError
from satchel.workspace.inbound import open_questions
from satchel.workspace.inspect.load import look
from satchel.workspace.inspect.report import Report, last
from satchel.workspace.journal import (
    AnyRecord,
    Doubt,
    Line,
    Message,
    Opened,
    Output,
    PartialPromoted,
    PlanChanged,
    Resolved,
    ScopeBegun,
    ScopeCommitted,
    StepCompleted,
    StepFailed,
    StepProgress,
    StepStarted,
)
from satchel.workspace.lifecycle.opening import opened
from satchel.workspace.store import DiskStore
from satchel.workspace.views import partial_files
from satchel.workspace.views.partial_files import PartialHead

AT = "2026-11-01T00:00:00.000Z"
OPENED = Opened(format=1, run_id="run-1", satchel="0", python="3", host="h", pid=1, why="run", found="new")
DATA = ScopeCommitted(scope="", patch=[{"op": "add", "path": "", "value": {"n": 1, "list": [1]}}])
PLAN = PlanChanged(plan=((0, 0, "- [ ] a\n- [ ] b\n"),), by="agent")  # type: ignore[arg-type]
BEGUN = ScopeBegun(scope="1", title="a", plan=((0, 1, "- [/] a ^1\n"),))  # type: ignore[arg-type]
GOOD = [OPENED, DATA, PLAN, BEGUN]
DEEP = "[" * 50_000 + "]" * 50_000
HUGE = 10**40
STAMP = {"seq": 1, "epoch": 1, "sha": "00000000"}
COMMIT = '{"seq":2,"commit":2,"at":"x","epoch":1,"type":"scope.committed","scope":"",'


class Target:
    """A workspace with something precious beside it."""

    def __init__(self, tmp_path: Path):
        self.folder, self.outside = tmp_path / "w", tmp_path / "outside"
        self.folder.mkdir()
        self.outside.mkdir()
        (self.outside / "secret.txt").write_bytes(b"secret")
        (self.outside / "workspace.yaml").write_bytes(b"format: 1\n")
        (tmp_path / "sibling.txt").write_bytes(b"precious")
        self.put("workspace.yaml", b"format: 1\nrun_id: run-1\nagent: agent.py:main\n")
        self.put("agent.py", b"import pathlib\npathlib.Path(__file__).parent.parent.joinpath('executed').touch()\n")

    def put(self, path: str, data: bytes | str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data.encode() if isinstance(data, str) else data)

    def link(self, path: str, to: Path | str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).symlink_to(to)

    def journal(self, *records: AnyRecord, epoch: int = 1) -> None:
        lines = (Line(seq, seq, AT, epoch, each) for seq, each in enumerate(records, start=1))
        self.put("journal/000000000001.jsonl", linked(lines).data)

    def raw(self, body: str | bytes) -> None:
        """A journal whose second line is any body with a checksum that fits."""
        opened = journal.encode(Line(1, 1, AT, 1, OPENED))
        prev = b'"prev":"%s","commit"' % last_crc(opened).encode()
        head = (body.encode() if isinstance(body, str) else body)[:-1].replace(b'"commit"', prev, 1)
        line = b'%s,"crc":"%08x"}\n' % (head, zlib.crc32(head + b"}"))
        self.put("journal/000000000001.jsonl", opened + line)

    def checkpoint(self, facts: Any) -> None:
        body = (facts if isinstance(facts, bytes) else json.dumps(facts).encode())[:-1]
        sha = hashlib.sha256(body).hexdigest().encode()
        self.put("checkpoints/000000000004-x.json", b'%s,"sha256":"%s"}\n' % (body, sha))

    def around(self) -> dict[str, tuple[int, bytes]]:
        """Everything outside the workspace."""
        files = (path for path in self.folder.parent.rglob("*") if not path.is_relative_to(self.folder))
        return {str(path): (path.lstat().st_mtime_ns, b"" if path.is_dir() else path.read_bytes()) for path in files}


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


def use(folder: Path) -> list[str]:
    """All that one may do with a stranger's workspace, and how each ended. Only a SatchelError is an end."""
    ends = []

    def look_at() -> None:
        found = look(DiskStore(folder))
        open_questions(found.moment)
        last(DiskStore(folder))

    def recover() -> None:
        with opened(DiskStore(folder), "recover", Report()) as workspace:
            workspace.close()

    for action in (look_at, recover, look_at, recover):
        try:
            action()
            ends.append("fine")
        except SatchelError as error:
            assert str(error)
            ends.append(type(error).__name__)
    return ends


def survives(target: Target) -> list[str]:
    before = target.around()
    ends: list[Any] = []

    def run() -> None:
        try:
            ends.extend(use(target.folder))
        except BaseException as error:
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "it hangs"
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    assert target.around() == before, "something outside was touched"
    return ends


def test_the_good_workspace_is_fine_so_that_the_others_are_refused_for_their_attack(target: Target) -> None:
    target.journal(*GOOD)
    assert survives(target) == ["fine"] * 4


# Definitions

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
)
DEFINITIONS = {
    "bomb": f"format: 1\nrun_id: r\nagent: a.py:m\nsettings:\n{BOMB.replace(chr(10), chr(10) + '  ')}",
    "python tag": "format: 1\nrun_id: !!python/object/apply:os.system ['touch executed']\nagent: a.py:m\n",
    "recursive": "format: 1\nrun_id: r\nagent: a.py:m\nsettings: &s\n  s: *s\n",
    "deep": f"format: 1\nrun_id: r\nagent: a.py:m\nsettings: {DEEP}\n",
    "run_id leads out": "format: 1\nrun_id: ../../x\nagent: agent.py:main\n",
    "run_id nul": 'format: 1\nrun_id: "a\\0b"\nagent: agent.py:main\n',
    "agent leads out": "format: 1\nrun_id: run-1\nagent: ../../evil.py:main\n",
    "wrong types": "format: [1]\nrun_id: {}\nagent: 5\n",
    "not a mapping": "- 1\n",
    "duplicate": "format: 1\nformat: 1\nrun_id: r\nagent: a.py:m\n",
    "newer": "format: 2\nrun_id: r\nagent: a.py:m\n",
    "huge number": f"format: {'9' * 5000}\nrun_id: r\nagent: a.py:m\n",
    "nan": "format: .nan\nrun_id: r\nagent: a.py:m\n",
    "empty": "",
    "binary": "\0" * 1000,
    "two documents": "format: 1\nrun_id: r\nagent: a.py:m\n---\nformat: 1\n",
    "large": "# " + "x" * (2 << 20),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_is_refused_or_harmless(target: Target, name: str) -> None:
    target.put("workspace.yaml", DEFINITIONS[name])
    survives(target)


# Journals

CALL: dict[str, Any] = {"scope": "1", "no": 1, "step": "s", "args": "0" * 16, "n": 0}
CUT: dict[str, Any] = {"attempt": 1, "characters": 1, "damaged": False, "cut_off_at": AT, "cut_off_by": "x"}
WORDS = [
    "../../outside/x",
    "/etc/passwd",
    "..",
    "",
    "a/b",
    "a\0b",
    "\n",
    "x" * 5000,
    "CON",
    "_../x",
    "_/x",
    ".",
    "-",
    "_agent",
    "٣",
]


def thirds(cases: Iterable[Any]) -> list[Any]:
    """Combinations of fields with values: the fast tests try every third, so each field with some of the values, and
    the slow ones the others."""
    rows = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*row, marks=[pytest.mark.slow] * (number % 3 > 0)) for number, row in enumerate(rows)]


def combined() -> dict[str, list[AnyRecord]]:
    found: dict[str, list[AnyRecord]] = {}
    for word in WORDS:
        name = repr(word[:12])
        call = CALL | {"scope": word}
        found |= {
            f"scope {name}": [
                ScopeBegun(scope=word, title=word),
                StepCompleted(**call),
                StepStarted(**call, idempotency_key="k"),
            ],
            f"title {name}": [ScopeBegun(scope="2", title=word), StepCompleted(**CALL | {"scope": "2"})],
            f"step {name}": [StepCompleted(**CALL | {"step": word, "args": word, "call": word})],
            f"blob {name}": [StepCompleted(**CALL, blob=word), ScopeCommitted(scope="1", blob=word)],
            f"promoted {name}": [PartialPromoted(**CALL, **CUT, file=word)],
            f"outputs {name}": [ScopeCommitted(scope="1", outputs={word: Output(word, -5)})],
            f"doubt {name}": [
                StepStarted(**CALL, idempotency_key=word),
                Doubt(**CALL, id=word, why="unknown_outcome", cause=word),
            ],
            f"patch {name}": [ScopeCommitted(scope="", patch=[{"op": "add", "path": f"/{word}", "value": 1}])],
            f"deep patch {name}": [
                ScopeCommitted(scope="", patch=[{"op": "add", "path": f"/no/{word}/x", "value": 1}])
            ],
            f"plan id {name}": [PlanChanged(plan=((0, 1, f"- [/] a ^{word}\n"),), by="agent")],  # type: ignore[arg-type]
        }
    for number in (-1, -(10**12), 10**12, HUGE):
        found |= {
            f"no {number}": [StepCompleted(**CALL | {"no": number, "n": number}, ms=number)],
            f"splice {number}": [PlanChanged(plan=((number, 0, "x\n"),), by="agent")],  # type: ignore[arg-type]
            f"removed {number}": [PlanChanged(plan=((0, number, "x\n"),), by="agent")],  # type: ignore[arg-type]
            f"attempt {number}": [PartialPromoted(**CALL, **CUT | {"attempt": number, "characters": number}, file="x")],
            f"failed {number}": [StepFailed(**CALL, attempt=number, error=journal.Failure("E", "x"))],
            f"index {number}": [ScopeCommitted(scope="", patch=[{"op": "add", "path": f"/list/{number}", "value": 1}])],
            f"item {number}": [ScopeBegun(scope=str(number), title="x")],
        }
    return found


COMBINED = combined()
RECORDS: dict[str, list[AnyRecord]] = COMBINED | {
    "unknown scope": [StepCompleted(**CALL | {"scope": "9"})],
    "unknown doubt": [Resolved(id="d9", outcome="done", by="x")],
    "message of nobody": [Message(scope="9", role="r", content=Raw(b"1"))],
    "commit twice": [ScopeCommitted(scope="1"), ScopeCommitted(scope="1")],
    "commit with a doubt": [Doubt(**CALL, id="d1", why="unreached"), ScopeCommitted(scope="1")],
    "other run": [Opened(format=1, run_id="x", satchel="", python="", host="", pid=1, why="run", found="new")],
    "state is no mapping": [ScopeCommitted(scope="", patch=[{"op": "replace", "path": "", "value": 5}])],
    "proto": [ScopeCommitted(scope="", patch=[{"op": "add", "path": "/__proto__", "value": {"x": 1}}])],
    "class": [ScopeCommitted(scope="", patch=[{"op": "replace", "path": "/__class__", "value": 1}])],
    "unknown op": [ScopeCommitted(scope="", patch=[{"op": "exec", "path": "/n", "value": 1}])],
    "patch without path": [ScopeCommitted(scope="", patch=[{"op": "add", "value": 1}])],
    "stamp in data": [ScopeCommitted(scope="", patch=[{"op": "add", "path": "/at", "value": STAMP}])],
    "quotes of quotes": [PlanChanged(plan=((0, 0, "> " * 20_000 + "- [ ] a\n"),), by="agent")],  # type: ignore[arg-type]
    "lists of lists": [PlanChanged(plan=((0, 0, "- " * 5000 + "[ ] a\n"),), by="agent")],  # type: ignore[arg-type]
    "plan with a stamp": [PlanChanged(plan=((0, 0, "<!-- satchel 9.9.00000000 -->\n"),), by="agent")],  # type: ignore[arg-type]
    "progress": [StepProgress(**CALL, value=Raw(b'{"a":' * 50 + b"1" + b"}" * 50))],
}


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("name", [*thirds(COMBINED), *[*RECORDS][len(COMBINED) :]])
def test_a_crafted_journal_is_refused_or_harmless(target: Target, name: str) -> None:
    target.journal(*GOOD, *RECORDS[name])
    survives(target)


LINES = {
    "deep": '{"seq":2,"commit":2,"at":"x","epoch":1,"type":"closed","x":' + DEEP + "}",
    "deep state": COMMIT + '"patch":[{"op":"add","path":"","value":' + DEEP[49_500:50_500] + "}]}",
    "nan": COMMIT + '"patch":[{"op":"add","path":"","value":NaN}]}',
    "epoch": '{"seq":2,"commit":2,"at":"x","epoch":99999999999999,"type":"closed"}',
    "last epoch": '{"seq":2,"commit":2,"at":"x","epoch":999999999,"type":"closed"}',
    "negative epoch": '{"seq":2,"commit":2,"at":"x","epoch":-7,"type":"closed"}',
    "twice": '{"seq":2,"seq":9,"commit":2,"at":"x","epoch":1,"type":"closed","type":"opened"}',
    "surrogate": '{"seq":2,"commit":2,"at":"x","epoch":1,"type":"closed","reason":"\\ud800"}',
    "newer": '{"seq":2,"commit":2,"at":"x","epoch":1,"type":"from.the.future"}',
    "no utf8": b'{"seq":2,"commit":2,"at":"x","epoch":1,"type":"closed","reason":"\xff"}',
    "commit": '{"seq":2,"commit":-99999999999999999999999,"at":"x","epoch":1,"type":"closed"}',
    "huge": '{"seq":2,"commit":2,"at":"' + "x" * 5_000_000 + '","epoch":1,"type":"closed"}',
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("name", LINES)
def test_a_crafted_line_with_a_checksum_that_fits_is_refused_or_harmless(target: Target, name: str) -> None:
    target.raw(LINES[name])
    survives(target)


# Checkpoints

AGENT: dict[str, Any] = {
    "path": "",
    "scopes": {"": {}},
    "plan": {"text": "", "outline": []},
    "results": {},
    "outputs": {},
}
MOMENT: dict[str, Any] = {
    "run_id": "run-1",
    "seq": 4,
    "epoch": 1,
    "status": "running",
    "reason": "",
    "error": None,
    "clean": True,
    "attempt": 1,
    "usage": {"steps": 0, "items": 0},
    "agents": {"": AGENT},
    "doubts": {},
    "doubts_asked": 0,
}
MESSAGES = {"count": 0, "bytes": 0, "crc": "00000000"}
CHECKPOINT: dict[str, Any] = {"format": 1, "moment": MOMENT, "messages": {"": MESSAGES}}


def with_moment(changes: dict[str, Any]) -> dict[str, Any]:
    return CHECKPOINT | {"moment": MOMENT | changes}


def with_agent(changes: dict[str, Any]) -> dict[str, Any]:
    return with_moment({"agents": {"": AGENT | changes}})


CHECKPOINTS: dict[str, Any] = {
    "good": CHECKPOINT,
    "no agent": with_moment({"agents": {}}),
    "no root": with_agent({"scopes": {}}),
    "negative": with_moment({"seq": -4, "epoch": -4}),
    "ahead": with_moment({"seq": 10**11}),
    "huge": with_moment({"seq": HUGE, "epoch": HUGE}),
    "other run": with_moment({"run_id": "../x"}),
    "newer": CHECKPOINT | {"format": 2},
    "messages": CHECKPOINT | {"messages": {"": {"count": -1, "bytes": -1, "crc": "zz"}}},
    "many messages": CHECKPOINT | {"messages": {"": MESSAGES | {"count": 1, "bytes": 10**30}}},
    "scopes": with_agent({"scopes": {"": {}, "../x": {"title": "../x"}}}),
    "numbers": with_moment({"agents": {"": AGENT | {"scopes": {"": {"last_number": -HUGE}}}}, "attempt": -HUGE}),
    "plan": with_agent({"plan": {"text": "- [ ] a\n", "outline": [[-1, 0, 9, 9, 9]]}, "highest_id": -5}),
    "outline": with_agent({"plan": {"text": "- [ ] a\n", "outline": [[HUGE]]}, "highest_id": HUGE}),
    "doubts": with_moment({"doubts": {"d1": CALL | {"id": "d1", "why": "unreached", "scope": "9", "type": "doubt"}}}),
    "times": with_moment({"opened_at": "9999-99-99", "status": "sleeping", "until": "soon"}),
    "data": with_agent({"has_data": True, "data": [1]}),
    "orphan": with_moment({"agents": {"": AGENT, "a/b": AGENT | {"path": "a/b"}}}),
    "deep": json.dumps(CHECKPOINT).encode()[:-1] + f',"x":{DEEP}}}'.encode(),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_crafted_checkpoint_is_refused_or_harmless(target: Target, name: str) -> None:
    target.journal(*GOOD)
    target.checkpoint(CHECKPOINTS[name])
    survives(target)


# Files that a person may edit, and what the runtime keeps for itself

JUNK: list[bytes] = [
    b"",
    b"\0" * 5000,
    b"\xff\xfe\0",
    b"null",
    b"[]",
    b"5",
    b"NaN",
    b"9" * 5000,
    DEEP.encode(),
    b'{"a":' * 50_000,
    b'{"at": {"seq": 1, "epoch": 1, "sha": "00000000"}}',
    b'{"a": 1, "a": 2}',
    b'{"format": 2}',
    b'"\\ud800"',
    b"---\nformat: 2\n---\n",
    b"> " * 20_000,
    b"- " * 5000 + b"[ ] x",
    b"[" * 20_000,
    b"*a_ " * 5000,
    b"<!-- " * 5000,
]
PLACES = [
    "state.json",
    "todo.md",
    "messages.jsonl",
    "steps/1-a/01-s.json",
    "partials/1-a/01-s.md",
    "checkpoints/000000000009-x.json",
    "journal/000000000005.jsonl",
    ".satchel/lease.json",
    ".satchel/report.json",
    ".satchel/schemas/state.json",
    ".satchel/tmp/1-1",
    "recovered/1-a/01-s-1.md",
    "outputs/x",
]


@pytest.mark.parametrize("place", range(0, len(PLACES), 5), ids=PLACES[::5])
def test_junk_in_a_file_is_refused_or_harmless(tmp_path: Path, place: int) -> None:
    """A third of it, each time another one."""
    _try_junk(tmp_path, PLACES[place], range(place % 3, len(JUNK), 3))


@pytest.mark.slow
@pytest.mark.parametrize("path", PLACES)
def test_any_junk_in_any_file_is_refused_or_harmless(tmp_path: Path, path: str) -> None:
    _try_junk(tmp_path, path, range(len(JUNK)))


def _try_junk(tmp_path: Path, path: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        (tmp_path / f"{number}").mkdir()
        target = Target(tmp_path / f"{number}")
        if number % 2 or not path.startswith(("todo", "state")):
            target.journal(*GOOD)
        target.put(path, JUNK[number])
        survives(target)


LINKS = [
    "workspace.yaml",
    "journal",
    "journal/000000000001.jsonl",
    "journal/000000000005.jsonl",
    "outputs",
    "checkpoints",
    "steps",
    "steps/1-a",
    "steps/1-a/01-s.json",
    "partials",
    "partials/1-a",
    "partials/1-a/01-s.md",
    "recovered",
    "recovered/1-a",
    "state.json",
    "todo.md",
    "messages.jsonl",
    ".satchel",
    ".satchel/tmp",
    ".satchel/lock",
    ".satchel/lease.json",
    ".satchel/report.json",
    ".satchel/schemas",
    ".satchel/schemas/state.json",
    ".satchel/blobs",
    "agent.py",
]


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("path", LINKS)
def test_a_link_that_leads_out_is_refused_or_harmless(target: Target, path: str) -> None:
    if not path.startswith("journal"):
        target.journal(*GOOD, StepCompleted(**CALL))
        target.put("partials/1-a/09-t.md", partial_files.encode_partial(HEAD, "text"))
    place = target.folder / path
    if place.is_file():
        place.unlink()
    elif place.is_dir():
        os.rename(place, target.folder / "moved")
    target.link(path, target.outside if "." not in path.rpartition("/")[2][1:] else target.outside / "secret.txt")
    survives(target)
    assert {found.name for found in target.outside.iterdir()} == {"secret.txt", "workspace.yaml"}


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("path", [path for path in LINKS if "." in path.rpartition("/")[2][1:]])
@pytest.mark.parametrize("kind", ["fifo", "folder", "endless"])
def test_what_is_no_file_neither_hangs_nor_fills_the_memory(target: Target, path: str, kind: str) -> None:
    if path != "journal/000000000001.jsonl":
        target.journal(*GOOD)
    place = target.folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to("/dev/zero")
    survives(target)


def test_a_huge_sparse_file_is_refused_before_it_is_read(target: Target) -> None:
    for path in ("state.json", "todo.md", "workspace.yaml", "partials/1-a/01-s.md"):
        target.put(path, b"")
        os.truncate(target.folder / path, 1 << 40)
    assert survives(target)[0] == "InvalidFile"


# Partials

HEAD = PartialHead(run_id="run-1", scope="1", no=1, step="s", args="0" * 16, n=0, attempt=1, at=AT)


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize(
    "field, word",
    thirds(itertools.product(["scope", "step", "args", "at", "call", "run_id"], [*WORDS, "\ud800"])),
    ids=lambda value: repr(value[:9]),
)
def test_a_crafted_partial_is_kept_aside_or_harmless(target: Target, field: str, word: str) -> None:
    from msgspec.structs import asdict

    target.journal(*GOOD)
    head = asdict(HEAD) | {field: word}
    rows = "".join(f"{key}: {json.dumps(value)}\n" for key, value in head.items())
    target.put("partials/1-a/01-s.md", f"---\n{rows}---\ntext")
    survives(target)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    "field, number",
    thirds(itertools.product(["no", "n", "attempt", "characters", "format"], [-1, 0, 10**9, 10**19, HUGE])),
)
def test_a_partial_with_hostile_numbers_is_kept_aside_or_harmless(target: Target, field: str, number: int) -> None:
    from msgspec.structs import replace

    target.journal(*GOOD)
    target.put("partials/1-a/01-s.md", partial_files.encode_partial(replace(HEAD, **{field: number}), "text"))
    survives(target)


# The command line

ATTACKS: dict[str, Callable[[Target], object]] = {
    "bomb": lambda target: target.put("workspace.yaml", DEFINITIONS["bomb"]),
    "deep line": lambda target: target.raw(LINES["deep"]),
    "deep state.json": lambda target: (target.journal(*GOOD), target.put("state.json", DEEP)),
    "no utf8 in todo": lambda target: (target.journal(*GOOD), target.put("todo.md", b"\xff\xfe")),
    "no root": lambda target: (target.journal(*GOOD), target.checkpoint(CHECKPOINTS["no root"])),
    "lease": lambda target: (target.journal(*GOOD), target.put(".satchel/lease.json", DEEP)),
    "report": lambda target: (target.journal(*GOOD), target.put(".satchel/report.json", DEEP)),
    "partial": lambda target: (target.journal(*GOOD), target.put("partials/1-a/01-s.md", b"\xff" * 100)),
    "scope": lambda target: target.journal(*GOOD, *RECORDS[f"scope {'../../outside/x'[:12]!r}"]),
    "doubt": lambda target: target.journal(*GOOD, *RECORDS["commit with a doubt"]),
    "link": lambda target: target.link("journal", target.outside),
    "terminal": lambda target: target.journal(*GOOD, ScopeBegun(scope="2", title="\x1b]0;x\x07\x1b[2J[red]x[/red][/]")),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("name", ATTACKS)
def test_the_commands_end_in_a_clear_message_and_run_nothing(target: Target, name: str) -> None:
    ATTACKS[name](target)
    before = target.around()
    for command in ("status", "check", "recover"):
        ended = warm.run(
            [sys.executable, "-m", "satchel", command, str(target.folder)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
        )
        output = ended.stdout + ended.stderr
        assert "Traceback" not in output, output[-2000:]
        assert ended.returncode in range(8) and (ended.returncode == 0 or output.strip())
        assert "\x1b" not in output and "\x07" not in output
    assert target.around() == before and not (target.folder.parent / "executed").exists()
