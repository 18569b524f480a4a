"""The moving lines, on a terminal of our own making."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import warm
from waits import PATIENCE

from satchel.runtime.cli.summary import Moving, Quiet
from satchel.workspace.inspect import Report

from .conftest import PLAIN, Make


def _on_a_terminal(folder: Path, *words: str, term: str = "xterm") -> tuple[int, str, str]:
    """Exit code, stdout as a pipe, and stderr as a terminal got it."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": term, "COLUMNS": "60", "LINES": "20"}
    command = [sys.executable, "-m", "satchel", *words, str(folder)]
    with warm.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                data = os.read(ours, 4096)
            except OSError:  # Linux says so when the other side is closed
                data = b""
            if not data:
                break
            seen += data
        assert process.stdout is not None
        out = process.stdout.read()
        code = process.wait(PATIENCE)
    os.close(ours)
    return code, out, seen.decode()


def test_a_terminal_gets_no_lines_or_a_pipe_gets_moving_ones(make: Make) -> None:
    folder = make(PLAIN.replace('"say a"', '"say ' + "very " * 20 + 'a"'))
    code, out, seen = _on_a_terminal(folder, "run")
    assert code == 0 and out.startswith("completed: 2 of 2 items done") and "\x1b" not in out
    assert "1 of 2  say very very" in seen and "…  (0." in seen and "2 of 2  say b  (0." in seen
    assert "Traceback" not in seen


def test_a_kill_leaves_the_cursor_hidden(make: Make) -> None:
    _, _, seen = _on_a_terminal(make(), "run")
    assert "\x1b[?25l\x1b[?25h" in seen


def test_what_an_agent_prints_is_lost_or_mixed_up(make: Make) -> None:
    source = PLAIN.replace("return text.upper()", "return print('hello') or text.upper()")
    code, out, seen = _on_a_terminal(make(source), "run")
    assert code == 0 and out.count("hello\n") == 2 and "hello" not in seen
    code, out, seen = _on_a_terminal(make(source, "json"), "run", "--json")
    assert "hello" not in out and seen.count("hello") == 2


def test_a_dumb_terminal_gets_moving_lines(make: Make) -> None:
    _, _, seen = _on_a_terminal(make(), "run", term="dumb")
    assert "\x1b[?25" not in seen and "begin  1 of 2  say a" in seen


def test_a_pause_or_a_sub_agent_counts_as_work_of_the_run() -> None:
    watch = Moving()

    def ahead() -> bool:
        return bool(re.search(r"  [0-9.]+ s, about \d+ s left$", watch._draw().plain.splitlines()[0]))

    watch.item_ended("reader", "a", 1, 3)
    assert not ahead()
    watch.item_ended("", "a", 1, 3)
    assert ahead()
    Quiet.opened(watch, Report())
    assert not ahead()
    watch.item_ended("", "b", 2, 3)
    assert ahead()
    watch.item_ended("", "c", 3, 3)
    assert not ahead()
