"""run.ask: nothing goes on before the answer is on record, and a denial is never read as anything else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import warm
from msgspec import structs
from waits import HANGS, PATIENCE

import satchel
from satchel import Answer, Item, Run, SatchelError, agent, effect, run, run_async, step
from satchel.runtime.supervision.known_run import judge
from satchel.workspace.inbound.question import Question
from satchel.workspace.store import DiskStore

CHOICES = ["approve", "deny"]


def fill_in(folder: Path, id: str, decision: str, **others: str) -> Path:
    """As a person does, some time ago."""
    path = folder / f"approvals/{id}.yaml"
    text = path.read_text()
    for key, value in {"decision": decision, **others}.items():
        text = re.sub(rf"^{key}:.*$", lambda match, said=f"{key}: {value}": said, text, count=1, flags=re.MULTILINE)
    path.write_text(text)
    os.utime(path, (time.time() - 60,) * 2)
    return path


async def until(happens: Callable[[], bool]) -> None:
    while not happens():  # noqa: ASYNC110  # nobody tells of a file
        await asyncio.sleep(0.01)


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.glob("journal/*.jsonl")) for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["type"] == kind]


def granting(calls: list[str], **facts: Any) -> Any:
    """An agent whose one item acts only if it may."""

    @effect
    def grant(user: str) -> str:
        calls.append(f"grant {user}")
        return "granted"

    async def work(run: Run[dict[str, Any]], item: Item) -> str:
        answer = await run.ask("Grant admin rights?", CHOICES, **{"context": {"user": "ada"}, "wait_for": 0, **facts})
        calls.append(f"told {answer.decision}")
        if answer == "approve":
            await grant("ada")
        run.state["answer"] = answer.decision
        return str(answer.decision)

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        if not run.todo.items:
            await run.plan(None, ["Set the rights"])
        await run.todo.each(work)

    return main


@pytest.mark.parametrize(("decision", "done"), [("approve", ["told approve", "grant ada"]), ("deny", ["told deny"])])
def test_an_answer_in_the_file_is_not_what_the_agent_gets(
    workspace: Path, calls: list[str], decision: str, done: list[str]
) -> None:
    main = granting(calls)
    outcome = run(workspace, main)
    assert (outcome.status, [asked.id for asked in outcome.approvals], calls) == ("waiting", ["a1"], [])
    assert json.loads((workspace / "state.json").read_text())["waiting_for"] == ["a1"]
    fill_in(workspace, "a1", decision, by="Ada", note="'be careful: it''s hot'")
    assert run(workspace, main).status == "completed" and calls == done
    (answered,) = records(workspace, "approval.answered")
    assert (answered["decision"], answered["by"], answered["note"]) == (decision, "Ada", "be careful: it's hot")
    shown = (workspace / "approvals/a1.yaml").read_text()
    assert shown.startswith(f"# answered: {decision}, by Ada, ") and "status: answered" in shown
    assert json.loads((workspace / "state.json").read_text())["waiting_for"] == []


def test_an_unanswered_run_calls_its_agent(workspace: Path, calls: list[str]) -> None:
    entered = []

    @agent
    async def main(run: Run) -> str:
        entered.append(run.attempt)
        return str((await run.ask("Which?", wait_for=0)).decision)

    assert run(workspace, main).status == "waiting" and entered == [1]
    journal = [path.read_bytes() for path in workspace.glob("journal/*")]
    outcome = run(workspace, main)
    assert (outcome.status, outcome.entered, [asked.id for asked in outcome.approvals]) == ("waiting", False, ["a1"])
    assert entered == [1] and journal == [path.read_bytes() for path in workspace.glob("journal/*")]
    assert run(workspace, main, wake=True).status == "waiting" and entered == [1, 2]
    (workspace / "approvals/a1.yaml").unlink()
    assert run(workspace, main).status == "waiting" and (workspace / "approvals/a1.yaml").exists()
    fill_in(workspace, "a1", "the second  ")
    outcome = run(workspace, main)
    assert (outcome.status, outcome.result) == ("completed", "the second")


def test_a_file_from_the_agent_s_process_is_taken_only_at_the_next_start(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> str:
        answer = await run.ask("Go on?", CHOICES, wait_for=PATIENCE)
        assert records(workspace, "approval.answered"), "it is on record before anything goes on"
        return f"{answer.decision} by {answer.by}, {answer.how}"

    async def both() -> Any:
        running = asyncio.create_task(run_async(workspace, main))
        path = workspace / "approvals/a1.yaml"
        await until(path.exists)
        assert json.loads((workspace / "state.json").read_text())["status"] == "running"
        path.write_text(path.read_text().replace("\ndecision:", "\ndecision: aprove"))
        await until(lambda: "# not accepted: " in path.read_text())
        text = path.read_text().replace("\ndecision: aprove", "\ndecision: deny")
        path.write_text(text.replace("\nby:", "\nby: Ada"))
        return await asyncio.wait_for(running, PATIENCE)

    outcome = asyncio.run(both())
    assert (outcome.status, outcome.result) == ("completed", "deny by Ada, file")
    assert len(records(workspace, "opened")) == 1 and any("Did you mean approve" in text for text in outcome.noticed)
    assert "not accepted" not in (workspace / "approvals/a1.yaml").read_text()


@pytest.mark.usefixtures("somebody_saves")
def test_a_half_saved_file_is_obeyed(workspace: Path) -> None:
    """Its text changes all the time: as long as it does not hold still, nothing is taken."""

    @agent
    async def main(run: Run) -> str:
        return str((await run.ask("How much?", wait_for=PATIENCE)).decision)

    async def both() -> Any:
        running = asyncio.create_task(run_async(workspace, main))
        path = workspace / "approvals/a1.yaml"
        await until(path.exists)
        form, end = path.read_text(), time.monotonic() + 1.2
        while time.monotonic() < end:
            path.write_text(form.replace("\ndecision:", f"\ndecision: {time.monotonic()} and"))
            assert not records(workspace, "approval.answered")
            await asyncio.sleep(0.05)
        path.write_text(form.replace("\ndecision:", "\ndecision: 250 and no more"))
        return await asyncio.wait_for(running, PATIENCE)

    assert asyncio.run(both()).result == "250 and no more"


def test_a_kill_between_the_answer_and_its_use_loses_the_denial(workspace: Path) -> None:
    (workspace / "agent.py").write_text(_KILLED)
    first = warm.run([sys.executable, "-m", "satchel", "run", str(workspace)], capture_output=True, timeout=60)
    assert first.returncode == 4, first
    fill_in(workspace, "a1", "deny")
    command = [sys.executable, "-m", "satchel", "run", "--in-process", str(workspace)]  # nobody starts it again
    killed = warm.run(command, capture_output=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed
    (workspace / "approvals/a1.yaml").unlink()  # the record is what counts
    last = warm.run([sys.executable, "-m", "satchel", "run", str(workspace)], capture_output=True, timeout=60)
    assert last.returncode == 0 and json.loads((workspace / "state.json").read_text())["data"] == {"answer": "deny"}
    assert len(records(workspace, "approval.asked")) == 1


_KILLED = """
import os, signal
from satchel import agent

