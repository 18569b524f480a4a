"""A person at the page in a real browser, with and without JavaScript."""

from __future__ import annotations

from pathlib import Path

import pytest
from api.test_answering import GRANTING

pytest.importorskip("playwright", reason="the tests in a browser need playwright")

from .chrome import Chrome, Served, Tab, chrome
from .conftest import make
from .test_changed_arguments import ASKING as MAIL
from .test_revoking import PAYING

__all__ = ["chrome"]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("decision", ["approve", "deny"])
def test_an_answer_or_a_stop_needs_javascript(tmp_path: Path, chrome: Chrome, decision: str) -> None:
    made = make(tmp_path / "runs/a", GRANTING)
    made.run()
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, java_script_enabled=False) as tab:
        tab.go("/")
        tab.do(lambda page: page.get_by_role("link", name="a", exact=True).first.click())
        tab.press(decision)
        assert f"a1 is answered: {decision}" in tab.note
        assert "Emergency stop" not in tab.text, "no process runs it"
        tab.open("Cancel")
        tab.press("Cancel the run for good")
        assert "cancelled" in tab.note
    assert [row.record["decision"] for row in made.history.log(type="approval.answered")] == [decision]
    assert made.status().state == "cancelled"


@pytest.mark.parametrize("java_script_enabled", [True, False])
def test_a_browser_sends_an_argument_otherwise(tmp_path: Path, chrome: Chrome, java_script_enabled: bool) -> None:
    """It changes the line ends of a text that nobody has touched."""
    made = make(tmp_path / "runs/a", MAIL)
    made.run()
    options = {"java_script_enabled": java_script_enabled}
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url, **options) as tab:
        tab.go("/run/a")
        tab.open("Approve with changes")
        tab.fill("copies", "3")
        tab.press("Approve with these changes")
        assert "a1 is answered: approve with copies: 3" in tab.note and not tab.wrong
    assert made.resume().result[1] == {"copies": 3}


@pytest.mark.parametrize("width", [390, 820, 1400])
def test_an_approval_stays_in_force_or_its_button_is_out_of_view(tmp_path: Path, chrome: Chrome, width: int) -> None:
    """It comes into view while a person looks, and its button is in the width of the page."""
    made = make(tmp_path / "runs/a", PAYING.replace("TOOL", repr("a-tool-with-a-long-name" * 9)))
    made.run()
    with (
        Served(str(tmp_path / "runs")) as served,
        chrome.tab(served.url, viewport={"width": width, "height": 900}) as tab,
    ):
        tab.go("/run/a")
        for id in ("a1", "a4", "a5"):
            made.answer("approve", id, standing=True, by="Ada")
            made.run()
        tab.until(".approved tr", "a5, by Ada")
        tab.until(".approved tr", "used 2 times")
        pages, buttons = tab.do(
            lambda page: page.evaluate(
                """[document.documentElement.scrollWidth,
                [...document.querySelectorAll(".approved button")].map((each) => each.getBoundingClientRect().right)]"""
            )
        )
        assert pages <= width and len(buttons) == 3 and max(buttons) < width
        tab.press("Revoke a1")
        assert "a1 is revoked: it counts for no later call." in tab.note and not tab.wrong
        assert "Revoke a4" in tab.text and "Revoke a1" not in tab.text
    assert [*made.status().approved] == ["a4", "a5"]


def test_the_keyboard_alone_can_not_answer_or_stop(tmp_path: Path, chrome: Chrome) -> None:
    made = make(tmp_path / "runs/a", GRANTING)
    made.run()

    def reach(tab: Tab, name: str) -> None:
        """Press Tab until the focus is there."""
        for _ in range(60):
            tab.do(lambda page: page.keyboard.press("Tab"))
            if tab.do(lambda page: page.evaluate("document.activeElement.innerText")).strip() == name:
                return
        raise AssertionError(f"no key leads to {name}")

    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:
        tab.go("/run/a")
        reach(tab, "approve")
        tab.do(lambda page: page.keyboard.press("Enter"))
        tab.until("#note", "answered: approve")
        reach(tab, "Pause")
        tab.do(lambda page: page.keyboard.press("Enter"))
        reach(tab, "Pause the run")
        tab.do(lambda page: page.keyboard.press("Enter"))
        tab.until("#note", "Pause: ")
    assert [*made.history.log(type="approval.answered")] and (tmp_path / "runs/a/pause.yaml").exists()


def test_a_form_is_lost_with_the_page(tmp_path: Path, chrome: Chrome) -> None:
    made = make(tmp_path / "runs/a", GRANTING)
    made.run()
    with Served(str(tmp_path / "runs")) as served, chrome.tab(served.url) as tab:
        tab.go("/run/a")
        tab.fill("What to do", 'a "long" text\nof <two> lines')
        served.end()
        served.start()
        tab.press("Send as a task")
        assert "restarted" in tab.text
        tab.press("Send it again")
        assert "The task is in inbox/" in tab.note
    (task,) = (tmp_path / "runs/a/inbox").iterdir()
    assert task.read_text() == 'a "long" text\nof <two> lines\n'


def test_a_token_does_not_open_the_page(tmp_path: Path, chrome: Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "runs/a", GRANTING).run()
    environment = {"SATCHEL_PAGE_TOKEN": "correct-horse-battery"}
    with Served(str(tmp_path / "runs"), environment) as served, chrome.tab(served.url) as tab:
        tab.go("/run/a")
        assert "May I" not in tab.text and "Grant?" not in tab.text
        tab.fill("Token", "wrong")
        tab.press("Open")
        assert "That is not the token" in tab.text
        tab.fill("Token", "correct-horse-battery")
        tab.press("Open")
        assert "Grant?" in tab.text
        tab.press("deny")
        assert "answered: deny" in tab.note and not tab.wrong
    with Served(str(tmp_path / "runs"), environment) as served, chrome.tab(served.url) as tab:
        tab.go("/run/a?token=correct-horse-battery")
        assert tab.url == f"{served.url}/run/a" and "waiting" in tab.text
