"""`answer`: one that counts once, to a question that is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import warm
from waits import PATIENCE

from satchel.workspace.store import DiskStore

from .conftest import ASKING, Cli, Make, contents, data_of, satchel


@pytest.fixture
def asking(make: Make, cli: Cli) -> Path:
    folder = make(ASKING.replace(" -> str", ""))
    assert cli("run", folder).exit_code == 4
    return folder


def _answer(folder: Path, cli: Cli) -> Any:
    assert cli("resume", folder).exit_code == 0
    return json.loads((folder / "state.json").read_text())["data"]["answer"]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--result", "sent, id 4711"], "sent, id 4711"),
        (["--result", '"4711"'], "4711"),
        (["--result", "4711"], 4711),
        (["--result=-5"], -5),
        (["--result", "-5"], -5),
        (["--result", '{"a":\n  [1, "é"]}'], {"a": [1, "é"]}),
        ([], None),
        (["--result", "null"], None),
        (["--result", "x" * 100_000], "x" * 100_000),
    ],
)
def test_an_answer_is_not_what_was_typed(asking: Path, cli: Cli, words: list[str], expected: Any) -> None:
    result = cli("answer", asking, "d1", "done", *words)
    assert result.exit_code == 0 and result.stdout == "d1 is answered: done\n"
    assert f"satchel resume {asking}" in result.stderr
    assert data_of(cli("status", "--json", asking))["state"] == "waiting"
    assert _answer(asking, cli) == expected


def test_redo_does_not_do_it(asking: Path, cli: Cli) -> None:
    source = (asking / "agent.py").read_text()
    assert cli("answer", asking, "d1", "redo", "--by", "me", "--note", "I looked").exit_code == 0
    assert "answered    d1 by me: it has not happened; the run may do it (I looked)" in cli("log", asking).stdout
    (asking / "agent.py").write_text(source.replace('raise TimeoutError("no answer")', 'return "done now"'))
    assert _answer(asking, cli) == "done now"


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["d7", "redo"], "there is no open question 'd7': open: d1 (send("),
        (["d1"], "give an answer: open: d1 (send("),
        (["d1", "redo", "--result", "3"], "a result needs an effect that has happened"),
        (["d1", "rredo"], "Did you mean redo?"),
        (["d1", "doen"], "Did you mean done?"),
        (["d1", ""], "expected one of: done, redo"),
        ([], "give an answer: open: d1"),
        (["d1", "redo", "d1", "done"], "name the workspace, the question and the answer"),
        (["d1", "done", "--result", "\udcff"], "half characters"),
    ],
)
def test_a_wrong_answer_changes_something(asking: Path, cli: Cli, words: list[str], said: str) -> None:
    before = contents(asking)
    result = cli("answer", asking, *words)
    assert result.exit_code == 2 and said in result.stderr
    assert contents(asking) == before


def test_one_question_can_be_answered_twice(asking: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(asking)
    assert cli("answer", "d1", "redo").exit_code == 0
    same = cli("answer", "d1", "redo")
    assert same.exit_code == 0 and same.stdout == "d1 is already answered: redo\n"
    again = cli("answer", "d1", "done")
    assert again.exit_code == 2 and "d1 is already answered: redo, by " in again.stderr


def test_completion_does_not_know_the_questions(asking: Path) -> None:
    words = {"_SATCHEL_COMPLETE": "bash_complete", "COMP_WORDS": f"satchel answer {asking} ", "COMP_CWORD": "3"}
    assert satchel(env={**os.environ, **words}).stdout.split() == ["plain,d1", "plain,done", "plain,redo"]


# Questions of an agent

GRANTING = """
from satchel import agent

async def work(run, item):
    schema = {"type": "integer", "maximum": 300} if "much" in item.text else None
    choices = ["approve", "deny"] if schema is None else None
    answer = await run.ask(item.text, choices, schema=schema, context={"user": "ada"}, wait_for=WAIT)
    run.state[item.text] = answer.decision

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["Grant?", "How much?"])
    await run.todo.each(work)
