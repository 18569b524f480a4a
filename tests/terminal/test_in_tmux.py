"""The command in a real terminal: a person starts a run, answers, pauses, edits and stops it with keys alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import Make
from waits import PATIENCE

import satchel

from .test_acting import REFUNDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed; .ci/run installs it"),
]

LIVE = """
import asyncio
from satchel import agent, step, Partial

@step
async def think(text: str, out: Partial) -> str:
    for number in range(10_000):
        await out.write(f"word{number} ")
        await asyncio.sleep(0.05)
    return out.text

async def work(run, item):
    if item.text.startswith("ask"):
        answer = await run.ask("May I publish it?", ["yes", "no"], context={"pages": 12})
        run.state["may"] = answer.decision
    else:
        await think(item.text)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Book", ["ask the editor", "write it"])
    await run.todo.each(work)
"""


class Terminal:
    """A window of tmux."""

    def __init__(self, socket: Path, folder: Path, columns: int, lines: int, command: str = ""):
        """`command`: instead of one that shows the run at `folder`, and its exit code."""
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        command = command or f"{sys.executable} -m satchel watch {folder}; echo it ended with $?; exec cat"
        environment = [
            "-e",
            "NO_COLOR=1",
            "-e",
            "EDITOR=sed -i s/write/rewrite/",
            "-e",
            "VISUAL=",
            "-e",
            "COLUMNS=80",
            "-e",
            "LINES=24",
        ]
        size = ["-x", str(columns), "-y", str(lines)]
        self._do("new-session", "-d", "-s", "watch", *size, *environment, command)
        self._do("set", "-t", "watch", "status", "off")

    def _do(self, *words: str) -> str:
        return subprocess.run(
            [*self._tmux, *words], check=True, capture_output=True, text=True, timeout=PATIENCE
        ).stdout

    def press(self, *keys: str) -> None:
        for key in keys:
            self._do("send-keys", "-t", "watch", key)

    def resize(self, columns: int, lines: int) -> None:
        self._do("resize-window", "-t", "watch", "-x", str(columns), "-y", str(lines))

    def text(self, *options: str) -> str:
        return self._do("capture-pane", "-p", *options, "-t", "watch")

    def until(self, *texts: str) -> str:
        """What is on the screen once it shows all of these."""
        deadline = time.monotonic() + PATIENCE
        while not all(each in (found := self.text()) for each in texts):
            assert time.monotonic() < deadline, f"not shown: {texts}\n{found}"
            time.sleep(0.05)
        return found

    def until_below(self, label: str) -> None:
        """The cursor is in the field below this label."""
        (row,) = [number for number, line in enumerate(self.until(label).splitlines()) if label in line]
        deadline = time.monotonic() + PATIENCE
        while int(self._do("display-message", "-p", "-t", "watch", "#{cursor_y}")) != row + 1:
            assert time.monotonic() < deadline, f"the cursor is not below {label}\n{self.text()}"
            time.sleep(0.05)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)


@pytest.fixture
def folder(make: Make) -> Path:
    return make(LIVE)


@pytest.fixture
def terminal(folder: Path, tmp_path: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path / "tmux", folder, 80, 24)
    yield found
    found.close()
    satchel.open(folder).stop()


def kill(terminal: Terminal) -> None:
    terminal.press("x")
    terminal.until("Kill what runs it, now?")
    terminal.press("y")


def test_a_run_is_started_answered_paused_edited_and_stopped_with_keys(terminal: Terminal, folder: Path) -> None:
    terminal.until("demo-1a2b  new", "no items yet", "r start")
    terminal.press("r")
    terminal.until("it runs in the background", "a1: May I publish it?", "p pause  x stop")
    terminal.press("a")
    terminal.until("pages: 12", "1 yes", "2 no")
    terminal.press("1", "Enter")
    terminal.until("a1 is answered")
    text = terminal.until("[x] ask the editor", "[/] write it", '> think("text":"write it")', "word9")
    lines = text.splitlines()
    assert len(lines) == 24 and max(map(len, lines)) <= 80 and re.match(r"demo-1a2b  running  1/2  ", lines[0])
    assert not re.search(r"\x1b\[[0-9;]*[34]8[;:]|\x1b\[[0-9;]*(?:3[0-7]|4[0-7]|9[0-7])m", terminal.text("-e"))
    terminal.resize(40, 10)
    terminal.until("1 overview  2  3  4  5  6  7", "q quit")
    terminal.resize(80, 24)
    terminal.until("7 details")
    terminal.press("p")
    terminal.until("pause: manual, by")
    kill(terminal)  # it may not wait for the end of the step
    terminal.until("demo-1a2b  paused", "r resume")
    terminal.press("r")
    terminal.until("it runs in the background", '> think("text":"write it")', "p pause  x stop")
    kill(terminal)
    terminal.until("demo-1a2b  paused", "pause: emergency, by", "r resume")
    terminal.press("e")
    terminal.until("todo.md is saved")
    terminal.press("q")
    terminal.until("it ended with 0")
    status = satchel.open(folder).status()
    assert status.state == "paused" and "- [ ] rewrite it" in (folder / "todo.md").read_text().replace("[/]", "[ ]")
    assert [row.record["decision"] for row in satchel.open(folder).history.log(type="approval.answered")] == ["yes"]
    assert [row.record["mode"] for row in satchel.open(folder).history.log(type="pause.requested")][-1] == "emergency"


def test_other_arguments_are_approved_and_a_standing_approval_is_revoked_with_keys(make: Make, tmp_path: Path) -> None:
    folder = make(REFUNDS)
    handle = satchel.open(folder)
    handle.run()
    terminal = Terminal(tmp_path / "tmux", folder, 80, 24)
    try:
        terminal.until("a1: Refund one?")
        for typed, said in (
            ("amount=much", 'a1: Refund one?: found "much"'),
            ("amount=50", "a1 is answered: approve with amount: 50"),
        ):
            terminal.press("a")
            terminal.until("amount  80", "1 approve", "Escape leave")
            terminal.press("1", "Tab")
            terminal.until_below("other arguments to approve, as amount=VALUE (may be empty)")
            terminal.press(typed)
            terminal.until(typed)
            terminal.press("C-s")
            terminal.until(said)
        assert handle.resume().status == "waiting"
        handle.answer("approve", standing=True)
        terminal.press("7")
        terminal.until("each call of refund: a2, by ", "v revokes it")
        terminal.press("v")
        terminal.until("Revoke a2, which approves each call of refund?")
        terminal.press("y")
        terminal.until("a2 is revoked: it counts for no later call")
        assert not handle.status().approved
    finally:
        terminal.close()


def test_quitting_leaves_an_active_run_alone(terminal: Terminal, folder: Path) -> None:
    terminal.until("r start")
    terminal.press("r")
    terminal.until("a1: May I publish it?", "p pause  x stop")
    terminal.press("q")
    terminal.until("it ended with 0")
    assert satchel.open(folder).status().state == "running"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_the_screen_had_it(tmp_path: Path, folder: Path, sent: int) -> None:
    command = f"echo before; {sys.executable} -m satchel watch {folder} & echo $! > {tmp_path}/pid; fg; echo with $?"
    terminal = Terminal(tmp_path / "tmux", folder, 80, 24, f"bash -mc '{command}; stty -a; exec cat'")
    try:
        terminal.until("demo-1a2b  new", "r start")
        os.kill(int((tmp_path / "pid").read_text()), sent)
        text = terminal.until("before", f"with {128 + sent}", " icanon", " echo ")
        assert "r start" not in text
    finally:
        terminal.close()


def test_ctrl_z_goes_to_the_shell_and_fg_comes_back(tmp_path: Path, folder: Path) -> None:
    terminal = Terminal(tmp_path / "tmux", folder, 80, 24, "bash --norc --noprofile -i")
    try:
        terminal.press(f"{sys.executable} -m satchel watch {folder}", "Enter")
        terminal.until("demo-1a2b  new", "r start")
        terminal.press("C-z")
        terminal.until("Stopped")
        satchel.open(folder).pause(reason="a look")
        terminal.press("fg", "Enter")
        terminal.until("demo-1a2b  paused", "a look")
        terminal.press("q")
        terminal.until("Stopped", " fg\n")
    finally:
        terminal.close()


def test_ctrl_z_where_no_shell_could_bring_the_screen_back_is_ignored(terminal: Terminal, folder: Path) -> None:
    terminal.until("demo-1a2b  new", "r start")
    terminal.press("C-z", "?")
    terminal.until("Escape back")
