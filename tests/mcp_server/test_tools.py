"""The tools, called by a client in this process on real workspaces."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest
from cli.conftest import PLAIN, Make
from jsonschema import Draft202012Validator
from mcp import MCPError

import satchel
from satchel.runtime.faces.mcp import ACTIONS
from satchel.runtime.live import pending_calls

from .conftest import LETTERS, ask, call, connected, refusal, run, serve


def test_a_client_may_act_that_was_not_allowed_to(make: Make, root: Path) -> None:
    make(LETTERS, "letters")

    async def work() -> None:
        async with connected(serve(root)) as client:
            listed = (await client.list_tools()).tools
            assert [each.name for each in listed] == ["list_runs", "status", "log", "show", "call"]
            assert all(each.annotations and each.annotations.read_only_hint for each in listed)
            for name in ACTIONS:
                said = await refusal(client, name, run="letters", decision="yes", content="x", to="new")
                assert said.startswith(f"{name} is not allowed here") and f"--allow {name}" in said
            assert (
                "A person has to do it: `satchel run letters`" in (await call(client, "status", run="letters"))["next"]
            )
        async with connected(serve(root, "answer, stop")) as client:
            assert [each.name for each in (await client.list_tools()).tools][5:] == ["answer", "stop"]
        async with connected(serve(root, "all")) as client:
            assert {each.name for each in (await client.list_tools()).tools} >= {*ACTIONS}

    run(work())
    assert satchel.open(root / "letters").status().state == "new"
    with pytest.raises(satchel.UsageError, match="can't allow 'everything'"):
        serve(root, "everything")


def test_schemas_do_not_describe_what_the_tools_take_and_give(make: Make, root: Path) -> None:
    satchel.open(make(LETTERS, "letters")).run()

    async def work() -> None:
        async with connected(serve(root, "all")) as client:
            for tool in (await client.list_tools()).tools:
                assert tool.output_schema and tool.description and tool.title and tool.annotations
                for schema in (tool.input_schema, tool.output_schema):
                    Draft202012Validator.check_schema(schema)
                    assert schema["type"] == "object"
                assert tool.annotations.open_world_hint is False
                assert (tool.name in ACTIONS) is not tool.annotations.read_only_hint
                assert (tool.name in ("answer", "cancel", "stop")) is tool.annotations.destructive_hint
            # The client checks each result against its schema
            await call(client, "list_runs")
            await call(client, "status", run="letters")
            await call(client, "log", run="letters")
            await call(client, "show", run="letters", at=3)
            await call(client, "send", run="letters", content={"to": "Edsger"})
            forged = {"kind": "schedule", "schedule": "daily", "due": "2026-11-22T06:00:00Z"}
            assert "time of a schedule" in await refusal(client, "send", run="letters", content=forged)
            await call(client, "answer", run="letters", decision="yes")
            await call(client, "pause", run="letters", until="45m")
            await call(client, "fork", run="letters", to="2026/second")
            assert "a complete fork" in await refusal(client, "fork", run="letters", to="2026/second")
            await call(client, "stop", run="letters", reason="enough")
            await call(client, "cancel", run="letters")

    run(work())


def test_what_a_run_needs_is_not_said(make: Make, root: Path) -> None:
    handle = satchel.open(make(LETTERS, "letters"))
    handle.run()

    async def work() -> None:
        async with connected(serve(root, "answer,resume")) as client:
            (line,) = (await call(client, "list_runs"))["runs"]
            assert (line["run"], line["run_id"], line["state"]) == ("letters", "letters-1a2b", "waiting")
            assert line["questions"] == ["a1"] and line["items"] == {"done": 0, "all": 2}
            told = await call(client, "status", run="letters")
            assert told["questions"][0]["text"] == "May I write to Ada?" and told["item"] == "write to Ada"
            assert "Call answer." in told["next"] and told["questions"][0]["choices"] == ["yes", "no"]
            assert "may be" not in await refusal(client, "answer", run="letters", decision="perhaps")
            done = await call(client, "answer", run="letters", decision="yes", note="once")
            assert done["is_recorded"] and not done["was_before"] and done["next"] == "Call resume."
            assert (await call(client, "status", run="letters"))["reason"] == "answered, has to be resumed"
            again = await call(client, "answer", run="letters", decision="yes", question="a1")
            assert again["was_before"]
            assert "already answered" in await refusal(client, "answer", run="letters", decision="no", question="a1")

    run(work())
    (answered,) = handle.history.log(type="approval.answered")
    assert answered.record["decision"] == "yes" and answered.record["note"] == "once"
    assert " over MCP (mcp" in answered.record["by"]


FAILING = """
from satchel import agent

