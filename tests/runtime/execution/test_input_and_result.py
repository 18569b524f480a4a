"""The arguments of a run are recorded at its first start, and what its agent returns when it completes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import warm

import satchel
from satchel import NotCompleted, Run, agent, run, step
from satchel.workspace.base.errors import NotSerializable, UsageError


@dataclass
class Request:
    topic: str
    due: date
    depth: int = 2


TIDES = Request("tides", date(2026, 11, 1))


@step
async def look_up(topic: str, depth: int) -> str:
    return f"{topic} to {depth}"


@agent
async def research(run: Run[Any], request: Request, *links: str, **limits: int) -> Request:
    assert isinstance(request.due, date)
    found = await look_up(request.topic, request.depth + sum(limits.values()))
    return Request(f"{found} {'+'.join(links)}", request.due)


def state(workspace: Path) -> dict[str, Any]:
    return dict(json.loads((workspace / "state.json").read_text()))


def records(workspace: Path, kind: str) -> list[dict[str, Any]]:
    lines = [line for path in sorted(workspace.glob("journal/*.jsonl")) for line in path.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["type"] == kind]


def test_arguments_and_result_are_typed_at_every_start(workspace: Path) -> None:
    first = run(workspace, research, TIDES, "a", "b")
    assert first.result == Request("tides to 2 a+b", TIDES.due), first.error
    again = run(workspace, research)
    assert (again.result, again.entered) == (first.result, False)
    assert run(workspace, research, TIDES, "a", "b").result == first.result, "equal arguments are no other ones"
    assert state(workspace)["input"] == {
        "request": {"topic": "tides", "due": "2026-11-01", "depth": 2},
        "links": ["a", "b"],
        "limits": {},
    }
    assert state(workspace)["result"] == {"topic": "tides to 2 a+b", "due": "2026-11-01", "depth": 2}
    assert len(records(workspace, "input")) == 1
    kept = satchel.open(str(workspace)).result
    assert kept.returned == state(workspace)["result"] and kept.input == state(workspace)["input"]


@pytest.mark.parametrize(
    ("args", "given", "said"),
    [
        ((), None, "needs the argument 'request'"),
        (("tides",), None, "the argument 'request' does not fit its type"),
        ((TIDES, 3), None, "the argument 'links' does not fit its type"),
        ((), {"request": {"topic": "tides"}}, "the argument 'request' does not fit its type"),
        ((), {"request": {"topic": "a", "due": "2026-11-01"}, "depth": 1}, "has no parameter 'depth'"),
        (
            (),
            {"request": {"topic": "a", "due": "2026-11-01", "depht": 1}},
            "request: found the unknown key `depht`. Did you mean `depth`?",
        ),
        ((TIDES,), {"request": TIDES}, "arguments were given twice"),
        ((), [TIDES], "input can't be"),
        ((object(),), None, "can't be kept"),
    ],
)
def test_wrong_arguments_are_refused_after_something_was_written(
    workspace: Path, args: tuple[Any, ...], given: Any, said: str
) -> None:
    with pytest.raises((UsageError, NotSerializable), match=said):
        run(workspace, research, *args, input=given)
    assert [path.name for path in workspace.iterdir()] == ["workspace.yaml"]


def test_a_default_inside_an_argument_is_not_recorded(workspace: Path) -> None:
    request = {"topic": "tides", "due": "2026-11-01"}
    first = run(workspace, research, input={"request": request})
    assert state(workspace)["input"]["request"] == {**request, "depth": 2}
    for same in ({**request, "depth": 2}, TIDES):
        assert run(workspace, research, input={"request": same}).result == first.result


def test_a_begun_run_takes_other_arguments(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any], topic: str, depth: int = 1) -> str:
        await look_up(topic, depth)
        raise RuntimeError("later")

    assert run(workspace, main, "tides").status == "failed"
    before = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}
    for args in (("waves",), ("tides", 2)):
        with pytest.raises(UsageError, match=r"this run began with another value of '(topic|depth)'"):
            run(workspace, main, *args)
    with pytest.raises(UsageError, match="another value of 'depth'"):
        satchel.open(str(workspace)).run(main, input={"topic": "tides", "depth": 2})
    assert {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()} == before
    assert run(workspace, main, "tides", 1).answered == 1, "its default was recorded"


def test_a_run_without_arguments_is_begun_again_with_some(workspace: Path) -> None:
    @agent
    async def before(run: Run[Any]) -> None:
        raise RuntimeError("later")

    @agent
    async def after(run: Run[Any], depth: int = 1) -> int:
        return depth

    run(workspace, before)
    with pytest.raises(UsageError, match="another value of 'depth'"):
        run(workspace, after, 2)
    assert run(workspace, after).result == 1


def test_an_agent_that_has_lost_a_parameter_is_entered(workspace: Path) -> None:
    @agent
    async def before(run: Run[Any], topic: str) -> None:
        raise RuntimeError("later")

    @agent
    async def after(run: Run[Any]) -> None: ...

    run(workspace, before, "tides")
    with pytest.raises(UsageError, match="has no parameter 'topic' any more"):
        run(workspace, after)


def test_the_input_of_workspace_yaml_is_not_used(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any], topic: str, depth: int = 1) -> str:
        return f"{topic} to {depth}"

    definition = workspace / "workspace.yaml"
    begun = definition.read_text()
    definition.write_text(f"{begun}input: {{topic: [a]}}\n")
    with pytest.raises(UsageError, match="the argument 'topic' does not fit its type"):
        run(workspace, main)
    definition.write_text(f"{begun}input: {{topic: tides, depth: 3}}\n")
    assert run(workspace, main).result == "tides to 3"
    definition.write_text(f"{begun}input: {{topic: waves}}\n")
    ended = run(workspace, main)
    assert ended.result == "tides to 3"
    assert any("the run keeps the arguments it began with" in remark.text for remark in ended.report.remarks)


def test_arguments_of_a_run_that_is_paused_before_it_begins_are_lost(workspace: Path) -> None:
    satchel.open(str(workspace)).pause()
    assert run(workspace, research, TIDES).status == "paused"
    assert run(workspace, research, wake=True).result == Request("tides to 2 ", TIDES.due)


def test_large_arguments_and_results_are_lost(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any], text: str) -> str:
        return text.upper()

    text = "a" * (100 << 10)
    assert run(workspace, main, text).result == text.upper()
    assert run(workspace, main).result == text.upper()
    assert "input" not in state(workspace) and "result" not in state(workspace)
    for name in ("input_in", "result_in"):
        assert (workspace / state(workspace)[name]).exists()
    assert satchel.open(str(workspace)).check().problems == []
    (workspace / state(workspace)["input_in"]).unlink()
    assert "a result is missing" in str(satchel.open(str(workspace)).check().problems)


def test_a_run_without_its_journal_has_lost_its_arguments(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any], topic: str) -> str:
        if not run.todo.items:
            await run.plan(None, ["wait"])
            await run.pause("later")
        return topic

    assert run(workspace, main, "tides").status == "paused"
    for name in ("journal", "checkpoints"):
        shutil.rmtree(workspace / name)
    ended = run(workspace, main, wake=True)
    assert (ended.status, ended.result) == ("completed", "tides"), ended.error
    for name in ("journal", "checkpoints"):
        shutil.rmtree(workspace / name)
    assert run(workspace, main).result == "tides"


def test_a_result_that_is_not_json_loses_the_work(workspace: Path, calls: list[str]) -> None:
    @step
    async def work() -> int:
        calls.append("work")
        return 1

    @agent
    async def wrong(run: Run[Any]) -> Any:
        await work()
        return {"socket": object()}

    @agent
    async def right(run: Run[Any]) -> Any:
        return await work()

    failed = run(workspace, wrong)
    assert failed.status == "failed" and isinstance(failed.error, NotSerializable)
    assert "the result of the agent.socket can't be kept: a value of the type object is not JSON" in str(failed.error)
    assert "result" not in state(workspace)
    assert run(workspace, right).result == 1 and calls == ["work"]


def test_a_result_of_another_type_is_recorded(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> int:
        return "one"  # type: ignore[return-value]

    failed = run(workspace, main)
    assert failed.status == "failed" and "the result of the agent does not fit its type" in str(failed.error)


def test_a_recorded_result_stops_a_run_whose_agent_has_another_type_now(workspace: Path) -> None:
    @agent
    async def before(run: Run[Any]) -> str:
        return "one"

    @agent
    async def after(run: Run[Any]) -> int:
        return 1

    run(workspace, before)
    ended = run(workspace, after)
    assert ended.result == "one"
    assert any("it is returned as JSON" in remark.text for remark in ended.report.remarks)


def test_a_run_that_is_entered_again_keeps_its_old_result(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> int:
        if not run.todo.items:
            await run.plan(None, ["one"])

        async def work(run: Run[Any], item: Any) -> None:
            if item.text == "two" and not (workspace / "go").exists():
                raise TypeError("not yet")

        await run.todo.each(work)
        return len(run.todo.items)

    assert run(workspace, main).result == 1
    todo = workspace / "todo.md"
    todo.write_text(todo.read_text().replace("\n<!--", "\n- [ ] two\n<!--"))
    assert run(workspace, main).status == "failed"
    assert "result" not in state(workspace) and satchel.open(str(workspace)).result.returned is None
    (workspace / "go").touch()
    assert run(workspace, main).result == 2


def test_an_outcome_that_is_not_completed_passes_for_one(workspace: Path) -> None:
    @agent
    async def main(run: Run[Any]) -> str:
        if not (workspace / "go").exists():
            raise ValueError("no luck")
        return "done"

    with pytest.raises(NotCompleted, match="the run has not completed: failed with ValueError: no luck") as caught:
        run(workspace, main).raise_for_status()
    assert caught.value.outcome.status == "failed" and isinstance(caught.value.__cause__, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301
    satchel.open(str(workspace)).pause()
    with pytest.raises(NotCompleted, match="has not completed: paused"):
        run(workspace, main).raise_for_status()
    (workspace / "go").touch()
    assert run(workspace, main, wake=True).raise_for_status().result == "done"


_KILLED = """
import os, signal
from satchel import agent, step

