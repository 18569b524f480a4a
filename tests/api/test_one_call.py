"""`history.call`: one call with all that its records tell, and the same as text, as JSON, over MCP and on the page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import satchel
from satchel import Retry, Run, agent, effect, step
from satchel.errors import UsageError
from satchel.runtime.cli.group import group

tries: list[int] = []
LONG = "y" * 100
GOLDEN = Path(__file__).parents[1] / "golden"


@step(retry=Retry(attempts=3, first=0.01))
async def look(what: str, more: str) -> dict[str, list[int] | str]:
    Run.current().spend(tokens=100, usd=0.25, model="large-2")
    tries.append(1)
    if len(tries) < 3:
        raise ConnectionError("overloaded")
    return {"found": [1, 2], "text": "z" * 100_000}


@effect
async def send(to: str) -> str:
    return f"sent to {to}"


@step
async def divide(number: int) -> float:
    return 1 / number


async def work(run: Run, item: satchel.Item) -> None:
    await look("weather", LONG)
    await send("ada")
    try:
        await divide(0)
    except ZeroDivisionError:
        run.state["failed"] = True


@agent
async def main(run: Run) -> None:
    await run.plan("Two", ["one", "two"])
    await run.todo.each(work)
    await send("bob")


@pytest.fixture(scope="module")
def handle(tmp_path_factory: pytest.TempPathFactory) -> satchel.Handle:
    folder = tmp_path_factory.mktemp("calls") / "run"
    folder.mkdir()
    (folder / "workspace.yaml").write_text("format: 1\nrun_id: calls-1\nagent: agent.py:main\n")
    tries.clear()
    satchel.run(folder, main)
    return satchel.open(folder)


def test_what_a_call_was_given_and_what_came_of_it_can_not_be_read(handle: satchel.Handle) -> None:
    found = handle.history.call("^1/1")
    assert (found.name, found.title, found.item_state) == ("^1/1", "one", "committed")
    assert found.arguments == {"what": "weather", "more": LONG}, "the preview is cut, so the record has them whole"
    assert found.result == {"found": [1, 2], "text": "z" * 100_000}, "also from a file of its own"
    assert found.call.result_in.startswith(".satchel/blobs/")
    assert (found.call.tokens, found.call.usd, found.model) == (300, 0.75, "large-2"), "of all attempts"
    assert [(each.attempt, each.wait is not None) for each in found.call.troubles] == [(1, True), (2, True)]
    assert found.before == found.records[0].seq - 1 and found.records[-1].seq == found.call.seq


def test_the_arguments_of_an_effect_and_the_lines_of_an_error_are_missing(handle: satchel.Handle) -> None:
    assert handle.history.call("1-one/2").arguments == {"to": "ada"}
    failed = handle.history.call("^1/3")
    assert (failed.call.state, failed.call.error) == ("failed", "ZeroDivisionError: division by zero")
    assert [line.rpartition(" in ")[2] for line in failed.frames] == ["divide"]
    assert handle.history.call("_agent/1").arguments == {"to": "bob"}


def test_a_record_names_another_call(handle: satchel.Handle) -> None:
    for name in ("^1/1", "^2/3", "_agent/1"):
        found = handle.history.call(name)
        for line in found.records:
            assert handle.history.call(line.seq).name == name


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("^1/9", "has no call 9: its calls are 1, 2, 3"),
        ("^7/1", "no item '\\^7' has begun"),
        ("1", "record 1 is about no call"),
        ("9999", "there is no record 9,999"),
        ("nonsense", "names no call"),
        ("", "names no call"),
        ("/3", "names no call"),
    ],
)
def test_a_name_of_no_call_is_not_refused(handle: satchel.Handle, named: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        handle.history.call(named)


def test_the_state_keeps_the_arguments_of_steps(handle: satchel.Handle) -> None:
    """A scope may have thousands of calls: they would be in every checkpoint."""
    shown = handle.history.show(handle.history.call("^1/1").call.seq)
    (done,) = shown.moment.root.scopes["1"].done.values()
    assert not len(done.arguments)
    assert all(LONG not in path.read_text() for path in Path(handle.url).glob("checkpoints/*.json"))


def test_the_command_shows_less(handle: satchel.Handle) -> None:
    told = CliRunner().invoke(group, ["show", handle.url, "^1/1"])
    assert told.exit_code == 0 and LONG in told.output and "300 tokens, $0.75" in told.output
    assert "attempt 2 failed, again after" in told.output
    found = json.loads(CliRunner().invoke(group, ["show", handle.url, "^1/3", "--json"]).output)
    assert found["state"] == "failed" and found["arguments"] == {"number": 0} and found["item_state"] == "committed"
    assert [each["type"] for each in found["records"]] == ["step.failed"]
    assert CliRunner().invoke(group, ["show", handle.url, "^1/9"]).exit_code == 2


def test_a_call_whose_records_have_gone_is_forgotten(tmp_path: Path) -> None:
    """Of a finished item, effects stay when old records are removed."""
    shutil.copytree(GOLDEN / "pruned", tmp_path / "pruned")
    found = satchel.open(tmp_path / "pruned" / "run").history.call("^1/2")
    assert (found.call.step, found.result, found.records) == ("pay", "receipt of A-1", ())
    assert found.arguments == {"amount": 30, "invoice": "A-1"}, "its preview has them whole"


@step
async def read(text: str) -> int:
    return len(text)


def test_arguments_that_are_not_kept_are_shown_as_none_at_all(tmp_path: Path) -> None:
    (tmp_path / "workspace.yaml").write_text("format: 1\nrun_id: long-1\nagent: agent.py:main\n")

    @agent
    async def reader(run: Run) -> None:
        await read("a: b" * 2000)
        await read("a: b")

    satchel.run(tmp_path, reader)
    history = satchel.open(tmp_path).history
    assert history.call("_agent/1").arguments is None
    assert history.call("_agent/2").arguments == {"text": "a: b"}
