"""The screen of one run: what it shows, and how it goes with the run."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from cli.conftest import Make

import satchel
from satchel.runtime.faces.watch import run_screen
from satchel.runtime.faces.watch.lines import clock
from satchel.runtime.faces.watch.run_screen import VIEWS
from satchel.runtime.live import pending_calls
from satchel.runtime.present import why_lines

from .conftest import ASKING, WAITING, Screen, play, watching


def test_a_waiting_run_is_shown_with_its_plan_its_question_and_what_has_happened(make: Make) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder) as screen:
            text = await screen.until("asked a1")
            head, *_ = screen.lines
            assert head.startswith("demo-1a2b  waiting  0/2  ")
            assert "? a1: May I write to Ada?  a answers" in text
            assert "[/] write to Ada" in text and "[ ] write to Grace" in text
            assert "begun     ^1 write to Ada" in text and "closed    waiting: a person is asked" in text
            assert screen.lines[-1].startswith("a answer  r resume  s send  e edit todo  ? keys  q quit")

    play(test)


def test_the_details_hide_its_group_and_priority(make: Make) -> None:
    status = satchel.open(make(extra="group: customer-a\npriority: 10\n")).status()
    assert {("group", "customer-a"), ("priority", "10")} <= {*run_screen._details(status)}


def test_the_time_or_the_cost_of_a_run_is_not_drawn(make: Make) -> None:
    folder = make(ASKING.replace("answer = await", "run.spend(usd=0.25, model='large-2'); answer = await"))
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder, size=(100, 40)) as screen:
            await screen.until("8 time")
            await screen.press("8")
            text = await screen.until("? waited for a person", "$0.25", "large-2")
            assert "^1  write to Ada" in text and "????" in text

    play(test)


def test_a_running_run_does_not_say_when_it_will_be_done(make: Make, tmp_path: Path) -> None:
    go = tmp_path / "go"
    folder = make(WAITING.replace("GO", repr(str(go))).replace("await think(", "if item.id != '1': await think("))

    async def test() -> None:
        run = asyncio.create_task(satchel.open(folder).run_async())
        async with watching(folder) as screen:
            await screen.until("stormy", " left")
            assert re.match(r"demo-1a2b  running  1/2  [0-9.,]+ items? an? \w+, about \d+ s left  ", screen.lines[0])
            go.touch()
            await screen.until("completed", "2/2")
            assert " left" not in screen.lines[0]
        await run

    play(test)


def test_a_time_of_day_hides_its_zone_or_its_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "XYZ-3:30")
    time.tzset()
    try:
        now = datetime.now().astimezone()
        assert clock(now.isoformat()) == f"{now:%H:%M:%S} XYZ"
        assert clock("2026-01-01T23:10:04.123Z") == "2026-01-02 02:40:04 XYZ"
        assert clock("9999-12-31T23:59:59Z") == clock("x") == " " * 8
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_failure_is_dim_or_a_style_is_lost(make: Make) -> None:
    """The style of a line is that of its parts, also where one style is all of it."""
    folder = make(ASKING.replace("answer = await", "1 / 0; answer = await"))
    with suppress(satchel.errors.AgentError):
        satchel.open(folder).run()

    def styles(screen: Screen, of: str) -> dict[str, tuple[bool, bool]]:
        """Of the parts of the line that contains a text: whether they are dim, and bold."""
        (line,) = (strip for strip in screen.app.screen._compositor.render_strips() if of in strip.text)
        return {part.text.strip(): (bool(part.style.dim), bool(part.style.bold)) for part in line if part.style}

    async def test() -> None:
        async with watching(folder, size=(80, 30)) as screen:
            await screen.until("failed    ^1")
            failed = styles(screen, "failed    ^1")
            assert [is_dim for is_dim, _ in failed.values()][:3] == [True, False, False], failed
            await screen.press("7")
            await screen.until("place")
            place = styles(screen, "agent.py:main")
            assert place["agent"][1] and not place["agent.py:main"][1]

    play(test)


def test_a_conflict_or_an_edit_that_is_refused_is_not_told(make: Make) -> None:
    folder = make(ASKING)
    handle = satchel.open(folder)
    handle.run()
    state = folder / "state.json"
    before = state.read_text()
    handle.answer("yes", "a1")
    handle.run()
    now = state.read_text()

    async def test() -> None:
        async with watching(folder, size=(120, 24)) as screen:
            state.write_text(before.replace('"data": {}', '"data": {"1": "maybe"}'))
            await screen.until("state.json conflicts with the run: data.1", "`satchel merge` shows both versions")
            state.write_text("{")
            await screen.until("refused: state.json, line 1", gone="conflicts with")
            state.write_text(now)
            plan = folder / "todo.md"
            plan.write_text(plan.read_text().replace("write to Grace", "write to Edsger"))
            await screen.until("demo-1a2b  waiting", gone="refused")
            await screen.press("7")
            await screen.until("now reads 'write to Edsger'; the next start takes it")

    play(test)


def test_what_does_not_fit_above_the_views_is_cut_without_a_word(make: Make) -> None:
    folder = make(ASKING.replace("answer = await", "raise LookupError('much is wrong. ' * 30); answer = await"))
    with suppress(satchel.errors.AgentError):
        satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("  (7: all)", "failed    ^1")
            await screen.press("7")
            await screen.until("agent.py", gone="(7: all)")

    play(test)


def test_an_answered_run_waits_for_nobody(make: Make) -> None:
    handle = satchel.open(make(ASKING))
    handle.run()
    assert why_lines(handle.status()) == ["for a person: 1 open question"]
    handle.answer("yes", "a1")
    assert why_lines(handle.status()) == ["answered, has to be resumed"]


def test_an_active_run_is_followed_from_its_text_to_its_last_tick(make: Make, tmp_path: Path) -> None:
    go = tmp_path / "go"
    folder = make(WAITING.replace("GO", repr(str(go))))

    async def test() -> None:
        async with watching(folder, size=(80, 30)) as screen:
            await screen.until("demo-1a2b  new", "r start")
            run = asyncio.create_task(satchel.open(folder).run_async())
            call = '> think("text":"first chapter"), 32 characters'
            await screen.until("It was a dark and stormy night.", "p pause  x stop", call, "[/] first chapter")
            go.touch()
            await screen.until(
                "completed", "2/2", "[x] first chapter", "[x] second chapter", "committed ^2 second chapter"
            )
            assert (await run).status == "completed"
            await screen.press("6")
            await screen.until("assistant", "done with first chapter", "done with second chapter")

    play(test)


PLAIN_STEPS = """
import asyncio
from pathlib import Path
from satchel import agent, step

