"""The form of a question with arguments: what a person changes in it is approved, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import satchel

from .conftest import make

pytest.importorskip("starlette")

from .acts import Person

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


def test_an_approval_of_the_page_can_not_stand(person: Person) -> None:
    assert "approve each later call of send" in person.read()
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
    said = person.act("answer", question="a1", decision="approve", **fields(**typed))
    assert "a1 is answered: approve with " in said
    assert outcome(person)[1] == changed


def test_a_wrong_argument_loses_what_was_typed_or_a_denial_needs_right_ones(person: Person) -> None:
    person.read()
    said = person.act("answer", question="a1", decision="approve", note="so", **fields(copies="three", to="eve"))
    assert person.status == 422 and "copies" in said and "Nothing was done" in said
    assert (person.field("argument-copies"), person.field("argument-to")) == ("three", "eve")
    assert "a1 is answered: deny." in person.act("answer", question="a1", decision="deny", **fields(copies="three"))
    assert outcome(person)[1:] == [{}, "deny"]
