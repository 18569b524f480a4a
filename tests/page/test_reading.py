"""The list of all runs, and what an error looks like."""

from __future__ import annotations

import re
import shutil
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from cli.conftest import PLAIN, Cli
from starlette.testclient import TestClient

import satchel
from satchel.runtime.api import Overview, RunStatus
from satchel.runtime.faces import web
from satchel.runtime.faces.web import site as site_module
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site, coded
from satchel.runtime.status.run_status import Scheduled

from .conftest import HOSTILE, make

PACKAGE = Path(__file__).parents[2]


def rows(text: str) -> list[str]:
    return [re.sub(r"<.*?>", "", each) for each in re.findall(r'<th scope="row">(.*?)</a>', text)]


def test_a_run_is_missing_in_the_list(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    assert rows(answer.text) == ["hostile", "letters/spring", "typo", "fresh", "summer"], "who needs a person is first"
    assert "2<span" in answer.text and "damaged" in answer.text and "completed" in answer.text
    assert "needs you <b>3</b>" in answer.text
    assert 'href="/run/letters/spring"' in answer.text and 'lang="en"' in answer.text


def test_the_list_hides_why_a_run_stands_still_or_that_it_is_there_twice(tmp_path: Path) -> None:
    failing = make(tmp_path / "failing", PLAIN.replace("text.upper()", "text.no_such_method()"))
    failing.run()
    shutil.copytree(tmp_path / "failing", tmp_path / "copy")
    client = TestClient(make_app(Site(Overview(tmp_path))), base_url="http://127.0.0.1")
    text = client.get("/").text
    assert text.count("no_such_method") == 2
    assert f"also that of {tmp_path}/copy" in text and f"also that of {tmp_path}/failing" in text


def test_the_list_or_the_page_of_a_run_hides_its_group_and_priority(tmp_path: Path) -> None:
    make(tmp_path / "urgent", PLAIN, "group: customer-a\npriority: 10\n")
    client = TestClient(make_app(Site(Overview(tmp_path))), base_url="http://127.0.0.1")
    assert "group customer-a" in client.get("/?q=customer-a").text and "priority 10" in client.get("/").text
    shown = client.get("/run/urgent").text
    assert "<dt>group</dt><dd>customer-a</dd>" in shown and "<dt>priority</dt><dd>10</dd>" in shown


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=SPRING", ["letters/spring"]),
        ("q=letters+waiting", ["letters/spring"]),
        ("state=completed", ["summer"]),
        ("state=wanted", ["hostile", "letters/spring", "typo"]),
        ("q=nothing", []),
        ("state=paused", []),
        ("page=99", ["hostile", "letters/spring", "typo", "fresh", "summer"]),
        ("page=-1&q=fresh", ["fresh"]),
    ],
)
def test_a_search_finds_other_runs(client: TestClient, query: str, found: list[str]) -> None:
    answer = client.get(f"/?{query}")
    assert answer.status_code == 200 and rows(answer.text) == found
    part = client.get(f"/?{query}", headers={"HX-Request": "true", "HX-Request-Type": "partial"})
    assert rows(part.text) == found and "<html" not in part.text
    if "state=" not in query:
        assert f">all <b>{len(found)}</b>" in part.text, "the counts are of what matches the search"


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.inline = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.inline |= tag == "style" or (tag == "script" and "src" not in dict(attrs))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("path", ["/", "/run/hostile", f"/?q={HOSTILE}", f"/run/{quote(HOSTILE)}"])
def test_text_of_a_run_becomes_markup(client: TestClient, path: str) -> None:
    text = client.get(path).text
    tags = Tags(text)
    assert "img" not in tags.names and not tags.inline and "style" not in tags.attributes
    assert not any(name.startswith(("on", "hx-on")) for name in tags.attributes)
    assert "\u202e" not in text and ("&lt;script&gt;" in text) == ("{{ 7 * 7 }}" in text)


