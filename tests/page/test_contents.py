"""What a run contains, on the page: conversations, files, images, and JSON of any size."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import satchel
from satchel.runtime.api import Overview
from satchel.runtime.faces.web import contents
from satchel.runtime.faces.web.contents import LONGEST, Reader
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site
from satchel.workspace.store import DiskStore
from satchel.workspace.views import conversation

from .conftest import make
from .test_reading import Tags

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"

REFUNDS = f"""
import json
from satchel import agent, step

PNG = "{base64.b64encode(PNG).decode()}"
SVG = "{base64.b64encode(SVG).decode()}"
CALLS = [{{"id": "c1", "type": "function", "function": {{"name": "look", "arguments": '{{"n": 17}}'}}}}]
LOOKING = "I **look**. ![c](outputs/c.png) ![r](https://far.example/r.png)"

@step
async def ask(n: int) -> dict:
    return [
        {{"role": "assistant", "content": LOOKING, "tool_calls": CALLS}},
        {{"role": "assistant", "content": "There are 4711 lamps."}},
    ][n]

@step
async def look(n: int) -> dict:
    return {{"lamps": 4711, "shelf": [1, 2, 3]}}

async def work(run, item):
    said = run.messages
    said.add("system", "Count.")
    picture = {{"type": "image_url", "image_url": {{"url": "data:image/svg+xml;base64," + PNG}}}}
    vector = {{"type": "image_url", "image_url": {{"url": "data:image/png;base64," + SVG}}}}
    said.add("user", [{{"type": "text", "text": "How many lamps?"}}, picture, vector])
    said.add("assistant", await ask(0))
    found = await look(17)
    said.add("tool", {{"role": "tool", "tool_call_id": "c1", "content": json.dumps(found)}})
    said.add("assistant", await ask(1))
    await run.output("r.md", "# All\\n\\n**bold** <b>no</b> ![c](c.png) [d](d.json) [j](javascript:alert(1))")
    await run.output("c.png", bytes.fromhex("{PNG.hex()}"))
    await run.output("false.png", {SVG!r})
    await run.output("v.svg", {SVG!r})
    await run.output("p.html", "<script>alert(1)</script>")
    await run.output("d.json", json.dumps({{"rows": [{{"n": n}} for n in range(900)]}}))

@agent
async def main(run):
    await run.plan("Count", ["lamps"])
    await run.todo.each(work)
"""


@pytest.fixture(scope="module")
def refunds(root: Path) -> satchel.Handle:
    handle = make(root / "refunds", REFUNDS)
    assert handle.run().status == "completed"
    return handle


@pytest.fixture(scope="module")
def page(refunds: satchel.Handle, root: Path) -> TestClient:
    return TestClient(make_app(Site(Overview(root))), base_url="http://127.0.0.1", raise_server_exceptions=False)


def test_a_conversation_is_json(page: TestClient) -> None:
    text = page.get("/run/refunds/-/messages").text
    said = ["Count.", "How many lamps?", "I <strong>look</strong>", "look returned", "There are 4711 lamps."]
    places = [text.index(each) for each in said]
    assert places == sorted(places), "oldest first"
    assert 'id="newest"' in text[places[3] :] and "<b>look</b>" in text and "&#34;n&#34;: 17" in text
    assert 'src="/run/refunds/-/image?path=outputs%2Fc.png"' in text, "an image of the run"
    assert 'src="https' not in text and 'rel="noopener noreferrer nofollow">image: r</a>' in text
    assert "an image that can" in text, "an SVG by another name is no image"


def test_a_message_leads_to_no_call(page: TestClient, refunds: satchel.Handle) -> None:
    text = page.get("/run/refunds/-/messages").text
    calls = re.findall(r'href="(/run/refunds/-/call\?of=\d+)">its call', text)
    names = [re.search(r"<title>(\S+) (\S+) of", page.get(call).text) for call in calls]
    assert [each and each[2] for each in names] == ["ask", "look", "ask"]
    assert len({*calls}) == 3


def test_what_was_said_before_a_call_is_not_found(page: TestClient, refunds: satchel.Handle) -> None:
    """Messages are recorded with their item, after all its calls; each says how many calls came before it."""
    said = ["Count.", "How many lamps?", "I <strong>look</strong>", "look returned", "There are 4711 lamps."]
    for call, count in (("^1/1", 2), ("^1/2", 3), ("^1/3", 4)):
        found = refunds.history.call(call)
        button = re.search(r'href="([^"]+)">What was said before it', page.get(f"/run/refunds/-/call?of={call}").text)
        assert button and f"call={found.call.seq}#newest" in button[1]
        text = page.get(f"/run/refunds/-/messages?call={call}").text
        assert [each in text for each in said] == [number < count for number in range(5)], call
        assert f"{call} {found.call.step}</a>" in text and 'hx-sse:connect="/run/refunds/-/events/messages' not in text
        assert 'href="/run/refunds/-/messages#newest">The newest' in text or "The newest</a>" in text
    assert page.get("/run/refunds/-/messages?call=^1/9").status_code == 400


EQUAL = """
from satchel import agent, step

