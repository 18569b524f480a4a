"""One wording: the command line, the page, the terminal view and MCP say of a record, a status and a question what
`runtime/present/` says, and no face has words of its own for a type of record or a state."""

from __future__ import annotations

import ast
import re
from html import unescape
from pathlib import Path
from typing import get_args

import pytest
from api.test_answering import GRANTING
from cli.conftest import ASKING, PLAIN, Cli, Make, cli, make

import satchel
from satchel.runtime.api import Handle, Overview
from satchel.runtime.present import (
    Timeline,
    budget_lines,
    call_name,
    describe_record,
    describe_retry,
    describe_stop,
    detail,
    file_lines,
    one_line,
    progress,
    question_title,
    usage_line,
    usd,
)
from satchel.runtime.status.activity import Retrying
from satchel.runtime.supervision.kill import How, StopResult
from satchel.workspace import journal
from satchel.workspace.state import STATES

pytest.importorskip("starlette", reason="the page needs starlette")
pytest.importorskip("textual", reason="`satchel watch` needs textual")
pytest.importorskip("mcp", reason="`satchel mcp` needs mcp")

from page.conftest import compiled_once
from starlette.testclient import TestClient

from satchel.runtime.faces.mcp import descriptions
from satchel.runtime.faces.watch import lines, run_screen
from satchel.runtime.faces.web.server import make_app
from satchel.runtime.faces.web.site import Site

__all__ = ["cli", "compiled_once", "make"]

ROOT = Path(__file__).parent.parent
RECORDS = {kind.__name__ for kind in journal.AnyRecord.__args__}
KINDS = {
    "completed": PLAIN,
    "waits": GRANTING,
    "in-doubt": ASKING,
    "failed": PLAIN.replace("return text.upper()", "raise ValueError('no voice')"),
}


@pytest.fixture(params=[*KINDS, "edited", "paused"])
def run(request: pytest.FixtureRequest, make: Make) -> Handle:
    """A run in each state that rests, with its records."""
    handle = satchel.open(make(KINDS.get(request.param, GRANTING), name=request.param))
    handle.run()
    if request.param == "edited":
        plan = Path(handle.url) / "todo.md"
        plan.write_text(f"{plan.read_text()}- [ ] one more\n")
    elif request.param == "paused":
        handle.pause(reason="lunch", by="ada")
    return handle


def page_of(handle: Handle, part: str = "") -> str:
    folder = Path(handle.url)
    with TestClient(make_app(Site(Overview(folder.parent))), base_url="http://127.0.0.1") as client:
        html = client.get(f"/run/{folder.name}{part}").text
    return squeezed(unescape(re.sub(r"<[^>]+>", "", html)))


def squeezed(text: str) -> str:
    return "".join(text.split())


def test_a_record_is_said_in_other_words_by_a_face(run: Handle, cli: Cli) -> None:
    """Fails for a face whose line of the log is not made of the words of `present`."""
    log, page, timeline = squeezed(cli("log", run.url).stdout), page_of(run, "/-/log"), Timeline()
    for row in run.history.log():
        event = timeline.of(row.line)
        said = squeezed(one_line(event.words.text, 200).removesuffix("…"))
        assert said in page and said in squeezed(lines.event_line(event, 1000).plain), event
        line = squeezed(describe_record(row.line.record).line)
        assert line in log and squeezed(descriptions.record(row).words).startswith(line[:300]), event


def test_a_status_is_said_in_other_words_by_a_face(run: Handle, cli: Cli) -> None:
    status = run.status()
    name = Path(run.url).name
    shown = {
        "command line": squeezed(cli("status", run.url).stdout),
        "page": page_of(run),
        "terminal": squeezed("".join(f"{title}{text}" for title, text in run_screen._details(status))),
    }
    mcp = descriptions.headline(descriptions.status(name, status, frozenset()))
    assert status.moment is not None and status.state in mcp
    assert f"{progress(status.plan, 'item').partition(',')[0]}." in mcp
    for face, text in shown.items():
        assert squeezed(usage_line(status.moment)) in text, face
        assert squeezed(detail(status).lstrip(": ").partition(", by")[0]) in text, face
        for each in (*file_lines(status), *budget_lines(status)):
            assert squeezed(each.text) in text, face
    for asked in status.questions:
        assert asked.text in mcp
        assert squeezed(asked.text) in shown["command line"] and squeezed(question_title(asked)) in shown["page"]
        assert squeezed(asked.text) in squeezed(run_screen.questions(status).line(0, 1000).plain)


