"""The list of runs below a root."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import PLAIN, Make, contents
from msgspec.structs import replace
from waits import PATIENCE

import satchel
from satchel.runtime.api import Overview

from .conftest import ASKING, play, watching


def test_all_runs_are_listed_filtered_and_opened(make: Make, tmp_path: Path) -> None:
    make(PLAIN, "root/alpha")
    satchel.open(make(PLAIN, "root/deep/beta")).run()
    satchel.open(make(ASKING, "root/gamma")).run()
    (tmp_path / "root/typo").mkdir()
    (tmp_path / "root/typo/workspace.yaml").write_text("format: 1\nrunid: typo\n")
    before = contents(tmp_path / "root")

    async def test() -> None:
        async with watching(tmp_path / "root", size=(110, 24)) as screen:
            text = await screen.until("4 runs  1 waiting  1 damaged", "> gamma")
            rows = [line for line in screen.lines if line[2:8].rstrip() in ("alpha", "deep/b", "gamma", "typo")]
            assert [row[2:].split()[:2] for row in rows] == [
                ["gamma", "waiting"],
                ["typo", "damaged"],
                ["alpha", "new"],
                ["deep/beta", "completed"],
            ]
            assert "an answer: a1" in rows[0] and "0/2" in rows[0] and "2/2" in rows[3] and rows[0].startswith("> ")
            assert "wanted" in text and "cost" in text
            await screen.press("o", "slash")
            await screen.type("complete")
            await screen.until("1 of 4 runs", gone="gamma")
            await screen.press("enter", "enter")
            await screen.until("[x] say a", "b back")
            await screen.press("b")
            await screen.until("1 of 4 runs")
            await screen.press("escape")
            await screen.until("4 runs", "gamma", gone="1 of 4")
            await screen.press("slash")
            await screen.type("nothing such")
            await screen.until("no run matches the filter")
            await screen.press("enter", "enter")
            await screen.until("no run matches the filter")

    play(test)
    assert contents(tmp_path / "root") == before


def test_the_run_that_was_read_first_is_chosen(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the others are read, what is most urgent comes to the top, and nobody has chosen anything."""
    make(PLAIN, "root/alpha")
    satchel.open(make(ASKING, "root/gamma")).run()
    goes_on = threading.Event()
    look = Overview.look

    def slow_look(self: Overview, **how: Any) -> Any:
        seen = look(self)
        if not goes_on.is_set():
            self._seen, self._begun = None, replace(seen, runs=[run for run in seen.runs if run.name == "alpha"])
            how["progress"](2, 2)
            assert goes_on.wait(PATIENCE)
            self._seen = seen
        return seen

    monkeypatch.setattr(Overview, "look", slow_look)

    async def test() -> None:
        async with watching(tmp_path / "root", size=(110, 24)) as screen:
            await screen.until("> alpha")
            goes_on.set()
            await screen.until("2 runs", "> gamma")
            await screen.press("down")
            await screen.until("> alpha")

    play(test)


def test_a_narrow_terminal_hides_how_to_leave(make: Make, tmp_path: Path) -> None:
    make(PLAIN, "root/a")
    make(PLAIN, "root/b")

    async def test() -> None:
        async with watching(tmp_path / "root", size=(40, 10)) as screen:
            await screen.until("2 runs", "Enter open  / filter  ? keys  q quit")

    play(test)


def test_a_root_that_is_gone_is_told_and_comes_back(make: Make, tmp_path: Path) -> None:
    make(PLAIN, "root/a")
    make(PLAIN, "root/b")

    async def test() -> None:
        async with watching(tmp_path / "root") as screen:
            await screen.until("2 runs")
            (tmp_path / "root").rename(tmp_path / "away")
            await screen.until("is gone: the folder was removed, or its disk is not mounted", "  b  ")
            (tmp_path / "away").rename(tmp_path / "root")
            await screen.until("2 runs", gone="is gone")

    play(test)


def test_runs_that_come_and_go_are_seen_and_the_cursor_stays_at_its_run(make: Make, tmp_path: Path) -> None:
    for name in ("b", "d"):
        make(PLAIN, f"root/{name}")

    async def test() -> None:
        async with watching(tmp_path / "root", size=(60, 12)) as screen:
            await screen.until("2 runs")
            await screen.press("down")
            await screen.until("> d")
            make(PLAIN, "root/a")
            await screen.until("3 runs", "> d")
            shutil.rmtree(tmp_path / "root/b")
            await screen.until("2 runs", "> d", gone="  b ")
            shutil.rmtree(tmp_path / "root")
            (tmp_path / "root").mkdir()
            await screen.until("there are no runs here")

    play(test)


def test_a_list_of_many_lines_makes_only_those_that_are_seen(make: Make) -> None:
    from rich.text import Text

    from satchel.runtime.faces.watch.lines import Lines

    folder, made = make(PLAIN), set()

    def line(index: int, width: int) -> Text:
        made.add(index)
        return Text(f"line {index}")

    async def test() -> None:
        async with watching(folder) as screen:
            await screen.until("new")
            await screen.press("question_mark")
            await screen.until("One run")
            lines = screen.app.screen.query_one("#help", Lines)
            lines.show(100_000, line, 0)
            await screen.until("line 0")
            await screen.pilot.pause()
            await screen.press("end")
            await screen.until("line 99999")
            assert len(made) < 100

    play(test)


def test_an_unforeseen_error_is_told_and_ends_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make(ASKING)

    def look(overview: Overview, **options: object) -> None:
        raise RecursionError("too deep")

    async def test() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Overview, "look", look)
            async with watching(folder.parent) as screen:
                await screen.until("too deep")
                patch.undo()
                await screen.until(folder.name, "new", gone="too deep")

    play(test)
