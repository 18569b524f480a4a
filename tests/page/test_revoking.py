"""What the page says of standing approvals, and the form that revokes one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import satchel
from satchel import Run, agent

from .conftest import HOSTILE, make

pytest.importorskip("starlette")

from .acts import OURS, Person

PAYING = """
from satchel import agent

async def work(run, item):
    answer = await run.ask(f"Pay {item.text}?", arguments={"to": item.text}, tool="pay", wait_for=0)
    run.state[item.text] = [answer.arguments, answer.decision]

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Pay", ["ada", "eve", "bob"])
    await run.todo.each(work)
    for tool in ("mail", TOOL):
        await run.ask("May it?", tool=tool, wait_for=0)
"""


def paying(folder: Path) -> satchel.Handle:
    """A run that was allowed to pay for the rest of it, and asks about something else."""
    made = make(folder, PAYING.replace("TOOL", repr("print")))
    made.run()
    made.answer("approve", standing=True, by="Ada")
    assert made.run().status == "waiting"
    return made


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    paying(tmp_path / "runs/a")
    with Person(tmp_path / "runs", "a") as found:
        yield found


def handle(person: Person) -> satchel.Handle:
    return satchel.open(f"{person.site.overview.url}/{person.name}")


def test_a_standing_approval_is_not_shown_or_not_revoked(person: Person) -> None:
    shown = person.read()
    assert "each call of pay by the run&#39;s own agent, whatever" in shown and "a1, by Ada" in shown
    assert "used 2 times" in shown
    assert "a1 is revoked: it counts for no later call." in person.act("revoke", question="a1")
    assert person.status == 200 and "each call of pay" not in person.text
    assert not handle(person).status().approved
    assert "a1 is already revoked" in person.act("revoke", question="a1")


def test_a_wrong_revocation_does_something_or_names_no_reason(person: Person) -> None:
    for id, why in (("a4", "a4 is no standing approval"), ("../a1", "in force: a1 (pay)"), ("", "name the question")):
        said = person.act("revoke", question=id)
        assert person.status == 422 and why in said and "Nothing was done" in said
        assert ">Revoke a1</button>" in person.text, "the form is gone after a mistake"
    token = {"form_token": person.field("form_token"), "question": "a1"}
    there = f"/run/{person.name}/-/act/revoke"
    for data, headers in ((token, {"origin": "http://evil.example"}), ({"question": "a1"}, OURS)):
        assert person.client.post(there, data=data, headers=headers).status_code == 403
    assert [*handle(person).status().approved] == ["a1"]


def test_the_name_of_a_tool_is_taken_for_html(tmp_path: Path) -> None:
    made = make(tmp_path / "runs/a", PAYING.replace("TOOL", repr(HOSTILE)))
    made.run()
    for _ in range(3):
        made.answer("approve", standing=True)
        made.run()
    with Person(tmp_path / "runs", "a") as person:
        shown = person.read()
        assert shown.count("each call of ") == 3 and "<script>alert" not in shown and "\\u202e" in shown


def test_an_active_run_calls_after_its_approval_was_revoked_on_the_page(tmp_path: Path) -> None:
    made = make(tmp_path / "runs/a")
    asked, may_ask = threading.Event(), threading.Event()

    @agent
    async def main(run: Run) -> list[str]:
        found = [(await run.ask("Pay ada?", tool="pay", wait_for=0)).how]
        asked.set()
        may_ask.wait(60)
        return [*found, (await run.ask("Pay eve?", tool="pay", wait_for=0)).how]

    made.run(main)
    made.answer("approve", standing=True)
    outcomes: list[satchel.Outcome[object]] = []
    thread = threading.Thread(target=lambda: outcomes.append(made.run(main)))
    thread.start()
    try:
        assert asked.wait(60)
        with Person(tmp_path / "runs", "a") as person:
            said = person.act("revoke", question="a1")
            assert person.status == 200 and "a1 is revoked: it counts for no later call; " in said
            assert "reads it before the next call begins." in said
    finally:
        may_ask.set()
        thread.join(60)
    assert outcomes[0].status == "waiting" and [each.id for each in outcomes[0].approvals] == ["a2"]
