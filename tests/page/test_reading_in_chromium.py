"""What changes under the eyes of a person, in a real browser."""

from __future__ import annotations

import asyncio
import http.client
import threading
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from api.test_answering import GRANTING
from api.test_withdrawing import Gated

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

from satchel import Item, Partial, Run, agent, step
from satchel.runtime.faces.web import live
from satchel.workspace.base import moment_of

from .chrome import Chrome, Served, chrome
from .conftest import make

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["chrome"]

pytestmark = pytest.mark.slow


def test_a_page_stays_as_it_was_loaded(tmp_path: Path, chrome: Chrome) -> None:
    """Text comes as it is streamed, items are ticked, a search stays, and what a person types is not lost."""
    make(tmp_path / "runs/other", GRANTING).run()
    made = make(tmp_path / "runs/research")
    gates = [threading.Event(), threading.Event()]

    @step
    async def think(text: str, out: Partial) -> str:
        await out.write("the first words, ")
        await asyncio.to_thread(gates[0].wait, 60)
        while not gates[1].is_set():  # each write may bring what the one before has left
            await out.write("the second ones, ")
            await asyncio.sleep(0.1)
        return out.text

    async def work(run: Run, item: Item) -> None:
        await think(item.text)

    @agent
    async def main(run: Run) -> None:
        await run.plan("Research", ["read it", "tell it"])
        await run.todo.each(work)

    thread = threading.Thread(target=made.run, args=(main,))
    thread.start()
    try:
        with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab, chrome.tab(served.url) as other:
            other.go("/")
            other.do(lambda page: page.get_by_role("searchbox").fill("research"))
            other.do(lambda page: page.locator(".runs tbody tr").nth(1).wait_for(state="detached"))
            tab.go("/run/research")
            tab.until(".stream .text", "the first words")
            tab.fill("What to do", "half of a sentence")
            gates[0].set()
            tab.until(".stream .text", "the second ones")
            gates[1].set()
            tab.until(".status", "completed")
            tab.do(lambda page: page.locator(".items .done").nth(1).wait_for())
            assert tab.do(lambda page: page.get_by_label("What to do").input_value()) == "half of a sentence"
            other.until(".runs", "completed")
            assert other.do(lambda page: page.locator(".runs tbody tr").count()) == 1

            served.end()
            tab.do(lambda page: page.locator("#offline").wait_for(state="visible"))
            served.start()
            tab.do(lambda page: page.locator("#offline").wait_for(state="hidden"))
            assert not tab.wrong or all("ERR_" in each or "Failed to" in each for each in tab.wrong), tab.wrong
    finally:
        for gate in gates:
            gate.set()
        thread.join(60)


# Where a line of a streamed text is, relative to the box that shows the text; and which lines are seen in it whole
PLACE = """line => {
  const spans = [...document.querySelectorAll('.stream .text span')], box = document.querySelector('.stream .text');
  const found = spans.find(each => each.textContent.trim() === line);
  return found && Math.round(found.getBoundingClientRect().top - box.getBoundingClientRect().top);
}"""
SEEN = """() => {
  const { top, bottom } = document.querySelector('.stream .text').getBoundingClientRect();
  const spans = [...document.querySelectorAll('.stream .text span')].map(each => [each, each.getBoundingClientRect()]);
  const seen = spans.filter(([, at]) => at.top >= top && at.bottom <= bottom);
  return seen.sort(([, one], [, other]) => one.top - other.top).map(([each]) => each.textContent.trim());
}"""

SCROLLED = """() => {
  const box = document.querySelector('.stream .text');
  window.scrolled = new Promise(done => box.addEventListener('scrollend', () => done(true), { once: true }));
}"""


