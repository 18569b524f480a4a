"""Approve with changes: what a person approves is what the agent does, and nothing else."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest
import warm
from page.conftest import make
from servers import Server

import satchel
from satchel import Answer, Run, UsageError, agent, effect, run

from .test_asking import fill_in, records

AMOUNT = {
    "type": "object",
    "properties": {"amount": {"type": "integer", "maximum": 100}, "to": {"type": "string"}, "why": {"type": "string"}},
}


def refunding(calls: list[Any], **facts: Any) -> Any:
    """An agent that makes a refund if it may, with the arguments that it may."""

    @effect
    def refund(amount: int, to: str, **more: Any) -> str:
        calls.append((amount, to, *more.values()))
        return f"paid {amount}"

    async def work(run: Run[dict[str, Any]]) -> None:
        asked = {"arguments": {"amount": 80, "to": "ada"}, "schema": AMOUNT, "wait_for": 0}
        answer = await run.ask("Refund 80 to Ada?", **{**asked, **facts})
        arguments = answer.arguments
        if answer == "approve":
            run.state["paid"] = await refund(**arguments)
        run.state["changed"] = answer.changed

    @agent
    async def main(run: Run[dict[str, Any]]) -> None:
        await run.scope("refund", work, run)

    return main


def data(workspace: Path) -> Any:
    return json.loads((workspace / "state.json").read_text())["data"]


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("typed", "paid", "changed"),
    [
        ("", (80, "ada"), {}),
        ("{amount: 50}", (50, "ada"), {"amount": 50}),
        ("{amount: 80, to: ada}", (80, "ada"), {}),
        ("{to: 1007}", (80, "1007"), {"to": "1007"}),
        ("{why: late}", (80, "ada", "late"), {"why": "late"}),
        ("\n  amount: 50\n  to: eve", (50, "eve"), {"amount": 50, "to": "eve"}),
    ],
)
def test_the_arguments_in_the_file_are_not_those_of_the_call(
    workspace: Path, typed: str, paid: tuple[Any, ...], changed: dict[str, Any]
) -> None:
    calls: list[Any] = []
    main = refunding(calls)
    assert run(workspace, main).status == "waiting"
    form = (workspace / "approvals/a1.yaml").read_text()
    assert "asked_arguments:\n  amount: 80\n  to: ada\n" in form and "\ndecision:\narguments:\nby:" in form
    fill_in(workspace, "a1", "approve", by="Ada", arguments=typed)
    assert run(workspace, main).status == "completed"
    assert calls == [paid] and data(workspace) == {"paid": f"paid {paid[0]}", "changed": changed}
    (asked,), (answered,) = records(workspace, "approval.asked"), records(workspace, "approval.answered")
    assert asked["arguments"] == {"amount": 80, "to": "ada"} and answered["by"] == "Ada"
    assert answered.get("arguments", {}) == changed
    told = (workspace / "approvals/a1.yaml").read_text().splitlines()[0]
    assert told.startswith(f"# answered: {'approve' if not changed else 'approve with '}"), told


@pytest.mark.parametrize(
    ("decision", "typed", "said"),
    [
        ("approve", "{amout: 50}", "Did you mean amount?"),
        ("approve", "{amount: 500}", "100 or less"),
        ("approve", "{amount: fifty}", '"fifty"'),
        ("approve", "[50]", "a mapping of keys to values"),
        ("deny", "{amount: 50}", "unless the decision is approve"),
    ],
)
def test_arguments_that_do_not_fit_are_taken(workspace: Path, decision: str, typed: str, said: str) -> None:
    calls: list[Any] = []
    run(workspace, refunding(calls))
    path = fill_in(workspace, "a1", decision, arguments=typed)
    outcome = run(workspace, refunding(calls))
    assert outcome.status == "waiting" and not calls and not records(workspace, "approval.answered")
    (line,) = (line for line in path.read_text().splitlines() if line.startswith("# not accepted"))
    assert said in line and "arguments" in path.read_text().split(line)[1].splitlines()[1]
    with pytest.raises(UsageError):
        satchel.open(workspace).answer(decision, arguments={"amout": 50} if "amout" in typed else {"amount": "fifty"})


def test_a_question_without_arguments_takes_some(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> str:
        answer = await run.ask("Go?", ["approve", "deny"], wait_for=0)
        with pytest.raises(UsageError, match="without `arguments`"):
            _ = answer.arguments
        return str(answer.decision)

    run(workspace, main)
    path = workspace / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("\ndecision:", "\narguments: {amount: 50}\ndecision: approve"))
    assert run(workspace, main).status == "waiting" and "the question was asked without any" in path.read_text()
    with pytest.raises(UsageError, match="the question was asked without any"):
        satchel.open(workspace).answer("approve", arguments={"amount": 50})
    with pytest.raises(UsageError, match="without any"):
        satchel.open(workspace).answer("approve", arguments={})


@pytest.mark.parametrize(
    "looks",
    [lambda answer: answer == "approve", lambda answer: answer != "deny", lambda answer: answer.decision],
    ids=["equal", "unequal", "decision"],
)
def test_an_agent_uses_the_old_arguments(workspace: Path, looks: Callable[[Answer], Any]) -> None:
    calls: list[str] = []

    @agent
    async def main(run: Run) -> None:
        answer = await run.ask("Refund 80?", arguments={"amount": 80}, wait_for=0)
        if looks(answer):
            calls.append("refund 80")

    run(workspace, main)
    satchel.open(workspace).answer("approve", arguments={"amount": 50}, by="Ada")
    outcome = run(workspace, main)
    assert outcome.status == "failed" and not calls and outcome.error
    assert "Ada has said approve with amount: 50" in str(outcome.error) and "answer.arguments" in str(outcome.error)


def test_an_unchanged_answer_can_not_be_compared_at_once(workspace: Path) -> None:
    @agent
    async def main(run: Run) -> Any:
        answer = await run.ask("Refund 80?", arguments={"amount": 80}, wait_for=0)
        return [answer == "approve", answer.decision, answer.arguments, answer.changed]

    run(workspace, main)
    satchel.open(workspace).answer("approve")
    assert run(workspace, main).result == [True, "approve", {"amount": 80}, {}]


class Refund(TypedDict):
    amount: int
    to: str


@dataclass
class Order:
    amount: float
    rush: bool = False


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("arguments", "schema", "fits", "wrong"),
    [
        ({"amount": 80, "to": "ada"}, Refund, {"amount": 50}, {"amount": "50"}),
        ({"amount": 80.0}, Order, {"rush": True}, {"rush": "yes"}),
        ({"amount": 80, "to": None}, None, {"to": "eve"}, {"amount": 49.5}),
        ({"list": [1], "flag": True}, None, {"list": [], "flag": False}, {"flag": 0}),
        ({"amount": 80}, True, {"amount": "all"}, {"more": 1}),
    ],
)
def test_a_type_or_no_schema_says_nothing_about_the_arguments(
    workspace: Path, arguments: dict[str, Any], schema: Any, fits: dict[str, Any], wrong: dict[str, Any]
) -> None:
    @agent
    async def main(run: Run) -> Any:
        return (await run.ask("May I?", arguments=arguments, schema=schema, wait_for=0)).arguments

    run(workspace, main)
    with pytest.raises(UsageError):
        satchel.open(workspace).answer("approve", arguments=wrong)
    done = satchel.open(workspace).answer("approve", arguments=fits)
    assert done.answer and done.answer.arguments == fits
    assert run(workspace, main).result == {**arguments, **fits}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"arguments": [80]}, "values by name"),
        ({"arguments": {"amount": 800}}, "do not fit their schema"),
        ({"choices": ["yes", "no"]}, "has the choice 'approve'"),
        ({"schema": {"type": "no such type"}}, "schema"),
        ({"arguments": {"amount": object()}}, "arguments"),
    ],
)
def test_a_question_is_asked_that_nobody_can_change(workspace: Path, facts: dict[str, Any], said: str) -> None:
    outcome = run(workspace, refunding([], **facts))
    assert outcome.status == "failed" and outcome.error and said in str(outcome.error)
    assert not (workspace / "approvals/a1.yaml").exists()


def test_changed_arguments_are_an_approval_of_other_arguments(workspace: Path) -> None:
    """Another call needs another approval, and the answer is not asked for again when its scope is entered again."""
    calls: list[Any] = []
    run(workspace, refunding(calls))
    satchel.open(workspace).answer("approve", arguments={"amount": 50})
    others = refunding(calls, arguments={"amount": 90, "to": "ada"})
    outcome = run(workspace, others)
    assert outcome.status == "waiting" and [each.id for each in outcome.approvals] == ["a2"] and not calls


def test_the_call_has_the_identity_of_the_asked_arguments(workspace: Path) -> None:
    """The effect is done once, under the key of the changed arguments: an equal call elsewhere is answered from it."""
    calls: list[Any] = []
    main = refunding(calls)
    run(workspace, main)
    satchel.open(workspace).answer("approve", arguments={"amount": 50})
    assert run(workspace, main).status == "completed"
    (began,) = records(workspace, "step.started")
    assert began["arguments"] == {"amount": 50, "to": "ada"} and began["call"] == '("amount":50,"to":"ada")'

    @effect
    def refund(amount: int, to: str, **more: Any) -> str:
        raise AssertionError("it was done")

    @agent
    async def plain(run: Run) -> str:
        return str(await run.scope("plain", again, run))

    async def again(run: Run) -> str:
        return await refund(50, "ada")

    other = workspace.parent / "other"
    other.mkdir()
    (other / "workspace.yaml").write_text((workspace / "workspace.yaml").read_text())
    run(other, plain)
    (direct,) = records(other, "step.started")
    assert direct["args"] == began["args"], "the arguments as they were called, not as they were asked"


def test_a_secret_in_an_argument_reaches_the_call_redacted(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (workspace / "workspace.yaml").open("a") as file:
        file.write("redact: {env: [TOKEN]}\n")
    monkeypatch.setenv("TOKEN", "hunter2-hunter2")

    @agent
    async def main(run: Run) -> bool:
        answer = await run.ask("Go?", arguments={"token": "hunter2-hunter2", "amount": 80}, wait_for=0)
        return bool(answer.arguments == {"token": "hunter2-hunter2", "amount": 50})

    run(workspace, main)
    satchel.open(workspace).answer("approve", arguments={"amount": 50})
    assert run(workspace, main).result is True
    assert not any(b"hunter2" in path.read_bytes() for path in workspace.rglob("*") if path.is_file())


def test_an_answer_of_a_command_takes_what_a_person_has_begun_to_type(workspace: Path) -> None:
    calls: list[Any] = []
    run(workspace, refunding(calls))
    path = workspace / "approvals/a1.yaml"
    path.write_text(path.read_text().replace("\narguments:", "\narguments: {amount: 1}"))
    with pytest.raises(UsageError, match=r'it says \{"amount":1\}, and this answer names none'):
        satchel.open(workspace).answer("approve")
    assert "\narguments: {amount: 1}\n" in path.read_text()
    satchel.open(workspace).answer("approve", arguments={"amount": 50})
    assert "\narguments: {amount: 50}\n" in path.read_text()
    assert run(workspace, refunding(calls)).status == "completed" and calls == [(50, "ada")]


def test_the_same_answer_is_another_one(workspace: Path) -> None:
    calls: list[Any] = []
    run(workspace, refunding(calls))
    handle = satchel.open(workspace)
    assert not handle.answer("approve", "a1", arguments={"amount": 50}).was_before
    for again in ({"amount": 50}, {"amount": 50, "to": "ada"}):
        assert handle.answer("approve", "a1", arguments=again).was_before
    assert handle.answer("approve", "a1", arguments={"amount": "50"}, typed=True).was_before
    for other in (None, {}, {"amount": 80}, {"amount": 50, "to": "eve"}, {"amount": 50, "more": 1}):
        with pytest.raises(UsageError, match="already answered: approve with amount: 50"):
            handle.answer("approve", "a1", arguments=other)


_KILLED = """
import os, signal, threading
from pathlib import Path
from satchel import NotDone, agent, effect

