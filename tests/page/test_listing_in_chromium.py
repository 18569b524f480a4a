"""The list in a real browser: what a person ticks and filters, with and without JavaScript."""

from __future__ import annotations

from pathlib import Path

import pytest
from api.test_answering import GRANTING

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

import satchel

from .chrome import Chrome, Served, chrome
from .conftest import make

__all__ = ["chrome"]

pytestmark = pytest.mark.slow

SIZES = (1280, 768, 375)


def test_ticks_are_lost_when_a_run_changes(tmp_path: Path, chrome: Chrome) -> None:
    """A row that comes to another place by a live update keeps its tick, and so does the rest."""
    for name in ("a", "b", "c"):
        make(tmp_path / name)
    with Served(str(tmp_path)) as served, chrome.tab(served.url) as tab:
        tab.go("/?sort=run")
        tab.check("Choose all on this page")
        tab.until("[data-chosen]", "3 chosen")
        tab.do(lambda page: page.get_by_label("Choose b", exact=True).uncheck())
        tab.until("[data-chosen]", "2 chosen")
        satchel.open(make(tmp_path / "0-new", GRANTING).url).run()
        tab.until(".runs tbody tr:first-child", "waiting")
        assert tab.do(
            lambda page: page.locator('.runs [name="run"]:checked').evaluate_all("all => all.map(e => e.value)")
        ) == ["a", "c"]
        tab.press("Pause…")
        assert "Pause 2 runs" in tab.text
        tab.press("Pause 2 runs")
        assert "Pause of 2 runs: 2 done." in tab.note and "sort=run" in tab.url
        assert [satchel.open(tmp_path / name).status().state for name in ("a", "b", "c")] == ["paused", "new", "paused"]
        assert not tab.wrong


def test_one_run_or_three_are_compared(tmp_path: Path, chrome: Chrome) -> None:
    for name in ("a", "b", "c"):
        make(tmp_path / name).run()
    with Served(str(tmp_path)) as served, chrome.tab(served.url) as tab:
        tab.go("/?sort=run")
        button = "button[value=compare]"
        for name, is_offered in (("a", False), ("b", True), ("c", False)):
            tab.do(lambda page, name=name: page.get_by_label(f"Choose {name}", exact=True).check())
            assert tab.do(lambda page: page.locator(button).is_enabled()) == is_offered
        tab.do(lambda page: page.get_by_label("Choose c", exact=True).uncheck())
        tab.press("Compare")
        assert "/run/a/-/diff?run=b" in tab.url and not tab.wrong


def test_a_filter_needs_a_press_or_leaves_no_link(tmp_path: Path, chrome: Chrome) -> None:
    make(tmp_path / "asking", GRANTING).run()
    make(tmp_path / "fresh")
    with Served(str(tmp_path)) as served, chrome.tab(served.url) as tab:
        tab.go("/")
        tab.open("Filter and sort")
        tab.do(lambda page: page.get_by_label("last activity").select_option("since=1d"))
        tab.do(lambda page: page.locator(".runs tbody tr").nth(1).wait_for(state="detached"))
        tab.do(lambda page: page.wait_for_url("**/?since=1d"))
        assert not tab.wrong


@pytest.mark.parametrize("has_script", [True, False], ids=["with JavaScript", "without JavaScript"])
def test_an_act_on_many_needs_a_script_or_a_wide_screen(tmp_path: Path, chrome: Chrome, has_script: bool) -> None:
    for name in ("a", "b", "c"):
        make(tmp_path / name, GRANTING).run()
    with Served(str(tmp_path)) as served:
        for width, run in zip(SIZES, ("a", "b", "c"), strict=True):
            size = {"viewport": {"width": width, "height": 800}, "java_script_enabled": has_script}
            with chrome.tab(served.url, **size) as tab:
                tab.go("/")
                if has_script:
                    assert tab.do(lambda page: page.evaluate("document.documentElement.scrollWidth")) <= width
                tab.do(lambda page, run=run: page.get_by_label(f"Choose {run}", exact=True).check())
                tab.press("Cancel…")
                tab.press("Cancel 1 run for good")
                assert f"{run}: " in tab.note and "1 done" in tab.note and not tab.wrong
                assert satchel.open(tmp_path / run).status().state == "cancelled"