def test_streamed_lines_are_upside_down_or_jump(tmp_path: Path, chrome: Chrome) -> None:
    """A reader at the end sees the newest line. One who has scrolled up keeps the place, also when the text gets longer
    than the page shows and loses its beginning."""
    made = make(tmp_path / "runs/research")
    parts = [range(3), range(3, 60), range(60, 90), range(90, 480), range(480, 490)]
    gates = [threading.Event() for _ in parts]

    @step
    async def think(text: str, out: Partial) -> str:
        for part, gate in zip(parts, gates, strict=True):
            for number in part:
                await out.write(f"line {number}\n")
            while not gate.is_set():  # each write may bring what the one before has left
                await out.write("")
                await asyncio.sleep(0.05)
        return out.text

    async def work(run: Run, item: Item) -> None:
        await think(item.text)

    @agent
    async def main(run: Run) -> None:
        await run.plan("Research", ["read it"])
        await run.todo.each(work)

    thread = threading.Thread(target=made.run, args=(main,))
    thread.start()
    try:
        with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:

            def place(line: int) -> int:
                found: int = tab.do(lambda page: page.evaluate(PLACE, f"line {line}"))
                return found

            def seen() -> list[str]:
                found: list[str] = tab.do(lambda page: page.evaluate(SEEN))
                return found

            def scroll(by: int) -> None:
                """As a person does, with the wheel."""

                def wheel(page: Page) -> None:
                    page.evaluate(SCROLLED)
                    page.locator(".stream .text").hover()
                    page.mouse.wheel(0, by)
                    page.evaluate("() => window.scrolled")

                tab.do(wheel)

            tab.go("/run/research")
            tab.until(".stream .text", "line 2")
            assert seen() == ["line 0", "line 1", "line 2"]

            gates[0].set()
            tab.until(".stream .text", "line 59")
            assert seen()[-3:] == ["line 57", "line 58", "line 59"], "the newest line is not in view"

            scroll(-300)
            before, line = seen(), int(seen()[0].split()[1])
            assert line < 45, "the reader has scrolled up"
            at = place(line)
            gates[1].set()
            tab.until(".stream .text", "line 89")
            assert (seen(), place(line)) == (before, at), "the reader has lost the place"
            gates[2].set()
            tab.until(".stream .text", "line 479")
            assert "line 1\n" not in tab.text, "the text is as long as before"
            assert (seen(), place(line)) == (before, at), "the reader has lost the place"

            scroll(100_000)
            gates[3].set()
            tab.until(".stream .text", "line 489")
            assert seen()[-3:] == ["line 487", "line 488", "line 489"], "the newest line is not in view"
            assert not tab.wrong
    finally:
        for gate in gates:
            gate.set()
        thread.join(60)


FIRST = ".events li:last-child time"


def test_a_time_is_not_that_of_the_person(tmp_path: Path, chrome: Chrome) -> None:
    made, gated = make(tmp_path / "runs/a"), Gated()
    zone = ZoneInfo("Asia/Kolkata")
    with Served(str(tmp_path / "runs")) as served, gated.going(made):
        begun = moment_of(next(made.history.log()).line.at)
        assert begun
        utc, there = f"{begun:%Y-%m-%d %H:%M:%S} UTC", f"{begun.astimezone(zone):%H:%M:%S} GMT+5:30"
        day = f"{begun.astimezone(zone):%Y-%m-%d}"

        with (
            chrome.tab(served.url, timezone_id="Asia/Kolkata") as tab,
            chrome.tab(served.url, timezone_id="Asia/Kolkata") as later,
        ):
            tab.do(lambda page: page.clock.set_fixed_time(begun))
            later.do(lambda page: page.clock.set_fixed_time(begun + timedelta(days=2)))
            for each, shown in ((tab, there), (later, f"{day} {there}")):
                each.go("/run/a")
                each.until(FIRST, shown)
                assert each.do(lambda page: page.locator(FIRST).inner_text()) == shown
                assert each.do(lambda page: page.locator(FIRST).get_attribute("title")) == utc
                said = each.do(lambda page: page.locator(".status").inner_text())
                assert "since" in said and "GMT+5:30" in said and "UTC" not in said
            for gate in gated.gates.values():
                gate.set()
            tab.until(".state", "completed")
            assert tab.do(lambda page: page.locator(FIRST).inner_text()) == there, "a change brings UTC back"
        with chrome.tab(served.url, java_script_enabled=False) as tab:
            tab.go("/run/a")
            assert " UTC" in tab.do(lambda page: page.locator(FIRST).inner_text())


def test_a_form_that_is_open_becomes_another_one(tmp_path: Path, chrome: Chrome) -> None:
    made, gated = make(tmp_path / "runs/a"), Gated()

    def opened(page: Page) -> list[str]:
        return page.locator("details.act[open] > summary").all_inner_texts()

    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:
        tab.go("/run/a")
        tab.open("Start")
        assert tab.do(opened) == ["Start"]
        with gated.going(made):  # by another person: the form is of no use any more
            tab.until(".state", "running")
            assert tab.do(opened) == []
            tab.open("Cancel")
        tab.until(".state", "completed")  # the forms before it are gone, and so is it
        assert tab.do(opened) == []


def test_a_page_that_gets_no_stream_seems_to_be_live(tmp_path: Path, chrome: Chrome) -> None:
    make(tmp_path / "runs/a").run()
    with Served(str(tmp_path / "runs")) as served, ExitStack() as stack:
        connections = [http.client.HTTPConnection("127.0.0.1", served.port) for _ in range(live.STREAMS)]
        for each in connections:
            stack.callback(each.close)
            each.request("GET", "/-/events")
            assert each.getresponse().status == 200
        with chrome.tab(served.url) as tab:
            for path in ("/run/a", "/"):
                tab.go(path)
                tab.do(lambda page: page.locator("#crowded").wait_for(state="visible"))
                assert "Too many pages are open" in tab.text and "lost its server" not in tab.text
            for each in connections:
                each.close()
            tab.go("/run/a")
            tab.until(".state", "completed")
            assert "Too many" not in tab.text


