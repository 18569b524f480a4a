"""Conversations and files of a run in a real browser: in sight, without obstacles, at three sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .chrome import Chrome, Served, chrome
from .conftest import make
from .test_contents import REFUNDS
from .test_reading_in_chromium import OBSTACLES

__all__ = ["chrome"]

PAGES = (
    "messages",
    "messages?q=lamps",
    "messages?after=0",
    "files",
    "file?path=outputs/r.md",
    "file?path=outputs/c.png",
    "file?path=outputs/d.json",
    "file?path=outputs/v.svg",
    "file?path=outputs/r.md&with=outputs/d.json",
    "value?in=file&file=outputs/d.json&path=/rows&begin=300",
    "at/latest",
)

# Of the newest message and the last image before it, whether it is in sight and whether it is drawn
SEEN = """() => {
  const at = document.querySelector('[data-newest]').getBoundingClientRect();
  const images = [...document.querySelectorAll('.messages img')];
  return [at.top >= 0 && at.top < innerHeight, images.every(each => each.naturalWidth === 1), images.length];
}"""


@pytest.mark.long
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("width", "scheme"), [(375, "light"), (768, "dark"), (1280, "light")])
def test_what_a_run_contains_can_not_be_seen(tmp_path: Path, chrome: Chrome, width: int, scheme: str) -> None:
    more = """
    for number in range(60):
        said.add("user", f"Anything else? {number} " + "word " * 40)
    await run"""
    assert make(tmp_path / "runs/refunds", REFUNDS.replace("await run", more.strip(), 1)).run().status == "completed"
    size = {"width": width, "height": 800}
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, viewport=size, color_scheme=scheme) as tab:
        for each in PAGES:
            tab.go(f"/run/refunds/-/{each}")
            assert tab.do(lambda page: page.evaluate("document.documentElement.scrollWidth")) <= width, each
            assert not (found := tab.do(lambda page: page.evaluate(OBSTACLES))), (each, found)
        for url in ("/run/refunds/-/messages", "/run/refunds/-/messages#newest"):
            tab.go(url)
            assert tab.do(lambda page: page.evaluate(SEEN)) == [True, True, 0]
        tab.follow("Earlier")
        tab.until(".messages img")
        for number in range(2):  # they are loaded when they come into sight
            tab.do(lambda page: page.locator(".messages img").nth(number).scroll_into_view_if_needed())  # noqa: B023
        tab.do(lambda page: page.evaluate("Promise.all([...document.images].map(each => each.decode()))"))
        assert tab.do(lambda page: page.evaluate(SEEN))[1:] == [True, 2]
        assert not tab.wrong


@pytest.mark.long
def test_a_value_opens_on_another_page(tmp_path: Path, chrome: Chrome) -> None:
    make(tmp_path / "runs/refunds", REFUNDS).run()
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:
        tab.go("/run/refunds/-/file?path=outputs/d.json")
        tab.do(lambda page: page.locator("summary", has_text="rows").click())
        tab.do(lambda page: page.get_by_role("link", name="601 more").click())
        tab.until("code", '"n": 300')
        assert tab.url.endswith("path=outputs/d.json")
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, java_script_enabled=False) as tab:
        tab.go("/run/refunds/-/messages")
        tab.do(lambda page: page.locator("details.tool summary").first.click())
        tab.until("details[open] code", "c1")
        assert "There are 4711 lamps." in tab.text
