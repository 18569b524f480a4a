"""What people and programs tell a run, or call a file, has a secret. No file gets it, not even for a moment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, Make, cli, make

import satchel
from satchel.errors import AgentError
from satchel.runtime.api import answers as answering
from satchel.runtime.supervision import stop
from satchel.workspace.formats import yamltext
from satchel.workspace.inspect import lease
from satchel.workspace.journal import ApprovalAnswered
from satchel.workspace.store import DiskStore

__all__ = ["cli", "make"]

VALUE, TOKEN = "c4nary-of-the-tests", "tok-9d2e4b6a8c0f1e3d5b7a9c"
BOTH = f"{VALUE} and {TOKEN}"
RULES = "redact:\n  env: [CANARY]\n  patterns: ['tok-[0-9a-f]{22}']\n"
HIDDEN = "[redacted:CANARY] and [redacted]"

ASKING = """
from satchel import agent, effect

@effect
async def sent(text):
    raise ValueError("perhaps")

async def work(run):
    return await sent("a letter")

@agent
async def main(run):
    said = await run.ask("Who?", wait_for=0)
    number = await run.ask("What?", schema={"type": "object"}, wait_for=0)
    await run.scope("letter", work, run)
"""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files to which one of the secrets was written, in all this time."""
    monkeypatch.setenv("CANARY", VALUE)
    found: list[str] = []

    def watched(write: Any) -> Any:
        def watch(store: DiskStore, path: str, data: bytes, *more: Any, **options: Any) -> Any:
            if any(each in bytes(data) + path.encode() for each in (VALUE.encode(), TOKEN.encode())):
                found.append(path)
            return write(store, path, data, *more, **options)

        return watch

    for name in ("create", "replace"):
        monkeypatch.setattr(DiskStore, name, watched(getattr(DiskStore, name)))
    return found


def names(folder: Path) -> str:
    return "\n".join(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("is_live", [False, True])
@pytest.mark.parametrize("typed", [False, True])
def test_an_answer_is_written_with_its_secret(
    make: Make, written: list[str], monkeypatch: pytest.MonkeyPatch, is_live: bool, typed: bool
) -> None:
    monkeypatch.setattr(answering, "_PATIENCE", -1.0)
    monkeypatch.setattr(lease, "_DYING", 0.0)
    handle = satchel.open(make(ASKING, extra=RULES))

    def answer(decision: Any, result: Any = None) -> None:
        said: dict[str, Any] = {"by": f"ada {TOKEN}", "note": BOTH, "result": result, "typed": typed}
        if is_live:
            with lease.held(DiskStore(handle.url)):
                assert not handle.answer(decision, **said).is_recorded
                assert not handle.answer(decision, **said).is_recorded, "it is the same answer"
        done = handle.answer(decision, **said)
        assert done.is_recorded and done.answer and done.answer.note == HIDDEN and VALUE not in repr(done)
        assert handle.answer(decision, done.id, **said).was_before

    assert handle.run().status == "waiting"
    answer(BOTH)
    assert handle.resume().status == "waiting"
    answer(f"{{a: {VALUE}}}" if typed else {"a": VALUE})
    assert handle.resume().status == "waiting"
    answer("done", f'"{TOKEN}"' if typed else [TOKEN])
    assert handle.resume().status == "completed"
    assert not written
    answers = [row.line.record for row in handle.history.log(type="approval.answered")]
    assert [bytes(each.decision) for each in answers if isinstance(each, ApprovalAnswered)] == [
        f'"{HIDDEN}"'.encode(),
        b'{"a":"[redacted:CANARY]"}',
    ]


def test_the_file_of_an_answer_keeps_the_secret_that_a_person_has_typed(make: Make, written: list[str]) -> None:
    handle = satchel.open(make(ASKING, extra=RULES))
    assert handle.run().status == "waiting"
    path = Path(handle.url) / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("\ndecision:", f"\n# {TOKEN}\ndecision: {VALUE}"))
    handle.resume()
    assert VALUE not in path.read_text() and TOKEN not in path.read_text() and not written
    assert '\ndecision: "[redacted:CANARY]"\n' in path.read_text()


