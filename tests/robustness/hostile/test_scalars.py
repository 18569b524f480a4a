"""Small values of strangers and of slips in files that a person may write: refused like other bad input, while the run
goes on without them."""

from __future__ import annotations

import itertools
import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from satchel import Run, agent, run
from satchel.runtime.cli.group import group
from satchel.workspace.base import moment_after, time_text
from satchel.workspace.base.errors import InvalidFile, UsageError
from satchel.workspace.base.names import is_name
from satchel.workspace.formats import definition, pause_file, yamltext
from satchel.workspace.inbound import inbox
from satchel.workspace.store import DiskStore

HEX, OCTAL = "0x" + "f" * 3600, "0o" + "7" * 6000
LENGTHS = ["99999999d", "999999999999999h", "9" * 400 + "d", "36526d"]
TIMES = [
    "0001-01-01",
    "9999-12-31",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "2026-02-30",
    "٢٠٢٦-11-01",
]
HEAD = "format: 1\nrun_id: run-1\nagent: agent.py:main\n"


@pytest.mark.parametrize("until", [*LENGTHS, *TIMES[2:], "25:61", HEX, OCTAL])
def test_an_expected_end_of_a_pause_raises_what_no_caller_knows(until: str) -> None:
    with pytest.raises(InvalidFile):
        pause_file.parse(f"expected_until: {until}\n".encode())


@pytest.mark.parametrize("written", [*LENGTHS, *TIMES])
@pytest.mark.parametrize("now", [datetime(2026, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)])
def test_a_time_is_one_that_no_clock_can_show(written: str, now: datetime) -> None:
    try:
        found = moment_after(written, now)
    except UsageError:
        return
    assert datetime.fromisoformat(time_text(found)) and written in TIMES


@pytest.mark.parametrize(
    "extra",
    [
        *(f"{key}: {value}\n" for key in ("idle_below",) for value in (*LENGTHS, "1e300", "9" * 400, "1e999", "-1")),
        *(f"drain: {{timeout: {value}}}\n" for value in (LENGTHS[0], "1e300")),
        *(
            f"budget: {{{key}: {value}}}\n"
            for key, value in [("time", "1e300"), ("steps", "9" * 400), ("usd", "1e300")]
        ),
        *(f"{key}: {LENGTHS[0]}}}\n" for key in ("checkpoints: {every", "keep: {history")),
        *(f'windows: [{{cron: "0 22 * * *", {value}}}]\n' for value in ("duration: 1e300", "duration: 99999999d")),
        f"settings: {{a: {HEX}}}\n",
        f"settings: {{a: [{OCTAL}]}}\n",
    ],
)
def test_a_number_in_workspace_yaml_is_too_large_for_what_is_done_with_it(extra: str) -> None:
    with pytest.raises(InvalidFile) as raised:
        definition.parse(HEAD + extra)
    assert str(raised.value).startswith("workspace.yaml, line 4")


@pytest.mark.parametrize("text", [HEX, OCTAL, "9" * 4300, "9" * 4301, f"-{'9' * 4299}"])
def test_a_number_is_read_that_can_not_be_written(text: str) -> None:
    try:
        value = yamltext.load(f"a: {text}", "a.yaml").value
    except InvalidFile:
        return
    assert msgspec.json.encode(value) and yamltext.dump(value)


@pytest.mark.parametrize(
    "text", [f"a: {HEX}", f"kind: message\ntext: {HEX}", f"kind: schedule\ndue: {HEX}\nschedule: x"]
)
def test_a_task_is_taken_that_can_not_be_recorded(text: str) -> None:
    with pytest.raises(InvalidFile):
        inbox.parse("inbox/a.yaml", text.encode())


def test_hostile_files_of_an_inbox_block_all_tasks(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text(HEAD)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/a.yaml").write_text(f"count: {HEX}\n")
    (tmp_path / "inbox/z.md").write_text("do it")
    with open(os.fsencode(tmp_path) + b"/inbox/b\xff.md", "w") as file:
        file.write("of a disk with another encoding")
    done: list[object] = []

    @agent
    async def main(run: Run[dict[str, object]]) -> None:
        async for task in run.inbox:
            done.append(task.text)

    outcome = run(tmp_path, main)
    assert (outcome.status, done) == ("completed", ["do it"])
    assert (tmp_path / "inbox/a.rejected.yaml").exists()
    for command in ("check", "status"):
        assert "b\\xff.md" in CliRunner().invoke(group, [command, str(tmp_path)]).output


def test_a_folder_whose_name_is_no_text_ends_a_run_in_the_middle(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))
    folder.mkdir()
    (folder / "workspace.yaml").write_text(HEAD)

    @agent
    async def main(run: Run[dict[str, object]]) -> None: ...

    with pytest.raises(UsageError, match="not text"):
        run(folder, main)
    assert not (folder / "journal").exists()


@pytest.mark.parametrize(
    ("way", "end"), [*itertools.product(["copy", "move", "fork", "replicate"], ["from", "to"]), ("export", "from")]
)
def test_a_folder_whose_name_is_no_text_ends_a_transfer_with_a_bare_error(
    way: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))
    odd.mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/workspace.yaml").write_text(HEAD)

    @agent
    async def main(run: Run[dict[str, object]]) -> None: ...

    run(tmp_path / "run", main).raise_for_status()
    (tmp_path / "run").rename(source := (odd if end == "from" else tmp_path) / "run")
    monkeypatch.chdir(odd)  # a path that is typed below it is text
    there = "there" if end == "to" else str(tmp_path / "there")
    once = ["--once"] if way == "replicate" else []
    ran = CliRunner().invoke(group, [way, *once, str(source), there])
    assert "Rename that folder" in ran.output and "Unicode" not in ran.output
    assert ran.exit_code == (2 if way != "replicate" else ran.exit_code) != 0
    assert source.exists() and not Path(there, ".satchel").exists()


def test_a_name_that_is_no_text_is_told_to_a_terminal_or_a_record() -> None:
    assert not is_name(os.fsdecode(b"a\xff"))


def test_a_file_of_a_time_that_no_calendar_has_can_not_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text(HEAD)
    for seconds in (-(10**12), 10**12, 10**15):
        try:
            os.utime(tmp_path / "workspace.yaml", (seconds, seconds))
        except OverflowError:
            continue
        assert DiskStore(tmp_path).trace("workspace.yaml").by
