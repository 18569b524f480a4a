"""`log`: all that can be read, and then what can't."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import warm
from linked import parsed
from msgspec import Raw
from servers import Server

import satchel
from satchel.runtime.api import RECORD_TYPES
from satchel.runtime.supervision import child
from satchel.workspace.journal import (
    AnyRecord,
    Closed,
    Configured,
    Failure,
    Forced,
    Migrated,
    Paused,
    PauseRequested,
    Pruned,
    ResourceChanged,
    Resumed,
    Rewound,
    Saved,
    Spent,
    TaskDone,
    TaskTaken,
)
from satchel.workspace.journal.segment_log import MANY
from satchel.workspace.views.record_words import WORDS, describe_record

from .conftest import ASKING, PLAIN, Cli, Make


def test_a_record_is_missing_or_in_disorder(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    lines = cli("log", folder).stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    assert "opened      to run, a new run" in lines[0] and "closed      completed" in lines[-1]
    assert any('step        ^1  shout("text":"say a") -> "SAY A"' in line for line in lines)


@pytest.mark.parametrize("command", ["log", "show", "steps", "blame", "status"])
def test_a_time_does_not_say_its_zone(make: Make, cli: Cli, command: str) -> None:
    folder = make()
    cli("run", folder)
    told = re.findall(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*(?: UTC)?", cli(command, folder).stdout)
    assert told or command == "steps"
    assert all(each.endswith(("Z", " UTC")) for each in told), told


def test_json_is_not_what_is_in_the_journal(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    (segment,) = (folder / "journal").iterdir()
    rows, told = segment.read_bytes().splitlines(), cli("log", "--json", folder).stdout_bytes.splitlines()
    assert [json.loads(row) | json.loads(each) for row, each in zip(rows, told, strict=True)] == [
        *map(json.loads, told)
    ]
    lines = [(line.seq, line.commit, line.at, line.epoch, line.opening) for line in parsed(segment.read_bytes())]
    keys = ("seq", "commit", "at", "epoch", "opening")
    assert [tuple(json.loads(each)[key] for key in keys) for each in told] == lines
    assert any(b'"at"' not in row for row in rows)


def test_a_filter_lets_others_through(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    told = [json.loads(row) for row in cli("log", "--json", "--item", "^2", folder).stdout.splitlines()]
    assert {row["scope"] for row in told} == {"2"} and len(told) == 3
    told = [json.loads(row) for row in cli("log", "--json", "--type", "opened", folder).stdout.splitlines()]
    assert [row["type"] for row in told] == ["opened"]
    assert len(cli("log", "-n", "2", folder).stdout.splitlines()) == 2


@pytest.fixture
def from_a_bucket(seaweedfs: Server, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that has come back from a bucket, whose segments repeat records."""
    for name, value in seaweedfs.environment().items():
        monkeypatch.setenv(name, value)
    folder, url = make(ASKING), seaweedfs.place()
    satchel.open(folder).run()
    satchel.open(folder).move(url)
    satchel.open(url).pause(reason="a look")
    satchel.open(url).run()
    back = tmp_path / "back"
    satchel.open(url).move(back)
    satchel.open(back).resume()
    held = [seq for path in (back / "journal").iterdir() for seq in seqs(path.read_bytes())]
    assert len(held) > len({*held}), "several segments hold the same records"
    return back


def seqs(data: bytes) -> list[int]:
    return [line.seq for line in parsed(data)]


@pytest.mark.slow
def test_a_record_of_a_run_from_a_bucket_is_shown_twice(from_a_bucket: Path, cli: Cli) -> None:
    told = [json.loads(line)["seq"] for line in cli("log", "--json", from_a_bucket).stdout.splitlines()]
    assert told == [*range(1, len(told) + 1)]
    for options in ((), ("--audit",), ("--audit", "--json"), ("-n", "9")):
        result = cli("log", *options, from_a_bucket)
        lines = result.stdout.splitlines()
        assert result.exit_code == 0 and len(lines) == len({*lines}) > 3, options


def test_a_record_is_shown_twice_after_a_merge_that_was_cut_off(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    handle, journal = satchel.open(folder), folder / "journal"
    handle.run()
    removed: dict[Path, bytes] = {}
    for _ in range(2 * MANY):  # each opening makes a segment, until many are merged
        before = {path: path.read_bytes() for path in journal.iterdir()}
        handle.recover()
        removed |= {path: data for path, data in before.items() if not path.exists()}
    assert removed
    for path, data in removed.items():
        path.write_bytes(data)  # a kill has prevented the removal
    told = [json.loads(line)["seq"] for line in cli("log", "--json", folder).stdout.splitlines()]
    assert told == [*range(1, len(told) + 1)]


def test_damage_hides_the_records_around_it(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    segment = _segment(folder)
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:2], b"rubbish\n", *lines[3:]]))
    result = cli("log", folder)
    assert result.exit_code == 2 and "line 3 is damaged" in result.stderr
    assert len(result.stdout.splitlines()) == len(lines) - 1