async def work(run):
    answer = await run.ask("Grant?", ["approve", "deny"], wait_for=0)
    if run.attempt == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    run.state["answer"] = answer.decision

@agent
async def main(run):
    await run.scope("rights", work, run)
"""


def test_an_unticked_item_forgets_the_denial(workspace: Path, calls: list[str]) -> None:
    main = granting(calls)
    run(workspace, main)
    fill_in(workspace, "a1", "deny")
    assert run(workspace, main).status == "completed"
    todo = workspace / "todo.md"
    for again in range(2):
        todo.write_text(todo.read_text().replace("[x]", "[ ]"))
        os.utime(todo, (time.time() - 60,) * 2)
        assert run(workspace, main).status == "completed"
        assert calls == ["told deny"] * (again + 2) and len(records(workspace, "approval.asked")) == 1


@pytest.mark.parametrize(
    "facts", [{"context": {"user": "eve"}}, {"context": None}, {"context": {"user": "ada", "again": True}}]
)
def test_an_approval_of_something_else_counts(workspace: Path, calls: list[str], facts: dict[str, Any]) -> None:
    run(workspace, granting(calls))
    fill_in(workspace, "a1", "approve")
    outcome = run(workspace, granting(calls, **facts))
    assert (outcome.status, [asked.id for asked in outcome.approvals], calls) == ("waiting", ["a2"], [])
    fill_in(workspace, "a2", "deny")
    assert run(workspace, granting(calls, **facts)).status == "completed" and calls == ["told deny"]


def test_a_question_that_is_no_longer_asked_stays_open(workspace: Path, calls: list[str]) -> None:
    run(workspace, granting(calls))
    outcome = run(workspace, granting(calls, context={"user": "eve"}), wake=True)
    assert [asked.id for asked in outcome.approvals] == ["a2"]
    (asked,) = (record for record in records(workspace, "approval.asked") if record["id"] == "a2")
    assert asked["withdraws"] == ["a1"]
    old = workspace / "approvals/a1.yaml"
    assert old.read_text().startswith("# withdrawn: ") and "status: withdrawn" in old.read_text()
    fill_in(workspace, "a1", "approve")
    outcome = run(workspace, granting(calls, context={"user": "eve"}), wake=True)
    assert outcome.status == "waiting" and calls == []


def test_several_questions_at_once_are_asked_one_after_the_other(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> list[Any]:
        asked = [run.ask(f"Number {n}?", CHOICES, wait_for=0.3) for n in range(3)]
        answers = await asyncio.gather(*asked, run.ask("Why?", wait_for=0.3))
        return [answer.decision for answer in answers]

    assert [asked.id for asked in run(workspace, main).approvals] == ["a1", "a2", "a3", "a4"]
    fill_in(workspace, "a2", "deny")
    fill_in(workspace, "a4", "no reason")
    assert [asked.id for asked in run(workspace, main).approvals] == ["a1", "a3"]
    assert len(records(workspace, "approval.asked")) == 4
    fill_in(workspace, "a1", "approve")
    fill_in(workspace, "a3", "approve")
    assert run(workspace, main).result == ["approve", "deny", "approve", "no reason"]


def test_of_several_questions_at_once_that_nobody_waits_for_only_the_first_is_asked(workspace: Path) -> None:
    """A person would have to come back for each."""

    @agent
    async def main(run: Run) -> list[str]:
        asked = (run.ask(f"May {name}?", CHOICES, wait_for=0) for name in ("ada", "eve", "bob"))
        return [answer.decision for answer in await asyncio.gather(*asked)]

    assert len(run(workspace, main).approvals) == 3
    for id in ("a1", "a2", "a3"):
        fill_in(workspace, id, "deny")
    assert run(workspace, main).result == ["deny"] * 3


def test_equal_questions_in_one_scope_share_an_answer(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> list[Any]:
        return [(await run.ask("Once more?", wait_for=0)).decision for _ in range(2)]

    run(workspace, main)
    fill_in(workspace, "a1", "yes")
    assert [asked.id for asked in run(workspace, main).approvals] == ["a2"]
    fill_in(workspace, "a2", "no")
    assert run(workspace, main).result == ["yes", "no"]


def test_nested_agents_that_are_rebuilt_forget_the_denial(workspace: Path, crash: Any, calls: list[str]) -> None:
    @agent
    async def inner(run: Run[dict[str, Any]], user: str) -> str:
        async def work(run: Run[dict[str, Any]], item: Item) -> str:
            answer = await run.ask(f"Grant {user}?", CHOICES, wait_for=0.5)
            if calls and calls[-1] == "crash":
                calls.clear()
                raise crash
            run.state["answer"] = answer.decision
            return str(answer.decision)

        if not run.todo.items:
            await run.plan(None, ["Rights"])
        await run.todo.each(work)
        return str(run.state["answer"])

    @agent
    async def outer(run: Run, user: str) -> Any:
        return await run.spawn(inner, "inner", user)

    @agent
    async def main(run: Run) -> list[Any]:
        return list(await asyncio.gather(*(run.spawn(outer, name, name) for name in ("ada", "eve"))))

    asked = run(workspace, main).approvals
    assert sorted((each.id, each.agent) for each in asked) == [("a1", "ada/inner"), ("a2", "eve/inner")]
    text = (workspace / "approvals/a1.yaml").read_text()
    assert "agent: ada/inner" in text and "item: Rights" in text and not (workspace / "agents/ada/approvals").exists()
    assert json.loads((workspace / "agents/ada/agents/inner/state.json").read_text())["waiting_for"] == ["a1"]
    fill_in(workspace, "a1", "deny")
    calls.append("crash")
    with pytest.raises(crash):
        run(workspace, main)
    fill_in(workspace, "a2", "approve")
    assert run(workspace, main).result == ["deny", "approve"]
    for left in ("agents/ada/agents/inner/state.json", "approvals/a1.yaml"):
        (workspace / left).unlink()
    todo = workspace / "agents/ada/agents/inner/todo.md"
    todo.write_text(todo.read_text().replace("[x]", "[ ]"))
    assert run(workspace, main).result == ["deny", "approve"] and len(records(workspace, "approval.asked")) == 2


def test_a_question_that_has_expired_waits_on(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> str:
        answer = await run.ask("Go?", CHOICES, expires=timedelta(milliseconds=1), default="deny", wait_for=PATIENCE)
        return f"{answer.decision} by {answer.by}, {answer.how}"

    assert run(workspace, main).result == "deny by the default, expired"
    assert (
        (workspace / "approvals/a1.yaml")
        .read_text()
        .startswith("# answered: deny, by the default, because the question expired, ")
    )


def test_a_question_that_expires_when_its_process_goes_waits_on(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> str:
        return (await run.ask("Go?", CHOICES, expires=0.3, default="deny", wait_for=0.3)).how

    assert run(workspace, main).result == "expired"


@pytest.mark.parametrize("path", ["approvals/a1.yaml", "todo.md"])
def test_what_can_not_be_taken_while_a_question_waits_is_told_again_and_again(workspace: Path, path: str) -> None:
    """Each time would also write state.json, which the run watches."""

    @agent
    async def main(run: Run) -> None:
        async def spoil() -> None:
            await until((workspace / "approvals/a1.yaml").exists)
            (workspace / path).unlink(missing_ok=True)
            (workspace / path).mkdir()

        await asyncio.gather(run.ask("Go?", wait_for=1.5), spoil())

    noticed = run(workspace, main).noticed
    assert len([each for each in noticed if each.startswith(path) and "expected a file" in each]) == 1, noticed


@pytest.fixture
def in_two_hours(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes it two hours later for questions."""
    has_expired = Question.has_expired

    def later() -> None:
        monkeypatch.setattr(Question, "has_expired", lambda self, at: has_expired(self, at + timedelta(hours=2)))

    return later


