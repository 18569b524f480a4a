"""The list: which runs, in which order, acts on those that are ticked, and rows that come while the others are read."""

from __future__ import annotations

import html
import json
import re
import threading
from pathlib import Path

import pytest
from api.test_answering import GRANTING
from starlette.testclient import TestClient

import satchel
from satchel import Handle
from satchel.runtime.api import Overview
from satchel.runtime.faces.web import listing
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site
from satchel.runtime.status import overview
from satchel.workspace.base import StorageFailed

from .conftest import make
from .test_reading import rows

SPENDING = """
from satchel import agent, step

@step
def shout(text: str) -> str:
    return text.upper()

@agent
async def main(run):
    await run.scope("one", shout, "a")
    run.spend(usd=USD)
"""

FAMILY = """
from satchel import Run, agent

@agent
async def leaf(run: Run, name: str):
    return name

@agent
async def middle(run: Run, name: str):
    return await run.spawn(leaf, "deep", name)

@agent
async def main(run: Run):
    await run.spawn(middle, "left", "a")
    await run.spawn(leaf, "right", "b")
"""

HEADERS = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}


def client_of(root: Path) -> tuple[Site, TestClient]:
    site = Site(Overview(root))
    site.runs(patience=None)
    return site, TestClient(make_app(site), base_url="http://127.0.0.1", headers=HEADERS)


def hidden(text: str) -> dict[str, str]:
    """The fields of the form that acts."""
    form = text[text.index('action="/-/act/many"') :]
    return {name: html.unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="(.*?)"', form)}


@pytest.fixture
def priced(tmp_path: Path) -> TestClient:
    for name, usd in (("cheap", "0.25"), ("dear", "3.0"), ("middling", "1.0")):
        make(tmp_path / name, SPENDING.replace("USD", usd)).run()
    make(tmp_path / "free")
    return client_of(tmp_path)[1]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("sort=spent", ["dear", "middling", "cheap", "free"]),
        ("sort=-spent", ["cheap", "middling", "dear", "free"]),
        ("sort=run", ["cheap", "dear", "free", "middling"]),
        ("sort=-run", ["middling", "free", "dear", "cheap"]),
        ("sort=run&usd=1", ["dear", "middling"]),
        ("sort=run&state=new&state=completed", ["cheap", "dear", "free", "middling"]),
        ("sort=run&since=1d", ["cheap", "dear", "middling"]),
        ("sort=run&age=before%3D1d", []),
        ("sort=run&agent=agent.py:*&q=dear", ["dear"]),
    ],
)
def test_the_list_is_in_another_order_or_has_others(priced: TestClient, query: str, found: list[str]) -> None:
    assert rows(priced.get(f"/?{query}").text) == found


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("query", ["sort=price", "state=runing", "since=soon", "usd=much", "usd=nan"])
def test_a_mistyped_link_shows_other_runs(priced: TestClient, query: str) -> None:
    assert priced.get(f"/?{query}").status_code == priced.get(f"/-/events?{query}").status_code == 400


