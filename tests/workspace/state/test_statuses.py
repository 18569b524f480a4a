"""The table of statuses: what follows what, and that the documentation, schemas and records say the same."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest
from api.test_withdrawing import Gated, until
from transitions import SOMETIMES, Noted

import satchel
from satchel import Handle
from satchel.workspace.journal import EndStatus
from satchel.workspace.state.statuses import EXIT_CODES, OVER, STATES, TRANSITIONS, Act, State, Status, after

ROOT = Path(__file__).parents[3]

_AGENT = """
from datetime import timedelta
from pathlib import Path
from satchel import agent, step

@step
def one() -> int:
    return 1

async def work(run, item):
    await one()

@agent
async def main(run):
    await one()
    await run.plan("Life", ["one"])
    await run.todo.each(work)
    what = Path(__file__).with_name("what").read_text()
    if what == "ask":
        await run.ask("Go on?", choices=["yes", "no"], wait_for=0)
    elif what == "sleep":
        await run.sleep(timedelta(days=1))
    elif what == "fail":
        raise ValueError("no")
    elif what == "pause":
        run.pause("by itself")
    return what
"""


@pytest.fixture
def run_of(tmp_path: Path) -> Any:
    def make(name: str, what: str = "") -> Handle:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "agent.py").write_text(_AGENT)
        (folder / "what").write_text(what)
        (folder / "workspace.yaml").write_text(f"format: 1\nrun_id: {name}\nagent: agent.py:main\n")
        return satchel.open(folder)

    return make


def test_a_status_is_missing_in_the_table() -> None:
    assert sorted(STATES) == sorted(get_args(State))
    assert list(TRANSITIONS) == list(get_args(Act))
    used = {status for each in TRANSITIONS.values() for status in (each.to, *each.of)}
    assert used == {*get_args(Status)}
    assert {*EXIT_CODES} == {*get_args(EndStatus)} >= OVER
    assert len({*EXIT_CODES.values()}) == len(EXIT_CODES)


def test_a_cancelled_run_becomes_something_else() -> None:
    assert [act for act in TRANSITIONS if after(act, "cancelled") != "cancelled"] == ["forked"]


def test_every_status_comes_from_a_new_run() -> None:
    reached: set[Status] = {"new"}
    while more := {after(act, status) for act in TRANSITIONS for status in reached} - reached:
        reached |= more
    assert reached == {*get_args(Status)}


def test_a_life_takes_a_way_that_is_not_in_the_table(run_of: Any, transitions: Noted) -> None:
    asking = run_of("asking", "ask")
    assert asking.run().status == "waiting"
    asking.answer("yes")
    assert asking.run().status == "completed"
    asking.history.rewind(to=4)
    sleeping = run_of("sleeping", "sleep")
    assert sleeping.run().status == "sleeping"
    sleeping.pause()
    sleeping.cancel()
    failing = run_of("failing", "fail")
    assert failing.run().status == "failed"
    failing.pause()
    assert failing.resume().status == "failed"
    completed = run_of("completed")
    assert completed.run().status == "completed"
    completed.history.replay("1", Path(completed.url).with_name("replay"))
    file = Path(completed.url, "steps/_agent/01-one.json")
    file.write_text(file.read_text().replace('"result": 1', '"result": 2'))
    completed.recover()
    assert completed.status().state == "paused"
    gated, handle = Gated(), run_of("gated")
    with gated.going(handle):
        handle.pause()
        until(lambda: handle.status().state == "draining")
        assert handle.withdraw().status == "withdrawn"
    with satchel.hold(Path(completed.url).with_name("held"), kind="thread") as held:
        held.put("a.txt", "one")
    assert not transitions.unknown()
    happened = {act for act, before, now in transitions.changes if act not in SOMETIMES or now != before}
    assert happened == {*TRANSITIONS} - {"forked"}


def test_a_cancelled_run_without_its_journal_can_be_resumed(run_of: Any) -> None:
    handle = run_of("gone", "ask")
    handle.run()
    handle.cancel()
    for name in ("journal", "checkpoints"):
        shutil.rmtree(Path(handle.url) / name)
    assert handle.status().state == "cancelled"
    assert handle.run().status == "cancelled"


def test_the_documentation_has_another_table() -> None:
    text = (ROOT / "docs/formats.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (\d?) \|$", text, re.MULTILINE)
    wanted = [(each, STATES[each].meaning, str(EXIT_CODES.get(each, ""))) for each in get_args(Status)]
    assert rows == wanted
    moves = re.findall(r"^\| (.+) \| (.+) \| `(\w+)` \|$", text, re.MULTILINE)
    assert moves == [
        (each.meaning, " ".join(f"`{status}`" for status in each.of), each.to) for each in TRANSITIONS.values()
    ]


def test_exit_codes_are_told_differently() -> None:
    commands = (ROOT / "docs/commands.md").read_text()
    skill = " ".join((ROOT / "runtime/cli/SKILL.md").read_text().split())
    for status, code in EXIT_CODES.items():
        assert re.search(rf"^\| {code} \| [^|]*`{status}`", commands, re.MULTILINE), status
        assert f"{code} {status}" in skill
    listed = re.search(r"`state` in the status is one of ([a-z, ]+), or (\w+)", skill)
    assert listed and [*listed[1].split(", "), listed[2]] == [*get_args(Status), "interrupted"]


def test_a_schema_has_other_statuses() -> None:
    state = json.loads((ROOT / "schemas/state.json").read_text())
    assert [{*each["enum"]} for each in _all(state, "status")] == [{*get_args(Status)}]
    record = json.loads((ROOT / "schemas/record.json").read_text())
    ends = [each["enum"] for each in _all(record, "status") if "completed" in each["enum"]]
    assert ends == [[*get_args(EndStatus)]]


def _all(schema: Any, name: str) -> list[Any]:
    if isinstance(schema, list):
        return [found for each in schema for found in _all(each, name)]
    if not isinstance(schema, dict):
        return []
    found = [schema[name]] if isinstance(schema.get(name), dict) and "enum" in schema[name] else []
    return found + [each for value in schema.values() for each in _all(value, name)]
