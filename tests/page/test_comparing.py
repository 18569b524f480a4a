"""Two runs, two moments, and a file and its run, next to each other on the page; and the other run from a list."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from cli.conftest import Cli

import satchel
from satchel.runtime.api import Overview
from satchel.runtime.faces.web import reading
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site
from satchel.workspace.formats import jsontext

from .chrome import Chrome, Served, chrome
from .conftest import HOSTILE, make
from .test_reading_in_chromium import OBSTACLES

pytest.importorskip("starlette", reason="the page needs starlette")

from starlette.testclient import TestClient

__all__ = ["chrome"]

PRICING = """
from satchel import agent, step

@step
def price(text):
    RUN.spend(usd=RUN.settings["usd"], tokens=100)
    return RUN.settings["says"]

async def work(run, item):
    global RUN
    RUN = run
    run.state[item.text] = await price(item.text)
    run.messages.add("user", run.settings["says"])
    if run.settings.get("asks") and item.text == "two":
        await run.ask("Which?", wait_for=0)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Prices", ["one", "two"])
    await run.todo.each(work)
    return "all"
"""


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """`dear` is completed; `cheap` waits at its second item, and is hostile; `left` is a fork of `dear`."""
    root = tmp_path / "runs"
    dear = make(root / "dear", PRICING, "settings: {usd: 0.5, says: twelve}\n")
    assert dear.run().status == "completed"
    settings = jsontext.dump({"usd": 0.1, "says": HOSTILE, "asks": True}).strip()
    assert make(root / "cheap", PRICING, f"settings: {settings}\n").run().status == "waiting"
    dear.history.fork(root / "left", at="^2")
    make(root / "new", PRICING)
    return root


def page_of(root: Path) -> TestClient:
    return TestClient(make_app(Site(Overview(root))), base_url="http://127.0.0.1", raise_server_exceptions=False)


def words(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


def test_a_comparison_does_not_say_which_run_did_better(prices: Path, cli: Cli) -> None:
    text = page_of(prices).get("/run/dear/-/diff?run=cheap").text
    sides = words(text.partition("<table")[2].partition("</table>")[0])
    for said in (
        "state completed better waiting",
        "items done 2 of 2 better 1 of 2",
        "tokens 200 200",
        "money $1.00 $0.20 better",
        'result "all" null',
    ):
        assert said in sides, sides
    told = cli("diff", prices / "dear", prices / "cheap").stdout
    assert "items done  2 of 2 -> 1 of 2" in told and "money       $1.00 -> $0.20" in told and "tokens" not in told
    found = satchel.open(prices / "dear").history.diff(satchel.open(prices / "cheap"))
    assert (found.old.done, found.new.done, found.new.items, found.new.usage.usd) == (2, 1, 2, 0.2)
    moments = page_of(prices).get("/run/dear/-/diff?old=%5E2").text
    assert "before" in words(moments) and "better" not in words(moments), "a later moment has always used more"


def test_a_compared_call_has_no_page(prices: Path) -> None:
    page = page_of(prices)
    text = page.get("/run/dear/-/diff?run=cheap").text
    links = [unescape(each) for each in re.findall(r'<a class="of-call" href="([^"]+)"', text)]
    assert [each.partition("?")[0] for each in links][:4] == ["/run/dear/-/call", "/run/cheap/-/call"] * 2
    for each, said in zip(links, ("twelve", HOSTILE), strict=False):
        assert said.replace("\u202e", "\\u202e") in unescape(page.get(each).text), each
    assert "<script>alert" not in text and "twelve" in words(text.partition("Messages")[2]), "messages, too"


def test_the_other_run_must_be_typed(prices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of(prices)

    def choices(query: str = "") -> list[str]:
        return re.findall(r"/-/diff\?run=([^\"]+)\"", page.get(f"/run/dear/-/compare{query}").text)

    assert "/run/dear/-/compare" in page.get("/run/dear").text
    assert "/run/dear/-/compare" in page.get("/run/dear/-/at/latest").text
    assert choices() == ["left", "cheap"], "the fork first; one that never began has nothing to compare"
    assert "a fork of this run" in page.get("/run/dear/-/compare").text
    assert "this run is its fork" in page.get("/run/left/-/compare").text
    assert choices("?q=cheap") == ["cheap"] and choices("?q=%3Cscript%3E") == []
    assert "<script>" not in page.get("/run/dear/-/compare?q=%3Cscript%3Ealert(1)").text.partition("<main")[2]
    monkeypatch.setattr(reading, "CHOICES", 1)
    assert choices() == ["left"] and choices("?begin=1") == ["cheap"] and choices("?begin=9") == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (768, "dark"), (375, "light")])
def test_a_comparison_or_a_conflict_can_not_be_seen(prices: Path, chrome: Chrome, width: int, scheme: str) -> None:
    """In three columns on a wide screen, one below the other on a narrow one; without obstacles or findings of axe."""
    left = satchel.open(prices / "left")
    old = (prices / "left/todo.md").read_text()
    assert left.resume().status == "completed"
    (prices / "left/todo.md").write_text(old.replace("[ ] two", "[-] two"))
    assert [each.path for each in left.merge().open] == ["todo.md"]
    size = {"width": width, "height": 800}
    with Served(str(prices)) as served, chrome.tab(served.url, viewport=size, color_scheme=scheme) as tab:
        for each in ("dear/-/compare", "dear/-/diff?run=cheap", "dear/-/diff?old=%5E2", "left/-/merge"):
            tab.go(f"/run/{each}")
            assert tab.do(lambda page: page.evaluate("document.documentElement.scrollWidth")) <= width, each
            assert not (found := tab.do(lambda page: page.evaluate(OBSTACLES))), (each, found)
            assert not (found := tab.unfit()), (each, found)
        tops = tab.do(
            lambda page: page.locator(".versions > div").evaluate_all(
                "all => all.map(e => e.getBoundingClientRect().y)"
            )
        )
        assert len(tops) == 3 and len({round(each) for each in tops}) == (1 if width > 900 else 3)
        tab.press("Use the run")
        assert "todo.md: settled" in tab.note and left.merge().open == []
        tab.go("/run/dear")
        tab.follow("Compare with another run")
        tab.follow("cheap")
        tab.until(".sides", "better")
        assert not tab.wrong
    with Served(str(prices)) as served, chrome.tab(served.url, java_script_enabled=False, viewport=size) as tab:
        tab.go("/run/dear/-/compare")
        tab.fill("Search runs", "cheap")
        tab.press("Search")
        tab.follow("cheap")
        tab.do(lambda page: page.locator("a.of-call").first.click())
        tab.until("h2", "price")
