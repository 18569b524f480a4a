"""One run on the page: its past, its files, and huge ones."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from api.test_answering import GRANTING
from starlette.testclient import TestClient

import satchel
from satchel.runtime.api import Overview, RunStatus, records_before
from satchel.runtime.faces.web import reading
from satchel.runtime.faces.web import site as site_module
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site
from satchel.runtime.present import json_line
from satchel.workspace import journal
from satchel.workspace.base.errors import Damaged, UsageError
from satchel.workspace.journal import Line

from .acts import Person
from .conftest import HOSTILE, make
from .test_reading import Tags

TALKING = """
from satchel import agent

async def work(run, item):
    run.messages.add("user", f"Please do {item.text}")
    run.state[item.text] = {"deep": [1, 2, {"deeper": "x" * 300}]}
    await run.output(f"{item.id}.txt", "made of " + item.text)

@agent
async def main(run):
    await run.plan("Talk", ["one", "two", "three"])
    await run.todo.each(work)
"""


@pytest.fixture(scope="module")
def talk(root: Path) -> satchel.Handle:
    handle = make(root / "talk", TALKING)
    assert handle.run().status == "completed"
    return handle


@pytest.fixture(scope="module")
def page(talk: satchel.Handle, root: Path) -> TestClient:
    return TestClient(make_app(Site(Overview(root))), base_url="http://127.0.0.1", raise_server_exceptions=False)


def test_a_page_of_a_run_lacks_what_status_says(page: TestClient, talk: satchel.Handle) -> None:
    text = page.get("/run/talk").text
    assert "completed" in text and text.count('class="done d0"') == 3 and "outputs/1.txt" in text
    for part in ("head", "wanted", "now", "plan", "timeline", "facts"):
        assert f'id="part-{part}"' in text
    assert 'hx-sse:connect="/run/talk/-/events"' in text
    asks = page.get("/run/letters/spring").text
    assert 'id="question-a1"' in asks and "Grant?" in asks
    assert "never started" in page.get("/run/fresh").text and "satchel run" in page.get("/run/fresh").text
    broken = page.get("/run/typo")
    assert broken.status_code == 200 and "unknown key" in broken.text


def test_a_log_has_other_records(page: TestClient, talk: satchel.Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOG", 5)
    newest = talk.history.show().seq
    first = page.get("/run/talk/-/log").text
    assert f">{newest}</a>" in first and first.count('class="seq"') == 5
    before = newest - 4
    assert f"before={before}" in first
    second = page.get(f"/run/talk/-/log?before={before}").text
    assert f">{before - 1}</a>" in second and f">{before}</a>" not in second
    filtered = page.get("/run/talk/-/log?type=scope.committed&item=%5E2").text
    assert filtered.count('class="seq"') == 1 and "2.txt" in filtered
    assert "No record" not in filtered and "no records of type" in page.get("/run/talk/-/log?type=nonsense").text
    assert page.get("/run/talk/-/log?before=1").text.count('class="seq"') == 0
    rows, problem = records_before(talk, 4, 2)
    assert [row.line.seq for row in rows] == [2, 3] and problem is None


def test_a_moment_is_another_one(page: TestClient, talk: satchel.Handle) -> None:
    latest = page.get("/run/talk/-/at/latest")
    assert latest.status_code == 200 and "three" in latest.text and "the newest" in latest.text
    early = page.get("/run/talk/-/at/%5E2").text
    assert ">one<" in early and ">three</a>" not in early and 'class="done d0"' in early
    deep = page.get("/run/talk/-/at/latest?path=/one/deep").text
    assert "deeper" in deep and "Who set this" in deep
    assert page.get("/run/talk/-/at/latest?path=/one/nothing").status_code == 400
    assert page.get("/run/talk/-/at/999999").status_code == 400
    assert page.get("/run/nothing/-/events").status_code == page.get("/run/nothing/-/log").status_code == 404
    sent = page.get("/run/talk/-/at?to=%5E2", follow_redirects=False)
    assert sent.status_code == 303 and sent.headers["location"] == "/run/talk/-/at/%5E2"


def test_a_comparison_says_what_is_equal(page: TestClient, talk: satchel.Handle) -> None:
    found = page.get("/run/talk/-/diff?old=%5E2&new=latest").text
    assert "/two" in found and "/three" in found and "/one" not in found and "three" in found
    same = page.get("/run/talk/-/diff?old=latest&new=latest").text
    assert "Nothing differs" in same
    other = page.get("/run/talk/-/diff?run=summer").text
    assert "summer" in other and "/one" in other
    assert page.get("/run/talk/-/diff?run=../outside").status_code == 404
    assert page.get("/run/talk/-/diff").status_code == 400


def test_origins_and_messages_are_missing(page: TestClient) -> None:
    found = page.get("/run/talk/-/blame?path=state.json/one").text
    assert "commit" in found and "/one/deep/0" in found
    assert "ticked" not in page.get("/run/talk/-/blame?path=todo.md").text
    assert page.get("/run/talk/-/blame?path=nothing").status_code == 400
    said = page.get("/run/talk/-/messages").text
    assert said.count("Please do") == 3 and said.index("Please do one") < said.index("Please do three")
    assert "no messages" in page.get("/run/summer/-/messages").text
    assert page.get("/run/talk/-/plan").text.count('class="done d0"') == 3


def test_a_file_of_the_agent_is_shown_with_a_secret(page: TestClient, talk: satchel.Handle, root: Path) -> None:
    """`run.output` redacts. What the agent has written by itself is as it is."""
    folder = Path(make(root / "quiet", TALKING, "redact: {patterns: ['tok-[0-9]+']}\n").url)
    (folder / "outputs").mkdir()
    (folder / "outputs/own.txt").write_text("it is tok-314159")
    for more in ("", "&raw=1"):
        shown = page.get(f"/run/quiet/-/file?path=outputs/own.txt{more}").text
        assert "it is [redacted]" in shown and "tok-3" not in shown


def test_a_file_that_is_no_output_is_shown(page: TestClient, talk: satchel.Handle, root: Path) -> None:
    text = page.get("/run/talk/-/file?path=outputs/1.txt").text
    assert "made of one" in text
    raw = page.get("/run/talk/-/file?path=outputs/1.txt&raw=1")
    assert raw.content == b"made of one" and raw.headers["content-disposition"].startswith("attachment")
    assert raw.headers["content-type"] == "application/octet-stream"
    assert page.get("/run/talk/-/files").text.count("outputs/") == 3
    (root / "talk/outputs/secret").symlink_to(root / "talk/agent.py")
    (root / "talk/outputs/inside").symlink_to(root / "talk")
    outside = root / "talk/outputs/way"
    outside.symlink_to(root.parent)
    refused = ["agent.py", "../agent.py", "outputs/../agent.py", "outputs/secret", f"outputs/way/{root.name}"]
    refused += ["", "/etc/passwd", "outputs/no.txt", "outputs/\0", "outputs/inside/agent.py"]
    for path in refused:
        answer = page.get("/run/talk/-/file", params={"path": path})
        assert answer.status_code in (400, 422, 503) and "import" not in answer.text, path
    (root / "talk/outputs/page.html").write_text(f"<h1>{HOSTILE}</h1>")
    tags = Tags(page.get("/run/talk/-/file?path=outputs/page.html").text)
    assert "img" not in tags.names and not tags.inline


def test_a_secret_of_an_output_is_shown(page: TestClient, root: Path) -> None:
    """It was recorded before `redact:` was written."""
    made = make(root / "leaking", TALKING.replace("made of", "the key is sk-12345678 of"))
    made.run()
    definition = root / "leaking/workspace.yaml"
    definition.write_text(definition.read_text() + "redact:\n  patterns: ['sk-[0-9]+']\n")
    for query in ("", "&raw=1"):
        answer = page.get(f"/run/leaking/-/file?path=outputs/1.txt{query}")
        assert answer.status_code == 200 and "the key is" in answer.text and "12345678" not in answer.text


@pytest.mark.parametrize(
    "path", ["log", "plan", "at/latest", "diff?old=3", "blame", "blame?path=todo.md", "messages", "files"]
)
def test_text_of_the_past_becomes_markup(page: TestClient, path: str) -> None:
    answer = page.get(f"/run/hostile/-/{path}")
    assert answer.status_code == 200
    tags = Tags(answer.text)
    assert "img" not in tags.names and not tags.inline and "style" not in tags.attributes
    assert not any(name.startswith(("on", "hx-on")) for name in tags.attributes) and "\u202e" not in answer.text


def test_a_call_can_not_be_read_from_its_row(root: Path) -> None:
    agent = """
