"""`status`: every state of a run in words and as JSON, and workspaces that are damaged or made to deceive."""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import warm
from waits import PATIENCE

from satchel.workspace.inbound import inbox
from satchel.workspace.store import DiskStore
from satchel.workspace.views import guarded_files

from .conftest import ASKING, PLAIN, SLOW, Cli, Make, contents, data_of, satchel

Started = Callable[..., subprocess.Popen[str]]


def test_a_new_run_is_not_called_new(make: Make, cli: Cli) -> None:
    folder = make()
    before = contents(folder)
    result = cli("status", folder)
    assert result.exit_code == 0
    assert "state     new: never started" in result.stdout and f"next      satchel run {folder}" in result.stdout
    assert contents(folder) == before


def test_a_plan_for_a_new_run_is_not_counted(make: Make, cli: Cli) -> None:
    folder = make()
    (folder / "todo.md").write_text("- [ ] one\n- [ ] two\n")
    assert "items     0 of 2 done; next: one" in cli("status", folder).stdout


def test_a_completed_run_is_not_told_whole(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    out = cli("status", folder).stdout
    for said in (
        "state     completed",
        "items     2 of 2 done",
        "outputs   outputs/1.txt (5 bytes)",
        "1 start, 2 steps",
    ):
        assert said in out
    assert "next" not in out
    told = data_of(cli("status", "--json", folder))
    assert (told["state"], told["items"], told["next"]) == ("completed", {"settled": 2, "leaves": 2}, None)
    assert told["usage"].items() >= {"steps": 2, "items": 2}.items() and told["outputs"]["outputs/1.txt"]["bytes"] == 5


def test_a_watched_run_that_goes_on_is_shown_as_it_was(make: Make, cli: Cli) -> None:
    """It ends with the run. Each state is a document in a line of its own."""
    folder = make(ASKING)
    assert cli("run", folder).exit_code == 4
    command = [sys.executable, "-m", "satchel", "status", "--watch", "--json", str(folder)]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline())["state"] == "waiting"
            cli("answer", folder, "d1", "done", "--result", "sent")
            assert cli("resume", folder).exit_code == 0
            said, complaints = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0 and not complaints
    assert json.loads(said.splitlines()[-1])["state"] == "completed"


def test_a_terminal_scrolls_while_a_run_is_watched(make: Make, cli: Cli) -> None:
    """Each look replaces the one before, and no more than the screen has is shown."""
    folder = make()
    cli("run", folder)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 6, 80, 0, 0))
    command = [sys.executable, "-m", "satchel", "status", "-w", str(folder)]
    environment = {name: each for name, each in os.environ.items() if name not in ("LINES", "COLUMNS")}
    done = subprocess.run(
        command, stdout=theirs, stderr=subprocess.PIPE, timeout=PATIENCE, env={**environment, "TERM": "xterm"}
    )
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0, done.stderr
    assert said.startswith("\x1b[H") and said.endswith("\x1b[J") and said.count("\n") == 5
    assert "more lines: satchel status" in said and "completed" in said
    piped = cli("status", "--watch", folder).stdout
    once, often = (re.sub(r"[\d.]+ s ago", "", each) for each in (cli("status", folder).stdout, piped))
    assert "\x1b" not in piped and often == once


