"""A client approves other arguments than the agent has asked with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Make

import satchel

from .conftest import call, connected, refusal, run, serve
from .test_tasks import accept, ask, task_of

REFUNDS = """
from satchel import agent

@agent
async def main(run):
    answer = await run.ask("Refund 80 to Ada?", arguments={"amount": 80, "to": "ada"}, tool="refund", wait_for=0)
    return answer.arguments if answer.arguments and answer == "approve" else None
"""


def test_a_client_is_not_shown_or_can_not_change_the_arguments(make: Make, root: Path) -> None:
    handle = satchel.open(make(REFUNDS, "refunds"))
    handle.run()

    async def work() -> None:
        async with connected(serve(root, "answer")) as client:
            (asked,) = (await call(client, "status", run="refunds"))["questions"]
            assert asked["arguments"] == {"amount": 80, "to": "ada"}
            assert asked["answer_schema"]["properties"]["amount"] == {"type": "integer"}
            assert asked["call"] == "_agent/1" and asked["covers"].startswith("each call of refund by the run's own")
            wrong = {"run": "refunds", "decision": "approve"}
            assert "Did you mean amount?" in await refusal(client, "answer", **wrong, arguments={"amout": 50})
            assert "unless the decision is approve" in await refusal(
                client, "answer", run="refunds", decision="deny", arguments={"amount": 50}
            )
            assert asked["tool"] == "refund"
            both = {"arguments": {"amount": 50}, "standing": True}
            assert "together with changed arguments" in await refusal(client, "answer", **wrong, **both)
            done = await call(client, "answer", **wrong, arguments={"amount": 50})
            assert done["is_recorded"]

    run(work())
    (answered,) = handle.history.log(type="approval.answered")
    assert answered.record["arguments"] == {"amount": 50} and " over MCP (" in answered.record["by"]
    assert handle.resume().result == {"amount": 50, "to": "ada"}


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({"decision": "approve", "argument.amount": 50, "argument.to": "ada"}, {"amount": 50, "to": "ada"}),
        ({"decision": "approve"}, {"amount": 80, "to": "ada"}),
        ({"decision": "deny", "argument.amount": 50}, None),
    ],
)
def test_the_form_of_a_task_does_not_offer_the_arguments(
    make: Make, root: Path, given: dict[str, Any], result: Any
) -> None:
    handle = satchel.open(make(REFUNDS, "refunds"))
    handle.run()
    task = task_of(root / "refunds")

    async def work() -> None:
        async with connected(serve(root, "answer"), has_tasks=True, can_ask=True) as client:
            (form,) = (await ask(client, "tasks/get", task))["inputRequests"].values()
            assert 'arguments: {"amount":80,"to":"ada"}' in form["params"]["message"]
            fields = form["params"]["requestedSchema"]["properties"]
            assert fields["argument.amount"] == {"title": "amount", "type": "integer", "default": 80}
            assert fields["decision"]["enum"] == ["approve", "deny"]
            await ask(client, "tasks/update", task, input_responses={"a1": accept(**given)})

    run(work())
    assert handle.resume().result == result


def test_a_client_does_not_see_a_standing_approval_or_can_not_revoke_it(make: Make, root: Path) -> None:
    handle = satchel.open(make(REFUNDS, "refunds"))
    handle.run()

    async def work() -> None:
        async with connected(serve(root, "answer")) as client:
            assert "neither a decision nor revoke" in await refusal(client, "answer", run="refunds")
            assert "none is in force" in await refusal(client, "answer", run="refunds", revoke=True)
            await call(client, "answer", run="refunds", decision="approve", standing=True)
            shown = await client.call_tool("status", {"run": "refunds"})
            assert shown.content[0].type == "text" and "approved with a1, by " in shown.content[0].text
            assert shown.structured_content
            (approved,) = shown.structured_content["approved"]
            assert (approved["question"], approved["tool"], approved["uses"]) == ("a1", "refund", 0)
            for other in ({"decision": "deny"}, {"decision": None}, {"standing": True}, {"note": "wrong"}):
                both = await refusal(client, "answer", run="refunds", question="a1", revoke=True, **other)
                assert "revoke goes with run and question only" in both
            assert "in force: a1 (refund)" in await refusal(client, "answer", run="refunds", question="a2", revoke=True)
            done = await call(client, "answer", run="refunds", question="a1", revoke=True)
            assert done["is_recorded"] and not done["was_before"]
            assert (await call(client, "answer", run="refunds", question="a1", revoke=True))["was_before"]
            assert not (await call(client, "status", run="refunds"))["approved"]

    run(work())
    (revoked,) = handle.history.log(type="approval.revoked")
    assert revoked.record["id"] == "a1" and " over MCP (" in revoked.record["by"]
