"""A run drawn in time, and its cost, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

from .chrome import Chrome, Served, chrome
from .conftest import make
from .test_time_and_cost import TIDES

__all__ = ["chrome"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    made = make(root / "tides", TIDES, "budget: {usd: 1.0}\n")
    made.run()
    made.answer("yes", by="ada")
    made.resume()
    return root


@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (768, "light"), (1280, "dark"), (1280, "light")])
def test_a_drawing_is_wider_than_the_screen_or_unfit(runs: Path, chrome: Chrome, width: int, scheme: str) -> None:
    size = {"width": width, "height": 900}
    with Served(str(runs)) as served, chrome.tab(served.url, viewport=size, color_scheme=scheme) as tab:
        for path in ("time", "time?of=^1", "cost"):
            tab.go(f"/run/tides/-/{path}")
            wide = tab.do(lambda page: page.evaluate("document.documentElement.scrollWidth"))
            assert wide <= width and not tab.wrong, (path, wide, tab.wrong)
            assert tab.unfit() == [], path


def test_a_bar_can_not_be_pressed(runs: Path, chrome: Chrome) -> None:
    with Served(str(runs)) as served, chrome.tab(served.url, java_script_enabled=False) as tab:
        tab.go("/run/tides")
        tab.follow("Time")
        tab.do(lambda page: page.locator(".of-one .k-person").first.click())
        tab.until("h1", "tides")
        assert "^2/2" in tab.text and "/-/call" in tab.url
        tab.follow("Cost")
        tab.do(lambda page: page.get_by_role("link", name="^1/2").first.click())
        tab.until(".call-name", "read")