def test_tabs_in_the_background_take_all_connections(tmp_path: Path, chrome: Chrome) -> None:
    """A browser has six connections to a server."""
    make(tmp_path / "runs/a", GRANTING).run()

    def open_eight(page: Page) -> None:
        page.context.add_init_script("Object.defineProperty(document, 'hidden', {get: () => true})")
        for _ in range(8):
            page.context.new_page().goto("/run/a", wait_until="load")

    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:
        tab.do(open_eight)
        tab.go("/run/a")


# What a person without a mouse, without eyes, or in bright light stumbles over
OBSTACLES = """() => {
  const found = [], all = (selector) => [...document.querySelectorAll(selector)];
  const say = (what, each) => found.push(what + ': ' + each.outerHTML.slice(0, 120));
  for (const each of all('details')) each.open = true;
  for (const each of all('input:not([type=hidden]), select, textarea')) if (!each.labels.length) say('no label', each);
  for (const each of all('button, a[href], summary')) if (!each.textContent.trim()) say('no name', each);
  for (const each of all('nav, aside, main section'))
    if (!each.ariaLabel && !each.getAttribute('aria-labelledby') && !each.querySelector('h1, h2, p'))
      say('unnamed', each);
  const ids = all('[id]').map(each => each.id);
  if (new Set(ids).size < ids.length) found.push('an id twice: ' + ids);
  for (const name of ['aria-labelledby', 'aria-describedby', 'for'])
    for (const each of all(`[${name}]`)) if (!ids.includes(each.getAttribute(name))) say('leads nowhere', each);
  const levels = all('h1, h2, h3, h4').map(each => +each.tagName[1]);
  if (levels.filter(each => each === 1).length !== 1) found.push('headings: ' + levels);
  levels.reduce((last, each) => (each > last + 1 && found.push('headings: ' + levels), each), 0);
  for (const each of ['main', 'body > header', 'body > footer', 'h1']) if (all(each).length !== 1) found.push(each);
  const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => parts(colour).slice(0, 3).map(each => each / 255)
    .map(each => each <= .03928 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4)
    .reduce((sum, each, index) => sum + each * [.2126, .7152, .0722][index], 0);
  const behind = (each) => {
    for (; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (parts(colour).length < 4 || parts(colour)[3] > 0) return light(colour);
    }
  };
  const ratio = (one, other) => (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const each = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !each.checkVisibility()) continue;
    if (ratio(light(getComputedStyle(each).color), behind(each)) < 4.5) say('faint', each);
  }
  for (const each of all('input:not([type=hidden]):not([type=checkbox]), select, textarea'))
    if (ratio(light(getComputedStyle(each).borderTopColor), behind(each.parentElement)) < 3) say('faint edge', each);
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_has_obstacles(tmp_path: Path, chrome: Chrome, scheme: str) -> None:
    made = make(tmp_path / "runs/waiting", GRANTING)
    made.run()
    made.answer("approve")
    made.run()  # it asks for a value with a schema now
    make(tmp_path / "runs/completed").run()
    held = make(tmp_path / "runs/held", GRANTING)
    held.run()
    held.pause(reason="lunch")
    (tmp_path / "runs/typo").mkdir()
    (tmp_path / "runs/typo/workspace.yaml").write_text("format: 1\nrunid: typo\n")
    below = (
        "log",
        "at/latest",
        "plan",
        "messages",
        "messages?q=a",
        "blame",
        "diff?old=3",
        "back/4",
        "redo/^1",
        "edit?file=todo.md",
        "files",
    )
    many = "/-/many?do=cancel&all=yes"
    paths = [
        "/",
        "/?q=none",
        "/?sort=-spent&since=1d",
        many,
        "/run/nowhere",
        *(f"/run/{name}" for name in ("waiting", "held", "typo", "completed")),
    ]
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, color_scheme=scheme) as tab:
        for path in (*paths, *(f"/run/completed/-/{each}" for each in below)):
            tab.go(path)
            assert not (found := tab.do(lambda page: page.evaluate(OBSTACLES))), (path, found)


# Whether all lines of a label are at the right of its box, and the first one is on its height
BOXES = """[...document.querySelectorAll('label > [type=checkbox]')].map(box => {
  const range = document.createRange();
  range.selectNode(box.nextSibling);
  const [first, ...more] = range.getClientRects(), at = box.getBoundingClientRect(), middle = (at.top + at.bottom) / 2;
  return [first, ...more].every(each => each.left >= at.right) && first.top <= middle && middle <= first.bottom;
})"""


@pytest.mark.parametrize("width", [375, 768, 1280])
def test_a_page_is_wider_than_its_window(tmp_path: Path, chrome: Chrome, width: int) -> None:
    make(tmp_path / "runs/a-run-with-quite-a-long-name", GRANTING.replace("Grant?", "x" * 200)).run()
    below = "/run/a-run-with-quite-a-long-name"
    size = {"width": width, "height": 800}
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, viewport=size, color_scheme="dark") as tab:
        for path in (
            "/",
            below,
            *(
                f"{below}/-/{each}"
                for each in ("plan", "log", "at/latest", "diff?old=4", "at/999", "blame", "messages", "back/4")
            ),
        ):
            tab.go(path)
            assert tab.do(lambda page: page.evaluate("document.documentElement.scrollWidth")) <= width, path
        boxes = tab.do(lambda page: page.evaluate(BOXES))
        assert boxes and all(boxes), "a label is below its box"
        assert not tab.wrong


BOOKING = """
from satchel import agent, effect

