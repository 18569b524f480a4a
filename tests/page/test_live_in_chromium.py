"""A person at the page of a live run, in a real browser: on a disk and in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server

import satchel

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

from .chrome import Chrome, Served, Tab, chrome
from .conftest import make

__all__ = ["chrome"]

pytestmark = pytest.mark.slow

STEERED = """
import asyncio, os
from satchel import agent, step, Partial

@step
async def read(text: str) -> str:
    return text

@step
async def think(text: str, out: Partial) -> str:
    number = 0
    while not os.path.exists(GO + text):
        await out.write(f"word{number} ")
        number += 1
        await asyncio.sleep(0.05)
    return "thought"

async def work(run, item):
    if item.text.startswith("think"):
        await think(item.text[-1])
    elif item.text.startswith("ask"):
        answer = await run.ask("May I <b>grant</b> it?", ["approve", "deny"], context={"user": "<i>ada</i>"})
        run.state["answer"] = answer.decision
    run.state[item.text] = await read(item.text)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Steered", ["read", "think 1", "ask", "think 2", "last"])
    await run.todo.each(work)
"""


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.soak)])
def steered(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, satchel.Handle, Path]]:
    """A root with one run that has not begun, and the folder whose files let its steps end."""
    go = tmp_path / "go"
    go.mkdir()
    source = STEERED.replace("GO", repr(f"{go}/"))
    if request.param == "disk":
        root, handle = str(tmp_path / "runs"), make(tmp_path / "runs/team/a", source)
    else:
        server: Server = request.getfixturevalue("seaweedfs")
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        make(tmp_path / "template", source)
        root = f"{server.place()}/runs"
        satchel.new(tmp_path / "template", f"{root}/team/a")
        handle = satchel.open(f"{root}/team/a")
    yield root, handle, go
    for each in ("1", "2"):
        (go / each).touch()
    satchel.open(handle.url).stop()  # what a failed test has left


def until_state(tab: Tab, state: str) -> None:
    tab.until(".state", state)


def test_a_live_run_can_not_be_steered(steered: tuple[str, satchel.Handle, Path], chrome: Chrome) -> None:
    root, handle, go = steered
    with Served(root) as served, chrome.tab(served.url) as tab:
        tab.go("/run/team/a")
        tab.open("Start")
        tab.press("Start the run")
        assert "active in the background" in tab.note
        until_state(tab, "running")
        tab.until(".stream", "word3 ")
        tab.until(".items .done", "read")

        tab.open("Pause")
        tab.fill("Reason", "lunch <b>at</b> noon")
        tab.press("Pause the run")
        assert "stops at its next safe point" in tab.note
        (go / "1").touch()
        until_state(tab, "paused")
        tab.until(".status", "lunch <b>at</b> noon")

        tab.open("Resume")
        tab.press("Resume the run")
        tab.until(".question", "May I <b>grant</b> it?")
        assert '"user": "<i>ada</i>"' in tab.text
        tab.fill("Note", "only once")
        tab.press("approve")
        assert "a1" in tab.note and ("answered: approve" in tab.note or "the answer is in" in tab.note)
        tab.until(".stream", "word3 ")

        tab.fill("What to do", "Write to Barbara, too")
        tab.press("Send as a task")
        assert "The task is in inbox/" in tab.note
        tab.go("/run/team/a/-/edit?file=todo.md")
        text = tab.value("todo.md")
        assert "- [x] ask" in text and "<!-- satchel" in text
        tab.fill("todo.md", text.replace("- [ ] last", "- [ ] the very last"))
        tab.press("Save")
        assert "todo.md is saved" in tab.note
        tab.go("/run/team/a/-/edit?file=state.json")
        text = tab.value("state.json")
        tab.fill("state.json", text.replace('"data": {', '"data": {"a": 1,,'))
        tab.press("Save")
        assert "column" in tab.text and '"a": 1,,' in tab.value("state.json")
        tab.fill("state.json", text.replace('"data": {', '"data": {"mine": 1,'))
        tab.press("Save")
        assert "data.mine is now 1" in tab.note

        holder = handle.status(brief=True).holder
        assert holder is not None
        tab.open("Emergency stop")
        tab.fill("Reason", "wrong recipients")
        tab.press("Kill the run now")
        assert "Stopped" in tab.note and "killed" in tab.note
        assert not _is_alive(holder.pid), "the page says when it is done"
        until_state(tab, "paused")

        (go / "2").touch()
        tab.open("Resume")
        tab.press("Resume the run")
        tab.until(".items", "the very last")  # the edits waited for the end of the step, and the kill has lost none
        until_state(tab, "completed")
        assert not tab.wrong
    state = handle.result.state
    assert state["answer"] == "approve" and state["mine"] == 1 and state["the very last"] == "the very last"
    assert [row.record["note"] for row in handle.history.log(type="approval.answered")] == ["only once"]


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_is_typed_is_lost_while_the_run_goes_on(steered: tuple[str, satchel.Handle, Path], chrome: Chrome) -> None:
    root, _handle, go = steered
    with Served(root) as served, chrome.tab(served.url) as tab:
        tab.go("/run/team/a")
        tab.open("Start")
        tab.press("Start the run")
        tab.until(".stream", "word3 ")
        tab.open("Pause")
        tab.fill("Reason", "half a sen")
        tab.fill("What to do", "half a task")
        (go / "1").touch()
        tab.until(".question", "May I")
        assert tab.value("What to do") == "half a task"
        tab.fill("Note", "half a note")
        (go / "2").touch()
        tab.until(".items .done", "think 1")
        assert (tab.value("Note"), tab.value("What to do")) == ("half a note", "half a task")
        assert tab.do(lambda page: page.locator("#pause-reason").input_value()) == "half a sen"

        tab.open("Cancel")
        tab.do(lambda page: page.locator("#cancel-reason").fill("the <b>wrong</b> run"))
        tab.press("Cancel the run for good")
        assert "Cancel:" in tab.note
        until_state(tab, "cancelled")
        tab.until(".status", "the <b>wrong</b> run")
        assert not tab.do(lambda page: page.locator(".acts summary").count()), "there is nothing to do any more"


def test_what_a_process_prints_does_not_come_into_view(tmp_path: Path, chrome: Chrome) -> None:
    """A person who reads its end stays there, and one who has scrolled up keeps the place."""
    make(tmp_path / "runs/letters")
    log = tmp_path / "runs/letters/.satchel/run.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("==== a process starts, 2026-11-29T08:00:00.000Z ====\n" + "a line\n" * 200)

    at_end = "document.documentElement.scrollHeight - scrollY - innerHeight < 60"
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:
        tab.go("/run/letters/-/process")
        tab.until("b.start", "start of a process")
        tab.do(lambda page: page.evaluate("scrollTo(0, document.documentElement.scrollHeight)"))
        with open(log, "a") as file:
            file.write("<b>the newest</b> one\n" * 50)
        tab.until(".printed span", "<b>the newest</b> one")
        tab.do(lambda page: page.wait_for_function(at_end))
        tab.do(lambda page: page.evaluate("scrollTo(0, 0)"))
        with open(log, "a") as file:
            file.write("the last\n")
        tab.until(".printed span", "the last")
        assert not tab.do(lambda page: page.evaluate(at_end)) and not tab.unfit() and not tab.wrong
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, java_script_enabled=False) as tab:
        tab.go("/run/letters/-/process")
        assert "start of a process" in tab.text and "the last" in tab.text
