"""The form of a question with arguments: what a person changes in it is approved, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import satchel

from .conftest import make

pytest.importorskip("starlette")

from .acts import OURS, Person

ASKING = r"""
from typing import Literal, TypedDict
from satchel import agent

class Mail(TypedDict, total=False):
    to: str
    copies: int
    kind: Literal["letter", "card"]
    urgent: bool
    text: str
    note: str

@agent
async def main(run):
    arguments = {"to": "ada", "copies": 1, "kind": "letter", "urgent": False, "text": "Dear \"Ada\" <b>,\n# one\n"}
    answer = await run.ask("Send it?", arguments=arguments, schema=Mail, tool="send", wait_for=0)
    return [answer.arguments, answer.changed, answer.decision]
"""
TWO = """
from satchel import agent

async def work(run, item):
    await run.ask(item.text, ["approve", "deny"], wait_for=0)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["one?", "two?"])
    await run.todo.each(work, parallel=2)
"""
TEXT = 'Dear "Ada" <b>,\n# one\n'


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    make(tmp_path / "runs/a", ASKING).run()
    with Person(tmp_path / "runs", "a") as found:
        yield found


def outcome(person: Person) -> Any:
    return satchel.open(f"{person.site.overview.url}/{person.name}").resume().result


def fields(**others: str) -> dict[str, str]:
    """As a browser sends them, with its line ends."""
    asked = {"to": "ada", "copies": "1", "kind": "letter", "urgent": "false", "text": TEXT, "note": ""}
    return {f"argument-{name}": text.replace("\n", "\r\n") for name, text in {**asked, **others}.items()}


def test_a_form_that_nobody_touched_changes_an_argument(person: Person) -> None:
    form = person.read()
    assert person.field("argument-copies") == "1" and person.field("argument-text") == TEXT.replace("\n", "\n")
    assert "<option selected>letter</option><option>card</option>" in form or "<option>card</option>" in form
    assert "a1 is answered: approve." in person.act("answer", question="a1", decision="approve", **fields())
    assert outcome(person)[1:] == [{}, "approve"]


def test_a_question_is_no_card_or_its_call_can_not_be_read(person: Person) -> None:
    page = person.read()
    assert '<th scope="row">copies</th><td><pre>1</pre></td>' in page and "<title>(1) a: waiting" in page
    assert 'class="choice good" name="decision" value="approve"' in page
    assert 'class="choice bad" name="decision" value="deny"' in page
    assert '/-/call?of=_agent%2F1"' in page
    assert "copies" in person.read("call", of="_agent/1") and person.status == 200
    assert "<title>(1) " in person.client.get("/").text


def test_the_next_question_is_not_found(tmp_path: Path) -> None:
    """In the same run, and after its last one in another run."""
    for name in ("a", "b"):
        make(tmp_path / "runs" / name, TWO).run()
    with Person(tmp_path / "runs", "a") as person:
        assert '<a href="#question-a2">Next question</a>' in person.read()
        person.client.follow_redirects = False
        form = {"form_token": person.field("form_token"), "question": "a1", "decision": "deny"}
        answered = person.client.post("/run/a/-/act/answer", data=form, headers=OURS)
        assert answered.headers["location"].endswith("#question-a2")
        person.client.follow_redirects = True
        person.client.get("/")
        said = person.act("answer", question="a2", decision="deny")
        assert "Next question, of b" in said and 'href="/run/b#wanted"' in person.text


def test_an_approval_of_the_page_can_not_stand(person: Person) -> None:
    assert "also each call of send by the run&#39;s own agent" in person.read()
    said = person.act("answer", question="a1", decision="approve", standing="yes", **fields())
    assert "a1 is answered: approve, for later calls too." in said
    assert satchel.open(f"{person.site.overview.url}/{person.name}").status().approved["a1"].tool == "send"


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("typed", "changed"),
    [
        ({"copies": "3"}, {"copies": 3}),
        ({"kind": "card", "urgent": "true"}, {"kind": "card", "urgent": True}),
        ({"to": "yes: no"}, {"to": "yes: no"}),
        ({"to": '"eve" # me'}, {"to": '"eve" # me'}),
        ({"to": "1007", "note": "a\u2028b \\ c"}, {"to": "1007", "note": "a\u2028b \\ c"}),
        ({"text": "Dear Eve,\nyours\n"}, {"text": "Dear Eve,\nyours\n"}),
    ],
)
def test_a_field_is_not_what_was_typed(person: Person, typed: dict[str, str], changed: dict[str, Any]) -> None:
    person.read()
    refused = person.act("answer", question="a1", decision="approve", **fields(**typed))
    assert person.status == 422 and "another value is typed for" in refused, "what was typed is not dropped"
    said = person.act("answer", question="a1", change="approve", **fields(**typed))
    assert "a1 is answered: approve with " in said
    assert outcome(person)[1] == changed


def test_a_wrong_argument_loses_what_was_typed_or_a_denial_needs_right_ones(person: Person) -> None:
    person.read()
    person.act("answer", question="a1", change="approve", **fields())
    assert person.status == 422 and "no argument has another value" in person.text
    said = person.act("answer", question="a1", change="approve", note="so", **fields(copies="three", to="eve"))
    assert person.status == 422 and "copies" in said and "Nothing was done" in said
    assert (person.field("argument-copies"), person.field("argument-to")) == ("three", "eve")
    assert "a1 is answered: deny." in person.act("answer", question="a1", decision="deny", **fields(copies="three"))
    assert outcome(person)[1:] == [{}, "deny"]


STRANGE = "one\\rtwo\\0three"


def test_a_call_with_characters_that_html_changes_is_not_approved(tmp_path: Path) -> None:
    source = ASKING.replace(r'"text": "Dear \"Ada\" <b>,\n# one\n"', f'"text": "{STRANGE}"')
    assert STRANGE in source
    make(tmp_path / "runs/a", source).run()
    with Person(tmp_path / "runs", "a") as person:
        text = person.read()
        question = re.findall(r'name="question" value="(\w+)"', text)[0]
        fields = re.findall(r'<(textarea|input|select) id="[^"]*" name="(argument-\w+)"', text)
        assert ("textarea", "argument-text") in fields, "an input would lose its lines"
        sent = {"argument-text": "one\r\ntwo\ufffdthree", "argument-copies": "1", "argument-urgent": "false"}
        assert "approve" in person.act("answer", question=question, decision="approve", **sent)
        assert person.status == 200
        assert outcome(person)[0]["text"] == "one\rtwo\0three"


MANY = """
from satchel import agent

@agent
async def main(run):
    answer = await run.ask("Send them?", arguments={f"a{n}": n for n in range(120)}, tool="send", wait_for=0)
    return [answer.changed, answer.arguments["a119"]]
"""


def test_a_call_with_many_arguments_can_not_be_approved(tmp_path: Path) -> None:
    make(tmp_path / "runs/a", MANY).run()
    with Person(tmp_path / "runs", "a") as person:
        text = person.read()
        fields = dict(re.findall(r'name="(argument-a\d+)" value="(\d+)"', text))
        assert 50 <= len(fields) <= 100
        question = re.findall(r'name="question" value="(\w+)"', text)[0]
        said = person.act("answer", question=question, change="approve", **{**fields, "argument-a7": "70"})
        assert person.status == 200 and "approve" in said
        assert outcome(person) == [{"a7": 70}, 119]