HERE = Path(__file__).parent
DYING = threading.Lock()

def die(where):
    mark = HERE / f"died-{where}"
    with DYING:  # else the other item may come to its own death before this one's signal has ended its thread
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

def paid(amount, to, key):
    bank = HERE / "bank.txt"
    lines = bank.read_text().splitlines() if bank.exists() else []
    if f"{key} {amount} {to}" not in lines:
        raise NotDone
    return f"paid {amount}"

@effect(verify=paid)
def refund(amount: int, to: str, *, key: str) -> str:
    die("before the effect")
    with (HERE / "bank.txt").open("a") as file:
        file.write(f"{key} {amount} {to}\\n")
    die("after the effect")
    return f"paid {amount}"

async def work(run, name):
    answer = await run.ask(f"Refund 80 to {name}?", arguments={"amount": 80, "to": name}, wait_for=0)
    die("before the intent")
    arguments = answer.arguments
    if answer == "approve":
        run.state[name] = await refund(**arguments)

@agent
async def main(run):
    if not run.todo.items:
        await run.plan(None, ["ada", "eve"])
    await run.todo.each(lambda run, item: work(run, item.text), parallel=2)
"""


@pytest.fixture(params=["disk", "bucket"])
def killed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> satchel.Handle:
    """A run whose process is killed three times: before the intent, before the effect, and after it."""
    source = _KILLED.replace("Path(__file__).parent", f"Path({str(tmp_path)!r})")
    handle = make(tmp_path / "run", source)
    if request.param == "disk":
        return handle
    server: Server = request.getfixturevalue("seaweedfs")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    satchel.new(tmp_path / "run", url := f"{server.place()}/run")
    return satchel.open(url)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", ["command", "file"])
def test_a_kill_between_answer_intent_and_effect_pays_another_amount(
    killed: satchel.Handle, way: str, tmp_path: Path
) -> None:
    """Two items in parallel, each approved with an amount of its own."""

    def start() -> int:
        options = ["--take-over"] if "://" in killed.url else []
        command = [sys.executable, "-m", "satchel", "run", "--in-process", *options, killed.url]
        done = warm.run(command, capture_output=True, text=True, timeout=120)
        print(done.returncode, done.stdout, done.stderr)  # shown if the test fails
        return done.returncode

    assert start() == 4
    asked = {row.record["id"]: row.record["arguments"] for row in killed.history.log(type="approval.asked")}
    approved = {id: {**arguments, "amount": 50 + int(id[1:])} for id, arguments in asked.items()}
    for id, arguments in approved.items():
        if way == "command":
            killed.answer("approve", id, arguments={"amount": arguments["amount"]}, by="ann")
        else:
            there = killed.store.read(f"approvals/{id}.yaml")
            text = there.data.decode().replace("\narguments:", f"\narguments: {{amount: {arguments['amount']}}}")
            text = text.replace("\ndecision:", "\ndecision: approve").replace("\nby:", "\nby: ann")
            killed.store.replace(f"approvals/{id}.yaml", text.encode(), if_version=there.version)
    codes = [start()]
    while codes[-1] == -signal.SIGKILL:
        codes.append(start())
    assert codes == [-signal.SIGKILL] * 3 + [0] and len([*tmp_path.glob("died-*")]) == 3
    paid = [line.split()[1:] for line in (tmp_path / "bank.txt").read_text().splitlines()]
    assert sorted(paid) == sorted([str(each["amount"]), each["to"]] for each in approved.values())
    answers = {
        row.record["id"]: (row.record["arguments"], row.who) for row in killed.history.log(type="approval.answered")
    }
    assert {id: arguments for id, (arguments, _) in answers.items()} == {
        id: {"amount": each["amount"]} for id, each in approved.items()
    }