def test_a_torn_tail_is_an_error(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    segment = _segment(folder)
    with segment.open("ab") as file:
        file.write(b'{"seq":99,"com')
    result = cli("log", folder)
    assert result.exit_code == 0 and "as after a crash" in result.stderr


def test_a_new_run_has_a_log(make: Make, cli: Cli) -> None:
    result = cli("log", make())
    assert (result.exit_code, result.stdout) == (0, "")


def test_a_record_type_has_no_words(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    cli("run", folder)
    cli("answer", folder, "d1", "done")
    assert set(RECORD_TYPES) == {kind.__struct_config__.tag for kind in AnyRecord.__args__}
    assert set(WORDS) == set(AnyRecord.__args__)
    for line in parsed(_segment(folder).read_bytes()):
        assert describe_record(line.record).line


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            TaskTaken(id="t1", scope="_inbox-t1", file="inbox/a.md", sha256="0"),
            "taken t1    inbox/a.md, a task, into _inbox-t1",
        ),
        (
            TaskTaken(id="t1", scope="", file="inbox/s.yaml", sha256="0", kind="schedule", unopened=True),
            "taken t1    inbox/s.yaml, by an agent that did not open its inbox",
        ),
        (
            TaskTaken(id="t1", scope="", file="inbox/a.md", sha256="0", handed_to="/b/inbox/a.md"),
            "taken t1    inbox/a.md, a task; it is forwarded to /b/inbox/a.md",
        ),
        (TaskDone(id="t1"), "done t1"),
        (TaskDone(id="t1", moved_to="/b/inbox/a.md"), "done t1     forwarded to /b/inbox/a.md"),
        (PauseRequested(reason="cost", by="ada@desk"), "stop        requested by ada@desk: cost"),
        (
            PauseRequested(
                reason="fire", by="ada", mode="emergency", resume="restart_step", until="2026-01-01T00:00:00Z"
            ),
            "stop        requested by ada, at once: fire, until 2026-01-01T00:00:00Z; then restart_step",
        ),
        (
            Forced(under_way=("read(1)", "read(2)"), waited=120.0),
            "forced      the stop, after 2 min 0 s; still running: read(1), read(2)",
        ),
        (Paused(), "paused      as requested"),
        (
            Closed(checkpoint="checkpoints/000000000042-stop.json"),
            "closed      as it was; checkpoints/000000000042-stop.json",
        ),
        (
            Saved(file="checkpoints/000000000042-3-a.json", why="item", bytes=1234, sha256="0"),
            "checkpoint  checkpoints/000000000042-3-a.json (item, 1,234 bytes)",
        ),
        (
            Rewound(to=42, file="checkpoints/000000000042-3-a.json", by="ada", agents=Raw(b"{}")),
            "rewound     to record 42, checkpoints/000000000042-3-a.json by ada",
        ),
        (
            Rewound(to=1042, by="ada", agents=Raw(b"{}"), forgets=True, says=("item 2 ('b') will be done again",)),
            "rewound     to record 1,042 by ada; effects since then are done again: item 2 ('b') will be done again",
        ),
        (
            Pruned(by="ada", up_to=42, base="checkpoints/000000000042-3-a.json", files={"journal": 1, "inbox/done": 2}),
            "pruned      records up to 42, 2 files in inbox/done, 1 file in journal by ada",
        ),
        (Paused(forced=True, error=Failure("OSError", "gone")), "paused      by force: OSError: gone"),
        (
            Resumed(by="ada", seconds=90.0, instructions="be brief", says=("agent.py has changed",)),
            "resumed     by ada, after 1 min 30 s; instructions: be brief; agent.py has changed",
        ),
        (Spent(tokens=1200, usd=0.25), "spent       1,200 tokens, $0.25"),
        (Spent(tokens=1), "spent       1 token"),
        (Spent(tokens=2, output=1, model="gpt-5", no=3), "spent       2 tokens for gpt-5"),
        (Spent(tokens=2, model="gpt-5", first_ms=420), "spent       2 tokens for gpt-5, first token after 0.4 s"),
        (ResourceChanged(name="db", tier="infrastructure", event="opened"), "resource    db (infrastructure) opened"),
        (
            ResourceChanged(name="db", tier="process", event="released", outcome="timed_out", why="no answer", ms=5000),
            "resource    db (process) released (5.0 s), it took too long: no answer",
        ),
        (
            ResourceChanged(name="db", tier="process", event="opened", outcome="failed", why="refused"),
            "resource    db (process) opened, it failed: refused",
        ),
        (Configured(config={"python": "3.11", "agent_sha256": "0"}), "configured  satchel None, Python 3.11, agent 0"),
        (Migrated(to=2, patch=[{"op": "remove", "path": "/a"}]), "migrated    the data to version 2, 1 change"),
    ],
)
def test_a_record_is_told_in_other_words(record: AnyRecord, told: str) -> None:
    assert describe_record(record).line == told


def _segment(folder: Path) -> Path:
    return min((folder / "journal").iterdir())


def test_what_a_process_prints_is_not_shown(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child.subprocess, "Popen", warm.Popen)
    folder = make(PLAIN.replace("if not run", "print('\\x1b[31mhere')\n    if not run"))
    none = cli("log", "--process", folder)
    assert none.stdout == "" and "not started yet" in none.stderr and none.exit_code == 0
    satchel.open(folder).detach()
    satchel.open(folder).wait()
    lines = cli("log", "--process", folder).stdout.splitlines()
    assert re.fullmatch(r"start of a process, \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", lines[0])
    assert "\\x1b[31mhere" in lines
    rows = [json.loads(line) for line in cli("log", "--process", "--json", folder).stdout.splitlines()]
    assert rows[0]["start"].endswith("Z") and rows[1]["start"] is None
    assert cli("log", "--process", "-n", "1", folder).stdout.splitlines() == lines[-1:]
    assert cli("log", "--process", "--follow", "--json", folder).stdout.splitlines()[-1]


def test_a_filter_of_records_goes_unheard(make: Make, cli: Cli) -> None:
    found = cli("log", "--process", "--item", "1", make())
    assert found.exit_code == 2 and "--item" in found.stderr


def test_a_run_of_a_terminal_is_said_to_have_printed_nothing(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    assert "What `satchel run` or a program prints goes to its terminal" in cli("log", "--process", folder).stderr
