"""Workspaces of strangers: nothing that they say controls the terminal, is taken for markup, or breaks the screen."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cli.conftest import Make

import satchel
from satchel.runtime.api import RunStatus
from satchel.runtime.faces.watch.lines import event_line, fold, plain
from satchel.runtime.faces.watch.run_screen import VIEWS
from satchel.runtime.present import Timeline, ago, why_lines
from satchel.workspace import journal
from satchel.workspace.base import UNSAFE, visible
from satchel.workspace.journal import Line

from .conftest import play, watching

EVIL = "\x1b[2J\x1b]0;owned\x07 [red]not[/red] [/] [@click=app.quit]x[/] \u202eright\u202c \x00 \x9b31m end"
SHOWN = r"\x1b[2J\x1b]0;owned\x07 [red]not[/red] [/] [@click=app.quit]x[/] \u202eright\u202c \x00 \x9b31m end"

ASKED = "[red]not[/red] [/] [@click=app.quit]x[/] \u202eright\u202c"

HOSTILE = f"""
import asyncio
from pathlib import Path
from satchel import agent, step, Partial

EVIL = {EVIL!r}
ASKED = {ASKED!r}

@step
async def think(text: str, out: Partial) -> str:
    await out.write(EVIL + " is streamed\\n")
    while not Path(GO).exists():
        await asyncio.sleep(0.01)
    return EVIL

async def work(run, item):
    if item.text == "first":  # messages are kept with its commit
        run.messages.add(EVIL, EVIL)
        run.messages.add("data", {{EVIL: [EVIL]}})
        return
    await think(EVIL)
    await run.ask(ASKED, [ASKED, "no"], context={{EVIL: EVIL}}, wait_for=0)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Evil", ["first", EVIL.replace("\\x00", "").replace("\\x9b", "")])
    await run.todo.each(work)
"""


def test_nothing_of_a_stranger_reaches_the_terminal_as_it_is(make: Make, tmp_path: Path) -> None:
    go = tmp_path / "go"
    folder = make(HOSTILE.replace("GO", repr(str(go))))

    async def test() -> None:
        async with watching(folder, size=(250, 40)) as screen:
            run = asyncio.create_task(satchel.open(folder).run_async())
            text = await screen.until("is streamed", "[/] ")
            assert not UNSAFE.search(text.replace("\n", "")) and SHOWN + " is streamed" in text
            go.touch()
            ended = await run
            assert ended.status == "waiting", ended.error
            await screen.until("a answers")
            for number, name in enumerate(VIEWS, 1):
                await screen.press(str(number))
                await screen.until(f"{number} {name}")
                assert not UNSAFE.search(screen.text.replace("\n", ""))
            await screen.press("6")
            await screen.until(f"  {SHOWN}")
            await screen.press("a")
            text = await screen.until(f"1 {visible(ASKED)}", f"{SHOWN}: {SHOWN}", "2 no")
            assert not UNSAFE.search(text.replace("\n", ""))
            await screen.press("escape", "question_mark", "escape", "q")
            await screen.when(lambda: not screen.app.is_running)

    play(test)


def test_names_and_errors_of_a_stranger_are_escaped_in_the_list(make: Make, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "bad\x1b[2J [red]name").mkdir(parents=True)
    (root / "bad\x1b[2J [red]name" / "workspace.yaml").write_text('format: 1\nrun_id: "\\e[31m"\nagent: "[b]:x"\n')

    async def test() -> None:
        async with watching(root, size=(120, 20)) as screen:
            text = await screen.until(r"bad\x1b[2J [red]name", "damaged")
            assert not UNSAFE.search(text.replace("\n", ""))
            await screen.press("enter")
            text = await screen.until("b back", "damaged")
            assert not UNSAFE.search(text.replace("\n", ""))

    play(test)


def test_each_event_is_one_safe_line_of_the_width() -> None:
    at, wide = "9999-99-99", "漢字" * 90
    for text in (EVIL, wide, "x" * 100_000, "a\nb\tc", "", "e\u0301" * 100):
        asked = journal.ApprovalAsked(id=text, scope=text, no=1, step="ask", args="", n=0, question=text)
        told: list[journal.AnyRecord] = [
            journal.ScopeBegun(agent=text, scope=text, title=text),
            journal.StepCompleted(scope="1", step=text, call=text, no=1, args="", n=1, ms=10**12),
            journal.Closed(reason=text),
            journal.Edited(file=text, by=text, sha="", says=(text, text)),
            asked,
        ]
        for record in told:
            event = Timeline().of(Line(1, 1, at, 1, record))
            for width in (1, 20, 80):
                line = event_line(event, width)
                assert not UNSAFE.search(line.plain) and "\n" not in line.plain
                assert line.cell_len <= max(width, 34), (width, line.plain)
        assert all(not UNSAFE.search(line) for line in fold(text, 7))
        assert plain(text, 9) == plain(plain(text, 9), 9)
    assert fold("a b\n\n  c", 3) == ["a b", "", "  c"]
    assert ago("0001-01-01T00:00:00+23:59") == ago("x") == ""
    assert why_lines(RunStatus("x")) == []