def test_a_link_to_a_view_has_what_it_does_not_say(priced: TestClient) -> None:
    """A form sends its empty fields; a heading keeps what is filtered, and turns the order round."""
    answer = priced.get("/?q=&agent=&usd=1&age=since%3D1d&sort=spent", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?usd=1&since=1d&sort=spent")
    text = priced.get("/?usd=1&sort=spent").text
    assert 'href="/?usd=1&amp;sort=-spent"' in text and 'href="/?usd=1&amp;sort=run"' in text
    assert 'aria-sort="descending"' in text and 'hx-sse:connect="/-/events?usd=1&amp;sort=spent"' in text
    assert "/?state=completed&usd=1&sort=spent" in html.unescape(text)


def test_sub_agents_are_a_flat_list_or_lead_nowhere(tmp_path: Path) -> None:
    make(tmp_path / "family", FAMILY).run()
    _, client = client_of(tmp_path)
    text = client.get("/").text
    assert "<summary>3 sub-agents</summary>" in text
    links = re.findall(r'href="(/run/family/-/at/latest\?agent=[^"]+)">(\w+)<', text)
    assert [name for _, name in links] == ["left", "deep", "right"]
    left, deep, right = (text.index(f">{name}</a>") for name in ("left", "deep", "right"))
    assert "<ul>" in text[left:deep] and "</ul>" in text[deep:right], "each is below its parent"
    assert "left/deep" in client.get(links[1][0]).text


def test_an_act_on_many_hides_what_became_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One fails in the middle. The others are paused, and the list says which is which."""
    for name in ("a", "b", "c"):
        make(tmp_path / name, GRANTING).run()
    make(tmp_path / "done").run()
    _, client = client_of(tmp_path)
    shown = client.get("/-/many?do=pause&run=a&run=b&run=c&run=done&run=gone&sort=run")
    assert "Pause 3 runs" in shown.text and "done (completed)" in shown.text and "1 of those" in shown.text
    form = hidden(shown.text)
    assert json.loads(form["runs"]) == ["a", "b", "c"] and form["back"] == "/?sort=run"

    real = Handle.pause

    def pause(handle: Handle, **how: str) -> object:
        if handle.url.endswith("/b"):
            raise StorageFailed("the disk is full", path=handle.url)
        return real(handle, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Handle, "pause", pause)
    answer = client.post("/-/act/many", data={**form, "reason": "a <b>holiday</b>"})
    assert answer.url.path == "/" and answer.url.query.startswith(b"sort=run&note=")
    note = answer.text[answer.text.index('id="note"') : answer.text.index("</div>", answer.text.index('id="note"'))]
    said = re.findall(r"<p>(.*?)</p>", note)
    assert said[0] == "Pause of 3 runs: 1 failed; 2 done." and said[1].startswith("b: ") and "disk is full" in said[1]
    assert [line[:2] for line in said[2:]] == ["a:", "c:"]
    states = {name: satchel.open(tmp_path / name).status().state for name in ("a", "b", "c")}
    assert states == {"a": "paused", "b": "waiting", "c": "paused"}
    assert "a <b>holiday</b>" in (tmp_path / "a/pause.yaml").read_text()


def test_all_means_more_than_the_list_shows(priced: TestClient) -> None:
    """`all` is all that the view asks for, on every page of it."""
    form = hidden(priced.get("/-/many?do=prune&all=yes&usd=1&sort=spent").text)
    assert json.loads(form["runs"]) == ["dear", "middling"]


@pytest.mark.parametrize("order", [["cheap", "dear"], ["dear", "cheap"]])
def test_two_ticked_runs_are_not_compared(priced: TestClient, order: list[str]) -> None:
    """The one that was active last is the second side."""
    query = "&".join(f"run={name}" for name in order)
    found = priced.get(f"/-/many?do=compare&{query}")
    assert str(found.url).endswith("/run/cheap/-/diff?run=dear") and found.status_code == 200
    assert "$0.25" in found.text and "$3.00" in found.text
    for wrong in ("", "run=cheap", "run=cheap&run=cheap", f"{query}&run=free"):
        found = priced.get(f"/-/many?do=compare&{wrong}")
        assert found.status_code == 400 and "tick two" in found.text.lower()
    assert priced.get("/-/many?do=compare&run=cheap&run=nowhere").status_code == 404


def test_an_act_on_many_needs_no_form_token_or_runs(tmp_path: Path) -> None:
    make(tmp_path / "a", GRANTING).run()
    _, client = client_of(tmp_path)
    form = hidden(client.get("/-/many?do=cancel&run=a").text)
    assert client.post("/-/act/many", data={**form, "form_token": "guessed"}).status_code == 403
    assert client.post("/-/act/many", data=form, headers={"origin": "http://evil.example"}).status_code == 403
    for runs in ("[]", "{", '"a"', "[1]"):
        assert client.post("/-/act/many", data={**form, "runs": runs}).status_code == 422
    assert client.post("/-/act/many", data={**form, "do": "stop"}).status_code == 400
    assert satchel.open(tmp_path / "a").status().state == "waiting", "nothing was cancelled"
    sent = client.post("/-/act/many", data={**form, "back": "//evil.example/"}, follow_redirects=False)
    assert sent.headers["location"].startswith("/?note="), "it leads to another site"
    assert satchel.open(tmp_path / "a").status().state == "cancelled"


def test_too_many_are_started_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(listing.MANY, "resume", listing.MANY["resume"]._replace(most=1))
    for name in ("a", "b"):
        make(tmp_path / name)
    _, client = client_of(tmp_path)
    shown = client.get("/-/many?do=resume&all=yes")
    assert shown.status_code == 422 and "these are 2 runs" in shown.text and "/-/act/many" not in shown.text


def test_the_first_page_waits_until_all_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first rows are shown with how many are to come, and nothing says yet how many `all` are."""
    for number in range(4):
        make(tmp_path / f"run-{number}")
    gate, real, read = threading.Event(), overview.look_at, list[str]()

    def looking(place: str) -> satchel.RunStatus:
        if len(read) == 2:
            gate.wait()
        read.append(place)
        return real(place)

    monkeypatch.setattr(overview, "look_at", looking)
    monkeypatch.setattr(overview, "_SHOWN_EVERY", 0.0)
    site = Site(Overview(tmp_path))
    client = TestClient(make_app(site), base_url="http://127.0.0.1")
    try:
        text = client.get("/").text
        while "2 of 4 runs are read" not in text:
            text = client.get("/").text
        assert "The runs are still being read" in client.get("/-/stop-all").text, "it names a part of what it kills"
        assert len(rows(text)) == 2 and 'http-equiv="refresh"' in text and 'name="all"' not in text
    finally:
        gate.set()
    site.runs(patience=None)
    assert len(rows(client.get("/").text)) == 4
