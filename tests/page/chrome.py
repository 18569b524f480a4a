"""A real Chromium for the tests, and `satchel page` in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pytest
from waits import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

T = TypeVar("T")

_WATCH = """
addEventListener("securitypolicyviolation",
  (event) => console.error("CSP: " + event.violatedDirective + " " + event.blockedURI));
"""


class Chrome:
    """One browser for all tests of a process. Playwright keeps an event loop running, so it has a thread of its own."""

    def __init__(self, program: str):
        self._thread = ThreadPoolExecutor(1, "chromium")
        self._stop: Callable[[], None] = lambda: None
        self._browser: Browser | None = None
        self.do(lambda: self._start(program))

    def do(self, call: Callable[[], T]) -> T:
        """Call something in the thread of the browser."""
        return self._thread.submit(call).result()

    def _start(self, program: str) -> None:
        from playwright.sync_api import sync_playwright

        playwright = sync_playwright().start()
        self._stop = playwright.stop
        self._browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )

    def close(self) -> None:
        assert self._browser
        self.do(self._browser.close)
        self.do(self._stop)
        self._thread.shutdown()

    @contextmanager
    def tab(self, base: str, **options: Any) -> Iterator[Tab]:
        """A tab of a new profile. `options` are those of Playwright's `new_context`."""
        assert self._browser
        context = self.do(lambda: self._browser.new_context(base_url=base, **options))  # type: ignore[union-attr]
        try:
            yield self.do(lambda: Tab(self, context.new_page()))
        finally:
            self.do(context.close)


class Tab:
    """A page of the browser, from the thread of the test."""

    def __init__(self, chrome: Chrome, page: Page):
        self._chrome, self.page = chrome, page
        self.wrong: list[str] = []
        """What a script of a stranger, or one that the policy forbids, has done: dialogs, errors, other requests."""
        page.set_default_timeout(PATIENCE * 1000)
        page.add_init_script(_WATCH)
        page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("console", lambda line: self.wrong.append(line.text) if _is_wrong(line.text) else None)
        page.on("request", self._request)

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "blob:", "data:")):
            self.wrong.append(f"request: {request.url}")

    def do(self, call: Callable[[Page], T]) -> T:
        return self._chrome.do(lambda: call(self.page))

    def go(self, path: str) -> None:
        self.do(lambda page: page.goto(path, wait_until="load"))

    @property
    def url(self) -> str:
        return self.do(lambda page: page.url)

    @property
    def text(self) -> str:
        """What a person reads."""
        return self.do(lambda page: page.locator("body").inner_text())

    @property
    def note(self) -> str:
        """What the page says about the act before."""
        return self.do(lambda page: page.locator("#note").inner_text())

    def open(self, summary: str) -> None:
        """Open the form behind a word."""
        self.do(lambda page: page.locator("summary", has_text=re.compile(f"^{summary}$")).click())

    def press(self, button: str) -> None:
        """A button that sends a form. Returns when the next page is there."""

        def press(page: Page) -> None:
            with page.expect_navigation(wait_until="load"):
                page.get_by_role("button", name=button, exact=True).first.click()

        self.do(press)

    def follow(self, link: str) -> None:
        """A link. Returns when the next page is there."""

        def follow(page: Page) -> None:
            with page.expect_navigation(wait_until="load"):
                page.get_by_role("link", name=link, exact=True).first.click()

        self.do(follow)

    def check(self, label: str) -> None:
        """Tick a box."""
        self.do(lambda page: page.get_by_label(label).filter(visible=True).first.check())

    def fill(self, label: str, text: str) -> None:
        self.do(lambda page: page.get_by_label(label).filter(visible=True).first.fill(text))

    def value(self, label: str) -> str:
        return self.do(lambda page: page.get_by_label(label).filter(visible=True).first.input_value())

    def unfit(self) -> list[str]:
        """What axe-core finds that people with a screen reader, a keyboard or weak eyes can't use."""
        axe = pytest.importorskip("axe_playwright_python", reason="needs axe-core")
        script = Path(axe.__file__).with_name("axe.min.js").read_text()
        self.do(lambda page: page.evaluate(script))
        found = self.do(lambda page: page.evaluate("axe.run()"))["violations"]
        return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]

    def until(self, selector: str, text: str = "") -> None:
        """Something comes into view, with this text in it."""

        def wait(page: Page) -> None:
            found: Locator = page.locator(selector)
            (found.filter(has_text=text) if text else found).first.wait_for()

        try:
            self.do(wait)
        except Exception as error:
            raise AssertionError(f"{selector} {text!r} never came into view:\n{self.text}\n{self.wrong}") from error


def _is_wrong(line: str) -> bool:
    return "CSP" in line or "Content Security Policy" in line or "hacked" in line


def _drain(said: IO[str]) -> None:
    """Read what a process says to its end, so that it never blocks. pytest shows it if the test fails."""
    with said:
        print("the page said:", said.read())


@pytest.fixture(scope="session")
def chrome() -> Iterator[Chrome]:
    pytest.importorskip("playwright", reason="the tests in a browser need playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("there is no Chromium")
    found = Chrome(program)
    try:
        yield found
    finally:
        found.close()


class Served:
    """`satchel page` of a root. It can be killed and started again at the same port."""

    def __init__(self, root: str, environment: dict[str, str] | None = None):
        self._root, self._environment = root, {**os.environ, **(environment or {})}
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "satchel", "page", self._root, "--listen", str(self.port)],
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert self.process.stderr
        said = ""
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)/", said)):
            line = self.process.stderr.readline()
            assert line, f"the page does not start: {said}"
            said += line
        self.port = int(found[1])
        self._reader = threading.Thread(target=_drain, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def end(self, signal_: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(signal_)
            self.process.wait(PATIENCE)
            self._reader.join(PATIENCE)
            self.process = None

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGKILL)