@agent
async def main(run):
    raise ValueError("first line\\n" + "x" * 600 + "\\nlast line")
"""


def test_an_error_is_cut_before_what_matters(make: Make, root: Path) -> None:
    with suppress(satchel.errors.AgentError):
        satchel.open(make(FAILING, "failing")).run()

    async def work() -> None:
        async with connected(serve(root)) as client:
            told = await call(client, "status", run="failing")
            assert told["error"] == f"ValueError: first line\n{'x' * 600}\nlast line"

    run(work())


STEPS = """
import asyncio
from pathlib import Path
from satchel import agent, step

@step
async def summarise(path: str) -> str:
    while not Path(GO).exists():
        await asyncio.sleep(0.01)
    return path

@agent
async def main(run):
    await summarise("a.txt")
"""


def test_a_client_does_not_learn_which_step_runs(
    make: Make, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_calls, "LONG", 0.02)
    go = tmp_path / "go"
    handle = satchel.open(make(STEPS.replace("GO", repr(str(go))), "letters"))

    async def work() -> None:
        async with connected(serve(root)) as client:
            active = asyncio.create_task(handle.run_async())
            while not (told := (await call(client, "status", run="letters"))["running"]):
                assert not active.done()
            assert len(told) == 1 and told[0].startswith('summarise("path":"a.txt") for ')
            go.touch()
            assert (await active).status == "completed"
            assert (await call(client, "status", run="letters"))["running"] == []

    run(work())


@pytest.mark.parametrize(
    ("allow", "steps"),
    [
        ("fork,start", ["Call start.", "Call start.", "A person has to do it: `satchel answer new ID`"]),
        ("fork,resume,answer", ["Call resume.", "Call resume.", "Call answer."]),
    ],
)
def test_a_client_is_sent_to_a_person_for_what_it_may_do_itself(
    make: Make, root: Path, allow: str, steps: list[str]
) -> None:
    """Only a pause needs resume: start also begins a fork, and continues what was interrupted or has failed."""
    satchel.open(make(LETTERS, "letters")).run()
    satchel.open(make(PLAIN.replace("    await run.todo.each(work)", "    raise ValueError"), "failing")).run()
    act = "start" if "start" in allow else "resume"

    async def work() -> None:
        async with connected(serve(root, allow)) as client:
            forked = await call(client, "fork", run="letters", to="new", at=3)
            assert forked["next"] == steps[0]
            assert (await call(client, "status", run="failing"))["next"] == steps[1]
            assert (await call(client, act, run="failing"))["run"] == "failing"
            await call(client, act, run="new")
            while not (told := await call(client, "status", run="new"))["questions"]:
                assert told["state"] in ("running", "draining", "waiting"), told
            assert steps[2] in told["next"]

    run(work())


def test_a_run_of_an_odd_name_is_listed_and_not_found(make: Make, root: Path) -> None:
    names = ["2026 öl/deep one", "a%b", "q?x", 'quo"te', "a:b", "*", "ends."]
    for number, name in enumerate(names):
        folder = make(PLAIN, name)
        (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: odd-{number}\nagent: agent.py:main\n")
        satchel.open(folder).run()

    async def work() -> None:
        async with connected(serve(root, "fork"), has_tasks=True) as client:
            listed = (await call(client, "list_runs"))["runs"]
            assert sorted(each["run"] for each in listed) == sorted(names)
            for each in listed:
                assert (await call(client, "status", run=each["run"]))["state"] == "completed"
                assert (await ask(client, "tasks/get", each["task_id"]))["status"] == "completed"
            for resource in (await client.list_resources()).resources:
                await client.read_resource(resource.uri)
            assert "no name of a run" in await refusal(client, "fork", run="*", to="new?")

    run(work())


def test_an_error_does_not_say_what_to_do(make: Make, root: Path) -> None:
    make(PLAIN, "one")
    make(PLAIN, "deep/two")
    (root / "one/link").symlink_to(root / "deep")
    (root / "link").symlink_to(root / "deep/two")

    async def work() -> None:
        async with connected(serve(root, "all")) as client:
            for name in ("three", "..", "../one", "/etc", "one/..", ".hidden", "link", "one/link/two", "deep", ""):
                said = await refusal(client, "status", run=name)
                assert "there are: deep/two, one" in said or not name, said
            assert (await call(client, "status", run="deep/two"))["run_id"] == "two-1a2b"
            assert (await call(client, "status", run="two-1a2b"))["run"] == "deep/two"
            assert "arguments of status are not valid" in await refusal(client, "status", name="one")
            assert "`runs`" in await refusal(client, "log", run="one", runs=3)
            assert "no record" in await refusal(client, "show", run="one", at=99)
            assert "no name of a run" in await refusal(client, "fork", run="one", to="../out")
            assert "there is a run already" in await refusal(client, "fork", run="one", to="link/out")
            assert "has not begun" in await refusal(client, "fork", run="one", to="out")

    run(work())
    assert not (root.parent / "out").exists()


def test_arguments_that_no_text_can_have_break_the_call_or_are_repeated(make: Make, root: Path) -> None:
    """Models cut texts in the middle of a character, and send whole pages where a name is wanted."""
    satchel.open(make(PLAIN, "one")).run()

    async def work() -> None:
        async with connected(serve(root, "all"), has_tasks=True) as client:
            half = "\ud83d"
            for name, more in (("status", {}), ("send", {"content": f"smile {half}"}), ("log", {"item": half})):
                arguments = {"run": "one", **more} if more else {"run": half}
                assert "half a character" in await refusal(client, name, **arguments)
            page = "§" * 100_000
            lines = "a line\n\u202e" * 10_000
            for given, most in ((page, 200), (lines, 40)):  # an escape has more characters
                for name, more in (
                    ("status", {"run": given}),
                    ("answer", {"decision": "yes", "question": given}),
                    ("log", {"item": given}),
                    ("log", {"type": given}),
                    ("log", {"since": given}),
                    ("show", {"at": given}),
                    ("fork", {"to": given}),
                    ("list_runs", {"state": given}),
                    ("status", {given: 1}),
                ):
                    said = await refusal(client, name, **{"run": "one", **more} if name != "list_runs" else more)
                    assert said.count("§") + said.count("a line") <= most, said
                for request in (
                    ask(client, "tasks/get", given),
                    client.read_resource(f"satchel://one/{given}"),
                    client.read_resource(f"satchel://{given}/todo.md"),
                    client.list_resources(cursor=given),
                    client.call_tool(given, {}),
                ):
                    with pytest.raises(MCPError) as caught:
                        await request
                    for told in (caught.value.error.message, str(caught.value.error.data)):
                        assert told.count("§") + told.count("a line") <= most, told

    run(work())


def test_a_long_record_fills_the_context_of_a_model(make: Make, root: Path) -> None:
    shout = PLAIN.replace("say a", "say " + "a" * 5000)
    handle = satchel.open(make(shout, "loud"))
    handle.run()

    async def work() -> None:
        async with connected(serve(root)) as client:
            found = (await call(client, "log", run="loud", type="step.completed"))["records"]
            assert [each["record"]["step"] for each in found] == ["shout", "shout"]
            assert "(5,004 characters)" in json.dumps(found[0])
            assert len((await call(client, "log", run="loud", last=3))["records"]) == 3
            shown = await call(client, "show", run="loud")
            assert shown["agents"][0]["plan"].count("- [x]") == 2 and shown["seq"] == shown["newest"]
            said = (await call(client, "call", run="loud", call="^1/1"))["call"]
            assert said["call"].startswith('("text":"say aaa') and said["arguments"] is None, "longer than is kept"
            told = await call(client, "status", run="loud")
            assert told["result"] == {"said": 2} and told["next"].startswith("Nothing: it has completed")
            assert told["outputs"] == ["satchel://loud/outputs/1.txt", "satchel://loud/outputs/2.txt"]

    run(work())


def test_a_result_that_is_too_long_is_given(make: Make, root: Path) -> None:
    big = PLAIN.replace('{"said": 2}', '["x" * 1000] * 2000')
    satchel.open(make(big, "big")).run()

    async def work() -> None:
        async with connected(serve(root)) as client:
            told = await call(client, "status", run="big")
            assert told["result"] is None and told["result_omitted"]

    run(work())


def test_a_damaged_run_hides_the_others(make: Make, root: Path) -> None:
    (make(PLAIN, "bad") / "workspace.yaml").write_text("run_id: [")
    make(PLAIN, "good")

    async def work() -> None:
        async with connected(serve(root)) as client:
            bad, good = (await call(client, "list_runs"))["runs"]
            assert bad["state"] == "damaged" and "workspace.yaml" in bad["problem"] and good["state"] == "new"
            told = await call(client, "status", run="bad")
            assert "workspace.yaml" in told["error"] and "satchel check bad" in told["next"]
            assert "workspace.yaml" in await refusal(client, "log", run="bad")

    run(work())


def test_the_root_itself_can_not_be_the_run(make: Make) -> None:
    folder = make(PLAIN, "only")

    async def work() -> None:
        async with connected(serve(folder)) as client:
            (line,) = (await call(client, "list_runs"))["runs"]
            assert line["run"] == "only" and (await call(client, "status", run="only"))["state"] == "new"

    run(work())
    with pytest.raises(satchel.UsageError, match="no such folder"):
        serve(folder / "missing")


def test_a_run_is_not_found_in_a_long_list(make: Make, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from satchel.runtime.faces.mcp import tools

    for name in ("runs/letters", "runs/runs", "runs/tax-2026"):
        make(PLAIN, name)
    satchel.open(root / "runs/letters").run()
    satchel.open(root / "runs/letters").move(root / "moved")
    monkeypatch.setattr(tools, "_LISTED", 2)

    async def work() -> None:
        async with connected(serve(root / "runs")) as client:
            found = await call(client, "list_runs")
            assert [each["run"] for each in found["runs"]] == ["runs", "tax-2026"] and found["omitted"] == 1
            found = await call(client, "list_runs", search="TAX", state="new")
            assert [each["run"] for each in found["runs"]] == ["tax-2026"] and found["omitted"] == 0
            assert not (await call(client, "list_runs", state="waiting"))["runs"]
            assert "'runing'" in await refusal(client, "list_runs", state="runing")
            found = await call(client, "list_runs", sort="-run")
            assert [each["run"] for each in found["runs"]] == ["tax-2026", "runs"]
            assert not (await call(client, "list_runs", wanted=True))["runs"]
            (line,) = (await call(client, "list_runs", agent="agent.py:*", search="tax new"))["runs"]
            assert line["run"] == "tax-2026"
            assert not (await call(client, "list_runs", since="1h"))["runs"], "none of them has begun"
            assert "'need'" in await refusal(client, "list_runs", sort="neeed")
            assert "'soon'" in await refusal(client, "list_runs", since="soon")
            assert (await call(client, "status", run="runs"))["state"] == "new"
            moved = await call(client, "status", run="letters")
            assert moved["state"] == "moved" and str(root / "moved") in moved["next"]

    run(work())


def test_a_run_is_served_or_made_that_the_list_does_not_have(make: Make, root: Path) -> None:
    """What lies in a run are its files, and strangers may have written them; a link may lead anywhere."""
    satchel.open(make(PLAIN, "runs/one")).run()
    make(PLAIN, "runs/one/outputs/copied")
    make(PLAIN, "runs/two")
    (root / "elsewhere").mkdir()
    (root / "runs/link").symlink_to(root / "elsewhere")

    async def work() -> None:
        async with connected(serve(root / "runs", "all")) as client:
            assert len((await call(client, "list_runs"))["runs"]) == 2
            assert "there is no run" in await refusal(client, "start", run="one/outputs/copied")
            assert "there is a run already" in await refusal(client, "fork", run="one", to="two/outputs/new")
            assert "is no folder" in await refusal(client, "fork", run="one", to="link")
            assert "is no folder" in await refusal(client, "fork", run="one", to="link/new")
        async with connected(serve(root / "runs/one", "all")) as client:
            assert "there is no run" in await refusal(client, "start", run="outputs/copied")

    run(work())
    assert not [*(root / "elsewhere").iterdir()] and not (root / "runs/two/outputs/new").exists()
