"""A run that does not go on by itself: the page, `satchel status`, the terminal view and MCP say the same of it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from api.test_answering import GRANTING
from cli.conftest import Cli

import satchel
from satchel import SatchelError
from satchel.runtime.faces.mcp import descriptions
from satchel.runtime.present import diagnose, why_lines

from .acts import Person
from .conftest import make

FAILING = """
from satchel import Retry, agent, step

@step(retry=Retry(attempts=2, first=0.001, longest=0.001))
def fetch(url: str) -> str:
    return read(url)

def read(url):
    raise ConnectionError("no <route>")

async def work(run, item):
    await fetch(item.text)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["one"])
    HOW
"""
FAILED = FAILING.replace("HOW", 'await fetch("a.txt")')
STUCK = FAILING.replace("HOW", "await run.todo.each(work)")
OTHER = FAILING.replace(
    "HOW", 'try:\n        await fetch("a")\n    except ConnectionError:\n        raise KeyError("mine")'
)

SPENDING = """
from satchel import Run, agent, step

@step
def ask_model(run: Run, question):
    run.spend(tokens=1200, usd=1.8)
    return question

@agent
async def main(run):
    return [await ask_model(question=question) for question in "abcd"]
"""


def damage(folder: Path) -> None:
    """In the middle of the journal, where no crash reaches, and without a checkpoint behind it."""
    for each in (folder / "checkpoints").iterdir():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    (journal,) = (folder / "journal").glob("*.jsonl")
    lines = journal.read_bytes().split(b"\n")
    lines[2] = b"x" + lines[2][1:]
    journal.write_bytes(b"\n".join(lines))


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    (tmp_path / "runs").mkdir()
    with Person(tmp_path / "runs", "a") as found:
        yield found


def card(person: Person) -> str:
    """The text of the card at the top of the page."""
    (found,) = re.findall(r'<section class="card [^"]*diagnosis".*?</section>', person.read(), re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found)).split())


def faces(handle: satchel.Handle, cli: Cli) -> dict[str, str]:
    """What each face but the page says, in one line."""
    status = handle.status()
    told = {
        "status": cli("status", handle.url).output,
        "watch": " ".join(why_lines(status)),
        "mcp": descriptions.headline(descriptions.status("a", status, frozenset())),
        "json": json.dumps(json.loads(cli("status", "--json", handle.url).stdout)["diagnosis"], ensure_ascii=False),
    }
    return {face: " ".join(text.replace('\\"', '"').split()) for face, text in told.items()}


@pytest.mark.parametrize(
    ("source", "title", "what", "told"),
    [
        (FAILED, "Failed", "ConnectionError: no <route>", ["_agent/1", "2 attempts", "agent.py:9 in read"]),
        pytest.param(
            STUCK,
            "Stuck",
            "ConnectionError: no <route>",
            ["^1/1", "6 attempts", "'one' has failed 3 times"],
            marks=pytest.mark.slow,
        ),
        (OTHER, "Failed", "KeyError: 'mine'", ["_agent/1", "each with ConnectionError", "agent.py:21 in main"]),
    ],
    ids=["failed", "stuck", "other"],
)
def test_a_face_tells_another_failure(
    tmp_path: Path, person: Person, cli: Cli, source: str, title: str, what: str, told: list[str]
) -> None:
    handle = make(tmp_path / "runs/a", source)
    handle.run()
    shown = card(person)
    assert shown.startswith(f"{title} {what} where ") and "to do Correct the cause, then resume" in shown
    assert person.text.partition('id="h-diagnosis"')[2].partition("</section>")[0].count('class="main"') == 1
    for face, text in {"page": shown, **faces(handle, cli)}.items():
        assert what in text, face
        for each in told:
            name = each if face != "page" or not each.endswith("/1") else 'fetch("url":"'
            assert name in text, (face, each, text)
    person.read("call", of=told[0])
    assert person.status == 200 and "no &lt;route&gt;" in person.text


def test_the_main_button_of_a_failed_run_does_not_resume_it(tmp_path: Path, person: Person) -> None:
    handle = make(tmp_path / "runs/a", FAILED)
    assert handle.run().status == "failed"
    (tmp_path / "runs/a/agent.py").write_text(FAILED.replace('raise ConnectionError("no <route>")', "return url"))
    assert "Resume the run" in card(person)
    person.act("resume")
    assert [*handle.history.log(follow=True)][-1].record["status"] == "completed", "it is followed to its end"
    assert "diagnosis" not in person.read() and handle.status().failed_call is None


def test_a_run_that_has_used_up_its_budget_has_no_card_or_its_button_does_not_go_on(
    tmp_path: Path, person: Person, cli: Cli
) -> None:
    handle = make(tmp_path / "runs/a", SPENDING, "budget: {usd: 5, tokens: 3000}  # mine\n")
    assert handle.run().status == "paused"
    reasons = ["the budget of 3000 tokens is used up (3600)", "the budget of $5.00 is used up ($5.40)"]
    shown = card(person)
    told = "; ".join(reasons)[1:]
    assert shown.startswith(f"Budget used up T{told} where workspace.yaml to do Raise budget: tokens:")
    for face, text in {"page": shown, **faces(handle, cli)}.items():
        assert reasons[0][1:] in text and "workspace.yaml" in text, face
    assert person.text.partition('id="h-diagnosis"')[2].partition("</section>")[0].count('class="main"') == 1
    fields = {f"limit-{kind}": person.field(f"limit-{kind}") for kind in ("tokens", "usd")}
    assert fields["limit-tokens"] == "6000", "as much once more"
    for wrong, told in (("3600", "give a higher limit"), ("many", "expected a whole number")):
        assert told in person.act("raise_budget", **fields | {"limit-tokens": wrong}).replace("Give", "give")
        assert person.field("limit-tokens") == wrong
    assert "budget.tokens is now 6000" in person.act("raise_budget", **fields)
    assert [*handle.history.log(follow=True)][-1].record["status"] == "completed"
    assert (tmp_path / "runs/a/workspace.yaml").read_text().endswith("  # mine\n")
    assert "diagnosis" not in person.read()


def test_a_limit_that_a_person_has_raised_in_the_file_is_asked_for_again(tmp_path: Path) -> None:
    handle = make(tmp_path / "a", SPENDING, "budget: {time: 1h, steps: 2}\n")
    assert handle.run().status == "paused"
    handle.files.raise_budget({"steps": 20, "time": "2h"})
    assert (tmp_path / "a/workspace.yaml").read_text().endswith('budget: {time: "2h", steps: 20}\n')
    found = diagnose(handle.status())
    assert found and (found.act, found.to_do) == ("resume", "resume it: the limit is higher now")
    for wrong in ({}, {"steps": 2}, {"euro": 5}):
        with pytest.raises(SatchelError):
            handle.files.raise_budget(wrong)
    assert handle.resume().status == "completed"


def test_a_damaged_run_is_not_told_or_can_not_be_checked(tmp_path: Path, person: Person, cli: Cli) -> None:
    handle = make(tmp_path / "runs/a", FAILED)
    handle.run()
    damage(tmp_path / "runs/a")
    shown = card(person)
    assert shown.startswith("Damaged line 3 is damaged: its checksum does not match") and "Check all files" in shown
    assert "Resume" not in person.text
    for face, text in faces(handle, cli).items():
        assert "line 3 is damaged: its checksum does not match" in text, face
    found = person.read("check")
    assert person.status == 200 and "journal/000000000001.jsonl" in found and "its checksum does not match" in found


def test_the_page_finds_mistakes_in_a_sound_run(tmp_path: Path, person: Person) -> None:
    make(tmp_path / "runs/a").run()
    assert "Nothing is wrong with the files" in person.read("check")
    assert "diagnosis" not in person.read()


def test_a_run_that_a_person_has_paused_is_called_stuck(tmp_path: Path) -> None:
    handle = make(tmp_path / "runs/a", GRANTING)
    handle.run()
    handle.pause(reason="stuck in the mud")
    assert diagnose(handle.status()) is None


def test_a_copy_can_be_resumed_by_one_press(tmp_path: Path, person: Person) -> None:
    """The state of a failed run that a copy of it has: a person has to say where it continues."""
    make(tmp_path / "runs/b", FAILED).run()
    shutil.copytree(tmp_path / "runs/b", tmp_path / "runs/a")
    assert "to do It may be a copy: say first that it continues here" in card(person)
    assert "Resume the run</button>" not in person.text.partition('id="h-diagnosis"')[2].partition("</section>")[0]


def test_drift_or_an_emergency_stop_is_offered_of_a_run_that_never_began(tmp_path: Path, person: Person) -> None:
    make(tmp_path / "runs/a")
    page = person.read()
    assert "Start the run" in page and "although code" not in page and "Emergency stop" not in page
    handle = satchel.open(tmp_path / "runs/a")
    handle.pause()
    page = person.read()
    assert "Resume the run" in page and "although code" not in page and "Emergency stop" not in page
