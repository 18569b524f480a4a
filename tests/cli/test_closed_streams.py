"""Programs that are started without stdin, stdout or stderr, as by `>&-`, or close them: the next file that is opened
gets the number of a closed one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waits import PATIENCE

import satchel

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


def run(closed: str, *words: object) -> int:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, *map(str, words)]
    return subprocess.run(command, timeout=PATIENCE).returncode


@pytest.mark.parametrize("closed", [">&-", "2>&-", ALL])
def test_a_run_crashes_without_a_stream(closed: str, make: Make) -> None:
    folder = make()
    assert run(closed, "-m", "satchel", "run", folder) == 0
    assert (folder / "outputs/1.txt").read_text() == "SAY A"


def test_a_journal_gets_what_a_library_prints(tmp_path: Path) -> None:
    assert run(ALL, "-c", HOLDING, tmp_path / "w") == 0
    with satchel.hold(tmp_path / "w", kind="log") as held:
        assert [row.value for row in held.rows("calls")] == [{"a": 1}, {"a": 2}]