def test_an_output_that_is_not_the_runs_is_shown_as_the_runs(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    (folder / "outputs/1.txt").write_text("somebody else's")
    (folder / "outputs/2.txt").touch()  # another version of the same bytes
    said = "outputs/1.txt is not what the run made: 15 bytes, but the run wrote 5"
    out = cli("status", folder).stdout
    assert f"note      {said}" in out and "outputs/2.txt is" not in out
    assert data_of(cli("status", "--json", folder))["complaints"] == [said]
    assert f"wanted  {said}" in cli("run", folder).output, "of a completed run, too"
    (folder / "outputs/1.txt").write_text("12345")
    said = "outputs/1.txt is not what the run made: 5 bytes as the run wrote, but not the same"
    assert said in cli("status", folder).stdout


def test_a_conflict_copy_of_a_sync_tool_is_not_named(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    (folder / "todo (conflicted copy).md").write_bytes((folder / "todo.md").read_bytes() + b"- [ ] three\n")
    out = " ".join(cli("status", folder).stdout.split())
    assert "todo (conflicted copy).md looks like a sync tool's copy of todo.md. The run does not read the copy" in out


def test_a_question_is_not_shown(make: Make, cli: Cli) -> None:
    folder = make(ASKING)
    cli("run", folder)
    out = cli("status", folder).stdout
    assert "waiting for a person: 1 open question" in out and f"satchel answer {folder} d1 redo" in out
    assert "a new run" not in out
    assert data_of(cli("status", "--json", folder))["questions"][0]["id"] == "d1"


def test_a_failure_is_not_shown(make: Make, cli: Cli) -> None:
    folder = make(PLAIN.replace("return text.upper()", "return {}[text]"))
    cli("run", folder)
    out = cli("status", folder).stdout
    assert "failed: KeyError: 'say a'" in out and "agent.py:6 in shout" in out and "satchel resume" in out


def test_running_and_killed_look_the_same(make: Make, started: Started, cli: Cli) -> None:
    folder = make(SLOW)
    process = started(folder)
    told = data_of(cli("status", "--json", folder))
    assert told["state"] == "running" and told["holder"]["pid"] == process.pid
    assert told["at_work"]["text"] == "second SLOW" and told["scopes"][0]["steps"] == 1
    assert told["streams"][0]["characters"] > 0
    assert told["forecast"]["items_per_minute"] > 0
    assert re.search(
        r"^items     1 of 2 done; .*\n {10}[0-9.,]+ items? an? \w+, about .* left$", cli("status", folder).stdout, re.M
    )
    process.kill()
    while data_of(cli("status", "--json", folder))["state"] == "running":  # it is a zombie for now, and no one waits
        time.sleep(0.02)
    out = cli("status", folder).stdout
    assert " left\n" not in out and data_of(cli("status", "--json", folder))["forecast"] is None
    assert f"interrupted: process {process.pid} on " in out and "characters" in out and "satchel resume" in out
    recovered = cli("recover", folder)
    assert recovered.exit_code == 0, recovered.output
    out = cli("status", folder).stdout
    assert "interrupted: repaired after a crash, not running" in out


def test_status_takes_the_lease(make: Make, started: Started) -> None:
    folder = make(SLOW)
    started(folder)
    assert satchel("status", folder, is_cold=True).returncode == 0
    assert satchel("run", folder).returncode == 6


def test_a_damaged_journal_hides_everything(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    _damage(folder)
    result = cli("status", folder)
    assert result.exit_code == 2
    assert "run       demo-1a2b" in result.stdout and "state     damaged" in result.stdout
    assert "line 3 is damaged" in result.stderr
    told = data_of(cli("status", "--json", folder))
    assert told["state"] == "damaged" and told["problem"]["kind"] == "Damaged"


def _damage(folder: Path) -> None:
    """In the middle of the journal, where no crash reaches, and without a checkpoint behind it."""
    for path in (folder / "checkpoints").glob("*.json"):
        path.unlink()
    (segment,) = (folder / "journal").iterdir()
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"', b"'", 2)
    segment.write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    "lease",
    [
        '{"pid": 1}',
        "[]",
        "x" * 100,
        '{"format":1,"run_id":"a","host":"HOST","pid":99999999999999999999999999,'
        '"process_started":"","epoch":1,"since":"x\\u001b[31m","url":""}',
    ],
)
def test_a_planted_lease_deceives_or_breaks_it(make: Make, cli: Cli, lease: str) -> None:
    import socket

    folder = make()
    cli("run", folder)
    (folder / ".satchel/lease.json").write_text(lease.replace("HOST", socket.gethostname()))
    result = cli("status", folder)
    assert result.exit_code == 0 and "state     completed" in result.stdout


def test_a_strangers_text_steers_the_terminal(make: Make, cli: Cli) -> None:
    folder = make(PLAIN.replace('"say a"', '"say \\x1b[2J\\u202e a"'))
    for words in (["run"], ["status"], ["log"], ["check"], ["recover"]):
        result = cli(*words, folder)
        assert "\x1b" not in result.output and "\u202e" not in result.output, words


def test_files_in_wrong_shapes_break_it(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    for name in (".satchel/report.json", ".satchel/lease.json", "partials/x/y.md", "todo.md", "state.json"):
        path = folder / name
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)
    result = cli("status", folder)
    assert result.exit_code in (0, 2) and "run       demo-1a2b" in result.stdout
    os.mkfifo(folder / "outputs/pipe")
    assert cli("status", folder).exit_code in (0, 2)


def test_an_edit_is_not_told(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    text = (folder / "todo.md").read_text()
    (folder / "todo.md").write_text(text.replace("[x] say b", "[ ] say b"))
    (folder / "state.json").write_text("[")
    told = " ".join(cli("status", folder).stdout.split())
    assert "edited todo.md: item 2 ('say b') will be done again: 1 step again" in told
    assert "edited refused: state.json" in told and f"next correct state.json, then satchel resume {folder}" in told
    assert len(data_of(cli("status", "--json", folder))["edits"]) >= 2


def test_a_contradiction_is_not_told(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make()
    cli("run", folder)
    (folder / "todo.md").write_text("- [x] say a\n")
    told = cli("status", folder).stdout
    assert "conflict  todo.md" in told and f"satchel merge {folder}" in told
    assert data_of(cli("status", "--json", folder))["conflicts"][0]["file"] == "todo.md"
    monkeypatch.chdir(folder.parent)
    told = cli("status", folder.name).stdout
    said = f"`satchel merge {folder.name}` shows both versions; with `--use ours` it uses the run's version"
    assert f"merge     {said}" in told, "as the person named it"


def test_a_finished_run_with_an_edit_does_not_say_so(make: Make, cli: Cli) -> None:
    folder = make()
    cli("run", folder)
    path = folder / "state.json"
    path.write_text(path.read_text().replace('"data": {}', '"data": {"a": 1}'))
    result = cli("resume", folder)
    assert result.exit_code == 0 and "edited  state.json: data.a is now 1" in result.stderr
    assert "edited" in cli("log", folder).stdout and "data.a is now 1" in cli("log", folder).stdout


def test_a_dropped_item_counts_as_done(make: Make, cli: Cli) -> None:
    folder = make()
    (folder / "todo.md").write_text("- [x] one\n- [-] two\n- [-] more\n  - [ ] three\n- [ ] four\n")
    assert "items     1 of 2 done, 2 dropped; next: four\n" in cli("status", folder).stdout
    assert data_of(cli("status", "--json", folder))["items"] == {"settled": 1, "leaves": 2}
    assert " 1/2 " in cli("ls", folder.parent).stdout


def test_a_schedule_is_not_told_or_a_clock_that_ran_ahead(make: Make, cli: Cli) -> None:
    folder = make(extra="schedule: [{cron: 0 9 * * *, name: daily}]\n")
    assert "schedule  daily: next 20" in cli("status", folder).stdout
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(days=399, hours=12)
    made = inbox.firing_at("daily", due)
    DiskStore(folder).create(made.path, made.data)
    assert cli("run", folder).exit_code == 0
    told = " ".join(cli("status", folder).stdout.split())
    settled = "done by a start whose agent did not open its inbox; next 20"
    assert f"daily: last {due:%Y-%m-%d %H:%M:%S} UTC (in 399 days), {settled}" in told
    assert "is in the future: a clock was fast" in told
    (row,) = data_of(cli("status", "--json", folder))["schedule"]
    assert row["last"] == made.due and row["unopened"] is True and row["next"] < made.due


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody tells who has a file open")
def test_a_file_that_is_being_saved_is_not_named(make: Make, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it waited for, or told what half of it would come to."""
    monkeypatch.setattr(guarded_files, "WAITS", guarded_files.Waits())
    folder = make()
    cli("run", folder)
    (folder / "inbox").mkdir()
    paths = ["todo.md", "pause.yaml", "inbox/a.md"]
    files = [(folder / path).open("a") for path in paths]
    for file in files:
        file.write("- [ ] say c")
        file.flush()
    out = " ".join(cli("status", folder).stdout.split())
    for path in paths:
        assert f"saving {path} is being saved: the run reads it when" in out
    assert data_of(cli("status", "--json", folder))["being_saved"] == ["pause.yaml", "todo.md", "inbox/a.md"]
    assert "say c" not in out
    planned = data_of(cli("check", "--json", folder))["planned"]
    assert any("todo.md is being saved" in each for each in planned)
    for file in files:
        file.close()
    (folder / "pause.yaml").unlink()
    out = cli("status", folder).stdout
    assert "saving" not in out and "the item 'say c' is new" in out


def test_status_does_not_show_an_answer_that_was_typed_into_the_file(make: Make, cli: Cli) -> None:
    folder = make(ASKS)
    assert cli("run", folder).exit_code == 4
    path = folder / "approvals/a1.yaml"
    for typed, said in (
        ("Yes", 'the file says: answered "yes"; the next start reads it'),
        ("perhaps", "not a valid answer"),
    ):
        path.write_text(re.sub(r"(?m)^decision:.*$", f"decision: {typed}", path.read_text()))
        assert said in " ".join(cli("status", folder).stdout.split())
    assert "not a valid answer" in data_of(cli("status", "--json", folder))["questions"][0]["typed"]


def test_a_sleeping_run_is_told_to_be_resumed_only(make: Make, cli: Cli) -> None:
    folder = make(SLEEPS)
    assert cli("run", folder).exit_code == 5
    assert "when it is time" in cli("status", folder).stdout


ASKS = """
from satchel import agent

@agent
async def main(run):
    await run.ask("Continue?", ["yes", "no"], wait_for=0)
"""
SLEEPS = """
from datetime import timedelta
from satchel import agent

@agent
async def main(run):
    await run.sleep(timedelta(hours=1))
"""


def test_an_edit_that_was_refused_is_told_to_nobody_who_did_not_look(make: Make, cli: Cli) -> None:
    """A run in the background says it in its log alone."""
    folder = make()
    assert cli("run", folder).exit_code == 0
    todo = folder / "todo.md"
    todo.write_text(todo.read_text().replace("- [x] say a", "- [X ] say a"))
    assert cli("run", folder).exit_code == 2
    assert "refused   todo.rejected.txt says why an edit was not accepted" in cli("status", folder).stdout
    (folder / "todo.rejected.txt").unlink()
    assert "todo.rejected" not in cli("status", folder).stdout


def test_a_run_that_a_signal_has_asked_to_stop_looks_as_if_it_went_on(make: Make, started: Started, cli: Cli) -> None:
    """Such a request has no file: the record tells."""
    folder = make(SLOW)
    process = started(folder)
    process.terminate()
    deadline = time.monotonic() + PATIENCE
    while "pause.requested" not in cli("log", folder, "--json").stdout:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)  # a file has no event
    assert "state     draining" in cli("status", folder).stdout
    assert data_of(cli("ls", "--json", folder.parent))[0]["state"] == "draining"