def test_a_question_that_expires_while_nobody_runs_it_waits_on(
    workspace: Path, in_two_hours: Callable[[], None]
) -> None:
    @agent
    async def main(run: Run) -> Any:
        return (await run.ask("Go?", CHOICES, expires=3600, default="deny", wait_for=0)).decision

    assert run(workspace, main).status == "waiting"
    assert "default: deny" in (workspace / "approvals/a1.yaml").read_text()
    in_two_hours()
    outcome = run(workspace, main)
    assert outcome.result == "deny" and outcome.report.has("edited")


def test_an_answer_in_time_is_overruled_by_the_default(workspace: Path, in_two_hours: Callable[[], None]) -> None:
    @agent
    async def main(run: Run) -> Any:
        end = datetime.now(UTC) + timedelta(hours=1)
        return (await run.ask("Go?", CHOICES, expires=end, default="deny", wait_for=0)).decision

    run(workspace, main)
    fill_in(workspace, "a1", "approve")
    in_two_hours()
    assert run(workspace, main).result == "approve", "nobody had looked before it expired, but it was answered"


SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer", "maximum": 300}}, "required": ["amount"]}


def test_an_answer_that_the_schema_refuses_is_taken(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> Any:
        return (await run.ask("How much?", schema=SCHEMA, wait_for=0)).decision

    run(workspace, main)
    path = fill_in(workspace, "a1", "{amount: 400}")
    assert run(workspace, main).status == "waiting"
    text = path.read_text()
    assert "\n# not accepted: found 400, expected" in text and "\ndecision: {amount: 400}\n" in text
    fill_in(workspace, "a1", "{amount: 250}")
    assert run(workspace, main).result == {"amount": 250}


@pytest.mark.parametrize("hostile", ["a\x01b", "\u202eevorppa", "\ufeffx\U000e0001", 'a\x1b"b\\'])
def test_what_can_not_be_seen_is_lost_from_a_question_or_keeps_it_from_being_asked(
    workspace: Path, hostile: str
) -> None:
    @agent
    async def main(run: Run) -> Any:
        facts: dict[str, Any] = {"choices": ["approve", hostile], "context": {hostile: hostile}}
        return (await run.ask(hostile, **facts, arguments={hostile: 1}, tool=hostile, wait_for=0)).decision

    assert run(workspace, main).status == "waiting"
    (asked,) = satchel.open(workspace).questions()
    facts = (asked.text, asked.choices[1], asked.question.tool, asked.question.facts["context"], asked.arguments)
    assert facts == (hostile, hostile, hostile, {hostile: hostile}, {hostile: 1})
    comments = [line for line in (workspace / "approvals/a1.yaml").read_text().splitlines() if line.startswith("#")]
    assert all(line.isprintable() for line in comments), comments
    fill_in(workspace, "a1", comments[comments.index("#     approve") + 1].removeprefix("#     "))
    assert run(workspace, main).result == hostile, "as it was typed from the file"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"choices": []}, "`choices` is a list of texts"),
        ({"choices": "yes"}, "`choices` is a list of texts"),
        ({"choices": ["a", 3]}, "a choice is a line of text: got 3"),
        ({"choices": ["a", " b"]}, "a choice is a line of text"),
        ({"choices": ["a\0b"]}, "a choice is a line of text: got 'a\\x00b'. Give one without spaces around it, and"),
        ({"choices": ["a" * 300_000]}, "found more than 256 KiB"),
        ({"context": [{"a" * 2000: 1}]}, "a key has 2,002 characters as YAML, of which a file can have 1,024"),
        ({"choices": ["a", "a"]}, "a choice is given twice"),
        ({"choices": ["a"], "schema": {}}, "`choices` or `schema`"),
        ({"schema": {"type": "nonsense"}}, "the schema of an answer can't be used"),
        ({"schema": {"$ref": "https://example.org/x.json"}}, "the schema of an answer can't be used"),
        ({"schema": "text"}, "the schema of an answer can't be used"),
        ({"default": "a"}, "takes `expires` and `default` together"),
        ({"expires": 5}, "takes `expires` and `default` together"),
        ({"choices": ["a"], "expires": 5, "default": "b"}, "the default is no answer to the question"),
        ({"schema": SCHEMA, "expires": 5, "default": {}}, "the default is no answer to the question"),
        ({"expires": datetime(2030, 1, 1), "default": "a"}, "without a time zone"),
        ({"expires": "tomorrow", "default": "a"}, "`expires` of run.ask() is seconds, a timedelta or a datetime"),
        ({"expires": float("inf"), "default": "a"}, "`expires` of run.ask() is seconds"),
        ({"expires": 1e12, "default": "a"}, "`expires` is too far away"),
        ({"wait_for": None}, "`wait_for` of run.ask() is seconds: got None"),
        ({"wait_for": -1}, "`wait_for` of run.ask() is seconds"),
        ({"context": "x" * 70_000}, "the context of a question has 70,002 bytes"),
        ({"context": {1, object()}}, "can't be kept"),
        ({"context": {"a\u2028b": [[[]]]}, "question": " "}, "run.ask() takes a question"),
    ],
)
def test_a_question_that_nobody_can_answer_is_asked(workspace: Path, facts: dict[str, Any], said: str) -> None:
    @agent
    async def main(run: Run) -> None:
        await run.ask(**{"question": "Really?", "wait_for": 0, **facts})

    outcome = run(workspace, main)
    assert outcome.status == "failed" and isinstance(outcome.error, SatchelError) and said in str(outcome.error)
    assert not (workspace / "approvals").exists() and not records(workspace, "approval.asked")


