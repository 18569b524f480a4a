"""A run as a task of the protocol of 2026-07-28."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from cli.conftest import PLAIN, Make
from mcp import Client, MCPError

import satchel
from satchel.runtime.api import Handle
from satchel.runtime.faces.mcp import descriptions, tools

from .conftest import LETTERS, AnyResult, ask, call, connected, refusal, run, serve, until


def task_of(folder: Path) -> str:
    found = descriptions.task_id(folder.name, satchel.open(folder).status().moment)
    assert found is not None
    return found


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def error_of(client: Client, method: str, task: str, **params: Any) -> types.ErrorData:
    with pytest.raises(MCPError) as caught:
        await ask(client, method, task, **params)
    return caught.value.error


async def start_task(client: Client, run: str) -> dict[str, Any]:
    params = types.CallToolRequestParams(name="start", arguments={"run": run})
    found = await client.session.send_request(types.CallToolRequest(params=params), AnyResult)
    return found.model_extra or {}


def test_a_run_is_not_a_task_from_start_to_end(make: Make, root: Path) -> None:
    folder = make(LETTERS, "letters")

    async def work() -> None:
        async with connected(serve(root, "start,answer,resume"), has_tasks=True, can_ask=True) as client:
            created, task = await start_task(client, "letters"), task_of(folder)
            assert created["resultType"] == "task" and created["taskId"] == task
            assert not created.keys() & {"task", "result", "inputRequests", "requestState"}
            asked = await until(client, task, "input_required")
            assert asked["taskId"] == task and asked["ttlMs"] is None and asked["pollIntervalMs"] == 10_000
            assert asked["createdAt"] <= asked["lastUpdatedAt"]
            assert re.match(r"(running|waiting)\b.*, 0 of 2 items done\. .* a1\.", asked["statusMessage"])
            (form,) = asked["inputRequests"].values()
            assert form["method"] == "elicitation/create" and form["params"]["mode"] == "form"
            assert form["params"]["message"] == "letters asks: May I write to Ada?"
            decision = form["params"]["requestedSchema"]["properties"]["decision"]
            assert decision["enum"] == ["yes", "no"]
            done = await ask(client, "tasks/update", task, input_responses={"a1": accept(decision="yes", note="ok")})
            assert set(done) - {"resultType", "_meta"} == set() and done["resultType"] == "complete"
            asked = await until(client, task, "input_required")
            assert [*asked["inputRequests"]] == ["a2"]
            # An answer that is no longer asked for changes nothing, and a refusal leaves the question open
            await ask(client, "tasks/update", task, input_responses={"a1": accept(decision="no"), "x": accept()})
            await ask(client, "tasks/update", task, input_responses={"a2": {"action": "decline"}})
            assert (await error_of(client, "tasks/update", task, input_responses={"a2": accept(decision="maybe")})).code
            await ask(client, "tasks/update", task, input_responses={"a2": accept(decision="no")})
            ended = await until(client, task, "completed")
            assert not ended["result"].get("isError") and ended["result"]["content"]
            assert ended["result"]["structuredContent"]["result"] == {"letters": 2, "copies": 1}
            assert ended["createdAt"] == asked["createdAt"] and "inputRequests" not in ended
            assert set(await ask(client, "tasks/cancel", task)) <= {"resultType", "_meta"}

    run(work())
    answers = [row.record["decision"] for row in satchel.open(folder).history.log(type="approval.answered")]
    assert answers == ["yes", "no"] and (folder / "outputs/1.txt").exists()


def test_a_task_is_created_for_a_client_that_has_none(make: Make, root: Path) -> None:
    make(PLAIN, "one")

    async def work() -> None:
        server = serve(root, "all")
        async with connected(server) as client:
            assert (await call(client, "start", run="one"))["state"] in ("running", "completed")
            error = await error_of(client, "tasks/get", task_of(root / "one"))
            assert error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert error.data == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
        async with connected(server, mode="legacy") as client:
            assert (await call(client, "status", run="one"))["task_id"] == task_of(root / "one")
            assert (await error_of(client, "tasks/get", task_of(root / "one"))).code == types.METHOD_NOT_FOUND

    run(work())


def test_a_strange_id_leads_to_a_task(make: Make, root: Path) -> None:
    satchel.open(make(PLAIN, "one")).run()
    make(PLAIN, "new")
    task = task_of(root / "one")
    assert re.fullmatch(r"one\.[0-9a-f]{32}", task)

    async def work() -> None:
        async with connected(serve(root, "all"), has_tasks=True) as client:
            for wrong in (f"{task[:-1]}{'0' if task[-1] != '0' else '1'}", "one.", "new.", "..", "", "../one.x"):
                for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                    assert (await error_of(client, method, wrong, input_responses={})).code == types.INVALID_PARAMS
            for removed in ("tasks/list", "tasks/result"):
                assert (await error_of(client, removed, task)).code == types.METHOD_NOT_FOUND
            assert (await call(client, "status", run="new"))["task_id"] is None
            found = await ask(client, "tasks/get", task)
            assert found["status"] == "completed" and found["result"]["structuredContent"]["result"] == {"said": 2}

    run(work())


FAILING = PLAIN.replace("    await run.todo.each(work)", '    raise ValueError("no such word")')


def test_what_goes_wrong_has_the_wrong_status(make: Make, root: Path) -> None:
    failing = make(FAILING, "failing")
    assert satchel.open(failing).run().status == "failed"
    handle = satchel.open(make(LETTERS, "held"))
    handle.run()
    handle.answer("yes")
    cancelled = satchel.open(make(LETTERS, "cancelled"))
    cancelled.run()
    cancelled.cancel()
    broken = make(PLAIN, "broken")
    satchel.open(broken).run()
    tasks = {name: task_of(root / name) for name in ("failing", "held", "cancelled", "broken")}
    (broken / "journal/000000000001.jsonl").write_text("{}\n" * 9)
    key = ""

    async def work() -> None:
        nonlocal key
        async with connected(serve(root, "all"), has_tasks=True, can_ask=True) as client:
            failed = await ask(client, "tasks/get", tasks["failing"])
            assert failed["status"] == "completed" and failed["result"]["isError"] is True
            assert "ValueError: no such word" in failed["result"]["content"][0]["text"]
            held = await ask(client, "tasks/get", tasks["held"])
            ((key, form),) = held["inputRequests"].items()
            assert held["status"] == "input_required" and re.fullmatch(r"resume-\d+", key)
            assert form["params"]["requestedSchema"]["required"] == ["resume"]
            # A refusal leaves it as it is
            await ask(client, "tasks/update", tasks["held"], input_responses={key: accept(resume=False)})
            assert (await ask(client, "tasks/get", tasks["held"]))["inputRequests"].keys() == {key}
            assert (await ask(client, "tasks/get", tasks["cancelled"]))["status"] == "cancelled"
            found = await ask(client, "tasks/get", tasks["broken"])
            assert found["status"] == "failed" and found["error"]["code"] == types.INTERNAL_ERROR
            assert "journal" in found["error"]["message"] and "result" not in found
        async with connected(serve(root), has_tasks=True, can_ask=True) as client:
            held = await ask(client, "tasks/get", tasks["held"])
            assert held["inputRequests"] == {} and "A person has to do it" in held["statusMessage"]
            for method in ("tasks/cancel", "tasks/update"):
                error = await error_of(client, method, tasks["held"], input_responses={key: accept(resume=True)})
                assert "not allowed here" in error.message
        async with connected(serve(root, "all"), has_tasks=True) as client:  # it could not ask anybody
            assert (await ask(client, "tasks/get", tasks["held"]))["inputRequests"] == {}
            assert set(await ask(client, "tasks/cancel", tasks["held"])) <= {"resultType", "_meta"}
            assert (await until(client, tasks["held"], "cancelled", "input_required"))["status"] == "cancelled"

    run(work())


def test_a_start_that_is_refused_is_a_task(make: Make, root: Path) -> None:
    make(LETTERS, "letters")

    async def work() -> None:
        async with connected(serve(root, "all"), has_tasks=True) as client:
            said = await refusal(client, "start", run="letters", input={"copys": 2})
            assert "copys" in said and "copies" in said and "satchel:" not in said
            assert "has never started" in await refusal(client, "resume", run="letters")
            assert (await call(client, "status", run="letters"))["state"] == "new"

    run(work())


def test_why_an_agent_was_not_called_is_not_said(make: Make, root: Path) -> None:
    """The client was told to resume it, again and again."""
    folder = make("x = 1\n", "typo")
    with pytest.raises(satchel.UsageError, match="there is no 'main'"):
        satchel.open(folder).run()

    async def work() -> None:
        async with connected(serve(root, "all"), has_tasks=True, can_ask=True) as client:
            told = await call(client, "status", run="typo")
            assert told["state"] == "interrupted" and "there is no 'main' in agent.py" in told["error"]
            found = await ask(client, "tasks/get", task_of(folder))
            assert "there is no 'main' in agent.py" in found["statusMessage"]
            (form,) = found["inputRequests"].values()
            assert "there is no 'main' in agent.py" in form["params"]["message"]

    run(work())


BREAKING = """
import os
from pathlib import Path
from satchel import agent