@effect
async def book(to: str) -> str:
    return "a receipt"

async def work(run, item):
    await book("ada")
    raise LookupError("stopped")

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Flights", ["one"])
    await run.todo.each(work)
"""

# Whether what each answer means begins at the right of its button, on its height
MEANINGS = """[...document.querySelectorAll('.choices button')].map(button => {
  const [said] = button.nextElementSibling.getClientRects(), at = button.getBoundingClientRect();
  return said.left >= at.right && said.top < at.bottom && said.bottom > at.top;
})"""


@pytest.mark.parametrize("width", [375, 1000])
def test_the_meaning_of_an_answer_is_beside_the_button_of_another(tmp_path: Path, chrome: Chrome, width: int) -> None:
    made = make(tmp_path / "runs/flights", BOOKING)
    assert made.run().status == "failed"
    (tmp_path / "runs/flights/agent.py").write_text(BOOKING.replace("book", "charge"))
    assert made.resume().status == "waiting"
    size = {"width": width, "height": 800}
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, viewport=size) as tab:
        tab.go("/run/flights")
        assert tab.do(lambda page: page.evaluate(MEANINGS)) == [True, True, True]
        assert tab.do(lambda page: page.evaluate("document.documentElement.scrollWidth")) <= width


def test_a_message_that_comes_closes_what_was_opened(tmp_path: Path, chrome: Chrome) -> None:
    """A person at the end of a conversation stays there, one who has scrolled up keeps the place, and a value that was
    opened in part stays open."""
    made = make(tmp_path / "runs/letters")
    gates = [threading.Event(), threading.Event()]

    async def say(run: Run, number: int) -> None:
        run.messages.add("tool", {"rows": [{"n": each} for each in range(100)], "of": number})
        for line in range(20):
            run.messages.add("user", f"line {line} of {number}. " + "word " * 60)

    @agent
    async def main(run: Run) -> None:
        await run.scope("first", say, run, 0)
        for number, gate in enumerate(gates, 1):
            await asyncio.to_thread(gate.wait, 60)
            await run.scope(f"s{number}", say, run, number)

    thread = threading.Thread(target=made.run, args=(main,))
    thread.start()
    try:
        with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:
            tab.go("/run/letters/-/messages")
            if "line 19 of 0" not in tab.text:
                tab.until(".messages li", "line 19 of 0")
            tab.do(lambda page: page.locator("details.tool > summary").first.click())
            tab.do(lambda page: page.locator(".folded summary", has_text="rows").first.click())
            tab.do(lambda page: page.locator(".messages .more a").filter(visible=True).first.click())
            tab.until("details[open] code", '"n": 90')
            tab.do(lambda page: page.evaluate("scrollTo(0, 0)"))
            gates[0].set()
            tab.do(lambda page: page.locator(".messages li", has_text="line 19 of 1").wait_for(state="attached"))
            tab.until("details[open] code", '"n": 90')
            assert tab.do(lambda page: page.evaluate("scrollY")) < 50, "the reader keeps the place"
            tab.do(lambda page: page.evaluate("scrollTo(0, document.documentElement.scrollHeight)"))
            gates[1].set()
            tab.do(lambda page: page.locator(".messages li", has_text="line 19 of 2").wait_for(state="attached"))
            at_end = "document.documentElement.scrollHeight - scrollY - innerHeight < 60"
            tab.do(lambda page: page.wait_for_function(at_end))
            tab.until(".state", "completed")
            assert not tab.unfit() and not tab.wrong
    finally:
        for gate in gates:
            gate.set()
        thread.join(60)
    assert not thread.is_alive()