from satchel import agent, step

@step
def read(path: str, what: dict[str, int]) -> list[str]:
    return ["<img src=x>", "long " * 10_000]

@step
def fail(n: int) -> int:
    raise ValueError("<b>no</b>")

@agent
async def main(run):
    await read("a" * 90, {"k": 1})
    try:
        await fail(3)
    except ValueError:
        pass
"""
    handle = make(root / "calling", agent)
    handle.run()
    page = TestClient(make_app(Site(Overview(root))), base_url="http://127.0.0.1")
    links = re.findall(r'class="of-call" href="([^"]+)"', page.get("/run/calling/-/log").text)
    failed, read = (page.get(link).text for link in links)
    assert "a" * 90 in read and "&lt;img src=x&gt;" in read and "<img" not in read
    assert "ValueError: &lt;b&gt;no" in failed and "agent.py:10 in fail" in failed and "Do it again from here" in failed
    rest = re.search(r'href="(/run/calling/-/value[^"]+)"', read)
    assert rest and len(read) < 20_000, "a long text comes in pieces"
    url = rest[1].replace("&amp;", "&")
    assert "long long" in page.get(url).text and "<h1" in page.get(url).text
    part = page.get(url, headers={"hx-request-type": "partial"}).text
    assert "long long" in part and "<h1" not in part
    assert page.get("/run/calling/-/call?of=^9/1").status_code in (400, 404, 422)
    assert page.get("/run/calling/-/value?of=2&in=records").status_code in (400, 404, 422)


def test_a_time_is_told_twice(talk: satchel.Handle) -> None:
    step = journal.StepCompleted(scope="1", step="read", no=1, args="", n=1, ms=3100)
    (told,) = reading.timeline([Line(7, 7, "2026-11-24T03:00:00Z", 1, step)])
    assert told.took == 3100 and "(3.1 s)" not in told.words.text


def test_a_time_of_day_hides_its_zone_or_its_date() -> None:
    """What a browser without JavaScript shows."""
    now = datetime.now(UTC).replace(hour=0, minute=0, second=1, microsecond=0)
    assert site_module.clock(now.isoformat()).endswith(">00:00:01 UTC</time>")
    title = 'title="2026-11-20 23:10:04 UTC"'
    told = site_module.clock("2026-11-20T23:10:04.123Z")
    assert title in told and told.endswith(">2026-11-20 23:10:04 UTC</time>")
    assert site_module.clock("<b>") == "&lt;b&gt;"
    text = site_module.timed(
        "<b> since 2026-11-20 23:10:04 UTC (3 days ago), until 2999-01-01T00:00:00.000Z; 2026-13-45 25:00:00 UTC, "
        "2026-11-20 23:10:05 UTC (a day ago)",
        "2026-11-20T23:10:04.123Z",
        "2999-01-01T00:00:00.000Z",
        "",
    )
    assert text.startswith("&lt;b&gt; since <time ") and title in text and "3 days" not in text
    assert ">2999-01-01 00:00:00 UTC</time>; 2026-13-45" in text
    assert text.endswith("2026-11-20 23:10:05 UTC (a day ago)"), "a time in other people's words is rewritten"


def test_a_piece_of_a_streamed_text_changes_while_it_grows() -> None:
    """Then a browser would take it for another one, and a reader would lose the place."""
    text, known = "", dict[int, str]()
    for number in range(2000):
        text += f"{number}\n" if number % 7 else "x" * (number % 1300)
        found = [*reading.pieces(text)]
        shown = "".join(each.text for each in found)
        assert text.endswith(shown) and min(len(text), reading.STREAM - reading.PIECE) <= len(shown) <= reading.STREAM
        for each, after in pairwise(found):
            assert after.at == each.at + len(each.text) and known.setdefault(each.at, each.text) == each.text


def test_a_file_is_named_twice(page: TestClient) -> None:
    """In the text of its record, and as a link."""
    log = page.get("/run/talk/-/log?type=scope.committed&item=%5E2").text
    assert log.count(">2.txt</a>") == 1
    assert "outputs/2.txt" not in re.sub("<[^>]*>", "", log) and "1 change of the state" in log


def test_a_run_without_a_state_has_an_error_or_an_untrue_one(
    page: TestClient, talk: satchel.Handle, root: Path
) -> None:
    fresh = page.get("/run/fresh/-/at/latest")
    assert fresh.status_code == 200 and "has not begun, so it has no state yet" in fresh.text
    assert page.get("/run/fresh/-/at/4").status_code == 400
    typo = page.get("/run/typo/-/at/latest").text
    assert "The state can't be read" in typo and "unknown key" in typo and "begun" not in typo
    shutil.copytree(root / "talk", root / "without", symlinks=True)
    for segment in (root / "without/journal").glob("0*.jsonl"):
        segment.unlink()
    lost = page.get("/run/without/-/at/latest").text
    assert "has no records: the newest checkpoint is at record" in lost and "begun" not in lost
    with pytest.raises(Damaged, match="has no records"):
        satchel.open(root / "without").history.show("^2")


def test_a_damaged_journal_has_no_page(page: TestClient, talk: satchel.Handle, root: Path) -> None:
    shutil.copytree(root / "talk", root / "torn", symlinks=True)
    segment = next((root / "torn/journal").glob("0*.jsonl"))
    rows = segment.read_bytes().split(b"\n")
    rows[9] = rows[9].replace(b'"', b"'", 1)
    segment.write_bytes(b"\n".join(rows))
    for checkpoint in (root / "torn/checkpoints").glob("*"):
        checkpoint.unlink() if checkpoint.is_file() else shutil.rmtree(checkpoint)
    now = page.get("/run/torn")
    assert (now.status_code == 200 and "damaged" in now.text and 'role="alert"' in now.text) or "Damaged" in now.text
    log = page.get("/run/torn/-/log")
    assert log.status_code == 200 and 'role="alert"' in log.text and log.text.count('class="seq"') == 9
    assert page.get("/run/torn/-/at/latest").status_code == 200
    assert page.get("/run/torn/-/messages").status_code == 200


def test_a_huge_run_makes_a_huge_page(root: Path) -> None:
    """Every part is cut, whatever is in it."""
    from satchel.workspace.plan import Plan

    plan = Plan("".join(f"- [{'x' if number < 3000 else ' '}] item {number}\n" for number in range(5000)))
    part = reading.plan_part(plan, centred=True)
    assert (len(part.rows), part.before, part.after) == (reading.PLAN, 2992, 5000 - 2992 - reading.PLAN)
    assert part.rows[reading.BEFORE].text == "item 3000"
    assert reading.plan_part(plan, begin=4990, most=200).after == 0
    assert reading.plan_part(None).rows == []

    state = {f"key {number}": {"text": "y" * 1000, "list": [*range(1000)]} for number in range(5000)}
    whole = reading.folded(state)
    assert (len(whole.parts), whole.size, whole.rest) == (reading.NODES, 5000, reading.NODES)
    assert max(len(each.text) for each in whole.parts) <= 160
    assert {(len(each.parts), each.rest) for each in whole.parts} == {(0, 0)}, "what is not there can not be opened"
    (last,) = reading.folded(state, "", 4999).parts
    assert (last.key, [each.key for each in last.parts], len(last.parts[1].parts)) == (
        "key 4999",
        ["text", "list"],
        297,
    )
    assert reading.folded(state, "/key 7/text").text == "y" * 1000
    assert json_line(state).startswith('{"key 0": {"text": "yyy')
    with pytest.raises(UsageError):
        reading.folded(state, "/key 7/list/1000")
    for value in ({}, [], "", None, 1.5, {"a": [1, {"b": "ü"}]}, [[], {}]):
        assert json_line(value) == json.dumps(value, ensure_ascii=False)


def test_the_page_hides_what_status_tells(tmp_path: Path) -> None:
    """What a person has to know about a stopped run before it is started again."""
    made = {name: make(tmp_path / name, GRANTING) for name in ("paused", "typo", "twice", "lost", "fresh")}
    for name in ("paused", "typo", "twice", "lost"):
        made[name].run()
    made["paused"].pause(reason="lunch & more", until="2099-01-01T08:00:00Z", by="ada")
    (tmp_path / "typo/pause.yaml").write_text("mode: [drain\n")
    plan = tmp_path / "twice/todo.md"
    plan.write_text(plan.read_text().replace("- [ ] How much?", "- [ ] How much? ^1"))
    for folder in ("journal", "checkpoints"):
        shutil.rmtree(tmp_path / "lost" / folder)
    made["fresh"].move(tmp_path.with_name(f"{tmp_path.name}-moved"))
    page = TestClient(make_app(Site(Overview(tmp_path))), base_url="http://127.0.0.1")
    for name, told in {
        "paused": 'lunch &amp; more, by ada, until <time datetime="2099-01-01T08:00:00',
        "typo": "Pause: pause.yaml, line 1, column 7",
        "twice": "refused: todo.md",
        "lost": "the journal that recorded its progress is missing",
        "fresh": ">At another place<",
    }.items():
        assert told in page.get(f"/run/{name}").text, name


TABS = ("plan", "log", "at/latest", "at/2", "diff?old=2", "blame?path=state.json", "messages", "files")


def test_a_run_can_be_stopped_on_one_tab_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "runs/a", GRANTING).run()
    with Person(tmp_path / "runs", "a") as person:
        for is_running in (False, True):
            monkeypatch.setattr(RunStatus, "may_be_running", is_running)
            texts = {tab: person.client.get(f"/run/a/-/{tab}").text for tab in TABS}
            for tab, text in texts.items():
                for act in ("pause", "resume"):
                    assert text.count(f'action="/run/a/-/act/{act}"') == 1, (tab, act)
                assert text.count('action="/run/a/-/act/stop"') == is_running, "only where a process runs"
                assert "waiting" in text, "the state of the run now"
        for number, person.text in enumerate(texts.values()):
            assert "Emergency stop: Nothing was running" in person.act("stop", reason=f"from tab {number}")
            assert f"reason: from tab {number}" in (tmp_path / "runs/a/pause.yaml").read_text()


def test_a_tab_of_a_run_that_can_not_be_read_has_no_stop(tmp_path: Path) -> None:
    """It may be running all the same. Nor one that shows a mistake of the person."""
    make(tmp_path / "runs/a", GRANTING).run()
    with Person(tmp_path / "runs", "a") as person:
        person.read()
        (tmp_path / "runs/a/inbox").symlink_to(tmp_path)
        for tab in ("plan", "log", "at/latest", "at/999999", "diff?old=2", "diff", "blame", "messages"):
            assert 'action="/run/a/-/act/stop"' in person.client.get(f"/run/a/-/{tab}").text, tab


def test_a_page_of_no_run_can_stop_one(page: TestClient) -> None:
    for path in ("/run/nothing", "/run/nothing/-/plan", "/nothing"):
        assert "act/stop" not in page.get(path).text