@agent
async def main(run):
    Path(__file__).with_name("workspace.yaml").write_text("run_id: [")
    os._exit(1)
"""


def test_the_start_of_a_run_that_breaks_its_own_files_is_refused(
    make: Make, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server had waited for it for a minute."""
    workspace, detach = make(BREAKING, "breaking"), Handle.detach

    def detach_until_broken(handle: Handle, **options: Any) -> Any:
        found = detach(handle, **options)
        while "[" not in (workspace / "workspace.yaml").read_text():
            time.sleep(0.01)
        return found

    monkeypatch.setattr(Handle, "detach", detach_until_broken)
    monkeypatch.setattr(tools, "_PATIENCE", 1.0)

    async def work() -> None:
        async with connected(serve(root, "all"), has_tasks=True) as client:
            started = await call(client, "start", run="breaking")
            # The process may end before the opening is on the disk. After that, the settings on record are in force.
            assert started["state"] in ("damaged", "interrupted") and "workspace.yaml" in str(started)

    run(work())


FORMS = """
import asyncio
from satchel import agent

FIELDS = {"name": {"type": "string"}, "age": {"type": "integer"}}
PERSON = {"type": "object", "properties": FIELDS, "required": ["name"]}
LIST = {"type": "array", "items": {"type": "string"}}

@agent
async def main(run):
    asked = [("text", None), ("number", {"type": "number"}), ("person", PERSON), ("list", LIST)]
    answers = await asyncio.gather(
        *(run.ask(text, schema=schema, context={"from": "\\x1b[31mmail"}, wait_for=0) for text, schema in asked)
    )
    return [each.decision for each in answers]
"""


