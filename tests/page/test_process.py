"""What the processes of a run have printed, as a tab of its page."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

import satchel
from satchel.runtime.api import Overview
from satchel.runtime.faces.web.site import Site
from satchel.runtime.status import log
from satchel.runtime.supervision.child import LOG

from .conftest import HOSTILE, client, make, root, site
from .test_live import Stream, serving

__all__ = ["client", "root", "site"]

MARK = "==== a process starts, 2026-11-29T08:00:00.000Z ====\n"


def logged(run: Path, text: str) -> Path:
    """The log of a run."""
    path = run / LOG
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_run_without_a_log_says_nothing(client: TestClient) -> None:
    assert "was not started yet" in client.get("/run/fresh/-/process").text
    assert "prints goes to its terminal" in client.get("/run/summer/-/process").text
    found = client.get("/run/typo/-/process")
    assert found.status_code == 422 and "workspace.yaml" in found.text


def test_what_is_printed_is_taken_for_html(client: TestClient, root: Path) -> None:
    logged(root / "summer", f"{MARK}{HOSTILE}\n")
    found = client.get("/run/summer/-/process").text
    assert "<script>alert" not in found and "&lt;script&gt;alert(1)" in found and "\\u202e" in found
    assert '<b class="start">start of a process, <time datetime="2026-11-29T08:00:00' in found


def test_an_earlier_page_can_not_be_reached(client: TestClient, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "PAGE_BYTES", 200)
    logged(root / "letters/spring", "".join(f"line {number}\n" for number in range(1000)))
    newest = client.get("/run/letters/spring/-/process").text
    assert "<span>line 999</span>" in newest and "<span>line 900</span>" not in newest
    place = newest.partition("?before=")[2].partition("#")[0]
    earlier = client.get(f"/run/letters/spring/-/process?before={place}").text
    assert "hx-sse:connect" in newest and "hx-sse:connect" not in earlier
    assert "<span>line 999</span>" not in earlier and ">Later</a>" in earlier
    assert "<span>line 0</span>" in client.get("/run/letters/spring/-/process?after=0").text
    assert "<span>line 999</span>" in client.get("/run/letters/spring/-/process?before=99999999999").text
    assert client.get("/run/letters/spring/-/process?before=-1").status_code == 200


def test_a_browser_does_not_see_what_is_printed(tmp_path: Path) -> None:
    """The state above it changes, too."""
    handle = make(tmp_path / "letters")
    log = logged(tmp_path / "letters", "first\n")
    with serving(Site(Overview(tmp_path))) as port:
        stream = Stream(port, "/run/letters/-/events/process")
        begin = stream.until("first")
        assert 'hx-target="#part-title"' in begin and "new" in begin
        with open(log, "a") as file:
            file.write("<b>second</b>\n")
        assert "<b>second" not in stream.until("second&lt;/b&gt;")
        handle.run()
        stream.until("completed")
        stream.close()


def test_a_tab_of_no_name_has_a_stream(client: TestClient) -> None:
    assert client.get("/run/summer/-/events/passwords").status_code == 404
    assert client.get("/run/nobody/-/events/process").status_code == 404


def test_the_run_that_is_gone_ends_its_stream(tmp_path: Path) -> None:
    """It says what is wrong, and goes on as soon as it can."""
    make(tmp_path / "letters").run()
    log = logged(tmp_path / "letters", "first\n")
    definition = tmp_path / "letters/workspace.yaml"
    with serving(Site(Overview(tmp_path))) as port:
        stream = Stream(port, "/run/letters/-/events/process")
        stream.until("first")
        text = definition.read_text()
        definition.write_text("format: 1\nrunid: x\n")
        stream.until("be read")
        definition.write_text(text)
        log.write_text("second\n")
        stream.until("second")
        stream.close()
    assert satchel.open(tmp_path / "letters").status().state == "completed"