"""


@pytest.fixture
def granting(make: Make, cli: Cli) -> Path:
    folder = make(GRANTING.replace("WAIT", "0"))
    assert cli("run", folder).exit_code == 4
    return folder


def test_an_answer_without_its_question_is_refused(granting: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(granting)
    told = data_of(cli("answer", "deny", "--by", "Ada", "--note", "not now", "--json"))
    assert (told["is_recorded"], told["id"], told["answer"]["decision"]) == (True, "a1", "deny")
    assert told["questions"] == []
    assert (told["answer"]["by"], told["answer"]["note"], told["answer"]["how"]) == ("Ada", "not now", "command")
    assert (granting / "approvals/a1.yaml").read_text().startswith("# answered: deny, by Ada, ")
    assert cli("resume").exit_code == 4
    assert "found 400, expected" in cli("answer", "400").stderr
    assert "expected" in cli("answer", "a lot").stderr
    assert cli("answer", "a2", "250").stdout == "a2 is answered: 250\n"
    assert cli("answer", "a2", "250").stdout == "a2 is already answered: 250\n"
    assert cli("resume").exit_code == 0
    assert json.loads((granting / "state.json").read_text())["data"] == {"Grant?": "deny", "How much?": 250}


def test_the_open_question_is_not_shown_everywhere(granting: Path, cli: Cli) -> None:
    command, file = f"satchel answer {granting} a1 approve", f"{granting}/approvals/a1.yaml"
    for words in (("run",), ("status",), ("check",), ("recover",)):
        out = cli(*words, granting).stdout
        assert "a1: Grant? ('Grant?')" in out and command in out and file in out and '{"user":"ada"}' in out, words
    assert "an answer: a1" in cli("ls", granting.parent).stdout
    for words in (("run", "--json"), ("status", "--json"), ("check", "--json"), ("recover", "--json")):
        (told,) = data_of(cli(*words, granting))["questions"]
        assert (told["id"], told["kind"], told["file"]) == ("a1", "approval", "approvals/a1.yaml"), words
        assert told["choices"] == ["approve", "deny"] and told["command"] == f"satchel answer {granting} a1"
    (told,) = data_of(cli("ls", "--json", granting.parent))[0]["questions"]
    assert told["id"] == "a1" and told["asked_at"]
    out = cli("log", granting).stdout
    assert "asked a1    ^1  Grant?" in out


def test_what_the_file_says_is_overruled_by_the_command(granting: Path, cli: Cli) -> None:
    path = granting / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("\ndecision:", "\ndecision: deny"))
    result = cli("answer", granting, "a1", "approve")
    assert result.exit_code == 2 and "a1 is already answered: deny, by " in result.stderr
    assert cli("answer", granting, "a1", "deny").exit_code == 0
    assert path.read_text().startswith("# answered: deny")


def test_a_refused_answer_is_not_told(granting: Path, cli: Cli) -> None:
    path = granting / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("\ndecision:", "\ndecision: aprove"))
    assert "Did you mean approve?" in cli("recover", granting).stdout
    again = cli("run", granting)
    assert again.exit_code == 4 and "Did you mean approve?" in again.stderr


def test_a_process_that_waits_does_not_get_the_answer(make: Make, cli: Cli) -> None:
    folder = make(GRANTING.replace("WAIT", "60"))
    running = warm.Popen(
        [sys.executable, "-m", "satchel", "run", "--json", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        for id, decision in (("a1", "deny"), ("a2", "250")):
            _await_file(folder / f"approvals/{id}.yaml", running)
            result = cli("answer", folder, id, decision, "--by", "Ada")
            assert result.exit_code == 0 and result.stdout == f"{id} is answered: {decision}\n", result.output
            wrong = cli("answer", folder, id, "approve" if id == "a1" else "1")
            assert wrong.exit_code == 2 and "is already answered" in wrong.stderr
        out, err = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 0 and json.loads(out)["status"] == "completed", err
    assert json.loads((folder / "state.json").read_text())["data"] == {"Grant?": "deny", "How much?": 250}
    assert 'answered    a1 by Ada: "deny"' in cli("log", folder).stdout


@pytest.mark.usefixtures("holder_stays")
def test_a_process_that_does_not_look_makes_the_command_hang(make: Make, cli: Cli, monkeypatch: Any) -> None:
    from satchel.runtime.api import answers
    from satchel.workspace.inspect import lease
    from satchel.workspace.store import open_store

    folder = make(GRANTING.replace("WAIT", "0"))
    assert cli("run", folder).exit_code == 4
    monkeypatch.setattr(answers, "_PATIENCE", 0.3)
    with lease.held(open_store(str(folder))):
        result = cli("answer", folder, "a1", "deny", "--by", "Ada")
        assert result.exit_code == 0 and "the answer is in approvals/a1.yaml" in result.stdout
        assert data_of(cli("answer", folder, "a1", "deny", "--json"))["is_recorded"] is False
        assert cli("answer", folder, "a1", "dney").exit_code == 2
        other = cli("answer", folder, "a1", "approve")
        assert other.exit_code == 2 and "a1 is answered in its file: it says deny" in other.stderr
    assert "\ndecision: deny\nby: Ada\n" in (folder / "approvals/a1.yaml").read_text()
    assert cli("run", folder).exit_code == 4
    assert 'answered    a1 by Ada: "deny"' in cli("log", folder).stdout


def test_completion_does_not_know_the_choices(granting: Path) -> None:
    words = {"_SATCHEL_COMPLETE": "bash_complete", "COMP_WORDS": f"satchel answer {granting} a1 d", "COMP_CWORD": "4"}
    assert satchel(env={**os.environ, **words}).stdout == "plain,deny\n"


def _await_file(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)


HALVES = {
    "in the question": lambda text: text[: text.index("question:") + 15],
    "in the decision": lambda text: text[: text.index("decision:") + 5],
    "in a text": lambda text: text.replace("note:", 'note: "I have as').partition("as\n")[0],
    "without the end": lambda text: text[: text.index("format:")],
    "with a key of its own": lambda text: text + "mood: bad\n",
}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_a_half_saved_form_that_was_answered_by_command_is_a_mistake_for_ever(
    asking: Path, cli: Cli, half: str, is_told: bool
) -> None:
    form = asking / "approvals/d1.yaml"
    whole = form.read_text()
    saved = HALVES[half](whole)
    form.write_text(saved)
    if is_told:  # a start writes its reasons into the file
        assert cli("run", asking).exit_code == 4
    assert cli("answer", asking, "d1", "done", "--result", "ok", "--by", "ada").exit_code == 0
    assert cli("check", asking).exit_code == 0
    shown = form.read_text()
    assert shown.startswith("# answered: done, by ada")
    assert "decision: done" in shown and "status: answered" in shown and "Has it happened?" in shown
    typed = {line for line in saved.splitlines() if line and not line.startswith("# satchel ")}
    kept = (asking / "approvals/d1.rejected.yaml").read_text()
    assert typed <= set(kept.splitlines()), "what a person has typed is lost"
    assert _answer(asking, cli) == "ok"


@pytest.mark.parametrize("how", ["recover", "resume"])
def test_an_answered_form_that_was_cut_off_later_stays_a_mistake(asking: Path, cli: Cli, how: str) -> None:
    form = asking / "approvals/d1.yaml"
    assert cli("answer", asking, "d1", "done", "--result", "ok").exit_code == 0
    answered = form.read_bytes()
    form.write_bytes(answered[: answered.index(b"choices")])
    assert cli("check", asking).exit_code == 2
    assert cli(how, asking).exit_code in (0, 4)
    assert cli("check", asking).exit_code == 0
    assert form.read_bytes() == answered


def test_what_a_person_has_half_saved_is_lost_if_a_process_runs_the_run(
    asking: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("satchel.runtime.api.answers._PATIENCE", 0.0)
    form = asking / "approvals/d1.yaml"
    form.write_text(saved := HALVES["in a text"](form.read_text()))
    with DiskStore(asking).lock():
        assert cli("answer", asking, "d1", "done", "--result", "ok").exit_code == 0
    assert (asking / "approvals/d1.rejected.yaml").read_text() == saved
    assert _answer(asking, cli) == "ok"


REFUNDS = """
from satchel import agent

