"""A new run by the page alone, in a real browser, with and without JavaScript."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

import satchel

from .chrome import Chrome, Served, chrome
from .conftest import make
from .test_starting import ASKED, SETTINGS

__all__ = ["chrome"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("has_script", [True, False])
def test_a_person_can_not_make_a_run(tmp_path: Path, chrome: Chrome, has_script: bool) -> None:
    make(tmp_path / "runs/ask", ASKED, SETTINGS)
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, java_script_enabled=has_script) as tab:
        tab.go("/")
        tab.follow("New run…")
        assert not has_script or not tab.unfit()
        tab.follow("ask")
        assert not has_script or not tab.unfit()
        tab.fill("topic", "the <b>tides</b>")
        tab.fill("links", "[1]")
        tab.press("Make and start the run")
        assert "Nothing was done" in tab.text and tab.value("topic") == "the <b>tides</b>"
        assert not has_script or not tab.unfit()
        tab.fill("links", "[one]")
        tab.press("Make and start the run")
        assert "was made from the run ask" in tab.note and tab.url.partition("?")[0].endswith("/run/ask-1")
        satchel.open(tmp_path / "runs/ask-1").wait()
        if has_script:
            tab.until(".state", "completed")
        assert not tab.wrong
    returned = satchel.open(tmp_path / "runs/ask-1").result.returned
    assert returned[:4] == ["the <b>tides</b>", 2, "plain", ["one"]]


@pytest.mark.parametrize("width", [375, 1280])
def test_a_form_is_wider_than_the_window(tmp_path: Path, chrome: Chrome, width: int) -> None:
    make(tmp_path / "runs/ask", ASKED, SETTINGS)
    size = {"width": width, "height": 800}
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, viewport=size, color_scheme="dark") as tab:
        for path in ("/-/new", "/-/new?run=ask", "/-/new?sample=digest", "/run/ask"):
            tab.go(path)
            assert tab.do(lambda page: page.evaluate("document.documentElement.scrollWidth")) <= width, path
            assert not tab.unfit() and not tab.wrong, path
    assert satchel.open(tmp_path / "runs/ask").status().state == "new"