def test_a_step_asks(workspace: Path) -> None:
    @step
    async def inside(run: Run) -> None:
        await run.ask("From a step?")

    @agent
    async def main(run: Run) -> None:
        await inside()

    outcome = run(workspace, main)
    assert outcome.status == "failed" and "run.ask() was called inside <step inside>" in str(outcome.error)


def test_odd_words_come_back_as_another_question(workspace: Path) -> None:
    """Whatever a question and its context hold, what is filled in is known for the same question."""
    context = {"a: b": ["#", "- x", "", " y ", None, True, 1.0, -0.0, 10**20, "no", "null", "\t"], "\u2028 é\n\n": {}}

    @agent
    async def main(run: Run) -> Any:
        question = 'Is "x: y" # right?\nSay\tso: '
        return (await run.ask(question, ["no", "3", "null", "~ ok"], context=context, wait_for=0)).decision

    run(workspace, main)
    fill_in(workspace, "a1", "null")
    assert run(workspace, main).result == "null"


def test_a_failing_neighbour_makes_the_run_wait_for_the_answer(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> None:
        async def fails() -> None:
            await until((workspace / "approvals/a1.yaml").exists)
            raise ValueError("the neighbour")

        await asyncio.gather(run.ask("Go on?", CHOICES, wait_for=HANGS), fails())

    outcome = asyncio.run(asyncio.wait_for(run_async(workspace, main), PATIENCE))
    assert (outcome.status, str(outcome.error)) == ("failed", "the neighbour")


def test_an_edited_answer_in_steps_passes_for_a_person_s(workspace: Path, calls: list[str]) -> None:
    """What is recorded of an answer must be one, or the question is asked again."""

    @agent
    async def main(run: Run) -> Any:
        answer = await run.ask("Go on?", CHOICES, wait_for=0)
        calls.append(answer.decision)
        return (await run.ask("And now?", CHOICES, wait_for=0)).decision

    run(workspace, main)
    fill_in(workspace, "a1", "deny")
    run(workspace, main)
    (path,) = workspace.glob("steps/_agent/*-ask.json")
    path.write_text(path.read_text().replace('"decision": "deny"', '"decision": "approve"'))
    with pytest.raises(SatchelError, match="a recorded answer can't be changed"):
        run(workspace, main)
    assert calls == ["deny"]


# The answer, as the agent has it


def answer(decision: Any = "deny", choices: tuple[str, ...] = ("approve", "deny")) -> Answer:
    return Answer(decision, "ada", "", datetime.now(UTC), "file", choices)


def test_a_typo_reads_a_denial_as_an_approval() -> None:
    assert answer() == "deny" and answer() != "approve"
    for compare in (lambda: answer() != "Deny", lambda: answer() == "denied", lambda: answer() in ("no", "deny")):
        with pytest.raises(SatchelError, match="it can only be one of approve, deny"):
            compare()
    with pytest.raises(SatchelError):
        answer() == True  # noqa: B015, E712


def test_a_denial_is_true() -> None:
    for each in (answer(), answer("approve"), answer("", ()), answer(False, ())):
        with pytest.raises(TypeError, match="no boolean value"):
            bool(each)
    with pytest.raises(TypeError):
        hash(answer())


def test_plain_answers_do_not_compare_plainly() -> None:
    assert answer("250", ()) == "250" and answer("250", ()) != "251" and answer({"a": 1}, ()) == {"a": 1}
    one = answer()
    assert one == structs.replace(one, choices=()) and one != structs.replace(one, by="somebody else")


def test_an_answer_to_one_of_several_questions_waits_for_the_others(workspace: Path) -> None:
    """A person has answered one question by command. The next start does what the answer allows, and no further one
    calls the agent; the same holds for `serve` and a pool."""
    done: list[str] = []

    @effect
    async def send(to: str) -> None:
        done.append(to)

    async def work(run: Run[Any], item: Item) -> None:
        if await run.ask(f"Write to {item.text}?", CHOICES, wait_for=0) == "approve":
            await send(item.text)

    @agent
    async def main(run: Run[Any]) -> None:
        if not run.todo.items:
            await run.plan(None, ["ada", "bob", "eve"])
        await run.todo.each(work, parallel=3)

    def starts() -> bool:
        return judge(DiskStore(workspace), datetime.now(UTC)).starts

    handle = satchel.open(workspace)
    assert run(workspace, main).status == "waiting" and len(handle.questions()) == 3
    assert not starts() and not run(workspace, main).entered
    handle.answer("approve", "a2")
    assert starts()
    outcome = run(workspace, main)
    assert (outcome.status, outcome.open_items, done) == ("waiting", 2, ["bob"])
    assert not starts() and not run(workspace, main).entered
    assert len(handle.questions()) == 2
