"""An approval in Pydantic AI: a person sees and changes the arguments that the tool gets, and the model is told."""

from __future__ import annotations

import json
import math
import signal
import sys
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
import warm
from pydantic import AfterValidator, BaseModel, BeforeValidator
from pydantic_ai import Agent, FunctionToolset, ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.capabilities import Hooks
from servers import Server

import satchel
from satchel import Run, agent, run
from satchel.adapters.pydantic_ai import SatchelDurability, as_effect

from .test_pydantic_ai import calling


def asked(workspace: Path) -> list[Any]:
    """The arguments that people are shown."""
    return [each.arguments or each.context["arguments"] for each in satchel.open(workspace).questions()]


def told(messages: list[ModelMessage]) -> list[str]:
    parts = [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


def entered(helper: Agent[Any, Any]) -> satchel.Agent[Any]:
    """Returns what the model has heard from others than its tools."""

    @agent
    async def main(run: Run) -> Any:
        return told((await helper.run("Go")).all_messages())

    return main


def at_most(cents: int) -> int:
    return min(cents, 5000)


def refunding(log: list[Any], kind: Any, *capabilities: Any, cents: Any = 8000) -> Agent[None, str]:
    """An agent whose model asks for a refund, and then says what it has been told."""
    helper = Agent(
        calling([("refund", {"cents": cents, "to": "Ada"})]),
        name="helper",
        capabilities=[SatchelDurability(wait_for=0), *capabilities],
    )

    def refund(cents: Any, to: Annotated[str, AfterValidator(str.lower)], note: str = "") -> str:
        log.append((cents, to, note))
        return f"paid {cents}"

    refund.__annotations__ |= {"cents": kind}
    helper.tool_plain(requires_approval=True, metadata=as_effect())(refund)
    return helper


def rewriting() -> Hooks[None]:
    """Hooks that double an amount in cents, as one that converts a currency would."""
    hooks: Hooks[None] = Hooks()

    @hooks.on.after_tool_validate
    async def double(ctx: Any, *, call: Any, tool_def: Any, args: dict[str, Any]) -> dict[str, Any]:
        return {**args, "cents": 2 * args["cents"]}

    return hooks


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    ("kind", "hooks", "shown"),
    [
        (Annotated[int, AfterValidator(at_most)], (), {"cents": 5000, "to": "ada"}),
        (int, (rewriting(),), {"cents": 16000, "to": "ada"}),
        (Annotated[int, BeforeValidator(lambda said: int(said) // 2)], (), {"cents": 4000, "to": "ada"}),
    ],
    ids=["type", "hook", "before"],
)
def test_a_person_approves_one_value_and_another_one_runs(
    workspace: Path, kind: Any, hooks: tuple[Any, ...], shown: dict[str, Any]
) -> None:
    log: list[Any] = []
    main = entered(refunding(log, kind, *hooks))
    assert run(workspace, main).status == "waiting"
    (seen,) = asked(workspace)
    assert {name: seen[name] for name in shown} == shown
    satchel.open(workspace).answer("approve")
    assert run(workspace, main).status == "completed" and log == [(shown["cents"], shown["to"], "")]


@pytest.mark.parametrize(
    ("changes", "ran"), [({"cents": 50}, (50, "ada", "")), ({"to": "eve", "note": "late"}, (5000, "eve", "late"))]
)
def test_a_changed_approval_runs_the_old_arguments_or_the_model_is_not_told(
    workspace: Path, changes: dict[str, Any], ran: tuple[Any, ...]
) -> None:
    log: list[Any] = []
    main = entered(refunding(log, Annotated[int, AfterValidator(at_most)]))
    run(workspace, main)
    with pytest.raises(satchel.UsageError):
        satchel.open(workspace).answer("approve", arguments={"sents": 1})
    with pytest.raises(satchel.UsageError):
        satchel.open(workspace).answer("approve", arguments={"cents": "many"})
    satchel.open(workspace).answer("approve", arguments=changes, note="for once")
    outcome = run(workspace, main)
    assert outcome.status == "completed" and log == [ran], outcome.error
    (note,) = outcome.result[1:]
    assert "A person has approved other arguments" in note and "for once" in note
    assert all(f'"{name}": {json.dumps(value)}' in note for name, value in changes.items())


def test_a_validator_rewrites_what_a_person_has_approved(workspace: Path) -> None:
    """Then the person sees what would run, and is asked once more."""
    log: list[Any] = []
    main = entered(refunding(log, int, rewriting()))
    run(workspace, main)
    satchel.open(workspace).answer("approve", arguments={"cents": 50})
    assert run(workspace, main).status == "waiting" and not log
    assert asked(workspace) == [{"cents": 100, "to": "ada", "note": ""}]
    satchel.open(workspace).answer("approve")
    assert run(workspace, main).status == "completed" and log == [(100, "ada", "")]


def test_a_validator_refuses_what_a_person_has_approved(workspace: Path) -> None:
    def even(cents: int) -> int:
        if cents % 2:
            raise ValueError("only whole pairs")
        return cents

    log: list[Any] = []
    main = entered(refunding(log, Annotated[int, AfterValidator(even)]))
    run(workspace, main)
    satchel.open(workspace).answer("approve", arguments={"cents": 51})
    assert run(workspace, main).status == "waiting" and not log
    (again,) = satchel.open(workspace).questions()
    assert "only whole pairs" in again.context["refused"] and again.arguments == {
        "cents": 8000,
        "to": "ada",
        "note": "",
    }
    satchel.open(workspace).answer("approve", arguments={"cents": 52})
    assert run(workspace, main).status == "completed" and log == [(52, "ada", "")]


class Order(BaseModel):
    number: str
    due: date


def test_arguments_that_are_objects_can_not_be_changed(workspace: Path) -> None:
    log: list[Any] = []
    order = {"number": "1007", "due": "2026-12-01"}
    helper = Agent(
        calling([("ship", {"order": order, "urgent": False})], [("ship", {"order": order})]),
        name="helper",
        capabilities=[SatchelDurability(wait_for=0)],
    )

    @helper.tool_plain(requires_approval=True)
    def ship(order: Order, urgent: bool = True) -> str:
        log.append((order, urgent))
        return "shipped"

    main = entered(helper)
    run(workspace, main)
    satchel.open(workspace).answer("approve", arguments={"order": {"number": "1008", "due": "2026-12-24"}})
    run(workspace, main)
    satchel.open(workspace).answer("approve", arguments={"urgent": False})
    outcome = run(workspace, main)
    assert outcome.status == "completed" and len(outcome.result) == 3, outcome.error
    changed, same = Order(number="1008", due=date(2026, 12, 24)), Order(number="1007", due=date(2026, 12, 1))
    assert log == [(changed, False), (same, False)]


def test_parallel_approvals_share_their_changes(workspace: Path) -> None:
    log: list[Any] = []
    helper = Agent(
        calling([("pay", {"cents": cents}) for cents in (100, 200, 300)]),
        name="helper",
        capabilities=[SatchelDurability(wait_for=0)],
    )

    @helper.tool_plain(requires_approval=True, metadata=as_effect())
    async def pay(cents: int) -> str:
        log.append(cents)
        return f"paid {cents}"

    main = entered(helper)
    run(workspace, main)
    by_cents = {each.arguments["cents"]: each.id for each in satchel.open(workspace).questions() if each.arguments}
    satchel.open(workspace).answer("approve", by_cents[100], arguments={"cents": 10})
    satchel.open(workspace).answer("deny", by_cents[200])
    satchel.open(workspace).answer("approve", by_cents[300])
    outcome = run(workspace, main)
    assert outcome.status == "completed" and sorted(log) == [10, 300]
    assert [line for line in outcome.result if "approved other" in line] == outcome.result[1:] and len(
        outcome.result
    ) == 2


_KILLED = """
import os, signal, sys
from pathlib import Path
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from satchel import NotDone, agent, run
from satchel.adapters.pydantic_ai import SatchelDurability, as_effect, idempotency_key

HERE = Path(sys.argv[2])
BANK = HERE / "bank.txt"

def die(where):
    mark = HERE / f"died-{where}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)

def model(messages, info):
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("refund", {"cents": 80}, "c1")])
    said = [part.content for part in messages[-1].parts if isinstance(part, UserPromptPart)]
    die("before the model is told")
    return ModelResponse([TextPart(str(said))])

def paid(cents, key):
    if not BANK.exists() or f"{key} {cents}" not in BANK.read_text().splitlines():
        raise NotDone
    return "paid"

def checked(ctx, cents):
    if ctx.tool_call_approved:
        die("between the answer and the intent")

helper = Agent(FunctionModel(model), name="helper", capabilities=[SatchelDurability(wait_for=0)])

@helper.tool_plain(requires_approval=True, metadata=as_effect(verify=paid), args_validator=checked)
def refund(cents: int) -> str:
    die("before the effect")
    with BANK.open("a") as file:
        file.write(f"{idempotency_key()} {cents}\\n")
    die("after the effect")
    return "paid"

@agent
async def main(run):
    return (await helper.run("Go")).output

outcome = run(sys.argv[1], main)
print(outcome.status, outcome.result)
"""


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_a_kill_after_a_changed_approval_pays_something_else(
    place: str, workspace: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(workspace)
    if place == "bucket":
        server: Server = request.getfixturevalue("seaweedfs")
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        (workspace / "agent.py").touch()
        satchel.new(workspace, url := f"{server.place()}/run")

    def start() -> Any:
        words = [sys.executable, "-c", _KILLED, url, str(tmp_path)]
        return warm.run(words, capture_output=True, text=True, timeout=300, check=False)

    (tmp_path / "died-between the answer and the intent").touch()  # the arguments of the question are checked, too
    assert start().stdout.startswith("waiting")
    (tmp_path / "died-between the answer and the intent").unlink()
    satchel.open(url).answer("approve", arguments={"cents": 50})
    ended, deaths = start(), 0
    while ended.returncode == -signal.SIGKILL:
        ended, deaths = start(), deaths + 1
    assert ended.returncode == 0 and deaths == 4, (ended, satchel.open(url).questions())
    assert ended.stdout.startswith("completed") and '"cents": 50' in ended.stdout
    assert [line.split()[1] for line in (tmp_path / "bank.txt").read_text().splitlines()] == ["50"]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("way", ["agent", "toolset"])
def test_a_tool_is_asked_about_again_that_a_person_has_approved_for_the_run(workspace: Path, way: str) -> None:
    """Until that is revoked: then nothing begins that was approved in the same breath."""
    log: list[int] = []

    def pay(cents: int) -> str:
        log.append(cents)
        if cents == 3:
            satchel.open(workspace).revoke(by="Bob")
        return f"paid {cents}"

    toolset: FunctionToolset[None] = FunctionToolset(id="bank")
    tools = [toolset] if way == "toolset" else []
    helper = Agent(
        calling([("pay", {"cents": 1})], [("pay", {"cents": 2})], [("pay", {"cents": cents}) for cents in (3, 4)]),
        name="helper",
        toolsets=tools,
        capabilities=[SatchelDurability(wait_for=0)],
    )
    place: Any = toolset.tool_plain if way == "toolset" else helper.tool_plain
    place(requires_approval=True, metadata=as_effect(), sequential=True)(pay)
    main = entered(helper)
    run(workspace, main)
    name = "helper.bank.pay" if way == "toolset" else "helper.pay"
    (question,) = satchel.open(workspace).questions()
    assert question.call == name
    satchel.open(workspace).answer("approve", standing=True)
    outcome = run(workspace, main)
    assert outcome.status == "waiting" and log == [1, 2, 3], outcome.error
    assert asked(workspace) == [{"cents": 4}]
    satchel.open(workspace).answer("deny")
    assert run(workspace, main).status == "completed" and log == [1, 2, 3]


def test_a_person_approves_something_else_than_a_number_that_is_no_json(workspace: Path) -> None:
    """Not `null`, which is what JSON would make of it."""
    got: list[Any] = []
    helper = Agent(calling([("pay", {"cents": math.nan})]), name="h", capabilities=[SatchelDurability(wait_for=0)])

    @helper.tool_plain(requires_approval=True)
    def pay(cents: float) -> str:
        got.append(cents)
        return "paid"

    assert run(workspace, entered(helper)).status == "waiting"
    assert asked(workspace) == [{"cents": {"satchel:json": "NaN"}}]
    satchel.open(workspace).answer("approve")
    assert run(workspace, entered(helper)).status == "completed"
    assert repr(got) == "[nan]"