@agent
async def main(run):
    answer = await run.ask("Refund 80 to Ada?", arguments={"amount": 80, "to": "ada"}, wait_for=0)
    return answer.arguments
"""


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("words", "changed", "said"),
    [
        (["--set", "amount=50"], {"amount": 50}, "approve with amount: 50"),
        (["--set", "to=1007"], {"to": "1007"}, 'approve with to: "1007"'),
        (["--set", "to=a=b: c", "--set", "amount=50"], {"to": "a=b: c", "amount": 50}, "amount: 50"),
        (["--set", "amount=80"], None, "approve"),
    ],
)
def test_an_argument_is_not_set_as_it_was_typed(
    make: Make, cli: Cli, words: list[str], changed: dict[str, Any] | None, said: str
) -> None:
    folder = make(REFUNDS)
    shown = cli("run", folder).stdout
    assert 'arguments: {"amount":80,"to":"ada"}' in shown and "approve --set amount=VALUE" in shown
    assert data_of(cli("status", "--json", folder))["questions"][0]["arguments"] == {"amount": 80, "to": "ada"}
    done = cli("answer", folder, "approve", "--by", "ann", *words)
    assert done.exit_code == 0 and said in done.stdout
    logged = cli("log", folder).stdout
    assert 'Refund 80 to Ada? with {"amount":80,"to":"ada"}' in logged
    assert (f'by ann: "approve", changed to {json.dumps(changed, separators=(",", ":"))}' in logged) is bool(changed)
    again = data_of(cli("answer", folder, "a1", "approve", "--json", *words))
    assert again["was_before"] and again["answer"]["arguments"] == changed
    assert data_of(cli("resume", "--json", folder))["result"] == {"amount": 80, "to": "ada", **(changed or {})}


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["approve", "--set", "amount"], "a changed argument is NAME=VALUE"),
        (["approve", "--set", "=50"], "a changed argument is NAME=VALUE"),
        (["approve", "--set", "amount=1", "--set", "amount=2"], "is set twice"),
        (["approve", "--set", "amout=1"], "Did you mean amount?"),
        (["approve", "--set", "amount=half"], "expected a whole number"),
        (["deny", "--set", "amount=1"], "unless the decision is approve"),
    ],
)
def test_a_wrong_argument_is_approved(make: Make, cli: Cli, words: list[str], said: str) -> None:
    folder = make(REFUNDS)
    cli("run", folder)
    before = contents(folder)
    result = cli("answer", folder, "a1", *words)
    assert result.exit_code == 2 and said in result.stderr and contents(folder) == before


def test_arguments_typed_into_the_file_are_not_shown(make: Make, cli: Cli) -> None:
    folder = make(REFUNDS)
    cli("run", folder)
    path = folder / "approvals/a1.yaml"
    text = path.read_text().replace("\ndecision:", "\ndecision: approve")
    path.write_text(text.replace("\narguments:", "\narguments: {amount: 50}"))
    assert 'the file says: answered "approve" with amount: 50' in cli("status", folder).stdout
    assert "approvals/a1.yaml: approve with amount: 50, by" in cli("resume", folder).stderr


PAYING = """
from satchel import agent