@step
async def answer(n: int) -> str:
    return "ok, done it"

async def work(run, item):
    await answer(0)
    for n in (1, 2):
        run.messages.add("user", f"Do {n}")
        run.messages.add("assistant", await answer(n))

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Two", ["one", "two"])
    await run.todo.each(work)
"""


def test_of_equal_answers_another_call_has_made_a_message(tmp_path: Path) -> None:
    made = make(tmp_path / "runs/equal", EQUAL)
    made.run()
    page = TestClient(make_app(Site(Overview(tmp_path / "runs"))), base_url="http://127.0.0.1")
    calls = re.findall(r'href="(/run/equal/-/call\?of=\d+)">its call', page.get("/run/equal/-/messages").text)
    names = [re.search(r"<title>(\S+) answer of", page.get(call).text) for call in calls]
    assert [each and each[1] for each in names] == ["^1/2", "^1/3", "^2/2", "^2/3"]
    assert not made.history.call("^1/1").said_before and "said before" not in page.get("/run/equal/-/call?of=^1/1").text
    before = page.get("/run/equal/-/messages?call=^2/1").text
    assert before.count("ok, done it") == 2 and "Do 2" in before, "all of the item before it"


def test_nobody_says_that_an_open_item_has_messages_that_are_not_on_record(tmp_path: Path) -> None:
    asking = "    if item.text == 'two':\n        await run.ask('Go on?', wait_for=0)\n"
    source = EQUAL.replace("    await answer(0)\n", f"    await answer(0)\n{asking}")
    assert make(tmp_path / "runs/open", source).run().status == "waiting"
    page = TestClient(make_app(Site(Overview(tmp_path / "runs"))), base_url="http://127.0.0.1")
    for call, is_open in (("^2/1", True), ("^1/2", False)):
        text = page.get(f"/run/open/-/messages?call={call}").text
        assert "Do 1" in text and ("on record once the item commits" in text) == is_open


def test_the_place_of_a_record_in_a_long_conversation_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "_CHUNK", 300)
    seqs = [*range(10, 130, 3), 0, *range(130, 900, 3)]
    rows = [json.dumps({"content": "x" * (seq % 700)} | ({"seq": seq} if seq else {})) for seq in seqs]
    (tmp_path / "m.jsonl").write_text("\n".join(rows) + "\n")
    for seq in (0, 9, 10, 11, 127, 500, 896, 898, 10_000):
        count = max((at + 1 for at, each in enumerate(seqs) if 0 < each <= seq), default=0)
        count += seqs[count : count + 1] == [0]  # the row of a person
        wanted = sum(len(row) + 1 for row in rows[:count])
        assert conversation.place_after(DiskStore(tmp_path), "m.jsonl", seq) == wanted, seq
    assert conversation.place_after(DiskStore(tmp_path), "none.jsonl", 7) == 0


def test_a_text_makes_a_request_for_each_file_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = " ".join(f"[a](outputs/{number}.md)" for number in range(400)) + " [r](outputs/0.md)" * 9
    with satchel.hold(tmp_path / "linked", kind="chat") as held:
        held.append([{"role": "user", "content": links}] * 3)
    page, looked = TestClient(make_app(Site(Overview(tmp_path))), base_url="http://127.0.0.1"), list[str]()
    version = DiskStore.version

    def counted(self: DiskStore, path: str) -> str | None:
        looked.append(path)
        return version(self, path)

    monkeypatch.setattr(DiskStore, "version", counted)
    assert page.get("/run/linked/-/messages").status_code == 200
    named = [each for each in looked if each.startswith("outputs/")]
    assert len(named) == len({*named}) == contents._NAMED


def test_an_image_is_what_it_says_it_is(page: TestClient) -> None:
    """Its bytes decide, not its name, nor what its message says."""
    (url,) = re.findall(r'src="(/run/refunds/-/image\?in=message[^"]+)"', page.get("/run/refunds/-/messages").text)
    for good in (url.replace("&amp;", "&"), "/run/refunds/-/image?path=outputs/c.png"):
        found = page.get(good)
        assert found.status_code == 200 and found.content == PNG and found.headers["content-type"] == "image/png"
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in found.headers["content-security-policy"]
    bad = (
        "path=outputs/false.png",
        "path=outputs/v.svg",
        "path=outputs/p.html",
        "path=agent.py",
        "at=0",
        "at=0&part=9",
    )
    for each in (*bad, "at=999999999", "at=7", "path=../x", "agent=none&at=0"):
        found = page.get(f"/run/refunds/-/image?{each}")
        assert found.status_code in (400, 404, 422) and "svg" not in found.headers["content-type"], each


def test_an_output_is_only_text(page: TestClient) -> None:
    report = page.get("/run/refunds/-/file?path=outputs/r.md").text
    assert "<h3>All</h3>" in report and "<strong>bold</strong>" in report and "&lt;b&gt;no" in report
    assert "image?path=outputs%2Fc.png" in report and "file?path=outputs%2Fd.json" in report
    assert 'href="javascript' not in report and ">satchel 0.1.0<" in report
    assert '<img src="/run/refunds/-/image?' in page.get("/run/refunds/-/file?path=outputs/c.png").text
    for name in ("v.svg", "p.html", "false.png"):
        tags = Tags(page.get(f"/run/refunds/-/file?path=outputs/{name}").text)
        assert "img" not in tags.names and "svg" not in tags.names, name
    data = page.get("/run/refunds/-/file?path=outputs/d.json").text
    assert "<details" in data and "n&#34;: 899" not in data and len(data) < 200_000
    pages = 0
    while "n&#34;: 899" not in data and pages < 9:
        rest = re.search(r'href="(/run/refunds/-/value\?in=file[^"]+path=%2Frows&amp;begin[^"]+)"', data)
        assert rest, "the rest can not be opened"
        data, pages = page.get(rest[1].replace("&amp;", "&")).text, pages + 1
    assert pages == 3
    listed = page.get("/run/refunds/-/files").text
    assert listed.count("outputs%2F") == 6


def test_two_versions_of_an_output_can_not_be_compared(page: TestClient, root: Path) -> None:
    made = make(root / "again", REFUNDS)
    made.run()
    (root / "again/outputs/r.md").write_text("# Mine\n")
    made.history.redo("^1")
    assert made.run().status == "completed"
    found = page.get("/run/again/-/file?path=outputs/r.md").text
    assert "<option>outputs/r.rejected.md</option>" in found
    lines = page.get("/run/again/-/file?path=outputs/r.md&with=outputs/r.rejected.md").text
    assert "<del>-# Mine</del>" in lines and "<ins>+# All</ins>" in lines
    other = page.get("/run/again/-/file?path=outputs/r.rejected.md&with=outputs/r.md&run=refunds").text
    assert "<ins>+# Mine</ins>" in other and "of refunds" in other
    assert "Nothing." in page.get("/run/again/-/file?path=outputs/r.md&run=refunds").text
    for bad in ("with=agent.py", "with=outputs/c.png", "run=nowhere", "with=../x"):
        assert page.get(f"/run/again/-/file?path=outputs/r.md&{bad}").status_code in (400, 404, 422)


def test_a_state_is_folded_in_another_way(page: TestClient) -> None:
    """Whatever shows JSON opens it in its place."""
    for url in ("call?of=^1/2", "file?path=outputs/d.json"):
        assert 'class="folded"' in page.get(f"/run/refunds/-/{url}").text
    assert page.get("/run/refunds/-/value?in=state&at=latest&path=/none").status_code == 400
    for bad in ("in=message&at=0&part=9", "in=message&at=3", "in=nothing", "in=file&file=agent.py", "in=state&at=x"):
        assert page.get(f"/run/refunds/-/value?{bad}").status_code in (400, 404, 422)


def _long(root: Path, rows: int) -> tuple[TestClient, Path]:
    with satchel.hold(root / "long", kind="chat") as held:
        held.append([{"role": "user", "content": f"this is message {number}, {'x' * 4000}"} for number in range(rows)])
    return TestClient(make_app(Site(Overview(root))), base_url="http://127.0.0.1"), root / "long/messages.jsonl"


def test_a_long_conversation_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, file = _long(tmp_path, 1500)
    read: list[int] = []
    whole = DiskStore.part

    def part(self: DiskStore, path: str, begin: int, size: int) -> bytes:
        read.append(size)
        return whole(self, path, begin, size)

    monkeypatch.setattr(DiskStore, "part", part)
    url, seen = "/run/long/-/messages", list[int]()
    while True:
        read.clear()
        text = page.get(url).text
        assert sum(read) < 2 << 20 < file.stat().st_size
        seen = [int(each) for each in re.findall(r"this is message (\d+),", text)] + seen
        earlier = re.search(r'rel="prev" href="([^"#]+)', text)
        if earlier is None:
            break
        url = f"/run/long/-/messages{earlier[1].replace('&amp;', '&')}"
    assert seen == [*range(1500)], "no message is lost or shown twice"
    later = page.get("/run/long/-/messages?after=0").text
    assert "message 0," in later and "message 1499," not in later and 'rel="next"' in later
    odd = "before=0", "before=7", "after=99999999999", "before=abc", "agent=nobody"
    assert [page.get(f"/run/long/-/messages?{each}").status_code for each in odd] == [200] * 5
    file.unlink()
    assert [page.get(f"/run/long/-/messages?{each}").status_code for each in ("", "after=0", "q=x")] == [200] * 3


def test_a_message_can_not_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, _ = _long(tmp_path, 300)
    found = page.get("/run/long/-/messages?q=MESSAGE 123,").text
    assert "<mark>message 123,</mark>" in found and found.count("<mark>") == 1
    there = re.search(r'href="(\?[^"#]+)#m\d+">In the conversation', found)
    assert there and "message 123," in page.get("/run/long/-/messages" + there[1].replace("&amp;", "&")).text
    assert "0 messages" in page.get("/run/long/-/messages?q=<b>nothing</b>").text
    monkeypatch.setattr(conversation, "SEARCHED", 300_000)
    first = page.get("/run/long/-/messages?q=message 7,").text
    earlier, tries = re.search(r'href="([^"]+)">Search earlier', first), 0
    while earlier is not None and "<mark>" not in first:
        first, tries = page.get("/run/long/-/messages" + earlier[1].replace("&amp;", "&")).text, tries + 1
        earlier = re.search(r'href="([^"]+)">Search earlier', first)
    assert "<mark>message 7,</mark>" in first and tries > 1


def test_a_file_of_a_program_hides_what_changed(tmp_path: Path) -> None:
    with satchel.hold(tmp_path / "kept", kind="notes") as held:
        held.append([{"n": 1}], log="rows")
        held.put("a.txt", "one\n")
        held.put("a.txt", "two\n")
    page = TestClient(make_app(Site(Overview(tmp_path))), base_url="http://127.0.0.1")
    found = page.get("/run/kept/-/file?path=files/a.txt").text
    link = re.search(r'href="(/run/kept/-/diff[^"]+)">What version', found)
    assert link and page.get(link[1].replace("&amp;", "&")).status_code == 200
    assert "files%2Fa.txt" in page.get("/run/kept/-/files").text
    assert "&#34;n&#34;: 1" in page.get("/run/kept/-/messages").text, "it has no conversation, and this log"


def test_a_line_of_a_person_hides_the_conversation(page: TestClient, root: Path) -> None:
    make(root / "typed", REFUNDS).run()
    file = root / "typed/messages.jsonl"
    file.write_text(
        'no json <b>\r\n{"role": 3, "content": null}\r\n\r\n' + file.read_text() + '{"role": "user", "content": "mine"}'
    )
    text = page.get("/run/typed/-/messages").text
    assert "this line of the file is no message" in text and "no json &lt;b&gt;" in text
    assert "mine" in text and "How many lamps?" in text
    file.unlink()
    assert page.get("/run/typed/-/messages").status_code == 200


def test_a_secret_of_a_message_is_shown(page: TestClient, root: Path) -> None:
    made = make(root / "told", REFUNDS)
    made.run()
    definition = root / "told/workspace.yaml"
    definition.write_text(definition.read_text() + "redact:\n  patterns: ['4711']\n")
    for url in ("messages", "messages?q=lamps", "file?path=messages.jsonl"):
        assert "4711" not in page.get(f"/run/told/-/{url}").text
    assert "0 messages" in page.get("/run/told/-/messages?q=4711").text


def test_a_message_of_a_stranger_makes_a_huge_page(tmp_path: Path) -> None:
    with satchel.hold(tmp_path / "huge", kind="chat") as held:
        for text in ("[" * 200_000, "# a\n" * 50_000, "|a" * 3000 + "\n" + "|-" * 3000 + "\n" + "x\n" * 3000):
            held.append([{"role": "user", "content": text}] * 5)
        held.append([{"role": "user", "content": [{"deep": [{"n": n} for n in range(9)]}] * 900}] * 5)
        held.append(
            [{"role": "user", "content": {"type": "tool_result", "tool_use_id": "x" * 9999, "content": [[]] * 9}}]
        )
    page = TestClient(make_app(Site(Overview(tmp_path))), base_url="http://127.0.0.1")
    found = page.get("/run/huge/-/messages")
    assert found.status_code == 200 and len(found.text) < 3_000_000
    assert "more part" in found.text


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[a](https://x.example)", '<a href="https://x.example" rel="noopener noreferrer nofollow">a</a>'),
        ("[a](mailto:a@x.example)", 'href="mailto:a@x.example"'),
        ("[a](JaVaScRiPt:alert(1))", ""),
        ("[a](data:text/html,x)", ""),
        ("[a](&#106;avascript:x)", ""),
        ("[a](\x01javascript:x)", ""),
        ("[a](vbscript:x)", ""),
        ("[a](file:///etc/passwd)", ""),
        ("[a](//x.example)", ""),
        ("[a](/run/x/-/act/stop)", ""),
        ("<javascript:alert(1)>", ""),
        ("[a][r]\n\n[r]: javascript:alert(1)", ""),
        ("![a](data:image/svg+xml;base64,PHN2Zz4=)", ""),
        ("![a](data:image/png;base64,iVBORw0KGgo=)", ""),
        ("![a](https://x.example/x.png)", '<a href="https://x.example/x.png"'),
        ('![a" onerror="x](https://x.example/" onload="x)', ""),
        ("<img src=x onerror=alert(1)>", "&lt;img"),
        ("a\u202eb", "\\u202e"),
    ],
)
def test_markdown_of_a_stranger_does_something(text: str, wanted: str) -> None:
    found = Reader(lambda url: "", lambda url: "").markdown(text)
    tags = Tags(found)
    assert wanted in found and "img" not in tags.names and not tags.inline
    assert {*tags.attributes} <= {"class", "href", "rel"}
    for href in re.findall(r'href="([^"]*)"', found):
        assert href.startswith(("https://", "mailto:"))


def test_a_long_text_takes_long() -> None:
    """As it is: some Markdown costs more than its length."""
    reader = Reader(lambda url: "", lambda url: "", left=2 * LONGEST)
    assert "<pre" in reader.markdown("*a* " * LONGEST) and "<em>" in reader.markdown("*a* ")
    assert "<em>" in reader.markdown("*a* " * (LONGEST // 4)) and "<pre" in reader.markdown("*a* " * (LONGEST // 4))


def test_a_cell_of_a_table_has_a_style() -> None:
    found = Reader(lambda url: "", lambda url: "").markdown("|a|b|\n|-:|-|\n|1|2|")
    assert "style" not in found and '<td class="right">1</td>' in found