CHOOSING = """
from satchel import agent

@agent
async def main(run):
    await run.ask("Go?", ["yes", "no"], wait_for=0)
"""


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("decision", [BOTH, f"'{'x' * 30} {TOKEN}'", f"[{VALUE}", f"no\nnote: {BOTH}"])
def test_those_who_look_see_the_secret_that_a_person_has_typed(
    make: Make, written: list[str], cli: Cli, decision: str
) -> None:
    """Also a part of it: errors shorten what they quote."""
    handle = satchel.open(make(CHOOSING, extra=RULES))
    handle.run()
    path = Path(handle.url) / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("\ndecision:", f"\ndecision: {decision}"))
    (Path(handle.url) / "pause.yaml").write_text(f"reason: {BOTH}\nby: {TOKEN}\n")
    status = handle.status()
    assert status.wish and status.wish.reason == HIDDEN
    assert status.questions[0].reply or status.questions[0].mistake
    said = "".join(cli(*words, handle.url).output for words in (["status"], ["status", "--json"], ["check"]))
    assert "redacted" in said and VALUE not in said and TOKEN[:9] not in said
    for _ in range(2):
        said = cli("resume", handle.url).output
        assert VALUE not in said and TOKEN[:9] not in said
    report = (Path(handle.url) / ".satchel/report.json").read_text()
    assert VALUE not in report and TOKEN[:9] not in report and not written


@pytest.mark.parametrize("patterns", [True, False])
def test_the_reason_of_an_emergency_stop_is_written_with_its_secret(
    make: Make, written: list[str], patterns: bool
) -> None:
    """Patterns are tried after the kill: the agent can write one that takes for ever."""
    rules = RULES if patterns else "redact: {env: [CANARY]}\n"
    folder = Path(make("x", extra=rules))
    (stopped,) = stop([DiskStore(folder)], BOTH if patterns else VALUE, f"ada {VALUE}")
    assert stopped.how == "idle" and VALUE not in "".join(written)
    said = (folder / "pause.yaml").read_text()
    assert VALUE not in said and TOKEN not in said and "[redacted:CANARY]" in said
    assert written in ([], ["pause.yaml"])
    (folder / "workspace.yaml").write_text("redact: [")
    (folder / "pause.yaml").unlink()
    stop([DiskStore(folder)], "it burns", "ada")
    assert "reason: it burns" in (folder / "pause.yaml").read_text(), "a wrong rule prevents no stop"


def test_the_name_of_a_sent_file_is_written_with_its_secret(make: Make, written: list[str], tmp_path: Path) -> None:
    handle = satchel.open(make("x", extra=RULES))
    file = tmp_path / f"{TOKEN} {VALUE}.md"
    file.write_text(BOTH)
    (sent,) = handle.send(file)
    assert re.search("redacted", sent.file) and not written and TOKEN not in names(Path(handle.url))


def test_data_that_is_sent_in_a_file_gets_another_shape(make: Make, written: list[str], tmp_path: Path) -> None:
    """`[redacted]` without quotes is a list in YAML."""
    handle = satchel.open(make("x", extra=RULES))
    file = tmp_path / "task.yaml"
    file.write_text(f'# {TOKEN}\nplain: {VALUE}\nescaped: "\\x{ord(TOKEN[0]):x}{TOKEN[1:]}"\nnumber: 3\n')
    (sent,) = handle.send(file)
    said = yamltext.load((Path(handle.url) / sent.file).read_text(), "the task").value
    assert said == {"plain": "[redacted:CANARY]", "escaped": "[redacted]", "number": 3} and not written
    file.write_text(f"# {TOKEN}\nnumber: 3\n")
    (sent,) = handle.send(file)
    assert (Path(handle.url) / sent.file).read_text() == "# [redacted]\nnumber: 3\n" and not written


NAMING = f"""
from satchel import agent

async def work(run):
    await run.output("notes/{TOKEN}.txt", "text")

@agent
async def main(run):
    await run.scope("write", work, run)
"""


def test_an_output_is_written_under_a_name_with_a_secret(make: Make, written: list[str]) -> None:
    handle = satchel.open(make(NAMING, extra=RULES))
    outcome = handle.run()
    assert outcome.status == "failed" and "the name 'notes/[redacted].txt' has a secret" in str(outcome.error)
    assert not written and TOKEN not in names(Path(handle.url))


PROMPTED = """
from satchel import agent, step

@step
def think(prompt):
    return "thought"

async def work(run, item):
    await think(run.prompt("ask"))

@agent
async def main(run):
    if not run.todo.items:
        await run.plan("Plan", ["one"])
    await run.todo.each(work)
"""


def test_a_replay_keeps_or_tells_the_secret_that_it_is_given(make: Make, written: list[str], tmp_path: Path) -> None:
    folder = make(PROMPTED, extra=RULES + "settings: {key: none}\n")
    (folder / "prompts").mkdir()
    (folder / "prompts/ask.md").write_text("Think")
    handle = satchel.open(folder)
    assert handle.run().status == "completed"
    with pytest.raises(AgentError, match=r"prompts/ask\.md: has a secret") as raised:
        handle.history.replay("1", tmp_path / "a", prompts=BOTH)
    assert VALUE not in str(raised.value) and not (tmp_path / "a").exists() and not written
    done = handle.history.replay("1", tmp_path / "b", settings={"key": BOTH})
    assert done.settings == {"key": HIDDEN}
    assert {*written} == {"workspace.yaml"}, "the settings of a run are a person's"
