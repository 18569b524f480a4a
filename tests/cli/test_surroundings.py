"""What a program is started with: without stdin, stdout or stderr, as by `>&-`, where the next file that is opened gets
the number of a closed one; in a folder that was removed, as by a deploy that removes old releases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waits import PATIENCE

import satchel
from satchel.runtime.cli.group import tell_error

from .conftest import Make

ALL = "<&- >&- 2>&-"

HOLDING = """
import os, sys, satchel

def noise():
    for number in 0, 1, 2:
        try:
            os.write(number, b"a warning of a library\\n")
        except OSError:
            pass  # read only, or not open

with satchel.hold(sys.argv[1], kind="log") as held:
    noise()
    held.append([{"a": 1}], log="calls")
    noise()
    held.append([{"a": 2}], log="calls")
"""


def run(surroundings: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Python by a shell: `surroundings` is a script in which "$@" starts it."""
    command = ["sh", "-c", surroundings, "sh", sys.executable, *map(str, words)]
    return subprocess.run(command, timeout=PATIENCE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ALL])
def test_a_run_crashes_without_a_stream(closed: str, make: Make) -> None:
    folder = make()
    assert run(f'exec "$@" {closed}', "-m", "satchel", "run", folder).returncode == 0
    assert (folder / "outputs/1.txt").read_text() == "SAY A"


@pytest.mark.parametrize("closed", [">&-", ALL])
def test_a_program_without_a_stream_supervises_a_run_that_crashes(closed: str, make: Make) -> None:
    folder = make()
    code = f"import satchel; assert satchel.open({str(folder)!r}).supervise().status == 'completed'"
    assert run(f'exec "$@" {closed}', "-c", code).returncode == 0


@pytest.mark.parametrize("words", ["serve --once", "status", "log", "check", "ls", "copy"])
def test_a_command_without_a_stream_is_an_internal_error(words: str, make: Make, tmp_path: Path) -> None:
    folder = make()
    more = [tmp_path / "copy"] if words == "copy" else []
    place = folder.parent if words in ("serve --once", "ls") else folder
    done = run('exec "$@" <&- >&-', "-m", "satchel", *words.split(), place, *more)
    assert (done.returncode, "internal" in done.stderr) == (0, False), done.stderr


def test_a_journal_gets_what_a_library_prints(tmp_path: Path) -> None:
    assert run(f'exec "$@" {ALL}', "-c", HOLDING, tmp_path / "w").returncode == 0
    with satchel.hold(tmp_path / "w", kind="log") as held:
        assert [row.value for row in held.rows("calls")] == [{"a": 1}, {"a": 2}]


def test_a_run_needs_the_folder_that_it_was_started_in(make: Make, tmp_path: Path) -> None:
    folder, gone = make(), tmp_path / "gone"
    gone.mkdir()
    within = f'cd "{gone}"; rmdir "{gone}"; exec "$@"'
    assert run(within, "-m", "satchel", "run", folder).returncode == 0

    gone.mkdir()
    refused = run(within, "-m", "satchel", "ls")
    assert (refused.returncode, refused.stderr) == (2, "satchel: the current folder was removed: `cd` to another one\n")


def test_a_file_that_is_missing_is_told_as_the_current_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell_error(FileNotFoundError("gs://bucket/run/journal/1.jsonl"), with_traceback=False) == 8
    assert "gs://bucket/run/journal/1.jsonl" in capsys.readouterr().err