@agent
async def main(run):
    return [(await run.ask(f"Pay {name}?", tool="pay", wait_for=0)).how for name in ("ada", "eve", "bob")]
"""


def test_an_approval_can_not_stand_or_be_revoked(make: Make, cli: Cli) -> None:
    folder = make(PAYING)
    assert "each later call of pay, too: satchel answer" in cli("run", folder).stdout
    assert "no standing approval: none is in force" in cli("answer", folder, "--revoke").stderr
    wrong = cli("answer", folder, "deny", "--standing")
    assert wrong.exit_code == 2 and "unless the decision is approve" in wrong.stderr
    done = cli("answer", folder, "a1", "approve", "--standing", "--by", "ann")
    assert "a1 is answered: approve, for later calls too" in done.stdout
    shown = cli("status", folder).stdout
    assert "each call of pay: a1, by ann" in shown and "used 0 times" in shown and "a1 --revoke" in shown
    assert data_of(cli("status", "--json", folder))["approved"][0]["tool"] == "pay"
    assert cli("answer", folder, "a1", "--revoke", "--note", "x").exit_code == 2
    revoked = cli("answer", folder, "--revoke", "--by", "bob")
    assert revoked.exit_code == 0 and "a1 is revoked: it counts for no later call" in revoked.stdout
    assert "a1 is already revoked" in cli("answer", folder, "a1", "--revoke").stdout
    assert cli("resume", folder).exit_code == 4 and "approved" not in cli("status", folder).stdout
    cli("answer", folder, "approve", "--standing", "--by", "ann")
    assert data_of(cli("resume", "--json", folder))["result"] == ["command", "command", "standing"]
    logged = cli("log", "--audit", folder).stdout
    assert 'a1 by ann: "approve", for later calls too' in logged and "revoked     a1 by bob" in logged
    assert "answered    a3 as ann has approved with a2" in logged
