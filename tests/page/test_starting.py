"""A new run, and the first start of one, by the forms of the page, as a browser without JavaScript sends them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import warm

import satchel
from satchel.runtime.api import new_aside, new_place
from satchel.runtime.launch import background
from satchel.runtime.supervision import child
from satchel.workspace.base import UsageError

from .acts import OURS, Person
from .conftest import HOSTILE, make

ASKED = '''
import os
from typing import Literal
from satchel import agent

if os.environ.get("SATCHEL_PAGE_TEST") == str(os.getpid()):
    raise SystemExit("the page has imported an agent")

@agent
async def main(run, topic: str, depth: int = 2, tone: Literal["plain", "warm"] = "plain", *, links: list[str] = []):
    """Find out all about a topic.

    topic: what to read about
    """
    return [topic, depth, tone, links, run.settings]
'''
SETTINGS = "settings:\n  # How often\n  often: 3\n  model: {name: x}\n  is_slow: false\n  files: [a]\n"


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
    """At a root with a run that never began."""
    monkeypatch.setattr(child.subprocess, "Popen", warm.Popen)
    monkeypatch.setenv("SATCHEL_PAGE_TEST", str(os.getpid()))
    make(tmp_path / "runs/ask", ASKED, SETTINGS)
    with Person(tmp_path / "runs", "ask") as found:
        found.site.runs(patience=None)
        yield found


def form(person: Person, **query: str) -> str:
    found = person.client.get("/-/new", params=query)
    person.status, person.text = found.status_code, found.text
    return person.text


def send(person: Person, **typed: str) -> str:
    """Make a run from `ask`. Returns what the page says then."""
    form(person, run="ask")
    data: dict[str, Any] = {"form_token": person.field("form_token"), "run": "ask", "name": "made"}
    data |= {name.replace("__", "."): text for name, text in typed.items()}
    found = person.client.post("/-/act/new", data=data, headers=OURS)
    person.status, person.text = found.status_code, found.text
    said = re.findall(r'id="(?:note|problem|[^"]*-wrong)">(.*?)</(?:div|p)>', person.text, re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", " ", " ".join(said)))


def wrong(person: Person) -> dict[str, str]:
    """What is said beside each field."""
    found = re.findall(r'name="([^"]*)"[^>]* aria-describedby="[^"]*?([\w-]+)-wrong"', person.text)
    said = dict(re.findall(r'id="([\w-]+)-wrong">(.*?)</p>', person.text, re.DOTALL))
    assert len(said) == len(found) == person.text.count('aria-invalid="true"')
    return {unescape(name): unescape(said[id]) for name, id in found}


def test_what_there_is_to_begin_from_is_not_shown(person: Person) -> None:
    text = form(person)
    assert 'href="/-/new?run=ask"' in text and 'href="/-/new?sample=digest"' in text
    assert 'href="/-/new"' in person.client.get("/").text
    assert "How many documents to read at most." in form(person, sample="digest")
    assert form(person, sample="../../etc") and person.status == 400
    assert form(person, run="nobody") and person.status == 404
    assert form(person, run="../ask") and person.status == 404


def test_a_form_does_not_show_what_the_agent_takes(person: Person) -> None:
    form(person, run="ask")
    assert person.status == 200 and "Find out all about a topic." in person.text
    assert "what to read about" in person.text and "How often" in person.text
    assert (person.field("name"), person.field("input.depth"), person.field("set.often")) == ("ask-1", "2", "3")
    assert (person.field("input.links"), person.field("set.model.name")) == ("[]", "x")
    assert re.search(r'name="input.topic"[^>]* required', person.text)
    assert re.search(r'<select[^>]* name="input.tone"[^>]*><option selected>plain</option><option>warm', person.text)


def test_a_run_begins_with_other_values_than_were_typed(person: Person, tmp_path: Path) -> None:
    said = send(
        person,
        name="team/made",
        input__topic='tides: "why" é\r\nand how',
        input__links="- a\n- b",
        set__often="4",
        set__is_slow="true",
        set__files='["~/x", 2]',
        set__model__name="5",
    )
    assert "was made from the run ask" in said and person.status == 200
    handle = satchel.open(tmp_path / "runs/team/made")
    handle.wait()
    settings = {"often": 4, "model": {"name": "5"}, "is_slow": True, "files": ["~/x", 2]}
    assert handle.result.returned == ['tides: "why" é\nand how', 2, "plain", ["a", "b"], settings]
    assert satchel.open(tmp_path / "runs/ask").status().state == "new"


def test_wrong_values_are_lost_or_make_a_run(person: Person, tmp_path: Path) -> None:
    send(person, input__topic="", input__depth="two", input__links="[", set__often="x", set__is_slow="maybe")
    assert person.status == 422 and "Nothing was done" in person.text
    assert {*wrong(person)} == {"input.topic", "input.depth", "input.links", "set.often"} | {"set.is_slow"}
    assert person.field("input.depth") == "two" and person.field("set.often") == "x"
    assert os.listdir(tmp_path / "runs") == ["ask"]


def test_what_only_the_agent_can_judge_is_not_beside_its_field(person: Person, tmp_path: Path) -> None:
    send(person, input__topic="tides", input__links="[1]")
    assert person.status == 422 and "links" in wrong(person)["input.links"]
    assert person.field("input.topic") == "tides" and os.listdir(tmp_path / "runs") == ["ask"]


NAMES = (
    "",
    "../out",
    "/tmp/out",
    "a/../../out",
    ".hidden",
    "a/.b",
    "ask",
    "ask/inner",
    "-",
    "a/-/log",
    "a\\b",
    "x" * 300,
)


@pytest.mark.parametrize("name", [*NAMES, "a\0b", "aux:", "link/x"])
def test_a_name_leads_out_or_into_a_run(person: Person, tmp_path: Path, name: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs/link").symlink_to(tmp_path / "elsewhere")
    before = sorted(os.walk(tmp_path))
    send(person, name=name, input__topic="tides")
    assert person.status == 422 and wrong(person)["name"], person.text
    assert sorted(os.walk(tmp_path)) == before


def test_a_hostile_name_is_taken_for_html(person: Person) -> None:
    send(person, name=HOSTILE, input__topic=HOSTILE)
    assert person.status == 422 and "<script>alert" not in person.text and "<img" not in person.text
    assert person.field("input.topic").startswith("<script>alert(1)")


def test_a_folder_with_files_is_overwritten(person: Person, tmp_path: Path) -> None:
    (tmp_path / "runs/made").mkdir()
    (tmp_path / "runs/made/mine.txt").write_text("mine")
    assert "is not empty" in send(person, input__topic="tides") and person.status == 422
    assert os.listdir(tmp_path / "runs/made") == ["mine.txt"]


def test_anybody_can_make_a_run(person: Person, tmp_path: Path) -> None:
    data = {"run": "ask", "name": "made", "input.topic": "x"}
    assert person.client.post("/-/act/new", data=data, headers=OURS).status_code == 403
    strange = {**data, "form_token": "x" * 43}
    assert person.client.post("/-/act/new", data=strange, headers={"origin": "https://evil.example"}).status_code == 403
    assert os.listdir(tmp_path / "runs") == ["ask"]


def test_a_run_that_never_began_can_not_be_given_arguments(person: Person, tmp_path: Path) -> None:
    person.read()
    assert person.field("input.depth") == "2" and "what to read about" in person.text
    person.act("resume", **{"input.topic": "", "input.depth": "2"})
    assert person.status == 422 and "the agent needs a value" in person.text
    person.act("resume", **{"input.topic": "tides", "input.links": "[1]"})
    assert person.status == 422 and person.field("input.topic") == "tides" and "input.links" in wrong(person)
    handle = satchel.open(tmp_path / "runs/ask")
    assert handle.status().state == "new"
    person.act("resume", **{"input.topic": "tides", "input.depth": "7"})
    handle.wait()
    assert handle.result.returned[:3] == ["tides", 7, "plain"]
    assert 'name="input.topic"' not in person.read(), "a run that has begun has its arguments"


def test_the_input_of_the_definition_gets_lost(person: Person, tmp_path: Path) -> None:
    made = tmp_path / "runs/given"
    make(made, ASKED, "input: {topic: tides, depth: 5}\n")
    person.name = "given"
    person.read()
    assert (person.field("input.topic"), person.field("input.depth")) == ("tides", "5")
    person.act("resume", **{"input.topic": "tides", "input.depth": "6"})
    satchel.open(made).wait()
    assert satchel.open(made).result.returned[:2] == ["tides", 6]


def test_an_agent_whose_source_does_not_tell_can_not_be_started(person: Person, tmp_path: Path) -> None:
    source = (
        ASKED.replace("async def main(run", "async def _main(run").replace("@agent\n", "") + "\nmain = agent(_main)\n"
    )
    make(tmp_path / "runs/other", source)
    person.name = "other"
    assert "does not tell which arguments" in person.read()
    person.act("resume", input="just a text")
    assert person.status == 422 and "a name and a value" in wrong(person)["input"]
    person.act("resume", input="topic: tides\ndepth: 3")
    satchel.open(tmp_path / "runs/other").wait()
    assert satchel.open(tmp_path / "runs/other").result.returned[:2] == ["tides", 3]


def test_a_template_whose_import_fails_leaves_a_folder(tmp_path: Path) -> None:
    lines = ("import nothing_of_this_name", "import os; os._exit(7)", "import sys; sys.exit('no')")
    for number, line in enumerate(lines):
        make(tmp_path / f"source{number}", f"{line}\n{ASKED}")
        with pytest.raises(UsageError, match="template can't be"):
            new_aside(str(tmp_path / f"source{number}"), str(tmp_path / "made"), input={"topic": "x"})
    assert not (tmp_path / "made").exists()


def test_a_template_whose_import_hangs_keeps_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_PATIENCE", 0.5)
    make(tmp_path / "source", f"import time; time.sleep(100)\n{ASKED}")
    with pytest.raises(UsageError, match="took more than"):
        new_aside(str(tmp_path / "source"), str(tmp_path / "made"), input={"topic": "x"})


def test_a_root_that_is_a_run_gets_another_one_inside(tmp_path: Path) -> None:
    make(tmp_path / "ask", ASKED)
    with pytest.raises(UsageError, match="a run already"):
        new_place(str(tmp_path / "ask"), "inner")
    assert new_place("memory://starting/runs", "team/a") == "memory://starting/runs/team/a"