@step
async def measure(place: str) -> int:
    with open("measured", "a") as file:
        print(place, file=file)
    return len(place)

@agent
async def main(run, places: list[str]) -> dict[str, int]:
    found = {place: await measure(place) for place in places}
    if not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return found
"""


def test_a_kill_between_start_and_completion_loses_arguments_or_result(workspace: Path) -> None:
    (workspace / "agent.py").write_text(_KILLED)
    first = "import satchel; satchel.run('.', None, ['Faro', 'Porto'])"
    killed = warm.run([sys.executable, "-c", first], cwd=workspace, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    command = [sys.executable, "-m", "satchel"]
    told = warm.run([*command, "status", "--json"], cwd=workspace, timeout=60, check=True, capture_output=True)
    assert json.loads(told.stdout)["input"] == {"places": ["Faro", "Porto"]}
    done = warm.run([*command, "run", "--json"], cwd=workspace, timeout=60, check=True, capture_output=True)
    assert json.loads(done.stdout)["result"] == {"Faro": 4, "Porto": 5}
    assert (workspace / "measured").read_text().split() == ["Faro", "Porto"]
    assert satchel.open(str(workspace)).run().result == {"Faro": 4, "Porto": 5}
    status = warm.run([*command, "status"], cwd=workspace, timeout=60, check=True, capture_output=True, text=True)
    assert 'input     {"places": ["Faro", "Porto"]}' in status.stdout
    assert 'result    {"Faro": 4, "Porto": 5}' in status.stdout


def test_a_crash_of_a_supervised_run_loses_the_input_of_the_command(workspace: Path) -> None:
    (workspace / "agent.py").write_text(_KILLED)
    words = ["run", "--json", "--input", '{"places": ["Faro"]}']
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = warm.run(
        [sys.executable, "-m", "satchel", *words],
        cwd=workspace,
        env=environment,
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"] == {"Faro": 4}


_SEEN = """
import os
from pathlib import Path