def test_a_long_list_has_one_page(client: TestClient, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from satchel.runtime.faces.web import listing

    monkeypatch.setattr(listing, "PAGE", 2)
    assert rows(client.get("/").text) == ["hostile", "letters/spring"]
    assert rows(client.get("/?page=3").text) == ["summer"]
    assert 'href="/?page=2"' in client.get("/").text


def test_a_path_leads_out_of_the_root(client: TestClient, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "workspace.yaml").write_text("format: 1\nrun_id: outside\nagent: agent.py:main\n")
    for name in ("../outside", "..%2Foutside", "letters/../../outside", "%2e%2e/outside", str(outside), "letters", ""):
        answer = client.get(f"/run/{name}")
        assert answer.status_code == 404 and "Not found" in answer.text, name
    assert client.get("/static/../site.py").status_code == 404
    assert client.get("/static/%2e%2e/site.py").status_code == 404


def test_an_error_is_not_told(client: TestClient, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/nowhere").status_code == 404
    assert client.put("/").status_code == 405
    monkeypatch.setattr(site, "find", lambda name: 1 / 0)
    failed = client.get("/run/fresh")
    assert failed.status_code == 500 and "ZeroDivisionError" in failed.text


def test_an_empty_root_and_a_slow_one_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    empty = TestClient(make_app(Site(Overview(tmp_path))), base_url="http://127.0.0.1")
    assert "No runs yet" in empty.get("/").text
    overview, gate = Overview(tmp_path), threading.Event()
    monkeypatch.setattr(overview, "look", lambda **_: gate.wait() and Overview(tmp_path).look())
    monkeypatch.setattr(site_module, "PATIENCE", 0.01)
    slow = TestClient(make_app(Site(overview)), base_url="http://127.0.0.1")
    loading = slow.get("/").text
    assert "Reading the runs" in loading and 'http-equiv="refresh"' in loading
    gate.set()


def test_a_root_that_is_a_run_has_no_page(root: Path) -> None:
    client = TestClient(make_app(Site(Overview(root / "summer"))), base_url="http://127.0.0.1")
    assert rows(client.get("/").text) == ["summer"] and client.get("/run/summer").status_code == 200


def test_the_wheel_lacks_a_file_of_the_page() -> None:
    patterns = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    page = PACKAGE / "runtime/faces/web"
    shipped = {path for pattern in patterns["satchel.runtime.faces.web"] for path in page.glob(pattern)}
    files = {each for each in page.rglob("*") if each.is_file() and each.suffix not in (".py", ".pyc")}
    assert files and files == {each for each in shipped if each.is_file()}


def test_a_missing_extra_is_a_traceback(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_NEEDS", ("starlette", "no_such_package"))
    refused = cli("page", tmp_path)
    assert (
        refused.exit_code == 2
        and "pip install 'satchel[page]'" in refused.stderr
        and "no_such_package" in refused.stderr
    )
    monkeypatch.undo()
    assert "no such folder" in cli("page", tmp_path / "nowhere").stderr


def test_a_run_of_another_name_is_found(site: Site) -> None:
    run = site.find("letters/spring")
    assert satchel.open(run.url).status().state == run.status.state == "waiting"


def test_a_notice_about_the_files_of_a_run_is_missing_or_hides_another(site: Site) -> None:
    def shown(status: RunStatus) -> str:
        return site.render("run/wanted.html", name="talk", status=status, moment=None)

    told = shown(RunStatus("x", state="running", has_conflict=True, ahead="a clock was fast"))
    assert 'href="/run/talk/-/merge">Settle the conflict</a>' in told and "a clock was fast" in told
    time = "2026-11-20 23:10:04 UTC (3 days ago)"
    waiting = tuple(f"agents/{number}/todo.md" for number in range(40))
    told = shown(RunStatus("x", state="running", waiting_edits=waiting, refused=[f"{time}.rejected.txt"]))
    assert "file=agents%2F7%2Ftodo.md" in told and "agents/8/todo.md" not in told and "and 32 more (edited)" in told
    assert f"{time}.rejected.txt says why" in told and ">Read it</a>" in told
    assert coded("type `a <b>` or `c") == "type <code>a &lt;b&gt;</code> or `c"


def test_the_result_of_a_completed_run_is_below_a_long_plan(tmp_path: Path) -> None:
    source = """
from satchel import agent, step

async def work(run, item):
    pass

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Many", [f"number {n}" for n in range(40)])
    await run.todo.each(work)
    return {"<found>": 40}
"""
    handle = make(tmp_path / "runs/many", source)
    assert handle.run().status == "completed"
    client = TestClient(make_app(Site(Overview(tmp_path / "runs"))), base_url="http://127.0.0.1")
    text = client.get("/run/many").text
    assert (
        text.index("&lt;found&gt;") < text.index("28 items before") < text.index("number 28<") < text.index("Timeline")
    )
    assert "number 27<" not in text.partition("Timeline")[0]
    todo = Path(handle.url) / "todo.md"
    todo.write_text(todo.read_text().replace("[x] number 1 ", "[ ] number 1 "))
    assert handle.recover()
    assert "number 23<" in client.get("/run/many").text.partition("Timeline")[0], "what is left to do is shown again"


def test_a_schedule_hides_that_a_clock_is_wrong_or_says_it_twice(site: Site) -> None:
    status = RunStatus("x", state="sleeping", ahead="a clock was fast")
    status.schedule = [Scheduled(f"at-{number}", None, "") for number in range(9)]
    told = site.render("run/facts.html", name="talk", status=status, moment=None, outputs=[])
    assert "at-5: next never" in told and "clock" not in told


def test_a_run_without_a_price_has_spent_nothing(client: TestClient) -> None:
    row = client.get("/?q=summer").text
    assert re.search(r'<td class="num cost">\s*<span class="dim">\d+ steps?</span>', row), row