@step
async def think(text: str) -> str:
    while not Path(GO).exists():
        await asyncio.sleep(0.01)
    return text

async def work(run, item):
    await think(item.text)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Story", ["first chapter"])
    await run.todo.each(work)
"""


def test_a_step_that_runs_is_not_shown(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_calls, "LONG", 0.02)
    go = tmp_path / "go"
    folder = make(PLAIN_STEPS.replace("GO", repr(str(go))))

    async def test() -> None:
        async with watching(folder, size=(80, 30)) as screen:
            run = asyncio.create_task(satchel.open(folder).run_async())
            await screen.until('> think("text":"first chapter") for ', " s, item ^1", "/ ^1 first chapter")
            go.touch()
            await screen.until("completed", "1/1", gone="> think")
            assert (await run).status == "completed"

    play(test)


@pytest.mark.parametrize("size", [(40, 10), pytest.param((20, 5), marks=pytest.mark.slow), (200, 50)])
def test_each_view_fits_each_size(make: Make, size: tuple[int, int]) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder, size=size) as screen:
            await screen.until("waiting")
            for number, name in enumerate(VIEWS, 1):
                await screen.press(str(number))
                assert len(screen.lines) == size[1] and max(map(len, screen.lines)) <= size[0]
                if size[0] >= 40:
                    await screen.until(f"{number} {name}")
                    assert "q quit" in screen.lines[-1] and screen.lines[0].endswith(("ago", "now"))

    play(test)


def test_a_terminal_that_is_resized_shows_what_fits(make: Make) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()

    async def test() -> None:
        async with watching(folder, size=(200, 50)) as screen:
            await screen.until("[/] write to Ada", "asked a1")
            await screen.pilot.resize_terminal(40, 10)
            text = await screen.until("1 overview  2  3  4", gone="asked a1")
            assert "[/] write to Ada" in text and "a answers" in text
            await screen.pilot.resize_terminal(80, 24)
            await screen.until("[/] write to Ada", "asked a1", "7 details")

    play(test)


def test_a_run_that_is_moved_damaged_or_deleted_meanwhile_is_told_and_comes_back(make: Make, tmp_path: Path) -> None:
    folder, kept = make(ASKING), tmp_path / "kept"
    satchel.open(folder).run()
    shutil.copytree(folder, kept)

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("waiting", "asked a1")
            shutil.rmtree(folder)
            await screen.until("is not a workspace")
            shutil.copytree(kept, folder)
            await screen.until("waiting", "a1: May I write to Ada?", gone="is not a workspace")
            for segment in (folder / "journal").iterdir():
                segment.write_bytes(segment.read_bytes().replace(b'"type"', b'"tape"', 1))
            for checkpoint in (folder / "checkpoints").glob("*.json"):
                checkpoint.unlink()
            await screen.until("damaged")
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            await screen.until("waiting", "a1: May I write to Ada?", gone="damaged")
            await asyncio.to_thread(satchel.open(folder).move, tmp_path / "elsewhere")
            await screen.until("moved", "the run is now at")

    play(test)


def test_another_run_in_its_place_is_shown_from_its_beginning(make: Make) -> None:
    folder = make(ASKING)
    satchel.open(folder).run()
    satchel.open(folder).answer("yes")
    satchel.open(folder).run()
    other = make(ASKING.replace("write to Ada", "write to Barbara"), "other/demo")
    satchel.open(other).run()

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("asked a2")
            shutil.rmtree(folder)
            shutil.copytree(other, folder)
            await screen.until("[/] write to Barbara", "begun     ^1 write to Barbara", gone="Ada")

    play(test)


def test_help_lists_the_keys_and_leaves(make: Make) -> None:
    folder = make(ASKING)

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("new")
            await screen.press("question_mark")
            await screen.until("p  pause at the next safe point")
            await screen.press("q")
            await screen.until("r start")
            await screen.press("q")
            await screen.when(lambda: not screen.app.is_running)

    play(test)