from satchel import agent

@agent
async def main(run, text):
    lines = [Path(f"/proc/{pid}/cmdline").read_text().split("\\0") for pid in (os.getpid(), os.getppid())]
    if not run.todo.items:
        await run.plan("Plan", ["one"])
        os._exit(9)
    return {"length": len(text), "seen": [word for line in lines for word in line if "tides" in word], "lines": lines}
"""


@pytest.mark.sampled(every=3)
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the command line")
@pytest.mark.parametrize("way", ["detach", "supervise", "typed"])
def test_ps_shows_the_arguments_of_a_run(workspace: Path, capfd: pytest.CaptureFixture[str], way: str) -> None:
    """Also of more than a command line can have, and at the restart after a crash."""
    (workspace / "agent.py").write_text(_SEEN)
    handle, given = satchel.open(workspace), {"text": "tides " * 30_000}
    if way == "detach":
        handle.detach(input=given, options=["--quiet"])
        handle.wait()
    elif way == "supervise":
        assert handle.supervise(input=given, options=["--quiet"]).exit_code == 0
    else:
        command = [sys.executable, "-m", "satchel", "run", "--input", "-", str(workspace)]
        subprocess.run(command, input=json.dumps(given).encode(), timeout=120, check=True)
    found = handle.status().result
    assert found["length"] == 180_000 and found["seen"] == []
    assert found["lines"][0][found["lines"][0].index("--input") :][:2] == ["--input", "-"]
    assert handle.status().input == given


@pytest.mark.parametrize("typed", ["[1]", "{", '{"a": NaN}', '{"a": 1, "a": 2}', "tides"])
def test_an_input_that_is_no_object_starts_a_run(workspace: Path, typed: str) -> None:
    done = warm.run(
        [sys.executable, "-m", "satchel", "run", "--input", typed],
        cwd=workspace,
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Write a JSON object" in done.stderr
    assert not (workspace / "journal").exists()