def test_a_form_does_not_fit_its_question(make: Make, root: Path) -> None:
    handle = satchel.open(make(FORMS, "forms"))
    handle.run()
    task = task_of(root / "forms")

    async def work() -> None:
        async with connected(serve(root, "answer"), has_tasks=True, can_ask=True) as client:
            asked = (await ask(client, "tasks/get", task))["inputRequests"]
            schemas = {id: each["params"]["requestedSchema"] for id, each in asked.items()}
            assert "\x1b" not in str(asked) and "[31mmail" in asked["a1"]["params"]["message"]
            assert schemas["a1"]["properties"]["decision"]["type"] == "string"
            assert schemas["a2"]["properties"]["decision"]["type"] == "number"
            assert schemas["a3"]["properties"].keys() == {"name", "age"} and schemas["a3"]["required"] == ["name"]
            assert schemas["a4"]["properties"]["decision"]["description"].startswith("As JSON: ")
            wrong = {"a2": accept(decision="many"), "a3": accept(age=3), "a4": accept(decision="a, b")}
            for key, response in wrong.items():
                error = await error_of(client, "tasks/update", task, input_responses={key: response})
                assert f"not a valid answer to {key}" in error.message
            right = {
                "a1": accept(decision="yes"),
                "a2": accept(decision=1.5, note="about"),
                "a3": accept(name="Ada"),
                "a4": accept(decision='["a", "b"]'),
            }
            await ask(client, "tasks/update", task, input_responses=right)

    run(work())
    assert handle.resume().result == ["yes", 1.5, {"name": "Ada"}, ["a", "b"]]