def test_a_question_about_a_call_says_its_arguments_twice(make: Make) -> None:
    """The page shows them as a table below it."""
    folder = make(ASKING)
    handle = satchel.open(folder)
    handle.run()
    (asked,) = handle.status().questions
    assert asked.text.startswith('send("text":"mail the report") of ')
    assert question_title(asked).startswith("send of 'mail the report'") and question_title(asked).endswith("?")
    page = TestClient(make_app(Site(Overview(folder.parent))), base_url="http://127.0.0.1")
    for path in ("/", f"/run/{folder.name}"):
        text = unescape(page.get(path).text)
        assert question_title(asked)[:40] in text and asked.text not in text


def test_the_details_of_the_terminal_say_a_fact_twice(run: Handle) -> None:
    status = run.status()
    lines = [line.strip() for _, text in run_screen._details(status) for line in text.splitlines()]
    for said in (detail(status).lstrip(": "), *(each.text for each in file_lines(status))):
        for line in said.splitlines():
            assert sum(line in each for each in lines) == 1, (line, lines)


@pytest.mark.parametrize("how", get_args(How))
def test_an_outcome_of_a_stop_is_said_twice_or_breaks_it(how: How) -> None:
    said = {"draining": "this process runs it, and stops it at its next safe point", "new": "it has not begun"}
    told = describe_stop(StopResult("x", how, said=said.get(how, ""))).lower()
    assert told and told.count("safe point") <= 1 and told.count("begun") <= 1


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (0, "$0.00"),
        (1234.5, "$1,234.50"),
        (12.346, "$12.35"),
        (0.6, "$0.60"),
        (0.012, "$0.012"),
        (0.0124, "$0.0124"),
        (0.00045, "$0.00045"),
        (0.0000123, "$0.000012"),
        (1e-12, "$0.00"),
        (0.99999, "$1.00"),
    ],
)
def test_a_cost_of_less_than_a_cent_is_nothing(amount: float, said: str) -> None:
    assert usd(amount) == said


def test_a_call_or_why_it_is_tried_again_is_cut_short() -> None:
    call = Retrying("", "1", "ask", f"({'t' * 140})", 2, "e" * 190, "2999-01-01T00:00:00Z")
    assert "t" * 140 in call_name(call) and "e" * 190 in describe_retry(call)


KNOWN = {
    "mcp/descriptions.py": "which tool to call next",
    "mcp/tasks.py": "the status of a task in the protocol",
    "cli/summary.py": "how a start has ended, which no other face starts",
}
"""What matches states and has no words for them."""


def faces() -> list[Path]:
    return [path for room in ("cli", "faces") for path in sorted((ROOT / "runtime" / room).rglob("*.py"))]


@pytest.mark.parametrize("path", faces(), ids=lambda path: "/".join(path.parts[-2:]))
def test_a_face_has_words_for_a_record_or_a_state(path: Path) -> None:
    """Fails for a `match` of record types, and for a `match` or a table with texts for three states or more."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Match):
            classes = {ast.unparse(each.cls) for each in ast.walk(node) if isinstance(each, ast.MatchClass)}
            assert not {each.removeprefix("journal.") for each in classes} & RECORDS, ast.unparse(node)
            cases = {each.value.value for each in ast.walk(node) if is_text_case(each)}  # type: ignore[attr-defined]
            assert len(cases & {*STATES}) < 3 or "/".join(path.parts[-2:]) in KNOWN, ast.unparse(node)
        elif isinstance(node, ast.Dict):
            keys = {each.value for each in node.keys if isinstance(each, ast.Constant)}
            assert len(keys) < 3 or not keys <= {*STATES}, ast.unparse(node)


def is_text_case(node: ast.AST) -> bool:
    return isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant)
